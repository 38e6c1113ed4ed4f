"""Transfer: what a profile of one model says of another model on the same machine, by the bytes of their weights.

A pass is taken to last as long as its bytes say: seconds x bytes / bytes of the model that was timed. That holds between
models of one quantization whose steps are bound by reading weights; quantizations differ in how fast they are read and
in how a pass grows with its width, so the other model is one of the same quantization. Acceptance is that of the pair
that was profiled. All of it is a prior, and its intervals say so (fit.BEYOND_TABLE_LOG_SD).
"""

from dataclasses import dataclass, replace

from ..model.cost import RoundOfParts
from ..model.steps import StepTable
from ..profiler.errors import InputError
from ..profiler.records import ModelFile
from .fit import Calibrated
from .rounds import PairRounds, StepTables

MOST_TIMES = 50
"""A model this many times as large or small says nothing of another."""


@dataclass(frozen=True)
class Sizes:
    """Bytes of weights of the models to forecast; None: as profiled."""

    target_bytes: float | None = None
    draft_bytes: float | None = None


def transferred(calibrated: Calibrated, sizes: Sizes) -> Calibrated:
    """The model of `calibrated` with every target, and every draft model, at `sizes`. Raises InputError where the profile
    has targets of several sizes, so that the one to start from is not told, or does not know their bytes."""
    targets = {candidate.target for candidate in calibrated.profile.candidates}
    drafts = {candidate.draft for candidate in calibrated.profile.candidates if candidate.drafter == "model"}
    scale = {
        **_factors(calibrated, targets, "target", sizes.target_bytes),
        **_factors(calibrated, drafts, "draft", sizes.draft_bytes),
    }
    tables = {key: _scaled(table, scale.get((key[0], key[1]))) for key, table in calibrated.tables.tables.items()}
    verification = {
        model: _scaled(table, scale.get((model, "target"))) for model, table in calibrated.tables.verification.items()
    }
    workloads = calibrated.workloads()
    runs_over_steps = {(t, w): calibrated.reply_factor(t, w) for t in targets for w in workloads}
    return replace(
        calibrated,
        tables=StepTables(tables, verification),
        pairs=tuple(_pair(pair, scale) for pair in calibrated.pairs),
        _forecasts={},
        _laws={},
        _factors=runs_over_steps,
    )


def _factors(
    calibrated: Calibrated, labels: set[str], role: str, size_bytes: float | None
) -> dict[tuple[str, str], float]:
    """New bytes over timed bytes by (model, role)."""
    if size_bytes is None:
        return {}
    models = [model for model in calibrated.profile.models if model.label in labels]
    known = {model.size_bytes for model in models}
    if len(known) != 1 or 0 in known:
        raise InputError(f"--{role}-size: {_why(models, role)}")
    factor = size_bytes / known.pop()
    if not 1 / MOST_TIMES <= factor <= MOST_TIMES:
        raise InputError(
            f"--{role}-size: {factor:.3g} times the size of the {role} in the profile: give 1/{MOST_TIMES} to {MOST_TIMES}"
        )
    return {(model.label, role): factor for model in models}


def _why(models: list[ModelFile], role: str) -> str:
    if not models or not all(model.size_bytes for model in models):
        return f"the profile does not know the bytes of its {role}; profile the model itself"
    return f"the profile has {role}s of {len(models)} sizes; profile one of the same quantization alone"


def _pair(pair: PairRounds, scale: dict[tuple[str, str], float]) -> PairRounds:
    """Round costs over scaled tables; overhead and what rounds showed of their parts stay."""
    target = _scaled(pair.cost.target, scale.get((pair.pair.target, "target")))
    if not isinstance(pair.cost, RoundOfParts):
        return replace(pair, cost=replace(pair.cost, target=target))
    draft = pair.cost.draft and _scaled(pair.cost.draft, scale.get((pair.pair.draft, "draft")))
    return replace(pair, cost=replace(pair.cost, target=target, draft=draft))


def _scaled(table: StepTable, factor: float | None) -> StepTable:
    """`table` with seconds x `factor`, as a prior; the table itself where there is none."""
    return table if factor is None else replace(table, seconds=table.seconds * factor, prior=True)

"""What-if records from a calibrated model, and the model that they stand for.

The page's script (reports/templates/what_if.js) computes from the same records what model/what_if.py does.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from ..model.cost import Overhead, RoundCost, RoundOfParts, Rounds, WholeRounds
from ..model.kernels import KernelSwitch, kernel_switches
from ..model.steps import StepTable
from ..model.survival import extended, hazards
from ..model.what_if import WhatIf, movable
from ..profiler.records import Setting
from .fit import Calibrated
from .records import SettingForecast
from .reported import speaks_of
from .what_if_records import KernelAdvice, PassSeconds, RoundPrices, WhatIfRecord, WorkloadWhatIf

MOST_LENGTHS = 64
"""Draft lengths of one drafter that are kept; the shortest."""


def what_ifs(calibrated: Calibrated, forecasts: Sequence[SettingForecast]) -> tuple[WhatIfRecord, ...]:
    """One record for each drafter among `forecasts`, over the draft lengths and workloads that were forecast.

    A workload on which nothing was ever drafted is left out: there is no acceptance to move. So is one whose forecasts are
    slower than rounds in which nothing is accepted, which no acceptance explains.
    """
    groups: dict[Setting, list[SettingForecast]] = defaultdict(list)
    for forecast in forecasts:
        if forecast.setting.draft_tokens:
            groups[replace(forecast.setting, draft_tokens=1)].append(forecast)
    found = [_record(calibrated, drafter, group) for drafter, group in groups.items()]
    return tuple(record for record in found if record.workloads)


def model_of(record: WhatIfRecord, workload: WorkloadWhatIf) -> WhatIf:
    """The model that a record stands for, on one of its workloads."""
    return WhatIf(
        cost=cost_of(record.prices),
        draft_tokens=np.array([0, *record.prices.draft_tokens]),
        hazard=np.array(workload.hazard),
        offered=np.array(workload.offered),
        reply_factor=workload.reply_factor,
        anchor=np.array(workload.anchor),
        scale=workload.scale,
    )


def cost_of(prices: RoundPrices) -> RoundCost:
    """The cost of rounds, at the recorded draft lengths, without replicates."""
    lengths = np.array(prices.draft_tokens)
    correction = np.ones(int(lengths[-1]))
    correction[lengths - 1] = prices.correction
    target = _table(prices.target)
    if prices.ratio:
        ratio = np.array(prices.ratio).T
        return WholeRounds(target, lengths, np.array(prices.ratio_contexts), ratio, correction, prices.recipe)
    overhead = Overhead(np.array(prices.overhead_seconds), np.array(prices.overhead_seconds_per_token))
    draft = None if prices.draft is None else _table(prices.draft)
    return RoundOfParts(prices.recipe, target, draft, overhead, correction)


def _table(passes: PassSeconds) -> StepTable:
    return StepTable(np.array(passes.widths), np.array(passes.contexts), np.array(passes.seconds).T)


def kernel_reasons(records: Sequence[WhatIfRecord], setting: Setting | None, workload: str) -> tuple[str, ...]:
    """Sentences on kernel switches of the drafter of `setting` that matter on a workload."""
    if setting is None:
        return ()
    mine = [r for r in records if replace(r.setting, draft_tokens=1) == replace(setting, draft_tokens=1)]
    return tuple(advice.text for record in mine for advice in record.kernels if advice.workload == workload)


def _record(calibrated: Calibrated, drafter: Setting, forecasts: list[SettingForecast]) -> WhatIfRecord:
    by_workload: dict[str, dict[int, SettingForecast]] = defaultdict(dict)
    for forecast in forecasts:
        by_workload[forecast.workload][forecast.setting.draft_tokens] = forecast
    # Lengths that were forecast on every workload: one table of prices serves all.
    common = set.intersection(*(set(found) for found in by_workload.values()))
    lengths = tuple(sorted(common))[:MOST_LENGTHS]
    longest = replace(drafter, draft_tokens=lengths[-1])
    cost = calibrated.round_cost(longest)
    prices = prices_of(cost, lengths)
    workloads = [_workload(calibrated, longest, prices, w, found) for w, found in by_workload.items()]
    known = tuple(one for one in workloads if one is not None)
    return WhatIfRecord(
        setting=longest,
        prices=prices,
        workloads=known,
        trusted_context=cost.target.reach(),
        known_contexts=tuple(float(c) for c in cost.target.contexts),
        takes_context=speaks_of(calibrated.profile),
        kernels=tuple(advice for one in known for advice in _kernels(cost, prices, one)),
    )


def prices_of(cost: RoundCost, draft_tokens: tuple[int, ...]) -> RoundPrices:
    """The point estimate of `cost` at `draft_tokens`, rising from 1 at least."""
    lengths = np.array(draft_tokens)
    correction = np.ones(lengths.size)
    if cost.correction is not None:
        correction = _point(cost.correction)[np.minimum(lengths, cost.correction.shape[-1]) - 1]
    if isinstance(cost, WholeRounds):
        return RoundPrices(
            recipe=cost.recipe,
            draft_tokens=draft_tokens,
            target=_passes(cost.target, (1,)),
            correction=_floats(correction),
            ratio_contexts=_floats(cost.contexts),
            ratio=tuple(_floats(column) for column in cost.curve.at(lengths).value[0].T),
        )
    verified = tuple(sorted({1, *(n + 1 for n in draft_tokens)}))
    return RoundPrices(
        recipe=cost.recipe,
        draft_tokens=draft_tokens,
        target=_passes(cost.target, verified),
        draft=None if cost.draft is None else _passes(cost.draft, tuple(sorted({2, *verified}))),
        overhead_seconds=float(np.ravel(cost.overhead.constant)[0]),
        overhead_seconds_per_token=float(np.ravel(cost.overhead.per_token)[0]),
        correction=_floats(correction),
    )


def _passes(table: StepTable, widths: tuple[int, ...]) -> PassSeconds:
    columns = [_floats(_point(table.lookup(width, table.contexts).seconds)) for width in widths]
    return PassSeconds(contexts=_floats(table.contexts), widths=widths, seconds=tuple(columns))


def _workload(
    calibrated: Calibrated, longest: Setting, prices: RoundPrices, workload: str, forecasts: dict[int, SettingForecast]
) -> WorkloadWhatIf | None:
    survival = calibrated.survival(longest, workload)
    if not survival.size or survival[0] <= 0:
        return None
    settings = [forecasts[n].setting for n in prices.draft_tokens]
    hazard = movable(hazards(extended(survival, longest.draft_tokens)))
    offered = np.array([0.0, *(calibrated.offer_rate(setting, workload) for setting in settings)])
    plain = forecasts[prices.draft_tokens[0]].baseline_tokens_per_second
    speeds = np.array([plain, *(float(calibrated.speeds(setting, workload)[0]) for setting in settings)])
    lengths = np.array([0, *prices.draft_tokens])
    context = calibrated.mean_context(longest.plain, workload)
    factor = float(calibrated.reply_factor(longest.target, workload)[0])
    bare = WhatIf(cost_of(prices), lengths, hazard, offered, factor, np.ones(lengths.size))
    try:
        held = bare.held_to(speeds, context)
    except ValueError:
        return None
    doubtful = calibrated.round_cost(longest).lookup(Rounds.of(lengths, context)).doubtful
    return WorkloadWhatIf(
        workload=workload,
        context=context,
        hazard=_floats(hazard),
        offered=_floats(offered),
        reply_factor=factor,
        anchor=_floats(held.anchor),
        scale=held.scale,
        tokens_per_second=_floats(speeds),
        doubtful=tuple(bool(d) for d in doubtful),
    )


def _kernels(cost: RoundCost, prices: RoundPrices, workload: WorkloadWhatIf) -> list[KernelAdvice]:
    """Switches that matter on one workload, by rounds behind its own context."""
    lengths = np.array([0, *prices.draft_tokens])
    found = cost.lookup(Rounds.of(lengths, workload.context))
    speed, seconds = np.array(workload.tokens_per_second), found.seconds
    # Tokens for which the point estimate is the forecast itself, ends of replies included.
    tokens = speed * _point(seconds)
    switches = kernel_switches(lengths, seconds, tokens, np.array(workload.doubtful))
    return [
        KernelAdvice(
            workload=workload.workload,
            draft_tokens=switch.draft_tokens,
            over_line=switch.over_line,
            over_before=switch.over_before,
            take=switch.take,
            never=switch.never,
            text=advice_text(switch, _point(seconds)[switch.draft_tokens == lengths][0], workload.context),
        )
        for switch in switches
    ]


def advice_text(switch: KernelSwitch, seconds: float, context: float) -> str:
    """A switch in a sentence; `seconds` of the round past it."""
    width, before = switch.width, switch.width - 1
    never = _range(switch.never)
    if switch.cheaper:
        return (
            f"a verification of {width} tokens runs on another kernel: a round of {switch.draft_tokens} draft tokens takes "
            f"{1e3 * seconds:.1f} ms, {-100 * switch.over_before:.0f} % less than one of {switch.draft_tokens - 1} and "
            f"{-100 * switch.over_line:.0f} % less than the shorter ones lead to expect; take {switch.take} draft tokens, "
            f"never {never}"
        )
    return (
        f"a verification of {width} tokens runs on another kernel: a round of {switch.draft_tokens} draft tokens takes "
        f"{1e3 * seconds:.1f} ms, {100 * switch.over_before:+.0f} % over one that verifies {before}; take {switch.take} "
        f"draft tokens, never {never}"
    )


def _range(lengths: tuple[int, ...]) -> str:
    return str(lengths[0]) if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}"


def _point(replicated: np.ndarray) -> np.ndarray:
    """Entry 0 of (1 + replicates, n): (n,)."""
    return replicated.reshape(-1, replicated.shape[-1])[0]


def _floats(values: np.ndarray) -> tuple[float, ...]:
    return tuple(float(value) for value in values)

"""What if: forecasts of settings from a profile alone, nothing is run."""

from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from ..profiler.errors import InputError
from ..profiler.records import Profile, Setting
from . import reported
from .fit import Calibrated, NotCalibrated
from .plan import candidate_name


@dataclass(frozen=True)
class Prediction:
    """One row of `predict`: a setting on a workload, speeds in tokens/s."""

    target: str
    target_quant: str
    drafter: str
    draft: str
    draft_quant: str
    draft_tokens: int
    context: int
    streams: int
    workload: str
    tokens_per_second: float
    low: float
    high: float
    level: float
    speed_up: float
    provenance: str


def check_contexts(profile: Profile, contexts: tuple[int, ...] | None) -> None:
    """Raises InputError where contexts are asked of a profile whose replies have their own."""
    if contexts is not None and not reported.speaks_of(profile):
        raise InputError("--context: the replies of this profile have contexts of their own; profile other prompts")


def predictions_of(
    profile: Profile,
    calibrated: Calibrated,
    lengths: tuple[int, ...] | None,
    contexts: tuple[int, ...] | None = None,
    told: Callable[[str], None] = lambda reason: None,
) -> tuple[Prediction, ...]:
    """Forecasts of every candidate that was measured, at `lengths` (None: 0 and its own), on every workload.

    `contexts` replace those of candidates whose evidence others reported; a profile's own prompts have theirs. Raises
    InputError where contexts are asked for and cannot be, and where nothing can be forecast. What cannot be on some
    workload is left out there, and `told` the reason.
    """
    check_contexts(profile, contexts)
    kept = [candidate for candidate in profile.candidates if candidate_name(candidate) not in profile.dropped]
    settings = [
        replace(candidate.setting(length), context=context)
        for candidate in kept
        for context in contexts or (candidate.context,)
        for length in (lengths if lengths is not None else (0, *candidate.draft_tokens))
        if candidate.drafter != "none" or length == 0
    ]
    workloads = tuple(dict.fromkeys(prompt.workload for prompt in profile.prompts))
    found, reasons = [], []
    for setting in dict.fromkeys(settings):
        for workload in workloads:
            try:
                found.append(_prediction(calibrated, setting, workload))
            except NotCalibrated as error:
                reasons.append(str(error))
    if not found:
        raise InputError(reasons[0] if reasons else "the profile has nothing to forecast: profile again")
    for reason in dict.fromkeys(reasons):
        told(reason)
    return tuple(found)


def _prediction(calibrated: Calibrated, setting: Setting, workload: str) -> Prediction:
    forecast = calibrated.forecast(setting, workload)
    speed = forecast.tokens_per_second
    return Prediction(
        target=setting.target,
        target_quant=setting.target_quant,
        drafter=setting.drafter,
        draft=setting.draft,
        draft_quant=setting.draft_quant,
        draft_tokens=setting.draft_tokens,
        context=setting.context,
        streams=setting.streams,
        workload=workload,
        tokens_per_second=speed.value,
        low=speed.low,
        high=speed.high,
        level=calibrated.level,
        speed_up=forecast.speed_up,
        provenance=forecast.provenance,
    )

"""Sampling parity: what was sent and what the engine really used, side by side."""

from collections.abc import Iterable

from ...profiler.outputs.sampling_parity import DIFFERS, EQUAL, NOT_TOLD, SENT, SentUsed, compared
from ...profiler.outputs.sampling_parity import sampling_parity as arm_parity
from ...profiler.records import Profile, Run, Sampling
from .records import SamplingField

STATES = {EQUAL: True, DIFFERS: False, NOT_TOLD: None}
DRAFT_FIELD = "draft_sampling"
OF_THE_ARM = ("drafter", "draft_tokens")
"""Not sampling: they differ from arm to arm."""


def sampling_parity(runs: Iterable[Run]) -> tuple[SamplingField, ...]:
    """A row for each setting: equal in all runs, or as it stood in the first run in which it was not."""
    merged: dict[str, SamplingField] = {}
    for run in runs:
        for field in _of_run(run) if run.effective else ():
            if field.equal is False and (field.name not in merged or merged[field.name].equal is not False):
                merged[field.name] = _at(field, run)
            else:
                merged.setdefault(field.name, field)
    return tuple(merged.values())


def runs_of(profile: Profile) -> tuple[Run, ...]:
    """All runs of a profile."""
    return tuple(run for measurement in profile.measurements for run in measurement.runs)


def both_sides(target: Sampling, draft: Sampling) -> tuple[SamplingField, ...]:
    """Settings meant for the target (sent) beside those meant for the draft (used), before anything ran."""
    return tuple(
        _field(compared(name, getattr(target, name), {name: str(getattr(draft, name))}))
        for name in (*SENT, DRAFT_FIELD)
    )


def _of_run(run: Run) -> list[SamplingField]:
    """Sampling alone; how the draft samples only where the engine tells it."""
    fields = arm_parity(run.setting, run.sampling, run.effective).fields
    told = [one for one in fields if one.name not in OF_THE_ARM and (one.name != DRAFT_FIELD or one.used)]
    return [_field(one) for one in told]


def _field(one: SentUsed) -> SamplingField:
    return SamplingField(name=one.name, sent=one.sent, used=one.used[:40], equal=STATES[one.state])


def _at(field: SamplingField, run: Run) -> SamplingField:
    setting = run.setting
    where = f"{setting.target} with {setting.draft or setting.drafter}, {setting.draft_tokens} draft tokens"
    return SamplingField(name=field.name, sent=field.sent, used=field.used, equal=False, where=where)

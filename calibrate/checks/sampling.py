"""Sampling parity: what was sent and what the engine really used, side by side."""

from collections.abc import Iterable, Mapping

from ...profiler.records import Profile, Run, Sampling
from .records import SamplingField

FIELDS = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "seed")
"""Sent with every request under these names (llama.cpp's)."""
TOLERANCE = 1e-6
"""Engines keep these in 32-bit floats: 0.95 is read back as 0.949999988."""
DRAFT_FIELD = "draft_sampling"
NEUTRAL = {
    "dynatemp_range": 0.0,
    "top_n_sigma": -1.0,
    "xtc_probability": 0.0,
    "typical_p": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dry_multiplier": 0.0,
    "mirostat": 0.0,
    "adaptive_target": -1.0,
}
"""llama.cpp's other samplers and the value at which each does nothing: one that is on was sent by nobody."""


def sampling_parity(runs: Iterable[Run]) -> tuple[SamplingField, ...]:
    """A row for each setting: equal in all runs, or as it stood in the first run in which it was not."""
    found = [(run, _of_run(run.sampling, run.effective)) for run in runs if run.effective]
    if not found:
        return ()
    merged: dict[str, SamplingField] = {}
    for run, fields in found:
        for field in fields:
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
    names = (*FIELDS, DRAFT_FIELD)
    return tuple(_field(name, getattr(target, name), str(getattr(draft, name))) for name in names)


def _of_run(sent: Sampling, used: Mapping[str, str]) -> list[SamplingField]:
    known = [_field(name, getattr(sent, name), used.get(name, "")) for name in FIELDS]
    extra = [_field(name, neutral, used[name]) for name, neutral in NEUTRAL.items() if name in used]
    drafting = used.get("speculative.draft_sampling", used.get(DRAFT_FIELD, ""))
    mode = [_field(DRAFT_FIELD, sent.draft_sampling, drafting)] if drafting else []
    return [*known, *mode, *(field for field in extra if field.equal is False)]


def _field(name: str, sent: object, used: str) -> SamplingField:
    text = f"{sent:g}" if isinstance(sent, float) else str(sent)
    return SamplingField(name=name, sent=text, used=_tidy(used), equal=_equal(sent, used) if used else None)


def _equal(sent: object, used: str) -> bool:
    try:
        ours, theirs = float(str(sent)), float(used)
    except ValueError:
        return str(sent) == used
    return abs(ours - theirs) <= TOLERANCE * max(1.0, abs(ours))


def _tidy(used: str) -> str:
    """A number without the tail that 32 bits leave."""
    try:
        value = float(used)
    except ValueError:
        return used[:40]
    return f"{value:.6g}" if abs(value) < 1e6 else used[:40]


def _at(field: SamplingField, run: Run) -> SamplingField:
    setting = run.setting
    where = f"{setting.target} with {setting.draft or setting.drafter}, {setting.draft_tokens} draft tokens"
    return SamplingField(name=field.name, sent=field.sent, used=field.used, equal=False, where=where)

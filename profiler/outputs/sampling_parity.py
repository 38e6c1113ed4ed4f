"""Sampling parity: each setting as it was sent beside what the engine says it used.

Engines ignore, rename and override settings without a word (llama.cpp#26100, #25345): what counts is what they read back.
"""

from collections.abc import Mapping

from ..records import Record, Sampling, Setting

EQUAL, DIFFERS, NOT_TOLD = "equal", "differs", "not told"
SINGLE_PRECISION = 1e-6
"""Engines keep settings in single precision: 0.95 is read back as 0.949999988."""
SENT = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "seed")
OTHER_SAMPLERS = {
    "dynatemp_range": 0.0,
    "xtc_probability": 0.0,
    "typical_p": 1.0,
    "top_n_sigma": -1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dry_multiplier": 0.0,
    "mirostat": 0.0,
    "adaptive_target": -1.0,
}
"""Samplers that are never asked for, with the value at which each does nothing (llama-server)."""
READ_AS = {
    "draft_sampling": ("draft_sampling", "speculative.draft_sampling"),
    "draft_tokens": ("speculative.n_max", "speculative.draft.n_max"),
    "drafter": ("speculative.types", "speculative.type"),
}
"""Names under which engines report a setting, where they are not ours."""
DRAFTER_WORDS = {"simple": "model", "mtp": "mtp", "eagle3": "eagle", "eagle": "eagle", "dflash": "dflash"}


class SentUsed(Record, kw_only=True):
    """One setting. `state`: equal, differs, not told."""

    name: str
    sent: str
    used: str
    state: str


class SettingParity(Record, kw_only=True):
    """Everything that decides what a setting draws and accepts; draft and target where the engine tells them apart."""

    setting: Setting
    fields: tuple[SentUsed, ...]

    @property
    def differing(self) -> tuple[SentUsed, ...]:
        return tuple(field for field in self.fields if field.state == DIFFERS)


def sampling_parity(setting: Setting, sampling: Sampling, effective: Mapping[str, str]) -> SettingParity:
    """`effective`: what the engine read back, in its own names. What it uses without having been sent is listed too."""
    fields = [compared(name, getattr(sampling, name), effective) for name in SENT]
    fields.append(compared("drafter", setting.drafter, effective))
    if setting.drafter != "none":
        fields.append(compared("draft_tokens", setting.draft_tokens, effective))
    if setting.drafter not in ("none", "ngram"):
        fields.append(compared("draft_sampling", sampling.draft_sampling, effective))
    silent = [compared(name, value, effective) for name, value in OTHER_SAMPLERS.items()]
    return SettingParity(setting=setting, fields=(*fields, *(field for field in silent if field.state == DIFFERS)))


def compared(name: str, value: object, effective: Mapping[str, str]) -> SentUsed:
    """One setting of ours, sent as `value`, against what was read back under any of its names."""
    sent = _written(value)
    used = next((effective[word] for word in READ_AS.get(name, (name,)) if effective.get(word)), "")
    if name == "drafter":
        used = _drafter(used)
    state = NOT_TOLD if not used else EQUAL if same_value(sent, used) else DIFFERS
    return SentUsed(name=name, sent=sent, used=_tidy(used), state=state)


def _drafter(word: str) -> str:
    """Our name of the engine's speculation type: draft-simple is a model, ngram-mod an n-gram drafter."""
    own = word.split(",")[0].removeprefix("draft-")
    return "ngram" if own.startswith("ngram") else DRAFTER_WORDS.get(own, own)


def same_value(sent: str, used: str) -> bool:
    """As numbers where both are, to single precision; else as words."""
    try:
        return abs(float(sent) - float(used)) <= SINGLE_PRECISION * max(1.0, abs(float(sent)))
    except ValueError:
        return sent.strip().lower() == used.strip().lower()


def _tidy(used: str) -> str:
    """A number without its tail of single precision."""
    try:
        return used if used.lstrip("-").isdigit() else _written(float(used))
    except ValueError:
        return used


def _written(value: object) -> str:
    return f"{value:.7g}" if isinstance(value, float) else str(value)

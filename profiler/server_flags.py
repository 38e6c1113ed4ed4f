"""What llama-server flags ask for, as far as a check needs it: context, streams, KV types, draft length, sampling.

Flags that mean nothing here are passed over: the server itself judges them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from .errors import InputError
from .records import MOST_CONTEXT, MOST_DRAFTED, MOST_STREAMS, Sampling

NAMES = {
    "-c --ctx-size": "context",
    "-np --parallel": "streams",
    "--spec-draft-n-max --draft-max --draft --draft-n": "draft_tokens",
    "-ctk --cache-type-k": "kv_type_k",
    "-ctv --cache-type-v": "kv_type_v",
    "-ctkd --cache-type-k-draft --spec-draft-type-k": "draft_kv_type_k",
    "-ctvd --cache-type-v-draft --spec-draft-type-v": "draft_kv_type_v",
    "--temp --temperature": "temperature",
    "--top-k": "top_k",
    "--top-p": "top_p",
    "--min-p": "min_p",
    "--repeat-penalty": "repeat_penalty",
    "-s --seed": "seed",
    "--spec-draft-sampling": "draft_sampling",
}
BY_FLAG = {flag: name for flags, name in NAMES.items() for flag in flags.split()}
LONGEST_VALUE = 64
NEW_SEED = -1
"""What llama-server takes without one: another seed for each request."""
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "seed", "draft_sampling")
WHOLE = {
    "context": (0, MOST_CONTEXT * MOST_STREAMS),
    "streams": (1, MOST_STREAMS),
    "draft_tokens": (0, MOST_DRAFTED),
    "top_k": (-1, 2**31 - 1),
    "seed": (-1, 2**32 - 1),
}
"""Whole numbers, with the least and the most that is believed; llama-server's -1 for the seed is a new one each time."""
FRACTIONS = {"temperature": (0.0, 100.0), "top_p": (0.0, 1.0), "min_p": (0.0, 1.0), "repeat_penalty": (0.0, 100.0)}


@dataclass(frozen=True)
class Asked:
    """None where the flags do not say. `context` is that of each stream: llama-server's -c is shared by its slots."""

    context: int | None = None
    streams: int | None = None
    draft_tokens: int | None = None
    kv_type_k: str | None = None
    kv_type_v: str | None = None
    draft_kv_type_k: str | None = None
    draft_kv_type_v: str | None = None
    sampling: Sampling | None = None
    """Only where a temperature is given: without one the client's decides."""
    unread: tuple[str, ...] = ()
    """Flags that this reading does not know."""


def asked_of(flags: Sequence[str]) -> Asked:
    """What `flags` ask for, in llama-server's spellings old and new. Raises InputError for a value that cannot be."""
    said = _said(flags)
    streams = max(1, int(said.get("streams", 1)))
    whole = int(said.get("context", 0))
    names = ("kv_type_k", "kv_type_v", "draft_kv_type_k", "draft_kv_type_v")
    drafted = said.get("draft_tokens")
    return Asked(
        context=whole // streams or None,
        streams=streams if "streams" in said else None,
        draft_tokens=None if drafted is None else int(drafted),
        sampling=_sampling(said),
        unread=tuple(flag for flag in flags if _is_flag(flag) and flag.partition("=")[0] not in BY_FLAG),
        **{name: str(said[name]) if name in said else None for name in names},
    )


def _is_flag(word: str) -> bool:
    """-ngl and --seed are flags, -1 is a value."""
    return word.startswith("-") and word[1:2].isalpha() | word.startswith("--")


def _said(flags: Sequence[str]) -> dict[str, int | float | str]:
    said: dict[str, int | float | str] = {}
    for flag, value in zip(flags, (*flags[1:], "")):
        name, inline, given = flag.partition("=")
        if name in BY_FLAG:
            said[BY_FLAG[name]] = _read(name, given if inline else value)
    return said


def _read(flag: str, text: str) -> int | float | str:
    """The value of a flag. Its length is held first: a number of thousands of digits is none."""
    name = BY_FLAG[flag]
    bounds = WHOLE.get(name) or FRACTIONS.get(name)
    if not text or len(text) > LONGEST_VALUE or (bounds and not text.isascii()):
        raise InputError(f"{flag} {text[:40]!r} behind --: no value that llama-server takes")
    if bounds is None:
        return text
    try:
        value = int(text) if name in WHOLE else float(text)
    except ValueError:
        raise InputError(f"{flag} {text!r} behind --: not a number") from None
    if not bounds[0] <= value <= bounds[1]:
        raise InputError(f"{flag} {text} behind --: give {bounds[0]:,} to {bounds[1]:,}")
    return value


def _sampling(said: dict[str, int | float | str]) -> Sampling | None:
    if "temperature" not in said:
        return None
    given = {name: said[name] for name in SAMPLING if name in said}
    return Sampling(**{"seed": NEW_SEED, **given})  # type: ignore[arg-type]

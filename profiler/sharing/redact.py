"""A profile made fit to be shared, and what was left out of it."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from msgspec.structs import replace

from ..records import Measurement, Profile, Record
from .names import Names
from .rules import RULES, nested


@dataclass(frozen=True)
class Redacted:
    """The profile to share, and how many distinct values of each kind it lacks."""

    profile: Profile
    left_out: dict[str, int]


def redacted(profile: Profile, keep_names: bool = False) -> Redacted:
    """`profile` by the allow-list of rules.py: every number of it, no path, prompt, host name, UUID, command or log line.

    `keep_names`: files of models keep their names, without folders. What is calibrated, recommended and forecast from either
    profile is the same but for names.
    """
    names = Names(profile, keep_names, public_prompts())
    shared = _shared(profile, names)
    return Redacted(shared, {kind: len(values) for kind, values in sorted(names.left_out.items())})


@cache
def public_prompts() -> frozenset[str]:
    """Hashes of the prompts that come with specgauge."""
    from ..demo import prompts
    from ..engines.fake import MACHINES

    simulated = (prompt for machine in MACHINES.values() for prompt in machine.prompts())
    return frozenset(prompt.prompt.text_sha256 for prompt in (*prompts(), *simulated))


def _shared(record: Any, names: Names) -> Any:
    rules = RULES[type(record)]
    values = {}
    for field in record.__struct_fields__:
        value, rule = getattr(record, field), rules[field]
        values[field] = _walked(value, names) if rule is nested else rule(value, names, record)
    made = type(record)(**values)
    return replace(made, digest=made.request.digest()) if isinstance(made, Measurement) else made


def _walked(value: Any, names: Names) -> Any:
    """A record, a tuple of them, or nothing."""
    if isinstance(value, Record):
        return _shared(value, names)
    return None if value is None else tuple(_shared(one, names) for one in value)

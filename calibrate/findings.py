"""What a comparison found, in sentences: the cause before what follows from it, or what would have been seen."""

from collections.abc import Sequence

import numpy as np

from .contrast import Look
from .records import ComparedNumber

COSTS = ("plain decoding", "draft", "verification", "rounds", "overhead")
AFTER_VERIFICATION = ("verification", "rounds", "overhead")
"""Groups that differ where only passes of several tokens do."""
MOST_SINGLE = 5
NOTHING = "nothing differs beyond noise"
UNITS = {"s": ("more time", "less time"), "tokens/round": ("more tokens a round", "fewer tokens a round")}


def findings_of(looks: Sequence[Look], numbers: Sequence[ComparedNumber]) -> tuple[str, ...]:
    """Sentences on `numbers`, in which `looks` were judged one by one."""
    pairs = list(zip(looks, numbers))
    machine = next((n for look, n in pairs if look.family == "machine"), None)
    groups = [(look, n) for look, n in pairs if look.family == "group"]
    changed = {n.group for _, n in groups if n.differs}
    found = [*_cause(machine, groups), *(_sentence(n) for _, n in groups if n.differs)]
    singles = [n for look, n in pairs if look.family == "number" and n.differs and n.group not in changed]
    found += [_sentence(n) for n in singles[:MOST_SINGLE]]
    if len(singles) > MOST_SINGLE:
        found.append(f"and {len(singles) - MOST_SINGLE} more single numbers, marked in the table")
    seen = _would_be_seen([n for look, n in pairs if look.family != "number"])
    limits = f"differences above these would have been seen in four of five such comparisons: {seen}"
    return (*found, limits) if found else (NOTHING, limits)


def _cause(machine: ComparedNumber | None, groups: list[tuple[Look, ComparedNumber]]) -> list[str]:
    """The whole machine, its sentinel alone, or a part of the work alone."""
    costs = [(look, n) for look, n in groups if n.group in COSTS or n.group.startswith("drafter")]
    changed = [(look, n) for look, n in costs if n.differs]
    if machine is not None and machine.differs:
        how = _change(machine)
        others = [look for look, _ in changed if abs(look.ratio.log) > abs(look.tested.log) / 2]
        if changed and not others and len(changed) > len(costs) / 2:
            return [f"{machine.name} alone, not the whole machine: {how}, what differs below stayed as it was"]
        beside = "; beyond that:" if changed else "; nothing else differs once that is taken out"
        return [f"the whole machine: {how}{beside}"]
    names = {n.group for _, n in changed}
    if "verification" in names and names <= set(AFTER_VERIFICATION):
        return ["verification only, not the whole machine: plain decoding and drafting show no difference"]
    if names == {"draft"} or names == {"draft", "rounds"}:
        return ["drafting only, not the whole machine: plain decoding and verification show no difference"]
    return []


def _sentence(number: ComparedNumber) -> str:
    return f"{number.name}: {_change(number)}"


def _change(number: ComparedNumber) -> str:
    """By how much B differs, with its interval; at equal speed of the machine where that is known."""
    ratio = number.at_equal_speed or number.ratio
    value, low, high = (100 * (bound - 1) for bound in (ratio.value, ratio.low, ratio.high))
    more, less = UNITS.get(number.unit, ("more speed", "less speed"))
    if value < 0:
        value, low, high, more = -value, -high, -low, less
    return f"{value:.1f} % {more} in B ({low:.1f} to {high:.1f})"


def _would_be_seen(groups: list[ComparedNumber]) -> str:
    """The difference that would have been found, by subject: where the subject was measured best."""
    least: dict[str, float] = {}
    for number in groups:
        least[number.group] = min(number.detectable, least.get(number.group, np.inf))
    return ", ".join(f"{f'{100 * size:.1f} %' if size < 1 else 'over 100 %'} ({name})" for name, size in least.items())

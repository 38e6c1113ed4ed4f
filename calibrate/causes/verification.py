"""Verification: passes over several tokens that cost too much, or more at one width than at the next smaller one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from ...model.steps import KNOWN_SWITCHES
from ..records import Cause
from ..symptoms import Neighbour, Pass
from .case import HEADS, Case, ms, plural

LINEAR = 0.5
"""Plain steps that one more token may cost before verification is called linear in width: half way between reading the
weights once for all tokens (0) and once for each (1). Public cards: 0.17 (RTX 5090), 0.25 (RTX 3090), 0.45 (V100), 1.05
(M3 Ultra)."""
GOOD_SLOPE = 0.25
"""What it costs where kernels batch well, a head's own share included: an RTX 3090's. Mended, verification costs this."""
JUMP_STEPS = 0.5
"""Plain steps by which one more token must cost more than the tokens before it to be a jump: half a reading of all weights."""
LARGEST_SWITCH_STEPS = 2.5
"""What a change of kernels was seen to cost at most, in plain steps: 2.2 at width 9 (A100, 34B Q8_0, llama.cpp pull request
5625), 2.0 at width 2 (GLM-4.5-Air, ik_llama.cpp 1630). More is memory."""


@dataclass(frozen=True)
class Jump:
    """Seconds that something costs from `above` on (a width or a draft length) beyond the slope before `last`."""

    last: int
    above: int
    seconds: float


def jump_of(points: Sequence[Pass], until: int, plain: float, least: int = 1) -> Jump | None:
    """The largest jump between neighbours of `points` (rising) up to `until`; None below JUMP_STEPS of a plain step.

    The usual slope is that of the pairs before it, or behind it where it is the first. Pairs from `least` on are judged.
    """
    slopes = [(b.seconds - a.seconds) / (b.width - a.width) for a, b in pairwise(points)]
    found: list[Jump] = []
    for place, (low, high) in enumerate(pairwise(points)):
        others = slopes[:place] or slopes[place + 1 :]
        if high.width <= until and others and low.width >= least:
            run = high.width - low.width
            found.append(Jump(low.width, high.width, (slopes[place] - max(median(others), 0.0)) * run))
    best = max(found, key=lambda jump: jump.seconds, default=None)
    return best if best is not None and best.seconds > JUMP_STEPS * plain else None


def width_jump(case: Case) -> Jump | None:
    """A jump of the target's own passes, timed without a draft."""
    return None if case.plain is None else jump_of(case.symptoms.passes, case.width, case.plain)


def length_jump(case: Case) -> Jump | None:
    """A jump of rounds over draft length; the plain step is the round of length 0."""
    if case.plain is None:
        return None
    points = (Pass(0, case.plain), *case.lengths)
    found = jump_of(points, case.symptoms.draft_tokens, case.plain)
    return found if found is not None and found.seconds > case.margin * case.left else None


def at_known_switch(jump: Jump, streams: int = 1) -> bool:
    """Whether the widths of a jump over draft lengths lie on both sides of a known change of kernels."""
    return any((jump.last + 1) * streams <= switch < (jump.above + 1) * streams for switch in KNOWN_SWITCHES)


def kernel_switch(case: Case) -> Iterator[Cause]:
    """A wider kernel that costs more and does not pay: before it the setting is faster."""
    jump, widths = width_jump(case), True
    if jump is None:
        jump, widths = length_jump(case), False
        explained = bool(case.symptoms.passes) and case.symptoms.passes[-1].width >= case.width
        if jump is None or explained or case.plain is None:
            return
        if (
            not at_known_switch(jump, case.symptoms.setting.streams)
            and jump.seconds > LARGEST_SWITCH_STEPS * case.plain
        ):
            return
    last = jump.last // case.symptoms.setting.streams - 1 if widths else jump.last
    before = _before(case, last, jump.seconds)
    if before is None or before.tokens_per_second <= case.speed * (1 + case.margin):
        return
    at = jump.above if widths else jump.above + 1
    yield case.with_setting(
        "kernel-switch",
        "verification",
        jump.seconds,
        before.tokens_per_second,
        derived=f"{'measured' if before.measured else 'forecast'} speed at {plural(last, 'draft token')}",
        evidence=f"From {last + 1} to {at} tokens in one pass the engine changes to another kernel: that step costs "
        f"{ms(jump.seconds)} more than the steps before it, and this setting verifies {case.width}.",
        change=f"draft_tokens {last}: the last length before the switch",
        provenance="measured" if before.measured else "calibrated",
    )


def _before(case: Case, last: int, jump_seconds: float) -> Neighbour | None:
    """The setting with the last length before a switch: as known, else this round without the jump and the tokens above."""
    known = [n for n in case.symptoms.others("draft_tokens") if 0 < int(n.value) <= last]
    if known:
        return max(known, key=lambda one: one.tokens_per_second)
    survival = case.symptoms.survival
    if last < 1 or len(survival) < last:
        return None
    tokens = 1 + sum(survival[:last])
    return Neighbour("draft_tokens", last, tokens / (case.seconds - jump_seconds), tokens, measured=False)


def expert_traffic(case: Case) -> Iterator[Cause]:
    """Each token of a pass brings experts of its own, which are read for it alone."""
    experts, plain = case.symptoms.experts, case.plain
    if experts is None or plain is None:
        return
    expected = experts.growth(case.width) * plain
    seconds = min(case.growth, expected)
    if not case.material(seconds):
        return
    touched = (experts.growth(case.width) / (experts.share or 1.0) + 1) * experts.per_token
    known = "" if experts.share is not None else ", if all that a step reads are experts"
    yield case.takes(
        "expert-traffic",
        "verification",
        seconds,
        derived="the round if every token of a pass went to the same experts",
        evidence=f"A plain step reads {experts.per_token} of {experts.experts} experts in each layer, a pass over "
        f"{case.width} tokens about {touched:.0f}: up to {ms(expected)} more{known}. {_pass_told(case)}",
        change=_fewer(case, "fewer draft tokens: a pass over one token reads the fewest experts"),
        provenance="calibrated" if experts.share is not None else "prior",
    )


def verification_linear(case: Case, claimed: float) -> Iterator[Cause]:
    """A pass over n tokens costs almost n plain steps; `claimed` seconds of it are explained by something special."""
    growth = case.growth - claimed
    if case.plain is None or growth <= 0:
        return
    slope = growth / case.plain / max(case.symptoms.drafted, 1.0)
    if slope >= LINEAR and case.material(growth * (1 - GOOD_SLOPE / slope)):
        yield _linear(case, growth, slope)


def _linear(case: Case, growth: float, slope: float) -> Cause:
    untimed = case.symptoms.setting.drafter in HEADS or (case.symptoms.setting.drafter == "model" and not case.draft)
    head = ", the draft's own share in it" if untimed else ""
    timed = "" if case.verification is not None else " by what the round takes beside the draft"
    good = GOOD_SLOPE * case.symptoms.drafted * (case.plain or 0.0)
    return case.takes(
        "verification-linear-in-width",
        "verification",
        growth * (1 - GOOD_SLOPE / slope),
        derived=f"the round if a drafted token cost {GOOD_SLOPE} of a plain step to verify ({ms(good)} a round), as on cards whose "
        "kernels batch; no setting makes this device one of them",
        evidence=f"Verifying {case.width} tokens costs {ms(growth)} more than one token{timed}{head}: {slope:.2f} of a plain step "
        "for each drafted token. Near 0 the weights are read once for all tokens, near 1 once for each, and then speculation "
        "cannot pay.",
        change=_fewer(case, "weights whose kernels batch better, on this device and build"),
        provenance="prior",
    )


def _pass_told(case: Case) -> str:
    """What the passes of this setting take."""
    if case.verification is not None and case.plain is not None:
        return f"A pass of this setting takes {ms(case.verification)}, a plain step {ms(case.plain)}."
    return f"A {case.per} of this setting takes {ms(case.growth)} more than a plain step beside the draft."


def _fewer(case: Case, otherwise: str) -> str:
    better = case.better_setting()
    return f"{better}, or {otherwise}" if better else otherwise

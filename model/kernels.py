"""Unequal kernels said as advice: draft lengths that a kernel switch makes a bargain of, or a trap.

The cost of a round rises with its draft along a line while the passes run on one kernel. Where the next width runs on
another it may fall: on an RTX 3090 a pass over 9 tokens costs less than one over 8, so that 8 draft tokens beat 5 to 7. Or
it jumps: on an A100 a pass over 9 tokens took twice one over 8 (llama.cpp pull request 5625), so that 8 are a trap.
"""

from dataclasses import dataclass

import numpy as np

SHARE = 0.10
"""Another kernel is spoken of where a round differs by more than this from the line through those before it."""
SURE = 0.975
"""Share of the replicates that must agree, for what is said to be beyond noise."""


@dataclass(frozen=True)
class KernelSwitch:
    """The first draft length past a switch. `over_line`: its round over the line through the shorter ones, less 1;
    `over_before`: over the round of one token less, less 1. `take` rather than `never`, the lengths that it beats."""

    draft_tokens: int
    over_line: float
    over_before: float
    take: int
    never: tuple[int, ...]

    @property
    def width(self) -> int:
        """Tokens of its verification pass."""
        return self.draft_tokens + 1

    @property
    def cheaper(self) -> bool:
        """A bargain, not a trap."""
        return self.over_line < 0


def kernel_switches(
    draft_tokens: np.ndarray, seconds: np.ndarray, tokens: np.ndarray, doubtful: np.ndarray
) -> tuple[KernelSwitch, ...]:
    """Switches between neighbouring lengths that matter to the choice, beyond noise.

    `draft_tokens` (L,) rise; `seconds` (R, L) of a round, entry 0 the point estimate, the others its replicates; `tokens`
    (L,) or (R, L) emitted in one; `doubtful` (L,) lengths take no part. A bargain is cheaper than the round of one token
    less and beats it at the least; a trap costs more than the line and is beaten by the length before. Three lengths stand
    on the line before a switch, so that noise of two does not make one; replicates of one row alone are never sure.
    """
    found = []
    used = np.flatnonzero((draft_tokens > 0) & ~doubtful)
    speeds = tokens / seconds
    start = 0
    for place in range(1, used.size):
        before = used[start:place]
        if draft_tokens[used[place]] != draft_tokens[before[-1]] + 1 or before.size < 3:
            continue
        switch = _switch(used, place, before, draft_tokens, seconds, speeds)
        if switch is not None:
            found.append(switch)
            start = place
    return tuple(found)


def _switch(
    used: np.ndarray,
    place: int,
    before: np.ndarray,
    draft_tokens: np.ndarray,
    seconds: np.ndarray,
    speeds: np.ndarray,
) -> KernelSwitch | None:
    """What the length at `used[place]` is beside those `before`."""
    here, last = used[place], before[-1]
    over_line = seconds[:, here] / _line(draft_tokens[before], seconds[:, before], int(draft_tokens[here])) - 1
    over_before = seconds[:, here] / seconds[:, last] - 1
    if over_line[0] < -SHARE and _sure(over_line < 0) and _sure(over_before < 0):
        take, rivals = here, before[::-1]
    elif over_line[0] > SHARE and _sure(over_line > 0):
        take, rivals = last, used[place:]
    else:
        return None
    never = []
    for rival in rivals:
        if not _sure(speeds[:, take] > speeds[:, rival]):
            break
        never.append(int(draft_tokens[rival]))
    if not never:
        return None
    return KernelSwitch(
        draft_tokens=int(draft_tokens[here]),
        over_line=float(over_line[0]),
        over_before=float(over_before[0]),
        take=int(draft_tokens[take]),
        never=tuple(sorted(never)),
    )


def _line(lengths: np.ndarray, seconds: np.ndarray, length: int) -> np.ndarray:
    """The least-squares line of each row of `seconds` (R, L) over `lengths` (L,), at `length`: (R,)."""
    design = np.stack([np.ones(lengths.size), lengths], axis=1)
    return seconds @ np.linalg.pinv(design).T @ np.array([1.0, length])


def _sure(agrees: np.ndarray) -> bool:
    """Whether the point estimate and nearly all replicates (R,) agree; one row alone says nothing of noise."""
    return agrees.size > 1 and bool(agrees[0]) and float(agrees[1:].mean()) >= SURE

"""Decision: which arm is fastest, how sure that is, and which to name when it is not.

Arms are compared replicate by replicate: `speeds` (A, R), entry 0 the forecast, the others drawn with common random
numbers, so that what two arms share does not blur their ratio.
"""

from dataclasses import dataclass

import numpy as np

WORTHWHILE = 0.02
"""A gain below this is not worth a change of setting."""
INDIFFERENT = 0.0075
"""Of arms that cannot be told apart and are forecast this close the simplest is named: hardly anything is given away."""


@dataclass(frozen=True)
class RatioInterval:
    """Speed of one arm over another: forecast and bounds."""

    value: float
    low: float
    high: float
    log_sd: float


@dataclass(frozen=True)
class Decision:
    """Indices of arms. verdict: speculate, tie, do-not-speculate."""

    verdict: str
    chosen: int
    best_plain: int
    rival: int
    """The arm that the chosen one was held against: the runner-up, or the best drafting arm where plain won."""
    over_plain: RatioInterval
    """Chosen over the best plain arm."""
    over_rival: RatioInterval


def ratio_interval(numerator: np.ndarray, denominator: np.ndarray, level: float) -> RatioInterval:
    """Paired percentile interval of the ratio of two arms' speeds (R,)."""
    logs = np.log(numerator / denominator)
    value, drawn = float(np.exp(logs[0])), logs[1:] if logs.size > 1 else logs
    low, high = np.exp(np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2]))
    return RatioInterval(value, min(float(low), value), max(float(high), value), float(drawn.std()))


def probability_best(speeds: np.ndarray) -> np.ndarray:
    """Share (A,) of replicates in which each arm is the fastest."""
    drawn = speeds[:, 1:] if speeds.shape[1] > 1 else speeds
    return np.bincount(drawn.argmax(axis=0), minlength=speeds.shape[0]) / drawn.shape[1]


def decide(speeds: np.ndarray, draft_tokens: np.ndarray, level: float = 0.95) -> Decision:
    """The arm to choose and the verdict. `draft_tokens` (A,): 0 marks plain arms, of which one at least must exist.

    Among arms that cannot be told from the fastest and are within 0.75 % of it, the one with fewest draft tokens is chosen.
    Verdict: do-not-speculate where plain is chosen and no drafting arm can be worthwhile (above +2 %); speculate where a
    drafting arm is chosen and beats the best plain arm with its interval, unless the runner-up is forecast within 2 % of
    it and cannot be told from it; tie otherwise.
    """
    point = speeds[:, 0]
    top = int(point.argmax())
    plain = np.flatnonzero(draft_tokens == 0)
    best_plain = int(plain[point[plain].argmax()])
    chosen = _simplest(speeds, draft_tokens, top, level)
    rival = _rival(point, draft_tokens, chosen, top)
    over_plain = ratio_interval(speeds[chosen], speeds[best_plain], level)
    over_rival = ratio_interval(speeds[chosen], speeds[rival], level)
    if draft_tokens[chosen] == 0:
        safe = rival == chosen or 1 / over_rival.low <= 1 + WORTHWHILE
        verdict = "do-not-speculate" if safe else "tie"
    else:
        even = rival != chosen and over_rival.low <= 1 and over_rival.value < 1 + WORTHWHILE
        verdict = "speculate" if over_plain.low > 1 and not even else "tie"
    return Decision(verdict, chosen, best_plain, rival, over_plain, over_rival)


def _simplest(speeds: np.ndarray, draft_tokens: np.ndarray, top: int, level: float) -> int:
    """The arm with fewest draft tokens among those within noise and 0.75 % of the fastest (the fastest of equals)."""
    near = [
        arm
        for arm in range(len(speeds))
        if speeds[arm, 0] >= speeds[top, 0] * (1 - INDIFFERENT)
        and ratio_interval(speeds[arm], speeds[top], level).high >= 1
    ]
    return min(near, key=lambda arm: (draft_tokens[arm], -speeds[arm, 0]))


def _rival(point: np.ndarray, draft_tokens: np.ndarray, chosen: int, top: int) -> int:
    """The best other arm; for a plain choice the best drafting arm (the choice itself where there is none)."""
    others = [a for a in range(point.size) if a != chosen and (draft_tokens[chosen] or draft_tokens[a])]
    return top if top in others else max(others, key=lambda a: point[a], default=chosen)


def rounds_to_separate(ratio: RatioInterval, rounds: float, cost_log_sd: float = 0.0, z: float = 1.96) -> float:
    """About how many more rounds would tell two arms apart, given `rounds` so far; infinite where no number would.

    Rounds are told by fresh prompts: only the noise of acceptance falls with their root. `cost_log_sd`, the part of
    ratio.log_sd that is in the round times, stays. After N more rounds the interval reaches just to 1 where the ratio is
    as it is forecast, so that one in two such intervals leaves 1 out (power 1/2):
    (z^2 acceptance variance x rounds / (rounds + N)) + z^2 cost variance = log(ratio)^2 (derived).
    """
    cost = min(cost_log_sd, ratio.log_sd) ** 2
    allowed = (_gap(ratio) / z) ** 2 - cost
    if ratio.log_sd**2 <= allowed + cost:
        return 0.0
    return float(((ratio.log_sd**2 - cost) / allowed - 1) * rounds) if allowed > 0 else float("inf")


def repeats_to_separate(ratio: RatioInterval, cost_log_sd: float, z: float = 1.96) -> float:
    """How many times as often the round times of two arms have to be taken, for their noise to use up half of what
    telling them apart allows; rounds of fresh prompts then have to see to the other half."""
    return float(max(cost_log_sd**2 / ((_gap(ratio) / z) ** 2 / 2), 1.0))


def _gap(ratio: RatioInterval) -> float:
    return max(abs(float(np.log(ratio.value))), 1e-4)

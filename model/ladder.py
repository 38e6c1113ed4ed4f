"""Ladder: forecast from a few published rows of speed and acceptance over draft length, without any step time.

round, in plain steps = tokens per round / speed-up
"""

from dataclasses import dataclass

import numpy as np

from .cost import VAGUE
from .curve import Curve
from .steps import KNOWN_SWITCHES
from .survival import survival_from_ladder

ROW_LOG_SD = 0.01
"""Noise of one published speed over its baseline where nothing is said of it (a stated prior, fraction)."""
TOKENS_LOG_SD = 0.0025
"""How far tokens per round between two rows are off, for each token that the rows are apart (a stated prior, fraction;
from rows left out of five public ladders, docs/log.md)."""


def rows_apart(rows: np.ndarray, draft_tokens: np.ndarray | int) -> np.ndarray:
    """How far (G,) the `rows` (K,) around each of `draft_tokens` (G,) are apart; length 0 counts as a row. 0 at a row, twice
    the way to it beyond the last: what TOKENS_LOG_SD is multiplied by."""
    ends, lengths = np.concatenate([[0], rows]), np.asarray(draft_tokens)
    right = np.searchsorted(ends, lengths)
    after = np.where(right == ends.size, 2 * lengths - ends[-1], ends[np.minimum(right, ends.size - 1)])
    return np.where(np.isin(lengths, ends), 0, after - ends[right - 1])


@dataclass(frozen=True)
class LadderForecast:
    """Forecast (G,) at `draft_tokens`: `tokens_per_round`, `round_steps` in plain steps, `speed_up` between `low` and
    `high`, which hold what another session would measure with 95 %. `provenance` (G,): measured, interpolated, prior."""

    draft_tokens: np.ndarray
    tokens_per_round: np.ndarray
    round_steps: np.ndarray
    speed_up: np.ndarray
    low: np.ndarray
    high: np.ndarray
    provenance: np.ndarray
    remedy: str = ""
    """Which draft lengths to measure; empty where none is needed."""


@dataclass(frozen=True)
class Ladder:
    """Rows (K,) of one target, drafter and machine: `draft_tokens` rising from 1 at least, `tokens_per_round` with the
    bonus token, `speed_up` over the plain baseline of the same session. All drafts are full (no p_min).

    `switches` are the last verification widths of kernel segments. Raises ValueError for rows that cannot be: a round
    below one token or above draft tokens + 1, a speed-up that is not positive, lengths that do not rise.
    """

    draft_tokens: np.ndarray
    tokens_per_round: np.ndarray
    speed_up: np.ndarray
    switches: tuple[int, ...] = KNOWN_SWITCHES
    log_sd: float = ROW_LOG_SD

    def __post_init__(self):
        if not self.draft_tokens.size == self.tokens_per_round.size == self.speed_up.size > 0:
            raise ValueError("a ladder needs as many draft lengths as tokens per round and speed-ups, one at least")
        if (np.diff(self.draft_tokens) <= 0).any() or self.draft_tokens[0] < 1:
            raise ValueError(f"draft tokens must rise from 1 at least: {self.draft_tokens.tolist()}")
        if (self.tokens_per_round < 1).any() or (self.tokens_per_round > self.draft_tokens + 1).any():
            raise ValueError("tokens per round lie between 1 and draft tokens + 1: is the bonus token counted?")
        if not (self.speed_up > 0).all():
            raise ValueError("a speed-up must be positive")

    @property
    def round_steps(self) -> np.ndarray:
        """Seconds of a round (K,) over those of a plain step."""
        return self.tokens_per_round / self.speed_up

    @property
    def survival(self) -> np.ndarray:
        """S_1..S_J down to the deepest row (survival.survival_from_ladder)."""
        return self.survival_to(int(self.draft_tokens[-1]))

    def survival_to(self, depth: int) -> np.ndarray:
        """S_1..S_depth; past the deepest row a continuation of the smooth hazards."""
        return survival_from_ladder(self.draft_tokens, self.tokens_per_round, depth)

    @property
    def curve(self) -> Curve:
        """Round cost in plain steps over draft length; 1 at length 0."""
        return Curve(self.draft_tokens, self.round_steps, tuple(s - 1 for s in self.switches), origin=np.ones(()))

    def forecast(self, draft_tokens: np.ndarray) -> LadderForecast:
        """At `draft_tokens` (G,). What no row bounds, or bounds too widely, is a prior and has a remedy."""
        depth = max(int(draft_tokens.max()), int(self.draft_tokens[-1]))
        tokens = np.concatenate([[1.0], 1 + np.cumsum(self.survival_to(depth))])[draft_tokens]
        found = self.curve.at(draft_tokens)
        known = np.isin(draft_tokens, self.draft_tokens)
        doubt = TOKENS_LOG_SD * rows_apart(self.draft_tokens, draft_tokens)
        noise = 1.96 * np.where(draft_tokens > 0, np.hypot(self.log_sd * np.sqrt(2), doubt), 0.0)
        speed_up = tokens / found.value
        prior = found.doubtful | (found.high - found.low > VAGUE * found.value)
        asked = [f"{n}" for n in np.unique(draft_tokens[prior])]
        return LadderForecast(
            draft_tokens=draft_tokens,
            tokens_per_round=tokens,
            round_steps=found.value,
            speed_up=speed_up,
            low=speed_up * np.exp(-np.hypot(noise, np.log(found.high / found.value))),
            high=speed_up * np.exp(np.hypot(noise, np.log(found.value / found.low))),
            provenance=np.where(known | (draft_tokens == 0), "measured", np.where(prior, "prior", "interpolated")),
            remedy=f"measure {' and '.join(asked)} draft tokens" if asked else "",
        )

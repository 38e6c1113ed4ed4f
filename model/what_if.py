"""What if: speed over draft length when acceptance, an offer rate or the context are not those that were measured.

    tokens of a round  = 1 + offered x (S_1 + ... + S_g)
    seconds of a round = offered x T(g, context) + (1 - offered) x T(0, context), and what replies take beside timed rounds
    tokens/s           = scale x tokens / seconds

S moves with the acceptance of the first token (`moved`). Anchors hold the curve to forecasts that replay whole replies, in
which the last rounds draft less and hazards differ a little by draft length: at rest it is those forecasts, and what
moves is the full-draft formula. An anchor is one factor on the odds of all hazards of a draft length, so that nothing
accepted is one token a round and everything accepted g + 1, whatever the anchors. `scale` does the same for plain
decoding, and is 1 but for how contexts spread.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from .cost import RoundCost, Rounds, WholeRounds
from .survival import survival_from_hazards

LEAST_HAZARD = 1e-3
"""A hazard of 0 or 1 has odds that no factor moves; a few dozen rounds can show one. It is taken to be this far from it."""
HALVINGS = 60
"""Of the interval in which a break-even or an anchor lies."""
MOST_FACTOR = 1e9
"""On odds: as good as none or all accepted."""


def movable(hazard: np.ndarray) -> np.ndarray:
    """Hazards (J,) kept LEAST_HAZARD away from 0 and 1, so that their odds can be moved."""
    return np.clip(np.asarray(hazard, float), LEAST_HAZARD, 1 - LEAST_HAZARD)


def moved(hazard: np.ndarray, first: float, factor: float = 1.0) -> np.ndarray:
    """Hazards (J,) with the odds of each multiplied by one constant, which makes the first of them `first` (derived); then
    by `factor`.

    One constant for all depths keeps what is known of how acceptance changes with depth: a better draft of the same kind.
    All rise with `first`; at `first` = hazard[0] nothing changes, at 0 all are 0, at 1 all are 1. With c the constant
    h' = c h / (1 - h + c h), c = f (1 - h_1) / ((1 - f) h_1), multiplied out so that nothing is divided by 0. Raises
    ValueError where `first` is outside [0, 1], or a hazard is not strictly between 0 and 1 (see movable).
    """
    known = np.asarray(hazard, float)
    if not 0 <= first <= 1:
        raise ValueError(f"an acceptance of {first} is no probability")
    if not known.size or not ((known > 0) & (known < 1)).all():
        raise ValueError("hazards of 0 or 1 have no odds to move: see movable")
    up, down = factor * first * (1 - known[0]) * known, (1 - first) * known[0] * (1 - known)
    return up / (up + down)


@dataclass(frozen=True)
class WhatIf:
    """One drafter on one workload. `draft_tokens` (L,) rise from 0; `offered` (L,) is the share of rounds that draft
    anything at each, 0 at 0; `hazard` (J,) reaches the longest length; `anchor` (L,) and `scale` as in the module's head.

    `cost` has no replicates. `reply_factor`: plain replies over plain steps. What it adds belongs to the token that a step
    emits: a round of parts has it once, a round measured whole in proportion. Raises ValueError where sizes do not match
    or an anchor is not above 0.
    """

    cost: RoundCost
    draft_tokens: np.ndarray
    hazard: np.ndarray
    offered: np.ndarray
    reply_factor: float
    anchor: np.ndarray
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.draft_tokens[0] != 0 or (np.diff(self.draft_tokens) <= 0).any():
            raise ValueError(f"draft tokens must rise from 0, the plain step: {self.draft_tokens.tolist()}")
        if not self.draft_tokens.shape == self.offered.shape == self.anchor.shape:
            raise ValueError("each draft length has its offer rate and its anchor")
        if self.hazard.size < self.draft_tokens[-1]:
            raise ValueError(f"{self.hazard.size} hazards for up to {self.draft_tokens[-1]} draft tokens")
        if not (self.anchor > 0).all():
            raise ValueError(f"an anchor is not above 0: {self.anchor.tolist()}")

    def tokens(self, first: float | None = None) -> np.ndarray:
        """Tokens of a round (L,) where the first drafted token is accepted with `first`; as measured where None."""
        return np.array([self._tokens(place, first, factor) for place, factor in enumerate(self.anchor)])

    def seconds(self, context: float) -> np.ndarray:
        """Seconds of a round (L,) behind `context` cached tokens."""
        found = self.cost.lookup(Rounds.of(self.draft_tokens, context)).seconds
        mean = self.offered * found + (1 - self.offered) * found[0]
        if isinstance(self.cost, WholeRounds):
            return mean * self.reply_factor
        return mean + (self.reply_factor - 1) * found[0]

    def tokens_per_second(self, first: float | None, context: float) -> np.ndarray:
        """Speed (L,) of one stream; at each length it rises with `first`."""
        return self.scale * self.tokens(first) / self.seconds(context)

    def break_even(self, place: int, context: float) -> float | None:
        """Acceptance of the first token at which the length at `place` is as fast as plain decoding; 0 where it is as fast
        whatever is accepted, None where it is slower even if everything is."""
        seconds, factor = self.seconds(context), float(self.anchor[place])
        needed = float(seconds[place] / seconds[0])
        if self._tokens(place, 1.0, factor) < needed:
            return None
        if self._tokens(place, 0.0, factor) >= needed:
            return 0.0
        return _where_reached(lambda first: self._tokens(place, first, factor), needed, 0.0, 1.0)

    def held_to(self, forecast: np.ndarray, context: float) -> "WhatIf":
        """The same with anchors by which the curve at rest behind `context` is `forecast` (L,), in tokens/s.

        A length that offers nothing is plain decoding and keeps an anchor of 1. Raises ValueError where a forecast is not
        between the speeds of rounds in which nothing and in which everything is accepted: no anchor makes it.
        """
        seconds = self.seconds(context)
        scale = float(forecast[0] * seconds[0])
        anchor = np.ones(self.anchor.size)
        for place in np.flatnonzero(self.offered > 0):
            needed = float(forecast[place] * seconds[place] / scale)
            anchor[place] = self._anchor(int(place), needed)
        return replace(self, anchor=anchor, scale=scale)

    def _anchor(self, place: int, needed: float) -> float:
        """The factor at which a round yields `needed` tokens at rest."""
        if not 1 < needed < 1 + self.offered[place] * self.draft_tokens[place]:
            length = self.draft_tokens[place]
            raise ValueError(f"no acceptance yields {needed:.3f} tokens a round of {length} draft tokens")
        most = np.log(MOST_FACTOR)
        return float(np.exp(_where_reached(lambda log: self._tokens(place, None, np.exp(log)), needed, -most, most)))

    def _tokens(self, place: int, first: float | None, factor: float) -> float:
        """Tokens of a round of one length, the odds of its hazards multiplied by `factor`."""
        length = int(self.draft_tokens[place])
        if length == 0:
            return 1.0
        hazard = moved(self.hazard, float(self.hazard[0]) if first is None else first, factor)[:length]
        return 1 + float(self.offered[place] * survival_from_hazards(hazard).sum())


def _where_reached(rising: Callable[[float], float], needed: float, low: float, high: float) -> float:
    """Where between `low` and `high` a rising function reaches `needed`, by halving."""
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) >= needed else (middle, high)
    return (low + high) / 2

"""Cost: seconds of a pass from a measured table, and of a round from its recipe of passes.

Every array of seconds may carry a leading axis of replicates; results carry it too. Widths are interpolated only inside a
kernel segment (matrix-vector kernels end at a width, tiles begin: the ninth column can cost as much as eight, or less).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

KNOWN_SWITCHES = (8, 16)
"""Last widths of a kernel, a priori: llama.cpp's mat-vec kernels end at 8, tiles of 16 rows are common."""

COMPOSITE = ("round",)
RECIPES = {
    "model": ("draft", "verification", "draft_batch", "overhead"),
    "ngram": ("verification", "overhead"),
    "mtp": COMPOSITE,
    "eagle": COMPOSITE,
    "dflash": COMPOSITE,
}
"""Terms of a round by drafter kind, for llama.cpp; whole rounds where the parts cannot be clocked apart."""


class BeyondTable(ValueError):
    """The evidence does not reach this far. `estimate` is what an extrapolation says, `remedy` what to measure."""

    def __init__(self, estimate: np.ndarray, remedy: str):
        super().__init__(f"outside the measured table: {remedy}")
        self.estimate = estimate
        self.remedy = remedy


@dataclass(frozen=True)
class Lookup:
    """Seconds (..., K) read from a table. `doubtful` (K,) marks extrapolations not to be trusted, `remedy` says what to
    measure for them."""

    seconds: np.ndarray
    doubtful: np.ndarray
    remedy: str = ""

    def trusted(self) -> np.ndarray:
        """The seconds; raises BeyondTable where any is a mere extrapolation."""
        if self.doubtful.any():
            raise BeyondTable(self.seconds, self.remedy)
        return self.seconds


@dataclass(frozen=True)
class StepTable:
    """Seconds of one model's passes: `seconds` (..., C, W) at `contexts` (C,) and `widths` (W,), both rising.

    Width 1 is a decode step and stands alone (it is clocked another way than batches); `switches` are the last widths of
    kernel segments. Linear in context; up to one measured span beyond the longest is trusted.
    """

    widths: np.ndarray
    contexts: np.ndarray
    seconds: np.ndarray
    switches: tuple[int, ...] = KNOWN_SWITCHES

    def segment(self, width: int) -> int:
        """Number of the kernel segment that `width` is in; -1 for the decode step."""
        return -1 if width == 1 else int(np.searchsorted(self.switches, width))

    def at(self, width: np.ndarray | int, context: np.ndarray | float) -> np.ndarray:
        """Seconds (..., K). Raises BeyondTable."""
        return self.lookup(width, context).trusted()

    def lookup(self, width: np.ndarray | int, context: np.ndarray | float) -> Lookup:
        """Seconds (..., K) of passes over `width` (K,) tokens behind `context` (K,) cached ones."""
        widths, context = np.broadcast_arrays(np.atleast_1d(width), np.atleast_1d(np.asarray(context, float)))
        seconds, doubtful = np.empty(self.seconds.shape[:-2] + widths.shape), context > self._reach()
        remedies = [f"measure passes at a context of {context.max():.0f} tokens"] if doubtful.any() else []
        for value in np.unique(widths):
            chosen = widths == value
            column, remedy = self._column(int(value))
            seconds[..., chosen] = self._along_context(column, context[chosen])
            if remedy:
                doubtful = doubtful | chosen
                remedies.append(remedy)
        return Lookup(seconds, doubtful, "; ".join(remedies))

    def _column(self, width: int) -> tuple[np.ndarray, str]:
        """Seconds (..., C) at `width` and a remedy where they are not to be trusted."""
        exact = np.flatnonzero(self.widths == width)
        if exact.size:
            return self.seconds[..., exact[0]], ""
        same = [i for i, w in enumerate(self.widths) if self.segment(int(w)) == self.segment(width)]
        inside = len(same) > 1 and self.widths[same[0]] < width < self.widths[same[-1]]
        remedy = "" if inside else f"measure a pass over {width} tokens"
        return self._line(same if len(same) > 1 else list(range(self.widths.size)), width), remedy

    def _line(self, columns: list[int], width: int) -> np.ndarray:
        """The line through the two of `columns` around or next to `width`, at `width`."""
        if len(columns) == 1:
            return self.seconds[..., columns[0]]
        known = self.widths[columns]
        right = int(np.clip(np.searchsorted(known, width), 1, known.size - 1))
        a, b = columns[right - 1], columns[right]
        share = (width - self.widths[a]) / (self.widths[b] - self.widths[a])
        return self.seconds[..., a] + share * (self.seconds[..., b] - self.seconds[..., a])

    def _along_context(self, column: np.ndarray, context: np.ndarray) -> np.ndarray:
        """`column` (..., C) on its broken line at `context` (K,)."""
        if self.contexts.size == 1:
            return np.repeat(column, context.size, axis=-1)
        left = np.clip(np.searchsorted(self.contexts, context) - 1, 0, self.contexts.size - 2)
        start, end = self.contexts[left], self.contexts[left + 1]
        share = (context - start) / (end - start)
        return column[..., left] + share * (column[..., left + 1] - column[..., left])

    def _reach(self) -> float:
        """The longest context that is trusted: one measured span (or 64 tokens) beyond the longest measured."""
        span = self.contexts[-1] - self.contexts[0] if self.contexts.size > 1 else self.contexts[-1]
        return float(self.contexts[-1] + max(span, 64))


def find_switches(widths: np.ndarray, seconds: np.ndarray, noise: float = 0.03) -> tuple[int, ...]:
    """Last widths of the kernel segments of a curve `seconds` (W,): the known ones and those that the data show.

    Between neighbouring widths a step away from the segment's median slope by more than 15 % of a pass, and by four
    standard deviations of it (`noise`: relative, of one entry), is a switch. Between neighbours that are not adjacent
    widths its place is unknown: what lies between is a segment of its own, so that it is not interpolated.
    """
    found = set(KNOWN_SWITCHES)
    for segment in _segments(widths, KNOWN_SWITCHES):
        rise, run = np.diff(seconds[segment]), np.diff(widths[segment])
        for k in range(rise.size if rise.size >= 3 else 0):
            usual = np.median(np.delete(rise / run, k))
            limit = max(4 * np.sqrt(2) * noise, 0.15) * seconds[segment[k]]
            if abs(rise[k] - usual * run[k]) > limit:
                found |= {int(widths[segment[k]]), int(widths[segment[k + 1]]) - 1}
    return tuple(sorted(found))


def _segments(widths: np.ndarray, switches: tuple[int, ...]) -> list[np.ndarray]:
    """Indices of the batch widths (not 1) by kernel segment."""
    place = np.where(widths == 1, -1, np.searchsorted(switches, widths))
    return [np.flatnonzero(place == s) for s in range(len(switches) + 1)]


@dataclass(frozen=True)
class Overhead:
    """Seconds of a round that its passes do not explain: constant + per_token x drafted; (...) each."""

    constant: np.ndarray
    per_token: np.ndarray

    def at(self, drafted: np.ndarray) -> np.ndarray:
        """Seconds (..., K); none where nothing is drafted."""
        line = np.asarray(self.constant)[..., None] + np.asarray(self.per_token)[..., None] * drafted
        return np.where(drafted > 0, line, 0.0)


NO_OVERHEAD = Overhead(np.zeros(()), np.zeros(()))


@dataclass(frozen=True)
class RoundTerms:
    """A round by term: `seconds[i]` (..., K) belongs to `names[i]`."""

    names: tuple[str, ...]
    seconds: tuple[np.ndarray, ...]
    doubtful: np.ndarray
    remedy: str = ""

    def total(self) -> np.ndarray:
        """Seconds (..., K) of the round."""
        return np.sum(np.stack(np.broadcast_arrays(*self.seconds)), axis=0)


def round_terms(
    recipe: tuple[str, ...],
    drafted: np.ndarray,
    context: np.ndarray,
    target: StepTable,
    draft: StepTable | None = None,
    overhead: Overhead = NO_OVERHEAD,
) -> RoundTerms:
    """The terms of `recipe` for rounds that draft `drafted` (K,) tokens behind `context` (K,); 0 is a plain step."""
    drafted, context = np.broadcast_arrays(np.atleast_1d(drafted), np.atleast_1d(np.asarray(context, float)))
    found = [_term(name, drafted, context, target, draft, overhead) for name in recipe]
    doubtful = np.any([term.doubtful for term in found], axis=0)
    return RoundTerms(recipe, tuple(term.seconds for term in found), doubtful, _joined(term.remedy for term in found))


def _joined(remedies: Iterable[str]) -> str:
    """Each remedy once."""
    return "; ".join(filter(None, dict.fromkeys(remedies)))


def _term(
    name: str, drafted: np.ndarray, context: np.ndarray, target: StepTable, draft: StepTable | None, overhead: Overhead
) -> Lookup:
    """One named term (see RECIPES): g x draft(1), verify(g + 1), draft(g + 1), overhead."""
    if name == "verification":
        return target.lookup(drafted + 1, context)
    if name == "overhead":
        return Lookup(overhead.at(drafted), np.zeros(drafted.shape, bool))
    if draft is None:
        raise ValueError(f"the term {name} needs step times of the draft: measure them")
    paid = drafted > 0
    if name == "draft":
        step = draft.lookup(np.ones_like(drafted), context + np.maximum(drafted - 1, 0) / 2)
        return Lookup(step.seconds * drafted, step.doubtful & paid, step.remedy)
    if name == "draft_batch":
        batch = draft.lookup(np.where(paid, drafted + 1, 1), context)
        return Lookup(np.where(paid, batch.seconds, 0.0), batch.doubtful & paid, batch.remedy)
    raise ValueError(f"no term is called {name}: see model/cost.py RECIPES")


def _corrected(terms: RoundTerms, drafted: np.ndarray, correction: np.ndarray) -> Lookup:
    """The round times `correction` (..., G) of its drafted tokens; plain steps as they are."""
    drafted = np.atleast_1d(drafted)
    index = np.clip(drafted - 1, 0, correction.shape[-1] - 1)
    factor = np.where(drafted > 0, correction[..., index], 1.0)
    return Lookup(terms.total() * factor, terms.doubtful, terms.remedy if terms.doubtful.any() else "")


@dataclass(frozen=True)
class RoundOfParts:
    """Round cost from step times: the recipe's terms, times `correction` (..., G) for 1..G drafted tokens.

    The correction is measured over modelled round time, 1 where nothing was measured; past G the last one holds.
    """

    recipe: tuple[str, ...]
    target: StepTable
    draft: StepTable | None
    overhead: Overhead
    correction: np.ndarray

    def terms(self, drafted: np.ndarray | int, context: np.ndarray | float) -> RoundTerms:
        """The round by term, before the correction."""
        return round_terms(
            self.recipe, np.asarray(drafted), np.asarray(context), self.target, self.draft, self.overhead
        )

    def lookup(self, drafted: np.ndarray, context: np.ndarray) -> Lookup:
        """Seconds (..., K) of a round."""
        terms = self.terms(drafted, context)
        return _corrected(terms, drafted, self.correction)


@dataclass(frozen=True)
class WholeRounds:
    """Round cost measured whole: `extra` (..., L) seconds over a plain step at draft `lengths` (L,), rising.

    Interpolated between lengths whose verification widths (length + 1) share a kernel segment; length 0 is the anchor
    and has no extra. The context enters through the plain step of `target`. `correction` (..., G) as in RoundOfParts.
    """

    target: StepTable
    lengths: np.ndarray
    extra: np.ndarray
    correction: np.ndarray
    recipe: tuple[str, ...] = COMPOSITE

    def terms(self, drafted: np.ndarray | int, context: np.ndarray | float) -> RoundTerms:
        """The round as its single term."""
        drafted, context = np.broadcast_arrays(np.atleast_1d(drafted), np.atleast_1d(np.asarray(context, float)))
        plain = self.target.lookup(np.ones_like(drafted), context)
        line = self._table().lookup(drafted + 1, np.zeros(drafted.shape))
        extra = np.where(drafted > 0, line.seconds, 0.0)
        doubtful = (line.doubtful & (drafted > 0)) | plain.doubtful
        return RoundTerms(self.recipe, (plain.seconds + extra,), doubtful, _joined((line.remedy, plain.remedy)))

    def lookup(self, drafted: np.ndarray, context: np.ndarray) -> Lookup:
        """Seconds (..., K) of a round."""
        terms = self.terms(drafted, context)
        return _corrected(terms, drafted, self.correction)

    def _table(self) -> "_ExtraTable":
        zero = np.zeros(self.extra.shape[:-1] + (1,))
        seconds = np.concatenate([zero, self.extra], axis=-1)[..., None, :]
        widths = np.concatenate([[1], self.lengths + 1])
        return _ExtraTable(widths, np.zeros(1), seconds, self.target.switches)


class _ExtraTable(StepTable):
    """A table in which width 1 (length 0) belongs to the first segment: whole rounds are all clocked alike."""

    def segment(self, width: int) -> int:
        return int(np.searchsorted(self.switches, width))


RoundCost = RoundOfParts | WholeRounds

"""Step times: seconds of a pass over n tokens, from a measured table. Verification is the target's pass over drafted + 1.

Every array of seconds may carry a leading axis of replicates; results carry it too. Widths are interpolated only inside a
kernel segment (matrix-vector kernels end at a width, tiles begin: the ninth column can cost as much as eight, or less).
"""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

KNOWN_SWITCHES = (8, 16)
"""Last widths of a kernel, a priori: llama.cpp's mat-vec kernels end at 8, tiles of 16 rows are common."""


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
    kernel segments. Linear in context; up to one measured span beyond the longest is trusted. A `prior` table was not
    measured (roofline.prior_table): it answers everything and nothing of it is trusted.
    """

    widths: np.ndarray
    contexts: np.ndarray
    seconds: np.ndarray
    switches: tuple[int, ...] = KNOWN_SWITCHES
    prior: bool = False

    def segment(self, width: int) -> int:
        """Number of the kernel segment that `width` is in; -1 for the decode step."""
        return -1 if width == 1 else bisect_left(self.switches, width)

    def at(self, width: np.ndarray | int, context: np.ndarray | float, streams: int = 1) -> np.ndarray:
        """Seconds (..., K) of a pass, as in lookup. Raises BeyondTable."""
        return self.lookup(width, context, streams).trusted()

    def lookup(self, width: np.ndarray | int, context: np.ndarray | float, streams: int = 1) -> Lookup:
        """Seconds (..., K) of passes over `width` (K,) tokens behind `context` (K,) cached ones, of each of `streams`.

        Streams share one pass over streams x width tokens but not their context: each reads its own, at the slope of a
        pass over `width` tokens (derived: weights are read once, KV caches one by one).
        """
        width, context = np.broadcast_arrays(np.atleast_1d(width), np.atleast_1d(np.asarray(context, float)))
        if streams == 1:
            return self._one(width, context)
        start = np.zeros(context.shape)
        shared, own, bare = self._one(width * streams, start), self._one(width, context), self._one(width, start)
        seconds = shared.seconds + streams * np.maximum(own.seconds - bare.seconds, 0.0)
        return Lookup(seconds, shared.doubtful | own.doubtful, "; ".join(filter(None, (shared.remedy, own.remedy))))

    def _one(self, widths: np.ndarray, context: np.ndarray) -> Lookup:
        """Seconds (..., K) of one stream's passes."""
        seconds = np.empty(self.seconds.shape[:-2] + widths.shape)
        doubtful = (context > self.reach()) | self.prior
        remedies = ["profile this machine: nothing of this table was measured"] if self.prior else []
        if (context > self.reach()).any():
            remedies.append(f"measure passes at a context of {context.max():.0f} tokens")
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
        line = self.seconds[..., a] + share * (self.seconds[..., b] - self.seconds[..., a])
        # Outside the two noise must not make a pass shorter than a quarter of the nearer one.
        return line if 0 <= share <= 1 else np.maximum(line, self.seconds[..., b if share > 1 else a] / 4)

    def _along_context(self, column: np.ndarray, context: np.ndarray) -> np.ndarray:
        """`column` (..., C) on its broken line at `context` (K,)."""
        if self.contexts.size == 1:
            return np.repeat(column, context.size, axis=-1)
        left = np.clip(np.searchsorted(self.contexts, context) - 1, 0, self.contexts.size - 2)
        start, end = self.contexts[left], self.contexts[left + 1]
        inside = (start <= context) & (context <= end)
        rise = column[..., left + 1] - column[..., left]
        # Outside noise must not make a pass cheaper with context, nor shorter than a quarter of what was measured.
        rise = np.where(inside, rise, np.maximum(rise, 0.0))
        nearest = np.where(context > end, column[..., left + 1], column[..., left])
        base = np.where(context > end, nearest - rise, column[..., left])
        seconds = base + (context - start) / (end - start) * rise
        return np.where(inside, seconds, np.maximum(seconds, nearest / 4))

    def reach(self) -> float:
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

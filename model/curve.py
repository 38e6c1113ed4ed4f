"""Curve: a cost over draft length from a few measured lengths, and how far it can be believed between them.

Inside a kernel segment costs rise smoothly and bend little, so a monotone cubic is drawn through what was measured; a
kernel switch is never bridged. Between two measured lengths the curve may bend, or hide a step that nobody measured.
"""

from dataclasses import dataclass

import numpy as np

OUT_OF_LINE = 1.5
"""A chord this many times as steep as the curve on both sides of it is taken to hide a step (a stated prior)."""


@dataclass(frozen=True)
class CurveLookup:
    """`value` (..., K) between `low` and `high` (..., K). `doubtful` (K,) marks what lies outside the measured lengths of
    its segment; `remedy` says what to measure for it."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    doubtful: np.ndarray
    remedy: str = ""


@dataclass(frozen=True)
class Curve:
    """`value` (..., L) at `lengths` (L,), rising from 1 at least; `switches` are the last lengths of kernel segments.

    `origin` (...) is the value at length 0, the plain step. In general it is no point of the curve, since a round has a
    constant that a plain step does not have. But no constant is negative: where the line through the first two lengths
    would meet length 0 below the plain step, the curve must bend before them, and it is drawn through the plain step.
    Raises ValueError where lengths do not rise or do not match the values.
    """

    lengths: np.ndarray
    value: np.ndarray
    switches: tuple[int, ...] = ()
    origin: np.ndarray | None = None

    def __post_init__(self):
        if self.lengths.size != self.value.shape[-1] or not self.lengths.size:
            raise ValueError(f"{self.lengths.size} lengths with {self.value.shape[-1]} values")
        if (np.diff(self.lengths) <= 0).any() or self.lengths[0] < 1:
            raise ValueError(f"lengths must rise from 1 at least: {self.lengths.tolist()}")

    def at(self, length: np.ndarray) -> CurveLookup:
        """The curve at `length` (K,).

        Measured lengths answer exactly, and so does the origin. Between two of a segment: the monotone cubic of Fritsch and Carlson (SIAM J.
        Numer. Anal. 17, 1980; scipy's PCHIP), within the band of _band. Elsewhere the nearest line, doubtful.
        """
        asked, place = np.unique(np.atleast_1d(length), return_inverse=True)
        parts = [self._one(int(n)) for n in asked]
        value, low, high = (np.stack([part[i] for part in parts], axis=-1)[..., place] for i in range(3))
        remedies = [part[3] for part in parts]
        return CurveLookup(
            value, low, high, np.array([bool(r) for r in remedies])[place], "; ".join(filter(None, remedies))
        )

    def segment(self, length: int) -> np.ndarray:
        """Indices of the measured lengths in the kernel segment of `length`."""
        return np.flatnonzero(np.searchsorted(self.switches, self.lengths) == np.searchsorted(self.switches, length))

    def _one(self, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
        """Value, low, high (...) and remedy at one length."""
        exact = np.flatnonzero(self.lengths == length)
        if exact.size:
            known = self.value[..., exact[0]]
            return known, known, known, ""
        if self.origin is not None and length <= 0:
            return self.origin, self.origin, self.origin, ""
        if self.origin is not None and length < self.lengths[0]:
            return self._below(self.origin, length)
        same = self.segment(length)
        if same.size < 2 or not self.lengths[same[0]] < length < self.lengths[same[-1]]:
            return self._beyond(same, length)
        return *self._between(same, length), ""

    def _between(self, same: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Value, low, high (...) between the first and the last of a segment's lengths."""
        known, value = self.lengths[same], self.value[..., same]
        estimate = _monotone_cubic(known, value, length)
        if same[0] == 0 and self.origin is not None:
            bent = _monotone_cubic(
                np.append(0, known), np.concatenate([self.origin[..., None], value], axis=-1), length
            )
            estimate = np.where(self._bends_before, bent, estimate)
        first_slope = self._first_slope() if same[0] == 0 else None
        low, high = _band(known, value, int(np.searchsorted(known, length)), length, first_slope)
        return estimate, np.minimum(low, estimate), np.maximum(high, estimate)

    @property
    def _bends_before(self) -> np.ndarray:
        """Whether (...) the line through the first two lengths passes below the plain step."""
        first, second = self.lengths[:2]
        slope = (self.value[..., 1] - self.value[..., 0]) / (second - first)
        return self.value[..., 0] - slope * first < self.origin

    def _first_slope(self) -> np.ndarray | None:
        """Slope (...) from the plain step to the first length, where both are known."""
        return None if self.origin is None else (self.value[..., 0] - self.origin) / self.lengths[0]

    def _below(self, origin: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
        """Value, low, high (...) and remedy between the plain step and the first length: their line, and the curve carried on.

        A first length that stands alone in its segment tells no slope, and one of another kernel nothing at all: then
        the bounds are both ends.
        """
        first = self.value[..., 0]
        line = origin + (first - origin) * length / self.lengths[0]
        same = self.segment(int(self.lengths[0]))
        other = np.searchsorted(self.switches, length) != np.searchsorted(self.switches, self.lengths[0])
        if other or same.size < 2:
            return line, np.minimum(origin, first), np.maximum(origin, first), _asked(length) if other else ""
        slope = (self.value[..., 1] - first) / (self.lengths[1] - self.lengths[0])
        carried = first - slope * (self.lengths[0] - length)
        return line, np.minimum(line, carried), np.maximum(line, carried), ""

    def _beyond(self, same: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
        """The nearest line (of the segment where it has one), from the nearest value to twice as far: what an
        extrapolation is worth (a stated prior)."""
        pool = same if same.size else np.arange(self.lengths.size)
        near = pool[np.abs(self.lengths[pool] - length).argmin()]
        anchor = self.value[..., near]
        slope = np.maximum(self._slope_at(same, near), 0.0)  # noise must not make a longer draft cheaper
        step = np.maximum(slope * (length - self.lengths[near]), -0.75 * anchor)
        return anchor + step, anchor + np.minimum(0, 2 * step), anchor + np.maximum(0, 2 * step), _asked(length)

    def _slope_at(self, same: np.ndarray, near: int) -> np.ndarray:
        """Slope (...) to carry on from the length `near`: of its segment, else from the plain step, else of all lengths."""
        origin = self._first_slope()
        if same.size < 2 and near == 0 and origin is not None:
            return origin
        pool = same if same.size > 1 else np.arange(self.lengths.size)
        if pool.size < 2:
            return np.zeros(self.value.shape[:-1])
        place = int(np.clip(np.searchsorted(pool, near), 1, pool.size - 1))
        a, b = pool[place - 1], pool[place]
        return (self.value[..., b] - self.value[..., a]) / (self.lengths[b] - self.lengths[a])


def _asked(length: int) -> str:
    return f"measure rounds of {length} draft tokens"


def _monotone_cubic(lengths: np.ndarray, value: np.ndarray, length: int) -> np.ndarray:
    """Value (...) at `length` inside `lengths` (L,) with `value` (..., L)."""
    from scipy.interpolate import PchipInterpolator  # here, so that --help stays light

    return PchipInterpolator(lengths, value, axis=-1)(length)


def _band(
    lengths: np.ndarray, value: np.ndarray, right: int, length: int, first_slope: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds (...) of a curve between the lengths `right` - 1 and `right` of a segment (derived).

    The slopes on both sides are carried on into the gap and held against its chord: a curve that bends one way lies
    between these lines. Where one side has no slope the other's stands for both; before the first gap it is that from the
    plain step. A chord far steeper than the slopes on both sides hides a step, which may be anywhere: then only costs
    that do not fall with length are assumed, and the bounds are the values at both ends.
    """
    slopes = np.diff(value, axis=-1) / np.diff(lengths)
    gap = right - 1
    before = slopes[..., gap - 1] if gap > 0 else first_slope
    after = slopes[..., gap + 1] if right < slopes.shape[-1] else before
    before = after if before is None else before
    if before is None or after is None:
        before = after = slopes[..., gap]
    step = slopes[..., gap] > OUT_OF_LINE * np.maximum(before, after)
    before, after = np.where(step, 0.0, before), np.where(step, 0.0, after)
    lines = np.stack(
        [
            value[..., gap] + before * (length - lengths[gap]),
            value[..., right] - after * (lengths[right] - length),
            value[..., gap] + slopes[..., gap] * (length - lengths[gap]),
        ]
    )
    return lines.min(axis=0), lines.max(axis=0)

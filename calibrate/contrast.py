"""Contrasts: is one number truly different from another, once the noise and the number of looks are counted?

Everything is a log ratio B/A with a standard error and the degrees of freedom of that error. Families of tests are
corrected after Holm 1979, so that among numbers that differ by noise alone a family reports any at all in at most its
share of comparisons.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtr, stdtrit

from .intervals import MEDIAN_FACTOR, PRIOR_LOG_SD, pooled_log_sd
from .records import Interval

POWER = 0.8
"""Chance with which a difference of the stated detectable size is found."""
KNOWN_DF = 1e6
"""Degrees of freedom of an error that is stated rather than estimated."""
BORROWED_DF = 8
"""Degrees of freedom that a part's noise borrows from that of all parts of its document."""
LARGEST_LOG = 10.0
"""Bounds end there: two samples of great noise tell nothing, and infinity has no place in a file."""
LEAST_LOG_SE = 1e-4
"""Numbers that agree to the last digit are still no better known than this."""


@dataclass(frozen=True)
class Estimate:
    """A log value (or a log ratio B/A), its standard error, and the degrees of freedom of that error."""

    log: float
    se: float
    df: float = KNOWN_DF

    def with_error(self, log_sd: float) -> "Estimate":
        """The same with an independent error of known size on top."""
        return replace(self, se=float(np.hypot(self.se, log_sd)), df=_welch((self.se, self.df), (log_sd, KNOWN_DF)))

    def shifted(self, log: float) -> "Estimate":
        """The same after division by a factor that shares its error with it."""
        return replace(self, log=self.log - log)

    def p_value(self) -> float:
        """Chance of so large a ratio where there is no difference (two-sided t)."""
        return float(2 * stdtr(self.df, -abs(self.log) / max(self.se, LEAST_LOG_SE)))

    def interval(self, level: float) -> Interval:
        """The ratio with its own bounds, the number of looks not counted."""
        half = min(float(stdtrit(self.df, (1 + level) / 2)) * max(self.se, LEAST_LOG_SE), LARGEST_LOG)
        low, value, high = np.exp([self.log - half, self.log, self.log + half])
        return Interval(value=float(value), low=float(low), high=float(high))

    def detectable(self, alpha: float) -> float:
        """Difference (fraction) that a test at `alpha` finds with a chance of POWER."""
        needed = float(stdtrit(self.df, 1 - alpha / 2)) + float(stdtrit(self.df, POWER))
        return float(np.expm1(min(needed * max(self.se, LEAST_LOG_SE), LARGEST_LOG)))


def ratio_of(a: Estimate, b: Estimate) -> Estimate:
    """Log ratio B/A of two independent estimates; degrees of freedom after Welch 1947."""
    return Estimate(b.log - a.log, float(np.hypot(a.se, b.se)), _welch((a.se, a.df), (b.se, b.df)))


def mean_estimate(logs: Sequence[float] | np.ndarray, fallback_log_sd: float = PRIOR_LOG_SD) -> Estimate:
    """Mean of repeated log readings; a single one has `fallback_log_sd` of noise."""
    values = np.asarray(logs, float)
    if values.size < 2:
        return Estimate(float(values.mean()), fallback_log_sd)
    return Estimate(float(values.mean()), float(values.std(ddof=1) / np.sqrt(values.size)), values.size - 1)


@dataclass(frozen=True)
class Part:
    """One part of the work in one document: positive samples of each of its numbers, taken in turn, repeat by repeat."""

    samples: tuple[np.ndarray, ...]

    @property
    def repeats(self) -> int:
        return int(np.median([one.size for one in self.samples]))

    @property
    def logs(self) -> np.ndarray:
        """Log medians (N,)."""
        return np.log([np.median(one) for one in self.samples])

    @property
    def shared(self) -> np.ndarray:
        """Deviation of each repeat (K,), the median over the numbers: what they were all slow or fast by just then."""
        each = list(zip(self.samples, self.logs))
        return np.array([np.median([np.log(s[k]) - log for s, log in each if s.size > k]) for k in range(self.repeats)])

    def estimates(self) -> list[Estimate]:
        """Log median of each number, the noise pooled over all of them."""
        noise, df = pooled_log_sd(self.samples), sum(one.size - 1 for one in self.samples) or KNOWN_DF
        sizes = [one.size for one in self.samples]
        errors = [noise * (MEDIAN_FACTOR if n > 2 else 1) / n**0.5 for n in sizes]
        return [Estimate(float(log), error, df) for log, error in zip(self.logs, errors)]


def part_estimates(parts: Sequence[Part]) -> list[Estimate]:
    """Mean log median of the numbers of each of a document's `parts`.

    What the numbers of one repeat share (a machine that was slow just then) does not fall with how many they are, so
    repeats are the unit. A part has few of them: their variance is drawn to the usual one of all parts with BORROWED_DF
    degrees of freedom (the moderated t of Smyth 2004; the usual one is a median, since one part may have cold samples).
    """
    single = [float(np.mean([e.se**2 for e in part.estimates()])) * part.repeats for part in parts]
    seen = [float(np.var(part.shared, ddof=1)) if part.repeats > 1 else 0.0 for part in parts]
    counts, df = [len(part.samples) for part in parts], [part.repeats - 1 for part in parts]
    beyond = [(s - o / n) / (1 - 1 / n) for s, o, n, d in zip(seen, single, counts, df) if n > 1 and d > 0]
    common = max(float(np.median(beyond)), 0.0) if beyond else 0.0
    usual = [common + max(o - common, 0.0) / n for o, n in zip(single, counts)]
    variances = [(BORROWED_DF * u + d * s) / (BORROWED_DF + d) for u, s, d in zip(usual, seen, df)]
    return [
        Estimate(float(part.logs.mean()), (variance / part.repeats) ** 0.5, BORROWED_DF + d)
        for part, variance, d in zip(parts, variances, df)
    ]


def series_estimate(values: np.ndarray, blocks: int = 8) -> Estimate:
    """Log median of a series in time that wanders: its error from the means of `blocks` stretches of it."""
    logs = np.log(values)
    if values.size < 2 * blocks:
        return Estimate(float(np.median(logs)), mean_estimate(logs).se * MEDIAN_FACTOR, max(values.size - 1, 1))
    means = [part.mean() for part in np.array_split(logs, blocks)]
    return Estimate(float(np.median(logs)), float(np.std(means, ddof=1) / blocks**0.5), blocks - 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values (Holm 1979): those up to a level are differences, with at most that chance of any false one."""
    order, adjusted, worst = np.argsort(p_values), [1.0] * len(p_values), 0.0
    for place, index in enumerate(order):
        worst = max(worst, min(1.0, p_values[index] * (len(p_values) - place)))
        adjusted[index] = worst
    return adjusted


def _welch(*parts: tuple[float, float]) -> float:
    """Satterthwaite's degrees of freedom of a sum of errors (se, df)."""
    variances = np.array([se**2 for se, _ in parts])
    if not variances.sum():
        return KNOWN_DF
    return float(variances.sum() ** 2 / sum(v**2 / df for v, (_, df) in zip(variances, parts)))


@dataclass(frozen=True)
class Look:
    """One number of two documents, about to be judged. `family`: machine, group or number."""

    family: str
    group: str
    name: str
    unit: str
    a: float
    b: float
    ratio: Estimate
    at_equal_speed: Estimate | None = None
    """The ratio with the factor of the whole machine taken out."""
    errors: tuple[float, float] | None = None
    """Forecast errors of a validation's row in A and B."""

    @property
    def tested(self) -> Estimate:
        return self.at_equal_speed or self.ratio

"""Intervals: replicates of what was measured, and percentile bounds of what is computed from them.

Replicated arrays have a leading axis of 1 + replicates: entry 0 is the point estimate, the others are draws. Draws are
seeded by the name of what they belong to, so that arms which share a quantity share its draws.
"""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .records import Interval
from .seeds import Seed

PRIOR_LOG_SD = 0.03
"""Noise of one timing sample where there are no repeats to tell (a stated prior)."""
MEDIAN_FACTOR = 1.2533
"""sd of a median over sd of a mean, for normal noise."""
QUARTER = 0.3186
"""A quarter of normal noise lies within so many standard deviations."""
CUT_AT_TWO = 0.7737
"""Variance of normal noise that is cut off at two standard deviations."""
POOLED_EFFICIENCY = 0.45
"""Of pooled_log_sd beside the standard deviation of normal noise, in groups of three to six (simulated)."""
TAIL_EXCESS = 2.0
"""Excess kurtosis of how prompts differ, a stated prior: a spread estimated from them is worth 1 / (1 + excess / 2) as much."""
POOL_WEIGHT, OWN_WEIGHT = 8.0, 0.4
"""What the pooled spread counts for beside the own spread of a few readings, and what each of them counts for after the first."""
LEAST_FREEDOM = 3
"""Degrees of freedom given to the spread of a few prompts, and to the prior beside the spread of a few readings."""


@dataclass(frozen=True)
class Noise:
    """Log sd of one reading, and the degrees of freedom that it rests on (infinite: a stated prior)."""

    log_sd: float
    freedom: float = np.inf

    def of_median(self, values: np.ndarray) -> float:
        """Log sd of the median of `values` (n,): of the pooled noise, moved towards their own spread where that differs.

        Their median absolute deviation, which a hiccup in one of three readings or two of five leaves as it is.
        """
        logs, weight = np.log(values), OWN_WEIGHT * (values.size - 1)
        own = 1.4826 * (1 + 1 / values.size) * np.median(np.abs(logs - np.median(logs)))
        one = np.sqrt((POOL_WEIGHT * self.log_sd**2 + weight * own**2) / (POOL_WEIGHT + weight))
        return float(
            one * MEDIAN_FACTOR / np.sqrt(values.size + 0.5) if values.size > 2 else one / np.sqrt(values.size)
        )

    def moderated(self) -> "Noise":
        """The noise itself, or where it rests on next to nothing its square moderated by the prior's, which then counts
        LEAST_FREEDOM degrees of freedom (Smyth 2004, doi 10.2202/1544-6115.1027, equation 3, the prior stated, not fitted)."""
        if self.freedom >= LEAST_FREEDOM:
            return self
        freedom = LEAST_FREEDOM + self.freedom
        squares = LEAST_FREEDOM * PRIOR_LOG_SD**2 + self.freedom * self.log_sd**2
        return Noise(float(np.sqrt(squares / freedom)), freedom)

    def draws(self, rng: np.random.Generator, replicates: int) -> np.ndarray:
        """Student's t (replicates,)."""
        return (
            rng.standard_t(self.freedom, replicates) if np.isfinite(self.freedom) else rng.standard_normal(replicates)
        )


def generator(seed: int, *names: object) -> np.random.Generator:
    """The random numbers of one named quantity; independent of the order in which quantities are drawn, and with a Seed of
    what its models and workload are called."""
    words = [word for name in names for word in (seed.words(name) if isinstance(seed, Seed) else (str(name),))]
    return np.random.default_rng([int(seed), zlib.crc32("/".join(words).encode())])


def pooled_log_sd(groups: Iterable[np.ndarray]) -> float:
    """Robust sd of log samples within groups, from the differences of their pairs (derived).

    The lower quarter of the differences tells their scale, up to a hiccup in one of three samples; those within twice that
    are normal ones cut off there. PRIOR_LOG_SD where no group has two samples; kept between 0.2 % and 30 %.
    """
    differences = [_pair_differences(np.log(group)) for group in groups if len(group) > 1]
    if not differences:
        return PRIOR_LOG_SD
    pooled = np.concatenate(differences)
    kept = pooled[pooled <= 2 * np.quantile(pooled, 0.25) / QUARTER]
    return float(np.clip(np.sqrt(np.mean(kept**2) / (2 * CUT_AT_TWO)), 0.002, 0.3))


def pooled_noise(groups: Iterable[np.ndarray]) -> Noise:
    """The pooled noise of log samples within groups, and what it rests on; the stated prior where nothing was repeated."""
    groups = [group for group in groups if len(group) > 1]
    freedom = POOLED_EFFICIENCY * sum(len(group) - 1 for group in groups)
    return Noise(pooled_log_sd(groups), max(freedom, 1.0)) if groups else Noise(PRIOR_LOG_SD)


def _pair_differences(values: np.ndarray) -> np.ndarray:
    first, second = np.triu_indices(values.size, 1)
    return np.abs(values[first] - values[second])


def replicated_median(values: np.ndarray, rng: np.random.Generator, replicates: int, noise: Noise) -> np.ndarray:
    """Median of positive `values` (n,) and its draws (1 + replicates,).

    Not resampled: medians of five resampled readings run up to a hiccup among them, though the median itself does not.
    """
    middle = float(np.median(values))
    return middle * np.exp(noise.of_median(values) * np.concatenate([[0.0], noise.draws(rng, replicates)]))


def log_noise(rng: np.random.Generator, replicates: int, log_sd: float) -> np.ndarray:
    """Factors (1 + replicates,) around 1, entry 0 exactly 1."""
    return np.concatenate([[1.0], np.exp(log_sd * rng.standard_normal(replicates))])


def prompt_weights(prompts: int, rng: np.random.Generator, replicates: int) -> np.ndarray:
    """How often each prompt counts (1 + replicates, prompts): once in row 0, resampled with replacement in the others."""
    drawn = rng.multinomial(prompts, np.full(prompts, 1 / prompts), size=replicates)
    return np.concatenate([np.ones((1, prompts)), drawn.astype(float)])


def prompt_stretch(prompts: int, rng: np.random.Generator, replicates: int) -> np.ndarray:
    """Powers (1 + replicates,), entry 0 exactly 1, for the ratios by which resampled prompts differ from all (derived).

    Means over n resampled prompts spread sqrt((n - 1) / n) times as far as means over n prompts, and that spread is itself
    an estimate: with these powers the logs follow Student's t. Ones where there is nothing to resample.
    """
    if prompts < 2:
        return np.ones(1 + replicates)
    freedom = max((prompts - 1) / (1 + TAIL_EXCESS / 2), LEAST_FREEDOM)
    doubt = np.sqrt(freedom / rng.chisquare(freedom, replicates))
    return np.concatenate([[1.0], np.sqrt(prompts / (prompts - 1)) * doubt])


def stretched(drawn: np.ndarray, fixed: np.ndarray, powers: np.ndarray) -> np.ndarray:
    """`fixed` (R, ...) times its ratio to `drawn` raised to `powers` (R,); 0 where `drawn` is."""
    ratio = np.divide(drawn, fixed, out=np.zeros_like(drawn), where=fixed > 0)
    return fixed * ratio ** powers.reshape(-1, *[1] * (drawn.ndim - 1))


def percentile_interval(replicated: np.ndarray, level: float) -> Interval:
    """The point estimate and the percentile bounds of its draws (widened to hold the point where they miss it)."""
    value, draws = float(replicated[0]), replicated[1:] if replicated.size > 1 else replicated
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value=value, low=min(float(low), value), high=max(float(high), value))

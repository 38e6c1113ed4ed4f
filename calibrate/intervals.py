"""Intervals: replicates of what was measured, and percentile bounds of what is computed from them.

Replicated arrays have a leading axis of 1 + replicates: entry 0 is the point estimate, the others are draws. Draws are
seeded by the name of what they belong to, so that arms which share a quantity share its draws.
"""

import zlib
from collections.abc import Iterable

import numpy as np

from .records import Interval

PRIOR_LOG_SD = 0.03
"""Noise of one timing sample where there are no repeats to tell (a stated prior)."""
MEDIAN_FACTOR = 1.2533
"""sd of a median over sd of a mean, for normal noise."""
LEAST_RESAMPLED = 4
"""Fewer samples than this are not resampled: their medians hardly vary; the pooled noise is used."""


def generator(seed: int, *names: object) -> np.random.Generator:
    """The random numbers of one named quantity; independent of the order in which quantities are drawn."""
    return np.random.default_rng([seed, zlib.crc32("/".join(map(str, names)).encode())])


def pooled_log_sd(groups: Iterable[np.ndarray]) -> float:
    """Robust sd of log samples within groups: median of |differences of pairs| / 0.954 (normal consistent).

    PRIOR_LOG_SD where no group has two samples; kept between 0.2 % and 30 %.
    """
    differences = [_pair_differences(np.log(group)) for group in groups if len(group) > 1]
    if not differences:
        return PRIOR_LOG_SD
    return float(np.clip(np.median(np.concatenate(differences)) / 0.9539, 0.002, 0.3))


def _pair_differences(values: np.ndarray) -> np.ndarray:
    first, second = np.triu_indices(values.size, 1)
    return np.abs(values[first] - values[second])


def replicated_median(values: np.ndarray, rng: np.random.Generator, replicates: int, log_sd: float) -> np.ndarray:
    """Median of positive `values` (n,) and its draws (1 + replicates,).

    Four samples or more are resampled; fewer get log-normal noise of the pooled `log_sd` around their median.
    """
    middle = float(np.median(values))
    if values.size >= LEAST_RESAMPLED:
        draws = np.median(values[rng.integers(values.size, size=(replicates, values.size))], axis=1)
    else:
        noise = log_sd * (MEDIAN_FACTOR if values.size > 2 else 1.0) / np.sqrt(values.size)
        draws = middle * np.exp(noise * rng.standard_normal(replicates))
    return np.concatenate([[middle], draws])


def log_noise(rng: np.random.Generator, replicates: int, log_sd: float) -> np.ndarray:
    """Factors (1 + replicates,) around 1, entry 0 exactly 1."""
    return np.concatenate([[1.0], np.exp(log_sd * rng.standard_normal(replicates))])


def prompt_weights(prompts: int, rng: np.random.Generator, replicates: int) -> np.ndarray:
    """How often each prompt counts (1 + replicates, prompts): once in row 0, resampled with replacement in the others."""
    drawn = rng.multinomial(prompts, np.full(prompts, 1 / prompts), size=replicates)
    return np.concatenate([np.ones((1, prompts)), drawn.astype(float)])


def percentile_interval(replicated: np.ndarray, level: float) -> Interval:
    """The point estimate and the percentile bounds of its draws (widened to hold the point where they miss it)."""
    value, draws = float(replicated[0]), replicated[1:] if replicated.size > 1 else replicated
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value=value, low=min(float(low), value), high=max(float(high), value))

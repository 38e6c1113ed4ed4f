"""What samples of bandwidth tell: median and interval, which lie in memory, and whether memory was the limit."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ..records import BandwidthSample

LEVEL = 0.95
ARITHMETIC_RATIO = 1.25
"""A read from a cache that is not this much faster than one from memory may be limited by its additions instead."""
DISTURBED_RATIO = 0.8
"""No cache is this much slower than the memory behind it: threads waited for one that did not run."""


@dataclass(frozen=True)
class Spread:
    """Median of the repeats and a 95 % interval for it, in bytes per second: of these minutes, not of every day."""

    median: float
    low: float
    high: float


def spread(sample: BandwidthSample) -> Spread:
    """The interval lies between two order statistics, whatever the distribution: P(Binomial(n, 1/2) < k) <= 2.5 % each.

    Fewer than 6 repeats cannot give 95 %: then the smallest and the largest.
    """
    values = sorted(sample.bytes_per_second)
    n, below, k = len(values), 0.0, 0
    while below + math.comb(n, k) / 2**n <= (1 - LEVEL) / 2:
        below += math.comb(n, k) / 2**n
        k += 1
    k = max(k, 1)
    return Spread(statistics.median(values), values[k - 1], values[n - k])


def median(sample: BandwidthSample) -> float:
    """Bytes per second."""
    return statistics.median(sample.bytes_per_second)


def in_memory(samples: Sequence[BandwidthSample]) -> list[BandwidthSample]:
    """Measured samples of the largest buffer: what lies in memory for sure."""
    measured = [sample for sample in samples if sample.provenance == "measured"]
    largest = max((sample.buffer_bytes for sample in measured), default=0)
    return [sample for sample in measured if sample.buffer_bytes == largest]


def cache_over_memory(samples: Sequence[BandwidthSample]) -> float | None:
    """Fastest read of a smaller buffer over the read of the largest; None where one size only was measured."""
    reads = [sample for sample in samples if sample.operation == "read" and sample.provenance == "measured"]
    largest = max((sample.buffer_bytes for sample in reads), default=0)
    smaller = [median(sample) for sample in reads if sample.buffer_bytes < largest]
    slowest = [median(sample) for sample in reads if sample.buffer_bytes == largest]
    return max(smaller) / slowest[0] if smaller and slowest else None

"""Draft: the least seconds of one draft step, by its parts.

A small draft does not reach the bandwidth: launching its kernels takes longer than reading its weights, so that its cost
is no ratio of parameters.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class DraftStep:
    """Seconds of a draft step: `launch_bound` tells that kernel launches, not bytes, set the time of its body."""

    body_seconds: float
    head_seconds: float
    sample_seconds: float
    host_seconds: float
    launch_bound: bool

    @property
    def seconds(self) -> float:
        """All parts."""
        return self.body_seconds + self.head_seconds + self.sample_seconds + self.host_seconds


def draft_step_seconds(
    body_bytes: float,
    bytes_per_second: float,
    launch_floor_seconds: float,
    head_seconds: float = 0.0,
    sample_seconds: float = 0.0,
    host_seconds: float = 0.0,
) -> DraftStep:
    """t_d = max(launch floor, bytes / BW) + head + sample + host; `body_bytes` are those read without the output head.

    Derived: launches and reading overlap, so the longer of the two counts; the floor is set by the draft's depth more than
    its width (arXiv 2402.01528). Raises ValueError where bandwidth is not above 0 or another argument is negative.
    """
    if not bytes_per_second > 0:
        raise ValueError("bandwidth must be above 0")
    if not all(part >= 0 for part in (body_bytes, launch_floor_seconds, head_seconds, sample_seconds, host_seconds)):
        raise ValueError("neither bytes nor seconds of a draft step are negative")
    reading = body_bytes / bytes_per_second
    body = max(launch_floor_seconds, reading)
    return DraftStep(body, head_seconds, sample_seconds, host_seconds, launch_floor_seconds > reading)

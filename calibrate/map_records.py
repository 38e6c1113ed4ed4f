"""Maps of a recommendation: where a draft pays over contexts and streams, and what fits into memory."""

from ..profiler.records import Record, Setting
from .checks.records import LargestContext, RegionCell


class SpeedCell(Record, kw_only=True):
    """The fastest drafting length for `streams` requests behind `context` cached tokens each; speeds are of one stream."""

    context: float
    streams: int
    draft_tokens: int
    tokens_per_second: float
    plain_tokens_per_second: float
    speed_up: float
    """Over plain decoding at the same place, forecast."""
    speed_up_low: float
    speed_up_high: float
    """Bounds at the recommendation's level. Both above 1: drafting pays; both below: it does not."""
    provenance: str
    """calibrated, or prior where the cost there is an extrapolation not to be trusted."""


class SpeedMap(Record, kw_only=True):
    """One drafter on one workload. `setting` is its longest that was forecast."""

    setting: Setting
    workload: str
    cells: tuple[SpeedCell, ...]
    unknown: str = ""
    """What the profile cannot say, and what to run for it."""


class MemoryMap(Record, kw_only=True):
    """What fits of one target and drafter, by context, draft length and streams; from the headers of their files.

    `room`: the memory in words. Without cells `unknown` says why."""

    target: str
    drafter: str
    draft: str
    room: str = ""
    free_bytes: float | None = None
    cells: tuple[RegionCell, ...] = ()
    largest_contexts: tuple[LargestContext, ...] = ()
    unknown: str = ""

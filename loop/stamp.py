"""When and by which version a document is made."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from .. import __version__

if TYPE_CHECKING:
    from ..profiler.job import Stamp


def stamped() -> "Stamp":
    """Now, and this version."""
    from ..profiler.job import Stamp

    return Stamp(created=datetime.now(UTC).isoformat(timespec="seconds"), tool_version=__version__)

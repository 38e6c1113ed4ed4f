"""Evidence that specgauge did not measure, as a profile."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..options import Common
from ..process import alone_in
from ..profiler.errors import InputError
from .documents import PROFILE
from .stamp import stamped

if TYPE_CHECKING:
    from ..calibrate.importers.base import Given, Imported
    from ..profiler.records import Profile


def imported_to(
    files: Sequence[Path], acceptance: Sequence[Path], given: "Given", common: Common
) -> "tuple[Profile, tuple[Imported, ...]]":
    """The evidence of files that specgauge did not make, written as profile.json; one that was measured stays."""
    from ..calibrate.combine import acceptance_of, profile_of
    from ..calibrate.importers.detect import read_files
    from ..profiler.files import write_record

    parts, stamp = read_files(files, given), stamped()
    elsewhere = tuple(acceptance_of(part) for part in read_files(acceptance, given))
    profile = profile_of(parts, elsewhere, given, stamp.created, stamp.tool_version)
    _check_replaceable(common.path(PROFILE))
    with alone_in(common.out):
        _check_replaceable(common.path(PROFILE))
        write_record(common.path(PROFILE), profile)
    return profile, (*parts, *elsewhere)


def _check_replaceable(path: Path) -> None:
    """Imported evidence can be imported again; what was measured cannot."""
    from ..profiler.files import read_record
    from ..profiler.records import Profile

    if not os.path.lexists(path):
        return
    if any(measurement.request.action != "import" for measurement in read_record(path, Profile).measurements):
        raise InputError(f"{path} was measured and is kept; choose another --out")

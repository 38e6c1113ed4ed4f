"""Fit and search: calibration.json and recommendation.json."""

from typing import TYPE_CHECKING

from ..options import Common
from ..profiler.errors import InputError
from .documents import CALIBRATION, PROFILE, RECOMMENDATION
from .stamp import stamped

if TYPE_CHECKING:
    from ..calibrate.fit import Calibrated
    from ..calibrate.records import Calibration, Recommendation
    from ..profiler.records import Profile


def calibrated_to(profile: "Profile", seed: int, common: Common) -> "tuple[Calibrated, Calibration]":
    """Fit, and write calibration.json."""
    from ..calibrate.fit import calibrate as fitted
    from ..profiler.files import record_digest, write_record

    calibrated, stamp = fitted(profile, seed=seed), stamped()
    calibration = calibrated.record(record_digest(profile), stamp.created, stamp.tool_version)
    write_record(common.path(CALIBRATION), calibration)
    return calibrated, calibration


def recommended_to(
    profile: "Profile", calibrated: "Calibrated", calibration: "Calibration", common: Common
) -> "Recommendation":
    """Search, and write recommendation.json with the command to copy."""
    from msgspec.structs import replace

    from ..calibrate.fit import NotCalibrated
    from ..calibrate.memory_maps import memory_maps
    from ..calibrate.recommend import recommend as searched
    from ..calibrate.reported import speaks_of
    from ..profiler.files import record_digest, write_record
    from ..reports.commands import command_for
    from ..reports.engine_commands import every_command

    stamp = stamped()
    try:
        found = searched(
            profile,
            calibrated,
            profile_sha256=record_digest(profile),
            calibration_sha256=record_digest(calibration),
            created=stamp.created,
            tool_version=stamp.tool_version,
            command="",
        )
    except NotCalibrated as error:
        raise InputError(f"{common.path(PROFILE)}: {error}") from None
    # The files and flags behind imported and shared evidence are not known: no command could be vouched for.
    command = "" if speaks_of(profile) or profile.redacted else command_for(profile, found.chosen)
    recommendation = replace(
        found, command=command, commands=every_command(profile, found), memory_maps=memory_maps(profile)
    )
    write_record(common.path(RECOMMENDATION), recommendation)
    return recommendation

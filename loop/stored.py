"""The documents of the output folder, each held against those that it was made from."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..options import Common
from ..process import warn
from ..profiler.errors import InputError
from .documents import CALIBRATION, RECOMMENDATION, VALIDATION
from .forecast import calibrated_to, recommended_to

if TYPE_CHECKING:
    from ..calibrate.fit import Calibrated
    from ..calibrate.records import Calibration, Recommendation, Validation
    from ..profiler.records import Profile, Record

USUAL_SEED = 1
R = TypeVar("R", bound="Record")


def stored_profile(path: Path) -> "Profile":
    """A complete profile. Raises InputError."""
    from ..profiler.records import Profile

    profile = _stored(path, Profile, "specgauge profile")
    if not profile.complete:
        raise InputError(f"{path} is not complete; run the same specgauge profile again, it goes on where it stopped")
    if not (profile.models and profile.prompts and profile.candidates):
        raise InputError(f"{path} names no models, prompts or candidates; profile again")
    return profile


def runnable(profile: "Profile") -> "Profile":
    """A profile whose settings can be run here. Raises InputError for imported evidence and shared profiles."""
    from ..calibrate.reported import speaks_of

    if speaks_of(profile) or profile.redacted:
        kind = "a shared profile" if profile.redacted else "imported evidence"
        raise InputError(f"{kind} names no files, so that nothing can be run; profile the models themselves")
    return profile


def stored_calibration(profile: "Profile", common: Common) -> "tuple[Calibrated, Calibration]":
    """calibration.json of this profile, and the model that it describes, fitted anew with its seed; made where it is
    missing."""
    from ..calibrate.records import Calibration

    if not os.path.lexists(common.path(CALIBRATION)):
        return calibrated_to(profile, USUAL_SEED, common)
    calibration = _stored(common.path(CALIBRATION), Calibration, "specgauge calibrate")
    _belongs(common.path(CALIBRATION), calibration.profile_sha256, profile, "specgauge calibrate")
    calibrated = _fitted_again(profile, calibration, common.path(CALIBRATION))
    if calibrated.record(calibration.profile_sha256, calibration.created, calibration.tool_version) != calibration:
        raise InputError(
            f"{common.path(CALIBRATION)} is not what this specgauge fits to the profile beside it (edited, or another "
            "version); run specgauge calibrate again"
        )
    return calibrated, calibration


def stored_recommendation(
    profile: "Profile", calibrated: "Calibrated", calibration: "Calibration", common: Common
) -> "Recommendation":
    """recommendation.json of this profile and calibration; made where it is missing."""
    from ..calibrate.arms import chosen_by_workload
    from ..calibrate.records import Recommendation

    path = common.path(RECOMMENDATION)
    if not os.path.lexists(path):
        return recommended_to(profile, calibrated, calibration, common)
    recommendation = _stored(path, Recommendation, "specgauge recommend")
    _belongs(path, recommendation.profile_sha256, profile, "specgauge recommend")
    _belongs(path, recommendation.calibration_sha256, calibration, "specgauge recommend")
    try:
        chosen_by_workload(profile, recommendation)
    except (StopIteration, ValueError, IndexError):
        raise InputError(f"{path} names a setting that the profile does not have; run specgauge recommend") from None
    return recommendation


def stored_validation(recommendation: "Recommendation", common: Common) -> "Validation | None":
    """validation.json, if there is one of the same calibration."""
    from ..calibrate.records import Validation

    path = common.path(VALIDATION)
    if not path.exists():
        return None
    validation = _stored(path, Validation, "specgauge validate")
    if validation.calibration_sha256 == recommendation.calibration_sha256:
        return validation
    warn(f"{path} belongs to another calibration and is left out; run specgauge validate")
    return None


def calibrated_beside(path: Path, profile: "Profile", seed: int) -> "Calibrated":
    """The model of the calibration that lies beside a profile and belongs to it, else one fitted in memory."""
    from ..calibrate.fit import calibrate as fitted
    from ..calibrate.records import Calibration
    from ..profiler.files import read_record, record_digest

    beside = path.with_name(CALIBRATION)
    if beside.exists():
        calibration = read_record(beside, Calibration)
        if calibration.profile_sha256 == record_digest(profile):
            return _fitted_again(profile, calibration, beside)
        warn(f"{beside} belongs to another profile; the model is fitted anew in memory")
    return fitted(profile, seed=seed)


def _fitted_again(profile: "Profile", calibration: "Calibration", path: Path) -> "Calibrated":
    """The model of a stored calibration. Raises InputError for one by a clock that the profile was not timed by."""
    from ..calibrate.fit import calibrate as fitted

    seed, replicates, clock = calibration.seed, calibration.replicates, calibration.clock
    try:
        return fitted(profile, seed=seed, replicates=replicates, clock=clock)
    except ValueError as error:
        raise InputError(f"{path}: {error}; run specgauge calibrate again") from None


def _stored(path: Path, type: type[R], verb: str) -> R:
    """A record of the output folder; where it is missing, the verb that makes it is named."""
    from ..profiler.files import read_record

    if not os.path.lexists(path):
        raise InputError(f"{path} does not exist; make it with {verb}")
    return read_record(path, type)


def _belongs(path: Path, sha256: str, to: "Record", verb: str) -> None:
    from ..profiler.files import record_digest

    if sha256 != record_digest(to):
        raise InputError(
            f"{path} was made from other files than those beside it, or by another version; run {verb} again"
        )

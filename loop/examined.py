"""What is said beside a verdict: checklist and diagnoses."""

import os
from typing import TYPE_CHECKING, NamedTuple

from ..options import Common
from ..process import warn
from ..profiler.errors import InputError
from .documents import PROFILE
from .stamp import stamped
from .stored import stored_calibration, stored_profile, stored_recommendation, stored_validation

if TYPE_CHECKING:
    from ..calibrate.checks.records import ChecklistItem
    from ..calibrate.fit import Calibrated
    from ..calibrate.records import Calibration, Diagnosis, Recommendation, Validation
    from ..model.shape import Shape
    from ..profiler.records import Profile

MOST_ROWS = 500
"""Imported rows that are diagnosed."""


class Examined(NamedTuple):
    """What is said beside a verdict: the seven points, and why drafting costs what it costs."""

    checklist: "tuple[ChecklistItem, ...]" = ()
    diagnoses: "tuple[Diagnosis, ...]" = ()


def examined(
    profile: "Profile",
    calibrated: "Calibrated",
    calibration: "Calibration",
    recommendation: "Recommendation",
    validation: "Validation | None",
) -> Examined:
    """Checklist and diagnoses of what was measured; of imported rows the diagnoses alone."""
    from ..calibrate.checks.checklist_after import checklist_after
    from ..calibrate.reported import speaks_of

    if speaks_of(profile):
        return Examined(diagnoses=_diagnosed_rows(profile, "", None))
    return Examined(
        checklist_after(profile, calibration, recommendation, validation),
        diagnosed(profile, calibrated, recommendation, validation),
    )


def diagnosed(
    profile: "Profile",
    calibrated: "Calibrated",
    recommendation: "Recommendation",
    validation: "Validation | None",
    workload: str = "",
    draft_tokens: int | None = None,
) -> "tuple[Diagnosis, ...]":
    """Causes of what drafting costs: of each drafter of the recommended target at its fastest length, or at one length.

    Raises InputError for a workload or a length that there is not.
    """
    from msgspec.structs import replace

    from ..calibrate.arms import chosen_setting
    from ..calibrate.diagnose import diagnose
    from ..calibrate.examine import symptoms_of, usual_settings

    names = [one.workload for one in recommendation.workloads]
    if workload and workload not in names:
        raise InputError(f"--workload {workload}: no such workload; choose one of {', '.join(names)}")
    stamp, found = stamped(), []
    for advice in recommendation.workloads:
        if workload not in ("", advice.workload):
            continue
        target = chosen_setting(profile, advice.chosen).target
        shape = _shape_of(profile, target)
        for setting in usual_settings(profile, calibrated, target, advice.workload, draft_tokens):
            diagnosis = diagnose(symptoms_of(profile, calibrated, setting, advice.workload, validation, shape))
            found.append(replace(diagnosis, created=stamp.created, tool_version=stamp.tool_version))
    return tuple(found)


def _shape_of(profile: "Profile", label: str) -> "Shape | None":
    """The target's shape, where its file is still there to be read."""
    from ..profiler.checkpoints.reading import read_checkpoint

    path = next((model.path for model in profile.models if model.label == label), "")
    try:
        return read_checkpoint(path).shape if path and os.path.exists(path) else None
    except InputError:
        return None


def diagnosed_in(common: Common, workload: str = "", draft_tokens: int | None = None) -> "tuple[Diagnosis, ...]":
    """The diagnoses of the files in the output folder: measured ones, or every imported row that drafts."""
    from ..calibrate.reported import speaks_of

    profile = stored_profile(common.path(PROFILE))
    if speaks_of(profile):
        found = _diagnosed_rows(profile, workload, draft_tokens)
    else:
        calibrated, calibration = stored_calibration(profile, common)
        recommendation = stored_recommendation(profile, calibrated, calibration, common)
        validation = stored_validation(recommendation, common)
        found = diagnosed(profile, calibrated, recommendation, validation, workload, draft_tokens)
    if not found:
        asked = f" with {draft_tokens} draft tokens" if draft_tokens else ""
        raise InputError(f"{common.path(PROFILE)}: no setting{asked} drafts there, so that there is nothing to explain")
    return found


def _diagnosed_rows(profile: "Profile", workload: str, draft_tokens: int | None) -> "tuple[Diagnosis, ...]":
    """Of each imported row that drafts. Raises InputError for a workload or a length that there is not."""
    from msgspec.structs import replace

    from ..calibrate.diagnose import diagnose
    from ..calibrate.examine import symptoms_of_rows

    stamp = stamped()
    every = symptoms_of_rows(profile)
    rows = every[:MOST_ROWS]
    if len(every) > MOST_ROWS:
        warn(f"the first {MOST_ROWS} of {len(every):,} rows are diagnosed; import fewer to see the others")
    asked = [o for o in rows if workload in ("", o.workload) and draft_tokens in (None, o.draft_tokens)]
    if rows and not asked:
        known = sorted({o.workload for o in rows}), sorted({o.draft_tokens for o in rows})
        raise InputError(
            f"no row of that kind: workloads are {', '.join(known[0])}, draft tokens {', '.join(map(str, known[1]))}"
        )
    return tuple(replace(diagnose(o), created=stamp.created, tool_version=stamp.tool_version) for o in asked)

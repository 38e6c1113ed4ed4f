"""Run what was forecast: validation.json."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ..options import Check, Common
from .documents import VALIDATION
from .progress import clock_of, named, telling
from .stamp import stamped

if TYPE_CHECKING:
    from ..calibrate.arms import Settled
    from ..calibrate.fit import Calibrated
    from ..calibrate.records import Calibration, Recommendation, Validation
    from ..profiler.job import Job
    from ..profiler.records import Measurement, Profile, Run, Setting

VALIDATION_SECONDS = 240.0
"""Time for repeats beyond the least number."""


def validated_to(
    job: "Job",
    profile: "Profile",
    calibrated: "Calibrated",
    calibration: "Calibration",
    recommendation: "Recommendation",
    check: Check,
    common: Common,
) -> "Validation":
    """Run what was forecast, compare, and write validation.json."""
    from ..calibrate import validate as checking
    from ..calibrate.arms import settings_to_run
    from ..profiler.files import write_record

    clock = clock_of(job)
    began, stamp = clock(), stamped()
    settings = settings_to_run(profile, recommendation)
    with telling() as tell:
        start_seconds = started(job, settings, clock, tell)
        settled = interleaved(job, profile, recommendation, settings, check, clock, tell)
        samples = [sample for one in fresh_rounds(job, profile, settings, clock, tell) for sample in one.rounds]
    session = checking.Session(
        calibration_sha256=recommendation.calibration_sha256,
        created=stamp.created,
        tool_version=stamp.tool_version,
        validation_seconds=clock() - began,
        start_seconds=start_seconds,
        reference_sentinel_seconds=calibration.reference_sentinel_seconds,
        warnings=(*job.warnings, *_not_settled(settled)),
    )
    measured = (profile, calibrated, recommendation, settled.runs, samples, session)
    validation = checking.with_other_clock(checking.validation(*measured, calibration.clock), *measured)
    write_record(common.path(VALIDATION), validation)
    return validation


def started(
    job: "Job", settings: "Sequence[Setting]", clock: Callable[[], float], tell: Callable[[str], None]
) -> float:
    """Mean seconds to start and warm up a setting."""
    began = clock()
    for setting in settings:
        tell(f"starting {named(setting)}")
        job.engine.warm_up(setting)
    return (clock() - began) / len(settings)


def interleaved(
    job: "Job",
    profile: "Profile",
    recommendation: "Recommendation",
    settings: "Sequence[Setting]",
    check: Check,
    clock: Callable[[], float],
    tell: Callable[[str], None],
) -> "Settled":
    """Interleaved repeats of `settings`, 5 to 15 as the decision needs, or exactly the number asked for."""
    from ..calibrate import arms
    from ..profiler.protocol import interleaved_runs

    def one_repeat(repeat: int) -> "Sequence[Run]":
        tell(f"checking {len(settings)} settings, repeat {repeat + 1}")
        return interleaved_runs(job.engine, settings, job.prompts, profile.sampling, 1, first_repeat=repeat, at=clock)

    return arms.run_until_settled(
        one_repeat,
        arms.chosen_by_workload(profile, recommendation),
        clock=clock,
        seconds=VALIDATION_SECONDS,
        least=check.repeats or arms.LEAST_REPEATS,
        most=check.repeats or arms.MOST_REPEATS,
    )


def fresh_rounds(
    job: "Job",
    profile: "Profile",
    settings: "Sequence[Setting]",
    clock: Callable[[], float],
    tell: Callable[[str], None],
) -> "Iterator[Measurement]":
    """Rounds that no fit has seen, at draft lengths 1 to 8."""
    from ..calibrate.arms import check_requests
    from ..profiler.protocol import execute

    for request in check_requests(profile, settings):
        tell(f"checking rounds of {named(request.settings[0])}")
        yield execute(job.engine, request, profile, job.prompts, clock)


def missed_tolerance(validation: "Validation", check: Check) -> str:
    """What to warn of where the forecasts were off by more than the tolerance, else empty."""
    error = validation.mean_abs_error
    if error is None or error <= check.tolerance:
        return ""
    missed = f"forecasts were off by {error:.1%} on average, more than --tolerance {check.tolerance:.0%}"
    named = validation.likeliest_missing_term not in ("", "none")
    return f"{missed}; likeliest missing term: {validation.missing_term_text}" if named else missed


def _not_settled(settled: "Settled") -> tuple[str, ...]:
    if settled.stopped_by == "settled":
        return ()
    cause = {"time": "the time was used up", "most-repeats": "no more are made"}[settled.stopped_by]
    return (f"choice and best rival are not told apart within 3 % after {settled.repeats} repeats: {cause}",)

"""The loop: plan, measure, fit, recommend, validate, report; and the five files that it leaves in the output folder."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from . import __version__
from .options import Check, Common, Compared
from .process import alone_in, undisturbed, warn
from .profiler.errors import InputError, WorkFailed

if TYPE_CHECKING:
    from .calibrate.arms import Settled
    from .calibrate.checks.records import ChecklistItem
    from .calibrate.fit import Calibrated
    from .calibrate.importers.base import Given, Imported
    from .calibrate.records import Calibration, Diagnosis, Recommendation, Validation
    from .model.shape import Shape
    from .profiler.job import Job, Options, Stamp
    from .profiler.outputs.parity import Parity
    from .profiler.records import Measurement, Profile, Record, Request, Run, Setting
    from .profiler.session import Progress as SessionProgress
    from .profiler.session import Session
    from .reports.page import Page
    from .reports.terminal import Progress

USUAL_SEED = 1
MOST_ROWS = 500
"""Imported rows that are diagnosed."""
VALIDATION_SECONDS = 240.0
"""Time for repeats beyond the least number."""
PROFILE, CALIBRATION = "profile.json", "calibration.json"
RECOMMENDATION, VALIDATION, REPORT = "recommendation.json", "validation.json", "report.html"
PARITY = "parity.json"

R = TypeVar("R", bound="Record")


@contextmanager
def opened_job(options: "Options", common: Common, profiles: bool = True) -> "Iterator[Job]":
    """The job of `options`, its engine closed afterwards, whatever happens; `profiles`: its work can be resumed."""
    from .profiler.job import prepare

    with _progress() as tell:
        job = within_memory(prepare(options, stamped(), common.path("logs"), tell), options.memory_bytes)
    with closing(job, common, profiles):
        for text in _short_of_room(job.blank):
            warn(text)
        with _progress() as tell:
            _check_lengths(job, tell)
        yield job


def within_memory(job: "Job", memory_bytes: float) -> "Job":
    """The job without what does not fit `memory_bytes`, its engine closed where nothing does; as it is for 0. Raises
    InputError."""
    from dataclasses import replace

    from .calibrate.checks.room import only_what_fits

    if not memory_bytes:
        return job
    try:
        fitting = only_what_fits(job.blank, memory_bytes)
    except BaseException:
        job.engine.close()
        raise
    return replace(job, blank=fitting.blank, warnings=(*job.warnings, *fitting.notes))


def _check_lengths(job: "Job", tell: Callable[[str], None]) -> None:
    """Own prompts against the context, before anything is measured. Raises InputError."""
    from .profiler.prompts.lengths import check_lengths

    if any(prompt.line for prompt in job.prompts):
        tell("counting the tokens of your prompts")
        check_lengths(job.engine, job.blank, job.prompts)


def _short_of_room(blank: "Profile") -> tuple[str, ...]:
    """What would not fit, before anything is loaded: each target with each drafter at its longest draft."""
    from .calibrate.checks.memory import candidate_findings
    from .profiler.finding import WARNING

    if blank.engine.name.startswith("fake") or blank.engine.command[:1] and "://" in blank.engine.command[0]:
        return ()  # simulated, or a server that has its memory already
    found = (
        finding
        for candidate in blank.candidates
        for finding in candidate_findings(candidate, blank.models, blank.engine.name)
    )
    return tuple(dict.fromkeys(finding.sentence for finding in found if finding.severity == WARNING))


@contextmanager
def closing(job: "Job", common: Common, profiles: bool = True) -> "Iterator[Job]":
    """Close the engine at the end; on an interrupt, say what is kept and how to go on."""
    for text in job.warnings:
        warn(text)
    try:
        with alone_in(common.out):
            yield job
    except KeyboardInterrupt:
        raise WorkFailed(_how_to_go_on(common) if profiles else "interrupted: nothing is written") from None
    finally:
        with undisturbed():
            job.engine.close()


def measured_profile(job: "Job", common: Common, budget_seconds: float = 0.0) -> "Profile":
    """The plan-measure loop: requests are planned from the evidence so far until none is left, or `budget_seconds` are used
    up. Raises InputError for a budget in which not even plain decoding can be measured."""
    from .profiler.session import Session, open_profile
    from .reports.terminal import Progress

    with Progress() as progress:
        session = Session(
            job.engine,
            open_profile(common.path(PROFILE), job.blank, budget_seconds),
            common.path(PROFILE),
            job.prompts,
            on_progress=_told(progress, _clock(job)),
            budget_seconds=budget_seconds,
        )
        dropped, unmeasured = _within_budget(session) if budget_seconds else (_planned(session), {})
        return session.finish({**job.blank.dropped, **dropped}, job.warnings, unmeasured)


def _planned(session: "Session") -> dict[str, str]:
    """Everything that the plan asks for; the candidates dropped."""
    from .calibrate.plan import next_requests

    plan = next_requests(session.profile)
    while plan.requests:
        session.perform(plan.requests)
        plan = next_requests(session.profile)
    return plan.dropped


def _within_budget(session: "Session") -> tuple[dict[str, str], dict[str, str]]:
    """What decides most, while there is time; the candidates dropped, and what of the others was not measured."""
    from .calibrate.budget import next_within
    from .profiler.session import OutOfTime

    found = next_within(session.profile, session.seconds_left)
    with suppress(OutOfTime):
        while found.requests:
            session.perform(found.requests)
            found = next_within(session.profile, session.seconds_left)
    if found.requests:
        found = next_within(session.profile, 0.0)
    if found.least_seconds is not None:
        raise InputError(
            f"--budget is too short for plain decoding of one target over all prompts: give {ceil(found.least_seconds)}s or "
            "more; what was measured is kept"
        )
    return found.dropped, found.unmeasured


def imported_to(
    files: Sequence[Path], acceptance: Sequence[Path], given: "Given", common: Common
) -> "tuple[Profile, tuple[Imported, ...]]":
    """The evidence of files that specgauge did not make, written as profile.json; one that was measured stays."""
    from .calibrate.combine import acceptance_of, profile_of
    from .calibrate.importers.detect import read_files
    from .profiler.files import write_record

    parts, stamp = read_files(files, given), stamped()
    elsewhere = tuple(acceptance_of(part) for part in read_files(acceptance, given))
    profile = profile_of(parts, elsewhere, given, stamp.created, stamp.tool_version)
    _check_replaceable(common.path(PROFILE))
    with alone_in(common.out):
        _check_replaceable(common.path(PROFILE))
        write_record(common.path(PROFILE), profile)
    return profile, (*parts, *elsewhere)


def calibrated_to(profile: "Profile", seed: int, common: Common) -> "tuple[Calibrated, Calibration]":
    """Fit, and write calibration.json."""
    from .calibrate.fit import calibrate as fitted
    from .profiler.files import record_digest, write_record

    calibrated, stamp = fitted(profile, seed=seed), stamped()
    calibration = calibrated.record(record_digest(profile), stamp.created, stamp.tool_version)
    write_record(common.path(CALIBRATION), calibration)
    return calibrated, calibration


def recommended_to(
    profile: "Profile", calibrated: "Calibrated", calibration: "Calibration", common: Common
) -> "Recommendation":
    """Search, and write recommendation.json with the command to copy."""
    from msgspec.structs import replace

    from .calibrate.fit import NotCalibrated
    from .calibrate.memory_maps import memory_maps
    from .calibrate.recommend import recommend as searched
    from .calibrate.reported import speaks_of
    from .profiler.files import record_digest, write_record
    from .reports.commands import command_for
    from .reports.engine_commands import every_command

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
    from .calibrate import validate as checking
    from .calibrate.arms import settings_to_run
    from .profiler.files import write_record

    clock = _clock(job)
    began, stamp = clock(), stamped()
    settings = settings_to_run(profile, recommendation)
    with _progress() as tell:
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


def reported_to(
    profile: "Profile",
    calibration: "Calibration",
    recommendation: "Recommendation",
    validation: "Validation | None",
    common: Common,
    seen: "Examined | None" = None,
    markdown: Path | None = None,
) -> tuple[str, ...]:
    """Write report.html, and the same as markdown to a file or, for "-", to stdout; the paths of all files that lie in the
    output folder now."""
    from .reports.page import report_page, write_page

    found = seen or Examined()
    page = report_page(profile, calibration, recommendation, validation, found.checklist, found.diagnoses)
    write_page(common.path(REPORT), page)
    if markdown is not None:
        _write_markdown(markdown, page)
    names = (PROFILE, CALIBRATION, RECOMMENDATION, *((VALIDATION,) if validation else ()), REPORT)
    return tuple(str(common.path(name)) for name in names)


def _write_markdown(path: Path, page: "Page") -> None:
    from .reports.markdown import markdown
    from .reports.whole import write_whole

    if path == Path("-"):
        print(markdown(page), end="")
    else:
        write_whole(path, markdown(page), "give --markdown another file")


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
    from .calibrate.checks.checklist_after import checklist_after
    from .calibrate.reported import speaks_of

    if speaks_of(profile):
        return Examined(diagnoses=_diagnosed_rows(profile, "", None))
    return Examined(
        checklist_after(profile, calibration, recommendation, validation),
        diagnosed(profile, calibrated, recommendation, validation),
    )


def parity_to(job: "Job", asked: Compared, common: Common) -> "Parity":
    """Compare each drafter's output, sampling and acceptance with plain decoding, and write parity.json."""
    from msgspec.structs import replace

    from .profiler.files import write_record
    from .profiler.outputs.parity import parity

    arms = [
        one.setting(one.draft_tokens[len(one.draft_tokens) // 2]) for one in job.blank.candidates if one.draft_tokens
    ]
    if not arms:
        raise InputError("parity: nothing drafts here; give a --draft, or a target whose engine drafts by n-grams")
    sampling = replace(job.blank.sampling, temperature=asked.temperature)
    unequal = None if asked.mismatch is None else replace(sampling, temperature=asked.mismatch)
    stamp = stamped()
    with _progress() as tell:
        tell(
            f"drafter 1 of {len(arms)}, {len(job.prompts)} prompts: greedy, again, {'sampled, ' if unequal else ''}drafting"
        )
        found = parity(
            job.engine,
            arms,
            job.prompts,
            sampling,
            draws=asked.draws,
            unequal=unequal,
            created=stamp.created,
            tool_version=stamp.tool_version,
            on_step=lambda done, total: tell(f"drafter {min(done + 1, total)} of {total}, {len(job.prompts)} prompts"),
        )
    write_record(common.path(PARITY), found)
    return found


def started(
    job: "Job", settings: "Sequence[Setting]", clock: Callable[[], float], tell: Callable[[str], None]
) -> float:
    """Mean seconds to start and warm up a setting."""
    began = clock()
    for setting in settings:
        tell(f"starting {_named(setting)}")
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
    from .calibrate import arms
    from .profiler.protocol import interleaved_runs

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
    from .calibrate.arms import check_requests
    from .profiler.protocol import execute

    for request in check_requests(profile, settings):
        tell(f"checking rounds of {_named(request.settings[0])}")
        yield execute(job.engine, request, profile, job.prompts, clock)


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

    from .calibrate.arms import chosen_setting
    from .calibrate.diagnose import diagnose
    from .calibrate.examine import symptoms_of, usual_settings

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
    from .profiler.checkpoints.reading import read_checkpoint

    path = next((model.path for model in profile.models if model.label == label), "")
    try:
        return read_checkpoint(path).shape if path and os.path.exists(path) else None
    except InputError:
        return None


def diagnosed_in(common: Common, workload: str = "", draft_tokens: int | None = None) -> "tuple[Diagnosis, ...]":
    """The diagnoses of the files in the output folder: measured ones, or every imported row that drafts."""
    from .calibrate.reported import speaks_of

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

    from .calibrate.diagnose import diagnose
    from .calibrate.examine import symptoms_of_rows

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


def stored_profile(path: Path) -> "Profile":
    """A complete profile. Raises InputError."""
    from .profiler.records import Profile

    profile = _stored(path, Profile, "specgauge profile")
    if not profile.complete:
        raise InputError(f"{path} is not complete; run the same specgauge profile again, it goes on where it stopped")
    if not (profile.models and profile.prompts and profile.candidates):
        raise InputError(f"{path} names no models, prompts or candidates; profile again")
    return profile


def runnable(profile: "Profile") -> "Profile":
    """A profile whose settings can be run here. Raises InputError for imported evidence and shared profiles."""
    from .calibrate.reported import speaks_of

    if speaks_of(profile) or profile.redacted:
        kind = "a shared profile" if profile.redacted else "imported evidence"
        raise InputError(f"{kind} names no files, so that nothing can be run; profile the models themselves")
    return profile


def stored_calibration(profile: "Profile", common: Common) -> "tuple[Calibrated, Calibration]":
    """calibration.json of this profile, and the model that it describes, fitted anew with its seed; made where it is
    missing."""
    from .calibrate.records import Calibration

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
    from .calibrate.arms import chosen_by_workload
    from .calibrate.records import Recommendation

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
    from .calibrate.records import Validation

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
    from .calibrate.fit import calibrate as fitted
    from .calibrate.records import Calibration
    from .profiler.files import read_record, record_digest

    beside = path.with_name(CALIBRATION)
    if beside.exists():
        calibration = read_record(beside, Calibration)
        if calibration.profile_sha256 == record_digest(profile):
            return _fitted_again(profile, calibration, beside)
        warn(f"{beside} belongs to another profile; the model is fitted anew in memory")
    return fitted(profile, seed=seed)


def _fitted_again(profile: "Profile", calibration: "Calibration", path: Path) -> "Calibrated":
    """The model of a stored calibration. Raises InputError for one by a clock that the profile was not timed by."""
    from .calibrate.fit import calibrate as fitted

    seed, replicates, clock = calibration.seed, calibration.replicates, calibration.clock
    try:
        return fitted(profile, seed=seed, replicates=replicates, clock=clock)
    except ValueError as error:
        raise InputError(f"{path}: {error}; run specgauge calibrate again") from None


def missed_tolerance(validation: "Validation", check: Check) -> str:
    """What to warn of where the forecasts were off by more than the tolerance, else empty."""
    error = validation.mean_abs_error
    if error is None or error <= check.tolerance:
        return ""
    missed = f"forecasts were off by {error:.1%} on average, more than --tolerance {check.tolerance:.0%}"
    named = validation.likeliest_missing_term not in ("", "none")
    return f"{missed}; likeliest missing term: {validation.missing_term_text}" if named else missed


def stamped() -> "Stamp":
    """Now, and this version."""
    from .profiler.job import Stamp

    return Stamp(created=datetime.now(UTC).isoformat(timespec="seconds"), tool_version=__version__)


def _check_replaceable(path: Path) -> None:
    """Imported evidence can be imported again; what was measured cannot."""
    from .profiler.files import read_record
    from .profiler.records import Profile

    if not os.path.lexists(path):
        return
    if any(measurement.request.action != "import" for measurement in read_record(path, Profile).measurements):
        raise InputError(f"{path} was measured and is kept; choose another --out")


def _how_to_go_on(common: Common) -> str:
    from .profiler.files import read_record
    from .profiler.records import Profile

    path = common.path(PROFILE)
    try:
        complete = read_record(path, Profile).complete
    except InputError:
        return "interrupted: nothing was measured yet"
    if complete:
        return (
            f"interrupted: evidence kept in {path}, which is complete; go on with specgauge validate --out {common.out}"
        )
    return f"interrupted: evidence kept in {path}; run the same command to resume"


def _stored(path: Path, type: type[R], verb: str) -> R:
    """A record of the output folder; where it is missing, the verb that makes it is named."""
    from .profiler.files import read_record

    if not os.path.lexists(path):
        raise InputError(f"{path} does not exist; make it with {verb}")
    return read_record(path, type)


def _belongs(path: Path, sha256: str, to: "Record", verb: str) -> None:
    from .profiler.files import record_digest

    if sha256 != record_digest(to):
        raise InputError(
            f"{path} was made from other files than those beside it, or by another version; run {verb} again"
        )


def _named(setting: "Setting") -> str:
    if setting.drafter == "none":
        return f"{setting.target}, plain"
    return f"{setting.target}, {setting.draft or setting.drafter}, {setting.draft_tokens} draft tokens"


def _not_settled(settled: "Settled") -> tuple[str, ...]:
    if settled.stopped_by == "settled":
        return ()
    cause = {"time": "the time was used up", "most-repeats": "no more are made"}[settled.stopped_by]
    return (f"choice and best rival are not told apart within 3 % after {settled.repeats} repeats: {cause}",)


@contextmanager
def _progress() -> "Iterator[Callable[[str], None]]":
    """Progress of work whose length is not known: label by label."""
    from .reports.terminal import Progress

    began = time.monotonic()
    with Progress() as progress:
        yield lambda text: progress(text, time.monotonic() - began, 0.0)


def _clock(job: "Job") -> Callable[[], float]:
    """Seconds as the engine counts them: simulated ones where it is simulated."""
    return getattr(job.engine, "clock", time.monotonic)


def _told(progress: "Progress", clock: Callable[[], float]) -> "Callable[[SessionProgress], None]":
    """Progress of a session, as the terminal shows it."""
    began = clock()

    def tell(state: "SessionProgress") -> None:
        if state.request:
            spent = clock() - began
            label = f"{_asked(state.request)} ({state.done + 1} of {state.total} of this stage)"
            progress(label, spent, spent + state.seconds_left)

    return tell


def _asked(request: "Request") -> str:
    what = request.model or ", ".join(_named(setting) for setting in request.settings[:1])
    more = f" and {len(request.settings) - 1} more" if len(request.settings) > 1 else ""
    return f"measuring {request.action} {what}{more}".rstrip()

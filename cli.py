"""The command line: each verb parses, calls, prints. What it prints, writes and returns is stated in docs/design.md.

Nothing heavy is imported here, so that help is quick: each verb imports what it uses.
"""

import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, TypeVar

from cyclopts import App, CycloptsError, Parameter

from . import __version__
from .profiler.errors import InputError, WorkFailed

if TYPE_CHECKING:
    from .calibrate.arms import Settled
    from .calibrate.fit import Calibrated
    from .calibrate.records import Calibration, Recommendation, Validation
    from .profiler.job import Job, Options, Stamp
    from .profiler.records import Measurement, Profile, Record, Request, Run, Setting
    from .profiler.session import Progress as SessionProgress
    from .reports.terminal import Progress

GOOD, FAILED, WRONG, MISSED = 0, 1, 2, 3
"""Exit codes: good; the work failed; usage or input is wrong; `validate --tolerance` was missed."""
TOLERANCE = 0.10
VALIDATION_SECONDS = 240.0
"""Time for repeats beyond the least number."""
MOST_DRAFT_TOKENS = 64
LONGEST_LINE, LONGEST_NAME = 1000, 255
MOST_REPEATS_ASKED = 1000
MOST_SEED = 2**32 - 2
"""4294967295 means a random seed to llama-server."""
ENGINE_FLAG = "--engine-flag"
PROFILE, CALIBRATION = "profile.json", "calibration.json"
RECOMMENDATION, VALIDATION, REPORT = "recommendation.json", "validation.json", "report.html"

app = App(
    name="specgauge",
    help="Profiles a machine once for speculative decoding, forecasts settings that were never run, and checks them.",
    help_epilogue="Everything after -- is passed on to llama-server.",
    version=__version__,
    default_parameter=Parameter(negative=""),
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)
_interrupted = threading.Event()
"""Set by Ctrl-C and SIGTERM: a library that swallows the exception does not swallow this."""

R = TypeVar("R", bound="Record")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Common:
    """Options of every command."""

    out: Annotated[Path, Parameter(help="Folder of the five files.")] = Path("specgauge-out")
    json: Annotated[bool, Parameter(help="Print one JSON document on stdout.")] = False
    debug: Annotated[bool, Parameter(help="Show the traceback of an error.")] = False

    def path(self, name: str) -> Path:
        """The file of this name in the output folder."""
        return self.out / name


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class EngineChoice:
    """What is profiled, and on which engine."""

    draft: Annotated[tuple[Path, ...], Parameter(help="A draft model (GGUF); may be given several times.")] = ()
    engine: Annotated[str, Parameter(help="llama.cpp, or fake:NAME (a simulated machine).")] = "llama.cpp"
    llama_server: Annotated[str | None, Parameter(help="Your llama-server binary; the embedded one without it.")] = None
    server: Annotated[str | None, Parameter(help="URL of a llama-server that already runs.")] = None
    draft_tokens: Annotated[str | None, Parameter(help="Draft lengths to search: N, A..B or N,N,N.")] = None
    threads: Annotated[int, Parameter(help="Threads of the engine; 0 leaves it to the engine.")] = 0
    seed: Annotated[int, Parameter(help="Seed of sampling and of the bootstrap.")] = 1
    engine_flag: Annotated[tuple[str, ...], Parameter(show=False, allow_leading_hyphen=True)] = ()

    def options(self, targets: Sequence[Path]) -> "Options":
        """The choice as the profiler takes it. Raises InputError."""
        from .profiler.job import Options

        if self.threads < 0:
            raise InputError(f"--threads {self.threads}: give 0 (left to the engine) or more")
        if self.server is not None and self.llama_server is not None:
            raise InputError("--server and --llama-server exclude each other: give the URL or the binary")
        check_seed(self.seed)
        return Options(
            targets=tuple(targets),
            drafts=self.draft,
            engine=self.engine,
            llama_server=self.llama_server,
            server_url=self.server,
            flags=self.engine_flag,
            threads=self.threads,
            seed=self.seed,
            draft_tokens=parse_draft_tokens(self.draft_tokens) if self.draft_tokens is not None else (),
        )


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Check:
    """How a recommendation is checked."""

    tolerance: Annotated[float, Parameter(help="Mean absolute error that is still good, as a fraction.")] = TOLERANCE
    repeats: Annotated[int | None, Parameter(help="Repeats of the check, instead of 5 to 15 as it needs.")] = None


# --- the verbs -----------------------------------------------------------------------------------------------------


@app.command
def run(
    *targets: Path,
    choice: EngineChoice = EngineChoice(),
    check: Check = Check(),
    strict: Annotated[bool, Parameter(help="Exit with 3 where the tolerance is missed.")] = False,
    common: Common = Common(),
) -> int:
    """Profile, calibrate, recommend, validate and report, in this order.

    Parameters
    ----------
    targets
        Models to choose from (GGUF files, one or more quantizations); none: the engine's embedded demo.
    """
    check_out(common.out)
    check_repeats(check)
    with opened_job(choice.options(targets), common) as job:
        profile = measured_profile(job, common)
        calibrated, calibration = calibrated_to(profile, choice.seed, common)
        recommendation = recommended_to(profile, calibrated, calibration, common)
        validation = validated_to(job, profile, calibrated, calibration, recommendation, check, common)
    files = reported_to(profile, calibration, recommendation, validation, common)
    if common.json:
        print_json({"recommendation": recommendation, "validation": validation, "files": files})
    else:
        print_verdict(recommendation, validation, profile)
        print(f"Report: {common.path(REPORT)}")
    missed = missed_tolerance(validation, check)
    if missed:
        warn(missed)
    return MISSED if missed and strict else GOOD


@app.command(name="profile")
def profile_command(*targets: Path, choice: EngineChoice = EngineChoice(), common: Common = Common()) -> int:
    """Measure what forecasts need; an interrupted profile goes on where it stopped.

    Parameters
    ----------
    targets
        Models to choose from (GGUF files); none: the engine's embedded demo.
    """
    check_out(common.out)
    with opened_job(choice.options(targets), common) as job:
        profile = measured_profile(job, common)
    if common.json:
        print_json(profile)
    else:
        seconds = f"{profile.profile_seconds:.0f} s"
        print(f"{common.path(PROFILE)}: {len(profile.measurements)} measurements in {seconds}")
        for name, reason in profile.dropped.items():
            print(f"  not measured further: {name}: {reason}")
    return GOOD


@app.command
def calibrate(*, seed: int = 1, common: Common = Common()) -> int:
    """Fit the model to profile.json, and write calibration.json.

    Parameters
    ----------
    seed
        Seed of the bootstrap.
    """
    check_out(common.out)
    check_seed(seed)
    _, calibration = calibrated_to(stored_profile(common.path(PROFILE)), seed, common)
    if common.json:
        print_json(calibration)
    else:
        counts = f"{len(calibration.costs)} pass times, {len(calibration.acceptance)} acceptances"
        print(f"{common.path(CALIBRATION)}: {counts}")
        for note in calibration.notes:
            print(f"  {note}")
    return GOOD


@app.command
def recommend(*, common: Common = Common()) -> int:
    """Search all settings with the calibrated model, and write recommendation.json."""
    check_out(common.out)
    profile = stored_profile(common.path(PROFILE))
    calibrated, calibration = stored_calibration(profile, common)
    recommendation = recommended_to(profile, calibrated, calibration, common)
    if common.json:
        print_json(recommendation)
    else:
        print_verdict(recommendation, None, profile)
    return GOOD


@app.command
def validate(*, choice: EngineChoice = EngineChoice(), check: Check = Check(), common: Common = Common()) -> int:
    """Run the recommendation, its neighbours and settings never run, and write validation.json.

    The engine, its files and flags are those of the profile. Exits with 3 where the tolerance is missed.
    """
    from .profiler.job import reopen

    check_out(common.out)
    check_repeats(check)
    profile = stored_profile(common.path(PROFILE))
    calibrated, calibration = stored_calibration(profile, common)
    recommendation = stored_recommendation(profile, calibration, common)
    with closing(reopen(profile, choice.options(()), common.path("logs")), common) as job:
        validation = validated_to(job, profile, calibrated, calibration, recommendation, check, common)
    if common.json:
        print_json(validation)
    else:
        print_verdict(recommendation, validation, profile)
    missed = missed_tolerance(validation, check)
    if missed:
        warn(missed)
    return MISSED if missed else GOOD


@app.command
def report(*, common: Common = Common()) -> int:
    """Write report.html from the files in the output folder; it opens offline."""
    check_out(common.out)
    profile = stored_profile(common.path(PROFILE))
    _, calibration = stored_calibration(profile, common)
    recommendation = stored_recommendation(profile, calibration, common)
    files = reported_to(profile, calibration, recommendation, stored_validation(recommendation, common), common)
    if common.json:
        print_json({"files": files})
    else:
        print(common.path(REPORT))
    return GOOD


@app.command
def predict(
    *,
    profile: Path | None = None,
    draft_tokens: str | None = None,
    seed: int = 1,
    common: Common = Common(),
) -> int:
    """Forecast settings from a profile, without running anything.

    Parameters
    ----------
    profile
        The profile to forecast from; profile.json of the output folder without it.
    draft_tokens
        Draft lengths: N, A..B (inclusive) or N,N,N; 0 is plain decoding. Those of the profile without it.
    seed
        Seed of the bootstrap, where no calibration lies beside the profile.
    """
    from .calibrate.predict import predictions_of

    lengths = parse_draft_tokens(draft_tokens) if draft_tokens is not None else None
    check_seed(seed)
    path = profile or common.path(PROFILE)
    evidence = stored_profile(path)
    predictions = predictions_of(evidence, calibrated_beside(path, evidence, seed), lengths)
    if common.json:
        print_json({"predictions": predictions})
    else:
        for line in predictions:
            print(line.as_line())
    return GOOD


# --- the steps -----------------------------------------------------------------------------------------------------


def measured_profile(job: "Job", common: Common) -> "Profile":
    """The plan-measure loop: requests are planned from the evidence so far until none is left."""
    from .calibrate.plan import next_requests
    from .profiler.session import Session, open_profile
    from .reports.terminal import Progress

    with Progress() as progress:
        session = Session(
            job.engine,
            open_profile(common.path(PROFILE), job.blank),
            common.path(PROFILE),
            job.prompts,
            on_progress=_told(progress, _clock(job)),
        )
        plan = next_requests(session.profile)
        while plan.requests:
            session.perform(plan.requests)
            plan = next_requests(session.profile)
        return session.finish(plan.dropped, job.warnings)


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

    from .calibrate.recommend import recommend as searched
    from .profiler.files import record_digest, write_record
    from .reports.commands import command_for

    stamp = stamped()
    found = searched(
        profile,
        calibrated,
        profile_sha256=record_digest(profile),
        calibration_sha256=record_digest(calibration),
        created=stamp.created,
        tool_version=stamp.tool_version,
        command="",
    )
    recommendation = replace(found, command=command_for(profile, found.chosen))
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
    validation = checking.validation(profile, calibrated, recommendation, settled.runs, samples, session)
    write_record(common.path(VALIDATION), validation)
    return validation


def reported_to(
    profile: "Profile",
    calibration: "Calibration",
    recommendation: "Recommendation",
    validation: "Validation | None",
    common: Common,
) -> tuple[str, ...]:
    """Write report.html; the paths of all files that lie in the output folder now."""
    from .reports.page import write_report

    write_report(common.path(REPORT), profile, calibration, recommendation, validation)
    names = (PROFILE, CALIBRATION, RECOMMENDATION, *((VALIDATION,) if validation else ()), REPORT)
    return tuple(str(common.path(name)) for name in names)


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


def stored_profile(path: Path) -> "Profile":
    """A complete profile. Raises InputError."""
    from .profiler.records import Profile

    profile = _stored(path, Profile, "specgauge profile")
    if not profile.complete:
        raise InputError(f"{path} is not complete; run the same specgauge profile again, it goes on where it stopped")
    if not (profile.models and profile.prompts and profile.candidates):
        raise InputError(f"{path} names no models, prompts or candidates; profile again")
    return profile


def stored_calibration(profile: "Profile", common: Common) -> "tuple[Calibrated, Calibration]":
    """calibration.json of this profile, and the model that it describes, fitted anew with its seed."""
    from .calibrate.fit import calibrate as fitted
    from .calibrate.records import Calibration

    calibration = _stored(common.path(CALIBRATION), Calibration, "specgauge calibrate")
    _belongs(common.path(CALIBRATION), calibration.profile_sha256, profile, "specgauge calibrate")
    calibrated = fitted(profile, seed=calibration.seed, replicates=calibration.replicates)
    if calibrated.record(calibration.profile_sha256, calibration.created, calibration.tool_version) != calibration:
        raise InputError(
            f"{common.path(CALIBRATION)} is not what this specgauge fits to the profile beside it (edited, or another "
            "version); run specgauge calibrate again"
        )
    return calibrated, calibration


def stored_recommendation(profile: "Profile", calibration: "Calibration", common: Common) -> "Recommendation":
    """recommendation.json of this profile and calibration."""
    from .calibrate.arms import chosen_by_workload
    from .calibrate.records import Recommendation

    path = common.path(RECOMMENDATION)
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
            return fitted(profile, seed=calibration.seed, replicates=calibration.replicates)
        warn(f"{beside} belongs to another profile; the model is fitted anew in memory")
    return fitted(profile, seed=seed)


# --- input and output ----------------------------------------------------------------------------------------------


def parse_draft_tokens(text: str) -> tuple[int, ...]:
    """N, A..B (inclusive), or a list of these with commas; in order, each once. Raises InputError."""
    lengths: set[int] = set()
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        if not part.isascii() or not first.isdecimal() or (dots and not last.isdecimal()):
            raise InputError(f"--draft-tokens {text}: give N, A..B or N,N,N with whole numbers of 0 or more")
        low, high = int(first), int(last or first)
        if low > high or high > MOST_DRAFT_TOKENS:
            raise InputError(f"--draft-tokens {text}: ranges go upwards, and to {MOST_DRAFT_TOKENS} at most")
        lengths.update(range(low, high + 1))
    return tuple(sorted(lengths))


def check_out(out: Path) -> None:
    """Refuse an output folder that cannot be one, before anything starts; nothing is made yet. Raises InputError."""
    if str(out) in ("", "."):
        raise InputError("--out: give the name of a folder for the files")
    try:
        if any(len(part.encode()) > LONGEST_NAME for part in out.parts):
            raise InputError(f"--out: a name in it is longer than {LONGEST_NAME} bytes; choose another --out")
        nearest = next((folder for folder in (out, *out.absolute().parents) if os.path.lexists(folder)), Path("/"))
        if not nearest.is_dir():
            raise InputError(f"--out {out}: {nearest} is not a folder; choose another --out")
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except UnicodeEncodeError:
        raise InputError("--out: the name is not text in this system's encoding; choose another --out") from None
    except OSError as error:
        raise InputError(f"--out {out}: not writable ({error.strerror or error}); choose another --out") from None


def check_seed(seed: int) -> None:
    """Refuse a seed that the engine or the bootstrap would not take."""
    if not 0 <= seed <= MOST_SEED:
        raise InputError(f"--seed {seed}: give a whole number from 0 to {MOST_SEED}")


def check_repeats(check: Check) -> None:
    """Refuse options of the check that make none."""
    if check.repeats is not None and not 1 <= check.repeats <= MOST_REPEATS_ASKED:
        raise InputError(f"--repeats {check.repeats}: give 1 to {MOST_REPEATS_ASKED}, or leave it out")
    if not 0 < check.tolerance < float("inf"):
        raise InputError(f"--tolerance {check.tolerance}: give a fraction above 0, such as 0.10")


@contextmanager
def opened_job(options: "Options", common: Common) -> "Iterator[Job]":
    """The job of `options`, its engine closed afterwards, whatever happens."""
    from .profiler.job import prepare

    with _progress() as tell:
        job = prepare(options, stamped(), common.path("logs"), tell)
    with closing(job, common):
        yield job


@contextmanager
def closing(job: "Job", common: Common) -> "Iterator[Job]":
    """Close the engine at the end; on an interrupt, say what is kept and how to go on."""
    for text in job.warnings:
        warn(text)
    try:
        with alone_in(common.out):
            yield job
    except KeyboardInterrupt:
        raise WorkFailed(_how_to_go_on(common)) from None
    finally:
        with undisturbed():
            job.engine.close()


@contextmanager
def alone_in(out: Path) -> Iterator[None]:
    """Hold the lock of an output folder: two runs in one would overwrite each other's files. Raises InputError."""
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        yield
        return
    out.mkdir(parents=True, exist_ok=True)
    folder = os.open(out, os.O_RDONLY)  # the folder itself is locked: nothing is left behind
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(folder)
        raise InputError(f"another specgauge works in {out}; wait for it or choose another --out") from None
    try:
        yield
    finally:
        os.close(folder)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Signals that would interrupt are ignored meanwhile: ending servers takes a moment and must not be cut short."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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


def missed_tolerance(validation: "Validation", check: Check) -> str:
    """What to warn of where the forecasts were off by more than the tolerance, else empty."""
    error = validation.mean_abs_error
    if error is None or error <= check.tolerance:
        return ""
    return f"forecasts were off by {error:.1%} on average, more than --tolerance {check.tolerance:.0%}"


def print_verdict(recommendation: "Recommendation", validation: "Validation | None", profile: "Profile") -> None:
    """The verdict on stdout."""
    from rich.console import Console

    from .reports import terminal

    terminal.print_verdict(Console(), recommendation, validation, profile)
    for text in validation.warnings if validation else ():
        warn(text)


def print_json(document: object) -> None:
    """One JSON document on stdout, numbers as they are."""
    import msgspec

    sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
    sys.stdout.flush()


def warn(text: str) -> None:
    """One line on stderr."""
    print(f"specgauge: warning: {_one_line(text)}", file=sys.stderr)


def stamped() -> "Stamp":
    """Now, and this version."""
    from .profiler.job import Stamp

    return Stamp(created=datetime.now(UTC).isoformat(timespec="seconds"), tool_version=__version__)


def _stored(path: Path, type: type[R], verb: str) -> R:
    """A record of the output folder; where it is missing, the verb that makes it is named."""
    from .profiler.files import read_record

    if not os.path.lexists(path):
        raise InputError(f"{path} does not exist; make it with {verb}")
    return read_record(path, type)


def _belongs(path: Path, sha256: str, to: "Record", verb: str) -> None:
    from .profiler.files import record_digest

    if sha256 != record_digest(to):
        raise InputError(f"{path} was made from other files than those beside it; run {verb} again")


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
            label = f"{_asked(state.request)} ({state.done + 1} of {state.total})"
            progress(label, spent, spent + state.seconds_left)

    return tell


def _asked(request: "Request") -> str:
    what = request.model or ", ".join(_named(setting) for setting in request.settings[:1])
    more = f" and {len(request.settings) - 1} more" if len(request.settings) > 1 else ""
    return f"measuring {request.action} {what}{more}".rstrip()


# --- the way in and out --------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code. An error is one line on stderr, with --debug also its traceback."""
    _open_standard_streams()
    _interrupted.clear()
    words = _with_engine_flags(list(sys.argv[1:] if argv is None else argv))
    debug = "--debug" in words
    try:
        with _interruptible():
            return app(words, exit_on_error=False, print_error=False) or GOOD
    except (CycloptsError, InputError) as error:
        return _failed(error, WRONG, debug)
    except KeyboardInterrupt as error:
        return _failed(error, FAILED, debug, "interrupted")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (WorkFailed, OSError, ValueError) as error:
        return _failed(error, FAILED, debug)
    except Exception as error:  # a fault of ours, or what an interrupt left half imported: one line all the same
        if _interrupted.is_set():
            return _failed(error, FAILED, debug, "interrupted")
        return _failed(error, FAILED, debug, f"{type(error).__name__}: {error}; this is a bug, --debug shows where")


def _open_standard_streams() -> None:
    """Give closed standard streams /dev/null, so that no file of ours takes their place."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  lives as long as the process


def _with_engine_flags(words: list[str]) -> list[str]:
    """What stands behind -- as values of a hidden option: it is the engine's, and not to be parsed here."""
    if "--" not in words:
        return words
    at = words.index("--")
    return [*words[:at], *(f"{ENGINE_FLAG}={word}" for word in words[at + 1 :])]


def _failed(error: BaseException, code: int, debug: bool, text: str = "") -> int:
    if debug:
        traceback.print_exception(error)
    print(f"specgauge: {_one_line(text or str(error) or type(error).__name__)}", file=sys.stderr)
    return code


def _one_line(text: str) -> str:
    """`text` on one line, control characters shown rather than sent to the terminal, cut where it goes on and on."""
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(text.split()))
    return line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE] + "..."


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM ends the work as Ctrl-C does: evidence kept, servers ended."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        _interrupted.set()
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())

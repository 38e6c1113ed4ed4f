"""The command line: each verb parses, calls, prints. What it prints, writes and returns is stated in docs/design.md.

Nothing heavy is imported here, so that help is quick: each verb imports what it uses.
"""

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, CycloptsError, Parameter

from . import __version__
from .loop.documents import CALIBRATION, PARITY, PROFILE, RECOMMENDATION, REPORT, VALIDATION
from .loop.examined import diagnosed_in, examined
from .loop.forecast import calibrated_to, recommended_to
from .loop.imported import imported_to
from .loop.jobs import closing, opened_job
from .loop.measured import measured_profile
from .loop.parity import parity_to
from .loop.reported import reported_to
from .loop.stamp import stamped
from .loop.stored import (
    calibrated_beside,
    runnable,
    stored_calibration,
    stored_profile,
    stored_recommendation,
    stored_validation,
)
from .loop.validated import missed_tolerance, validated_to
from .options import (
    EPILOGUES,
    MOST_DRAFT_TOKENS,
    Check,
    Common,
    Compared,
    EngineChoice,
    Hints,
    Limits,
    Room,
    check_counts,
    check_machine,
    check_out,
    check_repeats,
    check_seed,
    parse_contexts,
    parse_draft_tokens,
    parse_size,
    parse_survival,
)
from .process import interrupted, interruptible, one_line, open_standard_streams, print_json, warn
from .profiler.errors import InputError, WorkFailed

if TYPE_CHECKING:
    from .calibrate.importers.base import Imported
    from .calibrate.records import Recommendation, Validation
    from .loop.examined import Examined
    from .profiler.records import Profile

MOST_IN_FULL = 4
"""Diagnoses that are printed whole where none was asked for by name; of more the dearest cause each."""
GOOD, FAILED, WRONG, MISSED = 0, 1, 2, 3
"""Exit codes: good; the work failed; usage or input is wrong; `validate --tolerance` was missed."""
ENGINE_FLAG = "--engine-flag"
app = App(
    name="specgauge",
    help="Profiles a machine once for speculative decoding, forecasts settings that were never run, and checks them.",
    version=__version__,
    default_parameter=Parameter(negative=""),
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)


@app.command(help_epilogue=EPILOGUES["run"])
def run(
    *targets: Path,
    choice: EngineChoice = EngineChoice(),
    limits: Limits = Limits(),
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
    with opened_job(choice.options(targets, limits), common) as job:
        profile = measured_profile(job, common, limits.budget_seconds)
        calibrated, calibration = calibrated_to(profile, choice.seed, common)
        recommendation = recommended_to(profile, calibrated, calibration, common)
        validation = validated_to(job, profile, calibrated, calibration, recommendation, check, common)
    seen = examined(profile, calibrated, calibration, recommendation, validation)
    files = reported_to(profile, calibration, recommendation, validation, common, seen)
    if common.json:
        document = {"recommendation": recommendation, "validation": validation, "files": files}
        print_json(document | seen._asdict())
    else:
        print_verdict(recommendation, validation, profile, seen)
        print(f"Report: {common.path(REPORT)}")
    missed = missed_tolerance(validation, check)
    if missed:
        warn(missed)
    return MISSED if missed and strict else GOOD


@app.command(name="check", help_epilogue=EPILOGUES["check"])
def check_command(target: Path, *, draft: tuple[Path, ...] = (), room: Room = Room(), common: Common = Common()) -> int:
    """Answer from headers, before any weight is read: does the pair work, does it fit, what will disappoint.

    Exits with 2 where a pair cannot work or a file cannot be read.

    Parameters
    ----------
    target
        A GGUF file, or a folder of safetensors with its config.json.
    draft
        A draft model, in the same forms; may be given several times.
    """
    from rich.console import Console

    from .calibrate.checks.check import check, exit_code
    from .profiler.checkpoints.reading import read_checkpoint
    from .profiler.pairs.engine_rules import engine_of, engine_rules
    from .reports.check import print_check

    options, sampling = room.options()
    unread = room.unread()
    if unread:
        warn(f"not read by check: {' '.join(unread)}; all layers are counted where the model lies")
    read, drafts = read_checkpoint(target), [read_checkpoint(path) for path in draft]
    rules = engine_rules(room.engine or engine_of(read.format).name, room.engine_build)
    report = check(read, drafts, options, stamped(), rules, sampling)
    if common.json:
        print_json(report)
    else:
        print_check(Console(), report)
    return exit_code(report)


@app.command(name="machine", help_epilogue=EPILOGUES["machine"])
def machine_command(*, seconds: float = 8.0, device: str = "", threads: int = 0, common: Common = Common()) -> int:
    """Device, driver, clocks, power, memory, bandwidth, and what would spoil a measurement here. Changes nothing.

    Parameters
    ----------
    seconds
        Time for the bandwidth; 0 leaves it out.
    device
        cuda, mps or cpu; the GPU, where there is one, without it.
    threads
        Threads of the bandwidth on the processor; 0 leaves torch's own choice.
    """
    from rich.console import Console

    from .profiler.machine import machine_report
    from .reports.machine import print_machine

    check_machine(seconds, device, threads)
    stamp = stamped()
    report = machine_report(stamp.created, stamp.tool_version, device, threads, seconds)
    if common.json:
        print_json(report)
    else:
        print_machine(Console(), report)
    return GOOD


profile_app = App(name="profile", help_epilogue=EPILOGUES["profile"])
app.command(profile_app)


@profile_app.default
def profile_command(
    *targets: Path, choice: EngineChoice = EngineChoice(), limits: Limits = Limits(), common: Common = Common()
) -> int:
    """Measure what forecasts need; an interrupted profile goes on where it stopped.

    Parameters
    ----------
    targets
        Models to choose from (GGUF files); none: the engine's embedded demo.
    """
    check_out(common.out)
    with opened_job(choice.options(targets, limits), common) as job:
        profile = measured_profile(job, common, limits.budget_seconds)
    if common.json:
        print_json(profile)
    else:
        seconds = f"{profile.profile_seconds:.0f} s"
        print(f"{common.path(PROFILE)}: {len(profile.measurements)} measurements in {seconds}")
        for name, reason in profile.dropped.items():
            print(f"  not measured further: {name}: {reason}")
        for name, missing in profile.unmeasured.items():
            print(f"  no time left for {name}: {missing}")
    return GOOD


@profile_app.command(help_epilogue=EPILOGUES["export"])
@app.command(help_epilogue=EPILOGUES["export"])
def export(
    profile: Path | None = None,
    *,
    out: Path | None = None,
    keep_names: bool = False,
    force: bool = False,
    json: bool = False,
    debug: bool = False,
) -> int:
    """Write a profile to share: its numbers, without paths, prompts, names, UUIDs, commands and lines of logs.

    Parameters
    ----------
    profile
        A profile, or an output folder; specgauge-out without it.
    out
        The file to write; profile-shared.json beside the profile without it.
    keep_names
        Keep the names of the models' files, and the hashes of their weights, which name them too.
    force
        Write over a file that is there.
    json
        Print one JSON document on stdout.
    debug
        Show the traceback of an error.
    """
    from .profiler.sharing.export import SHARED, exported

    given = profile or Common().out
    source = given / PROFILE if given.is_dir() else given
    target = out or source.with_name(SHARED)
    found = exported(stored_profile(source), source, target, keep_names=keep_names, force=force)
    for kind, count in found.left_out.items():
        print(f"specgauge: left out: {kind} ({count})", file=sys.stderr)
    if json:
        print_json({"profile": str(target), "left_out": found.left_out})
    else:
        print(target)
    return GOOD


@app.command(name="import", help_epilogue=EPILOGUES["import"])
def import_command(
    *files: Path, acceptance: tuple[Path, ...] = (), hints: Hints = Hints(), common: Common = Common()
) -> int:
    """Make a profile of measurements that others made; each file says what it serves.

    Parameters
    ----------
    files
        CSV (docs/design.md, section 7), llama-bench, llama-server timings or log, vLLM /metrics, llama-batched-bench.
    acceptance
        A file of another machine, of which only the acceptance is taken; may be given several times.
    """
    check_out(common.out)
    if not files:
        raise InputError("import: give one or more FILEs of measurements")
    profile, parts = imported_to(files, acceptance, hints.given(), common)
    for text in profile.warnings:
        warn(text)
    if common.json:
        told = [{"source": p.source, "format": p.format, "learned": p.learned, "left_out": p.left_out} for p in parts]
        print_json({"profile": str(common.path(PROFILE)), "files": told, "warnings": profile.warnings})
    else:
        print(f"{common.path(PROFILE)}: {len(parts)} imported")
        for part in parts:
            print_imported(part)
    return GOOD


@app.command(help_epilogue=EPILOGUES["calibrate"])
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
            print(f"  {one_line(note)}")
    return GOOD


@app.command(help_epilogue=EPILOGUES["recommend"])
def recommend(*, common: Common = Common()) -> int:
    """Search all settings with the calibrated model, and write recommendation.json."""
    check_out(common.out)
    profile = stored_profile(common.path(PROFILE))
    calibrated, calibration = stored_calibration(profile, common)
    recommendation = recommended_to(profile, calibrated, calibration, common)
    if common.json:
        print_json(recommendation)
    else:
        print_verdict(recommendation, None, profile, examined(profile, calibrated, calibration, recommendation, None))
    return GOOD


@app.command(help_epilogue=EPILOGUES["validate"])
def validate(*, choice: EngineChoice = EngineChoice(), check: Check = Check(), common: Common = Common()) -> int:
    """Run the recommendation, its neighbours and settings never run, and write validation.json.

    The engine, its files and flags are those of the profile. Exits with 3 where the tolerance is missed.
    """
    from .profiler.job import reopen

    check_out(common.out)
    check_repeats(check)
    profile = runnable(stored_profile(common.path(PROFILE)))
    calibrated, calibration = stored_calibration(profile, common)
    recommendation = stored_recommendation(profile, calibrated, calibration, common)
    with closing(reopen(profile, choice.options(()), common.path("logs")), common) as job:
        validation = validated_to(job, profile, calibrated, calibration, recommendation, check, common)
    if common.json:
        print_json(validation)
    else:
        seen = examined(profile, calibrated, calibration, recommendation, validation)
        print_verdict(recommendation, validation, profile, seen)
    missed = missed_tolerance(validation, check)
    if missed:
        warn(missed)
    return MISSED if missed else GOOD


@app.command(help_epilogue=EPILOGUES["parity"])
def parity(
    *targets: Path, choice: EngineChoice = EngineChoice(), compared: Compared = Compared(), common: Common = Common()
) -> int:
    """Does speculation leave the text alone, and were the sampling settings used that were sent?

    Writes parity.json. Exits with 2 where the output of a drafter is not the target's own.

    Parameters
    ----------
    targets
        Models (GGUF files); none: the engine's embedded demo.
    """
    from rich.console import Console

    from .profiler.finding import ERROR
    from .reports.parity import print_parity

    check_out(common.out)
    compared.check()
    with opened_job(choice.options(targets), common, profiles=False) as job:
        found = parity_to(job, compared, common)
    if common.json:
        print_json(found)
    else:
        print_parity(Console(), found)
        print(f"Written: {common.path(PARITY)}")
    return WRONG if any(one.severity == ERROR for one in found.findings) else GOOD


@app.command(help_epilogue=EPILOGUES["diagnose"])
def diagnose(*, workload: str = "", draft_tokens: int | None = None, common: Common = Common()) -> int:
    """Why speculation is slow, or no faster, here: causes ranked by the milliseconds that each takes of a round.

    Parameters
    ----------
    workload
        One workload; all of them without it.
    draft_tokens
        The draft length to explain; the fastest one forecast without it, of imported rows every one.
    """
    from rich.console import Console

    from .reports.diagnosis import print_causes, print_diagnosis

    check_out(common.out)
    check_counts(("--draft-tokens", draft_tokens, 1, MOST_DRAFT_TOKENS))
    diagnoses = diagnosed_in(common, workload, draft_tokens)
    if common.json:
        print_json({"diagnoses": diagnoses})
        return GOOD
    if len(diagnoses) > MOST_IN_FULL and not workload and draft_tokens is None:
        print_causes(Console(), diagnoses)
        print(
            f"{len(diagnoses)} settings; in full: specgauge diagnose --out {common.out} with --workload W or --draft-tokens N"
        )
        return GOOD
    for diagnosis in diagnoses:
        print_diagnosis(Console(), diagnosis)
    return GOOD


@app.command(help_epilogue=EPILOGUES["report"])
def report(
    *, markdown: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None, common: Common = Common()
) -> int:
    """Write report.html from the files in the output folder; it opens offline.

    Parameters
    ----------
    markdown
        Write the same as markdown to this file too; - is stdout.
    """
    check_out(common.out)
    if common.json and markdown == Path("-"):
        raise InputError("--markdown - and --json both want stdout: give --markdown a file")
    profile = stored_profile(common.path(PROFILE))
    calibrated, calibration = stored_calibration(profile, common)
    recommendation = stored_recommendation(profile, calibrated, calibration, common)
    validation = stored_validation(recommendation, common)
    seen = examined(profile, calibrated, calibration, recommendation, validation)
    files = reported_to(profile, calibration, recommendation, validation, common, seen, markdown)
    if common.json:
        print_json({"files": files})
    elif markdown != Path("-"):
        print(common.path(REPORT))
    return GOOD


@app.command(help_epilogue=EPILOGUES["predict"])
def predict(
    *,
    profile: Path | None = None,
    draft_tokens: str | None = None,
    context: str | None = None,
    target_size: str | None = None,
    draft_size: str | None = None,
    survival: str | None = None,
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
    context
        Cached tokens behind which to forecast, N or N,N,N, for imported evidence; its own contexts without it.
    target_size
        Bytes of another target of the same quantization, such as 17GB: forecast by its bytes, as a prior.
    draft_size
        The same for the draft model.
    survival
        Acceptance of draft models from elsewhere, as random weights need it: S_1,S_2,..., the chances that the first 1, 2,
        ... drafted tokens are all accepted; a prior.
    seed
        Seed of the bootstrap, where no calibration lies beside the profile.
    """
    from rich.console import Console

    from .calibrate.predict import check_contexts, predictions_of
    from .calibrate.transfer import Sizes, transferred
    from .reports.predictions import print_predictions

    lengths = parse_draft_tokens(draft_tokens) if draft_tokens is not None else None
    contexts = parse_contexts(context) if context is not None else None
    sizes = Sizes(
        parse_size("--target-size", target_size) if target_size is not None else None,
        parse_size("--draft-size", draft_size) if draft_size is not None else None,
    )
    check_seed(seed)
    path = profile or common.path(PROFILE)
    evidence = stored_profile(path)
    check_contexts(evidence, contexts)
    calibrated = calibrated_beside(path, evidence, seed)
    if sizes != Sizes():
        calibrated = transferred(calibrated, sizes)
    if survival is not None:
        calibrated = calibrated.with_survival(parse_survival(survival))
    predictions = predictions_of(evidence, calibrated, lengths, contexts, told=warn)
    if common.json:
        print_json({"predictions": predictions})
    else:
        print_predictions(Console(), predictions)
    return GOOD


@app.command(help_epilogue=EPILOGUES["compare"])
def compare(a: Path, b: Path, *, common: Common = Common()) -> int:
    """Hold two profiles or two validations against each other: what differs, and what is noise.

    Parameters
    ----------
    a
        A profile or validation: a file, or an output folder.
    b
        The other one, of the same kind. Ratios are b over a.
    """
    from rich.console import Console

    from .calibrate.compare import comparison, read_pair
    from .reports.comparison import print_comparison

    found = comparison(read_pair(a, b))
    if common.json:
        print_json(found)
    else:
        print_comparison(Console(), found)
    return GOOD


def print_imported(part: "Imported") -> None:
    """What a file gave, on stdout."""
    print(one_line(f"{part.source} ({part.format})"))
    for text in part.learned:
        print(f"  {one_line(text)}")
    if part.left_out:
        print(f"  {one_line(f'{len(part.left_out)} left out, the first: {part.left_out[0]}')}")


def print_verdict(
    recommendation: "Recommendation", validation: "Validation | None", profile: "Profile", seen: "Examined"
) -> None:
    """The verdict on stdout, then the checklist and what drafting costs."""
    from rich.console import Console

    from .reports import terminal
    from .reports.check import print_checklist
    from .reports.diagnosis import print_causes

    terminal.print_verdict(Console(), recommendation, validation, profile)
    if seen.checklist:
        print_checklist(Console(), seen.checklist)
    print_causes(Console(), seen.diagnoses)
    for text in validation.warnings if validation else ():
        warn(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code. An error is one line on stderr, with --debug also its traceback.

    Without `argv` it is the whole process: nothing interrupts its last steps, and an interrupt that an import swallowed does
    not decide the exit code.
    """
    code = _ran(list(sys.argv[1:] if argv is None else argv))
    if argv is None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if interrupted.is_set():
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
            os._exit(code)
    return code


def _said_next() -> int:
    """What to do next, in view of what lies in the usual output folder."""
    from .reports.next_step import next_steps

    out = Common().out
    names = (PROFILE, RECOMMENDATION, VALIDATION, REPORT)
    print("\n".join(next_steps(out, frozenset(name for name in names if (out / name).is_file()))))
    return GOOD


def _ran(arguments: list[str]) -> int:
    open_standard_streams()
    interrupted.clear()
    if not arguments:
        return _said_next()
    words = _with_engine_flags(arguments)
    debug = "--debug" in words
    try:
        with interruptible():
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
        if interrupted.is_set():
            return _failed(error, FAILED, debug, "interrupted")
        return _failed(error, FAILED, debug, f"{type(error).__name__}: {error}; this is a bug, --debug shows where")


def _with_engine_flags(words: list[str]) -> list[str]:
    """What stands behind -- as values of a hidden option: it is the engine's, and not to be parsed here."""
    if "--" not in words:
        return words
    at = words.index("--")
    return [*words[:at], *(f"{ENGINE_FLAG}={word}" for word in words[at + 1 :])]


def _failed(error: BaseException, code: int, debug: bool, text: str = "") -> int:
    if debug:
        traceback.print_exception(error)
    print(f"specgauge: {one_line(text or str(error) or type(error).__name__)}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())

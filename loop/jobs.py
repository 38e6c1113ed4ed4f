"""A job: opened, cut down to what fits, closed whatever happens."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..options import Common
from ..process import alone_in, undisturbed, warn
from ..profiler.errors import InputError, WorkFailed
from .documents import PROFILE
from .progress import telling
from .stamp import stamped

if TYPE_CHECKING:
    from ..profiler.job import Job, Options
    from ..profiler.records import Profile


@contextmanager
def opened_job(options: "Options", common: Common, profiles: bool = True) -> "Iterator[Job]":
    """The job of `options`, its engine closed afterwards, whatever happens; `profiles`: its work can be resumed."""
    from ..profiler.job import prepare

    with telling() as tell:
        job = within_memory(prepare(options, stamped(), common.path("logs"), tell), options.memory_bytes)
    with closing(job, common, profiles):
        for text in _short_of_room(job.blank):
            warn(text)
        with telling() as tell:
            _check_lengths(job, tell)
        yield job


def within_memory(job: "Job", memory_bytes: float) -> "Job":
    """The job without what does not fit `memory_bytes`, its engine closed where nothing does; as it is for 0. Raises
    InputError."""
    from dataclasses import replace

    from ..calibrate.checks.room import only_what_fits

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
    from ..profiler.prompts.lengths import check_lengths

    if any(prompt.line for prompt in job.prompts):
        tell("counting the tokens of your prompts")
        check_lengths(job.engine, job.blank, job.prompts)


def _short_of_room(blank: "Profile") -> tuple[str, ...]:
    """What would not fit, before anything is loaded: each target with each drafter at its longest draft."""
    from ..calibrate.checks.memory import candidate_findings
    from ..profiler.finding import WARNING

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


def _how_to_go_on(common: Common) -> str:
    from ..profiler.files import read_record
    from ..profiler.records import Profile

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

"""A profiling session: performs requests one by one and keeps the evidence on disk after each.

Whatever ends it (Ctrl-C, a dead engine, kill -9), the file holds every finished measurement, and the next session over
the same models, prompts and machine takes up from there.
"""

import contextlib
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from .engines.base import Engine
from .errors import InputError, WorkFailed
from .files import file_sha256, read_head, read_record, record_digest, shown, write_record
from .protocol import Clock, execute, named
from .records import Measurement, Profile, Request
from .workloads import PromptText

PROFILE_KIND = "specgauge-profile"
SAME = ("key", "models", "prompts", "workload_shares", "sampling", "candidates", "sentinel_model")
"""Fields of a profile that must be equal for another session to go on with it."""


@dataclass(frozen=True)
class Progress:
    """Where a session stands: before each request, and once after the last (`request` None)."""

    done: int
    total: int
    request: Request | None
    spent_seconds: float
    """Of this session."""
    seconds_left: float
    """Expected, at the pace of this session so far."""

    @property
    def label(self) -> str:
        """What is being measured, in a few words."""
        return f"{self.done + 1}/{self.total} {_label(self.request)}" if self.request else "measured"


OnProgress = Callable[[Progress], None]


class OutOfTime(Exception):
    """The time of a session was used up while something was measured; what was not finished is left out."""


class Session:
    """Takes measurements with `engine` into the profile at `path`; `prompts` are those of the profile, with text.

    `clock` (seconds) is the engine's own where it is simulated, else time.monotonic. Time of earlier sessions of the
    same profile counts: `profile_seconds` and every `at_seconds` go on from there. `budget_seconds`, if any, is for all
    sessions of the profile together; planning between measurements and starts of the engine count.
    """

    def __init__(
        self,
        engine: Engine,
        profile: Profile,
        path: str | os.PathLike[str],
        prompts: Sequence[PromptText],
        on_progress: OnProgress = lambda progress: None,
        clock: Clock | None = None,
        budget_seconds: float = 0.0,
    ):
        self._engine = engine
        self._profile = profile
        self._path = Path(path)
        self._prompts = tuple(prompts)
        self._on_progress = on_progress
        self._clock = clock or getattr(engine, "clock", time.monotonic)
        self._opened = self._clock()
        self._began = self._opened - profile.profile_seconds
        self._ours = record_digest(profile)
        self._written = False
        self._budget_seconds = budget_seconds
        self.kept_aside: Path | None = None
        """Where the profile went that lay at `path` before, if it was another one."""

    @property
    def profile(self) -> Profile:
        return self._profile

    @property
    def seconds_left(self) -> float:
        """Of the budget; without end where there is none."""
        return self._budget_seconds - self._elapsed() if self._budget_seconds else math.inf

    def perform(self, requests: Sequence[Request]) -> Profile:
        """Take those of `requests` that are not done yet; the profile is on disk after each.

        Raises EngineFailed and WorkFailed, and OutOfTime where the budget ends first; then, and on KeyboardInterrupt, what was
        finished stays on disk.
        """
        todo = self._missing(requests)
        if todo:
            self._save()  # a path that cannot be written is found before the first measurement, not after it
        pace = 1.0
        for done, request in enumerate(todo):
            left = pace * sum(other.expected_seconds for other in todo[done:])
            self._on_progress(Progress(done, len(todo), request, self._clock() - self._opened, left))
            measurement = self._measured(request)
            self._update(measurements=(*self._profile.measurements, measurement))
            pace = _pace(self._profile.measurements[-done - 1 :])
        if todo:
            self._on_progress(Progress(len(todo), len(todo), None, self._clock() - self._opened, 0.0))
        return self._profile

    def finish(
        self,
        dropped: Mapping[str, str] | None = None,
        warnings: Sequence[str] = (),
        unmeasured: Mapping[str, str] | None = None,
    ) -> Profile:
        """Mark the profile complete, with what was dropped and warned of and what there was no time for, and write it.

        `dropped` None: as it is.
        """
        self._update(
            dropped=self._profile.dropped if dropped is None else dict(dropped),
            unmeasured=dict(unmeasured or {}),
            budget_seconds=self._budget_seconds,
            warnings=tuple(dict.fromkeys((*self._profile.warnings, *warnings))),
            complete=True,
        )
        return self._profile

    def _missing(self, requests: Sequence[Request]) -> list[Request]:
        """Requests whose digest is not in the profile, each once."""
        done = {measurement.digest for measurement in self._profile.measurements}
        wanted = {request.digest(): request for request in requests}
        return [request for digest, request in wanted.items() if digest not in done]

    def _measured(self, request: Request) -> Measurement:
        try:
            return execute(self._engine, request, self._profile, self._prompts, self._in_time)
        except BaseException:
            with contextlib.suppress(WorkFailed):
                self._save()  # the time was spent, whatever came of it
            raise

    def _elapsed(self) -> float:
        return self._clock() - self._began

    def _in_time(self) -> float:
        """Elapsed seconds, as a measurement asks for them before each of its parts. Raises OutOfTime."""
        if self.seconds_left < 0:
            raise OutOfTime
        return self._elapsed()

    def _update(self, **changes: object) -> None:
        self._profile = replace(self._profile, **{"complete": False, **changes})
        self._save()

    def _save(self) -> None:
        self._profile = replace(self._profile, profile_seconds=self._elapsed())
        if not self._written:
            self.kept_aside = _set_aside(self._path, self._ours)
        write_record(self._path, self._profile)
        self._written = True


def _label(request: Request) -> str:
    """As in "steps of target-q4", "trace of target-q4 with model draft-q4 8"."""
    settings = ", ".join(named(setting) for setting in request.settings[:2])
    more = f" and {len(request.settings) - 2} more" if len(request.settings) > 2 else ""
    subject = request.model or f"{settings}{more}"
    return f"{request.action} of {subject}" if subject else request.action


def _pace(measurements: Sequence[Measurement]) -> float:
    """Seconds that measurements took over those expected of them; 1 where nothing was expected."""
    expected = sum(measurement.request.expected_seconds for measurement in measurements)
    return sum(measurement.wall_seconds for measurement in measurements) / expected if expected > 0 else 1.0


def _set_aside(path: Path, ours: str) -> Path | None:
    """Keep the file at `path` under a name made of its hash, unless it is the one whose sha256 is `ours`.

    A second link first, so that the file is never without its name; a rename where the file system has no links.
    """
    try:
        digest = file_sha256(path)
        aside = path.with_name(f"{path.stem}-{digest[:8]}{path.suffix}")
        if digest == ours:
            return None
        with contextlib.suppress(FileExistsError):
            _link_or_rename(os.path.realpath(path), aside)
        return aside
    except FileNotFoundError:
        return None
    except OSError as error:
        raise WorkFailed(
            f"{shown(path)} cannot be kept aside: {error.strerror or error}; choose another --out"
        ) from None


def _link_or_rename(path: str, aside: Path) -> None:
    try:
        os.link(path, aside)
    except FileExistsError:
        raise
    except OSError:
        os.replace(path, aside)


def open_profile(path: str | os.PathLike[str], blank: Profile, budget_seconds: float = 0.0) -> Profile:
    """The profile to go on with: the incomplete one at `path`, or one that ended with a smaller budget than `budget_seconds`
    (0: none), if it is of the same machine, models, prompts, sampling and candidates, else `blank`. Nothing is written; a
    session keeps a copy of another profile that it replaces.

    Raises InputError where something lies at `path` that is no profile of specgauge.
    """
    if not os.path.lexists(path):
        return blank
    kind = read_head(path).kind
    if kind != PROFILE_KIND:
        raise InputError(f"{shown(path)} is no profile of specgauge and would be overwritten; choose another --out")
    try:
        found = read_record(path, Profile)
    except InputError:  # of another version: not to be resumed, but ours to replace
        return blank
    cut_short = 0 < found.budget_seconds < (budget_seconds or math.inf)
    same = all(getattr(found, name) == getattr(blank, name) for name in SAME)
    resumable = same and (cut_short or not found.complete)
    return found if resumable else blank

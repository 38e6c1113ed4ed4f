"""Progress of a run on the terminal, and the clock by which it counts."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..profiler.job import Job
    from ..profiler.records import Request, Setting
    from ..profiler.session import Progress as SessionProgress
    from ..reports.terminal import Progress


@contextmanager
def telling() -> "Iterator[Callable[[str], None]]":
    """Progress of work whose length is not known: label by label."""
    from ..reports.terminal import Progress

    began = time.monotonic()
    with Progress() as progress:
        yield lambda text: progress(text, time.monotonic() - began, 0.0)


def clock_of(job: "Job") -> Callable[[], float]:
    """Seconds as the engine counts them: simulated ones where it is simulated."""
    return getattr(job.engine, "clock", time.monotonic)


def told(progress: "Progress", clock: Callable[[], float]) -> "Callable[[SessionProgress], None]":
    """Progress of a session, as the terminal shows it."""
    began = clock()

    def tell(state: "SessionProgress") -> None:
        if state.request:
            spent = clock() - began
            label = f"{_asked(state.request)} ({state.done + 1} of {state.total} of this stage)"
            progress(label, spent, spent + state.seconds_left)

    return tell


def _asked(request: "Request") -> str:
    what = request.model or ", ".join(named(setting) for setting in request.settings[:1])
    more = f" and {len(request.settings) - 1} more" if len(request.settings) > 1 else ""
    return f"measuring {request.action} {what}{more}".rstrip()


def named(setting: "Setting") -> str:
    """A setting in a line of progress."""
    if setting.drafter == "none":
        return f"{setting.target}, plain"
    return f"{setting.target}, {setting.draft or setting.drafter}, {setting.draft_tokens} draft tokens"

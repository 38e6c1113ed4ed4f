"""Clocks: the same evidence by wall time or by processor time of the engine's thread.

Wall time is what a user gets. Where one thread does all the work, its processor time leaves out what other processes took, and
shows beside the wall time how much of an error was theirs. Everything that is forecast or compared is on one clock: evidence
is brought to it here, before anything else reads it.
"""

from collections.abc import Sequence
from typing import TypeVar

from msgspec.structs import replace

from ..profiler.records import (
    Measurement,
    Profile,
    PromptRun,
    PromptTrace,
    RoundSample,
    Run,
    StepSample,
)
from .rounds import NotCalibrated

WALL, THREAD = "wall", "thread_cpu"
CLOCKS = (WALL, THREAD)
WORDS = {WALL: "wall clock", THREAD: "processor time of the engine's thread"}
"""Each clock as people say it."""
REMEDY = "profile it in process on a processor, or go by the wall clock"

Sample = TypeVar("Sample", StepSample, RoundSample)


class NoThreadTimes(NotCalibrated):
    """Some of the evidence has wall times only."""


def other(clock: str) -> str:
    """The clock that `clock` is not."""
    return WALL if clock == THREAD else THREAD


def on_clock(profile: Profile, clock: str) -> Profile:
    """`profile` with every second read from `clock`. Raises NoThreadTimes, and ValueError for a clock that there is not."""
    if clock not in CLOCKS:
        raise ValueError(f"no clock is called {clock}: there are {', '.join(CLOCKS)}")
    return profile if clock == WALL else _on_thread_clock(profile)


def _on_thread_clock(profile: Profile) -> Profile:
    return replace(profile, measurements=tuple(_measurement(one) for one in profile.measurements))


def runs_on_clock(runs: Sequence[Run], clock: str) -> tuple[Run, ...]:
    """Runs likewise; prefill and the whole reply stay wall time, which no speed is made of."""
    return tuple(runs) if clock == WALL else tuple(_run(run) for run in runs)


def rounds_on_clock(samples: Sequence[RoundSample], clock: str) -> tuple[RoundSample, ...]:
    """Round samples likewise."""
    return tuple(samples) if clock == WALL else tuple(_sample(one) for one in samples)


def _measurement(one: Measurement) -> Measurement:
    if one.reported:
        raise NoThreadTimes("speeds that others reported are wall time")
    return replace(
        one,
        steps=tuple(_sample(step) for step in one.steps),
        rounds=tuple(_sample(rounds) for rounds in one.rounds),
        traces=tuple(replace(trace, prompts=tuple(_trace(p) for p in trace.prompts)) for trace in one.traces),
        runs=tuple(_run(run) for run in one.runs),
    )


def _sample(one: Sample) -> Sample:
    """With the sentinel beside it read from the same clock; without one where that clock did not tell it."""
    seconds = _known(one.thread_seconds, len(one.seconds))
    return replace(one, seconds=seconds, sentinel_seconds=one.sentinel_thread_seconds)


def _trace(one: PromptTrace) -> PromptTrace:
    return replace(one, seconds=_known(one.thread_seconds, len(one.seconds)))


def _run(one: Run) -> Run:
    return replace(one, replies=tuple(_reply(reply) for reply in one.replies))


def _reply(one: PromptRun) -> PromptRun:
    if one.reply_tokens > 1 and not one.decode_thread_seconds:
        raise NoThreadTimes(f"the reply to {one.prompt.id} was timed by the wall clock alone: {REMEDY}")
    return replace(one, decode_seconds=one.decode_thread_seconds or one.decode_seconds)


def _known(thread: tuple[float, ...], count: int) -> tuple[float, ...]:
    if len(thread) != count or not all(seconds > 0 for seconds in thread):
        raise NoThreadTimes(f"a sample was timed by the wall clock alone: {REMEDY}")
    return thread

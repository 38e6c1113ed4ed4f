"""Clocks: the same evidence by wall time or by processor time of the engine's thread.

Wall time is what a user gets. Where one thread does all the work, its processor time leaves out what other processes took, and
shows beside the wall time how much of an error was theirs.
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

WALL, THREAD = "wall", "thread_cpu"


Sample = TypeVar("Sample", StepSample, RoundSample)


class NoThreadTimes(ValueError):
    """Some of the evidence has wall times only."""


def on_thread_clock(profile: Profile) -> Profile:
    """`profile` with every second read from the thread's clock. Raises NoThreadTimes."""
    return replace(profile, measurements=tuple(_measurement(one) for one in profile.measurements))


def runs_on_thread_clock(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Runs likewise; prefill and the whole reply stay wall time, which no speed is made of."""
    return tuple(replace(run, replies=tuple(_reply(one) for one in run.replies)) for run in runs)


def rounds_on_thread_clock(samples: Sequence[RoundSample]) -> tuple[RoundSample, ...]:
    """Round samples likewise."""
    return tuple(_sample(one) for one in samples)


def _measurement(one: Measurement) -> Measurement:
    return replace(
        one,
        steps=tuple(_sample(step) for step in one.steps),
        rounds=rounds_on_thread_clock(one.rounds),
        traces=tuple(replace(trace, prompts=tuple(_trace(p) for p in trace.prompts)) for trace in one.traces),
        runs=runs_on_thread_clock(one.runs),
    )


def _sample(one: Sample) -> Sample:
    """The sentinel beside it is left out: its own series in the profile has both clocks."""
    return replace(
        one, seconds=_known(one.thread_seconds, len(one.seconds)), sentinel_seconds=one.sentinel_thread_seconds
    )


def _trace(one: PromptTrace) -> PromptTrace:
    return replace(one, seconds=_known(one.thread_seconds, len(one.seconds)))


def _reply(one: PromptRun) -> PromptRun:
    if one.reply_tokens > 1 and not one.decode_thread_seconds:
        raise NoThreadTimes(f"the reply to {one.prompt.id} was timed by the wall clock alone")
    return replace(one, decode_seconds=one.decode_thread_seconds or one.decode_seconds)


def _known(thread: tuple[float, ...], count: int) -> tuple[float, ...]:
    if len(thread) != count or not all(seconds > 0 for seconds in thread):
        raise NoThreadTimes("a sample was timed by the wall clock alone")
    return thread

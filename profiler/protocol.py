"""How a request is measured: warm-ups, repeats, interleaving, sentinels. One request in, one Measurement out.

The engine measures one thing once; here it is asked often enough, in an order that spreads drift over everything, with a
sentinel (a plain decode step of one model) beside every sample so that what drift remains can be divided out.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from .engines.base import Engine, Unsupported
from .records import (
    BandwidthSample,
    DeviceState,
    MatchTrace,
    Measurement,
    Profile,
    PromptTrace,
    Request,
    RoundSample,
    Run,
    Sampling,
    Setting,
    StepSample,
    Trace,
)
from .workloads import PromptText

Clock = Callable[[], float]
OnStep = Callable[[int, int], None]
"""Told after each reply: replies done, replies in all."""

COLD_VISITS = 2
"""Visits of each shape that are marked cold: kernels are chosen and graphs captured in them."""
ROUNDS_PER_SAMPLE = 6
SENTINEL_CONTEXT = 128
SENTINEL_AGE_SECONDS = 1.0
"""A sentinel older than this no longer stands beside a sample."""
BANDWIDTH_SECONDS = 4.0
REPLAYED_DRAFTERS = ("model", "mtp", "eagle", "dflash")
"""Drafters whose rounds tell where they agree. Exact for a draft model, whose proposals depend on the text so far alone;
those of a head also depend on the depth in the draft, so that its matches hold best at the draft length they came from."""

T = TypeVar("T")
Sample = TypeVar("Sample", StepSample, RoundSample)


class Sentinel:
    """The plain decode step beside every sample. Says nothing where the profile has no sentinel or the engine cannot."""

    def __init__(self, engine: Engine, profile: Profile, clock: Clock):
        self._engine = engine
        self._clock = clock
        self._model = profile.sentinel_model
        self._setting = plain_setting(profile, self._model)
        self._taken_at = float("-inf")
        self.samples: list[StepSample] = []

    def warm_up(self) -> None:
        """Have the sentinel's own server running and its cold readings behind us; nothing if they are."""
        if self._model and not self.samples:
            self._guarded(lambda: self._engine.warm_up(self._setting))
            for _ in range(COLD_VISITS):
                self._take(cold=True)

    def seconds(self) -> float | None:
        """Median token of a reading that is not older than SENTINEL_AGE_SECONDS."""
        reading = self._reading()
        return reading and statistics.median(reading.seconds)

    def _reading(self) -> StepSample | None:
        if self._clock() - self._taken_at > SENTINEL_AGE_SECONDS:
            self._take()
        warm = [sample for sample in self.samples if not sample.cold]
        return warm[-1] if warm else None

    def beside(self, measure: Callable[[], Sample]) -> Sample:
        """What `measure` gives, with its time and the mean of the readings before and after it."""
        before, at = self._reading(), self._clock()
        sample = measure()
        readings = [reading for reading in (before, self._reading()) if reading is not None]
        return replace(
            sample,
            at_seconds=at,
            sentinel_seconds=_mean_of_medians([reading.seconds for reading in readings]),
            sentinel_thread_seconds=_mean_of_medians([reading.thread_seconds for reading in readings]),
        )

    def _take(self, cold: bool = False) -> None:
        if not self._model:
            return
        at = self._clock()
        sample = self._guarded(lambda: self._engine.step_time(self._model, "sentinel", "decode", 1, SENTINEL_CONTEXT))
        if sample is not None and sample.seconds:
            self.samples.append(replace(sample, role="sentinel", at_seconds=at, cold=cold))
            # A cold reading is no reading yet: the next sample asks again.
            self._taken_at = float("-inf") if cold else self._clock()

    def _guarded(self, ask: Callable[[], T]) -> T | None:
        """`ask()`; an engine that cannot is never asked for a sentinel again."""
        try:
            return ask()
        except Unsupported:
            self._model = ""
            return None


def _mean_of_medians(readings: Sequence[tuple[float, ...]]) -> float | None:
    """None where there is no reading, or one without seconds."""
    known = [statistics.median(reading) for reading in readings if reading]
    return statistics.fmean(known) if known and len(known) == len(readings) else None


LOOK_SECONDS = 0.5
"""Between looks at the device; one takes some 40 ms of another thread."""
KEPT_LOOKS = 8


@dataclass(frozen=True)
class Bench:
    """What every action works with: prompts are those of the request's workloads."""

    engine: Engine
    request: Request
    profile: Profile
    prompts: tuple[PromptText, ...]
    clock: Clock
    sentinel: Sentinel


@dataclass(frozen=True)
class Findings:
    """What came of an action, beside sentinels."""

    steps: list[StepSample] = field(default_factory=list)
    rounds: list[RoundSample] = field(default_factory=list)
    traces: list[Trace] = field(default_factory=list)
    matches: list[MatchTrace] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    bandwidth: list[BandwidthSample] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)


def execute(
    engine: Engine, request: Request, profile: Profile, prompts: Sequence[PromptText], clock: Clock = time.monotonic
) -> Measurement:
    """Take one measurement. What the engine cannot do is in `unsupported` (nothing measured) or `rejected` (a part).

    `clock` gives seconds since the profile began. Raises EngineFailed, and ValueError for an action that does not exist.
    """
    if request.action not in ACTIONS:
        raise ValueError(f"no such action: {request.action}")
    chosen = tuple(p for p in prompts if not request.workloads or p.prompt.workload in request.workloads)
    bench = Bench(engine, request, profile, chosen, clock, Sentinel(engine, profile, clock))
    started, before, unsupported = clock(), _device_state(engine), ""
    found = Findings()
    with _watched(engine) as looks:
        try:
            ACTIONS[request.action](bench, found)
        except Unsupported as reason:
            unsupported = str(reason)
    if found.rejected and not any((found.steps, found.rounds, found.traces, found.matches, found.runs)):
        unsupported = unsupported or found.rejected[0]
    return Measurement(
        request=request,
        digest=request.digest(),
        started_at_seconds=started,
        wall_seconds=clock() - started,
        steps=tuple(sorted([*found.steps, *bench.sentinel.samples], key=lambda sample: sample.at_seconds)),
        rounds=tuple(found.rounds),
        traces=tuple(found.traces),
        matches=tuple(found.matches),
        runs=tuple(found.runs),
        bandwidth=tuple(found.bandwidth),
        state_before=before,
        state_after=_device_state(engine),
        states_during=_spread(looks()),
        rejected=tuple(found.rejected),
        unsupported=unsupported,
    )


def interleaved_runs(
    engine: Engine,
    settings: Sequence[Setting],
    prompts: Sequence[PromptText],
    sampling: Sampling,
    repeats: int,
    on_step: OnStep = lambda done, total: None,
    first_repeat: int = 0,
    at: Clock = time.monotonic,
    before_reply: Callable[[], object] = lambda: None,
) -> tuple[Run, ...]:
    """One Run for each of `settings`, in their order, measured side by side.

    Every setting runs prompt p before any runs prompt p + 1, and who goes first rotates, so that drift meets all alike.
    Drafters forget before each repeat. Repeats count from `first_repeat`, so that a block can be continued.
    """
    for setting in settings:
        engine.warm_up(setting)
    replies = [[] for _ in settings]
    total = len(settings) * len(prompts) * repeats
    for repeat in range(first_repeat, first_repeat + repeats):
        for setting in settings:
            engine.reset(setting)
        for arm, prompt in _interleaved(len(settings), prompts, repeat):
            before_reply()
            began = at()
            reply = engine.run(settings[arm], prompt, sampling)
            replies[arm].append(replace(reply, repeat=repeat, at_seconds=began))
            on_step(sum(map(len, replies)), total)
    return tuple(
        Run(setting=setting, sampling=sampling, replies=tuple(own), effective=engine.effective(setting))
        for setting, own in zip(settings, replies, strict=True)
    )


def _interleaved(arms: int, prompts: Sequence[PromptText], repeat: int) -> Iterator[tuple[int, PromptText]]:
    """Arms within prompts; each prompt and each repeat begins with another arm."""
    for index, prompt in enumerate(prompts):
        for arm in rotated(range(arms), repeat + index):
            yield arm, prompt


def matches_from_rounds(trace: PromptTrace) -> tuple[int, ...]:
    """Where the drafter agrees with the reply, rebuilt from the rounds: see MatchTrace; length reply_tokens - 1.

    An accepted token is a 1 and the rejected one behind it a 0. After a draft that was accepted to its end, and where
    nothing was drafted, the target's own token was never proposed or refused: -1.
    """
    matches: list[int] = []
    for drafted, accepted in zip(trace.drafted, trace.accepted, strict=True):
        matches += [1] * accepted + [0 if accepted < drafted else -1]
    positions = max(trace.reply_tokens - 1, 0)
    return tuple(matches[:positions] + [-1] * (positions - len(matches)))


def plain_setting(profile: Profile, model: str) -> Setting:
    """Plain decoding of the model of this label."""
    quants = {known.label: known.quant for known in profile.models}
    return Setting(target=model, target_quant=quants.get(model, ""))


def rotated(items: Sequence[T], by: int) -> list[T]:
    """`items` from the one at `by` (modulo their number) on, and round."""
    start = by % len(items) if items else 0
    return [*items[start:], *items[:start]]


def _measure_bandwidth(bench: Bench, found: Findings) -> None:
    """Before any weights are loaded: no sentinel."""
    measure = getattr(bench.engine, "bandwidth", None)
    if measure is None:
        from .bandwidth import measure  # brings torch along
    key = bench.profile.key
    device = "cpu" if key.backend == "cpu" else ""  # the engine's own: a processor build beside a GPU leaves that idle
    found.bandwidth.extend(measure(device, key.threads, BANDWIDTH_SECONDS))


def _measure_steps(bench: Bench, found: Findings) -> None:
    """Each shape cold first, then `repeats` times; where a visit begins moves on, so that no shape is always early.

    Shapes of one context stand together: going back to a longer one costs its prefill.
    """
    request = bench.request
    setting = request.settings[0] if request.settings else plain_setting(bench.profile, request.model)
    bench.sentinel.warm_up()
    bench.engine.warm_up(setting)
    shapes = [
        Shape("decode" if width == 1 else "batch", width, context)
        for context in request.contexts
        for width in request.widths
    ]
    _visit_all(bench, found, shapes, COLD_VISITS)


def _measure_verify(bench: Bench, found: Findings) -> None:
    """Passes with an output row for each token. One cold visit: a sample holds several passes of its shape."""
    request = bench.request
    bench.sentinel.warm_up()
    shapes = [Shape("verify", width, context) for context in request.contexts for width in request.widths]
    _visit_all(bench, found, shapes, 1)


def _visit_all(bench: Bench, found: Findings, shapes: list["Shape"], cold_visits: int) -> None:
    """Every shape so often cold and then `repeats` times, each visit beginning with another one."""
    visits = cold_visits + bench.request.repeats
    stride = max(1, len(shapes) // max(1, visits))
    given_up: set[Shape] = set()
    for visit in range(visits):
        for shape in rotated(shapes, visit * stride):
            if shape not in given_up and not _visit(bench, found, shape, cold=visit < cold_visits):
                given_up.add(shape)


class Shape(NamedTuple):
    """A pass to time."""

    kind: str
    width: int
    context: int


def _visit(bench: Bench, found: Findings, shape: Shape, cold: bool) -> bool:
    """One sample of a shape; False where the engine cannot do it, which is noted once."""
    kind, width, context = shape
    model, role = bench.request.model, bench.request.role
    try:
        sample = bench.sentinel.beside(lambda: bench.engine.step_time(model, role, kind, width, context))
    except Unsupported as reason:
        found.rejected.append(f"{role} {model} {kind} width {width} context {context}: {reason}")
        return False
    found.steps.append(replace(sample, role=role, cold=cold))
    return True


def _measure_rounds(bench: Bench, found: Findings) -> None:
    """Rounds of each setting in turn: one server each, so that settings are not interleaved but sentinels are."""
    for setting in bench.request.settings:
        try:
            bench.sentinel.warm_up()
            bench.engine.warm_up(setting, bench.request.forced_rates)
            _sample_rounds(bench, found, setting)
        except Unsupported as reason:
            found.rejected.append(f"rounds of {named(setting)}: {reason}")


def _sample_rounds(bench: Bench, found: Findings, setting: Setting) -> None:
    rates = bench.request.forced_rates
    for repeat in range(bench.request.repeats):
        for context in rotated(bench.request.contexts, repeat):
            measure = partial(bench.engine.round_time, setting, rates, context, ROUNDS_PER_SAMPLE)
            found.rounds.append(bench.sentinel.beside(measure))


def _measure_trace(bench: Bench, found: Findings) -> None:
    sampling = bench.profile.sampling
    for setting in bench.request.settings:
        bench.sentinel.warm_up()
        bench.engine.warm_up(setting)
        prompts = []
        for prompt in bench.prompts:
            bench.sentinel.seconds()
            at = bench.clock()
            prompts += [
                replace(reply, at_seconds=at) for reply in bench.engine.rounds(setting, [prompt], sampling).prompts
            ]
        bench.sentinel.seconds()
        found.traces.append(Trace(setting=setting, sampling=sampling, prompts=tuple(prompts)))
        if setting.drafter in REPLAYED_DRAFTERS and compares(sampling):
            found.matches.extend(_match_trace(setting, prompt) for prompt in prompts)


def compares(sampling: Sampling) -> bool:
    """Whether a proposal is accepted where it equals the target's own token, rather than by the ratio test."""
    return sampling.temperature == 0 or sampling.draft_sampling == "greedy"


def _match_trace(setting: Setting, trace: PromptTrace) -> MatchTrace:
    return MatchTrace(
        target=setting.target,
        drafter=setting.drafter,
        draft=setting.draft,
        prompt=trace.prompt,
        prompt_tokens=trace.prompt_tokens,
        reply_tokens=trace.reply_tokens,
        match=matches_from_rounds(trace),
        source="rounds",
    )


def _measure_matches(bench: Bench, found: Findings) -> None:
    for setting in bench.request.settings:
        for prompt in bench.prompts:
            found.matches.append(bench.engine.match_trace(setting, prompt, bench.profile.sampling))


def _measure_runs(bench: Bench, found: Findings) -> None:
    bench.sentinel.warm_up()
    bench.sentinel.seconds()
    request = bench.request
    found.runs.extend(
        interleaved_runs(
            bench.engine,
            request.settings,
            bench.prompts,
            bench.profile.sampling,
            request.repeats,
            first_repeat=request.first_repeat,
            at=bench.clock,
            before_reply=bench.sentinel.seconds,
        )
    )
    bench.sentinel.seconds()


def _device_state(engine: Engine) -> DeviceState | None:
    """As the engine tells it (a simulated device), else as the system does."""
    state = getattr(engine, "device_state", None)
    if state is None:
        from .machine import device_state as state
    return state()


@contextmanager
def _watched(engine: Engine) -> Iterator[Callable[[], list[DeviceState]]]:
    """States of a device while it works: what crosses its bus, and its power, show in no state before and after. A
    processor is not watched: there is nothing to see, and looking would take of its time."""
    from . import machine

    if getattr(engine, "device_state", None) is not None or machine.device() is None:
        yield list
        return
    with machine.watched(pause_seconds=LOOK_SECONDS) as watch:
        yield lambda: [look.state for look in watch.looks]


def _spread(states: Sequence[DeviceState]) -> tuple[DeviceState, ...]:
    """At most KEPT_LOOKS of `states`, evenly over the time."""
    step = max(1, -(-len(states) // KEPT_LOOKS))
    return tuple(states[::step])


def named(setting: Setting) -> str:
    """A setting in a few words."""
    drafter = f"{setting.drafter} {setting.draft} {setting.draft_tokens}" if setting.draft_tokens else "no drafter"
    return f"{setting.target} with {drafter}"


ACTIONS: dict[str, Callable[[Bench, Findings], None]] = {
    "bandwidth": _measure_bandwidth,
    "steps": _measure_steps,
    "verify": _measure_verify,
    "rounds": _measure_rounds,
    "trace": _measure_trace,
    "matches": _measure_matches,
    "runs": _measure_runs,
}

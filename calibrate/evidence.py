"""Evidence: the samples of a profile as arrays, drift divided out, sorted by what they were taken of."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec
import numpy as np

from ..profiler.records import Candidate, MatchTrace, Measurement, Profile, Prompt, PromptRun, RoundSample, Setting
from .intervals import MEDIAN_FACTOR, Noise, pooled_noise

WINDOW_SECONDS = 2.5
LEAST_READINGS = 3
FARTHEST_SECONDS = 30.0
"""Sentinel readings that tell how slow the machine was at a time: those in the window, else the nearest few."""
LEAST_FORCED_ROUNDS = 2
LEAST_REAL_ROUNDS = 5
"""Fewer rounds at one length do not make a round time."""


@dataclass(frozen=True)
class Drift:
    """The sentinel over the profile: `ratio` (n,) to its median at times `at` (n,), rising."""

    at: np.ndarray
    ratio: np.ndarray
    reference_seconds: float | None

    def near(self, start: float, end: float | None = None) -> float:
        """Slowness from `start` to `end`: the median of the readings about then, 1 where none was taken.

        A single reading is as noisy as what it stands beside; slow spells last seconds, so that their median is not.
        """
        if not self.at.size:
            return 1.0
        end = start if end is None else end
        near = (self.at >= start - WINDOW_SECONDS) & (self.at <= end + WINDOW_SECONDS)
        if near.sum() < LEAST_READINGS:
            nearest = np.argsort(np.abs(self.at - (start + end) / 2), kind="stable")[:LEAST_READINGS]
            near = nearest[np.abs(self.at[nearest] - (start + end) / 2) <= FARTHEST_SECONDS + (end - start) / 2]
        readings = self.ratio[near]
        return float(np.median(readings)) if readings.size else 1.0

    @cached_property
    def noise(self) -> Noise:
        """Noise of a reading, from those next to each other."""
        return pooled_noise(self.ratio[i : i + 2] for i in range(self.ratio.size - 1))

    def log_sd(self, start: float, end: float) -> float:
        """What the slowness from `start` to `end` is off by, however many samples are divided by it; 0 without readings."""
        near = (self.at >= start - WINDOW_SECONDS) & (self.at <= end + WINDOW_SECONDS)
        return self.noise.log_sd * MEDIAN_FACTOR / max(int(near.sum()), LEAST_READINGS) ** 0.5 if self.at.size else 0.0


@dataclass(frozen=True, order=True)
class Shape:
    """What a step time belongs to."""

    model: str
    role: str
    kind: str
    width: int
    context: int

    @property
    def kind_of_pass(self) -> tuple[str, str, str]:
        """What passes have in common whose readings are equally noisy."""
        return self.model, self.role, self.kind


@dataclass(frozen=True, order=True)
class Pair:
    """A target with a drafter: what rounds, overhead and acceptance belong to."""

    target: str
    drafter: str
    draft: str
    ngram_size: int = 0
    p_min: float = 0.0

    @staticmethod
    def of(owner: Candidate | Setting | MatchTrace) -> "Pair":
        stop = 0.0 if isinstance(owner, MatchTrace) else owner.p_min
        return Pair(owner.target, owner.drafter, owner.draft, owner.ngram_size, stop)


@dataclass(frozen=True)
class StepObservation:
    """Normalised seconds (n,) of one shape; one entry a sample, itself a median where it holds several steps."""

    shape: Shape
    seconds: np.ndarray


@dataclass(frozen=True)
class RoundObservation:
    """Normalised seconds (n,) of rounds that really drafted `drafted` tokens; one entry a sample or reply."""

    drafted: int
    context: float
    seconds: np.ndarray
    rounds: int
    forced: bool
    log_sd: float | None = None
    """Noise of a sample, where it is stated and not to be seen from repeats."""
    drift_log_sd: float = 0.0
    """What all samples together are off by, because the drift that they were divided by is not known better."""


@dataclass(frozen=True)
class RoundCounts:
    """Real rounds of one reply: what was drafted and accepted, in order."""

    prompt: Prompt
    prompt_tokens: int
    reply_tokens: int
    drafted: tuple[int, ...]
    accepted: tuple[int, ...]


@dataclass(frozen=True)
class _Rounds:
    """Consecutive rounds of one sample or reply, normalised; contexts in cached tokens."""

    seconds: np.ndarray
    drafted: np.ndarray
    accepted: np.ndarray
    context: np.ndarray
    forced: bool
    start: float
    end: float
    """Seconds of the profile, from and to which the drift was read."""

    def kept(self, chosen: np.ndarray | slice) -> "_Rounds":
        """Some of the rounds."""
        return replace(
            self,
            seconds=self.seconds[chosen],
            drafted=self.drafted[chosen],
            accepted=self.accepted[chosen],
            context=self.context[chosen],
        )


def drift_of(profile: Profile) -> Drift:
    """The sentinel series: steps recorded in the role "sentinel", or where there are none those kept beside samples."""
    beside = [(s.at_seconds, s.sentinel_seconds) for s in (*_steps(profile), *_round_samples(profile))]
    own = [
        (s.at_seconds, float(np.median(s.seconds)))
        for s in _steps(profile)
        if s.role == "sentinel" and s.seconds and not s.cold
    ]
    series = sorted((at, seconds) for at, seconds in own or beside if seconds is not None)
    if not series:
        return Drift(np.zeros(0), np.zeros(0), None)
    at, seconds = np.array(series).T
    reference = float(np.median(seconds))
    return Drift(at, seconds / reference, reference)


def step_observations(profile: Profile, drift: Drift) -> tuple[StepObservation, ...]:
    """Warm steps by shape (cold ones only where there are no others), in the order of their shapes."""
    warm, cold = defaultdict(list), defaultdict(list)
    for sample in _steps(profile):
        if sample.role == "sentinel" or not sample.seconds or sample.streams != 1:
            continue
        width = 1 if sample.kind == "decode" else sample.width
        shape = Shape(sample.model, sample.role, sample.kind, width, sample.context)
        seconds = float(np.median(sample.seconds)) / drift.near(sample.at_seconds)
        (cold if sample.cold else warm)[shape].append(seconds)
    chosen = {**cold, **warm}
    return tuple(StepObservation(shape, np.array(chosen[shape])) for shape in sorted(chosen))


def round_observations(profile: Profile, pair: Pair, drift: Drift) -> tuple[RoundObservation, ...]:
    """Round times of `pair` by drafted tokens. Lengths that were forced are taken from forced rounds alone.

    The first round of a sample or reply is left out (it is cold), and rounds that drafted nothing.
    """
    groups: dict[tuple[int, bool], list[_Rounds]] = defaultdict(list)
    for rounds in _rounds_of(profile, pair, drift):
        for drafted in np.unique(rounds.drafted[rounds.drafted > 0]):
            groups[int(drafted), rounds.forced].append(rounds.kept(rounds.drafted == drafted))
    found = [_observation(drafted, parts, drift) for (drafted, _), parts in groups.items()]
    forced_lengths = {o.drafted for o in found if o.forced and o.rounds >= LEAST_FORCED_ROUNDS}
    kept = [
        o
        for o in found
        if (o.forced and o.drafted in forced_lengths)
        or (not o.forced and o.drafted not in forced_lengths and o.rounds >= LEAST_REAL_ROUNDS)
    ]
    if not kept and found:
        kept = [max(found, key=lambda o: o.rounds)]
    return tuple(sorted(kept, key=lambda o: o.drafted))


def measured_lengths(profile: Profile) -> frozenset[tuple[Pair, int]]:
    """(pair, draft tokens asked for) of which a round time, real or forced, was taken."""
    samples = [s.setting for s in _round_samples(profile) if s.seconds]
    traces = [t.setting for m in profile.measurements for t in m.traces if any(p.seconds for p in t.prompts)]
    return frozenset((Pair.of(setting), setting.draft_tokens) for setting in (*samples, *traces))


def matches_of(profile: Profile, pair: Pair) -> dict[str, tuple[MatchTrace, ...]]:
    """Match traces of `pair` by prompt id: one of each reply, the last one taken. Those read along a reply of the target are
    better than those rebuilt from rounds of the same prompt, which then do not count."""
    found: dict[str, dict[str, MatchTrace]] = defaultdict(dict)
    for trace in (t for m in profile.measurements for t in m.matches if Pair.of(t) == pair):
        found[trace.prompt.id][f"{trace.source == 'rounds'}|{trace.reply_sha256}"] = trace
    return {prompt: _best_sourced(tuple(traces.values())) for prompt, traces in found.items()}


def _best_sourced(traces: tuple[MatchTrace, ...]) -> tuple[MatchTrace, ...]:
    read = tuple(trace for trace in traces if trace.source != "rounds")
    return read or traces


def round_counts(profile: Profile, pair: Pair, draft_tokens: int | None = None) -> tuple[RoundCounts, ...]:
    """Real rounds of `pair` by reply, at one asked draft length or at all."""
    return tuple(
        RoundCounts(p.prompt, p.prompt_tokens, p.reply_tokens, p.drafted, p.accepted)
        for m in profile.measurements
        for t in m.traces
        if Pair.of(t.setting) == pair and draft_tokens in (None, t.setting.draft_tokens)
        for p in t.prompts
        if p.drafted
    )


def plain_replies(
    profile: Profile, target: str, workload: str | None = None, drift: Drift | None = None
) -> tuple[PromptRun, ...]:
    """End-to-end replies of plain decoding of `target`; their decode seconds divided by the drift, where it is given."""
    return tuple(
        reply if drift is None else _undrifted(reply, drift)
        for m in profile.measurements
        for run in m.runs
        if run.setting.target == target and run.setting.draft_tokens == 0
        for reply in run.replies
        if workload in (None, reply.prompt.workload) and reply.decode_seconds > 0
    )


def _undrifted(reply: PromptRun, drift: Drift) -> PromptRun:
    slowness = drift.near(reply.at_seconds, reply.at_seconds + reply.wall_seconds)
    return msgspec.structs.replace(reply, decode_seconds=reply.decode_seconds / slowness)


def share_off_device(profile: Profile, model: str) -> float | None:
    """Of a plain step's wall time the share in which the device did not work on it; None where it was not told."""
    shares = [
        1 - float(np.median(s.device_seconds)) / float(np.median(s.seconds))
        for s in _steps(profile)
        if s.model == model and s.kind == "decode" and s.role == "target" and s.device_seconds and not s.cold
    ]
    return float(np.median(shares)) if shares else None


def prompt_lengths(profile: Profile) -> dict[str, int]:
    """Prompt tokens by prompt id, as engines counted them."""
    runs = [(r.prompt.id, r.prompt_tokens) for m in profile.measurements for run in m.runs for r in run.replies]
    traces = [(p.prompt.id, p.prompt_tokens) for m in profile.measurements for t in m.traces for p in t.prompts]
    matches = [(t.prompt.id, t.prompt_tokens) for m in profile.measurements for t in m.matches]
    return dict(matches + traces + runs)


def _steps(profile: Profile):
    return [step for measurement in profile.measurements for step in measurement.steps]


def _round_samples(profile: Profile) -> list[RoundSample]:
    return [sample for measurement in profile.measurements for sample in measurement.rounds]


def _rounds_of(profile: Profile, pair: Pair, drift: Drift) -> Iterator[_Rounds]:
    for measurement in profile.measurements:
        for sample in measurement.rounds:
            if Pair.of(sample.setting) == pair and not sample.cold:
                yield from _after_first(_sample_rounds(sample, drift))
        yield from _trace_rounds(measurement, pair, drift)


def _sample_rounds(sample: RoundSample, drift: Drift) -> _Rounds:
    accepted = np.array(sample.accepted, int)
    span = sample.at_seconds, sample.at_seconds + sum(sample.seconds)
    seconds = np.array(sample.seconds) / drift.near(*span)
    context = sample.context + np.concatenate([[0], np.cumsum(accepted + 1)])[: accepted.size]
    drafted = np.array(sample.drafted, int)
    return _Rounds(seconds, _timed(sample.setting, drafted), accepted, context, sample.forced_rates is not None, *span)


def _trace_rounds(measurement: Measurement, pair: Pair, drift: Drift) -> Iterator[_Rounds]:
    start, end = measurement.started_at_seconds, measurement.started_at_seconds + measurement.wall_seconds
    for trace in measurement.traces:
        for reply in trace.prompts if Pair.of(trace.setting) == pair else ():
            accepted = np.array(reply.accepted, int)
            context = reply.prompt_tokens + np.concatenate([[0], np.cumsum(accepted + 1)])[: accepted.size]
            at = reply.at_seconds
            span = (start, end) if at is None else (at, at + sum(reply.seconds))
            seconds = np.array(reply.seconds) / drift.near(*span)
            kept = _timed(trace.setting, np.array(reply.drafted, int))
            yield from _after_first(_Rounds(seconds, kept, accepted, context, False, *span))


def _timed(setting: Setting, drafted: np.ndarray) -> np.ndarray:
    """`drafted`, 0 for rounds that do not count as timing of their length: drafts cut short at the end of a reply.

    An n-gram drafter and a confidence limit propose less on their own: there every length counts.
    """
    varies = setting.drafter == "ngram" or setting.p_min > 0
    return drafted if varies else np.where(drafted == setting.draft_tokens, drafted, 0)


def _after_first(rounds: _Rounds) -> Iterator[_Rounds]:
    """The rounds without the first (cold); a single round is kept."""
    if rounds.seconds.size:
        yield rounds.kept(slice(1 if rounds.seconds.size > 1 else 0, None))


def _observation(drafted: int, parts: list[_Rounds], drift: Drift) -> RoundObservation:
    medians = np.array([np.median(part.seconds) for part in parts])
    starts = np.array([part.context[0] for part in parts])
    contexts = np.concatenate([part.context for part in parts])
    unsure = drift.log_sd(min(part.start for part in parts), max(part.end for part in parts))
    seconds = _centred(medians, starts)
    return RoundObservation(
        drafted, float(contexts.mean()), seconds, contexts.size, parts[0].forced, drift_log_sd=unsure
    )


def _centred(seconds: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Samples (n,) brought to the mean of what they are at each of their contexts: a median over two contexts would lie
    anywhere between them. As they are where a context has one sample only."""
    groups = [starts == start for start in np.unique(starts)]
    if min(group.sum() for group in groups) < 2:
        return seconds
    middles = [np.median(seconds[group]) for group in groups]
    scale = np.select(groups, [np.mean(middles) / middle for middle in middles])
    return seconds * scale

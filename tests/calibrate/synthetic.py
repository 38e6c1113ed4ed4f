"""Profiles written by hand from known truth: kernel switches, slopes, overhead, noise, drift, outliers, matches."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from specgauge.profiler.records import (
    BandwidthSample,
    Candidate,
    EngineInfo,
    Key,
    MatchTrace,
    Measurement,
    ModelFile,
    Profile,
    Prompt,
    PromptRun,
    PromptTrace,
    Request,
    RoundSample,
    Run,
    Sampling,
    Setting,
    StepSample,
    Trace,
)

WIDTHS = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 17)
CONTEXTS = (128, 448)
LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8)
REPLY = 96
MEASURED = (1, 4, 8)
NGRAM_SIZE = 3
SENTINEL_STEPS = 12


@dataclass(frozen=True)
class Truth:
    """The machine. Passes: base + per_token x width (+ jump from `switch_after` + 1 on, + `kinks` likewise: last width of a
    kernel, jump), and what context tokens add."""

    base: float = 19e-3
    per_token: float = 0.6e-3
    per_context_token: float = 2e-6
    jump: float = 0.0
    switch_after: int = 8
    kinks: tuple[tuple[int, float], ...] = ()
    draft_base: float = 2e-3
    draft_per_token: float = 0.1e-3
    draft_per_context_token: float = 0.4e-6
    overhead: float = 0.5e-3
    overhead_per_token: float = 0.1e-3
    ngram_overhead: float = 0.3e-3
    round_factors: tuple[float, ...] = ()
    """What rounds of 1, 2, ... drafted tokens really take, over the sum of their parts."""
    noise: float = 0.0
    sentinel_noise: float = 0.0
    outliers: float = 0.0
    """Share of readings that a hiccup of 0.2 to 1 pass lengthens."""
    drift: float = 0.0
    throttled: tuple[float, float, float] = (0.0, 0.0, 1.0)
    """From and to these seconds of the profile everything takes this many times as long."""
    match_rate: float = 0.7
    match_concentration: float = np.inf
    """Rates of prompts are Beta distributed around `match_rate`, with these a + b."""
    prompts_each: int = 6
    widths: tuple[int, ...] = WIDTHS
    lengths: tuple[int, ...] = LENGTHS
    per_row: float = 0.0
    """What each further row of output adds to a verification pass; prompt passes have one row."""
    verified: bool = False
    """Whether verification passes were timed as such, at the shortest context."""
    round_contexts: tuple[int, ...] = (128,)
    round_repeats: int = 5
    ngram: bool = True
    watched: bool = False
    """Whether the sentinel is a series of its own, read before plain replies too."""
    steps: bool = True
    forced: bool = True
    seed: int = 7

    def target_pass(self, width: int, context: float) -> float:
        jumps = sum(jump for last, jump in ((self.switch_after, self.jump), *self.kinks) if width > last)
        rows = self.per_row * (width - 1)
        return self.base + self.per_token * width + self.per_context_token * context + jumps + rows

    def prompt_pass(self, width: int, context: float) -> float:
        return self.target_pass(width, context) - self.per_row * (width - 1)

    def draft_pass(self, width: int, context: float) -> float:
        return self.draft_base + self.draft_per_token * width + self.draft_per_context_token * context

    def round_seconds(self, drafter: str, drafted: int, context: float) -> float:
        verification = self.target_pass(drafted + 1, context)
        if drafted == 0:
            return verification
        if drafter == "ngram":
            return verification + self.ngram_overhead
        drafting = drafted * self.draft_pass(1, context) + self.draft_pass(drafted + 1, context)
        factor = self.round_factors[drafted - 1] if self.round_factors else 1.0
        return factor * (drafting + verification + self.overhead + self.overhead_per_token * drafted)

    def prompts(self) -> tuple[Prompt, ...]:
        return tuple(
            Prompt(
                id=f"{workload}-{i}",
                workload=workload,
                workload_class="prose",
                text_sha256=f"{workload}-{i}",
                new_tokens=REPLY,
            )
            for workload in ("ordinary", "copying")
            for i in range(self.prompts_each)
        )

    def prompt_tokens(self, prompt: Prompt) -> int:
        return (100 if prompt.workload == "ordinary" else 300) + 7 * int(prompt.id[-1])

    def match(self, prompt: Prompt) -> np.ndarray:
        rng = np.random.default_rng([self.seed, *prompt.id.encode()])
        agrees = rng.random(REPLY - 1)
        rate, sure = self.match_rate, self.match_concentration
        return (agrees < (rate if np.isinf(sure) else rng.beta(sure * rate, sure * (1 - rate)))).astype(int)

    def offers(self, prompt: Prompt) -> tuple[np.ndarray, np.ndarray]:
        """Copied passages of 20 tokens after 10 new ones in "copying"; nothing to copy in "ordinary"."""
        place = np.arange(REPLY - 1) % 30
        run = np.where((place >= 10 + NGRAM_SIZE) & (prompt.workload == "copying"), 30 - place, 0)
        return np.where(run > 0, 40, 0), run

    def rounds(self, drafter: str, draft_tokens: int, prompt: Prompt) -> list[tuple[int, int, float]]:
        """(drafted, accepted, seconds) of every round of a reply, by the engine's rules."""
        match, (offer, run) = self.match(prompt), self.offers(prompt)
        found, t = [], 1
        while t < REPLY:
            right, drafted = 0, draft_tokens
            if drafter == "ngram":
                drafted, right = min(draft_tokens, offer[t - 1]), int(run[t - 1])
                drafted = drafted if drafted >= NGRAM_SIZE else 0
            elif drafter == "model":
                right = int(np.cumprod(match[t - 1 : t - 1 + drafted]).sum())
            drafted = int(min(drafted, REPLY - t - 1))
            accepted = min(right, drafted)
            found.append((drafted, accepted, self.round_seconds(drafter, drafted, self.prompt_tokens(prompt) + t - 1)))
            t += accepted + 1
        return found

    def true_speed(self, drafter: str, draft_tokens: int, workload: str) -> float:
        mine = [p for p in self.prompts() if p.workload == workload]
        seconds = sum(s for p in mine for _, _, s in self.rounds(drafter, draft_tokens, p))
        return len(mine) * (REPLY - 1) / seconds

    def plain_seconds(self, prompt: Prompt) -> float:
        """Of a plain reply: its steps are linear in the context."""
        return (REPLY - 1) * self.target_pass(1, self.prompt_tokens(prompt) + (REPLY - 2) / 2)

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        model = msgspec.structs.replace(MODEL, draft_tokens=self.lengths)
        return (model, NGRAM) if self.ngram else (model,)


class Clock:
    """Noisy, drifting readings of true seconds, and the time since the profile began."""

    def __init__(self, truth: Truth):
        self.truth, self.rng, self.now = truth, np.random.default_rng(truth.seed), 0.0
        self.sentinels: list[tuple[float, float, float]] = []
        """Time, reading and true slowness of every look at the sentinel."""

    def slowness(self) -> float:
        start, end, factor = self.truth.throttled
        return float(np.exp(self.truth.drift * np.sin(self.now / 20)) * (factor if start <= self.now < end else 1.0))

    def read(self, seconds: float, passes: float = 1.0) -> float:
        """A reading of `seconds`, which are those of so many passes."""
        self.now += seconds
        hit = self.truth.outliers > 0 and self.rng.random() < self.truth.outliers
        hiccup = self.rng.uniform(0.2, 1.0) / passes if hit else 0.0
        noise = np.exp(self.truth.noise * self.rng.standard_normal())
        return float(seconds * (1 + hiccup) * self.slowness() * noise)

    def sentinel(self) -> float:
        noise = np.exp(self.truth.sentinel_noise * self.rng.standard_normal()) if self.truth.sentinel_noise else 1.0
        reading = float(self.truth.target_pass(1, 128) * self.slowness() * noise)
        self.sentinels.append((self.now, reading, self.slowness()))
        if self.truth.watched:
            self.now += SENTINEL_STEPS * reading
        return reading


MODEL = Candidate(target="t", target_quant="Q4_0", drafter="model", draft="d", draft_quant="Q8_0", draft_tokens=LENGTHS)
NGRAM = Candidate(
    target="t",
    target_quant="Q4_0",
    drafter="ngram",
    draft="ngram-simple",
    ngram_size=NGRAM_SIZE,
    draft_tokens=(3, 4, 8),
)
PLAIN = MODEL.setting(0)


def profile(truth: Truth) -> Profile:
    """A whole profile of `truth`: steps, plain runs, rounds at three lengths, matches."""
    return measured(truth, Clock(truth))


def measured(truth: Truth, clock: Clock) -> Profile:
    """The same, by this clock, which remembers how slow the machine was."""
    parts = [steps, verification, runs, rounds, matches, traces, bandwidth, sentinels]
    measurements = tuple(m for part in parts for m in part(truth, clock))
    return Profile(
        created="2026-01-01T00:00:00Z",
        tool_version="0",
        key=Key(engine="synthetic"),
        engine=EngineInfo(name="synthetic", build="1", backend="none"),
        models=(_model("t", 15_000_000_000, "Q4_0"), _model("d", 600_000_000, "Q8_0")),
        prompts=truth.prompts(),
        sampling=Sampling(),
        candidates=truth.candidates,
        sentinel_model="t",
        measurements=measurements,
        complete=True,
    )


def without(whole: Profile, action: str) -> Profile:
    """The profile without the measurements of one kind."""
    kept = tuple(m for m in whole.measurements if m.request.action != action)
    return msgspec.structs.replace(whole, measurements=kept)


def quiet(**changes: object) -> Truth:
    return replace(Truth(), **changes)  # type: ignore[arg-type]


def steps(truth: Truth, clock: Clock):
    if not truth.steps:
        passes = [("t", "target", truth.target_pass, (1,)), ("d", "draft", truth.draft_pass, (1,))]
    else:
        passes = [("t", "target", truth.prompt_pass, truth.widths), ("d", "draft", truth.draft_pass, truth.widths)]
    samples = [
        _step(clock, model, role, "decode" if width == 1 else "batch", width, context, cost)
        for _ in range(5)
        for model, role, cost, widths in passes
        for width in widths
        for context in CONTEXTS
    ]
    yield _measurement("steps", clock, steps=tuple(samples))


def verification(truth: Truth, clock: Clock):
    if truth.verified:
        shapes = [(g + 1, CONTEXTS[0]) for _ in range(3) for g in truth.lengths]
        samples = [_step(clock, "t", "target", "verify", *shape, truth.target_pass, passes=4) for shape in shapes]
        yield _measurement("verify", clock, steps=tuple(samples))


def _step(
    clock: Clock,
    model: str,
    role: str,
    kind: str,
    width: int,
    context: int,
    cost: Callable[[int, float], float],
    passes: int = 1,
) -> StepSample:
    at, sentinel = clock.now, clock.sentinel()
    return StepSample(
        model=model,
        role=role,
        kind=kind,
        width=width,
        context=context,
        seconds=tuple(clock.read(cost(width, context)) for _ in range(passes)),
        sentinel_seconds=sentinel,
        at_seconds=at,
    )


def runs(truth: Truth, clock: Clock):
    replies = [_plain_reply(truth, clock, prompt, repeat) for repeat in range(5) for prompt in truth.prompts()]
    yield _measurement("runs", clock, runs=(Run(setting=PLAIN, sampling=Sampling(), replies=tuple(replies)),))


def _plain_reply(truth: Truth, clock: Clock, prompt: Prompt, repeat: int) -> PromptRun:
    if truth.watched:
        clock.sentinel()
    at, seconds = clock.now, clock.read(truth.plain_seconds(prompt), passes=REPLY - 1)
    return PromptRun(
        prompt=prompt,
        repeat=repeat,
        prompt_tokens=truth.prompt_tokens(prompt),
        reply_tokens=REPLY,
        decode_seconds=seconds,
        prefill_seconds=0.1,
        wall_seconds=seconds + 0.1,
        at_seconds=at,
    )


def rounds(truth: Truth, clock: Clock):
    for length in MEASURED:
        samples = [_forced(truth, clock, length, at) for _ in range(truth.round_repeats) for at in truth.round_contexts]
        yield _measurement("rounds", clock, rounds=tuple(samples))


def _forced(truth: Truth, clock: Clock, length: int, context: int, count: int = 8) -> RoundSample:
    at, sentinel = clock.now, clock.sentinel()
    seconds = [clock.read(truth.round_seconds("model", length, context + i)) for i in range(count)]
    seconds[0] *= 3
    return RoundSample(
        setting=MODEL.setting(length),
        forced_rates=(0.0,) * length if truth.forced else None,
        context=context,
        seconds=tuple(seconds),
        drafted=(length,) * count,
        accepted=(0,) * count,
        sentinel_seconds=sentinel,
        at_seconds=at,
    )


def matches(truth: Truth, clock: Clock):
    model = [_match(truth, MODEL, p, match=tuple(map(int, truth.match(p)))) for p in truth.prompts()]
    ngram = []
    for prompt in truth.prompts() if truth.ngram else ():
        offer, run = truth.offers(prompt)
        ngram.append(_match(truth, NGRAM, prompt, offer=tuple(map(int, offer)), run=tuple(map(int, run))))
    yield _measurement("matches", clock, matches=tuple(model + ngram))


def _match(truth: Truth, candidate: Candidate, prompt: Prompt, **bits: Any) -> MatchTrace:
    return MatchTrace(
        target=candidate.target,
        drafter=candidate.drafter,
        draft=candidate.draft,
        ngram_size=candidate.ngram_size,
        prompt=prompt,
        prompt_tokens=truth.prompt_tokens(prompt),
        reply_tokens=REPLY,
        source="teacher-forced",
        **bits,
    )


def traces(truth: Truth, clock: Clock):
    if truth.ngram:
        yield _measurement("trace", clock, traces=(trace(truth, NGRAM.setting(4), clock),))


def trace(truth: Truth, setting: Setting, clock: Clock) -> Trace:
    """Real rounds of `setting` over all prompts."""
    replies = []
    for prompt in truth.prompts():
        found = truth.rounds(setting.drafter, setting.draft_tokens, prompt)
        replies.append(
            PromptTrace(
                prompt=prompt,
                prompt_tokens=truth.prompt_tokens(prompt),
                reply_tokens=REPLY,
                seconds=tuple(clock.read(s) for _, _, s in found),
                drafted=tuple(d for d, _, _ in found),
                accepted=tuple(a for _, a, _ in found),
            )
        )
    return Trace(setting=setting, sampling=Sampling(), prompts=tuple(replies))


def bandwidth(truth: Truth, clock: Clock):
    sample = BandwidthSample(
        operation="read", device="synthetic", bytes_per_second=(900e9, 910e9, 905e9), provenance="measured"
    )
    yield _measurement("bandwidth", clock, bandwidth=(sample,))


def sentinels(truth: Truth, clock: Clock):
    if truth.watched:
        samples = [
            StepSample(
                model="t", role="sentinel", kind="decode", width=1, context=128, seconds=(reading,), at_seconds=at
            )
            for at, reading, _ in clock.sentinels
        ]
        yield _measurement("sentinel", clock, steps=tuple(samples))


def _measurement(action: str, clock: Clock, **found) -> Measurement:
    request = Request(action=action)
    return Measurement(
        request=request, digest=request.digest(), started_at_seconds=clock.now, wall_seconds=1.0, **found
    )


def _model(label: str, size: int, quant: str) -> ModelFile:
    return ModelFile(
        label=label,
        path=f"/models/{label}.gguf",
        sha256=label,
        size_bytes=size,
        name=label,
        architecture="llama",
        quant=quant,
        parameters=size,
        tokenizer_sha256="same",
    )

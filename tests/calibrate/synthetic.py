"""Profiles written by hand from known truth: a kernel switch, slopes, overhead, noise, drift, matches."""

from collections.abc import Callable
from dataclasses import dataclass, replace

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


@dataclass(frozen=True)
class Truth:
    """The machine. Passes: base + per_token x width (+ jump from `switch_after` + 1 on), and 2 us a context token."""

    base: float = 19e-3
    per_token: float = 0.6e-3
    jump: float = 0.0
    switch_after: int = 8
    draft_base: float = 2e-3
    draft_per_token: float = 0.1e-3
    overhead: float = 0.5e-3
    overhead_per_token: float = 0.1e-3
    ngram_overhead: float = 0.3e-3
    noise: float = 0.0
    drift: float = 0.0
    match_rate: float = 0.7
    steps: bool = True
    forced: bool = True
    seed: int = 7

    def target_pass(self, width: int, context: float) -> float:
        return self.base + self.per_token * width + 2e-6 * context + (self.jump if width > self.switch_after else 0.0)

    def draft_pass(self, width: int, context: float) -> float:
        return self.draft_base + self.draft_per_token * width + 0.4e-6 * context

    def round_seconds(self, drafter: str, drafted: int, context: float) -> float:
        verification = self.target_pass(drafted + 1, context)
        if drafted == 0:
            return verification
        if drafter == "ngram":
            return verification + self.ngram_overhead
        drafting = drafted * self.draft_pass(1, context) + self.draft_pass(drafted + 1, context)
        return drafting + verification + self.overhead + self.overhead_per_token * drafted

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
            for i in range(6)
        )

    def prompt_tokens(self, prompt: Prompt) -> int:
        return (100 if prompt.workload == "ordinary" else 300) + 7 * int(prompt.id[-1])

    def match(self, prompt: Prompt) -> np.ndarray:
        rng = np.random.default_rng([self.seed, *prompt.id.encode()])
        return (rng.random(REPLY - 1) < self.match_rate).astype(int)

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


class Clock:
    """Noisy, drifting readings of true seconds, and the time since the profile began."""

    def __init__(self, truth: Truth):
        self.truth, self.rng, self.now = truth, np.random.default_rng(truth.seed), 0.0

    def slowness(self) -> float:
        return float(np.exp(self.truth.drift * np.sin(self.now / 20)))

    def read(self, seconds: float) -> float:
        self.now += seconds
        return float(seconds * self.slowness() * np.exp(self.truth.noise * self.rng.standard_normal()))

    def sentinel(self) -> float:
        return float(self.truth.target_pass(1, 128) * self.slowness())


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
    clock = Clock(truth)
    parts = [steps, runs, rounds, matches, traces, bandwidth]
    measurements = tuple(m for part in parts for m in part(truth, clock))
    return Profile(
        created="2026-01-01T00:00:00Z",
        tool_version="0",
        key=Key(engine="synthetic"),
        engine=EngineInfo(name="synthetic", build="1", backend="none"),
        models=(_model("t", 15_000_000_000, "Q4_0"), _model("d", 600_000_000, "Q8_0")),
        prompts=truth.prompts(),
        sampling=Sampling(),
        candidates=(MODEL, NGRAM),
        sentinel_model="t",
        measurements=measurements,
        complete=True,
    )


def without(whole: Profile, action: str) -> Profile:
    """The profile without the measurements of one kind."""
    import msgspec

    kept = tuple(m for m in whole.measurements if m.request.action != action)
    return msgspec.structs.replace(whole, measurements=kept)


def quiet(**changes: object) -> Truth:
    return replace(Truth(), **changes)  # type: ignore[arg-type]


def steps(truth: Truth, clock: Clock):
    if not truth.steps:
        passes = [("t", "target", truth.target_pass, (1,)), ("d", "draft", truth.draft_pass, (1,))]
    else:
        passes = [("t", "target", truth.target_pass, WIDTHS), ("d", "draft", truth.draft_pass, WIDTHS)]
    samples = [
        _step(clock, model, role, width, context, cost)
        for _ in range(5)
        for model, role, cost, widths in passes
        for width in widths
        for context in CONTEXTS
    ]
    yield _measurement("steps", clock, steps=tuple(samples))


def _step(
    clock: Clock, model: str, role: str, width: int, context: int, cost: Callable[[int, float], float]
) -> StepSample:
    at, sentinel = clock.now, clock.sentinel()
    return StepSample(
        model=model,
        role=role,
        kind="decode" if width == 1 else "batch",
        width=width,
        context=context,
        seconds=(clock.read(cost(width, context)),),
        sentinel_seconds=sentinel,
        at_seconds=at,
    )


def runs(truth: Truth, clock: Clock):
    replies = [_plain_reply(truth, clock, prompt, repeat) for repeat in range(5) for prompt in truth.prompts()]
    yield _measurement("runs", clock, runs=(Run(setting=PLAIN, sampling=Sampling(), replies=tuple(replies)),))


def _plain_reply(truth: Truth, clock: Clock, prompt: Prompt, repeat: int) -> PromptRun:
    at, seconds = clock.now, clock.read(sum(s for _, _, s in truth.rounds("none", 0, prompt)))
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
        samples = [_forced(truth, clock, length) for _ in range(5)]
        yield _measurement("rounds", clock, rounds=tuple(samples))


def _forced(truth: Truth, clock: Clock, length: int, count: int = 8) -> RoundSample:
    at, sentinel = clock.now, clock.sentinel()
    seconds = [clock.read(truth.round_seconds("model", length, 128 + i)) for i in range(count)]
    seconds[0] *= 3
    return RoundSample(
        setting=MODEL.setting(length),
        forced_rates=(0.0,) * length if truth.forced else None,
        context=128,
        seconds=tuple(seconds),
        drafted=(length,) * count,
        accepted=(0,) * count,
        sentinel_seconds=sentinel,
        at_seconds=at,
    )


def matches(truth: Truth, clock: Clock):
    model = [_match(truth, MODEL, p, match=tuple(map(int, truth.match(p)))) for p in truth.prompts()]
    ngram = []
    for prompt in truth.prompts():
        offer, run = truth.offers(prompt)
        ngram.append(_match(truth, NGRAM, prompt, offer=tuple(map(int, offer)), run=tuple(map(int, run))))
    yield _measurement("matches", clock, matches=tuple(model + ngram))


def _match(truth: Truth, candidate: Candidate, prompt: Prompt, **bits: tuple[int, ...]) -> MatchTrace:
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

"""Machines of known truth: what the fake engine simulates, and what every forecast is held against.

A machine knows the exact cost of every pass and, for every prompt, the reply and where each drafter agrees with it. Its
true speeds follow by stepping through the replies without noise, by the rules of the engine and not by any model of ours.
Agreement comes in stretches of unequal quality, so that a constant acceptance rate would forecast it wrongly.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from ...model.experts import distinct_experts
from ..records import Candidate, ModelFile, Prompt, Setting
from ..workloads import PromptText, prompt_text
from .base import Unsupported

NGRAM_METHOD = "ngram-simple"
LONGEST_OFFER = 64
WORDS = ("river", "stone", "lamp", "bread", "cloud", "paper", "wheel", "garden", "candle", "bridge", "letter", "copper")


@dataclass(frozen=True)
class Segment:
    """Passes of `first_width` tokens and more, up to the next segment, run on one kernel: a line over the width."""

    first_width: int
    base_seconds: float
    per_token_seconds: float


@dataclass(frozen=True)
class ExpertReads:
    """Routed experts: each distinct one that a pass touches is read for `seconds_each`, in all layers together."""

    experts: int
    per_token: int
    seconds_each: float

    def seconds(self, width: int) -> float:
        return self.seconds_each * float(distinct_experts(self.experts, self.per_token, width))


@dataclass(frozen=True)
class StepCurve:
    """Seconds of a pass over width and context; the segments in ascending order, the first from width 1."""

    segments: tuple[Segment, ...]
    per_context_token_seconds: float = 0.0
    experts: ExpertReads | None = None

    def seconds(self, width: int, context: int) -> float:
        kernel = next(segment for segment in reversed(self.segments) if segment.first_width <= width)
        line = kernel.base_seconds + kernel.per_token_seconds * width + self.per_context_token_seconds * context
        return line if self.experts is None else line + self.experts.seconds(width)


@dataclass(frozen=True)
class Agreement:
    """How often the draft model proposes what the target says: each stretch of the reply has its own rate, drawn from
    Beta(alpha, beta); stretches have `stretch_tokens` on average."""

    alpha: float
    beta: float
    stretch_tokens: float


@dataclass(frozen=True)
class Copying:
    """A reply that alternates between new text and passages copied from what stands before (mean lengths in tokens).
    In new text `false_offers` of the positions look like a copy and are none."""

    new_tokens: float
    copied_tokens: float
    false_offers: float


@dataclass(frozen=True)
class FakeWorkload:
    """Prompts of one kind, and how the drafters fare on their replies."""

    name: str
    workload_class: str
    prompt_tokens: tuple[int, int]
    agreement: Agreement
    copying: Copying
    new_tokens: int = 128
    prompts: int = 12


@dataclass(frozen=True)
class FakeModel:
    """A model and the cost of its passes. As a draft it proposes what the target says at `agrees` times the rates of the
    workload's Agreement."""

    label: str
    quant: str
    size_bytes: int
    parameters: int
    curve: StepCurve
    agrees: float = 1.0


@dataclass(frozen=True)
class FakeRound:
    """One round of a reply: cached tokens before it, tokens drafted and accepted."""

    context: int
    drafted: int
    accepted: int


@dataclass(frozen=True)
class Fault:
    """What is wrong with a machine; as it stands, nothing.

    `spill_from` drafted tokens on, each round takes `spill_seconds` more, and the device shows it. `slowdown` multiplies
    rounds with a draft while the clock falls alike. The first `cold_replies` of a setting take `cold_factor` times as long.
    `most_drafted` is what the engine drafts at most, whatever was asked. `effective` is what it says it uses beside that.
    """

    spill_from: int = 0
    spill_seconds: float = 0.0
    slowdown: float = 1.0
    reasons: tuple[str, ...] = ()
    cold_replies: int = 0
    cold_factor: float = 1.0
    most_drafted: int = 0
    effective: tuple[tuple[str, str], ...] = ()

    def spills(self, drafted: int) -> bool:
        return 0 < self.spill_from <= drafted

    def drafting(self, seconds: float, drafted: int) -> float:
        """Seconds of a round with a draft, which takes `seconds` on a sound machine."""
        return seconds * self.slowdown + (self.spill_seconds if self.spills(drafted) else 0.0)

    def drafted(self, asked: int) -> int:
        return min(asked, self.most_drafted) if self.most_drafted else asked


SOUND = Fault()

SERVER_RECIPE = ("draft", "verification", "draft_batch", "overhead")
IN_PROCESS_RECIPE = ("draft_catch_up", "draft_further", "verification", "overhead")


@dataclass(frozen=True)
class ThreadClock:
    """The processor time of the engine's thread: `share` of the wall time that the same work takes on a quiet machine, with
    its own `noise`; what other processes take, drift included, is not in it."""

    share: float = 0.97
    noise: float = 0.004


@dataclass(frozen=True)
class FakeMachine:
    """A machine, its models and its workloads; everything there is to know."""

    name: str
    targets: tuple[FakeModel, ...]
    draft: FakeModel
    workloads: tuple[FakeWorkload, ...]
    overhead_seconds: float
    """Of a round with a draft, beside its passes; `overhead_per_token_seconds` more for each drafted token."""
    overhead_per_token_seconds: float
    ngram_overhead_seconds: float = 0.0002
    batch_reads_low_seconds: float = 0.0
    """What a batch step sample misses of the same pass inside a round."""
    noise: float = 0.02
    """Standard deviation of the log of every reading."""
    drift: float = 0.04
    """Amplitude of the slow common swing of all readings, over `drift_period_seconds`."""
    drift_period_seconds: float = 240.0
    bandwidth_bytes_per_second: float = 900e9
    rollback: bool = True
    forced_acceptance: bool = True
    ngram_size: int = 3
    model_lengths: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8)
    ngram_lengths: tuple[int, ...] = (3, 4, 5, 6, 8, 12, 16)
    fault: Fault = SOUND
    in_process: bool = False
    """An engine that is called, not asked: a batch pass has all rows of output, a draft is read along the target's reply,
    and a round begins with the draft's pass over the last two tokens."""
    thread_clock: ThreadClock | None = None
    more_drafts: tuple[FakeModel, ...] = ()
    random_weights: bool = False

    # what there is

    @property
    def drafts(self) -> tuple[FakeModel, ...]:
        return (self.draft, *self.more_drafts)

    @property
    def models(self) -> tuple[FakeModel, ...]:
        return (*self.targets, *self.drafts)

    @property
    def recipe(self) -> tuple[str, ...]:
        """Terms of a round with a draft model (model/recipe.py)."""
        return IN_PROCESS_RECIPE if self.in_process else SERVER_RECIPE

    def model(self, label: str) -> FakeModel:
        """Raises Unsupported for a model that this machine does not have."""
        found = next((model for model in self.models if model.label == label), None)
        if found is None:
            raise Unsupported(f"the simulated machine {self.name} has no model {label!r}")
        return found

    def workload(self, name: str) -> FakeWorkload:
        """The workload of this name; prompts of any other one fare like the first."""
        return next((workload for workload in self.workloads if workload.name == name), self.workloads[0])

    def model_files(self) -> tuple[ModelFile, ...]:
        return tuple(
            ModelFile(
                label=model.label,
                path=f"/simulated/{model.label}.gguf",
                sha256=f"simulated:{self.name}:{model.label}",
                size_bytes=model.size_bytes,
                name=model.label,
                architecture="simulated",
                quant=model.quant,
                parameters=model.parameters,
                tokenizer_sha256="simulated",
                recurrent=not self.rollback,
                random=self.random_weights,
            )
            for model in self.models
        )

    def prompts(self) -> tuple[PromptText, ...]:
        return tuple(
            _prompt(self.name, workload, index) for workload in self.workloads for index in range(workload.prompts)
        )

    def candidates(self) -> tuple[Candidate, ...]:
        """Each target with each draft model and with the n-gram drafter."""
        return tuple(candidate for target in self.targets for candidate in self._candidates(target))

    def _candidates(self, target: FakeModel) -> tuple[Candidate, ...]:
        with_models = (
            Candidate(
                target=target.label,
                target_quant=target.quant,
                drafter="model",
                draft=draft.label,
                draft_quant=draft.quant,
                draft_tokens=self.model_lengths,
            )
            for draft in self.drafts
        )
        return (
            *with_models,
            Candidate(
                target=target.label,
                target_quant=target.quant,
                drafter="ngram",
                draft=NGRAM_METHOD,
                ngram_size=self.ngram_size,
                draft_tokens=self.ngram_lengths,
            ),
        )

    # what it costs

    def round_seconds(self, setting: Setting, drafted: int, context: int) -> float:
        """A round by its recipe, verification and overhead included; one with nothing drafted is a plain step."""
        verification = self.model(setting.target).curve.seconds(drafted + 1, context)
        if drafted == 0:
            return verification
        if setting.drafter == "ngram":
            return self.fault.drafting(verification + self.ngram_overhead_seconds, drafted)
        drafting = self._drafting_seconds(self.model(setting.draft).curve, drafted, context)
        sound = drafting + verification + self.overhead_seconds + self.overhead_per_token_seconds * drafted
        return self.fault.drafting(sound, drafted)

    def _drafting_seconds(self, draft: StepCurve, drafted: int, context: int) -> float:
        """Of llama.cpp: the draft's steps, and its own pass over the batch. In process: its pass over the last two tokens, the
        older of which it has seen, and a step behind each token that it drafted but the last."""
        if not self.in_process:
            return drafted * draft.seconds(1, context) + draft.seconds(drafted + 1, context)
        further = sum(draft.seconds(1, context + k) for k in range(1, drafted))
        return draft.seconds(2, context - 1) + further

    # where drafters agree

    def matches(self, setting: Setting, prompt: Prompt) -> tuple[int, ...]:
        """For every state t = 1 .. reply_tokens - 1: 1 where the draft model proposes the reply's token t + 1, else 0."""
        return tuple(bit for _, bit in self._agreement(setting, prompt))

    def weights(self, setting: Setting, prompt: Prompt) -> tuple[float, ...]:
        """The chances of which matches() is one outcome: min(1, q/p) of a reply that is sampled."""
        return tuple(rate for rate, _ in self._agreement(setting, prompt))

    def _agreement(self, setting: Setting, prompt: Prompt) -> tuple[tuple[float, int], ...]:
        seed = f"{self.name}|{prompt.text_sha256}|{setting.target}|{setting.draft}"
        workload, draft = self.workload(prompt.workload), self.model(setting.draft)
        return _agreement(seed, workload.agreement, draft.agrees, prompt.new_tokens)

    def offers_and_runs(self, setting: Setting, prompt: Prompt) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """For every state t: tokens that an n-gram of `setting.ngram_size` could propose, and how many are right."""
        workload = self.workload(prompt.workload)
        return _offers_and_runs(
            f"{self.name}|{prompt.text_sha256}|{setting.target}|copying",
            workload.copying,
            setting.ngram_size,
            prompt.new_tokens,
        )

    # what follows

    def rounds(self, setting: Setting, prompt: Prompt, prompt_tokens: int) -> Iterator[FakeRound]:
        """The rounds of a reply, from the state after its first token to its last; see _draft for their lengths."""
        if setting.drafter not in ("none", "model", "ngram"):
            raise Unsupported(f"the simulated engine has no {setting.drafter} drafter")
        if setting.p_min > 0:
            raise Unsupported("the simulated engine has no p_min")
        reply, t = prompt.new_tokens, 1
        while t < reply:
            drafted, right = self._draft(setting, prompt, prompt_tokens, t)
            drafted = min(drafted, reply - t - 1)
            accepted = min(drafted, right)
            yield FakeRound(prompt_tokens + t - 1, drafted, accepted)
            t += accepted + 1

    def _draft(self, setting: Setting, prompt: Prompt, prompt_tokens: int, t: int) -> tuple[int, int]:
        """Tokens that the drafter proposes in state t, and how many of the first ones are right."""
        if setting.drafter == "none":
            return 0, 0
        if setting.drafter == "model":
            wanted = self.fault.drafted(setting.draft_tokens)
            ahead = self.matches(setting, prompt)[t - 1 : t - 1 + wanted]
            return wanted, next((i for i, bit in enumerate(ahead) if not bit), len(ahead))
        offers, runs = self.offers_and_runs(setting, prompt)
        copied = min(setting.draft_tokens, offers[t - 1])
        history = prompt_tokens + t - 1
        if copied < setting.ngram_size or history <= setting.ngram_size + setting.draft_tokens + 1:
            return 0, 0
        return copied, runs[t - 1]

    def true_speed(self, setting: Setting, workload: str) -> float:
        """Decoded tokens a second of `setting` over the prompts of `workload`, noise and drift left out."""
        tokens, seconds = 0, 0.0
        for prompt in self.prompts():
            if prompt.prompt.workload == workload:
                rounds = self.rounds(setting, prompt.prompt, prompt_tokens(prompt.text))
                seconds += sum(self.round_seconds(setting, r.drafted, r.context) for r in rounds)
                tokens += prompt.prompt.new_tokens - 1
        return tokens / seconds

    def settings(self) -> tuple[Setting, ...]:
        """Everything that may be recommended: the members of all candidates and plain decoding of each target."""
        members = (c.setting(g) for c in self.candidates() for g in (0, *c.draft_tokens))
        return tuple(dict.fromkeys(members))


def prompt_tokens(text: str) -> int:
    """The simulated tokenizer: a word is a token."""
    return len(text.split())


@cache
def _prompt(machine: str, workload: FakeWorkload, index: int) -> PromptText:
    dice = random.Random(f"{machine}|{workload.name}|{index}")
    text = " ".join(dice.choice(WORDS) for _ in range(dice.randint(*workload.prompt_tokens)))
    name = f"{workload.name}/{index + 1}"
    return prompt_text(name, workload.name, workload.workload_class, text, workload.new_tokens)


@cache
def _agreement(seed: str, agreement: Agreement, share: float, reply: int) -> tuple[tuple[float, int], ...]:
    """For every state the rate of its stretch, and whether the draft agrees there."""
    dice = random.Random(seed)
    states: list[tuple[float, int]] = []
    while len(states) < reply - 1:
        rate = share * dice.betavariate(agreement.alpha, agreement.beta)
        states += [(rate, int(dice.random() < rate)) for _ in range(_geometric(dice, agreement.stretch_tokens))]
    return tuple(states[: reply - 1])


@cache
def _offers_and_runs(seed: str, copying: Copying, size: int, reply: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Passages are laid out over the reply's tokens 1 .. reply; state t has seen t of them, and needs `size` tokens of a
    passage before it can tell that it is one. What is proposed goes on behind the passage, wrongly."""
    dice = random.Random(seed)
    states: list[tuple[int, int]] = []
    while len(states) < reply - 1:
        for _ in range(_geometric(dice, copying.new_tokens)):
            states.append((dice.randint(size, LONGEST_OFFER) if dice.random() < copying.false_offers else 0, 0))
        length, behind = _geometric(dice, copying.copied_tokens), dice.randint(1, 32)
        for seen in range(1, length + 1):
            left = length - seen
            states.append((min(left + behind, LONGEST_OFFER), min(left, LONGEST_OFFER)) if seen >= size else (0, 0))
    states = states[: reply - 1]
    return (
        tuple(offer for offer, _ in states),
        tuple(min(run, reply - t) for t, (_, run) in enumerate(states, start=1)),
    )


def _geometric(dice: random.Random, mean: float) -> int:
    """A length of at least 1 with the given mean."""
    length = 1
    while mean > 1 and dice.random() > 1 / mean:
        length += 1
    return length


def _curve(base: float, per_token: float, context: float, *switches: Segment) -> StepCurve:
    return StepCurve((Segment(1, base, per_token), *switches), context)


ORDINARY = FakeWorkload("ordinary", "prose", (60, 128), Agreement(2.8, 1.2, 12.0), Copying(60.0, 6.0, 0.03))
COPYING = FakeWorkload("copying", "copying", (300, 480), Agreement(8.0, 1.0, 16.0), Copying(10.0, 30.0, 0.03))

INTERIOR_TIE = FakeMachine(
    name="interior-tie",
    targets=(
        FakeModel("target-q4", "Q4_0", 15_000_000_000, 27_000_000_000, _curve(19.4e-3, 0.6e-3, 1.5e-6)),
        FakeModel("target-q8", "Q8_0", 28_000_000_000, 27_000_000_000, _curve(36.5e-3, 0.5e-3, 1.5e-6)),
    ),
    draft=FakeModel("draft-q4", "Q4_0", 400_000_000, 600_000_000, _curve(2.0e-3, 0.1e-3, 0.3e-6)),
    workloads=(ORDINARY, COPYING),
    overhead_seconds=0.4e-3,
    overhead_per_token_seconds=0.05e-3,
    batch_reads_low_seconds=0.3e-3,
)
"""A card on which speculation pays, most at a middle draft length, and two neighbours are as good as equal."""

LOSES_AT_90 = FakeMachine(
    name="loses-at-90",
    targets=(
        FakeModel("target-q4", "Q4_0", 90_000_000, 135_000_000, _curve(0.4e-3, 9.6e-3, 2.0e-6)),
        FakeModel("target-q8", "Q8_0", 145_000_000, 135_000_000, _curve(2.0e-3, 12.0e-3, 2.0e-6)),
    ),
    draft=FakeModel("draft-q4", "Q4_0", 60_000_000, 80_000_000, _curve(0.4e-3, 5.6e-3, 1.0e-6)),
    workloads=(
        FakeWorkload("ordinary", "prose", (60, 128), Agreement(18.0, 2.0, 12.0), Copying(60.0, 6.0, 0.03)),
        FakeWorkload("copying", "copying", (300, 480), Agreement(27.0, 3.0, 16.0), Copying(20.0, 12.0, 0.03)),
    ),
    overhead_seconds=0.4e-3,
    overhead_per_token_seconds=0.05e-3,
    ngram_overhead_seconds=4.0e-3,
    bandwidth_bytes_per_second=20e9,
)
"""A processor that computes rather than reads: nine drafted tokens in ten are accepted, and it is slower all the same."""

KERNEL_SWITCH = FakeMachine(
    name="kernel-switch",
    targets=(
        FakeModel(
            "target-q4",
            "Q4_0",
            15_000_000_000,
            27_000_000_000,
            _curve(19.0e-3, 1.0e-3, 1.5e-6, Segment(9, 48.0e-3, 0.3e-3), Segment(17, 50.0e-3, 0.3e-3)),
        ),
        FakeModel(
            "target-q8",
            "Q8_0",
            28_000_000_000,
            27_000_000_000,
            _curve(33.0e-3, 3.0e-3, 1.5e-6, Segment(9, 38.0e-3, 0.4e-3), Segment(17, 40.0e-3, 0.4e-3)),
        ),
    ),
    draft=FakeModel("draft-q4", "Q4_0", 400_000_000, 600_000_000, _curve(0.9e-3, 0.1e-3, 0.2e-6)),
    workloads=(
        FakeWorkload("ordinary", "code", (60, 128), Agreement(9.0, 0.8, 16.0), Copying(60.0, 6.0, 0.03)),
        FakeWorkload("copying", "copying", (300, 480), Agreement(18.0, 0.8, 24.0), Copying(8.0, 40.0, 0.03)),
    ),
    overhead_seconds=0.4e-3,
    overhead_per_token_seconds=0.05e-3,
    batch_reads_low_seconds=0.2e-3,
    model_lengths=(1, 2, 3, 4, 5, 6, 7, 8, 10, 12),
)
"""A pass of nine tokens costs twice one of eight at 4 bits, and far less than one of eight at 8 bits."""

NO_ROLLBACK = FakeMachine(
    name="no-rollback",
    targets=(
        FakeModel("target-q4", "Q4_0", 15_000_000_000, 27_000_000_000, _curve(20.0e-3, 0.8e-3, 0.4e-6)),
        FakeModel("target-q8", "Q8_0", 28_000_000_000, 27_000_000_000, _curve(37.0e-3, 0.7e-3, 0.4e-6)),
    ),
    draft=FakeModel("draft-q4", "Q4_0", 400_000_000, 600_000_000, _curve(1.4e-3, 0.1e-3, 0.1e-6)),
    workloads=(ORDINARY, COPYING),
    overhead_seconds=0.8e-3,
    overhead_per_token_seconds=0.1e-3,
    rollback=False,
)
"""Recurrent models that cannot go back to an earlier token: batch passes cannot be clocked apart, rounds can."""

IN_PROCESS = FakeMachine(
    name="in-process",
    targets=(FakeModel("target-bf16", "BF16", 270_000_000, 135_000_000, _curve(46.0e-3, 1.8e-3, 3.0e-6)),),
    draft=FakeModel("draft-int8", "int8", 160_000_000, 135_000_000, _curve(13.0e-3, 1.6e-3, 2.0e-6)),
    more_drafts=(
        FakeModel("draft-int4", "int4", 100_000_000, 135_000_000, _curve(8.0e-3, 2.1e-3, 2.0e-6), agrees=0.9),
        FakeModel("draft-int2", "int2", 60_000_000, 135_000_000, _curve(7.0e-3, 1.9e-3, 2.0e-6), agrees=0.05),
    ),
    workloads=(
        FakeWorkload("ordinary", "prose", (60, 128), Agreement(9.0, 1.0, 12.0), Copying(60.0, 6.0, 0.03)),
        FakeWorkload("copying", "copying", (300, 480), Agreement(18.0, 0.8, 24.0), Copying(8.0, 40.0, 0.03)),
    ),
    overhead_seconds=0.6e-3,
    overhead_per_token_seconds=0.1e-3,
    ngram_overhead_seconds=0.3e-3,
    bandwidth_bytes_per_second=15e9,
    in_process=True,
    thread_clock=ThreadClock(),
    model_lengths=(1, 2, 3, 4, 5, 6, 7, 8, 20),
)
"""A processor on which an engine is called in process, by two clocks; a draft of too few bits proposes next to nothing right."""

MACHINES: dict[str, FakeMachine] = {
    machine.name: machine for machine in (INTERIOR_TIE, LOSES_AT_90, KERNEL_SWITCH, NO_ROLLBACK, IN_PROCESS)
}

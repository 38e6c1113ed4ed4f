"""A deterministic engine of known truth, for tests and for `--engine fake:NAME`.

It speaks the protocol of base.py over a machine of fake_machine.py. Its clock is simulated: calls return at once and
move the clock by the seconds that they report. Readings carry noise, and a slow drift that all of them share; the same
seed and the same calls give the same readings.
"""

import hashlib
import math
import random
from collections import Counter
from collections.abc import Generator, Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from ... import __version__
from ..errors import InputError
from ..records import (
    BandwidthSample,
    DeviceState,
    EngineInfo,
    Key,
    MatchTrace,
    Profile,
    PromptRun,
    PromptTrace,
    RoundSample,
    Sampling,
    Setting,
    StepSample,
    Trace,
)
from ..workloads import PromptText
from .base import EngineFailed, ReplyTokens, Unsupported
from .fake_machine import MACHINES, NGRAM_METHOD, SOUND, FakeMachine, prompt_tokens
from .fake_text import FakeText

__all__ = ["MACHINES", "FakeEngine", "FakeMachine", "demo"]

START_SECONDS = 2.0
WARM_UP_SECONDS = 0.5
REQUEST_SECONDS = 0.002
"""Beside prefill and decoding, of every request."""
PREFILL_SHARE = 0.05
"""Prefill of one token over a plain step."""
VERIFY_PASSES = 6
DECODE_TOKENS = 8
COLD_CALLS = 2
COLD_FACTOR = 1.3
PLAIN_WATTS, SPILL_WATTS = 360.0, 250.0
PLAIN_BUS_BYTES_PER_SECOND, SPILL_BUS_BYTES_PER_SECOND = 0.2e9, 11e9
PLAIN_FREE_BYTES, SPILL_FREE_BYTES = 2 << 30, 446 << 20
"""What a device with a fault shows; a spill as in qwen38-mtp pull request 48."""
SPELLINGS = {
    "draft_tokens": "--spec-draft-n-max",
    "draft_model": "-md",
    "speculation_type": "--spec-type",
    "draft_p_min": "--spec-draft-p-min",
}


class FakeEngine:
    """Engine protocol over `machine`. With `crash_after` n, every call after the n-th one fails as a dead server does."""

    def __init__(
        self, machine: FakeMachine, seed: int = 1, crash_after: int | None = None, text: FakeText | None = None
    ):
        self.machine = machine
        self._seed = seed
        self._dice = random.Random(f"{machine.name}|{seed}")
        self._thread_dice = random.Random(f"{machine.name}|{seed}|thread")
        self._now = 0.0
        self._calls_left = crash_after
        self._warm: set[tuple[Setting, tuple[float, ...] | None]] = set()
        self._visits: Counter[tuple[str, str, int, int]] = Counter()
        self._replies: Counter[Setting] = Counter()
        self._drafted = 0
        self._text = text or FakeText()
        self._texts = 0
        self._read_back: dict[Setting, dict[str, str]] = {}

    # identity

    def describe(self) -> EngineInfo:
        capabilities = [NGRAM_METHOD, "per-request-speculation"]
        capabilities += ["forced-acceptance"] if self.machine.forced_acceptance else []
        capabilities += ["rollback"] if self.machine.rollback else []
        capabilities += ["teacher-forced", "all-rows", "probabilistic-draft"] if self.machine.in_process else []
        return EngineInfo(
            name="fake",
            build=self.machine.name,
            backend="simulated",
            command=(f"fake:{self.machine.name}",),
            capabilities=tuple(capabilities),
            spellings=SPELLINGS,
            recipes={"model": self.machine.recipe} if self.machine.in_process else {},
        )

    def key(self) -> Key:
        return Key(gpu=f"simulated {self.machine.name}", engine="fake", build=self.machine.name, backend="simulated")

    def effective(self, setting: Setting) -> dict[str, str]:
        drafted = self.machine.fault.drafted(setting.draft_tokens)
        told = {"speculative.n_max": str(drafted), "n_ctx": str(setting.context)}
        return told | dict(self.machine.fault.effective) | self._read_back.get(setting, {})

    # the simulated device

    def clock(self) -> float:
        """Simulated seconds since the engine was made."""
        return self._now

    def device_state(self) -> DeviceState:
        clock = 1500.0 / self._drift()
        if self.machine.fault == SOUND:
            return DeviceState(clock_mhz=clock, temperature_celsius=60.0)
        return self._faulty_state(clock)

    def _faulty_state(self, clock: float) -> DeviceState:
        """As after what was done last: slowed down by drafting, or paging."""
        fault, drafts = self.machine.fault, self._drafted > 0
        slow, paging = drafts and fault.slowdown > 1, fault.spills(self._drafted)
        return DeviceState(
            clock_mhz=clock / fault.slowdown if slow else clock,
            power_watts=SPILL_WATTS if paging else PLAIN_WATTS,
            temperature_celsius=88.0 if slow else 60.0,
            memory_free_bytes=SPILL_FREE_BYTES if paging else PLAIN_FREE_BYTES,
            pcie_rx_bytes_per_second=SPILL_BUS_BYTES_PER_SECOND if paging else PLAIN_BUS_BYTES_PER_SECOND,
            event_reasons=fault.reasons if slow else (),
        )

    def bandwidth(self, device: str, threads: int, seconds_budget: float) -> tuple[BandwidthSample, ...]:
        """As profiler/bandwidth.py measures it."""
        self._call()
        rate = self.machine.bandwidth_bytes_per_second
        return (
            BandwidthSample(
                operation="read",
                device=f"simulated {self.machine.name}",
                threads=threads,
                buffer_bytes=1 << 30,
                bytes_per_second=tuple((1 << 30) / self._spend((1 << 30) / rate) for _ in range(5)),
                provenance="measured",
            ),
        )

    def _drift(self) -> float:
        phase = 2 * math.pi * self._now / self.machine.drift_period_seconds
        return 1.0 + self.machine.drift * math.sin(phase)

    def _spend(self, true_seconds: float) -> float:
        """A reading of something that truly takes `true_seconds`; the clock moves by it."""
        seconds = true_seconds * self._drift() * math.exp(self._dice.gauss(0.0, self.machine.noise))
        self._now += seconds
        return seconds

    def _thread(self, true_seconds: Sequence[float]) -> tuple[float, ...]:
        """The thread's own clock over the same spans; none where the machine has not got one."""
        clock = self.machine.thread_clock
        if clock is None:
            return ()
        return tuple(
            seconds * clock.share * math.exp(self._thread_dice.gauss(0.0, clock.noise)) for seconds in true_seconds
        )

    def _call(self) -> None:
        """Every request comes by here, and dies here when its time has come."""
        if self._calls_left is not None:
            if self._calls_left <= 0:
                raise EngineFailed(
                    f"the simulated engine {self.machine.name} crashed, as it was told to; it has no log"
                )
            self._calls_left -= 1
        self._now += REQUEST_SECONDS

    # measuring

    def warm_up(self, setting: Setting, forced_rates: tuple[float, ...] | None = None) -> None:
        self.machine.model(setting.target)
        if forced_rates is not None and not self.machine.forced_acceptance:
            raise Unsupported("the simulated engine cannot force acceptance")
        if (setting, forced_rates) not in self._warm:
            self._call()
            self._now += START_SECONDS + WARM_UP_SECONDS
            self._warm.add((setting, forced_rates))

    def reset(self, setting: Setting) -> None:
        """Its drafters keep nothing from reply to reply."""

    def prompt_tokens(self, setting: Setting, prompts: Sequence[PromptText]) -> Generator[int, None, None]:
        return (prompt_tokens(prompt.words) for prompt in prompts)

    def close(self) -> None:
        self._warm.clear()

    def step_time(self, model: str, role: str, kind: str, width: int, context: int, streams: int = 1) -> StepSample:
        curve = self.machine.model(model).curve
        if streams != 1 or kind not in ("decode", "batch", "verify"):
            raise Unsupported(f"the simulated engine does not time {kind} passes of {streams} streams")
        if kind == "batch" and not self.machine.rollback:
            raise Unsupported("the model cannot be rolled back: the whole prompt was processed again")
        if kind == "verify" and not self.machine.rollback:
            raise Unsupported("the simulated engine decodes one sequence at a time")
        if self.machine.in_process and role == "draft" and width > 2:
            raise Unsupported("a draft's passes in process are one or two tokens wide")
        self._call()
        self._drafted = 0
        cold = COLD_FACTOR if self._visits[model, kind, width, context] < COLD_CALLS else 1.0
        self._visits[model, kind, width, context] += 1
        if kind == "decode":
            true = [curve.seconds(1, context + i) for i in range(DECODE_TOKENS)]
        else:
            reads_low = self.machine.batch_reads_low_seconds if kind == "batch" else 0.0
            true = [curve.seconds(width, context) - reads_low] * (VERIFY_PASSES if kind == "verify" else 1)
        return StepSample(
            model=model,
            role=role,
            kind=kind,
            width=width,
            context=context,
            seconds=tuple(cold * self._spend(seconds) for seconds in true),
            thread_seconds=self._thread([cold * seconds for seconds in true]),
        )

    def round_time(
        self, setting: Setting, forced_rates: tuple[float, ...] | None, context: int, rounds: int
    ) -> RoundSample:
        """Full rounds only. Real acceptance is that of a text in which a draft is wrong at every place alike often."""
        if setting.drafter not in ("model", "ngram") or setting.draft_tokens < 1:
            raise Unsupported(f"the simulated engine has no rounds of {setting.drafter}")
        if forced_rates is not None and not self.machine.forced_acceptance:
            raise Unsupported("the simulated engine cannot force acceptance")
        self._call()
        drafted, at = self.machine.fault.drafted(setting.draft_tokens), context
        self._drafted = drafted
        true, seconds, accepted = [], [], []
        for _ in range(rounds):
            true.append(self.machine.round_seconds(setting, drafted, at))
            seconds.append(self._spend(true[-1]))
            accepted.append(self._accepted(drafted, forced_rates))
            at += accepted[-1] + 1
        return RoundSample(
            setting=setting,
            forced_rates=forced_rates,
            context=context,
            seconds=tuple(seconds),
            thread_seconds=self._thread(true),
            drafted=(drafted,) * rounds,
            accepted=tuple(accepted),
        )

    def _accepted(self, drafted: int, forced_rates: tuple[float, ...] | None) -> int:
        """How many of a round's tokens are accepted; rates are cumulative, and the last one holds for all behind it."""
        if forced_rates is None:
            return self._dice.randint(0, drafted)
        lot = self._dice.random()
        rates = [*forced_rates, *forced_rates[-1:] * drafted][:drafted]
        return next((i for i, rate in enumerate(rates) if lot >= rate), len(rates))

    def run(self, setting: Setting, prompt: PromptText, sampling: Sampling) -> PromptRun:
        prefill = self._prefill(setting, prompt)
        trace = self._reply(setting, prompt)
        decode = sum(trace.seconds)
        return PromptRun(
            prompt=prompt.prompt,
            repeat=0,
            prompt_tokens=trace.prompt_tokens,
            reply_tokens=trace.reply_tokens,
            decode_seconds=decode,
            decode_thread_seconds=sum(trace.thread_seconds) or None,
            prefill_seconds=prefill,
            wall_seconds=prefill + decode + REQUEST_SECONDS,
            drafted=sum(trace.drafted),
            accepted=sum(trace.accepted),
            reply_sha256=hashlib.sha256(f"{setting.target}|{prompt.prompt.text_sha256}".encode()).hexdigest()[:16],
        )

    def reply(
        self,
        setting: Setting,
        prompt: PromptText,
        sampling: Sampling,
        *,
        after: Sequence[int] = (),
        new_tokens: int | None = None,
        likely: int = 0,
        sampled: bool = False,
        cached: bool = False,
    ) -> ReplyTokens:
        self._call()
        self._texts += 1
        self._read_back[setting] = self._text.effective(sampling)
        count = prompt.prompt.new_tokens if new_tokens is None else new_tokens
        return self._text.reply(setting, prompt, sampling, after, count, likely, sampled, self._texts)

    def rounds(self, setting: Setting, prompts: Sequence[PromptText], sampling: Sampling) -> Trace:
        traces = []
        for prompt in prompts:
            self._prefill(setting, prompt)
            traces.append(self._reply(setting, prompt))
        return Trace(setting=setting, sampling=sampling, prompts=tuple(traces))

    def _prefill(self, setting: Setting, prompt: PromptText) -> float:
        """The prompt of a request, and the first token of its reply."""
        self._call()
        plain = self.machine.model(setting.target).curve.seconds(1, 0)
        return self._spend(plain * (1 + PREFILL_SHARE * prompt_tokens(prompt.words)))

    def _reply(self, setting: Setting, prompt: PromptText) -> PromptTrace:
        tokens = prompt_tokens(prompt.words)
        rounds = list(self.machine.rounds(setting, prompt.prompt, tokens))
        cold = self._coldness(setting)
        true = [cold * self.machine.round_seconds(setting, r.drafted, r.context) for r in rounds]
        return PromptTrace(
            prompt=prompt.prompt,
            prompt_tokens=tokens,
            reply_tokens=prompt.prompt.new_tokens,
            seconds=tuple(self._spend(seconds) for seconds in true),
            thread_seconds=self._thread(true),
            drafted=tuple(r.drafted for r in rounds),
            accepted=tuple(r.accepted for r in rounds),
        )

    def _coldness(self, setting: Setting) -> float:
        """By how much this reply is slower than one of a warm server."""
        fault = self.machine.fault
        self._drafted = fault.drafted(setting.draft_tokens)
        self._replies[setting] += 1
        return fault.cold_factor if self._replies[setting] <= fault.cold_replies else 1.0

    def match_trace(self, setting: Setting, prompt: PromptText, sampling: Sampling) -> MatchTrace:
        """Of the n-gram drafter, by replay over the plain reply; of a draft model in process, by a pass of it along that
        reply. Elsewhere those of a draft model come from its rounds."""
        is_model = setting.drafter == "model" and self.machine.in_process
        if setting.drafter != "ngram" and not is_model:
            raise Unsupported(f"matches of {setting.draft or setting.drafter} come from its rounds")
        self._call()
        trace = MatchTrace(
            target=setting.target,
            drafter=setting.drafter,
            draft=setting.draft,
            ngram_size=setting.ngram_size,
            prompt=prompt.prompt,
            prompt_tokens=prompt_tokens(prompt.words),
            reply_tokens=prompt.prompt.new_tokens,
            source="teacher-forced" if is_model else "replay",
        )
        if not is_model:
            offer, run = self.machine.offers_and_runs(setting, prompt.prompt)
            return replace(trace, offer=offer, run=run)
        if sampling.temperature > 0 and sampling.draft_sampling == "probabilistic":
            return replace(trace, weight=self.machine.weights(setting, prompt.prompt))
        return replace(trace, match=self.machine.matches(setting, prompt.prompt))


def demo(machine: FakeMachine | str, seed: int = 1) -> tuple[Profile, list[PromptText], FakeEngine]:
    """What a run on a fake machine needs: a blank profile, its prompts, its engine. InputError for an unknown name."""
    if isinstance(machine, str):
        if machine not in MACHINES:
            raise InputError(f"no fake machine {machine!r}: choose one of {', '.join(MACHINES)}")
        machine = MACHINES[machine]
    engine = FakeEngine(machine, seed)
    prompts = list(machine.prompts())
    profile = Profile(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        tool_version=__version__,
        key=engine.key(),
        engine=engine.describe(),
        models=machine.model_files(),
        prompts=tuple(prompt.prompt for prompt in prompts),
        sampling=Sampling(),
        candidates=machine.candidates(),
        sentinel_model=machine.targets[0].label,
    )
    return profile, prompts, engine

"""The transformers engine: measurements in process on torch, on CUDA, MPS or the processor with one code path.

It gives what a server cannot: passes timed apart, exact laws of target and draft, and from one pass of a draft its
acceptance at every length. Its speculative loop is rounds.py.
"""

import hashlib
from collections.abc import Generator, Sequence
from importlib.metadata import version

import torch
from msgspec.structs import replace

from ... import machine
from ...ngram import offers_and_runs
from ...records import (
    EngineInfo,
    Key,
    MatchTrace,
    ModelFile,
    PromptRun,
    PromptTrace,
    RoundSample,
    Sampling,
    Setting,
    StepSample,
    Trace,
)
from ...workloads import PromptText
from ..base import Likely, ReplyTokens, Unsupported
from . import passes, teacher
from .clock import Span
from .drafters import Drafter, ModelDrafter, NgramDrafter
from .models import Models, failures
from .rounds import Loop, Replies
from .sampling import Sampler
from .texts import Texts
from .tokens import Reader

NAME = "transformers"
RECIPES = {
    "model": ("draft_catch_up", "draft_further", "verification", "overhead"),
    "ngram": ("verification", "overhead"),
}
"""Terms of a round of rounds.py."""
CAPABILITIES = (
    "rollback",
    "forced-acceptance",
    "ngram-simple",
    "probabilistic-draft",
    "teacher-forced",
    "all-rows",
)
WARM_UP_REQUESTS = 10
WARM_UP_SHAPES = 2
"""Warm-up requests of a setting whose models are warm already: only its shapes are new."""
WARM_UP_PROMPT = 16
COLD_ROUNDS = 2
SPARE = 64
"""Tokens of a cache behind its context, for rounds and passes."""


class Transformers:
    """Engine protocol (base.py) over `models`. `device`: cpu, cuda, mps; `threads` 0: torch's own number."""

    def __init__(
        self, models: Sequence[ModelFile], *, device: str = "cpu", threads: int = 0, sampling: Sampling | None = None
    ):
        self._files = {model.label: model for model in models}
        self._models = Models(models, device)
        self._device = device
        self._sampling = sampling or Sampling()
        self._threads_before = torch.get_num_threads()
        self._threads = threads or self._threads_before
        self._readers: dict[str, Reader] = {}
        self._prompts: dict[tuple[str, str], tuple[int, ...]] = {}
        self._replies: dict[tuple[str, str, Sampling], tuple[int, ...]] = {}
        self._warm: set[str | tuple[Setting, bool]] = set()
        self._used: dict[Setting, Loop] = {}
        self._beside = ""
        if device == "cpu":
            torch.set_num_threads(self._threads)

    # identity

    def describe(self) -> EngineInfo:
        return EngineInfo(
            name=NAME,
            build=f"transformers {version('transformers')}, torch {torch.__version__}",
            backend=self._device,
            command=(NAME,),
            capabilities=CAPABILITIES,
            recipes=RECIPES,
        )

    def key(self) -> Key:
        identity = machine.identify()
        on_gpu = self._device != "cpu"
        return Key(
            gpu=identity.gpu if on_gpu else "",
            gpu_uuid=identity.gpu_uuid if on_gpu else "",
            power_limit_watts=identity.power_limit_watts if on_gpu else None,
            driver=identity.driver if on_gpu else "",
            cpu=identity.cpu,
            engine=NAME,
            build=f"transformers {version('transformers')}, torch {torch.__version__}",
            backend=self._device,
            threads=self._threads,
        )

    def effective(self, setting: Setting) -> dict[str, str]:
        used = self._used.get(setting)
        seed = {} if used is None else {"seed": str(used.generator.initial_seed())}
        labels = [setting.target, *([setting.draft] if setting.drafter == "model" else [])]
        paths = {
            f"weights.{role}": self._models.loaded(label).path_name
            for role, label in zip(("target", "draft"), labels)
            if self._models.is_loaded(label)
        }
        eager = self._models.eager_because()
        return {
            **(used.sampler if used else Sampler(self._sampling)).settings(),
            **seed,
            **paths,
            "speculative.n_max": str(setting.draft_tokens),
            "passes": f"eager: {eager}" if eager else "captured",
        }

    # running

    def warm_up(self, setting: Setting, forced_rates: tuple[float, ...] | None = None) -> None:
        labels = {setting.target, *([setting.draft] if setting.drafter == "model" else [])}
        shapes = (setting, forced_rates is not None)
        if shapes in self._warm:
            return
        requests = WARM_UP_SHAPES if labels <= self._warm else WARM_UP_REQUESTS
        with failures(f"warming up {setting.target}"):
            loop = self._loop(setting, self._sampling, forced_rates, WARM_UP_PROMPT + 2 * setting.draft_tokens + SPARE)
            prompt = self._models.filler(setting.target, "target", setting.context).tokens[0, :WARM_UP_PROMPT].tolist()
            for _ in range(requests):
                loop.replies([prompt] * setting.streams, setting.draft_tokens + 3, setting.draft_tokens)
        self._warm |= {shapes, *labels}

    def reset(self, setting: Setting) -> None:
        """No drafter keeps anything from reply to reply."""

    def run(self, setting: Setting, prompt: PromptText, sampling: Sampling) -> PromptRun:
        found = self._replies_to(setting, prompt, sampling)
        reply = found.tokens[0]
        spans = [one.span for one in found.rounds]
        thread = _sum_thread(spans)
        decode = sum(span.wall for span in spans)
        return PromptRun(
            prompt=prompt.prompt,
            repeat=0,
            prompt_tokens=len(self._ids(setting.target, prompt)),
            reply_tokens=len(reply),
            decode_seconds=decode,
            decode_thread_seconds=thread,
            prefill_seconds=found.prefill.wall,
            wall_seconds=found.prefill.wall + decode,
            drafted=sum(one.drafted[0] for one in found.rounds),
            accepted=sum(one.accepted[0] for one in found.rounds),
            reply_sha256=hashlib.sha256(repr(reply).encode()).hexdigest()[:16],
        )

    def rounds(self, setting: Setting, prompts: Sequence[PromptText], sampling: Sampling) -> Trace:
        return Trace(
            setting=setting, sampling=sampling, prompts=tuple(self._traced(setting, one, sampling) for one in prompts)
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
        ids = [*self._ids(setting.target, prompt), *after]
        count = prompt.prompt.new_tokens if new_tokens is None else new_tokens
        with failures(f"a reply of {setting.target}"):
            loop = self._loop(setting, sampling, None, len(ids) + count + SPARE)
            found = loop.replies([ids], count, setting.draft_tokens)
            listed = self._likeliest(setting, ids, found.tokens[0], sampling, likely, sampled) if likely else ()
        return ReplyTokens(
            tokens=found.tokens[0],
            likely=listed,
            drafted=sum(one.drafted[0] for one in found.rounds),
            accepted=sum(one.accepted[0] for one in found.rounds),
        )

    # step and round times

    def step_time(self, model: str, role: str, kind: str, width: int, context: int, streams: int = 1) -> StepSample:
        """A draft's passes come right behind one of the target used last, as in a round: its first pass is the one of width 2,
        the further ones are of width 1."""
        with failures(f"a pass of {model}"):
            spans = self._spans(model, role, kind, width, context, streams)
        return StepSample(
            model=model,
            role=role,
            kind=kind,
            width=width,
            context=context,
            streams=streams,
            seconds=tuple(span.wall for span in spans),
            thread_seconds=_threads(spans),
            device_seconds=tuple(span.device for span in spans if span.device is not None),
        )

    def _spans(self, model: str, role: str, kind: str, width: int, context: int, streams: int) -> tuple[Span, ...]:
        if kind not in ("decode", "batch", "verify"):
            raise Unsupported(f"no passes of kind {kind} are timed")
        sampler, room = Sampler(self._sampling), context + max(width, SPARE)
        filler = self._models.filler(model, "draft" if role == "draft" else "target", room, streams)
        if role != "draft":
            self._beside = model if role == "target" else self._beside
            steps = kind == "decode"
            return (
                passes.plain_steps(filler, sampler, context)
                if steps
                else passes.verification(filler, sampler, width, context)
            )
        if width > 2:
            raise Unsupported("a draft's passes here are one or two tokens wide")
        target = self._models.filler(self._beside or model, "target", room, streams)
        timed = passes.further if width == 1 else passes.catch_up
        return timed(filler, sampler, context, lambda: passes.verification(target, sampler, 1, context))

    def round_time(
        self, setting: Setting, forced_rates: tuple[float, ...] | None, context: int, rounds: int
    ) -> RoundSample:
        if setting.drafter == "ngram":
            raise Unsupported("a filler offers an n-gram drafter nothing: its rounds come from real replies")
        room = context + (rounds + COLD_ROUNDS + 1) * (setting.draft_tokens + 1) + SPARE
        with failures(f"rounds of {setting.target} with {setting.draft}"):
            pair = (setting.target, "target"), (setting.draft, "draft")
            fillers = [self._models.filler(label, role, room, setting.streams) for label, role in pair]
            for filler in fillers:
                filler.reach(context)
            loop = self._looped(setting, self._sampling, forced_rates, *(filler.decoder for filler in fillers))
            head = fillers[0].tokens[0, : context + 1].tolist()
            texts = Texts([head] * setting.streams, room, fillers[0].decoder.device)
            found = loop.rounds_from(texts, rounds + COLD_ROUNDS, setting.draft_tokens)[COLD_ROUNDS:]
            for filler in fillers:
                filler.lost_behind(context)
        return RoundSample(
            setting=setting,
            forced_rates=forced_rates,
            context=context,
            seconds=tuple(one.span.wall for one in found),
            thread_seconds=_threads([one.span for one in found]),
            drafted=tuple(one.drafted[0] for one in found),
            accepted=tuple(one.accepted[0] for one in found),
        )

    # acceptance

    def match_trace(self, setting: Setting, prompt: PromptText, sampling: Sampling) -> MatchTrace:
        ids, reply = self._ids(setting.target, prompt), self._plain_reply(setting, prompt, sampling)
        trace = MatchTrace(
            target=setting.target,
            drafter=setting.drafter,
            draft=setting.draft,
            ngram_size=setting.ngram_size,
            prompt=prompt.prompt,
            prompt_tokens=len(ids),
            reply_tokens=len(reply),
            reply_sha256=hashlib.sha256(repr(reply).encode()).hexdigest()[:16],
            source="replay" if setting.drafter == "ngram" else "teacher-forced",
        )
        if setting.drafter == "ngram":
            offer, run = offers_and_runs(ids, reply, setting.ngram_size)
            return replace(trace, offer=offer, run=run)
        sampler, room = Sampler(sampling), len(ids) + len(reply) + SPARE
        draft = self._models.decoder(setting.draft, "draft", room)
        with failures(f"a teacher-forced pass of {setting.draft}"):
            if not _drawn(sampling):
                return replace(trace, match=teacher.matches(draft, ids, reply, sampler))
            target = self._models.decoder(setting.target, "target", room)
            return replace(trace, weight=teacher.weights(target, draft, ids, reply, sampler))

    def _plain_reply(self, setting: Setting, prompt: PromptText, sampling: Sampling) -> tuple[int, ...]:
        """The target's own reply, decoded once for all drafts."""
        known = setting.target, prompt.prompt.text_sha256, sampling
        if known not in self._replies:
            plain = Setting(target=setting.target, target_quant=setting.target_quant, context=setting.context)
            self._replies[known] = self._replies_to(plain, prompt, sampling).tokens[0]
        return self._replies[known]

    # the loop

    def _replies_to(self, setting: Setting, prompt: PromptText, sampling: Sampling) -> Replies:
        if setting.streams != 1:
            raise Unsupported("prompts are run one by one; streams side by side are timed by passes and rounds")
        ids, count = list(self._ids(setting.target, prompt)), prompt.prompt.new_tokens
        with failures(f"a reply of {setting.target}"):
            loop = self._loop(setting, sampling, None, len(ids) + count + setting.draft_tokens + SPARE)
            found = loop.replies([ids], count, setting.draft_tokens)
        if setting.drafter == "none":
            self._replies[setting.target, prompt.prompt.text_sha256, sampling] = found.tokens[0]
        self._used[setting] = loop
        return found

    def _loop(self, setting: Setting, sampling: Sampling, rates: tuple[float, ...] | None, room: int) -> Loop:
        room = max(room, setting.context)
        target = self._models.decoder(setting.target, "target", room, setting.streams)
        draft = None
        if setting.drafter == "model":
            draft = self._models.decoder(setting.draft, "draft", room, setting.streams)
        return self._looped(setting, sampling, rates, target, draft)

    def _looped(self, setting: Setting, sampling: Sampling, rates, target, draft) -> Loop:
        sampler = Sampler(sampling)
        loop = Loop(target, sampler, drawn=_drawn(sampling), rates=rates, seed=sampling.seed)
        loop.drafter = self._drafter(setting, draft, sampler, loop)
        return loop

    def _drafter(self, setting: Setting, draft, sampler: Sampler, loop: Loop) -> Drafter | None:
        """Target and draft share one sampler: that is what makes their laws comparable."""
        if setting.drafter == "none" or not setting.draft_tokens:
            return None
        if setting.drafter == "ngram":
            return NgramDrafter(setting.ngram_size)
        if setting.drafter != "model":
            raise Unsupported(f"this engine has no {setting.drafter} drafter")
        return ModelDrafter(draft, sampler, loop.generator if loop.drawn else None)

    def _traced(self, setting: Setting, prompt: PromptText, sampling: Sampling) -> PromptTrace:
        found = self._replies_to(setting, prompt, sampling)
        return PromptTrace(
            prompt=prompt.prompt,
            prompt_tokens=len(self._ids(setting.target, prompt)),
            reply_tokens=len(found.tokens[0]),
            seconds=tuple(one.span.wall for one in found.rounds),
            thread_seconds=_threads([one.span for one in found.rounds]),
            drafted=tuple(one.drafted[0] for one in found.rounds),
            accepted=tuple(one.accepted[0] for one in found.rounds),
        )

    def _likeliest(
        self, setting: Setting, text: list[int], reply: Sequence[int], sampling: Sampling, count: int, sampled: bool
    ) -> tuple[tuple[Likely, ...], ...]:
        """The likeliest tokens of each place of a reply, by the model's own law or by the one that is drawn from."""
        target = self._models.decoder(setting.target, "target", len(text) + len(reply) + SPARE)
        sampler, places = Sampler(sampling), []
        for first, logits in teacher.laws(target, text, reply):
            law = logits.float().softmax(-1)
            if sampled:
                before = torch.tensor(
                    [reply[first : first + logits.shape[1] - 1]], dtype=torch.long, device=target.device
                )
                history = torch.tensor([[*text, *reply[:first]]], device=target.device)
                law = sampler.probabilities(history, logits, before)
            top = law[0].topk(min(count, law.shape[-1]))
            places += [
                tuple(Likely(int(token), float(log)) for token, log in zip(tokens, logs) if log > float("-inf"))
                for tokens, logs in zip(top.indices.tolist(), top.values.log().tolist(), strict=True)
            ]
        return tuple(places)

    def prompt_tokens(self, setting: Setting, prompts: Sequence[PromptText]) -> Generator[int, None, None]:
        return (len(self._ids(setting.target, prompt)) for prompt in prompts)

    def _ids(self, target: str, prompt: PromptText) -> tuple[int, ...]:
        path = self._files[target].path  # quantizations of one checkpoint have one tokenizer
        known = (path, prompt.prompt.text_sha256)
        if known not in self._prompts:
            reader = self._readers.setdefault(path, Reader(path))
            self._prompts[known] = reader.conversation(prompt.messages) if prompt.messages else reader.text(prompt.text)
        return self._prompts[known]

    def close(self) -> None:
        self._models.close()
        if self._device == "cpu":
            torch.set_num_threads(self._threads_before)


def _drawn(sampling: Sampling) -> bool:
    """Whether proposals are drawn from the draft's law, for the ratio test."""
    return sampling.temperature > 0 and sampling.draft_sampling == "probabilistic"


def _threads(spans: Sequence[Span]) -> tuple[float, ...]:
    """Thread seconds of each span, where all tell them."""
    known = [span.thread for span in spans if span.thread is not None]
    return tuple(known) if len(known) == len(spans) else ()


def _sum_thread(spans: Sequence[Span]) -> float | None:
    known = _threads(spans)
    return sum(known) if known else None

"""SmolLM2-135M-Instruct in the transformers engine, and twenty things to ask it."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch

from specgauge.profiler import demo_transformers
from specgauge.profiler.engines.transformers import teacher
from specgauge.profiler.engines.transformers.decoder import Decoder
from specgauge.profiler.engines.transformers.drafters import Drafter, ModelDrafter, NgramDrafter
from specgauge.profiler.engines.transformers.loading import Loaded, load
from specgauge.profiler.engines.transformers.rounds import Loop
from specgauge.profiler.engines.transformers.sampling import Sampler
from specgauge.profiler.engines.transformers.tokens import tokenizer_of
from specgauge.profiler.records import Sampling

ROOM = 1024
CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
QUESTIONS = (
    "Why is the sky blue?",
    "Write three sentences about a lighthouse.",
    "How do I boil an egg?",
    "What is the difference between a frog and a toad?",
    "Write a Python function that adds two numbers.",
    "Name the planets of the solar system in order.",
    "What should I pack for a week at the sea?",
    "Explain what a fraction is.",
    "Tell a short story about a lost key.",
    "How does a bicycle stay upright?",
    "Translate into French: the cat sleeps on the chair.",
    "Why do leaves fall in autumn?",
    "Give me five names for a small bakery.",
    "What does a carpenter do?",
    "Summarise: the train was late, and so we missed the boat and slept in the harbour.",
    "Describe a thunderstorm to someone who never saw one.",
    "How can I learn to draw?",
    "What is 17 times 6? Explain each step.",
    "Write a polite letter asking for a day off.",
    "What is the use of a compass?",
)


@cache
def folder() -> Path:
    return demo_transformers.prepare()


@cache
def model(quant: str) -> Loaded:
    return load(folder(), quant=quant)


@cache
def ids(text: str) -> tuple[int, ...]:
    return tuple(tokenizer_of(str(folder())).encode(text).ids)


def questions(count: int) -> list[tuple[int, ...]]:
    return [ids(CHAT.format(text)) for text in QUESTIONS[:count]]


@cache
def decoder(quant: str, role: str = "target", streams: int = 1) -> Decoder:
    """One for each role: a model that drafts for itself needs two caches."""
    return Decoder(model(quant).model, streams, ROOM if streams == 1 else 256)


def loop(target: str, draft: str = "", sampling: Sampling | None = None, ngram_size: int = 3, streams: int = 1) -> Loop:
    """Plain where `draft` is empty; "ngram", or the draft's quantization."""
    asked = sampling or Sampling()
    sampler = Sampler(asked)
    drawn = asked.temperature > 0 and asked.draft_sampling == "probabilistic"
    made = Loop(decoder(target, "target", streams), sampler, drawn=drawn, seed=asked.seed)
    if draft:
        made.drafter = _drafter(draft, sampler, made, ngram_size, streams)
    return made


def _drafter(draft: str, sampler: Sampler, made: Loop, ngram_size: int, streams: int) -> Drafter:
    if draft == "ngram":
        return NgramDrafter(ngram_size)
    return ModelDrafter(decoder(draft, "draft", streams), sampler, made.generator if made.drawn else None)


def top_two_gap(quant: str, text: Sequence[int]) -> float:
    """Difference of the two greatest logits behind `text`."""
    with torch.inference_mode():
        best = decoder(quant).prefill([text])[0, 0].float().topk(2).values
    return float(best[0] - best[1])


def weights_along(
    target: str, draft: str, prompt: Sequence[int], reply: Sequence[int], sampling: Sampling
) -> list[float]:
    """Teacher-forced acceptance of each token of a reply, by the rule of `sampling`."""
    sampler = Sampler(sampling)
    if sampling.temperature > 0 and sampling.draft_sampling == "probabilistic":
        return list(teacher.weights(decoder(target), decoder(draft), prompt, reply, sampler))
    return [float(one) for one in teacher.matches(decoder(draft), prompt, reply, sampler)]

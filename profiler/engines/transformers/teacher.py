"""Teacher: where a draft agrees with a text of the target, at every position, from one pass over it (teacher forcing).

From these flags or weights the rounds of every draft length follow exactly (model/acceptance.py), so that one pass of each
model replaces a sweep over draft lengths (derived in docs/design.md).
"""

from collections.abc import Iterator, Sequence

import torch

from .decoder import Decoder
from .sampling import Sampler

ROWS = 64
"""Rows of logits held at a time: a row of a large vocabulary is 1 MB."""
VERIFIED, DRAFTED = 5, 1
"""Rows of a pass where both laws are wanted: about as wide as the passes of a round. Kernels round differently by width, and a
draft equal to its target would seem to be accepted always, where in bf16 real rounds accept 0.98 of its tokens."""


@torch.inference_mode()
def matches(draft: Decoder, prompt: Sequence[int], reply: Sequence[int], sampler: Sampler) -> tuple[int, ...]:
    """For t = 1 .. len(reply) - 1: 1 if the draft's likeliest token behind t tokens of `reply` is the next one, else 0."""
    found: list[int] = []
    for first, logits in _rows(draft, [*prompt, *reply[:1]], reply[1:]):
        truth = _part(reply[1:], first, logits)
        chosen = sampler.likeliest(_history(prompt, reply, first, logits), logits, _before(truth))
        found += (chosen == truth).int()[0].tolist()
    return tuple(found)


@torch.inference_mode()
def weights(
    target: Decoder, draft: Decoder, prompt: Sequence[int], reply: Sequence[int], sampler: Sampler
) -> tuple[float, ...]:
    """For t = 1 .. len(reply) - 1: min(1, q/p) of the next token of `reply`, under the laws p of the target and q of the
    draft behind t tokens: the chance that it came from an accepted draft, under the ratio test (derived from arXiv 2211.17192)."""
    p, q = (
        torch.cat(list(_chances(model, prompt, reply, sampler, rows)))
        for model, rows in ((target, VERIFIED), (draft, DRAFTED))
    )
    return tuple((q / p).clamp(max=1.0).nan_to_num(nan=1.0).tolist())


def _chances(
    model: Decoder, prompt: Sequence[int], reply: Sequence[int], sampler: Sampler, rows: int
) -> Iterator[torch.Tensor]:
    """Probabilities of the tokens of `reply` behind its first, in parts."""
    for first, logits in _rows(model, [*prompt, *reply[:1]], reply[1:], rows):
        truth = _part(reply[1:], first, logits)
        yield _of_truth(sampler, _history(prompt, reply, first, logits), logits, truth)[0]


@torch.inference_mode()
def laws(model: Decoder, text: Sequence[int], reply: Sequence[int]) -> Iterator[tuple[int, torch.Tensor]]:
    """Logits (1, n, V) that predict reply[first : first + n] behind `text`, in parts: (first, logits)."""
    yield from _rows(model, text, reply)


def _rows(
    model: Decoder, text: Sequence[int], reply: Sequence[int], rows: int = ROWS
) -> Iterator[tuple[int, torch.Tensor]]:
    """See laws: `text` is read once, then `reply` on top of it, its last token never."""
    last = model.prefill([text]) if len(reply) else None
    if last is not None:
        yield 0, last
    for first in range(0, len(reply) - 1, rows):
        part = torch.tensor([reply[first : min(first + rows, len(reply) - 1)]], device=model.device)
        start = torch.tensor([len(text) + first], device=model.device)
        yield first + 1, model.forward(part, start, len(text) + first + part.shape[1])


def _part(reply: Sequence[int], first: int, logits: torch.Tensor) -> torch.Tensor:
    """The tokens (1, n) that the rows of `logits` predict."""
    return torch.tensor([reply[first : first + logits.shape[1]]], device=logits.device)


def _history(prompt: Sequence[int], reply: Sequence[int], first: int, logits: torch.Tensor) -> torch.Tensor:
    """The text (1, L) before the first of the rows' predictions."""
    return torch.tensor([[*prompt, *reply[: first + 1]]], device=logits.device)


def _before(truth: torch.Tensor) -> torch.Tensor:
    """What stands between the history and each row but the first."""
    return truth[:, :-1]


def _of_truth(sampler: Sampler, history: torch.Tensor, logits: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    law = sampler.probabilities(history, logits, _before(truth))
    return law.gather(2, truth[:, :, None])[:, :, 0]

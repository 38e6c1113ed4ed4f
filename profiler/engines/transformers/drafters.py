"""Drafters: what proposes tokens, a model of its own or a table of the text's own n-grams."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch

from ...ngram import NgramIndex
from .decoder import Decoder
from .sampling import Sampler
from .texts import Texts

NOTHING = -1
"""Stands for a token where a stream proposes less than the others; it equals no token."""


class Proposal(NamedTuple):
    """`tokens` (S, g); `probabilities` (S, g, V) of the laws that they were drawn from, None where they were not drawn;
    `drafted` (S,) on the host: how many of a stream's g tokens are proposals."""

    tokens: torch.Tensor
    probabilities: torch.Tensor | None
    drafted: list[int]


class Drafter(Protocol):
    """Proposes what may follow."""

    def begin(self, texts: Texts, read: int) -> None:
        """New texts, of whose tokens the first `read` are cached already (0: none are)."""
        ...

    def propose(self, texts: Texts, draft_tokens: int, remaining: int) -> Proposal:
        """At most `draft_tokens` of each stream, where `remaining` are still to come."""
        ...


class ModelDrafter:
    """A model that decodes ahead.

    Its first pass of each round reads the last two tokens: after a draft that was accepted whole the last proposal was
    never read, and reading a token again changes nothing. So every round has the same shapes (docs/design.md).
    """

    def __init__(self, decoder: Decoder, sampler: Sampler, generator: torch.Generator | None = None):
        self._decoder = decoder
        self._sampler = sampler
        self._generator = generator

    def begin(self, texts: Texts, read: int) -> None:
        """Reads what is not cached; texts of fewer than two tokens are read by the first pass."""
        if read == 0:
            self._decoder.prefill([text[:-1] or text for text in texts.host])

    def propose(self, texts: Texts, draft_tokens: int, remaining: int) -> Proposal:
        count = min(draft_tokens, remaining - 1)
        tokens: list[torch.Tensor] = []
        laws: list[torch.Tensor] = []
        read, start, end = texts.last(2), texts.lengths - 2, texts.longest
        for step in range(count):
            logits = self._decoder.forward(read, start, end + step)[:, -1:]
            chosen = self._choose(texts, tokens, logits, laws)
            tokens.append(chosen)
            read, start = chosen, texts.lengths + step
        empty = torch.zeros(len(texts.host), 0, dtype=torch.long, device=texts.tokens.device)
        proposed = torch.cat(tokens, dim=1) if tokens else empty
        return Proposal(proposed, torch.cat(laws, dim=1) if laws else None, [count] * len(texts.host))

    def _choose(
        self, texts: Texts, before: list[torch.Tensor], logits: torch.Tensor, laws: list[torch.Tensor]
    ) -> torch.Tensor:
        """The next proposal (S, 1) from `logits` (S, 1, V): drawn where there is a generator, else the likeliest."""
        history = torch.cat([texts.history(), *before], dim=1) if self._sampler.minds_history else texts.history()
        if self._generator is None:
            return self._sampler.likeliest(history, logits)
        law = self._sampler.probabilities(history, logits)
        laws.append(law)
        return self._sampler.draw(law, self._generator)


class NgramDrafter:
    """Proposes what followed the latest earlier place of the last `size` tokens, by the rule of profiler/ngram.py."""

    def __init__(self, size: int):
        self._size = size
        self._indexes: list[NgramIndex] = []

    def begin(self, texts: Texts, read: int) -> None:
        self._indexes = [NgramIndex(text, self._size) for text in texts.host]

    def propose(self, texts: Texts, draft_tokens: int, remaining: int) -> Proposal:
        for index, text in zip(self._indexes, texts.host, strict=True):
            index.extend(text[len(index.text) :])
        found = [index.proposal(draft_tokens, remaining) for index in self._indexes]
        return Proposal(_padded(found, texts.tokens.device), None, [len(one) for one in found])


def _padded(proposals: Sequence[Sequence[int]], device: torch.device) -> torch.Tensor:
    longest = max(map(len, proposals))
    rows = [[*one, *[NOTHING] * (longest - len(one))] for one in proposals]
    return torch.tensor(rows, dtype=torch.long, device=device).reshape(len(proposals), longest)

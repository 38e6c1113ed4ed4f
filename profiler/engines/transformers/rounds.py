"""Rounds: the speculative loop. Draft, verify in one pass, accept, once more; plain decoding is the loop that drafts nothing.

A round ends with the one read from the device that tells how much was accepted, and its time runs from the end of the round
before it: everything that a user waits for lies in some round.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import torch

from . import rules
from .clock import Clock, Span, between
from .decoder import Decoder
from .drafters import Drafter, Proposal
from .sampling import Sampler
from .texts import Texts


class Round(NamedTuple):
    """One round of all streams together: its time, and what each stream drafted and accepted; both -1 where a stream's reply
    was whole already."""

    span: Span
    drafted: tuple[int, ...]
    accepted: tuple[int, ...]


@dataclass(frozen=True)
class Replies:
    """`tokens[s]`: the reply of stream s, its first token from the prompt's own pass. `prefill` ends with that token."""

    tokens: tuple[tuple[int, ...], ...]
    rounds: tuple[Round, ...]
    prefill: Span


@dataclass
class Loop:
    """Decodes `target` with what `drafter` proposes; None: plainly.

    `drawn`: proposals are drawn from the draft's law and pass by the ratio test (arXiv 2211.17192); else they pass where
    they equal the target's own token. `rates`: cumulative acceptance by position, forced instead of either. Raises
    ValueError where a reply would not fit into the cache.
    """

    target: Decoder
    sampler: Sampler
    drafter: Drafter | None = None
    drawn: bool = False
    rates: Sequence[float] | None = None
    seed: int = 1
    clock: Clock = field(init=False)

    def __post_init__(self) -> None:
        self.clock = Clock(self.target.device)
        self.generator = torch.Generator(self.target.device).manual_seed(self.seed)

    @torch.inference_mode()
    def replies(self, prompts: Sequence[Sequence[int]], new_tokens: int, draft_tokens: int = 0) -> Replies:
        """Replies of `new_tokens` tokens, one to each of `prompts` (as many as the target has streams)."""
        longest = max(map(len, prompts)) + new_tokens + draft_tokens + 1
        if longest > self.target.room:
            raise ValueError(f"{longest} tokens do not fit into {self.target.room} tokens of context")
        began = self.clock.mark()
        ends = [len(prompt) + new_tokens for prompt in prompts]
        texts = Texts(prompts, self.target.room, self.target.device, ends)
        first = self._tokens(texts, [], self.target.prefill(prompts))[:, 0]
        texts.append(first.new_zeros(len(prompts), 0), torch.zeros_like(first), first)
        if self.drafter is not None:
            self.drafter.begin(texts, 0)
        started = self.clock.mark()
        rounds = self._until(texts, draft_tokens, started)
        tokens = tuple(tuple(text[len(p) : len(p) + new_tokens]) for text, p in zip(texts.host, prompts, strict=True))
        return Replies(tokens, tuple(rounds), between(began, started))

    @torch.inference_mode()
    def rounds_from(self, texts: Texts, rounds: int, draft_tokens: int) -> tuple[Round, ...]:
        """So many rounds behind `texts`, of which all but the last token are cached in target and draft."""
        if self.drafter is not None:
            self.drafter.begin(texts, texts.longest - 1)
        marks, counts = [self.clock.mark()], []
        for _ in range(rounds):
            counts.append(self._round(texts, draft_tokens, draft_tokens + 2))
            marks.append(self.clock.mark())
        return tuple(Round(between(*pair), *count) for pair, count in zip(pairwise(marks), counts, strict=True))

    def _until(self, texts: Texts, draft_tokens: int, started: Span) -> list[Round]:
        """Rounds until every text has reached its end."""
        found, before = [], started
        while texts.remaining > 0:
            drafted, accepted = self._round(texts, draft_tokens, texts.remaining)
            now = self.clock.mark()
            found.append(Round(between(before, now), drafted, accepted))
            before = now
        return found

    def _round(self, texts: Texts, draft_tokens: int, remaining: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """One round: tokens drafted and accepted by each stream."""
        proposal = self._proposal(texts, draft_tokens, remaining)
        width = proposal.tokens.shape[1] + 1
        read = torch.cat([texts.last(1), proposal.tokens.clamp(min=0)], dim=1)
        logits = self.target.forward(read, texts.lengths - 1, texts.longest - 1 + width)
        verdict = self._verdict(texts, proposal, logits)
        accepted = texts.append(proposal.tokens.clamp(min=0), verdict.accepted, verdict.token)
        drafted = (count if taken >= 0 else -1 for count, taken in zip(proposal.drafted, accepted, strict=True))
        return tuple(drafted), tuple(accepted)

    def _proposal(self, texts: Texts, draft_tokens: int, remaining: int) -> Proposal:
        if self.drafter is not None and draft_tokens and remaining > 1:
            return self.drafter.propose(texts, draft_tokens, remaining)
        nothing = torch.zeros(len(texts.host), 0, dtype=torch.long, device=self.target.device)
        return Proposal(nothing, None, [0] * len(texts.host))

    def _verdict(self, texts: Texts, proposal: Proposal, logits: torch.Tensor) -> rules.Verdict:
        before = [proposal.tokens.clamp(min=0)]
        if self.drawn and proposal.probabilities is not None and self.rates is None:
            law = self.sampler.probabilities(texts.history(), logits, before[0])
            return rules.ratio_test(law, proposal.probabilities, proposal.tokens, self.generator)
        own = self._tokens(texts, before, logits)
        if self.rates is not None and proposal.tokens.shape[1]:
            return rules.forced(own, self.rates, self.generator)
        return rules.compare(own, proposal.tokens)

    def _tokens(self, texts: Texts, before: list[torch.Tensor], logits: torch.Tensor) -> torch.Tensor:
        """The target's own tokens (S, n) for the rows of `logits` (S, n, V); row i stands behind i tokens of `before`."""
        drafted = before[0] if before else None
        if self.sampler.greedy:
            return self.sampler.likeliest(texts.history(), logits, drafted)
        return self.sampler.draw(self.sampler.probabilities(texts.history(), logits, drafted), self.generator)

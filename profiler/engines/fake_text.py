"""Replies of the fake engine as tokens: a language of 40 words whose next-word logits are known, and faults on demand."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..records import Sampling, Setting
from ..workloads import PromptText
from .base import Likely, ReplyTokens, Unsupported

WORDS = 40
SPREAD = 2.5
"""Standard deviation of the logits of one place."""
MEMORY = 3
"""Tokens that the next one depends on."""

Logits = tuple[float, ...]


@dataclass(frozen=True)
class FakeText:
    """As it stands: no rounding, no fault, and a draft whose logits are `draft_noise` (standard deviation) off."""

    draft_noise: float = 1.0
    rounding: float = 0.0
    """Standard deviation of what a pass over several rows adds to a logit."""
    accepts_wrong: float = 0.0
    """Fault: chance that a drafted token passes although the target chose another."""
    shifted: bool = False
    """Fault: the draft's words are those of the target moved on by one."""
    pull: float = 0.0
    """Fault: share of tokens drawn in speculation that are the likeliest one instead."""
    restless: bool = False
    """Fault: plain decoding rounds differently each time."""
    tells: bool = True
    """The engine gives probabilities."""
    used: tuple[tuple[str, str], ...] = ()
    """Settings that the engine uses whatever was sent."""

    def effective(self, sampling: Sampling) -> dict[str, str]:
        """What the engine says it used."""
        names = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "seed")
        return {name: str(getattr(sampling, name)) for name in names} | dict(self.used)

    def reply(
        self,
        setting: Setting,
        prompt: PromptText,
        sampling: Sampling,
        after: Sequence[int],
        new_tokens: int,
        likely: int,
        sampled: bool,
        call: int,
    ) -> ReplyTokens:
        """See Engine.reply; `call` counts the engine's calls."""
        if likely and not self.tells:
            raise Unsupported("the simulated engine tells no probabilities")
        return _Reply(self, setting, prompt, sampling, call).made(list(after), new_tokens, likely, sampled)


class _Reply:
    """One reply while it is made."""

    def __init__(self, text: FakeText, setting: Setting, prompt: PromptText, sampling: Sampling, call: int):
        self.text, self.setting, self.sampling = text, setting, sampling
        self.seed = f"{setting.target}|{prompt.prompt.text_sha256}"
        self.noise = f"{self.seed}|{call if text.restless else ''}"
        self.dice = random.Random(f"{self.seed}|{sampling.seed}")
        self.drafted = self.accepted = 0

    def made(self, after: list[int], new_tokens: int, likely: int, sampled: bool) -> ReplyTokens:
        tokens, told = list(after), []
        plain = self.setting.drafter == "none"
        while (left := len(after) + new_tokens - len(tokens)) > 0:
            first = len(tokens) == len(after)
            logits = self._logits(tokens, batched=bool(after) if first else not plain)
            if not plain and not first and left > 1:
                self._round(tokens, min(self.setting.draft_tokens, left - 1))
                told += [()] * (len(tokens) - len(after) - len(told))
                continue
            tokens.append(self._chosen(logits))
            told.append(self._likely(logits, likely, sampled) if first or plain else ())
        return ReplyTokens(tuple(tokens[len(after) :]), tuple(told), self.drafted, self.accepted)

    def _round(self, tokens: list[int], length: int) -> None:
        """Drafted tokens until one is refused, and one more of the target's own."""
        self.drafted += length
        for _ in range(length):
            target, draft = self._logits(tokens, batched=True), self._draft(tokens)
            token, passed = self._verified(target, draft)
            tokens.append(token)
            if not passed:
                return
            self.accepted += 1
        tokens.append(self._chosen(self._logits(tokens, batched=True), speculative=True))

    def _verified(self, target: Logits, draft: Logits) -> tuple[int, bool]:
        if self.sampling.temperature > 0 and self.sampling.draft_sampling == "probabilistic":
            return self._by_ratio(_law(target, self.sampling.temperature), _law(draft, self.sampling.temperature))
        own, proposed = self._chosen(target, speculative=True), _best(draft)
        passed = own == proposed or self.dice.random() < self.text.accepts_wrong
        return (proposed if passed else own), passed

    def _by_ratio(self, p: Logits, q: Logits) -> tuple[int, bool]:
        """Rejection sampling: the target's own law whatever the draft proposes."""
        proposed = self._drawn(q)
        if self.dice.random() < p[proposed] / q[proposed]:
            return proposed, True
        return self._drawn(tuple(max(a - b, 0.0) for a, b in zip(p, q))), False

    def _chosen(self, logits: Logits, speculative: bool = False) -> int:
        if self.sampling.temperature <= 0 or (speculative and self.dice.random() < self.text.pull):
            return _best(logits)
        return self._drawn(_law(logits, self.sampling.temperature))

    def _drawn(self, law: Logits) -> int:
        return self.dice.choices(range(WORDS), law)[0]

    def _logits(self, tokens: Sequence[int], batched: bool) -> Logits:
        place = f"{self.seed}|{tuple(tokens[-MEMORY:])}|{len(tokens)}"
        return _logits(place, self.noise, self.text.rounding if batched or self.text.restless else 0.0)

    def _draft(self, tokens: Sequence[int]) -> Logits:
        place = f"{self.seed}|{tuple(tokens[-MEMORY:])}|{len(tokens)}"
        own = _logits(place, f"{self.setting.draft}|draft", self.text.draft_noise)
        return own[-1:] + own[:-1] if self.text.shifted else own

    def _likely(self, logits: Logits, count: int, sampled: bool) -> tuple[Likely, ...]:
        law = _law(logits, self.sampling.temperature if sampled and self.sampling.temperature > 0 else 1.0)
        order = sorted(range(WORDS), key=lambda token: law[token], reverse=True)[:count]
        return tuple(Likely(token, math.log(law[token])) for token in order)


@lru_cache(100_000)
def _logits(place: str, noise: str, deviation: float) -> Logits:
    own = random.Random(place)
    off = random.Random(f"{place}|{noise}")
    return tuple(own.gauss(0.0, SPREAD) + (off.gauss(0.0, deviation) if deviation else 0.0) for _ in range(WORDS))


@lru_cache(100_000)
def _law(logits: Logits, temperature: float) -> Logits:
    top = max(logits)
    weights = [math.exp((value - top) / temperature) for value in logits]
    return tuple(weight / sum(weights) for weight in weights)


def _best(logits: Logits) -> int:
    return max(range(WORDS), key=lambda token: logits[token])

"""Filler: a fixed text that says nothing, kept in a cache of its own so that passes behind any context can be timed at once.

Times depend on counts, not on what the tokens are. A timed pass reads the very tokens that stand in the filler at its
place, so that the cache behind it stays that of the filler.
"""

import random
from dataclasses import dataclass, field

import torch

from .decoder import PREFILL_TOKENS, Decoder

SEED = 135


@dataclass
class Filler:
    """The same filler in every stream of `decoder`; `cached`: so many of its tokens have keys and values there."""

    decoder: Decoder
    cached: int = 0
    tokens: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        config = self.decoder.model.config.get_text_config(decoder=True)
        dice = random.Random(SEED)
        low = min(1000, config.vocab_size // 2)
        ids = [dice.randrange(low, config.vocab_size) for _ in range(self.decoder.room)]
        self.tokens = torch.tensor(ids, device=self.decoder.device).expand(self.decoder.streams, -1)

    def reach(self, context: int) -> None:
        """Have at least `context` tokens cached."""
        while self.cached < context:
            last = min(self.cached + PREFILL_TOKENS, context)
            self.read(self.cached, last - self.cached)
            self.cached = last

    def read(self, first: int, count: int) -> torch.Tensor:
        """A pass over `count` tokens from `first` on: logits (S, count, V)."""
        start = torch.full((self.decoder.streams,), first, device=self.decoder.device)
        return self.decoder.forward(self.tokens[:, first : first + count], start, first + count)

    def lost_behind(self, context: int) -> None:
        """Something else was written behind `context` tokens."""
        self.cached = min(self.cached, context)

"""What a drafted token costs against a target step, by bytes: the least that can be known before anything is timed."""

from dataclasses import dataclass

from ..checkpoints.checkpoint import Checkpoint
from .engine_rules import LLAMA_CPP

REDECODING = (LLAMA_CPP,)
"""Engines that decode the verified batch in the draft's context too: one more draft pass a round."""


@dataclass(frozen=True)
class PairCost:
    """Bytes of a plain step of both (cache aside), and draft passes that a round pays beside its drafted tokens.

    Time follows bytes where memory is the bound; verification is counted as one step, the best that it can be.
    """

    target_bytes: float
    draft_bytes: float
    extra_passes: int

    @property
    def share(self) -> float:
        """A draft step over a target step."""
        return self.draft_bytes / self.target_bytes

    @property
    def break_even(self) -> float:
        """Acceptance of one drafted token at which a round of one equals plain decoding: (1 + extra) x share (derived)."""
        return (1 + self.extra_passes) * self.share

    def ceiling(self, draft_tokens: int) -> float:
        """Speed-up at perfect acceptance: (g + 1) / (1 + (g + extra) x share) (derived; arXiv 2211.17192, Theorem 3.8)."""
        return (draft_tokens + 1) / (1 + (draft_tokens + self.extra_passes) * self.share)


def pair_cost(target: Checkpoint, draft: Checkpoint, engine: str = LLAMA_CPP) -> PairCost | None:
    """The cost of a pair whose shapes are known, else of two dense files by their sizes; None where one has no size."""
    sizes = (step_bytes(target), step_bytes(draft))
    if not all(sizes):
        return None
    return PairCost(*sizes, extra_passes=int(engine in REDECODING and not draft.head_kind))


def step_bytes(model: Checkpoint) -> float:
    """Bytes that a plain step reads: active experts only; the whole file where the header does not tell the shape."""
    return float(model.shape.pass_bytes(1).total) if model.shape else float(model.size_bytes)

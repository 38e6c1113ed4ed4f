"""Passes: seconds of single passes of a model behind a cached context, as a round pays for them."""

from collections.abc import Callable

import torch

from .clock import Clock, Span
from .filler import Filler
from .sampling import Sampler

DECODE_PASSES = 6
"""Successive passes of one sample of a target's plain step."""
DRAFT_PASSES = 4
"""Successive further passes of a draft in one round, of one sample."""


@torch.inference_mode()
def verification(target: Filler, sampler: Sampler, width: int, context: int) -> tuple[Span, ...]:
    """A pass over `width` tokens with a row of logits for each, the tokens chosen from them and read by the host."""
    target.reach(context)
    clock = Clock(target.decoder.device)
    return (clock.timed(lambda: _read(target, sampler, context, width).tolist()),)


@torch.inference_mode()
def plain_steps(target: Filler, sampler: Sampler, context: int) -> tuple[Span, ...]:
    """Successive steps of one token, each chosen and read by the host before the next one begins."""
    target.reach(context)
    clock = Clock(target.decoder.device)
    return tuple(
        clock.timed(lambda at=at: _read(target, sampler, at, 1).tolist())
        for at in range(context, context + DECODE_PASSES)
    )


@torch.inference_mode()
def catch_up(draft: Filler, sampler: Sampler, context: int, between: Callable[[], object]) -> tuple[Span, ...]:
    """The draft's first pass of a round, over two tokens, right behind what `between` does: the target's own pass, whose
    weights have pushed those of the draft out of every cache."""
    draft.reach(context)
    clock = Clock(draft.decoder.device)
    between()
    return (clock.timed(lambda: _read(draft, sampler, context - 1, 2, rows=1)),)


@torch.inference_mode()
def further(draft: Filler, sampler: Sampler, context: int, between: Callable[[], object]) -> tuple[Span, ...]:
    """The draft's further passes of a round, over one token each, behind its first one.

    On a processor each is timed apart; on a device that works asynchronously, as in a round, they are timed together and
    shared out evenly.
    """
    draft.reach(context + 1)
    decoder, clock = draft.decoder, Clock(draft.decoder.device)
    between()
    _read(draft, sampler, context - 1, 2, rows=1)

    def one(at: int) -> None:
        _read(draft, sampler, at, 1)

    places = range(context + 1, context + 1 + DRAFT_PASSES)
    if decoder.device.type == "cpu":
        return tuple(clock.timed(lambda at=at: one(at)) for at in places)
    whole = clock.timed(lambda: [one(at) for at in places])
    return (Span(whole.wall / DRAFT_PASSES, whole.thread and whole.thread / DRAFT_PASSES, _shared(whole)),)


def _shared(whole: Span) -> float | None:
    return None if whole.device is None else whole.device / DRAFT_PASSES


def _read(filler: Filler, sampler: Sampler, first: int, count: int, rows: int | None = None) -> torch.Tensor:
    """The tokens chosen from the last `rows` rows (all where None) of a pass, on the device."""
    logits = filler.read(first, count)
    logits = logits if rows is None else logits[:, -rows:]
    history = filler.tokens[:, : first + 1]
    if sampler.greedy:
        return sampler.likeliest(history, logits)
    return sampler.draw(sampler.probabilities(history, logits), None)

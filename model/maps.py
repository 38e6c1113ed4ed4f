"""Maps: the best draft length over contexts and streams, and how far beyond plain decoding it is there.

Cells lie side by side in one call, since a cost prices any mix of lengths and contexts at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from .cost import RoundCost, Rounds, WholeRounds


@dataclass(frozen=True)
class DraftRounds:
    """What rounds of one drafter yield: `tokens` (R, L) of a round at `draft_tokens` (L,), rising from 0, and the share
    `offered` (L,) of rounds that draft anything; entry 0 of R is the point estimate. `reply_factor` as in what_if.WhatIf."""

    draft_tokens: np.ndarray
    tokens: np.ndarray
    offered: np.ndarray
    reply_factor: float = 1.0


@dataclass(frozen=True)
class LengthMap:
    """Over `streams` (B,) and `contexts` (C,): the fastest drafting length, its speed and plain decoding's, of each stream.

    `best` (B, C) is a draft length from 1 on, also where plain decoding is faster; `speed_up` (R, B, C) over plain decoding
    of the same replicate. `doubtful` (B, C): what the cell rests on is an extrapolation not to be trusted.
    """

    streams: tuple[int, ...]
    contexts: np.ndarray
    best: np.ndarray
    tokens_per_second: np.ndarray
    plain_tokens_per_second: np.ndarray
    speed_up: np.ndarray
    doubtful: np.ndarray


def best_lengths(rounds: DraftRounds, cost: RoundCost, contexts: np.ndarray, streams: tuple[int, ...]) -> LengthMap:
    """The map of one drafter over `contexts` (C,) and `streams` (B,): each request behind its own context.

    Lengths whose cost can be trusted come before those that are extrapolated, as in forecast.LengthForecast. In rounds of
    several streams all of them draft or none does: exact for models, heads and one stream, an approximation where an n-gram
    drafter has no offer for some. Raises ValueError where no length drafts.
    """
    if rounds.draft_tokens.size < 2 or rounds.draft_tokens[0] != 0:
        raise ValueError("a map compares plain decoding (0) with draft lengths")
    rows = [_row(rounds, cost, contexts, n) for n in streams]
    best, speed, plain, speed_up, doubtful = (np.stack(column, axis=-2) for column in zip(*rows))
    return LengthMap(streams, contexts, best, speed, plain, speed_up, doubtful)


def _row(rounds: DraftRounds, cost: RoundCost, contexts: np.ndarray, streams: int) -> tuple[np.ndarray, ...]:
    """best, tokens/s, plain tokens/s (C,), speed-up (R, C) and doubtful (C,) of a number of streams."""
    cells = contexts.size, rounds.draft_tokens.size
    drafted = np.tile(rounds.draft_tokens, contexts.size)
    found = cost.lookup(Rounds.of(drafted, np.repeat(contexts, cells[1]), streams=streams))
    seconds = found.seconds.reshape(-1, *cells)
    doubtful = found.doubtful.reshape(cells)
    plain = seconds[..., :1]
    mean = rounds.offered * seconds + (1 - rounds.offered) * plain
    whole = isinstance(cost, WholeRounds)
    took = mean * rounds.reply_factor if whole else mean + (rounds.reply_factor - 1) * plain
    speed = rounds.tokens[:, None, :] / took
    trusted = ~doubtful[:, 1:] & ~doubtful[:, :1]
    among = np.where(trusted.any(axis=-1, keepdims=True), trusted, True)
    place = 1 + np.where(among, speed[0, :, 1:], -np.inf).argmax(axis=-1)
    column = np.arange(contexts.size)
    return (
        rounds.draft_tokens[place],
        speed[0, column, place],
        speed[0, :, 0],
        speed[:, column, place] / speed[:, :, 0],
        doubtful[column, place] | doubtful[:, 0],
    )


def pays_up_to(pays: Sequence[bool], streams: tuple[int, ...]) -> int:
    """The largest of `streams`, rising, up to which drafting `pays` throughout; 0 for none."""
    return max((n for n, _ in takewhile(lambda item: item[1], zip(streams, pays))), default=0)

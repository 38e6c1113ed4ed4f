"""Forecast: round laws times round costs.

tokens/s = sum over prompts of tokens after the first / sum over prompts of E[seconds]
"""

from dataclasses import dataclass

import numpy as np

from .acceptance import RoundLaw
from .cost import RoundCost, Rounds

DOUBTFUL_SHARE = 0.1
"""A forecast is doubtful where more than this share of its seconds, or of its rounds, is an extrapolation not to be trusted:
seconds alone would hide a round whose extrapolated time is far too short."""


@dataclass(frozen=True)
class Reply:
    """One prompt's reply under one setting: tokens cached before decoding, and the law of its rounds."""

    prompt_tokens: int
    law: RoundLaw


@dataclass(frozen=True)
class WorkloadForecast:
    """A setting on a workload. `tokens_per_second` (R,), of each stream: entry 0 is the forecast, the others are its
    replicates."""

    tokens_per_second: np.ndarray
    tokens_per_round: float
    accepted_per_round: float
    drafted_per_round: float
    round_seconds: float
    mean_context: float
    rounds: float
    doubtful_share: float = 0.0
    """Share of the seconds whose cost is an extrapolation not to be trusted."""
    remedy: str = ""
    """What to measure for it."""
    streams: int = 1

    @property
    def aggregate_tokens_per_second(self) -> np.ndarray:
        """(R,) of all streams together."""
        return self.tokens_per_second * self.streams


def forecast_workload(
    cost: RoundCost, replies: tuple[Reply, ...], weights: np.ndarray, factor: np.ndarray, streams: int = 1
) -> WorkloadForecast:
    """Speed over `replies` (P,), counted `weights` (R, P) times each, round seconds multiplied by `factor` (R,).

    Row 0 of `weights` and of the costs is the point estimate; the other rows are replicates. `streams` requests run side
    by side, in rounds that all of them share.
    """
    laws = [reply.law if cost.minds_acceptance else reply.law.by_drafted() for reply in replies]
    drafted, passes, accepted, count = (
        np.concatenate([getattr(law, name) for law in laws]) for name in ("drafted", "passes", "accepted", "weight")
    )
    context = np.concatenate([reply.prompt_tokens + law.position - 1 for reply, law in zip(replies, laws)])
    owner = np.repeat(np.arange(len(laws)), [law.weight.size for law in laws])
    found = cost.lookup(Rounds.of(drafted, context, passes, accepted, streams))
    by_prompt = (found.seconds * count) @ (owner[:, None] == np.arange(len(laws)))
    point = found.seconds.reshape(-1, count.size)[0] * count
    seconds = np.sum(weights * by_prompt, axis=-1) * factor
    tokens = weights @ np.array([reply.law.tokens for reply in replies])
    rounds, taken = float(count.sum()), float(count @ accepted)
    return WorkloadForecast(
        tokens_per_second=tokens / seconds,
        tokens_per_round=1 + taken / rounds,
        accepted_per_round=taken / rounds,
        drafted_per_round=float(count @ drafted) / rounds,
        round_seconds=float(seconds[0] / rounds),
        mean_context=float(count @ context) / rounds,
        rounds=rounds,
        doubtful_share=float(max(of[found.doubtful].sum() / of.sum() for of in (point, count))),
        remedy=found.remedy,
        streams=streams,
    )


@dataclass(frozen=True)
class LengthForecast:
    """Rounds of full drafts, away from a reply's end, over `draft_tokens` (G,) rising from 0; all arrays (..., G).

    `seconds` of a round, `tokens` emitted in one; `doubtful` (G,) where the cost is an extrapolation.
    """

    draft_tokens: np.ndarray
    tokens: np.ndarray
    seconds: np.ndarray
    doubtful: np.ndarray
    streams: int = 1

    @property
    def tokens_per_second(self) -> np.ndarray:
        """(..., G) of each stream."""
        return self.tokens / self.seconds

    @property
    def speed_up(self) -> np.ndarray:
        """(..., G) over the plain step, entry 0: accepted length over draft and verification time, in plain steps."""
        return self.tokens_per_second / self.tokens_per_second[..., :1]

    @property
    def best(self) -> int:
        """Draft tokens of the fastest length whose cost can be trusted, by the point estimate (entry 0 of replicates)."""
        speed = np.where(self.doubtful, -np.inf, self.tokens_per_second)
        return int(self.draft_tokens[speed.reshape(-1, speed.shape[-1])[0].argmax()])

    @property
    def ceiling(self) -> np.ndarray:
        """Tokens/s (..., G) of each stream if every drafted token were accepted."""
        return (self.draft_tokens + 1) / self.seconds

    @property
    def break_even_accepted(self) -> np.ndarray:
        """Accepted tokens a round (..., G) at which drafting equals plain decoding."""
        return self.seconds / self.seconds[..., :1] - 1

    @property
    def needed_survival(self) -> np.ndarray:
        """Chance (..., G - 1) with which the last token of lengths 1.. must be accepted to pay for its own seconds.

        S_g > (T(g) - T(g')) / (g - g') x tokens(g') / T(g'), g' the length before (derived: d/dg of tokens / T = 0).
        """
        marginal = np.diff(self.seconds, axis=-1) / np.diff(self.draft_tokens)
        return marginal * self.tokens_per_second[..., :-1]

    @property
    def gained_tokens(self) -> np.ndarray:
        """Tokens a round (..., G - 1) that each drafted token from one length to the next adds: what is held against
        needed_survival."""
        return np.diff(self.tokens, axis=-1) / np.diff(self.draft_tokens)


def forecast_lengths(
    survival: np.ndarray, cost: RoundCost, draft_tokens: np.ndarray, context: float, streams: int = 1
) -> LengthForecast:
    """Forecast over `draft_tokens` (G,), 0 first, from `survival` (J,) = S_1..S_J and a cost.

    Raises ValueError where the survival ends before the longest length, or the lengths do not rise from 0.
    """
    if draft_tokens[0] != 0 or (np.diff(draft_tokens) <= 0).any():
        raise ValueError(f"draft tokens must rise from 0, the plain step: {draft_tokens.tolist()}")
    if survival.size < draft_tokens[-1]:
        raise ValueError(f"survival is known for {survival.size} tokens, {draft_tokens[-1]} are asked for")
    tokens = np.concatenate([[1.0], 1 + np.cumsum(survival)])[draft_tokens]
    found = cost.lookup(Rounds.of(draft_tokens, context, streams=streams))
    return LengthForecast(draft_tokens, tokens, found.seconds, found.doubtful, streams)


@dataclass(frozen=True)
class StreamsForecast:
    """One forecast over draft lengths for each number of streams, rising."""

    by_streams: tuple[LengthForecast, ...]

    @property
    def pays_up_to(self) -> int:
        """The largest number of streams up to which some draft length beats plain decoding throughout; 0 for none."""
        last = 0
        for found in self.by_streams:
            if found.best == 0:
                break
            last = found.streams
        return last


def forecast_streams(
    survival: np.ndarray, cost: RoundCost, draft_tokens: np.ndarray, context: float, streams: tuple[int, ...]
) -> StreamsForecast:
    """forecast_lengths for each of `streams` (rising), each request behind its own `context`."""
    return StreamsForecast(tuple(forecast_lengths(survival, cost, draft_tokens, context, b) for b in streams))


def perfect_acceptance(cost: RoundCost, draft_tokens: int, context: float) -> np.ndarray:
    """Tokens/s (R,) if every draft were full and accepted: (g + 1) / T(g). An upper bound for the draft length."""
    return (draft_tokens + 1) / cost.lookup(Rounds.of(draft_tokens, context)).seconds[..., 0]


def break_even_accepted(round_seconds: float, plain_seconds: float) -> float:
    """Accepted tokens a round at which a setting equals plain decoding: round cost / plain step - 1."""
    return round_seconds / plain_seconds - 1


def reply_seconds(prefill_seconds: float, reply_tokens: int, tokens_per_second: float) -> float:
    """Seconds from request to the end of a reply: prefill, which gives the first token, then the others at the decode
    speed. Speculation with a draft model prefills twice: count both. Raises ValueError for an empty reply."""
    if reply_tokens < 1:
        raise ValueError("a reply has at least one token")
    return prefill_seconds + (reply_tokens - 1) / tokens_per_second

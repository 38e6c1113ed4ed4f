"""Forecast: round laws times round costs.

tokens/s = sum over prompts of tokens after the first / sum over prompts of E[seconds]
"""

from dataclasses import dataclass

import numpy as np

from .acceptance import RoundLaw
from .cost import RoundCost


@dataclass(frozen=True)
class Reply:
    """One prompt's reply under one setting: tokens cached before decoding, and the law of its rounds."""

    prompt_tokens: int
    law: RoundLaw


@dataclass(frozen=True)
class WorkloadForecast:
    """A setting on a workload. `tokens_per_second` (R,): entry 0 is the forecast, the others are its replicates."""

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


def forecast_workload(
    cost: RoundCost, replies: tuple[Reply, ...], weights: np.ndarray, factor: np.ndarray
) -> WorkloadForecast:
    """Speed over `replies` (P,), counted `weights` (R, P) times each, round seconds multiplied by `factor` (R,).

    Row 0 of `weights` and of the costs is the point estimate; the other rows are replicates.
    """
    laws = [reply.law.by_drafted() for reply in replies]
    drafted = np.concatenate([law.drafted for law in laws])
    contexts = [reply.prompt_tokens + law.position - 1 for reply, law in zip(replies, laws)]
    count, context = np.concatenate([law.weight for law in laws]), np.concatenate(contexts)
    owner = np.repeat(np.arange(len(laws)), [law.weight.size for law in laws])
    found = cost.lookup(drafted, context)
    by_prompt = (found.seconds * count) @ (owner[:, None] == np.arange(len(laws)))
    seconds = np.sum(weights * by_prompt, axis=-1) * factor
    tokens = weights @ np.array([reply.law.tokens for reply in replies])
    rounds = float(count.sum())
    accepted = sum(reply.law.accepted_total for reply in replies)
    return WorkloadForecast(
        tokens_per_second=tokens / seconds,
        tokens_per_round=1 + accepted / rounds,
        accepted_per_round=accepted / rounds,
        drafted_per_round=float(count @ drafted) / rounds,
        round_seconds=float(seconds[0] / rounds),
        mean_context=float(count @ context) / rounds,
        rounds=rounds,
        doubtful_share=float((found.seconds[0] * count)[found.doubtful].sum() / by_prompt[0].sum()),
        remedy=found.remedy,
    )


def perfect_acceptance(cost: RoundCost, draft_tokens: int, context: float) -> np.ndarray:
    """Tokens/s (R,) if every draft were full and accepted: (g + 1) / T(g). An upper bound for the draft length."""
    return (draft_tokens + 1) / cost.lookup(np.array([draft_tokens]), np.array([context])).seconds[..., 0]


def break_even_accepted(round_seconds: float, plain_seconds: float) -> float:
    """Accepted tokens a round at which a setting equals plain decoding: round cost / plain step - 1."""
    return round_seconds / plain_seconds - 1

"""Simulate: replies drawn round by round, to see how far they spread and how streams share their rounds.

A forecast gives the mean. A short reply is a dozen rounds, so that luck alone moves its speed by tens of per cent, and
the best of a few replies is far from what every day gives.
"""

from dataclasses import dataclass

import numpy as np

from .cost import RoundCost, Rounds
from .survival import BetaGeometric, hazards


@dataclass(frozen=True)
class SimulatedReplies:
    """N replies of `tokens` decoded tokens each, one stream. By reply (N,): `seconds` of decoding, `rounds`, `drafted`
    and `accepted` tokens. `doubtful_share` of all seconds is extrapolated, `remedy` what to measure for it."""

    tokens: int
    seconds: np.ndarray
    rounds: np.ndarray
    drafted: np.ndarray
    accepted: np.ndarray
    doubtful_share: float
    remedy: str = ""

    @property
    def tokens_per_second(self) -> np.ndarray:
        """(N,) of each reply, without prefill."""
        return self.tokens / self.seconds

    @property
    def mean_tokens_per_second(self) -> float:
        """All tokens over all seconds: what a forecast estimates."""
        return self.tokens / float(self.seconds.mean())

    @property
    def everyday(self) -> float:
        """Median tokens/s of a reply."""
        return float(np.median(self.tokens_per_second))

    @property
    def low(self) -> float:
        """Tokens/s that 5 % of replies do not reach."""
        return float(np.quantile(self.tokens_per_second, 0.05))

    @property
    def high(self) -> float:
        """Tokens/s that 5 % of replies exceed."""
        return float(np.quantile(self.tokens_per_second, 0.95))

    def peak(self, replies: int) -> float:
        """Expected tokens/s of the fastest of `replies`: who quotes the best run quotes this.

        Derived: of the sorted speeds x_1..x_N the largest of k draws is x_i with chance (i/N)^k - ((i-1)/N)^k.
        """
        rank = np.arange(self.seconds.size + 1) / self.seconds.size
        return float(np.sort(self.tokens_per_second) @ np.diff(rank**replies))


@dataclass(frozen=True)
class SimulatedStreams:
    """R runs of B streams that share their rounds. `tokens` (B,) decoded by each; by run and stream (R, B): `seconds`
    until it is done, its `rounds`, `drafted` and `accepted` tokens. Doubt as in SimulatedReplies."""

    tokens: np.ndarray
    seconds: np.ndarray
    rounds: np.ndarray
    drafted: np.ndarray
    accepted: np.ndarray
    doubtful_share: float
    remedy: str = ""

    @property
    def tokens_per_second(self) -> np.ndarray:
        """(R, B) of each stream, until it is done."""
        return self.tokens / self.seconds

    @property
    def aggregate_tokens_per_second(self) -> np.ndarray:
        """(R,) of all streams together, until the last is done: what the run gave, idle places included."""
        return self.tokens.sum() / self.seconds.max(axis=1)


def survival_of_replies(law: BetaGeometric, replies: int, depth: int, seed: int) -> np.ndarray:
    """S_1..S_depth (replies, depth) of replies that differ: each has one rate of acceptance, drawn from Beta(a, b).

    Over replies their mean is law.survival, but here the rate persists through the whole reply (derived). The seed may
    be that of simulate_replies: the draws are others.
    """
    rate = np.random.default_rng([seed, 1]).beta(law.a, law.b, replies)
    return rate[:, None] ** np.arange(1, depth + 1)


def simulate_replies(
    survival: np.ndarray,
    cost: RoundCost,
    draft_tokens: int,
    prompt_tokens: int,
    tokens: int,
    replies: int,
    seed: int,
    log_sd: float = 0.0,
) -> SimulatedReplies:
    """`replies` of `tokens` decoded tokens (those after the first) behind `prompt_tokens` cached ones, one stream.

    `survival`: S_1.. of all replies (J,) or of each (replies, J); behind J the last hazard holds. Rounds are those of
    acceptance.replay_survival, their end included. With `log_sd` all seconds of a reply are multiplied by one
    log-normal factor of mean 1: the state of the machine at that time. Raises ValueError for a survival that is empty,
    rises or leaves [0, 1], or fewer than one token or reply.
    """
    curves = np.asarray(survival, float)
    if curves.ndim == 2 and curves.shape[0] != replies:
        raise ValueError(f"survival is given for {curves.shape[0]} replies, {replies} are asked for")
    hazard = np.broadcast_to(_hazards(curves, draft_tokens), (replies, draft_tokens))[:, None]
    rng = np.random.default_rng(seed)
    found = _in_step(hazard, cost, np.array([prompt_tokens]), np.array([tokens]), rng)
    factor = np.exp(log_sd * rng.standard_normal(replies) - log_sd**2 / 2)
    counts = (found.rounds[:, 0], found.drafted[:, 0], found.accepted[:, 0])
    return SimulatedReplies(tokens, found.seconds[:, 0] * factor, *counts, found.doubtful_share, found.remedy)


def simulate_streams(
    survival: np.ndarray,
    cost: RoundCost,
    draft_tokens: int,
    prompt_tokens: np.ndarray,
    tokens: np.ndarray,
    runs: int,
    seed: int,
) -> SimulatedStreams:
    """`runs` of B streams in step: `survival` (B, J) each, `tokens` (B,) to decode behind `prompt_tokens` (B,).

    All streams draft, then one pass verifies their drafts; who is done leaves and nobody comes. A round is priced as
    that of as many equal streams, with their mean draft length (between the two whole lengths next to it) and mean
    context. That is exact while all draft alike and cost is linear in context; it differs where some are about to end.
    Raises ValueError for a survival that is empty, rises or leaves [0, 1], shapes that differ, fewer than one token or
    run, and for several streams with a cost that depends on what is accepted (the replay after a rejection).
    """
    curves, ends, prompts = np.asarray(survival, float), np.asarray(tokens), np.asarray(prompt_tokens)
    if curves.ndim != 2 or not curves.shape[:1] == ends.shape == prompts.shape:
        raise ValueError(
            f"survival {curves.shape}, tokens {ends.shape} and prompts {prompts.shape} must be one a stream"
        )
    if cost.minds_acceptance and ends.size > 1:
        raise ValueError(
            "what a batch replays after rejections is not known: simulate one stream, or copies of the state"
        )
    hazard = np.broadcast_to(_hazards(curves, draft_tokens), (runs, ends.size, draft_tokens))
    return _in_step(hazard, cost, prompts, ends, np.random.default_rng(seed))


def _hazards(survival: np.ndarray, draft_tokens: int) -> np.ndarray:
    """Hazards (..., draft_tokens) of S_1..S_J (..., J), the last one held."""
    if not survival.size or not (survival.min() >= 0 and survival.max() <= 1) or (np.diff(survival) > 1e-12).any():
        raise ValueError("survival falls from 1 at most to 0 at least, and has one position or more")
    depth = np.minimum(np.arange(draft_tokens), survival.shape[-1] - 1)
    return np.apply_along_axis(hazards, -1, survival)[..., depth]


def _in_step(
    hazard: np.ndarray, cost: RoundCost, prompt_tokens: np.ndarray, tokens: np.ndarray, rng: np.random.Generator
) -> SimulatedStreams:
    """Runs of streams with `hazard` (R, B, g), all runs at once, until every stream has its `tokens` (B,)."""
    runs, streams, length = hazard.shape
    if runs < 1 or tokens.min() < 1:
        raise ValueError("a simulation needs one run and one token at least")
    emitted, rounds, drafted, accepted = (np.zeros((runs, streams), int) for _ in range(4))
    clock, doubtful, seconds, remedies = np.zeros(runs), np.zeros(runs), np.zeros((runs, streams)), []
    while (active := emitted < tokens).any():
        asked = np.where(active, np.minimum(length, tokens - emitted - 1), 0)
        agreed = np.cumprod(rng.random(hazard.shape) < hazard, axis=-1).sum(axis=-1)
        taken = np.minimum(agreed, asked)
        spent = _shared_round(cost, asked, taken, prompt_tokens + emitted, active)
        clock += spent.seconds
        doubtful += spent.doubtful_seconds
        remedies += spent.remedies
        emitted += np.where(active, taken + 1, 0)
        rounds += active
        drafted += asked
        accepted += taken
        seconds = np.where(active, clock[:, None], seconds)
    share = float(doubtful.sum() / clock.sum())
    return SimulatedStreams(tokens, seconds, rounds, drafted, accepted, share, "; ".join(dict.fromkeys(remedies)))


@dataclass(frozen=True)
class _Spent:
    """Seconds (R,) of a round of each run, those of them that are extrapolated, and what to measure for these."""

    seconds: np.ndarray
    doubtful_seconds: np.ndarray
    remedies: list[str]


def _shared_round(
    cost: RoundCost, drafted: np.ndarray, accepted: np.ndarray, context: np.ndarray, active: np.ndarray
) -> _Spent:
    """One round of the `active` streams (R, B) of each run, as that of equal streams; nothing where none is."""
    count = active.sum(axis=1)
    spent = _Spent(np.zeros(count.size), np.zeros(count.size), [])
    for streams in np.unique(count[count > 0]):
        runs = np.flatnonzero(count == streams)
        length, taken, place = (
            np.where(active, of, 0)[runs].sum(axis=1) / streams for of in (drafted, accepted, context)
        )
        above, whole = np.modf(length)
        for drafts, part in ((whole, 1 - above), (whole + 1, above)):
            some = np.flatnonzero(part)
            if some.size:
                rounds = Rounds.of(drafts[some].astype(int), place[some], accepted=taken[some], streams=int(streams))
                found = cost.lookup(rounds)
                seconds = part[some] * found.seconds.reshape(-1, some.size)[0]
                spent.seconds[runs[some]] += seconds
                spent.doubtful_seconds[runs[some]] += seconds * found.doubtful
                spent.remedies.extend([found.remedy] if found.remedy else [])
    return spent

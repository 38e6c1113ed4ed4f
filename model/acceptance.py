"""Acceptance: from where a drafter agrees with a reply to the rounds that a draft length makes of it.

The round law is the currency: expected rounds by (drafted, accepted), and where in the reply they start. A target's reply
of N + 1 tokens has N states t = 1..N (the first token comes from prefill); `match[t - 1]` tells whether the draft, having
seen t tokens, proposes token t + 1. One draft run over the reply therefore gives the rounds of every draft length.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

UNKNOWN = -1


@dataclass(frozen=True)
class RoundLaw:
    """Expected rounds of one reply, by (drafted, accepted): arrays of shape (K,).

    `weight` is the expected number of rounds, `position` the mean number of reply tokens there when such a round starts.
    A round emits accepted + 1 tokens; `drafted` 0 is a plain step.
    """

    drafted: np.ndarray
    accepted: np.ndarray
    weight: np.ndarray
    position: np.ndarray

    @property
    def rounds(self) -> float:
        return float(self.weight.sum())

    @property
    def tokens(self) -> float:
        """Tokens emitted by all rounds: the reply's tokens after its first."""
        return float(self.weight @ (self.accepted + 1))

    @property
    def drafted_total(self) -> float:
        return float(self.weight @ self.drafted)

    @property
    def accepted_total(self) -> float:
        return float(self.weight @ self.accepted)

    @property
    def offer_rate(self) -> float:
        """Share of rounds in which something was drafted."""
        return float(self.weight[self.drafted > 0].sum() / max(self.rounds, 1e-12))

    def by_drafted(self) -> "RoundLaw":
        """The same rounds with `accepted` averaged out (a mean, no longer an integer): what cost needs."""
        levels, index = np.unique(self.drafted, return_inverse=True)
        weight = np.bincount(index, self.weight, levels.size)
        accepted = np.bincount(index, self.weight * self.accepted, levels.size) / weight
        position = np.bincount(index, self.weight * self.position, levels.size) / weight
        return RoundLaw(levels, accepted, weight, position)


def plain_law(tokens: int) -> RoundLaw:
    """The law of plain decoding: `tokens` rounds of one token."""
    kept = 1 if tokens else 0
    weight, position = np.full(kept, float(tokens)), np.full(kept, (tokens + 1) / 2)
    return RoundLaw(np.zeros(kept, int), np.zeros(kept, int), weight, position)


def law_from_rounds(drafted: Sequence[int], accepted: Sequence[int]) -> RoundLaw:
    """The empirical law of one reply's rounds, in the order in which they happened."""
    taken = np.asarray(accepted, int)
    starts = 1 + np.concatenate([[0], np.cumsum(taken + 1)[:-1]]) if taken.size else np.zeros(0)
    return _merged(np.asarray(drafted, int), taken, np.ones(taken.size), starts.astype(float))


def replay_matches(match: np.ndarray, draft_tokens: int) -> RoundLaw:
    """Exact law of a draft model over a reply (THEORY section 2: forward recursion over start positions).

    `match` (N,): 1 or 0 where known, a probability where it is not (the flags of a ratio test are such probabilities).
    The engine drafts min(draft_tokens, remaining - 1) tokens. Raises ValueError outside [0, 1].
    """
    weights = np.asarray(match, float)
    if weights.size and not (weights.min() >= 0 and weights.max() <= 1):
        raise ValueError("match must lie in [0, 1]: impute unknown positions first (acceptance.impute)")
    padded = np.concatenate([weights, np.zeros(draft_tokens)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, draft_tokens)[: weights.size] if draft_tokens else None
    return _forward(np.zeros((weights.size, 0)) if windows is None else windows)


def replay_survival(survival: np.ndarray, tokens: int, draft_tokens: int) -> RoundLaw:
    """Law of a reply of `tokens` decoded tokens when acceptance depends on the depth in the draft alone.

    `survival` (J,): S_1..S_J; past J the last hazard holds. S_j = a^j is Leviathan's i.i.d. case (arXiv 2211.17192).
    """
    known = np.concatenate([[1.0], np.asarray(survival, float)])
    hazards = np.divide(known[1:], known[:-1], out=np.zeros(known.size - 1), where=known[:-1] > 0)
    depth = np.minimum(np.arange(draft_tokens), hazards.size - 1)
    accept = hazards[depth] if hazards.size else np.zeros(draft_tokens)
    return _forward(np.broadcast_to(accept, (tokens, draft_tokens)))


def replay_ngram(
    offer: np.ndarray, run: np.ndarray, prompt_tokens: int, ngram_size: int, draft_tokens: int
) -> RoundLaw:
    """Exact law of llama.cpp's ngram-simple over a plain reply: `offer`, `run` (N,) as in a profile's MatchTrace.

    In state t (history of prompt_tokens + t - 1 tokens before the newest) it proposes min(draft_tokens, offer) tokens if
    the history is longer than ngram_size + draft_tokens + 1 and the proposal is not shorter than ngram_size.
    """
    states, drafted, accepted, starts = len(offer), [], [], []
    t = 1
    while t <= states:
        history, copy = prompt_tokens + t - 1, min(draft_tokens, int(offer[t - 1]))
        offered = copy if copy >= max(ngram_size, 1) and history > ngram_size + draft_tokens + 1 else 0
        offered = min(offered, states - t)
        taken = min(int(run[t - 1]), offered)
        drafted.append(offered)
        accepted.append(taken)
        starts.append(float(t))
        t += taken + 1
    return _merged(np.array(drafted, int), np.array(accepted, int), np.ones(len(drafted)), np.array(starts))


def survival_from_rounds(
    drafted: np.ndarray, accepted: np.ndarray, weight: np.ndarray | None = None, depth: int | None = None
) -> np.ndarray:
    """S_1..S_depth from rounds of unequal draft length (product-limit estimate, Kaplan and Meier 1958).

    A round that drafted fewer than j tokens and had all of them accepted says nothing of position j: it is censored,
    not a failure. Stops at the first position that no round reached. Empty where nothing was drafted.
    """
    drafted, accepted = np.asarray(drafted), np.asarray(accepted)
    weight = np.ones(drafted.size) if weight is None else np.asarray(weight, float)
    alive, survival = 1.0, []
    for j in range(1, (depth or int(drafted.max(initial=0))) + 1):
        at_risk = weight[(drafted >= j) & (accepted >= j - 1)].sum()
        if at_risk <= 0:
            break
        alive *= weight[(drafted >= j) & (accepted >= j)].sum() / at_risk
        survival.append(alive)
    return np.array(survival)


def impute(matches: Sequence[np.ndarray], prior_weight: float = 4.0, longest: int = 8) -> tuple[np.ndarray, ...]:
    """Probabilities for the positions marked -1, from the known ones of all replies together.

    Unknown positions are mostly those after a draft that was accepted whole, so they follow a streak: the estimate is
    P(match | ones since the last known zero), streaks from `longest` on pooled, drawn to the overall mean by
    `prior_weight` positions. Replies of which nothing is known get that mean (0 where no reply has any).
    """
    streaks = [_streaks(np.asarray(match), longest) for match in matches]
    known = [np.asarray(match) != UNKNOWN for match in matches]
    bits = np.concatenate([np.asarray(m, float)[k] for m, k in zip(matches, known)]) if matches else np.zeros(0)
    levels = np.concatenate([s[k] for s, k in zip(streaks, known)]) if matches else np.zeros(0, int)
    mean = float(bits.mean()) if bits.size else 0.0
    seen = np.bincount(levels, minlength=longest + 1)
    ones = np.bincount(levels, bits, minlength=longest + 1)
    hazard = (ones + prior_weight * mean) / (seen + prior_weight)
    return tuple(np.where(k, np.asarray(m, float), hazard[s]) for m, k, s in zip(matches, known, streaks))


def _streaks(match: np.ndarray, longest: int) -> np.ndarray:
    """Positions since the last known zero, at most `longest`; unknown positions do not end a streak."""
    index = np.arange(match.size)
    last_zero = np.maximum.accumulate(np.where(match == 0, index, -1)) if match.size else index
    before = np.concatenate([[-1], last_zero[:-1]]) if match.size else index
    return np.minimum(index - before - 1, longest).astype(int)


def _forward(accept: np.ndarray) -> RoundLaw:
    """The law from `accept` (N, g): chance that the j-th token drafted in state i + 1 is right, given the earlier ones."""
    states, length = accept.shape
    limit = np.minimum(length, np.arange(states)[::-1])
    possible = np.where(np.arange(length) < limit[:, None], accept, 0.0)
    survival = np.concatenate([np.ones((states, 1)), np.cumprod(possible, axis=1), np.zeros((states, 1))], axis=1)
    stops = survival[:, :-1] - survival[:, 1:]
    reach = np.zeros(states + length + 1)
    reach[:1] = 1.0
    for i in range(states):
        reach[i + 1 : i + length + 2] += reach[i] * stops[i]
    weight = reach[:states, None] * stops
    shape = (states, length + 1)
    position = np.broadcast_to(np.arange(1.0, states + 1)[:, None], shape)
    taken = np.broadcast_to(np.arange(length + 1), shape)
    return _merged(np.broadcast_to(limit[:, None], shape).ravel(), taken.ravel(), weight.ravel(), position.ravel())


def _merged(drafted: np.ndarray, accepted: np.ndarray, weight: np.ndarray, position: np.ndarray) -> RoundLaw:
    """One entry for each (drafted, accepted) that happens."""
    happens = weight > 0
    pairs = np.stack([drafted[happens], accepted[happens]], axis=1)
    if not pairs.size:
        return plain_law(0)
    kinds, index = np.unique(pairs, axis=0, return_inverse=True)
    index = index.ravel()
    total = np.bincount(index, weight[happens], len(kinds))
    place = np.bincount(index, (weight * position)[happens], len(kinds)) / total
    return RoundLaw(kinds[:, 0], kinds[:, 1], total, place)

"""Acceptance: from where a drafter agrees with a reply to the rounds that a draft length makes of it.

The round law is the currency: expected rounds by (drafted, accepted), and where in the reply they start. A target's reply
of N + 1 tokens has N states t = 1..N (the first token comes from prefill); `match[t - 1]` tells whether the draft, having
seen t tokens, proposes token t + 1. One draft run over the reply therefore gives the rounds of every draft length.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .survival import hazards

UNKNOWN = -1


@dataclass(frozen=True)
class RoundLaw:
    """Expected rounds of one reply, by (drafted, accepted): arrays of shape (K,).

    `weight` is the expected number of rounds, `position` the mean number of reply tokens there when such a round starts,
    `passes` the mean number of draft passes paid in it: as many as are drafted unless drafting stops early, when the pass
    that said so is paid too. A round emits accepted + 1 tokens; `drafted` 0 is a plain step (after `passes` in vain).
    """

    drafted: np.ndarray
    accepted: np.ndarray
    weight: np.ndarray
    position: np.ndarray
    passes: np.ndarray

    @property
    def rounds(self) -> float:
        """Rounds of the reply, plain steps included."""
        return float(self.weight.sum())

    @property
    def tokens(self) -> float:
        """Tokens emitted by all rounds: the reply's tokens after its first."""
        return float(self.weight @ (self.accepted + 1))

    @property
    def drafted_total(self) -> float:
        """Tokens drafted over the reply."""
        return float(self.weight @ self.drafted)

    @property
    def accepted_total(self) -> float:
        """Drafted tokens accepted over the reply, bonus tokens not counted."""
        return float(self.weight @ self.accepted)

    @property
    def passes_total(self) -> float:
        """Draft passes paid over the reply."""
        return float(self.weight @ self.passes)

    @property
    def offer_rate(self) -> float:
        """Share of rounds in which something was drafted."""
        return float(self.weight[self.drafted > 0].sum() / max(self.rounds, 1e-12))

    def by_drafted(self) -> "RoundLaw":
        """The same rounds with `accepted` averaged out (a mean, no longer an integer): what cost needs. Plain steps stay
        apart from rounds that drafted nothing after passes in vain."""
        levels, index = np.unique(self.drafted * 2 + (self.passes > 0), return_inverse=True)
        weight = np.bincount(index, self.weight, levels.size)
        accepted = np.bincount(index, self.weight * self.accepted, levels.size) / weight
        position = np.bincount(index, self.weight * self.position, levels.size) / weight
        passes = np.bincount(index, self.weight * self.passes, levels.size) / weight
        return RoundLaw(levels // 2, accepted, weight, position, passes)


def plain_law(tokens: int) -> RoundLaw:
    """The law of plain decoding: `tokens` rounds of one token."""
    kept = 1 if tokens else 0
    weight, position = np.full(kept, float(tokens)), np.full(kept, (tokens + 1) / 2)
    return RoundLaw(np.zeros(kept, int), np.zeros(kept, int), weight, position, np.zeros(kept))


def scaled(law: RoundLaw, share: float) -> RoundLaw:
    """The law with every round counted `share` times: its reply among others that stand for one together."""
    return law if share == 1 else replace(law, weight=law.weight * share)


def law_from_rounds(drafted: Sequence[int], accepted: Sequence[int]) -> RoundLaw:
    """The empirical law of one reply's rounds, in the order in which they happened."""
    taken = np.asarray(accepted, int)
    starts = 1 + np.concatenate([[0], np.cumsum(taken + 1)[:-1]]) if taken.size else np.zeros(0)
    return merged(np.asarray(drafted, int), taken, np.ones(taken.size), starts.astype(float))


def replay_matches(match: np.ndarray, draft_tokens: int) -> RoundLaw:
    """Exact law of a draft model over a reply (derived: forward recursion over start positions).

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
    known = hazards(survival)
    depth = np.minimum(np.arange(draft_tokens), known.size - 1)
    accept = known[depth] if known.size else np.zeros(draft_tokens)
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
    return merged(np.array(drafted, int), np.array(accepted, int), np.ones(len(drafted)), np.array(starts))


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
    weight = start_chances(stops)[:, None] * stops
    shape = (states, length + 1)
    position = np.broadcast_to(np.arange(1.0, states + 1)[:, None], shape)
    taken = np.broadcast_to(np.arange(length + 1), shape)
    return merged(np.broadcast_to(limit[:, None], shape).ravel(), taken.ravel(), weight.ravel(), position.ravel())


def start_chances(stops: np.ndarray) -> np.ndarray:
    """Chance (N,) that a round starts in each state, the first for certain; `stops` (N, g + 1): chance that a round from
    there accepts 0..g tokens. A round that accepts a moves on by a + 1 (derived).
    """
    states, kinds = stops.shape
    reach = np.zeros(states + kinds)
    reach[:1] = 1.0
    for i in range(states):
        reach[i + 1 : i + kinds + 1] += reach[i] * stops[i]
    return reach[:states]


def merged(
    drafted: np.ndarray,
    accepted: np.ndarray,
    weight: np.ndarray,
    position: np.ndarray,
    passes: np.ndarray | None = None,
) -> RoundLaw:
    """The law of rounds (K,) as given one by one or in parts: one entry for each (drafted, accepted) that happens, and
    one more for rounds that drafted nothing after passes in vain.

    Without `passes` every drafted token cost one draft pass and no pass was paid in vain.
    """
    passes = drafted if passes is None else passes
    happens = weight > 0
    if not happens.any():
        return plain_law(0)
    base = int(accepted.max()) + 1
    codes = (drafted * base + accepted)[happens] * 2 + (passes > 0)[happens]
    kinds, index = np.unique(codes, return_inverse=True)
    total = np.bincount(index, weight[happens], kinds.size)
    place = np.bincount(index, (weight * position)[happens], kinds.size) / total
    paid = np.bincount(index, (weight * passes)[happens], kinds.size) / total
    kinds = kinds // 2
    return RoundLaw(kinds // base, kinds % base, total, place, paid)

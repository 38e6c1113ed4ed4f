"""Acceptance rules: what an engine's rule makes of the same target and draft distributions.

p and q are the distributions after temperature and truncation, as the engine's samplers see them. Before the target's
token is known a rule has an acceptance; once a token y ~ p is emitted it has a weight, the chance that y came from an
accepted draft token. Weights of a text that the target wrote replay to its rounds (acceptance.replay_matches).
"""

from enum import Enum

import numpy as np


class Rule(Enum):
    """How a drafted token is accepted.

    RATIO_TEST: drafted d ~ q, accepted with min(1, p(d) / q(d)) (Leviathan et al., arXiv 2211.17192; Chen et al.,
    arXiv 2302.01318). ARGMAX_COMPARE: d is q's most likely token and must equal the target's sample (llama.cpp; a ratio
    test against a one-hot q is the same law). SAMPLED_COMPARE: d ~ q and must equal the target's sample. GREEDY: both
    take their most likely token.
    """

    RATIO_TEST = "ratio test"
    ARGMAX_COMPARE = "argmax compare"
    SAMPLED_COMPARE = "sampled compare"
    GREEDY = "greedy"


def acceptance(rule: Rule, target: np.ndarray, draft: np.ndarray) -> np.ndarray:
    """Chance (...) that a drafted token is accepted, from p = `target` and q = `draft` (..., V) each.

    Ratio test: sum min(p, q) = 1 - TV(p, q) (arXiv 2211.17192, theorem 3.5). Argmax compare: p(argmax q). Sampled
    compare: sum p q. Greedy: 1[argmax p = argmax q]. Raises ValueError where a distribution is none (negative entries,
    sum away from 1 by more than 1e-6) or the shapes differ.
    """
    p, q = _distributions(target, draft)
    if rule is Rule.RATIO_TEST:
        return np.minimum(p, q).sum(axis=-1)
    if rule is Rule.SAMPLED_COMPARE:
        return (p * q).sum(axis=-1)
    if rule is Rule.ARGMAX_COMPARE:
        return _at(p, q.argmax(axis=-1))
    return (p.argmax(axis=-1) == q.argmax(axis=-1)).astype(float)


def weights(rule: Rule, target: np.ndarray, draft: np.ndarray, emitted: np.ndarray) -> np.ndarray:
    """Chance (...) that the emitted token y (...) came from an accepted draft token; p, q (..., V) as in `acceptance`.

    Ratio test: min(1, q(y) / p(y)), since y is emitted with p(y) and by acceptance with min(p(y), q(y)). Sampled
    compare: q(y). Argmax compare and greedy: 1[y = argmax q]. Derived: the mean over y ~ p is `acceptance`. Raises
    ValueError as `acceptance` does, where p(y) = 0, and under GREEDY where y is not a most likely token of p.
    """
    p, q = _distributions(target, draft)
    y = np.asarray(emitted)
    if y.shape != p.shape[:-1]:
        raise ValueError(f"emitted has shape {y.shape}, its distributions have {p.shape[:-1]}")
    if y.size and not (y.min() >= 0 and y.max() < p.shape[-1]):
        raise ValueError(f"emitted tokens must lie in 0..{p.shape[-1] - 1}")
    chance = _at(p, y)
    if not (chance > 0).all():
        raise ValueError(
            "the target cannot have emitted a token of probability 0: check the sampler of its distributions"
        )
    if rule is Rule.GREEDY and not (chance == p.max(axis=-1)).all():
        raise ValueError("a greedy target emits its most likely token: this text was sampled")
    if rule is Rule.RATIO_TEST:
        return np.minimum(1.0, _at(q, y) / chance)
    if rule is Rule.SAMPLED_COMPARE:
        return _at(q, y)
    return (y == q.argmax(axis=-1)).astype(float)


def _at(distribution: np.ndarray, token: np.ndarray) -> np.ndarray:
    """Probabilities (...) of `token` (...)."""
    return np.take_along_axis(distribution, token[..., None], axis=-1)[..., 0]


def _distributions(target: np.ndarray, draft: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both as float64; raises ValueError where one is no distribution."""
    p, q = np.asarray(target, float), np.asarray(draft, float)
    if p.shape != q.shape or p.ndim == 0:
        raise ValueError(f"target {p.shape} and draft {q.shape} must be distributions over the same vocabulary")
    for name, one in (("target", p), ("draft", q)):
        if not (one >= 0).all() or not (np.abs(one.sum(axis=-1) - 1) <= 1e-6).all():
            raise ValueError(f"{name} is no distribution: entries must not be negative and must sum to 1")
    return p, q

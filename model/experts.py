"""Experts: how many distinct routed experts the tokens of one pass touch, hence which share of them is read.

With U distinct experts of E touched, a pass reads U / E of the bytes of all routed experts.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class RoutedExperts:
    """Routed experts of all layers: `experts` a layer, `per_token` active, `size_bytes` of all experts together.

    `correlation` is 0 for independent tokens and 1 where neighbours share all their experts (see `fit_correlation`).
    Raises ValueError where per_token is not in 1..experts, correlation not in [0, 1], or size_bytes is negative.
    """

    experts: int
    per_token: int
    size_bytes: float
    correlation: float = 0.0

    def __post_init__(self) -> None:
        _check(self.experts, self.per_token)
        _check_correlation(self.correlation)
        if not self.size_bytes >= 0:
            raise ValueError(f"experts cannot take {self.size_bytes} bytes")

    def bytes_read(self, tokens: float | np.ndarray, streams: int | np.ndarray = 1) -> np.ndarray:
        """Bytes (...) that a pass over `tokens` (...) of `streams` (...) reads: size_bytes x U / experts."""
        touched = distinct_experts(self.experts, self.per_token, tokens, self.correlation, streams)
        return self.size_bytes * touched / self.experts


def effective_tokens(
    tokens: float | np.ndarray, correlation: float, streams: int | np.ndarray = 1
) -> float | np.ndarray:
    """Independent tokens (...) that touch as many experts as `tokens` (...) of which neighbours in a stream share some.

    n_eff = B + (n - B)(1 - rho) for B streams: the first token of each is new, every further one counts 1 - rho
    (derived; one stream: 1 + (n - 1)(1 - rho)). Raises ValueError where tokens < streams, streams < 1 or rho is outside
    [0, 1].
    """
    _check_correlation(correlation)
    if np.any(np.asarray(streams) < 1) or np.any(np.asarray(tokens) < streams):
        raise ValueError("a pass has at least one stream and at least one token of each")
    return streams + (tokens - streams) * (1 - correlation)


def distinct_experts(
    experts: int,
    per_token: int,
    tokens: float | np.ndarray,
    correlation: float = 0.0,
    streams: int | np.ndarray = 1,
) -> np.ndarray:
    """Expected distinct experts U (...) of a layer under uniform routing, for `tokens` (...) of `streams` (...).

    U(n) = E (1 - (1 - K/E)^n), exact for independent tokens (MoESD, arXiv 2505.19645); with n_eff of `effective_tokens`
    for n where neighbours are alike. Raises ValueError where per_token is not in 1..experts, and as effective_tokens.
    """
    _check(experts, per_token)
    return experts * -np.expm1(effective_tokens(tokens, correlation, streams) * _log_missed(experts, per_token))


def distinct_by_popularity(chances: np.ndarray, tokens: float | np.ndarray) -> np.ndarray:
    """Expected distinct experts (...) where expert e is active for a token with probability `chances[e]` (E,).

    sum_e (1 - (1 - k_e)^n) for independent `tokens` (...); never more than under uniform routing with K = sum of the
    chances (derived: each term is concave in k_e). Raises ValueError outside [0, 1].
    """
    chances = np.asarray(chances, float)
    if not (np.all(chances >= 0) and np.all(chances <= 1)):
        raise ValueError("chances of experts lie in [0, 1]")
    return (1 - (1 - chances) ** np.asarray(tokens)[..., None]).sum(axis=-1)


def fit_correlation(experts: int, per_token: int, tokens: int, distinct: float) -> float:
    """The correlation rho in [0, 1] with which `tokens` of one stream touch `distinct` experts: the exact inverse.

    Derived: n_eff = ln(1 - U/E) / ln(1 - K/E), rho = 1 - (n_eff - 1) / (n - 1). Raises ValueError where tokens < 2 or all
    experts are active (nothing to fit), and where distinct is not between K and the count of independent tokens.
    """
    _check(experts, per_token)
    if tokens < 2 or per_token == experts:
        raise ValueError("correlation shows only in passes over two tokens or more, with some experts idle")
    most = float(distinct_experts(experts, per_token, tokens))
    slack = 1e-12 * experts
    if not per_token - slack <= distinct <= most + slack:
        raise ValueError(
            f"{tokens} tokens touch {per_token} experts (all alike) to {most:.2f} (independent), not {distinct:.2f}: "
            "more than independent means another routing than this"
        )
    alone = np.log1p(-distinct / experts) / _log_missed(experts, per_token)
    return float(np.clip(1 - (alone - 1) / (tokens - 1), 0.0, 1.0))


def _log_missed(experts: int, per_token: int) -> float:
    """ln of the chance that one token leaves an expert alone; -inf where all are active."""
    return float(np.log1p(-per_token / experts)) if per_token < experts else -np.inf


def _check(experts: int, per_token: int) -> None:
    if not 1 <= per_token <= experts:
        raise ValueError(f"{per_token} of {experts} experts a token: must be 1 to all of them")


def _check_correlation(correlation: float) -> None:
    if not 0 <= correlation <= 1:
        raise ValueError(f"a correlation of {correlation} is outside [0, 1]")

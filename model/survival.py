"""Survival: S_j, the chance that the first j drafted tokens are all accepted, from rounds, ladders and curves.

Arrays of survival are (J,): S_1..S_J, without S_0 = 1. The hazard of position j is S_j / S_(j-1): the chance that the
j-th token is accepted once those before it are.
"""

from dataclasses import dataclass

import numpy as np


def hazards(survival: np.ndarray) -> np.ndarray:
    """Hazards (J,) of S_1..S_J; 0 behind a position that nothing survives.

    A per-position acceptance among rounds that got so far (conditional) is a hazard, one among all rounds is S_j.
    """
    known = np.concatenate([[1.0], np.asarray(survival, float)])
    return np.divide(known[1:], known[:-1], out=np.zeros(known.size - 1), where=known[:-1] > 0)


def survival_from_hazards(hazard: np.ndarray) -> np.ndarray:
    """S_1..S_J (J,) of hazards (J,): their running product."""
    return np.cumprod(np.asarray(hazard, float))


def geometric_survival(rate: float, depth: int) -> np.ndarray:
    """S_1..S_depth = rate^j: acceptance independent of context and depth (arXiv 2211.17192, section 3.1)."""
    return float(rate) ** np.arange(1, depth + 1)


def tokens_per_round(survival: np.ndarray) -> float:
    """Tokens per round of full drafts of J tokens, bonus included: 1 + S_1 + ... + S_J (derived; no independence)."""
    return 1.0 + float(np.sum(survival))


def extended(survival: np.ndarray, depth: int, law: "BetaGeometric | None" = None) -> np.ndarray:
    """S_1..S_depth: `survival` (J,) as far as it goes, then the hazards of `law`, or without one the last hazard.

    Raises ValueError where there is nothing to extend.
    """
    known = np.asarray(survival, float)[:depth]
    if not known.size:
        raise ValueError("no position was seen: there is no survival to extend")
    hazard = np.full(depth, hazards(known)[-1]) if law is None else hazards(law.survival(depth))
    return survival_from_hazards(np.concatenate([hazards(known), hazard[known.size :]]))


def survival_from_rounds(
    drafted: np.ndarray, accepted: np.ndarray, weight: np.ndarray | None = None, depth: int | None = None
) -> np.ndarray:
    """S_1..S_depth from rounds (K,) of unequal draft length (product-limit estimate, Kaplan and Meier 1958).

    A round that drafted fewer than j tokens and had all of them accepted says nothing of position j: it is censored,
    not a failure. Unbiased only where the length of a draft does not depend on what would be accepted: not with early
    stop. Stops at the first position that no round reached. Empty where nothing was drafted.
    """
    at_risk, passed = _by_position(drafted, accepted, weight)
    reached = int(np.argmin(np.append(at_risk, 0.0) > 0))
    return survival_from_hazards(passed[:reached] / at_risk[:reached])[:depth]


def survival_from_ladder(
    draft_tokens: np.ndarray, tokens_per_round: np.ndarray, depth: int, error: float | np.ndarray = 0.005
) -> np.ndarray:
    """S_1..S_depth from published tokens per round (K,) at `draft_tokens` (K,) of full drafts, bonus included.

    Derived: the steadiest hazards that agree with the figures. Minimises sum (misfit / error)^2 + stiffness x
    sum (step of logit hazard)^2, so hazards lie in (0, 1) and S falls; `error` (each or (K,)) is half a unit of a
    figure's last digit. Nothing is tuned: the stiffness is the largest whose root mean square misfit is at most that of
    rounding, error / sqrt(3) (Morozov's discrepancy principle). Hence one figure gives Leviathan's constant rate, and
    behind the last figure the last hazard holds. Between far-apart figures it is an interpolation, not evidence. Raises
    ValueError where no survival curve has these figures: each must gain on the one before, by less a token.
    """
    lengths, figures = np.asarray(draft_tokens, int), np.asarray(tokens_per_round, float)
    if lengths.ndim != 1 or lengths.shape != figures.shape or not lengths.size or lengths.min() < 1:
        raise ValueError("a ladder has one figure for each number of draft tokens, from 1 on")
    sigma = np.broadcast_to(np.asarray(error, float), figures.shape) / np.sqrt(3)
    soft, stiff = -12.0, 12.0
    if not _ladder_fits(lengths, figures, sigma, soft):
        raise ValueError(f"no survival curve has tokens per round {figures} at {lengths}: give their true `error`")
    if _ladder_fits(lengths, figures, sigma, stiff):
        soft = stiff
    while stiff - soft > 0.05:
        middle = (soft + stiff) / 2
        soft, stiff = (middle, stiff) if _ladder_fits(lengths, figures, sigma, middle) else (soft, middle)
    return extended(_ladder_curve(lengths, figures, sigma, soft), depth)


@dataclass(frozen=True)
class BetaGeometric:
    """Acceptance that differs between contexts and persists within a round: rate ~ Beta(a, b) (derived).

    The hazard (a + j) / (a + b + j) after j accepted tokens rises with depth: drafts of one model. A head that loses
    accuracy with depth is not of this kind.
    """

    a: float
    b: float

    def survival(self, depth: int) -> np.ndarray:
        """S_1..S_depth: S_j = prod over i < j of (a + i) / (a + b + i)."""
        i = np.arange(depth)
        return np.cumprod((self.a + i) / (self.a + self.b + i))

    @property
    def unlimited_tokens_per_round(self) -> float:
        """Tokens per round of drafts without end: (a + b - 1) / (b - 1); infinite for b <= 1, where S_j ~ j^-b."""
        return (self.a + self.b - 1) / (self.b - 1) if self.b > 1 else np.inf


LARGEST_CONCENTRATION = 1e5
"""a + b at which a beta-geometric curve is a geometric one."""


def fit_beta_geometric(drafted: np.ndarray, accepted: np.ndarray, weight: np.ndarray | None = None) -> BetaGeometric:
    """Censored maximum likelihood from rounds (K,): position j is passed with its hazard, or not, once reached.

    For extrapolation where data end (`extended`), not in their place. Hazards that are level or fall with depth end at
    a + b = LARGEST_CONCENTRATION, a constant rate. Raises ValueError where a and b cannot be told apart: fewer than two
    positions seen, none accepted or none rejected.
    """
    from scipy.optimize import minimize

    at_risk, passed = _by_position(drafted, accepted, weight)
    failed = at_risk - passed
    if np.count_nonzero(at_risk) < 2 or passed.sum() <= 0 or failed.sum() <= 0:
        raise ValueError(
            "two positions, acceptances and rejections are needed: record rounds of 2 or more draft tokens"
        )
    i = np.arange(at_risk.size)

    def law(x: np.ndarray) -> BetaGeometric:
        concentration = np.exp(x[1])
        return BetaGeometric(float(concentration * _expit(x[0])), float(concentration * _expit(-x[0])))

    def misfit(x: np.ndarray) -> float:
        one = law(x)
        gained = passed @ np.log(one.a + i) + failed.sum() * np.log(one.b) - at_risk @ np.log(one.a + one.b + i)
        return -float(gained) / at_risk.sum()

    bounds = [(-12, 12), (-9, np.log(LARGEST_CONCENTRATION))]
    start = np.array([np.log(passed.sum() / failed.sum()), 1.0])
    return law(minimize(misfit, start, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-14, "gtol": 1e-9}).x)


def _by_position(drafted: np.ndarray, accepted: np.ndarray, weight: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Rounds that drafted position j with all before it accepted, and those which had it accepted too; (J,) each."""
    drafted, accepted = np.asarray(drafted, int), np.asarray(accepted, int)
    if not (accepted <= drafted).all():
        raise ValueError("a round cannot accept more than it drafted: leave the bonus token out")
    weight = np.ones(drafted.size) if weight is None else np.asarray(weight, float)
    depth = int(drafted.max(initial=0))
    ends = np.bincount(accepted, weight, depth + 1)
    passed = ends[::-1].cumsum()[::-1][1:]
    failed = np.bincount(accepted[accepted < drafted], weight[accepted < drafted], depth + 1)[:depth]
    return passed + failed, passed


def _ladder_fits(lengths: np.ndarray, figures: np.ndarray, sigma: np.ndarray, stiffness: float) -> bool:
    """Whether the curve of this (log) stiffness misses the figures by no more than rounding does."""
    miss = (_ladder(_ladder_curve(lengths, figures, sigma, stiffness), lengths) - figures) / sigma
    return bool(np.mean(miss**2) <= 1)


def _ladder_curve(lengths: np.ndarray, figures: np.ndarray, sigma: np.ndarray, stiffness: float) -> np.ndarray:
    """S_1 .. S_(longest length) that minimises misfit and steps at this (log) stiffness."""
    from scipy.optimize import least_squares

    def residuals(x: np.ndarray) -> np.ndarray:
        misfit = (_ladder(np.cumprod(_expit(x)), lengths) - figures) / sigma
        return np.concatenate([misfit, np.exp(stiffness / 2) * np.diff(x)])

    return np.cumprod(_expit(least_squares(residuals, np.zeros(lengths.max()), method="lm").x))


def _ladder(survival: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Tokens per round (K,) at `lengths` (K,)."""
    return 1 + np.cumsum(survival)[lengths - 1]


def _expit(x: np.ndarray) -> np.ndarray:
    """1 / (1 + e^-x), for |x| of any size."""
    return np.exp(-np.logaddexp(0.0, -x))

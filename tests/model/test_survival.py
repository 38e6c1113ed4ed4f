"""Survival: unbiased from censored rounds, recovered from published ladders, extended where data end."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import poch, psi

from specgauge.model import survival
from specgauge.model.survival import BetaGeometric

HAZARDS = st.lists(st.floats(0.01, 1), min_size=1, max_size=16)


@given(HAZARDS)
def test_conditional_and_unconditional_acceptance_go_both_ways(hazard):
    curve = survival.survival_from_hazards(np.array(hazard))
    assert survival.hazards(curve) == pytest.approx(hazard)


def test_behind_a_position_that_nothing_survives_the_hazard_is_zero():
    assert survival.hazards(np.array([0.5, 0.0, 0.0])).tolist() == [0.5, 0.0, 0.0]


@given(st.floats(0.01, 0.99), st.integers(1, 16))
def test_independent_acceptance_sums_to_leviathans_tokens(rate, depth):
    """Equation 1 of arXiv 2211.17192."""
    tokens = survival.tokens_per_round(survival.geometric_survival(rate, depth))
    assert tokens == pytest.approx((1 - rate ** (depth + 1)) / (1 - rate))


def censored_rounds(hazard: np.ndarray, rounds: int, rng) -> tuple[np.ndarray, np.ndarray]:
    """Drafted and accepted of rounds that an engine cuts at lengths that know nothing of acceptance."""
    run = np.cumprod(rng.random((rounds, hazard.size)) < hazard, axis=1).sum(axis=1)
    drafted = rng.integers(0, hazard.size + 1, rounds)
    return drafted, np.minimum(run, drafted)


def test_survival_of_censored_rounds_is_unbiased():
    """Over 2,000 samples of 120 rounds the mean is the truth, though few rounds reach the last position."""
    rng = np.random.default_rng(2)
    hazard = np.array([0.85, 0.8, 0.9, 0.75])
    found, naive = [], []
    for _ in range(2000):
        drafted, accepted = censored_rounds(hazard, 120, rng)
        found.append(survival.survival_from_rounds(drafted, accepted, depth=4))
        naive.append([(accepted[drafted > 0] >= j).mean() for j in range(1, 5)])
    assert all(one.size == 4 for one in found)
    error = np.mean(found, axis=0) - np.cumprod(hazard)
    standard_error = np.std(found, axis=0) / np.sqrt(len(found))
    assert (np.abs(error) < 3.5 * standard_error).all() and (standard_error < 0.003).all()
    assert np.mean(naive, axis=0)[3] < 0.5 * np.cumprod(hazard)[3]


def test_weighted_rounds_count_as_often_as_they_weigh():
    drafted, accepted, weight = np.array([3, 3, 2, 1]), np.array([3, 1, 0, 1]), np.array([2, 1, 3, 4])
    plain = survival.survival_from_rounds(np.repeat(drafted, weight), np.repeat(accepted, weight))
    assert survival.survival_from_rounds(drafted, accepted, weight.astype(float)) == pytest.approx(plain)


def test_survival_stops_where_nothing_was_seen():
    assert survival.survival_from_rounds(np.array([2, 2]), np.array([0, 1]), depth=5).tolist() == [0.5, 0.0]
    assert survival.survival_from_rounds(np.array([3, 3]), np.array([0, 0])).tolist() == [0.0]
    assert survival.survival_from_rounds(np.array([0, 0]), np.array([0, 0])).size == 0
    assert survival.survival_from_rounds(np.array([]), np.array([])).size == 0


def test_the_bonus_token_is_not_accepted():
    with pytest.raises(ValueError, match="bonus"):
        survival.survival_from_rounds(np.array([4]), np.array([5]))


# Tokens per round at 1, 2, ... draft tokens of the MTP head of Qwen3.8-27B, and half a unit of the figures' last digit.
# RTX 3090: thc1006/qwen3.8-speculative-decoding-rtx3090, phase "nmax" (CC0 1.0).
# RTX 5090: sudoingX/qwen38-mtp, pull request 47 (Apache-2.0), published as acceptance rates of three digits.
RTX_3090 = np.array([1.78, 2.32, 2.67, 2.89, 3.05, 3.16, 3.24, 3.31])
RTX_3090_ERROR = np.full(8, 0.005)
RTX_5090 = np.array([1.883, 2.6, 3.157, 3.572, 3.925, 4.192])
RTX_5090_ERROR = 0.0005 * np.arange(1, 7)


def ladder_again(figures: np.ndarray, error: np.ndarray, rows: list[int]) -> np.ndarray:
    """All figures, from those at `rows` draft tokens."""
    seen = np.array(rows) - 1
    curve = survival.survival_from_ladder(np.array(rows), figures[seen], figures.size, error[seen])
    return np.array([survival.tokens_per_round(curve[:g]) for g in range(1, figures.size + 1)])


@pytest.mark.parametrize(
    ("figures", "error", "rows", "worst"),
    [
        (RTX_3090, RTX_3090_ERROR, [1, 3, 7, 8], 0.004),
        (RTX_3090, RTX_3090_ERROR, [2, 5, 8], 0.008),
        (RTX_3090, RTX_3090_ERROR, [1, 4, 8], 0.008),
        (RTX_3090, RTX_3090_ERROR, [1, 8], 0.025),
        (RTX_3090, RTX_3090_ERROR, [1, 2, 3, 4, 5], 0.015),
        (RTX_5090, RTX_5090_ERROR, [1, 3, 6], 0.008),
        (RTX_5090, RTX_5090_ERROR, [1, 6], 0.02),
    ],
)
def test_blind_rows_of_published_ladders_come_back(figures, error, rows, worst):
    assert ladder_again(figures, error, rows) == pytest.approx(figures, rel=worst)


@settings(deadline=None)
@given(st.lists(st.floats(0.3, 0.95), min_size=3, max_size=8))
def test_a_ladder_of_any_hazards_is_met_within_its_rounding(hazard):
    truth = 1 + np.cumsum(np.cumprod(hazard))
    lengths = np.arange(1, truth.size + 1)
    curve = survival.survival_from_ladder(lengths, np.round(truth, 2), truth.size)
    missed = 1 + np.cumsum(curve) - np.round(truth, 2)
    assert np.sqrt(np.mean(missed**2)) <= 0.005 / np.sqrt(3) * 1.001
    assert (np.diff(curve) < 0).all() and 0 < curve[-1] and curve[0] < 1


def test_one_figure_gives_leviathans_rate_and_the_last_hazard_holds():
    one = survival.survival_from_ladder(np.array([4]), np.array([1 + sum(0.7**j for j in range(1, 5))]), 8)
    assert one == pytest.approx(0.7 ** np.arange(1, 9), abs=1e-6)
    longer = survival.survival_from_ladder(np.array([1, 2, 3]), RTX_3090[:3], 6)
    assert survival.hazards(longer)[3:] == pytest.approx(survival.hazards(longer)[2])


@pytest.mark.parametrize(
    ("lengths", "figures", "message"),
    [
        ([1, 2], [1.2, 1.9], "no survival curve"),
        ([1, 2], [1.5, 1.4], "no survival curve"),
        ([1], [2.3], "no survival curve"),
        ([0, 2], [1.0, 2.3], "from 1 on"),
        ([], [], "from 1 on"),
        ([1, 2], [1.5], "from 1 on"),
    ],
)
def test_ladders_of_no_survival_curve_are_refused(lengths, figures, message):
    with pytest.raises(ValueError, match=message):
        survival.survival_from_ladder(np.array(lengths), np.array(figures), 4)


@given(st.floats(0.1, 20), st.floats(0.1, 20).filter(lambda b: abs(b - 1) > 0.05), st.integers(1, 16))
def test_beta_geometric_tokens_are_the_closed_form(a, b, depth):
    """Closed form of the mixture: (a + b - 1) / (b - 1) [1 - (a)_(g+1) / (a + b - 1)_(g+1)]."""
    if abs(a + b - 1) < 0.05:
        return
    closed = (a + b - 1) / (b - 1) * (1 - poch(a, depth + 1) / poch(a + b - 1, depth + 1))
    assert survival.tokens_per_round(BetaGeometric(a, b).survival(depth)) == pytest.approx(closed, rel=1e-6)


def test_beta_geometric_tokens_at_b_of_one_grow_like_a_logarithm():
    """S_j = a / (a + j), so tokens = a (psi(a + g + 1) - psi(a)), without bound."""
    tokens = [survival.tokens_per_round(BetaGeometric(2.0, 1.0).survival(g)) for g in (4, 16, 4096)]
    assert tokens == pytest.approx([2 * (psi(g + 3) - psi(2)) for g in (4, 16, 4096)])
    assert BetaGeometric(2.0, 1.0).unlimited_tokens_per_round == np.inf


def test_beta_geometric_survival_is_the_mean_over_its_rates():
    rate = np.random.default_rng(3).beta(2.0, 1.5, 400_000)
    means = [(rate**j).mean() for j in range(1, 9)]
    assert BetaGeometric(2.0, 1.5).survival(8) == pytest.approx(means, abs=0.003)
    assert BetaGeometric(2.0, 3.0).unlimited_tokens_per_round == pytest.approx(
        survival.tokens_per_round(BetaGeometric(2.0, 3.0).survival(20_000)), rel=1e-4
    )


def mixed_rounds(a: float, b: float, rounds: int, rng) -> tuple[np.ndarray, np.ndarray]:
    run = rng.geometric(1 - np.minimum(rng.beta(a, b, rounds), 1 - 1e-12)) - 1
    drafted = rng.integers(1, 9, rounds)
    return drafted, np.minimum(run, drafted)


@pytest.mark.parametrize(("a", "b"), [(2.0, 1.5), (1.2, 0.6), (6.0, 2.5)])
def test_beta_geometric_fit_recovers_the_truth(a, b):
    """Over 20 samples of 20,000 rounds: no bias beyond 3 standard errors, or 1 %, and each within 25 %."""
    rng = np.random.default_rng(4)
    fits = [survival.fit_beta_geometric(*mixed_rounds(a, b, 20_000, rng)) for _ in range(20)]
    found = np.array([[fit.a, fit.b] for fit in fits])
    standard_error = found.std(axis=0) / np.sqrt(len(fits))
    assert (np.abs(found.mean(axis=0) - [a, b]) < np.maximum(3 * standard_error, 0.01 * np.array([a, b]))).all()
    assert found == pytest.approx(np.broadcast_to([a, b], found.shape), rel=0.25)


def test_curves_go_on_by_a_fit_or_by_their_last_hazard():
    """Of rounds up to 8 tokens, the law reaches 16; the last hazard falls short of rising ones."""
    rng = np.random.default_rng(5)
    drafted, accepted = mixed_rounds(2.0, 1.5, 200_000, rng)
    known = survival.survival_from_rounds(drafted, accepted)
    truth = BetaGeometric(2.0, 1.5).survival(16)
    by_law = survival.extended(known, 16, survival.fit_beta_geometric(drafted, accepted))
    by_hazard = survival.extended(known, 16)
    assert by_law[:8] == pytest.approx(known) and by_law == pytest.approx(truth, abs=0.01)
    assert by_hazard[:8] == pytest.approx(known) and by_hazard[-1] < 0.8 * truth[-1]
    assert survival.extended(known, 3) == pytest.approx(known[:3])
    with pytest.raises(ValueError, match="no position"):
        survival.extended(np.zeros(0), 4)


def test_hazards_that_fall_end_at_a_constant_rate():
    """A head loses accuracy with depth: no beta mixture does, so the fit is the pooled rate."""
    rng = np.random.default_rng(6)
    drafted, accepted = censored_rounds(np.array([0.9, 0.8, 0.7, 0.6]), 20_000, rng)
    fit = survival.fit_beta_geometric(drafted, accepted)
    pooled = accepted.sum() / (accepted.sum() + (accepted < drafted).sum())
    assert fit.survival(4) == pytest.approx(pooled ** np.arange(1, 5), rel=1e-3)


@pytest.mark.parametrize(
    ("drafted", "accepted"), [([1, 1, 1], [0, 1, 1]), ([4, 4], [0, 0]), ([4, 4], [4, 4]), ([0, 0], [0, 0])]
)
def test_a_fit_that_cannot_be_told_apart_is_refused(drafted, accepted):
    with pytest.raises(ValueError, match="two positions"):
        survival.fit_beta_geometric(np.array(drafted), np.array(accepted))

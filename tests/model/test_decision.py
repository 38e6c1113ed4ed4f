"""Verdicts from replicates of known truth."""

import numpy as np
import pytest

from specgauge.model import decision


def arms(*speeds: float, noise: float = 0.01, seed: int = 5) -> np.ndarray:
    """Speeds with independent noise and a common one that must cancel in ratios."""
    rng = np.random.default_rng(seed)
    common = np.exp(0.2 * rng.standard_normal(400))
    drawn = np.array(speeds)[:, None] * np.exp(noise * rng.standard_normal((len(speeds), 400))) * common
    return np.concatenate([np.array(speeds)[:, None], drawn], axis=1)


def test_a_clear_winner_is_to_speculate():
    found = decision.decide(arms(50, 60, 80, 70), np.array([0, 1, 2, 3]))
    assert (found.verdict, found.chosen, found.best_plain, found.rival) == ("speculate", 2, 0, 3)
    assert found.over_plain.low > 1.5


def test_two_lengths_that_are_equal_are_a_tie_and_the_shorter_is_named():
    found = decision.decide(arms(50, 60, 79.5, 80), np.array([0, 1, 2, 3]))
    assert (found.verdict, found.chosen, found.rival) == ("tie", 2, 3)
    assert found.over_plain.low > 1


def test_plain_wins_where_no_draft_can_be_worthwhile():
    found = decision.decide(arms(50, 45, 30, 48), np.array([0, 2, 4, 0]))
    assert (found.verdict, found.chosen, found.rival) == ("do-not-speculate", 0, 1)


def test_plain_is_named_where_drafting_gains_next_to_nothing():
    found = decision.decide(arms(50, 50.2, noise=0.004), np.array([0, 2]))
    assert (found.verdict, found.chosen) == ("do-not-speculate", 0)


def test_plain_and_a_draft_that_might_win_are_a_tie():
    found = decision.decide(arms(50, 50.3, noise=0.05), np.array([0, 2]))
    assert (found.verdict, found.chosen) == ("tie", 0)


def test_a_faster_draft_within_noise_of_plain_is_a_tie():
    found = decision.decide(arms(50, 53, noise=0.05), np.array([0, 2]))
    assert (found.verdict, found.chosen, found.rival) == ("tie", 1, 0)


def test_plain_alone_needs_no_rival():
    found = decision.decide(arms(50), np.array([0]))
    assert (found.verdict, found.chosen, found.rival) == ("do-not-speculate", 0, 0)


def test_common_noise_does_not_blur_a_ratio():
    speeds = arms(50, 60)
    ratio = decision.ratio_interval(speeds[1], speeds[0], 0.95)
    assert ratio.value == pytest.approx(1.2)
    assert 1.15 < ratio.low < ratio.high < 1.25


def test_probabilities_of_being_best_add_up():
    found = decision.probability_best(arms(50, 60, 60.1, 40, noise=0.02))
    assert found.sum() == pytest.approx(1)
    assert found[2] > 0.3 and found[3] == 0


def test_more_rounds_are_needed_for_a_smaller_gap():
    near = decision.RatioInterval(1.01, 0.98, 1.04, 0.015)
    far = decision.RatioInterval(1.03, 0.99, 1.07, 0.02)
    assert decision.rounds_to_separate(near, 300) > decision.rounds_to_separate(far, 300) > 0
    assert decision.rounds_to_separate(decision.RatioInterval(1.5, 1.4, 1.6, 0.02), 300) == 0


def test_rounds_by_hand_and_none_where_round_times_alone_are_too_noisy():
    """Interval of +- 1.96 x 2 % around + 2 %: 2.84 times the rounds bring the noise to 1 / 1.96 of the gap."""
    ratio = decision.RatioInterval(float(np.exp(0.02)), 0.98, 1.06, 0.02)
    assert decision.rounds_to_separate(ratio, 100) == pytest.approx(100 * (1.96**2 - 1))
    cost = 0.006
    allowed = (0.02 / 1.96) ** 2 - cost**2
    assert decision.rounds_to_separate(ratio, 100, cost) == pytest.approx(100 * ((0.02**2 - cost**2) / allowed - 1))
    assert decision.rounds_to_separate(ratio, 100, 0.011) == float("inf")
    assert decision.repeats_to_separate(ratio, 0.011) == pytest.approx(2 * (0.011 * 1.96 / 0.02) ** 2)

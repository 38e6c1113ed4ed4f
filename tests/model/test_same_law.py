"""Two samples, one law or two: levels, power and known answers, against scipy and against simulation."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2_contingency, chisquare

from specgauge.model import same_law
from specgauge.model.same_law import LEAST_DRAWS, SHARES, Stratum, Verdict, fits

LAWS = (np.array([0.5, 0.3, 0.2]), np.array([0.7, 0.2, 0.05, 0.05]), np.array([0.4, 0.4, 0.1, 0.1]))


def compare(strata, dice, **asked) -> Verdict:
    """The verdict, which there is."""
    found = same_law.compare(strata, dice, **asked)
    assert found is not None
    return found


def drawn(dice, laws_b=LAWS, draws=100):
    """Strata whose arm a is drawn from LAWS and arm b from `laws_b`."""
    pairs = zip(LAWS, laws_b, strict=True)
    return [Stratum(dice.multinomial(draws, one), dice.multinomial(draws, two)) for one, two in pairs]


def pulled(share):
    """LAWS with a share of the draws moved to the likeliest token."""
    return [(1 - share) * law + share * (np.arange(law.size) == law.argmax()) for law in LAWS]


def test_equal_laws_are_called_different_as_often_as_the_level_says():
    found = [compare(drawn(np.random.default_rng(seed)), np.random.default_rng(0)).p_value for seed in range(150)]
    below = sum(p < 0.1 for p in found)
    assert 5 <= below <= 27  # binomial(150, 0.1), 99.8 %


def test_the_detectable_distance_is_found_about_as_often_as_promised():
    at = compare(drawn(np.random.default_rng(1)), np.random.default_rng(0), level=0.01, power=0.8)
    free = np.mean([1 - law.max() for law in LAWS])
    laws = pulled((at.detectable or 0.0) / free)
    found = [
        compare(drawn(np.random.default_rng(seed), laws), np.random.default_rng(0)).p_value for seed in range(2, 62)
    ]
    assert 0.6 <= np.mean([p < 0.01 for p in found]) <= 0.98


def test_between_two_tokens_it_is_the_chi_square_test_of_a_table():
    dice = np.random.default_rng(7)
    for share in (0.5, 0.55, 0.6):
        a, b = dice.multinomial(400, [0.5, 0.5]), dice.multinomial(400, [share, 1 - share])
        table: Any = chi2_contingency(np.stack([a, b]), correction=False)
        ours = compare([Stratum(a, b)], np.random.default_rng(0)).p_value
        assert ours == pytest.approx(table.pvalue, abs=0.06)


def test_a_difference_of_any_kind_is_seen_though_no_token_is_commoner():
    swapped = [law[::-1].copy() for law in LAWS]
    assert compare(drawn(np.random.default_rng(3), swapped), np.random.default_rng(0)).p_value < 0.001


def test_distance_is_total_variation():
    verdict = compare([Stratum(np.array([90, 10, 0]), np.array([60, 20, 20]))], np.random.default_rng(0))
    assert verdict.distance == pytest.approx(0.3)
    assert verdict.draws == 100


@pytest.mark.parametrize(
    "strata",
    [
        [],
        [Stratum(np.array([50, 0]), np.array([50, 0]))],
        [Stratum(np.array([LEAST_DRAWS - 1, 0]), np.array([50, 50]))],
        [Stratum(np.array([50, 50]), np.array([0, 0]))],
    ],
)
def test_what_cannot_be_compared_is_none(strata):
    assert same_law.compare(strata, np.random.default_rng(0)) is None


def test_so_few_draws_that_no_pull_is_found_say_so():
    few = Stratum(np.array([9, 1]), np.array([9, 1]))
    assert compare([few], np.random.default_rng(0), level=1e-9).detectable is None
    assert SHARES[-1] == 1.0


def test_counts_against_a_known_law_agree_with_pearsons_test():
    dice = np.random.default_rng(5)
    for share in (0.0, 0.1, 0.2):
        count = dice.multinomial(300, pulled(share)[0])
        expected = chisquare(count, 300 * LAWS[0]).pvalue
        assert fits([count], [LAWS[0]], np.random.default_rng(0)) == pytest.approx(expected, abs=0.03)


def test_a_few_tokens_past_the_cut_off_of_the_law_are_forgiven_and_many_are_not():
    law = np.array([0.6, 0.4, 0.0])
    assert fits([np.array([60, 39, 1])], [law], np.random.default_rng(0)) > 0.05
    assert fits([np.array([50, 30, 20])], [law], np.random.default_rng(0)) < 0.001

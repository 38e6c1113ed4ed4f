"""Distinct experts of a pass: against simulated routing, published counts and their own inverse."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgauge.model import experts
from specgauge.model.experts import RoutedExperts


def simulated(
    chances: np.ndarray, per_token: int, tokens: int, trials: int = 4000, seed: int = 7
) -> tuple[float, np.ndarray]:
    """(mean distinct experts, how often a token activates each): top `per_token` of noisy preferences, token by token."""
    rng = np.random.default_rng(seed)
    scores = np.log(chances) + rng.gumbel(size=(trials, tokens, chances.size))
    chosen = np.argsort(-scores, axis=-1)[..., :per_token]
    distinct = [len(set(trial.ravel().tolist())) for trial in chosen]
    return float(np.mean(distinct)), np.bincount(chosen.ravel(), minlength=chances.size) / (trials * tokens)


@pytest.mark.parametrize(("tokens", "distinct"), [(1, 8.0), (2, 15.8), (4, 30.5), (8, 57.4)])
def test_the_counts_of_256_experts_with_8_active_are_those_published(tokens, distinct):
    """MoESD (arXiv 2505.19645) gives the formula; figures to one decimal (two tokens: 8 + 8 x 248 / 256 = 15.75)."""
    assert experts.distinct_experts(256, 8, tokens) == pytest.approx(distinct, abs=0.0501)


@pytest.mark.parametrize(("count", "per_token", "tokens"), [(16, 2, 3), (32, 4, 5), (8, 1, 9)])
def test_uniform_routing_touches_as_many_as_simulated(count, per_token, tokens):
    found, _ = simulated(np.full(count, 1 / count), per_token, tokens)
    assert experts.distinct_experts(count, per_token, tokens) == pytest.approx(found, rel=0.01)


def test_popular_experts_touch_fewer_and_as_many_as_simulated():
    popularity = 1 / np.arange(1, 33)
    found, chances = simulated(popularity, 4, 6)
    expected = experts.distinct_by_popularity(chances, 6)
    assert expected == pytest.approx(found, rel=0.01)
    assert expected < 0.9 * experts.distinct_experts(32, 4, 6)


def test_equal_popularity_is_uniform_routing():
    widths = np.array([1, 2, 5])
    uniform = experts.distinct_experts(64, 4, widths)
    assert experts.distinct_by_popularity(np.full(64, 4 / 64), widths) == pytest.approx(uniform)


@pytest.mark.parametrize("chances", [[0.5, 1.1], [-0.1, 0.5], [np.nan]])
def test_chances_outside_their_range_are_refused(chances):
    with pytest.raises(ValueError, match="chances"):
        experts.distinct_by_popularity(np.array(chances), 2)


def test_one_token_and_all_tokens_alike_touch_the_active_ones():
    assert experts.distinct_experts(64, 4, 1, correlation=0.3) == pytest.approx(4)
    assert experts.distinct_experts(64, 4, 50, correlation=1.0) == pytest.approx(4)


def test_all_experts_active_are_all_touched():
    assert experts.distinct_experts(4, 4, np.array([1, 7]), 0.5) == pytest.approx([4, 4])


def test_streams_do_not_share_what_neighbours_share():
    """Two streams of four tokens touch what their first tokens and the unshared part of the others touch."""
    assert experts.effective_tokens(8, 0.5, streams=2) == pytest.approx(2 * experts.effective_tokens(4, 0.5))
    assert experts.distinct_experts(64, 4, 8, 1.0, streams=2) == pytest.approx(experts.distinct_experts(64, 4, 2))


@given(st.integers(2, 300), st.data(), st.integers(2, 40), st.floats(0, 1))
def test_the_correlation_of_a_measured_count_is_found_again(count, data, tokens, correlation):
    per_token = data.draw(st.integers(1, max(count // 4, 1)))
    distinct = float(experts.distinct_experts(count, per_token, tokens, correlation))
    if distinct < 0.999 * count:
        assert experts.fit_correlation(count, per_token, tokens, distinct) == pytest.approx(correlation, abs=1e-6)


def test_a_third_fewer_experts_at_four_tokens_is_a_correlation_of_about_0_45():
    """Cohere's blog (21 April 2026): 31 % fewer than independent, about 2.5 times one token's. It is quoted without the
    number of experts; 8 of 128 agrees with both figures."""
    independent = float(experts.distinct_experts(128, 8, 4))
    assert 0.69 * independent / 8 == pytest.approx(2.5, abs=0.05)
    assert experts.fit_correlation(128, 8, 4, 0.69 * independent) == pytest.approx(0.452, abs=0.001)
    assert experts.fit_correlation(256, 8, 4, 0.69 * float(experts.distinct_experts(256, 8, 4))) == pytest.approx(
        0.432, abs=0.001
    )


@pytest.mark.parametrize("distinct", [7.9, 30.6, float("nan")])
def test_a_count_that_no_correlation_gives_is_refused(distinct):
    with pytest.raises(ValueError, match="4 tokens touch 8 experts"):
        experts.fit_correlation(256, 8, 4, distinct)


@pytest.mark.parametrize(("per_token", "tokens"), [(8, 1), (256, 4)])
def test_a_correlation_that_cannot_show_is_refused(per_token, tokens):
    with pytest.raises(ValueError, match="shows only"):
        experts.fit_correlation(256, per_token, tokens, 8.0)


@pytest.mark.parametrize(
    "arguments", [(8, 0, 2), (8, 9, 2), (8, 2, 0), (8, 2, 2, -0.1), (8, 2, 2, 1.1), (8, 2, 3, 0.0, 4)]
)
def test_impossible_routing_is_refused(arguments):
    with pytest.raises(ValueError):
        experts.distinct_experts(*arguments)


def test_bytes_read_are_the_touched_share():
    routed = RoutedExperts(256, 8, 16e9)
    assert routed.bytes_read(np.array([1, 4])) == pytest.approx([16e9 * 8 / 256, 16e9 * 30.531 / 256], rel=1e-4)
    with pytest.raises(ValueError, match="bytes"):
        RoutedExperts(256, 8, -1.0)

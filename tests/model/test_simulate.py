"""Drawn replies and streams: in the mean the exact law's forecast, round by round an engine stepped by hand."""

import itertools
import random

import numpy as np
import pytest

from specgauge.model import acceptance, forecast, simulate
from specgauge.model.cost import Rollback, RoundOfParts
from specgauge.model.forecast import Reply
from specgauge.model.recipe import RECIPES
from specgauge.model.reported import alpha_from_tokens
from specgauge.model.steps import StepTable
from specgauge.model.survival import BetaGeometric, geometric_survival

WIDTHS = np.array([1, 2, 8, 9, 16, 17, 100])
CONTEXTS = np.array([0.0, 2000.0])
TARGET = StepTable(WIDTHS, CONTEXTS, 20e-3 + 1e-3 * WIDTHS + 6e-3 * (WIDTHS > 8) + np.array([[0.0], [10e-3]]))
DRAFT = StepTable(WIDTHS, CONTEXTS, 0.1 * TARGET.seconds)
COST = RoundOfParts(RECIPES["model"], TARGET, DRAFT)
FLAT = RoundOfParts(
    RECIPES["ngram"], StepTable(np.array([1, 2, 100]), np.zeros(1), 20e-3 + 1e-3 * np.array([[1, 2, 100]]), ())
)
"""A pass over n tokens takes 20 + n ms behind any context."""
SURVIVAL = np.array([0.8, 0.6, 0.5, 0.45, 0.3])


def expected_seconds(survival: np.ndarray, cost: RoundOfParts, draft_tokens: int, prompt: int, tokens: int) -> float:
    """Seconds of a reply by the exact law."""
    reply = Reply(prompt, acceptance.replay_survival(survival, tokens, draft_tokens))
    return tokens / float(forecast.forecast_workload(cost, (reply,), np.ones((1, 1)), np.ones(1)).tokens_per_second[0])


@pytest.mark.parametrize(("draft_tokens", "tokens"), [(1, 63), (4, 1), (4, 63), (7, 63), (9, 300)])
def test_the_mean_of_replies_is_the_forecast_of_the_exact_law(draft_tokens, tokens):
    found = simulate.simulate_replies(SURVIVAL, COST, draft_tokens, 500, tokens, 8000, seed=draft_tokens)
    expected = expected_seconds(SURVIVAL, COST, draft_tokens, 500, tokens)
    error = max(found.seconds.std() / np.sqrt(found.seconds.size), 1e-12)
    assert abs(found.seconds.mean() - expected) < 3.5 * error
    assert found.mean_tokens_per_second == pytest.approx(tokens / expected, rel=0.01)
    assert found.doubtful_share == 0 and found.remedy == ""


def test_plain_replies_take_the_seconds_of_their_steps_and_do_not_spread():
    found = simulate.simulate_replies(SURVIVAL, COST, 0, 100, 40, 50, seed=1)
    steps = [float(TARGET.at(1, 100.0 + t)[0]) for t in range(40)]
    assert found.seconds == pytest.approx(np.full(50, sum(steps)))
    assert found.low == pytest.approx(found.high) and (found.rounds == 40).all()


def test_rounds_account_for_every_token():
    found = simulate.simulate_replies(SURVIVAL, COST, 6, 100, 57, 500, seed=2)
    assert (found.accepted + found.rounds == 57).all()
    assert (found.accepted <= found.drafted).all() and (found.drafted <= 6 * found.rounds).all()
    law = acceptance.replay_survival(SURVIVAL, 57, 6)
    assert found.drafted.mean() == pytest.approx(law.drafted_total, rel=0.02)


def test_replies_that_differ_average_to_their_law_and_spread_further():
    """Each reply has its own rate; held against the exact law of each of these rates."""
    law, replies = BetaGeometric(6.0, 2.0), 4000
    curves = simulate.survival_of_replies(law, replies, 8, seed=3)
    error = curves.std(axis=0) / np.sqrt(replies)
    assert (np.abs(curves.mean(axis=0) - law.survival(8)) < 4 * error).all()
    found = simulate.simulate_replies(curves, COST, 5, 500, 63, replies, seed=4)
    rates = np.linspace(curves[:, 0].min(), curves[:, 0].max(), 60)
    by_rate = [expected_seconds(geometric_survival(rate, 5), COST, 5, 500, 63) for rate in rates]
    own = np.interp(curves[:, 0], rates, by_rate)
    luck = found.seconds - own
    assert abs(luck.mean()) < 4 * luck.std() / np.sqrt(replies)
    alike = simulate.simulate_replies(law.survival(8), COST, 5, 500, 63, replies, seed=4)
    assert found.high / found.low > 1.3 * alike.high / alike.low


def test_noise_multiplies_the_seconds_of_a_reply_with_a_mean_of_one():
    quiet = simulate.simulate_replies(SURVIVAL, COST, 4, 500, 63, 20_000, seed=5)
    noisy = simulate.simulate_replies(SURVIVAL, COST, 4, 500, 63, 20_000, seed=5, log_sd=0.1)
    factor = noisy.seconds / quiet.seconds
    assert np.log(factor).std() == pytest.approx(0.1, rel=0.03)
    assert abs(factor.mean() - 1) < 4 * factor.std() / np.sqrt(20_000)


def test_the_peak_is_the_expected_fastest_of_several_replies():
    found = simulate.simulate_replies(SURVIVAL, COST, 4, 500, 20, 6, seed=6)
    for count in (1, 2, 4):
        drawn = [max(one) for one in itertools.product(found.tokens_per_second, repeat=count)]
        assert found.peak(count) == pytest.approx(np.mean(drawn))


def test_luck_alone_spreads_short_replies_as_far_as_the_case_tells():
    """120 to 159 tokens/s is a ratio of 1.33, at 78.4 % of 6 draft tokens. The best of five is not everyday."""
    survival = geometric_survival(alpha_from_tokens(1 + 6 * 0.784, 6), 6)
    short, long = (simulate.simulate_replies(survival, COST, 6, 500, n, 5000, seed=7) for n in (63, 511))
    assert short.high / short.low > 159 / 120 > 1.2 > long.high / long.low
    assert short.low < short.everyday < short.peak(5) < short.peak(20)
    assert short.peak(5) > 1.06 * short.everyday


def test_a_replay_after_a_rejection_is_paid_only_where_one_happens():
    cost = RoundOfParts((*RECIPES["ngram"], "rollback"), TARGET, rollback=Rollback(150e6, 30e9, replays=True))
    found = simulate.simulate_replies(SURVIVAL, cost, 4, 500, 63, 8000, seed=8)
    expected = expected_seconds(SURVIVAL, cost, 4, 500, 63)
    assert abs(found.seconds.mean() - expected) < 3.5 * found.seconds.std() / np.sqrt(8000)
    with pytest.raises(ValueError, match="simulate one stream"):
        simulate.simulate_streams(np.tile(SURVIVAL, (2, 1)), cost, 4, np.zeros(2), np.full(2, 20), 1, seed=1)


def test_extrapolated_rounds_are_accounted_with_what_to_measure():
    found = simulate.simulate_replies(np.ones(4), COST, 120, 500, 400, 10, seed=9)
    assert 0.5 < found.doubtful_share < 1 and "a pass over 121 tokens" in found.remedy


def test_streams_that_all_accept_run_at_the_forecast_of_their_lengths():
    """Ten full rounds of every stream, behind no context that grows."""
    found = simulate.simulate_streams(np.ones((8, 4)), FLAT, 4, np.full(8, 300), np.full(8, 50), 3, seed=10)
    expected = forecast.forecast_lengths(np.ones(4), FLAT, np.array([0, 4]), 300, 8).tokens_per_second[1]
    assert found.tokens_per_second == pytest.approx(np.full((3, 8), expected))
    assert found.aggregate_tokens_per_second == pytest.approx(np.full(3, 8 * expected))
    assert expected == pytest.approx(5 / 60e-3)


def test_equal_streams_run_at_the_forecast_of_their_lengths_in_the_mean():
    """Before the first is done every round is one of eight equal streams."""
    found = simulate.simulate_streams(
        np.tile(SURVIVAL, (8, 1)), FLAT, 4, np.full(8, 300), np.full(8, 1500), 30, seed=11
    )
    expected = forecast.forecast_lengths(SURVIVAL, FLAT, np.array([0, 4]), 300, 8).tokens_per_second[1]
    first = found.seconds.min(axis=1)
    of_rounds = found.rounds[np.arange(30), found.seconds.argmin(axis=1)] * (20e-3 + 8 * 5e-3)
    assert first == pytest.approx(of_rounds, rel=2e-3)
    speed = 1500 / found.rounds / (20e-3 + 8 * 5e-3)
    assert abs(speed.mean() - expected) < 4 * speed.std() / np.sqrt(speed.size) + 2e-3 * expected
    assert found.aggregate_tokens_per_second.mean() == pytest.approx(8 * expected, rel=0.06)


def test_a_single_stream_is_a_reply():
    found = simulate.simulate_streams(SURVIVAL[None], COST, 5, np.array([500]), np.array([63]), 8000, seed=12)
    expected = expected_seconds(SURVIVAL, COST, 5, 500, 63)
    assert abs(found.seconds.mean() - expected) < 3.5 * found.seconds.std() / np.sqrt(8000)


def one_run(rng: random.Random, survival, draft_tokens: int, tokens) -> tuple[list[float], list[int]]:
    """Seconds and rounds of streams stepped by hand at 20 ms a pass and 1 ms a token in it."""
    left, clock, done, rounds = list(tokens), 0.0, [0.0] * len(tokens), [0] * len(tokens)
    while any(left):
        busy = [i for i, n in enumerate(left) if n]
        drafts = {i: min(draft_tokens, left[i] - 1) for i in busy}
        clock += 20e-3 + 1e-3 * sum(n + 1 for n in drafts.values())
        for i in busy:
            level = rng.random()
            left[i] -= 1 + sum(level < survival[i][j] for j in range(drafts[i]))
            rounds[i] += 1
            if not left[i]:
                done[i] = clock
    return done, rounds


def test_unequal_streams_are_those_of_an_engine_stepped_by_hand():
    survival = np.array([[0.9, 0.85, 0.8], [0.5, 0.3, 0.1], [0.7, 0.2, 0.2]])
    tokens = np.array([60, 40, 25])
    found = simulate.simulate_streams(survival, FLAT, 3, np.zeros(3), tokens, 4000, seed=13)
    rng = random.Random(14)
    drawn = [one_run(rng, survival.tolist(), 3, tokens.tolist()) for _ in range(4000)]
    for got, expected in ((found.seconds, [one[0] for one in drawn]), (found.rounds, [one[1] for one in drawn])):
        error = np.sqrt((got.var(axis=0) + np.var(expected, axis=0)) / 4000)
        assert (np.abs(got.mean(axis=0) - np.mean(expected, axis=0)) < 4 * error).all()
    assert (found.accepted + found.rounds == tokens).all()
    assert found.aggregate_tokens_per_second == pytest.approx(125 / found.seconds.max(axis=1))


def test_streams_about_to_end_draft_less():
    """All is accepted, so that nothing is left to luck: last rounds of 3, 1 and 0 draft tokens beside full ones."""
    tokens = np.array([12, 10, 5, 16])
    found = simulate.simulate_streams(np.ones((4, 3)), FLAT, 3, np.zeros(4), tokens, 1, seed=16)
    seconds, rounds = one_run(random.Random(1), np.ones((4, 3)).tolist(), 3, tokens.tolist())
    assert found.seconds[0] == pytest.approx(seconds) and found.rounds[0].tolist() == rounds


def test_a_slow_stream_slows_the_others_by_shared_rounds_alone():
    """The others draw the same luck; the slow one outlasts them either way, so they share every round with it."""
    others = np.tile(SURVIVAL, (3, 1))
    prompt, tokens = np.zeros(4), np.array([60, 60, 60, 200])
    slow, slower = (
        simulate.simulate_streams(np.vstack([others, s]), FLAT, 4, prompt, tokens, 200, seed=15)
        for s in (0.5 * SURVIVAL, np.zeros(5))
    )
    assert (slow.rounds[:, :3] == slower.rounds[:, :3]).all()
    assert slow.seconds[:, :3] == pytest.approx(slower.seconds[:, :3])
    assert slower.seconds[:, 3].mean() > 1.2 * slow.seconds[:, 3].mean()
    alone = simulate.simulate_streams(others, FLAT, 4, prompt[:3], tokens[:3], 200, seed=15)
    assert (alone.seconds.mean(axis=0) < slow.seconds[:, :3].mean(axis=0)).all()


def test_the_same_seed_draws_the_same():
    first, again, other = (simulate.simulate_replies(SURVIVAL, COST, 4, 500, 63, 50, seed=s) for s in (1, 1, 2))
    assert (first.seconds == again.seconds).all() and (first.seconds != other.seconds).any()


def test_what_cannot_be_drawn_is_refused():
    for survival in (np.zeros(0), np.array([1.2]), np.array([0.4, 0.6])):
        with pytest.raises(ValueError, match="survival falls"):
            simulate.simulate_replies(survival, COST, 4, 500, 63, 10, seed=1)
    with pytest.raises(ValueError, match="for 3 replies, 10 are asked"):
        simulate.simulate_replies(np.full((3, 2), 0.5), COST, 4, 500, 63, 10, seed=1)
    with pytest.raises(ValueError, match="one token at least"):
        simulate.simulate_replies(SURVIVAL, COST, 4, 500, 0, 10, seed=1)
    with pytest.raises(ValueError, match="one a stream"):
        simulate.simulate_streams(np.ones((2, 3)), COST, 4, np.zeros(2), np.full(3, 10), 1, seed=1)

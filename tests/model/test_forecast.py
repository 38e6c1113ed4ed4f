"""Laws times costs, ceilings and break-even."""

import numpy as np
import pytest

from specgauge.model import acceptance, cost, forecast
from specgauge.model.cost import NO_OVERHEAD, RoundOfParts, StepTable
from specgauge.model.forecast import Reply
from specgauge.model.hardware import BandwidthCeiling

WIDTHS = np.arange(1, 10)
FLAT = StepTable(WIDTHS, np.array([0.0, 1000.0]), (10e-3 + 1e-3 * (WIDTHS - 1) + np.array([[0], [1e-2]]))[None])
NGRAM = RoundOfParts(cost.RECIPES["ngram"], FLAT, None, NO_OVERHEAD, np.ones(8))


def test_the_speed_is_tokens_over_the_seconds_of_every_round():
    match, prompt_tokens, draft_tokens = np.array([1, 1, 0, 1, 1, 1, 1, 0, 1, 0]), 50, 3
    law = acceptance.replay_matches(match, draft_tokens)
    found = forecast.forecast_workload(NGRAM, (Reply(prompt_tokens, law),), np.ones((1, 1)), np.ones(1))
    seconds, t = 0.0, 1
    while t <= match.size:
        drafted = min(draft_tokens, match.size - t)
        accepted = int(np.cumprod(match[t - 1 : t - 1 + drafted]).sum())
        seconds += float(FLAT.at(drafted + 1, prompt_tokens + t - 1)[0, 0])
        t += accepted + 1
    assert found.tokens_per_second[0] == pytest.approx(match.size / seconds)
    assert found.tokens_per_round == pytest.approx(match.size / law.rounds)
    assert found.round_seconds == pytest.approx(seconds / law.rounds)


def test_replies_are_summed_before_dividing_and_weights_count_prompts():
    replies = (Reply(10, acceptance.plain_law(10)), Reply(900, acceptance.plain_law(30)))
    weights = np.array([[1.0, 1.0], [2.0, 0.0]])
    table = StepTable(WIDTHS, FLAT.contexts, np.repeat(FLAT.seconds, 2, axis=0))
    plain = RoundOfParts(("verification",), table, None, NO_OVERHEAD, np.ones(1))
    found = forecast.forecast_workload(plain, replies, weights, np.array([1.0, 2.0])).tokens_per_second
    short, long = 10 * FLAT.at(1, 14.5)[0, 0], 30 * FLAT.at(1, 914.5)[0, 0]
    assert found == pytest.approx([40 / (short + long), 10 / short / 2])


def test_a_forecast_says_which_share_of_it_is_extrapolated():
    law = acceptance.replay_matches(np.ones(40), 12)
    found = forecast.forecast_workload(NGRAM, (Reply(10, law),), np.ones((1, 1)), np.ones(1))
    assert 0.5 < found.doubtful_share < 1
    assert "pass over 13 tokens" in found.remedy


def test_perfect_acceptance_bounds_and_break_even_balances():
    assert forecast.perfect_acceptance(NGRAM, 4, 0.0)[0] == pytest.approx(5 / 14e-3)
    extra = forecast.break_even_accepted(14e-3, 10e-3)
    assert (1 + extra) / 14e-3 == pytest.approx(1 / 10e-3)


def test_bandwidth_allows_one_reading_of_the_weights_a_step():
    ceiling = BandwidthCeiling(bytes_per_step=17e9, bytes_per_second=936e9)
    assert ceiling.tokens_per_second == pytest.approx(55.06, abs=0.01)
    assert ceiling.share(42.0) == pytest.approx(0.763, abs=0.001)

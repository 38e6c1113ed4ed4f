"""Laws times costs, ceilings and break-even."""

import numpy as np
import pytest

from specgauge.model import acceptance, forecast
from specgauge.model.cost import NO_OVERHEAD, RoundOfParts
from specgauge.model.forecast import Reply
from specgauge.model.hardware import BandwidthCeiling
from specgauge.model.recipe import RECIPES
from specgauge.model.steps import StepTable

WIDTHS = np.arange(1, 10)
FLAT = StepTable(WIDTHS, np.array([0.0, 1000.0]), (10e-3 + 1e-3 * (WIDTHS - 1) + np.array([[0], [1e-2]]))[None])
NGRAM = RoundOfParts(RECIPES["ngram"], FLAT, None, NO_OVERHEAD, np.ones(8))


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


DRAFTED = RoundOfParts(
    RECIPES["model"],
    StepTable(np.arange(1, 18), np.array([0.0, 1000.0]), np.array([[10e-3], [20e-3]]) + 0.5e-3 * np.arange(17)),
    StepTable(np.arange(1, 18), np.array([0.0, 1000.0]), np.array([[1e-3], [1e-3]]) + 0.0 * np.arange(17)),
)
SURVIVAL = 0.8 ** np.arange(1, 13)


def test_over_length_the_speed_is_one_and_the_survivals_over_the_round():
    found = forecast.forecast_lengths(SURVIVAL, DRAFTED, np.arange(0, 13), 0.0)
    assert found.tokens[3] == pytest.approx(1 + 0.8 + 0.64 + 0.512)
    assert found.seconds[3] == pytest.approx(3 * 1e-3 + 11.5e-3 + 1e-3)
    assert found.speed_up[0] == 1.0 and found.speed_up[3] == pytest.approx(found.tokens[3] * 10e-3 / found.seconds[3])
    assert found.ceiling[3] == pytest.approx(4 / found.seconds[3])
    assert found.break_even_accepted[3] == pytest.approx(0.55)


def test_the_best_length_is_where_a_further_token_no_longer_pays():
    found = forecast.forecast_lengths(SURVIVAL, DRAFTED, np.arange(0, 13), 0.0)
    pays = found.gained_tokens > found.needed_survival
    assert 2 < found.best < 12
    assert pays[: found.best].all() and not pays[found.best :].any()


def test_an_affine_round_gives_the_best_length_of_theorem_3_8():
    """t_v(g + 1) = T1 and a draft step of c: speed-up (1 - a^(g+1)) / ((1 - a)(g c + 1)) of arXiv 2211.17192."""
    rate, ratio, lengths = 0.8, 0.05, np.arange(0, 13)
    flat = StepTable(np.arange(1, 18), np.zeros(1), np.ones((1, 17)))
    draft = StepTable(np.arange(1, 18), np.zeros(1), np.full((1, 17), ratio))
    found = forecast.forecast_lengths(SURVIVAL, RoundOfParts(("draft", "verification"), flat, draft), lengths, 0.0)
    expected = (1 - rate ** (lengths + 1)) / ((1 - rate) * (lengths * ratio + 1))
    assert found.speed_up == pytest.approx(expected)
    assert found.best == lengths[expected.argmax()]


def test_what_lies_beyond_the_table_is_never_called_best():
    narrow = RoundOfParts(("verification",), StepTable(np.arange(1, 5), np.zeros(1), np.ones((1, 4))))
    found = forecast.forecast_lengths(np.full(8, 0.99), narrow, np.arange(0, 9), 0.0)
    assert found.doubtful.tolist() == [False] * 4 + [True] * 5
    assert found.best == 3


def test_speculation_stops_paying_where_streams_fill_the_pass():
    """A pass that is free to 16 tokens and linear beyond: the plain pass of n streams has no width to give away."""
    widths = np.arange(1, 257)
    seconds = np.maximum(10e-3, 0.625e-3 * widths)
    target = StepTable(widths, np.zeros(1), seconds[None], switches=())
    free = RoundOfParts(RECIPES["ngram"], target)
    found = forecast.forecast_streams(0.5 ** np.arange(1, 9), free, np.arange(0, 9), 0.0, tuple(range(1, 25)))
    best = [one.best for one in found.by_streams]
    assert best[0] == 8 and best[-1] == 0 and best == sorted(best, reverse=True)
    assert found.pays_up_to == best.index(0)
    plain_aggregate = found.by_streams[7].tokens_per_second[0] * 8
    assert plain_aggregate == pytest.approx(8 / 10e-3)


def test_streams_of_a_workload_are_priced_side_by_side():
    law = acceptance.plain_law(20)
    one, four = (
        forecast.forecast_workload(DRAFTED, (Reply(100, law),), np.ones((1, 1)), np.ones(1), streams=n) for n in (1, 4)
    )
    assert four.round_seconds > one.round_seconds
    assert four.aggregate_tokens_per_second[0] == pytest.approx(4 * four.tokens_per_second[0])
    assert four.aggregate_tokens_per_second[0] > 2 * one.tokens_per_second[0]


def test_draft_passes_paid_in_vain_cost_seconds():
    law = acceptance.RoundLaw(np.array([0]), np.array([0]), np.array([10.0]), np.array([1.0]), np.array([1.0]))
    vain = forecast.forecast_workload(DRAFTED, (Reply(1, law),), np.ones((1, 1)), np.ones(1))
    plain = forecast.forecast_workload(DRAFTED, (Reply(1, acceptance.plain_law(10)),), np.ones((1, 1)), np.ones(1))
    assert vain.round_seconds == pytest.approx(plain.round_seconds + 2e-3, rel=0.01)


def test_a_reply_takes_its_prefill_and_a_step_for_each_further_token():
    assert forecast.reply_seconds(0.5, 101, 50.0) == pytest.approx(2.5)
    with pytest.raises(ValueError):
        forecast.reply_seconds(0.5, 0, 50.0)


@pytest.mark.parametrize("lengths, survival", [([1, 2], [0.5, 0.3]), ([0, 2, 1], [0.5, 0.3]), ([0, 4], [0.5, 0.3])])
def test_lengths_start_at_the_plain_step_and_need_survival(lengths, survival):
    with pytest.raises(ValueError):
        forecast.forecast_lengths(np.array(survival), DRAFTED, np.array(lengths), 0.0)

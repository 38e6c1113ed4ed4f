"""Maps: the same speeds as a forecast of streams and lengths, cell by cell."""

import numpy as np
import pytest

from specgauge.model.cost import RoundOfParts, WholeRounds
from specgauge.model.forecast import forecast_streams
from specgauge.model.maps import DraftRounds, best_lengths, pays_up_to
from specgauge.model.steps import StepTable

SURVIVAL = 0.75 ** np.arange(1, 9)
LENGTHS = np.arange(9)
TOKENS = np.concatenate([[1.0], 1 + np.cumsum(SURVIVAL)])
CONTEXTS, STREAMS = np.array([200.0, 800.0, 5000.0]), (1, 2, 4, 8)


def table(widest: int) -> StepTable:
    widths = np.arange(1, widest + 1)
    row = 20e-3 + 1.5e-3 * (widths - 1)
    return StepTable(widths, np.array([100.0, 1000.0]), np.stack([row, row + 2e-3])[None], switches=())


def rounds(tokens: np.ndarray = TOKENS[None], offered: float = 1.0, factor: float = 1.0) -> DraftRounds:
    return DraftRounds(LENGTHS, tokens, np.array([0.0, *[offered] * 8]), factor)


@pytest.mark.parametrize("widest", [17, 128])
def test_each_cell_is_the_forecast_of_its_streams_and_context(widest: int):
    cost = RoundOfParts(("verification",), table(widest))
    found = best_lengths(rounds(), cost, CONTEXTS, STREAMS)
    for j, context in enumerate(CONTEXTS):
        for i, one in enumerate(forecast_streams(SURVIVAL, cost, LENGTHS, context, STREAMS).by_streams):
            place = found.best[i, j]
            assert place >= 1
            assert found.doubtful[i, j] == (one.doubtful[place] or one.doubtful[0])
            assert found.tokens_per_second[i, j] == pytest.approx(one.tokens_per_second[0, place])
            assert found.speed_up[0, i, j] == pytest.approx(one.speed_up[0, place])
            if one.best:
                assert place == one.best
    assert found.doubtful[:, -1].all(), "a context beyond what passes are believed to"


def test_lengths_that_need_no_wider_pass_come_before_extrapolated_ones():
    found = best_lengths(rounds(), RoundOfParts(("verification",), table(17)), CONTEXTS[:1], (1, 8, 32))
    assert not found.doubtful[0, 0] and found.best[1, 0] == 1
    assert found.doubtful[2, 0], "even plain decoding of 32 streams is wider than what was timed"


def test_rounds_measured_whole_say_nothing_of_several_streams():
    whole = WholeRounds(table(17), LENGTHS[1:], np.array([100.0]), (1 + 0.1 * LENGTHS[1:])[None, None])
    found = best_lengths(rounds(), whole, CONTEXTS[:2], (1, 4))
    assert not found.doubtful[0].any() and found.doubtful[1].all()


def test_replicates_offers_and_what_replies_take_go_through():
    cost = RoundOfParts(("verification",), table(17))
    both = best_lengths(rounds(np.stack([TOKENS, np.ones(9)]), 0.5, 1.1), cost, CONTEXTS[:1], (1,))
    plain, place = float(cost.target.at(1, 200.0)[0, 0]), both.best[0, 0]
    drafting = float(cost.target.at(place + 1, 200.0)[0, 0])
    took = 0.5 * drafting + 0.5 * plain + 0.1 * plain
    assert both.tokens_per_second[0, 0] == pytest.approx(TOKENS[place] / took)
    assert both.plain_tokens_per_second[0, 0] == pytest.approx(1 / (1.1 * plain))
    assert both.speed_up[1, 0, 0] == pytest.approx(1.1 * plain / took) and both.speed_up[1, 0, 0] < 1


def test_it_pays_up_to_the_streams_before_the_first_that_lose():
    assert pays_up_to([True, True, False, True], STREAMS) == 2
    assert pays_up_to([False, True, True, True], STREAMS) == 0
    assert pays_up_to([True] * 4, STREAMS) == 8


def test_a_map_without_a_draft_length_is_refused():
    with pytest.raises(ValueError, match="plain decoding"):
        best_lengths(
            DraftRounds(np.array([0]), np.ones((1, 1)), np.zeros(1)),
            RoundOfParts(("verification",), table(4)),
            CONTEXTS,
            (1,),
        )

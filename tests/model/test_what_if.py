"""What if: acceptance moved by odds, held to forecasts at rest, priced as every other forecast."""

import numpy as np
import pytest

from specgauge.model.cost import Overhead, RoundCost, RoundOfParts, WholeRounds
from specgauge.model.forecast import forecast_lengths
from specgauge.model.recipe import RECIPES
from specgauge.model.steps import StepTable
from specgauge.model.survival import survival_from_hazards
from specgauge.model.what_if import WhatIf, movable, moved

HAZARD = np.array([0.62, 0.71, 0.78, 0.80, 0.83, 0.85])
LENGTHS = np.arange(7)
WIDTHS, CONTEXTS = np.arange(1, 9), np.array([100.0, 900.0])
TARGET = StepTable(WIDTHS, CONTEXTS, 20e-3 + 1e-3 * (WIDTHS - 1) + np.array([[0.0], [2e-3]]))
DRAFT = StepTable(WIDTHS, CONTEXTS, 2e-3 + 1e-4 * (WIDTHS - 1) + np.array([[0.0], [2e-4]]))
PARTS = RoundOfParts(RECIPES["model"], TARGET, DRAFT, Overhead(np.array(4e-4), np.array(1e-4)))
WHOLE = WholeRounds(TARGET, LENGTHS[1:], CONTEXTS, 1 + 0.2 * LENGTHS[1:] + np.array([[0.0], [0.05]]))


def model(cost: RoundCost = PARTS, offered: float = 1.0, **changes) -> WhatIf:
    given = {
        "cost": cost,
        "draft_tokens": LENGTHS,
        "hazard": HAZARD,
        "offered": np.array([0.0, *[offered] * 6]),
        "reply_factor": 1.0,
        "anchor": np.ones(7),
    }
    return WhatIf(**{**given, **changes})


def odds(chance: np.ndarray) -> np.ndarray:
    return chance / (1 - chance)


def test_moving_the_first_hazard_multiplies_all_odds_by_one_constant():
    found = moved(HAZARD, 0.4)
    assert found[0] == pytest.approx(0.4, rel=1e-14)
    assert odds(found) / odds(HAZARD) == pytest.approx(np.full(6, odds(np.array(0.4)) / odds(HAZARD)[0]), rel=1e-12)


def test_at_rest_nothing_moves_and_the_ends_are_none_and_all():
    assert moved(HAZARD, HAZARD[0]) == pytest.approx(HAZARD, rel=1e-14)
    assert (moved(HAZARD, 0.0) == 0).all() and (moved(HAZARD, 1.0) == 1).all()


def test_every_hazard_rises_with_the_first():
    found = np.array([moved(HAZARD, first) for first in np.linspace(0, 1, 41)])
    assert (np.diff(found, axis=0) > 0).all()


def test_hazards_without_odds_are_refused_and_can_be_made_movable():
    for hazard, first in ((np.array([1.0, 0.5]), 0.5), (np.array([0.5, 0.0]), 0.5), (HAZARD, 1.2), (HAZARD, -0.1)):
        with pytest.raises(ValueError, match="odds|probability"):
            moved(hazard, first)
    assert movable(np.array([0.0, 0.5, 1.0])).tolist() == [0.001, 0.5, 0.999]


@pytest.mark.parametrize("cost", [PARTS, WHOLE])
@pytest.mark.parametrize("context", [0.0, 100.0, 350.0, 900.0, 1500.0])
@pytest.mark.parametrize("first", [None, 0.2, 0.9])
def test_with_full_offers_it_is_the_forecast_over_lengths(cost, context: float, first: float | None):
    hazard = HAZARD if first is None else moved(HAZARD, first)
    expected = forecast_lengths(survival_from_hazards(hazard), cost, LENGTHS, context).tokens_per_second
    assert model(cost).tokens_per_second(first, context) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("cost", [PARTS, WHOLE])
def test_held_to_forecasts_it_is_them_at_rest_and_rises_with_acceptance(cost):
    forecast = model(cost).tokens_per_second(None, 400.0) * np.array([1.001, 1.03, 0.98, 1.02, 0.99, 0.97, 0.96])
    held = model(cost, offered=0.97, reply_factor=1.04).held_to(forecast, 400.0)
    assert held.tokens_per_second(None, 400.0) == pytest.approx(forecast, rel=1e-12)
    assert held.tokens_per_second(HAZARD[0], 400.0) == pytest.approx(forecast, rel=1e-12)
    speeds = np.array([held.tokens_per_second(first, 700.0) for first in np.linspace(0, 1, 21)])
    assert (np.diff(speeds[:, 1:], axis=0) > 0).all() and np.ptp(speeds[:, 0]) == 0
    assert held.tokens(1.0) == pytest.approx(1 + 0.97 * LENGTHS) and held.tokens(0.0) == pytest.approx(np.ones(7))


def test_rounds_without_an_offer_are_plain_steps():
    rare = model(offered=0.1)
    plain, full = PARTS_SECONDS[0], PARTS_SECONDS
    assert rare.seconds(400.0)[1:] == pytest.approx((0.1 * full + 0.9 * plain)[1:])
    assert rare.tokens()[3] - 1 == pytest.approx(0.1 * (model().tokens()[3] - 1))


PARTS_SECONDS = model().seconds(400.0)


def test_what_replies_take_beside_steps_is_paid_once_a_round_of_parts_and_in_proportion_by_whole_rounds():
    assert model(reply_factor=1.1).seconds(400.0) == pytest.approx(PARTS_SECONDS + 0.1 * PARTS_SECONDS[0])
    assert model(WHOLE, reply_factor=1.1).seconds(400.0) == pytest.approx(1.1 * model(WHOLE).seconds(400.0))


def test_at_the_break_even_a_length_is_as_fast_as_plain_decoding():
    held = model(offered=0.9, reply_factor=1.02, anchor=np.linspace(1, 1.3, 7))
    for place in range(1, 7):
        even = held.break_even(place, 500.0)
        assert even is not None and 0 < even < 1
        speeds = held.tokens_per_second(even, 500.0)
        assert speeds[place] == pytest.approx(speeds[0], rel=1e-12)


def test_a_break_even_may_be_nowhere_or_everywhere():
    dear = WholeRounds(TARGET, LENGTHS[1:], CONTEXTS, np.full((2, 6), 9.0))
    free = WholeRounds(TARGET, LENGTHS[1:], CONTEXTS, np.full((2, 6), 1.0))
    assert model(dear).break_even(6, 400.0) is None
    assert model(free).break_even(6, 400.0) == 0.0


def test_values_that_do_not_belong_together_are_refused():
    with pytest.raises(ValueError, match="rise from 0"):
        model(draft_tokens=np.arange(1, 8))
    with pytest.raises(ValueError, match="offer rate"):
        model(offered=0.5, anchor=np.ones(3))
    with pytest.raises(ValueError, match="hazards for up to"):
        model(hazard=HAZARD[:3])
    with pytest.raises(ValueError, match="not above 0"):
        model(anchor=np.zeros(7))
    with pytest.raises(ValueError, match="no acceptance yields"):
        model().held_to(np.array([50.0, *[1e6] * 6]), 400.0)

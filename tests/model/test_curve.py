"""Curves between measured lengths: exact where they must be, and bounded where they can be wrong."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgauge.model.curve import Curve

A100_LAST_MAT_VEC = 8
A100_MILLISECONDS = np.array([28.8, 30.9, 32.3, 37.0, 37.0, 44.5, 46.4, 49.8, 112.0, 112.1, 112.7])
"""Passes over 1 to 11 tokens, 34B Q8_0: ggml-org/llama.cpp pull request 5625. Another kernel begins at 9."""


def test_measured_lengths_answer_exactly_and_a_line_is_followed():
    curve = Curve(np.array([1, 3, 6]), np.array([12.0, 16.0, 22.0]), origin=np.array(9.0))
    found = curve.at(np.arange(0, 7))
    assert found.value == pytest.approx([9, 12, 14, 16, 18, 20, 22])
    assert not found.doubtful.any() and found.remedy == ""
    exact = np.array([0, 1, 3, 6])
    assert found.low[exact] == pytest.approx(found.value[exact]) == found.high[exact]


def test_the_constant_of_a_round_is_no_bend_of_the_curve():
    """A round of 1 costs much more than a plain step: what lies between 2 and 6 is still a line."""
    curve = Curve(np.array([2, 6]), np.array([30.0, 38.0]), origin=np.array(10.0))
    assert curve.at(np.array([4])).value == pytest.approx(34.0)
    below = curve.at(np.array([1]))
    assert below.value == pytest.approx(20.0) and below.high == pytest.approx(28.0)


def test_a_negative_constant_is_a_bend_and_the_plain_step_then_is_a_point():
    """Slopes of 1 to length 2 and 3 from there: the line through 2 and 6 would meet length 0 below the plain step."""
    lengths, value, origin = np.array([2, 6]), np.array([12.0, 24.0]), np.array(10.0)
    bent = Curve(lengths, value, origin=origin).at(np.array([4])).value
    assert 14.0 < bent[0] < 17.0
    assert Curve(lengths, value).at(np.array([4])).value == pytest.approx(18.0)
    assert Curve(lengths, value, origin=np.array(5.0)).at(np.array([4])).value == pytest.approx(18.0)


@given(
    st.lists(st.floats(0.01, 3.0), min_size=4, max_size=9),
    st.sets(st.integers(1, 8), min_size=2, max_size=5),
)
def test_the_band_holds_every_curve_that_bends_upwards(rises, measured):
    """Truth: slopes that never fall. Whatever lengths were measured, the truth between them is inside the band."""
    truth = np.concatenate([[5.0], 5.0 + np.cumsum(np.cumsum(rises))])
    lengths = np.array(sorted(n for n in measured if n < truth.size))
    if lengths.size < 2:
        return
    found = Curve(lengths, truth[lengths], origin=truth[0]).at(np.arange(lengths[0], lengths[-1] + 1))
    inside = truth[lengths[0] : lengths[-1] + 1]
    assert (found.low <= inside + 1e-9).all() and (inside <= found.high + 1e-9).all()
    assert (found.low <= found.value).all() and (found.value <= found.high).all()


@given(st.integers(3, 9), st.floats(1.0, 80.0))
def test_the_band_holds_a_step_that_nobody_measured(step_at, height):
    """A line with a step between two measured lengths that are 4 apart at least."""
    truth = 20.0 + 2.0 * np.arange(13) + np.where(np.arange(13) >= step_at, height, 0.0)
    lengths = np.array([1, 2, 9, 10, 11])
    found = Curve(lengths, truth[lengths]).at(np.arange(2, 10))
    assert (found.low <= truth[2:10] + 1e-9).all() and (truth[2:10] <= found.high + 1e-9).all()
    assert (found.high - found.low)[3] > 0.7 * height


@pytest.mark.parametrize("measured", [(1, 3, 5, 10), (1, 2, 4, 6, 9, 10), (2, 4, 6, 10)])
def test_a_switch_that_is_not_known_widens_the_band_up_to_both_kernels(measured):
    """A100, told nothing of the switch after 8 (as lengths: after 7): both sides of it are inside (noise 4 %)."""
    lengths = np.array(measured)
    truth = A100_MILLISECONDS[np.arange(0, 11)]
    found = Curve(lengths, truth[lengths], origin=np.array(truth[0])).at(np.arange(6, 10))
    assert (0.96 * found.low <= truth[6:10]).all() and (truth[6:10] <= 1.04 * found.high).all()
    assert ((found.high - found.low) > 0.5 * found.value)[1:3].all()


def test_a_switch_that_is_known_asks_for_the_width_on_its_other_side():
    """Segments 1..7 and 8..: measured to 6 and from 10 on, 7 and 8 are on nobody's line."""
    lengths = np.array([1, 3, 6, 10])
    found = Curve(lengths, A100_MILLISECONDS[lengths], (7,), np.array(28.8)).at(np.array([5, 7, 8]))
    assert found.doubtful.tolist() == [False, True, True]
    assert found.remedy == "measure rounds of 7 draft tokens; measure rounds of 8 draft tokens"


def test_replicates_are_carried_through():
    value = np.array([[10.0, 12.0, 20.0], [20.0, 24.0, 40.0]])
    found = Curve(np.array([1, 2, 4]), value, origin=np.array([8.0, 16.0])).at(np.array([0, 3, 5, 3]))
    assert found.value.shape == (2, 4)
    assert found.value[1] == pytest.approx(2 * found.value[0])
    assert found.doubtful.tolist() == [False, False, True, False]


def test_beyond_the_last_length_the_line_goes_on_and_is_not_believed():
    found = Curve(np.array([1, 2, 4]), np.array([10.0, 12.0, 16.0])).at(np.array([6]))
    assert (found.value[0], found.low[0], found.high[0]) == (20.0, 16.0, 24.0)
    assert found.doubtful.all() and "6 draft tokens" in found.remedy


@pytest.mark.parametrize(
    "lengths, value", [([1, 1], [1.0, 2.0]), ([2, 1], [1.0, 2.0]), ([1, 2], [1.0]), ([], []), ([0, 1], [1.0, 2.0])]
)
def test_lengths_that_do_not_rise_or_match_are_refused(lengths, value):
    with pytest.raises(ValueError):
        Curve(np.array(lengths, int), np.array(value))

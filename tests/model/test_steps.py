"""Step tables: what is interpolated, and what is refused."""

import numpy as np
import pytest

from specgauge.model import steps
from specgauge.model.steps import BeyondTable, StepTable

from .known import CONTEXTS, WIDTHS, seconds_of, table


@pytest.mark.parametrize("width", [1, 2, 3, 5, 7, 8, 9, 10, 14, 16, 17])
@pytest.mark.parametrize("context", [0.0, 100.0, 320.0, 850.0])
def test_lines_inside_a_segment_are_followed_exactly(width, context):
    assert table().at(width, context) == pytest.approx(seconds_of(width, context))


def test_a_kernel_switch_is_not_interpolated():
    """Without the pass over 9 tokens, widths 9 to 11 belong to a segment measured from 12 on: refused."""
    sparse = table(np.array([1, 2, 8, 12, 16]))
    assert sparse.at(12, 100.0) == pytest.approx(seconds_of(12, 100.0))
    with pytest.raises(BeyondTable, match="measure a pass over 9 tokens") as caught:
        sparse.at(9, 100.0)
    assert caught.value.estimate == pytest.approx(seconds_of(9, 100.0))


def test_beyond_the_widest_pass_and_the_longest_context_is_refused_with_an_estimate():
    with pytest.raises(BeyondTable, match="pass over 24 tokens"):
        table().at(24, 100.0)
    with pytest.raises(BeyondTable, match="context of 2000 tokens") as caught:
        table().at(4, 2000.0)
    assert caught.value.estimate == pytest.approx(seconds_of(4, 2000.0))


def test_the_decode_step_is_no_end_of_a_line():
    """Width 1 is clocked another way: a gap next to it must not be bridged to it."""
    with pytest.raises(BeyondTable):
        table(np.array([1, 4, 8])).at(2, 100.0)


def test_replicates_are_carried_through():
    one = table()
    many = StepTable(one.widths, one.contexts, np.stack([one.seconds, 2 * one.seconds]))
    found = many.at(np.array([3, 10]), np.array([100.0, 300.0]))
    assert found.shape == (2, 2)
    assert found[1] == pytest.approx(2 * found[0])


def test_switches_inside_the_range_are_found_and_not_crossed():
    widths = np.array([1, 2, 3, 4, 6, 8, 9, 12, 16])
    seconds = np.where(widths <= 4, 10e-3 + 1e-3 * widths, 20e-3 + 1e-3 * widths)
    switches = steps.find_switches(widths, seconds, noise=0.01)
    assert switches == (4, 5, 8, 16)
    found = StepTable(widths, np.array([100.0]), seconds[None, :], switches)
    with pytest.raises(BeyondTable):
        found.at(5, 100.0)
    assert found.at(7, 100.0) == pytest.approx(27e-3)


def test_a_drop_is_a_switch_too():
    widths = np.array([1, 2, 3, 4, 5, 6, 8])
    seconds = np.array([10, 12, 14, 16, 11, 12, 14]) * 1e-3
    assert 4 in steps.find_switches(widths, seconds, noise=0.01)


def test_noise_alone_makes_no_switch():
    rng = np.random.default_rng(4)
    widths = np.array([1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 17])
    false = 0
    for _ in range(200):
        seconds = (10e-3 + 1e-3 * widths) * np.exp(0.02 * rng.standard_normal(widths.size))
        false += steps.find_switches(widths, seconds, noise=0.02) != steps.KNOWN_SWITCHES
    assert false <= 4


def test_streams_share_a_pass_and_not_their_context():
    found = table().at(2, 300.0, streams=4)
    assert found == pytest.approx(seconds_of(8, 0.0) + 4 * (seconds_of(2, 300.0) - seconds_of(2, 0.0)))
    assert table().at(2, 300.0, streams=1) == table().at(2, 300.0)
    with pytest.raises(BeyondTable, match="pass over 64 tokens"):
        table().at(8, 300.0, streams=8)


def test_a_prior_table_answers_and_is_never_trusted():
    prior = StepTable(WIDTHS, CONTEXTS, table().seconds, prior=True)
    found = prior.lookup(4, 100.0)
    assert found.seconds == pytest.approx(seconds_of(4, 100.0)) and found.doubtful.all()
    with pytest.raises(BeyondTable, match="profile this machine"):
        found.trusted()


def test_noise_makes_no_pass_outside_the_table_shorter_than_a_quarter_of_the_nearest():
    """Two widths whose noisy times fall: their line crosses zero at 12 tokens."""
    falling = StepTable(np.array([1, 6, 8]), np.array([32.0]), np.array([[[1.0, 3.0, 2.0]]]))
    assert falling.lookup(8, 32.0).seconds == pytest.approx(2.0)
    assert falling.lookup(7, 32.0).seconds == pytest.approx(2.5)
    assert falling.lookup(40, 32.0).seconds == pytest.approx(0.5)


def test_noise_over_the_context_makes_no_stream_cheaper():
    """A pass that reads shorter at the longer context: eight streams take no less than one pass over their tokens."""
    falling = StepTable(np.array([1, 8]), np.array([32.0, 64.0]), np.array([[[1.0, 2.0], [0.5, 1.0]]]))
    assert falling.lookup(1, 64.0, streams=8).seconds >= falling.lookup(8, 0.0).seconds

"""Step tables and round recipes: what is interpolated, and what is refused."""

import numpy as np
import pytest

from specgauge.model import cost
from specgauge.model.cost import BeyondTable, Overhead, RoundOfParts, StepTable, WholeRounds

WIDTHS = np.array([1, 2, 4, 6, 8, 9, 12, 16, 17])
CONTEXTS = np.array([100.0, 500.0])


def seconds_of(width, context):
    """A pass with a switch after 8: lines of their own slope on both sides, decode apart, linear in context."""
    base = np.where(width == 1, 9e-3, np.where(width <= 8, 10e-3 + 1e-3 * width, 6e-3 + 0.5e-3 * width))
    return base + 2e-6 * context * (1 + 0.1 * width)


def table(widths=WIDTHS) -> StepTable:
    return StepTable(widths, CONTEXTS, seconds_of(widths[None, :], CONTEXTS[:, None]))


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
    switches = cost.find_switches(widths, seconds, noise=0.01)
    assert switches == (4, 5, 8, 16)
    found = StepTable(widths, np.array([100.0]), seconds[None, :], switches)
    with pytest.raises(BeyondTable):
        found.at(5, 100.0)
    assert found.at(7, 100.0) == pytest.approx(27e-3)


def test_a_drop_is_a_switch_too():
    widths = np.array([1, 2, 3, 4, 5, 6, 8])
    seconds = np.array([10, 12, 14, 16, 11, 12, 14]) * 1e-3
    assert 4 in cost.find_switches(widths, seconds, noise=0.01)


def test_noise_alone_makes_no_switch():
    rng = np.random.default_rng(4)
    widths = np.array([1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 17])
    false = 0
    for _ in range(200):
        seconds = (10e-3 + 1e-3 * widths) * np.exp(0.02 * rng.standard_normal(widths.size))
        false += cost.find_switches(widths, seconds, noise=0.02) != cost.KNOWN_SWITCHES
    assert false <= 4


def test_a_model_round_has_the_terms_of_its_recipe():
    target, draft = table(), StepTable(WIDTHS, CONTEXTS, 0.1 * table().seconds)
    overhead = Overhead(np.array(1e-3), np.array(2e-4))
    terms = cost.round_terms(cost.RECIPES["model"], np.array([0, 3]), np.array([100.0, 100.0]), target, draft, overhead)
    assert terms.names == ("draft", "verification", "draft_batch", "overhead")
    assert terms.total()[0] == pytest.approx(seconds_of(1, 100.0))
    drafting = 3 * 0.1 * seconds_of(1, 101.0) + 0.1 * seconds_of(4, 100.0)
    assert terms.total()[1] == pytest.approx(drafting + seconds_of(4, 100.0) + 1e-3 + 6e-4)


def test_an_ngram_round_needs_no_draft_and_a_model_round_does():
    terms = cost.round_terms(cost.RECIPES["ngram"], np.array([4]), np.array([100.0]), table())
    assert terms.total()[0] == pytest.approx(seconds_of(5, 100.0))
    with pytest.raises(ValueError, match="step times of the draft"):
        cost.round_terms(cost.RECIPES["model"], np.array([4]), np.array([100.0]), table())


def test_the_correction_applies_to_drafting_rounds_only():
    parts = RoundOfParts(cost.RECIPES["ngram"], table(), None, cost.NO_OVERHEAD, np.array([1.0, 1.1, 1.2]))
    found = parts.lookup(np.array([0, 2, 5]), np.full(3, 100.0)).seconds
    assert found == pytest.approx(seconds_of(np.array([1, 3, 6]), 100.0) * [1, 1.1, 1.2])


def test_whole_rounds_are_anchored_at_the_plain_step_and_follow_its_context():
    plain = StepTable(np.array([1]), CONTEXTS, seconds_of(1, CONTEXTS)[:, None])
    whole = WholeRounds(plain, np.array([2, 6, 8]), np.array([4e-3, 10e-3, 30e-3]), np.ones(8))
    found = whole.lookup(np.array([0, 1, 2, 4]), np.full(4, 300.0))
    assert found.seconds == pytest.approx(seconds_of(1, 300.0) + np.array([0, 2e-3, 4e-3, 7e-3]))
    assert not found.doubtful.any()
    beyond = whole.lookup(np.array([7]), np.array([300.0]))
    assert beyond.doubtful.all() and beyond.seconds[0] == pytest.approx(seconds_of(1, 300.0) + 11.5e-3)
    assert whole.lookup(np.array([8]), np.array([300.0])).trusted()[0] == pytest.approx(seconds_of(1, 300.0) + 30e-3)

"""Round recipes: which terms a round has, what each costs, and what is refused."""

import numpy as np
import pytest

from specgauge.model.cost import LEAST_SHARE, NO_OVERHEAD, Overhead, Rollback, RoundOfParts, Rounds, WholeRounds
from specgauge.model.recipe import RECIPES
from specgauge.model.steps import StepTable

from .known import CONTEXTS, WIDTHS, seconds_of, table

DRAFT = StepTable(WIDTHS, CONTEXTS, 0.1 * table().seconds)
OVERHEAD = Overhead(np.array(1e-3), np.array(2e-4))


def test_a_model_round_has_the_terms_of_its_recipe():
    terms = RoundOfParts(RECIPES["model"], table(), DRAFT, OVERHEAD).terms(Rounds.of(np.array([0, 3]), 100.0))
    assert terms.names == ("draft", "verification", "draft_batch", "overhead")
    assert terms.total()[0] == pytest.approx(seconds_of(1, 100.0))
    drafting = 3 * 0.1 * seconds_of(1, 101.0) + 0.1 * seconds_of(4, 100.0)
    assert terms.total()[1] == pytest.approx(drafting + seconds_of(4, 100.0) + 1e-3 + 6e-4)
    assert terms.dominant().tolist() == ["verification", "verification"]


def test_a_round_that_stopped_early_pays_its_passes_and_verifies_what_it_drafted():
    """Two tokens after three passes; none after one pass: the target still decodes one token, the draft one more."""
    rounds = Rounds.of(np.array([2, 0]), 100.0, passes=np.array([3, 1]))
    terms = RoundOfParts(RECIPES["model"], table(), DRAFT, OVERHEAD).terms(rounds)
    assert terms.seconds[0] == pytest.approx([3 * 0.1 * seconds_of(1, 101.0), 0.1 * seconds_of(1, 100.0)])
    assert terms.seconds[1] == pytest.approx([seconds_of(3, 100.0), seconds_of(1, 100.0)])
    assert terms.seconds[2] == pytest.approx([0.1 * seconds_of(3, 100.0), 0.1 * seconds_of(1, 100.0)])
    assert terms.seconds[3] == pytest.approx([1.4e-3, 1e-3])


def test_an_ngram_round_needs_no_draft_and_a_model_round_does():
    found = RoundOfParts(RECIPES["ngram"], table()).terms(Rounds.of(4, 100.0)).total()
    assert found[0] == pytest.approx(seconds_of(5, 100.0))
    with pytest.raises(ValueError, match="step times of the draft"):
        RoundOfParts(RECIPES["model"], table()).terms(Rounds.of(4, 100.0))
    with pytest.raises(ValueError, match="no term is called sampling"):
        RoundOfParts(("sampling",), table()).terms(Rounds.of(4, 100.0))


def test_the_correction_applies_to_drafting_rounds_only():
    parts = RoundOfParts(RECIPES["ngram"], table(), None, NO_OVERHEAD, np.array([1.0, 1.1, 1.2]))
    found = parts.lookup(Rounds.of(np.array([0, 2, 5]), 100.0)).seconds
    assert found == pytest.approx(seconds_of(np.array([1, 3, 6]), 100.0) * [1, 1.1, 1.2])


def test_copies_of_recurrent_state_cost_a_write_for_each_verified_token():
    rollback = Rollback(150e6, 500e9)
    recipe = (*RECIPES["ngram"], "rollback")
    terms = RoundOfParts(recipe, table(), rollback=rollback).terms(Rounds.of(np.array([0, 6]), 100.0))
    assert terms.seconds[-1] == pytest.approx([0, 7 * 0.3e-3])
    with pytest.raises(ValueError, match="recurrent state"):
        RoundOfParts(recipe, table()).terms(Rounds.of(4, 100.0))


def test_replay_costs_another_pass_over_what_was_accepted_only_after_a_rejection():
    replay = Rollback(150e6, 5e9, replays=True)
    parts = RoundOfParts((*RECIPES["ngram"], "rollback"), table(), rollback=replay)
    rounds = Rounds.of(np.array([0, 4, 4]), 100.0, accepted=np.array([0, 4, 1]))
    snapshot = 150e6 / 5e9
    assert parts.terms(rounds).seconds[-1] == pytest.approx([0, snapshot, 2 * snapshot + seconds_of(2, 100.0)])
    assert parts.minds_acceptance and not RoundOfParts(RECIPES["ngram"], table()).minds_acceptance


def test_streams_share_the_weights_and_read_their_own_context():
    """Eight streams of one token behind 300 each: a pass over 8 tokens, and eight readings of a context."""
    found = RoundOfParts(RECIPES["ngram"], table()).lookup(Rounds.of(0, 300.0, streams=8)).seconds[0]
    own = seconds_of(1, 300.0) - seconds_of(1, 0.0)
    assert found == pytest.approx(seconds_of(8, 0.0) + 8 * own)
    drafting = RoundOfParts(RECIPES["ngram"], table()).lookup(Rounds.of(3, 300.0, streams=4)).seconds[0]
    assert drafting == pytest.approx(seconds_of(16, 0.0) + 4 * (seconds_of(4, 300.0) - seconds_of(4, 0.0)))


def plain_only() -> StepTable:
    return StepTable(np.array([1]), CONTEXTS, seconds_of(1, CONTEXTS)[:, None])


def whole(lengths, ratio) -> WholeRounds:
    return WholeRounds(plain_only(), np.array(lengths), np.array([300.0]), np.array([ratio]))


def test_whole_rounds_are_anchored_at_the_plain_step_and_follow_its_context():
    cost = whole([2, 6, 8], [1.4, 2.2, 4.0])
    found = cost.lookup(Rounds.of(np.array([0, 1, 2, 4]), 300.0))
    assert found.seconds == pytest.approx(seconds_of(1, 300.0) * np.array([1, 1.2, 1.4, 1.8]))
    assert not found.doubtful.any()
    assert cost.lookup(Rounds.of(2, 100.0)).seconds[0] == pytest.approx(1.4 * seconds_of(1, 100.0))
    beyond = cost.lookup(Rounds.of(7, 300.0))
    assert beyond.doubtful.all() and beyond.seconds[0] == pytest.approx(2.4 * seconds_of(1, 300.0))
    assert cost.lookup(Rounds.of(8, 300.0)).trusted()[0] == pytest.approx(4.0 * seconds_of(1, 300.0))


def test_the_ratio_of_whole_rounds_is_linear_between_contexts_and_level_beyond():
    cost = WholeRounds(plain_only(), np.array([2, 4]), np.array([100.0, 500.0]), np.array([[1.4, 2.0], [1.8, 2.4]]))
    found = cost.lookup(Rounds.of(np.array([2, 3, 4, 2]), np.array([300.0, 500.0, 200.0, 600.0]))).seconds
    assert found / seconds_of(1, np.array([300.0, 500.0, 200.0, 600.0])) == pytest.approx([1.6, 2.1, 2.1, 1.8])


def test_whole_rounds_ask_for_what_they_were_not_measured_with():
    cost = whole([2, 4], [1.4, 1.8])
    for rounds in (Rounds.of(2, 300.0, passes=np.array([3])), Rounds.of(2, 300.0, streams=2)):
        found = cost.lookup(rounds)
        assert found.doubtful.all() and "as they will be run" in found.remedy


def test_a_step_hidden_between_whole_rounds_asks_for_the_lengths_between():
    """No round of 3 or 4 was measured, and 5 costs far more than a line through 1 and 2 says."""
    found = whole([1, 2, 5, 6], [1.1, 1.2, 2.5, 2.6]).lookup(Rounds.of(np.array([2, 3, 4, 5]), 300.0))
    assert found.doubtful.tolist() == [False, True, True, False]
    assert found.remedy == "measure rounds of 3 draft tokens; measure rounds of 4 draft tokens"


def test_a_negative_overhead_never_leaves_less_than_its_share_of_the_passes():
    """As drawn from few noisy rounds: a round that took no time at all would make an infinite speed."""
    rounds = Rounds.of(np.array([0, 3]), 100.0)
    passes = RoundOfParts(RECIPES["ngram"], table()).lookup(rounds).seconds
    mild = Overhead(-0.2 * passes[1], np.array(0.0))
    wild = Overhead(-7.0 * passes[1], np.array(0.0))
    found = [RoundOfParts(RECIPES["ngram"], table(), None, one).lookup(rounds).seconds for one in (mild, wild)]
    assert found[0] == pytest.approx(passes * [1, 0.8])
    assert found[1] == pytest.approx(passes * [1, LEAST_SHARE])

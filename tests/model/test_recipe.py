"""Recipes: what an engine may say of its rounds, and what the terms of a draft that catches up take."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgauge.model.cost import Overhead, RoundOfParts, Rounds
from specgauge.model.recipe import RECIPES, TERMS, flaw, widths_of_draft
from specgauge.model.steps import StepTable

IN_PROCESS = ("draft_catch_up", "draft_further", "verification", "overhead")
WIDTHS, CONTEXTS = np.arange(1, 18), np.array([64.0, 512.0])


def target_seconds(width: float, context: float) -> float:
    return 40e-3 + 1.5e-3 * width + 4e-6 * context


def draft_seconds(width: float, context: float) -> float:
    return 6e-3 + 2e-3 * width + 1e-6 * context


def table(seconds, widths=WIDTHS) -> StepTable:
    return StepTable(widths, CONTEXTS, np.array([[seconds(w, c) for w in widths] for c in CONTEXTS]), switches=())


def in_process() -> RoundOfParts:
    overhead = Overhead(np.array(0.7e-3), np.array(0.1e-3))
    return RoundOfParts(IN_PROCESS, table(target_seconds), table(draft_seconds, np.array([1, 2])), overhead)


@given(st.integers(1, 16), st.integers(64, 500))
def test_a_round_that_catches_up_is_one_two_wide_pass_and_a_step_for_each_further_token(drafted: int, context: int):
    """Pass by pass: the first reads the token at context - 1 again and the newest one; the k-th further one is behind
    context + k cached tokens."""
    found = in_process().terms(Rounds.of(drafted, float(context)))
    terms = dict(zip(found.names, (float(seconds.flat[0]) for seconds in found.seconds)))
    assert terms["draft_catch_up"] == pytest.approx(draft_seconds(2, context - 1))
    assert terms["draft_further"] == pytest.approx(sum(draft_seconds(1, context + k) for k in range(1, drafted)))
    assert terms["verification"] == pytest.approx(target_seconds(drafted + 1, context))
    assert terms["overhead"] == pytest.approx(0.7e-3 + 0.1e-3 * drafted)
    assert not found.doubtful.any()


def test_a_plain_step_pays_nothing_of_the_draft():
    found = in_process().terms(Rounds.of(0, 100.0))
    assert dict(zip(found.names, (float(s.flat[0]) for s in found.seconds))) == {
        "draft_catch_up": 0.0,
        "draft_further": 0.0,
        "verification": pytest.approx(target_seconds(1, 100)),
        "overhead": 0.0,
    }


def test_passes_in_vain_are_paid_without_drafted_tokens():
    """Drafting stopped after its third pass and nothing was verified beside the newest token."""
    found = in_process().terms(Rounds.of(np.array([0]), 100.0, passes=np.array([3])))
    terms = dict(zip(found.names, (float(s.flat[0]) for s in found.seconds)))
    assert terms["draft_catch_up"] == pytest.approx(draft_seconds(2, 99))
    assert terms["draft_further"] == pytest.approx(draft_seconds(1, 101) + draft_seconds(1, 102))


def test_a_draft_that_was_timed_at_one_and_two_tokens_is_enough():
    assert tuple(widths_of_draft(IN_PROCESS, 8)) == (1, 2)
    assert tuple(widths_of_draft(RECIPES["model"], 8)) == tuple(range(1, 10))
    assert tuple(widths_of_draft(("draft", "verification", "overhead"), 8)) == (1,)


def test_without_a_draft_table_the_remedy_is_said():
    with pytest.raises(ValueError, match="draft_catch_up needs step times of the draft"):
        RoundOfParts(IN_PROCESS, table(target_seconds)).terms(Rounds.of(2, 100.0))


@pytest.mark.parametrize(
    ("drafter", "terms", "said"),
    [
        ("model", ("verification", "rollback", "overhead"), "rollback"),
        ("model", ("draft", "verifcation", "overhead"), "verifcation"),
        ("model", ("draft", "draft", "verification", "overhead"), "twice"),
        ("model", ("draft", "overhead"), "lacks verification"),
        ("model", (), "lacks verification and overhead"),
        ("ngram", ("draft", "verification", "overhead"), "only a draft model has"),
        ("oracle", ("verification", "overhead"), "no drafter kind is called 'oracle'"),
        ("mtp", ("round", "overhead"), "round"),
    ],
)
def test_a_recipe_that_nothing_can_price_is_named_by_its_flaw(drafter: str, terms: tuple[str, ...], said: str):
    assert said in flaw(drafter, terms) and "\n" not in flaw(drafter, terms)


def test_good_recipes_have_no_flaw():
    assert all(flaw(drafter, terms) == "" for drafter, terms in RECIPES.items())
    assert flaw("model", IN_PROCESS) == "" and flaw("model", ("round",)) == ""


@given(st.lists(st.sampled_from([*TERMS, "round", "rollback", "x" * 500]), max_size=7).map(tuple))
def test_whatever_has_no_flaw_can_be_priced(terms: tuple[str, ...]):
    if flaw("model", terms) == "" and terms != ("round",):
        found = RoundOfParts(terms, table(target_seconds), table(draft_seconds)).lookup(Rounds.of(3, 100.0))
        assert float(found.seconds.flat[0]) >= target_seconds(4, 100)
    assert len(flaw("model", terms)) < 300

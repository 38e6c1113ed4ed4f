"""Acceptance rules: each against the accept and reject process itself, enumerated token by token."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgauge.model import rules
from specgauge.model.rules import Rule

MASS = st.integers(0, 9)


@st.composite
def distribution_pairs(draw) -> tuple[np.ndarray, np.ndarray]:
    """p and q over 2 to 6 tokens, zeros and ties among them."""
    size = draw(st.integers(2, 6))
    masses = st.lists(MASS, min_size=size, max_size=size).filter(any)
    p, q = np.array(draw(masses), float), np.array(draw(masses), float)
    return p / p.sum(), q / q.sum()


def enumerated(rule: Rule, p: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """P(emitted = y) and P(emitted = y and accepted), over every draft token and every answer of the target."""
    size = p.size
    emitted, accepted = np.zeros(size), np.zeros(size)
    proposal = q if rule in (Rule.RATIO_TEST, Rule.SAMPLED_COMPARE) else np.eye(size)[q.argmax()]
    answer = np.eye(size)[p.argmax()] if rule is Rule.GREEDY else p
    rest = np.maximum(p - q, 0)
    for d in np.flatnonzero(proposal):
        if rule is Rule.RATIO_TEST:
            keeps = min(1.0, p[d] / q[d])
            emitted[d] += proposal[d] * keeps
            accepted[d] += proposal[d] * keeps
            if keeps < 1:
                emitted += proposal[d] * (1 - keeps) * rest / rest.sum()
        else:
            emitted += proposal[d] * answer
            accepted[d] += proposal[d] * answer[d]
    return emitted, accepted


@given(distribution_pairs(), st.sampled_from(Rule))
def test_acceptance_is_that_of_the_process(pair, rule):
    p, q = pair
    _, accepted = enumerated(rule, p, q)
    assert rules.acceptance(rule, p, q) == pytest.approx(accepted.sum(), abs=1e-12)


@given(distribution_pairs(), st.sampled_from(Rule))
def test_a_weight_is_the_chance_that_the_emitted_token_was_accepted(pair, rule):
    p, q = pair
    emitted, accepted = enumerated(rule, p, q)
    possible = np.flatnonzero(emitted > 1e-12)
    shape = (possible.size, p.size)
    found = rules.weights(rule, np.broadcast_to(p, shape), np.broadcast_to(q, shape), possible)
    assert found == pytest.approx(accepted[possible] / emitted[possible], abs=1e-9)


@given(distribution_pairs(), st.sampled_from([Rule.RATIO_TEST, Rule.ARGMAX_COMPARE, Rule.SAMPLED_COMPARE]))
def test_weights_of_what_the_target_writes_average_to_the_acceptance(pair, rule):
    p, q = pair
    possible = np.flatnonzero(p)
    shape = (possible.size, p.size)
    found = rules.weights(rule, np.broadcast_to(p, shape), np.broadcast_to(q, shape), possible)
    assert p[possible] @ found == pytest.approx(float(rules.acceptance(rule, p, q)), abs=1e-12)


@given(distribution_pairs())
def test_comparing_two_samples_is_the_worst_rule(pair):
    p, q = pair
    worst = rules.acceptance(Rule.SAMPLED_COMPARE, p, q)
    assert worst <= rules.acceptance(Rule.RATIO_TEST, p, q) + 1e-12
    assert worst <= p.max() + 1e-12


def test_ratio_test_and_argmax_compare_are_not_ordered():
    """A certain target with a flat draft, and two flat distributions that are equal."""
    flat = np.full(4, 0.25)
    certain = np.array([1.0, 0, 0, 0])
    assert rules.acceptance(Rule.ARGMAX_COMPARE, certain, flat) == 1.0
    assert rules.acceptance(Rule.RATIO_TEST, certain, flat) == 0.25
    assert rules.acceptance(Rule.ARGMAX_COMPARE, flat, flat) == 0.25
    assert rules.acceptance(Rule.RATIO_TEST, flat, flat) == 1.0


def test_whole_texts_are_weighed_at_once():
    p = np.array([[[0.5, 0.5], [0.9, 0.1]], [[0.2, 0.8], [1.0, 0.0]]])
    q = np.array([[[0.25, 0.75], [0.5, 0.5]], [[0.6, 0.4], [0.5, 0.5]]])
    found = rules.weights(Rule.RATIO_TEST, p, q, np.array([[0, 1], [1, 0]]))
    assert found == pytest.approx(np.array([[0.5, 1.0], [0.5, 0.5]]))
    assert rules.acceptance(Rule.RATIO_TEST, p, q).shape == (2, 2)


@pytest.mark.parametrize(
    ("p", "q", "y", "message"),
    [
        ([0.5, 0.4], [0.5, 0.5], 0, "target is no distribution"),
        ([0.5, 0.5], [1.5, -0.5], 0, "draft is no distribution"),
        ([0.5, np.nan], [0.5, 0.5], 0, "target is no distribution"),
        ([0.5, 0.5], [0.2, 0.3, 0.5], 0, "same vocabulary"),
        ([1.0, 0.0], [0.5, 0.5], 1, "probability 0"),
        ([0.5, 0.5], [0.5, 0.5], 2, "lie in 0..1"),
        ([0.5, 0.5], [0.5, 0.5], [0, 1], "emitted has shape"),
    ],
)
def test_what_is_no_distribution_or_cannot_be_emitted_is_refused(p, q, y, message):
    with pytest.raises(ValueError, match=message):
        rules.weights(Rule.RATIO_TEST, np.array(p), np.array(q), np.array(y))


def test_a_sampled_text_is_no_greedy_one():
    with pytest.raises(ValueError, match="sampled"):
        rules.weights(Rule.GREEDY, np.array([0.6, 0.4]), np.array([0.5, 0.5]), np.array(1))

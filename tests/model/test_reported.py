"""Reported figures: both ways, against published pairs and sums written out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgauge.model import reported

LENGTHS = st.integers(1, 16)
RATES = st.floats(0, 1)


@given(RATES, LENGTHS)
def test_acceptance_rate_goes_both_ways(rate, draft_tokens):
    tokens = reported.tokens_from_acceptance_rate(rate, draft_tokens)
    assert 1 <= tokens <= draft_tokens + 1
    assert reported.acceptance_rate_from_tokens(tokens, draft_tokens) == pytest.approx(rate, abs=1e-12)


@pytest.mark.parametrize(
    ("draft_tokens", "rate", "tokens"),
    [(1, 0.785, 1.78), (2, 0.665, 2.32), (3, 0.558, 2.67), (4, 0.476, 2.89), (6, 0.363, 3.16), (8, 0.292, 3.31)],
)
def test_a_published_ladder_reports_the_same_rounds_in_both_figures(draft_tokens, rate, tokens):
    """Phase "nmax" of thc1006/qwen3.8-speculative-decoding-rtx3090 (CC0 1.0): three digits, drafts nearly full."""
    assert reported.tokens_from_acceptance_rate(rate, draft_tokens) == pytest.approx(tokens, abs=0.03)


@given(st.floats(0.01, 0.99), LENGTHS)
def test_alpha_goes_both_ways(alpha, draft_tokens):
    tokens = reported.tokens_from_alpha(alpha, draft_tokens)
    assert tokens == pytest.approx((1 - alpha ** (draft_tokens + 1)) / (1 - alpha))
    assert reported.alpha_from_tokens(tokens, draft_tokens) == pytest.approx(alpha, abs=1e-9)


def test_alpha_at_its_ends():
    assert reported.alpha_from_tokens(1.0, 5) == pytest.approx(0.0, abs=1e-12)
    assert reported.alpha_from_tokens(6.0, 5) == pytest.approx(1.0)


def test_alpha_is_no_acceptance_rate():
    """4.7 of 6 accepted is a rate of 0.78, but the i.i.d. acceptance that gives it is 0.93; at 1 token they agree."""
    assert reported.acceptance_rate_from_tokens(5.7, 6) == pytest.approx(0.783, abs=0.001)
    assert reported.alpha_from_tokens(5.7, 6) == pytest.approx(0.931, abs=0.001)
    assert reported.alpha_from_tokens(1.8, 1) == pytest.approx(reported.acceptance_rate_from_tokens(1.8, 1))


@given(st.floats(1, 17), st.booleans())
def test_accepted_length_goes_both_ways(tokens, counts_bonus):
    length = reported.accepted_length_from_tokens(tokens, counts_bonus)
    assert reported.tokens_from_accepted_length(length, counts_bonus) == pytest.approx(tokens)


def test_accepted_length_differs_by_the_bonus_token():
    assert reported.tokens_from_accepted_length(4.7, counts_bonus=False) == 5.7
    assert reported.tokens_from_accepted_length(4.7, counts_bonus=True) == 4.7


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: reported.tokens_from_acceptance_rate(78.4, 6), "fraction"),
        (lambda: reported.tokens_from_acceptance_rate(0.5, 0), "1 draft token"),
        (lambda: reported.acceptance_rate_from_tokens(7.5, 6), "1 to 7 tokens"),
        (lambda: reported.alpha_from_tokens(0.9, 6), "1 to 7 tokens"),
        (lambda: reported.tokens_from_alpha(1.1, 6), "probability"),
        (lambda: reported.tokens_from_accepted_length(0.5, True), "bonus"),
        (lambda: reported.tokens_from_accepted_length(-0.5, False), "one token"),
        (lambda: reported.accepted_length_from_tokens(0.5, True), "one token"),
    ],
)
def test_figures_that_cannot_be_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()

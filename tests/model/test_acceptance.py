"""Round laws: exact against brute force, unbiased from censored rounds, equal to Leviathan's formula where that holds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgauge.model import acceptance
from specgauge.model.acceptance import RoundLaw

BITS = st.lists(st.integers(0, 1), min_size=1, max_size=60)


def brute_force_model(match: list[int], draft_tokens: int) -> list[tuple[int, int, int]]:
    """(drafted, accepted, state) of every round, by stepping through a reply as the engine does."""
    rounds, t, reply = [], 1, len(match) + 1
    while t < reply:
        remaining = reply - t
        drafted = min(draft_tokens, remaining - 1)
        accepted = 0
        while accepted < drafted and match[t - 1 + accepted]:
            accepted += 1
        rounds.append((drafted, accepted, t))
        t += accepted + 1
    return rounds


def brute_force_ngram(offer, run, prompt_tokens, size, draft_tokens) -> list[tuple[int, int, int]]:
    rounds, t, reply = [], 1, len(offer) + 1
    while t < reply:
        proposal = 0
        if prompt_tokens + t - 1 > size + draft_tokens + 1 and min(offer[t - 1], draft_tokens) >= size:
            proposal = min(offer[t - 1], draft_tokens)
        drafted = min(proposal, reply - t - 1)
        accepted = min(run[t - 1], drafted)
        rounds.append((drafted, accepted, t))
        t += accepted + 1
    return rounds


def counted(rounds: list[tuple[int, int, int]]) -> dict[tuple[int, int], tuple[float, float]]:
    """Rounds and mean state by (drafted, accepted)."""
    states: dict[tuple[int, int], list[int]] = {}
    for drafted, accepted, state in rounds:
        states.setdefault((drafted, accepted), []).append(state)
    return {kind: (len(found), sum(found) / len(found)) for kind, found in states.items()}


def of_law(law: RoundLaw) -> dict[tuple[int, int], tuple[float, float]]:
    entries = zip(law.drafted, law.accepted, law.weight, law.position)
    return {(int(d), int(a)): (float(w), float(p)) for d, a, w, p in entries}


def same(law: RoundLaw, expected: dict[tuple[int, int], tuple[float, float]]) -> bool:
    """Equal (drafted, accepted), with equal weights and positions."""
    found = of_law(law)
    return found.keys() == expected.keys() and all(found[k] == pytest.approx(expected[k]) for k in found)


@given(BITS, st.integers(0, 16))
def test_replay_of_known_matches_is_the_engine_round_by_round(match, draft_tokens):
    law = acceptance.replay_matches(np.array(match), draft_tokens)
    assert same(law, counted(brute_force_model(match, draft_tokens)))
    assert law.tokens == pytest.approx(len(match))


@given(st.data(), st.integers(0, 40), st.integers(1, 4), st.integers(1, 16))
def test_replay_of_ngram_offers_is_the_engine_round_by_round(data, prompt_tokens, size, draft_tokens):
    states = data.draw(st.integers(1, 50))
    offer = data.draw(st.lists(st.integers(0, 24), min_size=states, max_size=states))
    run = [data.draw(st.integers(0, o)) for o in offer]
    law = acceptance.replay_ngram(np.array(offer), np.array(run), prompt_tokens, size, draft_tokens)
    assert same(law, counted(brute_force_ngram(offer, run, prompt_tokens, size, draft_tokens)))


@given(st.floats(0.01, 0.99), st.integers(1, 12))
def test_independent_acceptance_is_leviathans_formula(rate, draft_tokens):
    """Equation 1 of arXiv 2211.17192, away from the reply's end."""
    law = acceptance.replay_survival(rate ** np.arange(1, draft_tokens + 1), 300, draft_tokens)
    full = law.drafted == draft_tokens
    tokens = law.weight[full] @ (law.accepted[full] + 1) / law.weight[full].sum()
    assert tokens == pytest.approx((1 - rate ** (draft_tokens + 1)) / (1 - rate), rel=1e-9)


@given(st.floats(0.05, 0.95), st.integers(1, 8))
def test_constant_probabilities_replay_like_their_survival(rate, draft_tokens):
    by_match = acceptance.replay_matches(np.full(60, rate), draft_tokens)
    by_depth = acceptance.replay_survival(rate ** np.arange(1, 4), 60, draft_tokens)
    assert same(by_match, of_law(by_depth))


def test_fractional_weights_are_the_mean_over_flags():
    rng = np.random.default_rng(1)
    weights = rng.uniform(0, 1, 40)
    law = acceptance.replay_matches(weights, 4)
    drawn = [len(brute_force_model(list(map(int, rng.random(40) < weights)), 4)) for _ in range(4000)]
    assert law.rounds == pytest.approx(np.mean(drawn), abs=4 * np.std(drawn) / np.sqrt(len(drawn)))
    assert law.tokens == pytest.approx(40)


def test_unknown_matches_must_be_imputed_first():
    with pytest.raises(ValueError, match="impute"):
        acceptance.replay_matches(np.array([1, -1, 0]), 2)


def test_survival_of_censored_rounds_is_unbiased():
    """Rounds cut short by the engine say nothing of the positions that they did not draft."""
    rng = np.random.default_rng(2)
    hazards = np.array([0.8, 0.7, 0.9, 0.6])
    flags = rng.random((40_000, 4)) < hazards
    run = np.cumprod(flags, axis=1).sum(axis=1)
    drafted = rng.integers(1, 5, run.size)
    survival = acceptance.survival_from_rounds(drafted, np.minimum(run, drafted))
    assert survival == pytest.approx(np.cumprod(hazards), abs=0.01)
    naive = [(np.minimum(run, drafted) >= j).mean() for j in range(1, 5)]
    assert naive[3] < 0.5 * survival[3]


def test_survival_stops_where_nothing_was_seen():
    assert acceptance.survival_from_rounds(np.array([2, 2]), np.array([0, 1]), depth=5).tolist() == [0.5, 0.0]
    assert acceptance.survival_from_rounds(np.array([0, 0]), np.array([0, 0])).size == 0


def test_imputation_follows_the_streak_and_keeps_what_is_known():
    """A reply in which agreement comes in long stretches: after a streak the unknown position is likely a match."""
    rng = np.random.default_rng(3)
    truth = np.repeat(rng.random(400) < 0.5, 12).astype(int)
    hidden = rng.random(truth.size) < 0.15
    (filled,) = acceptance.impute([np.where(hidden, acceptance.UNKNOWN, truth)])
    assert (filled[~hidden] == truth[~hidden]).all()
    after_long = hidden & (acceptance._streaks(truth, 8) >= 3)
    after_zero = hidden & (acceptance._streaks(truth, 8) == 0)
    assert filled[after_long].mean() == pytest.approx(truth[after_long].mean(), abs=0.1)
    assert filled[after_long].mean() > filled[after_zero].mean() + 0.3


def test_imputation_without_any_knowledge_expects_nothing():
    (filled,) = acceptance.impute([np.full(5, acceptance.UNKNOWN)])
    assert filled.tolist() == [0.0] * 5
    assert acceptance.impute([]) == ()


def test_empirical_law_counts_rounds_where_they_start():
    law = acceptance.law_from_rounds([4, 4, 0, 2], [4, 0, 0, 1])
    assert same(law, {(0, 0): (1, 7.0), (2, 1): (1, 8.0), (4, 0): (1, 6.0), (4, 4): (1, 1.0)})
    assert law.offer_rate == 0.75


def test_by_drafted_keeps_rounds_tokens_and_place():
    law = acceptance.replay_matches(np.array([1, 1, 0, 1, 0, 0, 1, 1, 1]), 2)
    merged = law.by_drafted()
    assert merged.rounds == law.rounds and merged.tokens == pytest.approx(law.tokens)
    assert merged.weight @ merged.position == pytest.approx(law.weight @ law.position)


def test_a_reply_of_one_token_has_no_rounds():
    assert acceptance.replay_matches(np.zeros(0), 4).rounds == 0
    assert acceptance.plain_law(0).tokens == 0

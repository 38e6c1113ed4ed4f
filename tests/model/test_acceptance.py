"""Round laws: exact against brute force, equal to the accept and reject process itself, and to Leviathan's formulas."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgauge.model import acceptance, rules
from specgauge.model.acceptance import RoundLaw
from specgauge.model.rules import Rule

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


@pytest.mark.parametrize(
    ("rate", "cost_ratio"), [(0.8, 0.1), (0.6, 0.02), (0.9, 0.01), (0.7, 0.3), (0.3, 0.4), (0.5, 0.6)]
)
def test_independent_acceptance_has_leviathans_speed_and_best_length(rate, cost_ratio):
    """Theorem 3.8 and corollary 3.9 of arXiv 2211.17192: a pass over g + 1 tokens costs a plain step, drafting c."""
    lengths = range(21)
    laws = [acceptance.replay_survival(rate ** np.arange(1, 21), 4000, g) for g in lengths]
    speed = np.array([law.tokens / (law.rounds + cost_ratio * law.passes_total) for law in laws])
    published = np.array([(1 - rate ** (g + 1)) / ((1 - rate) * (g * cost_ratio + 1)) for g in lengths])
    assert speed == pytest.approx(published, rel=3e-3)
    assert speed.argmax() == published.argmax()
    assert (speed.argmax() > 0) == (rate > cost_ratio)
    assert rate <= cost_ratio or speed.max() >= (1 + rate) / (1 + cost_ratio) * (1 - 1e-3)


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


STATES, TOKENS = 6, 5
"""A target and a draft that know six states: in the first three they nearly agree, in the others they do not. The last
token leads to the other three, so agreement comes in stretches."""


def next_state(state: np.ndarray, token: np.ndarray) -> np.ndarray:
    return np.where(token < TOKENS - 1, state // 3 * 3 + (state + token) % 3, np.where(state < 3, 3, 0) + token % 3)


def tables() -> tuple[np.ndarray, np.ndarray]:
    """p and q (STATES, TOKENS)."""
    rng = np.random.default_rng(5)
    p, other = (rng.dirichlet(np.full(TOKENS, 0.7), STATES) for _ in range(2))
    p[:, -1] = 0.25
    p[:, :-1] *= 0.75 / p[:, :-1].sum(axis=1, keepdims=True)
    alike = np.array([0.98, 0.95, 0.9, 0.35, 0.2, 0.05])[:, None]
    return p, alike * p + (1 - alike) * other


P, Q = tables()


@pytest.fixture(scope="module")
def text() -> tuple[np.ndarray, np.ndarray]:
    """States and tokens of a text that the target alone writes."""
    rng, tokens, state = np.random.default_rng(6), 600_000, 0
    states, written, uniform = np.empty(tokens, int), np.empty(tokens, int), rng.random(tokens)
    following = next_state(np.arange(STATES)[:, None], np.arange(TOKENS))
    for i in range(tokens):
        states[i] = state
        written[i] = token = np.searchsorted(TARGET[state], uniform[i], side="right")
        state = following[state, token]
    return states, written


def ladders(chances: np.ndarray) -> np.ndarray:
    """Running sums of rows of chances, the last entry certain."""
    sums = (chances / np.maximum(chances.sum(axis=1, keepdims=True), 1e-300)).cumsum(axis=1)
    sums[:, -1] = 1.0
    return sums


TARGET, DRAFT, RESIDUAL = ladders(P), ladders(Q), ladders(np.maximum(P - Q, 0))


def drawn(ladder: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A token of each row."""
    return (ladder <= rng.random(len(ladder))[:, None]).sum(axis=1)


def simulated_tokens_per_round(rule: Rule, draft_tokens: int, rounds: int) -> float:
    """Speculative decoding itself: draft, accept or reject, correct from the residual, bonus token; 2,000 chains."""
    chains, warm_up, emitted = 2000, 20, []
    rng = np.random.default_rng(7)
    state = rng.integers(0, STATES, chains)
    for _ in range(warm_up + rounds // chains):
        proposal, ahead = [], state
        for _ in range(draft_tokens):
            proposal.append(Q.argmax(axis=1)[ahead] if rule is Rule.ARGMAX_COMPARE else drawn(DRAFT[ahead], rng))
            ahead = next_state(ahead, proposal[-1])
        going, accepted = np.ones(chains, bool), np.zeros(chains, int)
        for d in proposal:
            if rule is Rule.RATIO_TEST:
                keeps = rng.random(chains) < P[state, d] / Q[state, d]
                token = np.where(keeps, d, drawn(RESIDUAL[state], rng))
            else:
                token = drawn(TARGET[state], rng)
                keeps = token == d
            state = np.where(going, next_state(state, token), state)
            going = going & keeps
            accepted += going
        state = np.where(going, next_state(state, drawn(TARGET[state], rng)), state)
        emitted.append(accepted + 1)
    return float(np.mean(emitted[warm_up:]))


def replayed_tokens_per_round(rule: Rule, text, draft_tokens: int) -> float:
    states, written = text
    law = acceptance.replay_matches(rules.weights(rule, P[states], Q[states], written), draft_tokens)
    return law.tokens / law.rounds


@pytest.mark.parametrize("draft_tokens", [1, 2, 4, 8])
def test_replay_of_a_sampled_text_is_the_accept_reject_process(text, draft_tokens):
    """Within 0.5 % of 400,000 rounds, where a geometric curve with the text's mean overlap is further off."""
    simulated = simulated_tokens_per_round(Rule.RATIO_TEST, draft_tokens, 400_000)
    replayed = replayed_tokens_per_round(Rule.RATIO_TEST, text, draft_tokens)
    overlap = rules.acceptance(Rule.RATIO_TEST, P, Q)[text[0]].mean()
    geometric = sum(overlap**j for j in range(draft_tokens + 1))
    assert abs(replayed / simulated - 1) < 0.005
    assert abs(geometric / simulated - 1) > max(0.005, 2 * abs(replayed / simulated - 1))


@pytest.mark.parametrize("draft_tokens", [2, 6])
@pytest.mark.parametrize("rule", [Rule.ARGMAX_COMPARE, Rule.SAMPLED_COMPARE])
def test_replay_knows_engines_that_compare(text, rule, draft_tokens):
    simulated = simulated_tokens_per_round(rule, draft_tokens, 60_000)
    assert replayed_tokens_per_round(rule, text, draft_tokens) == pytest.approx(simulated, rel=0.01)


def test_unknown_matches_must_be_imputed_first():
    with pytest.raises(ValueError, match="impute"):
        acceptance.replay_matches(np.array([1, -1, 0]), 2)


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

"""Acceptance from a pass along the target's text, held against speculative decoding simulated token by token.

Target and draft are tables of probabilities (the law of the next token given the last one). The simulation draws, accepts
and corrects by the rules themselves; nothing of model/ is in it.
"""

from collections.abc import Callable, Iterator
from functools import cache

import msgspec
import numpy as np
import pytest

from specgauge.calibrate import replies
from specgauge.calibrate.acceptance_checks import acceptance_checks
from specgauge.calibrate.evidence import Pair, matches_of
from specgauge.profiler.records import MatchTrace, Measurement, Profile, PromptTrace, Request, Sampling, Trace

from . import synthetic
from .synthetic import MODEL

VOCABULARY, REPLY, REPLIES, LENGTHS = 6, 600, 300, (1, 2, 4, 8)


@cache
def laws() -> tuple[np.ndarray, np.ndarray]:
    """p and q (V, V): behind half of the tokens both are sure and mostly of each other's mind, and text stays there for a
    while; behind the others they differ."""
    rng = np.random.default_rng(3)
    easy = VOCABULARY // 2
    p, q = rng.dirichlet(np.full(VOCABULARY, 1.0), (2, VOCABULARY))
    for token in range(easy):
        p[token] = 0.06 / VOCABULARY
        p[token, (token + 1) % easy] += 0.94
        q[token] = 0.9 * p[token] + 0.1 / VOCABULARY
    p[easy:, :easy] *= 0.2
    return p / p.sum(axis=1, keepdims=True), q


def draw(dice: np.random.Generator, law: np.ndarray) -> int:
    """A token of a law (V,)."""
    return min(int(np.searchsorted(law.cumsum(), dice.random(), side="right")), VOCABULARY - 1)


Rule = Callable[[np.random.Generator, int, int], tuple[int, int]]
"""(dice, token before, draft tokens) -> accepted tokens, the last token of the round."""


def ratio_test(dice: np.random.Generator, last: int, length: int) -> tuple[int, int]:
    """arXiv 2211.17192, algorithm 1."""
    p, q = laws()
    for place in range(length):
        drafted = draw(dice, q[last])
        if dice.random() >= min(1.0, p[last, drafted] / q[last, drafted]):
            rest = np.maximum(p[last] - q[last], 0)
            return place, draw(dice, rest / rest.sum())
        last = drafted
    return length, draw(dice, p[last])


def compare(dice: np.random.Generator, last: int, length: int) -> tuple[int, int]:
    """The draft proposes its likeliest token, the target draws its own: accepted where they are equal."""
    p, q = laws()
    for place in range(length):
        drafted, drawn = int(q[last].argmax()), draw(dice, p[last])
        if drawn != drafted:
            return place, drawn
        last = drafted
    return length, draw(dice, p[last])


@cache
def simulated(rule: Rule, length: int, rounds: int = 80_000) -> float:
    """Tokens per round of a reply without an end."""
    dice, last, tokens = np.random.default_rng(11), 0, 0
    for _ in range(rounds):
        accepted, last = rule(dice, last, length)
        tokens += accepted + 1
    return tokens / rounds


@cache
def text(seed: int, tokens: int = REPLY) -> np.ndarray:
    p, dice = laws()[0], np.random.default_rng([5, seed])
    found = [seed % VOCABULARY]
    while len(found) < tokens + 50:
        found.append(draw(dice, p[found[-1]]))
    return np.array(found[50:])


def weights(reply: np.ndarray, rule: Rule) -> tuple[float, ...]:
    """Chance of each token behind the first that it came from an accepted draft."""
    p, q = laws()
    before, after = reply[:-1], reply[1:]
    if rule is compare:
        return tuple((after == q[before].argmax(axis=1)).astype(float).tolist())
    return tuple(np.minimum(1.0, q[before, after] / p[before, after]).tolist())


def a_trace(profile: Profile, place: int, seed: int, **found) -> MatchTrace:
    fields = {"source": "teacher-forced", "reply_sha256": f"text {seed}", **found}
    return MatchTrace(
        target="t",
        drafter="model",
        draft="d",
        prompt=profile.prompts[place],
        prompt_tokens=100,
        reply_tokens=REPLY,
        **fields,
    )


def with_matches(traces: Iterator[MatchTrace] | tuple[MatchTrace, ...], profile: Profile | None = None) -> Profile:
    profile = profile or synthetic.without(synthetic.profile(synthetic.quiet()), "matches")
    taken = Measurement(
        request=Request(action="matches", repeats=77),
        digest="weights",
        started_at_seconds=0.0,
        wall_seconds=1.0,
        matches=tuple(traces),
    )
    return msgspec.structs.replace(profile, measurements=(*profile.measurements, taken))


def tokens_per_round(profile: Profile, length: int) -> float:
    found = replies.workload_replies(profile, MODEL.setting(length), "ordinary")
    assert found.source == "matches"
    return sum(r.law.tokens for r in found.replies) / sum(r.law.rounds for r in found.replies)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("rule", [ratio_test, compare])
def test_weights_of_plain_text_give_the_rounds_of_every_length(rule: Rule, length: int):
    """300 texts of 600 tokens, once read, against 80,000 simulated rounds of each length: within 2 %."""
    profile = synthetic.without(synthetic.profile(synthetic.quiet()), "matches")
    read = (a_trace(profile, 0, seed, weight=weights(text(seed), rule)) for seed in range(REPLIES))
    assert tokens_per_round(with_matches(read), length) == pytest.approx(simulated(rule, length), rel=0.02)


def test_a_single_rate_would_be_wrong_where_weights_are_right():
    """The independence of drafted tokens, which weights do not assume, misses by more than 5 % at 8 tokens."""
    mean = np.mean([np.mean(weights(text(seed), ratio_test)) for seed in range(REPLIES)])
    geometric = float(np.sum(mean ** np.arange(9)))
    assert abs(geometric / simulated(ratio_test, 8) - 1) > 0.05


def test_ones_and_zeros_are_flags():
    profile = synthetic.without(synthetic.profile(synthetic.quiet()), "matches")
    flags = tuple(int(w) for w in weights(text(1), compare))
    as_weight = with_matches((a_trace(profile, 0, 1, weight=tuple(map(float, flags))),))
    as_match = with_matches((a_trace(profile, 0, 1, match=flags),))
    assert tokens_per_round(as_weight, 5) == pytest.approx(tokens_per_round(as_match, 5))


def test_a_text_that_was_read_beats_one_rebuilt_from_rounds_whichever_came_last():
    profile = synthetic.without(synthetic.profile(synthetic.quiet()), "matches")
    read = a_trace(profile, 0, 1, weight=(0.25,) * (REPLY - 1))
    rebuilt = a_trace(profile, 0, 2, match=(1,) * (REPLY - 1), source="rounds")
    for order in ((read, rebuilt), (rebuilt, read)):
        assert matches_of(with_matches(order), Pair.of(MODEL)) == {"ordinary-0": (read,)}


def test_the_last_reading_of_one_text_counts_and_texts_are_kept_apart():
    profile = synthetic.without(synthetic.profile(synthetic.quiet()), "matches")
    old, new, other = (a_trace(profile, 0, s, weight=(w,) * (REPLY - 1)) for s, w in ((1, 0.1), (1, 0.2), (2, 0.3)))
    (found,) = matches_of(with_matches((old, new, other)), Pair.of(MODEL)).values()
    assert sorted(trace.weight[0] for trace in found) == [0.2, 0.3]


def test_several_texts_of_a_prompt_weigh_as_much_as_one_of_another():
    """Seconds and tokens of a prompt are the mean over its texts: by hand, rounds of the two texts halved."""
    profile = synthetic.without(synthetic.profile(synthetic.quiet()), "matches")
    never, always = (0.0,) * (REPLY - 1), (1.0,) * (REPLY - 1)
    one = [
        a_trace(profile, 0, 1, weight=never),
        a_trace(profile, 0, 2, weight=always),
        a_trace(profile, 1, 3, weight=never),
    ]
    found = replies.workload_replies(with_matches(tuple(one)), MODEL.setting(3), "ordinary")
    plain_rounds, drafting_rounds = REPLY - 1, np.ceil((REPLY - 1) / 4)
    assert sum(r.law.rounds for r in found.replies) == pytest.approx(1.5 * plain_rounds + 0.5 * drafting_rounds)
    assert sum(r.law.tokens for r in found.replies) == pytest.approx(2 * (REPLY - 1))
    assert found.places == (0, 0, 1)


def test_prompts_are_resampled_not_their_texts():
    """Eight texts of one prompt tell nothing of other prompts: the bounds are those of one text of each."""
    from specgauge.calibrate import fit

    profile = synthetic.without(synthetic.profile(synthetic.quiet()), "matches")
    rates = np.linspace(0.3, 0.9, 6)
    few = [a_trace(profile, i, i, weight=(float(r),) * (REPLY - 1)) for i, r in enumerate(rates)]
    many = [
        a_trace(profile, i, 10 * i + k, weight=(float(r),) * (REPLY - 1)) for i, r in enumerate(rates) for k in range(8)
    ]
    single, several = (fit.calibrate(with_matches(tuple(found)), replicates=200) for found in (few, many))
    one, eight = (found.forecast(MODEL.setting(3), "ordinary").tokens_per_second for found in (single, several))
    assert (eight.value, eight.low, eight.high) == pytest.approx((one.value, one.low, one.high), rel=1e-9)
    told = [a for a in several.record("", "", "").acceptance if a.drafter == "model" and a.workload == "ordinary"]
    assert [a.prompts for a in told] == [6]


def test_replayed_acceptance_is_held_against_the_real_rounds_of_the_same_prompts():
    """Real rounds of one prompt, by hand: 10 rounds of 3 drafted that accept 1, 20 tokens; a replay of never accepting."""
    profile = synthetic.without(synthetic.profile(synthetic.quiet()), "matches")
    profile = msgspec.structs.replace(profile, measurements=tuple(m for m in profile.measurements if not m.traces))
    rounds = PromptTrace(
        prompt=profile.prompts[0],
        prompt_tokens=100,
        reply_tokens=21,
        seconds=(0.03,) * 10,
        drafted=(3,) * 10,
        accepted=(1,) * 10,
    )
    real = Measurement(
        request=Request(action="trace", repeats=78),
        digest="real",
        started_at_seconds=0.0,
        wall_seconds=1.0,
        traces=(Trace(setting=MODEL.setting(3), sampling=Sampling(), prompts=(rounds,)),),
    )
    read = with_matches(
        (a_trace(profile, 0, 1, weight=(0.0,) * 20), a_trace(profile, 1, 2, weight=(1.0,) * 20)), profile
    )
    read = msgspec.structs.replace(read, measurements=(*read.measurements, real))
    (check,) = acceptance_checks(read)
    assert (check.draft_tokens, check.rounds, check.workload) == (3, 10, "ordinary")
    assert (check.replayed_tokens_per_round, check.measured_tokens_per_round) == pytest.approx((1.0, 2.0))
    from_rounds = acceptance_checks(synthetic.profile(synthetic.quiet()))
    assert not any(check.drafter == "model" for check in from_rounds)

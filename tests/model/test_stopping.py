"""Early stop: round for round against an engine's loop, and against a Monte-Carlo of drafts that go astray."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgauge.model import acceptance, stopping
from specgauge.model.acceptance import RoundLaw
from specgauge.model.stopping import EarlyStop

STOPS = st.builds(EarlyStop, st.sampled_from([0.0, 0.3, 0.6, 1.0]), st.integers(0, 4), st.booleans())


def engine_rounds(match, confidence, draft_tokens: int, stop: EarlyStop) -> list[tuple[int, int, int, int]]:
    """(drafted, accepted, passes, state) of every round, whole drafts given by state, as an engine's loop has them."""
    rounds, t, reply = [], 1, len(match) + 1
    while t < reply:
        longest, draft, passes = min(draft_tokens, reply - t - 1), [], 0
        while longest >= stop.n_min and len(draft) < longest:
            depth = len(draft)
            passes += 1
            sure = confidence[t - 1][depth] >= stop.p_min
            if sure or stop.verifies_failing_token:
                draft.append(match[t - 1][depth])
            if not sure:
                break
        if len(draft) < stop.n_min:
            draft = []
        accepted = draft.index(0) if 0 in draft else len(draft)
        rounds.append((len(draft), accepted, passes, t))
        t += accepted + 1
    return rounds


def same(law: RoundLaw, rounds: list[tuple[int, int, int, int]]) -> bool:
    """Equal rounds by (drafted, accepted, whether a pass was paid), with equal mean passes and states."""
    found = {
        (int(d), int(a), bool(p > 0)): (w, s, p)
        for d, a, w, s, p in zip(law.drafted, law.accepted, law.weight, law.position, law.passes)
    }
    kinds = {(d, a, p > 0) for d, a, p, _ in rounds}
    expected = {}
    for kind in kinds:
        mine = [(p, s) for d, a, p, s in rounds if (d, a, p > 0) == kind]
        expected[kind] = (len(mine), np.mean([s for _, s in mine]), np.mean([p for p, _ in mine]))
    return found.keys() == expected.keys() and all(found[k] == pytest.approx(expected[k]) for k in found)


@given(st.integers(1, 40), st.integers(0, 8), STOPS, st.integers(0, 2**32 - 1))
def test_replay_of_whole_drafts_is_the_engine_round_by_round(states, draft_tokens, stop, seed):
    rng = np.random.default_rng(seed)
    match = (rng.random((states, 8)) < rng.uniform(0.3, 1)).astype(int)
    confidence = rng.choice([0.1, 0.3, 0.5, 0.6, 0.9, 1.0], (states, 8))
    law = stopping.replay_stopped_drafts(match, confidence, draft_tokens, stop)
    assert same(law, engine_rounds(match, confidence, draft_tokens, stop))
    assert law.tokens == pytest.approx(states)


@given(st.integers(1, 40), st.integers(0, 8), STOPS, st.integers(0, 8), st.integers(0, 2**32 - 1))
def test_a_trace_and_known_lengths_off_the_path_are_the_engine_round_by_round(
    states, draft_tokens, stop, goes_on, seed
):
    """Behind a wrong token `goes_on` tokens are confident and the next is not."""
    rng = np.random.default_rng(seed)
    match = (rng.random(states) < rng.uniform(0.3, 1)).astype(int)
    confidence = rng.choice([0.1, 0.3, 0.5, 0.6, 0.9, 1.0], states)
    off_path = np.concatenate([np.ones(goes_on), [float(stop.p_min == 0)]])
    drafts, sure = np.zeros((states, 8), int), np.zeros((states, 8))
    for t in range(states):
        on_text = min(8, states - t)
        drafts[t, :on_text], sure[t, :on_text] = match[t : t + 8], confidence[t : t + 8]
        wrong = int(np.argmin(np.append(drafts[t], 0)))
        sure[t, wrong + 1 :] = (np.arange(8 - wrong - 1) < goes_on)[: max(8 - wrong - 1, 0)]
    law = stopping.replay_stopped(match, confidence, off_path, draft_tokens, stop)
    assert same(law, engine_rounds(drafts, sure, draft_tokens, stop))


@given(st.integers(1, 40), st.integers(0, 8), st.booleans(), st.integers(0, 2**32 - 1))
def test_a_stop_that_never_comes_is_plain_replay(states, draft_tokens, verifies, seed):
    weights, confidence = np.random.default_rng(seed).random((2, states))
    law = stopping.replay_stopped(weights, confidence, np.ones(1), draft_tokens, EarlyStop(0.0, 0, verifies))
    plain = acceptance.replay_matches(weights, draft_tokens)
    for name in ("drafted", "accepted", "weight", "position", "passes"):
        assert getattr(law, name) == pytest.approx(getattr(plain, name))


def test_a_failing_token_costs_its_pass_and_is_verified_only_by_builds_that_append_first():
    """The third token is unsure: two are drafted for three passes, or three for three."""
    match, confidence = np.ones(9), np.array([0.9, 0.9, 0.2, 0.9, 0.9, 0.2, 0.9, 0.9, 0.2])
    tests_first = stopping.replay_stopped(match, confidence, np.zeros(1), 8, EarlyStop(0.5))
    appends_first = stopping.replay_stopped(match, confidence, np.zeros(1), 8, EarlyStop(0.5, 0, True))
    assert tests_first.drafted[-1] == 2 and tests_first.passes[-1] == pytest.approx(8 / 3)
    assert (appends_first.drafted[-1], appends_first.accepted[-1], appends_first.passes[-1]) == (3, 3, 3)


def test_short_drafts_are_paid_for_and_discarded():
    law = stopping.replay_stopped(np.ones(8), np.full(8, 0.2), np.zeros(1), 6, EarlyStop(0.5, n_min=2))
    assert law.drafted.tolist() == [0, 0] and law.weight.tolist() == [2, 6]
    assert law.passes.tolist() == [0, 1], "the last two rounds have no room for two draft tokens"


# A text and its draft: confidence persists along the text, and a draft that went wrong goes on in its own way.

REPLIES, STATES, DRAWS = 150, 200, 8


@dataclass(frozen=True)
class World:
    """How sure the draft is: reported logit = slope x true logit + offset; off the path the true logit drifts down."""

    slope: float
    offset: float
    off_path_drift: float

    def reported(self, latent: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-self.slope * latent - self.offset))


CALIBRATED = World(slope=1.0, offset=0.0, off_path_drift=-0.5)
MISCALIBRATED = World(slope=1.7, offset=0.8, off_path_drift=0.4)
PERSISTENCE, CENTRE, SPREAD = 0.7, 1.3, 1.6


def next_latent(latent: np.ndarray, centre: float, rng: np.random.Generator) -> np.ndarray:
    noise = SPREAD * np.sqrt(1 - PERSISTENCE**2) * rng.normal(size=latent.shape)
    return centre + PERSISTENCE * (latent - centre) + noise


def written_text(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Latent true logit and match bits, (REPLIES, STATES) each: E[match | latent] = 1 / (1 + e^-latent)."""
    latent = np.empty((REPLIES, STATES))
    latent[:, 0] = CENTRE + SPREAD * rng.normal(size=REPLIES)
    for t in range(1, STATES):
        latent[:, t] = next_latent(latent[:, t - 1], CENTRE, rng)
    return latent, (rng.random(latent.shape) < 1 / (1 + np.exp(-latent))).astype(int)


@dataclass(frozen=True)
class Rounds:
    """Rounds of all replies, (R,) each, and the confidences (R, draft tokens) of their drafts, NaN behind the last."""

    drafted: np.ndarray
    accepted: np.ndarray
    passes: np.ndarray
    confidence: np.ndarray


def simulated(world: World, latent, match, draft_tokens: int, stop: EarlyStop, rng: np.random.Generator) -> Rounds:
    """All replies (R, N) side by side, a round at a time, a draft pass at a time."""
    replies, states = latent.shape
    at, rows, found = np.zeros(replies, int), np.arange(replies), []
    while (active := at < states).any():
        longest = np.clip(states - at - 1, 0, draft_tokens)
        longest[longest < stop.n_min] = 0
        drafting, on_path = active, np.ones(replies, bool)
        drafted, accepted, passes = (np.zeros(replies, int) for _ in range(3))
        seen, stray = np.full((replies, draft_tokens), np.nan), np.zeros(replies)
        for depth in range(draft_tokens):
            drafting = drafting & (depth < longest)
            place = np.minimum(at + depth, states - 1)
            stray = next_latent(stray, CENTRE + world.off_path_drift, rng)
            truth = np.where(on_path, latent[rows, place], stray)
            sure = world.reported(truth)
            seen[drafting, depth] = sure[drafting]
            passes += drafting
            appended = drafting & ((sure >= stop.p_min) | stop.verifies_failing_token)
            drafted += appended
            on_path = on_path & (match[rows, place] == 1)
            accepted += appended & on_path
            stray = truth
            drafting = drafting & (sure >= stop.p_min)
        discarded = drafted < stop.n_min
        drafted[discarded], accepted[discarded] = 0, 0
        found.append(tuple(part[active] for part in (drafted, accepted, passes, seen)))
        at += np.where(active, accepted + 1, 0)
    return Rounds(*(np.concatenate(part) for part in zip(*found)))


DRAFT_SECONDS = 0.004
VERIFY_SECONDS = np.array([0.030, 0.032, 0.034, 0.037, 0.039, 0.042, 0.044, 0.047, 0.049, 0.071, 0.072])


def figures(drafted, accepted, passes, weight) -> np.ndarray:
    """Passes, drafted and accepted per round, and tokens per second on a machine with a step at 10 tokens."""
    per_round = [float(weight @ count) / weight.sum() for count in (passes, drafted, accepted)]
    seconds = weight @ (passes * DRAFT_SECONDS + VERIFY_SECONDS[drafted])
    return np.array([*per_round, weight @ (accepted + 1) / seconds])


def of_laws(laws: list[RoundLaw]) -> np.ndarray:
    names = ("drafted", "accepted", "passes", "weight")
    return figures(*(np.concatenate([getattr(law, name) for law in laws]) for name in names))


def of_rounds(rounds: Rounds) -> np.ndarray:
    return figures(rounds.drafted, rounds.accepted, rounds.passes, np.ones(rounds.drafted.size))


@pytest.mark.parametrize("verifies", [False, True], ids=["tests-first", "appends-first"])
@pytest.mark.parametrize("n_min", [0, 3])
@pytest.mark.parametrize("p_min", [0.3, 0.6, 0.85])
@pytest.mark.parametrize("world", [CALIBRATED, MISCALIBRATED], ids=["calibrated", "miscalibrated"])
def test_forecast_of_early_stop_is_within_one_percent_of_simulation(world, p_min, n_min, verifies):
    """The profile: one pass over the text, and drafts of 8 tokens without a stop. The forecast: up to 10 tokens."""
    rng = np.random.default_rng(11)
    latent, match = written_text(rng)
    often = (np.tile(latent, (DRAWS, 1)), np.tile(match, (DRAWS, 1)))
    profile = simulated(world, *often, 8, EarlyStop(0.0), rng)
    off_path = stopping.off_path_from_rounds(profile.confidence, profile.accepted, p_min)
    stop = EarlyStop(p_min, n_min, verifies)
    replies = zip(match, world.reported(latent))
    forecast = of_laws([stopping.replay_stopped(bits, sure, off_path, 10, stop) for bits, sure in replies])
    assert forecast == pytest.approx(of_rounds(simulated(world, *often, 10, stop, rng)), rel=0.01)


@pytest.mark.parametrize("p_min", [0.3, 0.6, 0.85])
def test_calibrated_confidences_forecast_without_matches(p_min):
    """E[match | confidence] = confidence, so a text on which only the draft's confidences are known is enough."""
    rng = np.random.default_rng(12)
    latent, _ = written_text(rng)
    often = np.tile(latent, (DRAWS, 1))
    match = (rng.random(often.shape) < CALIBRATED.reported(often)).astype(int)
    profile = simulated(CALIBRATED, often, match, 8, EarlyStop(0.0), rng)
    off_path = stopping.off_path_from_rounds(profile.confidence, profile.accepted, p_min)
    sure = CALIBRATED.reported(latent)
    forecast = of_laws([stopping.replay_stopped(row, row, off_path, 10, EarlyStop(p_min)) for row in sure])
    assert forecast == pytest.approx(
        of_rounds(simulated(CALIBRATED, often, match, 10, EarlyStop(p_min), rng)), rel=0.01
    )


def test_drafts_off_the_path_must_not_be_forgotten():
    """Confidences of the text alone, held to go on behind a wrong token, would misstate what is drafted."""
    rng = np.random.default_rng(13)
    latent, match = written_text(rng)
    run = of_rounds(simulated(MISCALIBRATED, latent, match, 10, EarlyStop(0.6), rng))
    replies = list(zip(match, MISCALIBRATED.reported(latent)))
    ends = of_laws([stopping.replay_stopped(bits, sure, np.zeros(1), 10, EarlyStop(0.6)) for bits, sure in replies])
    assert ends[0] < 0.9 * run[0] and ends[1] < 0.9 * run[1]


def test_law_off_the_path_is_recovered_from_drafts_that_end_too_early():
    """Hazards 0.9, 0.6, 0.3 behind the wrong token, drafts of 1 to 5 tokens: cut ones are censored, not failures."""
    rng = np.random.default_rng(14)
    rounds, hazard = 60_000, np.array([0.9, 0.6, 0.3, 0.0])
    accepted, length = rng.integers(0, 3, rounds), rng.integers(1, 6, rounds)
    confidence = np.full((rounds, 5), 0.9)
    goes_on = rng.random((rounds, 4)) < hazard
    for k in range(4):
        place = accepted + 1 + k
        here = place < 5
        confidence[here, place[here]] = np.where(goes_on[here, k], 0.7, 0.2)
    confidence[np.arange(5) >= length[:, None]] = np.nan
    found = stopping.off_path_from_rounds(confidence, np.minimum(accepted, length), 0.5)
    assert found == pytest.approx(hazard, abs=0.02)


def test_rounds_whose_wrong_token_already_fails_say_nothing_of_what_follows():
    confidence = np.array([[0.9, 0.2, 0.9, 0.9], [0.9, 0.8, 0.9, 0.1]])
    assert stopping.off_path_from_rounds(confidence, np.array([1, 1]), 0.5).tolist() == [1.0, 0.0]
    assert stopping.off_path_from_rounds(confidence[:1], np.array([1]), 0.5).size == 0


def test_continuing_while_the_next_confidence_pays_is_the_best_fixed_length_of_constant_confidence():
    """i.i.d. acceptance 0.8, every token costs the same: the rule at the best speed ends drafts at the best length."""
    lengths, step, more = np.arange(31), 0.030, 0.0031
    speed = (1 - 0.8 ** (lengths + 1)) / (1 - 0.8) / (step + more * lengths)
    best = int(speed.argmax())
    pays = [0.8 > stopping.confidence_to_continue(0.8**drafted, more, float(speed[best])) for drafted in lengths]
    assert 0 < best < 30 and pays == [drafted < best for drafted in lengths]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: EarlyStop(1.5), "p_min"),
        (lambda: EarlyStop(0.5, -1), "n_min"),
        (lambda: stopping.replay_stopped(np.array([-1, 1]), np.ones(2), np.ones(1), 2, EarlyStop(0.5)), "impute"),
        (lambda: stopping.replay_stopped(np.ones(2), np.array([np.nan, 1]), np.ones(1), 2, EarlyStop(0.5)), "impute"),
        (lambda: stopping.replay_stopped(np.ones(2), np.ones(3), np.ones(1), 2, EarlyStop(0.5)), "one value a state"),
        (lambda: stopping.replay_stopped(np.zeros(4), np.ones(4), np.zeros(0), 2, EarlyStop(0.5)), "what follows"),
        (lambda: stopping.replay_stopped_drafts(np.ones((4, 2)), np.ones((4, 2)), 3, EarlyStop(0.5)), "3 or more"),
        (lambda: stopping.replay_stopped_drafts(np.full((4, 2), 2), np.ones((4, 2)), 2, EarlyStop(0.5)), "0, 1"),
        (lambda: stopping.off_path_from_rounds(np.ones((4, 2)), np.ones(3), 0.5), "a row for each"),
        (lambda: stopping.confidence_to_continue(0.0, 0.01, 40.0), "chance"),
    ],
)
def test_what_cannot_be_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()

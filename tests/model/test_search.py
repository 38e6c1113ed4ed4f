"""The grid against forecasts made one by one, an engine stepped by hand, and memory needs taken alone."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specgauge.model import acceptance, forecast
from specgauge.model.acceptance import RoundLaw
from specgauge.model.cost import Overhead, Rollback, RoundOfParts, Rounds, WholeRounds
from specgauge.model.forecast import Reply
from specgauge.model.grid import Grid, Option, Pairing
from specgauge.model.hardware import Tier
from specgauge.model.kv import KvTypes
from specgauge.model.law_table import LawTable
from specgauge.model.memory import MEBIBYTE, Deployment
from specgauge.model.recipe import RECIPES
from specgauge.model.search import rank
from specgauge.model.shape import Shape, SoftmaxAttention, Tensors, Weights
from specgauge.model.steps import StepTable
from specgauge.model.stopping import EarlyStop, replay_stopped

TARGET = Shape(
    Weights(mlp=Tensors(10**9, 10**9)), vocabulary=1000, hidden=64, attention=(SoftmaxAttention(10, 8, 2, 64, 64),)
)
DRAFT = Shape(
    Weights(mlp=Tensors(10**8, 10**8)), vocabulary=1000, hidden=32, attention=(SoftmaxAttention(4, 4, 1, 64, 64),)
)
DEPLOYMENT = Deployment(TARGET, DRAFT, runtime_bytes=0.0)
ROOMY = 1e12
WIDTHS = np.array([1, 2, 4, 8, 9, 16, 17, 40])
CONTEXTS = np.array([0.0, 1000.0])
FLAT = StepTable(np.arange(1, 10), CONTEXTS, np.full((2, 9), 10e-3))
"""Every pass of 1 to 9 tokens takes 10 ms."""


def option(cost, laws: LawTable, draft: str = "small", **names) -> Option:
    return Option(Pairing("T", "Q8_0", "model", draft, "Q8_0", **names), cost, laws, DEPLOYMENT)


def grid_of(*options: Option, contexts=(100.0,), streams=(1,), device_bytes: float = ROOMY) -> Grid:
    return Grid(options, np.array(contexts), np.array(streams), device_bytes)


def random_cost(rng: np.random.Generator) -> RoundOfParts:
    def table(scale: float) -> StepTable:
        first = scale * rng.uniform(5e-3, 30e-3, WIDTHS.size)
        return StepTable(WIDTHS, CONTEXTS, np.stack([first, first + scale * rng.uniform(0, 5e-3, WIDTHS.size)]))

    overhead = Overhead(rng.uniform(0, 1e-3, ()), rng.uniform(0, 1e-3, ()))
    return RoundOfParts(RECIPES["model"], table(1.0), table(0.1), overhead, rng.uniform(0.9, 1.1, 5))


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.lists(st.integers(1, 12), min_size=1, max_size=4, unique=True))
def test_full_drafts_cost_what_the_forecast_over_lengths_says_cell_by_cell(seed, lengths):
    """Two options, so that what one table answered must not answer for the other."""
    rng = np.random.default_rng(seed)
    draft_tokens, contexts, streams = np.array([0, *sorted(lengths)]), [50.0, 700.0], [1, 3]
    costs = [random_cost(rng) for _ in range(2)]
    curves = [np.cumprod(rng.uniform(0, 1, 12)) for _ in range(2)]
    made = [
        option(c, LawTable.of_survival(s, draft_tokens.tolist()), str(i)) for i, (c, s) in enumerate(zip(costs, curves))
    ]
    found = rank(grid_of(*made, contexts=contexts, streams=streams))
    for i, (c, context), (b, count) in itertools.product(range(2), enumerate(contexts), enumerate(streams)):
        rows = found.option == i
        expected = forecast.forecast_lengths(curves[i], costs[i], draft_tokens, context, count)
        assert found.draft_tokens[rows].tolist() == draft_tokens.tolist()
        assert found.tokens_per_second[rows, c, b] == pytest.approx(expected.tokens_per_second, rel=1e-12)
        assert found.doubtful[rows, c, b].tolist() == expected.doubtful.tolist()
    assert (found.aggregate_tokens_per_second == found.tokens_per_second * np.array(streams)).all()


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(0, 12), st.integers(1, 4))
def test_a_law_with_its_reply_end_costs_what_the_forecast_of_the_workload_says(seed, draft_tokens, streams):
    rng = np.random.default_rng(seed)
    cost, law = random_cost(rng), acceptance.replay_matches(rng.random(60), draft_tokens)
    pinned = RoundLaw(law.drafted, law.accepted, law.weight, np.ones(law.weight.size), law.passes)
    replicated = replace(cost, target=replace(cost.target, seconds=cost.target.seconds[None]))
    expected = forecast.forecast_workload(replicated, (Reply(300, pinned),), np.ones((1, 1)), np.ones(1), streams)
    found = rank(grid_of(option(cost, LawTable.of([draft_tokens], [0.0], [law])), contexts=[300.0], streams=[streams]))
    row = int(np.flatnonzero(found.draft_tokens == draft_tokens)[0])
    assert found.tokens_per_second[row, 0, 0] == pytest.approx(expected.tokens_per_second[0], rel=1e-12)
    assert found.doubtful_share[row, 0, 0] == pytest.approx(expected.doubtful_share)


def engine_rounds(match, sure, draft_tokens: int, sure_behind: bool) -> list[tuple[int, int, int]]:
    """(drafted, accepted, passes) of every round of an engine that tests a token's confidence before it appends it."""
    rounds, state = [], 0
    while state < len(match):
        drafted = accepted = passes = 0
        right = True
        while drafted < min(draft_tokens, len(match) - state - 1):
            passes += 1
            if not (sure[state + drafted] if right else sure_behind):
                break
            right = right and bool(match[state + drafted])
            drafted += 1
            accepted += right
        rounds.append((drafted, accepted, passes))
        state += accepted + 1
    return rounds


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 10**6), st.sampled_from([0.0, 0.3, 0.6, 0.9]), st.integers(1, 12), st.booleans(), st.integers(1, 3)
)
def test_early_stop_costs_the_passes_of_an_engine_stepped_by_hand(seed, p_min, draft_tokens, sure_behind, streams):
    """Each round priced alone: passes in vain, drafts of nothing and the reply's last token among them."""
    rng = np.random.default_rng(seed)
    cost, match, confidence = random_cost(rng), rng.integers(0, 2, 50), rng.random(50)
    sure_behind = sure_behind or p_min == 0
    law = replay_stopped(match, confidence, np.array([float(sure_behind)]), draft_tokens, EarlyStop(p_min))
    found = rank(
        grid_of(option(cost, LawTable.of([draft_tokens], [p_min], [law])), contexts=[400.0], streams=[streams])
    )
    rounds = engine_rounds(match, confidence >= p_min, draft_tokens, sure_behind)
    seconds = [
        cost.lookup(Rounds.of(drafted, 400.0, passes=np.array([passes]), streams=streams)).seconds[0]
        for drafted, _, passes in rounds
    ]
    row = int(np.flatnonzero(found.draft_tokens == draft_tokens)[0])
    assert found.tokens_per_second[row, 0, 0] == pytest.approx(match.size / sum(seconds), rel=1e-9)
    assert found.p_min[row] == p_min


def test_a_mean_of_passes_is_priced_between_the_whole_numbers():
    cost = random_cost(np.random.default_rng(4))
    law = RoundLaw(np.array([0]), np.array([0]), np.ones(1), np.ones(1), np.array([2.25]))
    found = rank(grid_of(option(cost, LawTable.of([5], [0.5], [law]))))
    two, three = cost.lookup(Rounds.of(np.zeros(2, int), 100.0, passes=np.array([2, 3]))).seconds
    assert found.seconds[1, 0, 0] == pytest.approx(0.75 * two + 0.25 * three)


def test_p_min_zero_drafts_as_if_there_were_none():
    rng = np.random.default_rng(5)
    match, cost = rng.integers(0, 2, 80), random_cost(rng)
    stopped = replay_stopped(match, rng.random(80), np.array([1.0]), 6, EarlyStop(0.0))
    found = rank(grid_of(option(cost, LawTable.of([6, 6], [0.0, 0.0], [stopped, acceptance.replay_matches(match, 6)]))))
    assert found.seconds[1] == pytest.approx(found.seconds[2]) and found.tokens[1] == pytest.approx(found.tokens[2])


def test_plain_decoding_is_always_there_and_named_once_for_all_drafts():
    laws = LawTable.of_survival(np.zeros(4), [2, 4])
    cost = random_cost(np.random.default_rng(6))
    found = rank(grid_of(option(cost, laws, "one"), option(cost, laws, "two")))
    best = found.best(10)
    assert [(one.pairing.drafter, one.pairing.draft, one.draft_tokens) for one in best[:1]] == [("none", "", 0)]
    assert len(best) == 5 and sum(one.draft_tokens == 0 for one in best) == 1
    assert best[0].tokens_per_second == pytest.approx(1 / cost.target.at(1, 100.0)[0])
    assert sorted({one.pairing.draft for one in best}) == ["", "one", "two"]


def test_of_equals_the_one_with_the_fewest_draft_tokens_wins():
    """Passes of any width cost the same; only the first drafted token is ever right."""
    ngram = RoundOfParts(RECIPES["ngram"], FLAT)
    laws = LawTable.of_survival(np.array([0.5, 0.0, 0.0]), [3, 2, 1])
    assert rank(grid_of(option(ngram, laws))).winner(100.0, 1).draft_tokens == 1
    assert rank(grid_of(option(ngram, LawTable.of_survival(np.zeros(3), [3, 2, 1])))).winner(100.0, 1).draft_tokens == 0


def test_a_doubtful_setting_is_flagged_and_left_to_be_measured():
    """16 perfect tokens would win by far, but nobody measured a pass over 17."""
    ngram = RoundOfParts(RECIPES["ngram"], FLAT)
    found = rank(grid_of(option(ngram, LawTable.of_survival(np.ones(16), [4, 16]))))
    assert found.winner(100.0, 1).draft_tokens == 4
    assert [one.draft_tokens for one in found.best(9)] == [4, 0, 16]
    (hoped,) = found.worth_measuring(5)
    assert hoped.draft_tokens == 16 and hoped.doubtful_share == 1 and "pass over 17 tokens" in hoped.remedy
    assert hoped.tokens_per_second > found.winner(100.0, 1).tokens_per_second
    assert found.winner(100.0, 1).remedy == ""


def test_where_nothing_is_trusted_the_fastest_is_named_with_what_to_measure():
    prior = StepTable(FLAT.widths, FLAT.contexts, FLAT.seconds, prior=True)
    found = rank(grid_of(option(RoundOfParts(RECIPES["ngram"], prior), LawTable.of_survival(np.ones(4), [2, 4]))))
    assert found.winner(100.0, 1).draft_tokens == 4
    assert "profile this machine" in found.winner(100.0, 1).remedy
    with pytest.raises(ValueError, match="nothing that can be trusted"):
        found.compromise()


def test_an_extrapolation_below_no_time_at_all_is_neither_chosen_nor_hidden():
    """Measured passes happen to fall with width; the line through them is below 0 at 9 and 12 tokens, where a quarter of
    the nearest measured pass stands for it."""
    falling = StepTable(np.array([1, 2, 4]), CONTEXTS, np.tile([10e-3, 9e-3, 5e-3], (2, 1)))
    ngram = RoundOfParts(RECIPES["ngram"], falling)
    beyond = ngram.lookup(Rounds.of(8, 100.0))
    assert beyond.seconds[0] == pytest.approx(5e-3 / 4) and beyond.doubtful[0]
    found = rank(grid_of(option(ngram, LawTable.of_survival(np.full(11, 0.1), [3, 8, 11]))))
    assert [one.draft_tokens for one in found.best(2)] == [3, 0]
    assert {one.draft_tokens for one in found.worth_measuring()} <= {8, 11}
    assert all(one.doubtful_share == 1 and "measure a pass over" in one.remedy for one in found.worth_measuring())
    mixed = RoundLaw(np.array([3, 8]), np.array([3, 3]), np.array([0.7, 0.3]), np.ones(2), np.array([3.0, 8.0]))
    found = rank(grid_of(option(ngram, LawTable.of([8], [0.0], [mixed]))))
    assert found.doubtful[1, 0, 0] and found.winner(100.0, 1).draft_tokens == 0


def test_little_doubt_at_the_reply_end_does_not_disqualify():
    """Only the last, shorter drafts have a width that was not measured."""
    table = StepTable(np.array([1, 5]), CONTEXTS, np.full((2, 2), 10e-3))
    law = acceptance.replay_matches(np.ones(200), 4)
    found = rank(grid_of(option(RoundOfParts(RECIPES["ngram"], table), LawTable.of([4], [0.0], [law]))))
    assert 0 <= found.doubtful_share[1, 0, 0] < 0.05 and found.winner(100.0, 1).draft_tokens == 4
    short = acceptance.replay_matches(np.ones(8), 4)
    found = rank(grid_of(option(RoundOfParts(RECIPES["ngram"], table), LawTable.of([4], [0.0], [short]))))
    assert found.doubtful_share[1, 0, 0] == pytest.approx(0.5) and found.winner(100.0, 1).draft_tokens == 0


def test_bytes_are_those_of_the_deployment_in_every_cell():
    cost = random_cost(np.random.default_rng(7))
    kinds = [option(cost, LawTable.of_survival(np.ones(6), [2, 6]), key_type=t, value_type=t) for t in ("f16", "q8_0")]
    contexts, streams = [100.0, 5000.0], [1, 4]
    found = rank(grid_of(*kinds, contexts=contexts, streams=streams))
    for row, (c, context), (b, count) in itertools.product(range(6), enumerate(contexts), enumerate(streams)):
        name = kinds[found.option[row]].pairing.key_type
        need = DEPLOYMENT.need(int(found.draft_tokens[row]), int(context), count, KvTypes.named(name, name))
        assert found.device_bytes[row, c, b] == pytest.approx(float(need.total_bytes))
        assert found.host_bytes[row, c, b] == 0


def test_what_does_not_fit_is_never_best_and_its_missing_bytes_are_told():
    """The longest draft is the fastest; only shorter ones fit."""
    ngram = RoundOfParts(RECIPES["ngram"], FLAT)
    laws = LawTable.of_survival(np.ones(8), [2, 8])
    room = float(DEPLOYMENT.need(8, 100).total_bytes) - MEBIBYTE / 256
    found = rank(grid_of(option(ngram, laws), device_bytes=room, contexts=[100.0, 10**6]))
    assert found.draft_tokens.tolist() == [0, 2, 8]
    assert found.missing_bytes[:, 0, 0] == pytest.approx([0, 0, MEBIBYTE / 256])
    assert [one.draft_tokens for one in found.best(9)] == [2, 0]
    assert found.winners.tolist() == [[1], [-1]]
    with pytest.raises(ValueError, match=r"nothing fits at 1e\+06 tokens of context and 1 streams: \d+ MiB short"):
        found.winner(10**6, 1)


def test_layers_on_the_host_make_room_as_partial_offload_says():
    room = 0.9e9
    split = DEPLOYMENT.partial_offload(Tier("device", 1e12, room), Tier("host", 5e10), 4, 2000).split
    assert split.host_layers > 1
    laws = LawTable.of_survival(np.ones(4), [4])
    cost = RoundOfParts(RECIPES["ngram"], FLAT)
    kinds = [option(cost, laws, host_layers=n) for n in (split.host_layers - 1, split.host_layers)]
    grid = Grid(tuple(kinds), np.array([2000.0]), np.array([1]), room, host_bytes=split.host_bytes + 1)
    found = rank(grid)
    enough = (found.option == 1) & (found.draft_tokens == 4)
    assert found.device_bytes[enough].item() == pytest.approx(split.device_bytes)
    assert found.host_bytes[enough].item() == pytest.approx(split.host_bytes)
    assert found.missing_bytes[enough].item() == 0
    assert found.missing_bytes[(found.option == 0) & (found.draft_tokens == 4)].item() > 0
    cramped = rank(Grid(tuple(kinds), grid.contexts, grid.streams, room, host_bytes=split.host_bytes / 2))
    assert cramped.missing_bytes[enough].item() == pytest.approx(split.host_bytes / 2)


def test_all_streams_together_are_another_choice_than_each():
    ngram = RoundOfParts(RECIPES["ngram"], StepTable(WIDTHS, CONTEXTS, 5e-3 + 1e-3 * np.tile(WIDTHS, (2, 1))))
    found = rank(grid_of(option(ngram, LawTable.of_survival(np.full(4, 0.1), [4])), streams=[1, 8]))
    (each,), (together,) = found.best(), found.best(aggregate=True)
    assert (each.streams, together.streams) == (1, 8)
    assert together.aggregate_tokens_per_second == pytest.approx(8 / 13e-3)
    assert each.tokens_per_second > together.tokens_per_second


def test_one_setting_for_all_cells_gives_away_least_where_it_is_worst():
    cost = random_cost(np.random.default_rng(9))
    laws = LawTable.of_survival(0.8 ** np.arange(1, 9), list(range(1, 9)))
    contexts, streams = [0.0, 900.0], [1, 2, 4]
    room = float(DEPLOYMENT.need(5, 900, 4).total_bytes)
    found = rank(grid_of(option(cost, laws), contexts=contexts, streams=streams, device_bytes=room))
    worst = {}
    for row in range(9):
        given_away = [0.0]
        for (c, context), (b, count) in itertools.product(enumerate(contexts), enumerate(streams)):
            usable = found.missing_bytes[row, c, b] == 0 and not found.doubtful[row, c, b]
            best = found.winner(context, count).tokens_per_second
            given_away.append(1 - found.tokens_per_second[row, c, b] / best if usable else 1.0)
        worst[int(found.draft_tokens[row])] = max(given_away)
    compromise = found.compromise()
    assert worst[8] == 1.0 and compromise.draft_tokens == min(worst, key=lambda n: worst[n])
    assert compromise.worst == pytest.approx(worst[compromise.draft_tokens]) and compromise.regret.shape == (2, 3)


def test_the_point_estimate_of_replicates_is_ranked():
    cost = random_cost(np.random.default_rng(10))
    doubled = StepTable(WIDTHS, CONTEXTS, np.stack([cost.target.seconds, 2 * cost.target.seconds]))
    laws = LawTable.of_survival(np.full(4, 0.5), [4])
    several = RoundOfParts(cost.recipe, doubled, cost.draft, cost.overhead, cost.correction)
    assert rank(grid_of(option(several, laws))).seconds == pytest.approx(rank(grid_of(option(cost, laws))).seconds)


def test_whole_rounds_are_ranked_beside_rounds_of_parts():
    plain = StepTable(np.array([1]), CONTEXTS, np.full((2, 1), 10e-3))
    whole = WholeRounds(plain, np.array([1, 2, 3]), np.zeros(1), np.array([[1.1, 1.2, 1.3]]))
    head = option(whole, LawTable.of_survival(np.full(3, 0.6), [1, 2, 3]), "head")
    parts = option(RoundOfParts(RECIPES["ngram"], FLAT), LawTable.of_survival(np.full(2, 0.1), [2]), "table")
    found = rank(grid_of(head, parts)).winner(100.0, 1)
    assert (found.pairing.draft, found.draft_tokens) == ("head", 3)
    assert found.tokens_per_second == pytest.approx(2.8 / 13e-3)


def test_whole_rounds_of_a_law_without_early_stop_are_not_doubted():
    """They were not measured with passes in vain; none must appear by rounding."""
    plain = StepTable(np.array([1]), CONTEXTS, np.full((2, 1), 10e-3))
    whole = WholeRounds(plain, np.array([1, 2, 3]), np.zeros(1), np.array([[1.1, 1.2, 1.3]]))
    law = acceptance.replay_matches(np.random.default_rng(11).random(70), 3)
    assert (rank(grid_of(option(whole, LawTable.of([3], [0.0], [law])))).doubtful_share == 0).all()


def test_what_cannot_be_ranked_is_refused():
    laws = LawTable.of_survival(np.ones(2), [2])
    replay = RoundOfParts((*RECIPES["ngram"], "rollback"), FLAT, rollback=Rollback(1e6, 1e9, replays=True))
    ngram = RoundOfParts(RECIPES["ngram"], FLAT)
    with pytest.raises(ValueError, match="replays after a rejection"):
        option(replay, laws)
    with pytest.raises(ValueError, match="no KV type is called q9"):
        option(ngram, laws, key_type="q9")
    with pytest.raises(ValueError, match="11 of 10 layers"):
        option(ngram, laws, host_layers=11)
    with pytest.raises(ValueError, match="one option"):
        grid_of()
    with pytest.raises(ValueError, match="one stream at least"):
        grid_of(option(ngram, laws), streams=(0,))
    with pytest.raises(ValueError, match="known for 2 tokens, 3 are asked"):
        LawTable.of_survival(np.ones(2), [3])
    with pytest.raises(ValueError, match="must be as many"):
        LawTable.of([1, 2], [0.0], [acceptance.plain_law(4)])
    with pytest.raises(ValueError, match="without rounds"):
        LawTable.of([1], [0.0], [acceptance.plain_law(0)])
    with pytest.raises(ValueError, match="no cell of 5 tokens"):
        rank(grid_of(option(ngram, laws))).winner(5.0, 1)

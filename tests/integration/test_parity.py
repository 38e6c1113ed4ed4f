"""Parity on the demo's real pair, and on a stand-in that uses other settings than were sent."""

from typing import TypeVar

import pytest
from msgspec.structs import replace

from specgauge.profiler.checkpoints.gguf import model_file
from specgauge.profiler.engines.base import Unsupported
from specgauge.profiler.engines.llama_cpp import LlamaCpp, draft_alone
from specgauge.profiler.outputs.equivalence import (
    FAULT,
    IDENTICAL,
    LEAST_NEAR_TIE,
    ROUNDING,
    Equivalence,
    equivalence,
    plain_replies,
)
from specgauge.profiler.outputs.mismatch import mismatch_cost
from specgauge.profiler.outputs.parity import parity
from specgauge.profiler.outputs.sampled_law import DIFFERS, SAME, sampled_law
from specgauge.profiler.records import ModelFile, Sampling, Setting
from specgauge.profiler.workloads import PromptText, prompt_text

from .drafts import rewrite

T = TypeVar("T")
GREEDY, WARM = Sampling(), Sampling(temperature=0.7)


def known(value: T | None) -> T:
    """`value`, which there is."""
    assert value is not None
    return value


def gaps(one: Equivalence) -> list[float]:
    """Of the replies that part."""
    return [known(pair.divergence.gap) for pair in one.pairs if pair.divergence]


class Forced(LlamaCpp):
    """A server that accepts half of the drafted tokens whatever they are: an engine with a fault."""

    def _drafter_flags(self, setting: Setting) -> list[str]:
        found = super()._drafter_flags(setting)
        return [*found, "--spec-synth-rates", "0.5,0.25"] if setting.drafter == "model" else found


@pytest.fixture(scope="module")
def models(demo, tmp_path_factory):
    """Q8_0 target and Q4_0 draft of the demo, a draft with two of thirty layers, one of a vocabulary moved by one."""
    folder = tmp_path_factory.mktemp("drafts")
    found = {model.quant: model for model in demo.models}
    small = rewrite(found["Q4_0"].path, folder / "two-layers.gguf", layers=2)
    shifted = rewrite(found["Q4_0"].path, folder / "shifted.gguf", roll=1)
    return {
        "target": found["Q8_0"],
        "draft": found["Q4_0"],
        "bad": model_file(small),
        "shifted": model_file(shifted),
    }


@pytest.fixture(scope="module")
def engine(models, tmp_path_factory):
    engine = LlamaCpp(tuple(models.values()), log_dir=tmp_path_factory.mktemp("logs"), threads=1)
    yield engine
    engine.close()


def drafting(models: dict[str, ModelFile], draft: str, draft_tokens: int) -> Setting:
    target = models["target"]
    own = Setting(target=target.label, target_quant=target.quant, draft_tokens=draft_tokens)
    if draft == "ngram":
        return replace(own, drafter="ngram", draft="ngram-simple", ngram_size=3)
    return replace(own, drafter="model", draft=models[draft].label, draft_quant=models[draft].quant)


def prompts(demo, *ids: str, new_tokens: int = 40) -> list[PromptText]:
    chosen = [prompt for prompt in demo.prompts if prompt.prompt.id in ids]
    return [replace(one, prompt=replace(one.prompt, new_tokens=new_tokens)) for one in chosen]


@pytest.mark.engine
def test_model_and_ngram_arms_give_the_targets_own_text_with_the_settings_sent(demo, models, engine):
    arms = [drafting(models, "draft", 4), drafting(models, "ngram", 8)]
    found = parity(engine, arms, prompts(demo, "ordinary/bread", "copying/letter"), GREEDY)
    for one in found.equivalence:
        print(one.setting.draft, one.verdict, one.reason, one.rounding, f"{one.accepted}/{one.drafted}")
        assert one.verdict in (IDENTICAL, ROUNDING) and one.repeated == len(one.pairs)
        assert 0 < one.accepted <= one.drafted and not one.drafts_by_chance
    assert [s.setting.drafter for s in found.settings] == ["none", "model", "ngram"]
    assert not any(s.differing for s in found.settings)
    told = {field.name: field.state for field in found.settings[1].fields}
    assert told["drafter"] == told["temperature"] == told["seed"] == "equal"
    assert not [f for f in found.findings if f.severity != "note"]


@pytest.mark.engine
def test_verifying_more_rows_than_a_tile_rounds_at_near_ties_at_most(demo, models, engine):
    chosen = prompts(demo, "ordinary/bread", new_tokens=90)
    plain = plain_replies(engine, drafting(models, "target", 80), chosen, GREEDY)
    one = equivalence(engine, drafting(models, "target", 80), plain, chosen, GREEDY)
    print(one.verdict, one.reason, one.rounding)
    assert one.verdict in (IDENTICAL, ROUNDING)
    assert all(gap <= LEAST_NEAR_TIE for gap in gaps(one))


@pytest.mark.engine
def test_an_engine_that_accepts_wrong_tokens_is_a_fault(demo, models, tmp_path):
    engine = Forced(tuple(models.values()), log_dir=tmp_path, threads=1)
    try:
        found = parity(engine, [drafting(models, "bad", 2)], prompts(demo, "ordinary/bread", "ordinary/moon"), GREEDY)
    finally:
        engine.close()
    one = found.equivalence[0]
    print(one.verdict, one.reason, [pair.divergence for pair in one.pairs])
    assert one.verdict == FAULT and found.findings[0].id == "output-differs"
    assert max(gaps(one)) > 4 * one.rounding.near_tie


@pytest.mark.engine
def test_a_draft_of_a_shifted_vocabulary_is_named_and_leaves_the_text_alone(demo, models, engine):
    chosen = prompts(demo, "ordinary/bread", "ordinary/moon", new_tokens=32)
    found = parity(engine, [drafting(models, "shifted", 1)], chosen, GREEDY)
    one = found.equivalence[0]
    print(f"{one.open_accepted} accepted in {one.open_rounds} rounds, chance {one.commonest_share:.3f}")
    assert one.verdict in (IDENTICAL, ROUNDING) and one.drafts_by_chance
    assert "draft-right-by-chance" in [f.id for f in found.findings]


@pytest.mark.engine
@pytest.mark.slow
def test_what_temperature_0_against_07_costs_is_measured_with_its_interval(demo, models, engine):
    chosen = prompts(demo, *(f"ordinary/{name}" for name in ("river", "bread", "letter", "moon", "chess")))
    for draft in ("target", "draft"):
        cost = mismatch_cost(engine, drafting(models, draft, 4), chosen, GREEDY, WARM, seeds=4)
        print(draft, cost.equal_acceptance, cost.unequal_acceptance, cost.acceptance_change)
        print(cost.equal_tokens_per_round, cost.unequal_tokens_per_round, cost.tokens_per_round_ratio)
        change, ratio = known(cost.acceptance_change), known(cost.tokens_per_round_ratio)
        assert known(change.low) < change.value < known(change.high)
        if draft == "target":  # whatever it proposes greedily is right, until the target draws
            assert known(cost.equal_acceptance) > 0.95 and known(change.high) < 0 and known(ratio.high) < 1


@pytest.mark.engine
def test_an_identical_draft_is_accepted_by_the_ratio_test_and_not_by_comparing(demo, models, engine):
    equal = replace(WARM, draft_sampling="probabilistic")
    if "probabilistic-draft" not in engine.describe().capabilities:
        pytest.skip("this build drafts greedily only")
    cost = mismatch_cost(
        engine, drafting(models, "target", 4), prompts(demo, "ordinary/bread", "ordinary/moon"), equal, WARM, seeds=1
    )
    print(cost.equal_acceptance, cost.unequal_acceptance, cost.tokens_per_round_ratio)
    assert known(cost.equal_acceptance) > 0.9 > known(cost.unequal_acceptance) + 0.1


@pytest.mark.engine
@pytest.mark.slow
def test_the_sampled_law_is_the_targets_own_and_a_forced_one_is_not(models, engine, tmp_path):
    short = [prompt_text("short", "short", "prose", "The capital of France is", 16)]
    sound = sampled_law(engine, drafting(models, "draft", 2), short, WARM, 40)
    forced = Forced(tuple(models.values()), log_dir=tmp_path, threads=1)
    try:
        wrong = sampled_law(forced, drafting(models, "bad", 2), short, WARM, 40)
    finally:
        forced.close()
    print(sound, wrong, sep="\n")
    assert (sound.verdict, wrong.verdict) == (SAME, DIFFERS)
    assert sound.exact_p_value is not None


def test_a_setting_used_otherwise_is_seen_side_by_side(
    stand_in, paper_model, paper_setting, paper_prompt, tmp_path, monkeypatch
):
    monkeypatch.setenv("STAND_IN_WRONG_SAMPLING", "1")
    engine = LlamaCpp([paper_model], log_dir=tmp_path, binary=stand_in)
    try:
        found = parity(engine, [paper_setting], [paper_prompt], GREEDY)
    finally:
        engine.close()
    seen = [(f.name, f.sent, f.used) for s in found.settings for f in s.differing]
    assert seen == [("temperature", "0", "0.8")] * 2
    assert [f.severity for f in found.findings if f.id == "setting-not-as-sent"] == ["error"] * 2


def test_a_build_that_drafts_greedily_only_says_so(stand_in, paper_model, paper_setting, paper_prompt, tmp_path):
    engine = LlamaCpp([paper_model], log_dir=tmp_path, binary=stand_in)
    try:
        with pytest.raises(Unsupported, match="greedily only"):
            engine.reply(paper_setting, paper_prompt, replace(WARM, draft_sampling="probabilistic"))
    finally:
        engine.close()


def test_a_draft_alone_is_timed_with_the_drafts_own_flags():
    assert draft_alone(["-td", "4", "-fa", "on", "-ngld", "0", "-ctkd=q8_0"]) == [
        "-t",
        "4",
        "-ngl",
        "0",
        "-ctk",
        "q8_0",
    ]
    assert draft_alone(["-t", "4", "-ngl", "99"]) == []

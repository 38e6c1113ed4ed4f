"""Parity on the simulated engine, whose language, rounding and faults are known."""

from dataclasses import replace as with_fields
from math import exp, log
from typing import TypeVar

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from scipy.stats import t as student

from specgauge.profiler.engines.base import EngineFailed, Unsupported
from specgauge.profiler.engines.fake import MACHINES, FakeEngine
from specgauge.profiler.engines.fake_text import FakeText
from specgauge.profiler.files import read_record, write_record
from specgauge.profiler.outputs.equivalence import (
    FAULT,
    IDENTICAL,
    LEAST_NEAR_TIE,
    ROUNDING,
    WHY,
    Divergence,
    Equivalence,
    ReplyPair,
    Rounding,
    judge,
    plain_replies,
)
from specgauge.profiler.outputs.mismatch import Change, differences, mismatch_cost
from specgauge.profiler.outputs.parity import Parity, parity
from specgauge.profiler.outputs.sampled_law import DIFFERS, SAME, UNSUPPORTED, sampled_law
from specgauge.profiler.outputs.sampling_parity import sampling_parity
from specgauge.profiler.records import Sampling, Setting

MACHINE = MACHINES["interior-tie"]
PROMPTS = MACHINE.prompts()[:6]
MODEL, NGRAM = (candidate.setting(4) for candidate in MACHINE.candidates()[:2])
GREEDY, WARM = Sampling(), Sampling(temperature=0.7)
T = TypeVar("T")
PRECISE = Rounding(samples=40, rms=0.01, largest=0.02, near_tie=LEAST_NEAR_TIE, tie_share=0.1)


def known(value: T | None) -> T:
    """`value`, which there is."""
    assert value is not None
    return value


def gaps(one: Equivalence) -> list[float]:
    """Of the replies that part, as far as they are told."""
    found = [pair.divergence.gap for pair in one.pairs if pair.divergence]
    return [gap for gap in found if gap is not None]


def engine(**text) -> FakeEngine:
    return FakeEngine(MACHINE, text=FakeText(**text))


def compared(sampling: Sampling = GREEDY, draws: int = 0, unequal: Sampling | None = None, **text) -> Parity:
    return parity(engine(**text), [MODEL], PROMPTS, sampling, draws=draws, unequal=unequal)


def ids(found: Parity) -> list[str]:
    return [finding.id for finding in found.findings]


# greedy replies


def test_without_rounding_every_reply_is_the_same():
    one = compared().equivalence[0]
    assert (one.verdict, one.identical, one.repeated) == (IDENTICAL, len(PROMPTS), len(PROMPTS))
    assert all(pair.tokens == prompt.prompt.new_tokens for pair, prompt in zip(one.pairs, PROMPTS))
    assert 0 < one.accepted < one.drafted


@pytest.mark.parametrize("deviation", [0.02, 0.1, 0.2])
def test_rounding_of_any_size_is_called_rounding(deviation):
    one = compared(rounding=deviation).equivalence[0]
    assert one.verdict == ROUNDING
    # A gap is the difference of two logits, each off by `deviation`.
    assert one.rounding.rms == pytest.approx(deviation * 2**0.5, rel=0.5)
    assert 0 < len(gaps(one)) <= len(PROMPTS) and max(gaps(one)) <= one.rounding.near_tie


def test_a_divergence_that_the_target_alone_makes_is_seen_in_a_batch_without_a_drafter():
    one = compared(rounding=0.1).equivalence[0]
    assert all(known(pair.divergence.batched_gap) < 0 for pair in one.pairs if pair.divergence)
    assert "turn without any drafter" in one.reason


@pytest.mark.parametrize("rate", [0.02, 0.1, 1.0])
def test_an_engine_that_accepts_wrong_tokens_is_a_fault_and_no_rounding(rate):
    found = compared(accepts_wrong=rate, rounding=0.05)
    one = found.equivalence[0]
    assert one.verdict == FAULT and ids(found)[0] == "output-differs"
    assert max(gaps(one)) > one.rounding.near_tie


def test_a_draft_of_another_vocabulary_leaves_the_output_alone_and_is_named():
    found = compared(shifted=True)
    one = found.equivalence[0]
    assert one.verdict == IDENTICAL and one.drafts_by_chance and "draft-right-by-chance" in ids(found)
    assert not compared().equivalence[0].drafts_by_chance


def test_a_useless_draft_that_only_copies_is_judged_by_prompts_that_do_not_copy():
    copying = [prompt for prompt in MACHINE.prompts() if prompt.prompt.workload_class == "copying"][:3]
    one = parity(engine(shifted=True), [MODEL], copying, GREEDY).equivalence[0]
    assert (one.open_rounds, one.drafts_by_chance) == (0, False)


def test_plain_decoding_that_does_not_repeat_itself_is_said():
    found = compared(restless=True, rounding=0.1)
    assert found.equivalence[0].repeated < len(PROMPTS) and "plain-not-repeatable" in ids(found)


def test_without_probabilities_divergences_are_judged_by_how_often_they_come():
    assert compared(tells=False, rounding=0.05).equivalence[0].verdict == ROUNDING
    one = compared(tells=False, accepts_wrong=1.0).equivalence[0]
    assert one.verdict == FAULT and "begin at once" in one.reason
    assert one.rounding.rms is None and gaps(one) == []


def pair(position: int, **divergence) -> ReplyPair:
    at = Divergence(position=position, plain_token=1, other_token=2, **divergence)
    return ReplyPair(prompt="p", tokens=position + 1, divergence=at)


@given(st.floats(0, 20), st.integers(20, 400))
def test_one_late_divergence_is_rounding_exactly_up_to_a_near_tie(gap, position):
    verdict, _ = judge([pair(position, gap=gap), ReplyPair(prompt="q", tokens=400)], PRECISE)
    assert verdict == (ROUNDING if gap <= LEAST_NEAR_TIE else FAULT)


def test_a_wide_gap_is_rounding_where_the_target_alone_turns_it_and_not_where_it_does_not():
    assert judge([pair(100, gap=0.4, batched_gap=-0.01)], PRECISE)[0] == ROUNDING
    assert judge([pair(100, gap=0.4, batched_gap=0.01)], PRECISE)[0] == FAULT


def test_a_token_that_is_not_among_the_likeliest_is_no_near_tie():
    assert judge([pair(100, gap=0.2, gap_at_least=True)], PRECISE)[0] == FAULT


def test_near_ties_in_every_reply_at_once_are_a_fault_and_spread_out_are_rounding():
    assert judge([pair(i % 3, gap=0.1) for i in range(8)], PRECISE)[0] == FAULT
    assert judge([pair(40 + i, gap=0.1) for i in range(8)], PRECISE)[0] == ROUNDING


def test_published_flips_are_near_ties():
    # vllm#7627, vllm-rbln pull request 630, colibri#689, vllm pull request 41335
    assert all(judge([pair(60, gap=gap)], PRECISE)[0] == ROUNDING for gap in (0.0, 0.125, 0.15, 0.235))


def test_why_texts_part_is_said_in_words():
    assert "near" in WHY and "tied" in WHY and len(WHY.split()) < 100
    found = compared(rounding=0.1)
    assert WHY in next(f.evidence for f in found.findings if f.id == "output-rounds")


def test_a_targets_plain_replies_are_made_once_for_all_its_arms():
    counting = engine()
    parity(counting, [MODEL, MODEL], PROMPTS, GREEDY)
    alone = engine()
    plain_replies(alone, MODEL, PROMPTS, GREEDY)
    per_arm = len(PROMPTS) + 1  # one reply each, and a short one to read settings back
    assert counting._texts == alone._texts + 1 + 2 * per_arm


# sampled replies


@pytest.mark.parametrize("mode", ["greedy", "probabilistic"])
def test_sound_speculation_leaves_the_sampled_law_alone(mode):
    law = sampled_law(engine(), MODEL, PROMPTS, replace(WARM, draft_sampling=mode), 80)
    assert law.verdict == SAME and min(known(law.p_value), known(law.exact_p_value)) > 0.01
    assert 0 < known(law.detectable) < 0.15 and law.draws == 80 * len(PROMPTS)


def test_a_pull_towards_the_draft_is_found_by_both_tests():
    law = sampled_law(engine(pull=0.4), MODEL, PROMPTS, WARM, 80)
    assert law.verdict == DIFFERS and max(known(law.p_value), known(law.exact_p_value)) < 0.005


def test_the_permutation_test_does_without_probabilities():
    law = sampled_law(engine(pull=0.4, tells=False), MODEL, PROMPTS, WARM, 80)
    assert (law.verdict, law.exact_p_value, law.exact_draws) == (DIFFERS, None, 0)


def test_a_law_that_cannot_be_compared_is_unsupported_with_its_reason():
    assert sampled_law(engine(), MODEL, PROMPTS, GREEDY, 80).reason.startswith("at temperature 0")
    few = sampled_law(engine(), MODEL, PROMPTS, WARM, 3)
    assert few.verdict == UNSUPPORTED and "take more draws" in few.reason


def test_a_changed_law_is_an_error_and_is_not_looked_for_unasked():
    assert "sampled-law-differs" in ids(compared(WARM, draws=80, pull=0.4))
    assert compared(WARM).laws == () and compared(GREEDY, draws=80).laws == ()


# settings


def used(**effective: str) -> dict[str, str]:
    sent = {"temperature": "0.699999988079071", "top_k": "40", "top_p": "0.949999988079071", "min_p": "0.05"}
    return {**sent, "repeat_penalty": "1.0", "seed": "1", "speculative.types": "draft-simple", **effective}


def states(setting: Setting, effective: dict[str, str]) -> dict[str, str]:
    return {field.name: field.state for field in sampling_parity(setting, WARM, effective).fields}


def test_single_precision_is_no_difference():
    found = states(MODEL, used())
    assert set(found.values()) == {"equal", "not told"}
    assert [name for name, state in found.items() if state == "not told"] == ["draft_tokens", "draft_sampling"]


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"temperature": "0.8"}, "temperature"),
        ({"seed": "4294967295"}, "seed"),
        ({"speculative.types": "none"}, "drafter"),
        ({"speculative.n_max": "3"}, "draft_tokens"),
        ({"draft_sampling": "probabilistic"}, "draft_sampling"),
        ({"dry_multiplier": "0.8"}, "dry_multiplier"),
        ({"xtc_probability": "0.5"}, "xtc_probability"),
    ],
)
def test_each_setting_that_was_not_sent_is_named(changed, name):
    found = sampling_parity(MODEL, WARM, used(**changed)).differing
    assert [field.name for field in found] == [name]
    assert found[0].used == next(iter(changed.values()))


def test_drafters_go_by_the_engines_own_names():
    assert states(NGRAM, used(**{"speculative.types": "ngram-simple"}))["drafter"] == "equal"
    assert states(NGRAM, used())["drafter"] == "differs"
    mtp = replace(MODEL, drafter="mtp")
    assert states(mtp, used(**{"speculative.types": "draft-mtp,ngram-mod"}))["drafter"] == "equal"


def test_a_setting_used_otherwise_is_an_error_of_its_arm():
    found = compared(WARM, used=(("temperature", "0.8"),))
    texts = [f.evidence for f in found.findings if f.id == "setting-not-as-sent"]
    assert len(texts) == 2 and all("temperature 0.8 where 0.7 was sent" in text for text in texts)


# what a mismatch costs


def upper(change: Change | None) -> float:
    """The upper bound."""
    return known(known(change).high)


def test_a_sampled_target_accepts_less_of_a_greedy_draft():
    cost = mismatch_cost(engine(), MODEL, PROMPTS, GREEDY, WARM, seeds=4)
    assert cost.differs == ("temperature 0 -> 0.7",)
    assert known(cost.unequal_acceptance) < known(cost.equal_acceptance)
    assert upper(cost.tokens_per_round_ratio) < 1 and upper(cost.acceptance_change) < 0


def test_the_ratio_test_wins_back_what_the_greedy_draft_loses():
    equal = replace(WARM, draft_sampling="probabilistic")
    cost = mismatch_cost(engine(), MODEL, PROMPTS, equal, WARM, seeds=4)
    assert upper(cost.tokens_per_round_ratio) < 1
    assert "mismatch-cost" in ids(compared(equal, unequal=WARM))


def test_an_identical_draft_under_the_ratio_test_is_always_accepted():
    equal = replace(WARM, draft_sampling="probabilistic")
    cost = mismatch_cost(engine(draft_noise=0.0), MODEL, PROMPTS, equal, WARM, seeds=2)
    assert cost.equal_acceptance == 1.0
    # Of an identical draft the compare rule accepts what the target draws where it is the likeliest: E[max p].
    assert 0.3 < known(cost.unequal_acceptance) < 0.9


def test_intervals_are_students_over_prompts():
    cost = mismatch_cost(engine(), MODEL, PROMPTS, GREEDY, WARM, seeds=2)
    logs = [log(p.unequal_tokens_per_round / p.equal_tokens_per_round) for p in cost.prompts]
    low, high = student.interval(0.95, len(logs) - 1, np.mean(logs), np.std(logs, ddof=1) / len(logs) ** 0.5)
    change = known(cost.tokens_per_round_ratio)
    assert (change.value, change.low, change.high) == pytest.approx((exp(np.mean(logs)), exp(low), exp(high)))


def test_rounds_and_tokens_add_up():
    for one in mismatch_cost(engine(), MODEL, PROMPTS, GREEDY, WARM, seeds=2).prompts:
        decoded = PROMPTS[0].prompt.new_tokens - 1
        assert one.equal_accepted + one.equal_rounds == decoded  # at temperature 0 one reply says it all
        assert one.unequal_accepted + one.unequal_rounds == 2 * decoded


def test_one_prompt_has_no_interval_and_is_no_warning():
    found = parity(engine(), [MODEL], PROMPTS[:1], GREEDY, unequal=WARM)
    assert known(found.mismatches[0].tokens_per_round_ratio).low is None
    assert [f.severity for f in found.findings if f.id == "mismatch-cost"] == ["note"]


def test_greedy_on_both_sides_needs_one_seed():
    same = replace(GREEDY, top_k=1)
    assert mismatch_cost(engine(), MODEL, PROMPTS, GREEDY, same, seeds=5).seeds == 1
    assert differences(GREEDY, same) == ("top_k 40 -> 1",)


class GreedyOnly(FakeEngine):
    """An engine that cannot draft by sampling."""

    def reply(self, setting, prompt, sampling, **asked):
        if sampling.draft_sampling != "greedy":
            raise Unsupported("drafts greedily only")
        return super().reply(setting, prompt, sampling, **asked)


def test_what_the_engine_cannot_do_is_said_and_not_raised():
    unequal = replace(WARM, draft_sampling="probabilistic")
    found = parity(GreedyOnly(MACHINE), [MODEL], PROMPTS, WARM, unequal=unequal)
    assert found.mismatches[0].unsupported == "drafts greedily only"
    silent = parity(GreedyOnly(MACHINE), [MODEL], PROMPTS, unequal)
    assert silent.equivalence == () and "drafts greedily only" in silent.unsupported[0]


# the record


def test_a_parity_survives_the_disk(tmp_path):
    found = compared(WARM, draws=20, unequal=replace(WARM, draft_sampling="probabilistic"), rounding=0.1)
    write_record(tmp_path / "parity.json", found)
    assert read_record(tmp_path / "parity.json", Parity) == found
    assert msgspec.json.decode((tmp_path / "parity.json").read_bytes())["kind"] == "specgauge-parity"


def test_plain_arms_are_the_yardstick_and_no_arm():
    plain = with_fields(MACHINE).candidates()[0].setting(0)
    assert [s.setting.drafter for s in parity(engine(), [plain, MODEL], PROMPTS, GREEDY).settings] == ["none", "model"]
    assert parity(engine(), [plain], PROMPTS, GREEDY).equivalence == ()


def test_a_dying_engine_is_an_engine_that_failed():
    with pytest.raises(EngineFailed):
        parity(FakeEngine(MACHINE, crash_after=20), [MODEL], PROMPTS, GREEDY)

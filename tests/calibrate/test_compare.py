"""Two profiles or validations of known truth: noise is called noise, and what was changed is what is found."""

from dataclasses import dataclass, replace
from functools import cache

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgauge.calibrate import compare, contrast
from specgauge.calibrate.records import Comparison
from specgauge.profiler.errors import InputError
from specgauge.profiler.records import Key, Measurement, Profile, ReportedRow, Request

from . import synthetic
from .test_validate import validated

SLOWER = 1.05
NOTHING = "nothing differs beyond noise"


@dataclass(frozen=True)
class Machine(synthetic.Truth):
    """The synthetic machine with 2 % noise and a 3 % drift, slower by a factor in all or in one part of its work."""

    noise: float = 0.02
    drift: float = 0.03
    all: float = 1.0
    verification: float = 1.0
    plain: float = 1.0
    drafting: float = 1.0

    def target_pass(self, width: int, context: float) -> float:
        part = self.verification if width > 1 else self.plain
        return super().target_pass(width, context) * self.all * part

    def draft_pass(self, width: int, context: float) -> float:
        return super().draft_pass(width, context) * self.all * self.drafting

    def round_seconds(self, drafter: str, drafted: int, context: float) -> float:
        whole = super().round_seconds(drafter, drafted, context)
        return whole + (self.all - 1) * (self.overhead + self.overhead_per_token * drafted) * (drafted > 0)


@cache
def compared(a: Machine, b: Machine) -> Comparison:
    documents = compare.Documents(synthetic.profile(a), synthetic.profile(b), ("A", "B"))
    return compare.comparison(documents)


def changed_groups(found: Comparison) -> set[str]:
    return {number.group for number in found.numbers if number.whole and number.differs}


# --- profiles


def test_noise_alone_is_called_noise_as_often_as_stated():
    """Twenty comparisons: more than four false ones have a chance of 0.3 % at the stated rate of 5 %."""
    found = [compared(Machine(seed=seed), Machine(seed=100 + seed)) for seed in range(20)]
    false = [one for one in found if one.findings[0] != NOTHING]
    assert len(false) <= 4
    assert all(one.findings[-1].startswith("differences above these would have been seen") for one in found)
    rates = {n.false_alarms for n in found[0].numbers}
    assert sum(rates) == pytest.approx(1 - found[0].level)


@pytest.mark.parametrize("seed", range(5))
def test_a_whole_machine_that_is_five_percent_slower_is_found_and_nothing_else(seed: int):
    found = compared(Machine(seed=seed), Machine(seed=50 + seed, all=SLOWER))
    assert found.findings[0].startswith("the whole machine: ")
    assert changed_groups(found) == {"whole machine"}
    (machine,) = (n for n in found.numbers if n.group == "whole machine")
    assert machine.ratio.low < SLOWER < machine.ratio.high


@pytest.mark.parametrize("seed", range(5))
def test_verification_alone_is_told_from_the_whole_machine(seed: int):
    found = compared(Machine(seed=seed), Machine(seed=50 + seed, verification=SLOWER))
    assert found.findings[0].startswith("verification only, not the whole machine")
    assert "verification" in changed_groups(found) <= {"verification", "rounds"}
    (passes,) = (n for n in found.numbers if n.group == "verification" and n.whole)
    assert passes.at_equal_speed and passes.at_equal_speed.low < SLOWER < passes.at_equal_speed.high


def test_drafting_alone_is_told_too():
    found = compared(Machine(seed=1), Machine(seed=51, drafting=SLOWER))
    assert found.findings[0].startswith("drafting only")


def test_plain_decoding_alone_is_not_taken_for_the_whole_machine():
    found = compared(Machine(seed=1), Machine(seed=51, plain=1.08))
    assert "alone, not the whole machine" in found.findings[0]


def test_five_points_of_acceptance_are_found_on_the_same_prompts():
    found = compared(Machine(seed=1, match_rate=0.70), Machine(seed=1, match_rate=0.75))
    assert changed_groups(found) == {"acceptance"}
    (rounds,) = (n for n in found.numbers if n.group == "acceptance" and n.differs and n.whole)
    assert "t x d" in rounds.name and rounds.ratio.low > 1.03


def test_a_detectable_difference_is_found_in_about_four_of_five():
    whole = [n for n in compared(Machine(seed=1), Machine(seed=101)).numbers if n.group == "verification" and n.whole]
    slower = 1 + whole[0].detectable
    found = [compared(Machine(seed=s), Machine(seed=200 + s, verification=slower)) for s in range(12)]
    hits = sum("verification" in changed_groups(one) for one in found)
    assert 6 <= hits <= 12


def test_the_swap_of_two_documents_inverts_the_ratios():
    one = compared(Machine(seed=1), Machine(seed=2, all=SLOWER))
    other = compared(Machine(seed=2, all=SLOWER), Machine(seed=1))
    for ours, theirs in zip(one.numbers, other.numbers):
        if ours.group not in ("overhead", "forecast"):
            assert ours.ratio.value == pytest.approx(1 / theirs.ratio.value)
            assert ours.differs == theirs.differs


def test_best_settings_of_both_are_named():
    found = compared(Machine(seed=1), Machine(seed=2, drafting=4.0))
    names = [n.name for n in found.numbers if n.group == "forecast"]
    assert len(names) == 2 and any(" in A, " in name for name in names)


def test_keys_are_equal_different_or_unknown_field_by_field():
    one = synthetic.profile(Machine(seed=1))
    key = Key(engine="synthetic", gpu="one", driver="1", build="b1", gpu_uuid="x")
    other = msgspec.structs.replace(one, key=replace_key(key, gpu="two", driver="2", build="", gpu_uuid="y"))
    fields = {f.name: (f.state, f.weight) for f in compare.key_fields(msgspec.structs.replace(one, key=key), other)}
    assert fields["gpu"] == ("differs", "decisive")
    assert fields["driver"] == ("differs", "near")
    assert fields["build"] == ("unknown", "near")
    assert fields["gpu_uuid"] == ("differs", "informational")
    assert fields["engine"] == fields["t: sha256"] == ("equal", "decisive")


def replace_key(key: Key, **changes: str) -> Key:
    return msgspec.structs.replace(key, **changes)


def reported(*speeds: float) -> Profile:
    """What others measured at 1, 2, ... draft tokens."""
    rows = tuple(
        ReportedRow(setting=synthetic.MODEL.setting(length), workload="ordinary", tokens_per_second=speed)
        for length, speed in enumerate(speeds, start=1)
    )
    request = Request(action="import")
    measurement = Measurement(request=request, digest="r", started_at_seconds=0.0, wall_seconds=0.0, reported=rows)
    whole = synthetic.profile(Machine(seed=1))
    return msgspec.structs.replace(whole, measurements=(measurement,), sentinel_model="")


def test_reported_speeds_are_compared_at_a_stated_noise_and_without_a_machine():
    one = reported(60.0, 66.0, 64.0, 62.0)
    found = compare.comparison(compare.Documents(one, reported(54.0, 59.4, 57.6, 55.8), ("A", "B")))
    assert changed_groups(found) == {"reported"}
    assert all(n.at_equal_speed is None for n in found.numbers if n.group == "reported")
    assert any("cannot be told apart" in note for note in found.notes)
    near = compare.comparison(compare.Documents(one, reported(61.0, 65.0, 65.0, 61.5), ("A", "B")))
    assert near.findings[0] == NOTHING


def test_profiles_without_any_number_in_common_are_refused():
    one = synthetic.profile(Machine(seed=1))
    nothing = msgspec.structs.replace(one, measurements=(), sentinel_model="")
    with pytest.raises(InputError, match="no measurement in common"):
        compare.comparison(compare.Documents(nothing, nothing, ("A", "B")))


# --- validations


def jittered(seed: int, **factors: float):
    """A validation whose speeds have 1 % noise of each repeat and arm; `factors` scale the arms' true speeds."""
    speeds = {"plain": 100.0, "model_3": 145.0, "model_4": 140.0, "ngram_12": 125.0}
    whole = validated(**{name: speed * factors.get(name, 1.0) for name, speed in speeds.items()})
    rng = np.random.default_rng(seed)
    rows = tuple(
        msgspec.structs.replace(
            row,
            speeds=tuple(
                s * factors.get("machine", 1.0) * float(np.exp(0.01 * rng.standard_normal())) for s in row.speeds
            ),
        )
        for row in whole.rows
    )
    return msgspec.structs.replace(whole, rows=rows)


def compared_runs(a, b) -> Comparison:
    return compare.comparison(compare.Documents(a, b, ("A", "B")))


def test_validations_that_differ_in_noise_differ_in_nothing():
    false = [compared_runs(jittered(s), jittered(100 + s)).findings[0] != NOTHING for s in range(40)]
    assert sum(false) <= 6


def test_a_slower_drafter_is_found_and_a_slower_machine_is_not_blamed_on_it():
    slower = {"model_3": 0.92, "model_4": 0.92}
    assert changed_groups(compared_runs(jittered(1), jittered(2, **slower))) == {"drafter model"}
    found = compared_runs(jittered(1), jittered(2, machine=0.7))
    assert changed_groups(found) == {"whole machine"}


def test_rows_carry_the_forecast_errors_of_both():
    one, other = jittered(1), jittered(2, ngram_12=0.8)
    found = compared_runs(one, other)
    (row,) = (n for n in found.numbers if n.name == "t with ngram-simple, 12 draft tokens on ordinary over plain")
    errors = [
        next(r.error for r in v.rows if r.config.draft_tokens == 12 and r.workload == "ordinary") for v in (one, other)
    ]
    assert [row.error_a, row.error_b] == errors


# --- the arithmetic


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_is_never_below_the_raw_value_nor_above_bonferroni(p_values: list[float]):
    adjusted = contrast.holm(p_values)
    for raw, found in zip(p_values, adjusted):
        assert raw <= found <= max(min(1.0, len(p_values) * max(raw, max(p for p in p_values if p <= raw))), raw)
    assert [adjusted[i] for i in np.argsort(p_values)] == sorted(adjusted)


def test_holm_by_hand():
    assert contrast.holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])


def test_welch_agrees_with_scipy():
    from scipy import stats

    rng = np.random.default_rng(3)
    a, b = rng.normal(0, 1, 6), rng.normal(0.5, 3, 9)
    ratio = contrast.ratio_of(contrast.mean_estimate(a), contrast.mean_estimate(b))
    assert ratio.p_value() == pytest.approx(stats.ttest_ind(b, a, equal_var=False)[1])


def test_a_slowness_that_all_numbers_of_a_repeat_share_does_not_average_out():
    rng = np.random.default_rng(4)
    shared = np.exp(0.05 * rng.standard_normal(6))
    parts = [contrast.Part(tuple(shared * np.exp(0.001 * rng.standard_normal(6)) for _ in range(n))) for n in (1, 30)]
    few, many = contrast.part_estimates(parts)
    assert many.se > few.se / 2
    assert many.se > 0.01


def test_an_error_of_known_size_adds_in_squares():
    assert contrast.Estimate(0.0, 0.03, 5).with_error(0.04).se == pytest.approx(0.05)
    assert replace(contrast.Estimate(0.0, 0.03, 5)).interval(0.95).low < np.exp(-0.03)

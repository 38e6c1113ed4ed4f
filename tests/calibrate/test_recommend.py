"""The recommendation's verdicts, reasons and numbers on profiles of known truth."""

import msgspec
import pytest

from specgauge.calibrate import fit, recommend
from specgauge.calibrate.fit import NotCalibrated
from specgauge.calibrate.records import Recommendation
from specgauge.profiler.records import Profile

from . import synthetic
from .synthetic import LENGTHS, Truth, quiet

EXPENSIVE = quiet(base=0.5e-3, per_token=9e-3, draft_base=0.4e-3, draft_per_token=5e-3, match_rate=0.9, noise=0.01)
"""A processor that computes rather than reads: a token more costs almost a step more."""


def advice(profile: Profile, **changes) -> Recommendation:
    given = {
        "profile_sha256": "p",
        "calibration_sha256": "c",
        "created": "now",
        "tool_version": "0",
        "command": "run me",
    }
    return recommend.recommend(profile, fit.calibrate(profile, replicates=200), **{**given, **changes})


def best(truth: Truth, workload: str) -> float:
    model = [truth.true_speed("model", g, workload) for g in LENGTHS]
    return max(
        truth.true_speed("none", 0, workload), *model, *(truth.true_speed("ngram", g, workload) for g in (3, 4, 8))
    )


def test_where_drafting_pays_the_choice_is_as_good_as_the_best():
    truth = quiet(noise=0.02, match_rate=0.75)
    found = advice(synthetic.profile(truth))
    for item in found.workloads:
        chosen = item.chosen
        assert item.verdict in ("speculate", "tie") and chosen.draft_tokens > 0
        assert truth.true_speed(chosen.drafter, chosen.draft_tokens, item.workload) > 0.97 * best(truth, item.workload)
        assert any("break-even" in reason and "above it" in reason for reason in item.reasons)
        assert any("rule of thumb of 60 %" in reason for reason in item.reasons)
    assert found.chosen.target.path == "/models/t.gguf"


def test_where_a_token_costs_a_step_plain_decoding_is_advised_with_break_even_and_ceiling():
    found = advice(synthetic.profile(EXPENSIVE))
    ordinary = next(item for item in found.workloads if item.workload == "ordinary")
    assert (ordinary.verdict, ordinary.chosen.drafter, ordinary.chosen.draft_tokens) == ("do-not-speculate", "none", 0)
    assert ordinary.forecast_tokens_per_second.value == ordinary.baseline_tokens_per_second
    text = " ".join(ordinary.reasons)
    assert "break-even" in text and "at perfect acceptance" in text


def test_the_kernel_switch_is_respected_by_the_choice():
    """The ninth column doubles the pass: 8 draft tokens lose although 7 win."""
    truth = quiet(jump=25e-3, match_rate=0.97, noise=0.01)
    found = advice(synthetic.profile(truth))
    ordinary = next(item for item in found.workloads if item.workload == "ordinary")
    assert ordinary.chosen.draft_tokens in (6, 7)


def test_a_tie_says_so_and_what_would_settle_it():
    """A draft as good as plain, within the noise."""
    lengths = {
        rate: max(quiet(match_rate=rate).true_speed("model", g, "ordinary") for g in LENGTHS) for rate in (0.2, 0.3)
    }
    assert lengths[0.3] > quiet().true_speed("none", 0, "ordinary")
    found = advice(synthetic.profile(quiet(noise=0.05, match_rate=0.25)))
    tied = [item for item in found.workloads if item.verdict == "tie"]
    assert tied
    assert all(any("cannot be told apart" in reason for reason in t.reasons) for t in tied)
    assert all(" rounds" in text or "repeats" in text for text in found.unsettled)
    assert len(found.unsettled) == len(tied) + (found.verdict == "tie")


def test_the_mix_is_equal_tokens_of_each_workload():
    found = advice(synthetic.profile(quiet(noise=0.01)))
    speeds = [
        next(
            f.tokens_per_second.value
            for f in found.candidates
            if f.workload == workload
            and (f.setting.drafter, f.setting.draft_tokens) == (found.chosen.drafter, found.chosen.draft_tokens)
        )
        for workload in ("ordinary", "copying")
    ]
    harmonic = 2 / sum(1 / speed for speed in speeds)
    assert found.forecast_tokens_per_second.value == pytest.approx(harmonic)
    low, high = found.forecast_tokens_per_second.low, found.forecast_tokens_per_second.high
    assert low < harmonic < high


def test_every_candidate_has_a_forecast_on_every_workload_and_the_best_shares_add_up():
    found = advice(synthetic.profile(quiet(noise=0.02)))
    for workload in ("ordinary", "copying"):
        mine = [f for f in found.candidates if f.workload == workload]
        assert len(mine) == 1 + len(LENGTHS) + 3
        assert sum(f.probability_best for f in mine) == pytest.approx(1)
        assert all(f.tokens_per_second.low <= f.tokens_per_second.value <= f.tokens_per_second.high for f in mine)


def test_bandwidth_bounds_plain_decoding():
    found = advice(synthetic.profile(quiet()))
    assert found.ceiling_tokens_per_second == pytest.approx(905e9 / 15e9)
    assert found.bandwidth_share == pytest.approx(found.baseline_tokens_per_second / (905e9 / 15e9))
    assert any("GB/s" in reason for reason in found.reasons)
    without = advice(synthetic.without(synthetic.profile(quiet()), "bandwidth"))
    assert without.ceiling_tokens_per_second is None and without.bandwidth_share is None


def test_drafters_without_evidence_are_dropped_with_the_reason():
    profile = synthetic.without(synthetic.profile(quiet()), "matches")
    profile = synthetic.without(profile, "trace")
    found = advice(profile)
    assert found.chosen.draft_tokens == 0
    assert "acceptance was not measured" in found.dropped["t x d"]
    assert any("no drafter could be forecast" in reason for reason in found.reasons)


def test_candidates_dropped_while_profiling_stay_out():
    profile = msgspec.structs.replace(synthetic.profile(quiet()), dropped={"t x d": "its ceiling is below plain"})
    found = advice(profile)
    assert not any(f.setting.drafter == "model" for f in found.candidates)
    assert found.dropped == {"t x d": "its ceiling is below plain"}


def test_an_empty_profile_cannot_be_advised_on():
    with pytest.raises(NotCalibrated, match="plain decoding was not measured"):
        advice(msgspec.structs.replace(synthetic.profile(quiet()), measurements=()))


def test_the_command_is_spelt_for_the_chosen_setting():
    found = advice(synthetic.profile(quiet()), command=lambda setting: f"serve -n {setting.draft_tokens}")
    assert found.command == f"serve -n {found.chosen.draft_tokens}"


def test_the_record_survives_its_file_format():
    found = advice(synthetic.profile(quiet(noise=0.02)))
    assert msgspec.json.decode(msgspec.json.encode(found), type=Recommendation) == found


def test_a_tie_of_lengths_whose_round_times_are_interpolated_asks_for_these_first():
    """Rounds of fresh prompts cannot mend the doubt of a round time that was never taken."""
    found = advice(synthetic.profile(quiet(noise=0.02, match_rate=0.68)))
    (text,) = (text for text in found.unsettled if text.startswith("ordinary"))
    assert "3 draft tokens and t with d, 4 draft tokens" in text
    assert "rounds timed at 3 draft tokens" in text and "round times are known to" in text

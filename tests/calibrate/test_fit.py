"""Calibration recovers the truth of synthetic profiles, with the stated coverage."""

import msgspec
import numpy as np
import pytest

from specgauge.calibrate import fit
from specgauge.calibrate.fit import NotCalibrated
from specgauge.calibrate.records import Calibration
from specgauge.profiler.records import Measurement, Profile, Request

from . import synthetic
from .synthetic import LENGTHS, MODEL, NGRAM, PLAIN, Truth, quiet


def extended(profile: Profile, **found) -> Profile:
    """The profile with one more measurement."""
    request = Request(action="trace", repeats=99)
    more = Measurement(request=request, digest="more", started_at_seconds=0.0, wall_seconds=1.0, **found)
    return msgspec.structs.replace(profile, measurements=(*profile.measurements, more))


def errors(truth: Truth, calibrated: fit.Calibrated) -> dict[tuple[str, int, str], float]:
    """Forecast over truth - 1 for every setting and workload."""
    settings = [PLAIN, *(MODEL.setting(g) for g in LENGTHS), *(NGRAM.setting(g) for g in NGRAM.draft_tokens)]
    return {
        (s.drafter, s.draft_tokens, w): calibrated.forecast(s, w).tokens_per_second.value
        / truth.true_speed(s.drafter, s.draft_tokens, w)
        - 1
        for s in settings
        for w in calibrated.workloads()
    }


@pytest.mark.parametrize("truth", [quiet(), quiet(jump=15e-3), quiet(jump=15e-3, switch_after=4)])
def test_without_noise_every_setting_is_forecast_exactly(truth):
    """Only three lengths were run; kernel switches lie at, or inside, the range of lengths."""
    found = errors(truth, fit.calibrate(synthetic.profile(truth)))
    assert max(map(abs, found.values())) < 2e-3, found


def test_overhead_is_recovered_and_nothing_is_left_unexplained():
    truth = quiet()
    record = fit.calibrate(synthetic.profile(truth)).record("sha", "now", "0")
    overhead = next(o for o in record.overheads if o.drafter == "model")
    assert overhead.constant_seconds.value == pytest.approx(truth.overhead, abs=2e-5)
    assert overhead.per_token_seconds.value == pytest.approx(truth.overhead_per_token, abs=1e-5)
    assert overhead.fitted_lengths == (1, 4, 8)
    assert all(abs(r.unexplained) < 1e-3 for r in record.rounds if r.unexplained is not None)


def test_rounds_cheaper_than_their_passes_are_so_by_one_share_at_every_context():
    """An overhead below zero would be right at the mean of the two contexts alone, by 10 % too low at the shorter."""
    truth = quiet(
        overhead=0.0,
        overhead_per_token=0.0,
        round_factors=(0.85,) * 8,
        per_context_token=20e-6,
        round_contexts=(128, 1024),
    )
    calibrated = fit.calibrate(synthetic.profile(truth))
    record = calibrated.record("sha", "now", "0")
    overhead = next(o for o in record.overheads if o.drafter == "model")
    assert (overhead.constant_seconds.value, overhead.per_token_seconds.value) == (0, 0)
    assert any("0.85 x their passes timed apart" in note for note in record.notes)
    for drafted, context in ((1, 128), (6, 128), (6, 1024), (8, 600)):
        found = calibrated.modelled_round(MODEL.setting(drafted), drafted, context)
        assert found.modelled_seconds == pytest.approx(truth.round_seconds("model", drafted, context), rel=3e-3)
        terms = {t.name: t.seconds for t in found.terms}
        parts = terms["draft"] + terms["verification"] + terms["draft_batch"]
        assert terms["in_situ"] == pytest.approx(-0.15 * parts, rel=0.01)
        assert terms["overhead"] == 0 and abs(terms["unexplained"]) < 3e-3 * parts
    assert max(map(abs, errors(truth, calibrated).values())) < 4e-3


def test_noise_and_drift_leave_small_errors_and_covering_bounds():
    misses, worst, total = 0, [], 0
    for seed in range(6):
        truth = quiet(noise=0.03, drift=0.1, seed=seed)
        calibrated = fit.calibrate(synthetic.profile(truth), replicates=200, resample_prompts=False)
        for setting in (MODEL.setting(2), MODEL.setting(6), NGRAM.setting(8)):
            found = calibrated.forecast(setting, "copying")
            ratio = found.tokens_per_second.value / found.baseline_tokens_per_second
            true = truth.true_speed(setting.drafter, setting.draft_tokens, "copying")
            plain = truth.true_speed("none", 0, "copying")
            worst.append(abs(ratio / (true / plain) - 1))
            scaled = true * found.baseline_tokens_per_second / plain
            misses += not found.tokens_per_second.low <= scaled <= found.tokens_per_second.high
            total += 1
    assert np.median(worst) < 0.02 and max(worst) < 0.06
    assert misses <= 0.15 * total


def test_drift_is_divided_out_of_step_times():
    """What is left is one factor common to all, the reference speed of the profile, and what swings within a window."""
    calm, swinging = (fit.calibrate(synthetic.profile(quiet(drift=d))).record("s", "n", "0") for d in (0.0, 0.15))
    ratios = [b.seconds.value / a.seconds.value for a, b in zip(calm.costs, swinging.costs)]
    assert np.ptp(ratios) < 6e-3
    assert swinging.drift_low is not None and swinging.drift_high is not None
    assert swinging.drift_high - swinging.drift_low > 0.05


def test_the_plain_baseline_is_what_was_run():
    profile = synthetic.profile(quiet(noise=0.05))
    replies = next(m for m in profile.measurements if m.runs).runs[0].replies
    mine = [r for r in replies if r.prompt.workload == "ordinary"]
    speeds = [
        sum(r.reply_tokens - 1 for r in mine if r.repeat == i) / sum(r.decode_seconds for r in mine if r.repeat == i)
        for i in range(5)
    ]
    found = fit.calibrate(profile).forecast(PLAIN, "ordinary")
    assert found.tokens_per_second.value == pytest.approx(np.median(speeds), rel=1e-9)
    assert (found.in_profile, found.round_time_source, found.provenance) == (True, "measured", "measured")


def test_measured_lengths_are_told_from_interpolated_ones():
    calibrated = fit.calibrate(synthetic.profile(quiet()))
    told = {g: calibrated.forecast(MODEL.setting(g), "ordinary") for g in LENGTHS}
    assert [g for g, f in told.items() if f.in_profile] == list(synthetic.MEASURED)
    assert {g: f.round_time_source for g, f in told.items()} == {
        g: "measured" if g in synthetic.MEASURED else "interpolated" for g in LENGTHS
    }
    interpolated, measured = (told[g].tokens_per_second for g in (6, 4))
    assert (interpolated.high - interpolated.low) / interpolated.value > (measured.high - measured.low) / measured.value


def test_a_measured_round_time_overrules_the_recipe():
    """The recipe misses 20 % at the one measured length past the switch: the forecast there follows the measurement."""
    truth, profile = quiet(), synthetic.profile(quiet())
    slow = [
        msgspec.structs.replace(s, seconds=tuple(1.2 * x for x in s.seconds)) if s.setting.draft_tokens == 8 else s
        for m in profile.measurements
        for s in m.rounds
    ]
    changed = extended(synthetic.without(profile, "rounds"), rounds=tuple(slow))
    calibrated = fit.calibrate(changed)
    found = calibrated.forecast(MODEL.setting(8), "ordinary").tokens_per_second.value
    assert found == pytest.approx(truth.true_speed("model", 8, "ordinary") / 1.2, rel=0.03)


def test_without_batch_passes_whole_rounds_are_used_and_said_so():
    truth = quiet(steps=False)
    calibrated = fit.calibrate(synthetic.profile(truth))
    found = errors(truth, calibrated)
    assert all(abs(found["model", g, "ordinary"]) < 0.01 for g in (1, 2, 3, 4, 8))
    assert abs(found["ngram", 4, "copying"]) < 0.01
    notes = calibrated.record("s", "n", "0").notes
    assert any("composite" in note for note in notes)
    assert [t.name for t in calibrated.modelled_round(MODEL.setting(4), 4, 128).terms] == ["round", "unexplained"]


def test_without_forcing_real_rounds_serve():
    truth = quiet(forced=False)
    assert max(map(abs, errors(truth, fit.calibrate(synthetic.profile(truth))).values())) < 2e-3


def test_rounds_cut_short_at_the_end_of_a_reply_do_not_time_a_length():
    truth = quiet()
    profile = synthetic.without(synthetic.profile(truth), "rounds")
    real = synthetic.trace(truth, MODEL.setting(4), synthetic.Clock(truth))
    calibrated = fit.calibrate(extended(profile, traces=(real,)))
    (pair,) = [p for p in calibrated.pairs if p.pair.drafter == "model"]
    assert [o.drafted for o in pair.observations] == [4]


def test_acceptance_from_real_rounds_where_there_are_no_matches():
    truth = quiet()
    profile = synthetic.without(synthetic.profile(truth), "matches")
    real = synthetic.trace(truth, MODEL.setting(6), synthetic.Clock(truth))
    calibrated = fit.calibrate(extended(profile, traces=(real,)))
    exact = calibrated.forecast(MODEL.setting(6), "ordinary")
    assert exact.tokens_per_second.value == pytest.approx(truth.true_speed("model", 6, "ordinary"), rel=2e-3)
    other = calibrated.forecast(MODEL.setting(3), "ordinary")
    assert other.tokens_per_second.value == pytest.approx(truth.true_speed("model", 3, "ordinary"), rel=0.05)


def test_partly_unknown_matches_are_imputed():
    """Bits rebuilt from a run at 4 draft tokens: what follows a draft accepted whole is unknown."""
    truth = quiet(match_rate=0.8)
    profile = synthetic.profile(truth)
    rng = np.random.default_rng(8)
    changed = [
        msgspec.structs.replace(t, match=tuple(-1 if rng.random() < 0.1 else bit for bit in t.match))
        for m in profile.measurements
        for t in m.matches
        if t.drafter == "model"
    ]
    calibrated = fit.calibrate(extended(profile, matches=tuple(changed)))
    for length in (2, 5):
        found = calibrated.forecast(MODEL.setting(length), "ordinary").tokens_per_second.value
        assert found == pytest.approx(truth.true_speed("model", length, "ordinary"), rel=0.04)


def test_another_quantizations_acceptance_is_a_prior():
    profile = synthetic.profile(quiet())
    other = msgspec.structs.replace(profile.models[0], label="t8", quant="Q8_0")
    bigger = msgspec.structs.replace(MODEL, target="t8", target_quant="Q8_0")
    steps = tuple(
        msgspec.structs.replace(s, model="t8", seconds=tuple(2 * x for x in s.seconds))
        for m in profile.measurements
        for s in m.steps
        if s.model == "t"
    )
    profile = msgspec.structs.replace(
        profile, models=(*profile.models, other), candidates=(*profile.candidates, bigger)
    )
    calibrated = fit.calibrate(extended(profile, steps=steps))
    own, prior = (calibrated.forecast(c.setting(4), "ordinary") for c in (MODEL, bigger))
    assert (own.provenance, prior.provenance, prior.round_time_source) == ("calibrated", "prior", "prior")
    assert prior.accepted_per_round == own.accepted_per_round
    width = [(f.tokens_per_second.high - f.tokens_per_second.low) / f.tokens_per_second.value for f in (own, prior)]
    assert width[1] > 1.3 * width[0]


def test_what_was_not_measured_raises_with_the_remedy():
    profile = synthetic.profile(quiet())
    with pytest.raises(NotCalibrated, match="profile a trace"):
        fit.calibrate(synthetic.without(profile, "matches")).forecast(MODEL.setting(2), "copying")
    with pytest.raises(NotCalibrated, match="no prompts of workload poems"):
        fit.calibrate(profile).forecast(PLAIN, "poems")
    with pytest.raises(NotCalibrated, match="profile its plain decoding"):
        fit.calibrate(synthetic.without(synthetic.without(profile, "steps"), "runs")).forecast(PLAIN, "ordinary")


def test_plain_runs_alone_give_a_plain_forecast():
    truth = quiet()
    profile = synthetic.without(synthetic.profile(truth), "steps")
    found = fit.calibrate(profile).forecast(PLAIN, "copying")
    assert found.tokens_per_second.value == pytest.approx(truth.true_speed("none", 0, "copying"), rel=1e-9)


def test_the_same_profile_and_seed_give_the_same_record():
    profile = synthetic.profile(quiet(noise=0.03))
    one, two, three = (fit.calibrate(profile, seed=s).record("sha", "now", "0") for s in (1, 1, 2))
    assert one == two != three
    assert msgspec.json.decode(msgspec.json.encode(one), type=Calibration) == one


def test_the_order_of_measurements_does_not_matter():
    profile = synthetic.profile(quiet(noise=0.03))
    turned = msgspec.structs.replace(profile, measurements=profile.measurements[::-1])
    a, b = (fit.calibrate(p).forecast(MODEL.setting(5), "ordinary") for p in (profile, turned))
    assert a.tokens_per_second.value == pytest.approx(b.tokens_per_second.value)


def test_the_ceiling_needs_step_times_only_and_bounds_every_forecast():
    truth = quiet()
    profile = synthetic.profile(truth)
    steps_only = profile
    for action in ("runs", "rounds", "matches", "trace"):
        steps_only = synthetic.without(steps_only, action)
    ceiling = fit.ceiling_at_perfect_acceptance(steps_only, MODEL)
    best = max(
        (g + 1) / (truth.round_seconds("model", g, 128) - truth.overhead - truth.overhead_per_token * g)
        for g in LENGTHS
    )
    assert ceiling == pytest.approx(best, rel=1e-3)
    assert ceiling > max(truth.true_speed("model", g, "ordinary") for g in LENGTHS)
    assert fit.plain_step_speed(steps_only, "t") == pytest.approx(1 / truth.target_pass(1, 128))
    with pytest.raises(NotCalibrated):
        fit.ceiling_at_perfect_acceptance(synthetic.without(profile, "steps"), MODEL)


def test_a_round_goes_where_the_truth_says():
    truth = quiet()
    found = fit.calibrate(synthetic.profile(truth)).modelled_round(MODEL.setting(6), 6, 200)
    terms = {t.name: t.seconds for t in found.terms}
    assert terms["draft"] == pytest.approx(6 * truth.draft_pass(1, 202.5), rel=1e-3)
    assert terms["verification"] == pytest.approx(truth.target_pass(7, 200), rel=1e-3)
    assert terms["draft_batch"] == pytest.approx(truth.draft_pass(7, 200), rel=1e-3)
    assert terms["overhead"] == pytest.approx(truth.overhead + 6 * truth.overhead_per_token, rel=0.03)
    assert found.modelled_seconds == pytest.approx(truth.round_seconds("model", 6, 200), rel=2e-3)
    assert (found.source, found.measured_seconds, found.used_for_fit) == ("interpolated", None, False)


def test_the_share_of_the_bandwidth_that_a_quantization_reaches_is_in_the_calibration():
    """Bytes of the file over the seconds of a plain step at the shortest context, over the bandwidth."""
    truth = quiet()
    evidence = synthetic.profile(truth)
    calibrated = fit.calibrate(evidence)
    assert calibrated.bandwidth is not None
    (found,) = calibrated.record("", "", "").efficiencies
    (target,) = [model for model in evidence.models if model.label == found.target]
    step = truth.target_pass(1, min(synthetic.CONTEXTS))
    expected = target.size_bytes / step / calibrated.bandwidth.bytes_per_second[0]
    assert found.quant == target.quant and found.share.value == pytest.approx(expected, rel=1e-6)
    assert found.share.low <= found.share.value <= found.share.high


def test_an_overhead_per_token_that_one_length_cannot_tell_is_marked_with_what_would():
    profile = synthetic.profile(quiet())
    at_four = tuple(s for m in profile.measurements for s in m.rounds if s.setting.draft_tokens == 4)
    record = fit.calibrate(extended(synthetic.without(profile, "rounds"), rounds=at_four)).record("sha", "now", "0")
    (note,) = [note for note in record.notes if "cannot be told" in note and "x d:" in note]
    assert "rounds at 4 draft tokens" in note and note.endswith("measure rounds at 1, 8")
    whole = fit.calibrate(profile).record("sha", "now", "0").notes
    assert not any("cannot be told" in note and "x d:" in note for note in whole)

"""Evidence of others: rows and counters become rounds, plain steps and acceptance."""

import csv
from pathlib import Path

import msgspec
import numpy as np
import pytest

from specgauge.calibrate import fit, predict, recommend, reported
from specgauge.calibrate.evidence import Pair
from specgauge.calibrate.rounds import NotCalibrated
from specgauge.profiler.errors import InputError
from specgauge.profiler.records import (
    Candidate,
    EngineInfo,
    Key,
    Measurement,
    ModelFile,
    Profile,
    Prompt,
    ReportedAcceptance,
    ReportedRow,
    Request,
    Sampling,
    Setting,
    StepSample,
)

DATA = Path(__file__).resolve().parents[1] / "data"
MTP = Pair("target", "mtp", "")


def setting(draft_tokens: int, context: int = 0, drafter: str = "mtp") -> Setting:
    if draft_tokens == 0:
        return Setting(target="target", target_quant="q4", context=context)
    return Setting(target="target", target_quant="q4", drafter=drafter, draft_tokens=draft_tokens, context=context)


def row(draft_tokens: int, baseline: float | None, speed: float | None, tokens: float | None, context: int = 0):
    return ReportedRow(
        setting=setting(draft_tokens, context),
        workload="reported",
        baseline_tokens_per_second=baseline,
        tokens_per_second=speed,
        tokens_per_round=tokens,
    )


def profile(*rows: ReportedRow, **more) -> Profile:
    """A profile of `rows` (and of `more` of a Measurement)."""
    settings = [r.setting for r in rows] + [a.setting for a in more.get("reported_acceptance", ())]
    kinds = dict.fromkeys((s.context, s.drafter) for s in settings if s.draft_tokens)
    candidates = tuple(
        Candidate(
            target="target",
            target_quant="q4",
            drafter=drafter,
            context=context,
            draft_tokens=tuple(
                sorted({s.draft_tokens for s in settings if (s.context, s.drafter) == (context, drafter)})
            ),
        )
        for context, drafter in kinds
    )
    measured = Measurement(
        request=Request(action="import"), digest="0", started_at_seconds=0, wall_seconds=0, reported=rows, **more
    )
    model = ModelFile(
        label="target",
        path="",
        sha256="",
        size_bytes=0,
        name="target",
        architecture="",
        quant="q4",
        parameters=0,
        tokenizer_sha256="",
    )
    prompt = Prompt(id="reported", workload="reported", workload_class="", text_sha256="", new_tokens=0)
    return Profile(
        created="",
        tool_version="",
        key=Key(engine="llama.cpp"),
        engine=EngineInfo(name="llama.cpp", build="", backend=""),
        models=(model,),
        prompts=(prompt,),
        sampling=Sampling(),
        candidates=candidates,
        measurements=(measured,),
        complete=True,
    )


def public_rows(name: str) -> list[ReportedRow]:
    with open(DATA / f"{name}.csv") as file:
        return [
            row(
                int(r["draft_tokens"]),
                float(r["baseline_tps"]),
                float(r["spec_tps"]),
                float(r["tokens_per_round"]),
                int(r["context"] or 0),
            )
            for r in csv.DictReader(file)
        ]


def test_a_round_is_tokens_over_speed_in_plain_steps_of_its_own_session():
    """Two sessions, one of them 10 % slower throughout, say the same of a round."""
    fast, slow = row(2, 40.0, 60.0, 2.4), row(2, 36.0, 54.0, 2.4)
    (found,) = reported.round_observations(profile(fast, slow), MTP)
    assert found.seconds * 2 / (1 / 40.0 + 1 / 36.0) == pytest.approx([1.6, 1.6])
    calibrated = fit.calibrate(profile(fast, slow))
    assert calibrated.forecast(setting(2), "reported").speed_up == pytest.approx(1.5)


@pytest.mark.parametrize(
    "name, anchors",
    [
        ("rtx3090-mtp-ladder", (1, 7, 8)),
        ("community-5090-400w", (1, 6)),
        ("community-3090-250w", (2, 4)),
        ("community-m3ultra", (2, 4)),
        ("community-3060-moe", (1, 4)),
    ],
)
def test_rows_left_out_of_public_ladders_are_forecast(name, anchors):
    rows = public_rows(name)
    calibrated = fit.calibrate(profile(*(r for r in rows if r.setting.draft_tokens in anchors)))
    for one in rows:
        assert one.tokens_per_second
        found = calibrated.forecast(one.setting, "reported")
        assert found.tokens_per_second.value == pytest.approx(one.tokens_per_second, rel=0.04)
        assert found.tokens_per_second.low < one.tokens_per_second < found.tokens_per_second.high
        assert (found.provenance == "measured") == (one.setting.draft_tokens in anchors)


def test_between_two_contexts_plain_steps_and_rounds_are_forecast():
    """RTX 3090, 2 draft tokens: from 8K and 96K of context the three between."""
    rows = public_rows("rtx3090-context-ladder")
    calibrated = fit.calibrate(profile(rows[0], rows[-1]))
    for one in rows[1:-1]:
        assert one.tokens_per_second and one.baseline_tokens_per_second
        found = calibrated.forecast(one.setting, "reported")
        assert found.tokens_per_second.value == pytest.approx(one.tokens_per_second, rel=0.02)
        assert found.baseline_tokens_per_second == pytest.approx(one.baseline_tokens_per_second, rel=0.02)


def test_counters_by_position_are_the_survival_of_every_length_counted():
    seen = ReportedAcceptance(
        setting=setting(3),
        workload="reported",
        drafts=100,
        drafted=300,
        accepted=150,
        accepted_by_position=(80, 50, 20),
    )
    (ladder,) = reported.ladders(profile(reported_acceptance=(seen,)), MTP, "reported")
    assert ladder.draft_tokens.tolist() == [1, 2, 3]
    assert ladder.tokens == pytest.approx([1.8, 2.3, 2.5])


def test_a_curve_of_one_machine_and_the_acceptance_of_another_make_a_forecast():
    """Passes of 1 to 5 tokens here, tokens per round of an n-gram drafter from elsewhere: verification is all a round has."""
    widths = (1, 2, 3, 4, 5)
    steps = tuple(
        StepSample(
            model="target",
            role="target",
            kind="decode" if n == 1 else "batch",
            width=n,
            context=0,
            seconds=(0.020 + 0.002 * (n - 1),),
        )
        for n in widths
    )
    seen = ReportedAcceptance(
        setting=setting(4, drafter="ngram"), workload="reported", drafts=100, drafted=400, accepted=150
    )
    calibrated = fit.calibrate(profile(steps=steps, reported_acceptance=(seen,)))
    found = calibrated.forecast(setting(4, drafter="ngram"), "reported")
    assert found.tokens_per_second.value == pytest.approx(2.5 / 0.028, rel=1e-6)
    assert found.provenance == "prior", "no round of this pair was ever timed"


def test_acceptance_without_any_cost_of_rounds_says_what_to_measure():
    seen = ReportedAcceptance(setting=setting(3), workload="reported", drafts=100, drafted=300, accepted=150)
    with pytest.raises(NotCalibrated, match="profile"):
        fit.calibrate(profile(reported_acceptance=(seen,))).forecast(setting(3), "reported")


def test_figures_that_contradict_each_other_are_met_as_far_as_they_allow():
    """Three draft tokens gained less than two: no survival curve has these figures exactly."""
    ladder = reported.Ladder(0.0, np.array([1, 2, 3, 6]), np.array([1.7, 2.3, 2.28, 2.9]))
    assert 2.3 < ladder.at(4) < 2.9
    assert ladder.at(3) == 2.28
    assert (ladder.gap(4), ladder.gap(3), ladder.gap(8)) == (3.0, 0.0, 4.0)


def test_imported_evidence_is_recommended_from():
    rows = public_rows("rtx3090-mtp-ladder")
    evidence = profile(*rows)
    calibrated = fit.calibrate(evidence)
    found = recommend.recommend(
        evidence,
        calibrated,
        profile_sha256="",
        calibration_sha256="",
        created="",
        tool_version="",
        command="",
    )
    assert found.verdict == "speculate" and found.chosen.draft_tokens == 2
    assert found.baseline_tokens_per_second == pytest.approx(41.57)
    assert any("accepted with probability 0.78" in reason for reason in found.reasons), "S_1 = 1.78 - 1"


def test_contexts_can_be_asked_for_of_imported_evidence_only():
    rows = public_rows("rtx3090-context-ladder")
    evidence = profile(rows[0], rows[-1])
    found = predict.predictions_of(evidence, fit.calibrate(evidence), (0, 2), (32768,))
    assert {(p.draft_tokens, p.context) for p in found} == {(0, 32768), (2, 32768)}
    assert all(p.provenance == "calibrated" for p in found)
    with pytest.raises(InputError, match="--context"):
        bare = profile(*rows)
        predict.predictions_of(
            Profile(**{f: getattr(bare, f) for f in bare.__struct_fields__ if f != "measurements"}),
            fit.calibrate(bare),
            (0,),
            (100,),
        )


def test_workloads_keep_their_own_plain_speed():
    """Code and chat differ in plain speed and in acceptance: each comes back with its own."""
    code, chat = (
        ReportedRow(
            setting=setting(3),
            workload=workload,
            baseline_tokens_per_second=baseline,
            tokens_per_second=speed,
            tokens_per_round=tokens,
        )
        for workload, baseline, speed, tokens in (("code", 25.0, 50.0, 2.5), ("chat", 20.0, 24.0, 1.5))
    )
    prompts = tuple(Prompt(id=w, workload=w, workload_class="", text_sha256="", new_tokens=0) for w in ("code", "chat"))
    calibrated = fit.calibrate(msgspec.structs.replace(profile(code, chat), prompts=prompts))
    for one in (code, chat):
        found = calibrated.forecast(setting(3), one.workload)
        assert found.baseline_tokens_per_second == pytest.approx(one.baseline_tokens_per_second)
        assert found.tokens_per_second.value == pytest.approx(one.tokens_per_second, rel=1e-6)
        assert found.provenance == "calibrated", "its round cost is taken over both"


def test_speeds_never_rise_with_context_nor_vanish_far_from_the_rows():
    """Noise made the longer context faster; and steeply slower in another file."""
    noisy = fit.calibrate(profile(row(2, 40.0, 60.0, 2.2, 1000), row(2, 42.0, 60.0, 2.2, 2000)))
    steep = fit.calibrate(profile(row(2, 40.0, 60.0, 2.2, 1000), row(2, 10.0, 14.0, 2.2, 2000)))
    far = [noisy.forecast(setting(0, context), "reported") for context in (2000, 20_000, 40_000)]
    assert all(f.tokens_per_second.value == pytest.approx(42.0) for f in far)
    assert far[-1].provenance == "prior"
    near = [steep.forecast(setting(0, context), "reported").tokens_per_second for context in (0, 500)]
    assert all(0 < f.low <= f.value <= f.high < 400 for f in near)


def test_beyond_rows_that_fall_a_round_costs_no_less_than_the_last_one():
    evidence = profile(row(1, 40.0, 10.0, 1.9), row(3, 40.0, 100.0, 3.0))
    found = fit.calibrate(evidence).forecast(setting(5), "reported")
    assert found.provenance == "prior"
    assert 0 < found.tokens_per_second.low <= found.tokens_per_second.value < 200


def test_one_row_behind_a_kernel_switch_tells_nothing_of_shorter_drafts():
    """RTX 3090 at 8 draft tokens: 7 take another kernel."""
    (last,) = [r for r in public_rows("rtx3090-mtp-ladder") if r.setting.draft_tokens == 8]
    calibrated = fit.calibrate(profile(last))
    for one in public_rows("rtx3090-mtp-ladder")[:-1]:
        assert calibrated.forecast(one.setting, "reported").provenance == "prior"


def test_figures_that_no_draft_can_have_leave_the_other_pair_alone():
    eagle = ReportedRow(
        setting=setting(2, drafter="eagle"),
        workload="reported",
        baseline_tokens_per_second=40.0,
        tokens_per_second=60.0,
        tokens_per_round=2.2,
    )
    evidence = profile(row(1, 40.0, 60.0, 1.9), row(4, 40.0, 30.0, 1.2), eagle)
    told = []
    found = predict.predictions_of(evidence, fit.calibrate(evidence), (0, 2), told=told.append)
    assert {p.drafter for p in found} == {"none", "eagle"}
    assert any("contradict each other" in reason for reason in told)


def test_settings_at_several_contexts_are_not_held_against_each_other():
    evidence = profile(row(0, None, 40.0, None, 0), row(3, 25.0, 38.0, 2.5, 32_768))
    found = recommend.recommend(
        evidence,
        fit.calibrate(evidence),
        profile_sha256="",
        calibration_sha256="",
        created="",
        tool_version="",
        command="",
    )
    assert (found.verdict, found.chosen.context) == ("speculate", 32_768)
    assert found.baseline_tokens_per_second == pytest.approx(25.0)

"""Forecast against measurement on runs made by hand, so that every number can be checked on paper."""

from collections.abc import Callable
from dataclasses import dataclass
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from specgauge.calibrate import arms, validate
from specgauge.calibrate.records import (
    Chosen,
    Interval,
    Recommendation,
    ReplySpread,
    RoundBreakdown,
    SettingForecast,
    TargetRef,
    WorkloadAdvice,
)
from specgauge.profiler.records import (
    Candidate,
    EngineInfo,
    Key,
    Measurement,
    ModelFile,
    Profile,
    Prompt,
    PromptRun,
    Request,
    RoundSample,
    Run,
    Sampling,
    Setting,
)

MODEL = Candidate(
    target="t", target_quant="Q4_0", drafter="model", draft="d", draft_quant="Q4_0", draft_tokens=tuple(range(1, 9))
)
NGRAM = Candidate(
    target="t", target_quant="Q4_0", drafter="ngram", draft="ngram-simple", ngram_size=3, draft_tokens=(3, 4, 8, 12)
)
PLAIN, MODEL_3, MODEL_4, NGRAM_12 = MODEL.setting(0), MODEL.setting(3), MODEL.setting(4), NGRAM.setting(12)
PROMPTS = tuple(
    Prompt(id=f"{workload}/{i}", workload=workload, workload_class=workload, text_sha256=f"{i}", new_tokens=101)
    for workload in ("ordinary", "copying")
    for i in range(2)
)
FORECASTS = {"none": 100.0, "model": 150.0, "ngram": 120.0}
SESSION = validate.Session(
    calibration_sha256="c",
    created="now",
    tool_version="0",
    validation_seconds=60.0,
    start_seconds=2.0,
    reference_sentinel_seconds=0.01,
)


def forecast_of(setting: Setting, workload: str) -> SettingForecast:
    """100 tokens/s plain, 150 with the model and 120 with n-grams, +- 10 %."""
    speed = FORECASTS[setting.drafter]
    return SettingForecast(
        setting=setting,
        workload=workload,
        tokens_per_second=Interval(value=speed, low=speed * 0.9, high=speed * 1.1),
        speed_up=speed / 100,
        baseline_tokens_per_second=100.0,
        tokens_per_round=2.0,
        accepted_per_round=1.0,
        drafted_per_round=float(setting.draft_tokens),
        round_seconds=0.02,
        ceiling_tokens_per_second=300.0,
        break_even_accepted=0.5,
        round_time_source="interpolated",
        in_profile=False,
        provenance="calibrated",
    )


@dataclass(frozen=True)
class HandMade:
    """A calibrated model whose round takes 10 ms and 5 ms a drafted token, and 1 us a token of context."""

    def of_its_own_prompts(self) -> "HandMade":
        return self

    def forecast(self, setting: Setting, workload: str) -> SettingForecast:
        return forecast_of(setting, workload)

    def reply_spread(self, setting: Setting, workload: str) -> ReplySpread | None:
        speed = FORECASTS[setting.drafter]
        return ReplySpread(low=0.8 * speed, median=speed, high=1.2 * speed)

    def modelled_round(self, setting: Setting, drafted: int, context: float) -> RoundBreakdown:
        return RoundBreakdown(
            target=setting.target,
            drafter=setting.drafter,
            draft=setting.draft,
            draft_tokens=drafted,
            context=int(context),
            source="interpolated",
            terms=(),
            modelled_seconds=0.010 + 0.005 * drafted + 1e-6 * context,
        )


def profile_with(*measured: Setting) -> Profile:
    rounds = tuple(
        RoundSample(setting=setting, context=128, seconds=(0.02,), drafted=(4,), accepted=(0,)) for setting in measured
    )
    measurement = Measurement(
        request=Request(action="rounds"), digest="r", started_at_seconds=0.0, wall_seconds=1.0, rounds=rounds
    )
    model = ModelFile(
        label="t",
        path="/t.gguf",
        sha256="t" * 64,
        size_bytes=10,
        name="t",
        architecture="llama",
        quant="Q4_0",
        parameters=1,
        tokenizer_sha256="v",
    )
    return Profile(
        created="now",
        tool_version="0",
        key=Key(engine="fake"),
        engine=EngineInfo(name="fake", build="b", backend="cpu", capabilities=("forced-acceptance",)),
        models=(model,),
        prompts=PROMPTS,
        sampling=Sampling(),
        candidates=(MODEL, NGRAM),
        measurements=(measurement,),
        profile_seconds=100.0,
    )


def chosen(setting: Setting) -> Chosen:
    return Chosen(
        target=TargetRef(path="/t.gguf", quant="Q4_0", sha256="t" * 64),
        drafter=setting.drafter,
        draft=setting.draft,
        draft_quant=setting.draft_quant,
        draft_tokens=setting.draft_tokens,
        ngram_size=setting.ngram_size,
        context=setting.context,
    )


def recommending(overall: Setting, ordinary: Setting, copying: Setting) -> Recommendation:
    """Candidates as forecast; model draft 4 and the n-gram lengths but 4 and 8 are not in the profile."""
    settings = (PLAIN, *map(MODEL.setting, MODEL.draft_tokens), *map(NGRAM.setting, NGRAM.draft_tokens))
    interval = Interval(value=150.0, low=140.0, high=160.0)
    advice = [
        WorkloadAdvice(
            workload=workload,
            verdict="speculate",
            chosen=chosen(setting),
            forecast_tokens_per_second=interval,
            baseline_tokens_per_second=100.0,
            reasons=(),
        )
        for workload, setting in (("ordinary", ordinary), ("copying", copying))
    ]
    return Recommendation(
        created="now",
        tool_version="0",
        profile_sha256="p",
        calibration_sha256="c",
        verdict="speculate",
        chosen=chosen(overall),
        forecast_tokens_per_second=interval,
        baseline_tokens_per_second=100.0,
        reasons=(),
        workloads=tuple(advice),
        candidates=tuple(
            forecast_of(setting, workload) for setting in settings for workload in ("ordinary", "copying")
        ),
        command="",
    )


def run_of(setting: Setting, speed: Callable[[int, str], float], repeats: range) -> Run:
    """Replies of 101 tokens at `speed(repeat, workload)` tokens/s; half the drafted tokens are accepted."""
    replies = tuple(
        PromptRun(
            prompt=prompt,
            repeat=repeat,
            prompt_tokens=20,
            reply_tokens=101,
            decode_seconds=100 / speed(repeat, prompt.workload),
            prefill_seconds=0.1,
            wall_seconds=100 / speed(repeat, prompt.workload) + 0.1,
            drafted=100 if setting.draft_tokens else 0,
            accepted=50 if setting.draft_tokens else 0,
            reply_sha256="same",
        )
        for repeat in repeats
        for prompt in PROMPTS
    )
    return Run(setting=setting, sampling=Sampling(), replies=replies)


def swing(repeat: int) -> float:
    """A common drift of the machine: -10 % on every second repeat, and 20 % slower than the profile throughout."""
    return 0.8 * (0.9 if repeat % 2 else 1.0)


def validated(**true_speeds: float):
    """A validation of plain, model draft 3 and 4 and n-gram 12 under drift; the profile measured model draft 3."""
    speeds = {"plain": 100.0, "model_3": 145.0, "model_4": 140.0, "ngram_12": 125.0} | true_speeds
    settings = {"plain": PLAIN, "model_3": MODEL_3, "model_4": MODEL_4, "ngram_12": NGRAM_12}
    runs = [run_of(settings[name], lambda r, w, s=s: s * swing(r), range(5)) for name, s in speeds.items()]
    recommendation = recommending(MODEL_4, MODEL_4, MODEL_4)
    return validate.validation(profile_with(MODEL_3), HandMade(), recommendation, runs, (), SESSION)  # type: ignore[arg-type]


def test_common_drift_is_divided_out_and_shown():
    found = validated()
    row = next(row for row in found.rows if row.config == MODEL_4)
    assert row.measured == pytest.approx(140.0)
    assert row.error == pytest.approx(150.0 / 140.0 - 1)
    assert row.measured_raw == pytest.approx(140.0 * 0.8)
    assert row.speeds == pytest.approx([140.0 * swing(repeat) for repeat in range(5)])
    assert row.speed_up == row.speed_up_low == pytest.approx(1.4)
    assert found.drift == pytest.approx({"ordinary": 0.8, "copying": 0.8})
    assert any("0.80 of the profile's speed" in text for text in found.warnings)


def test_the_plain_row_is_as_the_clock_gave_it_not_equal_to_its_forecast_by_construction():
    plain = next(row for row in validated().rows if row.config == PLAIN)
    assert plain.measured == plain.measured_raw == pytest.approx(80.0)
    assert plain.error == pytest.approx(0.25)
    assert plain.in_profile


def test_every_reply_keeps_its_own_raw_speed_beside_its_forecast():
    row = next(row for row in validated().rows if row.config == MODEL_4)
    assert row.reply_speeds == pytest.approx([140.0 * swing(repeat) for repeat in range(5) for _ in range(2)])
    assert row.reply_spread is not None and row.reply_spread.median == FORECASTS["model"]


def test_errors_and_coverage_are_over_rows_that_were_not_in_the_profile():
    found = validated(ngram_12=90.0)
    assert {row.config: row.in_profile for row in found.rows} == {
        PLAIN: True,
        MODEL_3: True,
        MODEL_4: False,
        NGRAM_12: False,
    }
    assert found.n_rows == 4
    errors = {"model": 150 / 140 - 1, "ngram": 120 / 90 - 1}
    assert found.mean_abs_error == pytest.approx((errors["model"] + errors["ngram"]) / 2)
    assert found.worst_abs_error == pytest.approx(errors["ngram"])
    assert found.coverage == 0.5
    assert {kind: item.n_rows for kind, item in found.by_drafter.items()} == {"model": 2, "ngram": 2}
    assert found.by_drafter["ngram"].coverage == 0.0


def test_interval_score_adds_forty_times_the_miss_at_95_percent():
    inside = (165 - 135) / 140
    outside = ((132 - 108) + 40 * (108 - 90)) / 90
    assert validated(ngram_12=90.0).interval_score == pytest.approx((inside + outside) / 2)


def test_regret_is_against_the_best_arm_and_bounded_by_its_pairs():
    found = validated()
    assert found.regret == found.regret_low == pytest.approx(1 - 140 / 145)
    assert validated(model_3=100.0).regret == 0.0


def test_regret_counts_the_baseline():
    assert validated(plain=200.0).regret == pytest.approx(1 - 140 / 200)


def test_near_best_rows_leave_slow_arms_out():
    errors = (150 / 145 - 1, 150 / 140 - 1, 1 - 120 / 125)
    assert validated().near_best_mean_abs_error == pytest.approx(sum(errors) / 3)


def test_sweep_is_all_candidate_settings_at_this_sessions_seconds():
    found = validated()
    passes = [400 / (speed * swing(r)) + 0.4 for speed in (100, 145, 140, 125) for r in range(5)]
    assert found.sweep_seconds == pytest.approx(13 * (2.0 + 5 * sum(passes) / len(passes)))
    assert not found.sweep_measured
    assert found.profile_seconds == 100.0


def test_tokens_per_round_come_from_the_engines_counters():
    row = next(row for row in validated().rows if row.config == MODEL_4)
    assert row.tokens_per_round_measured == pytest.approx(2.0)
    assert (row.drafted, row.accepted) == (1000, 500)


def test_replies_that_differ_are_counted():
    profile, recommendation = profile_with(MODEL_3), recommending(MODEL_4, MODEL_4, MODEL_4)
    runs = [run_of(setting, lambda r, w: 100.0, range(5)) for setting in (PLAIN, MODEL_4)]
    odd = replace(runs[1].replies[0], reply_sha256="other")
    runs[1] = replace(runs[1], replies=(odd, *runs[1].replies[1:]))
    found = validate.validation(profile, HandMade(), recommendation, runs, (), SESSION)  # type: ignore[arg-type]
    assert any(text.startswith("1 of 20 speculative replies differ") for text in found.warnings)


def test_fresh_rounds_are_compared_at_the_profiles_reference_speed():
    sample = RoundSample(
        setting=MODEL_4,
        forced_rates=(0.0,) * 4,
        context=100,
        seconds=(9.0, 0.066, 0.066, 0.066, 0.001),
        drafted=(4, 4, 4, 4, 2),
        accepted=(0, 0, 0, 0, 0),
        sentinel_seconds=0.02,
    )
    (check,) = validate.round_checks(HandMade(), [sample], 0.01)  # type: ignore[arg-type]
    assert check.rounds == 3
    assert check.measured_seconds == pytest.approx(0.033)
    assert check.modelled_seconds == pytest.approx(0.030 + 102e-6)
    assert check.unexplained == pytest.approx(0.033 / 0.030102 - 1)


# --- what to run


def test_the_baseline_the_choices_and_their_neighbours_are_run():
    settings = arms.settings_to_run(profile_with(MODEL_3), recommending(NGRAM_12, MODEL_4, NGRAM_12))
    assert settings[0] == PLAIN
    assert len(set(settings)) == len(settings)
    assert {MODEL_3, MODEL_4, MODEL.setting(5), NGRAM.setting(8), NGRAM_12} <= set(settings)


@pytest.mark.parametrize("choice", [PLAIN, MODEL_3, NGRAM.setting(3)])
def test_six_rows_over_two_drafters_are_not_in_the_profile(choice: Setting):
    measured = (*map(MODEL.setting, (1, 4, 8)), *map(NGRAM.setting, (4, 8)))
    profile = profile_with(*measured)
    settings = arms.settings_to_run(profile, recommending(choice, choice, choice))
    unrun = [setting for setting in settings if not arms.in_profile(profile, setting)]
    assert len(unrun) * 2 >= arms.LEAST_UNRUN_ROWS
    assert {setting.drafter for setting in unrun} == {"model", "ngram"}


def test_fresh_rounds_are_asked_of_each_model_drafter_at_one_to_eight():
    requests = arms.check_requests(profile_with(), [PLAIN, MODEL_3, MODEL_4, NGRAM_12])
    assert [request.settings[0].draft_tokens for request in requests] == list(range(1, 9))


# --- how often


def repeats_needed(noise: Callable[[int], float], seconds: float = 1e9) -> arms.Settled:
    """Repeats of 10 s each, in which the choice varies by `noise`."""
    done: list[int] = []

    def one_repeat(repeat: int) -> list[Run]:
        done.append(repeat)
        once = range(repeat, repeat + 1)
        return [
            run_of(PLAIN, lambda r, w: 100.0, once),
            run_of(MODEL_4, lambda r, w: 130.0 * noise(r), once),
            run_of(MODEL_3, lambda r, w: 129.0, once),
        ]

    return arms.run_until_settled(one_repeat, {"": MODEL_4}, clock=lambda: 10.0 * len(done), seconds=seconds)


def wild(repeat: int) -> float:
    return 1.3 if repeat % 2 else 0.8


def test_a_quiet_machine_needs_the_least_repeats():
    settled = repeats_needed(lambda repeat: 1.0)
    assert (settled.repeats, settled.stopped_by) == (5, "settled")
    assert all(len(arms.repeat_speeds(run, "ordinary")) == 5 for run in settled.runs)


def test_a_noisy_one_gets_more_until_the_interval_is_narrow():
    """One repeat that is off is within the 95 % interval of eight, and outside of that of nine."""
    settled = repeats_needed(lambda repeat: 1.2 if repeat == 0 else 1.0)
    assert (settled.repeats, settled.stopped_by) == (9, "settled")


def test_a_very_noisy_one_gets_the_most():
    settled = repeats_needed(wild)
    assert (settled.repeats, settled.stopped_by) == (15, "most-repeats")


@pytest.mark.parametrize(("seconds", "repeats"), [(1.0, 5), (75.0, 7)])
def test_or_what_time_allows_but_never_less_than_the_least(seconds: float, repeats: int):
    settled = repeats_needed(wild, seconds)
    assert (settled.repeats, settled.stopped_by) == (repeats, "time")


@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=40))
def test_the_median_interval_holds_the_median_and_its_stated_level(values: list[float]):
    low, high = arms.median_interval(values)
    assert low <= sorted(values)[len(values) // 2] <= high
    if len(values) >= 6 and len(set(values)) == len(values):
        k = sorted(values).index(low) + 1
        outside = 2 * sum(comb(len(values), i) for i in range(k)) / 2 ** len(values)
        assert outside <= 0.05


def test_the_median_interval_of_ten_is_from_the_second_to_the_ninth():
    assert arms.median_interval([float(i) for i in range(1, 11)]) == (2.0, 9.0)

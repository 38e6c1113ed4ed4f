"""Records as a demo run leaves them: three quantizations, a draft model and an n-gram drafter, two workloads.

Speeds come from a small closed model with seeded noise, so that forecast and measurement differ as they do in life.
"""

import hashlib
import math
import random
from dataclasses import dataclass

import msgspec

from specgauge.calibrate.records import (
    Acceptance,
    Calibration,
    Chosen,
    CostPoint,
    DrafterErrors,
    Interval,
    Overhead,
    Recommendation,
    ReplySpread,
    RoundBreakdown,
    RoundCheck,
    RoundTerm,
    SettingForecast,
    TargetRef,
    Validation,
    ValidationRow,
    WorkloadAdvice,
)
from specgauge.profiler.records import (
    BandwidthSample,
    Candidate,
    EngineInfo,
    Key,
    Measurement,
    ModelFile,
    Profile,
    Prompt,
    Request,
    RoundSample,
    Sampling,
    Setting,
    StepSample,
)

from .explored import memory_maps, speed_maps, what_ifs

CREATED = "2025-11-30T16:00:00Z"
VERSION = "0.1.0"
WIDTHS = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 17)
LENGTHS = (1, 2, 3, 4, 6, 8)
PLAIN_SECONDS = {"F16": 0.0128, "Q8_0": 0.0117, "Q4_0": 0.0085}
ROW_SECONDS = {"F16": 0.0021, "Q8_0": 0.0034, "Q4_0": 0.0047}
SIZE_BYTES = {"F16": 270_885_888, "Q8_0": 144_811_008, "Q4_0": 77_571_072}
SURVIVAL = {
    ("model", "ordinary"): 0.71,
    ("model", "copying"): 0.82,
    ("ngram", "ordinary"): 0.22,
    ("ngram", "copying"): 0.93,
}


@dataclass(frozen=True)
class Sample:
    """One consistent set of records."""

    profile: Profile
    calibration: Calibration
    recommendation: Recommendation
    validation: Validation


def sample(name: str = "smol", folder: str = "/models", workload: str = "copying") -> Sample:
    """The records; `name`, `folder` and `workload` are foreign text that ends up in labels, paths and titles."""
    workloads = ("ordinary", workload)
    models = tuple(_model(name, folder, quant) for quant in PLAIN_SECONDS)
    candidates = _candidates(name)
    forecasts = tuple(_forecasts(candidates, workloads))
    rows = tuple(_rows(forecasts))
    profile = _profile(models, candidates, workloads, name)
    recommendation = _recommendation(forecasts, models, workloads, name)
    return Sample(profile, _calibration(name, workloads), recommendation, _validation(rows, name))


def speculating() -> Sample:
    """The same records from a machine where a forecast tie speculates on every workload."""
    base = sample()
    advice = tuple(msgspec.structs.replace(item, verdict="tie") for item in base.recommendation.workloads)
    recommendation = msgspec.structs.replace(base.recommendation, workloads=advice, verdict="tie")
    return Sample(base.profile, base.calibration, recommendation, base.validation)


def without_evidence() -> Sample:
    """A profile that was stopped before it measured anything: no cost, no round, no forecast, no run."""
    base = sample()
    calibration = msgspec.structs.replace(
        base.calibration, costs=(), overheads=(), acceptance=(), rounds=(), bandwidth_bytes_per_second=None
    )
    recommendation = msgspec.structs.replace(
        base.recommendation,
        candidates=(),
        ceiling_tokens_per_second=None,
        bandwidth_share=None,
        what_if=(),
        speed_maps=(),
        memory_maps=(),
    )
    profile = msgspec.structs.replace(base.profile, measurements=())
    return Sample(profile, calibration, recommendation, base.validation)


def verify_seconds(quant: str, width: int, context: int) -> float:
    """True seconds of a pass; past 8 tokens another kernel, cheaper by a row."""
    switched = -0.009 if width > 8 else 0.0
    return PLAIN_SECONDS[quant] * (1 + context / 8000) + ROW_SECONDS[quant] * (width - 1) + switched * (width > 8)


def round_terms(quant: str, drafter: str, length: int, context: int = 256) -> tuple[RoundTerm, ...]:
    """True seconds of a round by term."""
    verify = RoundTerm(name="verification", seconds=verify_seconds(quant, length + 1, context))
    if drafter == "ngram":
        return (verify, RoundTerm(name="overhead", seconds=-0.0006 + 0.0001 * length))
    draft = RoundTerm(name="draft", seconds=length * verify_seconds("Q4_0", 1, context))
    again = RoundTerm(name="draft re-decode", seconds=0.8 * verify_seconds("Q4_0", length + 1, context))
    return (draft, verify, again, RoundTerm(name="overhead", seconds=0.0011 + 0.0002 * length))


def _model(name: str, folder: str, quant: str) -> ModelFile:
    return ModelFile(
        label=f"{name}-{quant}",
        path=f"{folder}/{name}-{quant}.gguf",
        sha256=hashlib.sha256(quant.encode()).hexdigest(),
        size_bytes=SIZE_BYTES[quant],
        name=name,
        architecture="llama",
        quant=quant,
        parameters=134_515_008,
        tokenizer_sha256="ab" * 32,
    )


def _candidates(name: str) -> tuple[Candidate, ...]:
    found = []
    for quant in PLAIN_SECONDS:
        label = f"{name}-{quant}"
        found.append(Candidate(target=label, target_quant=quant, drafter="none", draft_tokens=(0,)))
        found.append(
            Candidate(
                target=label,
                target_quant=quant,
                drafter="ngram",
                draft="ngram-simple",
                ngram_size=12,
                draft_tokens=LENGTHS,
            )
        )
        if quant != "Q4_0":
            found.append(
                Candidate(
                    target=label,
                    target_quant=quant,
                    drafter="model",
                    draft=f"{name}-Q4_0",
                    draft_quant="Q4_0",
                    draft_tokens=LENGTHS,
                )
            )
    return tuple(found)


def _around(value: float, share: float) -> Interval:
    return Interval(value=value, low=value * (1 - share), high=value * (1 + share))


def _forecasts(candidates: tuple[Candidate, ...], workloads: tuple[str, ...]):
    for index, workload in enumerate(workloads):
        process = ("ordinary", "copying")[index]
        for candidate in candidates:
            for length in candidate.draft_tokens:
                yield _forecast(candidate.setting(length), workload, process)


def _forecast(setting: Setting, workload: str, process: str) -> SettingForecast:
    quant, length = setting.target_quant, setting.draft_tokens
    step = verify_seconds(quant, 1, 256)
    rate = SURVIVAL.get((setting.drafter, process), 0.0)
    per_round = sum(rate**j for j in range(length + 1))
    seconds = sum(term.seconds for term in round_terms(quant, setting.drafter, length)) if length else step
    speed = per_round / seconds
    return SettingForecast(
        setting=setting,
        workload=workload,
        tokens_per_second=_around(speed, 0.04 if length else 0.02),
        speed_up=speed * step,
        baseline_tokens_per_second=1 / step,
        tokens_per_round=per_round,
        accepted_per_round=per_round - 1,
        drafted_per_round=float(length),
        round_seconds=seconds,
        ceiling_tokens_per_second=(length + 1) / seconds,
        break_even_accepted=seconds / step - 1,
        round_time_source="measured" if length in (0, 1, 4, 8) else "interpolated",
        in_profile=length in (0, 1, 4, 8),
        provenance="calibrated",
    )


def _rows(forecasts: tuple[SettingForecast, ...]):
    noise = random.Random(7)
    for forecast in forecasts:
        if forecast.setting.target_quant == "Q8_0" or forecast.setting.draft_tokens == 1:
            continue
        yield _row(forecast, noise)


def _row(forecast: SettingForecast, noise: random.Random) -> ValidationRow:
    expected = forecast.tokens_per_second
    measured = expected.value * (1 + noise.gauss(0, 0.035))
    spread = abs(noise.gauss(0.012, 0.004)) + 0.004
    return ValidationRow(
        workload=forecast.workload,
        config=forecast.setting,
        in_profile=forecast.in_profile,
        round_time_source=forecast.round_time_source,
        forecast=expected.value,
        low=expected.low,
        high=expected.high,
        measured=measured,
        measured_raw=measured * 0.98,
        measured_low=measured * (1 - spread),
        measured_high=measured * (1 + spread),
        error=expected.value / measured - 1,
        speed_up=forecast.speed_up * measured / expected.value,
        speed_up_low=forecast.speed_up * measured / expected.value * 0.97,
        speed_up_high=forecast.speed_up * measured / expected.value * 1.03,
        repeats=5,
        speeds=(measured,) * 5,
        reply_speeds=tuple(
            measured * math.exp(noise.gauss(0, 0.03 + 0.02 * forecast.setting.draft_tokens)) for _ in range(20)
        ),
        reply_spread=ReplySpread(low=0.7 * expected.value, median=expected.value, high=1.25 * expected.value),
        end_to_end_tokens_per_second=measured * 0.86,
        accepted=320,
        drafted=610,
        tokens_per_round_forecast=forecast.tokens_per_round,
        tokens_per_round_measured=forecast.tokens_per_round * 1.01,
    )


def _profile(
    models: tuple[ModelFile, ...], candidates: tuple[Candidate, ...], workloads: tuple[str, ...], name: str
) -> Profile:
    prompts = tuple(
        Prompt(id=f"p{i}", workload=w, workload_class="chat", text_sha256="cd" * 32, new_tokens=128)
        for w in workloads
        for i in range(4)
    )
    return Profile(
        created=CREATED,
        tool_version=VERSION,
        key=Key(cpu="AMD EPYC 7B13, 2 cores", engine="llama.cpp", build="b8123", backend="CPU", threads=2),
        engine=EngineInfo(name="llama.cpp", build="b8123", backend="CPU", capabilities=("forced-acceptance",)),
        models=models,
        prompts=prompts,
        sampling=Sampling(),
        candidates=candidates,
        sentinel_model=f"{name}-Q4_0",
        measurements=_measurements(candidates[1].setting(4), models[0].label),
        dropped={f"{name}-Q4_0 x {name}-Q4_0": "at perfect acceptance 61 tokens/s, plain decoding 117 tokens/s"},
        warnings=("load average 1.9 on 2 cores while profiling: other work ran beside it",),
        profile_seconds=212.0,
        complete=True,
    )


def _measurements(setting: Setting, label: str) -> tuple[Measurement, ...]:
    request = Request(action="steps", model=label, role="target", widths=WIDTHS)
    step = StepSample(model=label, role="target", kind="batch", width=4, context=128, seconds=(0.019,))
    rounds = RoundSample(setting=setting, context=128, seconds=(0.03, 0.031), drafted=(4, 4), accepted=(0, 0))
    bandwidth = BandwidthSample(
        operation="read", device="cpu", threads=2, bytes_per_second=(2.1e10, 2.2e10), provenance="measured"
    )
    return (
        Measurement(
            request=request,
            digest=request.digest(),
            started_at_seconds=2.0,
            wall_seconds=9.0,
            steps=(step,) * 40,
            rounds=(rounds,),
            bandwidth=(bandwidth,),
            rejected=("width 9 behind 1024: 12 tokens were processed, 9 asked",),
        ),
    )


def _calibration(name: str, workloads: tuple[str, ...]) -> Calibration:
    return Calibration(
        created=CREATED,
        tool_version=VERSION,
        profile_sha256="11" * 32,
        replicates=400,
        reference_sentinel_seconds=0.0086,
        drift_low=0.94,
        drift_high=1.13,
        bandwidth_bytes_per_second=Interval(value=2.15e10, low=2.08e10, high=2.2e10),
        bandwidth_operation="read",
        bandwidth_provenance="measured",
        costs=tuple(_costs(name)),
        overheads=(_overhead(name),),
        acceptance=tuple(_acceptance(name, workload) for workload in workloads),
        rounds=tuple(_rounds(name)),
        notes=("The output head of rows before the last is not in a batch step: fitted as overhead.",),
    )


def _costs(name: str):
    noise = random.Random(3)
    for quant in PLAIN_SECONDS:
        for context in (128, 1024):
            for width in WIDTHS:
                seconds = verify_seconds(quant, width, context) * (1 + noise.gauss(0, 0.01))
                yield CostPoint(
                    model=f"{name}-{quant}",
                    role="target",
                    kind="batch",
                    width=width,
                    context=context,
                    seconds=_around(seconds, 0.02),
                    samples=5,
                )
            yield CostPoint(
                model=f"{name}-{quant}",
                role="target",
                kind="decode",
                width=1,
                context=context,
                seconds=_around(verify_seconds(quant, 1, context) * 0.92, 0.02),
                samples=20,
            )


def _overhead(name: str) -> Overhead:
    return Overhead(
        target=f"{name}-F16",
        drafter="model",
        draft=f"{name}-Q4_0",
        constant_seconds=_around(0.0011, 0.3),
        per_token_seconds=_around(0.0002, 0.5),
        fitted_lengths=(1, 4, 8),
    )


def _acceptance(name: str, workload: str) -> Acceptance:
    return Acceptance(
        target=f"{name}-F16",
        drafter="model",
        draft=f"{name}-Q4_0",
        workload=workload,
        survival=tuple(0.71**j for j in range(1, 9)),
        offer_rate=1.0,
        prompts=4,
        positions=508,
        source="rounds",
    )


def _rounds(name: str):
    noise = random.Random(5)
    for quant in PLAIN_SECONDS:
        for drafter, draft in (("ngram", "ngram-simple"), ("model", f"{name}-Q4_0")):
            if drafter == "model" and quant == "Q4_0":
                continue
            for length in LENGTHS:
                yield _breakdown(f"{name}-{quant}", quant, drafter, draft, length, noise)


def _breakdown(target: str, quant: str, drafter: str, draft: str, length: int, noise: random.Random) -> RoundBreakdown:
    terms = round_terms(quant, drafter, length)
    modelled = math.fsum(term.seconds for term in terms)
    measured = modelled * (1 + noise.gauss(0.01, 0.03)) if length in (1, 4, 8) else None
    return RoundBreakdown(
        target=target,
        drafter=drafter,
        draft=draft,
        draft_tokens=length,
        context=256,
        source="measured" if measured else "interpolated",
        terms=terms,
        modelled_seconds=modelled,
        measured_seconds=measured,
        unexplained=measured / modelled - 1 if measured else None,
        used_for_fit=measured is not None,
    )


def _chosen(setting: Setting, models: tuple[ModelFile, ...]) -> Chosen:
    model = next(model for model in models if model.label == setting.target)
    return Chosen(
        target=TargetRef(path=model.path, quant=model.quant, sha256=model.sha256),
        drafter=setting.drafter,
        draft=setting.draft,
        draft_quant=setting.draft_quant,
        draft_tokens=setting.draft_tokens,
        ngram_size=setting.ngram_size,
        context=setting.context,
        streams=setting.streams,
    )


def _advice(forecasts: tuple[SettingForecast, ...], models: tuple[ModelFile, ...], workload: str) -> WorkloadAdvice:
    best = max((f for f in forecasts if f.workload == workload), key=lambda f: f.tokens_per_second.value)
    speculates = best.setting.drafter != "none"
    return WorkloadAdvice(
        workload=workload,
        verdict="speculate" if speculates else "do-not-speculate",
        chosen=_chosen(best.setting, models),
        forecast_tokens_per_second=best.tokens_per_second,
        baseline_tokens_per_second=best.baseline_tokens_per_second,
        reasons=(
            f"break-even: {best.break_even_accepted:.2f} accepted a round, forecast {best.accepted_per_round:.2f}",
            "the rule of thumb (60 % acceptance) agrees here",
        ),
    )


def _recommendation(
    forecasts: tuple[SettingForecast, ...], models: tuple[ModelFile, ...], workloads: tuple[str, ...], name: str
) -> Recommendation:
    advice = tuple(_advice(forecasts, models, workload) for workload in workloads)
    first = advice[0]
    explored = what_ifs(forecasts, SURVIVAL, verify_seconds)
    return Recommendation(
        created=CREATED,
        tool_version=VERSION,
        profile_sha256="11" * 32,
        calibration_sha256="22" * 32,
        verdict=first.verdict,
        chosen=first.chosen,
        forecast_tokens_per_second=first.forecast_tokens_per_second,
        baseline_tokens_per_second=first.baseline_tokens_per_second,
        reasons=first.reasons,
        workloads=advice,
        candidates=forecasts,
        ceiling_tokens_per_second=2.15e10 / SIZE_BYTES["Q4_0"],
        bandwidth_share=0.41,
        dropped={f"{name}-Q4_0 x {name}-Q4_0": "at perfect acceptance 61 tokens/s, plain decoding 117 tokens/s"},
        unsettled=("3 and 4 draft tokens cannot be told apart for copying: about 240 more rounds would",),
        command=f"llama-server -m {first.chosen.target.path} -c 2048 --spec-type none --temp 0 --seed 1",
        what_if=explored,
        speed_maps=speed_maps(explored),
        memory_maps=memory_maps(tuple(forecast.setting for forecast in forecasts)),
    )


def _validation(rows: tuple[ValidationRow, ...], name: str) -> Validation:
    fresh = [row for row in rows if not row.in_profile]
    errors = [abs(row.error) for row in fresh]
    checks = tuple(_check(f"{name}-F16", length) for length in (2, 3, 6))
    return Validation(
        created=CREATED,
        tool_version=VERSION,
        calibration_sha256="22" * 32,
        rows=rows,
        n_rows=len(fresh),
        mean_abs_error=sum(errors) / len(errors),
        worst_abs_error=max(errors),
        near_best_mean_abs_error=0.03,
        coverage=0.9,
        interval_score=0.12,
        by_drafter={
            "ngram": DrafterErrors(n_rows=12, mean_abs_error=0.028, worst_abs_error=0.071, coverage=0.92),
            "model": DrafterErrors(n_rows=6, mean_abs_error=0.036, worst_abs_error=0.08, coverage=0.83),
        },
        regret=0.008,
        regret_low=-0.01,
        drift={"ordinary": 0.98, "copying": 1.01},
        rounds=checks,
        unexplained_median=0.021,
        profile_seconds=212.0,
        sweep_seconds=1904.0,
        sweep_measured=False,
        validation_seconds=96.0,
    )


def _check(target: str, length: int) -> RoundCheck:
    modelled = math.fsum(term.seconds for term in round_terms("F16", "ngram", length))
    measured = modelled * (1 + (-1) ** length * 0.024)
    return RoundCheck(
        target=target,
        drafter="ngram",
        draft="ngram-simple",
        draft_tokens=length,
        context=300,
        rounds=41,
        measured_seconds=measured,
        modelled_seconds=modelled,
        unexplained=measured / modelled - 1,
    )

"""Forecast against measurement: which settings to run, how often, and how far off the forecasts were.

Every arm of a validation is interleaved with plain decoding of the chosen target. The plain speed of a repeat over the
profile's plain forecast is that repeat's drift; the other arms of the repeat are divided by it. The plain row itself is
left as the clock gave it: divided by its own drift it would equal its forecast by construction.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from ..profiler.records import Profile, PromptRun, RoundSample, Run, Setting
from .arms import (
    LEAST_REPEATS,
    MOST_REPEATS,
    by_repeat,
    check_requests,
    chosen_by_workload,
    in_profile,
    median_interval,
    merge_runs,
    plain_of,
    repeat_speeds,
    run_until_settled,
    settings_to_run,
    workloads_of,
)
from .clocks import WALL, NoThreadTimes, on_clock, other, rounds_on_clock, runs_on_clock
from .missing import Clue, missing_term
from .records import (
    DrafterErrors,
    Interval,
    OtherClock,
    Recommendation,
    ReplySpread,
    RoundCheck,
    SettingForecast,
    Validation,
    ValidationRow,
)

if TYPE_CHECKING:
    from .fit import Calibrated

__all__ = [
    "LEAST_REPEATS",
    "MOST_REPEATS",
    "Session",
    "check_requests",
    "chosen_by_workload",
    "round_checks",
    "run_until_settled",
    "settings_to_run",
    "sweep_seconds",
    "validation",
]

NEAR_BEST = 0.15
WORTH_A_WARNING = 0.15
"""Drift of the plain speed against the profile's."""


@dataclass(frozen=True)
class Session:
    """Where and how a validation was run: provenance, seconds, and what has to be said beside the numbers."""

    calibration_sha256: str
    created: str
    tool_version: str
    validation_seconds: float
    start_seconds: float
    """Mean seconds to start and warm up one setting."""
    reference_sentinel_seconds: float | None = None
    warnings: tuple[str, ...] = ()


def validation(
    profile: Profile,
    calibrated: "Calibrated",
    recommendation: Recommendation,
    runs: Sequence[Run],
    rounds: Sequence[RoundSample],
    session: Session,
    clock: str = WALL,
) -> Validation:
    """Forecasts beside interleaved `runs` (each with the same repeats), and model rounds beside fresh `rounds`.

    Mean, worst, coverage and interval score are over rows that were not in the profile. All rows are kept. `calibrated` is of
    `clock`, by which runs and rounds are read too. Raises NotCalibrated where some of them were not timed by it.
    """
    runs, rounds = merge_runs(runs_on_clock(runs, clock)), rounds_on_clock(rounds, clock)
    choices = chosen_by_workload(profile, recommendation)
    baseline = plain_of(profile, choices[""])
    arms = [
        arm for workload in workloads_of(runs) for arm in _arms_of(calibrated, recommendation, runs, baseline, workload)
    ]
    rows = tuple(_row(profile, arm, choices) for arm in arms)
    unrun = [row for row in rows if not row.in_profile]
    errors = _errors(unrun)
    regret = _regret(arms, choices)
    checks = round_checks(calibrated, rounds, session.reference_sentinel_seconds)
    missing = missing_term([*_row_clues(calibrated, arms, rows), *_check_clues(calibrated, arms, checks)])
    near = [row for row, arm in zip(rows, arms) if arm.normalised >= (1 - NEAR_BEST) * _best(arms, arm.workload)]
    return Validation(
        created=session.created,
        tool_version=session.tool_version,
        calibration_sha256=session.calibration_sha256,
        rows=rows,
        n_rows=len(unrun),
        level=recommendation.level,
        clock=clock,
        mean_abs_error=errors.mean_abs_error if errors else None,
        worst_abs_error=errors.worst_abs_error if errors else None,
        near_best_mean_abs_error=fmean(abs(row.error) for row in near) if near else None,
        coverage=errors.coverage if errors else None,
        interval_score=fmean(_interval_score(row, recommendation.level) for row in unrun) if unrun else None,
        by_drafter=_errors_by_drafter(unrun),
        regret=regret.value,
        regret_low=regret.low,
        drift={workload: _drift(arms, workload) for workload in workloads_of(runs)},
        rounds=checks,
        unexplained_median=median(abs(check.unexplained) for check in checks) if checks else None,
        likeliest_missing_term=missing.name,
        missing_term_share=missing.share,
        missing_term_text=missing.text,
        profile_seconds=profile.profile_seconds,
        sweep_seconds=sweep_seconds(profile, runs, session.start_seconds),
        sweep_measured=False,
        validation_seconds=session.validation_seconds,
        warnings=(*session.warnings, *_drift_warnings(arms), *_reply_warnings(runs)),
    )


def with_other_clock(
    found: Validation,
    profile: Profile,
    calibrated: "Calibrated",
    recommendation: Recommendation,
    runs: Sequence[Run],
    rounds: Sequence[RoundSample],
    session: Session,
) -> Validation:
    """`found` with the same rows by the other clock, forecast from `profile` by that clock alone; as it is where some of the
    evidence was not timed by it."""
    from .fit import calibrate

    clock, bare = other(found.clock), replace(recommendation, candidates=())
    try:
        again = calibrate(
            profile, seed=calibrated.seed, replicates=calibrated.replicates, level=calibrated.level, clock=clock
        )
        there = dataclasses.replace(session, reference_sentinel_seconds=again.drift.reference_seconds)
        seen = validation(on_clock(profile, clock), again, bare, runs, rounds, there, clock)
    except NoThreadTimes:
        return found
    return replace(found, other_clock=_other_clock(seen))


def _other_clock(found: Validation) -> OtherClock:
    return OtherClock(
        clock=found.clock,
        mean_abs_error=found.mean_abs_error,
        worst_abs_error=found.worst_abs_error,
        coverage=found.coverage,
        forecast=tuple(row.forecast for row in found.rows),
        low=tuple(row.low for row in found.rows),
        high=tuple(row.high for row in found.rows),
        measured=tuple(row.measured for row in found.rows),
        speed_up=tuple(row.speed_up for row in found.rows),
    )


def round_checks(
    calibrated: "Calibrated", samples: Sequence[RoundSample], reference_sentinel_seconds: float | None
) -> tuple[RoundCheck, ...]:
    """Fresh full-length rounds by setting and context against the model; unexplained = measured / modelled - 1.

    Seconds are brought to the profile's reference speed by the sentinel taken beside them. The median is compared.
    """
    groups: dict[tuple[Setting, int], list[tuple[float, int]]] = {}
    for sample in samples:
        if not sample.cold:
            found = groups.setdefault((sample.setting, sample.context), [])
            found += _full_rounds(sample, reference_sentinel_seconds)
    return tuple(
        _round_check(calibrated, setting, context, rounds) for (setting, context), rounds in groups.items() if rounds
    )


def sweep_seconds(profile: Profile, runs: Sequence[Run], start_seconds: float) -> float:
    """What measuring every candidate setting would take at this session's seconds, with the least number of repeats.

    Candidate settings x (start and warm-up + repeats x mean wall seconds of one pass of an arm of this session).
    """
    settings = {
        candidate.setting(length) for candidate in profile.candidates for length in (0, *candidate.draft_tokens)
    }
    passes = sum(len({reply.repeat for reply in run.replies}) for run in runs)
    pass_seconds = sum(reply.wall_seconds for run in runs for reply in run.replies) / passes
    return len(settings) * (start_seconds + LEAST_REPEATS * pass_seconds)


@dataclass(frozen=True)
class _Arm:
    """One setting on one workload: its forecast, and by repeat its speeds and the baseline's."""

    workload: str
    setting: Setting
    forecast: SettingForecast
    replies: tuple[tuple[PromptRun, ...], ...]
    effective: dict[str, str]
    spread: ReplySpread | None
    """Of single replies, forecast."""
    speeds: tuple[float, ...]
    plain: tuple[float, ...]
    drift: tuple[float, ...]
    """Plain speed of the repeat over the profile's plain forecast."""

    @property
    def paired(self) -> list[float]:
        return [speed / plain for speed, plain in zip(self.speeds, self.plain)]

    @property
    def undrifted(self) -> list[float]:
        return [speed / drift for speed, drift in zip(self.speeds, self.drift)]

    @property
    def normalised(self) -> float:
        """Speed at the profile's plain speed, in tokens/s: comparable between all arms of a workload."""
        return median(self.undrifted)


@dataclass(frozen=True)
class _Regret:
    value: float
    low: float


def _arms_of(
    calibrated: "Calibrated", recommendation: Recommendation, runs: Sequence[Run], baseline: Setting, workload: str
) -> list[_Arm]:
    known = {item.setting: item for item in recommendation.candidates if item.workload == workload}
    session = calibrated.of_its_own_prompts()
    plain_run = next(run for run in runs if run.setting == baseline)
    plain = tuple(repeat_speeds(plain_run, workload))
    plain_forecast = known.get(baseline) or calibrated.forecast(baseline, workload)
    drift = tuple(speed / plain_forecast.tokens_per_second.value for speed in plain)
    return [
        _Arm(
            workload=workload,
            setting=run.setting,
            forecast=_for_session(known.get(run.setting), session.forecast(run.setting, workload)),
            replies=tuple(tuple(once) for once in by_repeat(run, workload)),
            effective=run.effective,
            spread=calibrated.reply_spread(run.setting, workload),
            speeds=tuple(repeat_speeds(run, workload)),
            plain=plain,
            drift=drift,
        )
        for run in runs
    ]


def _for_session(recommended: SettingForecast | None, session: SettingForecast) -> SettingForecast:
    """The value that was recommended by, with the bounds for the prompts that are run here."""
    if recommended is None:
        return session
    value, bounds = recommended.tokens_per_second.value, session.tokens_per_second
    scale = value / bounds.value
    interval = Interval(value=value, low=bounds.low * scale, high=bounds.high * scale)
    return replace(recommended, tokens_per_second=interval)


def _row(profile: Profile, arm: _Arm, choices: dict[str, Setting]) -> ValidationRow:
    is_baseline = arm.speeds == arm.plain and arm.setting.drafter == "none"
    values = list(arm.speeds) if is_baseline else arm.undrifted
    measured_low, measured_high = median_interval(values)
    speed_up_low, speed_up_high = median_interval(arm.paired)
    forecast = arm.forecast.tokens_per_second
    replies = [reply for once in arm.replies for reply in once]
    return ValidationRow(
        workload=arm.workload,
        config=arm.setting,
        in_profile=in_profile(profile, arm.setting),
        round_time_source=arm.forecast.round_time_source,
        forecast=forecast.value,
        low=forecast.low,
        high=forecast.high,
        measured=median(values),
        measured_raw=median(arm.speeds),
        measured_low=measured_low,
        measured_high=measured_high,
        error=forecast.value / median(values) - 1,
        speed_up=median(arm.paired),
        speed_up_low=speed_up_low,
        speed_up_high=speed_up_high,
        repeats=len(arm.speeds),
        speeds=arm.speeds,
        reply_speeds=tuple(
            (reply.reply_tokens - 1) / reply.decode_seconds for reply in replies if reply.reply_tokens > 1
        ),
        reply_spread=arm.spread,
        end_to_end_tokens_per_second=median(_end_to_end(once) for once in arm.replies),
        accepted=sum(reply.accepted for reply in replies),
        drafted=sum(reply.drafted for reply in replies),
        tokens_per_round_forecast=arm.forecast.tokens_per_round,
        tokens_per_round_measured=_tokens_per_round(replies),
        effective=arm.effective,
        chosen=arm.setting == choices.get(arm.workload, choices[""]),
    )


def _end_to_end(replies: Sequence[PromptRun]) -> float:
    return sum(reply.reply_tokens for reply in replies) / sum(reply.wall_seconds for reply in replies)


def _tokens_per_round(replies: Sequence[PromptRun]) -> float | None:
    """Each round yields its accepted tokens and one more, so rounds = tokens after the first - accepted."""
    tokens = sum(reply.reply_tokens - 1 for reply in replies)
    rounds = tokens - sum(reply.accepted for reply in replies)
    return tokens / rounds if rounds > 0 else None


def _errors(rows: Sequence[ValidationRow]) -> DrafterErrors | None:
    if not rows:
        return None
    return DrafterErrors(
        n_rows=len(rows),
        mean_abs_error=fmean(abs(row.error) for row in rows),
        worst_abs_error=max(abs(row.error) for row in rows),
        coverage=fmean(row.low <= row.measured <= row.high for row in rows),
    )


def _errors_by_drafter(rows: Sequence[ValidationRow]) -> dict[str, DrafterErrors]:
    kinds = dict.fromkeys(row.config.drafter for row in rows)
    found = {kind: _errors([row for row in rows if row.config.drafter == kind]) for kind in kinds}
    return {kind: errors for kind, errors in found.items() if errors}


def _interval_score(row: ValidationRow, level: float) -> float:
    """Winkler 1972: interval width plus 2 / (1 - level) times any miss; relative to the measured speed."""
    miss = max(row.low - row.measured, row.measured - row.high, 0.0)
    return (row.high - row.low + 2 / (1 - level) * miss) / row.measured


def _best(arms: Sequence[_Arm], workload: str) -> float:
    return max(arm.normalised for arm in arms if arm.workload == workload)


def _regret(arms: Sequence[_Arm], choices: dict[str, Setting]) -> _Regret:
    """Of the workload where the choice loses most against the best arm measured there."""
    return max(
        (_regret_on([arm for arm in arms if arm.workload == workload], choices) for workload in _names(arms)),
        key=lambda regret: regret.value,
    )


def _regret_on(arms: Sequence[_Arm], choices: dict[str, Setting]) -> _Regret:
    choice = choices.get(arms[0].workload, choices[""])
    chosen = next(arm for arm in arms if arm.setting == choice)
    best = max(arms, key=lambda arm: arm.normalised)
    _, high = median_interval([ours / theirs for ours, theirs in zip(chosen.speeds, best.speeds)])
    return _Regret(1 - chosen.normalised / best.normalised, 1 - high)


def _names(arms: Sequence[_Arm]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(arm.workload for arm in arms))


def _drift(arms: Sequence[_Arm], workload: str) -> float:
    return median(next(arm.drift for arm in arms if arm.workload == workload))


def _drift_warnings(arms: Sequence[_Arm]) -> list[str]:
    return [
        f"plain decoding of {workload} ran at {_drift(arms, workload):.2f} of the profile's speed; it was divided out, "
        "but what does not slow down alike is off: repeat the profile when the machine is quiet"
        for workload in _names(arms)
        if abs(_drift(arms, workload) - 1) > WORTH_A_WARNING
    ]


def _reply_warnings(runs: Sequence[Run]) -> list[str]:
    """How many speculative replies differ in text from the same target's first plain reply."""
    plain = {
        (run.setting.target, reply.prompt.id): reply.reply_sha256
        for run in runs
        if run.setting.drafter == "none"
        for reply in reversed(run.replies)
    }
    compared = [
        reply.reply_sha256 == plain[run.setting.target, reply.prompt.id]
        for run in runs
        for reply in run.replies
        if run.setting.drafter != "none" and plain.get((run.setting.target, reply.prompt.id))
    ]
    differing = compared.count(False)
    if not differing:
        return []
    share = f"{differing} of {len(compared)} speculative replies"
    return [f"{share} differ in text from the plain reply: batched kernels round differently"]


ROUND_CHECK_LOG_SD = 0.03
"""How far a median of fresh rounds may lie from its model without a cause (a stated prior)."""
NORMAL_95 = 1.96


def _row_clues(calibrated: "Calibrated", arms: Sequence[_Arm], rows: Sequence[ValidationRow]) -> list[Clue]:
    """What each row has to say about a missing term; its seconds are those of the forecast."""
    return [_row_clue(calibrated, arm, row) for arm, row in zip(arms, rows) if row.tokens_per_round_measured]


def _row_clue(calibrated: "Calibrated", arm: _Arm, row: ValidationRow) -> Clue:
    replies = [reply for once in arm.replies for reply in once]
    context = fmean(reply.prompt_tokens + reply.reply_tokens / 2 for reply in replies)
    is_baseline = arm.speeds == arm.plain and arm.setting.drafter == "none"
    tokens = arm.forecast.tokens_per_round / (row.tokens_per_round_measured or 1.0)
    plain = 1 / arm.forecast.baseline_tokens_per_second
    return Clue(
        drafter=arm.setting.drafter,
        log_error=float(np.log1p(row.error)),
        log_sd=float(np.log(row.high / row.low)) / (2 * NORMAL_95),
        round_seconds=arm.forecast.round_seconds,
        plain_seconds=plain,
        verification_seconds=_verification_seconds(calibrated, arm.setting, context, plain),
        drafted=arm.forecast.drafted_per_round,
        width=arm.setting.draft_tokens + 1,
        context=context,
        log_tokens=float(np.log(tokens)),
        is_baseline=is_baseline,
    )


def _check_clues(calibrated: "Calibrated", arms: Sequence[_Arm], checks: Sequence[RoundCheck]) -> list[Clue]:
    """Fresh rounds, brought to the profile's speed by their sentinel as rows are by their baseline."""
    plain = 1 / arms[0].forecast.baseline_tokens_per_second
    settings = {_pair_key(arm.setting): arm.setting for arm in arms}
    return [
        Clue(
            drafter=check.drafter,
            log_error=float(np.log1p(check.unexplained)),
            log_sd=ROUND_CHECK_LOG_SD,
            round_seconds=check.modelled_seconds,
            plain_seconds=plain,
            verification_seconds=_verification_seconds(
                calibrated, replace(settings[key], draft_tokens=check.draft_tokens), check.context, plain
            ),
            drafted=float(check.draft_tokens),
            width=check.draft_tokens + 1,
            context=float(check.context),
        )
        for check in checks
        if (key := (check.target, check.drafter, check.draft)) in settings
    ]


def _pair_key(setting: Setting) -> tuple[str, str, str]:
    return setting.target, setting.drafter, setting.draft


def _verification_seconds(calibrated: "Calibrated", setting: Setting, context: float, plain: float) -> float:
    """The verification term of a full round; the plain step where the round is not known by its terms."""
    if setting.draft_tokens == 0:
        return plain
    terms = calibrated.modelled_round(setting, setting.draft_tokens, context).terms
    return next((term.seconds for term in terms if term.name == "verification"), plain)


def _full_rounds(sample: RoundSample, reference: float | None) -> list[tuple[float, int]]:
    """(seconds at reference speed, context) of the rounds that drafted all they were asked for, without the first.

    The first round of a sample is cold, and is left out of the fit as well.
    """
    scale = reference / sample.sentinel_seconds if reference and sample.sentinel_seconds else 1.0
    context, rounds = sample.context, []
    for seconds, drafted, accepted in zip(sample.seconds, sample.drafted, sample.accepted):
        if drafted == sample.setting.draft_tokens:
            rounds.append((seconds * scale, context))
        context += accepted + 1
    return rounds[1:] or rounds


def _round_check(
    calibrated: "Calibrated", setting: Setting, context: int, rounds: Sequence[tuple[float, int]]
) -> RoundCheck:
    measured = median(seconds for seconds, _ in rounds)
    middle = round(median(at for _, at in rounds))
    modelled = calibrated.modelled_round(setting, setting.draft_tokens, middle).modelled_seconds
    return RoundCheck(
        target=setting.target,
        drafter=setting.drafter,
        draft=setting.draft,
        draft_tokens=setting.draft_tokens,
        context=context,
        rounds=len(rounds),
        measured_seconds=measured,
        modelled_seconds=modelled,
        unexplained=measured / modelled - 1,
    )

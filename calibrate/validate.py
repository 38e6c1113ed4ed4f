"""Forecast against measurement: which settings to run, how often, and how far off the forecasts were.

Every arm of a validation is interleaved with plain decoding of the chosen target. The plain speed of a repeat over the
profile's plain forecast is that repeat's drift; the other arms of the repeat are divided by it. The plain row itself is
left as the clock gave it: divided by its own drift it would equal its forecast by construction.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import comb
from statistics import fmean, median
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..profiler.records import Candidate, Profile, PromptRun, Request, RoundSample, Run, Setting
from .plan import candidate_name, round_requests
from .records import (
    Chosen,
    DrafterErrors,
    Recommendation,
    RoundCheck,
    SettingForecast,
    Validation,
    ValidationRow,
)

if TYPE_CHECKING:
    from .fit import Calibrated

LEAST_REPEATS = 5
MOST_REPEATS = 15
SETTLED_HALF_WIDTH = 0.03
"""Of the paired ratio between the choice and its best competitor."""
LEAST_UNRUN_ROWS = 6
UNRUN_PER_DRAFTER = 1
UNRUN_LENGTHS = {"model": (2, 6), "ngram": (3, 12, 6)}
"""Draft lengths to check first, by drafter kind; other kinds: those of a draft model."""
CHECKED_LENGTHS = tuple(range(1, 9))
CHECKED_REPEATS = 1
NEAR_BEST = 0.15
WORTH_A_WARNING = 0.15
"""Drift of the plain speed against the profile's."""


# --- what to run ---------------------------------------------------------------------------------------------------


def settings_to_run(profile: Profile, recommendation: Recommendation) -> tuple[Setting, ...]:
    """Plain decoding of the chosen target first, then the choices, their neighbours and rivals, then unrun settings.

    Unrun settings, whose round time the profile never measured, are added until each drafter kind has one and there are
    six rows (setting x workload) of them, as far as the candidates go. Every arm costs a pass in every repeat.
    """
    chosen = list(dict.fromkeys(chosen_by_workload(profile, recommendation).values()))
    baseline = plain_of(profile, chosen_setting(profile, recommendation.chosen))
    arms = [baseline, *chosen]
    for setting in chosen:
        arms += neighbours(profile, setting)
    arms += _rivals(profile, recommendation)
    arms = list(dict.fromkeys(arms))
    return tuple(arms + _unrun_extras(profile, recommendation, arms, baseline.target))


def chosen_setting(profile: Profile, chosen: Chosen) -> Setting:
    """The candidate's setting that a recommendation names."""
    labels = {model.label for model in profile.models if model.sha256 == chosen.target.sha256}
    of_target = [candidate for candidate in profile.candidates if candidate.target in labels]
    if chosen.drafter == "none":
        return of_target[0].setting(0)
    same = (chosen.drafter, chosen.draft, chosen.ngram_size)
    return next(
        candidate.setting(chosen.draft_tokens)
        for candidate in of_target
        if (candidate.drafter, candidate.draft, candidate.ngram_size) == same
    )


def chosen_by_workload(profile: Profile, recommendation: Recommendation) -> dict[str, Setting]:
    """The choice for the equal mix (under the empty name) and for each workload."""
    choices = {"": chosen_setting(profile, recommendation.chosen)}
    return choices | {advice.workload: chosen_setting(profile, advice.chosen) for advice in recommendation.workloads}


def plain_of(profile: Profile, setting: Setting) -> Setting:
    """Plain decoding of a setting's target."""
    return next(candidate.setting(0) for candidate in profile.candidates if candidate.target == setting.target)


def neighbours(profile: Profile, setting: Setting) -> list[Setting]:
    """The next shorter and the next longer draft length among the candidates; none for plain decoding."""
    candidate = _candidate_of(profile, setting)
    if candidate is None:
        return []
    lengths = sorted(candidate.draft_tokens)
    at = lengths.index(setting.draft_tokens)
    return [candidate.setting(length) for length in (*lengths[max(0, at - 1) : at], *lengths[at + 1 : at + 2])]


def in_profile(profile: Profile, setting: Setting) -> bool:
    """Whether a round time, real or forced, of this target, drafter and draft length was measured while profiling."""
    if setting.drafter == "none":
        return True
    return _arm_key(setting) in {
        _arm_key(sample.setting)
        for measurement in profile.measurements
        for sample in (*measurement.rounds, *measurement.traces, *measurement.runs)
    }


def check_requests(profile: Profile, settings: Iterable[Setting]) -> tuple[Request, ...]:
    """Fresh rounds, used for no fit, at draft lengths 1 to 8 of each drafter among `settings`.

    Only of draft models: an n-gram drafter offers nothing on the text of a round sample.
    """
    found = {_candidate_of(profile, setting) for setting in settings if setting.drafter == "model"}
    candidates = sorted((candidate for candidate in found if candidate is not None), key=candidate_name)
    return tuple(
        request
        for candidate in candidates
        for request in round_requests(profile, candidate, CHECKED_LENGTHS, repeats=CHECKED_REPEATS)
    )


def _candidate_of(profile: Profile, setting: Setting) -> Candidate | None:
    if setting.drafter == "none":
        return None
    same = (setting.target, setting.drafter, setting.draft, setting.ngram_size)
    return next(
        candidate
        for candidate in profile.candidates
        if (candidate.target, candidate.drafter, candidate.draft, candidate.ngram_size) == same
    )


def _arm_key(setting: Setting) -> tuple[str, str, str, int]:
    return (setting.target, setting.drafter, setting.draft, setting.draft_tokens)


def _rivals(profile: Profile, recommendation: Recommendation) -> list[Setting]:
    """On each workload the best forecast among the settings of the chosen target that are not the choice."""
    rivals = []
    for workload, choice in chosen_by_workload(profile, recommendation).items():
        others = [
            forecast
            for forecast in recommendation.candidates
            if forecast.workload == workload and forecast.setting != choice and forecast.setting.target == choice.target
        ]
        if others:
            rivals.append(max(others, key=lambda forecast: forecast.tokens_per_second.value).setting)
    return rivals


def _unrun_extras(
    profile: Profile, recommendation: Recommendation, arms: Sequence[Setting], target: str
) -> list[Setting]:
    """Settings to add, drafter kinds in turn, until each kind has an unrun one and there are six rows."""
    workloads = len({prompt.workload for prompt in profile.prompts})
    pools = _unrun_pools(profile, recommendation, target)
    unrun = {kind: [arm for arm in arms if arm.drafter == kind and not in_profile(profile, arm)] for kind in pools}
    extras: list[Setting] = []
    while True:
        enough_rows = sum(len(settings) for settings in unrun.values()) * workloads >= LEAST_UNRUN_ROWS
        open_kinds = [
            kind
            for kind in pools
            if (not enough_rows or len(unrun[kind]) < UNRUN_PER_DRAFTER)
            and any(setting not in unrun[kind] for setting in pools[kind])
        ]
        if not open_kinds:
            return extras
        kind = min(open_kinds, key=lambda name: len(unrun[name]))
        setting = next(setting for setting in pools[kind] if setting not in unrun[kind])
        unrun[kind].append(setting)
        extras.append(setting)


def _unrun_pools(profile: Profile, recommendation: Recommendation, target: str) -> dict[str, list[Setting]]:
    """By drafter kind the settings that were never run, those of `target` and of preferred length first."""
    forecast = dict.fromkeys(item.setting for item in recommendation.candidates if item.setting.drafter != "none")
    unrun = [setting for setting in forecast if not in_profile(profile, setting)]

    def rank(setting: Setting) -> tuple[bool, int, int]:
        wanted = UNRUN_LENGTHS.get(setting.drafter, UNRUN_LENGTHS["model"])
        place = wanted.index(setting.draft_tokens) if setting.draft_tokens in wanted else len(wanted)
        return setting.target != target, place, setting.draft_tokens

    kinds = dict.fromkeys(setting.drafter for setting in unrun)
    return {kind: sorted((one for one in unrun if one.drafter == kind), key=rank) for kind in kinds}


# --- how often -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settled:
    """The runs of all repeats, merged by setting, and why no more were made: settled, most-repeats, time."""

    runs: tuple[Run, ...]
    repeats: int
    stopped_by: str


def run_until_settled(
    run_repeat: Callable[[int], Sequence[Run]],
    choices: dict[str, Setting],
    *,
    clock: Callable[[], float],
    seconds: float,
    least: int = LEAST_REPEATS,
    most: int = MOST_REPEATS,
    half_width: float = SETTLED_HALF_WIDTH,
) -> Settled:
    """Call `run_repeat(repeat)` from `least` to `most` times: until the choice is told apart, or time is up.

    Settled: on each workload the interval of the paired ratio between `choices[workload]` and its best competitor is
    within +- `half_width`. `seconds` by `clock` is the time allowed beyond the least number of repeats.
    """
    began = clock()
    runs: tuple[Run, ...] = ()
    for repeat in range(most):
        runs = merge_runs((*runs, *run_repeat(repeat)))
        done = repeat + 1
        if done < least:
            continue
        if paired_half_width(runs, choices) <= half_width:
            return Settled(runs, done, "settled")
        spent = clock() - began
        if done < most and spent + spent / done > seconds:
            return Settled(runs, done, "time")
    return Settled(runs, most, "most-repeats")


def merge_runs(runs: Iterable[Run]) -> tuple[Run, ...]:
    """One run a setting, replies in the order given."""
    merged: dict[Setting, Run] = {}
    for run in runs:
        known = merged.get(run.setting)
        merged[run.setting] = replace(known, replies=known.replies + run.replies) if known else run
    return tuple(merged.values())


def paired_half_width(runs: Sequence[Run], choices: dict[str, Setting]) -> float:
    """Widest half of the paired intervals between choice and best competitor, over workloads; 0 without a rival."""
    widest = 0.0
    for workload in workloads_of(runs):
        speeds = {run.setting: repeat_speeds(run, workload) for run in runs}
        choice = speeds.pop(choices.get(workload, choices[""]))
        if speeds:
            rival = max(speeds.values(), key=median)
            low, high = median_interval([ours / theirs for ours, theirs in zip(choice, rival)])
            widest = max(widest, (high - low) / 2)
    return widest


def median_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Distribution-free interval of the median by order statistics (binomial with p = 1/2).

    The bounds are the k-th smallest and k-th largest value, k as large as P(Bin(n, 1/2) < k) <= (1 - level) / 2 allows.
    Below six values even the extremes do not reach 95 % (five: 93.75 %); they are returned all the same.
    """
    ordered, n = sorted(values), len(values)
    outside, k = 0.0, 0
    while k < (n + 1) // 2:
        outside += comb(n, k) / 2**n
        if outside > (1 - level) / 2:
            break
        k += 1
    k = max(1, k)
    return ordered[k - 1], ordered[n - k]


def workloads_of(runs: Sequence[Run]) -> tuple[str, ...]:
    """Workloads of the runs, in the order of the first run's replies."""
    return tuple(dict.fromkeys(reply.prompt.workload for reply in runs[0].replies))


def repeat_speeds(run: Run, workload: str) -> list[float]:
    """tokens/s of each repeat: tokens after each reply's first over their decode seconds."""
    return [
        sum(reply.reply_tokens - 1 for reply in once) / sum(reply.decode_seconds for reply in once)
        for once in _by_repeat(run, workload)
    ]


def _by_repeat(run: Run, workload: str) -> list[list[PromptRun]]:
    replies = [reply for reply in run.replies if reply.prompt.workload == workload]
    repeats = sorted({reply.repeat for reply in replies})
    return [[reply for reply in replies if reply.repeat == repeat] for repeat in repeats]


# --- how far off ---------------------------------------------------------------------------------------------------


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
) -> Validation:
    """Forecasts beside interleaved `runs` (each with the same repeats), and model rounds beside fresh `rounds`.

    Mean, worst, coverage and interval score are over rows that were not in the profile. All rows are kept.
    """
    runs = merge_runs(runs)
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
    near = [row for row, arm in zip(rows, arms) if arm.normalised >= (1 - NEAR_BEST) * _best(arms, arm.workload)]
    return Validation(
        created=session.created,
        tool_version=session.tool_version,
        calibration_sha256=session.calibration_sha256,
        rows=rows,
        n_rows=len(unrun),
        level=recommendation.level,
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
        profile_seconds=profile.profile_seconds,
        sweep_seconds=sweep_seconds(profile, runs, session.start_seconds),
        sweep_measured=False,
        validation_seconds=session.validation_seconds,
        warnings=(*session.warnings, *_drift_warnings(arms), *_reply_warnings(runs)),
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
    plain_run = next(run for run in runs if run.setting == baseline)
    plain = tuple(repeat_speeds(plain_run, workload))
    plain_forecast = known.get(baseline) or calibrated.forecast(baseline, workload)
    drift = tuple(speed / plain_forecast.tokens_per_second.value for speed in plain)
    return [
        _Arm(
            workload=workload,
            setting=run.setting,
            forecast=known.get(run.setting) or calibrated.forecast(run.setting, workload),
            replies=tuple(tuple(once) for once in _by_repeat(run, workload)),
            speeds=tuple(repeat_speeds(run, workload)),
            plain=plain,
            drift=drift,
        )
        for run in runs
    ]


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
        end_to_end_tokens_per_second=median(_end_to_end(once) for once in arm.replies),
        accepted=sum(reply.accepted for reply in replies),
        drafted=sum(reply.drafted for reply in replies),
        tokens_per_round_forecast=arm.forecast.tokens_per_round,
        tokens_per_round_measured=_tokens_per_round(replies),
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

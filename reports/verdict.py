"""The verdict joined from recommendation and validation, as terminal and page both show it."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..calibrate.clocks import WALL, WORDS
from ..calibrate.mix import mix_prefix, mix_words
from ..calibrate.records import (
    Interval,
    OtherClock,
    Recommendation,
    SettingForecast,
    Validation,
    ValidationRow,
    WorkloadAdvice,
)
from ..calibrate.reported import speaks_of
from ..profiler.records import Profile, Setting
from .commands import chosen_setting
from .numbers import percent, plain, short, tokens_per_second

CLOCK_WORDS = {clock: f"{'the ' if clock == WALL else ''}{words}" for clock, words in WORDS.items()}
_MIX_LIMIT = 500
"""Eight classes of the longest name."""
VERDICT_WORDS = {"speculate": "Speculate", "tie": "Tie", "do-not-speculate": "Do not speculate"}


@dataclass(frozen=True)
class WorkloadVerdict:
    """What to set for one workload, with the forecast beside the measurement. Speeds in tokens/s."""

    workload: str
    verdict: str
    words: str
    setting: Setting
    setting_text: str
    forecast: Interval
    plain_forecast: float
    measured: Interval | None
    plain_measured: Interval | None
    speed_up: Interval | None
    """Measured and paired; None for plain decoding and where it was not run."""
    error: float | None
    ceiling: str
    """What bandwidth allows plain decoding of this target; empty where it is not known for it."""
    reasons: tuple[str, ...]
    faster_plain: SettingForecast | None = None
    """Plain decoding of another target, where that is forecast to be the fastest of all plain ones."""

    @property
    def speculates(self) -> bool:
        return self.setting.drafter != "none"

    @property
    def speed_up_text(self) -> str:
        """The paired speed-up with the baseline that it is over; empty where there is none."""
        if self.speed_up is None or self.plain_measured is None:
            return ""
        bounds = f"{self.speed_up.low:.2f} to {self.speed_up.high:.2f}"
        return f"{self.speed_up.value:.2f} x ({bounds}) over plain, {tokens_per_second(self.plain_measured)}, paired"


def drafter_name(setting: Setting, limit: int = 36) -> str:
    """The drafter of `setting` without its draft length."""
    if setting.drafter == "none":
        return "plain"
    if setting.drafter == "ngram":
        size = f" (match {setting.ngram_size})" if setting.ngram_size else ""
        return f"{plain(setting.draft or 'n-gram', limit)}{size}"
    kind = "draft" if setting.drafter == "model" else setting.drafter
    return f"{kind} {plain(setting.draft or setting.draft_quant, limit)}"


def setting_name(setting: Setting, limit: int = 36) -> str:
    """Target, drafter and draft tokens in one phrase."""
    target = plain(setting.target, limit)
    if setting.drafter == "none":
        return f"plain {target}"
    plural = "" if setting.draft_tokens == 1 else "s"
    return f"{target} + {drafter_name(setting, limit)}, {setting.draft_tokens} draft token{plural}"


def workload_verdicts(
    recommendation: Recommendation, validation: Validation | None, profile: Profile
) -> tuple[WorkloadVerdict, ...]:
    """One verdict a workload, in the order of the recommendation."""
    rows = validation.rows if validation else ()
    ceiling, share = recommendation.ceiling_tokens_per_second, recommendation.bandwidth_share
    reached = "" if share is None else f"; plain decoding reaches {percent(share)}"
    text = "" if ceiling is None else f"{short(ceiling)} tokens/s by memory bandwidth, without speculation{reached}"
    known_for = recommendation.chosen.target
    return tuple(
        _joined(
            advice,
            rows,
            profile,
            text if advice.chosen.target == known_for else "",
            [
                one
                for one in recommendation.candidates
                if one.workload == advice.workload and not one.setting.draft_tokens
            ],
        )
        for advice in recommendation.workloads
    )


def headline(verdicts: tuple[WorkloadVerdict, ...], recommendation: Recommendation) -> str:
    """The verdict in one sentence; by workload where workloads differ."""
    phrases = [_phrase(verdict) for verdict in verdicts]
    if not phrases:
        return f"{VERDICT_WORDS.get(recommendation.verdict, recommendation.verdict)}."
    if len(set(phrases)) == 1:
        return f"{phrases[0]}."
    parts = [f"{plain(verdict.workload)}: {phrase}" for verdict, phrase in zip(verdicts, phrases, strict=True)]
    return "; ".join(parts) + "."


def answer(verdict: WorkloadVerdict) -> str:
    """What to do on one workload and what it gives: the paired gain where it was run, else both forecasts."""
    name = plain(verdict.workload, 40)
    if not verdict.speculates:
        told = "a tie, stay plain" if verdict.verdict == "tie" else "do not speculate"
        speed, how = (verdict.measured.value, "measured") if verdict.measured else (verdict.forecast.value, "forecast")
        return f"{name}: {told}, {short(speed)} tokens/s ({how})"
    told = "a tie, speculating gives" if verdict.verdict == "tie" else "speculate,"
    best, other = verdict.plain_forecast, ""
    if verdict.faster_plain is not None:
        best = verdict.faster_plain.tokens_per_second.value
        other = f" {plain(verdict.faster_plain.setting.target, 28)}"
    if verdict.speed_up is None:
        return f"{name}: {told} {short(verdict.forecast.value)} tokens/s against {short(best)} plain{other} (forecast)"
    # Not the two speeds: that of drafting has the session's drift divided out, that of plain decoding has not.
    beside = f"{name}: {told} {verdict.speed_up.value:.2f} times plain decoding run beside it"
    return f"{beside}; plain{other} is forecast at {short(best)} tokens/s" if other else beside


def mix_text(recommendation: Recommendation, profile: Profile) -> str:
    """One setting for all workloads in their shares; empty where there is only one workload."""
    if len(recommendation.workloads) < 2:
        return ""
    setting = chosen_setting(profile, recommendation.chosen)
    forecast = tokens_per_second(recommendation.forecast_tokens_per_second)
    base = short(recommendation.baseline_tokens_per_second)
    prefix = plain(mix_prefix(recommendation.workload_shares), _MIX_LIMIT)
    text = f"One setting for {prefix.rstrip()} {setting_name(setting)}, forecast {forecast}"
    return f"{text}." if setting.drafter == "none" else f"{text}; plain decoding of that target {base} tokens/s."


def shared_text(recommendation: Recommendation) -> str:
    """How the mix is made up: "in equal shares", or in those of the user's prompts."""
    return plain(mix_words(recommendation.workload_shares), _MIX_LIMIT)


def bandwidth_text(recommendation: Recommendation) -> str:
    """What memory bandwidth allows plain decoding of the chosen target, and the share reached."""
    ceiling, share = recommendation.ceiling_tokens_per_second, recommendation.bandwidth_share
    if ceiling is None:
        return "Memory bandwidth was not measured, so no ceiling is known: run specgauge profile."
    allowed = f"Memory bandwidth allows plain decoding of the chosen target at most {short(ceiling)} tokens/s"
    return f"{allowed}." if share is None else f"{allowed}; it reaches {percent(share)} of that bandwidth."


def check_words(validation: Validation | None, profile: Profile) -> str:
    """How the forecasts did, in a sentence for the first screen; check_text has the rest."""
    if validation is None:
        return unchecked_text(profile)
    if not validation.n_rows or validation.mean_abs_error is None:
        return check_text(validation)
    worst = "" if validation.worst_abs_error is None else f", {percent(validation.worst_abs_error)} at worst"
    inside = "" if validation.coverage is None else f"; {percent(validation.coverage)} fell inside their intervals"
    return (
        f"Checked by runs: {validation.n_rows} forecasts of what the profile had not measured missed by "
        f"{percent(validation.mean_abs_error)} on average{worst}{inside}."
    )


def unchecked_text(profile: Profile) -> str:
    """Where nothing was run, why, and what to do where something can be run."""
    if speaks_of(profile):
        return "From imported measurements: no forecast was checked by a run here."
    if profile.redacted:
        return "From a shared profile, which names no files: no forecast was checked by a run here."
    return "No forecast was checked by a run: run specgauge validate."


def check_text(validation: Validation) -> str:
    """How the forecasts did, over settings whose round time was not in the profile."""
    if not validation.n_rows or validation.mean_abs_error is None or validation.worst_abs_error is None:
        return "Every validated setting had been measured while profiling, so the forecast itself was not tested."
    text = (
        f"{validation.n_rows} forecasts (setting x workload) whose round time the profile had not measured missed by "
        f"{percent(validation.mean_abs_error)} on average, {percent(validation.worst_abs_error)} at worst, by "
        f"{clock_words(validation.clock)}"
    )
    if validation.coverage is None:
        return f"{text}."
    inside = f"{percent(validation.coverage)} of their runs fell inside the {percent(validation.level)} interval"
    return f"{text}; {inside}.{_other_clock_text(validation.other_clock)}"


def clock_words(clock: str) -> str:
    """A clock as it stands behind "by"."""
    return CLOCK_WORDS.get(clock, plain(clock))


def _other_clock_text(other: OtherClock | None) -> str:
    """The same errors by the other clock; empty where it was not there."""
    if other is None or other.mean_abs_error is None or other.worst_abs_error is None:
        return ""
    inside = "" if other.coverage is None else f", {percent(other.coverage)} inside"
    missed = f"{percent(other.mean_abs_error)} on average, {percent(other.worst_abs_error)} at worst{inside}"
    return f" By {clock_words(other.clock)}: {missed}."


def random_text(profile: Profile) -> str:
    """What has to be said of models of random weights; empty where there are none."""
    labels = ", ".join(plain(model.label, 40) for model in profile.models if model.random)
    if not labels:
        return ""
    return (
        f"Random weights ({labels}): times only. What drafting gives with the real weights needs their acceptance from "
        "elsewhere."
    )


def regret_text(validation: Validation | None) -> str:
    """What the choice gave away against the best setting that was run."""
    if validation is None:
        return ""
    if validation.regret <= 0:
        return "On no workload did anything that was run beat its choice."
    told = "cannot be told apart from it" if validation.regret_low <= 0 else "the difference is real"
    return f"The choice gave away {percent(validation.regret)} to the best setting that was run ({told})."


def missing_text(validation: Validation | None) -> str:
    """The term that the errors point to; empty where they are within what the intervals allow."""
    if validation is None or validation.likeliest_missing_term in ("", "none"):
        return ""
    return f"Likeliest missing term: {validation.missing_term_text}."


def _joined(
    advice: WorkloadAdvice,
    rows: tuple[ValidationRow, ...],
    profile: Profile,
    ceiling: str,
    plain_ones: Sequence[SettingForecast],
) -> WorkloadVerdict:
    setting = chosen_setting(profile, advice.chosen)
    fastest = max(plain_ones, key=lambda one: one.tokens_per_second.value, default=None)
    here = [row for row in rows if row.workload == advice.workload and row.config.target == setting.target]
    row = next((row for row in here if same_run(row.config, setting)), None)
    base = next((row for row in here if row.config.drafter == "none"), None)
    paired = row is not None and base is not None and setting.drafter != "none"
    return WorkloadVerdict(
        workload=advice.workload,
        verdict=advice.verdict,
        words=VERDICT_WORDS.get(advice.verdict, advice.verdict),
        setting=setting,
        setting_text=setting_name(setting),
        forecast=advice.forecast_tokens_per_second,
        plain_forecast=advice.baseline_tokens_per_second,
        measured=measured_interval(row) if row else None,
        plain_measured=measured_interval(base) if base else None,
        speed_up=Interval(value=row.speed_up, low=row.speed_up_low, high=row.speed_up_high) if row and paired else None,
        error=row.error if row else None,
        ceiling=ceiling,
        reasons=advice.reasons,
        faster_plain=fastest if fastest is not None and fastest.setting.target != setting.target else None,
    )


def measured_interval(row: ValidationRow) -> Interval:
    """The measured speed of a row with the interval of its median."""
    return Interval(value=row.measured, low=row.measured_low, high=row.measured_high)


def same_run(one: Setting, other: Setting) -> bool:
    """Equal in what decides a round; context and streams are the profile's."""
    return (one.drafter, one.draft, one.draft_tokens, one.ngram_size, one.p_min) == (
        other.drafter,
        other.draft,
        other.draft_tokens,
        other.ngram_size,
        other.p_min,
    )


def _phrase(verdict: WorkloadVerdict) -> str:
    text = setting_name(verdict.setting, limit=28)
    if verdict.verdict == "do-not-speculate":
        return f"do not speculate, run {text}"
    if verdict.verdict == "tie":
        return f"a tie, run {text}"
    return f"speculate with {text}"

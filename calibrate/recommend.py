"""The recommendation: the fastest setting by forecast, how sure that is, and why, in numbers."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from ..model.decision import (
    Decision,
    RatioInterval,
    decide,
    probability_best,
    ratio_interval,
    repeats_to_separate,
    rounds_to_separate,
)
from ..model.hardware import BandwidthCeiling
from ..profiler.records import ModelFile, Profile, Setting
from .fit import Calibrated, NotCalibrated
from .intervals import generator, log_noise, percentile_interval
from .maps import speed_maps
from .mix import mix_prefix, mixed
from .records import Chosen, Interval, Recommendation, SettingForecast, TargetRef, WorkloadAdvice
from .reported import speaks_of
from .rounds import PLAIN_REMEDY
from .what_if import kernel_reasons, what_ifs
from .what_if_records import WhatIfRecord

RULE_ACCEPTANCE = 0.60
RULE_ACCEPTED = 1.5
"""Rules of thumb that people go by: shown with whether they agree here; they overrule nothing."""
MOST_ROUNDS = 100_000
MOST_REPEATS_FACTOR = 20


@dataclass(frozen=True)
class _Contest:
    """Arms of one workload or of the mix: `speeds` (A, 1 + replicates), and the decision between them."""

    arms: tuple[Setting, ...]
    speeds: np.ndarray
    decision: Decision

    @property
    def chosen(self) -> Setting:
        return self.arms[self.decision.chosen]

    @property
    def best_plain(self) -> Setting:
        return self.arms[self.decision.best_plain]

    @property
    def rival(self) -> Setting:
        return self.arms[self.decision.rival]

    def speed(self, arm: Setting) -> float:
        return float(self.speeds[self.arms.index(arm), 0])


def recommend(
    profile: Profile,
    calibrated: Calibrated,
    *,
    profile_sha256: str,
    calibration_sha256: str,
    created: str,
    tool_version: str,
    command: str | Callable[[Setting], str],
) -> Recommendation:
    """What to set on each workload and on their mix. `command`: the engine's, or how to spell it for a setting.

    Raises NotCalibrated where not even plain decoding can be forecast.
    """
    settings, dropped = _searched(calibrated)
    workloads = calibrated.workloads()
    contests = {workload: _contest(calibrated, settings, (workload,)) for workload in workloads}
    mix = _contest(calibrated, settings, workloads)
    ceiling = _bandwidth_ceiling(calibrated, mix.chosen)
    candidates = tuple(f for workload, contest in contests.items() for f in _forecasts(calibrated, workload, contest))
    explored = what_ifs(calibrated, candidates)
    plain_of_chosen = mix.speed(_plain(mix))
    return Recommendation(
        created=created,
        tool_version=tool_version,
        profile_sha256=profile_sha256,
        calibration_sha256=calibration_sha256,
        level=calibrated.level,
        verdict=mix.decision.verdict,
        chosen=_chosen(profile, mix.chosen),
        forecast_tokens_per_second=_interval(calibrated, mix, "mix"),
        baseline_tokens_per_second=plain_of_chosen,
        reasons=(*_reasons(calibrated, mix, workloads), *_bandwidth_reason(calibrated, mix)),
        workloads=tuple(_advice(calibrated, workload, contest, explored) for workload, contest in contests.items()),
        candidates=candidates,
        ceiling_tokens_per_second=ceiling.tokens_per_second if ceiling else None,
        bandwidth_share=ceiling.share(plain_of_chosen) if ceiling else None,
        dropped={**profile.dropped, **dropped},
        unsettled=(
            *(
                f"{workload}: {sentence}"
                for workload, contest in contests.items()
                for sentence in _tie_reason(calibrated, contest, (workload,))
            ),
            *(mix_prefix(profile.workload_shares) + one for one in _tie_reason(calibrated, mix, workloads)),
            *(f"{name}, not measured in the time given: {missing}" for name, missing in profile.unmeasured.items()),
        ),
        command=command if isinstance(command, str) else command(mix.chosen),
        what_if=explored,
        speed_maps=speed_maps(calibrated, explored),
        workload_shares=profile.workload_shares,
    )


def _searched(calibrated: Calibrated) -> tuple[tuple[Setting, ...], dict[str, str]]:
    """Every setting that can be forecast on some workload, plain ones first, and why others cannot."""
    wanted = [c.setting(0) for c in calibrated.profile.candidates]
    wanted += [c.setting(g) for c in calibrated.profile.candidates for g in c.draft_tokens if g > 0]
    found, dropped = [], {}
    place = _place(calibrated.profile)
    for setting in dict.fromkeys(wanted):
        if place is not None and (setting.context, setting.streams) != place:
            dropped[f"{setting.context} tokens of context, {setting.streams} streams"] = (
                f"only {place[0]} tokens of context and {place[1]} streams are compared: predict shows the others"
            )
            continue
        name = f"{setting.target} x {setting.draft or setting.drafter}"
        if setting.draft_tokens and name in calibrated.profile.dropped:
            continue
        reasons = [_why_not(calibrated, setting, workload) for workload in calibrated.workloads()]
        if all(reasons):
            dropped[name] = reasons[0]
        else:
            found.append(setting)
    return tuple(found), dropped


def _place(profile: Profile) -> tuple[int, int] | None:
    """Context and streams at which imported settings are compared: where most lengths were reported, of these the longest
    context. None for a profile whose own prompts say where."""
    if not speaks_of(profile):
        return None
    lengths: dict[tuple[int, int], int] = defaultdict(int)
    for candidate in profile.candidates:
        lengths[candidate.context, candidate.streams] += sum(n > 0 for n in candidate.draft_tokens)
    return max(lengths, key=lambda place: (lengths[place], place))


def _why_not(calibrated: Calibrated, setting: Setting, workload: str) -> str:
    """Why there is no forecast; empty where there is one."""
    try:
        calibrated.speeds(setting, workload)
    except NotCalibrated as error:
        return str(error)
    return ""


def _contest(calibrated: Calibrated, settings: tuple[Setting, ...], workloads: tuple[str, ...]) -> _Contest:
    """All settings that can be forecast on all of `workloads`; on several, their mix (mix.py)."""
    arms = tuple(s for s in settings if not any(_why_not(calibrated, s, w) for w in workloads))
    if not any(arm.draft_tokens == 0 for arm in arms):
        raise NotCalibrated(f"plain decoding was not measured: {PLAIN_REMEDY}")
    speeds = np.stack([_mixed(calibrated, arm, workloads) for arm in arms])
    decision = decide(speeds, np.array([arm.draft_tokens for arm in arms]), calibrated.level)
    return _Contest(arms, speeds, decision)


def _mixed(calibrated: Calibrated, setting: Setting, workloads: tuple[str, ...]) -> np.ndarray:
    """Speed over the mix of `workloads` (1 + replicates,)."""
    speeds = [calibrated.speeds(setting, workload) for workload in workloads]
    return mixed(speeds, workloads, calibrated.profile.workload_shares)


def _forecasts(calibrated: Calibrated, workload: str, contest: _Contest) -> list[SettingForecast]:
    best = probability_best(contest.speeds)
    return [
        msgspec.structs.replace(calibrated.forecast(arm, workload), probability_best=float(share))
        for arm, share in zip(contest.arms, best)
    ]


def _advice(
    calibrated: Calibrated, workload: str, contest: _Contest, explored: tuple[WhatIfRecord, ...]
) -> WorkloadAdvice:
    kernels = kernel_reasons(explored, _discussed(contest), workload)
    return WorkloadAdvice(
        workload=workload,
        verdict=contest.decision.verdict,
        chosen=_chosen(calibrated.profile, contest.chosen),
        forecast_tokens_per_second=calibrated.forecast(contest.chosen, workload).tokens_per_second,
        baseline_tokens_per_second=contest.speed(_plain(contest)),
        reasons=(*_reasons(calibrated, contest, (workload,)), *kernels, *_bandwidth_reason(calibrated, contest)),
    )


def _plain(contest: _Contest) -> Setting:
    """Plain decoding of the chosen target."""
    return next(a for a in contest.arms if a.draft_tokens == 0 and a.target == contest.chosen.target)


def _interval(calibrated: Calibrated, contest: _Contest, name: str) -> Interval:
    """The chosen arm's speed with a session's noise."""
    rng = generator(calibrated.seed, "session", contest.chosen, name)
    noise = log_noise(rng, calibrated.replicates, calibrated.session_noise(contest.chosen))
    return percentile_interval(contest.speeds[contest.decision.chosen] * noise, calibrated.level)


def _chosen(profile: Profile, setting: Setting) -> Chosen:
    model = _model(profile, setting.target)
    return Chosen(
        target=TargetRef(path=model.path, quant=model.quant, sha256=model.sha256),
        drafter=setting.drafter,
        draft=setting.draft,
        draft_quant=setting.draft_quant,
        draft_tokens=setting.draft_tokens,
        p_min=setting.p_min,
        ngram_size=setting.ngram_size,
        kv_type_k=setting.kv_type_k,
        kv_type_v=setting.kv_type_v,
        context=setting.context,
        streams=setting.streams,
    )


def _model(profile: Profile, label: str) -> ModelFile:
    for model in profile.models:
        if model.label == label:
            return model
    raise NotCalibrated(f"{label}: not among the profile's models: profile it")


def _name(setting: Setting) -> str:
    """A setting in words."""
    if setting.draft_tokens == 0:
        return f"{setting.target} plain"
    return f"{setting.target} with {setting.draft or setting.drafter}, {setting.draft_tokens} draft tokens"


def _reasons(calibrated: Calibrated, contest: _Contest, workloads: tuple[str, ...]) -> tuple[str, ...]:
    """Short true sentences: the verdict's comparison, the gate by workload, ties."""
    drafting = _discussed(contest)
    sentences = [_headline(contest)]
    if drafting is None:
        sentences.append("no drafter could be forecast: nothing to compare plain decoding with")
    else:
        for workload in workloads:
            prefix = f"{workload}: " if len(workloads) > 1 else ""
            sentences += [prefix + sentence for sentence in _gate(calibrated, drafting, workload)]
    return (*sentences, *_tie_reason(calibrated, contest, workloads))


def _discussed(contest: _Contest) -> Setting | None:
    """The drafting arm whose gate is shown: the chosen one, else the best of all."""
    if contest.chosen.draft_tokens:
        return contest.chosen
    drafting = [arm for arm in contest.arms if arm.draft_tokens]
    return max(drafting, key=contest.speed, default=None)


def _headline(contest: _Contest) -> str:
    decision, chosen = contest.decision, contest.chosen
    speed = contest.speed(chosen)
    if chosen.draft_tokens:
        over = decision.over_plain
        return (
            f"{_name(chosen)}: {speed:.1f} tokens/s, {over.value:.2f}x the best plain setting "
            f"({_name(contest.best_plain)}, {contest.speed(contest.best_plain):.1f}); ratio {over.low:.2f} to {over.high:.2f}"
        )
    best = _discussed(contest)
    if best is None:
        return f"{_name(chosen)}: {speed:.1f} tokens/s"
    other = contest.speed(best)
    return (
        f"{_name(chosen)}: {speed:.1f} tokens/s; the best drafting setting ({_name(best)}) {other:.1f}, "
        f"{other / speed:.2f}x"
    )


def _gate(calibrated: Calibrated, setting: Setting, workload: str) -> list[str]:
    """Accepted a round against break-even, S_1 against the marginal cost of a token, the rules of thumb, the ceiling."""
    found = calibrated.forecast(setting, workload)
    pays = found.accepted_per_round > found.break_even_accepted
    sentences = [
        (
            f"{_name(setting)} accepts {found.accepted_per_round:.2f} tokens a round, break-even is "
            f"{found.break_even_accepted:.2f} (a round takes {1e3 * found.round_seconds:.2f} ms): "
            f"{'above' if pays else 'below'} it, {found.speed_up:.2f}x plain"
        )
    ]
    if setting.drafter != "ngram":
        sentences += _first_token(calibrated, setting, workload)
    sentences += _rules(found, pays)
    if not pays:
        bound = found.ceiling_tokens_per_second
        sentences.append(
            f"at perfect acceptance it could reach {bound:.1f} tokens/s at most, "
            f"plain is {found.baseline_tokens_per_second:.1f}"
        )
    return sentences


def _first_token(calibrated: Calibrated, setting: Setting, workload: str) -> list[str]:
    """S_1 against what one drafted token costs in plain steps."""
    survival = calibrated.survival(setting, workload)
    if not survival.size:
        return ["nothing was ever drafted there"]
    pair = calibrated.modelled_round(setting, 1, _context(calibrated, workload))
    plain = calibrated.modelled_round(setting, 0, _context(calibrated, workload))
    marginal = pair.modelled_seconds / plain.modelled_seconds - 1
    relation = "above" if survival[0] > marginal else "below"
    return [
        (
            f"the first drafted token is accepted with probability {survival[0]:.2f}, "
            f"{relation} the cost of one drafted token, {marginal:.2f} plain steps"
        )
    ]


def _context(calibrated: Calibrated, workload: str) -> float:
    plain = next(c.setting(0) for c in calibrated.profile.candidates)
    return calibrated.mean_context(plain, workload)


def _rules(found: SettingForecast, pays: bool) -> list[str]:
    """The rules of thumb with whether they agree with the forecast."""
    if found.drafted_per_round <= 0:
        return []
    rate = found.accepted_per_round / found.drafted_per_round
    by_rate, by_length = rate >= RULE_ACCEPTANCE, found.accepted_per_round >= RULE_ACCEPTED
    return [
        (
            f"{100 * rate:.0f} % of drafted tokens are accepted: the rule of thumb of 60 % {_agreement(by_rate, pays)}; "
            f"{found.accepted_per_round:.2f} a round: the rule of 1.5 {_agreement(by_length, pays)}"
        )
    ]


def _agreement(rule: bool, pays: bool) -> str:
    return f"says {'speculate' if rule else 'do not'}, {'rightly' if rule == pays else 'wrongly'} here"


def _tie_reason(calibrated: Calibrated, contest: _Contest, workloads: tuple[str, ...]) -> list[str]:
    """What cannot be told apart, and about how many more rounds would settle it."""
    if contest.decision.verdict != "tie":
        return []
    ratio = contest.decision.over_rival
    if ratio.low > 1:
        ratio, rival = contest.decision.over_plain, contest.best_plain
    else:
        rival = contest.rival
    return [
        (
            f"{_name(contest.chosen)} and {_name(rival)} cannot be told apart (ratio {ratio.low:.2f} to {ratio.high:.2f}); "
            f"{_what_would_tell(calibrated, ratio, contest.chosen, rival, workloads)}"
        )
    ]


def _what_would_tell(
    calibrated: Calibrated, ratio: RatioInterval, chosen: Setting, rival: Setting, workloads: tuple[str, ...]
) -> str:
    """More rounds, which only fresh prompts give; or round times, where their noise alone is too much."""
    drafting = chosen if chosen.draft_tokens else rival
    seen = sum(calibrated.rounds_seen(drafting, w) for w in workloads)
    prompts = sum(p.workload in workloads for p in calibrated.profile.prompts)
    cost = _cost_log_sd(calibrated, chosen, rival, workloads)
    more = rounds_to_separate(ratio, seen, cost)
    if more <= MOST_ROUNDS:
        return f"{_fresh_rounds(more, seen, prompts)} would"
    unmeasured = [str(s.draft_tokens) for s in (chosen, rival) if not calibrated.in_profile(s)]
    factor, accepted = repeats_to_separate(ratio, cost), replace(ratio, log_sd=max(ratio.log_sd**2 - cost**2, 0) ** 0.5)
    if unmeasured:
        first, more = f"rounds timed at {' and '.join(unmeasured)} draft tokens", rounds_to_separate(accepted, seen)
    elif factor <= MOST_REPEATS_FACTOR:
        first = f"{_rounded(factor)} times as many repeats of round times"
        halved = replace(accepted, log_sd=accepted.log_sd * 2**0.5)
        more = rounds_to_separate(halved, seen)
    if more > MOST_ROUNDS:
        return "no practical number of rounds would"
    then = f" and then {_fresh_rounds(more, seen, prompts)}" if more else ""
    return f"{first}{then} would: round times are known to {100 * cost:.1f} % so far, more than rounds alone can mend"


def _fresh_rounds(rounds: float, seen: float, prompts: int) -> str:
    """Rounds that fresh prompts have to give, in these and in prompts like those seen."""
    fresh = max(1, round(rounds / max(seen, 1) * prompts))
    return f"about {_rounded(rounds)} more rounds (a draft and its verification; {_rounded(fresh)} more prompts)"


def _cost_log_sd(calibrated: Calibrated, chosen: Setting, rival: Setting, workloads: tuple[str, ...]) -> float:
    """The part of the noise of their ratio that is not the prompts': what is left where these are not resampled."""
    alone = calibrated.of_its_own_prompts()
    speeds = [_mixed(alone, setting, workloads) for setting in (chosen, rival)]
    return ratio_interval(speeds[0], speeds[1], calibrated.level).log_sd


def _rounded(value: float) -> str:
    return f"{float(f'{value:.1g}'):.0f}"


def _bandwidth_ceiling(calibrated: Calibrated, setting: Setting) -> BandwidthCeiling | None:
    if calibrated.bandwidth is None:
        return None
    model = _model(calibrated.profile, setting.target)
    return BandwidthCeiling(model.size_bytes - model.unread_bytes, float(calibrated.bandwidth.bytes_per_second[0]))


def _bandwidth_reason(calibrated: Calibrated, contest: _Contest) -> list[str]:
    ceiling, bandwidth = _bandwidth_ceiling(calibrated, contest.chosen), calibrated.bandwidth
    if ceiling is None or bandwidth is None:
        return []
    speed = contest.speed(_plain(contest))
    cached = (
        "; a share above 100 % means that weights stay in a cache or that the bandwidth reads low"
        if ceiling.share(speed) > 1
        else ""
    )
    return [
        (
            f"plain {contest.chosen.target} reads {ceiling.bytes_per_step / 1e6:.0f} MB a step: "
            f"{speed * ceiling.bytes_per_step / 1e9:.1f} GB/s, {100 * ceiling.share(speed):.0f} % of the {bandwidth.provenance} "
            f"{bandwidth.operation} bandwidth {ceiling.bytes_per_second / 1e9:.1f} GB/s, "
            f"which would allow {ceiling.tokens_per_second:.0f} tokens/s{cached}"
        )
    ]

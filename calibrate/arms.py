"""The arms of a validation: which settings to run, and how many repeats of them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import comb
from statistics import median

from msgspec.structs import replace

from ..profiler.records import Candidate, Profile, PromptRun, Request, Run, Setting
from .plan import candidate_name, round_requests
from .records import Chosen, Recommendation

LEAST_REPEATS = 5
MOST_REPEATS = 15
SETTLED_HALF_WIDTH = 0.03
"""Of the paired ratio between the choice and its best competitor."""
LEAST_UNRUN_ROWS = 6
UNRUN_PER_DRAFTER = 1
UNRUN_LENGTHS = {"model": (2, 6), "ngram": (6, 12, 3)}
"""Draft lengths to check first, by drafter kind; other kinds: those of a draft model."""
CHECKED_LENGTHS = tuple(range(1, 9))
CHECKED_REPEATS = 3


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
    """The candidate's setting that a recommendation names. Raises StopIteration or IndexError where there is none."""
    target = (chosen.target.sha256, chosen.target.quant)  # one file may be loaded in several quantizations
    labels = {model.label for model in profile.models if (model.sha256, model.quant) == target}
    of_target = [candidate for candidate in profile.candidates if candidate.target in labels]
    if chosen.drafter == "none":
        return of_target[0].setting(0)
    same = (chosen.drafter, chosen.draft, chosen.ngram_size)
    return next(
        candidate.setting(chosen.draft_tokens)
        for candidate in of_target
        if (candidate.drafter, candidate.draft, candidate.ngram_size) == same
        and chosen.draft_tokens in candidate.draft_tokens
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
    """Fresh rounds, used for no fit, at draft lengths 1 to 8 of each drafter among `settings`, at the shorter context.

    Only of draft models: an n-gram drafter offers nothing on the text of a round sample.
    """
    found = {_candidate_of(profile, setting) for setting in settings if setting.drafter == "model"}
    candidates = sorted((candidate for candidate in found if candidate is not None), key=candidate_name)
    return tuple(
        request
        for candidate in candidates
        for request in round_requests(profile, candidate, CHECKED_LENGTHS, CHECKED_REPEATS, most_contexts=1)
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
    """Where plain decoding is the choice, which has no neighbours: the best drafting forecast of its target."""
    rivals = []
    for workload, choice in chosen_by_workload(profile, recommendation).items():
        if choice.draft_tokens:
            continue
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
        for once in by_repeat(run, workload)
    ]


def by_repeat(run: Run, workload: str) -> list[list[PromptRun]]:
    replies = [reply for reply in run.replies if reply.prompt.workload == workload]
    repeats = sorted({reply.repeat for reply in replies})
    return [[reply for reply in replies if reply.repeat == repeat] for repeat in repeats]

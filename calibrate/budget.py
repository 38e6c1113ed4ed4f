"""What to measure next where time is short: what narrows the decision most and still fits.

1. One plain step of every target, then a plain pass over the prompts of the fastest: the baseline, without which there is
   no answer.
2. Costs of that target and of the drafts at a few widths; acceptance once for each drafter and workload, by replay where that
   is possible; then the same costs of the other targets.
3. Candidates whose forecast interval lies wholly below that of the best on every workload are dropped, the numbers kept as
   the reason. The time that is left goes to the others, those likeliest to be the best first: acceptance on the target
   itself, rounds at the draft length that is forecast best, a pass of its very width, further plain passes.

A pure function of the evidence, as plan.py is: a larger budget goes on where a smaller one ended. Seconds of a request are
forecast from measured steps, times what requests of its kind took over what was expected of them.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..profiler.records import Candidate, Profile, Request, Setting
from . import fit
from .fit import Calibrated, NotCalibrated
from .intervals import percentile_interval
from .plan import (
    ASSUMED_START_SECONDS,
    FIRST_REPEATS,
    MODEL_TRACE_LENGTH,
    PLAIN_REPEATS,
    ROUND_LENGTHS,
    Estimate,
    below_plain,
    best_plain_speed,
    candidate_name,
    ceiling_of,
    contexts_of,
    draft_widths,
    in_process,
    is_random,
    is_replayed,
    match_requests,
    plain_block,
    plain_settings,
    plain_step_seconds,
    round_requests,
    spread,
    trace_of,
    workload_names,
)

SPARSE_WIDTHS = (1, 2, 4, 8, 9, 17)
"""Both sides of the kernel switch after 8, and one width beyond that after 16."""
PROMPT_WIDTHS = (1, 4, 9)
"""Of passes with one row of output, where verification passes are timed apart: for what the context adds."""
FIRST_CONTEXT = 128
"""Of the first plain steps, before prompts are known to the engine."""
STEP_REPEATS = 2
SMALL_SHARE = 0.05
"""Of the time left: what the plain step of another target may take before the baseline."""
SAFETY = 1.3
"""What a request may take over what is forecast of it, and still end in time."""
REPLICATES = 150


@dataclass(frozen=True)
class Within:
    """The next requests (none: nothing that fits), the candidates dropped, and what was not measured of those left, each with
    what would settle it. `least_seconds`: what plain decoding alone would take, where not even that fits."""

    requests: tuple[Request, ...] = ()
    dropped: dict[str, str] = field(default_factory=dict)
    unmeasured: dict[str, str] = field(default_factory=dict)
    least_seconds: float | None = None


def next_within(profile: Profile, seconds: float) -> Within:
    """What to measure within `seconds` from now. Deterministic: equal evidence and time give the same requests."""
    takes = Takes(profile)
    baseline, optional = _baseline(profile)
    if baseline:
        return _first_of(profile, baseline, optional, takes, seconds)
    if not _decoded_plainly(profile):  # refused by the engine
        return Within()
    contest = _contest(profile)
    waiting = {name: left for name, needs in contest.needs.items() if (left := _not_done(profile, needs))}
    for plain in (False, True):  # further plain passes last: they are long, and narrow all forecasts of a target alike
        for left in waiting.values():
            chosen = takes.as_many_as_fit(_alike([one for one in left if (one.action == "runs") == plain]), seconds)
            if chosen:
                return Within(chosen, contest.dropped)
    return Within((), contest.dropped, {name: _described(left, takes) for name, left in waiting.items()})


def _alike(requests: Sequence[Request]) -> Iterator[Request]:
    """The first of them and those behind it that are asked for whatever the first one tells: passes together, rounds
    together, anything else alone."""
    passes = ("steps", "verify", "matches")
    for place, request in enumerate(requests):
        first = requests[0].action
        together = request.action in passes if first in passes else request.action == first == "rounds"
        if place and not together:
            return
        yield request


@dataclass(frozen=True)
class Takes:
    """Forecast seconds of requests, by what earlier ones of their kind took over what was expected of them."""

    profile: Profile

    def seconds(self, request: Request) -> float:
        """With the margin that lets it end in time."""
        new = len(_servers(request) - {server for m in self.profile.measurements for server in _servers(m.request)})
        return SAFETY * (self.pace(request.action) * request.expected_seconds + new * self._start())

    def as_many_as_fit(self, requests: Iterable[Request], seconds: float) -> tuple[Request, ...]:
        """From the first on, while all of them together fit `seconds`."""
        chosen: list[Request] = []
        for request in requests:
            seconds -= self.seconds(request)
            if seconds < 0:
                break
            chosen.append(request)
        return tuple(chosen)

    def pace(self, action: str) -> float:
        """The slowest of its kind; of all kinds, and at least 1, where none was measured yet. What was expected of the first
        plain steps was a guess from the sizes of files, and tells nothing."""
        found = [
            (m.request.action, m.wall_seconds / m.request.expected_seconds)
            for m in self.profile.measurements
            if m.request.expected_seconds > 0 and not m.unsupported and not _is_first(m.request)
        ]
        own = [ratio for kind, ratio in found if kind == action]
        return max(own or [1.0, *(ratio for _, ratio in found)])

    def _start(self) -> float:
        """Seconds that the slowest start took over those expected: of first plain steps all but the steps themselves."""
        starts = [
            m.wall_seconds - sum(sum(sample.seconds) for sample in m.steps)
            for m in self.profile.measurements
            if _is_first(m.request)
        ]
        return max([0.0, *(start - ASSUMED_START_SECONDS for start in starts)])


def _servers(request: Request) -> set[tuple[object, ...]]:
    """What an engine starts for a request, where it has not got it yet."""
    if request.action in ("steps", "verify"):
        return {(request.action == "verify", request.model)}
    if request.action == "matches":
        return set()
    return {(s, request.forced_rates) if s.draft_tokens else (False, s.target) for s in request.settings}


def _is_first(request: Request) -> bool:
    return request.action == "steps" and request.role == "target" and request.widths == (1,)


def _first_of(
    profile: Profile, baseline: Sequence[Request], optional: Sequence[Request], takes: Takes, seconds: float
) -> Within:
    """The baseline first of all, other targets' plain steps where they leave time for it."""
    needed = sum(map(takes.seconds, baseline))
    if needed > seconds:
        return Within(least_seconds=profile.profile_seconds + needed)
    if optional and takes.seconds(optional[0]) <= SMALL_SHARE * (seconds - needed):
        return Within((optional[0],))
    return Within((baseline[0],))


def _baseline(profile: Profile) -> tuple[list[Request], list[Request]]:
    """What is left of the first target's plain step and the fastest target's plain pass; and plain steps of the others,
    before it."""
    if _decoded_plainly(profile):
        return [], []
    sizes = {model.label: model.size_bytes for model in profile.models}
    plain = sorted(plain_settings(profile), key=lambda setting: sizes.get(setting.target, 0))
    steps = [_plain_step(profile, setting) for setting in plain]
    known = {s.target: plain_step_seconds(profile, s.target) for s in plain}
    fastest = min(plain, key=lambda s: known[s.target] or math.inf)
    first = _not_done(profile, steps[:1])
    baseline = [*first, *_not_done(profile, [plain_block(profile, [fastest], FIRST_REPEATS)])]
    return baseline, [] if first else _not_done(profile, steps[1:])


def _decoded_plainly(profile: Profile) -> bool:
    return any(run.replies for m in profile.measurements for run in m.runs if not run.setting.draft_tokens)


def _plain_step(profile: Profile, setting: Setting) -> Request:
    contexts = (min(FIRST_CONTEXT, setting.context // 2),)
    return _steps(profile, setting.target, "target", (1,), contexts)


def _steps(profile: Profile, model: str, role: str, widths: tuple[int, ...], contexts: tuple[int, ...]) -> Request:
    return Request(
        action="steps",
        model=model,
        role=role,
        widths=widths,
        contexts=contexts,
        repeats=STEP_REPEATS,
        expected_seconds=Estimate(profile).steps(model, contexts, widths),
    )


def _costs(profile: Profile, candidate: Candidate) -> Iterator[Request]:
    """The replay, where the target has replies to replay it over; then passes of its target and draft at a few widths."""
    own = [one for one in profile.candidates if one.target == candidate.target]
    if _has_replies(profile, candidate.target):
        yield from (one for one in match_requests(profile) if _is_of(one.settings[0], candidate))
    yield from _target_costs(profile, own)
    if candidate.drafter == "model":
        yield from _draft_costs(profile, candidate.draft)


def _is_of(setting: Setting, candidate: Candidate) -> bool:
    return setting == candidate.setting(setting.draft_tokens)


def _target_costs(profile: Profile, own: Sequence[Candidate]) -> Iterator[Request]:
    target, contexts = own[0].target, contexts_of(profile, min(candidate.context for candidate in own))
    longest = max(length for candidate in own for length in (0, *candidate.draft_tokens))
    widths = tuple(sorted({2, *(width for width in SPARSE_WIDTHS if width <= longest + 1), longest + 1}))
    apart = not in_process(profile) and not _cannot_verify(profile, target)
    wanted = tuple(width for width in PROMPT_WIDTHS if width <= longest + 1) if apart and longest > 2 else widths
    yield _steps(profile, target, "target", wanted, contexts)
    if not in_process(profile):
        yield _verify(profile, target, widths[1:], contexts[0])


def _cannot_verify(profile: Profile, target: str) -> bool:
    return any(
        m.unsupported and m.request.action == "verify" and m.request.model == target for m in profile.measurements
    )


def _verify(profile: Profile, target: str, widths: tuple[int, ...], context: int) -> Request:
    seconds = 4 * (STEP_REPEATS + 1) * sum(Estimate(profile).step(target, width) for width in widths)
    return Request(
        action="verify",
        model=target,
        role="target",
        widths=widths,
        contexts=(context,),
        repeats=STEP_REPEATS,
        expected_seconds=Estimate(profile).steps(target, (), ()) + 2 * seconds,
    )


def _draft_costs(profile: Profile, draft: str) -> Iterator[Request]:
    used = [candidate for candidate in profile.candidates if candidate.draft == draft]
    as_target = any(candidate.target == draft for candidate in profile.candidates)
    if in_process(profile) or not as_target:
        widths = tuple(width for width in draft_widths(profile) if width in SPARSE_WIDTHS)
        yield _steps(profile, draft, "draft", widths, contexts_of(profile, min(c.context for c in used)))


def _has_replies(profile: Profile, target: str) -> bool:
    return any(
        run.setting.target == target and not run.setting.draft_tokens for m in profile.measurements for run in m.runs
    )


@dataclass(frozen=True)
class Contest:
    """Candidates dropped, with the reason, and of the others what would narrow the decision, the likeliest winner first."""

    dropped: dict[str, str]
    needs: Mapping[str, Sequence[Request]]


def _contest(profile: Profile) -> Contest:
    drafting = [candidate for candidate in profile.candidates if candidate.draft_tokens]
    calibrated = fit.calibrate(profile, replicates=REPLICATES)
    arms = {candidate_name(one): found for one in drafting if (found := _arm(calibrated, one)) is not None}
    dropped = _ceilings(profile, [candidate for candidate in drafting if candidate_name(candidate) not in arms])
    plain = [found for setting in plain_settings(profile) if (found := _plain_arm(calibrated, setting)) is not None]
    dropped |= _beaten(calibrated, arms, plain)
    kept = [candidate for candidate in drafting if candidate_name(candidate) not in dropped]
    chances = _chances([arm for name, arm in arms.items() if name not in dropped], plain)
    # What cannot be forecast at all is asked for first, on the fastest target before others: it may be anything.
    steps = {one.target: plain_step_seconds(profile, one.target) or math.inf for one in kept}
    kept.sort(key=lambda one: (-chances.get(candidate_name(one), math.inf), steps[one.target]))
    needs = {candidate_name(one): tuple(_needs(profile, one, arms.get(candidate_name(one)))) for one in kept}
    if plain and not kept:
        best = max(plain, key=lambda arm: float(np.mean([speeds[0] for speeds in arm.speeds.values()])))
        needs[f"{best.settings[0].target}, plain"] = tuple(_plain_repeats(profile, best.settings[0]))
    return Contest(dropped, needs)


def _ceilings(profile: Profile, candidates: Sequence[Candidate]) -> dict[str, str]:
    best = best_plain_speed(profile)
    found = {candidate_name(one): ceiling_of(profile, one) for one in candidates}
    return {
        name: below_plain(ceiling, best)
        for name, ceiling in found.items()
        if best and ceiling is not None and ceiling < best.tokens_per_second
    }


@dataclass(frozen=True)
class _Arm:
    """A candidate at its best draft length by workload: settings in the order of `speeds`, draws of tokens/s (R,)."""

    name: str
    settings: tuple[Setting, ...]
    speeds: dict[str, np.ndarray]


def _arm(calibrated: Calibrated, candidate: Candidate) -> _Arm | None:
    """None where it cannot be forecast on every workload yet."""
    return _best(calibrated, candidate_name(candidate), [candidate.setting(g) for g in candidate.draft_tokens if g > 0])


def _plain_arm(calibrated: Calibrated, setting: Setting) -> _Arm | None:
    return _best(calibrated, f"plain {setting.target}", [setting])


def _best(calibrated: Calibrated, name: str, settings: Sequence[Setting]) -> _Arm | None:
    chosen, speeds = [], {}
    try:
        for workload in calibrated.workloads():
            drawn = {setting: calibrated.speeds(setting, workload) for setting in settings}
            best = max(drawn, key=lambda setting: float(drawn[setting][0]))
            chosen.append(best)
            speeds[workload] = drawn[best]
    except NotCalibrated:
        return None
    return _Arm(name, tuple(chosen), speeds)


def _beaten(calibrated: Calibrated, arms: Mapping[str, _Arm], plain: Sequence[_Arm]) -> dict[str, str]:
    """Candidates whose interval lies wholly below that of the best on every workload."""
    everything = [*arms.values(), *plain]
    intervals = {
        (arm.name, workload): percentile_interval(drawn, calibrated.level)
        for arm in everything
        for workload, drawn in arm.speeds.items()
    }
    best = {
        workload: max((arm.name for arm in everything), key=lambda name: intervals[name, workload].value)
        for workload in (everything[0].speeds if everything else ())
    }
    found = {}
    for name in arms:
        bounds = [(workload, intervals[name, workload], best[workload]) for workload in best]
        if all(own.high < intervals[leader, workload].low for workload, own, leader in bounds):
            found[name] = "; ".join(
                f"{workload}: {own.low:.1f} to {own.high:.1f} tokens/s, wholly below {leader} with "
                f"{intervals[leader, workload].low:.1f} to {intervals[leader, workload].high:.1f}"
                for workload, own, leader in bounds
            )
    return found


def _chances(arms: Sequence[_Arm], plain: Sequence[_Arm]) -> dict[str, float]:
    """How often each arm is the fastest of all, by the draws, on the workload where that is likeliest."""
    everything = [*arms, *plain]
    found: dict[str, float] = {arm.name: 0.0 for arm in arms}
    for workload in everything[0].speeds if everything else ():
        fastest = np.argmax([arm.speeds[workload] for arm in everything], axis=0)
        for place, arm in enumerate(arms):
            found[arm.name] = max(found[arm.name], float(np.mean(fastest == place)))
    return found


def _needs(profile: Profile, candidate: Candidate, arm: _Arm | None) -> Iterator[Request]:
    """What would narrow the forecast of a candidate, the most telling first; its costs alone where it has none."""
    costs = list(_costs(profile, candidate))
    yield from costs
    if arm is None and _not_done(profile, costs):
        return
    best = sorted({setting.draft_tokens for setting in arm.settings}) if arm else []
    replayed = is_replayed(profile, candidate)
    if not is_random(profile, candidate) and not replayed:
        length = min(candidate.draft_tokens, key=lambda g: abs(g - MODEL_TRACE_LENGTH))
        for workload in workload_names(profile):
            yield trace_of(profile, candidate, length, (workload,))
    near = best or spread(candidate.draft_tokens, ROUND_LENGTHS[1:2])
    if candidate.drafter == "ngram":
        copying = workload_names(profile, "copying") or workload_names(profile)
        yield from (trace_of(profile, candidate, length, copying[:1]) for length in near)
    else:
        ends = spread(candidate.draft_tokens, ROUND_LENGTHS)
        yield from round_requests(profile, candidate, dict.fromkeys((*near, *ends)))
    widths = tuple(length + 1 for length in best if length + 1 not in SPARSE_WIDTHS)
    contexts = contexts_of(profile, candidate.context)
    for width in widths:
        if in_process(profile) or _cannot_verify(profile, candidate.target):
            yield _steps(profile, candidate.target, "target", (width,), contexts)
        else:
            yield _verify(profile, candidate.target, (width,), contexts[0])
    yield from _plain_repeats(profile, candidate.setting(0))


def _plain_repeats(profile: Profile, setting: Setting) -> Iterator[Request]:
    for repeat in range(PLAIN_REPEATS):
        yield plain_block(profile, [setting], 1, repeat)


def _not_done(profile: Profile, requests: Sequence[Request]) -> list[Request]:
    done = {measurement.digest for measurement in profile.measurements}
    return [request for request in requests if request.digest() not in done]


def _described(needs: Sequence[Request], takes: Takes) -> str:
    """In words what is missing, and about how long it takes."""
    words: dict[str, list[str]] = {}
    telling: dict[str, Callable[[Request], str]] = {
        "trace": lambda request: ", ".join(request.workloads),
        "rounds": lambda request: f"{request.settings[0].draft_tokens}",
        "steps": lambda request: ", ".join(map(str, request.widths)),
        "runs": lambda request: f"{request.first_repeat + 1}",
        "matches": lambda request: "",
    }
    for request in needs:
        kind = "steps" if request.action == "verify" else request.action
        words.setdefault(kind, []).append(telling[kind](request))
    named = {
        "trace": "replies with it on {}",
        "rounds": "rounds at {} draft tokens",
        "steps": "passes over {} tokens",
        "runs": "plain passes, number {}",
        "matches": "its replay",
    }
    told = "; ".join(named[kind].format(_listed(parts)) for kind, parts in words.items())
    return f"{told}: about {math.ceil(sum(map(takes.seconds, needs)))} s"


def _listed(parts: Sequence[str]) -> str:
    """Each once; numbers in order."""
    each = dict.fromkeys(one for part in parts for one in part.split(", "))
    return ", ".join(sorted(each, key=int) if all(one.isdecimal() for one in each) else each)

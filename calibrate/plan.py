"""What to measure next: a pure function of the evidence so far, so that an interrupted profile can go on.

Each stage is decided by the numbers of the one before it:
1. memory bandwidth, and one plain pass of every target, which tells how long prompts and replies are;
2. the pass times of every model file, at contexts that span those replies; of targets that are not clearly slower than
   the fastest also passes with all rows of output, which verification needs, at every width that a draft length asks for;
3. more plain runs of the targets that are not clearly slower than the fastest;
4. where n-gram drafters of every target would be right, replayed over the plain replies: that costs no run; and where the
   engine can read a reply of the target with a draft model, where that agrees, for one pass each;
5. for each drafter that can still win, its round overhead and its acceptance, or a few real rounds that check what was
   replayed. A candidate whose speed at perfect acceptance stays below the best plain speed is dropped, and so is a drafter
   whose forecast from replay and pass times stays clearly below the best setting on every workload; the numbers are kept as
   the reason.

Of models of random weights passes and rounds alone are timed: what they propose says nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from ..model.recipe import COMPOSITE, widths_of_draft
from ..profiler.records import Candidate, ModelFile, Profile, PromptRun, Request, Setting

if TYPE_CHECKING:
    from .fit import Calibrated

WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17)
"""Both sides of the kernel switches after 8 and 16."""
ALL_WIDTHS = tuple(range(1, 18))
"""Where a pass in process costs nothing but its own time: curves have tiles and need not be monotonic."""
WIDER = (24, 32, 33)
"""Beyond them, as far as a draft length asks for it."""
MOST_WIDTH = max(WIDER)
CHECK_LENGTH = 4
"""Draft length of the real rounds that a replayed acceptance is held against."""
CONTEXT_GRAIN = 32
"""Contexts are rounded to multiples of this: down at the short end, up at the long one."""
VERIFY_REPEATS = 3
"""Each sample holds several passes."""
STEP_REPEATS = 5
SLOW_STEP_REPEATS = 3
"""Of targets whose first plain pass was clearly slower than the fastest target's."""
PLAIN_REPEATS = 5
FIRST_REPEATS = 1
"""All that clearly slower targets get: their plain speed is no baseline, but their replies are needed."""
OUTRUN = 0.9
"""A forecast without overhead below this share of the best one is not going to win."""
SLOW_TARGET = 1.25
"""A plain step this many times the fastest target's: a target that will not be the baseline."""
ROUND_LENGTHS = (1, 4, 8)
"""Draft lengths at which the overhead of a round is fitted: no more than three."""
ROUND_REPEATS = 3
"""Each repeat is a dozen rounds at each context."""
MODEL_TRACE_LENGTH = 8
"""The longest one: its rounds show whether the draft agrees at every position that shorter drafts can reach."""
NGRAM_TRACE_LENGTHS = (4, 8, 16)

ASSUMED_BYTES_PER_SECOND = {"cpu": 15e9, "gpu": 400e9}
"""Only for the time left, before steps are measured."""
ASSUMED_COST_PER_TOKEN = 0.3
"""Of a plain step, for each further token of a pass: only for the time left."""
REPLAY_STEPS = 20
"""Plain steps that a pass over a whole reply takes: only for the time left."""
ASSUMED_START_SECONDS = 3.0
BANDWIDTH_SECONDS = 5.0
MIDDLE_SPAN = 1024
"""Tokens between the shortest and the longest context from which on one in the middle is measured too."""


@dataclass(frozen=True)
class Plan:
    """The next requests (none: the profile is complete) and the candidates dropped so far, each with its reason."""

    requests: tuple[Request, ...]
    dropped: dict[str, str]


@dataclass(frozen=True)
class Screening:
    """Which candidates are worth measuring: kept, and dropped ones by name with the reason."""

    kept: tuple[Candidate, ...]
    dropped: dict[str, str]


def next_requests(profile: Profile) -> Plan:
    """The requests of the first stage that is not done. Deterministic: equal evidence gives equal requests."""
    done = {measurement.digest for measurement in profile.measurements}
    for stage in (first_requests, step_requests, plain_requests, match_requests):
        waiting = not_done(stage(profile), done)
        if waiting:
            return Plan(waiting, {})
    screening = screen(profile)
    return Plan(not_done(drafter_requests(profile, screening.kept), done), screening.dropped)


def candidate_name(candidate: Candidate) -> str:
    """ "target x drafter", the key of Profile.dropped."""
    return f"{candidate.target} x {candidate.draft or candidate.drafter}"


def first_requests(profile: Profile) -> tuple[Request, ...]:
    """Stage 1: bandwidth before weights load, then one plain pass of every target, interleaved."""
    bandwidth = Request(action="bandwidth", repeats=STEP_REPEATS, expected_seconds=BANDWIDTH_SECONDS)
    return (bandwidth, plain_block(profile, plain_settings(profile), FIRST_REPEATS))


def step_requests(profile: Profile) -> tuple[Request, ...]:
    """Stage 2: passes of every model file, as target where it is one."""
    requests = []
    for model in profile.models:
        used = [
            candidate
            for candidate in profile.candidates
            if model.label == candidate.target or (model.label == candidate.draft and candidate.drafter == "model")
        ]
        if used:
            requests += _steps_of(profile, model, used)
            requests += _verify_of(profile, model)
    return tuple(requests)


def plain_requests(profile: Profile) -> tuple[Request, ...]:
    """Stage 3: the rest of the plain repeats, of the targets that are not clearly slower than the fastest."""
    contenders, _ = _split_by_plain_step(profile, plain_settings(profile))
    more = PLAIN_REPEATS - FIRST_REPEATS
    return (plain_block(profile, contenders, more, FIRST_REPEATS),) if contenders else ()


def screen(profile: Profile) -> Screening:
    """Drop candidates whose ceiling is below the best plain speed on every workload.

    The target with the highest ceiling is measured for each drafter kind all the same, so that a forecast of that kind
    can be checked. A candidate whose pass times are unknown has no ceiling and is kept.
    """
    drafters = [candidate for candidate in profile.candidates if candidate.drafter != "none"]
    ceilings = {candidate_name(candidate): ceiling_of(profile, candidate) for candidate in drafters}
    protected = _highest_by_drafter(drafters, ceilings)
    best = best_plain_speed(profile)
    dropped = {
        name: below_plain(ceiling, best)
        for name, ceiling in ceilings.items()
        if best and ceiling is not None and ceiling < best.tokens_per_second and name not in protected
    }
    dropped |= _outrun(profile, [one for one in drafters if candidate_name(one) not in dropped])
    return Screening(tuple(one for one in drafters if candidate_name(one) not in dropped), dropped)


def _outrun(profile: Profile, candidates: Sequence[Candidate]) -> dict[str, str]:
    """Candidates whose replay stays below OUTRUN of the best forecast on every workload, with the reason.

    Their acceptance is known from the plain replies, their cost from pass times; only the overhead is not measured yet.
    """
    from . import fit

    replayed = [one for one in candidates if is_replayed(profile, one)]
    if not _evidence_of("matches", profile):
        return {}
    calibrated = fit.calibrate(profile, replicates=0)
    speeds = {candidate_name(one): _best_by_workload(calibrated, one) for one in replayed}
    best: dict[str, float] = {}
    for by_workload in speeds.values():
        for workload, speed in by_workload.items():
            best[workload] = max(best.get(workload, 0.0), speed)
    return {
        name: "; ".join(
            f"{workload}: at most {speed:.1f} tokens/s by replay of its plain replies, the best replayed or plain setting "
            f"{best[workload]:.1f}"
            for workload, speed in by_workload.items()
        )
        for name, by_workload in speeds.items()
        if by_workload and all(speed < OUTRUN * best[workload] for workload, speed in by_workload.items())
    }


def is_random(profile: Profile, candidate: Candidate) -> bool:
    return any(model.random for model in profile.models if model.label in (candidate.target, candidate.draft))


def is_replayed(profile: Profile, candidate: Candidate) -> bool:
    """Whether acceptance comes from the target's own replies, without a run of the drafter."""
    if is_random(profile, candidate):
        return False
    forced = candidate.drafter == "model" and "teacher-forced" in profile.engine.capabilities
    return candidate.drafter == "ngram" or forced


def _best_by_workload(calibrated: "Calibrated", candidate: Candidate) -> dict[str, float]:
    """The candidate's best forecast on each workload, plain decoding of its target included; empty without evidence."""
    settings = [candidate.setting(length) for length in (0, *candidate.draft_tokens)]
    try:
        return {
            workload: max(float(calibrated.speeds(setting, workload)[0]) for setting in settings)
            for workload in calibrated.workloads()
        }
    except ValueError:
        return {}


def _evidence_of(action: str, profile: Profile) -> bool:
    return any(m.request.action == action and m.matches for m in profile.measurements)


def drafter_requests(profile: Profile, kept: Sequence[Candidate]) -> tuple[Request, ...]:
    """Stage 5: rounds and acceptance of the candidates that can still win."""
    requests: list[Request] = []
    for candidate in kept:
        measure = _ngram_requests if candidate.drafter == "ngram" else _model_requests
        requests += measure(profile, candidate)
    return tuple(requests)


def round_requests(
    profile: Profile, candidate: Candidate, lengths: Iterable[int], repeats: int = ROUND_REPEATS, most_contexts: int = 2
) -> list[Request]:
    """Rounds at `lengths`: with nothing accepted where acceptance can be forced, real ones where it cannot.

    At the shortest of the contexts, or there and at the longest.
    """
    contexts = contexts_of(profile, candidate.context)
    forced = "forced-acceptance" in profile.engine.capabilities
    return [
        Request(
            action="rounds",
            settings=(candidate.setting(length),),
            contexts=(contexts[0], contexts[-1])[:most_contexts],
            repeats=repeats,
            forced_rates=(0.0,) * length if forced else None,
            expected_seconds=Estimate(profile).rounds(candidate, length, repeats),
        )
        for length in lengths
    ]


def plain_settings(profile: Profile) -> tuple[Setting, ...]:
    """Plain decoding of each target, once, in the order of the candidates."""
    settings = {candidate.target: candidate.setting(0) for candidate in reversed(profile.candidates)}
    return tuple(reversed(settings.values()))


def contexts_of(profile: Profile, reserved: int) -> tuple[int, ...]:
    """Two cached lengths that span the workloads' replies and leave room for the widest pass in `reserved` tokens; a third
    between them where they are MIDDLE_SPAN or more apart, since what context adds to a pass is not one line over thousands."""
    room = max(16, (reserved - MOST_WIDTH - 8))
    replies = [reply for measurement in profile.measurements for run in measurement.runs for reply in run.replies]
    shortest = min((reply.prompt_tokens for reply in replies), default=4 * CONTEXT_GRAIN)
    longest = max((reply.prompt_tokens + reply.reply_tokens for reply in replies), default=8 * CONTEXT_GRAIN)
    low = max(CONTEXT_GRAIN, shortest // CONTEXT_GRAIN * CONTEXT_GRAIN)
    high = max(2 * low, -(-longest // CONTEXT_GRAIN) * CONTEXT_GRAIN)
    low, high = (low, high) if high <= room else (min(low, room // 3), room)
    middle = (low + high) // 2 // CONTEXT_GRAIN * CONTEXT_GRAIN
    return (low, middle, high) if high - low >= MIDDLE_SPAN else (low, high)


def spread(lengths: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...]:
    """The allowed draft lengths nearest to the wanted ones, each once, in order."""
    return tuple(sorted({min(lengths, key=lambda length: (abs(length - want), length)) for want in wanted}))


@dataclass(frozen=True)
class PlainSpeed:
    """The best plain speed, in tokens/s, and the target that has it."""

    target: str
    tokens_per_second: float


def best_plain_speed(profile: Profile) -> PlainSpeed | None:
    """The fastest target's median plain speed on its slowest workload; None before stage 1."""
    speeds = [PlainSpeed(target, speed) for target, speed in _plain_speeds(profile).items()]
    return max(speeds, key=lambda speed: speed.tokens_per_second, default=None)


def _plain_speeds(profile: Profile, repeats: int | None = None) -> dict[str, float]:
    """By target the median plain speed on its slowest workload, in tokens/s; of the first `repeats` alone, or of all."""
    replies: dict[str, list[PromptRun]] = defaultdict(list)
    for measurement in profile.measurements:
        for run in measurement.runs:
            if run.setting.drafter == "none":
                replies[run.setting.target] += [r for r in run.replies if repeats is None or r.repeat < repeats]
    return {target: min(_speeds_by_workload(found)) for target, found in replies.items() if found}


def _speeds_by_workload(replies: Sequence[PromptRun]) -> list[float]:
    workloads = {reply.prompt.workload for reply in replies}
    return [median(_repeat_speeds([r for r in replies if r.prompt.workload == one])) for one in sorted(workloads)]


def _repeat_speeds(replies: Sequence[PromptRun]) -> list[float]:
    """Speed of each repeat: tokens after each reply's first over their decode seconds."""
    passes = [[reply for reply in replies if reply.repeat == repeat] for repeat in {reply.repeat for reply in replies}]
    return [
        sum(reply.reply_tokens - 1 for reply in once) / sum(reply.decode_seconds for reply in once) for once in passes
    ]


def not_done(requests: Iterable[Request], done: set[str]) -> tuple[Request, ...]:
    return tuple(request for request in requests if request.digest() not in done)


def _steps_of(profile: Profile, model: ModelFile, used: Sequence[Candidate]) -> list[Request]:
    """Passes as target, as draft, or as both where the engine times a draft's passes in situ."""
    contexts = contexts_of(profile, min(candidate.context for candidate in used))
    return [
        Request(
            action="steps",
            model=model.label,
            role=role,
            widths=widths,
            contexts=contexts,
            repeats=SLOW_STEP_REPEATS if _clearly_slower(profile, model.label) else STEP_REPEATS,
            expected_seconds=Estimate(profile).steps(model.label, contexts, widths),
        )
        for role, widths in _roles(profile, model, used)
    ]


def _roles(profile: Profile, model: ModelFile, used: Sequence[Candidate]) -> list[tuple[str, tuple[int, ...]]]:
    """What a model is to be timed as, each with the widths of its passes."""
    as_target = [candidate for candidate in used if candidate.target == model.label]
    as_draft = [candidate for candidate in used if candidate.draft == model.label]
    roles: list[tuple[str, tuple[int, ...]]] = [("target", widths_of(profile, as_target))] if as_target else []
    if as_draft and (in_process(profile) or not as_target):
        roles.append(("draft", draft_widths(profile)))
    return roles


def draft_widths(profile: Profile) -> tuple[int, ...]:
    """Of a draft's passes: where it decodes no batch of its own, only those that its rounds have."""
    recipe = profile.engine.recipe("model")
    return WIDTHS if "draft_batch" in recipe or recipe == COMPOSITE else tuple(widths_of_draft(recipe, 1))


def widths_of(profile: Profile, used: Sequence[Candidate]) -> tuple[int, ...]:
    """Widths of a target's passes: every one in process, and on until its longest draft is inside."""
    if not in_process(profile):
        return WIDTHS
    longest = max((length + 1 for candidate in used for length in candidate.draft_tokens), default=1)
    return (*ALL_WIDTHS, *(width for width, below in zip(WIDER, (ALL_WIDTHS[-1], *WIDER)) if below < longest))


def in_process(profile: Profile) -> bool:
    """Whether a batch pass has a row of output for each of its tokens, as a verification."""
    return "all-rows" in profile.engine.capabilities


def _verify_of(profile: Profile, model: ModelFile) -> list[Request]:
    """Verification passes of a target at the shorter context; what the context adds is read from the batch passes."""
    own = [candidate for candidate in profile.candidates if candidate.target == model.label]
    widths = sorted({length + 1 for candidate in own for length in candidate.draft_tokens if length + 1 <= max(WIDTHS)})
    if not widths or in_process(profile) or _clearly_slower(profile, model.label, also_drafts=True):
        return []
    contexts = contexts_of(profile, min(candidate.context for candidate in own))[:1]
    seconds = 4 * (VERIFY_REPEATS + 1) * sum(Estimate(profile).step(model.label, width) for width in widths)
    return [
        Request(
            action="verify",
            model=model.label,
            role="target",
            widths=tuple(widths),
            contexts=contexts,
            repeats=VERIFY_REPEATS,
            expected_seconds=ASSUMED_START_SECONDS + 2 * seconds,
        )
    ]


def _clearly_slower(profile: Profile, model: str, also_drafts: bool = False) -> bool:
    """Whether the first plain pass of a target took SLOW_TARGET times that of the fastest. A draft's pass times matter
    however slow it is as a target."""
    # Of the first pass alone: what was asked for must not change when more repeats come in.
    first = _plain_speeds(profile, FIRST_REPEATS)
    drafts = {candidate.draft for candidate in profile.candidates}
    return model in first and (also_drafts or model not in drafts) and SLOW_TARGET * first[model] < max(first.values())


def _split_by_plain_step(profile: Profile, settings: Sequence[Setting]) -> tuple[list[Setting], list[Setting]]:
    """Contenders and clearly slower targets, by the plain step of stage 2; unknown steps contend."""
    steps = {setting.target: plain_step_seconds(profile, setting.target) for setting in settings}
    known = [seconds for seconds in steps.values() if seconds is not None]
    limit = SLOW_TARGET * min(known, default=0.0)
    slow = [setting for setting in settings if (steps[setting.target] or 0.0) > limit]
    return [setting for setting in settings if setting not in slow], slow


def plain_step_seconds(profile: Profile, model: str) -> float | None:
    """Median warm plain step of a model file at the shorter context; None where it was not measured."""
    samples = [
        sample
        for measurement in profile.measurements
        for sample in measurement.steps
        if sample.model == model and sample.kind == "decode" and sample.role != "sentinel" and not sample.cold
    ]
    # A draft's steps in situ come behind a pass of its target: as a target it is faster.
    samples = [sample for sample in samples if sample.role == "target"] or samples
    shortest = min((sample.context for sample in samples), default=0)
    seconds = [second for sample in samples if sample.context == shortest for second in sample.seconds]
    return median(seconds) if seconds else None


def plain_block(profile: Profile, settings: Sequence[Setting], repeats: int, first_repeat: int = 0) -> Request:
    estimate = Estimate(profile)
    return Request(
        action="runs",
        settings=tuple(settings),
        workloads=workload_names(profile),
        repeats=repeats,
        first_repeat=first_repeat,
        expected_seconds=sum(estimate.plain_pass(setting.target) for setting in settings) * repeats,
    )


def ceiling_of(profile: Profile, candidate: Candidate) -> float | None:
    """tokens/s at perfect acceptance, from pass times alone; None where they were not measured."""
    from .fit import ceiling_at_perfect_acceptance

    try:
        return ceiling_at_perfect_acceptance(profile, candidate)
    except ValueError:
        return None


def below_plain(ceiling: float, best: PlainSpeed) -> str:
    return (
        f"at perfect acceptance at most {ceiling:.1f} tokens/s, below plain {best.target} at "
        f"{best.tokens_per_second:.1f} tokens/s on its slowest workload"
    )


def _highest_by_drafter(candidates: Sequence[Candidate], ceilings: dict[str, float | None]) -> set[str]:
    """For each drafter kind the name of the candidate with the highest ceiling."""
    names = {}
    for candidate in sorted(candidates, key=lambda candidate: ceilings[candidate_name(candidate)] or 0.0):
        names[candidate.drafter] = candidate_name(candidate)
    return set(names.values())


def _model_requests(profile: Profile, candidate: Candidate) -> list[Request]:
    """Overhead from rounds at three lengths, acceptance from real rounds at one of them over all prompts; where acceptance
    was replayed those rounds only check it."""
    lengths = spread(candidate.draft_tokens, ROUND_LENGTHS)
    wanted = CHECK_LENGTH if is_replayed(profile, candidate) else MODEL_TRACE_LENGTH
    trace_length = min(lengths, key=lambda length: abs(length - wanted))
    timed = round_requests(profile, candidate, lengths)
    if is_random(profile, candidate):
        return timed
    return [*timed, trace_of(profile, candidate, trace_length, workload_names(profile))]


def match_requests(profile: Profile) -> tuple[Request, ...]:
    """Stage 4: replay over the plain replies of its target, of every n-gram drafter and, where the engine can force the
    text on a draft, of every draft model."""
    return tuple(
        Request(
            action="matches",
            settings=(candidate.setting(min(candidate.draft_tokens)),),
            workloads=workload_names(profile),
            repeats=1,
            expected_seconds=Estimate(profile).replay(candidate),
        )
        for candidate in profile.candidates
        if is_replayed(profile, candidate)
    )


def _ngram_requests(profile: Profile, candidate: Candidate) -> list[Request]:
    """Overhead from real rounds where the drafter offers most; none where the text is noise."""
    if is_random(profile, candidate):
        return []
    lengths = spread(candidate.draft_tokens, NGRAM_TRACE_LENGTHS)
    copying = workload_names(profile, "copying") or workload_names(profile)
    return [trace_of(profile, candidate, length, copying) for length in lengths]


def trace_of(profile: Profile, candidate: Candidate, length: int, workloads: tuple[str, ...]) -> Request:
    return Request(
        action="trace",
        settings=(candidate.setting(length),),
        workloads=workloads,
        repeats=1,
        expected_seconds=Estimate(profile).speculative_pass(candidate, length, workloads),
    )


def workload_names(profile: Profile, workload_class: str = "") -> tuple[str, ...]:
    """Names of the workloads (of one class), in the order of the prompts."""
    prompts = [prompt for prompt in profile.prompts if not workload_class or prompt.workload_class == workload_class]
    return tuple(dict.fromkeys(prompt.workload for prompt in prompts))


@dataclass(frozen=True)
class Estimate:
    """Rough seconds of a request, for the time left; from measured steps where there are any."""

    profile: Profile

    def step(self, label: str, width: int = 1) -> float:
        measured = plain_step_seconds(self.profile, label)
        size = next((model.size_bytes for model in self.profile.models if model.label == label), 0)
        assumed = ASSUMED_BYTES_PER_SECOND["gpu" if self.profile.key.gpu else "cpu"]
        plain = measured if measured is not None else size / assumed + 1e-3
        return plain * (1 + ASSUMED_COST_PER_TOKEN * (width - 1))

    def steps(self, label: str, contexts: Sequence[int], widths: Sequence[int]) -> float:
        once = sum(self.step(label, width) for width in widths)
        prefill = sum(self.step(label, context) for context in contexts)
        return ASSUMED_START_SECONDS + len(contexts) * once * (STEP_REPEATS + 2) + prefill

    def plain_pass(self, target: str, workloads: Sequence[str] = ()) -> float:
        tokens = sum(
            prompt.new_tokens for prompt in self.profile.prompts if not workloads or prompt.workload in workloads
        )
        return tokens * self.step(target)

    def replay(self, candidate: Candidate) -> float:
        """Of an n-gram drafter next to nothing; of a draft model one pass over each reply, a few tokens' worth of steps."""
        passes = len(self.profile.prompts) * self.step(candidate.draft) if candidate.drafter == "model" else 0.0
        return 1.0 + REPLAY_STEPS * passes

    def round(self, candidate: Candidate, length: int) -> float:
        draft = length * self.step(candidate.draft) if candidate.drafter == "model" else 0.0
        return draft + self.step(candidate.target, length + 1)

    def rounds(self, candidate: Candidate, length: int, repeats: int) -> float:
        per_repeat = 12 * self.round(candidate, length)
        return ASSUMED_START_SECONDS + 2 * per_repeat * (repeats + 1)

    def speculative_pass(self, candidate: Candidate, length: int, workloads: Sequence[str]) -> float:
        rounds_per_token = self.round(candidate, length) / self.step(candidate.target) / (1 + length / 2)
        return ASSUMED_START_SECONDS + self.plain_pass(candidate.target, workloads) * rounds_per_token

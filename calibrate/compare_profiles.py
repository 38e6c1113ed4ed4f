"""The numbers of two profiles, side by side, with the noise of each.

Seconds are at each profile's usual speed (its own drift divided out). What all of them have in common is the whole
machine: the median of the sentinel, which is plain decoding of one model all through a profile. It is taken out of the
others, so that a slower clock and a slower kernel are told apart.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import hypot

import numpy as np

from ..model.decision import decide
from ..profiler.records import Profile, Setting
from . import evidence, replies
from .contrast import KNOWN_DF, Estimate, Look, Part, part_estimates, ratio_of, series_estimate
from .evidence import Pair
from .fit import Calibrated, calibrate
from .intervals import MEDIAN_FACTOR
from .replies import WorkloadReplies
from .rounds import NotCalibrated, PairRounds

SESSION_LOG_SD = 0.01
"""Speed of one machine from session to session, beside what the sentinel's wandering shows (a stated prior)."""
BESIDE_LOG_SD = 0.005
"""Passes of one kind over those of another from session to session, beside what repeats show (a stated prior)."""
FEW_PROMPTS_LOG_SD = 0.05
"""Noise of tokens per round that rest on a single reply (a stated prior)."""
LEAST_ACCEPTANCE_LOG_SE = 0.002
LEAST_ROUNDS_A_REPLY = 3
"""Draft lengths that a drafter came upon less often are left out: their noise is not that of the others."""
BOOTSTRAP_DF = 10
"""Degrees of freedom granted to the spread of bootstrap draws over few samples."""
ACCEPTANCE_LENGTH = 4
"""Acceptance is compared as tokens per round at the draft length nearest to this one."""
SECONDS, SPEED = "s", "tokens/s"
PASS_KINDS = {"decode": "plain steps", "batch": "prompt passes", "verify": "verification passes"}


@dataclass(frozen=True)
class Side:
    """One profile, calibrated without resampling its prompts: those of both sides are the same and are paired."""

    profile: Profile
    calibrated: Calibrated

    @staticmethod
    def of(profile: Profile, seed: int) -> "Side":
        return Side(profile, calibrate(profile, seed=seed, resample_prompts=False))


@dataclass(frozen=True)
class Machine:
    """Log seconds B/A of the whole machine; None where neither a sentinel nor plain steps tell it."""

    look: Look | None

    @property
    def log(self) -> float:
        return self.look.ratio.log if self.look else 0.0

    def looks(self, work: Sequence["Work"]) -> Iterator[Look]:
        """Every part of the work as a whole, then each of its numbers."""
        wholes = [part_estimates([getattr(part, side) for part in work]) for side in ("a", "b")]
        for part, *whole in zip(work, *wholes):
            yield self._look("group", part, part.name, *whole)
            for label, *estimates in zip(part.labels, part.a.estimates(), part.b.estimates()):
                yield self._look("number", part, f"{part.name}, {label}", *estimates)

    def _look(self, family: str, part: "Work", name: str, a: Estimate, b: Estimate) -> Look:
        ratio = ratio_of(a, b)
        common = -self.log if part.unit == SPEED else self.log
        return Look(
            family,
            part.group,
            name,
            part.unit,
            float(np.exp(a.log)),
            float(np.exp(b.log)),
            ratio.with_error(SESSION_LOG_SD),
            ratio.shifted(common).with_error(hypot(BESIDE_LOG_SD, part.drift_log_sd)) if self.look else None,
        )


@dataclass(frozen=True)
class Work:
    """A part of the work in both profiles: the same numbers, in the same order.

    `drift_log_sd`: what the drift that was divided out is uncertain by, for all of the part alike.
    """

    group: str
    name: str
    unit: str
    labels: tuple[str, ...]
    a: Part
    b: Part
    drift_log_sd: float = 0.0


def looks(a: Profile, b: Profile) -> tuple[tuple[Look, ...], tuple[str, ...]]:
    """All numbers that both profiles have, causes before what follows from them; and what to say beside them."""
    ours, theirs = Side.of(a, seed=1), Side.of(b, seed=2)
    machine = _machine(ours, theirs)
    work = [*_plain_runs(ours, theirs), *_passes(ours, theirs), *_rounds(ours, theirs), *_reported(a, b)]
    found = [
        *([machine.look] if machine.look else ()),
        *machine.looks(work),
        *_overheads(ours, theirs, machine),
        *_acceptance(ours, theirs),
        *_best_settings(ours, theirs),
    ]
    return tuple(found), tuple(_notes(a, b, machine))


def _notes(a: Profile, b: Profile, machine: Machine) -> Iterator[str]:
    yield (
        f"priors: {SESSION_LOG_SD:.1%} from session to session for the whole machine, {BESIDE_LOG_SD:.1%} for one kind of "
        "pass over another, beside the noise that repeats show"
    )
    if machine.look is None:
        yield "no sentinel in common: a slower machine and a slower part of the work cannot be told apart"
    for name, profile in (("A", a), ("B", b)):
        if not profile.complete:
            yield f"{name} is not complete: only what it has is compared"
    for name, profile, other in (("A", a, b), ("B", b, a)):
        alone = sorted({m.label for m in profile.models} - {m.label for m in other.models})
        if alone:
            yield f"only {name} has {', '.join(alone)}"


# --- costs -----------------------------------------------------------------------------------------------------------


def _machine(a: Side, b: Side) -> Machine:
    series = [side.calibrated.drift for side in (a, b)]
    if a.profile.sentinel_model != b.profile.sentinel_model or not all(drift.at.size for drift in series):
        return Machine(None)
    ours, theirs = (series_estimate(drift.ratio * drift.reference_seconds) for drift in series)
    ratio = ratio_of(ours, theirs).with_error(SESSION_LOG_SD)
    name = f"plain steps of {a.profile.sentinel_model} all through the profile"
    return Machine(
        Look("machine", "whole machine", name, SECONDS, float(np.exp(ours.log)), float(np.exp(theirs.log)), ratio)
    )


def _plain_runs(a: Side, b: Side) -> Iterator[Work]:
    for target in _common(*([c.target for c in side.profile.candidates] for side in (a, b))):
        common = _common(a.calibrated.workloads(), b.calibrated.workloads())
        speeds = [[_plain_speeds(side, target, workload) for workload in common] for side in (a, b)]
        kept = [i for i in range(len(common)) if speeds[0][i].size and speeds[1][i].size]
        if kept:
            parts = [Part(tuple(one[i] for i in kept)) for one in speeds]
            yield Work(
                "plain decoding", f"plain runs of {target}", SPEED, tuple(common[i] for i in kept), parts[0], parts[1]
            )


def _plain_speeds(side: Side, target: str, workload: str) -> np.ndarray:
    """Tokens/s of each repeat at the profile's usual speed."""
    sums: dict[int, np.ndarray] = {}
    for reply in evidence.plain_replies(side.profile, target, workload, side.calibrated.drift):
        sums[reply.repeat] = sums.get(reply.repeat, np.zeros(2)) + (reply.reply_tokens - 1, reply.decode_seconds)
    return np.array([tokens / seconds for tokens, seconds in sums.values() if tokens > 0])


def _passes(a: Side, b: Side) -> Iterator[Work]:
    """Pass seconds by model, role and kind: each width and context of them."""
    ours, theirs = (
        {o.shape: o.seconds for o in evidence.step_observations(side.profile, side.calibrated.drift)} for side in (a, b)
    )
    shapes = [shape for shape in ours if shape in theirs and (shape.kind == "decode" or shape.width > 1)]
    for model, role, kind in dict.fromkeys((s.model, s.role, s.kind) for s in shapes):
        same = [s for s in shapes if (s.model, s.role, s.kind) == (model, role, kind)]
        labels = tuple(f"{'' if kind == 'decode' else f'width {s.width}, '}context {s.context}" for s in same)
        parts = [Part(tuple(side[s] for s in same)) for side in (ours, theirs)]
        doubt = hypot(*(_drift_log_sd(side, model, role, kind) for side in (a, b)))
        yield Work(
            _pass_group(role, kind),
            f"{PASS_KINDS.get(kind, kind)} of {model}",
            SECONDS,
            labels,
            parts[0],
            parts[1],
            doubt,
        )


def _drift_log_sd(side: Side, model: str, role: str, kind: str) -> float:
    """Noise of a sentinel reading over the root of the readings beside these passes: quick passes share few of them."""
    drift, near = side.calibrated.drift, 0
    if drift.at.size < 2:
        return 0.0
    for measurement in side.profile.measurements:
        times = [s.at_seconds for s in measurement.steps if (s.model, s.role, s.kind) == (model, role, kind)]
        if times:
            window = evidence.WINDOW_SECONDS
            near += int(np.sum((drift.at >= min(times) - window) & (drift.at <= max(times) + window)))
    reading = 1.4826 * float(np.median(np.abs(np.diff(np.log(drift.ratio))))) / 2**0.5
    return MEDIAN_FACTOR * reading / max(near, evidence.LEAST_READINGS) ** 0.5


def _pass_group(role: str, kind: str) -> str:
    if role == "draft":
        return "draft"
    return "plain decoding" if kind == "decode" else "verification"


def _rounds(a: Side, b: Side) -> Iterator[Work]:
    """Whole rounds by pair and draft length."""
    for ours, theirs in _common_pairs(a, b):
        lengths = [n for n in _often(ours) if n in _often(theirs)]
        if lengths:
            labels = tuple(f"{length} drafted" for length in lengths)
            parts = [Part(tuple(_round_seconds(pair, n) for n in lengths)) for pair in (ours, theirs)]
            yield Work("rounds", f"rounds of {_pair_name(ours.pair)}", SECONDS, labels, parts[0], parts[1])


def _often(pair: PairRounds) -> list[int]:
    return [o.drafted for o in pair.observations if o.rounds >= LEAST_ROUNDS_A_REPLY * o.seconds.size]


def _round_seconds(pair: PairRounds, drafted: int) -> np.ndarray:
    return next(o.seconds for o in pair.observations if o.drafted == drafted)


def _reported(a: Profile, b: Profile) -> Iterator[Work]:
    """Speeds that others measured, by setting and workload; equal ones are repeats."""
    ours, theirs = _reported_speeds(a), _reported_speeds(b)
    same = [key for key in ours if key in theirs]
    for target in dict.fromkeys(setting.target for setting, _ in same):
        keys = [key for key in same if key[0].target == target]
        labels = tuple(f"{setting_name(setting)}, context {setting.context}, {workload}" for setting, workload in keys)
        parts = [Part(tuple(np.array(side[key]) for key in keys)) for side in (ours, theirs)]
        yield Work("reported", f"reported speeds of {target}", SPEED, labels, parts[0], parts[1])


def _reported_speeds(profile: Profile) -> dict[tuple[Setting, str], list[float]]:
    found: dict[tuple[Setting, str], list[float]] = {}
    for measurement in profile.measurements:
        for row in measurement.reported:
            if row.tokens_per_second is not None:
                found.setdefault((row.setting, row.workload), []).append(row.tokens_per_second)
    return found


def _overheads(a: Side, b: Side, machine: Machine) -> Iterator[Look]:
    """Overhead at the middle fitted length, as what its change makes of a round: it may well be 0, and has no ratio."""
    for ours, theirs in _common_pairs(a, b):
        lengths = sorted(set(ours.fitted_lengths) & set(theirs.fitted_lengths))
        if not lengths:
            continue
        at = lengths[len(lengths) // 2]
        overheads = [pair.overhead.at(np.array([at])).reshape(-1) for pair in (ours, theirs)]
        whole = float(np.median(_round_seconds(ours, at)))
        errors = hypot(*(drawn.std() for drawn in overheads)) / whole
        common = float(np.exp(machine.log))
        raw, equal = ((overheads[1][0] / factor - overheads[0][0]) / whole for factor in (1.0, common))
        yield Look(
            "number",
            "overhead",
            f"overhead of {_pair_name(ours.pair)} at {at} drafted; ratio of the round",
            "s",
            float(overheads[0][0]),
            float(overheads[1][0]),
            Estimate(float(np.log1p(max(raw, -0.9))), errors, BOOTSTRAP_DF).with_error(SESSION_LOG_SD),
            Estimate(float(np.log1p(max(equal, -0.9))), errors, BOOTSTRAP_DF).with_error(BESIDE_LOG_SD),
        )


def _common_pairs(a: Side, b: Side) -> list[tuple[PairRounds, PairRounds]]:
    theirs = {pair.pair: pair for pair in b.calibrated.pairs if pair.observations}
    return [(p, theirs[p.pair]) for p in a.calibrated.pairs if p.observations and p.pair in theirs]


def _pair_name(pair: Pair) -> str:
    return f"{pair.target} x {pair.draft or pair.drafter}"


# --- acceptance ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Replies:
    """Tokens (P,) and rounds (P,) of the same prompts, in one profile; `log_sd`: doubt that prompts do not show."""

    tokens: np.ndarray
    rounds: np.ndarray
    log_sd: float

    @property
    def tokens_per_round(self) -> float:
        return float(self.tokens.sum() / self.rounds.sum())

    @property
    def influence(self) -> np.ndarray:
        """What each prompt does to the log of the ratio of sums (P,)."""
        return self.tokens / self.tokens.sum() - self.rounds / self.rounds.sum()


def _acceptance(a: Side, b: Side) -> Iterator[Look]:
    """Tokens per round by pair over all workloads, then by workload, paired by prompt."""
    for ours, theirs in _drafting(a, b):
        found = {}
        for workload in _common(a.calibrated.workloads(), b.calibrated.workloads()):
            sides = _paired_replies(a, b, ours, theirs, workload)
            if sides:
                found[workload] = sides
        if not found:
            continue
        name = f"tokens per round of {_pair_name(Pair.of(ours))} at {ours.draft_tokens} draft tokens"
        yield _acceptance_look("group", name, *(_joined([s[i] for s in found.values()]) for i in (0, 1)))
        for workload, sides in found.items():
            yield _acceptance_look("number", f"{name} on {workload}", *sides)


def _drafting(a: Side, b: Side) -> Iterator[tuple[Setting, Setting]]:
    """The same pair at the same draft length in both profiles."""
    theirs = {Pair.of(candidate): candidate for candidate in b.profile.candidates}
    for candidate in a.profile.candidates:
        other = theirs.get(Pair.of(candidate))
        lengths = {*candidate.draft_tokens} & {*other.draft_tokens} - {0} if other else set()
        if other and lengths:
            length = min(lengths, key=lambda n: (abs(n - ACCEPTANCE_LENGTH), n))
            yield candidate.setting(length), other.setting(length)


def _paired_replies(
    a: Side, b: Side, ours: Setting, theirs: Setting, workload: str
) -> tuple[_Replies, _Replies] | None:
    """Replies to the prompts that both have; None where the acceptance of one is not known."""
    sides = []
    for side, setting in ((a, ours), (b, theirs)):
        try:
            found = replies.workload_replies(side.profile, setting, workload)
        except NotCalibrated:
            return None
        sides.append((_by_prompt(side.profile, workload, found), found.log_sd))
    common = [text for text in sides[0][0] if text in sides[1][0]]
    if not common:
        return None
    first, second = (_Replies(*np.array([of[text] for text in common], float).T, log_sd=log_sd) for of, log_sd in sides)
    return first, second


def _by_prompt(profile: Profile, workload: str, found: WorkloadReplies) -> dict[str, tuple[float, float]]:
    """(tokens, rounds) by the prompt's text, of replies that have rounds; a shared profile hides what own prompts were."""
    prompts = replies.workload_prompts(profile, workload)
    return {
        prompts[place].text_sha256: (reply.law.tokens, reply.law.rounds)
        for place, reply in zip(found.places, found.replies)
        if reply.law.rounds > 0 and (prompts[place].text_sha256 or not profile.redacted)
    }


def _joined(sides: list[_Replies]) -> _Replies:
    tokens, rounds = (np.concatenate([getattr(side, name) for side in sides]) for name in ("tokens", "rounds"))
    return _Replies(tokens, rounds, max(side.log_sd for side in sides))


def _acceptance_look(family: str, name: str, a: _Replies, b: _Replies) -> Look:
    ours, theirs = a.tokens_per_round, b.tokens_per_round
    return Look(family, "acceptance", name, "tokens/round", ours, theirs, _acceptance_ratio(a, b))


def _acceptance_ratio(a: _Replies, b: _Replies) -> Estimate:
    """Log ratio of two ratios of sums over the same prompts; its error by linearisation, prompts as the unit."""
    n = a.tokens.size
    doubt = hypot(a.log_sd, b.log_sd)
    se = FEW_PROMPTS_LOG_SD if n < 2 else float(np.sqrt(n / (n - 1) * np.sum((b.influence - a.influence) ** 2)))
    log = float(np.log(b.tokens_per_round / a.tokens_per_round))
    return Estimate(log, max(se, LEAST_ACCEPTANCE_LOG_SE), n - 1 if n > 1 else KNOWN_DF).with_error(doubt)


# --- what follows ----------------------------------------------------------------------------------------------------


def _best_settings(a: Side, b: Side) -> Iterator[Look]:
    """The forecast speed of each profile's own best setting."""
    for workload in _common(a.calibrated.workloads(), b.calibrated.workloads()):
        best = [_best(side, workload) for side in (a, b)]
        if not all(best):
            continue
        (ours, first), (theirs, second) = best  # type: ignore[misc]
        names = setting_name(ours) if ours == theirs else f"{setting_name(ours)} in A, {setting_name(theirs)} in B"
        cost = hypot(*(np.log(speeds).std() for speeds in (first, second)))
        sides = _paired_replies(a, b, ours, theirs, workload)
        accepted = _acceptance_ratio(*sides) if sides else Estimate(0.0, FEW_PROMPTS_LOG_SD)
        noise = ratio_of(Estimate(0.0, cost, BOOTSTRAP_DF), accepted).with_error(SESSION_LOG_SD)
        yield Look(
            "number",
            "forecast",
            f"best setting on {workload}: {names}",
            SPEED,
            float(first[0]),
            float(second[0]),
            Estimate(float(np.log(second[0] / first[0])), noise.se, noise.df),
        )


def _best(side: Side, workload: str) -> tuple[Setting, np.ndarray] | None:
    """The setting that would be recommended, and its speeds (1 + replicates,)."""
    arms: dict[Setting, np.ndarray] = {}
    for candidate in side.profile.candidates:
        for length in (0, *candidate.draft_tokens):
            try:
                arms[candidate.setting(length)] = side.calibrated.speeds(candidate.setting(length), workload)
            except NotCalibrated:
                continue
    settings = list(arms)
    if not any(setting.draft_tokens == 0 for setting in settings):
        return None
    lengths = np.array([setting.draft_tokens for setting in settings])
    chosen = settings[decide(np.stack(list(arms.values())), lengths).chosen]
    return chosen, arms[chosen]


def setting_name(setting: Setting) -> str:
    """A setting in a phrase."""
    if setting.draft_tokens == 0:
        return f"{setting.target} plain"
    return f"{setting.target} with {setting.draft or setting.drafter}, {setting.draft_tokens} draft tokens"


def _common(ours, theirs) -> list[str]:
    return [name for name in dict.fromkeys(ours) if name in set(theirs)]

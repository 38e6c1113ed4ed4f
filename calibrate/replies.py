"""Replies from evidence: the round laws of a setting on a workload, and how far plain runs are from plain steps."""

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from ..model import acceptance
from ..model.acceptance import RoundLaw
from ..model.forecast import Reply
from ..model.steps import StepTable
from ..model.survival import extended, survival_from_rounds, tokens_per_round
from ..profiler.records import MatchTrace, Profile, Prompt, PromptRun, Setting
from . import reported
from .evidence import Drift, Pair, RoundCounts, matches_of, plain_replies, prompt_lengths, round_counts
from .intervals import MEDIAN_FACTOR, Noise, pooled_noise
from .rounds import NotCalibrated, StepTables

RANDOM = "random weights: times only, no acceptance"
SHRINK_ROUNDS = 4.0
"""Rounds' weight of the workload's hazard in a single reply's."""
VALIDATION_REPEATS = 5


@dataclass(frozen=True)
class WorkloadReplies:
    """Replies of the prompts of one workload, with the prompts' places in its list."""

    replies: tuple[Reply, ...]
    places: tuple[int, ...]
    source: str
    """plain, matches, rounds (of this draft length), survival (of rounds at other lengths), reported (by others), given."""
    borrowed_from: str = ""
    """Another target whose acceptance serves as prior."""
    log_sd: float = 0.0
    """Doubt of the acceptance that no resampling of replies shows."""
    survival: tuple[float, ...] = ()
    """S_1.. where others reported it; the rounds of replies have it elsewhere."""


def workload_prompts(profile: Profile, workload: str) -> tuple[Prompt, ...]:
    """Its prompts, in order. Raises NotCalibrated."""
    prompts = tuple(p for p in profile.prompts if p.workload == workload)
    if not prompts:
        raise NotCalibrated(f"no prompts of workload {workload} in the profile: it has {workloads(profile)}")
    return prompts


def workloads(profile: Profile) -> tuple[str, ...]:
    """Names of the workloads, in the order of the prompts."""
    return tuple(dict.fromkeys(p.workload for p in profile.prompts))


def workload_replies(
    profile: Profile, setting: Setting, workload: str, given_survival: tuple[float, ...] = ()
) -> WorkloadReplies:
    """The best evidence of acceptance: own matches, own rounds, then the same drafter on another quantization.

    `given_survival` of draft models, from elsewhere, stands above all of it. Raises NotCalibrated where there is none, and
    for models of random weights, which agree by chance alone.
    """
    prompts = workload_prompts(profile, workload)
    if setting.draft_tokens == 0:
        return _plain(profile, prompts, setting.context)
    pair = Pair.of(setting)
    if given_survival and pair.drafter == "model":
        return _given(profile, prompts, setting, np.array(given_survival))
    if is_random(profile, pair):
        name = f"{pair.target} x {pair.draft or pair.drafter}"
        raise NotCalibrated(f"{name}: {RANDOM}; give the survival of a real pair to specgauge predict")
    for owner in (pair, *_relatives(profile, pair)):
        found = _from_evidence(profile, owner, prompts, setting.draft_tokens)
        found = found or _from_reported(profile, owner, workload, setting)
        if found is not None:
            return found if owner == pair else _borrowed(found, owner.target)
    name = f"{pair.target} x {pair.draft or pair.drafter}"
    raise NotCalibrated(f"{name} on {workload}: acceptance was not measured: profile a trace of it")


def known_survival(found: WorkloadReplies, depth: int) -> np.ndarray:
    """S_1..S_depth over all rounds of `found` that drafted something."""
    if found.survival:
        return np.array(found.survival[:depth])
    laws = [reply.law for reply in found.replies]
    drafted, accepted, weight = (
        np.concatenate([getattr(law, n) for law in laws]) for n in ("drafted", "accepted", "weight")
    )
    return survival_from_rounds(drafted, accepted, weight, depth)


def drawn_survival(found: WorkloadReplies, weights: np.ndarray, depth: int) -> np.ndarray:
    """The same (R, depth) with replies counted `weights` (R, P) times; 0 from the first position that no round reached."""
    if found.survival:
        return np.tile(found.survival[:depth], (weights.shape[0], 1))
    tables = [_law_hazard_counts(reply.law, depth) for reply in found.replies]
    tried, passed = (weights @ np.stack(counts) for counts in zip(*tables))
    return np.cumprod(np.divide(passed, tried, out=np.zeros_like(passed), where=tried > 0), axis=1)


def _law_hazard_counts(law: RoundLaw, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Expected rounds (depth,) that reached each position 1..depth, and those that accepted it."""
    position = np.arange(1, depth + 1)[:, None]
    reached = (law.drafted >= position) & (law.accepted >= position - 1)
    return reached @ law.weight, (reached & (law.accepted >= position)) @ law.weight


def _borrowed(found: WorkloadReplies, target: str) -> WorkloadReplies:
    return replace(found, borrowed_from=target)


def _from_reported(profile: Profile, pair: Pair, workload: str, setting: Setting) -> WorkloadReplies | None:
    """One reply without an end, behind the setting's context, with the tokens per round that others reported."""
    ladders = reported.ladders(profile, pair, workload)
    if not ladders:
        return None
    tokens, log_sd = reported.tokens_at(ladders, setting.draft_tokens, setting.context)
    reply = Reply(setting.context, reported.full_drafts(setting.draft_tokens, tokens))
    survival = reported.survival_at(ladders, setting.draft_tokens, setting.context)
    return WorkloadReplies((reply,), (0,), "reported", log_sd=log_sd, survival=tuple(float(s) for s in survival))


def _plain(profile: Profile, prompts: tuple[Prompt, ...], context: int) -> WorkloadReplies:
    lengths = prompt_lengths(profile)
    usual = int(np.median(list(lengths.values()))) if lengths else context
    replies = tuple(Reply(lengths.get(p.id, usual), acceptance.plain_law(max(p.new_tokens - 1, 1))) for p in prompts)
    return WorkloadReplies(replies, tuple(range(len(prompts))), "plain")


def is_random(profile: Profile, pair: Pair) -> bool:
    """Whether one of a pair's models has random weights."""
    return any(m.random for m in profile.models if m.label in (pair.target, pair.draft))


def _given(profile: Profile, prompts: tuple[Prompt, ...], setting: Setting, survival: np.ndarray) -> WorkloadReplies:
    """The profile's replies, in which a draft fares as `survival` (J,) says; one without an end where others reported them."""
    if reported.speaks_of(profile):
        tokens = tokens_per_round(extended(survival, setting.draft_tokens))
        reply = Reply(setting.context, reported.full_drafts(setting.draft_tokens, tokens))
        return WorkloadReplies((reply,), (0,), "given", survival=tuple(extended(survival, setting.draft_tokens)))
    plain = _plain(profile, prompts, setting.context)
    laws = [
        acceptance.replay_survival(survival, round(reply.law.tokens), setting.draft_tokens) for reply in plain.replies
    ]
    replies = tuple(replace(reply, law=law) for reply, law in zip(plain.replies, laws))
    return replace(plain, replies=replies, source="given")


def _relatives(profile: Profile, pair: Pair) -> list[Pair]:
    """The same drafter on other targets of the profile, of real weights."""
    others = dict.fromkeys(m.label for m in profile.models if m.label != pair.target and not m.random)
    return [replace(pair, target=target) for target in others]


def _from_evidence(
    profile: Profile, pair: Pair, prompts: tuple[Prompt, ...], draft_tokens: int
) -> WorkloadReplies | None:
    matches = matches_of(profile, pair)
    traced = [(place, trace) for place, p in enumerate(prompts) for trace in matches.get(p.id, ())]
    if traced:
        places = [place for place, _ in traced]
        laws = match_laws([trace for _, trace in traced], draft_tokens)
        # Several replies to one prompt are together what one reply of another prompt is: their mean.
        laws = [acceptance.scaled(law, 1 / places.count(place)) for place, law in zip(places, laws)]
        replies = tuple(Reply(trace.prompt_tokens, law) for (_, trace), law in zip(traced, laws))
        return WorkloadReplies(replies, tuple(places), "matches")
    return _from_rounds(profile, pair, prompts, draft_tokens)


def match_laws(traces: list[MatchTrace], draft_tokens: int) -> list[RoundLaw]:
    """The rounds of each reply at this draft length, replayed: from flags, or expected ones from weights."""
    if traces[0].drafter == "ngram":
        return [
            acceptance.replay_ngram(np.array(t.offer), np.array(t.run), t.prompt_tokens, t.ngram_size, draft_tokens)
            for t in traces
        ]
    known = acceptance.impute([np.array(t.match, int) for t in traces])
    flags = [np.array(trace.weight) if trace.weight else match for trace, match in zip(traces, known)]
    return [acceptance.replay_matches(match, draft_tokens) for match in flags]


def _from_rounds(
    profile: Profile, pair: Pair, prompts: tuple[Prompt, ...], draft_tokens: int
) -> WorkloadReplies | None:
    """Real rounds: of this length as they are; of other lengths by survival (not for n-gram, whose offers differ)."""
    same = _by_place(round_counts(profile, pair, draft_tokens), prompts)
    if same:
        laws = [acceptance.law_from_rounds(r.drafted, r.accepted) for r in same.values()]
        return _collected(same, laws, "rounds")
    other = _by_place(round_counts(profile, pair), prompts) if pair.drafter != "ngram" else {}
    if not other:
        return None
    return _collected(other, _survival_laws(list(other.values()), draft_tokens), "survival")


def _by_place(counts: tuple[RoundCounts, ...], prompts: tuple[Prompt, ...]) -> dict[int, RoundCounts]:
    last = {r.prompt.id: r for r in counts}
    return {place: last[p.id] for place, p in enumerate(prompts) if p.id in last}


def _collected(rounds: dict[int, RoundCounts], laws: list[RoundLaw], source: str) -> WorkloadReplies:
    replies = tuple(Reply(r.prompt_tokens, law) for r, law in zip(rounds.values(), laws))
    return WorkloadReplies(replies, tuple(rounds), source)


def _survival_laws(counts: list[RoundCounts], draft_tokens: int) -> list[RoundLaw]:
    """Each reply's hazards by depth, drawn to those of all replies together."""
    depth = max(max(r.drafted) for r in counts)
    tables = [_hazard_counts(r, depth) for r in counts]
    risk, taken = np.sum([t[0] for t in tables], axis=0), np.sum([t[1] for t in tables], axis=0)
    reached = int(np.count_nonzero(risk))
    common = taken[:reached] / risk[:reached]
    return [
        acceptance.replay_survival(
            np.cumprod((t[1][:reached] + SHRINK_ROUNDS * common) / (t[0][:reached] + SHRINK_ROUNDS)),
            max(r.reply_tokens - 1, 0),
            draft_tokens,
        )
        for r, t in zip(counts, tables)
    ]


def _hazard_counts(rounds: RoundCounts, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Rounds that reached each position 1..depth, and those that accepted it."""
    drafted, accepted = np.array(rounds.drafted)[:, None], np.array(rounds.accepted)[:, None]
    position = np.arange(1, depth + 1)
    reached = (drafted >= position) & (accepted >= position - 1)
    return reached.sum(axis=0), (reached & (accepted >= position)).sum(axis=0)


def run_over_step(profile: Profile, target: str, workload: str | None, table: StepTable, drift: Drift) -> np.ndarray:
    """By repeat: decode seconds of plain runs over those of plain steps at the same contexts; empty without runs."""
    sums: dict[tuple[str, int], np.ndarray] = defaultdict(lambda: np.zeros(2))
    for reply in plain_replies(profile, target, workload, drift):
        steps = reply.reply_tokens - 1
        context = np.array([reply.prompt_tokens + (steps - 1) / 2])
        step = table.lookup(np.array([1]), context).seconds
        modelled = steps * float(step[(0,) * (step.ndim - 1)][0])
        sums[reply.prompt.workload, reply.repeat] += (reply.decode_seconds, modelled)
    return np.array([measured / modelled for measured, modelled in sums.values() if modelled > 0])


def run_noise(profile: Profile, tables: StepTables, drift: Drift) -> Noise:
    """Noise of run_over_step between repeats, pooled over targets and workloads."""
    known = {c.target: tables.of(c.target, "target") for c in profile.candidates}
    return pooled_noise(
        run_over_step(profile, target, workload, table, drift)
        for target, table in known.items()
        if table is not None
        for workload in workloads(profile)
    )


def run_context(profile: Profile, target: str, workload: str | None) -> float:
    """Mean cached tokens of the steps of plain runs."""
    runs = [
        (r.reply_tokens - 1, r.prompt_tokens) for r in plain_replies(profile, target, workload) if r.reply_tokens > 1
    ]
    steps, prompts = np.array(runs, float).T
    return float(np.average(prompts + (steps - 1) / 2, weights=steps))


def session_log_sd(profile: Profile, drift: Drift, least: float) -> float:
    """Noise of a validation session: sd of a median over five repeats of a speed divided by its session's plain speed.

    From the repeats of plain runs; what all targets of a repeat have in common is drift and is taken out where it can be.
    """
    arms: dict[tuple[str, str], dict[int, float]] = {}
    for target in dict.fromkeys(c.target for c in profile.candidates):
        for workload in workloads(profile):
            arms[target, workload] = _log_speeds(plain_replies(profile, target, workload, drift))
    noise = [_spread([logs for (_, w), logs in arms.items() if w == workload]) for workload in workloads(profile)]
    known = [value for value in noise if value is not None]
    sd = float(np.median(known)) if known else 0.0
    return max(sd * MEDIAN_FACTOR * (2 / VALIDATION_REPEATS) ** 0.5, least)


def _log_speeds(replies: tuple[PromptRun, ...]) -> dict[int, float]:
    sums: dict[int, np.ndarray] = defaultdict(lambda: np.zeros(2))
    for reply in replies:
        sums[reply.repeat] += (reply.reply_tokens - 1, reply.decode_seconds)
    return {repeat: float(np.log(tokens / seconds)) for repeat, (tokens, seconds) in sums.items() if tokens > 0}


def _spread(arms: list[dict[int, float]]) -> float | None:
    """Robust sd between repeats within arms; the mean of all arms of a repeat taken out where there are two or more."""
    arms = [arm for arm in arms if len(arm) > 1]
    common = sorted(set.intersection(*(set(arm) for arm in arms))) if arms else []
    if len(common) < 2:
        return None
    logs = np.array([[arm[repeat] for repeat in common] for arm in arms])
    logs = logs - np.median(logs, axis=1, keepdims=True)
    if len(arms) > 1:
        logs = (logs - logs.mean(axis=0)) * np.sqrt(len(arms) / (len(arms) - 1))
    return float(1.4826 * np.median(np.abs(logs)))

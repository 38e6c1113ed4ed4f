"""Acceptance checks: a replayed acceptance beside the real rounds of the same drafter over the same prompts.

The replay is what forecasts rest on; rounds cost a run and are few. Where the two differ by more than their noise, the replay
is missing something: a verification that rounds differently from plain decoding, a drafter that does not see what was replayed.
"""

from collections.abc import Iterator, Mapping

from ..model.acceptance import RoundLaw, scaled
from ..profiler.records import MatchTrace, Profile, Setting
from . import replies
from .evidence import Pair, matches_of, round_counts
from .records import AcceptanceCheck


def acceptance_checks(profile: Profile) -> tuple[AcceptanceCheck, ...]:
    """One for each pair, workload and draft length of which there are both."""
    settings = dict.fromkeys(trace.setting for m in profile.measurements for trace in m.traces)
    return tuple(
        check
        for setting in settings
        for workload in replies.workloads(profile)
        for check in _of(profile, setting, workload)
    )


def _of(profile: Profile, setting: Setting, workload: str) -> Iterator[AcceptanceCheck]:
    pair = Pair.of(setting)
    replayed = {id: traces for id, traces in matches_of(profile, pair).items() if traces[0].source != "rounds"}
    counts = round_counts(profile, pair, setting.draft_tokens)
    real = [r for r in counts if r.prompt.workload == workload and r.prompt.id in replayed]
    rounds = sum(len(r.drafted) for r in real)
    if not rounds or replies.is_random(profile, pair):
        return
    laws = _laws(replayed, {r.prompt.id for r in real}, setting.draft_tokens)
    yield AcceptanceCheck(
        target=pair.target,
        drafter=pair.drafter,
        draft=pair.draft,
        workload=workload,
        draft_tokens=setting.draft_tokens,
        replayed_tokens_per_round=sum(law.tokens for law in laws) / sum(law.rounds for law in laws),
        measured_tokens_per_round=sum(r.reply_tokens - 1 for r in real) / rounds,
        rounds=rounds,
    )


def _laws(replayed: Mapping[str, tuple[MatchTrace, ...]], prompts: set[str], draft_tokens: int) -> list[RoundLaw]:
    """One reply's worth of rounds for each prompt."""
    traces = [trace for prompt in sorted(prompts) for trace in replayed[prompt]]
    laws = replies.match_laws(traces, draft_tokens)
    return [scaled(law, 1 / len(replayed[trace.prompt.id])) for trace, law in zip(traces, laws)]

"""Acceptance checks: a replayed acceptance beside the real rounds of the same drafter over the same prompts.

The replay is what forecasts rest on; rounds cost a run and are few. Where the two differ by more than their noise, the replay
is missing something: a verification that rounds differently from plain decoding, a drafter that does not see what was replayed.
"""

from collections.abc import Iterator

from ..profiler.records import Profile, Setting
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
    replayed = {id: trace for id, trace in matches_of(profile, pair).items() if trace.source != "rounds"}
    real = {r.prompt.id: r for r in round_counts(profile, pair, setting.draft_tokens) if r.prompt.workload == workload}
    both = [id for id in real if id in replayed]
    rounds = sum(len(real[id].drafted) for id in both)
    if not rounds:
        return
    laws = replies.match_laws([replayed[id] for id in both], setting.draft_tokens)
    yield AcceptanceCheck(
        target=pair.target,
        drafter=pair.drafter,
        draft=pair.draft,
        workload=workload,
        draft_tokens=setting.draft_tokens,
        replayed_tokens_per_round=sum(law.tokens for law in laws) / sum(law.rounds for law in laws),
        measured_tokens_per_round=sum(real[id].reply_tokens - 1 for id in both) / rounds,
        rounds=rounds,
    )

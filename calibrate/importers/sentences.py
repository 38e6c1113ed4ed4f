"""What evidence serves, in sentences for the user."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ...profiler.records import ReportedAcceptance, ReportedRow, Setting, StepSample
from .source import listed

ROUND_NEEDS = "speeds and tokens per round at two draft lengths or more"


def of_rows(rows: Sequence[ReportedRow]) -> tuple[str, ...]:
    """One sentence a target and drafter."""
    plain = {_target(row.setting) for row in rows if _plain_speed(row)}
    groups: dict[tuple[str, str], list[ReportedRow]] = defaultdict(list)
    for row in rows:
        if row.setting.draft_tokens:
            groups[_target(row.setting), _drafter(row.setting)].append(row)
    alone = plain - {target for target, _ in groups}
    sentences = [f"{target}: plain speed; no drafter: {ROUND_NEEDS} are missing" for target in sorted(alone)]
    return (*sentences, *(_of_group(target, drafter, found, plain) for (target, drafter), found in groups.items()))


def of_acceptance(rows: Sequence[ReportedRow]) -> tuple[str, ...]:
    """One sentence a target and drafter, of rows whose speeds are another machine's."""
    groups: dict[tuple[str, str], set[int]] = defaultdict(set)
    for row in rows:
        groups[_target(row.setting), _drafter(row.setting)].add(row.setting.draft_tokens)
    return tuple(
        f"{target} with {drafter}: acceptance at {listed(lengths)} draft tokens, no speeds"
        for (target, drafter), lengths in groups.items()
    )


def _of_group(target: str, drafter: str, rows: Sequence[ReportedRow], plain: set[str]) -> str:
    timed = {r.setting.draft_tokens for r in rows if r.tokens_per_second and r.tokens_per_round}
    fast = {r.setting.draft_tokens for r in rows if r.tokens_per_second} - timed
    told = {r.setting.draft_tokens for r in rows if r.tokens_per_round} - timed
    contexts = {row.setting.context for row in rows}
    has = [
        *(["baseline"] if target in plain else []),
        *([f"rounds at {listed(timed)} draft tokens"] if timed else []),
        *([f"speeds without acceptance at {listed(fast)} draft tokens"] if fast else []),
        *([f"acceptance without speeds at {listed(told)} draft tokens"] if told else []),
        *([f"contexts {listed(contexts)}"] if len(contexts) > 1 else []),
    ]
    return f"{target} with {drafter}: {', '.join(has)}: {_serves(timed, told, target in plain)}"


def _serves(timed: set[int], told: set[int], plain: bool) -> str:
    if not plain:
        return "no plain speed: what speculation gains cannot be said; add the baseline"
    if len(timed) > 1:
        return f"every length to {max(timed)} can be forecast, longer ones are priors"
    if timed:
        length = next(iter(timed))
        return f"{length} draft tokens can be forecast; other lengths need rows at a second length"
    if told:
        return "no round times: passes of a llama-bench file (-p 2,3,5,9), or speeds, are missing"
    return "no acceptance: tokens per round are missing, so that no other length can be forecast"


def of_counters(counters: Iterable[ReportedAcceptance]) -> tuple[str, ...]:
    """One sentence for each set of counters."""
    return tuple(
        f"{_target(seen.setting)} with {_drafter(seen.setting)}: acceptance of {seen.accepted} of {seen.drafted} drafted "
        f"tokens over {seen.drafts} drafts"
        + (
            f", position by position to {len(seen.accepted_by_position)}"
            if seen.accepted_by_position
            else "; not by position, so that only this draft length is known"
        )
        for seen in counters
    )


def of_steps(steps: Sequence[StepSample], wide: str) -> tuple[str, ...]:
    """One sentence a model. `wide` names what its wide passes lack as verifications."""
    return tuple(
        _of_model(model, [s for s in steps if s.model == model], wide)
        for model in dict.fromkeys(s.model for s in steps)
    )


def _of_model(model: str, steps: Sequence[StepSample], wide: str) -> str:
    decode, widths = {s.context for s in steps if s.kind == "decode"}, {s.width for s in steps if s.width > 1}
    has = [
        *([f"plain steps at contexts of {listed(decode)} tokens"] if decode else []),
        *([f"passes of {listed(widths)} tokens"] if widths else []),
    ]
    lacks = [
        *([] if decode else ["no plain steps (llama-bench -n 128)"]),
        *([] if widths else ["no passes of 2 tokens and more (llama-bench -p 2,3,5,9)"]),
        "no acceptance (a CSV, a server log, or --acceptance)",
    ]
    serves = f"verification of up to {max(widths) - 1} draft tokens ({wide})" if widths else "plain decoding"
    return f"{model}: {', '.join(has)}: {serves}; {', '.join(lacks)}"


def _plain_speed(row: ReportedRow) -> bool:
    return bool(row.baseline_tokens_per_second or (row.setting.draft_tokens == 0 and row.tokens_per_second))


def _target(setting: Setting) -> str:
    return f"{setting.target} {setting.target_quant}".strip()


def _drafter(setting: Setting) -> str:
    return f"{setting.drafter} ({setting.draft})" if setting.draft else setting.drafter

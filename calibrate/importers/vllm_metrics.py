"""vLLM's /metrics as text: counters before and after a workload.

tokens per round = 1 + accepted / drafts       speed = (tokens - replies) / seconds of decoding, of one request
"""

import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ...profiler.files import shown
from ...profiler.records import Key, ReportedAcceptance, ReportedRow, Setting
from . import sentences
from .base import Given, Imported
from .names import drafter_kind, weights_name
from .rows import LONGEST_DRAFT, REPORTED
from .source import MOST_SPEED, Fields, Source, agree

FORMAT = "vLLM metrics"
LINE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?", re.ASCII)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
DRAFTS, DRAFTED, ACCEPTED = (f"vllm:spec_decode_num_{what}" for what in ("drafts", "draft_tokens", "accepted_tokens"))
BY_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos"
DECODE, TOKENS = "vllm:request_decode_time_seconds", "vllm:request_generation_tokens"
GAPS = ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")
"""Seconds between two pieces of a reply, that is of a round; newer and older name."""
WANTED = (DRAFTS, DRAFTED, ACCEPTED, BY_POSITION, DECODE, TOKENS, *GAPS)
LARGEST_COUNT = 1e15

Series = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True)
class Snapshot:
    """Counters at one time, by name (endings _total cut) and labels."""

    source: Source
    values: Mapping[Series, float]


@dataclass(frozen=True)
class Growth:
    """What counters grew by between two snapshots."""

    where: Fields
    values: Mapping[Series, float]

    def of(self, name: str) -> float:
        """Over all engines of the server; 0 where there is no such counter."""
        return math.fsum(value for (series, _), value in self.values.items() if series == name)

    def by_position(self) -> tuple[int, ...]:
        found: dict[int, float] = {}
        for (series, labels), value in self.values.items():
            position = dict(labels).get("position", "")
            if series == BY_POSITION and position.isdecimal() and len(position) < 4:
                found[int(position)] = found.get(int(position), 0.0) + value
        return tuple(round(found[at]) for at in sorted(found))


def is_metrics(text: str) -> bool:
    """Whether a text is of this format."""
    return re.search(r"^(?:# (?:HELP|TYPE) )?vllm:\w", text, re.MULTILINE) is not None


def read_metrics(sources: Sequence[Source], given: Given) -> list[Imported]:
    """Evidence of each two snapshots, in their order: two files, or two snapshots in one. Raises InputError."""
    snapshots = [snapshot for source in sources for snapshot in _snapshots(source)]
    if len(snapshots) % 2:
        sources[-1].refuse(
            f"{len(snapshots)} snapshot{'s' if len(snapshots) > 1 else ''} of vLLM's counters: give two around each "
            "workload, before and after, in two files or one"
        )
    return [_read(before, after, given) for before, after in list(pairwise(snapshots))[::2]]


def _snapshots(source: Source) -> Iterator[Snapshot]:
    """A counter that stands there again begins the next snapshot."""
    values: dict[Series, float] = {}
    seen: set[Series] = set()
    for at, line in source.lines():
        if line.startswith("#"):
            continue
        series, value = _line(source, at, line.strip())
        if series in seen:
            yield Snapshot(source, values)
            values, seen = {}, set()
        seen.add(series)
        name = series[0].removesuffix("_total")
        if name.removesuffix("_sum").removesuffix("_count") in WANTED:
            values[name, series[1]] = Fields(f"{shown(source.name)}, line {at}", {}).checked(
                name, value, 0, LARGEST_COUNT
            )
    yield Snapshot(source, values)


def _line(source: Source, at: int, line: str) -> tuple[Series, str]:
    found = LINE.fullmatch(line)
    if not found:
        source.refuse(f"line {at} is no counter; the text is cut or damaged, take it anew")
    return (found[1], tuple(sorted(LABEL.findall(found[2] or "")))), found[3]


def _read(before: Snapshot, after: Snapshot, given: Given) -> Imported:
    names = dict.fromkeys((before.source.name, after.source.name))
    growth = _growth(" + ".join(names), before, after)
    setting, warnings = _setting(after, growth, given)
    acceptance = _acceptance(growth, setting, given)
    speed, how = _speed(growth, acceptance)
    rows = _rows(growth, setting, given, speed, acceptance)
    if not rows and not acceptance:
        growth.where.refuse("nothing was decoded between the snapshots; take them around a workload")
    return Imported(
        source=" + ".join(names),
        format=FORMAT,
        key=Key(gpu=given.gpu, engine="vLLM"),
        reported=rows,
        acceptance=acceptance,
        learned=(*sentences.of_rows(rows), *sentences.of_counters(acceptance), *([how] if how else [])),
        warnings=(*warnings, *_beside(growth, speed), *after.source.end_warnings()),
        digest=hashlib.sha256(f"{before.source.digest}{after.source.digest}".encode()).hexdigest(),
    )


def _growth(name: str, before: Snapshot, after: Snapshot) -> Growth:
    where = Fields(shown(name), {})
    gone = before.values.keys() - after.values.keys()
    if gone:
        where.refuse(f"{min(gone)[0]} is in the first snapshot and not in the second; the text is cut or damaged")
    grown = {series: value - before.values.get(series, 0.0) for series, value in after.values.items()}
    falling = [series for series, value in grown.items() if value < 0]
    if falling:
        where.refuse(
            f"{falling[0][0]} falls between the snapshots: the server was restarted, or the order is wrong; give the "
            "earlier one first"
        )
    return Growth(where, grown)


def _setting(after: Snapshot, growth: Growth, given: Given) -> tuple[Setting, list[str]]:
    models = {dict(labels).get("model_name", "") for _, labels in after.values} - {""}
    if len(models) > 1:
        growth.where.refuse(f"counters of {len(models)} models; give those of one")
    name, quant = weights_name(next(iter(models), ""))
    target, target_quant = given.target or name or "target", given.target_quant or quant
    drafts, drafted = growth.of(DRAFTS), growth.of(DRAFTED)
    if not drafts:
        return Setting(target=target, target_quant=target_quant, context=0), []
    kind = drafter_kind(given.drafter) if given.drafter else "model"
    spelled = given.drafter if given.drafter not in ("", kind) else ""
    warnings = (
        [] if given.drafter else [f"{after.source.name}: does not say what drafts: taken as a draft model; --drafter"]
    )
    setting = Setting(
        target=target,
        target_quant=target_quant,
        drafter=kind or "model",
        draft=given.draft or spelled,
        draft_quant=given.draft_quant,
        draft_tokens=_draft_tokens(growth, drafted / drafts, given),
        context=0,
    )
    return setting, warnings


def _draft_tokens(growth: Growth, mean: float, given: Given) -> int:
    length = given.draft_tokens or max(len(growth.by_position()), round(mean), 1)
    if mean > length * 1.05:
        growth.where.refuse(f"{mean:.2f} tokens a draft are more than --draft-tokens {length}; give the right one")
    if not 1 <= length <= LONGEST_DRAFT:
        growth.where.refuse(f"{mean:.1f} tokens a draft: between 1 and {LONGEST_DRAFT} are read")
    return length


def _acceptance(growth: Growth, setting: Setting, given: Given) -> tuple[ReportedAcceptance, ...]:
    drafts, drafted, accepted = (round(growth.of(name)) for name in (DRAFTS, DRAFTED, ACCEPTED))
    if not drafts:
        return ()
    positions = growth.by_position()
    if positions:
        agree(growth.where, "accepted tokens and their sum by position", accepted + 1, sum(positions) + 1, 0.01)
    try:
        return (
            ReportedAcceptance(
                setting=setting,
                workload=given.workload or REPORTED,
                drafts=drafts,
                drafted=drafted,
                accepted=accepted,
                accepted_by_position=positions[: setting.draft_tokens],
                source=growth.where.where,
            ),
        )
    except ValueError as error:
        growth.where.refuse(f"{error}; the text is damaged, take it anew")


def _speed(growth: Growth, acceptance: tuple[ReportedAcceptance, ...]) -> tuple[float | None, str]:
    """Tokens per second of one request, from its decoding or from the gaps between rounds; and how it was found."""
    seconds, tokens, replies = (growth.of(name) for name in (f"{DECODE}_sum", f"{TOKENS}_sum", f"{DECODE}_count"))
    per_round = 1 + acceptance[0].accepted / acceptance[0].drafts if acceptance else 1.0
    if seconds > 0 and tokens > replies:
        return _possible(growth, (tokens - replies) / seconds), f"{replies:.0f} requests of {tokens:.0f} tokens"
    for name in GAPS:
        total, count = growth.of(f"{name}_sum"), growth.of(f"{name}_count")
        if total > 0 and count > 0:
            return _possible(growth, per_round * count / total), f"speed from {count:.0f} gaps between rounds"
    return None, ""


def _possible(growth: Growth, speed: float) -> float:
    if speed > MOST_SPEED:
        growth.where.refuse(f"{speed:.3g} tokens/s cannot be; the counters are damaged or of other units")
    return speed


def _rows(
    growth: Growth, setting: Setting, given: Given, speed: float | None, acceptance: tuple[ReportedAcceptance, ...]
) -> tuple[ReportedRow, ...]:
    if speed is None:
        return ()
    counted = acceptance[0] if acceptance else None
    try:
        return (
            ReportedRow(
                setting=setting,
                workload=given.workload or REPORTED,
                baseline_tokens_per_second=given.baseline_tokens_per_second if counted else speed,
                tokens_per_second=speed,
                tokens_per_round=1 + counted.accepted / counted.drafts if counted else None,
                rounds=counted.drafts if counted else None,
                source=growth.where.where,
            ),
        )
    except ValueError as error:
        growth.where.refuse(f"{error}; give --draft-tokens as the server had them")


def _beside(growth: Growth, speed: float | None) -> list[str]:
    name = growth.where.where
    if speed is None:
        return [f"{name}: no times of decoding: acceptance only"]
    return [f"{name}: vLLM does not say how many requests ran side by side: the speed is one request's, taken as alone"]

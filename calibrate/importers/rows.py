"""The CSV of docs/design.md, section 7: one run a row, unknown cells empty."""

import csv
import io
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from ...model.reported import tokens_from_acceptance_rate
from ...profiler.errors import InputError
from ...profiler.files import shown
from ...profiler.records import Key, ReportedRow, Sampling, Setting
from . import sentences
from .base import Given, Imported
from .keys import merged_key
from .names import KINDS, drafter_kind, engine_name
from .source import MOST_SPEED, MOST_TOKENS, Fields, Source

FORMAT = "CSV"
COLUMNS = (
    "gpu",
    "engine",
    "target",
    "target_quant",
    "drafter",
    "draft_tokens",
    "p_min",
    "context",
    "streams",
    "temperature",
    "baseline_tps",
    "spec_tps",
    "acceptance_rate",
    "tokens_per_round",
)
OPTIONAL = (
    "draft",
    "draft_quant",
    "workload",
    "kv_type",
    "power_limit_w",
    "engine_build",
    "repeats",
    "rounds",
    "spec_tps_sd",
    "top_p",
    "top_k",
    "draft_sampling",
)
SPEAKING = ("baseline_tps", "spec_tps", "acceptance_rate", "tokens_per_round")
"""A row has one of these, or it says nothing."""
MOST_CSV_BYTES, MOST_ROWS, MOST_COLUMNS = 16 * 2**20, 100_000, 200
LONGEST_DRAFT = 64
IMPOSSIBLE_SPEED_UP = 1.1
"""A round costs a plain step at least: no speed-up is above the tokens per round, but for the noise of two runs."""
REPORTED = "reported"


@dataclass(frozen=True)
class Row:
    """A row as read; `doubts` by kind, to be told once for all rows."""

    where: str
    key: Key
    row: ReportedRow
    sampling: Sampling
    doubts: tuple[tuple[str, str], ...]


def is_rows(header: str) -> bool:
    """Whether a first line is a header of this format."""
    names = {cell.strip().strip('"').lower() for cell in header.split(",")[: MOST_COLUMNS + 1]}
    return len(names & {*COLUMNS, *OPTIONAL}) >= 3


def read_rows(source: Source, given: Given) -> Imported:
    """Evidence of a CSV. Raises InputError."""
    if len(source.text.encode()) > MOST_CSV_BYTES:
        source.refuse(f"has more than {MOST_CSV_BYTES // 2**20} MiB; give the rows that matter")
    lines = read_csv(source)
    warnings = _columns(source, tuple(lines[0].values), given)
    rows = [_row(fields, source, given) for fields in lines]
    key, near = merged_key((row.where, row.key) for row in rows)
    reported = tuple(row.row for row in rows)
    samplings = dict.fromkeys(row.sampling for row in rows)
    return Imported(
        source=source.name,
        format=FORMAT,
        key=key,
        reported=reported,
        learned=(*sentences.of_rows(reported), *_repeats(reported)),
        warnings=(
            *warnings,
            *_doubts(source, rows),
            *near,
            *_samplings(source, len(samplings)),
            *source.end_warnings(),
        ),
        sampling=next(iter(samplings)) if len(samplings) == 1 else None,
        digest=source.digest,
    )


def read_csv(source: Source) -> list[Fields]:
    """The rows under a header, sizes and columns checked. Raises InputError."""
    return list(_read_csv(source))


def _read_csv(source: Source) -> Iterator[Fields]:
    reader = csv.reader(io.StringIO(source.text, newline=""), strict=True)
    name, count = shown(source.name), 0
    try:
        header = tuple(cell.strip().lower() for cell in next(reader))
        _check_header(source, header)
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            count += 1
            where = f"{name}, line {reader.line_num}"
            if len(cells) != len(header):
                raise InputError(f"{where}: {len(cells)} cells under {len(header)} columns; the file is cut or damaged")
            if count > MOST_ROWS:
                raise InputError(f"{where}: more than {MOST_ROWS} rows; give the rows that matter")
            yield Fields(where, dict(zip(header, (cell.strip() for cell in cells), strict=True)))
    except csv.Error as error:
        raise InputError(f"{name}, line {reader.line_num}: no CSV ({error}); write it anew") from None
    if not count:
        source.refuse("has a header and no rows; give a file with rows")


def _check_header(source: Source, header: tuple[str, ...]) -> None:
    if len(header) > MOST_COLUMNS:
        source.refuse(f"has {len(header)} columns, more than {MOST_COLUMNS}; give a CSV of the import format")
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        source.refuse(f"column {twice[0] or '(without a name)'} stands twice; leave one of them")


def _columns(source: Source, header: tuple[str, ...], given: Given) -> list[str]:
    """Warnings for columns that are unknown or not there; both at once is a misspelt header."""
    unknown = [shown(name) or "(without a name)" for name in header if name not in {*COLUMNS, *OPTIONAL}]
    missing = [name for name in COLUMNS if name not in header]
    if unknown and missing:
        source.refuse(
            f"column {missing[0]} is missing and {unknown[0]} is unknown; name columns as docs/design.md does"
        )
    if "draft_tokens" in missing and given.draft_tokens is None:
        source.refuse("column draft_tokens is missing; add it or give --draft-tokens")
    return [
        *([f"{source.name}: unknown columns left out: {', '.join(unknown)}"] if unknown else []),
        *([f"{source.name}: columns not there, taken as unknown: {', '.join(missing)}"] if missing else []),
    ]


def _row(fields: Fields, source: Source, given: Given) -> Row:
    if not any(fields.has(name) for name in SPEAKING):
        fields.refuse(f"none of {', '.join(SPEAKING)} is given; leave the row out")
    setting = _setting(fields, given)
    baseline = fields.above_0_or("baseline_tps", MOST_SPEED) or given.baseline_tokens_per_second
    speed = fields.above_0_or("spec_tps", MOST_SPEED)
    tokens, doubts = _tokens_per_round(fields, setting)
    if not setting.draft_tokens:
        baseline, speed = baseline or speed, speed or baseline
    _check_speed_up(fields, setting, baseline, speed, tokens)
    try:
        row = ReportedRow(
            setting=setting,
            workload=fields.text("workload") or given.workload or REPORTED,
            baseline_tokens_per_second=baseline,
            tokens_per_second=speed,
            tokens_per_round=tokens,
            temperature=fields.number_or("temperature", 0, 10),
            repeats=fields.whole_or("repeats", 1, MOST_TOKENS),
            rounds=fields.whole_or("rounds", 1, MOST_TOKENS),
            tokens_per_second_sd=fields.number_or("spec_tps_sd", 0, (speed or MOST_SPEED) / 2),
            source=source.name,
        )
    except ValueError as error:
        fields.refuse(f"{error}; check the row")
    return Row(fields.where, _key(fields, given), row, _sampling(fields), doubts)


def _setting(fields: Fields, given: Given) -> Setting:
    draft_tokens = fields.whole_or("draft_tokens", 0, LONGEST_DRAFT)
    spelled = fields.text("drafter") or ("" if draft_tokens == 0 else given.drafter)
    drafter = drafter_kind(spelled)
    if drafter is None:
        fields.refuse(f"drafter {shown(spelled)} is unknown; use one of {KINDS}")
    draft_tokens = _draft_tokens(fields, drafter, draft_tokens, given)
    k, _, v = fields.text("kv_type").replace(",", "/").partition("/")
    plain = Setting(
        target=fields.text("target") or given.target or "target",
        target_quant=fields.text("target_quant") or given.target_quant,
        kv_type_k=k.strip() or "f16",
        kv_type_v=v.strip() or k.strip() or "f16",
        context=fields.whole_or("context", 0, MOST_TOKENS) or 0,
        streams=fields.whole_or("streams", 1, 100_000) or 1,
    )
    if not draft_tokens:
        return plain
    return Setting(
        **{name: getattr(plain, name) for name in ("target", "target_quant", "kv_type_k", "kv_type_v")},
        context=plain.context,
        streams=plain.streams,
        drafter=drafter,
        draft=fields.text("draft") or given.draft or ("" if spelled == drafter else spelled),
        draft_quant=fields.text("draft_quant") or given.draft_quant,
        draft_tokens=draft_tokens,
        p_min=fields.number_or("p_min", 0, 1) or 0.0,
    )


def _draft_tokens(fields: Fields, drafter: str, draft_tokens: int | None, given: Given) -> int:
    """0 for plain decoding, and for a row that has a baseline and nothing else."""
    if draft_tokens is None and drafter != "none":
        draft_tokens = given.draft_tokens
    speculates = any(fields.has(name) for name in SPEAKING[1:])
    if draft_tokens is None and (drafter == "none" or not speculates):
        return 0
    if draft_tokens is None:
        fields.refuse("draft_tokens is empty; fill it in or give --draft-tokens")
    if draft_tokens and drafter == "none":
        fields.refuse(f"draft_tokens is {draft_tokens} without a drafter; fill in drafter ({KINDS}) or give --drafter")
    return draft_tokens


def _tokens_per_round(fields: Fields, setting: Setting) -> tuple[float | None, tuple[tuple[str, str], ...]]:
    """As given, or from the acceptance rate where every draft is full; and what is doubtful about it."""
    length = setting.draft_tokens
    tokens = fields.number_or("tokens_per_round", 1, length + 1)
    rate = fields.number_or("acceptance_rate", 0, 1)
    if not length or rate is None:
        return tokens, ()
    full = setting.p_min == 0 and setting.drafter != "ngram"
    derived = tokens_from_acceptance_rate(rate, length)
    if tokens is not None:
        away = abs(derived - tokens) > _rounding(fields, "tokens_per_round", 1) + _rounding(
            fields, "acceptance_rate", length
        )
        detail = f"{tokens:g} against 1 + {length} x {rate:g} = {derived:.4g}"
        return tokens, (("contradiction", detail),) if full and away else ()
    if not full:
        return None, (("stopped", f"p_min {setting.p_min:g}, {setting.drafter}"),)
    return derived, () if fields.has("p_min") else (("p_min", ""),)


def _rounding(fields: Fields, name: str, times: int) -> float:
    """Half a unit in the last digit that is written, `times` as large; and a hair."""
    digits = len(fields.text(name).partition(".")[2])
    return 0.5 * 10.0**-digits * times + 1e-9


def _check_speed_up(
    fields: Fields, setting: Setting, baseline: float | None, speed: float | None, tokens: float | None
) -> None:
    if not (baseline and speed and setting.draft_tokens):
        return
    most = tokens or setting.draft_tokens + 1
    if speed / baseline > IMPOSSIBLE_SPEED_UP * most:
        fields.refuse(
            f"{speed:g} tokens/s is {speed / baseline:.3g} times the baseline with {most:.3g} tokens a round: more than "
            "a round can give; check the units of spec_tps and baseline_tps"
        )


def _key(fields: Fields, given: Given) -> Key:
    return Key(
        gpu=fields.text("gpu") or given.gpu,
        power_limit_watts=fields.above_0_or("power_limit_w", 100_000),
        engine=engine_name(fields.text("engine") or given.engine),
        build=fields.text("engine_build"),
    )


def _sampling(fields: Fields) -> Sampling:
    """What a row says beside its temperature, which is the row's own."""
    usual = Sampling()
    top_p = fields.number_or("top_p", 0, 1)
    return Sampling(
        top_p=usual.top_p if top_p is None else top_p,
        top_k=fields.whole_or("top_k", 0, MOST_TOKENS) or usual.top_k,
        draft_sampling=fields.text("draft_sampling") or usual.draft_sampling,
    )


def _doubts(source: Source, rows: list[Row]) -> list[str]:
    """One warning a kind of doubt, with its first row."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for row in rows:
        for kind, detail in row.doubts:
            found[kind].append((row.where.partition(", ")[2], detail))
    return [_doubt(source, kind, *items[0], len(items), len(rows)) for kind, items in found.items()]


def _doubt(source: Source, kind: str, where: str, detail: str, count: int, rows: int) -> str:
    share = f"{source.name}: in {count} of {rows} rows (first {where})"
    if kind == "contradiction":
        return f"{share} tokens_per_round and acceptance_rate disagree beyond rounding ({detail}): tokens_per_round is used"
    if kind == "stopped":
        return (
            f"{share} drafts are not always full ({detail}): acceptance_rate does not give tokens per round, left out"
        )
    return f"{share} p_min is unknown and taken as 0, so that tokens per round follow from acceptance_rate"


def _samplings(source: Source, count: int) -> list[str]:
    return [f"{source.name}: rows differ in sampling, which acceptance depends on"] if count > 1 else []


def _repeats(rows: tuple[ReportedRow, ...]) -> list[str]:
    settings = {(row.setting, row.workload, row.temperature) for row in rows}
    more = len(rows) - len(settings)
    return [f"{more} of {len(rows)} rows repeat a configuration: they show the noise"] if more else []

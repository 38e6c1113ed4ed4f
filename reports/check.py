"""A check in the terminal: whether the pair works and fits first, then what to do, the memory, and the seven points."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..calibrate.checks.memory import largest_context
from ..calibrate.checks.records import CheckedModel, ChecklistItem, CheckReport, MemoryCheck, SamplingField
from ..profiler.finding import NOTE, Finding
from .numbers import percent, plain
from .terminal import print_line, text_cell

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PAIRS = {
    "compatible": "The pair works",
    "padding_only": "The pair works (the vocabularies differ by padding alone)",
    "unknown": "Whether the pair works is not known",
    "incompatible": "The pair cannot work",
}
MEMORY = {
    "fits": "memory suffices",
    "tight": "memory is tight",
    "unknown": "memory is not known",
    "does_not_fit": "memory does not suffice",
}
MARKS = {"fits": "", "tight": "~", "does_not_fit": "x", "unknown": "?"}
STATUS = {"pass": "pass", "fail": "FAIL", "not_measured": "?"}
MOST_CONTEXTS = 5
_TEXT_LIMIT = 600


def print_check(console: "Console", report: CheckReport) -> None:
    """Print the verdict, the models, each finding with what to do, the memory by term, the region and the checklist."""
    print_line(console, headline(report), style="bold")
    console.print(_models(report))
    _print_findings(console, report.findings)
    for memory in report.memories:
        _print_memory(console, memory, report)
    print_checklist(console, report.checklist)


def headline(report: CheckReport) -> str:
    """The verdict in one sentence."""
    pair = PAIRS[report.pair]
    if not report.pairs:
        pair = "The target drafts with its own head" if report.target.mtp_layers else "No draft given"
    elif len(report.pairs) > 1:
        works = sum(one.verdict in ("compatible", "padding_only") for one in report.pairs)
        pair = f"{works} of {len(report.pairs)} drafts work"
    elif report.pair == "incompatible" and all(one.tokens != "incompatible" for one in report.pairs):
        pair = f"The pair cannot work with this {report.engine}"
    several = " (the worst of its drafters)" if len(report.memories) > 1 and report.memory != "fits" else ""
    return f"{pair}; {MEMORY[report.memory]}{several}."


def print_checklist(console: "Console", items: Sequence[ChecklistItem]) -> None:
    """The seven points with their evidence: pass, FAIL, or ? where nothing was measured yet."""
    from rich.table import Table

    print_line(console, "Checklist (? not measured yet):", style="bold")
    table = Table.grid(padding=(0, 1))
    for item in items:
        table.add_row(f" {STATUS[item.status]}", text_cell(item.id), text_cell(plain(item.detail, _TEXT_LIMIT)))
    table.columns[0].min_width, table.columns[0].no_wrap = 5, True
    console.print(table)


def print_sampling(console: "Console", fields: Sequence[SamplingField]) -> None:
    """What was sent beside what the engine used; only the words, no colour, tell which differ."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, padding=(0, 1), pad_edge=False)
    for column in ("sampling", "sent", "used", ""):
        table.add_column(column, overflow="fold")
    words = {True: "equal", False: "DIFFERS", None: "not told"}
    for field in fields:
        state = words[field.equal] + (f" ({plain(field.where)})" if field.where else "")
        table.add_row(*(text_cell(plain(text)) for text in (field.name, field.sent, field.used, state)))
    console.print(table)


def _models(report: CheckReport) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, padding=(0, 1), pad_edge=False)
    for column in ("", "name", "quant"):
        table.add_column(column, overflow="fold")
    for column in ("MiB", "parameters\n(active)", "trained\ncontext", "tokens, then\nembedding rows"):
        table.add_column(column, justify="right", overflow="fold")
    for role, model in (("target", report.target), *(("draft", draft) for draft in report.drafts)):
        table.add_row(role, *(text_cell(text) for text in _cells(model)))
    return table


def _cells(model: CheckedModel) -> tuple[str, ...]:
    active, total = model.active_parameters, model.parameters
    mixture = active is not None and active < 0.7 * total
    return (
        plain(Path(model.path).name or model.path),
        plain(model.quant, 24),
        f"{model.size_bytes / 2**20:,.0f}",
        f"{_count(total)}\n({_count(active)})" if mixture and active is not None else _count(total),
        f"{model.context_length:,}" if model.context_length else "?",
        f"{model.tokens:,}\n{model.vocabulary_rows:,}" if model.tokens and model.vocabulary_rows else "?",
    )


def _count(parameters: float) -> str:
    return f"{parameters / 1e9:.1f}B" if parameters >= 1e9 else f"{parameters / 1e6:.0f}M"


def _print_findings(console: "Console", findings: Sequence[Finding]) -> None:
    """One item each: how bad, what was seen, and below it what to do."""
    from rich.table import Table

    if not findings:
        return
    table = Table.grid(padding=(0, 1))
    for finding in findings:
        mark = finding.severity if finding.severity == NOTE else finding.severity.upper()
        table.add_row(f" {mark}", text_cell(plain(f"{finding.evidence} [{finding.id}]", _TEXT_LIMIT)))
        if finding.remedy:
            table.add_row("", text_cell(plain(f"-> {finding.remedy}", _TEXT_LIMIT)))
    table.columns[0].min_width, table.columns[0].no_wrap = 8, True
    console.print(table)


def _print_memory(console: "Console", memory: MemoryCheck, report: CheckReport) -> None:
    print_line(console, f"Memory{_drafter(memory)}:", style="bold")
    if memory.total_bytes is None:
        print_line(console, f" {memory.reason}")
        return
    print_line(console, _setting_text(memory, report))
    console.print(_terms(memory, report))
    print_line(console, _slopes(memory))
    if memory.region and all(cell.verdict == "does_not_fit" for cell in memory.region):
        print_line(console, f"Not even plain decoding with a context of {memory.region[0].context:,} fits.")
    elif memory.region:
        streams = f" of each of {memory.streams} streams" if memory.streams > 1 else ""
        print_line(
            console,
            f"Total MiB by draft tokens and context{streams} (~ tight: less than 5 % or 512 MiB to spare; x does not fit)",
        )
        console.print(_region(memory))
        _print_other_streams(console, memory)


def _drafter(memory: MemoryCheck) -> str:
    if memory.drafter == "none":
        return ", plain decoding"
    if memory.drafter == "mtp":
        return ", built-in head"
    return f", draft {plain(Path(memory.draft).name or memory.draft)}"


def _terms(memory: MemoryCheck, report: CheckReport) -> "Table":
    """Rows of terms, target beside draft, and the sum against what is free."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, padding=(0, 1), pad_edge=False)
    table.add_column("MiB")
    for column in ("target", "draft", "both"):
        table.add_column(column, justify="right")
    sizes = {(term.owner, term.name): term.size_bytes for term in memory.terms}
    names = dict.fromkeys(term.name for term in memory.terms if term.owner != "runtime")
    for name in names:
        own, drafts = sizes.get(("target", name), 0.0), sizes.get(("draft", name), 0.0)
        table.add_row(name, *(_mebibytes(size) for size in (own, drafts, own + drafts)))
    table.add_row("runtime (estimate)", "", "", _mebibytes(sizes.get(("runtime", "runtime"), 0.0)))
    table.add_row("total", "", "", _mebibytes(memory.total_bytes or 0.0))
    if report.free_bytes is not None:
        spare = memory.spare_bytes or 0.0
        table.add_row("free", "", "", _mebibytes(report.free_bytes))
        table.add_row("to spare" if spare >= 0 else "missing", "", "", _mebibytes(abs(spare)))
    return table


def _setting_text(memory: MemoryCheck, report: CheckReport) -> str:
    streams = f", {memory.streams} streams" if memory.streams > 1 else ""
    types = f"cache {memory.kv_type_k}/{memory.kv_type_v}"
    if memory.drafter != "none":
        types += f", the draft's {memory.draft_kv_type_k}/{memory.draft_kv_type_v}"
    return f"Context {memory.context:,}, {memory.draft_tokens} draft tokens{streams}, {types}; {report.free_memory}"


def _slopes(memory: MemoryCheck) -> str:
    """Fixed terms are in the table; these grow."""
    context = f"{1024 * (memory.bytes_per_context_token or 0.0) / 2**20:,.1f} MiB for each 1,024 tokens of context"
    if memory.bytes_per_draft_token is None:
        return f"+ {context}"
    return f"+ {context}, + {memory.bytes_per_draft_token / 2**20:,.1f} MiB for each draft token"


def _region(memory: MemoryCheck) -> "Table":
    """Total MiB by draft length and context, for the streams asked for."""
    from rich import box
    from rich.table import Table

    cells = {(c.draft_tokens, c.context): c for c in memory.region if c.streams == memory.streams}
    contexts = shown_contexts(sorted({context for _, context in cells}), memory.context)
    table = Table(box=box.SIMPLE, padding=(0, 1), pad_edge=False)
    table.add_column("draft\ntokens", justify="right")
    for context in contexts:
        table.add_column(f"context\n{context:,}", justify="right")
    table.add_column("largest\ncontext", justify="right")
    reach = {r.draft_tokens: r.context for r in memory.largest_contexts if r.streams == memory.streams}
    for length in sorted({length for length, _ in cells}):
        row = [cells[length, context] for context in contexts]
        texts = [f"{_mebibytes(cell.total_bytes)} {MARKS[cell.verdict] or ' '}" for cell in row]
        most = reach.get(length)
        table.add_row(str(length), *texts, "none" if most is None else f"{most:,}")
    return table


def shown_contexts(contexts: Sequence[int], asked: int) -> list[int]:
    """At most five, the one asked for and the longest among them, the rest spread evenly."""
    if len(contexts) <= MOST_CONTEXTS:
        return list(contexts)
    steps = {contexts[round(i * (len(contexts) - 1) / (MOST_CONTEXTS - 1))] for i in range(MOST_CONTEXTS)}
    if asked not in steps:
        steps.remove(min((c for c in steps if c != contexts[-1]), key=lambda context: abs(context - asked)))
    return sorted(steps | {asked})


def _print_other_streams(console: "Console", memory: MemoryCheck) -> None:
    """How far one stream alone would reach, beside the streams asked for."""
    if memory.streams == 1:
        return
    alone = next((r for r in memory.largest_contexts if (r.streams, r.draft_tokens) == (1, memory.draft_tokens)), None)
    together = largest_context(memory)
    if alone and alone.context and together is not None and together < alone.context:
        share = percent(together / alone.context)
        print_line(console, f" {together:,} tokens for each stream, {alone.context:,} for one alone ({share}).")


def _mebibytes(size_bytes: float) -> str:
    return f"{size_bytes / 2**20:,.0f}"

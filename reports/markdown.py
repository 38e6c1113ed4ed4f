"""The report as markdown: the same verdict, tables and provenance as the page, for an issue, a wiki or a terminal."""

import re
from collections.abc import Iterable, Sequence

from ..calibrate.records import EngineCommand
from .numbers import plain, printable
from .page import Card, Page
from .panels import Section, Table
from .verdict import VERDICT_WORDS

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~&:@^$=\"'])")
_LONGEST = 600


def markdown(page: Page) -> str:
    """The page as GitHub's markdown. Foreign text is escaped: it makes no link, tag, table, mention or heading."""
    parts = [
        "# specgauge verdict",
        text(page.where),
        *(f"**{text(answer)}**" for answer in page.answers),
        text(page.check),
        *(_card(card) for card in page.cards),
        "## Copy this",
        *_commands(page.commands),
        _list(page.statements),
        "## Not settled, and what would settle it",
        _list(page.unsettled) or "Nothing that more measurement would change.",
        *(("## Warnings", _list(page.warnings)) if page.warnings else ()),
        *(_section(section) for section in page.sections),
        *(("## Checklist", _table(page.checklist)) if page.checklist.rows else ()),
        *(("## What drafting costs, the dearest cause first", _table(page.causes)) if page.causes.rows else ()),
        "## Where the numbers come from",
        _list(f"{fact.name}: {fact.text}" for fact in page.facts),
        _table(page.models),
        *(("## Dropped", _list(f"{fact.name}: {fact.text}" for fact in page.dropped)) if page.dropped else ()),
        *(("## How the model was fitted", _list(page.notes)) if page.notes else ()),
        f"Intervals are at {text(page.level)}. Made {text(page.created)}.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def text(words: str, limit: int = _LONGEST) -> str:
    """`words` as one line of plain text, with every character escaped that markdown reads as more than itself."""
    return _SPECIAL.sub(r"\\\1", plain(words, limit))


def _card(card: Card) -> str:
    verdict = card.verdict
    head = f"## {text(verdict.workload, 60)}: {text(VERDICT_WORDS.get(verdict.verdict, verdict.verdict).lower())}"
    parts = [head, f"**{text(verdict.setting_text)}**", text(card.why), _list(verdict.reasons)]
    if card.commands:
        parts += ["For this workload alone:", *_commands(card.commands[:1])]
    return "\n\n".join(part for part in parts if part)


def _commands(commands: Sequence[EngineCommand]) -> Iterable[str]:
    for command in commands:
        line = printable(command.text)
        fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", line)), default=0))
        yield f"{text(command.engine)}: {' '.join(map(text, command.notes))}\n\n{fence}\n{line}\n{fence}"


def _section(section: Section) -> str:
    if section.missing:
        return f"*{text(section.missing)}*"
    table = _table(section.table) if section.table else ""
    return "\n\n".join(
        part
        for part in (f"## {text(section.title)}", f"**{text(section.finding)}**", text(section.reading), table)
        if part
    )


def _table(table: Table) -> str:
    if not table.rows:
        return ""
    rows = [table.columns, *table.rows]
    lines = [f"| {' | '.join(text(cell) or ' ' for cell in row)} |" for row in rows]
    return "\n".join([lines[0], f"|{' --- |' * len(table.columns)}", *lines[1:]])


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {text(item)}" for item in items)

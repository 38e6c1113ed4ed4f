"""A comparison in the terminal: what differs first, then the keys and the numbers."""

from typing import TYPE_CHECKING

from ..calibrate.records import ComparedNumber, Comparison, Interval, KeyField
from .numbers import percent, plain, short
from .terminal import print_bullet, print_line, text_cell

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_UNITS = {"s": ("ms", 1e3)}
_STATES = {"differs": "differ", "unknown": "are not known on both sides"}


def print_comparison(console: "Console", comparison: Comparison) -> None:
    """Print findings, differing keys, groups of numbers, single numbers that differ, and what to say beside them."""
    print_line(console, f"A: {comparison.a}")
    print_line(console, f"B: {comparison.b}")
    for text in comparison.findings:
        print_line(console, text[:1].upper() + text[1:], style="bold")
    _print_keys(console, comparison.key)
    shown = [n for n in comparison.numbers if n.differs or _is_headline(n, comparison)]
    console.print(_table(shown, comparison))
    left = len(comparison.numbers) - len(shown)
    if left:
        print_line(console, f"{left} more numbers were compared and do not differ; --json has them all.")
    for note in comparison.notes:
        print_bullet(console, note)


def _print_keys(console: "Console", fields: tuple[KeyField, ...]) -> None:
    for state, words in _STATES.items():
        for weight in ("decisive", "near", "informational"):
            found = [
                field for field in fields if (field.state, field.weight) == (state, weight) and (field.a or field.b)
            ]
            if found:
                named = ", ".join(f"{field.name} ({field.a or 'unknown'} / {field.b or 'unknown'})" for field in found)
                print_bullet(console, f"keys that {words}, {weight}: {named}")
    if fields and all(field.state != "differs" for field in fields):
        print_bullet(console, "no key differs")


def _is_headline(number: ComparedNumber, comparison: Comparison) -> bool:
    """Wholes, and all rows of validations: they are few."""
    return comparison.of == "validation" or number.whole or number.group == "forecast"


def _table(numbers: list[ComparedNumber], comparison: Comparison) -> "Table":
    from rich import box
    from rich.table import Table

    caption = (
        f"B/A with its own {percent(comparison.level)} interval, the whole machine's factor taken out where it is known; "
        "* differs once all looks are counted"
    )
    table = Table(box=box.SIMPLE, caption=caption, caption_justify="left", padding=(0, 1), pad_edge=False)
    table.add_column("number", overflow="fold")
    errors = ("error A", "error B") if comparison.of == "validation" else ()
    for column in ("A", "B", "B/A", "", *errors):
        table.add_column(column, justify="right", overflow="fold")
    for number in numbers:
        table.add_row(*(text_cell(text) for text in (*_cells(number), *_errors(number)[: len(errors)])))
    return table


def _cells(number: ComparedNumber) -> tuple[str, ...]:
    unit, scale = _UNITS.get(number.unit, (number.unit, 1.0))
    name = f"{plain(number.name, 120)}, {unit}" if unit else plain(number.name, 120)
    ratio = _ratio(number.at_equal_speed or number.ratio)
    return name, short(number.a * scale), short(number.b * scale), ratio, "*" if number.differs else ""


def _errors(number: ComparedNumber) -> tuple[str, ...]:
    return tuple("" if error is None else percent(error, signed=True) for error in (number.error_a, number.error_b))


def _ratio(interval: Interval) -> str:
    return f"{interval.value:.3f}\n({interval.low:.3f} to {interval.high:.3f})"

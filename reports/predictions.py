"""Forecasts of `predict` as a table of 80 columns."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..calibrate.predict import Prediction
from .numbers import percent, plain, short
from .terminal import print_line, text_cell

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def print_predictions(console: "Console", predictions: Sequence[Prediction]) -> None:
    """A table for each target, workload and context; one row a setting."""
    places = dict.fromkeys((one.target, one.workload, one.context) for one in predictions)
    for place in places:
        console.print(_table([one for one in predictions if (one.target, one.workload, one.context) == place]))
    level = percent(predictions[0].level)
    print_line(console, f"tokens/s with {level} intervals; x plain: over plain decoding of that target, both forecast")


def _table(rows: Sequence[Prediction]) -> "Table":
    from rich import box
    from rich.table import Table

    first = rows[0]
    title = f"{plain(first.workload, 30)}, {plain(first.target, 36)}, context {first.context}"
    table = Table(box=box.SIMPLE, title=text_cell(title), title_justify="left", padding=(0, 1), pad_edge=False)
    table.add_column("drafter", overflow="fold", max_width=30)
    for name in ("draft tokens", "tokens/s", "interval", "x plain"):
        table.add_column(name, justify="right")
    table.add_column("provenance")
    for one in rows:
        table.add_row(*(text_cell(cell) for cell in _cells(one)))
    return table


def _cells(one: Prediction) -> tuple[str, ...]:
    return (
        "plain" if not one.draft_tokens else plain(one.draft or one.drafter, 60),
        str(one.draft_tokens),
        short(one.tokens_per_second),
        f"{short(one.low)} to {short(one.high)}",
        f"{one.speed_up:.2f}",
        one.provenance,
    )

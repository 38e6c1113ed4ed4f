"""The terminal: the verdict first, in 80 columns, and progress with the time that is left."""

import shutil
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from ..calibrate.records import Interval, Recommendation, Validation
from ..profiler.records import Profile
from .numbers import duration, percent, plain, printable, short, with_bounds
from .verdict import (
    WorkloadVerdict,
    bandwidth_text,
    check_text,
    headline,
    missing_text,
    mix_text,
    random_text,
    regret_text,
    shared_text,
    unchecked_text,
    workload_verdicts,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_REASON_LIMIT = 400


def print_verdict(
    console: "Console", recommendation: Recommendation, validation: Validation | None, profile: Profile
) -> None:
    """Print what to set, how fast it is, how sure that is and why; foreign names are never read as markup."""
    verdicts = workload_verdicts(recommendation, validation, profile)
    first = headline(verdicts, recommendation)
    print_line(console, first[:1].upper() + first[1:], style="bold")
    if verdicts:
        console.print(_speed_table(verdicts, recommendation.level))
    for verdict in verdicts:
        _print_reasons(console, verdict)
    mix = mix_text(recommendation, profile)
    for text in (
        random_text(profile),
        mix,
        bandwidth_text(recommendation),
        check_text(validation) if validation else unchecked_text(profile),
        missing_text(validation),
        regret_text(validation),
    ):
        if text:
            print_line(console, text)
    if recommendation.unsettled:
        print_line(console, "Not settled:", style="bold")
        for text in recommendation.unsettled:
            print_bullet(console, text)
    for command in recommendation.commands:
        if command.workload and command.measured:
            _print_command(console, f" for {command.workload} alone", command.text)
    scope = f", for all workloads {shared_text(recommendation)}" if len(verdicts) > 1 else ""
    if recommendation.command:
        _print_command(console, scope, recommendation.command)


def _print_command(console: "Console", scope: str, command: str) -> None:
    """Whole, on a line of its own, to copy."""
    print_line(console, f"Command{scope}:", style="bold")
    console.print(printable(command), markup=False, highlight=False, soft_wrap=True)


class Progress:
    """Shows how far a long job is: on a terminal one line that is rewritten, elsewhere one plain line a step.

    Call it with the step's label, the seconds spent and the seconds the whole job is expected to take.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._rewrites = self._stream.isatty()
        self._label = ""
        self._open = False

    def __call__(self, label: str, done_seconds: float, expected_seconds: float) -> None:
        line = f"{plain(label, 200)}: {_time_left(done_seconds, expected_seconds)}"
        if self._rewrites:
            width = shutil.get_terminal_size().columns - 1
            self._write(f"\r\x1b[2K{line[:width]}")
            self._open = True
        elif label != self._label:
            self._write(f"{line}\n")
        self._label = label

    def close(self) -> None:
        """Leave the line, so that what is printed next begins on its own."""
        if self._open:
            self._write("\r\x1b[2K")
        self._open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, text: str) -> None:
        """A closed pipe behind progress must not end the work."""
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self._rewrites = False
            self._open = False


def _time_left(done_seconds: float, expected_seconds: float) -> str:
    """Without a percentage: what is left of a plan that goes on from its own results may grow, and a share would go back."""
    if expected_seconds <= 0:
        return f"{duration(done_seconds)} so far"
    left = expected_seconds - done_seconds
    if left <= 0:
        return f"{duration(done_seconds)} so far, longer than the {duration(expected_seconds)} expected"
    return f"{duration(done_seconds)} so far, about {duration(left)} left"


def _speed_table(verdicts: tuple[WorkloadVerdict, ...], level: float) -> "Table":
    """Speeds in tokens/s with intervals, one row a workload."""
    from rich import box
    from rich.table import Table

    caption = f"tokens/s, {percent(level)} intervals in brackets; plain = same target without speculation"
    table = Table(box=box.SIMPLE, caption=caption, caption_justify="left", padding=(0, 1), pad_edge=False)
    for column in ("workload", "setting"):
        table.add_column(column, overflow="fold")
    for column in ("forecast\ntokens/s", "measured\ntokens/s", "plain\ntokens/s"):
        table.add_column(column, justify="right", overflow="fold")
    for verdict in verdicts:
        table.add_row(*(text_cell(text) for text in _speed_cells(verdict)))
    return table


def _speed_cells(verdict: WorkloadVerdict) -> tuple[str, ...]:
    plain_speed = verdict.plain_measured
    return (
        plain(verdict.workload, 14),
        plain(verdict.setting_text, 80),
        _stacked(verdict.forecast),
        _stacked(verdict.measured) if verdict.measured else "not run",
        _stacked(plain_speed) if plain_speed else f"{short(verdict.plain_forecast)}\n(forecast)",
    )


def _stacked(interval: Interval) -> str:
    """The interval below its value: narrow enough for three columns in 80."""
    value, bounds = with_bounds(interval).split(" ", 1)
    return f"{value}\n{bounds}"


def _print_reasons(console: "Console", verdict: WorkloadVerdict) -> None:
    print_line(console, f"{plain(verdict.workload)}: {verdict.words.lower()}", style="bold")
    if verdict.speed_up_text:
        print_bullet(console, f"measured {verdict.speed_up_text}")
    for reason in verdict.reasons:
        print_bullet(console, reason)


def text_cell(text: str):
    """`text` as it is, never as markup."""
    from rich.text import Text

    return Text(text)


def print_line(console: "Console", text: str, style: str = "") -> None:
    """A paragraph."""
    from rich.text import Text

    console.print(Text(plain(text, _REASON_LIMIT), style=style))


def print_bullet(console: "Console", text: str) -> None:
    """An item of a list."""
    from rich.table import Table
    from rich.text import Text

    row = Table.grid(padding=(0, 1))
    row.add_row(" -", Text(plain(text, _REASON_LIMIT)))
    console.print(row)

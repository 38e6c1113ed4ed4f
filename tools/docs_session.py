"""A command of specgauge and what it printed, as an indented block of a page."""

import contextlib
import io
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from specgauge import cli

WIDTH = 80


def session(folder: Path, *commands: str, lines: slice = slice(None), exits: int = 0) -> str:
    """Runs each of `commands` ("specgauge ...") in `folder`, 80 columns wide; `lines` of what the last one printed.

    Raises RuntimeError where one exits with another code.
    """
    parts = []
    for command in commands:
        sink = io.StringIO()
        with _place(folder), contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
            code = cli.main(shlex.split(command)[1:])
        if code != exits:
            raise RuntimeError(f"{command}: exit code {code}: {sink.getvalue()[-400:]}")
        printed = [line.rstrip() for line in sink.getvalue().splitlines()]
        if command is commands[-1]:
            printed = printed[lines]
        parts += [f"$ {command}", *printed]
    return indented("\n".join(parts))


def indented(text: str) -> str:
    """`text` as markdown shows it as it is."""
    return "\n".join(f"    {line}".rstrip() for line in text.strip("\n").splitlines())


def table(columns: tuple[str, ...], rows: list[tuple[str, ...]], right: tuple[int, ...] = ()) -> str:
    """A markdown table; columns of `right` are aligned there."""
    rule = ["---:" if at in right else "---" for at in range(len(columns))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (columns, tuple(rule), *rows))


@contextlib.contextmanager
def _place(folder: Path) -> Iterator[None]:
    """In `folder`, 80 columns wide and without colours."""
    before, kept = Path.cwd(), {name: os.environ.get(name) for name in ("COLUMNS", "NO_COLOR")}
    os.chdir(folder)
    os.environ |= {"COLUMNS": str(WIDTH), "NO_COLOR": "1"}
    try:
        yield
    finally:
        os.chdir(before)
        for name, value in kept.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})

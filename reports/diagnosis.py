"""A diagnosis in 80 columns: what is wrong, what it takes of a round, what mending it gives back, what to change."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..calibrate.diagnose import headline
from ..calibrate.records import Cause, Diagnosis
from .numbers import milliseconds, percent, plain, short
from .terminal import print_bullet, print_line, text_cell
from .verdict import setting_name

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

MOST_CAUSES = 8
NAMES = {
    "draft-too-dear": "the draft costs too much",
    "draft-not-on-device": "the draft is not on the device",
    "swapped-roles": "draft and target are exchanged",
    "draft-length-too-deep": "too many draft tokens",
    "acceptance-below-break-even": "too few drafted tokens are right",
    "sampling-mismatch": "draft and target sample differently",
    "verification-linear-in-width": "verification costs per token",
    "kernel-switch": "just past a kernel switch",
    "expert-traffic": "experts read for each token",
    "fixed-overhead": "fixed overhead in every round",
    "rollback-copies": "recurrent state copied every round",
    "cold-cache": "measured cold",
    "context-growth": "the filled context",
    "spill": "memory spills to the host",
    "throttling": "the clock is held down",
    "layers-on-host": "layers of the target on the host",
    "baseline-broken": "plain decoding itself is slow",
    "engine-setting": "a wrong engine setting or build",
    "too-many-streams": "too many streams for speculation",
    "prompts-not-yours": "a speed of other prompts",
    "no-paired-baseline": "no plain speed to compare with",
    "no-cause": "nothing stands out",
}
"""Ids in plain words."""


def print_diagnosis(console: "Console", diagnosis: Diagnosis) -> None:
    """Print the ranking first, then each cause with its evidence and what to change; foreign names are never markup."""
    print_line(console, f"{setting_name(diagnosis.setting)}: {headline(diagnosis)}.", style="bold")
    console.print(_ranking(diagnosis))
    for rank, cause in enumerate(diagnosis.causes, start=1):
        print_line(console, f"{rank}. {NAMES.get(cause.id, cause.id)} ({cause.id})", style="bold")
        for text in (cause.evidence, f"Change: {cause.change}.", f"Figures: {cause.provenance}. {_derived(cause)}"):
            print_bullet(console, text)
    for title, texts in (("Gate:", diagnosis.gate), ("Notes:", diagnosis.notes)):
        if texts:
            print_line(console, title, style="bold")
        for text in texts:
            print_bullet(console, text)


def print_causes(console: "Console", diagnoses: Sequence[Diagnosis]) -> None:
    """The dearest cause of each diagnosis that names one, a line each."""
    found = [diagnosis for diagnosis in diagnoses if diagnosis.causes[0].id != "no-cause"]
    if not found:
        return
    print_line(console, "What drafting costs most (specgauge diagnose tells all of it):", style="bold")
    for diagnosis in found[:MOST_CAUSES]:
        workload, setting, cause, takes, change = cause_cells(diagnosis, diagnosis.causes[0])
        print_bullet(console, f"{workload}, {setting}: {cause}, {takes}; change: {change}")


def cause_cells(diagnosis: Diagnosis, cause: Cause) -> tuple[str, str, str, str, str]:
    """Workload, setting, the cause in plain words, what it takes of a round, and what to change."""
    seconds = cause.seconds_per_round
    takes = f"{milliseconds(seconds)} of {milliseconds(diagnosis.round_seconds)} a {diagnosis.per}" if seconds else "-"
    name = NAMES.get(cause.id, cause.id)
    return plain(diagnosis.workload), setting_name(diagnosis.setting), name, takes, plain(cause.change, 300)


def _ranking(diagnosis: Diagnosis) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, padding=(0, 1), pad_edge=False)
    table.add_column("cause", overflow="fold")
    for column in (f"of a\n{diagnosis.per}", "share", "gives back\ntokens/s", "then\ntokens/s"):
        table.add_column(column, justify="right", no_wrap=True)
    for cause in diagnosis.causes:
        table.add_row(*(text_cell(text) for text in _cells(cause, diagnosis.round_seconds)))
    return table


def _cells(cause: Cause, round_seconds: float) -> tuple[str, ...]:
    seconds, gained, speed = cause.seconds_per_round, cause.gives_back_tokens_per_second, cause.tokens_per_second
    return (
        plain(NAMES.get(cause.id, cause.id), 40),
        "not known" if seconds is None else milliseconds(seconds),
        "" if seconds is None else percent(seconds / round_seconds),
        "not known" if gained is None else f"+{short(gained)}",
        "" if speed is None else short(speed),
    )


def _derived(cause: Cause) -> str:
    if cause.tokens_per_second is None:
        return f"{cause.derived[:1].upper()}{cause.derived[1:]}."
    return f"{short(cause.tokens_per_second)} tokens/s: {cause.derived}."

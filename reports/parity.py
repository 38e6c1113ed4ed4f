"""Parity in 80 columns: is the output the same, were the settings used that were sent, what does a mismatch cost?"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..profiler.finding import Finding
from ..profiler.outputs.equivalence import FAULT, ROUNDING, WHY, Equivalence
from ..profiler.outputs.mismatch import Change, MismatchCost
from ..profiler.outputs.parity import Parity
from ..profiler.outputs.sampled_law import SampledLaw
from ..profiler.outputs.sampling_parity import DIFFERS, NOT_TOLD, SettingParity
from ..profiler.records import Setting
from .numbers import percent, plain, short
from .terminal import print_bullet, print_line, text_cell
from .verdict import setting_name

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

SAID = ("output-rounds", "mismatch-cost")
"""Findings that are said elsewhere on the page."""


def print_parity(console: "Console", parity: Parity) -> None:
    """Print the verdict, the greedy replies, sampled laws, settings side by side, mismatches and findings."""
    print_line(console, headline(parity), style="bold")
    for one in parity.equivalence:
        _print_equivalence(console, one)
    if any(one.verdict == ROUNDING for one in parity.equivalence):
        print_line(console, WHY)
    for law in parity.laws:
        _print_law(console, law)
    if parity.settings:
        print_line(console, "Settings, sent and used:", style="bold")
        console.print(_settings_table(parity.settings))
    for cost in parity.mismatches:
        _print_mismatch(console, cost)
    _print_findings(console, [one for one in parity.findings if one.id not in SAID])
    for text in parity.unsupported:
        print_bullet(console, f"not compared: {plain(text, 200)}")


def headline(parity: Parity) -> str:
    """The verdict on the greedy replies of all arms in one sentence."""
    if not parity.equivalence:
        return "No output could be compared."
    pairs = sum(len(one.pairs) for one in parity.equivalence)
    same = sum(one.identical for one in parity.equivalence)
    count = f"{same} of {pairs} greedy replies with speculation are those of plain decoding, token by token"
    verdicts = {one.verdict for one in parity.equivalence}
    if FAULT in verdicts:
        return f"{count}; what differs is no rounding."
    return f"{count}; the others part at near ties, as rounding does." if ROUNDING in verdicts else f"{count}."


def _print_equivalence(console: "Console", one: Equivalence) -> None:
    print_line(console, f"{setting_name(one.setting)}: {one.verdict}", style="bold")
    print_bullet(console, f"{one.reason}; plain decoding gave {one.repeated} of {len(one.pairs)} replies again")
    if one.drafted:
        print_bullet(console, f"{one.accepted} of {one.drafted} drafted tokens accepted")
    if one.identical < len(one.pairs):
        console.print(_divergences(one))


def _divergences(one: Equivalence) -> "Table":
    table = _table("prompt")
    for column in ("same\ntokens", "gap,\nlogits", "gap read in\none batch"):
        table.add_column(column, justify="right", no_wrap=True)
    for pair in one.pairs:
        at = pair.divergence
        if at is None:
            cells = (plain(pair.prompt, 40), f"all {pair.tokens}", "", "")
        else:
            more = "over " if at.gap_at_least else ""
            gap = "not told" if at.gap is None else f"{more}{at.gap:.2g}"
            cells = plain(pair.prompt, 40), str(at.position), gap, _optional(at.batched_gap)
        table.add_row(*(text_cell(text) for text in cells))
    return table


def _print_law(console: "Console", law: SampledLaw) -> None:
    print_line(
        console, f"{setting_name(law.setting)}, sampled at {law.sampling.temperature:g}: {law.verdict}", style="bold"
    )
    print_bullet(console, law.reason)
    if law.p_value is None:
        return
    print_bullet(console, f"p {law.p_value:.2g}: {law.compared} tokens against {law.draws} plain replies")
    if law.exact_p_value is not None:
        words = f"p {law.exact_p_value:.2g}: {law.exact_draws} first tokens against the engine's own probabilities"
        print_bullet(console, words)


def _settings_table(parities: Sequence[SettingParity]) -> "Table":
    """A row for each arm and setting that is not plainly equal; equal ones are counted."""
    table = _table("arm")
    for column in ("setting", "sent", "used"):
        table.add_column(column, overflow="fold")
    for one in parities:
        equal = [field.name for field in one.fields if field.state not in (DIFFERS, NOT_TOLD)]
        table.add_row(*(text_cell(text) for text in (_arm(one.setting), f"{len(equal)} settings", "", "as sent")))
        for field in one.fields:
            if field.name not in equal:
                used = "not told" if field.state == NOT_TOLD else f"{plain(field.used, 30)} (differs)"
                table.add_row(*(text_cell(text) for text in ("", plain(field.name, 30), plain(field.sent, 30), used)))
    return table


def _print_mismatch(console: "Console", cost: MismatchCost) -> None:
    print_line(console, f"{setting_name(cost.setting)}, {', '.join(cost.differs)}:", style="bold")
    if cost.unsupported or cost.acceptance_change is None or cost.tokens_per_round_ratio is None:
        print_bullet(console, f"not measured: {cost.unsupported}")
        return
    accepted = f"{percent(cost.equal_acceptance or 0.0)} -> {percent(cost.unequal_acceptance or 0.0)} accepted"
    print_bullet(console, f"{accepted}, change {_percent_bounds(cost.acceptance_change)}")
    tokens = (
        f"{short(cost.equal_tokens_per_round or 1.0)} -> {short(cost.unequal_tokens_per_round or 1.0)} tokens a round"
    )
    print_bullet(console, f"{tokens}, {_bounds(cost.tokens_per_round_ratio)} times as many")
    seeds = f", {cost.seeds} seeds each" if cost.seeds > 1 else ""
    print_bullet(console, f"paired by prompt: {len(cost.prompts)} prompts{seeds}")


def _print_findings(console: "Console", findings: Sequence[Finding]) -> None:
    for one in findings:
        print_line(console, f"{one.severity}: {one.id}", style="bold")
        print_bullet(console, plain(one.evidence, 500))
        if one.remedy:
            print_bullet(console, f"Do: {one.remedy}")


def _table(first: str) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, padding=(0, 1), pad_edge=False)
    table.add_column(first, overflow="fold")
    return table


def _arm(setting: Setting) -> str:
    return plain(setting_name(setting), 60)


def _optional(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}"


def _bounds(change: Change) -> str:
    if change.low is None or change.high is None:
        return f"{short(change.value)} (one prompt)"
    return f"{short(change.value)} ({short(change.low)} to {short(change.high)})"


def _percent_bounds(change: Change) -> str:
    value = percent(change.value, signed=True)
    if change.low is None or change.high is None:
        return f"{value} (one prompt)"
    return f"{value} ({percent(change.low, signed=True)} to {percent(change.high, signed=True)})"

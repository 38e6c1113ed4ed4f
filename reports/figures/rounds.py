"""Where a round goes: the terms of the formula, stacked by draft length, beside measured rounds."""

import statistics
from collections.abc import Sequence

from ...calibrate.records import RoundBreakdown, RoundCheck
from ...profiler.records import Setting
from ..numbers import milliseconds, percent, plain, short
from ..panels import (
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    Axis,
    Panel,
    Plot,
    Section,
    Style,
    Table,
    bars,
    exact,
    points,
)
from ..verdict import drafter_name
from .series import grouped, in_order

TERMS = {
    "draft": (BLUE, ""),
    "draft_catch_up": (SKY, "|"),
    "draft_further": (BLUE, ""),
    "verification": (ORANGE, "/"),
    "draft_batch": (SKY, "."),
    "draft re-decode": (SKY, "."),
    "overhead": (PURPLE, "x"),
    "in_situ": (PURPLE, "\\"),
    "unexplained": (VERMILLION, "+"),
}
"""Colour and hatching of each term of a round, in the order of the stack."""


def round_breakdown(rounds: Sequence[RoundBreakdown], checks: Sequence[RoundCheck]) -> Section:
    """A panel for each target and drafter: the terms of a round stacked by draft length, and measured rounds."""
    id_ = "where-a-round-goes"
    if not rounds:
        missing = "Where a round goes: no round was timed. Run specgauge profile with a drafter to fill this."
        return Section(id=id_, finding="", reading="", missing=missing)
    groups = grouped(rounds, lambda item: (item.target, item.drafter, item.draft, item.context))
    return Section(
        id=id_,
        finding=_round_finding(rounds, checks),
        reading="Bars are the model's terms, markers measured rounds (hollow: used to fit the overhead). Unexplained "
        "is the signed rest, measured less modelled; below zero the model was too slow. in_situ: what "
        "passes take less in a round than apart.",
        panels=tuple(_round_panel(group, checks) for group in groups),
        table=_round_table(rounds, checks),
    )


def _round_finding(rounds: Sequence[RoundBreakdown], checks: Sequence[RoundCheck]) -> str:
    """The dearest term with each drafter, and what the model leaves unexplained on rounds that no fit has seen."""
    text = "; ".join(_dearest(group) for group in _by_drafter(rounds))
    text = f"{text[:1].upper()}{text[1:]}"
    rest = [abs(check.unexplained) for check in checks]
    rest += [abs(item.unexplained) for item in rounds if item.unexplained is not None and not item.used_for_fit]
    if not rest:
        return f"{text}; no round was left over to test the model with."
    unseen = f"median of {len(rest)} checks that no fit has seen; {percent(max(rest))} at worst"
    return f"{text}; {percent(statistics.median(rest))} is unexplained ({unseen})."


def _by_drafter(rounds: Sequence[RoundBreakdown]) -> list[list[RoundBreakdown]]:
    return grouped(rounds, lambda item: (item.drafter, item.draft))


def _dearest(rounds: Sequence[RoundBreakdown]) -> str:
    """The term with the largest share of the positive terms, in the median over rounds."""
    shares: dict[str, list[float]] = {}
    for item in rounds:
        paid = sum(max(0.0, term.seconds) for term in item.terms)
        for term in item.terms:
            shares.setdefault(term.name, []).append(max(0.0, term.seconds) / paid if paid else 0.0)
    name, share = max(((name, statistics.median(found)) for name, found in shares.items()), key=lambda pair: pair[1])
    return f"with {_drafter_text(rounds[0])} {name} takes {percent(share)} of a round"


def _drafter_text(item: RoundBreakdown) -> str:
    return drafter_name(Setting(target=item.target, target_quant="", drafter=item.drafter, draft=item.draft), 28)


def _round_panel(group: Sequence[RoundBreakdown], checks: Sequence[RoundCheck]) -> Panel:
    mine = sorted(group, key=lambda item: item.draft_tokens)
    lengths = [float(item.draft_tokens) for item in mine]
    plot = Plot(Axis("draft tokens", ticks=tuple(lengths)), Axis("time of a round, ms"), stacked=True, height=320)
    for name in _term_names(mine):
        colour, pattern = TERMS.get(name, (GREEN, "-"))
        seconds = [dict(_terms(item)).get(name, 0.0) for item in mine]
        hover = [
            f"{item.draft_tokens} draft tokens, {name}: {milliseconds(s)}"
            for item, s in zip(mine, seconds, strict=True)
        ]
        plot.traces.append(bars(lengths, [1e3 * s for s in seconds], name, colour, pattern, hover))
    _draw_rounds(plot, mine, [check for check in checks if _belongs(check, mine[0])])
    first = mine[0]
    return plot.panel(f"{plain(first.target, 32)} + {_drafter_text(first)}, behind {first.context} tokens")


def _draw_rounds(plot: Plot, rounds: Sequence[RoundBreakdown], checks: Sequence[RoundCheck]) -> None:
    measured = [
        (
            float(item.draft_tokens),
            item.measured_seconds,
            item.used_for_fit,
            f"{item.draft_tokens} draft tokens: measured",
        )
        for item in rounds
        if item.measured_seconds is not None
    ]
    measured += [(float(check.draft_tokens), check.measured_seconds, False, _check_hover(check)) for check in checks]
    if not measured:
        return
    x, y, fitted, hover = zip(*measured, strict=True)
    texts = [f"{text} {milliseconds(seconds)}" for text, seconds in zip(hover, y, strict=True)]
    look = Style(GREEN, "diamond", "solid")
    plot.traces.append(points(exact(x), exact([1e3 * s for s in y]), "measured", look, texts, fitted))


def _check_hover(check: RoundCheck) -> str:
    return (
        f"{check.draft_tokens} draft tokens behind {check.context}: unexplained "
        f"{percent(check.unexplained, signed=True)} over {check.rounds} rounds, measured"
    )


def _terms(item: RoundBreakdown) -> list[tuple[str, float]]:
    """Name and seconds of each term; unexplained is added where it was measured and is not a term already."""
    terms = [(term.name, term.seconds) for term in item.terms]
    known = any(name == "unexplained" for name, _ in terms)
    if known or item.measured_seconds is None:
        return terms
    return [*terms, ("unexplained", item.measured_seconds - item.modelled_seconds)]


def _term_names(rounds: Sequence[RoundBreakdown]) -> list[str]:
    """Terms that occur, in the order of the stack; names that are new here come last."""
    seen = in_order(name for item in rounds for name, _ in _terms(item))
    return [name for name in TERMS if name in seen] + [name for name in seen if name not in TERMS]


def _belongs(check: RoundCheck, item: RoundBreakdown) -> bool:
    return (check.target, check.drafter, check.draft) == (item.target, item.drafter, item.draft)


def _round_table(rounds: Sequence[RoundBreakdown], checks: Sequence[RoundCheck]) -> Table:
    names = _term_names(rounds)
    lead = ("target", "drafter", "draft tokens", "context, tokens")
    columns = (*lead, *(f"{name}, ms" for name in names), "modelled, ms", "measured, ms", "unexplained", "round time")
    modelled = tuple(_round_cells(item, names) for item in rounds)
    return Table(columns, modelled + tuple(_check_cells(check, names) for check in checks))


def _round_cells(item: RoundBreakdown, names: Sequence[str]) -> tuple[str, ...]:
    seconds = dict(_terms(item))
    measured = "-" if item.measured_seconds is None else short(1e3 * item.measured_seconds)
    unexplained = "-" if item.unexplained is None else percent(item.unexplained, signed=True)
    return (
        plain(item.target),
        f"{item.drafter} {plain(item.draft)}",
        str(item.draft_tokens),
        str(item.context),
        *(short(1e3 * seconds[name]) if name in seconds else "-" for name in names),
        short(1e3 * item.modelled_seconds),
        measured,
        unexplained,
        f"{item.source}, used for the fit" if item.used_for_fit else item.source,
    )


def _check_cells(check: RoundCheck, names: Sequence[str]) -> tuple[str, ...]:
    return (
        plain(check.target),
        f"{check.drafter} {plain(check.draft)}",
        str(check.draft_tokens),
        str(check.context),
        *("" for _ in names),
        short(1e3 * check.modelled_seconds),
        short(1e3 * check.measured_seconds),
        percent(check.unexplained, signed=True),
        f"validation, {check.rounds} rounds",
    )

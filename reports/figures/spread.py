"""The spread of single replies: what every day gives, and how far from it the fastest reply is that people quote."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...calibrate.records import Interval, Validation, ValidationRow
from ..numbers import percent, plain, short
from ..panels import ORANGE, Axis, Panel, Plot, Section, Style, Table, exact, points
from ..verdict import setting_name
from .checked import row_order, tick
from .series import drafter_key, in_order, styles

LOW, HIGH = 0.05, 0.95
LEAST_REPLIES = 5


@dataclass(frozen=True)
class Spread:
    """Tokens/s of single replies of one row: median, 5 % and 95 % quantile, and the fastest."""

    row: ValidationRow
    everyday: Interval
    peak: float


def spread_of_replies(validation: Validation | None) -> Section:
    """A panel for each workload: median, 5 to 95 % of single replies, and the fastest one, for every setting that was run."""
    id_ = "spread-of-replies"
    spreads = [
        _spread(row) for row in (validation.rows if validation else ()) if len(row.reply_speeds) >= LEAST_REPLIES
    ]
    if not spreads:
        missing = (
            "Spread of replies: no single reply was timed beside its forecast. Run specgauge validate to fill this."
        )
        return Section(id=id_, finding="", reading="", missing=missing)
    workloads = in_order(spread.row.workload for spread in spreads)
    by_workload = {name: [spread for spread in spreads if spread.row.workload == name] for name in workloads}
    return Section(
        id=id_,
        finding=_finding(by_workload),
        reading="Markers are medians over single replies, bars 5 to 95 % of them, stars the fastest reply: luck, not what a day "
        "gives. As the clock gave it, the session's drift included, which is why medians may differ from the speeds above.",
        panels=tuple(_panel(workload, found) for workload, found in by_workload.items()),
        table=_table(spreads),
    )


def _spread(row: ValidationRow) -> Spread:
    low, middle, high = (float(np.quantile(row.reply_speeds, share)) for share in (LOW, 0.5, HIGH))
    return Spread(row, Interval(value=middle, low=low, high=high), max(row.reply_speeds))


def _finding(by_workload: dict[str, list[Spread]]) -> str:
    """Of each workload the chosen setting, else the fastest by its median."""
    parts = []
    for workload, spreads in by_workload.items():
        chosen = [spread for spread in spreads if spread.row.chosen]
        shown = chosen[0] if chosen else max(spreads, key=lambda spread: spread.everyday.value)
        every = shown.everyday
        parts.append(
            f"{plain(workload)}: with {setting_name(shown.row.config, 28)} a reply decodes at {short(every.value)} tokens/s on "
            f"an ordinary day, at {short(every.low)} to {short(every.high)} in nine of ten; the fastest of "
            f"{len(shown.row.reply_speeds)} reached {short(shown.peak)} ({percent(shown.peak / every.value - 1, signed=True)})"
        )
    text = ". ".join(f"{part[:1].upper()}{part[1:]}" for part in parts)
    return f"{text}."


def _panel(workload: str, spreads: Sequence[Spread]) -> Panel:
    ordered = sorted(spreads, key=lambda spread: row_order(spread.row))
    places = tuple(float(place) for place in range(len(ordered)))
    high = 1.06 * max(spread.peak for spread in ordered)
    labels = tuple(tick(spread.row.config) for spread in ordered)
    y = Axis("", high=-0.7, low=len(ordered) - 0.3, ticks=places, labels=labels, zero_line=False)
    plot = Plot(Axis("tokens/s of a single reply", high), y, height=110 + 24 * len(ordered))
    looks = styles(spread.row.config for spread in ordered)
    for place, spread in zip(places, ordered, strict=True):
        look = looks[drafter_key(spread.row.config)]
        plot.traces.append(
            points([spread.everyday], exact([place]), "", look, [_hover(spread)], [spread.row.in_profile], legend=False)
        )
    stars = Style(ORANGE, "star", "solid")
    peaks = exact([spread.peak for spread in ordered])
    texts = [f"{setting_name(s.row.config, 28)}: the fastest reply, {short(s.peak)} tokens/s" for s in ordered]
    plot.traces.append(points(peaks, exact(places), "the fastest reply", stars, texts))
    return plot.panel(plain(workload, 40))


def _hover(spread: Spread) -> str:
    every = spread.everyday
    return (
        f"{setting_name(spread.row.config, 28)}: median reply {short(every.value)} tokens/s, 5 to 95 % "
        f"{short(every.low)} to {short(every.high)}, {len(spread.row.reply_speeds)} replies, measured"
    )


def _table(spreads: Sequence[Spread]) -> Table:
    columns = (
        "workload",
        "setting",
        "median reply, tokens/s",
        "5 to 95 %, tokens/s",
        "fastest reply, tokens/s",
        "fastest over median",
        "replies",
    )
    ordered = sorted(spreads, key=lambda spread: row_order(spread.row))
    return Table(columns, tuple(_cells(spread) for spread in ordered))


def _cells(spread: Spread) -> tuple[str, ...]:
    every = spread.everyday
    return (
        plain(spread.row.workload),
        setting_name(spread.row.config) + (" (chosen)" if spread.row.chosen else ""),
        short(every.value),
        f"{short(every.low)} to {short(every.high)}",
        short(spread.peak),
        percent(spread.peak / every.value - 1, signed=True),
        str(len(spread.row.reply_speeds)),
    )

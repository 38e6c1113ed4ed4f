"""Spread of single replies: what one reply may give, and how far the fastest of them is from every day."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from ...calibrate.records import Interval, ReplySpread, Validation, ValidationRow
from ...profiler.records import Setting
from ..numbers import plain, short
from ..panels import ORANGE, Axis, Panel, Plot, Section, Style, Table, Trace, exact, line, points, transparent
from ..verdict import setting_name
from .checked import row_order, tick
from .series import drafter_key, in_order, styles

SHOWN_REPLIES = 120
"""Of each setting, as strokes; more of them are thinned out evenly by speed."""
FEWEST_REPLIES = 5
"""Below this a share of 5 % is no figure."""


@dataclass(frozen=True)
class Replies:
    """Speeds of the single replies of one row, in tokens/s as the clock gave them."""

    row: ValidationRow

    @property
    def low(self) -> float:
        """5 % of replies do not reach it."""
        return self._twentieths[0]

    @property
    def everyday(self) -> float:
        """The median."""
        return median(self.row.reply_speeds)

    @property
    def high(self) -> float:
        """5 % of replies exceed it."""
        return self._twentieths[-1]

    @property
    def peak(self) -> float:
        """The fastest."""
        return max(self.row.reply_speeds)

    @property
    def interval(self) -> Interval:
        """Median with 5 and 95 %."""
        return Interval(value=self.everyday, low=self.low, high=self.high)

    @property
    def _twentieths(self) -> list[float]:
        return quantiles(self.row.reply_speeds, n=20, method="inclusive")


def spread_of_replies(validation: Validation | None, settings: Iterable[Setting] = ()) -> Section:
    """A panel for each workload: every reply of every setting that was run, with median, 5 to 95 % and what was forecast.

    `settings`: all that were forecast, in whose order drafters get their looks.
    """
    id_ = "spread-of-replies"
    rows = validation.rows if validation else ()
    known = [Replies(row) for row in rows if len(row.reply_speeds) >= FEWEST_REPLIES]
    if not known:
        older = "the validation does not hold single replies" if rows else "nothing was run yet"
        missing = f"Spread of single replies: {older}. Run specgauge validate to fill this."
        return Section(id=id_, finding="", reading="", missing=missing)
    looks = styles((*settings, *(replies.row.config for replies in known)))
    return Section(
        id=id_,
        finding=_finding(known),
        reading="Each stroke is one reply, as the clock gave it: drift of the session is not divided out. The marker is the "
        "median, its bar 5 to 95 % of replies, a star the fastest, luck and not what a day gives. The line above is the forecast of 5 to 95 % with a "
        "tick at its median, from each prompt's own rounds and the noise that plain replies had while profiling; there is none "
        "where acceptance is not known reply by reply.",
        panels=tuple(_panels(known, looks)),
        table=_table(known),
    )


def _finding(known: Sequence[Replies]) -> str:
    """By workload, of the chosen setting: everyday and peak, with plain decoding beside it."""
    parts = []
    for workload in in_order(replies.row.workload for replies in known):
        here = [replies for replies in known if replies.row.workload == workload]
        first = next((replies for replies in here if replies.row.chosen), None) or max(here, key=lambda r: r.everyday)
        text = (
            f"{plain(workload, 40)}: everyday is {short(first.everyday)} tokens/s (5 to 95 % of replies: {short(first.low)} to "
            f"{short(first.high)}); the fastest of {len(first.row.reply_speeds)}, the figure people quote, was "
            f"{short(first.peak)}, with {setting_name(first.row.config, 24)}"
        )
        base = next((replies for replies in here if _is_plain_of(replies.row, first.row)), None)
        beside = f"; plain {short(base.everyday)} ({short(base.low)} to {short(base.high)})" if base else ""
        parts.append(text + beside)
    return f"{'. '.join(text[:1].upper() + text[1:] for text in parts)}."


def _is_plain_of(row: ValidationRow, other: ValidationRow) -> bool:
    """Whether `row` is plain decoding of the target of a drafting `other`."""
    return row.config.drafter == "none" != other.config.drafter and row.config.target == other.config.target


def _panels(known: Sequence[Replies], looks: Mapping[tuple[str, ...], Style]) -> Iterable[Panel]:
    for workload in in_order(replies.row.workload for replies in known):
        here = sorted((r for r in known if r.row.workload == workload), key=lambda r: row_order(r.row))
        high = 1.06 * max(max(r.peak, r.row.reply_spread.high if r.row.reply_spread else 0.0) for r in here)
        ticks = tuple(float(place) for place in range(len(here)))
        labels = tuple(
            f"{tick(replies.row.config)} ✓" if replies.row.chosen else tick(replies.row.config) for replies in here
        )
        y = Axis("", high=-0.7, low=len(here) - 0.3, ticks=ticks, labels=labels, zero_line=False)
        plot = Plot(Axis("tokens/s of a single reply", high), y, height=110 + 34 * len(here))
        for place, replies in zip(ticks, here, strict=True):
            _draw(plot, place, replies, looks[drafter_key(replies.row.config)])
        stars = Style(ORANGE, "star", "solid")
        peaks, texts = exact([replies.peak for replies in here]), [_hover(replies) for replies in here]
        plot.traces.append(points(peaks, exact(ticks), "the fastest reply", stars, texts))
        yield plot.panel(plain(workload, 60))


def _draw(plot: Plot, place: float, replies: Replies, look: Style) -> None:
    speeds = sorted(replies.row.reply_speeds)
    shown = [speeds[round(i * (len(speeds) - 1) / (SHOWN_REPLIES - 1))] for i in range(SHOWN_REPLIES)]
    plot.traces.append(_strokes(speeds if len(speeds) <= SHOWN_REPLIES else shown, place, look))
    if replies.row.reply_spread is not None:
        _draw_forecast(plot, place - 0.3, replies.row.reply_spread, look)
    text = _hover(replies)
    plot.traces.append(points([replies.interval], exact([place]), "", look, [text], legend=False))


def _strokes(speeds: Sequence[float], place: float, look: Style) -> Trace:
    """Replies as strokes below the median's marker; four digits are enough to see."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [float(f"{speed:.4g}") for speed in speeds],
        "y": [place + 0.26] * len(speeds),
        "name": "",
        "showlegend": False,
        "marker": {"color": transparent(look.colour, 0.45), "symbol": "line-ns-open", "size": 9, "line": {"width": 1}},
        "hovertemplate": "one reply: %{x} tokens/s<extra></extra>",
    }


def _draw_forecast(plot: Plot, place: float, spread: ReplySpread, look: Style) -> None:
    text = f"forecast of single replies: {_forecast_text(spread)} tokens/s"
    ends = [spread.low, spread.median, spread.high]
    thin = Style(look.colour, look.symbol, "solid")
    plot.traces.append(line(ends, [place] * 3, "", thin, [text] * 3) | {"showlegend": False})
    tick = Style(look.colour, "line-ns", "solid")
    plot.traces.append(points(exact([spread.median]), exact([place]), "", tick, [text], legend=False))


def _hover(replies: Replies) -> str:
    row = replies.row
    forecast = f"; forecast {_forecast_text(row.reply_spread)}" if row.reply_spread else ""
    return (
        f"{setting_name(row.config, 28)}{' (chosen)' if row.chosen else ''}: everyday {short(replies.everyday)} tokens/s, 5 to "
        f"95 % {short(replies.low)} to {short(replies.high)}, fastest of {len(row.reply_speeds)} replies "
        f"{short(replies.peak)}{forecast}"
    )


def _forecast_text(spread: ReplySpread) -> str:
    return f"{short(spread.median)} ({short(spread.low)} to {short(spread.high)})"


def _table(known: Sequence[Replies]) -> Table:
    columns = (
        "workload",
        "setting",
        "replies",
        "median, tokens/s",
        "5 % stay below",
        "5 % exceed",
        "fastest",
        "fastest / median",
        "forecast median (5 to 95 %)",
    )
    return Table(
        columns, tuple(_cells(replies) for replies in sorted(known, key=lambda replies: row_order(replies.row)))
    )


def _cells(replies: Replies) -> tuple[str, ...]:
    row = replies.row
    return (
        plain(row.workload),
        setting_name(row.config) + (" (chosen)" if row.chosen else ""),
        str(len(row.reply_speeds)),
        short(replies.everyday),
        short(replies.low),
        short(replies.high),
        short(replies.peak),
        f"{replies.peak / replies.everyday:.2f}",
        _forecast_text(row.reply_spread) if row.reply_spread else "-",
    )

"""The parts of a figure: panels of traces with one look, the table of its numbers, and how they are told apart.

Measured is a marker, forecast a line, an interval a band or an error bar, so that a figure reads in grey too. Colours
are Okabe and Ito's. A panel's figure is plotly JSON without a theme: the page adds the colours of text and grid.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..calibrate.records import Interval

BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "pentagon", "star")
DASHES = ("solid", "dash", "dashdot", "longdash", "longdashdot", "dot")
REFERENCE = "#868e96"
"""Reference lines: a grey that shows on white and on black."""
ON_BOTH = "#757d86"
"""Of figures that stand on the page itself: a darker grey, read on white and on black."""

Trace = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """The numbers of a figure, as text."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Panel:
    """One plot: a caption and plotly's JSON, safe inside a script element."""

    caption: str
    figure_json: str


@dataclass(frozen=True)
class Part:
    """What a section has beside its panels: the templates `name`.html, `name`.css and `name`.js, the JSON that the script
    reads (safe inside a script element), and lines of text."""

    name: str
    data_json: str = "{}"
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Section:
    """One figure of the report. Without evidence `missing` says what to run, and there is no panel."""

    id: str
    finding: str
    reading: str
    panels: tuple[Panel, ...] = ()
    table: Table | None = None
    missing: str = ""
    part: Part | None = None

    @property
    def title(self) -> str:
        """Its name in the table of contents."""
        words = self.id.replace("-", " ")
        return f"{words[:1].upper()}{words[1:]}"


@dataclass(frozen=True)
class Style:
    """How one series is told from the others, in colour and in grey."""

    colour: str
    symbol: str
    dash: str


@dataclass(frozen=True)
class Axis:
    """Title with unit, and an upper end where panels share one."""

    title: str
    high: float | None = None
    low: float = 0.0
    ticks: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()
    zero_line: bool = True


@dataclass
class Plot:
    """Collects traces and reference marks of one panel, then becomes one."""

    x: Axis
    y: Axis
    traces: list[Trace] = field(default_factory=list)
    shapes: list[dict[str, Any]] = field(default_factory=list)
    notes: list[dict[str, Any]] = field(default_factory=list)
    stacked: bool = False
    height: int = 300

    def panel(self, caption: str) -> Panel:
        """The finished panel; NaN or infinity among the numbers is an error (ValueError)."""
        shown = [trace for trace in self.traces if trace.get("showlegend", True) and trace.get("name")]
        layout = {
            "height": self.height + 22 * len(shown),
            "margin": {"l": 56, "r": 12, "t": 12, "b": 44},
            "xaxis": _axis_layout(self.x),
            "yaxis": _axis_layout(self.y),
            "shapes": self.shapes,
            "annotations": self.notes,
            "hovermode": "closest",
            "dragmode": False,
            "barmode": "relative" if self.stacked else "group",
            "bargap": 0.3,
            "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"},
            "showlegend": bool(shown),
        }
        return Panel(caption=caption, figure_json=script_json({"data": self.traces, "layout": layout}))

    def across(self, y: float, name: str) -> None:
        """A dashed reference line over the whole width."""
        span = [self.x.low, self.x.high if self.x.high is not None else 1.0]
        self.traces.append(line(span, [y, y], name, Style(REFERENCE, "circle", "dash")))

    def marked(self, x: float, text: str, level: int = 0) -> None:
        """A dotted upright with a word at its top, `level` lines further down, on the side where there is room."""
        mark = {"color": REFERENCE, "width": 1, "dash": "dot"}
        self.shapes.append({"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "line": mark})
        right = self.x.high is not None and x > self.x.low + 0.55 * (self.x.high - self.x.low)
        place = {"x": x, "xanchor": "right" if right else "left", "y": 1, "yref": "paper", "yanchor": "top"}
        place["yshift"] = -14 * level
        self.notes.append(place | {"text": text, "showarrow": False, "font": {"size": 11}})


def style(index: int) -> Style:
    """The look of series number `index`; colours, symbols and dashes repeat after six."""
    return Style(COLOURS[index % 6], SYMBOLS[index % 6], DASHES[index % 6])


def script_json(value: object) -> str:
    """JSON that cannot end the script element or start a comment in it, whatever its strings hold."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def label(text: str) -> str:
    """Text for plotly, which reads tags and entities in labels."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def line(x: Sequence[float], y: Sequence[float | None], name: str, look: Style, hover: Sequence[str] = ()) -> Trace:
    """A forecast; a None in `y` breaks the line."""
    trace: Trace = {"type": "scatter", "mode": "lines", "x": list(x), "y": list(y), "name": label(name)}
    trace["line"] = {"color": look.colour, "dash": look.dash, "width": 2}
    return trace | _hover(hover)


def band(x: Sequence[float], low: Sequence[float], high: Sequence[float], look: Style) -> Trace:
    """The interval of a forecast."""
    outline = {"x": [*x, *reversed(x)], "y": [*high, *reversed(low)]}
    fill = {"fill": "toself", "fillcolor": transparent(look.colour, 0.18), "line": {"width": 0}}
    quiet = {"hoverinfo": "skip", "showlegend": False, "name": ""}
    return {"type": "scatter", "mode": "lines"} | outline | fill | quiet


def points(
    x: Sequence[Interval],
    y: Sequence[Interval],
    name: str,
    look: Style,
    hover: Sequence[str],
    hollow: Sequence[bool] = (),
    legend: bool = True,
) -> Trace:
    """Measurements, with error bars where a coordinate has bounds; hollow where told."""
    symbols = [f"{look.symbol}-open" if is_open else look.symbol for is_open in hollow] or look.symbol
    trace: Trace = {"type": "scatter", "mode": "markers", "name": label(name), "showlegend": legend}
    trace |= {"x": [item.value for item in x], "y": [item.value for item in y]}
    trace["marker"] = {"color": look.colour, "symbol": symbols, "size": 8, "line": {"width": 2, "color": look.colour}}
    for axis, intervals in (("error_x", x), ("error_y", y)):
        if any(item.high > item.low for item in intervals):
            trace[axis] = _error_bars(intervals, look)
    return trace | _hover(hover)


def exact(values: Sequence[float]) -> list[Interval]:
    """Coordinates that have no bounds of their own."""
    return [Interval(value=value, low=value, high=value) for value in values]


def bars(x: Sequence[float], y: Sequence[float], name: str, colour: str, pattern: str, hover: Sequence[str]) -> Trace:
    """One term of a stack, hatched so that it is told apart in grey; negative values go below zero."""
    fill = {"color": colour, "pattern": {"shape": pattern, "size": 6, "solidity": 0.2, "fillmode": "overlay"}}
    trace: Trace = {"type": "bar", "x": list(x), "y": list(y), "name": label(name), "marker": fill}
    return trace | _hover(hover)


@dataclass(frozen=True)
class GridCell:
    """A cell of a grid at whole coordinates: its colour, dark text on it, and whether it is hatched as extrapolated."""

    x: int
    y: int
    colour: str
    text: str
    hover: str
    hatched: bool = False


def grid_cells(cells: Sequence[GridCell], ink: str) -> list[Trace]:
    """Cells as bars, which unlike plotly's heat maps can be hatched; `ink` of text and hatching. One trace for each look."""
    looks = dict.fromkeys((cell.colour, cell.hatched) for cell in cells)
    return [_alike([c for c in cells if (c.colour, c.hatched) == look], ink) for look in looks]


def _alike(cells: Sequence[GridCell], ink: str) -> Trace:
    trace: Trace = {"type": "bar", "x": [cell.x for cell in cells], "y": [0.96] * len(cells)}
    trace |= {
        "base": [cell.y - 0.48 for cell in cells],
        "width": 0.96,
        "offset": -0.48,
        "showlegend": False,
        "name": "",
    }
    trace |= {"text": [cell.text for cell in cells], "textposition": "inside", "insidetextanchor": "middle"}
    trace |= {"textangle": 0, "constraintext": "none", "textfont": {"color": ink, "size": 12}, "cliponaxis": False}
    trace["marker"] = {"color": cells[0].colour, "line": {"width": 0}}
    if cells[0].hatched:
        trace["marker"]["pattern"] = {"shape": "/", "fillmode": "overlay", "fgcolor": ink, "fgopacity": 0.25}
        trace["marker"]["pattern"] |= {"size": 8, "solidity": 0.14}
    return trace | _hover([cell.hover for cell in cells])


def lying_bar(y: float, x: Interval, colour: str, pattern: str, hover: str, text: str, hollow: bool = False) -> Trace:
    """A bar from 0 to the right with its interval; `text` stands inside its foot. Hollow: a bound, not a speed."""
    trace = bars([x.value], [y], "", colour, pattern, [hover])
    trace |= {"orientation": "h", "showlegend": False, "width": 0.66, "text": [text], "textposition": "inside"}
    trace |= {"insidetextanchor": "start", "textangle": 0, "constraintext": "none"}
    if hollow:
        trace["marker"] = {"color": transparent(colour, 0.12), "line": {"color": colour, "width": 1}}
        return trace | {"textfont": {"color": ON_BOTH, "weight": 600}}
    trace |= {"textfont": {"color": "#ffffff", "weight": 600}}
    return trace | {"error_x": _error_bars([x], Style(REFERENCE, "circle", "solid"))}


def transparent(colour: str, opacity: float) -> str:
    """A hex colour as rgba()."""
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


def _hover(texts: Sequence[str]) -> Trace:
    """Foreign text goes in as data, never into the template."""
    if not texts:
        return {"hoverinfo": "skip"}
    return {"hovertext": [label(text) for text in texts], "hovertemplate": "%{hovertext}<extra></extra>"}


def _error_bars(intervals: Sequence[Interval], look: Style) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [max(0.0, item.high - item.value) for item in intervals],
        "arrayminus": [max(0.0, item.value - item.low) for item in intervals],
        "color": look.colour,
        "thickness": 1.2,
        "width": 3,
    }


def _axis_layout(axis: Axis) -> dict[str, Any]:
    layout: dict[str, Any] = {"title": {"text": axis.title, "standoff": 8}, "rangemode": "tozero", "fixedrange": True}
    layout |= {"automargin": True, "zeroline": axis.zero_line}
    if axis.high is not None:
        layout["range"] = [axis.low, axis.high]
    if axis.ticks:
        layout |= {"tickmode": "array", "tickvals": list(axis.ticks)}
    if axis.labels:
        layout["ticktext"] = [label(text) for text in axis.labels]
    return layout

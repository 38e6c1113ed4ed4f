"""Maps: the best draft length over context and streams, where speculation stops paying, and what fits into memory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...calibrate.map_records import MemoryMap, SpeedCell, SpeedMap
from ...calibrate.records import Recommendation
from ...model.maps import pays_up_to
from ...profiler.records import Setting
from ..numbers import mebibytes, plain, short
from ..panels import VERMILLION, Axis, GridCell, Panel, Plot, Section, Table, grid_cells
from ..verdict import drafter_name
from .series import in_order

ID = "maps"
MISSING = "Maps: no drafter was forecast, or by an older version. Run specgauge recommend again to fill this."
FASTER, SLOWER, EVEN = "#8cc5ea", "#f2b27e", "#f4f3ee"
"""Blue, orange and near white (Okabe and Ito's, lightened): dark numbers read on all of them."""
INK = "#1b1e23"
MOST_PANELS = 4
FITS = {"every": FASTER, "tight": "#cfe6f6", "some": EVEN, "none": SLOWER}


def maps(recommendation: Recommendation) -> Section:
    """A map of speed for the fastest drafter of each workload, and one of memory for each of these drafters."""
    speed = _shown(recommendation)
    wide = [one for one in speed if len(one.cells) > 1]
    fits = _memory_of(recommendation, speed)
    rooms = [one for one in fits if one.cells]
    unknown = in_order([*(one.unknown for one in speed), *(one.unknown for one in fits)])
    reasons = [f"{plain(reason[:1].upper() + reason[1:], 300)}." for reason in unknown if reason]
    if not wide and not rooms:
        missing = f"Maps: {plain(' '.join(reasons), 600)}" if reasons else MISSING
        return Section(id=ID, finding="", reading="", missing=missing)
    return Section(
        id=ID,
        finding=_finding(wide, rooms),
        reading=" ".join([READING] * bool(wide) + [ROOM_READING] * bool(rooms) + reasons),
        panels=(
            *(_speed_panel(one) for one in wide[:MOST_PANELS]),
            *(_memory_panel(one) for one in rooms[:MOST_PANELS]),
        ),
        table=Table(COLUMNS, (*_speed_rows(wide), *_memory_rows(rooms))),
    )


READING = (
    "Speed: the fastest draft length, and its speed over plain decoding at the same place, forecast; blue is "
    "faster, orange slower than plain. The thick line bounds where the whole interval is above 1. A question mark and "
    "hatching: extrapolated beyond what was timed. Several streams are derived from wider passes; no run checks them."
)
ROOM_READING = (
    "Memory: the longest draft, of those shown, that fits, counted from the headers of the files; what the runtime takes is "
    "a prior."
)


def _shown(recommendation: Recommendation) -> list[SpeedMap]:
    """Of each workload the map of its fastest drafter."""
    found = []
    for workload in in_order(one.workload for one in recommendation.speed_maps):
        mine = [one for one in recommendation.speed_maps if one.workload == workload]
        found.append(max(mine, key=lambda one: one.cells[0].tokens_per_second))
    return found


def _memory_of(recommendation: Recommendation, speed: Sequence[SpeedMap]) -> list[MemoryMap]:
    """The memory of the drafters shown; all where no speed is."""
    wanted = {(one.setting.target, one.setting.drafter, one.setting.draft) for one in speed}
    mine = [one for one in recommendation.memory_maps if (one.target, one.drafter, one.draft) in wanted]
    return mine or list(recommendation.memory_maps)


def _pays(cell: SpeedCell) -> bool:
    """Beyond noise: the whole interval is above 1."""
    return cell.speed_up_low > 1


def _finding(speed: Sequence[SpeedMap], rooms: Sequence[MemoryMap]) -> str:
    parts = [_pays_text(one) for one in speed]
    parts += [_room_text(one) for one in rooms[:1]]
    text = "; ".join(part for part in parts if part)
    return f"{text[:1].upper()}{text[1:]}."


def _pays_text(one: SpeedMap) -> str:
    """Up to how many streams drafting pays at the shortest and the longest context that is believed, by what was timed;
    how far by extrapolation, beside it."""
    believed = [c for c in _contexts(one) if any(x.provenance != "prior" for x in one.cells if x.context == c)]
    ends = in_order([believed[0], believed[-1]] if believed else [_contexts(one)[0]])
    name = f"{plain(one.workload)}: {drafter_name(one.setting, 28)} pays"
    timed, beyond = zip(*(_reach(one, context) for context in ends), strict=True)
    further = " to ".join(str(n) for n in in_order(beyond))
    extra = "" if beyond == timed else f" ({further} by extrapolation)"
    if len(set(timed)) == 1:
        span = " to ".join(f"{context:,.0f}" for context in ends)
        return f"{name} {_streams_text(timed[0])} at {span} tokens of context{extra}"
    texts = (f"{_streams_text(n)} at {context:,.0f} tokens of context" for n, context in zip(timed, ends, strict=True))
    return f"{name} {', '.join(texts)}{extra}"


def _reach(one: SpeedMap, context: float) -> tuple[int, int]:
    """Streams up to which it pays by what was timed, and by extrapolation too."""
    column = [cell for cell in one.cells if cell.context == context]
    streams = tuple(cell.streams for cell in column)
    timed = pays_up_to([_pays(cell) and cell.provenance != "prior" for cell in column], streams)
    return timed, pays_up_to([_pays(cell) for cell in column], streams)


def _streams_text(streams: int) -> str:
    if streams == 0:
        return "for no number of streams by what was timed"
    return f"up to {streams} stream{'' if streams == 1 else 's'}"


def _room_text(one: MemoryMap) -> str:
    streams = min(cell.streams for cell in one.cells)
    mine = [c for c in one.largest_contexts if c.streams == streams and c.context is not None]
    if not mine:
        return f"{plain(one.target, 28)} does not fit {plain(one.room, 80)}"
    longest = max(mine, key=lambda c: c.draft_tokens)
    most = longest.context or 0
    return (
        f"in memory up to {most:,} tokens of context fit with {longest.draft_tokens} draft tokens and {streams} "
        f"stream{'' if streams == 1 else 's'} ({plain(one.room, 80)})"
    )


def _contexts(one: SpeedMap) -> list[float]:
    return sorted({cell.context for cell in one.cells})


def _speed_panel(one: SpeedMap) -> Panel:
    contexts, streams = _contexts(one), sorted({cell.streams for cell in one.cells})
    plot = _grid([f"{c:,.0f}" for c in contexts], [str(n) for n in streams])
    placed = [(contexts.index(c.context), streams.index(c.streams), c) for c in one.cells]
    shown = [GridCell(x, y, _colour(c), _speed_text(c), _speed_hover(c), c.provenance == "prior") for x, y, c in placed]
    plot.traces.extend(grid_cells(shown, INK))
    paying = {(x, y): _pays(cell) for x, y, cell in placed}
    plot.shapes.extend(_boundary(paying))
    return plot.panel(f"{plain(one.workload, 40)}, {_name(one.setting)}: best draft tokens, times plain")


def _grid(x: Sequence[str], y: Sequence[str]) -> Plot:
    across = Axis("cached tokens of context, each stream", len(x) - 0.5, -0.5, tuple(range(len(x))), tuple(x), False)
    up = Axis("streams", len(y) - 0.5, -0.5, tuple(range(len(y))), tuple(y), False)
    return Plot(across, up, height=90 + 46 * len(y))


def _colour(cell: SpeedCell) -> str:
    """Even within 2 % of plain decoding."""
    if abs(cell.speed_up - 1) <= 0.02:
        return EVEN
    return FASTER if cell.speed_up > 1 else SLOWER


def _speed_text(cell: SpeedCell) -> str:
    mark = "?" if cell.provenance == "prior" else ""
    length = str(cell.draft_tokens) if cell.speed_up > 1 else "plain"
    return f"{length}{mark}<br>{cell.speed_up:.2f}x"


def _speed_hover(cell: SpeedCell) -> str:
    state = (
        "pays" if _pays(cell) else "does not pay" if cell.speed_up_high < 1 else "cannot be told from plain decoding"
    )
    return (
        f"{cell.streams} stream{'' if cell.streams == 1 else 's'} behind {cell.context:,.0f} tokens: best {cell.draft_tokens} draft "
        f"tokens, {short(cell.tokens_per_second)} tokens/s each, plain {short(cell.plain_tokens_per_second)}, forecast; "
        f"{cell.speed_up:.2f}x ({cell.speed_up_low:.2f} to {cell.speed_up_high:.2f}): {state}"
        f"{'; extrapolated' if cell.provenance == 'prior' else ''}"
    )


def _boundary(paying: dict[tuple[int, int], bool]) -> Iterator[dict[str, Any]]:
    """The edges between cells where drafting pays and those where it does not."""
    look = {"color": VERMILLION, "width": 4}
    for (x, y), here in paying.items():
        if paying.get((x + 1, y), here) != here:
            yield {"type": "line", "x0": x + 0.5, "x1": x + 0.5, "y0": y - 0.5, "y1": y + 0.5, "line": look}
        if paying.get((x, y + 1), here) != here:
            yield {"type": "line", "x0": x - 0.5, "x1": x + 0.5, "y0": y + 0.5, "y1": y + 0.5, "line": look}


def _memory_panel(one: MemoryMap) -> Panel:
    contexts, streams = sorted({c.context for c in one.cells}), sorted({c.streams for c in one.cells})
    plot = _grid([_compact(c) for c in contexts], [str(n) for n in streams])
    shown = [
        GridCell(x, y, FITS[fit.kind], fit.text, fit.hover)
        for x, context in enumerate(contexts)
        for y, count in enumerate(streams)
        for fit in [_fit(one, context, count)]
    ]
    plot.traces.extend(grid_cells(shown, INK))
    name = f"{plain(one.target, 28)} + {plain(one.draft or one.drafter, 28)}"
    return plot.panel(f"memory of {name}: longest draft that fits {plain(one.room, 80)}")


@dataclass(frozen=True)
class _Fit:
    """How a context and a number of streams fit; `kind` is a key of FITS."""

    kind: str
    text: str
    hover: str


def _fit(one: MemoryMap, context: int, streams: int) -> _Fit:
    here = [c for c in one.cells if (c.context, c.streams) == (context, streams)]
    fitting = [c for c in here if c.verdict in ("fits", "tight")]
    place = f"{streams} stream{'' if streams == 1 else 's'} of {context:,} tokens"
    if not fitting:
        least = min(here, key=lambda c: c.total_bytes)
        over = least.total_bytes - (one.free_bytes or 0.0)
        return _Fit(
            "none", "no", f"{place}: {mebibytes(round(over))} missing even with {least.draft_tokens} draft tokens"
        )
    most = max(fitting, key=lambda c: c.draft_tokens)
    spare = mebibytes(round((one.free_bytes or 0.0) - most.total_bytes))
    all_fit, tight = len(fitting) == len(here), most.verdict == "tight"
    kind = "tight" if tight else "every" if all_fit else "some"
    text = f"{most.draft_tokens}{'<br>tight' if tight else ''}"
    return _Fit(
        kind, text, f"{place}: {most.draft_tokens} draft tokens fit, {spare} to spare{', tight' if tight else ''}"
    )


def _compact(tokens: int) -> str:
    return f"{tokens // 1024}K" if tokens >= 1024 and tokens % 1024 == 0 else f"{tokens:,}"


def _name(setting: Setting) -> str:
    return f"{plain(setting.target, 28)} + {drafter_name(setting, 28)}"


COLUMNS = (
    "map",
    "of",
    "context, tokens",
    "streams",
    "draft tokens",
    "tokens/s of a stream",
    "plain",
    "times plain",
    "basis",
)


def _speed_rows(speed: Sequence[SpeedMap]) -> Iterator[tuple[str, ...]]:
    for one in speed:
        for cell in one.cells:
            bounds = f"{cell.speed_up:.2f} ({cell.speed_up_low:.2f} to {cell.speed_up_high:.2f})"
            yield (
                "speed",
                f"{plain(one.workload)}, {_name(one.setting)}",
                f"{cell.context:,.0f}",
                str(cell.streams),
                str(cell.draft_tokens),
                short(cell.tokens_per_second),
                short(cell.plain_tokens_per_second),
                bounds,
                "extrapolated" if cell.provenance == "prior" else "forecast",
            )


def _memory_rows(rooms: Sequence[MemoryMap]) -> Iterator[tuple[str, ...]]:
    """How far the context reaches at each draft length."""
    for one in rooms:
        for reach in one.largest_contexts:
            most = "not even 0" if reach.context is None else f"up to {reach.context:,}"
            name = f"{plain(one.target, 28)} + {plain(one.draft or one.drafter, 28)}"
            yield "memory", name, most, str(reach.streams), str(reach.draft_tokens), "", "", "", "counted"

"""Verification cost: seconds of a pass over its width and context, and where kernels switch."""

import statistics
from collections.abc import Iterable, Mapping, Sequence

from ...calibrate.records import Calibration, CostPoint, Interval
from ...profiler.records import ModelFile
from ..bounds import reading_seconds
from ..numbers import percent, plain, short, with_bounds
from ..panels import REFERENCE, Axis, Panel, Plot, Section, Style, Table, exact, line, points, style
from .series import grouped

KERNEL_ENDS = (8, 16)
"""Widths after which llama.cpp changes kernels; forecasts never interpolate across them."""
SWITCH_SHARE = 0.10
"""A pass is called a kernel switch where it differs from the line through the widths before it by more than this."""


ONE_ROW = "Verification passes yield a row of output for each token; prompt passes yield one row and show what the context adds."
ALL_ROWS = "Every pass yields a row of output for each token, as a verification needs them."


def verification_cost(calibration: Calibration, all_rows: bool = False, models: Sequence[ModelFile] = ()) -> Section:
    """A panel for each model, role and kind of pass: its seconds over its width, by context; kernel switches marked, and the
    least that memory bandwidth allows. `all_rows`: of this engine any pass has a row of output for each token."""
    id_ = "verification-cost"
    costs = [cost for cost in calibration.costs if cost.kind in ("verify", "batch", "decode")]
    if not costs:
        missing = "Verification cost: no pass was timed. Run specgauge profile to measure it."
        return Section(id=id_, finding="", reading="", missing=missing)
    groups = grouped(costs, lambda cost: (cost.role != "target", cost.model, cost.role, cost.kind != "verify"))
    return Section(
        id=id_,
        finding=_cost_finding(groups),
        reading=f"{ALL_ROWS if all_rows else ONE_ROW} Markers are measured, lines what the forecast takes between them: "
        "it never goes across a kernel switch. Crosses: a plain decode step. No pass is faster than reading its weights once at the measured bandwidth: the share is that of the fastest pass.",
        panels=tuple(
            _cost_panel(group, all_rows, reading_seconds(calibration, models, group[0].model)) for group in groups
        ),
        table=_cost_table(costs, {model.label: reading_seconds(calibration, models, model.label) for model in models}),
    )


def _cost_finding(groups: Sequence[Sequence[CostPoint]]) -> str:
    """Cost of a typical verification in plain steps, and where kernels switch."""
    steps = [cost for group in groups for cost in group if cost.kind == "decode"]
    verified = {group[0].model for group in groups if group[0].kind == "verify"}
    targets = [
        group
        for group in groups
        if group[0].role == "target" and (group[0].kind == "verify" or group[0].model not in verified)
    ]
    parts = [_ratio_text(group, steps) for group in targets]
    text = f"Verifying several tokens in one pass costs {', '.join(parts)}" if parts else "Only draft passes were timed"
    switches = sorted({width for group in groups for width, _ in _switches(group)})
    if not switches:
        return f"{text}; no kernel switch shows."
    return f"{text}; kernels switch before width {', '.join(str(width) for width in switches)}."


def _ratio_text(group: Sequence[CostPoint], steps: Sequence[CostPoint]) -> str:
    """The pass nearest to 5 tokens, in plain steps of the same model behind the same context."""
    nearest = min(cost.context for cost in group)
    curve = _curve(group, nearest)
    own = [cost for cost in steps if cost.model == group[0].model and cost.context == nearest] or curve
    wide = min(curve, key=lambda cost: abs(cost.width - 5))
    ratio = wide.seconds.value / own[0].seconds.value
    return f"{short(ratio)} plain steps for {wide.width} on {plain(group[0].model, 28)}"


def target_switches(costs: Sequence[CostPoint], target: str) -> list[tuple[int, float]]:
    """Kernel switches of a target's verification, as _switches tells them; of all its passes where none was timed."""
    mine = [cost for cost in costs if cost.model == target and cost.role == "target"]
    verified = [cost for cost in mine if cost.kind == "verify"]
    return _switches(verified or [cost for cost in mine if cost.kind in ("batch", "decode")])


def _cost_panel(group: Sequence[CostPoint], all_rows: bool, bound: float | None) -> Panel:
    widest = max(cost.width for cost in group)
    highest = 1e3 * max(cost.seconds.high for cost in group)
    plot = Plot(Axis("tokens in one pass", widest + 0.6), Axis("time of a pass, ms", 1.1 * highest))
    contexts = sorted({cost.context for cost in group})
    for place, context in enumerate(contexts):
        _draw_curve(plot, _curve(group, context), f"behind {context} tokens", style(place))
    for place, context in enumerate(contexts):
        steps = [cost for cost in group if cost.context == context and cost.kind == "decode"]
        crosses = Style(style(place).colour, "x", "solid")
        if steps:
            plot.traces.append(_cost_points(steps, f"decode step behind {context}", crosses, legend=False))
    for width, change in _switches(group):
        plot.marked(width - 0.5, f"switch {percent(change, signed=True)}")
    if bound is not None:
        share = bound / min(cost.seconds.value for cost in group)
        text = f"bound by bandwidth, {short(1e3 * bound)} ms ({percent(share)})"
        plot.traces.append(line([0.0, widest + 0.6], [1e3 * bound] * 2, text, Style(REFERENCE, "x", "longdashdot")))
    role = "" if group[0].role == "target" else " as draft"
    verifies = group[0].kind == "verify" or (all_rows and group[0].role == "target")
    kind = "verification" if verifies else "its passes" if all_rows else "prompt passes"
    return plot.panel(f"{plain(group[0].model, 40)}{role}, {kind}")


def _curve(group: Sequence[CostPoint], context: int) -> list[CostPoint]:
    """Passes over several tokens behind `context`, by width; plain steps where none was timed there."""
    here = [cost for cost in group if cost.context == context]
    batches = [cost for cost in here if cost.kind != "decode"]
    return sorted(batches or here, key=lambda cost: cost.width)


def _draw_curve(plot: Plot, curve: Sequence[CostPoint], name: str, look: Style) -> None:
    x: list[float] = []
    y: list[float | None] = []
    for before, cost in zip([None, *curve], curve, strict=False):
        if before is not None and any(before.width <= end < cost.width for end in KERNEL_ENDS):
            x.append(cost.width)
            y.append(None)
        x.append(cost.width)
        y.append(1e3 * cost.seconds.value)
    plot.traces.append(line(x, y, name, look))
    plot.traces.append(_cost_points(curve, name, look, legend=False))


def _cost_points(costs: Sequence[CostPoint], name: str, look: Style, legend: bool):
    hover = [
        f"{cost.width} tokens behind {cost.context}: {with_bounds(_in_milliseconds(cost.seconds))} ms, "
        f"{cost.kind}, {cost.samples} samples"
        for cost in costs
    ]
    y = [_in_milliseconds(cost.seconds) for cost in costs]
    return points(exact([float(cost.width) for cost in costs]), y, name, look, hover, legend=legend)


def _switches(group: Sequence[CostPoint]) -> list[tuple[int, float]]:
    """(first width past the switch, its cost over the line through the widths before - 1), median over contexts."""
    found: dict[int, list[float]] = {}
    for context in {cost.context for cost in group}:
        for width, change in _departures(_curve(group, context)):
            found.setdefault(width, []).append(change)
    medians = ((width, statistics.median(changes)) for width, changes in sorted(found.items()))
    return [(width, change) for width, change in medians if abs(change) > SWITCH_SHARE]


def _departures(curve: Sequence[CostPoint]) -> Iterable[tuple[int, float]]:
    """How far the first width past each kernel's end lies from the line through the widths from 2 on before it."""
    for start, end in zip((2, *(end + 1 for end in KERNEL_ENDS)), KERNEL_ENDS, strict=False):
        before = [cost for cost in curve if start <= cost.width <= end]
        after = [cost for cost in curve if cost.width > end]
        if len(before) < 2 or not after:
            continue
        widths, seconds = [cost.width for cost in before], [cost.seconds.value for cost in before]
        slope, intercept = statistics.linear_regression(widths, seconds)
        expected = intercept + slope * after[0].width
        if expected > 0:
            yield after[0].width, after[0].seconds.value / expected - 1


def _cost_table(costs: Sequence[CostPoint], bounds: Mapping[str, float | None]) -> Table:
    """Every pass beside `bounds`: seconds to read each model's weights once. What is left over is arithmetic, KV cache, launches."""
    ordered = sorted(costs, key=lambda cost: (cost.role, cost.model, cost.context, cost.kind, cost.width))
    columns = (
        "model",
        "role",
        "kind",
        "context, tokens",
        "width, tokens",
        "pass, ms",
        "samples",
        "reading the weights, ms",
        "share of the pass",
    )
    return Table(columns, tuple(_cost_cells(cost, bounds.get(cost.model)) for cost in ordered))


def _cost_cells(cost: CostPoint, bound: float | None) -> tuple[str, ...]:
    return (
        plain(cost.model),
        cost.role,
        cost.kind,
        str(cost.context),
        str(cost.width),
        with_bounds(_in_milliseconds(cost.seconds)),
        str(cost.samples),
        "-" if bound is None else short(1e3 * bound),
        "-" if bound is None else percent(bound / cost.seconds.value),
    )


def _in_milliseconds(seconds: Interval) -> Interval:
    return Interval(value=1e3 * seconds.value, low=1e3 * seconds.low, high=1e3 * seconds.high)

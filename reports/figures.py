"""The figures of the report: each a finding, panels that show it, and the numbers in a table.

A figure without evidence becomes one line that says what to run. Nothing is fitted here; the figures show records.
"""

import statistics
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, TypeVar

from ..calibrate.records import (
    Calibration,
    CostPoint,
    Interval,
    Recommendation,
    RoundBreakdown,
    RoundCheck,
    SettingForecast,
    Validation,
    ValidationRow,
)
from ..profiler.records import Setting
from .numbers import milliseconds, percent, plain, short, tokens_per_second, with_bounds
from .panels import (
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    REFERENCE,
    SKY,
    VERMILLION,
    Axis,
    Panel,
    Plot,
    Section,
    Style,
    Table,
    band,
    bars,
    exact,
    line,
    points,
    style,
)
from .verdict import check_text, drafter_name, measured_interval, setting_name

T = TypeVar("T")

KERNEL_ENDS = (8, 16)
"""Widths after which llama.cpp changes kernels; forecasts never interpolate across them."""
SWITCH_SHARE = 0.10
"""A pass is called a kernel switch where it differs from the line through the widths before it by more than this."""
TERMS = {
    "draft": (BLUE, ""),
    "draft_catch_up": (SKY, "|"),
    "draft_further": (BLUE, ""),
    "verification": (ORANGE, "/"),
    "draft_batch": (SKY, "."),
    "draft re-decode": (SKY, "."),
    "overhead": (PURPLE, "x"),
    "unexplained": (VERMILLION, "+"),
}
"""Colour and hatching of each term of a round, in the order of the stack."""
PLAIN = Style(REFERENCE, "x", "dash")


def all_sections(
    calibration: Calibration, recommendation: Recommendation, validation: Validation | None, all_rows: bool = False
) -> tuple[Section, ...]:
    """Every figure of the report, in order. `all_rows`: of this engine any pass has a row of output for each token."""
    rows = validation.rows if validation else ()
    checks = validation.rounds if validation else ()
    return (
        forecast_against_measured(validation),
        speed_over_length(recommendation, rows),
        verification_cost(calibration, all_rows),
        round_breakdown(calibration.rounds, checks),
    )


# Forecast against measurement


def forecast_against_measured(validation: Validation | None) -> Section:
    """Scatter with the identity line and a 5 % band, then the error of each setting by workload."""
    id_ = "forecast-against-measured"
    if validation is None or not validation.rows:
        missing = "Forecast against measurement: nothing was run yet. Run specgauge validate to check the forecasts."
        return Section(id=id_, finding="", reading="", missing=missing)
    return Section(
        id=id_,
        finding=check_text(validation),
        reading="Above the line the forecast was too high. Bars are intervals. Hollow: the setting's round time was "
        "measured while profiling, so it does not test the forecast.",
        panels=(_scatter(validation.rows), *_error_panels(validation.rows)),
        table=_validation_table(validation),
    )


def _scatter(rows: Sequence[ValidationRow]) -> Panel:
    high = 1.06 * max(max(row.high, row.measured_high) for row in rows)
    plot = Plot(Axis("measured, tokens/s", high), Axis("forecast, tokens/s", high), height=380)
    plot.traces.append(band([0.0, high], [0.0, 0.95 * high], [0.0, 1.05 * high], PLAIN))
    plot.traces.append(line([0.0, high], [0.0, high], "forecast = measured, ±5 %", PLAIN))
    for key, look in _styles(row.config for row in rows).items():
        mine = [row for row in rows if _drafter_key(row.config) == key]
        plot.traces.append(
            points(
                [measured_interval(row) for row in mine],
                [Interval(value=row.forecast, low=row.low, high=row.high) for row in mine],
                drafter_name(mine[0].config, 24),
                look,
                [_row_hover(row) for row in mine],
                [row.in_profile for row in mine],
            )
        )
    return plot.panel("all workloads")


def _error_panels(rows: Sequence[ValidationRow]) -> Iterable[Panel]:
    high = 1.1 * max(0.06, *(max(abs(row.low / row.measured - 1), abs(row.high / row.measured - 1)) for row in rows))
    looks = _styles(row.config for row in rows)
    for workload in _in_order(row.workload for row in rows):
        mine = sorted((row for row in rows if row.workload == workload), key=_row_order)
        yield _error_panel(workload, mine, looks, 100 * high)


def _error_panel(
    workload: str, rows: Sequence[ValidationRow], looks: dict[tuple[str, ...], Style], high: float
) -> Panel:
    ticks = tuple(float(place) for place in range(len(rows)))
    labels = tuple(_tick(row.config) for row in rows)
    y_axis = Axis("", high=-0.7, low=len(rows) - 0.3, ticks=ticks, labels=labels, zero_line=False)
    plot = Plot(Axis("error of the forecast, %", high, -high), y_axis, height=110 + 21 * len(rows))
    edge = {"type": "rect", "yref": "paper", "y0": 0, "y1": 1, "line": {"width": 0}, "layer": "below"}
    plot.shapes.append(edge | {"x0": -5, "x1": 5, "fillcolor": REFERENCE, "opacity": 0.18})
    for place, row in zip(ticks, rows, strict=True):
        bounds = Interval(
            value=100 * row.error, low=100 * (row.low / row.measured - 1), high=100 * (row.high / row.measured - 1)
        )
        look = looks[_drafter_key(row.config)]
        plot.traces.append(
            points([bounds], exact([place]), "", look, [_row_hover(row)], [row.in_profile], legend=False)
        )
    return plot.panel(f"error by setting: {plain(workload)}")


def _validation_table(validation: Validation) -> Table:
    columns = (
        "workload",
        "setting",
        "forecast, tokens/s",
        "measured, tokens/s",
        "raw, tokens/s",
        "error",
        "speed-up, paired",
        "tokens a round, forecast / measured",
        "in profile",
        "round time",
        "repeats",
    )
    return Table(columns, tuple(_validation_cells(row) for row in sorted(validation.rows, key=_row_order)))


def _validation_cells(row: ValidationRow) -> tuple[str, ...]:
    rounds = (row.tokens_per_round_forecast, row.tokens_per_round_measured)
    return (
        plain(row.workload),
        setting_name(row.config) + (" (chosen)" if row.chosen else ""),
        with_bounds(Interval(value=row.forecast, low=row.low, high=row.high)),
        with_bounds(measured_interval(row)),
        short(row.measured_raw),
        percent(row.error, signed=True),
        f"{row.speed_up:.2f} ({row.speed_up_low:.2f} to {row.speed_up_high:.2f})",
        " / ".join("-" if value is None else f"{value:.2f}" for value in rounds),
        "yes" if row.in_profile else "no",
        row.round_time_source,
        str(row.repeats),
    )


def _row_hover(row: ValidationRow) -> str:
    forecast = Interval(value=row.forecast, low=row.low, high=row.high)
    return (
        f"{plain(row.workload, 30)}: {setting_name(row.config, 28)}; forecast {tokens_per_second(forecast)}; "
        f"measured {tokens_per_second(measured_interval(row))}; error {percent(row.error, signed=True)}"
    )


def _row_order(row: ValidationRow) -> tuple[str, ...]:
    return (row.workload, row.config.target, *_drafter_key(row.config), f"{row.config.draft_tokens:04d}")


def _tick(setting: Setting) -> str:
    target = plain(setting.target_quant or setting.target, 8)
    return f"{target} plain" if setting.drafter == "none" else f"{target} {setting.drafter} {setting.draft_tokens}"


# Speed over draft length


def speed_over_length(recommendation: Recommendation, rows: Sequence[ValidationRow]) -> Section:
    """A panel for each workload and target: forecast lines with bands, measured points, plain baseline."""
    id_ = "speed-over-draft-length"
    forecasts = recommendation.candidates
    if not any(forecast.setting.draft_tokens for forecast in forecasts):
        missing = "Speed over draft length: no drafter was forecast. Run specgauge run with --draft DRAFT to fill this."
        return Section(id=id_, finding="", reading="", missing=missing)
    return Section(
        id=id_,
        finding=_fastest(forecasts),
        reading="Lines are forecasts with their intervals, markers are measured (hollow: round time measured while "
        "profiling). A drafter pays where its line is above the dashed one.",
        panels=tuple(_length_panels(forecasts, rows)),
        table=_forecast_table(forecasts),
    )


def _fastest(forecasts: Sequence[SettingForecast]) -> str:
    parts = []
    for workload in _in_order(forecast.workload for forecast in forecasts):
        mine = [forecast for forecast in forecasts if forecast.workload == workload]
        best = max(mine, key=lambda forecast: forecast.tokens_per_second.value)
        speed = tokens_per_second(best.tokens_per_second)
        parts.append(f"{plain(workload)}: fastest forecast is {setting_name(best.setting, 28)}, {speed}")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."


def _length_panels(forecasts: Sequence[SettingForecast], rows: Sequence[ValidationRow]) -> Iterable[Panel]:
    looks = _styles(forecast.setting for forecast in forecasts if forecast.setting.draft_tokens)
    longest = max(forecast.setting.draft_tokens for forecast in forecasts)
    for workload in _in_order(forecast.workload for forecast in forecasts):
        here = [forecast for forecast in forecasts if forecast.workload == workload]
        ran = [row for row in rows if row.workload == workload]
        high = 1.08 * max(*(f.tokens_per_second.high for f in here), *(row.measured_high for row in ran), 0.0)
        for target in _in_order(forecast.setting.target for forecast in here):
            mine = [forecast for forecast in here if forecast.setting.target == target]
            plot = Plot(Axis("draft tokens", longest + 0.5, -0.5, zero_line=False), Axis("tokens/s", high))
            _draw_plain(plot, mine)
            for key, look in looks.items():
                _draw_drafter(
                    plot, [f for f in mine if f.setting.draft_tokens and _drafter_key(f.setting) == key], look
                )
            _draw_runs(plot, [row for row in ran if row.config.target == target], looks)
            yield plot.panel(f"{plain(workload, 40)}, {plain(target, 40)}")


def _draw_plain(plot: Plot, forecasts: Sequence[SettingForecast]) -> None:
    known = [forecast.tokens_per_second for forecast in forecasts if not forecast.setting.draft_tokens]
    speed = known[0] if known else exact([forecasts[0].baseline_tokens_per_second])[0]
    span = [plot.x.low, plot.x.high or 1.0]
    plot.traces.append(band(span, [speed.low] * 2, [speed.high] * 2, PLAIN))
    plot.across(speed.value, f"plain, {short(speed.value)} tokens/s forecast")


def _draw_drafter(plot: Plot, forecasts: Sequence[SettingForecast], look: Style) -> None:
    if not forecasts:
        return
    mine = sorted(forecasts, key=lambda forecast: forecast.setting.draft_tokens)
    lengths = [float(forecast.setting.draft_tokens) for forecast in mine]
    speeds = [forecast.tokens_per_second for forecast in mine]
    plot.traces.append(band(lengths, [s.low for s in speeds], [s.high for s in speeds], look))
    hover = [f"{setting_name(f.setting, 28)}: forecast {tokens_per_second(f.tokens_per_second)}" for f in mine]
    plot.traces.append(line(lengths, [s.value for s in speeds], drafter_name(mine[0].setting, 28), look, hover))


def _draw_runs(plot: Plot, rows: Sequence[ValidationRow], looks: dict[tuple[str, ...], Style]) -> None:
    for key in _in_order(_drafter_key(row.config) for row in rows):
        mine = [row for row in rows if _drafter_key(row.config) == key]
        plot.traces.append(
            points(
                exact([float(row.config.draft_tokens) for row in mine]),
                [measured_interval(row) for row in mine],
                f"{drafter_name(mine[0].config, 28)}, measured",
                looks.get(key, PLAIN),
                [_row_hover(row) for row in mine],
                [row.in_profile for row in mine],
                legend=False,
            )
        )


def _forecast_table(forecasts: Sequence[SettingForecast]) -> Table:
    columns = (
        "workload",
        "setting",
        "forecast, tokens/s",
        "plain, tokens/s",
        "accepted / drafted a round",
        "break-even, accepted a round",
        "round",
        "ceiling at perfect acceptance, tokens/s",
        "round time",
    )
    return Table(columns, tuple(_forecast_cells(forecast) for forecast in forecasts))


def _forecast_cells(forecast: SettingForecast) -> tuple[str, ...]:
    drafts = forecast.setting.draft_tokens > 0
    return (
        plain(forecast.workload),
        setting_name(forecast.setting),
        with_bounds(forecast.tokens_per_second),
        short(forecast.baseline_tokens_per_second),
        f"{forecast.accepted_per_round:.2f} / {forecast.drafted_per_round:.2f}" if drafts else "-",
        f"{forecast.break_even_accepted:.2f}" if drafts else "-",
        milliseconds(forecast.round_seconds),
        short(forecast.ceiling_tokens_per_second) if drafts else "-",
        forecast.round_time_source,
    )


# Verification cost


ONE_ROW = "Verification passes yield a row of output for each token; prompt passes yield one row and show what the context adds."
ALL_ROWS = "Every pass yields a row of output for each token, as a verification needs them."


def verification_cost(calibration: Calibration, all_rows: bool = False) -> Section:
    """A panel for each model, role and kind of pass: its seconds over its width, by context; kernel switches marked."""
    id_ = "verification-cost"
    costs = [cost for cost in calibration.costs if cost.kind in ("verify", "batch", "decode")]
    if not costs:
        missing = "Verification cost: no pass was timed. Run specgauge profile to measure it."
        return Section(id=id_, finding="", reading="", missing=missing)
    groups = _grouped(costs, lambda cost: (cost.role != "target", cost.model, cost.role, cost.kind != "verify"))
    return Section(
        id=id_,
        finding=_cost_finding(groups),
        reading=f"{ALL_ROWS if all_rows else ONE_ROW} Markers are measured, lines what the forecast takes between them: "
        "it never goes across a kernel switch. Crosses: a plain decode step.",
        panels=tuple(_cost_panel(group, all_rows) for group in groups),
        table=_cost_table(costs),
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


def _cost_panel(group: Sequence[CostPoint], all_rows: bool) -> Panel:
    widest = max(cost.width for cost in group)
    highest = 1e3 * max(cost.seconds.high for cost in group)
    plot = Plot(Axis("tokens in one pass", widest + 0.6), Axis("seconds of a pass, ms", 1.1 * highest))
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


def _cost_table(costs: Sequence[CostPoint]) -> Table:
    ordered = sorted(costs, key=lambda cost: (cost.role, cost.model, cost.context, cost.kind, cost.width))
    columns = ("model", "role", "kind", "context, tokens", "width, tokens", "pass, ms", "samples")
    rows = (
        (
            plain(cost.model),
            cost.role,
            cost.kind,
            str(cost.context),
            str(cost.width),
            with_bounds(_in_milliseconds(cost.seconds)),
            str(cost.samples),
        )
        for cost in ordered
    )
    return Table(columns, tuple(rows))


def _in_milliseconds(seconds: Interval) -> Interval:
    return Interval(value=1e3 * seconds.value, low=1e3 * seconds.low, high=1e3 * seconds.high)


# Where a round goes


def round_breakdown(rounds: Sequence[RoundBreakdown], checks: Sequence[RoundCheck]) -> Section:
    """A panel for each target and drafter: the terms of a round stacked by draft length, and measured rounds."""
    id_ = "where-a-round-goes"
    if not rounds:
        missing = "Where a round goes: no round was timed. Run specgauge profile with a drafter to fill this."
        return Section(id=id_, finding="", reading="", missing=missing)
    groups = _grouped(rounds, lambda item: (item.target, item.drafter, item.draft, item.context))
    return Section(
        id=id_,
        finding=_round_finding(rounds, checks),
        reading="Bars are the model's terms, markers measured rounds (hollow: used to fit the overhead). Unexplained "
        "is the signed rest, measured less modelled; below zero the model was too slow. Overhead may be negative: in a "
        "round verification can be cheaper than the same pass taken alone.",
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
    return _grouped(rounds, lambda item: (item.drafter, item.draft))


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
    plot = Plot(Axis("draft tokens", ticks=tuple(lengths)), Axis("seconds of a round, ms"), stacked=True, height=320)
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
    seen = _in_order(name for item in rounds for name, _ in _terms(item))
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


# Telling series apart


def _drafter_key(setting: Setting) -> tuple[str, ...]:
    return (setting.drafter, setting.draft, str(setting.ngram_size))


def _styles(settings: Iterable[Setting]) -> dict[tuple[str, ...], Style]:
    """A look for each drafter; plain decoding is grey."""
    keys = _in_order(_drafter_key(setting) for setting in settings)
    drafters = [key for key in keys if key[0] != "none"]
    looks = {key: style(place) for place, key in enumerate(drafters)}
    return {key: looks.get(key, PLAIN) for key in keys}


def _in_order(items: Iterable[T]) -> list[T]:
    """Distinct items in order of appearance."""
    return list(dict.fromkeys(items))


def _grouped(items: Iterable[T], key: Callable[[T], tuple[Any, ...]]) -> list[list[T]]:
    """Lists of items of equal key, by key."""
    return [list(group) for _, group in groupby(sorted(items, key=key), key=key)]

"""Forecast against measurement: every setting that was run, and the error of each."""

from collections.abc import Iterable, Sequence

from ...calibrate.records import Interval, Validation, ValidationRow
from ...profiler.records import Setting
from ..numbers import percent, plain, short, tokens_per_second, with_bounds
from ..panels import REFERENCE, Axis, Panel, Plot, Section, Style, Table, band, exact, line, points
from ..verdict import check_text, drafter_name, measured_interval, setting_name
from .series import PLAIN, drafter_key, in_order, styles


def forecast_against_measured(validation: Validation | None, settings: Iterable[Setting] = ()) -> Section:
    """Scatter with the identity line and a 5 % band, then the error of each setting by workload.

    `settings`: all that were forecast, in whose order drafters get their looks, as in the other figures.
    """
    id_ = "forecast-against-measured"
    if validation is None or not validation.rows:
        missing = "Forecast against measurement: nothing was run yet. Run specgauge validate to check the forecasts."
        return Section(id=id_, finding="", reading="", missing=missing)
    looks = styles((*settings, *(row.config for row in validation.rows)))
    return Section(
        id=id_,
        finding=check_text(validation),
        reading="Above the line the forecast was too high. Bars are intervals. Hollow: the setting's round time was "
        "measured while profiling, so it does not test the forecast.",
        panels=(_scatter(validation.rows, looks), *_error_panels(validation.rows, looks)),
        table=_validation_table(validation),
    )


def _scatter(rows: Sequence[ValidationRow], looks: dict[tuple[str, ...], Style]) -> Panel:
    high = 1.06 * max(max(row.high, row.measured_high) for row in rows)
    plot = Plot(Axis("measured, tokens/s", high), Axis("forecast, tokens/s", high), height=380)
    plot.traces.append(band([0.0, high], [0.0, 0.95 * high], [0.0, 1.05 * high], PLAIN))
    plot.traces.append(line([0.0, high], [0.0, high], "forecast = measured, ±5 %", PLAIN))
    for key in in_order(drafter_key(row.config) for row in rows):
        mine = [row for row in rows if drafter_key(row.config) == key]
        plot.traces.append(
            points(
                [measured_interval(row) for row in mine],
                [Interval(value=row.forecast, low=row.low, high=row.high) for row in mine],
                drafter_name(mine[0].config, 24),
                looks[key],
                [row_hover(row) for row in mine],
                [row.in_profile for row in mine],
            )
        )
    return plot.panel("all workloads")


def _error_panels(rows: Sequence[ValidationRow], looks: dict[tuple[str, ...], Style]) -> Iterable[Panel]:
    high = 1.1 * max(0.06, *(max(abs(row.low / row.measured - 1), abs(row.high / row.measured - 1)) for row in rows))
    for workload in in_order(row.workload for row in rows):
        mine = sorted((row for row in rows if row.workload == workload), key=row_order)
        yield _error_panel(workload, mine, looks, 100 * high)


def _error_panel(
    workload: str, rows: Sequence[ValidationRow], looks: dict[tuple[str, ...], Style], high: float
) -> Panel:
    ticks = tuple(float(place) for place in range(len(rows)))
    labels = tuple(tick(row.config) for row in rows)
    y_axis = Axis("", high=-0.7, low=len(rows) - 0.3, ticks=ticks, labels=labels, zero_line=False)
    plot = Plot(Axis("error of the forecast, %", high, -high), y_axis, height=110 + 21 * len(rows))
    edge = {"type": "rect", "yref": "paper", "y0": 0, "y1": 1, "line": {"width": 0}, "layer": "below"}
    plot.shapes.append(edge | {"x0": -5, "x1": 5, "fillcolor": REFERENCE, "opacity": 0.18})
    for place, row in zip(ticks, rows, strict=True):
        bounds = Interval(
            value=100 * row.error, low=100 * (row.low / row.measured - 1), high=100 * (row.high / row.measured - 1)
        )
        look = looks[drafter_key(row.config)]
        plot.traces.append(points([bounds], exact([place]), "", look, [row_hover(row)], [row.in_profile], legend=False))
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
    return Table(columns, tuple(_validation_cells(row) for row in sorted(validation.rows, key=row_order)))


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


def row_hover(row: ValidationRow) -> str:
    forecast = Interval(value=row.forecast, low=row.low, high=row.high)
    return (
        f"{plain(row.workload, 30)}: {setting_name(row.config, 28)}; forecast {tokens_per_second(forecast)}; "
        f"measured {tokens_per_second(measured_interval(row))}; error {percent(row.error, signed=True)}"
    )


def row_order(row: ValidationRow) -> tuple[str, ...]:
    return (row.workload, row.config.target, *drafter_key(row.config), f"{row.config.draft_tokens:04d}")


def tick(setting: Setting) -> str:
    target = plain(setting.target_quant or setting.target, 8)
    return f"{target} plain" if setting.drafter == "none" else f"{target} {setting.drafter} {setting.draft_tokens}"

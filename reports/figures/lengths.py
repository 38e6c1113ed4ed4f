"""Speed over draft length: what every drafter gives at every length, beside plain decoding."""

from collections.abc import Iterable, Mapping, Sequence

from ...calibrate.records import CostPoint, Recommendation, SettingForecast, ValidationRow
from ..numbers import milliseconds, percent, plain, short, tokens_per_second, with_bounds
from ..panels import REFERENCE, Axis, Panel, Plot, Section, Style, Table, band, exact, line, points
from ..verdict import drafter_name, measured_interval, setting_name
from .checked import row_hover
from .passes import target_switches
from .series import PLAIN, drafter_key, in_order, styles


def speed_over_length(
    recommendation: Recommendation,
    rows: Sequence[ValidationRow],
    costs: Sequence[CostPoint] = (),
    ceilings: Mapping[str, float] | None = None,
) -> Section:
    """A panel for each workload and target: forecast lines with bands, measured points, plain baseline, ceilings, and the
    kernel switches that `costs` show. `ceilings`: tokens/s that bandwidth allows plain decoding, by target."""
    id_ = "speed-over-draft-length"
    forecasts = recommendation.candidates
    if not any(forecast.setting.draft_tokens for forecast in forecasts):
        missing = "Speed over draft length: no drafter was forecast. Run specgauge run with --draft DRAFT to fill this."
        return Section(id=id_, finding="", reading="", missing=missing)
    return Section(
        id=id_,
        finding=_fastest(forecasts),
        reading="Lines are forecasts with their intervals, markers are measured (hollow: round time measured while "
        "profiling). A drafter pays where its line is above the dashed one, plain decoding: there it breaks even. Dotted lines "
        "are its ceiling, with every token accepted. Uprights: from there on a verification runs on another kernel.",
        panels=tuple(_length_panels(forecasts, rows, costs, ceilings or {})),
        table=_forecast_table(forecasts),
    )


def _fastest(forecasts: Sequence[SettingForecast]) -> str:
    parts = []
    for workload in in_order(forecast.workload for forecast in forecasts):
        mine = [forecast for forecast in forecasts if forecast.workload == workload]
        best = max(mine, key=lambda forecast: forecast.tokens_per_second.value)
        speed = tokens_per_second(best.tokens_per_second)
        parts.append(f"{plain(workload)}: fastest forecast is {setting_name(best.setting, 28)}, {speed}")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."


def _length_panels(
    forecasts: Sequence[SettingForecast],
    rows: Sequence[ValidationRow],
    costs: Sequence[CostPoint],
    ceilings: Mapping[str, float],
) -> Iterable[Panel]:
    looks = styles(forecast.setting for forecast in forecasts if forecast.setting.draft_tokens)
    longest = max(forecast.setting.draft_tokens for forecast in forecasts)
    for workload in in_order(forecast.workload for forecast in forecasts):
        here = [forecast for forecast in forecasts if forecast.workload == workload]
        ran = [row for row in rows if row.workload == workload]
        high = 1.08 * max(*(f.tokens_per_second.high for f in here), *(row.measured_high for row in ran), 0.0)
        for target in in_order(forecast.setting.target for forecast in here):
            mine = [forecast for forecast in here if forecast.setting.target == target]
            plot = Plot(Axis("draft tokens", longest + 0.5, -0.5, zero_line=False), Axis("tokens/s", high))
            _draw_plain(plot, mine)
            for key, look in looks.items():
                _draw_drafter(plot, [f for f in mine if f.setting.draft_tokens and drafter_key(f.setting) == key], look)
            _draw_runs(plot, [row for row in ran if row.config.target == target], looks)
            for width, change in target_switches(costs, target):
                plot.marked(width - 1.5, f"kernel switch {percent(change, signed=True)}")
            if target in ceilings:
                _draw_bandwidth(plot, ceilings[target], high)
            yield plot.panel(f"{plain(workload, 40)}, {plain(target, 40)}")


def _draw_plain(plot: Plot, forecasts: Sequence[SettingForecast]) -> None:
    known = [forecast.tokens_per_second for forecast in forecasts if not forecast.setting.draft_tokens]
    speed = known[0] if known else exact([forecasts[0].baseline_tokens_per_second])[0]
    span = [plot.x.low, plot.x.high or 1.0]
    plot.traces.append(band(span, [speed.low] * 2, [speed.high] * 2, PLAIN))
    plot.across(speed.value, f"plain, {short(speed.value)} tokens/s forecast")


def _draw_bandwidth(plot: Plot, ceiling: float, high: float) -> None:
    """What memory bandwidth allows plain decoding, where it is on the picture."""
    if ceiling < high:
        plot.traces.append(
            line(
                [plot.x.low, plot.x.high or 1.0],
                [ceiling] * 2,
                f"bandwidth allows plain {short(ceiling)} tokens/s",
                Style(REFERENCE, "x", "longdashdot"),
            )
        )


def _draw_drafter(plot: Plot, forecasts: Sequence[SettingForecast], look: Style) -> None:
    if not forecasts:
        return
    mine = sorted(forecasts, key=lambda forecast: forecast.setting.draft_tokens)
    lengths = [float(forecast.setting.draft_tokens) for forecast in mine]
    speeds = [forecast.tokens_per_second for forecast in mine]
    plot.traces.append(band(lengths, [s.low for s in speeds], [s.high for s in speeds], look))
    hover = [_forecast_hover(forecast) for forecast in mine]
    plot.traces.append(line(lengths, [s.value for s in speeds], drafter_name(mine[0].setting, 28), look, hover))
    ceilings = [forecast.ceiling_tokens_per_second for forecast in mine]
    above = [f"{setting_name(f.setting, 28)}: at most {short(f.ceiling_tokens_per_second)} tokens/s" for f in mine]
    dotted = line(lengths, ceilings, "", Style(look.colour, look.symbol, "dot"), above)
    plot.traces.append(dotted | {"showlegend": False, "line": dotted["line"] | {"width": 1}})


def _forecast_hover(forecast: SettingForecast) -> str:
    return (
        f"{setting_name(forecast.setting, 28)}: forecast {tokens_per_second(forecast.tokens_per_second)}; "
        f"{forecast.accepted_per_round:.2f} accepted a round, break-even {forecast.break_even_accepted:.2f}"
    )


def _draw_runs(plot: Plot, rows: Sequence[ValidationRow], looks: dict[tuple[str, ...], Style]) -> None:
    for key in in_order(drafter_key(row.config) for row in rows):
        mine = [row for row in rows if drafter_key(row.config) == key]
        plot.traces.append(
            points(
                exact([float(row.config.draft_tokens) for row in mine]),
                [measured_interval(row) for row in mine],
                f"{drafter_name(mine[0].config, 28)}, measured",
                looks.get(key, PLAIN),
                [row_hover(row) for row in mine],
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

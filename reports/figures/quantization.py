"""Quantization: what each quantization of target and draft gives and costs, in tokens/s, tokens a round and MiB."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...calibrate.records import CostPoint, Interval, Recommendation, SettingForecast, ValidationRow
from ...profiler.records import ModelFile
from ..numbers import mebibytes, plain, short, tokens_per_second, with_bounds
from ..panels import Axis, Panel, Plot, Section, Table, exact, points
from ..verdict import drafter_name, measured_interval, same_run, setting_name
from .series import drafter_key, in_order, styles


@dataclass(frozen=True)
class Choice:
    """A target with one drafter (or none) at its best draft length on a workload; `size_bytes` of all their weights."""

    best: SettingForecast
    size_bytes: int
    measured: Interval | None


def quantizations(
    recommendation: Recommendation,
    rows: Sequence[ValidationRow],
    models: Sequence[ModelFile],
    costs: Sequence[CostPoint] = (),
) -> Section:
    """A panel for each workload: tokens/s over the bytes of the weights, one marker for each target with each drafter."""
    id_ = "quantization"
    forecasts = recommendation.candidates
    quants = {item.setting.target_quant for item in forecasts} | {item.setting.draft_quant for item in forecasts} - {""}
    if len(quants) < 2:
        missing = (
            "Quantization: only one was profiled. Run specgauge run with several TARGET files of one model, or several --draft, "
            "to compare them."
        )
        return Section(id=id_, finding="", reading="", missing=missing)
    workloads = in_order(item.workload for item in forecasts)
    by_workload = {workload: _choices(forecasts, rows, models, workload) for workload in workloads}
    return Section(
        id=id_,
        finding=_finding(by_workload),
        reading="Each marker is a target with one drafter at its best draft length, by forecast with its interval; crosses are "
        "plain decoding. Left is smaller: the weights of target and draft together, KV cache and buffers not counted. What a "
        "quantization does to the quality of the text is not in this picture.",
        panels=tuple(_panel(workload, choices) for workload, choices in by_workload.items()),
        table=_table([choice for choices in by_workload.values() for choice in choices], costs),
    )


def _choices(
    forecasts: Sequence[SettingForecast], rows: Sequence[ValidationRow], models: Sequence[ModelFile], workload: str
) -> list[Choice]:
    best: dict[tuple[str, ...], SettingForecast] = {}
    for item in forecasts:
        if item.workload == workload:
            key = (item.setting.target, *drafter_key(item.setting))
            if key not in best or item.tokens_per_second.value > best[key].tokens_per_second.value:
                best[key] = item
    sizes = {model.label: model.size_bytes for model in models}
    return [_choice(item, rows, sizes) for item in best.values()]


def _choice(item: SettingForecast, rows: Sequence[ValidationRow], sizes: dict[str, int]) -> Choice:
    setting = item.setting
    # A self-draft in another quantization is a copy of its own; an n-gram drafter holds no weights.
    draft = sizes.get(setting.draft, 0) if setting.drafter not in ("none", "ngram") else 0
    row = next(
        (
            row
            for row in rows
            if row.workload == item.workload and row.config.target == setting.target and same_run(row.config, setting)
        ),
        None,
    )
    return Choice(item, sizes.get(setting.target, 0) + draft, measured_interval(row) if row else None)


def _finding(by_workload: dict[str, list[Choice]]) -> str:
    parts = []
    for workload, choices in by_workload.items():
        fastest = max(choices, key=lambda choice: choice.best.tokens_per_second.value)
        steps = [choice for choice in choices if not choice.best.setting.draft_tokens]
        text = f"{plain(workload)}: {setting_name(fastest.best.setting, 28)} is fastest by forecast"
        if len(steps) > 1:
            ordered = sorted(steps, key=lambda choice: choice.best.tokens_per_second.value)
            speeds = ", ".join(
                f"{plain(choice.best.setting.target_quant or choice.best.setting.target, 12)} "
                f"{short(choice.best.tokens_per_second.value)}"
                for choice in ordered
            )
            text = f"{text}; plain tokens/s: {speeds}"
        parts.append(text)
    text = ". ".join(f"{part[:1].upper()}{part[1:]}" for part in parts)
    return f"{text}."


def _panel(workload: str, choices: Sequence[Choice]) -> Panel:
    high = 1.08 * max(choice.best.tokens_per_second.high for choice in choices)
    widest = 1.12 * max(choice.size_bytes for choice in choices) / 2**20
    plot = Plot(Axis("weights of target and draft, MiB", widest or 1.0), Axis("tokens/s", high))
    for key, look in styles(choice.best.setting for choice in choices).items():
        mine = [choice for choice in choices if drafter_key(choice.best.setting) == key]
        plot.traces.append(
            points(
                exact([choice.size_bytes / 2**20 for choice in mine]),
                [choice.best.tokens_per_second for choice in mine],
                drafter_name(mine[0].best.setting, 28),
                look,
                [_hover(choice) for choice in mine],
            )
        )
    return plot.panel(plain(workload, 40))


def _hover(choice: Choice) -> str:
    ran = f"; measured {tokens_per_second(choice.measured)}" if choice.measured else ""
    return (
        f"{setting_name(choice.best.setting, 28)}: forecast {tokens_per_second(choice.best.tokens_per_second)}{ran}; "
        f"{mebibytes(choice.size_bytes)}"
    )


def _table(choices: Sequence[Choice], costs: Sequence[CostPoint]) -> Table:
    columns = (
        "workload",
        "target",
        "drafter",
        "draft tokens",
        "forecast, tokens/s",
        "measured, tokens/s",
        "over plain",
        "tokens a round",
        "one draft step, ms",
        "weights",
    )
    ordered = sorted(choices, key=lambda choice: (choice.best.workload, -choice.best.tokens_per_second.value))
    return Table(columns, tuple(_cells(choice, costs) for choice in ordered))


def _cells(choice: Choice, costs: Sequence[CostPoint]) -> tuple[str, ...]:
    found, setting = choice.best, choice.best.setting
    drafts = setting.draft_tokens > 0
    return (
        plain(found.workload),
        plain(setting.target),
        drafter_name(setting),
        str(setting.draft_tokens),
        with_bounds(found.tokens_per_second),
        with_bounds(choice.measured) if choice.measured else "not run",
        f"{found.speed_up:.2f} of {short(found.baseline_tokens_per_second)}" if drafts else "-",
        f"{found.tokens_per_round:.2f}" if drafts else "-",
        _draft_step(setting.draft, costs) if setting.drafter == "model" else "-",
        mebibytes(choice.size_bytes) if choice.size_bytes else "unknown",
    )


def _draft_step(draft: str, costs: Sequence[CostPoint]) -> str:
    """A plain step of the draft behind the shortest context, as draft where it was timed in situ."""
    steps = [cost for cost in costs if cost.model == draft and cost.width == 1]
    best = min(steps, key=lambda cost: (cost.role != "draft", cost.context, cost.kind != "decode"), default=None)
    return short(1e3 * best.seconds.value) if best else "not timed"

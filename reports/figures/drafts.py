"""Drafts of one target side by side: what a step of each costs, and how much of each is accepted."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...calibrate.records import Acceptance, Calibration, Interval, SettingForecast
from ...profiler.records import ModelFile, Setting
from ..numbers import mebibytes, plain, short, with_bounds
from ..panels import Axis, Panel, Plot, Style, points
from .acceptance import drafted_round
from .series import in_order, looks_of_pairs

LEAST_LENGTH = 4
"""Draft tokens at which drafts are compared at least, as far as acceptance is known: at fewer they differ little."""


@dataclass(frozen=True)
class Draft:
    """One draft at the length of its comparison: tokens a drafted round, and seconds of its plain step."""

    curve: Acceptance
    tokens: Interval
    step: Interval


@dataclass(frozen=True)
class Comparison:
    """Two drafts or more of one target on one workload, at one draft length: rates at different lengths do not compare."""

    workload: str
    target: str
    draft_tokens: int
    drafts: tuple[Draft, ...]


def compared_drafts(
    calibration: Calibration, forecasts: Sequence[SettingForecast], models: Mapping[str, ModelFile]
) -> tuple[Comparison, ...]:
    """For each workload and target with two drafts or more of known step time and acceptance, forecast or dropped."""
    curves = [curve for curve in calibration.acceptance if curve.draft in models and curve.survival]
    places = in_order((curve.workload, curve.target) for curve in curves)
    groups = [[curve for curve in curves if (curve.workload, curve.target) == place] for place in places]
    found = (_comparison(group, calibration, forecasts) for group in groups)
    return tuple(comparison for comparison in found if len(comparison.drafts) > 1)


def draft_panels(
    comparisons: Sequence[Comparison], settings: Iterable[Setting], models: Mapping[str, ModelFile]
) -> Iterable[Panel]:
    """A panel each: step time of a draft against tokens a drafted round. `settings` give drafters their looks."""
    pairs = [(draft.curve.drafter, draft.curve.draft) for item in comparisons for draft in item.drafts]
    looks = looks_of_pairs(settings, pairs)
    for comparison in comparisons:
        yield _panel(comparison, looks, models)


def drafts_text(comparisons: Sequence[Comparison], models: Mapping[str, ModelFile]) -> str:
    """By workload, of the first target there: what each draft gives and costs."""
    parts = []
    for workload in in_order(item.workload for item in comparisons):
        first = next(item for item in comparisons if item.workload == workload)
        ranked = sorted(first.drafts, key=lambda draft: draft.step.value)
        drafts = ", ".join(
            f"{_name(draft.curve, models)} {_tokens(draft.tokens)} tokens a drafted round at {_step_text(draft)} a step"
            for draft in ranked[:3]
        )
        parts.append(f"{plain(workload, 40)}, {_length_text(first)} on {plain(first.target, 28)}: {drafts}")
    return f"{'. '.join(text[:1].upper() + text[1:] for text in parts)}."


def step_of_draft(label: str, calibration: Calibration) -> Interval | None:
    """Seconds of a plain step of a draft at the shortest context, as a draft where it was timed so; None where it was not."""
    steps = [cost for cost in calibration.costs if cost.model == label and cost.width == 1]
    best = min(steps, key=lambda cost: (cost.role != "draft", cost.kind != "decode", cost.context), default=None)
    return None if best is None else best.seconds


def _comparison(
    curves: Sequence[Acceptance], calibration: Calibration, forecasts: Sequence[SettingForecast]
) -> Comparison:
    length = _length(curves, forecasts)
    steps = [(curve, step_of_draft(curve.draft, calibration)) for curve in curves if len(curve.survival) >= length]
    drafts = tuple(Draft(curve, drafted_round(curve, length), step) for curve, step in steps if step is not None)
    return Comparison(curves[0].workload, curves[0].target, length, drafts)


def _length(curves: Sequence[Acceptance], forecasts: Sequence[SettingForecast]) -> int:
    """The best forecast draft length among these drafts, LEAST_LENGTH at least, as far as acceptance of all is known."""
    pairs = {(curve.workload, curve.target, curve.drafter, curve.draft) for curve in curves}
    here = [
        forecast
        for forecast in forecasts
        if (forecast.workload, forecast.setting.target, forecast.setting.drafter, forecast.setting.draft) in pairs
    ]
    best = max(here, key=lambda forecast: forecast.tokens_per_second.value, default=None)
    wanted = LEAST_LENGTH if best is None else max(LEAST_LENGTH, best.setting.draft_tokens)
    return min(wanted, *(len(curve.survival) for curve in curves))


def _panel(comparison: Comparison, looks: Mapping[tuple[str, str], Style], models: Mapping[str, ModelFile]) -> Panel:
    drafts = comparison.drafts
    plot = Plot(
        Axis("a plain step of the draft, ms", 1.15e3 * max(draft.step.high for draft in drafts)),
        Axis("tokens a drafted round", 1.1 * max(draft.tokens.high for draft in drafts)),
    )
    for draft in drafts:
        curve = draft.curve
        text = (
            f"{plain(curve.draft, 40)}, {_name(curve, models)}: a step takes {_step_text(draft)}; {_tokens(draft.tokens)} "
            f"tokens a drafted round at {_length_text(comparison)}"
        )
        look = looks[curve.drafter, curve.draft]
        plot.traces.append(points([_in_milliseconds(draft.step)], [draft.tokens], _name(curve, models), look, [text]))
    place = f"{plain(comparison.workload, 40)}, {plain(comparison.target, 40)}"
    return plot.panel(f"{_length_text(comparison)}: {place}")


def _name(curve: Acceptance, models: Mapping[str, ModelFile]) -> str:
    model = models[curve.draft]
    size = f" ({mebibytes(model.size_bytes)})" if model.size_bytes else ""
    return f"{plain(model.quant or curve.draft, 20)}{size}"


def _length_text(comparison: Comparison) -> str:
    return f"{comparison.draft_tokens} draft token{'s' if comparison.draft_tokens > 1 else ''}"


def _step_text(draft: Draft) -> str:
    return f"{with_bounds(_in_milliseconds(draft.step))} ms"


def _in_milliseconds(seconds: Interval) -> Interval:
    return Interval(value=1e3 * seconds.value, low=1e3 * seconds.low, high=1e3 * seconds.high)


def _tokens(found: Interval) -> str:
    return with_bounds(found) if found.high > found.low else short(found.value)

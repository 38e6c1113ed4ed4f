"""Quantization: how fast each target is, plain and with its best drafters, and what each draft costs and accepts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...calibrate.checks.records import RegionCell
from ...calibrate.map_records import MemoryMap
from ...calibrate.records import Calibration, Interval, Recommendation, SettingForecast, ValidationRow
from ...profiler.records import ModelFile, Profile, Setting
from ..numbers import mebibytes, milliseconds, plain, short, tokens_per_second, with_bounds
from ..panels import Axis, Panel, Plot, Section, Style, Table, band, exact, line, points
from ..verdict import drafter_name, measured_interval, same_run, setting_name
from .checked import row_hover
from .drafts import compared_drafts, draft_panels, drafts_text, step_of_draft
from .series import PLAIN, drafter_key, in_order, styles

HALF_WIDTH = 0.34
"""Of the place of a target on the axis, what its drafters share to either side."""
FILL_TARGETS = "give the target in several quantizations to specgauge run"
FILL_DRAFTS = "give several --draft FILES"


@dataclass(frozen=True)
class _Arm:
    """The best draft length of one drafter, or plain decoding, of one target on one workload; `row` where it was run."""

    forecast: SettingForecast
    row: ValidationRow | None

    @property
    def setting(self) -> Setting:
        return self.forecast.setting

    @property
    def speed(self) -> Interval:
        return self.forecast.tokens_per_second


def quantizations(
    recommendation: Recommendation,
    calibration: Calibration,
    profile: Profile,
    rows: Sequence[ValidationRow] = (),
) -> Section:
    """A panel for each workload: every target's plain speed and its drafters' best; then drafts of one target side by side."""
    id_ = "quantization"
    models = {model.label: model for model in profile.models}
    forecasts = recommendation.candidates
    targets = _targets(forecasts, models)
    arms = _best_arms(forecasts, rows)
    comparisons = compared_drafts(calibration, forecasts, models)
    if len(targets) < 2 and not comparisons:
        only = (
            f"of the target only {_quant(forecasts[0].setting)} was forecast" if forecasts else "nothing was forecast"
        )
        missing = (
            f"Quantization: {only}, so there is nothing to compare. To fill this, {FILL_TARGETS}, or {FILL_DRAFTS}."
        )
        return Section(id=id_, finding="", reading="", missing=missing)
    settings = [forecast.setting for forecast in forecasts if forecast.setting.draft_tokens]
    several = len(targets) > 1
    has_memory = any(_memory(arm.setting, recommendation.memory_maps) for arm in arms)
    return Section(
        id=id_,
        finding=_finding(arms, models) if several else drafts_text(comparisons, models),
        reading=" ".join(_reading(several, bool(comparisons), has_memory, profile)),
        panels=(
            *(_target_panels(arms, targets, models, styles(settings)) if several else ()),
            *draft_panels(comparisons, settings, models),
        ),
        table=_table(arms, models, calibration, recommendation.memory_maps),
    )


def _reading(several_targets: bool, several_drafts: bool, has_memory: bool, profile: Profile) -> Iterable[str]:
    """How to read the panels that are there, what would fill the others, and what memory the records tell of."""
    if several_targets:
        yield (
            "Lines are forecasts with their intervals, each drafter at its best draft length; markers are measured (hollow: "
            "round time measured while profiling). Grey: plain decoding."
        )
    else:
        yield f"One target quantization was forecast: {FILL_TARGETS} to compare several."
    if several_drafts:
        yield (
            "Drafts of one target are compared at one draft length: to the left a draft is cheaper, higher up more of it is "
            "accepted."
        )
    else:
        yield f"To compare quantizations of a draft, {FILL_DRAFTS}."
    yield "What a quantization does to the text is not measured here."
    yield _memory_text(profile, has_memory)


def _targets(forecasts: Sequence[SettingForecast], models: Mapping[str, ModelFile]) -> list[str]:
    """Targets, the smallest first; in order of appearance where sizes are not known."""
    found = in_order(forecast.setting.target for forecast in forecasts)
    return sorted(found, key=lambda label: _size(label, models))


def _best_arms(forecasts: Sequence[SettingForecast], rows: Sequence[ValidationRow]) -> list[_Arm]:
    """By workload, target and drafter the length of the highest forecast; plain decoding is an arm of its own."""
    best: dict[tuple[str, str, tuple[str, ...]], SettingForecast] = {}
    for forecast in forecasts:
        key = (forecast.workload, forecast.setting.target, drafter_key(forecast.setting))
        if key not in best or forecast.tokens_per_second.value > best[key].tokens_per_second.value:
            best[key] = forecast
    return [_Arm(forecast, _ran(forecast, rows)) for forecast in best.values()]


def _ran(forecast: SettingForecast, rows: Sequence[ValidationRow]) -> ValidationRow | None:
    here = [row for row in rows if (row.workload, row.config.target) == (forecast.workload, forecast.setting.target)]
    return next((row for row in here if same_run(row.config, forecast.setting)), None)


def _finding(arms: Sequence[_Arm], models: Mapping[str, ModelFile]) -> str:
    """By workload: the fastest setting, and the best that each other target gives."""
    parts = []
    for workload in in_order(arm.forecast.workload for arm in arms):
        best: dict[str, _Arm] = {}
        for arm in (arm for arm in arms if arm.forecast.workload == workload):
            if arm.setting.target not in best or arm.speed.value > best[arm.setting.target].speed.value:
                best[arm.setting.target] = arm
        first, *others = sorted(best.values(), key=lambda arm: -arm.speed.value)
        text = (
            f"{plain(workload, 40)}: fastest by forecast is {_named(first, models)}, {tokens_per_second(first.speed)}"
        )
        rest = ", ".join(f"{_quant(arm.setting)} reaches {with_bounds(arm.speed)} at best" for arm in others[:3])
        parts.append(f"{text}; {rest}" if rest else text)
    return f"{'. '.join(text[:1].upper() + text[1:] for text in parts)}."


def _named(arm: _Arm, models: Mapping[str, ModelFile]) -> str:
    """An arm by its quantizations and lengths, with what its weights take."""
    setting, size = arm.setting, _weights(arm.setting, models)
    how = "plain" if setting.drafter == "none" else f"+ {_short_drafter(setting)}, {setting.draft_tokens} draft tokens"
    return f"{_quant(setting)} {how}{f' ({mebibytes(size)})' if size else ''}"


def _short_drafter(setting: Setting) -> str:
    return f"draft {plain(setting.draft_quant, 16)}" if setting.draft_quant else drafter_name(setting, 20)


def _target_panels(
    arms: Sequence[_Arm],
    targets: Sequence[str],
    models: Mapping[str, ModelFile],
    looks: Mapping[tuple[str, ...], Style],
) -> Iterable[Panel]:
    """Targets side by side by size; within one, plain decoding first and then its drafters."""
    quants = {arm.setting.target: _quant(arm.setting) for arm in arms}
    labels = tuple(_tick(label, quants[label], models) for label in targets)
    places = tuple(float(place) for place in range(len(targets)))
    keys = [drafter_key(Setting(target="", target_quant="")), *looks]
    for workload in in_order(arm.forecast.workload for arm in arms):
        here = [arm for arm in arms if arm.forecast.workload == workload]
        high = 1.08 * max(max(arm.speed.high, arm.row.measured_high if arm.row else 0.0) for arm in here)
        x = Axis("target quantization", len(targets) - 0.5, -0.5, ticks=places, labels=labels, zero_line=False)
        plot = Plot(x, Axis("tokens/s", high))
        for index, key in enumerate(keys):
            mine = [arm for arm in here if drafter_key(arm.setting) == key]
            offset = HALF_WIDTH * (2 * (index + 0.5) / len(keys) - 1)
            _draw_arms(plot, mine, targets, offset, HALF_WIDTH / len(keys), looks.get(key, PLAIN), models)
        yield plot.panel(plain(workload, 60))


def _draw_arms(
    plot: Plot,
    arms: Sequence[_Arm],
    targets: Sequence[str],
    offset: float,
    half: float,
    look: Style,
    models: Mapping[str, ModelFile],
) -> None:
    """A short line with its band where each forecast is; one trace for the lines, broken between targets."""
    if not arms:
        return
    x: list[float] = []
    y: list[float | None] = []
    hover: list[str] = []
    for arm in arms:
        middle = targets.index(arm.setting.target) + offset
        span = [middle - half, middle + half]
        plot.traces.append(band(span, [arm.speed.low] * 2, [arm.speed.high] * 2, look))
        x += [*span, span[1]]
        y += [arm.speed.value, arm.speed.value, None]
        hover += [_hover(arm, models)] * 3
    plot.traces.append(
        line(x, y, _series_name(arms[0].setting, models), Style(look.colour, look.symbol, "solid"), hover)
    )
    ran = [(targets.index(arm.setting.target) + offset, arm.row) for arm in arms if arm.row is not None]
    if ran:
        rows = [row for _, row in ran]
        measured = [measured_interval(row) for row in rows]
        texts, hollow = [row_hover(row) for row in rows], [row.in_profile for row in rows]
        name = f"{drafter_name(rows[0].config, 24)}, measured"
        plot.traces.append(points(exact([at for at, _ in ran]), measured, name, look, texts, hollow, legend=False))


def _series_name(setting: Setting, models: Mapping[str, ModelFile]) -> str:
    size = models[setting.draft].size_bytes if _has_file(setting) and setting.draft in models else 0
    return f"{drafter_name(setting, 28)}{f', {mebibytes(size)}' if size else ''}"


def _hover(arm: _Arm, models: Mapping[str, ModelFile]) -> str:
    forecast, size = arm.forecast, _weights(arm.setting, models)
    drafts = f"; {forecast.tokens_per_round:.2f} tokens a round" if arm.setting.draft_tokens else ""
    return (
        f"{setting_name(arm.setting, 28)}: forecast {tokens_per_second(arm.speed)}{drafts}; weights "
        f"{mebibytes(size) if size else 'of unknown size'}"
    )


def _memory_text(profile: Profile, has_memory: bool) -> str:
    """What memory the records tell of, and who tells the rest."""
    used = [
        state.memory_used_bytes
        for measurement in profile.measurements
        for state in (measurement.state_before, measurement.state_after, *measurement.states_during)
        if state is not None and state.memory_used_bytes
    ]
    most = f" While profiling at most {mebibytes(max(used))} of the device were in use, by all models." if used else ""
    if has_memory:
        return f"Sizes are of the weights as loaded; the table adds caches and buffers, as headers of the files tell.{most}"
    return f"Sizes are of the weights as loaded. Caches and buffers come on top: run specgauge check for them.{most}"


def _memory(setting: Setting, maps: Sequence[MemoryMap]) -> RegionCell | None:
    """What target, draft, caches and buffers take at the setting's context and streams, with room for its draft length or
    a little more; None where that is not known."""
    cells = [
        cell
        for one in maps
        if one.target == setting.target and (setting.draft_tokens == 0 or _pair(one) == _pair(setting))
        for cell in one.cells
        if (cell.context, cell.streams) == (setting.context, setting.streams)
        if cell.draft_tokens >= setting.draft_tokens
    ]
    found = min(cells, key=lambda cell: (cell.draft_tokens, cell.total_bytes), default=None)
    return found if found and (setting.draft_tokens or not found.draft_tokens) else None


def _memory_cell(setting: Setting, maps: Sequence[MemoryMap]) -> str:
    found = _memory(setting, maps)
    words = {"does_not_fit": "does not fit"}
    return f"{mebibytes(round(found.total_bytes))}, {words.get(found.verdict, found.verdict)}" if found else "not known"


def _pair(one: MemoryMap | Setting) -> tuple[str, str]:
    return one.drafter, one.draft


def _table(
    arms: Sequence[_Arm], models: Mapping[str, ModelFile], calibration: Calibration, maps: Sequence[MemoryMap]
) -> Table:
    columns = (
        "workload",
        "target quantization",
        "draft quantization",
        "setting",
        "forecast, tokens/s",
        "measured, tokens/s",
        "over plain, forecast",
        "accepted / drafted a round",
        "tokens a round",
        "weights of the target",
        "weights of the draft",
        "memory with caches and buffers",
        "plain step of the draft",
        "acceptance and cost",
    )
    return Table(columns, tuple(_cells(arm, models, calibration, maps) for arm in arms))


def _cells(
    arm: _Arm, models: Mapping[str, ModelFile], calibration: Calibration, maps: Sequence[MemoryMap]
) -> tuple[str, ...]:
    setting, forecast = arm.setting, arm.forecast
    drafts = setting.draft_tokens > 0
    step = step_of_draft(setting.draft, calibration) if _has_file(setting) else None
    accepted = f"{forecast.accepted_per_round:.2f} / {forecast.drafted_per_round:.2f}"
    return (
        plain(forecast.workload),
        _quant(setting),
        plain(setting.draft_quant or "-", 20),
        setting_name(setting),
        with_bounds(arm.speed),
        with_bounds(measured_interval(arm.row)) if arm.row else "not run",
        f"{forecast.speed_up:.2f} of {short(forecast.baseline_tokens_per_second)} tokens/s" if drafts else "-",
        accepted if drafts else "-",
        f"{forecast.tokens_per_round:.2f}",
        _size_text(setting.target, models),
        _size_text(setting.draft, models) if _has_file(setting) else "-",
        _memory_cell(arm.setting, maps),
        "-" if step is None else milliseconds(step.value),
        forecast.provenance,
    )


def _has_file(setting: Setting) -> bool:
    """Whether the drafter has weights of its own, apart from the target's."""
    return setting.draft_tokens > 0 and setting.drafter not in ("none", "ngram", "mtp")


def _quant(setting: Setting) -> str:
    return plain(setting.target_quant or setting.target, 20)


def _tick(label: str, quant: str, models: Mapping[str, ModelFile]) -> str:
    size = _size(label, models)
    return f"{plain(quant, 12)}{f', {mebibytes(size)}' if size else ''}"


def _size(label: str, models: Mapping[str, ModelFile]) -> int:
    return models[label].size_bytes if label in models else 0


def _size_text(label: str, models: Mapping[str, ModelFile]) -> str:
    size = _size(label, models)
    return mebibytes(size) if size else "unknown"


def _weights(setting: Setting, models: Mapping[str, ModelFile]) -> int:
    """Bytes of target and draft; 0 where one of them is not known."""
    labels = [setting.target, *([setting.draft] if _has_file(setting) else [])]
    sizes = [_size(label, models) for label in labels]
    return sum(sizes) if all(sizes) else 0

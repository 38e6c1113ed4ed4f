"""What if: a curve over draft length that sliders move, recomputed in the page by the same model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ...calibrate.records import Recommendation, SettingForecast
from ...calibrate.what_if import model_of
from ...calibrate.what_if_records import WhatIfRecord, WorkloadWhatIf
from ...profiler.records import Setting
from ..numbers import percent, plain, short
from ..panels import (
    BLUE,
    ORANGE,
    REFERENCE,
    VERMILLION,
    Axis,
    Panel,
    Part,
    Plot,
    Section,
    Style,
    Table,
    exact,
    line,
    points,
    script_json,
)
from ..panels import band as filled
from ..verdict import drafter_name

ID = "what-if"
MISSING = "What if: no drafter was forecast, or by an older version. Run specgauge recommend again to fill this."
AT_REST, MOVED = Style(REFERENCE, "circle", "dot"), Style(BLUE, "circle", "solid")
PLAIN_THERE = Style(REFERENCE, "x", "dash")


@dataclass(frozen=True)
class _Curve:
    """One drafter on one workload at rest: lengths and speeds (L,), the fastest draft length's place, and its interval."""

    record: WhatIfRecord
    workload: WorkloadWhatIf
    lengths: tuple[int, ...]
    start: int
    band: tuple[list[float], list[float], list[float]]

    @property
    def speeds(self) -> tuple[float, ...]:
        return self.workload.tokens_per_second


def what_if(recommendation: Recommendation) -> Section:
    """The sliders, and the curve at rest that they start from."""
    curves = [_curve(recommendation, r, w) for r in recommendation.what_if for w in r.workloads]
    if not curves:
        return Section(id=ID, finding="", reading="", missing=MISSING)
    first = _first(recommendation, curves)
    return Section(
        id=ID,
        finding=_finding(first),
        reading="Dotted: the forecasts as profiled, with their intervals. Solid: the same model at the sliders, a point "
        "estimate. Acceptance moves the odds of every position alike. The curve is held to the forecasts, which replay "
        "whole replies.",
        panels=(_panel(first),),
        table=Table(COLUMNS, tuple(_rows(curves))),
        part=Part("what_if", script_json(_data(recommendation, curves, first)), tuple(_kernels(recommendation))),
    )


def _curve(recommendation: Recommendation, record: WhatIfRecord, workload: WorkloadWhatIf) -> _Curve:
    lengths = (0, *record.prices.draft_tokens)
    start = _fastest(workload, range(1, len(lengths)))
    return _Curve(record, workload, lengths, start, _band(recommendation.candidates, record, workload))


def _fastest(workload: WorkloadWhatIf, places: Sequence[int]) -> int:
    """The fastest of some places by the forecasts, lengths of doubtful cost only where nothing else is there."""
    trusted = [place for place in places if not workload.doubtful[place]]
    return max(trusted or places, key=workload.tokens_per_second.__getitem__)


def _band(
    forecasts: Sequence[SettingForecast], record: WhatIfRecord, workload: WorkloadWhatIf
) -> tuple[list[float], list[float], list[float]]:
    """Draft lengths, low and high of the forecasts that the curve starts from."""
    own = {
        f.setting.draft_tokens: f.tokens_per_second
        for f in forecasts
        if f.workload == workload.workload and _same_drafter(f.setting, record.setting)
    }
    shown = sorted(own)
    return [float(n) for n in shown], [own[n].low for n in shown], [own[n].high for n in shown]


def _same_drafter(one: Setting, other: Setting) -> bool:
    """Whether the settings differ in draft length alone."""
    return msgspec.structs.replace(one, draft_tokens=1) == msgspec.structs.replace(other, draft_tokens=1)


def _first(recommendation: Recommendation, curves: Sequence[_Curve]) -> _Curve:
    """The fastest drafter of the first workload: what the page starts from."""
    names = [advice.workload for advice in recommendation.workloads]
    mine = [c for c in curves if names and c.workload.workload == names[0]] or list(curves)
    return max(mine, key=lambda curve: curve.speeds[curve.start])


def _finding(curve: _Curve) -> str:
    length, speed = curve.lengths[curve.start], curve.speeds[curve.start]
    hazard, even = curve.workload.hazard[0], _break_even(curve, curve.start)
    workload = plain(curve.workload.workload)
    name = f"{workload[:1].upper()}{workload[1:]}: {_name(curve.record.setting)} at {_length_text(length)}"
    if even is None:
        return (
            f"{name} is slower than plain decoding ({short(curve.speeds[0])} tokens/s) even if everything is accepted."
        )
    state = "pays while" if speed > curve.speeds[0] else "would pay if"
    return (
        f"{name} {state} the first drafted token is accepted more than {percent(even)} of the time; here it is "
        f"{percent(hazard)}, for {short(speed)} tokens/s against {short(curve.speeds[0])} plain."
    )


def _break_even(curve: _Curve, place: int) -> float | None:
    return model_of(curve.record, curve.workload).break_even(place, curve.workload.context)


def _name(setting: Setting) -> str:
    return f"{plain(setting.target, 28)} + {drafter_name(setting, 28)}"


def _panel(curve: _Curve) -> Panel:
    """The curve at rest; the script counts on the order of these traces."""
    plot = Plot(Axis("draft tokens", zero_line=False), Axis("tokens/s"), height=330)
    lengths, speeds = [float(n) for n in curve.lengths], list(curve.speeds)
    x, low, high = curve.band
    plot.traces.append(filled(x, low, high, AT_REST))
    plot.traces.append(line(lengths, speeds, "as profiled", AT_REST, _hover(curve, "as profiled")))
    ends = [lengths[0], lengths[-1]]
    there = f"plain: {short(speeds[0])} tokens/s"
    plot.traces.append(line(ends, [speeds[0]] * 2, "plain, at the sliders", PLAIN_THERE, [there] * 2))
    plot.traces.append(line(lengths, speeds, "at the sliders", MOVED, _hover(curve)))
    place, best = curve.start, _fastest(curve.workload, range(len(speeds)))
    for at, name, look in (
        (place, "draft tokens chosen", Style(VERMILLION, "circle", "solid")),
        (best, "fastest", Style(ORANGE, "diamond-open", "solid")),
    ):
        hover = [f"{_hover(curve)[at]}, {name}"]
        plot.traces.append(points(exact([lengths[at]]), exact([speeds[at]]), name, look, hover))
    plot.traces[-1]["marker"]["size"] = 14
    return plot.panel("speed over draft length at the sliders")


def _hover(curve: _Curve, where: str = "") -> list[str]:
    return [
        f"{_length_text(n)}{', ' + where if where else ''}: {short(s)} tokens/s"
        for n, s in zip(curve.lengths, curve.speeds, strict=True)
    ]


def _length_text(length: int) -> str:
    return "plain" if length == 0 else f"{length} draft token{'' if length == 1 else 's'}"


def _data(recommendation: Recommendation, curves: Sequence[_Curve], first: _Curve) -> dict[str, Any]:
    """What the script reads: the records, names for people, and where it starts."""
    drafters = []
    for record in recommendation.what_if:
        mine = [curve for curve in curves if curve.record is record]
        one = msgspec.to_builtins(record)
        del one["setting"], one["kernels"]
        one |= {"name": _name(record.setting), "takes_survival": record.setting.drafter == "model"}
        one["workloads"] = [_workload_data(curve) for curve in mine]
        drafters.append(one)
    place = next(i for i, record in enumerate(recommendation.what_if) if record is first.record)
    start = {"drafter": place, "workload": list(first.record.workloads).index(first.workload)}
    return {"drafters": drafters, "start": start}


def _workload_data(curve: _Curve) -> dict[str, Any]:
    x, low, high = curve.band
    told = msgspec.to_builtins(curve.workload) | {"workload": plain(curve.workload.workload), "start": curve.start}
    return told | {"band": {"x": [*x, *reversed(x)], "y": [*high, *reversed(low)]}}


def _kernels(recommendation: Recommendation) -> Iterator[str]:
    """Advice on unequal kernels; once where workloads agree."""
    seen = set()
    for record in recommendation.what_if:
        for advice in record.kernels:
            key = (record.setting.target, record.setting.drafter, advice.draft_tokens, advice.never)
            if key not in seen:
                seen.add(key)
                yield f"{_name(record.setting)}, {plain(advice.workload)}: {advice.text}."


COLUMNS = (
    "workload",
    "drafter",
    "draft tokens",
    "forecast as profiled, tokens/s",
    "plain, tokens/s",
    "first token accepted",
    "break-even of it",
    "if all were accepted, tokens/s",
)


def _rows(curves: Sequence[_Curve]) -> Iterator[tuple[str, ...]]:
    for curve in curves:
        model = model_of(curve.record, curve.workload)
        most = model.tokens_per_second(1.0, curve.workload.context)
        for place, length in enumerate(curve.lengths[1:], 1):
            even = model.break_even(place, curve.workload.context)
            yield (
                plain(curve.workload.workload),
                _name(curve.record.setting),
                f"{length}, extrapolated" if curve.workload.doubtful[place] else str(length),
                short(curve.speeds[place]),
                short(curve.speeds[0]),
                percent(curve.workload.hazard[0]),
                "never" if even is None else percent(even),
                short(float(most[place])),
            )

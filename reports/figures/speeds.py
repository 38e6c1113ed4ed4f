"""The verdict in one picture: plain decoding, the best drafting setting as forecast and as measured, and what is above them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...calibrate.records import Interval, Recommendation, SettingForecast, Validation, ValidationRow
from ...profiler.records import Setting
from ..numbers import plain, short, tokens_per_second
from ..panels import BLUE, GREEN, REFERENCE, Axis, Panel, Plot, exact, lying_bar
from ..verdict import WorkloadVerdict, drafter_name, same_run

ROOM = 3.0
"""A ceiling is drawn where it is at most so many times the longest bar; beyond, it is told in words."""


def speeds_of(
    verdict: WorkloadVerdict,
    recommendation: Recommendation,
    validation: Validation | None,
    ceilings: Mapping[str, float] | None = None,
) -> Panel | None:
    """Bars of one workload from 0 tokens/s, with their intervals; None where nothing was forecast for it.

    `ceilings`: tokens/s that bandwidth allows plain decoding, by target.
    """
    here = [item for item in recommendation.candidates if item.workload == verdict.workload]
    mine = [item for item in here if item.setting.target == verdict.setting.target]
    rows = [row for row in (validation.rows if validation else ()) if row.workload == verdict.workload]
    rows = [row for row in rows if row.config.target == verdict.setting.target]
    drafting = discussed(verdict, mine)
    base = next((item for item in mine if not item.setting.draft_tokens), None)
    if drafting is None and base is None:
        return None
    bars = _bars("plain", base, _row_of(rows, None), REFERENCE)
    if drafting is not None:
        bars += _bars("drafting", drafting, _row_of(rows, drafting.setting), BLUE)
    return _panel(verdict, bars, _ceilings((ceilings or {}).get(verdict.setting.target), drafting), drafting)


def discussed(verdict: WorkloadVerdict, forecasts: Sequence[SettingForecast]) -> SettingForecast | None:
    """The drafting setting that is held against plain decoding: the chosen one, else the fastest forecast; None without."""
    drafting = [item for item in forecasts if item.setting.draft_tokens]
    chosen = next((item for item in drafting if same_run(item.setting, verdict.setting)), None)
    return chosen or max(drafting, key=lambda item: item.tokens_per_second.value, default=None)


@dataclass(frozen=True)
class Bar:
    """A speed: measured bars are full, forecasts hatched, ceilings hollow."""

    name: str
    speed: Interval
    colour: str
    pattern: str = ""
    hollow: bool = False


def _bars(name: str, forecast: SettingForecast | None, row: ValidationRow | None, colour: str) -> list[Bar]:
    found = []
    if forecast is not None:
        found.append(Bar(f"{name}, forecast", forecast.tokens_per_second, colour, "/"))
    if row is not None:
        found.append(Bar(f"{name}, measured", as_clocked(row), colour if colour == REFERENCE else GREEN))
    return found


def as_clocked(row: ValidationRow) -> Interval:
    """A measured speed as the clock gave it, with its slowest and fastest repeat: those of plain decoding and of drafting are of
    the same repeats, so that their bars can be held against each other."""
    repeats = row.speeds or (row.measured_raw,)
    return Interval(value=row.measured_raw, low=min(*repeats, row.measured_raw), high=max(*repeats, row.measured_raw))


def _row_of(rows: Sequence[ValidationRow], setting: Setting | None) -> ValidationRow | None:
    if setting is None:
        return next((row for row in rows if row.config.drafter == "none"), None)
    return next((row for row in rows if same_run(row.config, setting)), None)


def _ceilings(bandwidth: float | None, drafting: SettingForecast | None) -> list[Bar]:
    """What memory bandwidth allows plain decoding, and what the drafting setting gives where all it drafts is accepted."""
    found = []
    if bandwidth is not None:
        found.append(("plain at full bandwidth", bandwidth))
    if drafting is not None:
        found.append(("all drafts accepted", drafting.ceiling_tokens_per_second))
    return [Bar(name, exact([speed])[0], REFERENCE, hollow=True) for name, speed in found]


def _panel(
    verdict: WorkloadVerdict, bars: Sequence[Bar], ceilings: Sequence[Bar], drafting: SettingForecast | None
) -> Panel:
    longest = max(bar.speed.high for bar in bars)
    shown = [*bars, *(bar for bar in ceilings if bar.speed.value <= ROOM * longest)]
    high = 1.06 * max(bar.speed.high for bar in shown)
    places = tuple(float(place) for place in range(len(shown)))
    names = tuple(bar.name for bar in shown)
    y = Axis("", high=-0.6, low=len(shown) - 0.4, ticks=places, labels=names, zero_line=False)
    plot = Plot(Axis("tokens/s", high), y, height=76 + 27 * len(shown))
    for place, bar in zip(places, shown, strict=True):
        text = tokens_per_second(bar.speed) if bar.speed.high > bar.speed.low else f"{short(bar.speed.value)} tokens/s"
        hover = f"{plain(verdict.workload, 30)}: {bar.name}: {text}"
        plot.traces.append(
            lying_bar(place, bar.speed, bar.colour, bar.pattern, hover, short(bar.speed.value), bar.hollow)
        )
    beyond = "".join(f"; {b.name}: {short(b.speed.value)}, off the picture" for b in ceilings if b not in shown)
    if drafting is None:
        return plot.panel(f"tokens/s{beyond}")
    tokens = f"{drafting.setting.draft_tokens} draft token{'' if drafting.setting.draft_tokens == 1 else 's'}"
    return plot.panel(
        f"tokens/s, measured as the clock gave it; drafting: {drafter_name(drafting.setting, 28)}, {tokens}{beyond}"
    )

"""Acceptance by position: how far into a draft tokens are accepted, and what one constant rate would have said."""

import statistics
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ...calibrate.records import Acceptance, AcceptanceCheck, Calibration, Interval
from ...model.survival import geometric_survival, hazards
from ...profiler.records import Prompt, Setting
from ..numbers import percent, plain, short, with_bounds
from ..panels import Axis, Panel, Plot, Section, Style, Table, band, exact, line, points
from ..verdict import drafter_name
from .series import PLAIN, in_order, looks_of_pairs

NEGLIGIBLE_TOKENS = 0.05
"""Tokens a drafted round below which the geometric curve is called good enough."""
APART = 0.18
"""Of a position, between the markers of two drafters."""
BROKEN = ("dash", "dot", "dashdot", "longdash")
"""Lines of geometric curves in one panel, told apart in grey too."""
SILENT_SHARE = 0.05
"""A drafter that is silent in more rounds than these is said to be; a reply's end alone is less."""


def acceptance_by_position(
    calibration: Calibration, settings: Iterable[Setting] = (), prompts: Sequence[Prompt] = ()
) -> Section:
    """A panel for each target and workload: survival S_j with its interval, and S_1^j dashed; then real rounds.

    `settings`: all that were forecast, which give each drafter its look; `prompts` tell the class of a workload.
    """
    id_ = "acceptance-by-position"
    curves = [curve for curve in calibration.acceptance if curve.survival]
    if not curves:
        missing = "Acceptance by position: no drafter's acceptance was measured. Run specgauge run with --draft DRAFT to fill this."
        return Section(id=id_, finding="", reading="", missing=missing)
    looks = looks_of_pairs(settings, [(curve.drafter, curve.draft) for curve in curves])
    classes = {prompt.workload: prompt.workload_class for prompt in prompts}
    checks = calibration.acceptance_checks
    return Section(
        id=id_,
        finding=f"{_geometric_text(curves)}{_offer_text(curves)}",
        reading="A marker is the share of drafts whose first tokens up to there were all accepted, over rounds in which "
        "something was drafted, with its interval for other prompts of the workload. Broken lines: geometric curves, the rate "
        "of the drafter's first position at every position. Hollow: not measured on this target and drafter (borrowed, reported or given)."
        + (" Last panel: replayed acceptance, which forecasts rest on, beside real rounds." if checks else ""),
        panels=(*_curve_panels(curves, looks, classes), *([_check_panel(checks, looks)] if checks else [])),
        table=_table(calibration.acceptance, checks, classes),
    )


def geometric(curve: Acceptance) -> tuple[float, ...]:
    """S_1^j: what a constant rate, that of the first position, would give."""
    return tuple(float(value) for value in geometric_survival(curve.survival[0], len(curve.survival)))


def drafted_round(curve: Acceptance, draft_tokens: int) -> Interval:
    """Tokens of a round that drafts `draft_tokens` (at most as many as are known): 1 + S_1 + ... + S_g. Bounds are those of
    the positions added up, which is wider than an interval of the sum."""
    low, high = _bounds(curve)
    taken = (values[:draft_tokens] for values in (curve.survival, low, high))
    value, least, most = (1 + sum(values) for values in taken)
    return Interval(value=value, low=least, high=most)


def _bounds(curve: Acceptance) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Low and high by position; the curve itself where none are known."""
    count = len(curve.survival)
    known = len(curve.survival_low) == len(curve.survival_high) == count
    return (curve.survival_low, curve.survival_high) if known else (curve.survival, curve.survival)


def _geometric_text(curves: Sequence[Acceptance]) -> str:
    """By workload, of the drafter that gives most, how far tokens of a drafted round are off by the geometric curve."""
    parts = []
    for workload in in_order(curve.workload for curve in curves):
        mine = [curve for curve in curves if curve.workload == workload]
        best = max(mine, key=lambda curve: curve.offer_rate * sum(curve.survival))
        length, miss = len(best.survival), _miss(best)
        off = (
            f"{abs(miss):.2f} too {'many' if miss > 0 else 'few'}"
            if abs(miss) >= NEGLIGIBLE_TOKENS
            else "which will do"
        )
        parts.append(
            f"{plain(workload, 40)}: {_drafter_name(best.drafter, best.draft)} on {plain(best.target, 28)} gives "
            f"{_tokens(drafted_round(best, length))} tokens in a round of {length} drafted; a geometric curve through the "
            f"first would say {short(1 + sum(geometric(best)))}, {off}"
        )
    text = ". ".join(f"{part[:1].upper()}{part[1:]}" for part in parts)
    middle = statistics.median(abs(_miss(curve)) for curve in curves)
    return f"{text}. Over {len(curves)} curves the median miss is {middle:.2f}." if len(curves) > 1 else f"{text}."


def _miss(curve: Acceptance) -> float:
    """Tokens of a drafted round that the geometric curve says too many."""
    return sum(geometric(curve)) - sum(curve.survival)


def _offer_text(curves: Sequence[Acceptance]) -> str:
    """In how many rounds a drafter that may stay silent proposes anything."""
    parts = []
    for key in in_order((curve.drafter, curve.draft) for curve in curves if 1 - curve.offer_rate > SILENT_SHARE):
        rates = [curve.offer_rate for curve in curves if (curve.drafter, curve.draft) == key]
        name = _drafter_name(*key)
        span = percent(min(rates)) if len(rates) == 1 else f"{percent(min(rates))} to {percent(max(rates))}"
        parts.append(f"{name} proposes anything in {span} of rounds")
    text = "; ".join(parts)
    return f" {text[:1].upper()}{text[1:]}; the other rounds are plain steps." if parts else ""


def _curve_panels(
    curves: Sequence[Acceptance], looks: Mapping[tuple[str, str], Style], classes: Mapping[str, str]
) -> Iterable[Panel]:
    deepest = max(len(curve.survival) for curve in curves)
    ticks = tuple(float(position) for position in range(1, deepest + 1) if deepest <= 10 or position % 2 == 0)
    for workload in in_order(curve.workload for curve in curves):
        here = [curve for curve in curves if curve.workload == workload]
        for target in in_order(curve.target for curve in here):
            x = Axis("position in the draft", deepest + 0.5, 0.5, ticks=ticks, zero_line=False)
            plot = Plot(x, Axis("accepted up to here, % of drafts", 104.0))
            mine = [curve for curve in here if curve.target == target]
            for index, curve in enumerate(mine):
                aside = APART * (index - (len(mine) - 1) / 2)
                look = looks[curve.drafter, curve.draft]
                _draw_curve(plot, curve, Style(look.colour, look.symbol, BROKEN[index % len(BROKEN)]), aside)
            kind = classes.get(workload, "")
            words = f" ({plain(kind, 20)})" if kind and kind != workload else ""
            yield plot.panel(f"{plain(workload, 40)}{words}, {plain(target, 40)}")


def _draw_curve(plot: Plot, curve: Acceptance, look: Style, aside: float) -> None:
    """Markers a little `aside`, so that bars of several drafters do not cover each other."""
    places = [position + aside for position in range(1, len(curve.survival) + 1)]
    name = _drafter_name(curve.drafter, curve.draft)
    constant = line(places, [100 * value for value in geometric(curve)], f"{name}, geometric", look)
    plot.traces.append(constant | {"showlegend": False})
    shown = [
        Interval(value=100 * value, low=100 * least, high=100 * most)
        for value, least, most in zip(curve.survival, *_bounds(curve), strict=True)
    ]
    hollow = [_is_foreign(curve)] * len(places)
    plot.traces.append(points(exact(places), shown, name, look, _curve_hover(curve, name), hollow))


def _curve_hover(curve: Acceptance, name: str) -> list[str]:
    return [
        f"{name}, position {position}: {_share(curve, position)} of drafts accepted up to here; {hazard:.2f} of those that "
        f"came so far; geometric {percent(constant)}; {_evidence(curve)}"
        for position, (hazard, constant) in enumerate(
            zip(hazards(np.array(curve.survival)), geometric(curve), strict=True), 1
        )
    ]


def _check_panel(checks: Sequence[AcceptanceCheck], looks: Mapping[tuple[str, str], Style]) -> Panel:
    high = 1.08 * max(max(check.measured_tokens_per_round, check.replayed_tokens_per_round) for check in checks)
    x = Axis("real rounds, tokens a round", high)
    plot = Plot(x, Axis("replay, tokens a round", high), height=320)
    plot.traces.append(band([0.0, high], [0.0, 0.95 * high], [0.0, 1.05 * high], PLAIN))
    plot.traces.append(line([0.0, high], [0.0, high], "replay = real rounds, ±5 %", PLAIN))
    for key in in_order((check.drafter, check.draft) for check in checks):
        mine = [check for check in checks if (check.drafter, check.draft) == key]
        plot.traces.append(
            points(
                exact([check.measured_tokens_per_round for check in mine]),
                exact([check.replayed_tokens_per_round for check in mine]),
                _drafter_name(*key),
                looks.get(key, PLAIN),
                [_check_text(check) for check in mine],
            )
        )
    return plot.panel("replay against real rounds, plain steps included")


def _check_text(check: AcceptanceCheck) -> str:
    off = check.replayed_tokens_per_round / check.measured_tokens_per_round - 1
    return (
        f"{plain(check.workload, 30)}, {plain(check.target, 28)}, {check.draft_tokens} draft tokens: "
        f"{check.measured_tokens_per_round:.2f} tokens a round in {check.rounds} real rounds, replay "
        f"{check.replayed_tokens_per_round:.2f} ({percent(off, signed=True)})"
    )


def _table(curves: Sequence[Acceptance], checks: Sequence[AcceptanceCheck], classes: Mapping[str, str]) -> Table:
    columns = (
        "workload",
        "class",
        "target",
        "drafter",
        "position",
        "accepted up to here",
        "hazard: of drafts that came so far",
        "geometric",
        "tokens a drafted round of this length",
        "geometric, tokens",
        "rounds with a draft",
        "evidence",
    )
    rows = [row for curve in curves for row in _curve_rows(curve, classes.get(curve.workload, ""))]
    return Table(columns, (*rows, *(_check_row(check, classes.get(check.workload, "")) for check in checks)))


def _curve_rows(curve: Acceptance, workload_class: str) -> Iterable[tuple[str, ...]]:
    lead = _lead(curve, workload_class)
    if not curve.survival:
        yield (*lead, "-", "nothing was ever drafted", "-", "-", "-", "-", percent(curve.offer_rate), _evidence(curve))
        return
    constant = geometric(curve)
    for position, hazard in enumerate(hazards(np.array(curve.survival)), 1):
        yield (
            *lead,
            str(position),
            _share(curve, position),
            f"{hazard:.3f}",
            percent(constant[position - 1]),
            _tokens(drafted_round(curve, position)),
            short(1 + sum(constant[:position])),
            percent(curve.offer_rate),
            _evidence(curve),
        )


def _check_row(check: AcceptanceCheck, workload_class: str) -> tuple[str, ...]:
    empty = ("-",) * 6
    return (*_lead(check, workload_class), f"real rounds at {check.draft_tokens}", *empty, _check_text(check))


def _lead(item: Acceptance | AcceptanceCheck, workload_class: str) -> tuple[str, ...]:
    drafter = f"{item.drafter} {plain(item.draft)}"
    return (plain(item.workload), plain(workload_class or "-"), plain(item.target), drafter)


def _share(curve: Acceptance, position: int) -> str:
    """S_j in percent with its bounds; without bounds where none are known."""
    low, high = (bounds[position - 1] for bounds in _bounds(curve))
    value = percent(curve.survival[position - 1])
    return value if low == high else f"{value} ({percent(low)} to {percent(high)})"


def _tokens(found: Interval) -> str:
    """Tokens a round with bounds, where there are any."""
    return with_bounds(found) if found.high > found.low else short(found.value)


def _evidence(curve: Acceptance) -> str:
    plural = "s" if curve.prompts > 1 else ""
    source = plain(curve.source, 80)
    return source if _is_reported(curve) else f"{source}, {curve.prompts} prompt{plural}, {curve.positions} tokens"


def _is_reported(curve: Acceptance) -> bool:
    return curve.source in ("reported", "given")


def _is_foreign(curve: Acceptance) -> bool:
    """Whether the curve is not this profile's own measurement of this pair."""
    return _is_reported(curve) or curve.source.startswith("prior")


def _curve_name(curve: Acceptance) -> str:
    return f"{plain(curve.target, 28)} + {_drafter_name(curve.drafter, curve.draft)}"


def _drafter_name(drafter: str, draft: str) -> str:
    return drafter_name(Setting(target="", target_quant="", drafter=drafter, draft=draft), 28)

"""Acceptance by position: how likely the first j drafted tokens are all accepted, and what one constant rate would say."""

from collections.abc import Sequence

from ...calibrate.records import Acceptance, AcceptanceCheck, Calibration, Interval
from ...model.survival import geometric_survival, hazards, tokens_per_round
from ...profiler.records import Setting
from ..numbers import percent, plain
from ..panels import Axis, Panel, Plot, Section, Style, Table, band, exact, line, points, style
from ..verdict import drafter_name
from .series import grouped, in_order


def acceptance_by_position(calibration: Calibration) -> Section:
    """A panel for each workload: survival of every drafter on the target that has most of them, with a geometric curve through
    the first token beside it."""
    id_ = "acceptance-by-position"
    known = [item for item in calibration.acceptance if item.survival]
    if not known:
        missing = (
            "Acceptance by position: no drafter was replayed or run. Run specgauge run with --draft DRAFT to fill this."
        )
        return Section(id=id_, finding="", reading="", missing=missing)
    return Section(
        id=id_,
        finding=_finding(known),
        reading="Markers: chance that the first j drafted tokens are all accepted, in rounds that drafted something, with its "
        "interval for other prompts of the kind. Dashed: the same first token, and every later one as likely (a geometric "
        "curve), which is what one acceptance rate assumes.",
        panels=tuple(_panel(group) for group in grouped(known, lambda item: (item.workload, item.target))),
        table=_table(known, calibration.acceptance_checks),
    )


def geometric_tokens(survival: Sequence[float]) -> float:
    """Tokens per round of full drafts that a geometric curve through the first position gives, bonus token included."""
    return tokens_per_round(geometric_survival(survival[0], len(survival)))


def _finding(known: Sequence[Acceptance]) -> str:
    """By workload the drafter that is accepted most, and how far the geometric curve is off for it."""
    parts = []
    for workload in in_order(item.workload for item in known):
        mine = [item for item in known if item.workload == workload]
        best = max(mine, key=lambda item: item.offer_rate * sum(item.survival))
        real, constant = 1 + sum(best.survival), geometric_tokens(best.survival)
        parts.append(
            f"{plain(workload)}: {_name(best)} emits {real:.2f} tokens in a round of {len(best.survival)} drafted"
            f"{_offered(best)}; one constant rate would say {constant:.2f} ({percent(constant / real - 1, signed=True)})"
        )
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."


def _offered(item: Acceptance) -> str:
    return f" (it drafts in {percent(item.offer_rate)} of rounds)" if item.offer_rate < 1 else ""


def _name(item: Acceptance) -> str:
    return drafter_name(Setting(target=item.target, target_quant="", drafter=item.drafter, draft=item.draft), 28)


def _panel(group: Sequence[Acceptance]) -> Panel:
    longest = max(len(item.survival) for item in group)
    plot = Plot(Axis("position in the draft", longest + 0.5), Axis("chance that all so far are accepted", 1.03))
    for place, item in enumerate(group):
        _draw(plot, item, style(place))
    first = group[0]
    return plot.panel(f"{plain(first.workload, 40)}, {plain(first.target, 40)}")


def _draw(plot: Plot, item: Acceptance, look: Style) -> None:
    positions = [float(j) for j in range(1, len(item.survival) + 1)]
    if len(item.survival_low) == len(item.survival_high) == len(item.survival):
        bounds = [
            Interval(value=value, low=low, high=high)
            for value, low, high in zip(item.survival, item.survival_low, item.survival_high, strict=True)
        ]
        plot.traces.append(band(positions, list(item.survival_low), list(item.survival_high), look))
    else:
        bounds = exact(item.survival)
    hover = [
        f"{_name(item)}: the first {j} of a draft all accepted in {percent(bound.value)} of rounds "
        f"({percent(bound.low)} to {percent(bound.high)})"
        for j, bound in enumerate(bounds, start=1)
    ]
    constant = [float(value) for value in geometric_survival(item.survival[0], len(item.survival))]
    plot.traces.append(points(exact(positions), exact(item.survival), _name(item), look, hover))
    geometric = line(positions, constant, "", Style(look.colour, look.symbol, "dash"))
    plot.traces.append(geometric | {"showlegend": False, "line": geometric["line"] | {"width": 1.2}})


def _table(known: Sequence[Acceptance], checks: Sequence[AcceptanceCheck]) -> Table:
    columns = (
        "workload",
        "target",
        "drafter",
        "drafts in",
        "all accepted up to position 1, 2, ...",
        "chance of each, those before it accepted",
        "tokens a round of full drafts",
        "by a constant rate",
        "replayed / real rounds, tokens a round",
        "prompts",
        "source",
    )
    return Table(columns, tuple(_cells(item, checks) for item in known))


def _cells(item: Acceptance, checks: Sequence[AcceptanceCheck]) -> tuple[str, ...]:
    found = [
        f"{check.replayed_tokens_per_round:.2f} / {check.measured_tokens_per_round:.2f} at {check.draft_tokens} "
        f"({check.rounds} rounds)"
        for check in checks
        if (check.target, check.drafter, check.draft, check.workload)
        == (item.target, item.drafter, item.draft, item.workload)
    ]
    return (
        plain(item.workload),
        plain(item.target),
        _name(item),
        percent(item.offer_rate),
        " ".join(f"{value:.2f}" for value in item.survival),
        " ".join(f"{value:.2f}" for value in hazards(item.survival)),
        f"{1 + sum(item.survival):.2f}",
        f"{geometric_tokens(item.survival):.2f}",
        "; ".join(found) or "not run",
        str(item.prompts),
        plain(item.source),
    )

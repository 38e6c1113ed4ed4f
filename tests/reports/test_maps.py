"""The maps: cells as recorded, extrapolation marked, the boundary where the interval leaves 1, and what is missing said."""

import json
from dataclasses import dataclass

import msgspec
import pytest

from specgauge.reports.figures.maps import maps

from .samples import Sample, sample
from .test_page import HOSTILE


def figures(records: Sample) -> list[dict]:
    return [json.loads(panel.figure_json) for panel in maps(records.recommendation).panels]


def fastest(records: Sample, workload: str):
    mine = [one for one in records.recommendation.speed_maps if one.workload == workload]
    return max(mine, key=lambda one: one.cells[0].tokens_per_second)


@dataclass(frozen=True)
class Shown:
    """A cell as drawn."""

    text: str
    hover: str
    colour: str
    hatched: bool


def cells(drawn: dict) -> dict[tuple[int, int], Shown]:
    """All cells of a map by column and row."""
    found = {}
    for trace in drawn["data"]:
        hatched = bool(trace["marker"].get("pattern"))
        for x, base, text, hover in zip(trace["x"], trace["base"], trace["text"], trace["hovertext"], strict=True):
            found[x, round(base + 0.48)] = Shown(text, hover, trace["marker"]["color"], hatched)
    return found


def test_a_map_of_speed_for_each_workload_and_one_of_memory_for_each_of_its_drafters(demo: Sample):
    section = maps(demo.recommendation)
    captions = [panel.caption for panel in section.panels]
    shown = [fastest(demo, advice.workload).setting for advice in demo.recommendation.workloads]
    assert [c.split(",")[0] for c in captions[:2]] == ["ordinary", "copying"]
    assert len(captions) == 2 + len({(s.target, s.drafter, s.draft) for s in shown})
    assert all(c.startswith("memory of") and "8,192 MiB" in c for c in captions[2:])


def test_cells_show_length_and_gain_and_extrapolated_ones_are_hatched(demo: Sample):
    one, drawn = fastest(demo, "ordinary"), cells(figures(demo)[0])
    contexts, streams = (sorted({getattr(c, n) for c in one.cells}) for n in ("context", "streams"))
    assert len(drawn) == len(one.cells)
    for cell in one.cells:
        shown = drawn[contexts.index(cell.context), streams.index(cell.streams)]
        length = str(cell.draft_tokens) if cell.speed_up > 1 else "plain"
        beyond = cell.provenance == "prior"
        assert shown.text == f"{length}{'?' if beyond else ''}<br>{cell.speed_up:.2f}x"
        assert shown.hatched == beyond == ("extrapolated" in shown.hover)
        assert f"{cell.speed_up_low:.2f} to {cell.speed_up_high:.2f}" in shown.hover
    assert len({shown.colour for shown in drawn.values()}) == 2, "even and slower look different"


def test_the_boundary_runs_between_cells_that_pay_and_cells_that_do_not(demo: Sample):
    one, drawn = fastest(demo, "copying"), figures(demo)[1]
    contexts, streams = (sorted({getattr(c, n) for c in one.cells}) for n in ("context", "streams"))
    pays = {(contexts.index(c.context), streams.index(c.streams)): c.speed_up_low > 1 for c in one.cells}
    expected = {(x, y + 0.5) for (x, y), here in pays.items() if pays.get((x, y + 1), here) != here}
    across = {(s["x0"] + 0.5, s["y0"]) for s in drawn["layout"]["shapes"] if s["y0"] == s["y1"]}
    assert expected and across == expected


def test_the_finding_says_up_to_how_many_streams_it_pays(demo: Sample):
    one = fastest(demo, "copying")
    most = max(c.streams for c in one.cells if c.context == 256.0 and c.speed_up_low > 1)
    ordinary, copying, memory = maps(demo.recommendation).finding.split("; ")
    assert not [c for c in fastest(demo, "ordinary").cells if c.speed_up_low > 1]
    assert "ngram-simple" in ordinary and "for no number of streams" in ordinary
    assert f"pays up to {most} streams at 256 to 1,024 tokens of context" in copying
    assert "24,000 tokens of context fit" in memory


def test_memory_cells_count_the_longest_draft_that_fits(demo: Sample):
    drawn = cells(figures(demo)[2]).values()
    texts = [shown.text for shown in drawn]
    one = demo.recommendation.memory_maps[0]
    fits = {(c.context, c.streams) for c in one.cells if c.verdict != "does_not_fit"}
    assert texts.count("no") == len({(c.context, c.streams) for c in one.cells}) - len(fits) > 0
    assert any(text.endswith("tight") for text in texts) and "8" in texts
    assert all("to spare" in shown.hover or "missing" in shown.hover for shown in drawn)


@pytest.mark.parametrize("field", ["speed_maps", "memory_maps"])
def test_one_kind_of_map_stands_without_the_other(demo: Sample, field: str):
    section = maps(msgspec.structs.replace(demo.recommendation, **{field: ()}))
    assert section.panels and section.finding.endswith(".") and not section.missing


def test_without_maps_a_line_says_what_fills_them_or_why_they_cannot_be(demo: Sample):
    empty = msgspec.structs.replace(demo.recommendation, speed_maps=(), memory_maps=())
    assert "specgauge recommend" in maps(empty).missing
    one = demo.recommendation.speed_maps[0]
    alone = msgspec.structs.replace(one, cells=one.cells[:1], unknown="one context was timed: run specgauge profile")
    gone = msgspec.structs.replace(demo.recommendation.memory_maps[0], cells=(), unknown="the file is not here")
    bare = msgspec.structs.replace(demo.recommendation, speed_maps=(alone,), memory_maps=(gone,))
    missing = maps(bare).missing
    assert missing.startswith("Maps: ") and "Run" not in missing and "One context was timed: run" in missing


def test_hostile_names_stay_text():
    section = maps(sample(name=HOSTILE, workload=HOSTILE).recommendation)
    for panel in section.panels:
        assert "<script" not in panel.figure_json and len(panel.caption) < 400

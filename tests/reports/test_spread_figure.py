"""Spread of single replies: every reply once, quantiles, the peak beside every day, the forecast."""

import json
import statistics

import numpy as np
import pytest
from msgspec.structs import replace

from specgauge.calibrate.records import ReplySpread, Validation
from specgauge.profiler.records import Setting
from specgauge.reports.figures.spread import SHOWN_REPLIES, spread_of_replies
from specgauge.reports.panels import Section

from .samples import Sample
from .test_page import HOSTILE

SPEEDS = (60.0, 80.0, 90.0, 95.0, 100.0, 105.0, 110.0, 150.0)


def of_two_rows(demo: Sample, speeds: tuple[float, ...] = SPEEDS, spread: ReplySpread | None = None) -> Validation:
    """A plain row of 50 tokens/s and a chosen drafting one of `speeds`, of one target and workload."""
    plain = next(r for r in demo.validation.rows if r.config.drafter == "none")
    drafting = next(
        r
        for r in demo.validation.rows
        if r.config.draft_tokens and (r.workload, r.config.target) == (plain.workload, plain.config.target)
    )
    rows = (
        replace(plain, reply_speeds=(49.0, 49.5, 50.0, 50.5, 51.0), reply_spread=None),
        replace(drafting, reply_speeds=speeds, reply_spread=spread, chosen=True),
    )
    return replace(demo.validation, rows=rows)


def drawn(section: Section, place: int = 0) -> list[dict]:
    return json.loads(section.panels[place].figure_json)["data"]


def test_every_reply_is_a_stroke_and_the_marker_their_median(demo: Sample):
    traces = drawn(spread_of_replies(of_two_rows(demo)))
    strokes = [t["x"] for t in traces if t.get("marker", {}).get("symbol") == "line-ns-open"]
    assert strokes == [sorted(SPEEDS), [49.0, 49.5, 50.0, 50.5, 51.0]]
    middle = [t for t in traces if "error_x" in t]
    assert [t["x"] for t in middle] == [[97.5], [50.0]]
    low, high = np.quantile(SPEEDS, [0.05, 0.95])
    assert middle[0]["x"][0] + middle[0]["error_x"]["array"][0] == pytest.approx(high)
    assert middle[0]["x"][0] - middle[0]["error_x"]["arrayminus"][0] == pytest.approx(low)
    assert [t["x"] for t in traces if t["name"] == "the fastest reply"] == [[150.0, 51.0]]


def test_the_finding_sets_peak_against_every_day_with_plain_beside_it(demo: Sample):
    finding = spread_of_replies(of_two_rows(demo)).finding
    assert "everyday is 97.5 tokens/s (5 to 95 % of replies: 67.0 to 136)" in finding
    assert "the fastest of 8, the figure people quote, was 150" in finding
    assert "plain 50.0 (49.1 to 50.9)" in finding


def test_the_table_is_over_every_reply(demo: Sample):
    table = spread_of_replies(demo.validation).table
    assert table is not None and len(table.rows) == len(demo.validation.rows)
    row = demo.validation.rows[0]
    mine = next(cells for cells in table.rows if cells[0] == row.workload and cells[1].startswith("plain"))
    assert mine[2] == str(len(row.reply_speeds))
    assert float(mine[7]) == pytest.approx(max(row.reply_speeds) / statistics.median(row.reply_speeds), abs=0.005)


def test_a_forecast_is_a_line_with_a_tick_at_its_median(demo: Sample):
    spread = ReplySpread(low=70.0, median=99.0, high=120.0)
    section = spread_of_replies(of_two_rows(demo, spread=spread))
    (line,) = [t for t in drawn(section) if t["mode"] == "lines"]
    assert line["x"] == [70.0, 99.0, 120.0]
    (tick,) = [t for t in drawn(section) if t["mode"] == "markers" and t["marker"]["symbol"] == "line-ns"]
    assert tick["x"] == [99.0]
    assert section.table is not None and section.table.rows[0][-1] == "99.0 (70.0 to 120)"
    assert section.table.rows[1][-1] == "-"


def test_many_replies_are_thinned_evenly_and_keep_both_ends(demo: Sample):
    speeds = tuple(float(speed) for speed in range(100, 3100))
    traces = drawn(spread_of_replies(of_two_rows(demo, speeds)))
    strokes = next(t for t in traces if t["marker"]["symbol"] == "line-ns-open")
    assert len(strokes["x"]) == SHOWN_REPLIES and (min(strokes["x"]), max(strokes["x"])) == (100, 3099)
    steps = np.diff(strokes["x"])
    assert steps.max() - steps.min() <= 2


def test_an_older_validation_and_none_are_one_line_each(demo: Sample):
    older = replace(demo.validation, rows=tuple(replace(row, reply_speeds=()) for row in demo.validation.rows))
    for validation, reason in ((older, "does not hold single replies"), (None, "nothing was run yet")):
        section = spread_of_replies(validation)
        assert reason in section.missing and "specgauge validate" in section.missing and not section.panels


def test_foreign_names_stay_text_of_limited_length(demo: Sample):
    rows = tuple(
        replace(row, workload=HOSTILE, config=Setting(target=HOSTILE, target_quant=HOSTILE))
        for row in of_two_rows(demo).rows
    )
    section = spread_of_replies(replace(demo.validation, rows=rows))
    assert "<" not in section.panels[0].figure_json and len(section.finding) < 500

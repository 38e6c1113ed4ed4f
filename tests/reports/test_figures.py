"""The figures: valid plotly, the records' numbers, told apart by marker, line and band."""

import json
import math

import msgspec
import pytest

from specgauge.calibrate.records import RoundBreakdown, RoundTerm
from specgauge.reports.bounds import plain_ceilings
from specgauge.reports.figures.every import all_sections
from specgauge.reports.figures.passes import verification_cost
from specgauge.reports.figures.rounds import round_breakdown
from specgauge.reports.figures.speeds import speeds_of
from specgauge.reports.numbers import percent
from specgauge.reports.panels import Panel, Section, label, script_json
from specgauge.reports.verdict import workload_verdicts

from .samples import LENGTHS, Sample, round_terms


def sections(records: Sample) -> dict[str, Section]:
    found = all_sections(records.profile, records.calibration, records.recommendation, records.validation)
    return {section.id: section for section in found}


def figure(panel: Panel) -> dict:
    return json.loads(panel.figure_json)


def traces(section: Section, kind: str) -> list[dict]:
    return [t for panel in section.panels for t in figure(panel)["data"] if t.get("mode", t["type"]) == kind]


def test_every_panel_is_valid_plotly_with_units_and_numbers_below(demo: Sample):
    plotly = pytest.importorskip("plotly.graph_objects")
    found = sections(demo)
    assert len(found) == 9
    for section in found.values():
        assert section.finding.endswith(".") and any(digit in section.finding for digit in "0123456789")
        assert section.table is not None and section.table.rows
        assert {len(row) for row in section.table.rows} == {len(section.table.columns)}
        for panel in section.panels:
            spec = figure(panel)
            plotly.Figure(data=spec["data"], layout=spec["layout"])
            assert spec["layout"]["xaxis"]["title"]["text"]
            assert spec["layout"]["yaxis"]["rangemode"] == "tozero"


def test_scatter_shows_every_row_once_hollow_where_in_profile(demo: Sample):
    panel = sections(demo)["forecast-against-measured"].panels[0]
    drawn = [t for t in figure(panel)["data"] if t["mode"] == "markers"]
    pairs = [pair for t in drawn for pair in zip(t["x"], t["y"], t["marker"]["symbol"], strict=True)]
    rows = demo.validation.rows
    assert sorted((x, y) for x, y, _ in pairs) == sorted((row.measured, row.forecast) for row in rows)
    assert sum(symbol.endswith("-open") for _, _, symbol in pairs) == sum(row.in_profile for row in rows)


def test_error_bars_reach_the_bounds(demo: Sample):
    panel = sections(demo)["forecast-against-measured"].panels[0]
    by_pair = {(row.measured, row.forecast): row for row in demo.validation.rows}
    for trace in (t for t in figure(panel)["data"] if t["mode"] == "markers"):
        for place, pair in enumerate(zip(trace["x"], trace["y"], strict=True)):
            row = by_pair[pair]
            assert trace["y"][place] + trace["error_y"]["array"][place] == pytest.approx(row.high)
            assert trace["x"][place] - trace["error_x"]["arrayminus"][place] == pytest.approx(row.measured_low)


def test_speed_lines_follow_the_forecasts(demo: Sample):
    section = sections(demo)["speed-over-draft-length"]
    assert len(section.panels) == 6
    expected = {}
    for forecast in demo.recommendation.candidates:
        key = (forecast.workload, forecast.setting.target, forecast.setting.drafter)
        if forecast.setting.draft_tokens:
            expected.setdefault(key, []).append(forecast.tokens_per_second.value)
    named = [t for t in traces(section, "lines") if t["name"]]
    assert any(t["name"].startswith("bandwidth allows plain 277") for t in named)
    drawn = [t["y"] for t in named if not t["name"].startswith(("plain", "bandwidth"))]
    assert sorted(drawn) == sorted(expected.values())
    assert sum(t["name"].startswith("plain") for t in traces(section, "lines")) == 6


def test_a_ceiling_lies_above_every_forecast(demo: Sample):
    section = sections(demo)["speed-over-draft-length"]
    ceilings = sorted(t["y"] for t in traces(section, "lines") if not t["name"] and t["line"].get("dash") == "dot")
    expected = {}
    for forecast in demo.recommendation.candidates:
        key = (forecast.workload, forecast.setting.target, forecast.setting.drafter)
        if forecast.setting.draft_tokens:
            assert forecast.ceiling_tokens_per_second >= forecast.tokens_per_second.value
            expected.setdefault(key, []).append(forecast.ceiling_tokens_per_second)
    assert ceilings == sorted(expected.values())


def test_a_kernel_switch_is_marked_in_both_figures(demo: Sample):
    found = sections(demo)
    for name, place in (("speed-over-draft-length", 7.5), ("verification-cost", 8.5)):
        marks = [shape["x0"] for panel in found[name].panels for shape in figure(panel)["layout"]["shapes"]]
        assert place in marks, name


def test_no_pass_is_faster_than_the_bound(demo: Sample):
    bounds = {t["y"][0] for t in traces(sections(demo)["verification-cost"], "lines") if "bound by" in t["name"]}
    bandwidth = demo.calibration.bandwidth_bytes_per_second
    assert bandwidth is not None
    expected = [1e3 * model.size_bytes / bandwidth.value for model in demo.profile.models]
    assert bounds and all(any(bound == pytest.approx(one) for one in expected) for bound in bounds)


def test_the_table_of_passes_says_what_reading_the_weights_explains(demo: Sample):
    table = sections(demo)["verification-cost"].table
    assert table is not None
    bandwidth = demo.calibration.bandwidth_bytes_per_second
    assert bandwidth is not None
    cost = min(demo.calibration.costs, key=lambda c: (c.role, c.model, c.context, c.kind, c.width))
    size = next(model.size_bytes for model in demo.profile.models if model.label == cost.model)
    shown = dict(zip(table.columns, table.rows[0], strict=True))
    assert shown["share of the pass"] == percent(size / bandwidth.value / cost.seconds.value)
    assert {row[-1] for row in table.rows if row[1] == "target"} != {"-"}


def test_the_verdict_shows_plain_and_drafting_from_zero(demo: Sample):
    for verdict in workload_verdicts(demo.recommendation, demo.validation, demo.profile):
        ceilings = plain_ceilings(demo.calibration, demo.profile.models)
        panel = speeds_of(verdict, demo.recommendation, demo.validation, ceilings)
        assert panel is not None
        drawn = figure(panel)
        names = drawn["layout"]["yaxis"]["ticktext"]
        assert {"plain, forecast", "plain, measured", "drafting, forecast"} <= set(names)
        assert drawn["layout"]["xaxis"]["range"][0] == 0
        values = dict(zip(names, (trace["x"][0] for trace in drawn["data"]), strict=True))
        if verdict.speculates:
            assert values["drafting, forecast"] == verdict.forecast.value
        raw = [
            row.measured_raw
            for row in demo.validation.rows
            if (row.workload, row.config.target, row.config.drafter)
            == (verdict.workload, verdict.setting.target, "none")
        ]
        told = values.get("plain at full bandwidth")
        assert told is None or told == ceilings[verdict.setting.target], "the ceiling is that of the target shown"
        assert [values["plain, measured"]] == raw, "on one footing with the other arms: as the clock gave it"


def test_verification_line_breaks_at_the_switch_and_names_it(demo: Sample):
    section = sections(demo)["verification-cost"]
    line = traces(section, "lines")[0]
    assert line["y"][line["x"].index(9)] is None
    assert "before width 9" in section.finding
    notes = figure(section.panels[0])["layout"]["annotations"]
    assert [note["text"][:8] for note in notes] == ["switch -"]


def test_a_straight_cost_line_shows_no_switch(demo: Sample):
    from specgauge.calibrate.records import Interval

    costs = tuple(
        msgspec.structs.replace(c, seconds=Interval(value=v, low=v, high=v))
        for c in demo.calibration.costs
        if (v := 0.01 + 0.002 * (c.width - 1))
    )
    section = verification_cost(msgspec.structs.replace(demo.calibration, costs=costs))
    assert "no kernel switch" in section.finding


def test_bars_of_a_measured_round_add_up_to_the_measurement(demo: Sample):
    section = sections(demo)["where-a-round-goes"]
    for item in demo.calibration.rounds:
        if item.measured_seconds is None:
            continue
        caption = next(p for p in section.panels if item.target in p.caption and item.draft in p.caption)
        spec = figure(caption)
        stack = [t["y"][t["x"].index(item.draft_tokens)] for t in spec["data"] if t["type"] == "bar"]
        assert math.fsum(stack) == pytest.approx(1e3 * item.measured_seconds)
        assert spec["layout"]["barmode"] == "relative"


def test_negative_overhead_keeps_its_sign_and_its_own_bar(demo: Sample):
    bars = [t for t in traces(sections(demo)["where-a-round-goes"], "bar") if t["name"] == "overhead"]
    assert any(value < 0 for t in bars for value in t["y"])
    assert len({t["marker"]["pattern"]["shape"] for t in bars}) == 1


def test_a_term_that_is_new_here_is_shown_last():
    terms = (*round_terms("F16", "ngram", 2), RoundTerm(name="sampling", seconds=0.001))
    item = RoundBreakdown(
        target="t",
        drafter="ngram",
        draft="ngram-simple",
        draft_tokens=2,
        context=64,
        source="prior",
        terms=terms,
        modelled_seconds=math.fsum(term.seconds for term in terms),
    )
    section = round_breakdown((item,), ())
    names = [t["name"] for t in traces(section, "bar")]
    assert names == ["verification", "overhead", "sampling"]
    assert "no round was left over" in section.finding


def test_unexplained_is_quoted_from_rounds_that_no_fit_has_seen(demo: Sample):
    assert "2.4 % is unexplained (median of 3 checks" in sections(demo)["where-a-round-goes"].finding
    table = sections(demo)["where-a-round-goes"].table
    assert table is not None and len(table.rows) == len(LENGTHS) * 5 + 3


def test_missing_evidence_is_one_line_that_says_what_to_run(bare: Sample):
    for section in all_sections(bare.profile, bare.calibration, bare.recommendation, None):
        assert not section.panels and "specgauge " in section.missing and "\n" not in section.missing


def test_not_a_number_is_refused():
    with pytest.raises(ValueError):
        script_json({"y": [math.nan]})


def test_script_json_cannot_leave_its_element():
    text = "</script><!--<script>&\u2028'\""
    written = script_json([text])
    assert not set("<>&\u2028") & set(written)
    assert json.loads(written) == [text]


def test_labels_keep_tags_as_text():
    assert label("<a href='x'>&lt;") == "&lt;a href='x'&gt;&amp;lt;"

"""Acceptance by position, quantization and the spread of replies: the records' numbers, and what a figure without them says."""

import json

import msgspec
import numpy as np
import pytest

from specgauge.calibrate.records import Acceptance
from specgauge.model.survival import geometric_survival
from specgauge.reports.figures.acceptance import acceptance_by_position, geometric_tokens
from specgauge.reports.figures.quantization import quantizations
from specgauge.reports.figures.spread import spread_of_replies
from specgauge.reports.panels import Section

from .samples import Sample, sample

HOSTILE = "<img src=x onerror=alert(1)>"


def drawn(section: Section) -> list[dict]:
    return [trace for panel in section.panels for trace in json.loads(panel.figure_json)["data"]]


def test_survival_is_drawn_as_it_is_with_its_geometric_curve(demo: Sample):
    section = acceptance_by_position(demo.calibration)
    known = [item for item in demo.calibration.acceptance if item.survival]
    marks = [trace["y"] for trace in drawn(section) if trace["mode"] == "markers"]
    dashed = [trace["y"] for trace in drawn(section) if trace.get("line", {}).get("dash") == "dash" and trace["y"]]
    assert sorted(marks) == sorted(list(item.survival) for item in known)
    constant = [list(geometric_survival(item.survival[0], len(item.survival))) for item in known]
    assert all(any(found == pytest.approx(curve) for found in dashed) for curve in constant)


def test_the_finding_says_how_wrong_a_constant_rate_is(demo: Sample):
    item = Acceptance(
        target="t",
        drafter="model",
        draft="d",
        workload="ordinary",
        survival=(0.5, 0.45, 0.4),
        survival_low=(0.4, 0.4, 0.3),
        survival_high=(0.6, 0.5, 0.5),
        offer_rate=1.0,
        prompts=5,
        positions=100,
        source="replay",
    )
    section = acceptance_by_position(msgspec.structs.replace(demo.calibration, acceptance=(item,)))
    assert geometric_tokens(item.survival) == pytest.approx(1 + 0.5 + 0.25 + 0.125)
    assert "2.35 tokens in a round of 3 drafted" in section.finding and "1.88 (-20 %)" in section.finding
    assert section.table is not None and "0.50 0.90 0.89" in section.table.rows[0]


def test_each_quantization_is_shown_at_its_best_length_with_its_bytes(demo: Sample):
    section = quantizations(demo.recommendation, demo.validation.rows, demo.profile.models, demo.calibration.costs)
    assert section.table is not None
    for workload in ("ordinary", "copying"):
        rows = [row for row in section.table.rows if row[0] == workload]
        forecasts = [item for item in demo.recommendation.candidates if item.workload == workload]
        groups = {(item.setting.target, item.setting.drafter, item.setting.draft) for item in forecasts}
        assert len(rows) == len(groups)
        best = max(forecasts, key=lambda item: item.tokens_per_second.value)
        assert rows[0][1] == best.setting.target and rows[0][3] == str(best.setting.draft_tokens)
    sizes = {model.label: model.size_bytes / 2**20 for model in demo.profile.models}
    x = {value for trace in drawn(section) for value in trace["x"]}
    assert sizes["smol-F16"] in x and sizes["smol-F16"] + sizes["smol-Q4_0"] in x


def test_one_quantization_is_one_line_that_says_how_to_compare(demo: Sample):
    only = tuple(
        item
        for item in demo.recommendation.candidates
        if item.setting.target_quant == "F16" and item.setting.draft_quant in ("", "F16")
    )
    section = quantizations(msgspec.structs.replace(demo.recommendation, candidates=only), (), demo.profile.models)
    assert not section.panels and "several TARGET files" in section.missing


def test_the_spread_is_that_of_single_replies(demo: Sample):
    section = spread_of_replies(demo.validation)
    assert section.table is not None and len(section.table.rows) == len(demo.validation.rows)
    stars = [trace for trace in drawn(section) if trace.get("name") == "the fastest reply"]
    peaks = sorted(value for trace in stars for value in trace["x"])
    assert peaks == sorted(max(row.reply_speeds) for row in demo.validation.rows)
    medians = sorted(trace["x"][0] for trace in drawn(section) if not trace.get("name"))
    assert medians == pytest.approx(sorted(np.median(row.reply_speeds) for row in demo.validation.rows))
    for trace in drawn(section):
        if not trace.get("name"):
            assert trace["error_x"]["arrayminus"][0] > 0 and trace["error_x"]["array"][0] > 0
    assert "ordinary day" in section.finding


def test_older_validations_have_no_single_replies(demo: Sample):
    rows = tuple(msgspec.structs.replace(row, reply_speeds=()) for row in demo.validation.rows)
    section = spread_of_replies(msgspec.structs.replace(demo.validation, rows=rows))
    assert not section.panels and "specgauge validate" in section.missing
    assert "specgauge validate" in spread_of_replies(None).missing


def test_without_acceptance_one_line_says_what_to_run(bare: Sample):
    assert "--draft" in acceptance_by_position(bare.calibration).missing


def test_hostile_names_stay_text_in_every_label():
    records = sample(name=HOSTILE, workload=HOSTILE)
    found = (
        acceptance_by_position(records.calibration),
        quantizations(records.recommendation, records.validation.rows, records.profile.models),
        spread_of_replies(records.validation),
    )
    for section in found:
        assert section.panels
        for panel in section.panels:
            assert "<" not in panel.figure_json
            assert "<img" not in json.dumps(json.loads(panel.figure_json)["data"])

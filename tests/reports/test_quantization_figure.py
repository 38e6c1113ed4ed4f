"""Quantization: best settings of each target, drafts at one length, sizes, and what is missing."""

import json

import pytest
from msgspec.structs import replace

from specgauge.calibrate.records import Acceptance, CostPoint, Interval, Recommendation
from specgauge.profiler.records import DeviceState
from specgauge.reports.figures.drafts import compared_drafts
from specgauge.reports.figures.quantization import quantizations
from specgauge.reports.panels import Section

from .samples import SIZE_BYTES, Sample
from .test_page import HOSTILE


def section_of(records: Sample, recommendation: Recommendation | None = None, **changes) -> Section:
    profile = replace(records.profile, **changes)
    rows = records.validation.rows
    return quantizations(recommendation or records.recommendation, records.calibration, profile, rows)


def only_target(records: Sample, quant: str) -> Recommendation:
    kept = tuple(f for f in records.recommendation.candidates if f.setting.target_quant == quant)
    return replace(records.recommendation, candidates=kept)


def two_drafts(demo: Sample) -> Sample:
    """The F16 target with drafts of Q4_0 and Q8_0 on one workload: 5 and 8 ms a step, 0.5^j and 0.9^j."""
    targets, drafts = demo.profile.models[:1], demo.profile.models[1:]
    curves = tuple(
        Acceptance(
            target=targets[0].label,
            drafter="model",
            draft=draft.label,
            workload="ordinary",
            survival=tuple(rate**j for j in range(1, 9)),
            survival_low=tuple(0.8 * rate**j for j in range(1, 9)),
            survival_high=tuple(rate**j for j in range(1, 9)),
            offer_rate=1.0,
            prompts=4,
            positions=500,
            source="matches",
        )
        for draft, rate in zip(drafts, (0.9, 0.5), strict=True)
    )
    costs = tuple(
        CostPoint(
            model=draft.label,
            role=role,
            kind="decode",
            width=1,
            context=128,
            seconds=Interval(value=seconds, low=0.9 * seconds, high=1.1 * seconds),
            samples=5,
        )
        for draft, in_place in zip(drafts, (0.008, 0.005), strict=True)
        for role, seconds in (("target", 3 * in_place), ("draft", in_place))
    )
    calibration = replace(demo.calibration, acceptance=curves, costs=costs)
    return Sample(demo.profile, calibration, only_target(demo, "F16"), demo.validation)


def test_lines_stand_at_the_best_forecast_of_each_target_and_drafter(demo: Sample):
    section = section_of(demo)
    best: dict[tuple[str, str, str], float] = {}
    for f in demo.recommendation.candidates:
        key = (f.workload, f.setting.target_quant, f.setting.drafter)
        best[key] = max(best.get(key, 0.0), f.tokens_per_second.value)
    for workload, panel in zip(("ordinary", "copying"), section.panels, strict=True):
        data = json.loads(panel.figure_json)["data"]
        shown = [y for t in data if t["mode"] == "lines" and t["name"] for y in t["y"] if y is not None]
        assert sorted(set(shown)) == pytest.approx(sorted(v for (w, _, _), v in best.items() if w == workload))


def test_targets_stand_by_size_with_their_sizes_below(demo: Sample):
    axis = json.loads(section_of(demo).panels[0].figure_json)["layout"]["xaxis"]
    assert axis["ticktext"] == ["Q4_0, 74 MiB", "Q8_0, 138 MiB", "F16, 258 MiB"]


def test_measured_markers_are_those_that_were_run(demo: Sample):
    rows = {row.measured for row in demo.validation.rows}
    data = [t for panel in section_of(demo).panels for t in json.loads(panel.figure_json)["data"]]
    shown = [y for t in data if t["mode"] == "markers" for y in t["y"]]
    assert shown and set(shown) <= rows


def test_the_finding_and_the_table_give_speed_and_size_of_each(demo: Sample):
    section = section_of(demo)
    fastest = max(
        (f for f in demo.recommendation.candidates if f.workload == "ordinary"), key=lambda f: f.tokens_per_second.value
    )
    assert section.finding.startswith(f"Ordinary: fastest by forecast is {fastest.setting.target_quant}")
    assert "F16 reaches" in section.finding
    assert section.table is not None
    sizes = {row[1]: row[9] for row in section.table.rows}
    assert sizes == {quant: f"{size / 2**20:,.0f} MiB" for quant, size in SIZE_BYTES.items()}


def test_a_single_quantization_is_one_line_that_says_how_to_fill_it(demo: Sample, bare: Sample):
    section = section_of(demo, only_target(demo, "Q8_0"))
    assert not section.panels and "only Q8_0 was forecast" in section.missing and "specgauge run" in section.missing
    assert "nothing was forecast" in section_of(bare).missing


def test_drafts_are_compared_at_one_length_by_step_and_tokens(demo: Sample):
    records = two_drafts(demo)
    models = {model.label: model for model in records.profile.models}
    (comparison,) = compared_drafts(records.calibration, records.recommendation.candidates, models)
    length = comparison.draft_tokens
    assert length >= 4
    assert [d.tokens.value for d in comparison.drafts] == pytest.approx(
        [1 + sum(rate**j for j in range(1, length + 1)) for rate in (0.9, 0.5)]
    )
    assert [d.step.value for d in comparison.drafts] == [0.008, 0.005]
    section = section_of(records)
    data = json.loads(section.panels[0].figure_json)["data"]
    assert [(t["x"], t["y"]) for t in data] == [
        ([pytest.approx(1e3 * d.step.value)], [pytest.approx(d.tokens.value)]) for d in comparison.drafts
    ]
    assert "Q4_0 (74 MiB)" in section.finding and "5.00 (4.50 to 5.50) ms a step" in section.finding
    assert "One target quantization was forecast" in section.reading


def test_memory_in_all_is_that_of_the_map_with_room_for_the_draft_length(demo: Sample):
    section = section_of(demo)
    assert "the table adds caches and buffers" in section.reading and section.table is not None
    place = section.table.columns.index("memory with caches and buffers")
    best = max(
        (f for f in demo.recommendation.candidates if f.workload == "copying" and f.setting.drafter == "ngram"),
        key=lambda f: f.tokens_per_second.value,
    ).setting
    cells = [
        cell
        for one in demo.recommendation.memory_maps
        if (one.target, one.drafter) == (best.target, "ngram")
        for cell in one.cells
        if (cell.context, cell.streams) == (best.context, 1) and cell.draft_tokens >= best.draft_tokens
    ]
    expected = min(cells, key=lambda cell: cell.draft_tokens).total_bytes
    row = next(row for row in section.table.rows if row[0] == "copying" and row[3].startswith(f"{best.target} + ngram"))
    assert row[place].startswith(f"{expected / 2**20:,.0f} MiB, ")


def test_without_a_map_it_is_said_who_tells_the_rest(demo: Sample):
    without = replace(demo.recommendation, memory_maps=())
    section = section_of(demo, without)
    assert "specgauge check" in section.reading and "of the device" not in section.reading
    assert section.table is not None and {row[11] for row in section.table.rows} == {"not known"}
    state = DeviceState(memory_used_bytes=3 * 2**30)
    measured = tuple(replace(m, state_after=state) for m in demo.profile.measurements)
    assert "at most 3,072 MiB of the device were in use" in section_of(demo, measurements=measured).reading


def test_without_sizes_nothing_is_made_up(demo: Sample):
    section = section_of(demo, models=tuple(replace(model, size_bytes=0) for model in demo.profile.models))
    assert section.table is not None and {row[9] for row in section.table.rows} == {"unknown"}
    assert "MiB" not in section.finding and "of unknown size" in section.panels[0].figure_json


def test_foreign_names_stay_text_of_limited_length(demo: Sample):
    def foreign(setting):
        return replace(setting, target_quant=HOSTILE, draft_quant=HOSTILE if setting.draft_tokens else "")

    candidates = tuple(replace(f, setting=foreign(f.setting), workload=HOSTILE) for f in demo.recommendation.candidates)
    section = section_of(demo, replace(demo.recommendation, candidates=candidates))
    assert "<" not in section.panels[0].figure_json and len(section.finding) < 600

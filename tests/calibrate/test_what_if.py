"""What-if records and maps: the forecasts themselves at rest, the calibrated cost elsewhere, and advice on kernels."""

from functools import cache
from pathlib import Path

import msgspec
import numpy as np
import pytest

from specgauge import cli
from specgauge.calibrate import fit
from specgauge.calibrate.fit import Calibrated
from specgauge.calibrate.maps import STREAMS, shown_contexts
from specgauge.calibrate.recommend import recommend
from specgauge.calibrate.records import Recommendation
from specgauge.calibrate.what_if import cost_of, model_of
from specgauge.calibrate.what_if_records import WhatIfRecord, WorkloadWhatIf
from specgauge.model.cost import Rounds, WholeRounds
from specgauge.model.forecast import forecast_lengths
from specgauge.model.survival import survival_from_hazards
from specgauge.model.what_if import moved
from specgauge.profiler.files import read_record
from specgauge.profiler.records import Profile

from . import synthetic
from .synthetic import quiet
from .test_in_process import QUIET, profiled

DATA = Path(__file__).resolve().parents[1] / "data"


def advised(profile: Profile) -> tuple[Calibrated, Recommendation]:
    calibrated = fit.calibrate(profile, replicates=200)
    names = {"profile_sha256": "p", "calibration_sha256": "c", "created": "now", "tool_version": "0", "command": ""}
    return calibrated, recommend(profile, calibrated, **names)


@cache
def of_parts() -> tuple[Calibrated, Recommendation]:
    return advised(synthetic.profile(quiet(noise=0.02, match_rate=0.75)))


@cache
def in_process() -> tuple[Calibrated, Recommendation]:
    return advised(profiled(QUIET)[0])


@cache
def imported(folder: Path, *names: str) -> tuple[Calibrated, Recommendation]:
    assert cli.main(["import", *(str(DATA / f"{name}.csv") for name in names), "--out", str(folder)]) == 0
    return advised(read_record(folder / "profile.json", Profile))


@pytest.fixture(scope="session")
def ladder(tmp_path_factory) -> tuple[Calibrated, Recommendation]:
    return imported(tmp_path_factory.mktemp("ladder"), "rtx3090-mtp-ladder")


@pytest.fixture(scope="session")
def contexts(tmp_path_factory) -> tuple[Calibrated, Recommendation]:
    return imported(tmp_path_factory.mktemp("contexts"), "rtx3090-context-ladder")


@pytest.fixture(params=["parts", "in process", "ladder", "contexts"])
def made(request) -> tuple[Calibrated, Recommendation]:
    known = {"parts": of_parts, "in process": in_process}
    return known[request.param]() if request.param in known else request.getfixturevalue(request.param)


def every(recommendation: Recommendation) -> list[tuple[WhatIfRecord, WorkloadWhatIf]]:
    return [(record, workload) for record in recommendation.what_if for workload in record.workloads]


def test_at_rest_the_curve_is_the_stored_forecasts(made):
    _, found = made
    assert every(found)
    stored = {(f.setting, f.workload): f.tokens_per_second.value for f in found.candidates}
    for record, workload in every(found):
        speeds = model_of(record, workload).tokens_per_second(None, workload.context)
        for length, speed in zip(record.prices.draft_tokens, speeds[1:]):
            setting = msgspec.structs.replace(record.setting, draft_tokens=length)
            assert speed == pytest.approx(stored[setting, workload.workload], rel=1e-9)
        plain = [f.baseline_tokens_per_second for f in found.candidates if f.setting == record.setting]
        assert any(speeds[0] == pytest.approx(value, rel=1e-9) for value in plain)


def test_the_tables_are_the_calibrated_cost_at_every_length_and_context(made):
    calibrated, found = made
    for record, workload in every(found):
        lengths = np.array([0, *record.prices.draft_tokens])
        whole, cost = calibrated.round_cost(record.setting), cost_of(record.prices)
        reach = record.trusted_context
        for context in (0.0, 0.3 * reach, workload.context, 0.77 * reach, 1.4 * reach):
            expected = whole.lookup(Rounds.of(lengths, context)).seconds[0]
            assert cost.lookup(Rounds.of(lengths, context)).seconds == pytest.approx(expected, rel=1e-12)
            law = forecast_lengths(survival_from_hazards(np.array(workload.hazard)), cost, lengths, context)
            assert law.seconds == pytest.approx(expected, rel=1e-12)


def test_anchors_move_acceptance_little_and_records_are_compact(made):
    _, found = made
    for _, workload in every(found):
        hazard = np.array(workload.hazard)
        for anchor in workload.anchor:
            assert moved(hazard, hazard[0], anchor) == pytest.approx(hazard, abs=0.12)
        assert workload.scale == pytest.approx(1, abs=0.01)
    assert len(msgspec.json.encode(found.what_if)) < 40_000


def test_records_are_read_back_and_old_files_without_them_too(made):
    _, found = made
    written = msgspec.json.encode(found)
    assert msgspec.json.decode(written, type=Recommendation) == found
    old = msgspec.json.decode(written)
    for name in ("what_if", "speed_maps", "memory_maps"):
        del old[name]
    read = msgspec.json.decode(msgspec.json.encode(old), type=Recommendation)
    assert (read.what_if, read.speed_maps, read.memory_maps) == ((), (), ())


def test_on_an_rtx_3090_the_advice_is_eight_draft_tokens_and_never_five_to_seven(ladder):
    _, found = ladder
    [advice] = found.what_if[0].kernels
    assert (advice.draft_tokens, advice.take) == (8, 8) and advice.over_line == pytest.approx(-0.26, abs=0.01)
    assert set(advice.never) <= {5, 6, 7} and {6, 7} <= set(advice.never)
    assert "take 8 draft tokens, never" in advice.text and "26 %" in advice.text
    assert any(advice.text == reason for reason in found.workloads[0].reasons)


def test_on_one_kernel_there_is_no_advice(contexts):
    assert not [advice for record in of_parts()[1].what_if for advice in record.kernels]
    assert not contexts[1].what_if[0].kernels


def test_where_the_ninth_column_doubles_the_pass_eight_draft_tokens_are_a_trap():
    _, found = advised(synthetic.profile(quiet(jump=25e-3, match_rate=0.97, noise=0.01)))
    traps = [a for record in found.what_if if record.setting.drafter == "model" for a in record.kernels]
    assert traps and all(a.draft_tokens == 8 and a.take == 7 and 8 in a.never for a in traps)


# --- maps


def test_at_rest_of_one_stream_the_map_names_the_fastest_forecast(made):
    _, found = made
    for one in found.speed_maps:
        record = next(r for r in found.what_if if r.setting == one.setting)
        workload = next(w for w in record.workloads if w.workload == one.workload)
        near = min((c for c in one.cells if c.streams == 1), key=lambda c: abs(c.context - workload.context))
        model = model_of(record, workload)
        speeds = model.tokens_per_second(None, near.context) / model.scale
        assert near.tokens_per_second == pytest.approx(speeds[1:].max(), rel=1e-9)
        assert near.plain_tokens_per_second == pytest.approx(speeds[0], rel=1e-9)
        assert near.draft_tokens == (0, *record.prices.draft_tokens)[1 + int(speeds[1:].argmax())]
        assert near.speed_up_low < near.speed_up < near.speed_up_high
        assert near.provenance == "calibrated"


def test_cells_beyond_the_evidence_are_priors():
    _, found = of_parts()
    for one in found.speed_maps:
        record = next(r for r in found.what_if if r.setting == one.setting)
        assert {cell.streams for cell in one.cells} == set(STREAMS)
        widest = max(synthetic.WIDTHS)
        for cell in one.cells:
            beyond = cell.context > record.trusted_context or cell.streams * (cell.draft_tokens + 1) > widest
            assert cell.provenance == "prior" if beyond else True
        assert any(cell.provenance == "prior" for cell in one.cells)
        assert any(cell.provenance == "calibrated" and cell.streams > 1 for cell in one.cells)
        assert "wider ones" in one.unknown


def test_what_a_profile_cannot_know_is_said_with_what_to_run(ladder, contexts):
    [one] = ladder[1].speed_maps
    assert len(one.cells) == 1 and "one context was timed" in one.unknown and "specgauge profile" in one.unknown
    [several] = contexts[1].speed_maps
    assert {cell.streams for cell in several.cells} == {1} and "timed whole" in several.unknown
    assert isinstance(contexts[0].round_cost(several.setting), WholeRounds)
    assert [cell.context for cell in several.cells] == list(shown_contexts(contexts[1].what_if[0]))

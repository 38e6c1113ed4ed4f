"""The whole command on a simulated engine that is called in process: two clocks, replayed acceptance, random weights."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from specgauge import cli
from specgauge.calibrate.records import Calibration, Validation
from specgauge.profiler.files import read_record, write_record
from specgauge.profiler.records import Profile


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("in-process")
    assert cli.main(["run", "--engine", "fake:in-process", "--out", str(out), "--repeats", "5"]) == 0
    return out


def predicted(capsys: pytest.CaptureFixture[str], *words: object) -> list[dict]:
    capsys.readouterr()
    assert cli.main(["predict", "--json", *map(str, words)]) == 0
    return json.loads(capsys.readouterr().out)["predictions"]


def test_both_clocks_are_stored_and_the_wall_leads(ran: Path):
    found = read_record(ran / "validation.json", Validation)
    assert found.clock == "wall" and found.n_rows >= 6
    assert found.other_clock is not None and found.other_clock.clock == "thread_cpu"
    assert len(found.other_clock.measured) == len(found.rows)
    assert found.mean_abs_error is not None and found.mean_abs_error < 0.05
    assert found.other_clock.mean_abs_error is not None and found.other_clock.mean_abs_error < 0.02


def test_the_report_says_so(ran: Path):
    text = (ran / "report.html").read_text()
    assert "by the wall clock" in text and "processor time of the engine" in text
    assert "by replay at 4 draft tokens" in text and "draft_catch_up" in text


def test_acceptance_checks_are_in_the_calibration(ran: Path):
    found = read_record(ran / "calibration.json", Calibration)
    assert {check.draft_tokens for check in found.acceptance_checks if check.drafter == "model"} == {4}


def test_every_later_command_reads_the_files(ran: Path, capsys: pytest.CaptureFixture[str]):
    for words in (["recommend"], ["diagnose"], ["report"]):
        assert cli.main([*words, "--out", str(ran)]) == 0, words


def as_random(ran: Path, out: Path) -> Path:
    """The same evidence, as if the weights had been drawn at random."""
    profile = read_record(ran / "profile.json", Profile)
    models = tuple(replace(model, random=True) for model in profile.models)
    write_record(out / "profile.json", replace(profile, models=models))
    return out / "profile.json"


def test_random_weights_are_forecast_plain_and_drafting_only_with_acceptance_from_elsewhere(
    ran: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = as_random(ran, tmp_path)
    rows = predicted(capsys, "--profile", path)
    assert {row["drafter"] for row in rows} == {"none"}
    rows = predicted(capsys, "--profile", path, "--survival", "0.9,0.8,0.7", "--draft-tokens", "0..4")
    assert {(row["drafter"], row["draft_tokens"]) for row in rows} == {("none", 0)} | {
        ("model", g) for g in range(1, 5)
    }
    assert {row["provenance"] for row in rows if row["drafter"] == "model"} == {"prior"}


def test_random_weights_are_called_so_by_every_command(ran: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    as_random(ran, tmp_path)
    for verb in ("calibrate", "recommend", "report"):
        assert cli.main([verb, "--out", str(tmp_path)]) == 0, verb
    shown = " ".join(capsys.readouterr().out.split())
    assert "Random weights" in shown and "times only" in shown
    assert "times only" in (tmp_path / "report.html").read_text()
    assert "random weights: times only" in json.dumps(
        json.loads((tmp_path / "recommendation.json").read_text())["dropped"]
    )


@pytest.mark.parametrize("text", ["", "1.1", "0.5,0.6", "-0.1", "nan", "a,b", "0.5,,0.4", ",".join(["0.1"] * 65)])
def test_a_survival_that_cannot_be_is_one_line(ran: Path, text: str, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["predict", "--profile", str(ran / "profile.json"), f"--survival={text}"]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1 and "--survival" in error and "Traceback" not in error


def test_more_lengths_than_survival_was_given_for_go_on_at_its_last_hazard(
    ran: Path, capsys: pytest.CaptureFixture[str]
):
    short = predicted(capsys, "--profile", ran / "profile.json", "--survival", "0.8", "--draft-tokens", "4")
    long = predicted(
        capsys, "--profile", ran / "profile.json", "--survival", "0.8,0.64,0.512,0.4096", "--draft-tokens", "4"
    )
    speeds = [[row["tokens_per_second"] for row in rows if row["drafter"] == "model"] for rows in (short, long)]
    assert speeds[0] and speeds[0] == pytest.approx(speeds[1])


def test_a_calibration_by_the_threads_clock_is_read_again(ran: Path, tmp_path: Path):
    """A file that a library user made: the commands fit by the clock that it names."""
    from specgauge.calibrate import fit
    from specgauge.profiler.files import record_digest

    profile = read_record(ran / "profile.json", Profile)
    write_record(tmp_path / "profile.json", profile)
    made = fit.calibrate(profile, clock="thread_cpu").record(record_digest(profile), "now", "0")
    write_record(tmp_path / "calibration.json", made)
    assert cli.main(["recommend", "--out", str(tmp_path)]) == 0
    write_record(tmp_path / "calibration.json", replace(made, clock="sundial"))
    assert cli.main(["recommend", "--out", str(tmp_path)]) == 2

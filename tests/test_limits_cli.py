"""--budget and --memory through the command line, on a simulated machine."""

from pathlib import Path

import pytest

from specgauge import cli
from specgauge.profiler.files import read_record
from specgauge.profiler.records import Profile

FAKE = ("--engine", "fake:interior-tie")


def profile(out: Path, *words: str) -> int:
    return cli.main(["profile", *FAKE, "--out", str(out), *words])


def test_a_budget_that_is_too_short_names_the_least(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert profile(tmp_path / "out", "--budget", "2s") == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "--budget is too short" in line and "s or more" in line


@pytest.mark.parametrize("text", ["5", "0s", "5 parsecs", "1000h"])
def test_a_budget_has_a_unit_and_an_end(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert profile(tmp_path / "out", "--budget", text) == 2
    assert "give a time above 0 with its unit" in capsys.readouterr().err


def test_a_larger_budget_goes_on_and_what_there_was_no_time_for_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "out"
    assert profile(out, "--budget", "200s") == 0
    first = read_record(out / "profile.json", Profile)
    assert first.complete and first.budget_seconds == 200 and 0 < first.profile_seconds <= 200
    assert first.unmeasured and all(name in capsys.readouterr().out for name in list(first.unmeasured)[:1])
    assert cli.main(["recommend", "--out", str(out)]) == 0
    assert profile(out, "--budget", "300s") == 0
    more = read_record(out / "profile.json", Profile)
    assert more.measurements[: len(first.measurements)] == first.measurements
    assert first.profile_seconds < more.profile_seconds <= 300


def test_a_budgeted_run_is_validated_as_any_other(tmp_path: Path):
    out = tmp_path / "out"
    assert cli.main(["run", *FAKE, "--budget", "250s", "--repeats", "2", "--out", str(out)]) in (0, 3)
    assert (out / "report.html").exists() and (out / "validation.json").exists()


def test_nothing_fits_into_a_megabyte(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert profile(tmp_path / "out", "--memory", "1MiB") == 2
    assert "nothing fits" in capsys.readouterr().err

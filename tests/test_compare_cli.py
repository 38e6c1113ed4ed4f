"""`specgauge compare`: two documents of a kind, files or folders; exit codes, one document, one line an error."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from specgauge import cli
from specgauge.calibrate.records import Comparison, Validation
from specgauge.profiler.files import read_record, write_record
from specgauge.profiler.records import Profile

NOTHING = "nothing differs beyond noise"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two whole runs on the same fake machine, of other seeds."""
    out = tmp_path_factory.mktemp("compare")
    found = out / "a", out / "b"
    for seed, folder in enumerate(found, start=1):
        words = ["run", "--engine", "fake:interior-tie", "--seed", seed, "--out", folder, "--repeats", 3]
        assert cli.main([str(word) for word in words]) == 0
    return found


def compared(capsys: pytest.CaptureFixture[str], *paths: Path) -> Comparison:
    """What --json prints."""
    capsys.readouterr()
    assert cli.main(["compare", *map(str, paths), "--json"]) == 0
    return msgspec.json.decode(capsys.readouterr().out, type=Comparison)


def refused(capsys: pytest.CaptureFixture[str], *paths: Path) -> str:
    """The one line of a comparison that cannot be made."""
    capsys.readouterr()
    assert cli.main(["compare", *map(str, paths)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "Traceback" not in captured.err
    (line,) = captured.err.splitlines()
    return line


def altered(path: Path, out: Path, **changes: object) -> Path:
    """A profile with a changed key."""
    profile = read_record(path / "profile.json", Profile)
    write_record(out, msgspec.structs.replace(profile, key=msgspec.structs.replace(profile.key, **changes)))
    return out


def test_two_runs_on_one_machine_differ_in_noise_only(folders, capsys: pytest.CaptureFixture[str]):
    found = compared(capsys, *folders)
    assert (found.of, found.findings[0]) == ("profile", NOTHING)
    assert all(field.state != "differs" for field in found.key)
    groups = {n.group for n in found.numbers}
    wanted = {
        "whole machine",
        "plain decoding",
        "draft",
        "verification",
        "rounds",
        "overhead",
        "acceptance",
        "forecast",
    }
    assert groups == wanted
    assert all(n.ratio.low <= n.ratio.value <= n.ratio.high for n in found.numbers)


def test_validations_are_matched_by_setting_and_workload(folders, capsys: pytest.CaptureFixture[str]):
    a, b = folders
    found = compared(capsys, a / "validation.json", b)
    assert (found.of, found.findings[0]) == ("validation", NOTHING)
    rows = read_record(a / "validation.json", Validation).rows
    errors = {n.error_a for n in found.numbers if n.error_a is not None}
    assert errors <= {row.error for row in rows} and len(errors) >= 6


def test_the_terminal_says_it_first_and_within_80_columns(folders, capsys: pytest.CaptureFixture[str], monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["compare", *map(str, folders)]) == 0
    shown = capsys.readouterr().out
    assert "Nothing differs beyond noise" in shown and "would have been seen" in " ".join(shown.split())
    short = [line for line in shown.splitlines() if not line.startswith(("A: ", "B: "))]
    assert max(map(len, short)) <= 80


def test_keys_that_differ_are_shown_and_no_error(folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    other = altered(folders[0], tmp_path / "other.json", gpu="[red]another\x1b[2J", driver="9")
    assert cli.main(["compare", str(folders[0]), str(other)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "keys that differ, decisive: gpu (simulated interior-tie / [red]another" in shown
    assert "\x1b" not in shown
    assert "near: driver" in shown


def test_what_cannot_be_compared_is_one_line(folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    a, b = folders
    assert "different kinds" in refused(capsys, a / "profile.json", b / "validation.json")
    assert "neither profile.json nor validation.json" in refused(capsys, a, tmp_path)
    assert "give a profile or a validation" in refused(capsys, a, b / "calibration.json")
    assert "does not exist" in refused(capsys, a, tmp_path / "none.json")
    (tmp_path / "damaged.json").write_text((a / "profile.json").read_text()[:-50])
    refused(capsys, a, tmp_path / "damaged.json")
    whole = json.loads((a / "validation.json").read_text())
    (tmp_path / "rows.json").write_text(json.dumps(whole | {"rows": []}))
    assert "no measurement in common" in refused(capsys, a / "validation.json", tmp_path / "rows.json")


def test_a_profile_of_nothing_is_refused(folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    profile = read_record(folders[0] / "profile.json", Profile)
    write_record(tmp_path / "empty.json", msgspec.structs.replace(profile, candidates=()))
    assert "names no models, prompts or candidates" in refused(capsys, folders[0], tmp_path / "empty.json")


def test_nothing_is_written(folders, tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]):
    shutil.copytree(folders[0], tmp_path / "a")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["compare", "a", "a"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


def test_a_missed_tolerance_names_the_term_or_none(folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    validation = read_record(folders[0] / "validation.json", Validation)
    assert validation.likeliest_missing_term == "none"
    shutil.copytree(folders[0], tmp_path / "a")
    words = ["validate", "--out", str(tmp_path / "a"), "--tolerance", "0.0001", "--repeats", "1"]
    assert cli.main(words) == 3
    assert "likeliest missing term" not in capsys.readouterr().err

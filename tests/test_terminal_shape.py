"""What people see in a terminal of 80 columns: help with examples, tables that fit, the next step, markdown."""

import json
import re
import shlex
import unicodedata
from pathlib import Path

import pytest

from specgauge import cli
from specgauge.options import EPILOGUES

FAKE = ("--engine", "fake:interior-tie")
READS = ("predict", "diagnose", "report")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("shape") / "out"
    assert cli.main(["run", *FAKE, "--out", str(out)]) == 0
    return out


def width(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in line)


@pytest.fixture(autouse=True)
def columns(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("verb", READS)
def test_tables_fit_80_columns(ran: Path, verb: str, capsys: pytest.CaptureFixture[str]):
    assert cli.main([verb, "--out", str(ran)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines
    for line in lines:
        assert width(line) <= 80 or line.startswith(("llama-server ", str(ran))), line


def test_predictions_have_a_header_and_one_row_each(ran: Path, capsys: pytest.CaptureFixture[str]):
    words = ["predict", "--out", str(ran), "--draft-tokens", "0..3"]
    assert cli.main([*words, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["predictions"]
    assert cli.main(words) == 0
    told = capsys.readouterr().out
    assert "provenance" in told and "tokens/s with 95 % intervals" in told
    assert len(re.findall(r"\b(?:measured|calibrated|prior)\b", told)) == len(rows)


@pytest.mark.parametrize("verb", sorted(EPILOGUES))
def test_help_ends_with_examples_that_are_that_verb(verb: str, capsys: pytest.CaptureFixture[str]):
    assert cli.main([verb, "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    examples = re.findall(r"`specgauge (.*?)`", EPILOGUES[verb])
    assert 2 <= len(examples) <= 3
    for example in examples:
        assert f"specgauge {example}" in shown
        assert shlex.split(example)[0] == verb


def test_alone_it_says_what_to_do_next(tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str], ran: Path):
    monkeypatch.chdir(tmp_path)
    assert cli.main([]) == 0
    assert "specgauge run" in capsys.readouterr().out
    (tmp_path / "specgauge-out").symlink_to(ran)
    assert cli.main([]) == 0
    told = capsys.readouterr().out
    assert "specgauge recommend" in told and len(told.splitlines()) <= 10


def test_a_report_as_markdown(ran: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "verdict.md"
    assert cli.main(["report", "--out", str(ran), "--markdown", str(path)]) == 0
    capsys.readouterr()
    assert cli.main(["report", "--out", str(ran), "--markdown", "-"]) == 0
    assert capsys.readouterr().out == path.read_text()
    assert path.read_text().startswith("# specgauge verdict")


def test_markdown_on_stdout_and_json_exclude_each_other(ran: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["report", "--out", str(ran), "--markdown", "-", "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1


def test_markdown_that_cannot_be_written_is_one_line(ran: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["report", "--out", str(ran), "--markdown", str(tmp_path / "no" / "x.md")]) == 1
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1 and "Traceback" not in captured.err

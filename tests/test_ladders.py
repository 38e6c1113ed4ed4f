"""Public ladders through the command line: a few rows in, the others forecast (sources in tests/data/README.md)."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from specgauge import cli

DATA = Path(__file__).resolve().parent / "data"
LADDERS = {
    "rtx3090-mtp-ladder": (1, 7, 8),
    "community-5090-400w": (1, 6),
    "community-3090-250w": (2, 4),
    "community-m3ultra": (2, 4),
    "community-3060-moe": (1, 4),
}


def rows(name: str) -> list[dict[str, str]]:
    with open(DATA / f"{name}.csv") as file:
        return list(csv.DictReader(file))


def predicted(kept: list[dict[str, str]], folder: Path, capsys, *options: str) -> list[dict]:
    """What `specgauge import` and `specgauge predict --json` make of some rows."""
    source = folder / "rows.csv"
    with open(source, "w", newline="") as file:
        writer = csv.DictWriter(file, kept[0].keys())
        writer.writeheader()
        writer.writerows(kept)
    assert cli.main(["import", str(source), "--out", str(folder / "out")]) == 0
    capsys.readouterr()
    assert cli.main(["predict", "--profile", str(folder / "out" / "profile.json"), "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)["predictions"]


def test_rows_left_out_of_five_public_ladders_are_forecast(tmp_path, capsys):
    """From the shallowest and deepest row alone (RTX 3090: also 7, its kernel ends after 8 tokens)."""
    errors, inside, lost = [], [], []
    for name, anchors in LADDERS.items():
        every = rows(name)
        folder = tmp_path / name
        folder.mkdir()
        kept = [row for row in every if int(row["draft_tokens"]) in anchors]
        deepest = max(int(row["draft_tokens"]) for row in every)
        found = {p["draft_tokens"]: p for p in predicted(kept, folder, capsys, "--draft-tokens", f"0..{deepest}")}
        measured = {int(row["draft_tokens"]): float(row["spec_tps"]) for row in every}
        for length, speed in measured.items():
            if length not in anchors:
                errors.append(found[length]["tokens_per_second"] / speed - 1)
                inside.append(found[length]["low"] <= speed <= found[length]["high"])
        best = max(measured, key=lambda n: found[n]["tokens_per_second"])
        lost.append(1 - measured[best] / max(measured.values()))
    assert len(errors) == 13
    assert np.mean(np.abs(errors)) <= 0.02
    assert np.max(np.abs(errors)) <= 0.04
    assert np.mean(inside) >= 0.9
    assert max(lost) <= 0.015


def test_contexts_between_two_measured_ones_are_forecast(tmp_path, capsys):
    """RTX 3090, 2 draft tokens: from 8K and 96K of filled context."""
    every = rows("rtx3090-context-ladder")
    between = every[1:-1]
    wanted = ",".join(row["context"] for row in between)
    found = predicted([every[0], every[-1]], tmp_path, capsys, "--draft-tokens", "0,2", "--context", wanted)
    speeds = {(p["context"], p["draft_tokens"]): p for p in found}
    for row in between:
        for length, column in ((0, "baseline_tps"), (2, "spec_tps")):
            one, truth = speeds[int(row["context"]), length], float(row[column])
            assert one["tokens_per_second"] == pytest.approx(truth, rel=0.02)
            assert one["low"] < truth < one["high"]


def test_a_ladder_is_recommended_from_and_reported(tmp_path, capsys):
    source = str(DATA / "rtx3090-mtp-ladder.csv")
    for words in (["import", source], ["calibrate"], ["recommend", "--json"], ["report"]):
        capsys.readouterr()
        assert cli.main([*words, "--out", str(tmp_path)]) == 0
        if words[0] == "recommend":
            found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["chosen"]["draft_tokens"], found["command"]) == ("speculate", 2, "")
    assert found["forecast_tokens_per_second"]["value"] == pytest.approx(66.03)
    assert (tmp_path / "report.html").stat().st_size < 6_000_000

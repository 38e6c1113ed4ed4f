"""The GPU check in shapes that a processor runs in seconds: every file is written, and says what was measured."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from specgauge.calibrate.records import Calibration, Recommendation, Validation
from specgauge.profiler.files import read_record
from specgauge.profiler.records import Profile

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "gpu_check.py"


def test_the_gpu_check_runs_whole_on_a_processor(tmp_path):
    out = tmp_path / "out"
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", SCRIPT, "--tiny", "--out", out],
        capture_output=True, text=True, cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    profile, passes = (read_record(out / name, Profile) for name in ("profile.json", "profile-passes.json"))
    assert {model.quant for model in passes.models} == {"bf16", "int8", "int4"}
    for model in passes.models:
        widths = {s.width for m in passes.measurements for s in m.steps if s.model == model.label and not s.cold}
        assert widths == set(range(1, 18))
    validation = read_record(out / "validation.json", Validation)
    assert [row.config.draft_tokens for row in validation.rows] == [1, 2, 4, 6, 8, 12]
    assert [row.in_profile for row in validation.rows] == [True, False, False, True, False, True]
    assert all(row.drafted and row.accepted for row in validation.rows)
    assert all(model.random for model in profile.models)
    read_record(out / "calibration.json", Calibration)
    read_record(out / "recommendation.json", Recommendation)
    assert "<html" in (out / "report.html").read_text()[:2000].lower()
    assert "10 of 10 texts of 64 tokens equal plain decoding" in done.stdout
    assert "forecast before it was run" in done.stdout


def test_without_a_gpu_it_says_so_in_one_line(tmp_path):
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, SCRIPT, "--out", tmp_path / "out"], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == "gpu_check: torch finds no GPU here; --tiny runs on the CPU"

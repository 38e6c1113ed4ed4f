"""The whole line on the transformers engine, over models small enough to take seconds."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from specgauge.calibrate.records import Validation
from specgauge.profiler.files import read_record
from specgauge.profiler.records import Profile

from ..profiler.torch_models import perturbed, tiny_llama


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> tuple[Path, Path]:
    """A target, and a smaller-stepped copy of it that mostly agrees."""
    base = tmp_path_factory.mktemp("models")
    target = tiny_llama(vocabulary=256, hidden_size=64, intermediate_size=128, num_hidden_layers=4, spread=0.15)
    target.bfloat16().save_pretrained(base / "target")
    perturbed(target.float(), 0.02).bfloat16().save_pretrained(base / "draft")
    return base / "target", base / "draft"


def specgauge(*words: object, **more) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-m", "specgauge", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **more)


@pytest.fixture(scope="module")
def done(folders, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "run"
    target, draft = folders
    words = ("run", target, "--draft", draft, "--engine", "transformers", "--draft-quant", "bf16,int8", "--threads", 1)
    return specgauge(*words, "--draft-tokens", "1..4", "--repeats", 2, "--json", "--out", out), out


def test_a_run_forecasts_and_checks_settings_that_it_never_profiled(done):
    finished, out = done
    assert finished.returncode == 0, finished.stderr
    document = json.loads(finished.stdout)
    rows = document["validation"]["rows"]
    assert any(not row["in_profile"] for row in rows)
    validation = read_record(out / "validation.json", Validation)
    assert validation.clock == "wall"
    assert validation.other_clock is not None
    assert len(validation.other_clock.forecast) == len(rows)


def test_its_profile_holds_both_clocks_and_acceptance_from_one_pass_of_each_draft(done):
    profile = read_record(done[1] / "profile.json", Profile)
    assert profile.engine.name == "transformers"
    assert {model.quant for model in profile.models} == {"bf16", "int8"}
    assert all(run.decode_thread_seconds for m in profile.measurements for r in m.runs for run in r.replies)
    matches = [trace for m in profile.measurements for trace in m.matches]
    assert {trace.source for trace in matches} >= {"teacher-forced", "replay"}
    assert {trace.draft for trace in matches if trace.drafter == "model"} == {"draft-bf16", "draft-int8"}
    widths = {s.width for m in profile.measurements for s in m.steps if s.role == "target"}
    assert set(range(1, 18)) <= widths
    assert {s.width for m in profile.measurements for s in m.steps if s.role == "draft"} == {1, 2}


def test_the_command_is_a_call_of_generate(done):
    command = json.loads(done[0].stdout)["recommendation"]["command"]
    assert command.startswith("target.generate(**inputs, ")
    assert "do_sample=False" in command


def test_validate_opens_the_same_weights_again(done, folders):
    again = specgauge("validate", "--repeats", 1, "--tolerance", 5, "--out", done[1])
    assert again.returncode == 0, again.stderr
    (folders[1] / "model.safetensors").write_bytes((folders[0] / "model.safetensors").read_bytes())
    changed = specgauge("validate", "--out", done[1])
    assert changed.returncode == 2
    assert "has changed since it was profiled" in changed.stderr.strip().splitlines()[-1]


def test_random_weights_are_profiled_and_forecast_with_acceptance_from_elsewhere(folders, tmp_path):
    config = folders[0] / "config.json"
    words = (config, "--draft", config, "--engine", "transformers", "--weights", "random", "--threads", 1)
    profiled = specgauge("profile", *words, "--target-quant", "bf16", "--draft-quant", "int8", "--out", tmp_path / "o")
    assert profiled.returncode == 0, profiled.stderr
    refused = specgauge("recommend", "--out", tmp_path / "o")
    predicted = specgauge(
        "predict", "--survival", "0.8,0.64", "--draft-tokens", "0..2", "--json", "--out", tmp_path / "o"
    )
    assert predicted.returncode == 0, predicted.stderr
    rows = json.loads(predicted.stdout)["predictions"]
    assert {row["draft_tokens"] for row in rows} == {0, 1, 2}
    assert all(row["provenance"] == "prior" for row in rows if row["draft_tokens"])
    assert "random weights" in refused.stdout + refused.stderr + profiled.stdout + profiled.stderr


def test_an_interrupted_profile_keeps_what_it_has_and_goes_on(folders, tmp_path):
    words = [
        "profile",
        folders[0],
        "--engine",
        "transformers",
        "--draft-quant",
        "int8",
        "--threads",
        1,
        "--out",
        tmp_path / "o",
    ]
    command = [sys.executable, "-W", "ignore", "-m", "specgauge", *map(str, words)]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=os.environ
    ) as process:
        deadline = time.monotonic() + 120
        while not (tmp_path / "o" / "profile.json").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(6)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert process.returncode in (0, 1), told
    if process.returncode:
        assert "run the same command to resume" in told
        kept = read_record(tmp_path / "o" / "profile.json", Profile)
        assert not kept.complete
    finished = specgauge(*words)
    assert finished.returncode == 0, finished.stderr
    assert read_record(tmp_path / "o" / "profile.json", Profile).complete

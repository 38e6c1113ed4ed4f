"""The llama.cpp adapter against a binary that speaks the protocol: what it sends, rebuilds, and says when things go wrong."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from specgauge.profiler.engines.base import EngineFailed, Unsupported
from specgauge.profiler.engines.llama_cpp import LlamaCpp
from specgauge.profiler.errors import InputError
from specgauge.profiler.records import Sampling

SAMPLING = Sampling()


@pytest.fixture
def engine(stand_in, paper_model, tmp_path):
    """The adapter over the stand-in; every server ended at the end."""
    engine = LlamaCpp([paper_model], log_dir=tmp_path / "logs", binary=stand_in, threads=1)
    yield engine
    engine.close()


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False


def wait_until_gone(pids, seconds=5.0):
    """The processes of `pids` still alive after at most `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and any(map(alive, pids)):
        time.sleep(0.05)
    return [pid for pid in pids if alive(pid)]


def test_capabilities_and_build_come_from_the_binary(engine):
    info = engine.describe()
    assert info.build == "version: 1 (stand-in)"
    assert "forced-acceptance" in info.capabilities and "ngram-simple" in info.capabilities
    assert "ngram-mod" not in info.capabilities
    assert info.spellings["draft_tokens"] == "--spec-draft-n-max"


def test_rounds_are_rebuilt_from_streamed_timings(engine, paper_setting, paper_prompt):
    trace = engine.rounds(paper_setting, [paper_prompt], SAMPLING).prompts[0]
    # The stand-in accepts half of each draft: 1 + 5 x (2 + 1) tokens, then ever shorter drafts up to the 20th.
    assert trace.reply_tokens == 20 and trace.prompt_tokens == 11
    assert trace.drafted == (4, 4, 4, 4, 4, 3, 1, 0)
    assert trace.accepted == (2, 2, 2, 2, 2, 1, 0, 0)
    assert sum(a + 1 for a in trace.accepted) == trace.reply_tokens - 1
    assert trace.seconds[0] == pytest.approx(8.010e-3)


def test_forced_rounds_keep_full_drafts_only(engine, paper_setting):
    sample = engine.round_time(paper_setting, (0.0,) * 4, context=50, rounds=6)
    assert set(sample.drafted) == {4} and set(sample.accepted) == {0}
    assert len(sample.seconds) >= 6


def test_plain_run_counts_come_from_the_engine(engine, paper_setting, paper_prompt):
    plain = replace(paper_setting, drafter="none", draft="", draft_quant="", draft_tokens=0)
    run = engine.run(plain, paper_prompt, SAMPLING)
    assert (run.prompt_tokens, run.reply_tokens, run.drafted) == (11, 20, 0)
    assert engine.effective(plain)["temperature"] == "0.0"


def test_a_batch_step_is_exactly_the_pass_that_was_asked_for(engine, paper_model):
    for width in (5, 2, 9):
        sample = engine.step_time(paper_model.label, "target", "batch", width, 40)
        assert sample.seconds == (pytest.approx(3e-3 + width * 1e-3),)


def test_a_model_without_rollback_is_unsupported_not_mismeasured(engine, paper_model, monkeypatch):
    monkeypatch.setenv("STAND_IN_NO_ROLLBACK", "1")
    with pytest.raises(Unsupported, match="cannot be rolled back"):
        for width in (5, 2):
            engine.step_time(paper_model.label, "target", "batch", width, 40)


def test_other_sampling_than_sent_ends_the_measurement(engine, paper_setting, paper_prompt, monkeypatch):
    monkeypatch.setenv("STAND_IN_WRONG_SAMPLING", "1")
    with pytest.raises(EngineFailed, match="used temperature 0.8 where 0 was sent"):
        engine.run(paper_setting, paper_prompt, SAMPLING)


def test_an_abort_is_told_with_the_cause_from_the_log(engine, paper_setting, paper_prompt, monkeypatch):
    monkeypatch.setenv("STAND_IN_ABORT_AFTER", "12")
    with pytest.raises(EngineFailed, match="killed by SIGABRT: GGML_ASSERT.*ran out of luck; log: ") as caught:
        for _ in range(5):
            engine.run(paper_setting, paper_prompt, SAMPLING)
    assert "\n" not in str(caught.value)


def test_a_refused_flag_is_told_in_the_servers_words(stand_in, paper_model, paper_setting, tmp_path):
    engine = LlamaCpp([paper_model], log_dir=tmp_path / "logs", binary=stand_in, flags=["--no-such-flag"])
    with pytest.raises(EngineFailed, match="invalid argument: --no-such-flag"):
        engine.warm_up(paper_setting)
    engine.close()


@pytest.mark.parametrize("binary", ["/nonexistent/llama-server", "/bin/false", "/bin/true", "/etc/passwd"])
def test_a_program_that_is_no_llama_server(binary, paper_model, tmp_path):
    with pytest.raises(InputError, match="llama-server"):
        LlamaCpp([paper_model], log_dir=tmp_path, binary=binary)


@pytest.mark.parametrize("flag", ["-m", "--model=other.gguf", "--spec-type", "--spec-draft-n-max", ""])
def test_flags_that_specgauge_sets_itself_are_refused(flag, stand_in, paper_model, tmp_path):
    with pytest.raises(InputError, match="after -- is not to be passed on"):
        LlamaCpp([paper_model], log_dir=tmp_path, binary=stand_in, flags=[flag])


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://[::1", "ftp://127.0.0.1", "nonsense", ""])
def test_a_server_url_that_is_none(url, paper_model, tmp_path):
    with pytest.raises(InputError, match="--server"):
        LlamaCpp([paper_model], log_dir=tmp_path, url=url)


def test_a_binary_that_hangs_when_probed_is_ended_with_its_children(paper_model, tmp_path, monkeypatch):
    from specgauge.profiler.engines import llama_cpp

    monkeypatch.setattr(llama_cpp, "PROBE_SECONDS", 1.0)
    pid_file = tmp_path / "pid"
    script = tmp_path / "hangs"
    script.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {pid_file}\nwait\n")
    script.chmod(0o755)
    with pytest.raises(InputError, match="did not end"):
        LlamaCpp([paper_model], log_dir=tmp_path, binary=str(script))
    assert wait_until_gone([int(pid_file.read_text())]) == []


PARENT = """
import sys, time
from pathlib import Path
from specgauge.profiler.engines.llama_server import LlamaServer
binary = sys.argv[1] or None
server = LlamaServer.start(["-m", sys.argv[2], "-c", "512", "-np", "1", "-t", "1"], Path(sys.argv[3]), binary)
print(server.process.pid, server._server_pid(), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("kind", ["stand-in", pytest.param("embedded", marks=pytest.mark.engine)])
def test_servers_die_with_a_killed_parent(kind, stand_in, tmp_path, request):
    model = request.getfixturevalue("demo").models[0].path if kind == "embedded" else "paper.gguf"
    binary = "" if kind == "embedded" else stand_in
    command = [sys.executable, "-c", PARENT, binary, model, str(tmp_path / "server.log")]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ})
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 2 and all(map(alive, pids))
    parent.kill()
    parent.wait()
    assert wait_until_gone(pids) == []

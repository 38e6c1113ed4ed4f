"""--memory over real files: a server that would load what does not fit is never started."""

from pathlib import Path

import pytest

from specgauge import cli
from specgauge.calibrate.checks.memory import MemoryOptions, check_drafter
from specgauge.profiler.checkpoints.reading import read_checkpoint
from specgauge.profiler.engines.llama_server import LlamaServer
from specgauge.profiler.files import read_record
from specgauge.profiler.free_memory import free_memory
from specgauge.profiler.pairs.engine_rules import EngineRules
from specgauge.profiler.records import Profile


def test_no_server_is_started_on_a_file_that_does_not_fit(
    demo, stand_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    low, middle, high = demo.models
    options = MemoryOptions(free_memory(1.0, gpu=False), context=demo.candidates[0].context)
    plain = check_drafter(read_checkpoint(high.path), None, "none", options, EngineRules()).total_bytes or 0.0
    started: list[str] = []
    start = LlamaServer.start.__func__  # pyright: ignore[reportFunctionMemberAccess]

    def spied(cls, flags, *rest):
        started.append(" ".join(flags))
        return start(cls, flags, *rest)

    monkeypatch.setattr(LlamaServer, "start", classmethod(spied))
    words = ["profile", low.path, middle.path, high.path, "--draft", low.path, "--llama-server", stand_in]
    words += ["--out", str(tmp_path), "--draft-tokens", "3", "--memory", f"{int(plain) - 1}B"]
    assert cli.main(words) == 0
    profile = read_record(tmp_path / "profile.json", Profile)
    assert started and not [flags for flags in started if Path(high.path).name in flags]
    assert any(Path(middle.path).name in flags for flags in started)
    reasons = [reason for name, reason in profile.dropped.items() if name.startswith(high.label)]
    assert len(reasons) == 2 and all("MiB missing" in reason for reason in reasons)
    assert high.label not in {candidate.target for candidate in profile.candidates}

"""--memory: what does not fit is left out, with the MiB that are missing, before anything is loaded."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from specgauge import cli
from specgauge.calibrate.checks.memory import MemoryOptions, as_loaded, check_drafter
from specgauge.calibrate.checks.room import only_what_fits
from specgauge.calibrate.plan import candidate_name
from specgauge.profiler.candidates import candidates_of
from specgauge.profiler.checkpoints.gguf import model_file
from specgauge.profiler.checkpoints.reading import read_checkpoint
from specgauge.profiler.engines import fake
from specgauge.profiler.engines.fake import FakeEngine
from specgauge.profiler.errors import InputError
from specgauge.profiler.files import read_record
from specgauge.profiler.free_memory import free_memory
from specgauge.profiler.pairs.engine_rules import EngineRules
from specgauge.profiler.records import EngineInfo, Key, Profile, Sampling

from ..profiler.gguf_files import Header

MIB = 2**20


def llama(layers: int, hidden: int, quant: str) -> Header:
    """A dense model of `layers`, its embedding tied; no reading of it knows anything of --memory."""
    heads, wide = hidden // 64, 4 * hidden
    keys = {"block_count": layers, "embedding_length": hidden, "context_length": 4096, "attention.head_count": heads}
    keys |= {"attention.head_count_kv": heads, "feed_forward_length": wide, "vocab_size": 1024}
    header = Header("llama", {**keys, "general.name": f"m{layers}"}, quant).tensor("token_embd.weight", hidden, 1024)
    for number in range(layers):
        header.layer(number, attn_q=(hidden, hidden), attn_k=(hidden, hidden), attn_v=(hidden, hidden))
        header.layer(number, attn_output=(hidden, hidden), attn_norm=hidden, ffn_norm=hidden)
        header.layer(number, ffn_gate=(hidden, wide), ffn_up=(hidden, wide), ffn_down=(wide, hidden))
    return header.tensor("output_norm.weight", hidden)


@pytest.fixture
def blank(tmp_path: Path) -> Profile:
    """Two quantizations of a target, with a draft and n-grams, on a processor."""
    paths = [
        llama(16, 1024, "Q4_0").write(tmp_path / "big-q4.gguf"),
        llama(16, 1024, "F16").write(tmp_path / "big-f16.gguf"),
        llama(4, 512, "F16").write(tmp_path / "small.gguf"),
    ]
    models = tuple(map(model_file, paths))
    candidates = tuple(one for target in models[:2] for one in candidates_of(target, models[2:], ("ngram-simple",)))
    return Profile(
        created="",
        tool_version="",
        key=Key(engine="llama.cpp", backend="cpu"),
        engine=EngineInfo(name="llama.cpp", build="", backend="cpu"),
        models=models,
        prompts=(),
        sampling=Sampling(),
        candidates=candidates,
        sentinel_model=models[0].label,
    )


def needed(blank: Profile, target: str, draft: str, drafter: str, length: int) -> float:
    """Bytes by the check that `specgauge check` makes."""
    read = {model.label: as_loaded(read_checkpoint(model.path), model.size_bytes) for model in blank.models}
    context = blank.candidates[0].context
    options = MemoryOptions(free_memory(1.0, gpu=False), context=context, draft_tokens=length)
    return check_drafter(read[target], read.get(draft), drafter, options, EngineRules()).total_bytes or 0.0


def test_with_room_for_all_nothing_changes(blank: Profile):
    found = only_what_fits(blank, 64e9)
    assert found.blank == blank and not found.notes


def test_one_byte_more_or_less_decides_and_the_missing_mebibytes_are_told(blank: Profile):
    q4, f16, small = (model.label for model in blank.models)
    least = needed(blank, q4, small, "model", 1)
    fits = only_what_fits(blank, least)
    assert [c.draft_tokens for c in fits.blank.candidates if c.draft == small] == [(1,)]
    assert any("with a draft of 2" in note and "shorter drafts are kept" in note for note in fits.notes)
    short = only_what_fits(blank, least - 1)
    assert not [c for c in short.blank.candidates if c.draft == small]
    assert "1 MiB missing" in short.blank.dropped[f"{q4} x {small}"]
    assert {c.target for c in short.blank.candidates} == {q4}
    missing = -(-(needed(blank, f16, "", "none", 0) - (least - 1)) // MIB)
    assert f"{missing:,.0f} MiB missing" in short.blank.dropped[f"{f16} x {small}"]
    every = {candidate_name(c) for c in blank.candidates}
    assert set(short.blank.dropped) == every - {candidate_name(c) for c in short.blank.candidates}


def test_a_target_of_which_only_plain_decoding_fits_stays_as_baseline(blank: Profile):
    q4 = blank.models[0].label
    found = only_what_fits(blank, needed(blank, q4, "", "none", 0)).blank
    (only,) = found.candidates
    assert (only.target, only.drafter, only.draft_tokens) == (q4, "none", ())
    assert len(found.dropped) == 4 and found.sentinel_model == q4


def test_the_sentinel_is_never_a_model_that_does_not_fit(blank: Profile):
    f16 = blank.models[1].label
    other = replace(blank, candidates=tuple(c for c in blank.candidates if c.target == f16))
    assert only_what_fits(other, 64e9).blank.sentinel_model == f16


def test_where_nothing_fits_the_least_is_named(blank: Profile):
    with pytest.raises(InputError, match=rf"{blank.models[0].label} needs [\d,]+ MiB for plain decoding"):
        only_what_fits(blank, 100 * MIB)


def test_quantized_caches_behind_the_dashes_count(blank: Profile):
    small = blank.models[2].label
    allowed = needed(blank, blank.models[0].label, small, "model", 8) - 4 * MIB
    coarse = replace(blank, key=replace(blank.key, flags=("-ctk", "q8_0", "-ctv", "q8_0")))
    lengths = [
        max(c.draft_tokens)
        for b in (blank, coarse)
        for c in only_what_fits(b, allowed).blank.candidates
        if c.draft == small
    ]
    assert lengths == [8] or lengths[0] < lengths[1] == 8


def test_the_command_starts_nothing_that_names_what_was_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """On a machine that is simulated weights and runtime are counted; the size is between its two targets."""
    loaded: set[str] = set()
    warm_up, step_time = FakeEngine.warm_up, FakeEngine.step_time
    monkeypatch.setattr(
        FakeEngine,
        "warm_up",
        lambda self, setting, *rest: (loaded.add(setting.target), warm_up(self, setting, *rest))[1],
    )
    monkeypatch.setattr(
        FakeEngine, "step_time", lambda self, model, *rest: (loaded.add(model), step_time(self, model, *rest))[1]
    )
    models = {model.label: model for model in fake.demo("interior-tie")[0].models}
    low, high, draft = (models[label].size_bytes for label in ("target-q4", "target-q8", "draft-q4"))
    assert low + draft < high
    words = ("profile", "--engine", "fake:interior-tie", "--out", str(tmp_path))
    assert cli.main([*words, "--memory", f"{high}B"]) == 0
    profile = read_record(tmp_path / "profile.json", Profile)
    assert loaded == {"target-q4", "draft-q4"}
    assert {c.target for c in profile.candidates} == {"target-q4"}
    assert {name for name, reason in profile.dropped.items() if "MiB missing" in reason} == {
        "target-q8 x draft-q4",
        "target-q8 x ngram-simple",
    }
    assert "MiB missing" in capsys.readouterr().out


@pytest.mark.parametrize("size", ["2GiB", "24", "-1GB", "0GB"])
def test_what_cannot_be_is_one_line_and_exit_code_2(size: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ("run", "--engine", "fake:interior-tie", "--out", str(tmp_path / "out"), f"--memory={size}")
    assert cli.main(list(words)) == 2
    captured = capsys.readouterr()
    assert len(captured.err.splitlines()) == 1 and "--memory" in captured.err and captured.out == ""
    assert not (tmp_path / "out" / "profile.json").exists()

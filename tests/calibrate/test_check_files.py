"""From files to the report: the pairs that users bring, as GGUF headers written by hand and read as any file."""

import itertools
from pathlib import Path

import pytest

from specgauge.calibrate.checks.check import check, exit_code
from specgauge.calibrate.checks.memory import MemoryOptions
from specgauge.profiler.checkpoints.reading import read_checkpoint
from specgauge.profiler.free_memory import FreeMemory
from specgauge.profiler.job import Stamp
from specgauge.profiler.pairs.engine_rules import EngineRules

from ..profiler.gguf_files import Header

NORMAL, UNUSED = 1, 5
OPTIONS = MemoryOptions(FreeMemory(8 * 2**30, 0.0, "Card", "driver", on_device=True), context=1024)


def model(
    folder: Path, name: str, tokens: list[str], padding: int = 0, hidden: int = 64, layers: int = 2, quant: str = "Q8_0"
) -> Path:
    """A small llama of the given vocabulary."""
    rows, ffn = len(tokens) + padding, 2 * hidden
    header = Header(
        "llama",
        {
            "general.name": name, "block_count": layers, "embedding_length": hidden, "feed_forward_length": ffn,
            "context_length": 2048, "attention.head_count": 4, "attention.head_count_kv": 2,
            "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2",
            "tokenizer.ggml.tokens": [*tokens, *(f"[PAD{len(tokens) + i}]" for i in range(padding))],
            "tokenizer.ggml.token_type": [NORMAL] * len(tokens) + [UNUSED] * padding,
            "tokenizer.ggml.merges": [f"{a} {b}" for a, b in itertools.pairwise(tokens)],
            "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
        },
        quant,
    )  # fmt: skip
    header.tensor("token_embd.weight", hidden, rows)
    for layer in range(layers):
        header.layer(
            layer, attn_norm=hidden, ffn_norm=hidden, attn_q=(hidden, hidden), attn_k=(hidden, hidden // 2),
            attn_v=(hidden, hidden // 2), attn_output=(hidden, hidden), ffn_gate=(hidden, ffn), ffn_up=(hidden, ffn),
            ffn_down=(ffn, hidden),
        )  # fmt: skip
    return header.tensor("output_norm.weight", hidden).write(folder / f"{name}.gguf")


def words(count: int, word: str = "w") -> list[str]:
    return [f"{word}{i}" for i in range(count)]


def report(target: Path, *drafts: Path):
    read = [read_checkpoint(path) for path in (target, *drafts)]
    return check(read[0], read[1:], OPTIONS, Stamp("2026-09-01T00:00:00Z", "0.0"), EngineRules(build=11_549))


def test_one_vocabulary_fits_and_works(tmp_path):
    found = report(
        model(tmp_path, "Big-1B", words(300), hidden=256, layers=8), model(tmp_path, "Big-0.1B", words(300), hidden=64)
    )
    assert (found.pair, found.memory, exit_code(found)) == ("compatible", "fits", 0)
    assert [f.id for f in found.findings] == []
    assert found.target.layers == 8 and found.target.kv_bytes_per_token == 8 * 2 * 2 * 64 * 2
    assert 0 < found.target.read_bytes < 2**20


@pytest.mark.parametrize(("padding", "severity"), [(64, "note"), (4096, "warning")])
def test_padding_is_told_from_tokens(padding, severity, tmp_path):
    found = report(
        model(tmp_path, "Big-1B", words(300), padding, hidden=256, layers=8), model(tmp_path, "Big-0.1B", words(300))
    )
    assert (found.pair, exit_code(found)) == ("padding_only", 0)
    told = next(f for f in found.findings if f.id == "vocabulary-padding")
    assert told.severity == severity and f"{300 + padding:,} rows in the target" in told.evidence


def test_another_tokenizer_of_the_same_size_exits_with_2(tmp_path):
    found = report(model(tmp_path, "Big-1B", words(300), hidden=256), model(tmp_path, "Other-0.1B", words(300, "v")))
    assert (found.pair, exit_code(found)) == ("incompatible", 2)
    assert found.findings[0].id == "another-tokenizer" and "'w5' against 'v5'" in found.findings[0].evidence


def test_swapped_roles_are_warned_of_and_exit_with_0(tmp_path):
    large, small = model(tmp_path, "Big-1B", words(300), hidden=512, layers=8), model(tmp_path, "Big-0.1B", words(300))
    found = report(small, large)
    assert (found.pair, exit_code(found), found.findings[0].id) == ("compatible", 0, "draft-larger-than-target")


def test_large_vocabularies_of_two_generations_are_told_apart(tmp_path):
    older, newer = words(1500), [*words(200), *words(2300, "n")]
    found = report(
        model(tmp_path, "Qwen3.6-27B", newer, 20, hidden=256, layers=8), model(tmp_path, "Qwen3-0.6B", older, 36)
    )
    assert (found.pair, found.findings[0].id, exit_code(found)) == ("incompatible", "another-generation", 2)
    assert "200 of 1,500 ids" in found.findings[0].evidence and "2,520 rows" in found.findings[0].evidence
    assert found.memories[0].drafter == "none"


def test_the_same_file_under_both_roles_is_named(tmp_path):
    path = model(tmp_path, "Big-1B", words(300))
    assert [f.id for f in report(path, path).findings] == ["same-file"]


def test_a_four_bit_draft_is_warned_of(tmp_path):
    draft = model(tmp_path, "Big-0.1B", words(320), quant="Q4_0")
    found = report(model(tmp_path, "Big-1B", words(320), hidden=256, layers=8), draft)
    assert [f.id for f in found.findings] == ["draft-below-int8"]
    assert next(item for item in found.checklist if item.id == "draft-int8").status == "fail"

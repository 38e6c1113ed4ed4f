"""Files of models that the guide checks: headers of the real shapes, the weights behind them a hole that takes no disk."""

import itertools
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.profiler.gguf_files import Header
from tests.profiler.test_gguf_shape import attend, base, feed, qwen35_27b

NEWER_ROWS, OLDER_ROWS = 248_320, 151_936
BLOCK = 256
"""Weights of a block of the K quantizations."""


def write_models(folder: Path) -> None:
    """target.gguf: Qwen3.6-27B with its MTP head, Q4_K, head Q6_K. older.gguf: Qwen3-0.6B, Q8_0, of the older tokenizer."""
    target = qwen35_27b(general__name="Qwen3.6-27B", context_length=262_144, **tokenizer("w", NEWER_ROWS))
    quantized(target, "Q4_K", "Q6_K").write(folder / "target.gguf")
    older = qwen3_06b(general__name="Qwen3-0.6B", context_length=40_960, **tokenizer("v", OLDER_ROWS))
    quantized(older, "Q8_0", "Q8_0").write(folder / "older.gguf")


def qwen3_06b(**keys) -> Header:
    """Qwen3-0.6B by its config: 28 layers, head and embedding tied (tests/data/architectures/qwen3-0.6b.json)."""
    header = base("qwen3", 1024, 28, OLDER_ROWS, tied=True, attention__head_count=16, attention__head_count_kv=8,
                  attention__key_length=128, attention__value_length=128, **keys)  # fmt: skip
    for layer in range(28):
        attend(header, layer, 1024, 2048, 1024, attn_q_norm=128, attn_k_norm=128, ffn_norm=1024)
        feed(header, layer, 1024, 3072)
    return header


def tokenizer(word: str, rows: int) -> dict:
    """A tokenizer of `rows` made-up tokens: only whether two models have the same one matters here."""
    tokens = [f"{word}{i}" for i in range(rows)]
    return {
        "tokenizer__ggml__model": "gpt2", "tokenizer__ggml__pre": "qwen2", "tokenizer__ggml__tokens": tokens,
        "tokenizer__ggml__token_type": [1] * rows, "tokenizer__ggml__eos_token_id": 2,
        "tokenizer__ggml__merges": [f"{a} {b}" for a, b in itertools.pairwise(tokens[:1000])],
    }  # fmt: skip


def quantized(header: Header, quant: str, head: str) -> Header:
    """Every matrix of whole blocks in `quant`, the output head in `head`; vectors and odd shapes as they were."""
    header.tensors = [
        (name, dims, head if name == "output.weight" else quant if len(dims) > 1 and dims[0] % BLOCK == 0 else kept)
        for name, dims, kept in header.tensors
    ]
    return header


if __name__ == "__main__":
    write_models(Path(sys.argv[1]))

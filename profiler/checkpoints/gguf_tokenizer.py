"""The tokenizer in a GGUF header, as checkpoint.Tokenizer."""

from .checkpoint import Tokenizer
from .gguf_header import GgufHeader

MODELS = {"gpt2": "bpe", "llama": "spm", "t5": "spm", "bert": "wordpiece", "gemma4": "bpe"}
"""Kinds by llama.cpp's names of them (src/llama-vocab.cpp); others stay as the file has them."""
SPECIAL = {
    "bos": "bos",
    "eos": "eos",
    "eot": "eot",
    "eom": "eom",
    "unk": "unknown",
    "sep": "seperator",
    "pad": "padding",
    "cls": "cls",
    "mask": "mask",
    "fim_pre": "fim_pre",
    "fim_suf": "fim_suf",
    "fim_mid": "fim_mid",
}
"""Names of special tokens, and the word in "tokenizer.ggml.WORD_token_id" (the format spells seperator so)."""


def tokenizer_of(header: GgufHeader) -> Tokenizer | None:
    """The tokenizer of a model; None where the header has none (a draft head that uses its target's)."""
    vocabulary = header.vocabulary
    if not vocabulary.tokens:
        return None
    ids = {name: header.integer(f"tokenizer.ggml.{word}_token_id") for name, word in SPECIAL.items()}
    return Tokenizer(
        model=MODELS.get(vocabulary.model, vocabulary.model),
        pre=vocabulary.pre,
        entries=vocabulary.entries,
        tokens=vocabulary.real_tokens,
        rows=_rows(header),
        special={name: token for name, token in ids.items() if token is not None},
        merges_sha256=vocabulary.merges_sha256,
        chat_template=header.text("tokenizer.chat_template"),
    )


def _rows(header: GgufHeader) -> int:
    """Rows of the embedding; as many as tokens where it is not in the file."""
    tables = (info.dims for info in header.tensors if info.name in ("token_embd.weight", "output.weight"))
    return next((dims[1] for dims in tables if len(dims) == 2), header.vocabulary.tokens)

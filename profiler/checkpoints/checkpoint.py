"""A checkpoint as its headers tell it, whatever the format: shape, tokenizer, quantization. No weight is read for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...model.shape import Shape


@dataclass(frozen=True)
class Tokenizer:
    """What a draft and its target must share.

    `entries` holds the real tokens in the order of their ids, padding behind the last of them left out: each is its length
    in bytes as u64, little-endian, then its UTF-8 text as the vocabulary spells it ("Ġthe", "▁the", "<|im_end|>"), so that
    GGUF and tokenizer.json give equal bytes for equal vocabularies. `tokens` counts them, `rows` those of the embedding.
    """

    model: str
    """bpe, spm (unigram with scores), wordpiece, or the file's own word."""
    pre: str
    """The pre-tokenizer's name (GGUF), or "sha256:" and the hash of its rules (tokenizer.json); empty: not said."""
    entries: bytes = field(repr=False)
    tokens: int
    rows: int
    special: Mapping[str, int]
    """Ids of bos, eos, eot, unk, pad, ... as far as the file says."""
    merges_sha256: str = ""
    chat_template: str = field(default="", repr=False)


@dataclass(frozen=True)
class Checkpoint:
    """One model: a GGUF file (or the first of its parts), or a folder of safetensors with its config.json.

    `shape` is None where the header does not tell enough; `shape_unknown` then says why.
    """

    path: str
    format: str
    """gguf or safetensors."""
    files: tuple[str, ...]
    """All files of weights, in order."""
    size_bytes: int
    """Of all files of weights."""
    name: str
    family: str
    """Of the name: Qwen3, Llama 3.2; empty where the file does not say."""
    architecture: str
    """The file's own word: qwen35moe, LlamaForCausalLM."""
    quant: str
    """Q4_K_M, BF16, gptq-int4-g128, awq-int4-g128, bnb-nf4, compressed-tensors-int8, torchao-int4, ..."""
    quant_bits: float
    """Mean bits a weight of the matrices, embeddings and output head aside; scales included."""
    parameters: int
    shape: Shape | None
    shape_unknown: str = ""
    mtp_shape: Shape | None = None
    """A built-in draft head's layers, as model/memory.py takes them: a Shape without weights of its own."""
    tokenizer: Tokenizer | None = None
    context_length: int | None = None
    """That the model was trained for."""
    recurrent: bool = False
    """Some layers carry state that is no KV cache."""
    mtp_layers: int = 0
    head_kind: str = ""
    """mtp, eagle or dflash where the whole file is a draft head and no model; else empty."""
    warnings: tuple[str, ...] = ()
    read_bytes: int = 0
    """Bytes that were read for all this."""

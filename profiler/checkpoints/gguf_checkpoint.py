"""A GGUF file, or any part of a split one, as a Checkpoint: from its headers, in milliseconds, whatever its size."""

import os
import re

from ..files import shown
from .checkpoint import Checkpoint
from .gguf import is_recurrent, matrices, quantization
from .gguf_header import TENSOR_TYPES, GgufHeader
from .gguf_parts import read_parts, stem, whole
from .gguf_shape import Shapes, shapes_of
from .gguf_tokenizer import tokenizer_of

HEADS = ("eagle", "dflash")
"""Architectures of draft heads begin so, as in profiler/candidates.py."""
ASSISTANTS = ("gemma4-assistant",)
"""MTP heads in a file of their own, under an architecture of their own."""
SIZE = re.compile(r"(\d+x)?\d+(\.\d+)?[bmk]|a\d+(\.\d+)?b|e\d+b|mini|small|medium|large", re.IGNORECASE)
"""A word that tells the size: 8B, 135M, 8x7B, A3B, E4B."""
VENDORS = ("meta", "google", "microsoft", "mistralai", "ibm")
SHOWN = 200
"""Characters of a name."""
KNOWN_TYPES = frozenset(name for name, _, _ in TENSOR_TYPES.values())


def read_gguf(path: str | os.PathLike[str]) -> Checkpoint:
    """The model at `path`. Raises InputError, one line, for a file that is no readable GGUF or a part without its others.

    A file without weights (a vocabulary only) is a Checkpoint without parameters.
    """
    parts = read_parts(path)
    header = whole(parts)
    shapes, architecture = shapes_of(header), header.text("general.architecture")
    name = header.text("general.name")[:SHOWN] or stem(header.path)
    return Checkpoint(
        path=os.path.abspath(header.path),
        format="gguf",
        files=tuple(os.path.abspath(part.path) for part in parts),
        size_bytes=header.size_bytes,
        name=shown(name),
        family=shown(family_of(header.text("general.basename")[:SHOWN] or header.text("general.name")[:SHOWN])),
        architecture=shown(architecture[:SHOWN]),
        quant=quantization(header),
        quant_bits=_bits(header),
        parameters=sum(info.weights for info in header.tensors),
        shape=shapes.shape,
        shape_unknown=shapes.unknown,
        mtp_shape=shapes.mtp,
        tokenizer=tokenizer_of(header),
        context_length=header.integer(f"{architecture}.context_length"),
        recurrent=is_recurrent(header),
        mtp_layers=shapes.mtp_layers,
        head_kind=_head_kind(architecture, shapes),
        warnings=(*shapes.warnings, *_warnings(header)),
        read_bytes=header.read_bytes,
    )


def family_of(name: str) -> str:
    """The family in a model's name: its words up to the first that tells a size, without the vendor's.

    "Qwen3 4B Instruct" -> "Qwen3"; "Meta-Llama-3.1-8B" -> "Llama 3.1".
    """
    words = re.split(r"[\s_-]+", name.strip())
    sizes = [place for place, word in enumerate(words) if SIZE.fullmatch(word)]
    kept = words[: sizes[0]] if sizes else words
    return " ".join(kept[1:] if len(kept) > 1 and kept[0].lower() in VENDORS else kept)


def _bits(header: GgufHeader) -> float:
    """Mean bits a weight of the matrices; 0 where none has a type whose size is known."""
    known = [info for info in matrices(header) if info.bytes]
    weights = sum(info.weights for info in known)
    return 8 * sum(info.bytes for info in known) / weights if weights else 0.0


def _head_kind(architecture: str, shapes: Shapes) -> str:
    """The kind of a file that is a draft head and no model."""
    if shapes.mtp_only or architecture in ASSISTANTS:
        return "mtp"
    return next((kind for kind in HEADS if architecture.startswith(kind)), "")


def _warnings(header: GgufHeader) -> tuple[str, ...]:
    """What is odd about a header that can be read."""
    unknown = sorted({info.type for info in header.tensors} - KNOWN_TYPES)
    found = [f"tensors of {', '.join(unknown)}: types this specgauge does not know, sizes left out"] if unknown else []
    if header.dropped:
        found.append(f"texts too long to be kept: {', '.join(ascii(key) for key in header.dropped[:3])}")
    if not header.tensors:
        found.append("the file holds no weights (a vocabulary only?)")
    tokenizer = tokenizer_of(header)
    if tokenizer is not None and tokenizer.tokens > tokenizer.rows:
        found.append(f"{tokenizer.tokens:,} tokens and an embedding of {tokenizer.rows:,} rows")
    return tuple(found)

"""The file of weights as a profile keeps it, for GGUF: quantization, output head, hashes. No weight is read but to hash it."""

import hashlib
import os
from collections.abc import Sequence

from ..errors import InputError
from ..files import weights_sha256
from ..records import ModelFile
from .gguf_header import GgufHeader, TensorInfo
from .gguf_parts import read_parts, stem, whole

# general.file_type of the mixtures that llama.cpp names after their main type.
MIXTURES = {11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M"}
EMBEDDINGS = ("token_embd.weight", "per_layer_token_embd.weight", "output.weight")
WHOLE_HASH_BYTES = 4 << 30
END_HASH_BYTES = 64 << 20
"""A larger file is told by its header, its size and so much of both ends of its data."""


def matrices(header: GgufHeader) -> tuple[TensorInfo, ...]:
    """The weight matrices, embeddings and output head aside."""
    return tuple(info for info in header.tensors if len(info.dims) > 1 and info.name not in EMBEDDINGS)


def quantization(header: GgufHeader) -> str:
    """The type that holds most bytes of the weight matrices, embeddings and output head aside.

    A mixture of llama.cpp (Q4_K_M) is named so where the file says it and its main type agrees.
    """
    held: dict[str, int] = {}
    for info in matrices(header):
        held[info.type] = held.get(info.type, 0) + max(info.bytes, 1)
    if not held:
        return "unknown"
    main = max(held, key=lambda name: held[name])
    mixture = MIXTURES.get(header.integer("general.file_type") or 0, "")
    return mixture if mixture.startswith(main + "_") else main


def is_recurrent(header: GgufHeader) -> bool:
    """Whether some layers carry state that is no KV cache: state space, linear attention, short convolution, RWKV."""
    marks = (".ssm.", ".wkv.", ".shortconv.", "linear_attention", "full_attention_interval", ".kda.")
    return any(mark in key for key in header.values for mark in marks)


def head_bytes(header: GgufHeader) -> int:
    """Bytes of the output head: of `output.weight`, or of the token embedding that serves as one."""
    sizes = {info.name: info.bytes for info in header.tensors}
    return sizes.get("output.weight", sizes.get("token_embd.weight", 0))


def parts_sha256(parts: Sequence[GgufHeader]) -> str:
    """Hash of the file; of the hashes of its parts, in order, where there are several."""
    hashes = [weights_sha256(part.path, part.data_offset, WHOLE_HASH_BYTES, END_HASH_BYTES) for part in parts]
    if len(hashes) == 1:
        return hashes[0]
    partial = "partial:" if any(one.startswith("partial:") for one in hashes) else ""
    return partial + hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def model_file(path: str | os.PathLike[str], label: str | None = None) -> ModelFile:
    """What a profile keeps of the model at `path`, whole or any part of a split one; `path` is then the first part.

    `label` is the file name without ending by default. Reads the headers and hashes the files. Raises InputError, one
    line, for a file that is no model.
    """
    parts = read_parts(path)
    header = whole(parts)
    if not header.tensors:
        raise InputError(f"{header.path} holds no weights (a vocabulary only?); give the .gguf file of a model")
    architecture = header.text("general.architecture") or "unknown"
    absolute = os.path.abspath(header.path)
    return ModelFile(
        label=label or stem(absolute),
        path=absolute,
        sha256=parts_sha256(parts),
        size_bytes=header.size_bytes,
        name=header.text("general.name") or stem(absolute),
        architecture=architecture,
        quant=quantization(header),
        parameters=sum(info.weights for info in header.tensors),
        head_bytes=head_bytes(header),
        tokenizer_sha256=header.vocabulary.sha256(),
        recurrent=is_recurrent(header),
        mtp_layers=max(0, header.integer(f"{architecture}.nextn_predict_layers") or 0),
    )

"""Description: the weights of a profile's model as they will be loaded, told without loading them."""

import functools
import hashlib
from pathlib import Path

from msgspec.structs import replace

from ...checkpoints.checkpoint import Checkpoint
from ...checkpoints.config import read_config
from ...checkpoints.gguf import END_HASH_BYTES, WHOLE_HASH_BYTES, model_file
from ...checkpoints.reading import read_checkpoint
from ...checkpoints.safetensors import Header, read_weights
from ...checkpoints.tokenizer import read_tokenizer
from ...errors import InputError
from ...files import file_sha256, shown, weights_sha256
from ...records import ModelFile
from .configs import config_of, is_gguf, located, plain_quant, stateful_layers, stored_method
from .quantizing import QUANTS
from .sizes import PLAIN, sizes_in

LEAST_PACKED = 0.5
"""A model is called int4 where at least this share of its weights, embedding and head aside, is."""


def described(source: Path, quant: str, random: bool = False) -> ModelFile:
    """What a profile keeps of the model at `source` in `quant` (empty: as stored). The label tells quantizations of one
    checkpoint apart. Raises InputError, also for models whose state this engine cannot roll back."""
    path = located(source)
    config = config_of(path)
    stateful = stateful_layers(config)
    if stateful:
        raise InputError(
            f"{shown(path)}: its layers of the kind {stateful} keep a state that this engine cannot roll back; "
            "give a model with attention alone, or use --engine llama.cpp"
        )
    told = ModelFile(
        label="",
        path=str(path),
        sha256=_config_sha256(path) if random else _weights_sha256(path),
        size_bytes=0,
        name=_name(path),
        architecture=(getattr(config, "architectures", None) or [config.model_type])[0],
        quant=quant,
        parameters=0,
        tokenizer_sha256=_tokenizer_sha256(path),
        random=random,
    )
    if quant not in QUANTS and not random and not is_gguf(path) and stored_method(config):
        return _as_stored(told, read_checkpoint(str(path)))
    return _in_quant(told, config, quant if quant in QUANTS else plain_quant(config))


def _in_quant(told: ModelFile, config: object, quant: str) -> ModelFile:
    sizes = sizes_in(config, quant)
    if quant not in PLAIN and sizes.packed < LEAST_PACKED:
        raise InputError(
            f"{shown(told.path)} in {quant}: only {sizes.packed:.0%} of its weights lie in matrices that this engine can "
            "quantize (experts do not); give bf16, a checkpoint that is quantized already, or --engine llama.cpp"
        )
    return replace(
        told,
        label=f"{told.name}-{quant}{'-random' if told.random else ''}",
        quant=quant,
        size_bytes=sizes.all_bytes,
        head_bytes=sizes.head_bytes,
        unread_bytes=sizes.unread_bytes,
        parameters=sizes.parameters,
    )


def _as_stored(told: ModelFile, found: Checkpoint) -> ModelFile:
    weights = found.shape.weights if found.shape else None
    head = weights.output_head.size_bytes or weights.embedding.size_bytes if weights else 0
    return replace(
        told,
        label=f"{told.name}-{found.quant}",
        quant=found.quant,
        size_bytes=found.size_bytes,
        head_bytes=head,
        unread_bytes=weights.embedding.size_bytes if weights and weights.output_head.size_bytes else 0,
        parameters=found.parameters,
    )


def _name(path: Path) -> str:
    """Of the folder, or of the file without its ending; of the hub's cache (models--ORG--NAME/snapshots/REVISION) the model's."""
    if is_gguf(path):
        return path.stem
    folder = path if path.is_dir() else path.parent
    cached = folder.parent.parent.name
    return (
        cached.rpartition("--")[2] if folder.parent.name == "snapshots" and "--" in cached else folder.name or "model"
    )


def _config_sha256(path: Path) -> str:
    return file_sha256(path / "config.json" if path.is_dir() else path)


def _weights_sha256(path: Path) -> str:
    """Of the file; of the hashes of all files of weights, in order, where there are several."""
    if is_gguf(path):
        return _gguf_sha256(path, path.stat().st_mtime_ns)
    headers = read_weights(path if path.is_dir() else path.parent).headers
    hashes = [_file_sha256(header, Path(header.path).stat().st_mtime_ns) for header in headers]
    if len(hashes) == 1:
        return hashes[0]
    partial = "partial:" if any(one.startswith("partial:") for one in hashes) else ""
    return partial + hashlib.sha256("\n".join(hashes).encode()).hexdigest()


@functools.lru_cache
def _gguf_sha256(path: Path, changed: int) -> str:
    return model_file(path).sha256


@functools.lru_cache
def _file_sha256(header: Header, changed: int) -> str:
    """Once for all quantizations of a model, while it is not `changed` (its time of change, ns)."""
    return weights_sha256(header.path, header.read_bytes, WHOLE_HASH_BYTES, END_HASH_BYTES)


def _tokenizer_sha256(path: Path) -> str:
    """Of the tokens, so that equal vocabularies have equal hashes whatever the file looks like; empty where there is none."""
    if is_gguf(path):
        tokenizer = read_checkpoint(str(path)).tokenizer
    else:
        folder = path if path.is_dir() else path.parent
        tokenizer = read_tokenizer(folder, read_config(folder)).tokenizer
    return hashlib.sha256(tokenizer.entries).hexdigest() if tokenizer else ""

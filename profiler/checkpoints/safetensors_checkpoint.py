"""A folder of safetensors with its config.json, or one of its files, as a Checkpoint: from headers and JSON alone."""

import os
import re
from dataclasses import dataclass, fields, replace
from pathlib import Path

from ...model.shape import NO_TENSORS, Shape, Tensors, Weights
from ..errors import InputError
from ..files import shown
from .architecture import Architecture, UnknownArchitecture, architecture_of, unread
from .checkpoint import Checkpoint
from .config import Config, read_config
from .gguf_checkpoint import family_of
from .quantization import Quantization, quantization_of, stored_label, weighed
from .roles import APART_WORDS, Roles, sort_tensors
from .safetensors import WeightFiles, read_weights
from .tokenizer import read_tokenizer

TOLERANCE = 0.01
"""Parameters that config.json lets expect and those of the headers may differ by this share before it is said."""
HEADS = (
    ("eagle", re.compile("eagle", re.IGNORECASE)),
    ("dflash", re.compile("dflash", re.IGNORECASE)),
    ("mtp", re.compile("mtp|nextn|assistant", re.IGNORECASE)),
)
"""Kinds of draft heads by the class or type that config.json names."""


def read_safetensors(path: str | os.PathLike[str]) -> Checkpoint:
    """The model in the folder `path`, or of the .safetensors file `path` with config.json beside it.

    Raises InputError, one line, where a file is missing, damaged, or holds something else.
    """
    given = Path(path)
    folder = given if given.is_dir() else given.parent
    if not given.is_dir() and not given.exists():
        raise InputError(f"{shown(path)} does not exist; give the folder of a model")
    files = None if given.is_dir() else read_weights(folder, given.name)
    config = read_config(folder)
    return _checkpoint(folder, config, files or read_weights(folder))


def _checkpoint(folder: Path, config: Config, files: WeightFiles) -> Checkpoint:
    quantization = quantization_of(config)
    tensors = weighed(files.tensors, quantization)
    roles = sort_tensors(tensors, config.layers)
    head_kind = _head_kind(config, files)
    shapes = _shapes(config, quantization, roles, head_kind)
    tokens = read_tokenizer(folder, config)
    name = _name(folder)
    return Checkpoint(
        path=os.path.abspath(folder),
        format="safetensors",
        files=tuple(os.path.abspath(header.path) for header in files.headers),
        size_bytes=sum(header.size_bytes for header in files.headers),
        name=name,
        family=family_of(name),
        architecture=config.architecture,
        quant=quantization.label if quantization else stored_label(tensors),
        quant_bits=roles.matrix_bits,
        parameters=roles.weights.total.parameters + roles.apart.parameters,
        shape=shapes.shape,
        shape_unknown=shapes.unknown,
        mtp_shape=shapes.mtp,
        tokenizer=tokens.tokenizer,
        context_length=config.context_length,
        recurrent=shapes.recurrent,
        mtp_layers=0 if head_kind else roles.mtp_layers,
        head_kind=head_kind,
        warnings=(*shapes.warnings, *_warnings(config, roles, tokens.tokenizer is None, head_kind)),
        read_bytes=config.read_bytes + files.read_bytes + tokens.read_bytes,
    )


@dataclass(frozen=True)
class _Shapes:
    """The Shape, or why there is none; the built-in head's; what is odd about them."""

    shape: Shape | None = None
    unknown: str = ""
    mtp: Shape | None = None
    recurrent: bool = False
    warnings: tuple[str, ...] = ()


def _shapes(config: Config, quantization: Quantization | None, roles: Roles, head_kind: str) -> _Shapes:
    """The Shape of weights as they are in the files and of layers as config.json describes them, the two compared."""
    try:
        described = architecture_of(config)
    except UnknownArchitecture as unknown:
        return _Shapes(unknown=str(unknown), recurrent=_looks_recurrent(config))
    found = roles.weights.total.parameters - roles.weights.mtp_head.parameters
    differs = "" if head_kind else _difference(described, found)
    if differs and not described.known:
        return _Shapes(unknown=f"{unread(config)}, and {differs}", recurrent=_looks_recurrent(config))
    weights, tied, odd = _head_weights(described, roles)
    try:
        shape = described.shape(weights, tied)
    except ValueError as error:
        return _Shapes(unknown=f"config.json and the tensors contradict each other: {error}")
    return _Shapes(
        shape=shape,
        mtp=None if head_kind else described.mtp_shape(roles.mtp_layers),
        recurrent=bool(described.linear_attention),
        warnings=tuple(one for one in (differs, odd, _by_role(described, weights)) if one),
    )


def _difference(described: Architecture, found: int) -> str:
    """One line where the files hold other than what config.json lets expect; empty within the tolerance."""
    if abs(found / described.parameters - 1) <= TOLERANCE:
        return ""
    return (
        f"config.json lets expect {described.parameters:,} parameters and the files hold {found:,} "
        f"({found / described.parameters - 1:+.1%})"
    )


def _by_role(described: Architecture, weights: Weights) -> str:
    """Where a difference lies, or one that others hide."""
    apart = [
        f"{role.name} {expected:,} expected, {found:,} found"
        for role in fields(Weights)
        if role.name not in ("mtp_head", "output_head", "other")
        and (expected := getattr(described.weights, role.name).parameters)
        != (found := getattr(weights, role.name).parameters)
        and abs(found - expected) > TOLERANCE * max(expected, 1)
    ]
    return f"parameters by role: {'; '.join(apart)}" if apart else ""


def _head_weights(described: Architecture, roles: Roles) -> tuple[Weights, bool, str]:
    """Weights, whether the head is the embedding, and what is odd about that."""
    weights, table = roles.weights, roles.layer_table
    if table.parameters and not roles.has_head:
        head = Tensors(weights.embedding.parameters - table.parameters, weights.embedding.size_bytes - table.size_bytes)
        return replace(weights, embedding=table, output_head=head), False, ""
    if described.tied and roles.has_head:
        return (
            replace(weights, output_head=NO_TENSORS),
            True,
            "the output head is in the files and config.json ties it away",
        )
    if not described.tied and not roles.has_head:
        return weights, True, "config.json promises an output head of its own and the files hold none"
    return weights, described.tied, ""


def _warnings(config: Config, roles: Roles, no_tokenizer: bool, head_kind: str) -> tuple[str, ...]:
    found = []
    promised = config.mtp_layers
    if promised and not roles.mtp_layers and not head_kind:
        found.append(f"config.json promises an MTP head of {promised} layer(s) and the files hold none")
    if roles.layers and roles.layers != config.layers and not head_kind:
        found.append(f"config.json has {config.layers} layers and the files hold {roles.layers}")
    if roles.apart.parameters:
        size = f"{roles.apart.parameters:,} parameters in {roles.apart.size_bytes / 2**20:,.0f} MiB"
        found.append(
            f"{APART_WORDS} of {size} are in the files and not in the shape: engines that load them need that more"
        )
    if no_tokenizer:
        found.append("there is no tokenizer.json: its vocabulary cannot be compared")
    return tuple(found)


def _head_kind(config: Config, files: WeightFiles) -> str:
    """The kind of a draft head that is no model; by its class, or by tensors that only heads have."""
    said = f"{config.architecture} {config.model_type}"
    named = next((kind for kind, pattern in HEADS if pattern.search(said)), "")
    if named:
        return named
    mapped = any(tensor.name.rpartition(".")[2] in ("d2t", "t2d") for tensor in files.tensors)
    return "eagle" if mapped else ""


def _looks_recurrent(config: Config) -> bool:
    """Of an architecture that is not known: whether it names layers with a state."""
    words = ("mamba", "ssm", "linear_attn", "linear_num", "rwkv", "wkv", "conv_L_cache", "recurrent")
    layers = config.values.get("layer_types")
    kinds = layers if isinstance(layers, list) else []
    keyed = any(word in key for key in config.values for word in words)
    return keyed or any(
        isinstance(kind, str) and kind in ("linear_attention", "mamba", "conv", "recurrent") for kind in kinds
    )


def _name(folder: Path) -> str:
    """The folder's name; of the hub's cache (models--ORG--NAME/snapshots/REVISION) the model's."""
    path = Path(os.path.abspath(folder))
    cached = path.parent.parent.name
    if path.parent.name == "snapshots" and cached.startswith("models--"):
        return cached.rpartition("--")[2]
    return path.name or "model"

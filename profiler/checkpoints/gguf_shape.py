"""The Shape of a GGUF model: tensors by role from their names, layers from gguf_layers.py."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...model.shape import NO_TENSORS, LinearAttention, Shape, Tensors, Weights
from .gguf_header import GgufHeader, TensorInfo
from .gguf_layers import (
    BOTH_KINDS,
    Attention,
    Keys,
    Layer,
    Unknown,
    attention_groups,
    block_number,
    layers_of,
    linear_groups,
)

ROLES = (
    ("other", re.compile(r"norm|_inp\b|_inp_shexp|exp_probs|sinks")),
    ("experts", re.compile(r"^ffn_.*_(ch)?exps\b|^ffn_(gate|up|down)\.\d+\.")),
    ("shared_experts", re.compile(r"^ffn_.*_shexp\b")),
    ("linear_attention", re.compile(r"^(ssm_|shortconv|time_mix)")),
    ("mlp", re.compile(r"^(ffn_|channel_mix)")),
    ("attention", re.compile(r"^(attn_|indexer)")),
)
"""Role by the name behind "blk.N.", the first that matches; `other` where none does."""
WHOLE_MODEL = {"token_embd": "embedding", "position_embd": "embedding", "output": "output_head"}
PER_LAYER_TABLE = "per_layer_token_embd.weight"


@dataclass(frozen=True)
class Shapes:
    """What the header tells: of the model, and of the MTP head inside its file."""

    shape: Shape | None = None
    unknown: str = ""
    """Why `shape` is None."""
    mtp: Shape | None = None
    mtp_layers: int = 0
    """Layers of the MTP head that are in the file."""
    mtp_only: bool = False
    """The file holds an MTP head and no layer of the model that it drafts for."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Blocks:
    """The layers of a file, those of the MTP head apart."""

    keys: Keys
    trunk: tuple[Layer, ...]
    head: tuple[Layer, ...]


def shapes_of(header: GgufHeader) -> Shapes:
    """The shapes in `header`, of a whole file or of all parts together; says what is missing, and never guesses."""
    try:
        blocks = _blocks(header)
    except Unknown as error:
        return Shapes(unknown=str(error))
    warnings = _announced(blocks)
    only = bool(blocks.head) and not blocks.trunk
    found = Shapes(mtp_layers=len(blocks.head), mtp_only=only, warnings=warnings)
    try:
        shape = _shape(header, blocks)
        return replace(found, shape=shape, mtp=_mtp_shape(shape, blocks))
    except (Unknown, ValueError) as error:  # ValueError: the numbers fit no Shape
        return replace(found, unknown=str(error))


def _blocks(header: GgufHeader) -> _Blocks:
    architecture = header.text("general.architecture")
    if not architecture:
        raise Unknown("its header has no general.architecture")
    keys = Keys(header, architecture, 0, 0)
    layers, head = keys.need("block_count"), keys.get("nextn_predict_layers") or 0
    keys = replace(keys, layers=layers, trunk=max(0, layers - head))
    found = layers_of(header.tensors)
    if found and found[-1].number >= layers:
        raise Unknown(f"it has a layer {found[-1].number} and {keys.name('block_count')} is {layers:,}")
    if not found:
        raise Unknown("it has no layers (no tensor of blk.0)")
    trunk = tuple(layer for layer in found if layer.number < keys.trunk)
    if trunk and len(trunk) != keys.trunk:
        raise Unknown(f"it has {len(trunk):,} layers where {keys.name('block_count')} promises {keys.trunk:,}")
    return _Blocks(keys, trunk, tuple(layer for layer in found if layer.number >= keys.trunk))


def _announced(blocks: _Blocks) -> tuple[str, ...]:
    """A warning where the header announces an MTP head that is not in the file."""
    promised = blocks.keys.layers - blocks.keys.trunk
    if promised and not blocks.head:
        return (f"it announces an MTP head of {promised:,} layers and holds no tensor of it: converted without",)
    return ()


def _shape(header: GgufHeader, blocks: _Blocks) -> Shape:
    unread = sorted({info.type for info in header.tensors if not info.bytes and info.weights})
    if unread:
        raise Unknown(f"it has tensors of {', '.join(unread)}, whose size this specgauge does not know")
    weights, layers = _weights(header, blocks), blocks.trunk or blocks.head
    vocabulary, hidden = _embedding_dims(header, blocks.keys)
    tied = weights.output_head == NO_TENSORS
    if tied and any(info.name == PER_LAYER_TABLE for info in header.tensors):
        weights, tied = _table_apart(header, weights), False
    experts = _experts(blocks.keys, weights)
    return Shape(
        weights=weights,
        vocabulary=vocabulary,
        hidden=hidden,
        attention=_known_attention(blocks.keys, layers),
        linear_attention=_known_states(blocks.keys, layers),
        experts=experts,
        experts_per_token=_experts_used(blocks.keys) if experts else 0,
        tied_embeddings=tied,
    )


def _known_attention(keys: Keys, layers: Sequence[Layer]) -> tuple[Attention, ...]:
    """The groups of layers with a cache; Unknown where a layer remembers in a way that its tensors' names do not tell."""
    strange = [layer.number for layer in layers if not (layer.has_keys or layer.has_state) and _attends(layer)]
    if strange:
        raise Unknown(f"layer {strange[0]} of this {keys.word} attends by tensors that specgauge does not know")
    return attention_groups(keys, layers)


def _attends(layer: Layer) -> bool:
    return any(name.startswith("attn_") and "norm" not in name for name in layer.tensors)


def _known_states(keys: Keys, layers: Sequence[Layer]) -> tuple[LinearAttention, ...]:
    """The groups of recurrent layers; Unknown where the metadata make layers recurrent that look like plain attention."""
    announced = f"{keys.architecture}.full_attention_interval", f"{keys.architecture}.attention.recurrent_layers"
    hybrid = any(key in keys.header.values for key in announced)
    if hybrid and len(layers) > 1 and not any(layer.has_state for layer in layers):
        raise Unknown(f"{keys.word} has linear attention of a kind that specgauge does not know")
    return linear_groups(keys, layers)


def _weights(header: GgufHeader, blocks: _Blocks) -> Weights:
    """The tensors by role; where a file is an MTP head and nothing else, its layers are the model's."""
    first_head = blocks.keys.trunk if blocks.trunk else blocks.keys.layers
    states = {layer.number for layer in (*blocks.trunk, *blocks.head) if layer.has_state}
    if blocks.keys.architecture in BOTH_KINDS:
        states = set()
    found: dict[str, Tensors] = {}
    for info in header.tensors:
        role = _role(info.name, first_head, states)
        found[role] = found.get(role, NO_TENSORS) + Tensors(info.weights, info.bytes)
    return Weights(**found)


def _role(name: str, first_head: int, states: set[int]) -> str:
    """The role of one tensor; `states`: layers whose projections serve a recurrent state."""
    number = block_number(name)
    if number is None:
        return "embedding" if name == PER_LAYER_TABLE else WHOLE_MODEL.get(name.split(".")[0], "other")
    if number >= first_head:
        return "mtp_head"
    rest = name.split(".", 2)[2]
    role = next((role for role, pattern in ROLES if pattern.search(rest)), "other")
    return "linear_attention" if role == "attention" and number in states else role


def _table_apart(header: GgufHeader, weights: Weights) -> Weights:
    """The weights where a second table gives every layer its input (Gemma 3n): that one alone is read by rows.

    The token embedding is then the output head, read whole in each pass. (Derived.)
    """
    table = sum(
        (Tensors(info.weights, info.bytes) for info in header.tensors if info.name == PER_LAYER_TABLE), NO_TENSORS
    )
    whole = weights.embedding
    head = Tensors(whole.parameters - table.parameters, whole.size_bytes - table.size_bytes)
    return replace(weights, embedding=table, output_head=head)


def _embedding_dims(header: GgufHeader, keys: Keys) -> tuple[int, int]:
    """Rows of the vocabulary and width of a hidden state."""
    tensor = _first(header, "token_embd.weight") or _first(header, "output.weight")
    if tensor is not None and len(tensor.dims) == 2:
        hidden, vocabulary = tensor.dims
        return vocabulary, hidden
    rows = keys.get("vocab_size") or header.vocabulary.tokens
    if not rows:
        raise Unknown(f"its header has neither token_embd.weight nor {keys.name('vocab_size')}")
    return rows, keys.need("embedding_length")


def _first(header: GgufHeader, name: str) -> TensorInfo | None:
    return next((info for info in header.tensors if info.name == name), None)


def _experts(keys: Keys, weights: Weights) -> int:
    """How many routed experts a layer has; 0 where no tensor is one."""
    return keys.need("expert_count") if weights.experts.size_bytes else 0


def _experts_used(keys: Keys) -> int:
    """Experts that a token passes, the same in every layer that has some."""
    value = keys.header.values.get(f"{keys.architecture}.expert_used_count")
    if not isinstance(value, tuple):
        return keys.need("expert_used_count")
    used = {entry for entry in value if entry}
    if len(used) != 1:
        raise Unknown(f"{keys.name('expert_used_count')} differs between layers, which specgauge has no model of")
    return int(used.pop())


def _mtp_shape(shape: Shape, blocks: _Blocks) -> Shape | None:
    """The MTP head's layers without weights of their own, which are counted in the model's file."""
    if not blocks.head or not blocks.trunk:
        return None
    return Shape(
        weights=Weights(),
        vocabulary=shape.vocabulary,
        hidden=shape.hidden,
        attention=_known_attention(blocks.keys, blocks.head),
        linear_attention=linear_groups(blocks.keys, blocks.head),
    )

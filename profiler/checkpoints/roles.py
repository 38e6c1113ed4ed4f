"""Tensors by role, from their names alone: which weights of a checkpoint are attention, experts, head and the rest."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import lru_cache

from ...model.shape import NO_TENSORS, Tensors, Weights
from .safetensors import StoredTensor

APART = "apart"
"""Encoders of pictures and sound: in the files, no part of a pass that decodes text."""
LAYER_TABLE = "embed_tokens_per_layer"
APART_WORDS = "encoders of pictures or sound"

_APART = re.compile(
    r"(^|\.)(visual|vision\w*|image\w*|audio\w*|speech\w*|multi_modal_projector|mm_projector|embed_(vision|audio)|"
    r"connector|perceiver\w*|resampler|aligner|talker|token2wav|code2wav)\."
)
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")
_NUMBER = re.compile(r"\.\d+\.")
_PATTERNS = (
    ("other", re.compile(r"norm|(^|\.)ln_|shared_expert_gate|(^|\.)(router|gate|d2t|t2d)(\.|$)|e_score_correction")),
    ("shared_experts", re.compile(r"shared_expert|shared_mlp")),
    ("experts", re.compile(r"(^|\.)(experts?|switch_mlp)\.|block_sparse_moe\.(input|output)_linear")),
    ("embedding", re.compile(r"embed_tokens|(^|\.)(wte|word_embeddings|tok_embeddings|embeddings)\.")),
    ("output_head", re.compile(r"^(.*\.)?(lm_head|embed_out)\.|^output\.")),
    (
        "linear_attention",
        re.compile(r"(^|\.)(linear_attn|mamba|ssm)\.|mixer\.(in_proj|out_proj|conv1d|A_log|D|dt_bias)"),
    ),
    ("attention", re.compile(r"attn|attention|mixer\.[qkvo]_proj")),
    ("mlp", re.compile(r"(^|\.)(mlp|feed_forward|ffn)\.|mixer\.(up|down|gate)_proj")),
)


@dataclass
class _Sums:
    parameters: int = 0
    size_bytes: int = 0


@dataclass(frozen=True)
class Roles:
    """`weights` of the language model, `apart` the encoders beside it; layers that were seen, `mtp_layers` behind them."""

    weights: Weights
    apart: Tensors
    layers: int
    mtp_layers: int
    has_head: bool
    layer_table: Tensors
    """Of the embedding: the second table that gives every layer an input of its own (Gemma 3n and 4)."""
    matrix_bits: float
    """Mean bits of a weight of the layers' matrices, scales included; 0 where there are none."""


@dataclass(frozen=True)
class WeighedTensor:
    """A stored tensor and the parameters it stands for: 0 for scales, more than its elements where it is packed."""

    stored: StoredTensor
    parameters: int
    owner: str
    """Name without what a quantizer put behind it: scales belong to their matrix."""


def role_of(name: str, layers: int) -> str:
    """Role of a tensor, a field of Weights or APART, in a model of `layers` layers."""
    role = _role_of_kind(_NUMBER.sub(".0.", name))
    layer = _LAYER.search(name) if role != APART else None
    return "mtp_head" if layer and int(layer[1]) >= layers else role


@lru_cache(maxsize=4096)
def _role_of_kind(name: str) -> str:
    """Role of tensors that are named alike, their numbers all 0: a model has few kinds and many thousand tensors."""
    if _APART.search(name):
        return APART
    if name.startswith("mtp.") or ".mtp." in name:
        return "mtp_head"
    return next((role for role, pattern in _PATTERNS if pattern.search(name)), "other")


def sort_tensors(tensors: Iterable[WeighedTensor], layers: int) -> Roles:
    """The tensors by role, in a model whose config says `layers`."""
    sums = {role.name: _Sums() for role in fields(Weights)} | {APART: _Sums()}
    seen: set[int] = set()
    behind: set[str] = set()
    table = NO_TENSORS
    for tensor in tensors:
        role = role_of(tensor.owner, layers)
        sums[role].parameters += tensor.parameters
        sums[role].size_bytes += tensor.stored.size_bytes
        if role == "embedding" and LAYER_TABLE in tensor.owner:
            table += Tensors(tensor.parameters, tensor.stored.size_bytes)
        layer = _LAYER.search(tensor.owner)
        if role == "mtp_head":
            behind.add(layer[1] if layer else "0")
        elif role != APART and layer:
            seen.add(int(layer[1]))
    if not sums["experts"].size_bytes:  # Granite calls the network of a dense layer so
        sums["mlp"].parameters += sums["shared_experts"].parameters
        sums["mlp"].size_bytes += sums["shared_experts"].size_bytes
        sums["shared_experts"] = _Sums()
    matrices = [sums[role] for role in ("attention", "linear_attention", "mlp", "experts", "shared_experts")]
    parameters = sum(one.parameters for one in matrices)
    totals = {role: Tensors(one.parameters, one.size_bytes) for role, one in sums.items()}
    apart = totals.pop(APART)
    weights = Weights(**totals)
    bits = 8 * sum(one.size_bytes for one in matrices) / parameters if parameters else 0.0
    return Roles(weights, apart, len(seen), len(behind), weights.output_head.parameters > 0, table, bits)

"""Sizes: bytes of a model in some quantization, told from its config alone, and of one that is loaded."""

from typing import Any, NamedTuple

import torch
from torch import nn

from ...checkpoints.roles import APART
from .quantizing import layer_bytes, layer_of
from .skeleton import head_name, linears_of, role, skeleton, tied_embedding

PLAIN = ("fp32", "bf16")


class Sizes(NamedTuple):
    """`all_bytes` of all weights; `head_bytes` of the output head; `unread_bytes` that no pass reads whole: the embedding
    where it is not the head, encoders of pictures. `parameters`: a tied head once. `packed`: share of the weights, embedding
    and head aside, that lie in matrices which a quantization packs."""

    all_bytes: int
    head_bytes: int
    unread_bytes: int
    parameters: int
    packed: float


def sizes_in(config: Any, quant: str) -> Sizes:
    """Sizes of the model that `config` describes, in `quant`, without loading it. Raises InputError."""
    model = skeleton(config, torch.bfloat16)
    linears, head = linears_of(model), head_name(model)
    kept = {name: _bytes_of(linear, quant, name == head) for name, linear in linears.items()}
    embedding = model.get_input_embeddings().weight
    own = {name: tensor for name, tensor in _tensors(model).items() if name.removesuffix(".weight") not in kept}
    rest = sum(_plain_bytes(tensor, quant) for tensor in own.values())
    tied = bool(tied_embedding(model)) and head in linears
    shared = kept[head] if tied and quant in PLAIN else 0
    unread = sum(_plain_bytes(tensor, quant) for name, tensor in own.items() if role(name) == APART)
    unread += 0 if shared else _plain_bytes(embedding, quant)
    inner = sum(linear.weight.numel() for name, linear in linears.items() if name != head)
    total = sum(tensor.numel() for tensor in model.parameters())
    outer = embedding.numel() + (linears[head].weight.numel() if head in linears else 0)
    return Sizes(
        all_bytes=sum(kept.values()) + rest - shared,
        head_bytes=kept.get(head, 0),
        unread_bytes=unread,
        parameters=total - (embedding.numel() if tied else 0),
        packed=inner / max(1, total - outer),
    )


def weight_bytes(model: Any) -> int:
    """Bytes that a pass reads at most: all tensors but the embedding, of which it reads a few rows (unless it is the head),
    and encoders of pictures. All experts count, since a pass over several tokens reads most of them."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    tied = getattr(head, "weight", None) is embedding.weight
    unread = {id(tensor) for name, tensor in model.named_parameters() if role(name) == APART}
    unread |= set() if tied else {id(embedding.weight)}
    every = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return sum(held_bytes(tensor) for key, tensor in every.items() if key not in unread)


def held_bytes(tensor: torch.Tensor) -> int:
    """Bytes of a tensor; of a packed one (torchao's) those of its parts, of bitsandbytes' with their scales."""
    names = getattr(tensor, "__tensor_flatten__", lambda: ((), None))()[0]
    if names:
        return sum(held_bytes(getattr(tensor, name)) for name in names)
    scales = getattr(getattr(tensor, "quant_state", None), "absmax", None)
    return tensor.numel() * tensor.element_size() + (0 if scales is None else scales.numel() * scales.element_size())


def _tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """What a checkpoint stores of a model: parameters and the buffers among them."""
    return dict(model.state_dict(keep_vars=True))


def _plain_bytes(tensor: torch.Tensor, quant: str) -> int:
    """Bytes of a tensor that stays as it is; one that a model keeps in fp32 does so in every quantization."""
    return tensor.numel() * (4 if quant == "fp32" else tensor.element_size())


def _bytes_of(linear: nn.Linear, quant: str, head: bool) -> int:
    rows, columns = linear.out_features, linear.in_features
    return layer_bytes(layer_of(quant, rows, columns, head).quant, rows, columns)

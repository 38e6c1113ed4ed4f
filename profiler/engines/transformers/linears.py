"""Linears: weight-only quantized layers in place of nn.Linear, over the kernels that torch or an optional package has.

Each takes activations (..., K) and gives (..., N) in their dtype. Kernels get bf16: with fp32 activations some fall to scalar
code, 10 to 30 times slower and without a word, so the cast is made here.
"""

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

WIDE, WIDE_GROUP, GROUP = 2048, 128, 32
"""Weights that share a scale and a zero point in int4: 128 from so many columns on, as most int4 checkpoints have it; 32 in
narrower matrices, whose models lose more (SmolLM2-135M: docs/log.md)."""
LEVELS = 15
MOST_INT8 = 127
CUDA_LEAST_ROWS = 17
"""torch._int_mm wants more than 16 rows on CUDA."""
INNER_K_TILES = 8
NF4_BLOCK = 64
AT_ONCE = 1 << 22
"""Weights that are rounded at once: the fp32 copies on the way take several times the memory of an output head."""


class Groups(NamedTuple):
    """int4 by groups: `levels` (N, K) of 0..15, `scale` and `zero` (N, K / group); weight = (levels - 8) x scale + zero."""

    levels: torch.Tensor
    scale: torch.Tensor
    zero: torch.Tensor

    def weight(self) -> torch.Tensor:
        """The weights (N, K) that these stand for."""
        rows, columns = self.levels.shape
        parts = self.levels.reshape(rows, self.scale.shape[1], -1).float() - 8
        return (parts * self.scale[..., None].float() + self.zero[..., None].float()).reshape(rows, columns)


def group_of(columns: int) -> int:
    """The group size for K columns; 0 where none divides it."""
    wanted = (WIDE_GROUP, GROUP) if columns >= WIDE else (GROUP,)
    return next((group for group in wanted if columns % group == 0), 0)


def grouped(weight: torch.Tensor, group: int) -> Groups:
    """`weight` (N, K) rounded to 16 levels between the least and the greatest of each group."""
    return Groups(*_by_rows(lambda rows: _grouped(rows, group), weight))


def _grouped(weight: torch.Tensor, group: int) -> Groups:
    parts = weight.float().reshape(weight.shape[0], -1, group)
    least, greatest = parts.aminmax(dim=-1)
    scale = ((greatest - least) / LEVELS).clamp(min=1e-8).bfloat16()
    levels = ((parts - least[..., None]) / scale[..., None].float()).round().clamp(0, LEVELS)
    zero = (least + 8 * scale.float()).bfloat16()
    return Groups(levels.reshape(weight.shape).to(torch.int32), scale, zero)


class Int4Linear(nn.Module):
    """aten's int4 kernels: 16 levels a group, activations in bf16. `weight` (N, K); CUDA's is tinygemm's."""

    packed: torch.Tensor
    scales: torch.Tensor
    bias: torch.Tensor | None

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None):
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.group = group_of(self.in_features)
        found = grouped(weight, self.group)
        scales = torch.stack([found.scale, found.zero], dim=-1).transpose(0, 1).contiguous()
        self.register_buffer("packed", _packed_int4(found.levels))
        self.register_buffer("scales", scales)
        self.register_buffer("bias", bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, self.in_features).bfloat16()
        kernel = (
            torch.ops.aten._weight_int4pack_mm_for_cpu if x.device.type == "cpu" else torch.ops.aten._weight_int4pack_mm
        )
        return _shaped(kernel(rows, self.packed, self.group, self.scales), x, self.bias)


def _packed_int4(levels: torch.Tensor) -> torch.Tensor:
    if levels.device.type == "cpu":
        return torch.ops.aten._convert_weight_to_int4pack_for_cpu(levels, 1)
    pairs = (levels[:, ::2] << 4 | levels[:, 1::2]).to(torch.uint8)
    return torch.ops.aten._convert_weight_to_int4pack(pairs.contiguous(), INNER_K_TILES)


class Int8Linear(nn.Module):
    """aten's int8 kernel: one scale a row of weights, activations in bf16."""

    levels: torch.Tensor
    scale: torch.Tensor
    bias: torch.Tensor | None

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None):
        super().__init__()
        self.out_features, self.in_features = weight.shape
        levels, scale = _by_rows(_rows_int8, weight)
        self.register_buffer("levels", levels)
        self.register_buffer("scale", scale.bfloat16())
        self.register_buffer("bias", bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, self.in_features).bfloat16()
        return _shaped(torch.ops.aten._weight_int8pack_mm(rows, self.levels, self.scale), x, self.bias)


class W8A8Linear(nn.Module):
    """int8 times int8: one scale a row of weights, and one a row of activations, so that no row depends on another."""

    levels: torch.Tensor
    scale: torch.Tensor
    bias: torch.Tensor | None

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None):
        super().__init__()
        self.out_features, self.in_features = weight.shape
        levels, scale = _by_rows(_rows_int8, weight)
        self.register_buffer("levels", levels.t().contiguous())
        self.register_buffer("scale", scale)
        self.register_buffer("bias", bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        levels, scale = _rows_int8(x.reshape(-1, self.in_features))
        count = levels.shape[0]
        if x.device.type == "cuda" and count < CUDA_LEAST_ROWS:
            levels = nn.functional.pad(levels, (0, 0, 0, CUDA_LEAST_ROWS - count))
        product = torch.ops.aten._int_mm(levels, self.levels)[:count]
        return _shaped(product.float() * scale[:, None] * self.scale, x, self.bias)


class Nf4Linear(nn.Module):
    """bitsandbytes' nf4: 16 levels at the quantiles of a normal law, one scale for 64 weights (arXiv 2305.14314)."""

    bias: torch.Tensor | None

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None):
        super().__init__()
        layers: Any = importlib.import_module("bitsandbytes").nn
        self.out_features, self.in_features = weight.shape
        kind = {"quant_type": "nf4", "compress_statistics": False}
        kept = layers.Params4bit(weight.bfloat16().contiguous(), requires_grad=False, blocksize=NF4_BLOCK, **kind)
        self.linear = layers.Linear4bit(
            self.in_features, self.out_features, bias=False, compute_dtype=torch.bfloat16, device="meta", **kind
        )
        self.linear.weight = kept
        self.linear = self.linear.to(weight.device).eval()
        self.register_buffer("bias", bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.linear(x.reshape(-1, self.in_features).bfloat16())
        return _shaped(rows, x, self.bias)


def _by_rows(
    rounded: Callable[[torch.Tensor], tuple[torch.Tensor, ...]], weight: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """What `rounded` makes of `weight` (N, K), block by block of its rows, which do not depend on one another."""
    step = max(1, AT_ONCE // weight.shape[1])
    whole: tuple[torch.Tensor, ...] = ()
    for at, rows in enumerate(weight.split(step)):
        parts = rounded(rows)
        whole = whole or tuple(part.new_empty(weight.shape[0], *part.shape[1:]) for part in parts)
        for kept, part in zip(whole, parts, strict=True):
            kept[at * step : at * step + len(rows)] = part
    return whole


def _rows_int8(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`values` (R, K) as int8 and a scale (R,) for each row."""
    values = values.float()
    scale = values.abs().amax(dim=-1).clamp(min=1e-8) / MOST_INT8
    return (values / scale[:, None]).round().to(torch.int8), scale


def _shaped(rows: torch.Tensor, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """`rows` (R, N) in the shape and dtype of `x` (..., K), with the bias."""
    found = rows.reshape(*x.shape[:-1], rows.shape[-1]).to(x.dtype)
    return found if bias is None else found + bias.to(x.dtype)

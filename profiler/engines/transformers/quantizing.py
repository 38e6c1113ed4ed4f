"""Quantizing: which layer each matrix of a model becomes, and the bytes that a pass then reads."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

from .linears import Int4Linear, Int8Linear, W8A8Linear, group_of

QUANTS = ("fp32", "bf16", "int8", "w8a8", "int4")
HEAD_QUANT = {"int4": "int8"}
"""The output head of a model in int4 keeps 8 bits: its rounding hits every token alike, and llama.cpp's quantizer leaves it so."""


class Layer(NamedTuple):
    """How a matrix is kept: `make` None leaves it a plain nn.Linear."""

    quant: str
    path: str
    make: Callable[[torch.Tensor, torch.Tensor | None], nn.Module] | None


BF16 = Layer("bf16", "bf16", None)
LAYERS = {
    "fp32": Layer("fp32", "fp32", None),
    "bf16": BF16,
    "int8": Layer("int8", "aten-int8", Int8Linear),
    "w8a8": Layer("w8a8", "w8a8", W8A8Linear),
    "int4": Layer("int4", "aten-int4", Int4Linear),
}


def layer_of(quant: str, rows: int, columns: int, head: bool) -> Layer:
    """How a matrix (rows, columns) of a model in `quant` is kept; in bf16 where no group divides its columns."""
    chosen = LAYERS[HEAD_QUANT.get(quant, quant) if head else quant]
    if chosen.quant == "int4" and (not group_of(columns) or rows % 16):
        return BF16
    return chosen


def layer_bytes(quant: str, rows: int, columns: int) -> int:
    """Bytes of a matrix as kept in `quant`, scales included."""
    weights = rows * columns
    if quant == "int4":
        return weights // 2 + 4 * weights // group_of(columns)
    return {"fp32": 4 * weights, "bf16": 2 * weights, "int8": weights + 2 * rows, "w8a8": weights + 4 * rows}[quant]

"""Quantizing: which layer each matrix of a model becomes, and the bytes that a pass then reads."""

from .linears import NF4_BLOCK, group_of
from .paths import PATHS, WeightPath, path_of

QUANTS = tuple(path.quant for path in PATHS)
HEAD_QUANT = {"int4": "int8", "nf4": "int8"}
"""The output head of a model in 4 bits keeps 8: its rounding hits every token alike, and llama.cpp's quantizer leaves it so."""


def layer_of(quant: str, rows: int, columns: int, head: bool) -> WeightPath:
    """How a matrix (rows, columns) of a model in `quant` is kept; in bf16 where its kernel does not take the shape."""
    chosen = path_of(HEAD_QUANT.get(quant, quant) if head else quant)
    return chosen if chosen.fits(rows, columns) else path_of("bf16")


def layer_bytes(quant: str, rows: int, columns: int) -> int:
    """Bytes of a matrix as kept in `quant`, scales included."""
    weights = rows * columns
    if quant == "int4":
        return weights // 2 + 4 * weights // group_of(columns)
    if quant == "nf4":
        return weights // 2 + 4 * weights // NF4_BLOCK
    return {"fp32": 4 * weights, "bf16": 2 * weights, "int8": weights + 2 * rows, "w8a8": weights + 4 * rows}[quant]

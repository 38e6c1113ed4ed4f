"""Paths: the kernels that a quantized matrix can run on, tried and timed on this device before any model is loaded.

A kernel is believed only after it was run: an optional package may be half installed, and torch has kernels that fall back to
scalar code, 10 to 60 times slower, without a word.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from .clock import Clock
from .linears import Int4Linear, Int8Linear, Nf4Linear, W8A8Linear, group_of

Make = Callable[[torch.Tensor, torch.Tensor | None], nn.Module]

SMALL = (256, 512)
"""Rows and columns of the matrix that a path is tried on."""
ERROR = {"fp32": 1e-5, "bf16": 0.02, "int8": 0.03, "w8a8": 0.04, "int4": 0.2, "nf4": 0.2}
"""Greatest error of its products, relative to the exact ones: of the format, with room."""
SCALAR = 4.0
"""A quantized matrix this many times slower than bf16 at one row runs on scalar code."""
FASTER = 0.9
"""Another path is taken instead of the first one of a quantization below this share of its time."""
CACHE_BYTES = 64 << 20
"""Copies of a matrix together exceed the processor's caches, as a model does."""
MOST_COPIES = 64
ROWS = (1, 2, 5, 9)
"""A draft's passes, and a target's at 4 and 8 draft tokens."""
REPEATS = 5


def _plain(dtype: torch.dtype) -> Make:
    def make(weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Module:
        linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
        linear.weight = nn.Parameter(weight.to(dtype), requires_grad=False)
        if bias is not None:
            linear.bias = nn.Parameter(bias.to(dtype), requires_grad=False)
        return linear

    return make


@dataclass(frozen=True)
class WeightPath:
    """A kernel for matrices in `quant`. `name` is what is recorded."""

    name: str
    quant: str
    make: Make
    dtype: torch.dtype = torch.bfloat16
    """Of the activations."""

    def fits(self, rows: int, columns: int) -> bool:
        """Whether the kernel takes a matrix (rows, columns)."""
        return self.quant not in ("int4", "nf4") or bool(group_of(columns) and rows % 16 == 0 and columns % 64 == 0)


PATHS = (
    WeightPath("fp32", "fp32", _plain(torch.float32), torch.float32),
    WeightPath("bf16", "bf16", _plain(torch.bfloat16)),
    WeightPath("aten-int8", "int8", Int8Linear),
    WeightPath("w8a8", "w8a8", W8A8Linear),
    WeightPath("aten-int4", "int4", Int4Linear),
    WeightPath("bitsandbytes-nf4", "nf4", Nf4Linear),
)
"""aten-int4 is tinygemm on CUDA, which torchao's tile-packed int4 wraps too."""
ALTERNATIVES = {"int4": ("int4", "nf4")}
"""Quantizations of one size; the first is taken unless another one is clearly faster here."""


@dataclass(frozen=True)
class PathTimes:
    """Raw seconds of one product at each of `rows`: `seconds[i]` belongs to `rows[i]`."""

    path: str
    quant: str
    shape: tuple[int, int]
    rows: tuple[int, ...]
    seconds: tuple[tuple[float, ...], ...]

    def median(self, rows: int) -> float:
        """Seconds of one product over `rows` rows."""
        return statistics.median(self.seconds[self.rows.index(rows)])


def path_of(quant: str) -> WeightPath:
    """The path of a concrete quantization. Raises KeyError."""
    return {path.quant: path for path in PATHS}[quant]


def unusable(path: WeightPath, device: str) -> str:
    """Why a path cannot be used on `device`, in a few words, found by trying it; empty where it can."""
    rows, columns = SMALL
    generator = torch.Generator().manual_seed(7)
    weight = torch.randn(rows, columns, generator=generator) / columns**0.5
    x = torch.randn(3, columns, generator=generator)
    try:
        with torch.inference_mode():
            found = path.make(weight.to(device), None)(x.to(device, path.dtype)).float().cpu()
    except Exception as error:  # packages and kernels fail in ways of their own
        return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), 'no message')[:120]}"
    exact = x @ weight.t()
    error = float((found - exact).norm() / exact.norm())
    return "" if error <= ERROR[path.quant] else f"its products are off by {error:.0%}"


def time_paths(
    paths: Sequence[WeightPath], device: str, shape: tuple[int, int], rows: Sequence[int] = ROWS, repeats: int = REPEATS
) -> tuple[PathTimes, ...]:
    """Seconds of a product with a matrix of `shape` by each path, interleaved: every path in each repeat of each row count."""
    copies = max(1, min(MOST_COPIES, CACHE_BYTES // (shape[0] * shape[1])))
    weight = torch.randn(shape, device=device) / shape[1] ** 0.5
    linears = {path.name: [path.make(weight, None) for _ in range(copies)] for path in paths}
    seconds: dict[tuple[str, int], list[float]] = {}
    clock = Clock(torch.device(device))
    with torch.inference_mode():
        for repeat in range(repeats + 1):
            for count in rows:
                x = torch.randn(count, shape[1], device=device)
                for path in paths:
                    given = x.to(path.dtype)
                    span = clock.timed(lambda own=linears[path.name], given=given: [linear(given) for linear in own])
                    if repeat:  # the first is cold
                        seconds.setdefault((path.name, count), []).append(span.wall / copies)
    return tuple(
        PathTimes(path.name, path.quant, shape, tuple(rows), tuple(tuple(seconds[path.name, n]) for n in rows))
        for path in paths
    )


def scalar_fallback(times: PathTimes, bf16: PathTimes) -> str:
    """Says so where a quantized matrix is so much slower than bf16 that its kernel can only be scalar code; else empty."""
    times_slower = times.median(1) / bf16.median(1)
    if times_slower < SCALAR:
        return ""
    return (
        f"{times.path} takes {times_slower:.0f} times as long as bf16 ({times.median(1) * 1e3:.2f} ms against "
        f"{bf16.median(1) * 1e3:.2f} ms for {times.shape[0]} x {times.shape[1]} at one row): scalar code, no kernel for this device"
    )


@dataclass(frozen=True)
class PathChoice:
    """The concrete quantization to load in, the times that it was chosen by, and why others were not."""

    quant: str
    times: tuple[PathTimes, ...]
    rejected: dict[str, str]

    @property
    def sentence(self) -> str:
        """The choice with its numbers, or why a path runs on scalar code; empty where there was nothing to choose."""
        told = [
            f"{one.path} {one.median(1) * 1e3:.2f} to {one.median(max(one.rows)) * 1e3:.2f} ms" for one in self.times
        ]
        others = [f"{name}: {reason}" for name, reason in self.rejected.items()]
        if len(told) < 2:
            return "; ".join(others)
        return f"{path_of(self.quant).name} is used: 1 to {max(ROWS)} rows take " + "; ".join(
            [", ".join(told), *others]
        )


def choose(quant: str, device: str, shape: tuple[int, int]) -> PathChoice:
    """How to hold matrices of `quant` on `device`, by trying its paths on a matrix of `shape`, the model's most frequent one.

    By the time of ROWS together; the first path of a quantization stays unless another needs less than FASTER of it. Times
    differ between runs, and a profile that goes on must not find another model.
    """
    candidates = [path_of(name) for name in ALTERNATIVES.get(quant, (quant,))]
    rejected = {path.name: reason for path in candidates if (reason := unusable(path, device))}
    usable = [path for path in candidates if path.name not in rejected and path.fits(*shape)]
    if quant in ("fp32", "bf16") or not usable:
        return PathChoice(quant, (), rejected)
    bf16, *times = time_paths([path_of("bf16"), *usable], device, shape)
    rejected |= {one.path: slow for one in times if (slow := scalar_fallback(one, bf16))}
    fair = [one for one in times if one.path not in rejected] or times
    first, best = fair[0], min(fair, key=_together)
    chosen = best if _together(best) < FASTER * _together(first) else first
    return PathChoice(chosen.quant, tuple(times), rejected)


def _together(times: PathTimes) -> float:
    return sum(times.median(rows) for rows in times.rows)

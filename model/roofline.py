"""Roofline: the least time that a pass can take, from its bytes and its arithmetic.

A LOWER BOUND, and a sanity check of measurements: small-batch kernels fall far short of it, switch at widths that it does
not know, and attention scores are left out. Forecasts take measured step times (steps.StepTable).
"""

from dataclasses import dataclass

import numpy as np

from .kv import F16, KvTypes
from .shape import Shape
from .steps import StepTable
from .traffic import Traffic


@dataclass(frozen=True)
class Roofline:
    """t(n) >= fixed + max(W(n) / BW, flops n' / F) + (KV + state) / BW + n row; n' is n rounded up to `tile_rows`.

    `flops_per_token` is 2 x active parameters; `bytes_per_second` what passes of this quantization reach at best.
    Williams et al. 2009 (doi 10.1145/1498765.1498785); the terms added to the maximum are derived. Raises ValueError
    where a rate or flops_per_token is not above 0, tile_rows is below 1, or a time is negative.
    """

    traffic: Traffic
    flops_per_token: float
    bytes_per_second: float
    flops_per_second: float
    tile_rows: int = 1
    fixed_seconds: float = 0.0
    row_seconds: float = 0.0

    def __post_init__(self) -> None:
        if not all(rate > 0 for rate in (self.flops_per_token, self.bytes_per_second, self.flops_per_second)):
            raise ValueError("bandwidth, arithmetic and its rate must be above 0")
        if not (self.tile_rows >= 1 and self.fixed_seconds >= 0 and self.row_seconds >= 0):
            raise ValueError("a tile has one row at least, and no time is negative")

    @classmethod
    def of(
        cls,
        shape: Shape,
        bytes_per_second: float,
        flops_per_second: float,
        tile_rows: int = 1,
        fixed_seconds: float = 0.0,
        row_seconds: float = 0.0,
        kv: KvTypes = F16,
        correlation: float = 0.0,
    ) -> "Roofline":
        """The roofline of a model with its experts, cache and state; `correlation` of the routing (experts.py).

        Raises ValueError as the class does, and for a correlation outside [0, 1].
        """
        traffic, flops = shape.traffic(kv, correlation), 2 * shape.active_parameters
        return cls(traffic, flops, bytes_per_second, flops_per_second, tile_rows, fixed_seconds, row_seconds)

    @property
    def ridge(self) -> float:
        """Width n* at which arithmetic takes as long as reading the weights: flops n* / F = W(n*) / BW.

        Dense: F x bytes per weight / (2 BW). With experts W grows with n, and n* is later. Embedding rows are left out.
        """
        from scipy.optimize import root_scalar

        tokens_per_byte = self.flops_per_second / (self.flops_per_token * self.bytes_per_second)
        experts, dense = self.traffic.experts, self.traffic.dense_bytes
        if experts is None:
            return dense * tokens_per_byte

        def ahead(width: float) -> float:
            return width - (dense + float(experts.bytes_read(max(width, 1.0)))) * tokens_per_byte

        return float(root_scalar(ahead, bracket=(0.0, (dense + experts.size_bytes) * tokens_per_byte)).root)

    def seconds(
        self, tokens: int | np.ndarray, context: int | np.ndarray = 0, streams: int | np.ndarray = 1
    ) -> np.ndarray:
        """The least seconds (...) of a pass over `tokens` (...) in all, behind `context` (...) a stream.

        Raises ValueError where tokens < streams, streams < 1 or context < 0.
        """
        moved = self.traffic.pass_bytes(tokens, context, streams)
        rounded = np.ceil(np.asarray(tokens) / self.tile_rows) * self.tile_rows
        arithmetic = rounded * self.flops_per_token / self.flops_per_second
        reading = (moved.weights + moved.experts) / self.bytes_per_second
        rest = (moved.kv + moved.state) / self.bytes_per_second
        return self.fixed_seconds + np.maximum(reading, arithmetic) + rest + tokens * self.row_seconds

    def share(self, measured_seconds: float, tokens: int, context: int = 0, streams: int = 1) -> float:
        """The bound over the measurement, in (0, 1]. Raises ValueError where the measurement beats the bound."""
        bound = float(self.seconds(tokens, context, streams))
        if not measured_seconds >= bound:
            raise ValueError(
                f"a pass of {measured_seconds * 1e3:.2f} ms beats its bound of {bound * 1e3:.2f} ms: it moves fewer bytes "
                "(a cache holds weights), or the bandwidth or arithmetic rate is set too low"
            )
        return bound / measured_seconds


def prior_table(roofline: Roofline, share: float, widths: np.ndarray, contexts: np.ndarray) -> StepTable:
    """Step times of a model that was never run: the bound over `share`, at `widths` (W,) and `contexts` (C,).

    `share` is what measured passes of another model or quantization on this machine reach of their own bound. The table
    is marked as a prior: it answers, and nothing it answers is trusted. Raises ValueError where share is not in (0, 1].
    """
    if not 0 < share <= 1:
        raise ValueError(f"passes reach a share in (0, 1] of their bound, not {share}")
    seconds = roofline.seconds(np.asarray(widths)[None, :], np.asarray(contexts)[:, None]) / share
    return StepTable(np.asarray(widths), np.asarray(contexts, float), seconds, prior=True)

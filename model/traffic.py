"""Traffic: bytes that one pass moves between memory and the processor."""

from dataclasses import dataclass

import numpy as np

from .experts import RoutedExperts
from .kv import KvGroup


@dataclass(frozen=True)
class PassBytes:
    """Bytes of one pass by what is read: (...) each."""

    weights: float | np.ndarray
    experts: float | np.ndarray
    kv: float | np.ndarray
    state: float | np.ndarray

    @property
    def total(self) -> float | np.ndarray:
        """Bytes (...) of the pass."""
        return self.weights + self.experts + self.kv + self.state


@dataclass(frozen=True)
class Traffic:
    """What the passes of a model move.

    `dense_bytes` are read by every pass; `embedding_row_bytes` by each token; `experts` as far as they are touched; `kv`
    behind every stream; `state_bytes` is the recurrent state of one stream. Raises ValueError where one is negative.
    """

    dense_bytes: float
    embedding_row_bytes: float = 0.0
    experts: RoutedExperts | None = None
    kv: tuple[KvGroup, ...] = ()
    state_bytes: float = 0.0

    def __post_init__(self) -> None:
        if not all(size >= 0 for size in (self.dense_bytes, self.embedding_row_bytes, self.state_bytes)):
            raise ValueError("a pass cannot read less than 0 bytes")

    def pass_bytes(
        self, tokens: int | np.ndarray, context: int | np.ndarray = 0, streams: int | np.ndarray = 1
    ) -> PassBytes:
        """Bytes (...) of a pass over `tokens` (...) in all, of `streams` (...) with `context` (...) cached tokens each.

        Weights once, embedding rows by token, U(tokens)/E of the experts, the cache once a stream, the recurrent state
        once in and once out (experts: arXiv 2505.19645; the rest derived). The least that a pass can move:
        activations, new cache cells and extra state copies are not in it. Raises ValueError where tokens < streams.
        """
        if np.any(np.asarray(streams) < 1) or np.any(np.asarray(tokens) < streams) or np.any(np.asarray(context) < 0):
            raise ValueError("a pass has one stream or more, a token or more of each, and no negative context")
        routed = 0.0 if self.experts is None else self.experts.bytes_read(tokens, streams)
        cached = sum((group.size_bytes(context) for group in self.kv), start=np.float64(0.0))
        dense = self.dense_bytes + tokens * self.embedding_row_bytes
        return PassBytes(dense, routed, streams * cached, 2.0 * streams * self.state_bytes)

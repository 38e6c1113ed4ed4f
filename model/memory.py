"""Memory: what a setting needs on the device, term by term, and whether it fits.

Room is for twice the draft length: the cache holds context + 2g tokens a stream and the workspace 2g + 1 rows, so that a
setting that fits has bytes to spare when a draft is verified.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

from .hardware import LayerSplit, Placement, Reading, Tier, place
from .kv import F16, KvTypes
from .shape import Shape

MEBIBYTE = 2**20
RUNTIME_BYTES = 1024 * MEBIBYTE
"""A prior: device context, kernels and buffers of prompt batches. Engines and drivers differ: give what was measured."""
TIGHT_SHARE, TIGHT_BYTES = 0.05, 512 * MEBIBYTE
ACTIVATION_VECTORS = 16
"""A prior: fp32 vectors of the hidden size alive at once for a row (residual, norm, q, k, v, output, and the MLP's gate and
up of 3 to 4 each). With a large vocabulary the logits are most of the workspace."""
ROLLBACKS = ("copies", "snapshot")
"""How recurrent state is rolled back: a copy for each verified row (llama.cpp: g + 1), or one snapshot with replay (2)."""


@dataclass(frozen=True)
class MemoryVerdict:
    """`verdict` is fits, tight (less than 5 % or 512 MiB to spare) or does_not_fit (`spare_bytes` is then negative)."""

    verdict: str
    spare_bytes: float

    @property
    def missing_mebibytes(self) -> float:
        """MiB that are missing; 0 where it fits."""
        return max(-self.spare_bytes, 0.0) / MEBIBYTE


@dataclass(frozen=True)
class ModelNeed:
    """Bytes (...) on the device of one model, by term."""

    weight_bytes: float | np.ndarray = 0.0
    kv_bytes: float | np.ndarray = 0.0
    state_bytes: float | np.ndarray = 0.0
    workspace_bytes: float | np.ndarray = 0.0

    @property
    def total_bytes(self) -> float | np.ndarray:
        """All terms (...)."""
        return self.weight_bytes + self.kv_bytes + self.state_bytes + self.workspace_bytes

    def where(self, loaded: np.ndarray) -> "ModelNeed":
        """The same where `loaded` (...), nothing elsewhere."""
        return ModelNeed(*(getattr(self, field.name) * loaded for field in fields(self)))


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes (...) on the device: target, draft and runtime."""

    target: ModelNeed
    draft: ModelNeed
    runtime_bytes: float

    @property
    def total_bytes(self) -> float | np.ndarray:
        """All terms (...)."""
        return self.target.total_bytes + self.draft.total_bytes + self.runtime_bytes

    def verdict(self, free_bytes: float) -> MemoryVerdict:
        """Whether one setting fits `free_bytes`. Raises ValueError where the terms are arrays."""
        if np.ndim(self.total_bytes):
            raise ValueError("a verdict is for one setting: compare total_bytes of many with what is free")
        spare = free_bytes - float(self.total_bytes)
        tight = spare < max(TIGHT_SHARE * free_bytes, TIGHT_BYTES)
        return MemoryVerdict("does_not_fit" if spare < 0 else "tight" if tight else "fits", spare)


@dataclass(frozen=True)
class Offload:
    """Target layers split between device and host, and what a plain step then moves on which."""

    split: LayerSplit
    placement: Placement


@dataclass(frozen=True)
class Deployment:
    """What is on the device whatever the draft length, context and streams.

    `draft` None: n-grams or no drafting; for a head in the target's file a Shape of its layers, without weights. It is
    loaded only where something is drafted. `embedding_on_host`: llama.cpp leaves a table there that is not also the head.
    Raises ValueError for an unknown rollback or negative runtime_bytes.
    """

    target: Shape
    draft: Shape | None = None
    draft_kv: KvTypes = F16
    rollback: str = "copies"
    embedding_on_host: bool = False
    runtime_bytes: float = RUNTIME_BYTES

    def __post_init__(self) -> None:
        if self.rollback not in ROLLBACKS:
            raise ValueError(f"no rollback is called {self.rollback}: known are {', '.join(ROLLBACKS)}")
        if not self.runtime_bytes >= 0:
            raise ValueError("the runtime cannot need less than 0 bytes")

    def need(
        self,
        draft_tokens: int | np.ndarray,
        context: int | np.ndarray,
        streams: int | np.ndarray = 1,
        kv: KvTypes = F16,
    ) -> MemoryNeed:
        """Bytes (...) by term for `draft_tokens` g, `context` tokens a stream, `streams` and `kv`, broadcast together.

        A stream holds context + 2g tokens of cache, the state copies of the rollback, and 2g + 1 rows of fp32 logits and
        activations, in the target and in the draft (derived). Raises ValueError where draft_tokens or context is negative
        or streams is below 1.
        """
        if np.any(np.asarray(draft_tokens) < 0) or np.any(np.asarray(context) < 0) or np.any(np.asarray(streams) < 1):
            raise ValueError("draft tokens and context cannot be negative, and there is one stream at least")
        target = self._model_need(self.target, draft_tokens, context, streams, kv)
        if self.draft is None:
            return MemoryNeed(target, ModelNeed(), self.runtime_bytes)
        draft = self._model_need(self.draft, draft_tokens, context, streams, self.draft_kv)
        return MemoryNeed(target, draft.where(np.asarray(draft_tokens) > 0), self.runtime_bytes)

    def state_copies(self, draft_tokens: int | np.ndarray) -> int | np.ndarray:
        """Copies (...) of a stream's recurrent state: g + 1, or 2 with a snapshot; 1 for plain decoding."""
        return draft_tokens + 1 if self.rollback == "copies" else 1 + np.minimum(draft_tokens, 1)

    def largest_context(
        self, free_bytes: float, draft_tokens: int, streams: int = 1, kv: KvTypes = F16, limit: int = 2**20
    ) -> int | None:
        """Most tokens of context a stream, up to `limit`, that fit at this draft length; None where not even 0 does."""
        return _largest(lambda n: self.need(draft_tokens, n, streams, kv).total_bytes, free_bytes, limit)

    def largest_draft_tokens(
        self, free_bytes: float, context: int, streams: int = 1, kv: KvTypes = F16, limit: int = 64
    ) -> int | None:
        """Most draft tokens, up to `limit`, that fit at this context; 0: plain decoding only; None: not even that."""
        return _largest(lambda n: self.need(n, context, streams, kv).total_bytes, free_bytes, limit)

    def partial_offload(
        self, device: Tier, host: Tier, draft_tokens: int, context: int, streams: int = 1, kv: KvTypes = F16
    ) -> Offload:
        """Target layers that must leave `device` (its capacity is what is free there) for the setting to fit.

        A layer takes its cache and state along and is computed on the host; the head, the draft, workspace and runtime stay. The
        placement is of a plain step (one token a stream) of the full layers' mean size (derived). Raises ValueError where
        the rest does not fit the device, or the layers that leave do not fit the host.
        """
        need, weights = self.need(draft_tokens, context, streams, kv), self.target.weights
        movable = weights.dense_layers.size_bytes + weights.experts.size_bytes
        movable += float(need.target.kv_bytes + need.target.state_bytes)
        fixed = float(need.total_bytes) - movable
        split = place(movable, self.target.layers, device.capacity_bytes, fixed)
        if not split.host_bytes <= host.capacity_bytes:
            raise ValueError(f"{split.host_bytes / 1e9:.2f} GB leave the device and do not fit {host.name}")
        return Offload(split, self._plain_step(split, device, host, context, streams, kv))

    def _plain_step(
        self, split: LayerSplit, device: Tier, host: Tier, context: int, streams: int, kv: KvTypes
    ) -> Placement:
        """What a plain step moves; the state that is written back is a reading of its own."""
        moved, head = self.target.pass_bytes(streams, context, streams, kv), self.target.head.size_bytes
        written = float(moved.state) / 2
        read = float(moved.total) - written - head
        off = split.host_layers / self.target.layers
        return Placement(
            (
                Reading(device, head + (1 - off) * read),
                Reading(device, (1 - off) * written),
                Reading(host, off * read),
                Reading(host, off * written),
            )
        )

    def _model_need(
        self,
        shape: Shape,
        draft_tokens: int | np.ndarray,
        context: int | np.ndarray,
        streams: int | np.ndarray,
        kv: KvTypes,
    ) -> ModelNeed:
        rows = 2 * draft_tokens + 1
        on_host = shape.weights.embedding.size_bytes * (self.embedding_on_host and not shape.tied_embeddings)
        return ModelNeed(
            weight_bytes=shape.size_bytes - on_host,
            kv_bytes=streams * shape.kv_bytes(context + 2 * draft_tokens, kv, rows),
            state_bytes=streams * self.state_copies(draft_tokens) * shape.recurrent_bytes,
            workspace_bytes=streams * rows * 4.0 * (shape.vocabulary + ACTIVATION_VECTORS * shape.hidden),
        )


def _largest(needed: Callable[[int], float | np.ndarray], free_bytes: float, limit: int) -> int | None:
    """The largest n in 0..limit of which the need, rising with n, fits; None where that of 0 does not."""
    if needed(0) > free_bytes:
        return None
    low, high = 0, limit + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if needed(middle) <= free_bytes else (low, middle)
    return low

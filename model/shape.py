"""Shape: what a checkpoint's header tells of a model, and what follows from it for memory and for a pass."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from .experts import RoutedExperts
from .kv import F16, KvGroup, KvTypes
from .traffic import PassBytes, Traffic


def _at_least(least: int, owner: object, *names: str) -> None:
    """Raises ValueError for the first of the fields `names` of `owner` that is below `least`."""
    for name in names:
        value = getattr(owner, name)
        if not value >= least:
            raise ValueError(f"{type(owner).__name__}: {name} is {value}, must be at least {least}")


@dataclass(frozen=True)
class Tensors:
    """Tensors of one role: how many parameters, and their bytes in the file (whatever the quantization).

    Raises ValueError where one is negative.
    """

    parameters: int = 0
    size_bytes: int = 0

    def __post_init__(self) -> None:
        _at_least(0, self, "parameters", "size_bytes")

    def __add__(self, other: "Tensors") -> "Tensors":
        """Both together."""
        return Tensors(self.parameters + other.parameters, self.size_bytes + other.size_bytes)


NO_TENSORS = Tensors()


@dataclass(frozen=True)
class Weights:
    """A checkpoint's tensors by role: `experts` are the routed ones, `other` norms, routers and the like."""

    embedding: Tensors = NO_TENSORS
    attention: Tensors = NO_TENSORS
    linear_attention: Tensors = NO_TENSORS
    mlp: Tensors = NO_TENSORS
    experts: Tensors = NO_TENSORS
    shared_experts: Tensors = NO_TENSORS
    output_head: Tensors = NO_TENSORS
    mtp_head: Tensors = NO_TENSORS
    other: Tensors = NO_TENSORS

    @property
    def total(self) -> Tensors:
        """All roles together."""
        return sum((getattr(self, field.name) for field in fields(self)), start=NO_TENSORS)

    @property
    def dense_layers(self) -> Tensors:
        """What every pass reads whole, whichever tokens it holds: all layers without their routed experts."""
        return self.attention + self.linear_attention + self.mlp + self.shared_experts + self.other


@dataclass(frozen=True)
class SoftmaxAttention:
    """`layers` alike: MHA (kv_heads = heads), GQA (fewer) or MQA (one); `window` tokens of sight, None for all.

    Raises ValueError where a count is below 1 or heads is no multiple of kv_heads.
    """

    layers: int
    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None = None

    def __post_init__(self) -> None:
        _at_least(1, self, "layers", "heads", "kv_heads", "key_dim", "value_dim")
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads cannot share {self.kv_heads} KV heads evenly")
        if self.window is not None:
            _at_least(1, self, "window")

    def kv_group(self, kv: KvTypes) -> KvGroup:
        """L n_kv (d_k b_k + d_v b_v) bytes a token (Shazeer 2019, arXiv 1911.02150; GQA: arXiv 2305.13245)."""
        element_bytes = self.key_dim * kv.key_bytes + self.value_dim * kv.value_bytes
        return KvGroup(self.layers * self.kv_heads * element_bytes, self.window)


@dataclass(frozen=True)
class LatentAttention:
    """`layers` of multi-head latent attention: one vector of rank + rope_dim a token, not keys and values.

    Raises ValueError where a count is below 1.
    """

    layers: int
    rank: int
    rope_dim: int

    def __post_init__(self) -> None:
        _at_least(1, self, "layers", "rank", "rope_dim")

    def kv_group(self, kv: KvTypes) -> KvGroup:
        """L (r_kv + d_rope) b_k bytes a token (DeepSeek-V2, arXiv 2405.04434, section 2.1), at the type of keys."""
        return KvGroup(self.layers * (self.rank + self.rope_dim) * kv.key_bytes)


@dataclass(frozen=True)
class LinearAttention:
    """`layers` with a recurrent state (Gated DeltaNet, Mamba-2): no cache that grows, one state a stream.

    The short convolution of `conv_kernel` taps (1: none) runs over queries, keys and values. Raises ValueError where a
    count is below 1 or state_bytes_per_element is not above 0.
    """

    layers: int
    value_heads: int
    key_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int
    state_bytes_per_element: float = 4.0

    def __post_init__(self) -> None:
        _at_least(1, self, "layers", "value_heads", "key_heads", "key_dim", "value_dim", "conv_kernel")
        if not self.state_bytes_per_element > 0:
            raise ValueError(f"a state element takes more than {self.state_bytes_per_element} bytes")

    @property
    def conv_channels(self) -> int:
        """Queries and keys of the key heads, values of the value heads."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    @property
    def state_bytes(self) -> float:
        """Bytes of one stream: L (H_v d_k d_v + (kernel - 1) channels) b (Gated DeltaNet, arXiv 2412.06464; derived)."""
        matrix = self.value_heads * self.key_dim * self.value_dim
        columns = (self.conv_kernel - 1) * self.conv_channels
        return self.layers * (matrix + columns) * self.state_bytes_per_element


@dataclass(frozen=True)
class Shape:
    """A model as its header describes it.

    With `tied_embeddings` the head has no tensors of its own: a pass reads the embedding matrix whole. A draft head that
    lives in the target's file is a Shape of its attention layers without weights of its own. Raises ValueError where vocabulary
    or hidden is below 1, the active experts are not in 1..experts, expert bytes and count contradict each other, or a
    tied head has bytes.
    """

    weights: Weights
    vocabulary: int
    hidden: int
    attention: tuple[SoftmaxAttention | LatentAttention, ...] = ()
    linear_attention: tuple[LinearAttention, ...] = ()
    experts: int = 0
    experts_per_token: int = 0
    tied_embeddings: bool = False

    def __post_init__(self) -> None:
        _at_least(1, self, "vocabulary", "hidden")
        if bool(self.experts) != bool(self.weights.experts.size_bytes):
            raise ValueError(f"{self.experts} routed experts in {self.weights.experts.size_bytes} bytes")
        if self.experts and not 1 <= self.experts_per_token <= self.experts:
            raise ValueError(f"{self.experts_per_token} of {self.experts} experts a token: must be 1 to all of them")
        if self.experts_per_token and not self.experts:
            raise ValueError(f"{self.experts_per_token} experts a token of none")
        if self.tied_embeddings and self.weights.output_head != NO_TENSORS:
            raise ValueError("an output head tied to the embedding has no tensors of its own")

    @property
    def layers(self) -> int:
        """Layers of all kinds."""
        return sum(group.layers for group in (*self.attention, *self.linear_attention))

    @property
    def head(self) -> Tensors:
        """The matrix that makes logits: the embedding where tied."""
        return self.weights.embedding if self.tied_embeddings else self.weights.output_head

    @property
    def parameters(self) -> int:
        """Parameters in the file."""
        return self.weights.total.parameters

    @property
    def size_bytes(self) -> int:
        """Bytes of all weights."""
        return self.weights.total.size_bytes

    @property
    def active_parameters(self) -> float:
        """Parameters that a token is multiplied with: K/E of the routed experts, the head, no embedding, no MTP head.

        Twice this is the arithmetic of a token in FLOP, attention scores left out (Kaplan et al., arXiv 2001.08361, 2.1).
        """
        active = self.weights.experts.parameters * self.experts_per_token / max(self.experts, 1)
        return (self.weights.dense_layers + self.head).parameters + active

    @property
    def recurrent_bytes(self) -> float:
        """Bytes of one copy of the recurrent state of one stream."""
        return sum(group.state_bytes for group in self.linear_attention)

    def kv_groups(self, kv: KvTypes = F16) -> tuple[KvGroup, ...]:
        """The cache by layers that remember equally."""
        return tuple(group.kv_group(kv) for group in self.attention)

    def kv_bytes(self, tokens: int | np.ndarray, kv: KvTypes = F16, rows: int | np.ndarray = 0) -> float | np.ndarray:
        """Bytes (...) of the cache of one stream with `tokens` (...); a window holds at most window + `rows` of them."""
        return _total([group.size_bytes(tokens, rows) for group in self.kv_groups(kv)])

    def kv_bytes_per_token(self, kv: KvTypes = F16) -> float | np.ndarray:
        """Bytes (...) that a token adds to the cache of a stream, as long as no window is full."""
        return _total([group.bytes_per_token for group in self.kv_groups(kv)])

    def traffic(self, kv: KvTypes = F16, correlation: float = 0.0) -> Traffic:
        """What the passes of this model move; `correlation` of the routing as in experts.fit_correlation.

        The MTP head is not in it: the target's pass does not read it. Raises ValueError for a correlation outside [0, 1].
        """
        row = 0.0 if self.tied_embeddings else self.weights.embedding.size_bytes / self.vocabulary
        routed = self.weights.experts.size_bytes
        experts = RoutedExperts(self.experts, self.experts_per_token, routed, correlation) if self.experts else None
        dense = (self.weights.dense_layers + self.head).size_bytes
        return Traffic(dense, row, experts, self.kv_groups(kv), self.recurrent_bytes)

    def pass_bytes(
        self,
        tokens: int | np.ndarray,
        context: int | np.ndarray = 0,
        streams: int | np.ndarray = 1,
        kv: KvTypes = F16,
        correlation: float = 0.0,
    ) -> PassBytes:
        """Bytes (...) that a pass over `tokens` (...) in all moves: see Traffic.pass_bytes."""
        return self.traffic(kv, correlation).pass_bytes(tokens, context, streams)


def _total(parts: Sequence[float | np.ndarray]) -> float | np.ndarray:
    """The sum; 0 of nothing."""
    return sum(parts, start=np.float64(0.0))

"""What each layer of a GGUF model remembers: keys and values, a window of them, a latent, a recurrent state.

Which kind a layer is follows from the names of its tensors, how large from the metadata. Rules and defaults are those by
which llama.cpp sizes its caches (src/llama-hparams.cpp, src/llama-model.cpp, src/models/). What they do not settle is
Unknown: nothing is guessed.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...model.shape import LatentAttention, LinearAttention, SoftmaxAttention
from ..files import shown
from .gguf_header import GgufHeader, TensorInfo

BOTH_KINDS = ("falcon-h1",)
"""Architectures whose layers attend and keep a state at once; elsewhere a layer with a state has no KV cache."""
UNNAMED = ("minimax-01", "graniteswitch")
"""Architectures with layers that keep something else than their tensors' names tell."""
UNMODELLED = ("attention.indexer.key_length", "attention.compress_ratios", "attention.kv_lora_rank_swa", "num_loops")
"""Keys of caches that model/shape.py has no term for: sparse attention's index, compressed keys, layers that run twice."""


class Unknown(Exception):
    """The header does not tell enough; the message says what is missing or contradicts itself."""


@dataclass(frozen=True)
class WindowRule:
    """Every `period`-th layer sees all (the first of them where `dense_first`), the others a window; 0: no layer sees all.

    `default`: the window where the header names none, 0: then every layer sees all. `fixed`: whatever it names but 0.
    """

    period: int
    dense_first: bool = False
    default: int = 0
    fixed: int = 0


WINDOWS = {
    "afmoe": WindowRule(4),
    "cohere2": WindowRule(4),
    "cohere2moe": WindowRule(4, dense_first=True),
    "exaone-moe": WindowRule(4, default=128),
    "exaone4": WindowRule(4, default=4096),
    "gemma2": WindowRule(2, default=4096),
    "gemma3": WindowRule(6),
    "gemma3n": WindowRule(5),
    "gpt-oss": WindowRule(2),
    "laguna": WindowRule(4, dense_first=True),
    "lfm2": WindowRule(0),
    "llama4": WindowRule(4, default=8192, fixed=8192),
    "mellum": WindowRule(4),
    "muse-glimmer": WindowRule(4),
    "olmo2": WindowRule(4),
    "plamo3": WindowRule(8),
    "smallthinker": WindowRule(4, dense_first=True, fixed=4096),
}
UNWINDOWED = ("llama", "phi3", "phimoe", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "starcoder2", "mistral3")
"""llama.cpp keeps all tokens of these, whatever window the header names."""
EXAONE4_WINDOWED_LAYERS = 64
"""Of EXAONE 4 only the 32B with its 64 layers has windows."""
GEMMA3N_CACHED_LAYERS = 20
"""Later layers of Gemma 3n read the cache of earlier ones."""


@dataclass(frozen=True)
class Layer:
    """The tensors of block `number`, by the first word of their name behind "blk.N." (attn_q, ssm_in, ffn_gate_exps)."""

    number: int
    tensors: Mapping[str, TensorInfo]

    @property
    def has_state(self) -> bool:
        return any(name.startswith(("ssm_", "shortconv", "time_mix")) for name in self.tensors)

    @property
    def has_keys(self) -> bool:
        return any(name in self.tensors for name in ("attn_k", "attn_qkv", "attn_kv_a_mqa"))


@dataclass(frozen=True)
class Keys:
    """The metadata of one architecture; `layers` counts all blocks, `trunk` those that are no MTP head."""

    header: GgufHeader
    architecture: str
    layers: int
    trunk: int

    @property
    def word(self) -> str:
        """The architecture's name, for messages."""
        return shown(self.architecture[:60])

    def name(self, key: str) -> str:
        return f"{self.word}.{key}"

    def get(self, key: str, default: int | None = None) -> int | None:
        """The number of `key`, the same for all layers."""
        value = self.header.integer(f"{self.architecture}.{key}")
        return default if value is None or value < 0 else value

    def need(self, key: str) -> int:
        """Like `get`; raises Unknown where it is missing or 0."""
        return self._given(key, self.get(key))

    def at(self, key: str, layer: int, default: int | None = None) -> int | None:
        """The number of `key` for block `layer`: of an array with an entry a block, or one number for all."""
        value = self.header.values.get(f"{self.architecture}.{key}")
        if not isinstance(value, tuple):
            return self.get(key, default)
        if layer >= len(value):
            raise Unknown(f"{self.name(key)} has {len(value)} entries for {self.layers:,} layers")
        entry = value[layer]
        if not isinstance(entry, int) or entry < 0:
            raise Unknown(f"{self.name(key)} is {entry} for layer {layer}")
        return int(entry)

    def need_at(self, key: str, layer: int, default: int | None = None) -> int:
        """Like `at`; raises Unknown where it is missing or 0."""
        return self._given(key, self.at(key, layer, default))

    def _given(self, key: str, value: int | None) -> int:
        if not value:
            raise Unknown(f"its header has no {self.name(key)}" if value is None else f"{self.name(key)} is 0")
        return value


def layers_of(tensors: Iterable[TensorInfo]) -> tuple[Layer, ...]:
    """The blocks that have tensors, in order."""
    found: dict[int, dict[str, TensorInfo]] = defaultdict(dict)
    for info in tensors:
        number = block_number(info.name)
        if number is not None:
            found[number].setdefault(info.name.split(".")[2], info)
    return tuple(Layer(number, found[number]) for number in sorted(found))


def block_number(name: str) -> int | None:
    """N of "blk.N.rest"; None for a tensor of no block."""
    parts = name.split(".", 2)
    if len(parts) < 3 or parts[0] != "blk" or not (parts[1].isascii() and parts[1].isdigit() and len(parts[1]) < 10):
        return None
    return int(parts[1])


Attention = SoftmaxAttention | LatentAttention


def attention_groups(keys: Keys, layers: Iterable[Layer]) -> tuple[Attention, ...]:
    """The layers with a KV cache, those that remember equally together. Raises Unknown."""
    if keys.architecture in UNNAMED:
        raise Unknown(f"specgauge has no model of what {keys.architecture} caches")
    for key in UNMODELLED:
        if f"{keys.architecture}.{key}" in keys.header.values and keys.get(key) != 1:
            raise Unknown(f"{keys.name(key)} is set: specgauge has no model of that cache")
    groups: dict[Attention, int] = defaultdict(int)
    for layer in layers:
        if layer.has_keys and _is_cached(keys, layer):
            groups[_attention(keys, layer)] += 1
    return tuple(_times(one, count) for one, count in groups.items())


def _times(one: Attention, count: int) -> Attention:
    if isinstance(one, LatentAttention):
        return LatentAttention(count, one.rank, one.rope_dim)
    return SoftmaxAttention(count, one.heads, one.kv_heads, one.key_dim, one.value_dim, one.window)


def _is_cached(keys: Keys, layer: Layer) -> bool:
    """Whether the layer keeps keys and values of its own."""
    if layer.has_state and keys.architecture not in BOTH_KINDS:
        return False
    if keys.architecture == "gemma3n":
        return layer.number < GEMMA3N_CACHED_LAYERS
    return layer.number < keys.layers - (keys.get("attention.shared_kv_layers") or 0)


def _attention(keys: Keys, layer: Layer) -> Attention:
    """The attention of one layer."""
    if keys.get("attention.key_length_mla"):
        return _latent(keys, layer)
    window = _window(keys, layer.number)
    heads = keys.need_at("attention.head_count", layer.number)
    kv_heads = keys.need_at("attention.head_count_kv", layer.number, heads)
    key_dim, value_dim = _head_dims(keys, heads, windowed=window is not None)
    for name, found in (("attn_k", key_dim), ("attn_v", value_dim)):
        _check_rows(layer, name, kv_heads * found)
    return SoftmaxAttention(1, heads, kv_heads, key_dim, value_dim, window)


def _latent(keys: Keys, layer: Layer) -> LatentAttention:
    """One vector a token. Older conversions have no key_length_mla: of these llama.cpp caches whole keys and values."""
    rank, rope = keys.need("attention.kv_lora_rank"), keys.need("rope.dimension_count")
    _check_rows(layer, "attn_kv_a_mqa", rank + rope)
    return LatentAttention(1, rank, rope)


def _head_dims(keys: Keys, heads: int, windowed: bool) -> tuple[int, int]:
    """Sizes of one key and one value; hidden / heads where the header has none."""
    even = (keys.get("embedding_length") or 0) / heads
    default = int(even) if even and even.is_integer() else None
    suffix = "_swa" if windowed and keys.get("attention.key_length_swa") else ""
    key, value = (
        keys.get(f"attention.key_length{suffix}", default),
        keys.get(f"attention.value_length{suffix}", default),
    )
    if not key or not value:
        raise Unknown(f"its header has no {keys.name('attention.key_length')}, and heads do not share its width evenly")
    return key, value


def _check_rows(layer: Layer, name: str, rows: int) -> None:
    """Raise Unknown where the tensor has other rows than the metadata say."""
    info = layer.tensors.get(name)
    if info is not None and len(info.dims) > 1 and info.dims[1] != rows:
        raise Unknown(
            f"its header contradicts itself: layer {layer.number}'s {name} has {info.dims[1]:,} rows, its metadata say {rows:,}"
        )


def _window(keys: Keys, layer: int) -> int | None:
    """Tokens that the layer sees; None for all."""
    rule = WINDOWS.get(keys.architecture)
    size = keys.get("attention.sliding_window", rule.default if rule else 0)
    if keys.architecture in UNWINDOWED or not size or not _is_windowed(keys, layer, rule, size):
        return None
    return rule.fixed if rule and rule.fixed else size


def _is_windowed(keys: Keys, layer: int, rule: WindowRule | None, size: int) -> bool:
    """Whether the layer is one of those with a window: by the header's own pattern, or by the architecture's."""
    if keys.architecture == "exaone4" and keys.trunk != EXAONE4_WINDOWED_LAYERS:
        return False
    key = "attention.sliding_window_pattern"
    pattern = keys.header.values.get(f"{keys.architecture}.{key}")
    if isinstance(pattern, tuple):
        return bool(keys.at(key, layer)) if layer < max(len(pattern), keys.trunk) else False
    period = keys.get(key, rule.period if rule else None)
    if period is None:
        raise Unknown(f"it has windows of {size:,} tokens, and no {keys.name(key)} says in which layers")
    if layer >= keys.trunk:
        return False
    if period == 0:
        return True
    return layer % period != (0 if rule and rule.dense_first else period - 1)


def linear_groups(keys: Keys, layers: Iterable[Layer]) -> tuple[LinearAttention, ...]:
    """The layers with a recurrent state. Raises Unknown."""
    with_state = [layer for layer in layers if layer.has_state]
    if not with_state:
        return ()
    state = _state(keys, len(with_state))
    for layer in with_state:
        conv = layer.tensors.get("ssm_conv1d")
        if conv is not None and conv.dims[-1] != state.channels:
            raise Unknown(
                f"its header contradicts itself: layer {layer.number}'s ssm_conv1d has {conv.dims[-1]:,} channels, its "
                f"metadata say {state.channels:,}"
            )
    return (state.group,)


@dataclass(frozen=True)
class _State:
    """The recurrent layers, and how many channels the short convolution has in their tensors."""

    group: LinearAttention
    channels: int


def _state(keys: Keys, layers: int) -> _State:
    if keys.get("kda.head_dim"):
        heads, size = keys.need_at("attention.head_count", 0), keys.need("kda.head_dim")
        return _State(LinearAttention(layers, heads, heads, size, size, keys.need("ssm.conv_kernel")), heads * size)
    if keys.get("wkv.head_size"):
        columns = keys.need("wkv.head_size") + (keys.get("token_shift_count", 2) or 0)
        return _State(_columns(layers, columns, keys.need("embedding_length")), 0)
    if keys.get("shortconv.l_cache"):
        return _State(_columns(layers, keys.need("shortconv.l_cache") - 1, keys.need("embedding_length")), 0)
    return _state_space(keys, layers)


def _state_space(keys: Keys, layers: int) -> _State:
    """Mamba-2 and Gated DeltaNet, whose keys and queries pass the convolution too; Mamba-1, where only the values do."""
    size, inner, kernel = (keys.need(f"ssm.{key}") for key in ("state_size", "inner_size", "conv_kernel"))
    groups = keys.get("ssm.group_count", 0)
    if not groups:
        return _State(_columns(layers, size + kernel - 1, inner), inner)
    heads = keys.need("ssm.time_step_rank")
    if inner % heads:
        raise Unknown(f"{keys.name('ssm.inner_size')} {inner:,} is no multiple of its {heads:,} heads")
    group = LinearAttention(layers, heads, groups, size, inner // heads, kernel)
    return _State(group, group.conv_channels)


def _columns(layers: int, columns: int, width: int) -> LinearAttention:
    """A state of `columns` vectors of `width`, the convolution's among them: it has no matrix of keys and values."""
    return LinearAttention(layers, 1, 1, columns, width, conv_kernel=1)

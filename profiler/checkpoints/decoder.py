"""A config.json read as its family means it: layers by kind, and from them parameters by role and what a stream keeps."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields

from ...model.shape import LatentAttention, LinearAttention, Shape, SoftmaxAttention, Tensors, Weights
from .config import Config
from .families import ALWAYS, Family

FULL, WINDOW, LINEAR, LATENT, NOTHING = "full", "window", "linear", "latent", ""
DENSE, SPARSE = "dense", "sparse"
LAYER_TYPES = {
    "full_attention": FULL, "attention": FULL, "sliding_attention": WINDOW, "chunked_attention": WINDOW,
    "linear_attention": LINEAR, "mamba": LINEAR, "mamba2": LINEAR,
}  # fmt: skip
BLOCKS = {
    "M": (LINEAR, NOTHING), "mamba": (LINEAR, NOTHING), "linear_attention": (LINEAR, NOTHING),
    "*": (FULL, NOTHING), "attention": (FULL, NOTHING), "full_attention": (FULL, NOTHING),
    "-": (NOTHING, DENSE), "mlp": (NOTHING, DENSE), "E": (NOTHING, SPARSE), "moe": (NOTHING, SPARSE),
}  # fmt: skip
"""Of Nemotron-H: a layer is a mixer or a feed-forward network."""

Counts = Counter[str]


class UnknownArchitecture(Exception):
    """A config.json whose layers this specgauge cannot count; the message says why, as part of a sentence."""


@dataclass(frozen=True)
class Architecture:
    """What follows from a config alone. `weights` have parameters by role and no bytes; `known` is False for the plain
    decoder that an architecture without an entry in FAMILIES may be."""

    config: Config
    known: bool
    hidden: int
    vocabulary: int
    layers: int
    tied: bool
    attention: tuple[SoftmaxAttention | LatentAttention, ...]
    linear_attention: tuple[LinearAttention, ...]
    experts: int
    experts_per_token: int
    weights: Weights
    mtp_attention: tuple[SoftmaxAttention | LatentAttention, ...] = field(default=())
    """One layer of the built-in head."""

    @property
    def parameters(self) -> int:
        """Of the language model, the built-in head aside."""
        return self.weights.total.parameters - self.weights.mtp_head.parameters

    def shape(self, weights: Weights, tied: bool | None = None) -> Shape:
        """The Shape with these `weights`. Raises ValueError where they contradict the config."""
        return Shape(
            weights=weights,
            vocabulary=self.vocabulary,
            hidden=self.hidden,
            attention=self.attention,
            linear_attention=self.linear_attention,
            experts=self.experts,
            experts_per_token=self.experts_per_token,
            tied_embeddings=self.tied if tied is None else tied,
        )

    def mtp_shape(self, layers: int) -> Shape | None:
        """`layers` of the built-in head, without weights of their own; None where there is none."""
        if layers < 1 or not self.mtp_attention:
            return None
        return Shape(Weights(), self.vocabulary, self.hidden, self.mtp_attention * layers)


def unread(config: Config) -> str:
    """Why an architecture without an entry is not believed."""
    return f"the architecture {config.model_type or config.architecture} is not known to specgauge"


class Decoder:
    """A config read as its family means it."""

    def __init__(self, config: Config, family: Family) -> None:
        self.config, self.family = config, family
        self.hidden, self.layers = config.hidden, config.layers
        self.heads = config.count("num_attention_heads", "n_head", default=1 if family.mixer == "mamba2" else None)
        self.kv_heads = config.count("num_key_value_heads", default=self.heads)
        self.head_dim = config.count("head_dim", default=family.head_dim or max(self.hidden // self.heads, 1))
        self.experts = config.number(
            "n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts", default=0
        )
        if family.experts == "none":
            self.experts = 0

    def describe(self, known: bool) -> Architecture:
        kinds = Counter(zip(self.mixers(), self.feeds(), strict=True))
        counts: Counts = Counter()
        for (mixer, feed), layers in kinds.items():
            for role, parameters in (self.mixer_counts(mixer) + self.feed_counts(feed) + self.norm_counts()).items():
                counts[role] += layers * parameters
        tied = self.family.tied if self.config.tied is None else self.config.tied
        matrix = self.config.vocabulary * self.hidden
        counts += Counter(embedding=matrix, output_head=0 if tied else matrix, other=self.norm) + self.apart_counts()
        table = self.table()
        if table and tied:
            # The second table is read by rows, the embedding whole, as the output head that it is.
            tied, counts["embedding"], counts["output_head"] = False, table, matrix
        else:
            counts["embedding"] += table
        counts["mtp_head"] = self.mtp_parameters()
        sparse = any(self.is_sparse(feed) for _, feed in kinds)
        return Architecture(
            config=self.config,
            known=known,
            hidden=self.hidden,
            vocabulary=self.config.vocabulary,
            layers=self.layers,
            tied=tied,
            attention=tuple(self.softmax_groups(kinds)),
            linear_attention=tuple(self.linear_groups(kinds)),
            experts=self.experts if sparse else 0,
            experts_per_token=self.experts_per_token() if sparse else 0,
            weights=Weights(**{role.name: Tensors(counts[role.name], 0) for role in fields(Weights)}),
            mtp_attention=self.mtp_attention(),
        )

    # Layers by kind.

    def mixers(self) -> tuple[str, ...]:
        """What mixes tokens, layer by layer."""
        config, family, every = self.config, self.family, range(self.layers)
        if family.experts == "blocks":
            return tuple(mixer for mixer, _ in self.blocks())
        if family.mixer == "latent":
            return (LATENT,) * self.layers
        named = config.texts("layer_types")
        if named:
            return self.named_mixers(named)
        if family.mixer == "deltanet":
            interval = config.count("full_attention_interval", default=family.pattern)
            return tuple(LINEAR if (layer + 1) % interval else FULL for layer in every)
        if family.mixer == "mamba2":
            attentive = set(config.numbers("attn_layer_indices"))
            return tuple(FULL if layer in attentive else LINEAR for layer in every)
        return tuple(WINDOW if self.windowed(layer) else FULL for layer in every)

    def named_mixers(self, named: tuple[str, ...]) -> tuple[str, ...]:
        """Those of layer_types; what it lists beyond the layers belongs to a built-in head."""
        strange = next((name for name in named if name not in LAYER_TYPES), None)
        if strange is not None:
            raise UnknownArchitecture(f"layers of the type {strange[:40]!r} are not known to specgauge")
        if len(named) < self.layers:
            raise ValueError(f"it lists the types of {len(named)} layers of {self.layers}")
        kinds = tuple(LAYER_TYPES[name] for name in named[: self.layers])
        if LINEAR in kinds and self.family.mixer == "softmax":
            raise UnknownArchitecture(f"{unread(self.config)}, and some of its layers are no softmax attention")
        return tuple(FULL if kind == WINDOW and not self.window else kind for kind in kinds)

    @property
    def window(self) -> int:
        """Tokens that a windowed layer sees; 0: all."""
        switched_off = self.family.window == "switch" and not self.config.flag("use_sliding_window")
        return 0 if switched_off else self.config.number("sliding_window", "attention_chunk_size", default=0)

    def windowed(self, layer: int) -> bool:
        """Whether `layer` has a window, where layer_types does not say."""
        if not self.window or self.family.window == "never":
            return False
        if self.family.window == "switch":
            return layer >= self.config.number("max_window_layers", default=self.layers)
        if self.family.window == "pattern":
            return (layer + 1) % self.pattern() != 0
        return True

    def pattern(self) -> int:
        """Every how manieth layer sees all tokens; some write it as LLLG."""
        letters = self.config.text("sliding_window_pattern")
        if letters:
            return len(letters)
        return self.config.count(
            "sliding_window_pattern", "_sliding_window_pattern", "no_rope_layer_interval", default=self.family.pattern
        )

    def blocks(self) -> tuple[tuple[str, str], ...]:
        """Mixer or feed-forward network of each layer of Nemotron-H."""
        named = self.config.texts("layers_block_type") or tuple(self.config.text("hybrid_override_pattern"))
        if len(named) < self.layers or any(name not in BLOCKS for name in named):
            raise ValueError(f"it names the blocks of {len(named)} layers of {self.layers}, or other blocks")
        return tuple(BLOCKS[name] for name in named[: self.layers])

    def feeds(self) -> tuple[str, ...]:
        """What works on each token by itself, layer by layer."""
        if self.family.experts == "blocks":
            return tuple(feed for _, feed in self.blocks())
        named = self.config.texts("mlp_layer_types")
        if len(named) >= self.layers:
            return tuple(SPARSE if name == "sparse" else DENSE for name in named[: self.layers])
        sparse = self.sparse()
        return tuple(SPARSE if self.experts and sparse(layer) else DENSE for layer in range(self.layers))

    def sparse(self) -> Callable[[int], bool]:
        """Whether a layer has experts, where there are any."""
        config, rule = self.config, self.family.experts
        if rule == "deepseek":
            first = config.number("first_k_dense_replace", default=0)
            every = config.count("moe_layer_freq", default=1)
            return lambda layer: layer >= first and layer % every == 0
        if rule == "ernie":
            first = config.number("moe_layer_start_index", default=0)
            last = config.number("moe_layer_end_index", default=self.layers - 1)
            every = config.count("moe_layer_interval", default=1)
            return lambda layer: first <= layer <= last and (layer + 1) % every == 0
        if rule == "llama4":
            every = config.count("interleave_moe_layer_step", default=1)
            routed = set(config.numbers("moe_layers") or range(every - 1, self.layers, every))
            return lambda layer: layer in routed
        if rule == "qwen":
            every = config.count("decoder_sparse_step", default=1)
            dense = set(config.numbers("mlp_only_layers"))
            return lambda layer: layer not in dense and (layer + 1) % every == 0
        return lambda layer: True

    def is_sparse(self, feed: str) -> bool:
        """Whether layers of this kind have experts."""
        return feed == SPARSE

    # Parameters by role: beside the layers, and of one layer.

    def table(self) -> int:
        """Parameters of a second table that gives every layer an input of its own."""
        return 0

    def apart_counts(self) -> Counts:
        """What belongs to no layer, embedding, head and last norm aside."""
        return Counter()

    @property
    def norm(self) -> int:
        return self.hidden * (2 if self.family.norm_bias else 1)

    def biased(self, key: str) -> bool:
        return key == ALWAYS or bool(key and self.config.flag(key, default=key in self.family.on))

    def norm_counts(self) -> Counts:
        return Counter(other=self.family.norms * self.norm)

    def mixer_counts(self, mixer: str) -> Counts:
        if mixer == LATENT:
            return self.latent_counts()
        if mixer == LINEAR:
            return self.mamba_counts() if self.family.mixer == "mamba2" else self.deltanet_counts()
        return self.softmax_counts() if mixer else Counter()

    def softmax_counts(self) -> Counts:
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        projected = queries * (2 if self.family.gated_queries else 1) + 2 * keys
        attention = self.hidden * (projected + queries)
        attention += projected * self.biased(self.family.qkv_bias) + self.hidden * self.biased(self.family.out_bias)
        attention += self.heads * self.family.sinks
        rule = self.family.qk_norm
        by_head = rule == "head" or (rule not in ("", "full") and self.config.flag(rule))
        return Counter(attention=attention, other=(queries + keys) * (rule == "full") + 2 * self.head_dim * by_head)

    def latent_counts(self) -> Counts:
        """Low-rank queries (where q_lora_rank is given), keys and values (DeepSeek-V2, arXiv 2405.04434, section 2.1)."""
        config, hidden, heads = self.config, self.hidden, self.heads
        rank, rope = config.count("kv_lora_rank"), config.count("qk_rope_head_dim")
        plain, value = config.count("qk_nope_head_dim"), config.count("v_head_dim")
        query_rank = config.number("q_lora_rank", default=0)
        bias = self.biased(self.family.qkv_bias)
        queries = query_rank * (hidden + bias) + (query_rank or hidden) * heads * (plain + rope)
        compressed = (rank + rope) * (hidden + bias) + rank * heads * (plain + value)
        return Counter(attention=queries + compressed + hidden * (heads * value + bias), other=rank + query_rank)

    def deltanet_counts(self) -> Counts:
        """Gated DeltaNet: q, k, v and gate, two numbers a value head, convolution, decay, norm, output (arXiv 2412.06464)."""
        group = self.deltanet(1)
        values = group.value_heads * group.value_dim
        projections = self.hidden * (group.conv_channels + values + 2 * group.value_heads + values)
        small = group.conv_kernel * group.conv_channels + 2 * group.value_heads
        return Counter(linear_attention=projections + small, other=group.value_dim)

    def mamba_counts(self) -> Counts:
        """Mamba-2: gate, x, B, C and step of each head, convolution, A, D and step bias, norm, output (arXiv 2405.21060)."""
        group, config = self.mamba(1), self.config
        inner = group.value_heads * group.value_dim
        projected = inner + group.conv_channels + group.value_heads
        nemotron = self.family.experts == "blocks"
        conv_bias = config.flag("use_conv_bias" if nemotron else "mamba_conv_bias", default=True)
        small = group.conv_channels * (group.conv_kernel + conv_bias) + 3 * group.value_heads
        bias = (projected + self.hidden) * config.flag("use_bias" if nemotron else "mamba_proj_bias")
        return Counter(linear_attention=self.hidden * (projected + inner) + small + bias, other=inner)

    def feed_counts(self, feed: str) -> Counts:
        if feed == DENSE:
            return self.dense_counts()
        return self.sparse_counts() if feed else Counter()

    def matrices(self, width: int, bias: bool = False) -> int:
        """A feed-forward network of `width`: up and down, and a gate where the family has one."""
        inward = 2 if self.family.gated_mlp else 1
        return (inward + 1) * self.hidden * width + (inward * width + self.hidden) * bias

    def dense_counts(self) -> Counts:
        own = {"llama4": "intermediate_size_mlp", "granite": "shared_intermediate_size"}
        key = own.get(self.family.experts) or own.get(self.family.shared)
        width = self.config.count(*((key,) if key else ()), "intermediate_size", "ffn_hidden_size", "n_inner")
        return Counter(mlp=self.matrices(width, self.biased(self.family.mlp_bias)))

    def sparse_counts(self) -> Counts:
        config, family, hidden = self.config, self.family, self.hidden
        if config.has("moe_latent_size"):
            raise UnknownArchitecture("experts behind a projection (moe_latent_size) are not known to specgauge")
        width = config.count("moe_intermediate_size", "intermediate_size")
        shared = self.shared_width(width)
        gate = hidden * (family.shared == "gated" and shared > 0)
        correction = self.experts * (family.experts == "ernie")
        router = self.experts * (hidden + family.expert_bias) + correction + gate
        return Counter(
            experts=self.experts * self.matrices(width, family.expert_bias),
            shared_experts=self.matrices(shared, self.biased(family.mlp_bias)) if shared else 0,
            other=router,
        )

    def shared_width(self, expert: int) -> int:
        """Width of all shared experts together."""
        config, rule = self.config, self.family.shared
        if rule == "gated":
            return config.number("shared_expert_intermediate_size", default=0)
        if rule == "count":
            return expert * config.number("moe_num_shared_experts", "n_shared_experts", "num_shared_experts", default=0)
        if rule == "granite":
            return config.number("shared_intermediate_size", default=0)
        if rule == "blocks":
            return config.number("moe_shared_expert_intermediate_size", default=0)
        return expert if rule == "expert" else 0

    def experts_per_token(self) -> int:
        return self.config.count("num_experts_per_tok", "moe_k", "num_experts_per_token", "experts_per_token")

    # What a stream keeps.

    def softmax(self, layers: int, window: int | None = None) -> SoftmaxAttention:
        return SoftmaxAttention(layers, self.heads, self.kv_heads, self.head_dim, self.head_dim, window)

    def latent(self, layers: int) -> LatentAttention:
        return LatentAttention(layers, self.config.count("kv_lora_rank"), self.config.count("qk_rope_head_dim"))

    def deltanet(self, layers: int) -> LinearAttention:
        config = self.config
        return LinearAttention(
            layers,
            value_heads=config.count("linear_num_value_heads", default=32),
            key_heads=config.count("linear_num_key_heads", default=16),
            key_dim=config.count("linear_key_head_dim", default=128),
            value_dim=config.count("linear_value_head_dim", default=128),
            conv_kernel=config.count("linear_conv_kernel_dim", default=4),
        )

    def mamba(self, layers: int) -> LinearAttention:
        """Mamba-2 as linear attention: B and C are keys and queries of its groups, x the values."""
        config = self.config
        return LinearAttention(
            layers,
            value_heads=config.count("mamba_n_heads", "mamba_num_heads"),
            key_heads=config.count("mamba_n_groups", "n_groups", default=1),
            key_dim=config.count("mamba_d_state", "ssm_state_size"),
            value_dim=config.count("mamba_d_head", "mamba_head_dim"),
            conv_kernel=config.count("mamba_d_conv", "conv_kernel", default=4),
        )

    def softmax_groups(self, kinds: Counter[tuple[str, str]]):
        """Layers that remember equally: those that see all, those with a window, those with a latent."""
        layers = _layers(kinds)
        if layers[FULL]:
            yield self.softmax(layers[FULL])
        if layers[WINDOW]:
            yield self.softmax(layers[WINDOW], self.window)
        if layers[LATENT]:
            yield self.latent(layers[LATENT])

    def linear_groups(self, kinds: Counter[tuple[str, str]]):
        layers = _layers(kinds)[LINEAR]
        if layers:
            yield self.mamba(layers) if self.family.mixer == "mamba2" else self.deltanet(layers)

    # The built-in head.

    def mtp_attention(self) -> tuple[SoftmaxAttention | LatentAttention, ...]:
        if self.family.mtp == "none":
            return ()
        return (self.latent(1) if self.family.mixer == "latent" else self.softmax(1),)

    def mtp_parameters(self) -> int:
        """Of the head that the config promises: its layers, the projection of two vectors to one, and norms."""
        layers, hidden = self.config.mtp_layers, self.hidden
        if not layers or self.family.mtp == "none":
            return 0
        mixer = self.mixer_counts(LATENT if self.family.mixer == "latent" else FULL)
        feed = self.feed_counts(SPARSE if self.experts else DENSE)
        layer = sum((mixer + feed + self.norm_counts()).values())
        if self.family.mtp == "qwen":
            return layers * layer + 2 * hidden * hidden + 3 * hidden
        copies = 2 * self.config.vocabulary * hidden
        return layers * (layer + 2 * hidden * hidden + 3 * hidden + copies)


def _layers(kinds: Counter[tuple[str, str]]) -> Counts:
    """Layers by mixer."""
    layers: Counts = Counter()
    for (mixer, _), count in kinds.items():
        layers[mixer] += count
    return layers

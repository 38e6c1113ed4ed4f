"""Gemma 4: layers that see all have heads of another size, the last layers reuse the cache of earlier ones, experts stand beside
a dense network, and small models give every layer an input of its own out of a second table (transformers 5.24)."""

from collections import Counter
from dataclasses import replace

from ...model.shape import SoftmaxAttention
from .config import Config
from .decoder import DENSE, FULL, SPARSE, WINDOW, Counts, Decoder
from .families import FAMILIES, Family

GEMMA4 = FAMILIES["gemma4_text"]
SHARED_FULL, SHARED_WINDOW = "full, shared", "window, shared"
SHARED = {FULL: SHARED_FULL, WINDOW: SHARED_WINDOW}
WIDE = "wide"
"""The dense network of a layer without keys, twice as wide where the config says so."""
GLOBAL_HEAD_DIM = 512


class Gemma4(Decoder):
    """A Gemma 4 config; `equal`: values are made of the keys in layers that see all."""

    def __init__(self, config: Config, family: Family) -> None:
        super().__init__(config, replace(family, experts="all"))
        self.equal = config.flag("attention_k_eq_v")
        self.table_width = config.number("hidden_size_per_layer_input", default=256)
        self.global_head_dim, self.global_kv_heads = self.overrides()
        if not config.flag("enable_moe_block"):
            self.experts = 0

    def overrides(self) -> tuple[int, int]:
        """Head size and KV heads of the layers that see all; transformers 5 writes them layer by layer."""
        layers = self.config.part("per_layer_config").values()
        own = next((layer for layer in layers if isinstance(layer, dict)), {})
        written = Config(self.config.path, own, own)
        unwritten = self.head_dim if self.config.has("per_layer_config") else GLOBAL_HEAD_DIM
        head_dim = self.config.count("global_head_dim", default=written.count("head_dim", default=unwritten))
        kv_heads = written.count("num_key_value_heads", default=self.kv_heads)
        if self.equal:
            kv_heads = self.config.count("num_global_key_value_heads", default=kv_heads)
        return head_dim, kv_heads

    def mixers(self) -> tuple[str, ...]:
        """The last layer sees all, whatever is written; the last `num_kv_shared_layers` have no keys of their own."""
        kinds = [*super().mixers()[:-1], FULL]
        first = self.layers - self.config.number("num_kv_shared_layers", default=0)
        return tuple(SHARED.get(kind, kind) if layer >= first else kind for layer, kind in enumerate(kinds))

    def feeds(self) -> tuple[str, ...]:
        wide = self.config.flag("use_double_wide_mlp")
        kinds = (WIDE if wide and mixer in SHARED.values() else DENSE for mixer in self.mixers())
        return tuple(f"{kind}, {SPARSE}" if self.experts else kind for kind in kinds)

    def is_sparse(self, feed: str) -> bool:
        return feed.endswith(SPARSE)

    def mixer_counts(self, mixer: str) -> Counts:
        full, shared = mixer in (FULL, SHARED_FULL), mixer in SHARED.values()
        head_dim, kv_heads = (self.global_head_dim, self.global_kv_heads) if full else (self.head_dim, self.kv_heads)
        queries, keys = self.heads * head_dim, kv_heads * head_dim
        projected = queries + (0 if shared else keys if full and self.equal else 2 * keys)
        bias = (projected + self.hidden) * self.biased(self.family.qkv_bias)
        return Counter(attention=self.hidden * (projected + queries) + bias, other=head_dim * (1 if shared else 2))

    def feed_counts(self, feed: str) -> Counts:
        width = self.config.count("intermediate_size") * (2 if feed.startswith(WIDE) else 1)
        counts: Counts = Counter(mlp=self.matrices(width))
        if self.is_sparse(feed):
            expert = self.matrices(self.config.count("moe_intermediate_size"))
            router = self.experts * (self.hidden + 1) + self.hidden
            counts += Counter(experts=self.experts * expert, other=router + 3 * self.norm)
        return counts

    def norm_counts(self) -> Counts:
        own_input = 2 * self.table_width * self.hidden + self.norm if self.table_width else 0
        return super().norm_counts() + Counter(other=own_input)

    def table(self) -> int:
        """Parameters of the second table, a row of which is read for a token."""
        rows = self.config.number("vocab_size_per_layer_input", default=self.config.vocabulary)
        return rows * self.layers * self.table_width

    def apart_counts(self) -> Counts:
        projection = self.layers * self.table_width * self.hidden + self.table_width
        return Counter(other=projection if self.table_width else 0)

    def experts_per_token(self) -> int:
        return self.config.count("top_k_experts", "num_experts_per_tok")

    def softmax_groups(self, kinds: Counter[tuple[str, str]]):
        """Those with keys of their own: the others keep nothing."""
        for group in super().softmax_groups(kinds):
            if isinstance(group, SoftmaxAttention) and group.window is None:
                group = replace(
                    group, kv_heads=self.global_kv_heads, key_dim=self.global_head_dim, value_dim=self.global_head_dim
                )
            yield group

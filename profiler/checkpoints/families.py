"""How the decoder architectures of transformers differ from each other: what config.json leaves to the code.

Read off the models that transformers 5.24 builds on the meta device (tools/architecture_truth.py); the tests hold
parameter counts against those.
"""

from dataclasses import dataclass, replace

ALWAYS = "always"


@dataclass(frozen=True)
class Family:
    """One model_type; the defaults are Llama's.

    `qkv_bias`, `out_bias` and `mlp_bias` are the keys of config.json that give these matrices a bias, "" where none does and
    ALWAYS where none is needed; `on` are those that mean true where they are missing.
    """

    norms: int = 2
    """Norms of the hidden size a layer."""
    norm_bias: bool = False
    qk_norm: str = ""
    """Norms of queries and keys: head (of one head's size), full (of all heads'), or the key that asks for those of a head."""
    qkv_bias: str = "attention_bias"
    out_bias: str = "attention_bias"
    mlp_bias: str = ""
    expert_bias: bool = False
    on: tuple[str, ...] = ()
    gated_mlp: bool = True
    gated_queries: bool = False
    sinks: bool = False
    """One learned logit a head."""
    head_dim: int | None = None
    """Where config.json has none; None: hidden / heads."""
    tied: bool = False
    """Where config.json does not say."""
    window: str = "never"
    """Layers with a window where layer_types is missing: never, always, switch (by use_sliding_window), pattern."""
    pattern: int = 0
    """Every how manieth layer sees all tokens where layer_types is missing."""
    mixer: str = "softmax"
    """softmax or latent in every layer; deltanet or mamba2: softmax in some, these in the others."""
    experts: str = "none"
    """Layers that have them: none, all, deepseek, qwen, ernie, llama4, blocks; "counted": all, where there are any."""
    shared: str = "none"
    """Size of the shared expert: none, gated (its own key and a gate), count (times an expert's), expert (one), granite, blocks."""
    mtp: str = "none"
    """Its head: none, qwen (mtp.*), deepseek (layers behind the last, with an embedding and a head of their own)."""


LLAMA = Family(mlp_bias="mlp_bias")
GENERIC = replace(LLAMA, experts="counted")
"""What an architecture without an entry is held to be, where its parameters agree."""
BARE = Family(qkv_bias="", out_bias="")
MISTRAL = replace(BARE, window="always")
QWEN2 = Family(qkv_bias=ALWAYS, out_bias="", window="switch")
QWEN3 = Family(qk_norm="head", head_dim=128, window="switch")
GEMMA = Family(head_dim=256, tied=True)
GEMMA2 = replace(GEMMA, norms=4, window="pattern", pattern=2)
GEMMA4 = replace(GEMMA2, qk_norm="head", pattern=6)
DEEPSEEK = Family(mixer="latent", experts="deepseek", shared="count")
QWEN_NEXT = Family(qk_norm="head", head_dim=256, gated_queries=True, mixer="deltanet", pattern=4, mtp="qwen")
USE_BIAS = Family(qkv_bias="use_bias", out_bias="use_bias", mlp_bias="use_bias", tied=True)

FAMILIES = {
    "llama": LLAMA,
    "granite": LLAMA,
    "smollm3": replace(LLAMA, tied=True, window="switch"),
    "seed_oss": replace(LLAMA, out_bias="attention_out_bias", head_dim=128, on=("attention_bias",)),
    "mistral": MISTRAL,
    "ministral": MISTRAL,
    "ministral3": replace(MISTRAL, head_dim=128),
    "phi3": MISTRAL,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "qwen3_vl_text": QWEN3,
    "gemma": GEMMA,
    "gemma2": GEMMA2,
    "gemma3_text": replace(GEMMA2, qk_norm="head", pattern=6),
    "gemma4_text": GEMMA4,
    "glm4": Family(norms=4, out_bias="", head_dim=128, on=("attention_bias",)),
    "exaone4": replace(BARE, qk_norm="head", window="pattern", pattern=4),
    "olmo2": Family(qk_norm="full"),
    "olmo3": Family(qk_norm="full", window="pattern", pattern=4),
    "cohere2": Family(norms=1, tied=True, window="pattern", pattern=4),
    "stablelm": Family(norm_bias=True, qkv_bias="use_qkv_bias", out_bias=""),
    "starcoder2": replace(USE_BIAS, norm_bias=True, on=("use_bias",), gated_mlp=False, window="always"),
    "mixtral": replace(MISTRAL, experts="all"),
    "minimax_m2": replace(BARE, head_dim=128, qk_norm="full", experts="all"),
    "gpt_oss": Family(
        head_dim=64, sinks=True, experts="all", expert_bias=True, on=("attention_bias",), window="pattern", pattern=2
    ),
    "qwen2_moe": replace(QWEN2, qkv_bias="qkv_bias", on=("qkv_bias",), experts="qwen", shared="gated"),
    "qwen3_moe": Family(qk_norm="head", window="switch", experts="qwen"),
    "qwen3_vl_moe_text": Family(head_dim=128, qk_norm="head", experts="qwen"),
    "ernie4_5_moe": replace(USE_BIAS, experts="ernie", shared="count"),
    "glm4_moe": Family(qk_norm="use_qk_norm", out_bias="", experts="deepseek", shared="count", mtp="deepseek"),
    "glm4_moe_lite": replace(DEEPSEEK, mtp="deepseek"),
    "deepseek_v2": replace(DEEPSEEK, mlp_bias="mlp_bias"),
    "deepseek_v3": replace(DEEPSEEK, mtp="deepseek"),
    "llama4_text": Family(head_dim=128, experts="llama4", shared="expert", window="pattern", pattern=4),
    "qwen3_next": replace(QWEN_NEXT, experts="qwen", shared="gated"),
    "qwen3_5_text": QWEN_NEXT,
    "qwen3_5_moe_text": replace(QWEN_NEXT, experts="all", shared="gated"),
    "bamba": replace(LLAMA, mixer="mamba2"),
    "granitemoehybrid": Family(mixer="mamba2", experts="counted", shared="granite"),
    "nemotron_h": Family(
        qkv_bias="",
        out_bias="",
        norms=1,
        mixer="mamba2",
        experts="blocks",
        gated_mlp=False,
        mlp_bias="mlp_bias",
        shared="blocks",
    ),
}
# A text part without a model_type of its own has the whole model's.
FAMILIES |= {
    whole: FAMILIES[f"{whole}_text"]
    for whole in ("gemma3", "gemma4", "llama4", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe")
}

NOT_PLAIN = (
    "kv_lora_rank", "linear_attn_config", "linear_num_value_heads", "linear_num_heads", "ssm_cfg", "state_size",
    "ssm_state_size", "mamba_n_heads", "mamba_d_state", "mamba_num_heads", "conv_L_cache", "attn_layer_indices",
    "hybrid_override_pattern", "layers_block_type", "full_attention_interval", "num_kv_shared_layers", "global_head_dim",
    "compress_ratios", "index_topk", "per_layer_config", "block_configs", "hidden_size_per_layer_input", "wkv_head_dim",
)  # fmt: skip
"""Keys of layers that are no plain attention: an architecture that is not known and has one of them is no Llama."""

NESTED_DEFAULTS: dict[str, dict[str, int]] = {
    "llama": {
        "vocab_size": 32_000, "hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 32, "num_attention_heads": 32,
    },
    "mistral": {
        "vocab_size": 32_000, "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "sliding_window": 4096,
    },
    "qwen2": {
        "vocab_size": 151_936, "hidden_size": 4096, "intermediate_size": 22_016, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 32,
    },
    "gemma2": {
        "vocab_size": 256_000, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
        "num_key_value_heads": 4, "sliding_window": 4096,
    },
    "gemma3_text": {
        "vocab_size": 262_208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
        "num_key_value_heads": 4, "sliding_window": 4096,
    },
    "gemma4_text": {
        "vocab_size": 262_144, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 30, "num_attention_heads": 8,
        "num_key_value_heads": 4, "sliding_window": 512,
    },
}  # fmt: skip
"""What a text_config leaves out: transformers saves of a nested config only what differs from its class (5.24's values)."""

"""Shapes from GGUF headers: published models at full size (their tensors a hole in the file), and headers that say too little.

Sizes are those of the models' config.json on the Hugging Face hub, parameter counts those that the hub shows for their
safetensors; layouts and names of tensors are those of llama.cpp's converter.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from specgauge.model.kv import F16
from specgauge.model.shape import LatentAttention, LinearAttention, Shape, SoftmaxAttention
from specgauge.profiler.checkpoints.checkpoint import Checkpoint
from specgauge.profiler.checkpoints.gguf_checkpoint import read_gguf

from .gguf_files import Header

KIB, MIB = 2**10, 2**20


def windows(shape: Shape | None) -> list[tuple[int, int | None]]:
    """Layers and window of each group with a cache."""
    assert shape is not None
    return [(group.layers, group.window) for group in shape.attention if isinstance(group, SoftmaxAttention)]


def read(header: Header, folder: Path) -> Checkpoint:
    return read_gguf(header.write(folder / "model.gguf"))


def base(architecture: str, hidden: int, layers: int, vocabulary: int, tied: bool, **keys) -> Header:
    """Embedding, head and last norm; `keys` with two underscores for a dot."""
    named = {name.replace("__", "."): value for name, value in keys.items()}
    header = Header(architecture, {"embedding_length": hidden, "block_count": layers, "context_length": 4096, **named})
    header.tensor("token_embd.weight", hidden, vocabulary).tensor("output_norm.weight", hidden)
    return header if tied else header.tensor("output.weight", hidden, vocabulary)


def attend(header: Header, layer: int, hidden: int, queries: int, keys: int, **more) -> Header:
    return header.layer(
        layer, attn_norm=hidden, attn_q=(hidden, queries), attn_k=(hidden, keys), attn_v=(hidden, keys),
        attn_output=(queries, hidden), **more,
    )  # fmt: skip


def feed(header: Header, layer: int, hidden: int, width: int, suffix: str = "", *experts: int) -> Header:
    up, down = (hidden, width, *experts), (width, hidden, *experts)
    return header.layer(
        layer, **{f"ffn_gate{suffix}": up, f"ffn_up{suffix}": up, f"ffn_down{suffix}": down}
    )  # fmt: skip


def qwen3_8b() -> Header:
    header = base("qwen3", 4096, 36, 151936, tied=False, attention__head_count=32, attention__head_count_kv=8,
                  attention__key_length=128, attention__value_length=128)  # fmt: skip
    for layer in range(36):
        attend(header, layer, 4096, 4096, 1024, attn_q_norm=128, attn_k_norm=128, ffn_norm=4096)
        feed(header, layer, 4096, 12288)
    return header


def qwen3_30b_a3b() -> Header:
    header = base("qwen3moe", 2048, 48, 151936, tied=False, attention__head_count=32, attention__head_count_kv=4,
                  attention__key_length=128, attention__value_length=128, expert_count=128, expert_used_count=8)  # fmt: skip
    for layer in range(48):
        attend(header, layer, 2048, 4096, 512, attn_q_norm=128, attn_k_norm=128, ffn_norm=2048)
        feed(header.layer(layer, ffn_gate_inp=(2048, 128)), layer, 2048, 768, "_exps", 128)
    return header


def gemma2_2b() -> Header:
    header = base("gemma2", 2304, 26, 256000, tied=True, attention__head_count=8, attention__head_count_kv=4,
                  attention__key_length=256, attention__value_length=256, attention__sliding_window=4096)  # fmt: skip
    for layer in range(26):
        attend(header, layer, 2304, 2048, 1024, post_attention_norm=2304, ffn_norm=2304, post_ffw_norm=2304)
        feed(header, layer, 2304, 9216)
    return header


def gemma3_1b() -> Header:
    header = base("gemma3", 1152, 26, 262144, tied=True, attention__head_count=4, attention__head_count_kv=1,
                  attention__key_length=256, attention__value_length=256, attention__sliding_window=512)  # fmt: skip
    for layer in range(26):
        attend(header, layer, 1152, 1024, 256, attn_q_norm=256, attn_k_norm=256, post_attention_norm=1152,
               ffn_norm=1152, post_ffw_norm=1152)  # fmt: skip
        feed(header, layer, 1152, 6912)
    return header


def deepseek_v2_lite(mla: bool = True) -> Header:
    """`mla`: as converted since April 2025; before, kv_b was one tensor and the cache whole keys and values."""
    header = base("deepseek2", 2048, 27, 102400, tied=False, attention__head_count=16,
                  attention__head_count_kv=1 if mla else 16, attention__kv_lora_rank=512, rope__dimension_count=64,
                  attention__key_length=576 if mla else 192, attention__value_length=512 if mla else 128,
                  expert_count=64, expert_used_count=6, leading_dense_block_count=1, expert_shared_count=2)  # fmt: skip
    if mla:
        header.keys |= {"deepseek2.attention.key_length_mla": 192, "deepseek2.attention.value_length_mla": 128}
    up = {"attn_k_b": (128, 512, 16), "attn_v_b": (512, 128, 16)} if mla else {"attn_kv_b": (512, 256 * 16)}
    for layer in range(27):
        header.layer(layer, attn_norm=2048, attn_q=(2048, 3072), attn_kv_a_mqa=(2048, 576), attn_kv_a_norm=512, **up,
                     attn_output=(2048, 2048), ffn_norm=2048)  # fmt: skip
        if layer == 0:
            feed(header, layer, 2048, 10944)
        else:
            feed(header.layer(layer, ffn_gate_inp=(2048, 64)), layer, 2048, 1408, "_exps", 64)
            feed(header, layer, 2048, 2816, "_shexp")
    return header


def mixtral_8x7b(merged: bool = True) -> Header:
    """`merged`: the experts of a layer in one tensor, as converted since April 2024."""
    header = base("llama", 4096, 32, 32000, tied=False, attention__head_count=32, attention__head_count_kv=8,
                  expert_count=8, expert_used_count=2)  # fmt: skip
    for layer in range(32):
        attend(header, layer, 4096, 4096, 1024, ffn_norm=4096, ffn_gate_inp=(4096, 8))
        if merged:
            feed(header, layer, 4096, 14336, "_exps", 8)
        for expert in range(0 if merged else 8):
            feed(header, layer, 4096, 14336, f"__{expert}")
    return header


def gpt_oss_20b() -> Header:
    header = base("gpt-oss", 2880, 24, 201088, tied=False, attention__head_count=64, attention__head_count_kv=8,
                  attention__key_length=64, attention__value_length=64, attention__sliding_window=128,
                  expert_count=32, expert_used_count=4)  # fmt: skip
    for layer in range(24):
        attend(header, layer, 2880, 4096, 512, attn_sinks=64, post_attention_norm=2880, ffn_gate_inp=(2880, 32))
        feed(header, layer, 2880, 2880, "_exps", 32)
        for name, rows in (("attn_q", 4096), ("attn_k", 512), ("attn_v", 512), ("attn_output", 2880),
                           ("ffn_gate_inp", 32)):  # fmt: skip
            header.tensor(f"blk.{layer}.{name}.bias", rows)
        for name in ("gate", "up", "down"):
            header.tensor(f"blk.{layer}.ffn_{name}_exps.bias", 2880, 32)
    return header


def lfm2_1b() -> Header:
    attending = (2, 5, 8, 10, 12, 14)
    header = base("lfm2", 2048, 16, 65536, tied=True, attention__head_count=32, shortconv__l_cache=3,
                  attention__head_count_kv=[8 if layer in attending else 0 for layer in range(16)])  # fmt: skip
    header.tensors[1] = ("token_embd_norm.weight", (2048,), "F32")
    for layer in range(16):
        if layer in attending:
            attend(header, layer, 2048, 2048, 512, attn_q_norm=64, attn_k_norm=64, ffn_norm=2048)
        else:
            header.layer(layer, attn_norm=2048, shortconv__conv=(3, 2048), shortconv__in_proj=(2048, 6144),
                         shortconv__out_proj=(2048, 2048), ffn_norm=2048)  # fmt: skip
        feed(header, layer, 2048, 8192)
    return header


def delta_layer(header: Header, layer: int, hidden: int, keys: int, values: int) -> Header:
    """A Gated DeltaNet of `keys` key and `values` value heads of 128."""
    channels = 128 * (2 * keys + values)
    return header.layer(
        layer, attn_norm=hidden, attn_qkv=(hidden, channels), attn_gate=(hidden, 128 * values),
        ssm_conv1d=(4, channels), ssm_alpha=(hidden, values), ssm_beta=(hidden, values), ssm_norm=128,
        ssm_out=(128 * values, hidden), post_attention_norm=hidden,
    ).tensor(f"blk.{layer}.ssm_a", values).tensor(f"blk.{layer}.ssm_dt.bias", values)  # fmt: skip


def qwen35_27b(**keys) -> Header:
    """64 layers, every fourth with full attention, and an MTP head of one."""
    header = base("qwen35", 5120, 65, 248320, tied=False, attention__head_count=24, attention__head_count_kv=4,
                  attention__key_length=256, attention__value_length=256, full_attention_interval=4,
                  ssm__conv_kernel=4, ssm__state_size=128, ssm__group_count=16, ssm__time_step_rank=48,
                  ssm__inner_size=6144, nextn_predict_layers=1, **keys)  # fmt: skip
    for layer in range(65):
        if layer % 4 == 3 or layer == 64:
            attend(header, layer, 5120, 6144, 1024, attn_q_norm=256, attn_k_norm=256, post_attention_norm=5120)
        else:
            delta_layer(header, layer, 5120, 16, 48)
        feed(header, layer, 5120, 17408)
    return header.layer(64, nextn__eh_proj=(10240, 5120), nextn__enorm=5120, nextn__hnorm=5120)


PUBLISHED: list[tuple[Callable[[], Header], int, float]] = [
    (qwen3_8b, 8_190_735_360, 36 * 8 * 2 * 128 * 2),
    (qwen3_30b_a3b, 30_532_122_624, 48 * 4 * 2 * 128 * 2),
    (gemma2_2b, 2_614_341_888, 26 * 4 * 2 * 256 * 2),
    (gemma3_1b, 999_885_952, 26 * 1 * 2 * 256 * 2),
    (deepseek_v2_lite, 15_706_484_224, 27 * 576 * 2),
    (mixtral_8x7b, 46_702_792_704, 32 * 8 * 2 * 128 * 2),
    (gpt_oss_20b, 20_914_757_184, 24 * 8 * 2 * 64 * 2),
    (lfm2_1b, 1_170_340_608, 6 * 8 * 2 * 64 * 2),
]


@pytest.mark.parametrize(("model", "parameters", "kv_bytes"), PUBLISHED, ids=lambda one: getattr(one, "__name__", None))
def test_published_models_have_their_parameters_and_cache(model, parameters, kv_bytes, tmp_path):
    checkpoint = read(model(), tmp_path)
    shape = checkpoint.shape
    assert shape is not None, checkpoint.shape_unknown
    assert shape.parameters == checkpoint.parameters == parameters
    assert shape.kv_bytes_per_token(F16) == kv_bytes
    assert checkpoint.warnings == () and checkpoint.head_kind == ""
    assert checkpoint.quant == "F16" and checkpoint.quant_bits == pytest.approx(16, abs=0.01)


def test_a_dense_model_has_its_roles(tmp_path):
    shape = read(qwen3_8b(), tmp_path).shape
    assert shape is not None and not shape.tied_embeddings
    weights = shape.weights
    assert weights.embedding.parameters == weights.output_head.parameters == 151936 * 4096
    assert weights.attention.parameters == 36 * (2 * 4096 * 4096 + 2 * 4096 * 1024)
    assert weights.mlp.parameters == 36 * 3 * 4096 * 12288
    assert weights.other.parameters == 36 * (2 * 128 + 2 * 4096) + 4096
    assert (
        weights.mlp.size_bytes == 2 * weights.mlp.parameters
        and weights.other.size_bytes == 4 * weights.other.parameters
    )
    assert shape.attention == (SoftmaxAttention(36, 32, 8, 128, 128),)
    assert (shape.vocabulary, shape.hidden, shape.experts) == (151936, 4096, 0)


def test_routed_and_shared_experts_are_told_apart(tmp_path):
    shape = read(deepseek_v2_lite(), tmp_path).shape
    assert shape is not None
    assert shape.weights.experts.parameters == 26 * 64 * 3 * 2048 * 1408
    assert shape.weights.shared_experts.parameters == 26 * 3 * 2048 * 2816
    assert shape.weights.mlp.parameters == 3 * 2048 * 10944
    assert (shape.experts, shape.experts_per_token) == (64, 6)


def test_active_parameters_of_mixtures_are_what_their_names_say(tmp_path):
    """Qwen3-30B-A3B: 3.3B active, 0.31B of them embedding, which is read by rows (model card); Mixtral: 12.9B."""
    qwen, mixtral = read(qwen3_30b_a3b(), tmp_path).shape, read(mixtral_8x7b(), tmp_path).shape
    assert qwen is not None and mixtral is not None
    assert qwen.active_parameters == pytest.approx(3.3e9 - 0.31e9, rel=0.02)
    assert mixtral.active_parameters == pytest.approx(12.9e9 - 0.13e9, rel=0.01)


def test_experts_in_tensors_of_their_own_are_the_same_experts(tmp_path):
    assert read(mixtral_8x7b(merged=False), tmp_path).shape == read(mixtral_8x7b(), tmp_path).shape


def test_latents_are_cached_where_the_conversion_has_them_and_else_whole_keys(tmp_path):
    new, old = read(deepseek_v2_lite(), tmp_path).shape, read(deepseek_v2_lite(mla=False), tmp_path).shape
    assert new is not None and new.attention == (LatentAttention(27, 512, 64),)
    assert old is not None and old.attention == (SoftmaxAttention(27, 16, 16, 192, 128),)
    assert old.parameters == new.parameters


@pytest.mark.parametrize(("model", "windowed", "full", "window"), [
    (gemma2_2b, 13, 13, 4096), (gemma3_1b, 22, 4, 512), (gpt_oss_20b, 12, 12, 128),
])  # fmt: skip
def test_windows_are_in_the_layers_of_the_architecture(model, windowed, full, window, tmp_path):
    assert windows(read(model(), tmp_path).shape) == [(windowed, window), (full, None)]


def test_a_pattern_in_the_header_comes_before_that_of_the_architecture(tmp_path):
    header = gemma2_2b()
    header.keys["gemma2.attention.sliding_window_pattern"] = [layer != 5 for layer in range(26)]
    assert windows(read(header, tmp_path).shape) == [(25, 4096), (1, None)]
    header.keys["gemma2.attention.sliding_window_pattern"] = 13
    assert windows(read(header, tmp_path).shape) == [(24, 4096), (2, None)]


def test_windows_that_the_engine_does_not_use_are_not_counted(tmp_path):
    header = qwen3_8b()
    header.keys["qwen3.attention.sliding_window"] = 4096
    shape = read(header, tmp_path).shape
    assert shape is not None and shape.attention == (SoftmaxAttention(36, 32, 8, 128, 128),)


def test_a_hybrid_has_its_state_its_cache_and_its_mtp_head_apart(tmp_path):
    """llama.cpp reports 149.63 MiB of state and 64 KiB of cache a token for this model: see tests/model/test_shape.py."""
    checkpoint = read(qwen35_27b(), tmp_path)
    shape = checkpoint.shape
    assert shape is not None and checkpoint.recurrent and checkpoint.mtp_layers == 1
    assert shape.attention == (SoftmaxAttention(16, 24, 4, 256, 256),)
    assert shape.linear_attention == (LinearAttention(48, 48, 16, 128, 128, 4),)
    assert shape.recurrent_bytes / MIB == pytest.approx(149.625)
    assert shape.kv_bytes_per_token() == 64 * KIB and shape.layers == 64
    head = 2 * 5120 * 6144 + 2 * 5120 * 1024 + 3 * 5120 * 17408 + 10240 * 5120 + 2 * 256 + 4 * 5120
    assert shape.weights.mtp_head.parameters == head
    assert shape.weights.linear_attention.parameters > shape.weights.attention.parameters
    assert checkpoint.mtp_shape is not None and checkpoint.mtp_shape.size_bytes == 0
    assert checkpoint.mtp_shape.attention == (SoftmaxAttention(1, 24, 4, 256, 256),)
    assert (checkpoint.mtp_shape.vocabulary, checkpoint.mtp_shape.hidden) == (248320, 5120)


def test_an_mtp_head_that_is_announced_and_not_there_is_not_offered(tmp_path):
    header = qwen35_27b()
    header.tensors = [tensor for tensor in header.tensors if not tensor[0].startswith("blk.64.")]
    checkpoint = read(header, tmp_path)
    assert checkpoint.shape is not None and checkpoint.mtp_layers == 0 and checkpoint.mtp_shape is None
    assert "announces an MTP head of 1 layers" in checkpoint.warnings[0]


def test_a_file_of_the_mtp_head_alone_is_a_draft_head(tmp_path):
    header = qwen35_27b()
    header.tensors = [tensor for tensor in header.tensors if not tensor[0].startswith("blk.") or "blk.64." in tensor[0]]
    checkpoint = read(header, tmp_path)
    assert checkpoint.head_kind == "mtp" and checkpoint.mtp_shape is None
    assert checkpoint.shape is not None and checkpoint.shape.attention == (SoftmaxAttention(1, 24, 4, 256, 256),)
    assert checkpoint.shape.weights.mtp_head.parameters == 0 and checkpoint.shape.weights.mlp.parameters > 0


@pytest.mark.parametrize(("architecture", "kind"), [("eagle3", "eagle"), ("dflash", "dflash"), ("llama", "")])
def test_draft_heads_are_known_by_their_architecture(architecture, kind, tmp_path):
    header = base(architecture, 64, 1, 100, tied=False, attention__head_count=4, attention__head_count_kv=2)
    assert read(attend(header, 0, 64, 64, 32), tmp_path).head_kind == kind


MAMBA2 = {
    "ssm.conv_kernel": 4,
    "ssm.state_size": 128,
    "ssm.group_count": 1,
    "ssm.time_step_rank": 64,
    "ssm.inner_size": 4096,
}


def mamba2_layer(header: Header, layer: int) -> Header:
    """64 heads of 64, one group: channels 4096 + 2 x 128."""
    return header.layer(layer, attn_norm=256, ssm_in=(256, 8512), ssm_conv1d=(4, 4352), ssm_norm=4096,
                        ssm_out=(4096, 256)).tensor(f"blk.{layer}.ssm_a", 1, 64)  # fmt: skip


def test_mamba2_layers_keep_heads_times_state_and_the_convolution(tmp_path):
    header = base(
        "granitehybrid", 256, 4, 100, tied=True, attention__head_count=4, attention__head_count_kv=[0, 0, 2, 0]
    )
    header.keys |= {f"granitehybrid.{name}": value for name, value in MAMBA2.items()}
    for layer in range(4):
        attend(header, layer, 256, 256, 128) if layer == 2 else mamba2_layer(header, layer)
    shape = read(header, tmp_path).shape
    assert shape is not None
    assert shape.attention == (SoftmaxAttention(1, 4, 2, 64, 64),)
    assert shape.recurrent_bytes == 3 * (4096 * 128 + 3 * 4352) * 4


def test_layers_that_attend_and_keep_a_state_have_both(tmp_path):
    header = base("falcon-h1", 256, 2, 100, tied=True, attention__head_count=4, attention__head_count_kv=2)
    header.keys |= {f"falcon-h1.{name}": value for name, value in MAMBA2.items()}
    for layer in range(2):
        mamba2_layer(attend(header, layer, 256, 256, 128), layer)
    header.tensors = list(dict.fromkeys(header.tensors))
    shape = read(header, tmp_path).shape
    assert shape is not None
    assert shape.attention == (SoftmaxAttention(2, 4, 2, 64, 64),) and shape.linear_attention[0].layers == 2
    assert shape.weights.attention.parameters == 2 * (2 * 256 * 256 + 2 * 256 * 128)


def test_layers_without_attention_or_state_count_as_neither(tmp_path):
    """Nemotron-H: blocks of attention, of Mamba-2, or of an MLP alone."""
    header = base("nemotron_h", 256, 3, 100, tied=False, attention__head_count=[0, 4, 0],
                  attention__head_count_kv=[0, 2, 0], feed_forward_length=[0, 0, 512])  # fmt: skip
    header.keys |= {f"nemotron_h.{name}": value for name, value in MAMBA2.items()}
    attend(mamba2_layer(header, 0), 1, 256, 256, 128).layer(2, attn_norm=256, ffn_up=(256, 512), ffn_down=(512, 256))
    shape = read(header, tmp_path).shape
    assert shape is not None and shape.layers == 2
    assert (shape.attention[0].layers, shape.linear_attention[0].layers) == (1, 1)


def test_mamba1_and_short_convolutions_keep_columns(tmp_path):
    header = base("mamba", 256, 2, 100, tied=True, ssm__conv_kernel=4, ssm__state_size=16, ssm__time_step_rank=16,
                  ssm__inner_size=512)  # fmt: skip
    for layer in range(2):
        header.layer(layer, attn_norm=256, ssm_in=(256, 1024), ssm_conv1d=(4, 512), ssm_out=(512, 256))
    shape = read(header, tmp_path).shape
    assert shape is not None and shape.attention == ()
    assert shape.recurrent_bytes == 2 * 4 * (16 * 512 + 3 * 512)
    short = read(lfm2_1b(), tmp_path).shape
    assert short is not None and short.recurrent_bytes == 10 * 4 * 2 * 2048


def test_kimi_delta_attention_keeps_a_matrix_a_head(tmp_path):
    header = base("kimi-linear", 256, 2, 100, tied=False, attention__head_count=4, attention__head_count_kv=[0, 1],
                  attention__key_length=96, attention__key_length_mla=48, attention__value_length_mla=32,
                  attention__kv_lora_rank=64, rope__dimension_count=32, kda__head_dim=32, ssm__conv_kernel=4)  # fmt: skip
    attend(header, 0, 256, 128, 128, ssm_conv1d_q=(4, 1, 128), ssm_conv1d_k=(4, 1, 128), ssm_conv1d_v=(4, 1, 128))
    header.layer(1, attn_norm=256, attn_q=(256, 192), attn_kv_a_mqa=(256, 96), attn_output=(128, 256))
    shape = read(header, tmp_path).shape
    assert shape is not None and shape.attention == (LatentAttention(1, 64, 32),)
    assert shape.recurrent_bytes == 4 * (4 * 32 * 32 + 3 * 3 * 4 * 32)
    assert shape.weights.linear_attention.parameters == 4 * 256 * 128 + 3 * 4 * 128


def test_layers_that_share_a_cache_have_none_of_their_own_and_windows_their_own_heads(tmp_path):
    """Gemma 4: smaller heads in the windows, the last layers read the cache of earlier ones."""
    header = base("gemma4", 256, 6, 100, tied=True, attention__head_count=4, attention__head_count_kv=[2, 2, 1, 2, 2, 1],
                  attention__key_length=128, attention__value_length=128, attention__key_length_swa=64,
                  attention__value_length_swa=64, attention__sliding_window=512, attention__shared_kv_layers=2,
                  attention__sliding_window_pattern=[True, True, False] * 2)  # fmt: skip
    for layer in range(6):
        attend(header, layer, 256, 512 if layer % 3 == 2 else 256, 128)
    header.tensor("per_layer_token_embd.weight", 6 * 16, 100)
    shape = read(header, tmp_path).shape
    assert shape is not None
    assert shape.attention == (SoftmaxAttention(3, 4, 2, 64, 64, 512), SoftmaxAttention(1, 4, 1, 128, 128))
    assert shape.weights.embedding.parameters == 6 * 16 * 100 and shape.head.parameters == 256 * 100


SMALL = {"attention__head_count": 4, "attention__head_count_kv": 2}


def small(architecture: str = "llama", **keys) -> Header:
    return attend(base(architecture, 64, 1, 100, tied=True, **(SMALL | keys)), 0, 64, 64, 32)


def without(name: str) -> Header:
    header = small()
    del header.keys[name]
    return header


def with_expert(**keys) -> Header:
    return feed(small(**keys), 0, 64, 32, "_exps", 4)


@pytest.mark.parametrize(("header", "says"), [
    (without("general.architecture"), "no general.architecture"),
    (without("llama.block_count"), "no llama.block_count"),
    (without("llama.attention.head_count"), "no llama.attention.head_count"),
    (small(attention__head_count=7), "llama.attention.key_length"),
    (small(attention__head_count=3), "llama.attention.key_length"),
    (small(attention__head_count_kv=3), "attn_k has 32 rows, its metadata say 48"),
    (small(attention__head_count_kv=0), "llama.attention.head_count_kv is 0"),
    (small(attention__key_length=32), "attn_k has 32 rows, its metadata say 64"),
    (small(attention__head_count_kv=[2]), ""),
    (small(block_count=3), "1 layers where llama.block_count promises 3"),
    (small("newmodel", attention__sliding_window=128), "no newmodel.attention.sliding_window_pattern says in which layers"),
    (small("newmodel", full_attention_interval=4), ""),
    (small(attention__indexer__key_length=64), "attention.indexer.key_length is set"),
    (small("minimax-01"), "no model of what minimax-01 caches"),
    (small().layer(0, ssm_in=(64, 64)), "no llama.ssm.state_size"),
    (with_expert(), "no llama.expert_count"),
    (with_expert(expert_count=4), "no llama.expert_used_count"),
    (with_expert(expert_count=4, expert_used_count=9), "9 of 4 experts"),
    (with_expert(expert_count=4, expert_used_count=[2]), ""),
    (Header("llama", {"block_count": 1}).tensor("token_embd.weight", 64, 100), "no layers"),
])  # fmt: skip
def test_what_a_header_does_not_tell_is_named_and_never_guessed(header, says, tmp_path):
    checkpoint = read(header, tmp_path)
    assert says in checkpoint.shape_unknown and "\n" not in checkpoint.shape_unknown
    assert (checkpoint.shape is None) == bool(says)


def test_a_tensor_type_that_is_not_known_is_said_and_leaves_no_shape(tmp_path):
    path = small().write(tmp_path / "m.gguf")
    content = path.read_bytes()
    at = content.index(b"blk.0.attn_q.weight") + len(b"blk.0.attn_q.weight") + 4 + 2 * 8
    path.write_bytes(content[:at] + (200).to_bytes(4, "little") + content[at + 4 :])
    checkpoint = read_gguf(path)
    assert checkpoint.shape is None and "type-200" in checkpoint.shape_unknown and "type-200" in checkpoint.warnings[0]

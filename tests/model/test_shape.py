"""Shapes of known models: cache, state and traffic against published figures and layer-by-layer counts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgauge.model.kv import BYTES_PER_ELEMENT, F16, KvGroup, KvTypes
from specgauge.model.shape import LatentAttention, LinearAttention, Shape, SoftmaxAttention, Tensors, Weights
from specgauge.model.traffic import Traffic

MIB = 2**20
DELTANET_27B = LinearAttention(48, value_heads=48, key_heads=16, key_dim=128, value_dim=128, conv_kernel=4)
FULL_27B = SoftmaxAttention(16, heads=24, kv_heads=4, key_dim=256, value_dim=256)
HYBRID = Shape(
    Weights(
        embedding=Tensors(1_271_398_400, 715_161_600),
        attention=Tensors(1_500_000_000, 900_000_000),
        linear_attention=Tensors(6_000_000_000, 3_600_000_000),
        mlp=Tensors(17_000_000_000, 10_000_000_000),
        output_head=Tensors(1_271_398_400, 1_043_000_000),
        mtp_head=Tensors(400_000_000, 240_000_000),
        other=Tensors(1_000_000, 4_000_000),
    ),
    vocabulary=248_320,
    hidden=5120,
    attention=(FULL_27B,),
    linear_attention=(DELTANET_27B,),
)
MIXTURE = Shape(
    Weights(
        embedding=Tensors(400, 800),
        attention=Tensors(1000, 2000),
        experts=Tensors(25_600, 51_200),
        shared_experts=Tensors(100, 200),
        other=Tensors(10, 20),
    ),
    vocabulary=40,
    hidden=10,
    attention=(SoftmaxAttention(2, 4, 1, 8, 8),),
    experts=256,
    experts_per_token=8,
    tied_embeddings=True,
)


def test_the_state_of_48_deltanet_layers_is_what_llama_cpp_stores():
    """Qwen3.8-27B: a checkpoint of 149.7 MiB, 7 copies of 1,047.38 MiB reported."""
    assert DELTANET_27B.conv_channels == 10240
    assert HYBRID.recurrent_bytes / MIB == pytest.approx(149.625)
    assert 7 * HYBRID.recurrent_bytes / MIB == pytest.approx(1047.38, abs=0.01)
    assert 3 * HYBRID.recurrent_bytes / MIB == pytest.approx(449, abs=0.2)


def test_the_state_of_the_35b_a3b_is_what_llama_cpp_stores():
    """30 layers of 32 value heads: 8 copies of 502.50 MiB reported; 16 key heads make 8,192 channels."""
    layers = LinearAttention(30, value_heads=32, key_heads=16, key_dim=128, value_dim=128, conv_kernel=4)
    assert layers.conv_channels == 8192
    assert layers.state_bytes / MIB == pytest.approx(62.8, abs=0.05)
    assert 8 * layers.state_bytes / MIB == pytest.approx(502.50, abs=0.01)


def test_a_layer_without_a_convolution_keeps_the_matrix_alone():
    assert LinearAttention(2, 3, 3, 4, 5, conv_kernel=1, state_bytes_per_element=2).state_bytes == 2 * 3 * 4 * 5 * 2


def test_the_hybrid_caches_64_kib_a_token_in_its_full_layers_only():
    assert HYBRID.kv_bytes_per_token() == 64 * 1024
    assert HYBRID.kv_bytes(8192) == 512 * MIB
    assert HYBRID.layers == 64


@pytest.mark.parametrize(("attention", "expected"), [
    (SoftmaxAttention(32, 32, 32, 128, 128), 512 * 1024),
    (SoftmaxAttention(32, 32, 8, 128, 128), 128 * 1024),
    (SoftmaxAttention(32, 32, 1, 128, 128), 16 * 1024),
    (LatentAttention(61, 512, 64), 70_272),
])  # fmt: skip
def test_bytes_per_token_of_known_models(attention, expected):
    """Llama-2-7B (MHA) and Llama-3-8B (GQA): 512 and 128 KiB; MQA an eighth of that; DeepSeek-V3 (MLA): 70,272 bytes."""
    shape = Shape(Weights(), 32_000, 4096, (attention,))
    assert shape.kv_bytes_per_token() == expected
    assert shape.kv_bytes(10) == 10 * expected


@pytest.mark.parametrize(("name", "bits"), [
    ("f32", 32), ("f16", 16), ("bf16", 16), ("q8_0", 8.5), ("q5_1", 6), ("q5_0", 5.5), ("q4_1", 5), ("q4_0", 4.5),
])  # fmt: skip
def test_types_take_the_bits_that_ggml_states(name, bits):
    assert BYTES_PER_ELEMENT[name] * 8 == bits


def test_keys_and_values_may_differ_in_type_and_size():
    shape = Shape(Weights(), 10, 10, (SoftmaxAttention(3, 4, 2, 64, 32),))
    assert shape.kv_bytes_per_token(KvTypes.named("q8_0", "q4_0")) == 3 * 2 * (64 * 34 / 32 + 32 * 18 / 32)


def test_latent_attention_follows_the_type_of_keys_alone():
    shape = Shape(Weights(), 10, 10, (LatentAttention(1, 512, 64),))
    assert shape.kv_bytes_per_token(KvTypes.named("q8_0", "f32")) == 576 * 34 / 32


def test_types_of_many_settings_are_looked_at_together():
    kv = KvTypes(np.array([2.0, 34 / 32]), np.array([2.0, 34 / 32]))
    assert HYBRID.kv_bytes(np.array([100, 200]), kv) == pytest.approx([100 * 65536, 200 * 65536 * 17 / 32])


def test_an_unknown_type_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match="no KV type is called q3_k: known are f32, f16.*q4_0"):
        KvTypes.named("f16", "q3_k")
    with pytest.raises(ValueError, match="more than 0 bytes"):
        KvTypes(0.0, 2.0)


def evicting(tokens: int, window: int, rows: int) -> int:
    """Tokens held after they came one by one and the oldest left as soon as no later row, even after a rollback, sees it."""
    held: list[int] = []
    for token in range(tokens):
        held = [old for old in held if old > token - window - rows] + [token]
    return len(held)


@given(st.integers(0, 60), st.integers(1, 20), st.integers(0, 9))
def test_a_window_holds_no_more_than_itself_and_the_rows_of_a_pass(tokens, window, rows):
    assert KvGroup(1.0, window).size_bytes(tokens, rows) == evicting(tokens, window, rows)


def test_windows_and_full_layers_of_one_model_add_up():
    """Gemma-like: 5 of 6 layers see 1,024 tokens."""
    shape = Shape(
        Weights(), 10, 10, (SoftmaxAttention(5, 8, 4, 64, 64, window=1024), SoftmaxAttention(1, 8, 4, 64, 64))
    )
    layer = 2 * 4 * 64 * 2
    assert shape.kv_bytes_per_token() == 6 * layer
    assert shape.kv_bytes(500) == 500 * 6 * layer
    assert shape.kv_bytes(8000) == (8000 + 5 * 1024) * layer
    assert shape.kv_bytes(8000, rows=9) == (8000 + 5 * 1033) * layer


def test_totals_are_of_the_file_and_active_parameters_of_a_token():
    assert HYBRID.parameters == 27_443_796_800 and HYBRID.size_bytes == 16_502_161_600
    assert HYBRID.active_parameters == 1.5e9 + 6e9 + 17e9 + 1_271_398_400 + 1e6
    assert MIXTURE.active_parameters == 400 + 1000 + 100 + 10 + 25_600 * 8 / 256


def test_a_pass_reads_the_weights_once_embedding_rows_by_token_and_no_mtp_head():
    one, five = HYBRID.pass_bytes(1), HYBRID.pass_bytes(5)
    assert one.weights == 16_502_161_600 - 240_000_000 - 715_161_600 + 2880
    assert five.weights - one.weights == 4 * 2880
    assert one.experts == 0


def test_a_tied_embedding_is_read_whole_as_the_head():
    assert MIXTURE.pass_bytes(1).weights == 800 + 2000 + 200 + 20
    assert MIXTURE.pass_bytes(9).weights == MIXTURE.pass_bytes(1).weights


def test_experts_are_read_as_far_as_they_are_touched():
    read = MIXTURE.pass_bytes(np.array([1, 2, 4, 8])).experts
    assert read / 200 == pytest.approx([8, 15.75, 30.53, 57.42], abs=0.005)
    assert MIXTURE.pass_bytes(4, correlation=1.0).experts == pytest.approx(8 * 200)


def test_cache_and_state_are_moved_once_a_stream():
    moved = HYBRID.pass_bytes(6, context=1000, streams=2)
    assert moved.kv == 2 * 1000 * 65536
    assert moved.state == 2 * 2 * HYBRID.recurrent_bytes
    assert moved.total == moved.weights + moved.kv + moved.state


@pytest.mark.parametrize("arguments", [(0,), (1, -1), (2, 0, 3), (1, 0, 0)])
def test_impossible_passes_are_refused(arguments):
    with pytest.raises(ValueError, match="a pass has"):
        HYBRID.pass_bytes(*arguments)
    with pytest.raises(ValueError, match="less than 0 bytes"):
        Traffic(-1.0)


@pytest.mark.parametrize(("make", "words"), [
    (lambda: Tensors(-1, 0), "Tensors: parameters is -1"),
    (lambda: Tensors(0, -1), "Tensors: size_bytes is -1"),
    (lambda: SoftmaxAttention(0, 1, 1, 1, 1), "layers is 0"),
    (lambda: SoftmaxAttention(1, 0, 1, 1, 1), "heads is 0"),
    (lambda: SoftmaxAttention(1, 6, 4, 1, 1), "6 heads cannot share 4"),
    (lambda: SoftmaxAttention(1, 1, 1, 1, 1, window=0), "window is 0"),
    (lambda: LatentAttention(1, 0, 1), "rank is 0"),
    (lambda: LinearAttention(1, 1, 1, 1, 1, conv_kernel=0), "conv_kernel is 0"),
    (lambda: LinearAttention(1, 1, 1, 1, 1, 1, 0.0), "state element"),
    (lambda: Shape(Weights(), 0, 1), "vocabulary is 0"),
    (lambda: Shape(Weights(), 1, 0), "hidden is 0"),
    (lambda: Shape(Weights(), 1, 1, experts=8, experts_per_token=2), "8 routed experts in 0 bytes"),
    (lambda: Shape(Weights(experts=Tensors(1, 1)), 1, 1), "0 routed experts in 1 bytes"),
    (lambda: Shape(Weights(experts=Tensors(1, 1)), 1, 1, experts=8, experts_per_token=9), "9 of 8"),
    (lambda: Shape(Weights(), 1, 1, experts_per_token=2), "2 experts a token of none"),
    (lambda: Shape(Weights(output_head=Tensors(1, 1)), 1, 1, tied_embeddings=True), "tied to the embedding"),
])  # fmt: skip
def test_impossible_shapes_are_refused_in_one_line(make, words):
    with pytest.raises(ValueError, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_f16_is_the_default_type():
    assert F16 == KvTypes(2.0, 2.0)

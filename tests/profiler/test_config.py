"""config.json: layers by kind and parameters as each architecture means them, and numbers that are no numbers."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specgauge.model.shape import LatentAttention, SoftmaxAttention
from specgauge.profiler.checkpoints.architecture import UnknownArchitecture, architecture_of, shape_of
from specgauge.profiler.checkpoints.config import config_of, read_config
from specgauge.profiler.checkpoints.families import FAMILIES
from specgauge.profiler.errors import InputError

from .safetensors_files import LLAMA

HYBRID = LLAMA | {
    "model_type": "qwen3_5_text", "num_hidden_layers": 4, "head_dim": 8, "full_attention_interval": 2,
    "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
}  # fmt: skip
MOE = LLAMA | {
    "model_type": "qwen3_moe", "num_hidden_layers": 4, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
}  # fmt: skip


def described(values: dict, **changes):
    return architecture_of(config_of(values | changes))


def windows(values: dict, **changes) -> dict[int | None, int]:
    """Layers by window."""
    groups = described(values, **changes).attention
    return {group.window: group.layers for group in groups if isinstance(group, SoftmaxAttention)}


def test_a_config_is_read_without_weights(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    for path in (tmp_path, tmp_path / "config.json"):
        config = read_config(path)
        assert config.hidden == 32 and config.vocabulary == 64 and config.context_length == 512
        assert shape_of(config, 2).kv_bytes_per_token() == 128


def test_a_nested_language_model_is_the_model():
    whole = config_of({"model_type": "gemma3", "text_config": LLAMA, "tie_word_embeddings": False, "vision_config": {}})
    assert whole.hidden == 32 and whole.model_type == "llama"
    assert architecture_of(whole).parameters == described(LLAMA).parameters
    unnamed = {key: value for key, value in LLAMA.items() if key != "model_type"}
    assert config_of({"model_type": "qwen3_5", "text_config": unnamed}).model_type == "qwen3_5"


def test_a_nested_part_leaves_out_what_its_class_has_anyway():
    """transformers saves of a nested config only what differs: Gemma 3 4B's names neither heads nor vocabulary."""
    inner = {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 6, "sliding_window": None}
    found = architecture_of(config_of({"model_type": "gemma3", "text_config": inner}))
    assert found.vocabulary == 262_208 and found.tied
    assert found.attention == (SoftmaxAttention(6, 8, 4, 256, 256),)
    with pytest.raises(InputError, match="has no num_attention_heads"):
        architecture_of(config_of(inner))


@pytest.mark.parametrize(("changes", "parameters"), [
    ({"attention_bias": True}, 2 * (32 + 2 * 16 + 32)),
    ({"mlp_bias": True}, 2 * (2 * 96 + 32)),
    ({"model_type": "qwen2"}, 2 * (32 + 2 * 16)),
    ({"model_type": "seed_oss", "head_dim": 8}, 2 * (32 + 2 * 16)),
    ({"num_local_experts": 8, "n_routed_experts": 8}, 0),
    ({"model_type": "qwen3", "head_dim": 8}, 2 * 2 * 8),
    ({"model_type": "glm4", "head_dim": 8, "attention_bias": False}, 2 * 2 * 32),
    ({"head_dim": 16}, 2 * (2 * 32 * 32 + 2 * 16 * 32)),
    ({"tie_word_embeddings": True}, -64 * 32),
    ({"num_key_value_heads": 1}, -2 * 2 * 8 * 32),
])  # fmt: skip
def test_what_a_key_adds(changes, parameters):
    assert described(LLAMA, **changes).parameters - described(LLAMA).parameters == parameters


def test_windows_follow_layer_types_and_each_familys_own_keys():
    """By the configuration classes of transformers: which layers see a window where layer_types is missing."""
    ten = LLAMA | {"num_hidden_layers": 10, "sliding_window": 7}
    assert windows(ten) == {None: 10}
    assert windows(ten, model_type="mistral") == {7: 10}
    assert windows(ten, model_type="mistral", sliding_window=None) == {None: 10}
    assert windows(ten, model_type="qwen2", max_window_layers=6) == {None: 10}
    assert windows(ten, model_type="qwen2", max_window_layers=6, use_sliding_window=True) == {None: 6, 7: 4}
    assert windows(ten, model_type="gemma2") == {None: 5, 7: 5}
    assert windows(ten, model_type="gemma3_text") == {None: 1, 7: 9}
    assert windows(ten, model_type="gemma3_text", sliding_window_pattern=3) == {None: 3, 7: 7}
    assert windows(ten, model_type="exaone4", sliding_window_pattern="LLLG") == {None: 2, 7: 8}
    assert windows(ten, model_type="llama4_text", attention_chunk_size=9, sliding_window=None) == {None: 2, 9: 8}
    types = ["sliding_attention"] * 3 + ["full_attention"] * 7
    assert windows(ten, model_type="gemma2", layer_types=types) == {None: 7, 7: 3}
    assert windows(ten, model_type="qwen2", layer_types=types) == {None: 10}


def test_linear_layers_follow_the_interval_or_the_list():
    found = described(HYBRID)
    assert [group.layers for group in found.attention] == [2]
    assert [group.layers for group in found.linear_attention] == [2]
    assert found.linear_attention[0].state_bytes == 2 * (4 * 8 * 8 + 3 * (2 * 16 + 32)) * 4
    listed = described(HYBRID, layer_types=["linear_attention"] * 3 + ["full_attention"])
    assert listed.attention[0].layers == 1 and listed.linear_attention[0].layers == 3


@pytest.mark.parametrize(("changes", "layers"), [
    ({}, 4), ({"decoder_sparse_step": 2}, 2), ({"mlp_only_layers": [0, 3]}, 2), ({"mlp_layer_types": ["dense", "sparse"] * 2}, 2),
    ({"model_type": "glm4_moe", "first_k_dense_replace": 1, "n_routed_experts": 8}, 3),
    ({"model_type": "ernie4_5_moe", "moe_layer_start_index": 1, "moe_layer_end_index": 2, "moe_num_experts": 8}, 2),
    ({"model_type": "llama4_text", "interleave_moe_layer_step": 2, "num_local_experts": 8, "intermediate_size_mlp": 9}, 2),
])  # fmt: skip
def test_layers_with_experts_follow_each_familys_rule(changes, layers):
    width = 96 if changes.get("model_type") == "llama4_text" else 16
    values = MOE | changes
    if width == 96:
        values = {key: value for key, value in values.items() if key != "moe_intermediate_size"}
    found = described(values)
    assert found.experts == 8 and found.experts_per_token == 2
    assert found.weights.experts.parameters == layers * 8 * 3 * 32 * width


def test_a_dense_model_of_a_sparse_family_has_no_experts():
    found = described(MOE, mlp_only_layers=[0, 1, 2, 3])
    assert (found.experts, found.experts_per_token) == (0, 0)
    assert found.shape(found.weights).experts == 0


def test_a_latent_is_cached_and_its_ranks_counted():
    latent = LLAMA | {
        "model_type": "deepseek_v3", "kv_lora_rank": 8, "q_lora_rank": None, "qk_rope_head_dim": 4, "qk_nope_head_dim": 6,
        "v_head_dim": 5, "num_nextn_predict_layers": 2,
    }  # fmt: skip
    found = described(latent)
    assert found.attention == (LatentAttention(2, 8, 4),)
    attention = 32 * 4 * 10 + 32 * 12 + 8 * 4 * 11 + 4 * 5 * 32
    assert found.weights.attention.parameters == 2 * attention
    head = found.mtp_shape(2)
    assert head is not None and head.layers == 2 and head.kv_bytes_per_token() == 2 * 12 * 2
    assert described(latent, q_lora_rank=3).weights.attention.parameters == 2 * (attention - 1280 + 3 * 32 + 3 * 40)


def test_a_built_in_head_that_no_config_promises_has_no_shape():
    assert described(LLAMA).mtp_shape(1) is None
    assert described(HYBRID).mtp_shape(0) is None


def test_an_unknown_architecture_has_no_shape_from_its_config_alone():
    with pytest.raises(InputError, match="the architecture newthing is not known to specgauge; give"):
        shape_of(config_of(LLAMA | {"model_type": "newthing"}), 2)
    with pytest.raises(UnknownArchitecture, match="kv_lora_rank says that it is no plain decoder"):
        described(LLAMA, model_type="newthing", kv_lora_rank=512)
    with pytest.raises(UnknownArchitecture, match="layers of the type 'conv' are not known"):
        described(LLAMA, layer_types=["conv", "full_attention"])
    with pytest.raises(UnknownArchitecture, match="some of its layers are no softmax attention"):
        described(LLAMA, model_type="newthing", layer_types=["linear_attention", "full_attention"])


def refused(values: dict, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        shape_of(config_of(values), 2)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


@pytest.mark.parametrize(("changes", "words"), [
    ({"hidden_size": float("nan")}, "its hidden_size is nan"),
    ({"hidden_size": float("inf")}, "its hidden_size is inf"),
    ({"hidden_size": "32"}, "its hidden_size is '32'"),
    ({"hidden_size": True}, "its hidden_size is True"),
    ({"hidden_size": -1}, "its hidden_size is -1"),
    ({"hidden_size": 0}, "its hidden_size is 0"),
    ({"hidden_size": None}, "has no hidden_size"),
    ({"hidden_size": 10**40}, "its hidden_size is an absurd number"),
    ({"hidden_size": [1] * 99_999}, "its hidden_size is a list"),
    ({"num_hidden_layers": 10**9}, "its num_hidden_layers is 1000000000"),
    ({"num_attention_heads": 0}, "its num_attention_heads is 0"),
    ({"num_key_value_heads": 3}, "contradicts itself: 4 heads cannot share 3 KV heads"),
    ({"layer_types": ["full_attention"]}, "contradicts itself: it lists the types of 1 layers of 2"),
    ({"layer_types": [1, 2]}, "its layer_types is a list"),
    ({"attention_bias": "yes"}, "its attention_bias is 'yes'"),
    ({"vocab_size": {}}, "its vocab_size is an object"),
    ({"model_type": "qwen3_next", "full_attention_interval": 0}, "its full_attention_interval is 0"),
])  # fmt: skip
def test_numbers_that_are_none_are_named(changes, words):
    refused(LLAMA | changes, words)


def test_whole_numbers_written_as_floats_are_numbers():
    assert config_of(LLAMA | {"hidden_size": 32.0}).hidden == 32


@pytest.mark.parametrize(("content", "words"), [
    (b"", "is empty"),
    (b"{", "is damaged"),
    (b"[]", "holds a list, where an object belongs"),
    (b"nul", "is damaged"),
    (b"\xff\xfe{}", "is damaged"),
    (b'{"a": ' + b"[" * 200_000, "nests too deeply"),
    (b'{"a": ' + b"9" * 10_000 + b"}", "is damaged"),
    (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
])  # fmt: skip
def test_damaged_files_are_refused_in_one_line(tmp_path, content, words):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(InputError, match=words) as caught:
        read_config(tmp_path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_what_is_no_config_is_refused(tmp_path):
    with pytest.raises(InputError, match="has no config.json"):
        read_config(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        read_config(tmp_path / "none.json")
    path = tmp_path / "config.json"
    path.touch()
    os.truncate(path, 9 << 20)
    with pytest.raises(InputError, match="9 MiB, more than the 8 MiB"):
        read_config(tmp_path)


def test_infinity_where_mamba_writes_it_is_no_damage(tmp_path):
    """transformers saves the limits of Mamba-2's time step as [0.0, Infinity]."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"time_step_limit": [0.0, float("inf")]}))
    assert "Infinity" in (tmp_path / "config.json").read_text()
    assert shape_of(read_config(tmp_path), 2).hidden == 32


SOMETHING = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.integers(), st.floats(), st.text(max_size=5),
    st.lists(st.one_of(st.integers(-1, 9), st.text(max_size=3)), max_size=4), st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)  # fmt: skip
KEYS = sorted(
    {*LLAMA, *HYBRID, *MOE, "layer_types", "sliding_window", "head_dim", "kv_lora_rank", "text_config"}
    - {"architectures"}
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(FAMILIES)), st.dictionaries(st.sampled_from(KEYS), SOMETHING, max_size=4))
def test_whatever_a_config_says_ends_in_a_shape_or_one_line(model_type, changes):
    values = LLAMA | HYBRID | MOE | {"model_type": model_type} | changes
    try:
        shape_of(config_of(values), 2)
    except InputError as error:
        assert "\n" not in str(error)


def test_the_tests_of_public_models_reach_the_families_that_matter():
    folder = Path(__file__).resolve().parents[1] / "data" / "architectures"
    known = [config_of(json.loads(path.read_text())["config"]).model_type for path in folder.glob("*.json")]
    assert set(known) <= set(FAMILIES) and len(set(known)) >= 12

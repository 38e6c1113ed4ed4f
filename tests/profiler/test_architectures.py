"""Public architectures: what follows from config.json alone, and from headers, against transformers and published figures.

The files in tests/data/architectures hold what transformers builds on the meta device: tools/architecture_truth.py.
"""

import json
import math
import subprocess
import sys
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path

import pytest

from specgauge.model.memory import Deployment
from specgauge.model.shape import LatentAttention, SoftmaxAttention, Weights
from specgauge.profiler.checkpoints.architecture import architecture_of, shape_of
from specgauge.profiler.checkpoints.config import Config, config_of
from specgauge.profiler.checkpoints.reading import read_checkpoint

from .safetensors_files import Tensors, model_folder

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "tests" / "data" / "architectures").glob("*.json"))
KINDS = {
    "dense GQA": "llama-3.1-8b", "MoE": "qwen3-30b-a3b", "hybrid with MTP": "qwen3.6-27b", "sliding window": "gemma-3-27b",
    "MLA": "deepseek-v2-lite", "MoE with shared experts": "qwen1.5-moe-a2.7b",
}  # fmt: skip
ENCODER_27B = 460_000_000
"""Of Qwen3.6-27B, to 1 %: 27 layers of width 1,152 and 4,304, patches, positions and the merger to 5,120."""


def known(name: str) -> dict:
    return json.loads((ROOT / "tests" / "data" / "architectures" / f"{name}.json").read_text())


def config(name: str) -> Config:
    return config_of(known(name)["config"], name)


def stored(truth: dict, dtype: str = "BF16") -> Tensors:
    """The tensors that transformers builds, by name."""
    tensors: Tensors = {}
    for group in truth["tensors"]:
        for layer in group["layers"]:
            begin = f"{group['prefix']}.{layer}." if layer >= 0 else ""
            tensors |= {begin + name: (dtype, shape) for name, shape in group["tensors"].items()}
    return tensors


every = pytest.mark.parametrize("name", [path.stem for path in FILES])


def test_each_kind_is_among_them():
    assert len(FILES) >= 10
    assert {path.stem for path in FILES} >= set(KINDS.values())


@every
def test_the_files_name_where_their_numbers_are_from(name):
    truth = known(name)
    assert len(truth["source"]) > 20 and truth["kv_derivation"] and truth["transformers_version"]
    assert truth["published_parameters"] is None or truth["published_source"]
    assert sum(math.prod(shape) for _, shape in stored(truth).values()) == truth["parameters"]


@every
def test_parameters_are_exactly_those_of_transformers(name):
    assert architecture_of(config(name)).parameters == known(name)["parameters"]


@every
def test_parameters_are_the_published_ones_within_1_percent(name):
    published = known(name)["published_parameters"]
    if published is not None:
        assert architecture_of(config(name)).parameters == pytest.approx(published, rel=0.01)


@every
def test_a_token_takes_the_derived_bytes_of_cache(name):
    truth, shape = known(name), shape_of(config(name), 2)
    assert shape.kv_bytes_per_token() == truth["kv_bytes_per_token"]
    assert shape.recurrent_bytes == truth.get("recurrent_bytes", 0)


@every
def test_windows_hold_what_they_see_and_no_more(name):
    truth, shape = known(name), shape_of(config(name), 2)
    softmax = [group for group in shape.attention if isinstance(group, SoftmaxAttention)]
    windows = {(group.window, group.layers) for group in softmax if group.window}
    assert windows == ({tuple(truth["window"][:2])} if "window" in truth else set())
    if windows:
        size, layers, *own = truth["window"]
        windowed = own[0] if own else truth["kv_bytes_per_token"] * layers / shape.layers
        assert shape.kv_bytes(100_000) == 100_000 * (truth["kv_bytes_per_token"] - windowed) + size * windowed
    else:
        assert shape.kv_bytes(100_000) == 100_000 * truth["kv_bytes_per_token"]


@every
def test_headers_give_the_same_roles_as_the_config(name, tmp_path):
    """Every tensor in its role, of the names that transformers gives them; a full-size file is a hole here."""
    truth = known(name)
    checkpoint = read_checkpoint(model_folder(tmp_path / name, truth["config"], stored(truth)))
    described = architecture_of(config(name))
    assert checkpoint.shape is not None and checkpoint.parameters == truth["parameters"]
    for role in fields(Weights):
        if role.name != "mtp_head":
            found, expected = (getattr(one.weights, role.name).parameters for one in (checkpoint.shape, described))
            assert found == expected, role.name
    promised = described.weights.mtp_head.parameters > 0
    assert [w for w in checkpoint.warnings if "tokenizer" not in w] == [
        "config.json promises an MTP head of 1 layer(s) and the files hold none"
    ] * promised
    assert checkpoint.quant == "BF16" and checkpoint.quant_bits == 16
    assert checkpoint.read_bytes < 1 << 20 < checkpoint.size_bytes


@every
def test_memory_and_traffic_are_plausible(name):
    truth, shape = known(name), shape_of(config(name), 2)
    need = Deployment(shape).need(4, 8192)
    assert need.target.weight_bytes == pytest.approx(2 * truth["parameters"], rel=0.03)
    one, many = (float(shape.pass_bytes(tokens, 1024).total) for tokens in (1, 64))
    assert one <= many < 2.3 * truth["parameters"] + shape.recurrent_bytes * 130
    assert 2 * shape.active_parameters == pytest.approx(one, rel=0.15)
    active = truth.get("published_active_parameters")
    embedding = shape.weights.embedding.parameters
    assert (
        active is None
        or min(abs(shape.active_parameters / active - 1), abs((shape.active_parameters + embedding) / active - 1))
        < 0.02
    )


def test_the_head_of_deepseek_v3_takes_what_its_readme_says():
    """14B behind the last layer: 11.5B of its own, 0.9B each of embedding and head."""
    truth, described = known("deepseek-v3"), architecture_of(config("deepseek-v3"))
    assert described.weights.mtp_head.parameters == pytest.approx(truth["published_mtp_parameters"], rel=0.02)
    assert described.parameters + described.weights.mtp_head.parameters == pytest.approx(685e9, rel=0.001)
    head = described.mtp_shape(1)
    assert head is not None and head.attention == (LatentAttention(1, 512, 64),)
    assert head.kv_bytes_per_token() == 1152 and head.size_bytes == 0


def test_head_and_encoder_fill_the_files_of_the_27b_hybrid():
    """55.56 GB of bf16 in the index: language model, MTP head, and the encoder of pictures."""
    described = architecture_of(config("qwen3.6-27b"))
    total = described.parameters + described.weights.mtp_head.parameters + ENCODER_27B
    assert 2 * total == pytest.approx(55.56e9, rel=0.001)
    head = described.mtp_shape(1)
    assert head is not None and head.kv_bytes_per_token() == 4 * (256 + 256) * 2


def test_the_state_of_the_hybrids_is_what_llama_cpp_stores():
    """149.625 MiB of Qwen3.8-27B, which has the layers of 3.6: tests/model/test_shape.py has the report."""
    assert shape_of(config("qwen3.6-27b"), 1).recurrent_bytes / 2**20 == 149.625
    assert shape_of(config("nemotron-3-nano-30b"), 1).layers == 29


def test_layers_that_reuse_a_cache_keep_none_and_a_second_table_is_read_by_rows():
    """Gemma 4 E4B: 18 of 42 layers have no keys; of its 7.5B parameters 2.8B are the table of the layers' inputs."""
    shape = shape_of(config("gemma-4-e4b"), 2)
    assert shape.layers == 24 and not shape.tied_embeddings
    assert shape.weights.embedding.parameters == 262_144 * 42 * 256
    assert shape.head.parameters == 262_144 * 2560
    assert float(shape.pass_bytes(1).total) == pytest.approx(2 * shape.active_parameters, rel=0.001)


def test_bytes_follow_the_bytes_of_a_parameter():
    half, whole = (shape_of(config("mixtral-8x7b"), size) for size in (0.5, 2))
    assert whole.size_bytes == 4 * half.size_bytes == 2 * 46_702_792_704
    assert half.experts == 8 and half.experts_per_token == 2 and not half.tied_embeddings


@pytest.mark.slow
@pytest.mark.skipif(find_spec("transformers") is None, reason="transformers builds the truth, and is no dependency")
def test_transformers_builds_the_same_today():
    tool = ROOT / "tools" / "architecture_truth.py"
    done = subprocess.run([sys.executable, tool], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr

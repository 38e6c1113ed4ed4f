"""Architectures: whatever a checkpoint's names and layouts, the logits of transformers' own loader and the sizes told beforehand."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
import transformers

from specgauge.profiler.engines.transformers import loading
from specgauge.profiler.engines.transformers.description import described
from specgauge.profiler.engines.transformers.skeleton import linears_of
from specgauge.profiler.errors import InputError

TEXT = torch.tensor([[3, 9, 27, 1, 60, 5]])
BASE: dict[str, Any] = {
    "vocab_size": 128, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "bos_token_id": None, "eos_token_id": None, "pad_token_id": 0,
    "initializer_range": 0.2,
}  # fmt: skip
ROPE = {
    "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
LATENT = {
    "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "kv_lora_rank": 16, "q_lora_rank": 16,
    "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 16, "num_key_value_heads": 4,
}  # fmt: skip
VISION = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28,
    "patch_size": 14,
}  # fmt: skip
LIBRARY: Any = transformers
CONFIGS: dict[str, Any] = {
    "scaled rotary": lambda: LIBRARY.LlamaConfig(**BASE, rope_parameters=ROPE),
    "biases": lambda: LIBRARY.Qwen2Config(**BASE),
    "tied head, norms of q and k": lambda: LIBRARY.Qwen3Config(**BASE, head_dim=16, tie_word_embeddings=True),
    "windows, scaled embedding": lambda: LIBRARY.Gemma2Config(**BASE, head_dim=16),
    "fused projections": lambda: LIBRARY.Phi3Config(**BASE),
    "experts": lambda: LIBRARY.Qwen3MoeConfig(**BASE, **EXPERTS, num_experts=4, head_dim=16),
    "latent attention, router in fp32": lambda: LIBRARY.DeepseekV3Config(**(BASE | EXPERTS | LATENT)),
    "an encoder of pictures": lambda: LIBRARY.Gemma3Config(
        text_config={**BASE, "head_dim": 16}, vision_config=VISION, mm_tokens_per_image=4
    ),
}
every = pytest.mark.parametrize("name", CONFIGS)


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def saved(name: str, folder: Path) -> Path:
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[name]()).float()
    for buffer_name, buffer in model.named_buffers():
        if "correction" in buffer_name:
            buffer.normal_()
    model.bfloat16().save_pretrained(folder)
    return folder


def own(folder: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()


@every
def test_bf16_gives_the_logits_of_transformers_own_loader(tmp_path, name):
    folder = saved(name, tmp_path / "model")
    assert torch.equal(loading.load(folder).model(TEXT).logits, own(folder)(TEXT).logits)


@every
@pytest.mark.parametrize("quant", ["bf16", "int8", "int4"])
def test_sizes_are_told_without_loading(tmp_path, name, quant):
    folder = saved(name, tmp_path / "model")
    if name == "experts" and quant != "bf16":
        with pytest.raises(InputError, match="of its weights lie in matrices"):
            described(folder, quant)
        return
    told, loaded = described(folder, quant), loading.load(folder, quant=quant)
    assert told.size_bytes == sum(held(loaded.model).values())
    assert told.parameters == sum(parameter.numel() for parameter in own(folder).parameters())
    assert told.size_bytes - told.unread_bytes == pytest.approx(loaded.weight_bytes, rel=0.01)
    assert 0 < told.head_bytes < told.size_bytes


def held(model: Any) -> dict[int, int]:
    """Bytes of every tensor of a model but of those that are computed."""
    computed = ("inv_freq", "embed_scale", "position_ids")
    buffers = [buffer for name, buffer in model.named_buffers() if not any(word in name for word in computed)]
    return {id(tensor): tensor.numel() * tensor.element_size() for tensor in (*model.parameters(), *buffers)}


def test_quantized_logits_of_a_vision_model_stay_near_and_its_encoder_as_it_was(tmp_path):
    folder = saved("an encoder of pictures", tmp_path / "model")
    loaded = loading.load(folder, quant="int8")
    exact = own(folder)(TEXT).logits.float()
    assert ((loaded.model(TEXT).logits.float() - exact).norm() / exact.norm()).item() < 0.1
    kept = [
        module for name, module in loaded.model.named_modules() if "vision" in name and type(module) is torch.nn.Linear
    ]
    assert kept
    assert not linears_of(loaded.model)


@every
def test_random_weights_give_finite_logits(tmp_path, name):
    CONFIGS[name]().save_pretrained(tmp_path / "shape")
    made = loading.load(tmp_path / "shape" / "config.json", quant="int4", random_weights=True)
    assert made.model(TEXT).logits.isfinite().all()


@pytest.mark.parametrize(
    "config",
    [
        LIBRARY.JambaConfig(**BASE),
        LIBRARY.MambaConfig(hidden_size=32, num_hidden_layers=2, vocab_size=128),
        LIBRARY.Lfm2Config(**BASE, layer_types=["conv", "full_attention"]),
    ],
    ids=["Jamba", "Mamba", "LFM2"],
)
def test_models_with_a_recurrent_state_are_refused(tmp_path, config):
    config.save_pretrained(tmp_path / "model")
    with pytest.raises(InputError, match="cannot roll back"):
        described(tmp_path / "model", "bf16", random=True)

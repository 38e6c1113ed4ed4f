"""Truth for tests/data/architectures: parameters of public models, as transformers builds them on the meta device.

    python tools/architecture_truth.py [NAME ...]        prints how each file stands against transformers
    python tools/architecture_truth.py --write [NAME]    and writes parameters and tensors into it
    python tools/architecture_truth.py --random 20       holds specgauge to 20 small random configs of each family

A file holds what was taken from a public source (config, published figures) and what this script adds to it:
parameters, the tensors by layer, the version. No weights are loaded, none are downloaded.
"""

import argparse
import json
import math
import random
import re
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "data" / "architectures"
LAYER = re.compile(r"^(.*?layers)\.(\d+)\.(.*)$")
Tensors = list[tuple[str, list[int]]]
WITHOUT_A_MODEL = ("qwen3_vl", "qwen3_vl_text", "qwen3_vl_moe", "qwen3_vl_moe_text", "ministral")
"""transformers makes no language model of these alone."""
WHOLE = ("gemma3", "gemma4", "llama4", "qwen3_5", "qwen3_5_moe")
"""Their own config holds a text_config; the families of that are looked at."""


def build(values: dict):
    """The config and the language model that transformers makes of `values`, on the meta device."""
    import torch
    from transformers import AutoModelForCausalLM  # pyright: ignore[reportMissingImports]
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # pyright: ignore[reportMissingImports]

    config = CONFIG_MAPPING[values["model_type"]](**values)
    with torch.device("meta"):
        return config, AutoModelForCausalLM.from_config(config)


def tensors_of(config: dict) -> Tensors:
    """Names and shapes of the language model's parameters that transformers makes of `config`."""
    _, model = build(config.get("text_config", config))
    return [(name, list(tensor.shape)) for name, tensor in model.named_parameters()]


def by_layer(tensors: Tensors) -> list[dict]:
    """The tensors, those of equal layers written once: [{prefix, layers, tensors: {name: shape}}]."""
    layers: dict[tuple[str, int], dict[str, list[int]]] = {}
    for name, shape in tensors:
        found = LAYER.match(name)
        prefix, number, rest = (found[1], int(found[2]), found[3]) if found else ("", -1, name)
        layers.setdefault((prefix, number), {})[rest] = shape
    groups: list[dict] = []
    for (prefix, number), held in layers.items():
        same = next((group for group in groups if group["prefix"] == prefix and group["tensors"] == held), None)
        if same is None:
            groups.append({"prefix": prefix, "layers": [number], "tensors": held})
        else:
            same["layers"].append(number)
    return groups


def compare_files(names: list[str], write: bool) -> int:
    """Files that differ from transformers; with `write` they are made equal to it."""
    import transformers  # pyright: ignore[reportMissingImports]

    differ = 0
    for path in sorted(FOLDER.glob("*.json")):
        if names and path.stem not in names:
            continue
        known = json.loads(path.read_text())
        tensors = tensors_of(known["config"])
        parameters = sum(math.prod(shape) for _, shape in tensors)
        print(
            f"{path.stem:24} transformers {transformers.__version__}: {parameters:,}, file: {known.get('parameters')}"
        )
        if write:
            known |= {"parameters": parameters, "transformers_version": transformers.__version__}
            known["tensors"] = by_layer(tensors)
            path.write_text(json.dumps(known, indent=1) + "\n")
        else:
            differ += parameters != known.get("parameters")
    return differ


def compare_random(each: int, seed: int) -> int:
    """Configs, of `each` of every family, whose parameters specgauge counts otherwise than transformers."""
    from specgauge.profiler.checkpoints.architecture import architecture_of
    from specgauge.profiler.checkpoints.config import config_of
    from specgauge.profiler.checkpoints.families import FAMILIES

    rng, differ, compared = random.Random(seed), 0, 0
    for family in FAMILIES:
        if family in WITHOUT_A_MODEL or family in WHOLE:
            continue
        for _ in range(each):
            values = random_config(rng, family)
            built, model = build(values)
            truth = sum(tensor.numel() for tensor in model.parameters())
            # As it was given, short, and as transformers saves it, with every default written out.
            for given in (values, json.loads(built.to_json_string())):
                ours = architecture_of(config_of(given)).parameters
                compared += 1
                if ours != truth:
                    differ += 1
                    print(f"{family}: transformers {truth:,}, specgauge {ours:,}: {json.dumps(values)}")
    print(f"{compared} configs compared, {differ} differ")
    return differ


EXPERTS = {
    "mixtral": "num_local_experts", "minimax_m2": "num_local_experts", "gpt_oss": "num_local_experts",
    "granitemoehybrid": "num_local_experts", "llama4_text": "num_local_experts", "qwen2_moe": "num_experts",
    "qwen3_moe": "num_experts", "qwen3_next": "num_experts", "qwen3_5_moe_text": "num_experts",
    "ernie4_5_moe": "moe_num_experts", "deepseek_v2": "n_routed_experts", "deepseek_v3": "n_routed_experts",
    "glm4_moe": "n_routed_experts", "glm4_moe_lite": "n_routed_experts", "nemotron_h": "n_routed_experts",
    "gemma4_text": "num_experts",
}  # fmt: skip
LATENT = ("deepseek_v2", "deepseek_v3", "glm4_moe_lite")
HEAD_DIM_IS_THEIRS = (*LATENT, "phi3", "stablelm", "bamba", "granitemoehybrid", "gemma4_text")
"""These take no head_dim from their config, or mean something else by it."""


def random_config(rng: random.Random, family: str) -> dict:
    """A small config of `family`, every key that a real one of it may have at random."""
    pick, kv_heads = rng.choice, rng.choice([1, 2, 4])
    heads, layers = kv_heads * pick([1, 2, 3]), pick([2, 4, 6, 7, 12])
    values = {
        "model_type": family, "vocab_size": pick([100, 128]), "hidden_size": heads * pick([8, 16, 32]),
        "intermediate_size": pick([24, 48]), "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": heads if family in LATENT else kv_heads, "tie_word_embeddings": pick([True, False]),
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "max_window_layers": pick([1, 2, 3]),
    }  # fmt: skip
    biases = (
        "attention_bias",
        "mlp_bias",
        "use_bias",
        "use_qkv_bias",
        "use_qk_norm",
        "attention_out_bias",
        "use_sliding_window",
    )
    values |= {key: pick([True, False]) for key in biases if pick([True, False, False])}
    if pick([True, False]) and family not in HEAD_DIM_IS_THEIRS:
        values["head_dim"] = pick([8, 16])
    if pick([True, False]):
        values["sliding_window"] = pick([4, 16])
    for part in (_experts, _latent, _states, _own):
        values |= part(rng, family, values)
    return values


def _experts(rng: random.Random, family: str, values: dict) -> dict:
    if family not in EXPERTS:
        return {}
    pick, layers = rng.choice, values["num_hidden_layers"]
    found = {
        EXPERTS[family]: pick([2, 4]), "num_experts_per_tok": pick([1, 2]), "moe_intermediate_size": pick([4, 12]),
        "shared_expert_intermediate_size": pick([4, 12]), "n_shared_experts": pick([1, 2]), "n_group": 1, "topk_group": 1,
        "first_k_dense_replace": 1 if family == "glm4_moe_lite" else pick([0, 1, 2]), "decoder_sparse_step": pick([1, 2]),
        "mlp_only_layers": pick([[], [0], [1]]), "interleave_moe_layer_step": pick([1, 2]), "intermediate_size_mlp": 40,
        "shared_intermediate_size": pick([8, 20]), "moe_shared_expert_intermediate_size": 16,
    }  # fmt: skip
    if family == "ernie4_5_moe":
        del found["n_shared_experts"]
        found |= {"moe_k": 1, "moe_num_shared_experts": pick([1, 2]), "moe_layer_start_index": pick([0, 1])}
        found |= {"moe_layer_end_index": layers - 1, "moe_layer_interval": pick([1, 1, 2]), "use_bias": False}
    if EXPERTS[family] == "num_local_experts":
        del found["moe_intermediate_size"]
    return found


def _latent(rng: random.Random, family: str, values: dict) -> dict:
    if family not in LATENT:
        return {}
    pick = rng.choice
    return {
        "kv_lora_rank": pick([8, 16]), "q_lora_rank": pick([None, 12]), "qk_rope_head_dim": pick([4, 8]),
        "qk_nope_head_dim": pick([8, 12]), "v_head_dim": pick([8, 10]),
    }  # fmt: skip


def _states(rng: random.Random, family: str, values: dict) -> dict:
    pick, heads, layers = rng.choice, rng.choice([2, 4]), range(values["num_hidden_layers"])
    if family.startswith(("qwen3_next", "qwen3_5")):
        return {
            "linear_num_value_heads": pick([4, 8]), "linear_num_key_heads": pick([2, 4]), "linear_key_head_dim": pick([8, 16]),
            "linear_value_head_dim": pick([8, 12]), "linear_conv_kernel_dim": pick([2, 4]), "full_attention_interval": pick([2, 3, 4]),
        }  # fmt: skip
    if family in ("bamba", "granitemoehybrid"):
        found = {
            "mamba_n_heads": heads, "mamba_expand": 2, "mamba_d_head": 2 * values["hidden_size"] // heads, "mamba_n_groups": pick([1, 2]),
            "mamba_d_state": pick([8, 16]), "mamba_d_conv": pick([2, 4]), "mamba_conv_bias": pick([True, False]),
            "mamba_proj_bias": pick([True, False]),
        }  # fmt: skip
        if family == "bamba":
            return found | {"attn_layer_indices": pick([[1], [0, 1]])}
        types = [pick(["mamba", "attention"]) for _ in layers]
        return found | {"layer_types": types, "num_local_experts": pick([0, 4])}
    if family == "nemotron_h":
        return {
            "hybrid_override_pattern": "".join(pick("ME*-") for _ in layers), "mamba_num_heads": heads, "conv_kernel": pick([2, 4]),
            "mamba_head_dim": pick([8, 16]), "ssm_state_size": pick([8, 16]), "n_groups": pick([1, 2]), "head_dim": 16,
            "use_conv_bias": pick([True, False]), "tie_word_embeddings": False,
        }  # fmt: skip
    return {}


def _own(rng: random.Random, family: str, values: dict) -> dict:
    if family != "gemma4_text":
        return {}
    pick, layers = rng.choice, values["num_hidden_layers"]
    shared = pick([0, 0, 1]) if layers > 6 else 0
    return {
        "head_dim": pick([8, 16]), "global_head_dim": pick([16, 32]), "attention_k_eq_v": pick([True, False]),
        "num_global_key_value_heads": pick([None, 1]), "hidden_size_per_layer_input": pick([0, 8]),
        "vocab_size_per_layer_input": values["vocab_size"], "use_double_wide_mlp": pick([True, False]), "moe_intermediate_size": 12,
        "enable_moe_block": pick([True, False]), "top_k_experts": 2, "sliding_window": pick([4, 16]), "num_kv_shared_layers": shared,
    }  # fmt: skip


def main() -> int:
    """0 where everything agrees with transformers, or was written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="files of tests/data/architectures; all of them without")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="random configs of each family")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    differ = compare_random(asked.random, asked.seed) if asked.random else compare_files(asked.names, asked.write)
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())

"""Folders of models for tests: headers as a writer makes them, the data behind them a hole that takes no disk."""

import json
import math
import os
import struct
from pathlib import Path

from specgauge.profiler.checkpoints.safetensors import DTYPE_BITS

Tensors = dict[str, tuple[str, list[int]]]
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 64, "hidden_size": 32,
    "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "tie_word_embeddings": False, "max_position_embeddings": 512,
}  # fmt: skip


def header(tensors: Tensors, metadata: dict | None = None) -> bytes:
    """Length and JSON, offsets one behind the other."""
    entries: dict = {} if metadata is None else {"__metadata__": metadata}
    at = 0
    for name, (dtype, shape) in tensors.items():
        size = math.prod(shape) * DTYPE_BITS[dtype] // 8
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


def data_bytes(tensors: Tensors) -> int:
    return sum(math.prod(shape) * DTYPE_BITS[dtype] // 8 for dtype, shape in tensors.values())


def write_weights(path: Path, tensors: Tensors, metadata: dict | None = None) -> Path:
    begin = header(tensors, metadata)
    with open(path, "wb") as file:
        file.write(begin)
    os.truncate(path, len(begin) + data_bytes(tensors))
    return path


def llama_tensors(config: dict = LLAMA, dtype: str = "BF16") -> Tensors:
    """As a Llama's checkpoint names them."""
    hidden, width = config["hidden_size"], config["intermediate_size"]
    keys = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    rows = config["vocab_size"]
    tensors: Tensors = {"model.embed_tokens.weight": (dtype, [rows, hidden]), "lm_head.weight": (dtype, [rows, hidden])}
    for layer in range(config["num_hidden_layers"]):
        begin = f"model.layers.{layer}"
        for name, shape in {
            "self_attn.q_proj": [hidden, hidden], "self_attn.k_proj": [keys, hidden], "self_attn.v_proj": [keys, hidden],
            "self_attn.o_proj": [hidden, hidden], "mlp.gate_proj": [width, hidden], "mlp.up_proj": [width, hidden],
            "mlp.down_proj": [hidden, width], "input_layernorm": [hidden], "post_attention_layernorm": [hidden],
        }.items():  # fmt: skip
            tensors[f"{begin}.{name}.weight"] = (dtype, shape)
    return tensors | {"model.norm.weight": (dtype, [hidden])}


def model_folder(folder: Path, config: dict | None = None, tensors: Tensors | None = None, parts: int = 1) -> Path:
    """A folder with config.json and weights, in parts with their index where there are several."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(LLAMA if config is None else config))
    tensors = llama_tensors() if tensors is None else tensors
    if parts == 1:
        write_weights(folder / "model.safetensors", tensors, {"format": "pt"})
        return folder
    names = [f"model-{n + 1:05}-of-{parts:05}.safetensors" for n in range(parts)]
    weight_map = {tensor: names[at % parts] for at, tensor in enumerate(tensors)}
    for name in names:
        write_weights(folder / name, {tensor: tensors[tensor] for tensor in tensors if weight_map[tensor] == name})
    index = {"metadata": {"total_size": data_bytes(tensors)}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder

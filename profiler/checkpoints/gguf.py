"""GGUF files, read by their header alone: a bounded reader that names what is wrong with a file.

A GGUF file is, in little-endian numbers (u32, u64): the magic "GGUF", version u32, tensor count u64, key count u64; the
keys, each a string, a value type u32 and a value; the tensors, each a name, its dimensions, a type u32 and an offset
u64; padding to the alignment; the tensor data. A string is its length u64 and its bytes; an array is its element type
u32, its count u64 and its elements. (Source: docs/gguf.md of the ggml project; versions 2 and 3 have this layout.)

No count or length is believed before it was held against the size of the file, so no header makes this reader allocate
or loop for more than the file holds. Vocabularies are walked and hashed, never kept.
"""

import hashlib
import mmap
import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError
from ..files import file_sha256
from ..records import ModelFile

# Type id -> (name, weights per block, bytes per block); source: ggml's type traits.
TENSOR_TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}

# general.file_type of the mixtures that llama.cpp names after their main type.
MIXTURES = {11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M"}

STRING, ARRAY = 8, 9
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
KEPT_ARRAY = 1024
"""Longer arrays of numbers, and all arrays of strings, are walked over and not kept."""
EMBEDDINGS = ("token_embd.weight", "per_layer_token_embd.weight", "output.weight")
WHOLE_HASH_BYTES = 4 << 30
END_HASH_BYTES = 64 << 20

Value = int | float | bool | str | tuple[int | float | bool, ...]


@dataclass(frozen=True)
class TensorInfo:
    """One tensor as the header lists it; `bytes` is 0 for a type that this reader does not know."""

    name: str
    dims: tuple[int, ...]
    type: str
    offset: int
    bytes: int

    @property
    def weights(self) -> int:
        """Number of elements."""
        count = 1
        for dim in self.dims:
            count *= dim
        return count


@dataclass(frozen=True)
class Vocabulary:
    """What a drafter and its target must share. Hashes are of the arrays' bytes, string lengths included."""

    model: str
    pre: str
    tokens: int
    tokens_sha256: str
    merges: int
    merges_sha256: str
    bos: int | None
    eos: int | None

    def sha256(self) -> str:
        """Hash of tokens, family, pre-tokenizer and begin and end tokens; empty where the file has no vocabulary.

        Merges are left out: they decide how a text becomes tokens, and a draft only ever sees tokens. So are padding
        and unknown tokens, which re-quantizers like to change.
        """
        if not self.tokens:
            return ""
        identity = f"{self.model}|{self.pre}|{self.tokens}|{self.tokens_sha256}|{self.bos}|{self.eos}"
        return hashlib.sha256(identity.encode()).hexdigest()


@dataclass(frozen=True)
class GgufHeader:
    """Everything of a header but the vocabulary itself. `data_offset`: where the tensor data begin."""

    path: str
    version: int
    size_bytes: int
    data_offset: int
    values: dict[str, Value]
    tensors: tuple[TensorInfo, ...]
    vocabulary: Vocabulary

    def text(self, key: str) -> str:
        """The value of `key`, or an empty string where it is missing or no string."""
        value = self.values.get(key)
        return value if isinstance(value, str) else ""

    def integer(self, key: str) -> int | None:
        """The value of `key`, or None where it is missing or no integer."""
        return _integer(self.values, key)


def _integer(values: dict[str, Value], key: str) -> int | None:
    value = values.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


class _Cursor:
    """A position in the mapped file; every read is checked against its end."""

    def __init__(self, path: str, data: mmap.mmap, size: int) -> None:
        self.path, self.data, self.size, self.at = path, data, size, 4

    def ends_early(self) -> InputError:
        return InputError(
            f"{self.path} is truncated or damaged: its header points past the end of the file at byte {self.at:,} of "
            f"{self.size:,}; download it again"
        )

    def damaged(self, what: str) -> InputError:
        return InputError(f"{self.path} is damaged: {what} (near byte {self.at:,}); download it again")

    def number(self, form: str) -> int | float | bool:
        size = struct.calcsize(form)
        if self.at + size > self.size:
            raise self.ends_early()
        value = struct.unpack_from(form, self.data, self.at)[0]
        self.at += size
        return value

    def count(self, form: str = "<Q") -> int:
        return int(self.number(form))

    def string(self) -> str:
        length = self.count()
        if length > self.size - self.at:
            raise self.ends_early()
        text = self.data[self.at : self.at + length].decode("utf-8", "replace")
        self.at += length
        return text

    def skip_strings(self, count: int) -> None:
        """Walk over `count` strings: a loop kept small, for vocabularies of some 250,000 tokens."""
        data, at, size = self.data, self.at, self.size
        length_at = struct.Struct("<Q").unpack_from
        for _ in range(count):
            if at + 8 > size:
                raise self.ends_early()
            at += 8 + length_at(data, at)[0]
        if at > size:
            raise self.ends_early()
        self.at = at


@dataclass(frozen=True)
class _Strings:
    """An array of strings that was walked over: how many, and the hash of its bytes."""

    count: int
    sha256: str


def _array(cursor: _Cursor) -> Value | _Strings | None:
    """The array at the cursor: short ones of numbers by value, strings by hash, long ones of numbers not at all."""
    kind, count = cursor.count("<I"), cursor.count()
    if kind == STRING:
        if count > (cursor.size - cursor.at) // 8:
            raise cursor.ends_early()
        begin = cursor.at
        cursor.skip_strings(count)
        return _Strings(count, hashlib.sha256(cursor.data[begin : cursor.at]).hexdigest())
    if kind not in SCALARS:
        raise cursor.damaged(f"it has an array of elements of type {kind}, which GGUF does not have")
    size = struct.calcsize(SCALARS[kind])
    if count > (cursor.size - cursor.at) // size:
        raise cursor.ends_early()
    begin = cursor.at
    cursor.at += count * size
    if count > KEPT_ARRAY:
        return None
    return struct.unpack_from(f"<{count}{SCALARS[kind][1]}", cursor.data, begin)


def _values(cursor: _Cursor, count: int) -> tuple[dict[str, Value], dict[str, _Strings]]:
    """The keys of the header: values that were kept, and arrays of strings by hash."""
    values: dict[str, Value] = {}
    strings: dict[str, _Strings] = {}
    for _ in range(count):
        key, kind = cursor.string(), cursor.count("<I")
        if kind == STRING:
            values[key] = cursor.string()
        elif kind in SCALARS:
            values[key] = cursor.number(SCALARS[kind])
        elif kind == ARRAY:
            array = _array(cursor)
            if isinstance(array, _Strings):
                strings[key] = array
            elif array is not None:
                values[key] = array
        else:
            raise cursor.damaged(f"key {key[:60]!r} has a value of type {kind}, which GGUF does not have")
    return values, strings


def _tensor(cursor: _Cursor) -> TensorInfo:
    """The tensor info at the cursor."""
    name, n_dims = cursor.string(), cursor.count("<I")
    if not 1 <= n_dims <= 4:
        raise cursor.damaged(f"tensor {name[:60]!r} has {n_dims} dimensions, where GGUF allows 1 to 4")
    dims = tuple(cursor.count() for _ in range(n_dims))
    kind, offset = cursor.count("<I"), cursor.count()
    type_name, block, block_bytes = TENSOR_TYPES.get(kind, (f"type-{kind}", 1, 0))
    if dims[0] % block:
        raise cursor.damaged(
            f"tensor {name[:60]!r} has rows of {dims[0]} weights, no multiple of {type_name}'s {block}"
        )
    info = TensorInfo(name, dims, type_name, offset, 0)
    if info.weights > 64 * cursor.size:
        raise cursor.damaged(f"tensor {name[:60]!r} has {info.weights:,} weights, more than the file can hold")
    return TensorInfo(name, dims, type_name, offset, info.weights // block * block_bytes)


def _check_data(cursor: _Cursor, tensors: tuple[TensorInfo, ...], data_offset: int) -> None:
    """Raise InputError unless the tensors' data lie inside the file."""
    promised = max((info.offset + info.bytes for info in tensors), default=0)
    present = max(0, cursor.size - data_offset)
    if promised > present:
        raise InputError(
            f"{cursor.path} is truncated: its header promises {promised:,} bytes of tensor data, the file ends "
            f"{promised - present:,} bytes early; download it again"
        )
    if len({info.name for info in tensors}) < len(tensors):
        raise cursor.damaged("it lists a tensor twice")


def _vocabulary(values: dict[str, Value], strings: dict[str, _Strings]) -> Vocabulary:
    none = _Strings(0, "")
    tokens = strings.get("tokenizer.ggml.tokens", none)
    merges = strings.get("tokenizer.ggml.merges", none)
    return Vocabulary(
        model=str(values.get("tokenizer.ggml.model", "")),
        pre=str(values.get("tokenizer.ggml.pre", "")),
        tokens=tokens.count,
        tokens_sha256=tokens.sha256,
        merges=merges.count,
        merges_sha256=merges.sha256,
        bos=_integer(values, "tokenizer.ggml.bos_token_id"),
        eos=_integer(values, "tokenizer.ggml.eos_token_id"),
    )


def _parse(cursor: _Cursor) -> GgufHeader:
    """The header behind the magic."""
    version = cursor.count("<I")
    if version not in (2, 3):
        big_endian = version in (2 << 24, 3 << 24)
        said = "a big-endian file" if big_endian else f"GGUF version {version}"
        raise InputError(f"{cursor.path} is {said}; specgauge reads little-endian versions 2 and 3: convert it again")
    n_tensors, n_keys = cursor.count(), cursor.count()
    # The smallest tensor info takes 32 bytes (one dimension, no name), the smallest key 13.
    if n_tensors > cursor.size // 32 or n_keys > cursor.size // 13:
        raise cursor.damaged(
            f"its header claims {n_tensors:,} tensors and {n_keys:,} keys, more than the file can hold"
        )
    values, strings = _values(cursor, n_keys)
    tensors = tuple(_tensor(cursor) for _ in range(n_tensors))
    alignment = values.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1) or alignment > 1 << 30:
        raise cursor.damaged(f"its alignment is {str(alignment)[:60]}, no power of two")
    data_offset = -(-cursor.at // alignment) * alignment
    _check_data(cursor, tensors, data_offset)
    return GgufHeader(cursor.path, version, cursor.size, data_offset, values, tensors, _vocabulary(values, strings))


def _regular_size(path: str) -> int:
    """Bytes of the file at `path`. Raises InputError unless it is a file that can hold a header."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; give the path of a .gguf file") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; give the path of a .gguf file") from None
    if stat.S_ISDIR(status.st_mode):
        raise InputError(f"{path} is a folder; give the path of the .gguf file in it")
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path} is no regular file; give the path of a .gguf file")
    if status.st_size == 0:
        raise InputError(f"{path} is empty; download it again")
    return status.st_size


def _check_magic(path: str, begin: bytes) -> None:
    if begin.startswith(b"version https://git-lfs"):
        raise InputError(f"{path} is a Git LFS pointer, not the weights: run git lfs pull in its folder")
    if begin[:4] != b"GGUF":
        raise InputError(f"{path} is not a GGUF file (it begins with {begin[:8]!r}); give the path of a .gguf file")
    if len(begin) < 24:
        raise InputError(f"{path} is truncated: the file ends inside its header; download it again")


def read_header(path: str | os.PathLike[str]) -> GgufHeader:
    """The header of the GGUF file at `path`, without its vocabulary. Raises InputError, one line, for any other file."""
    name = os.fspath(path)
    if not name.isprintable():
        raise InputError(f"{name!r} is no path that can be shown on one line; give the path of a .gguf file")
    size = _regular_size(name)
    try:
        with open(name, "rb") as file:
            _check_magic(name, file.read(24))
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _parse(_Cursor(name, data, min(size, len(data))))
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror}; check its permissions") from None


def weights_sha256(header: GgufHeader) -> str:
    """Hash of the file, in hex; above 4 GiB "partial:" and the hash of header, size, and 64 MiB at both ends of the data."""
    try:
        if header.size_bytes <= WHOLE_HASH_BYTES:
            return file_sha256(header.path)
        with open(header.path, "rb") as file:
            digest = hashlib.sha256(file.read(header.data_offset + END_HASH_BYTES))
            digest.update(struct.pack("<Q", header.size_bytes))
            file.seek(-END_HASH_BYTES, os.SEEK_END)
            digest.update(file.read(END_HASH_BYTES))
            return f"partial:{digest.hexdigest()}"
    except OSError as error:
        raise InputError(f"{header.path} cannot be read: {error.strerror}; check the disk") from None


def quantization(header: GgufHeader) -> str:
    """The type that holds most bytes of the weight matrices, embeddings and output head aside.

    A mixture of llama.cpp (Q4_K_M) is named so where the file says it and its main type agrees.
    """
    held: dict[str, int] = {}
    for info in header.tensors:
        if len(info.dims) > 1 and info.name not in EMBEDDINGS:
            held[info.type] = held.get(info.type, 0) + max(info.bytes, 1)
    if not held:
        return "unknown"
    main = max(held, key=lambda name: held[name])
    mixture = MIXTURES.get(header.integer("general.file_type") or 0, "")
    return mixture if mixture.startswith(main + "_") else main


def is_recurrent(header: GgufHeader) -> bool:
    """Whether some layers carry state that is no KV cache: state space, linear attention, short convolution, RWKV."""
    marks = (".ssm.", ".wkv.", ".shortconv.", "linear_attention", "full_attention_interval")
    return any(mark in key for key in header.values for mark in marks)


def head_bytes(header: GgufHeader) -> int:
    """Bytes of the output head: of `output.weight`, or of the token embedding that serves as one."""
    sizes = {info.name: info.bytes for info in header.tensors}
    return sizes.get("output.weight", sizes.get("token_embd.weight", 0))


def model_file(path: str | os.PathLike[str], label: str | None = None) -> ModelFile:
    """What a profile keeps of the file at `path`; `label` is its file name without ending by default.

    Reads the header and hashes the file. Raises InputError, one line, for a file that is no single whole model.
    """
    header = read_header(path)
    if not header.tensors:
        raise InputError(f"{header.path} holds no weights (a vocabulary only?); give the .gguf file of a model")
    parts = header.integer("split.count") or 1
    if parts > 1:
        raise InputError(
            f"{header.path} is one of {parts} parts; join them with llama-gguf-split --merge, give the result"
        )
    architecture = header.text("general.architecture") or "unknown"
    absolute = os.path.abspath(header.path)
    return ModelFile(
        label=label or Path(absolute).stem,
        path=absolute,
        sha256=weights_sha256(header),
        size_bytes=header.size_bytes,
        name=header.text("general.name") or Path(absolute).stem,
        architecture=architecture,
        quant=quantization(header),
        parameters=sum(info.weights for info in header.tensors),
        head_bytes=head_bytes(header),
        tokenizer_sha256=header.vocabulary.sha256(),
        recurrent=is_recurrent(header),
        mtp_layers=max(0, header.integer(f"{architecture}.nextn_predict_layers") or 0),
    )

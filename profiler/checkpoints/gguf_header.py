"""GGUF files, read by their header alone: a bounded reader that names what is wrong with a file.

A GGUF file is, in little-endian numbers (u32, u64): the magic "GGUF", version u32, tensor count u64, key count u64; the
keys, each a string, a value type u32 and a value; the tensors, each a name, its dimensions, a type u32 and an offset
u64; padding to the alignment; the tensor data. A string is its length u64 and its bytes; an array is its element type
u32, its count u64 and its elements. (Source: docs/gguf.md of the ggml project; versions 2 and 3 have this layout.)

No count or length is believed before it was held against the size of the file, so no header makes this reader allocate
or loop for more than the file holds; what is kept of it is bounded besides, since a number of one byte becomes an object
of thirty. Of long arrays only the tokens are kept; merges are walked and hashed, scores are not even read.
"""

import hashlib
import os
import re
import struct
from array import array
from dataclasses import dataclass, field, replace

from ..errors import InputError
from .gguf_cursor import (
    ARRAY,
    MOST_KEYS,
    MOST_TENSORS,
    NO_STRINGS,
    SCALARS,
    STRING,
    Block,
    Cursor,
    Strings,
)
from .source import open_source

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
    42: ("Q2_0", 64, 18),
}

TOKENS, MERGES, TOKEN_TYPES = (f"tokenizer.ggml.{name}" for name in ("tokens", "merges", "token_type"))
UNUSED = struct.pack("<i", 5)
"""The type of tokens that no text becomes: padding up to the rows of the embedding (llama.cpp's LLAMA_TOKEN_TYPE_UNUSED)."""
PLACEHOLDER = re.compile(rb"\[PAD\d+\]|<dummy\d+>")
"""Names that converters give to padding."""
MOST_PLACEHOLDERS = 1 << 16
"""No embedding is padded further than that."""

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
    entries: bytes = field(default=b"", repr=False)
    """The real tokens as the file has them, length and text of each: checkpoint.Tokenizer's `entries`."""
    real_tokens: int = 0
    """How many `entries` are: `tokens` without the padding behind them."""

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
    """Everything of a header but long arrays. `data_offset`: where the tensor data begin."""

    path: str
    version: int
    size_bytes: int
    data_offset: int
    values: dict[str, Value]
    tensors: tuple[TensorInfo, ...]
    vocabulary: Vocabulary
    dropped: tuple[str, ...] = ()
    """Keys whose text was too long to be kept."""
    read_bytes: int = 0
    """Bytes of the file that were read for this."""

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


@dataclass
class _Found:
    """What the keys of a header hold: values that were kept, arrays by where they are, keys that were too long."""

    values: dict[str, Value]
    strings: dict[str, Strings]
    blocks: dict[str, Block]
    dropped: list[str]
    token_ends: array


def _read_array(cursor: Cursor, key: str, found: _Found) -> None:
    """The array at the cursor: short ones of numbers by value, strings by hash, long ones of numbers not at all."""
    kind, count = cursor.count("<I"), cursor.count()
    if kind == STRING:
        found.strings[key] = cursor.strings_of(count, found.token_ends if key == TOKENS else None)
        return
    if kind not in SCALARS:
        raise cursor.damaged(f"it has an array of elements of type {kind}, which GGUF does not have")
    found.blocks[key] = Block(kind, cursor.at, count)
    numbers = cursor.numbers_of(kind, count)
    if numbers is not None:
        found.values[key] = numbers


def _read_keys(cursor: Cursor, count: int) -> _Found:
    """The keys of the header."""
    found = _Found({}, {}, {}, [], array("Q"))
    for _ in range(count):
        key, kind = cursor.name(), cursor.count("<I")
        if key in found.values or key in found.strings or key in found.blocks:
            raise cursor.damaged(f"it has key {key[:60]!r} twice")
        if kind == STRING:
            text = cursor.string()
            if text is None:
                found.dropped.append(key)
            else:
                found.values[key] = text
        elif kind in SCALARS:
            found.values[key] = cursor.number(SCALARS[kind])
        elif kind == ARRAY:
            _read_array(cursor, key, found)
        else:
            raise cursor.damaged(f"key {key[:60]!r} has a value of type {kind}, which GGUF does not have")
    return found


def _real_tokens(cursor: Cursor, found: _Found) -> Strings:
    """The tokens, with those that are real in `entries`: up to the last that is neither unused nor a placeholder."""
    tokens = found.strings.get(TOKENS, NO_STRINGS)
    if not tokens.count:
        return tokens
    used = _used_tokens(cursor, found.blocks.get(TOKEN_TYPES), tokens.count)
    ends = found.token_ends
    entries = cursor.source.read(tokens.begin, ends[used - 1] if used else 0)
    for _ in range(min(used, MOST_PLACEHOLDERS)):
        begin = ends[used - 2] if used > 1 else 0
        if not PLACEHOLDER.fullmatch(entries, begin + 8, ends[used - 1]):
            break
        used -= 1
    cut = ends[used - 1] if used else 0
    found.token_ends = ends = array("Q")  # freed before the copy
    return replace(tokens, entries=entries[:cut], kept=used)


def _used_tokens(cursor: Cursor, types: Block | None, count: int) -> int:
    """How many tokens there are up to the last whose type is not "unused"; all of them where types are not told."""
    if types is None or types.count != count or SCALARS[types.kind] not in ("<i", "<I"):
        return count
    content = cursor.source.read(types.begin, 4 * count)
    while count and content.startswith(UNUSED, 4 * count - 4):
        count -= 1
    return count


def _tensor(cursor: Cursor) -> TensorInfo:
    """The tensor info at the cursor."""
    name, n_dims = cursor.name(), cursor.count("<I")
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


def _check_data(cursor: Cursor, tensors: tuple[TensorInfo, ...], data_offset: int) -> None:
    """Raise InputError unless the tensors' data lie inside the file."""
    promised = max((info.offset + info.bytes for info in tensors), default=0)
    present = max(0, cursor.size - data_offset)
    if promised > present:
        raise InputError(
            f"{cursor.path} is truncated: its header promises {promised:,} bytes of tensor data, the file ends "
            f"{promised - present:,} bytes early; download it again"
        )
    if sum(info.bytes for info in tensors) > present:
        raise cursor.damaged("its tensors overlap")
    if len({info.name for info in tensors}) < len(tensors):
        raise cursor.damaged("it lists a tensor twice")


def _vocabulary(values: dict[str, Value], tokens: Strings, merges: Strings) -> Vocabulary:
    return Vocabulary(
        model=str(values.get("tokenizer.ggml.model", "")),
        pre=str(values.get("tokenizer.ggml.pre", "")),
        tokens=tokens.count,
        tokens_sha256=tokens.sha256,
        merges=merges.count,
        merges_sha256=merges.sha256,
        bos=_integer(values, "tokenizer.ggml.bos_token_id"),
        eos=_integer(values, "tokenizer.ggml.eos_token_id"),
        entries=tokens.entries,
        real_tokens=tokens.kept,
    )


def _parse(cursor: Cursor) -> GgufHeader:
    """The header behind the magic."""
    version = _version(cursor)
    n_tensors, n_keys = _counts(cursor)
    found = _read_keys(cursor, n_keys)
    tensors = tuple(_tensor(cursor) for _ in range(n_tensors))
    alignment = _alignment(cursor, found.values)
    data_offset = -(-cursor.at // alignment) * alignment
    _check_data(cursor, tensors, data_offset)
    tokens, merges = _real_tokens(cursor, found), found.strings.get(MERGES, NO_STRINGS)
    return GgufHeader(
        path=cursor.path,
        version=version,
        size_bytes=cursor.size,
        data_offset=data_offset,
        values=found.values,
        tensors=tensors,
        vocabulary=_vocabulary(found.values, tokens, merges),
        dropped=tuple(found.dropped),
        read_bytes=cursor.source.read_bytes,
    )


def _version(cursor: Cursor) -> int:
    version = cursor.count("<I")
    if version not in (2, 3):
        big_endian = version in (2 << 24, 3 << 24)
        said = "a big-endian file" if big_endian else f"GGUF version {version}"
        raise InputError(f"{cursor.path} is {said}; specgauge reads little-endian versions 2 and 3: convert it again")
    return version


def _counts(cursor: Cursor) -> tuple[int, int]:
    """Tensors and keys, as many as the file can hold and a model can have."""
    n_tensors, n_keys = cursor.count(), cursor.count()
    # The smallest tensor info takes 32 bytes (one dimension, no name), the smallest key 13.
    if n_tensors > cursor.size // 32 or n_keys > cursor.size // 13:
        raise cursor.damaged(
            f"its header claims {n_tensors:,} tensors and {n_keys:,} keys, more than the file can hold"
        )
    if n_tensors > MOST_TENSORS or n_keys > MOST_KEYS:
        raise cursor.damaged(f"its header claims {n_tensors:,} tensors and {n_keys:,} keys, more than any model has")
    return n_tensors, n_keys


def _alignment(cursor: Cursor, values: dict[str, Value]) -> int:
    alignment = values.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1) or alignment > 1 << 30:
        raise cursor.damaged(f"its alignment is {str(alignment)[:60]!r}, no power of two")
    return alignment


def _check_magic(path: str, begin: bytes) -> None:
    if begin.startswith(b"version https://git-lfs"):
        raise InputError(f"{path} is a Git LFS pointer, not the weights: run git lfs pull in its folder")
    if begin[:4] != b"GGUF":
        raise InputError(f"{path} is not a GGUF file (it begins with {begin[:8]!r}); give the path of a .gguf file")
    if len(begin) < 24:
        raise InputError(f"{path} is truncated: the file ends inside its header; download it again")


def read_header(path: str | os.PathLike[str]) -> GgufHeader:
    """The header of the GGUF file at `path`. Raises InputError, one line, for any other file."""
    with open_source(path, ".gguf file") as source:
        _check_magic(source.path, source.read(0, min(24, source.size)))
        return _parse(Cursor(source))

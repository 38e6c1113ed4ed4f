"""Safetensors files, read by their headers alone.

A file is the length of its header (u64, little-endian), the header, and the tensors' data. The header is a JSON object of
name -> {dtype, shape, data_offsets}; offsets count from the end of the header, and the data hold no holes (source:
the format's README, huggingface/safetensors). Nothing is believed before it was held against the file's size.
"""

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ..errors import InputError
from ..files import shown
from .json_file import INDEX_BYTES, Content, read_content
from .source import open_source

DTYPE_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "C64": 64,
    "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip
HEADER_BYTES = 100_000_000
"""The format's own bound."""
BEGIN_BYTES = 32
"""Enough to tell other formats; no header of a tensor is shorter."""
MAX_DIMS = 64
MOST_TENSORS = 200_000
"""DeepSeek-V3 has 89,881 in 163 parts."""
INDEX = "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


class _Entry(msgspec.Struct):
    """One value of the header; "__metadata__" has none of these fields."""

    dtype: str = ""
    shape: tuple[int, ...] | None = None
    data_offsets: tuple[int, int] | None = None


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


@dataclass(frozen=True)
class StoredTensor:
    """One tensor as the header lists it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def elements(self) -> int:
        """Number of stored elements, packed or not."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def size_bytes(self) -> int:
        """Bytes in the file."""
        return self.end - self.begin


@dataclass(frozen=True)
class Header:
    """The tensors of one file; `read_bytes` is what it took to know them."""

    path: str
    tensors: tuple[StoredTensor, ...]
    size_bytes: int
    read_bytes: int


@dataclass(frozen=True)
class WeightFiles:
    """All headers of a model, in the order of its files; `read_bytes` counts the index too."""

    headers: tuple[Header, ...]
    read_bytes: int

    @property
    def tensors(self) -> tuple[StoredTensor, ...]:
        """Those of all files."""
        return tuple(tensor for header in self.headers for tensor in header.tensors)


def read_header(path: str | os.PathLike[str]) -> Header:
    """The header of one file, its tensors by offset. Raises InputError, one line, for anything that is none."""
    with open_source(path, ".safetensors file") as source:
        begin = source.read(0, min(BEGIN_BYTES, source.size))
        length = _header_length(source.path, begin, source.size)
        held = begin[8 : 8 + length]
        content = Content(source.path, held + source.read(8 + len(held), length - len(held)))
    return Header(source.path, _tensors(content, source.size - 8 - length), source.size, source.read_bytes)


def _header_length(name: str, begin: bytes, size: int) -> int:
    """The header's bytes, from those that the file begins with, held against its `size`."""
    length = struct.unpack("<Q", begin[:8])[0] if size >= 8 else 0
    # A length may begin with the bytes of another format: only what stands behind it tells.
    if begin[8:9] != b"{" or not 2 <= length <= HEADER_BYTES:
        raise _something_else(name, begin, size)
    if length > size - 8:
        raise InputError(
            f"{name} is truncated: its header takes {length:,} bytes, the file has {size:,}; download it again"
        )
    return length


def _something_else(name: str, begin: bytes, size: int) -> InputError:
    """The one line for a file that is no safetensors, named for what it is."""
    if begin.startswith(b"version https://git-lfs"):
        return InputError(f"{name} is a Git LFS pointer, not the weights: run git lfs pull in its folder")
    if begin.startswith((b"\x80", b"PK\x03\x04")):
        return InputError(f"{name} is a pickle, whatever its name says: never opened here; convert it to safetensors")
    if begin.startswith(b"GGUF"):
        return InputError(f"{name} is a GGUF file with another name: rename it to .gguf")
    what = f"it begins with {begin[:8]!r}" if size >= 8 else f"it has {size} bytes"
    return InputError(f"{name} is no safetensors file ({what}); download it again")


def _tensors(content: Content, data_bytes: int) -> tuple[StoredTensor, ...]:
    """The checked tensors of the header `content`, in front of `data_bytes` of data."""
    content.check_entries(4 * MOST_TENSORS + 1024, "model")
    entries = content.decode(dict[str, _Entry])
    entries.pop("__metadata__", None)
    if content.data.count(b'"data_offsets"') != len(entries):
        raise content.damaged("its header lists a tensor or a field twice, or one without data_offsets")
    tensors = sorted(
        (_tensor(content, name, entry) for name, entry in entries.items()),
        key=lambda tensor: (tensor.begin, tensor.end),
    )
    _check_layout(content, tensors, data_bytes)
    return tuple(tensors)


def _tensor(content: Content, name: str, entry: _Entry) -> StoredTensor:
    """One entry, its bytes equal to what shape and dtype take."""
    label = f"tensor {name[:80]!r}"
    if entry.shape is None or entry.data_offsets is None:
        raise content.damaged(f"{label} has no shape or no data_offsets")
    if len(entry.shape) > MAX_DIMS or not all(0 <= size < 1 << 63 for size in entry.shape):
        raise content.damaged(f"{label} has an absurd shape")
    if entry.dtype not in DTYPE_BITS:
        raise InputError(
            f"{content.path}: {label} has the type {entry.dtype[:20]!r}, which safetensors does not have; update specgauge"
        )
    begin, end = entry.data_offsets
    tensor = StoredTensor(name, entry.dtype, entry.shape, begin, end)
    if not 0 <= begin <= end or tensor.elements * DTYPE_BITS[entry.dtype] != 8 * (end - begin):
        raise content.damaged(f"{label} does not take the bytes of its shape and type")
    return tensor


def _check_layout(content: Content, tensors: Sequence[StoredTensor], data_bytes: int) -> None:
    """The data: one tensor behind the other, from 0 to the end of the file."""
    promised = max((tensor.end for tensor in tensors), default=0)
    if promised > data_bytes:
        raise InputError(
            f"{content.path} is truncated: its header promises {promised:,} bytes of tensor data, the file ends "
            f"{promised - data_bytes:,} bytes early; download it again"
        )
    at = 0
    for tensor in tensors:
        if tensor.begin != at:
            what = "overlaps another" if tensor.begin < at else "leaves a hole in front of it"
            raise content.damaged(f"tensor {tensor.name[:80]!r} {what}")
        at = tensor.end
    if at != data_bytes:
        raise content.damaged(f"{data_bytes - at:,} bytes behind the last tensor belong to none")


def weight_names(folder: Path) -> list[str]:
    """Names of the .safetensors files of a folder. Raises InputError where it cannot be read."""
    return [name for name in _names(folder) if name.endswith(".safetensors")]


def read_weights(folder: Path, file: str | None = None) -> WeightFiles:
    """The headers of the model in `folder`; `file` picks one that is no part of others.

    By the index where there is one, else model.safetensors, else all parts, else the only file. Raises InputError.
    """
    index = folder / INDEX
    if index.exists() and (file is None or _is_part(file)):
        content = read_content(index, INDEX_BYTES)
        weight_map = content.decode(_Index).weight_map
        headers = _indexed(folder, content, weight_map)
        return WeightFiles(headers, len(content.data) + sum(header.read_bytes for header in headers))
    names = [file] if file is not None and not _is_part(file) else _chosen(folder)
    headers = tuple(read_header(folder / name) for name in names)
    _check_twice(folder, headers)
    return WeightFiles(headers, sum(header.read_bytes for header in headers))


def _indexed(folder: Path, content: Content, weight_map: dict[str, str]) -> tuple[Header, ...]:
    """The headers of the files that the index names, each holding what it promises."""
    names = sorted(set(weight_map.values()))
    if not names:
        raise content.damaged("it names no tensor")
    for name in names:
        if name != os.path.basename(name) or not name.endswith(".safetensors") or not name.isprintable():
            raise content.damaged(f"it names a file {name[:80]!r}, which is no part beside it")
        if not os.path.exists(folder / name):
            raise InputError(f"{shown(folder)} lacks {name}, one of its {len(names)} parts; download what is missing")
    headers = tuple(read_header(folder / name) for name in names)
    _check_twice(folder, headers)
    held = {tensor.name for header in headers for tensor in header.tensors}
    lacking = next((tensor for tensor in weight_map if tensor not in held), None)
    if lacking is not None:
        raise InputError(f"{shown(folder)}: no file holds {lacking[:80]!r} of its index; download the folder again")
    return headers


def _check_twice(folder: Path, headers: Sequence[Header]) -> None:
    """Raise InputError where two files hold a tensor of one name."""
    seen: set[str] = set()
    for header in headers:
        twice = next((tensor.name for tensor in header.tensors if tensor.name in seen), None)
        if twice is not None:
            raise InputError(
                f"{shown(folder)}: two files hold the tensor {twice[:80]!r}; remove the one that is no part"
            )
        seen.update(tensor.name for tensor in header.tensors)


def _chosen(folder: Path) -> list[str]:
    """The files of a folder without an index."""
    names = weight_names(folder)
    parts = [name for name in names if _is_part(name)]
    if "model.safetensors" in names:
        return ["model.safetensors"]
    if parts:
        return _whole_set(folder, parts)
    if len(names) == 1 and names[0] != "adapter_model.safetensors":
        return names
    raise _without_weights(folder, names)


def _without_weights(folder: Path, names: list[str]) -> InputError:
    name = shown(folder)
    if "adapter_model.safetensors" in names:
        return InputError(f"{name} holds a LoRA adapter and no model: merge it into its base, give the result")
    if names:
        return InputError(f"{name} holds {len(names)} .safetensors files and no {INDEX}; give one of them")
    pickle = next((other for other in _names(folder) if other.endswith(PICKLES)), None)
    if pickle:
        return InputError(
            f"{name} holds weights as pickles ({shown(pickle)}), never opened here; convert to safetensors"
        )
    return InputError(f"{name} holds a config.json and no weights; download its .safetensors files")


def _is_part(name: str) -> bool:
    """Whether a file is one of several: model-00001-of-00003.safetensors."""
    return _part(name) is not None


def _part(name: str) -> tuple[str, int, int] | None:
    """Stem, number and count of a part's name."""
    stem, _, count = name.removesuffix(".safetensors").rpartition("-of-")
    stem, _, number = stem.rpartition("-")
    ascii_digits = number.isascii() and number.isdigit() and count.isascii() and count.isdigit()
    return (stem, int(number), int(count)) if ascii_digits and len(number) < 10 and len(count) < 10 else None


def _whole_set(folder: Path, names: list[str]) -> list[str]:
    """All parts, every number of them there."""
    parts = [part for name in names if (part := _part(name)) is not None]
    if len({(stem, count) for stem, _, count in parts}) > 1:
        raise InputError(f"{shown(folder)} holds parts of several models and no {INDEX}; give a folder of one")
    count = parts[0][2]
    if len(names) != count or {number for _, number, _ in parts} != set(range(1, count + 1)):
        raise InputError(f"{shown(folder)} holds {len(names)} of {count} parts and no {INDEX}; download the rest")
    return sorted(names)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        raise InputError(f"{shown(folder)} cannot be read: {error.strerror}; check the path") from None

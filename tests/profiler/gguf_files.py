"""GGUF files written by hand, tensor data left as a hole: headers of models of any size cost a few kilobytes of disk."""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from specgauge.profiler.checkpoints.gguf_header import TENSOR_TYPES

TYPE_IDS = {name: kind for kind, (name, _, _) in TENSOR_TYPES.items()}
Value = bool | int | float | str | Sequence[int] | Sequence[str]


def text(value: str | bytes) -> bytes:
    content = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(content)) + content


def key(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def encoded(name: str, value: Value) -> bytes:
    """A key: bool, u32, f32, string, array of strings, of bool or of i32."""
    if isinstance(value, bool):
        return key(name, 7, struct.pack("<?", value))
    if isinstance(value, int):
        return key(name, 4, struct.pack("<I", value))
    if isinstance(value, float):
        return key(name, 6, struct.pack("<f", value))
    if isinstance(value, str):
        return key(name, 8, text(value))
    if all(isinstance(one, str | bytes) for one in value):
        return key(name, 9, struct.pack("<IQ", 8, len(value)) + b"".join(map(text, value)))  # pyright: ignore
    kind, form = (7, "?") if isinstance(value[0], bool) else (5, "i")
    return key(name, 9, struct.pack(f"<IQ{len(value)}{form}", kind, len(value), *value))


class Header:
    """Keys and tensors of a model of `architecture`; keys without a dot in front belong to it."""

    def __init__(self, architecture: str, keys: Mapping[str, Value] | None = None, quant: str = "F16") -> None:
        self.architecture, self.quant, self.size = architecture, quant, 0
        self.keys: dict[str, Value] = {"general.architecture": architecture}
        self.tensors: list[tuple[str, tuple[int, ...], str]] = []
        for name, value in (keys or {}).items():
            self.keys[name if name.split(".")[0] in ("general", "tokenizer", "split") else f"{architecture}.{name}"] = (
                value
            )

    def tensor(self, name: str, *dims: int, quant: str = "") -> "Header":
        """Adds one, rows last; vectors are F32."""
        self.tensors.append((name, dims, quant or (self.quant if len(dims) > 1 else "F32")))
        return self

    def layer(self, number: int, **tensors: int | tuple[int, ...]) -> "Header":
        """Adds "blk.N.NAME.weight" each; two underscores in a NAME are a dot."""
        for name, dims in tensors.items():
            whole = f"blk.{number}.{name.replace('__', '.')}.weight"
            self.tensor(whole, *(dims if isinstance(dims, tuple) else (dims,)))
        return self

    def content(self, version: int = 3) -> bytes:
        """The header up to the tensor data; `size` is then what the whole file has."""
        keys = b"".join(encoded(name, value) for name, value in self.keys.items())
        infos, offset = b"", 0
        for name, dims, quant in self.tensors:
            infos += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, TYPE_IDS[quant], offset)
            offset += -(-self.bytes_of(dims, quant) // 32) * 32
        counts = struct.pack("<IQQ", version, len(self.tensors), len(self.keys))
        content = b"GGUF" + counts + keys + infos
        content += bytes(-len(content) % 32)
        self.size = len(content) + offset
        return content

    @staticmethod
    def bytes_of(dims: Sequence[int], quant: str) -> int:
        _, block, block_bytes = TENSOR_TYPES[TYPE_IDS[quant]]
        weights = 1
        for dim in dims:
            weights *= dim
        return weights // block * block_bytes

    def write(self, path: Path, version: int = 3) -> Path:
        """Writes the file, its tensor data a hole."""
        with open(path, "wb") as file:
            file.write(self.content(version))
            file.truncate(self.size)
        return path

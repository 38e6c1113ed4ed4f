"""JSON files of strangers: bounded before they are read, and one clear line for each way in which they can be wrong."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from ..errors import InputError
from .source import open_source

T = TypeVar("T")

CONFIG_BYTES = 8 << 20
INDEX_BYTES = 64 << 20
TOKENIZER_BYTES = 128 << 20


@dataclass(frozen=True)
class Content:
    """What was read of a file, and under which name messages speak of it."""

    path: str
    data: bytes

    @property
    def is_null(self) -> bool:
        """Whether there is nothing: a part of a file that is missing."""
        return self.data.strip() in (b"", b"null")

    def decode(self, type: type[T]) -> T:
        """The JSON as `type`; what `type` does not name is skipped, not built. Raises InputError."""
        try:
            return msgspec.json.decode(self.data, type=type)
        except RecursionError:
            raise self.damaged("it nests too deeply") from None
        except (ValueError, OverflowError, MemoryError) as error:
            raise self.damaged(_reason(error)) from None

    def check_entries(self, most: int, what: str) -> None:
        """Hold the number of keys and of elements against `most` keys, before anything is built. Raises InputError."""
        if self.data.count(b":") > most or self.data.count(b",") > 4 * most:
            raise self.damaged(f"it has more entries than any {what}")

    def damaged(self, what: str) -> InputError:
        """The one line for a file that holds no such JSON."""
        return InputError(f"{self.path} is damaged: {what}; download it again")


def read_content(path: str | os.PathLike[str], limit: int) -> Content:
    """The whole of a regular file of at most `limit` bytes. Raises InputError, one line."""
    with open_source(path, "file of a whole model") as source:
        if source.size > limit:
            size = f"{source.size / 2**20:,.0f} MiB"
            raise InputError(
                f"{source.path} has {size}, more than the {limit >> 20} MiB that are plenty; download it again"
            )
        data = source.read(0, source.size)
    if data.startswith(b"version https://git-lfs"):
        raise InputError(f"{source.path} is a Git LFS pointer, not the file: run git lfs pull in its folder")
    return Content(source.path, data)


def read_object(content: Content) -> Mapping[str, object]:
    """A JSON object of any keys, NaN and Infinity let through as floats: Mamba's configs hold them. Raises InputError."""
    try:
        value = json.loads(content.data)
    except RecursionError:
        raise content.damaged("it nests too deeply") from None
    except (ValueError, MemoryError) as error:
        raise content.damaged(_reason(error)) from None
    if not isinstance(value, dict):
        raise content.damaged(f"it holds a {type(value).__name__}, where an object belongs")
    return value


def _reason(error: Exception) -> str:
    """In one line, without Python's advice to programmers."""
    return " ".join(str(error).split())[:200].partition("; use sys.")[0]

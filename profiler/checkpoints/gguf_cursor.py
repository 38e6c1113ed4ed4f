"""A position in the header of a GGUF file: numbers, strings and arrays read there, bounded in time and memory."""

import hashlib
import struct
from array import array
from dataclasses import dataclass

from ..errors import InputError
from .source import Source

STRING, ARRAY = 8, 9
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
LENGTH = struct.Struct("<Q")
KEPT_ARRAY, KEPT_NUMBERS, KEPT_CHARACTERS = 1024, 1 << 15, 1 << 20
"""Longer arrays of numbers are walked over and not kept, nor more numbers and characters of text in all."""
MOST_TENSORS, MOST_KEYS, NAME_BYTES = 1 << 14, 1 << 13, 1 << 10
MOST_STRINGS, MOST_STRING_BYTES = 1 << 21, 1 << 26
"""More than the largest models have, with room to spare: 262,144 tokens (Gemma 3), some 2,000 tensors, a hundred keys."""


class Cursor:
    """A position in a file; every read is checked against its end."""

    def __init__(self, source: Source) -> None:
        self.source, self.path, self.size, self.at = source, source.path, source.size, 4
        self.strings = self.string_bytes = self.numbers = self.characters = 0

    def ends_early(self) -> InputError:
        return self.source.ends_early(self.at)

    def damaged(self, what: str) -> InputError:
        return InputError(f"{self.path} is damaged: {what} (near byte {self.at:,}); download it again")

    def number(self, form: str) -> int | float | bool:
        size = struct.calcsize(form)
        block, inside = self.source.window(self.at, size)
        self.at += size
        return struct.unpack_from(form, block, inside)[0]

    def count(self, form: str = "<Q") -> int:
        return int(self.number(form))

    def name(self) -> str:
        """The string at the cursor, the name of a key or a tensor."""
        length = self.count()
        self.source.check(self.at, length)
        if length > NAME_BYTES:
            raise self.damaged(f"it has a name of {length:,} bytes")
        return self._text(length)

    def string(self) -> str | None:
        """The string at the cursor; None where it is too long to be kept."""
        length = self.count()
        self.source.check(self.at, length)
        self.characters += length
        if self.characters <= KEPT_CHARACTERS:
            return self._text(length)
        self.characters, self.at = self.characters - length, self.at + length
        return None

    def _text(self, length: int) -> str:
        block, inside = self.source.window(self.at, length)
        self.at += length
        return block[inside : inside + length].decode("utf-8", "replace")

    def numbers_of(self, kind: int, count: int) -> tuple[int | float | bool, ...] | None:
        """The array at the cursor; None where it is too long to be kept."""
        size = struct.calcsize(SCALARS[kind])
        if count > (self.size - self.at) // size:
            raise self.ends_early()
        begin, self.at = self.at, self.at + count * size
        if count > KEPT_ARRAY or self.numbers + count > KEPT_NUMBERS:
            return None
        self.numbers += count
        return struct.unpack(f"<{count}{SCALARS[kind][1]}", self.source.read(begin, count * size))

    def strings_of(self, count: int, ends: array | None = None) -> "Strings":
        """Walk over the `count` strings at the cursor; their ends, counted from here, go to `ends`."""
        if count > (self.size - self.at) // 8:
            raise self.ends_early()
        self.strings += count
        if self.strings > MOST_STRINGS:
            raise self.damaged(f"it has lists of {self.strings:,} strings, more than any vocabulary")
        begin, digest, left = self.at, hashlib.sha256(), count
        while left:
            left -= self._walk_block(left, begin, digest, ends)
        return Strings(count, digest.hexdigest(), begin, self.at - begin)

    def _walk_block(self, most: int, begin: int, digest: "hashlib._Hash", ends: array | None) -> int:
        """Walk over the strings that begin in the block at the cursor, `most` at most; returns how many these were.

        The loop is kept small, for vocabularies of some 250,000 tokens.
        """
        block, inside = self.source.window(self.at, 8)
        first, last, offset, length_at, walked = inside, len(block) - 8, self.at - inside, LENGTH.unpack_from, 0
        while inside <= last and walked < most:
            inside += 8 + length_at(block, inside)[0]
            walked += 1
            if ends is not None and inside <= self.size:
                ends.append(offset + inside - begin)
        self.source.check(offset, inside)
        self.string_bytes += inside - first
        if self.string_bytes > MOST_STRING_BYTES:
            raise self.damaged(
                f"its lists of strings take {self.string_bytes:,} bytes or more, more than any vocabulary"
            )
        digest.update(memoryview(block)[first:inside])
        for piece in self.source.pieces(offset + len(block), max(0, inside - len(block))):
            digest.update(piece)
        self.at = offset + inside
        return walked


@dataclass(frozen=True)
class Strings:
    """An array of strings that was walked over: how many, the hash of its bytes, and where these are."""

    count: int = 0
    sha256: str = ""
    begin: int = 0
    size_bytes: int = 0
    entries: bytes = b""
    """The strings themselves, padding behind the last real one left out; of the tokens alone."""
    kept: int = 0
    """How many `entries` are."""


NO_STRINGS = Strings()


@dataclass(frozen=True)
class Block:
    """An array of numbers that was walked over: where it is."""

    kind: int
    begin: int
    count: int

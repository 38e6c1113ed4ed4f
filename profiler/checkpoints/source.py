"""A file read at positions and in blocks, by those who want its header alone: never past its end, every byte counted."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import InputError

BLOCK_BYTES = 1 << 16
"""Least that is read at once, and so the most of the data behind a header that may come along with its end."""


class Source:
    """The open file `path` of `size` bytes; `read_bytes` counts what was read of it.

    Every method raises InputError, one line, where it would leave the file or the file cannot be read.
    """

    def __init__(self, path: str, descriptor: int, size: int) -> None:
        self.path, self.size, self.read_bytes = path, size, 0
        self._descriptor, self._block, self._begin = descriptor, b"", 0

    def read(self, at: int, count: int) -> bytes:
        """The `count` bytes at `at`."""
        self.check(at, count)
        pieces: list[bytes] = []
        while count > 0:
            try:
                piece = os.pread(self._descriptor, count, at)
            except OSError as error:
                raise InputError(f"{self.path} cannot be read: {error.strerror}; check the disk") from None
            if not piece:  # it became shorter since it was opened
                raise self.ends_early(at)
            self.read_bytes += len(piece)
            at, count = at + len(piece), count - len(piece)
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def window(self, at: int, count: int) -> tuple[bytes, int]:
        """A block that holds the `count` bytes at `at`, and where in it they begin."""
        inside = at - self._begin
        if inside < 0 or inside + count > len(self._block):
            self.check(at, count)
            self._block, self._begin, inside = self.read(at, min(max(count, BLOCK_BYTES), self.size - at)), at, 0
        return self._block, inside

    def pieces(self, at: int, count: int) -> Iterator[bytes]:
        """The `count` bytes at `at`, a block at a time."""
        self.check(at, count)
        for begin in range(at, at + count, BLOCK_BYTES):
            yield self.read(begin, min(BLOCK_BYTES, at + count - begin))

    def check(self, at: int, count: int) -> None:
        """Raise InputError unless the `count` bytes at `at` lie in the file."""
        if at < 0 or count < 0 or at + count > self.size:
            raise self.ends_early(at)

    def ends_early(self, at: int) -> InputError:
        """The error for a header that points past the end."""
        return InputError(
            f"{self.path} is truncated or damaged: its header points past the end of the file at byte {at:,} of "
            f"{self.size:,}; download it again"
        )


@contextmanager
def open_source(path: str | os.PathLike[str], wanted: str) -> Iterator[Source]:
    """The file at `path`; `wanted` names in errors what should have been given (".gguf file").

    Raises InputError, one line, unless it is a regular file with something in it that can be read.
    """
    name = os.fspath(path)
    if not name.isprintable():
        raise InputError(f"{name!r} is no path that can be shown on one line; give the path of a {wanted}")
    _check_regular(name, wanted)
    try:
        descriptor = os.open(name, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror}; check its permissions") from None
    try:
        yield Source(name, descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def _check_regular(name: str, wanted: str) -> None:
    """Looked at before it is opened: opening a pipe would wait for a writer."""
    try:
        status = os.stat(name)
    except FileNotFoundError:
        raise InputError(f"{name}: no such file; give the path of a {wanted}") from None
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror}; give the path of a {wanted}") from None
    if stat.S_ISDIR(status.st_mode):
        raise InputError(f"{name} is a folder; give the path of the {wanted} in it")
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{name} is no regular file; give the path of a {wanted}")
    if status.st_size == 0:
        raise InputError(f"{name} is empty; download it again")

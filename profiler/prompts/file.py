"""A file of prompts, line by line: nothing is taken into memory before its size is known, and no text is ever told."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ..errors import InputError
from ..files import shown
from .line import BadLine, PromptLine, json_line, plain_line

LONGEST_LINE = 2**20
"""Bytes."""
MOST_BYTES = 2**30
MOST_PROMPTS = 1_000_000
BOM = b"\xef\xbb\xbf"


def read_prompts(path: Path) -> Iterator[PromptLine]:
    """The prompts of a file in their order, one at a time. Empty lines are passed over.

    The first line that is not empty tells the form: with a { every line is a JSON object, else every line is a prompt as it
    stands. Raises InputError, with the number of the line: not a text, too long, wrong, a prompt that came before, none at all.
    """
    seen: dict[bytes, int] = {}
    is_json = None
    for number, content in _lines(path):
        is_json = content.startswith(b"{") if is_json is None else is_json
        try:
            found = json_line(number, content) if is_json else _text(number, content, path)
        except BadLine as error:
            raise InputError(f"{shown(path)}, line {number}: {error}") from None
        digest = bytes.fromhex(found.sha256)
        if digest in seen:
            raise InputError(
                f"{shown(path)}, line {number}: the same prompt as line {seen[digest]}; a prompt counts once, remove one"
            )
        if len(seen) == MOST_PROMPTS:
            raise InputError(f"{shown(path)}, line {number}: more than {MOST_PROMPTS:,} prompts; give fewer")
        seen[digest] = number
        yield found
    if not seen:
        raise InputError(f"{shown(path)}, line 1: no prompt in the file; give one a line")


def _text(number: int, content: bytes, path: Path) -> PromptLine:
    if number == 1 and content.startswith((b"[", b'"')) and path.suffix.lower() in (".json", ".jsonl", ".ndjson"):
        raise BadLine("not JSON objects, one a line")
    return plain_line(number, content.decode())


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Number and content, without spaces around it, of each line that has any. Raises InputError."""
    read = 0
    try:
        with _opened(path) as file:
            for number in range(1, 2**62):
                line = file.readline(LONGEST_LINE + 1)
                if not line:
                    return
                read += len(line)
                where = f"{shown(path)}, line {number}"
                if len(line) > LONGEST_LINE:
                    raise InputError(f"{where}: longer than {LONGEST_LINE // 2**20} MiB; no prompt is")
                if read > MOST_BYTES:
                    raise InputError(f"{where}: more than {MOST_BYTES // 2**20:,} MiB of prompts by here; give fewer")
                content = (line.removeprefix(BOM) if number == 1 else line).strip()
                if not _is_text(content):
                    raise InputError(f"{where}: not UTF-8 text; is it a binary file?")
                if content:
                    yield number, content
    except OSError as error:
        raise InputError(f"--prompts {shown(path)}: cannot be read ({error.strerror or error})") from None


def _is_text(content: bytes) -> bool:
    try:
        return "\0" not in content.decode()
    except UnicodeDecodeError:
        return False


def _opened(path: Path) -> BinaryIO:
    """The file, if it is a regular one: a pipe could be read only once, and resuming reads again. Raises InputError."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise InputError(f"--prompts {shown(path)}: not a regular file; give a file with one prompt a line")
        return open(path, "rb")
    except FileNotFoundError:
        raise InputError(f"--prompts {shown(path)}: does not exist; check the path") from None
    except ValueError:
        raise InputError("--prompts: the name holds a NUL character") from None

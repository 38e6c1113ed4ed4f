"""A GGUF model in one file or in several: any part leads to all of them.

llama-gguf-split names the parts NAME-00001-of-00003.gguf and writes into each `split.no` (from 0), `split.count` and
`split.tensors.count` (of all parts); everything else stands in the first. (Source: llama.cpp, src/llama-model-loader.cpp.)
"""

import os
import re
from dataclasses import replace
from pathlib import Path

from ..errors import InputError
from .gguf_header import GgufHeader, read_header

PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<ending>\.gguf)", re.IGNORECASE)


def read_parts(path: str | os.PathLike[str]) -> tuple[GgufHeader, ...]:
    """The headers of all parts of the model that `path` is a part of, in order; of the file alone where it is whole.

    Raises InputError, one line, for a file that is no GGUF, a part that is missing or belongs elsewhere.
    """
    given = read_header(path)
    count = given.integer("split.count") or 1
    if count <= 1:
        return (given,)
    paths = _siblings(given, count)
    missing = next((part for part in paths if not os.path.exists(part)), None)
    if missing is not None:
        raise InputError(
            f"{given.path} is one of {count} parts and {missing.name} is missing beside it; put all parts into one folder"
        )
    parts = tuple(given if part == Path(given.path) else read_header(part) for part in paths)
    _check_parts(parts, count)
    return parts


def whole(parts: tuple[GgufHeader, ...]) -> GgufHeader:
    """All `parts` as one header: values and vocabulary of the first, tensors and bytes of all."""
    if len(parts) == 1:
        return parts[0]
    return replace(
        parts[0],
        size_bytes=sum(part.size_bytes for part in parts),
        tensors=tuple(info for part in parts for info in part.tensors),
        dropped=tuple(dict.fromkeys(key for part in parts for key in part.dropped)),
        read_bytes=sum(part.read_bytes for part in parts),
    )


def stem(path: str | os.PathLike[str]) -> str:
    """The file name without its ending, and without the number of its part."""
    name = Path(path).name
    match = PART.fullmatch(name)
    return match["stem"] if match else Path(name).stem


def _siblings(given: GgufHeader, count: int) -> tuple[Path, ...]:
    """Where the parts have to be, by the name of the one that is `given`."""
    path = Path(given.path)
    match = PART.fullmatch(path.name)
    if match is None or int(match["count"]) != count:
        raise InputError(
            f"{path} is one of {count:,} parts and not named like one (NAME-00001-of-{count:05}.gguf): restore its name, "
            "or join the parts with llama-gguf-split --merge and give the result"
        )
    names = (f"{match['stem']}-{n:05}-of-{count:05}{match['ending']}" for n in range(1, count + 1))
    return tuple(path.with_name(name) for name in names)


def _check_parts(parts: tuple[GgufHeader, ...], count: int) -> None:
    """Raise InputError unless every part is what its name says and no tensor is missing or there twice."""
    for number, part in enumerate(parts):
        if part.integer("split.count") != count or part.integer("split.no") != number:
            raise InputError(f"{part.path} is not part {number + 1} of {count} of this model; download it again")
    names = [info.name for part in parts for info in part.tensors]
    promised = parts[0].integer("split.tensors.count")
    if len(set(names)) != len(names) or promised not in (None, len(names)):
        raise InputError(
            f"{parts[0].path}: its {count} parts hold {len(set(names)):,} tensors of {promised or len(names):,}; they are not of "
            "one model: download them again"
        )

"""Files from strangers: read whole with a bound, decoded strictly, each number checked where it stands."""

import hashlib
import io
import json
import math
import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeVar

from ...profiler.errors import InputError
from ...profiler.files import shown

MOST_BYTES = 64 * 2**20
MOST_SPEED, MOST_SECONDS, MOST_TOKENS = 1e6, 1e6, 10**9
"""Beyond these a number is a mistake of units or a damaged file."""
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
LONGEST_SHOWN = 40

T = TypeVar("T", int, str)

LEAST = 1e-6
"""Smaller figures are no measurement of anything that is imported."""


@dataclass(frozen=True)
class Source:
    """A file's text. `name` is its name without the folder, `digest` the hash of its bytes."""

    name: str
    text: str
    digest: str

    def lines(self) -> list[tuple[int, str]]:
        """Lines that are not blank, numbered from 1."""
        return [(at, line) for at, line in enumerate(io.StringIO(self.text, newline=None), 1) if line.strip()]

    def end_warnings(self) -> tuple[str, ...]:
        """Of formats whose last line ends in a figure: one that is cut there is not to be seen."""
        if self.text.endswith(("\n", "\r")):
            return ()
        return (f"{self.name}: its last line has no end: if the file was cut, the last figure is wrong",)

    def refuse(self, text: str) -> NoReturn:
        """Raises InputError about this file."""
        raise InputError(f"{shown(self.name)}: {text}")


def read_source(path: Path) -> Source:
    """A regular text file in UTF-8 of at most MOST_BYTES. Raises InputError."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise InputError(f"{shown(path)} is {kind}; give a file of measurements")
        if status.st_size > MOST_BYTES:
            raise InputError(f"{shown(path)} has more than {MOST_BYTES // 2**20} MiB; give the part with measurements")
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise InputError(f"{shown(path)} does not exist; check the path") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{shown(path)} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return Source(path.name, _decoded(path, content), hashlib.sha256(content).hexdigest())


def _decoded(path: Path, content: bytes) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{shown(path)} is not UTF-8 text at byte {error.start}; save it as UTF-8") from None
    if "\0" in text:
        raise InputError(f"{shown(path)} holds NUL bytes; give a text file")
    if not text.strip():
        raise InputError(f"{shown(path)} is empty; give a file of measurements")
    return text


@dataclass(frozen=True)
class Fields:
    """The named values of one row or object, and where it stands; empty text and null are unknown."""

    where: str
    values: Mapping[str, object]

    def refuse(self, text: str) -> NoReturn:
        """Raises InputError about this place."""
        raise InputError(f"{self.where}: {text}")

    def has(self, name: str) -> bool:
        return self.values.get(name) not in (None, "")

    def text(self, name: str) -> str:
        """Empty where unknown. Raises InputError for a list or an object."""
        value = self.values.get(name)
        if isinstance(value, dict | list):
            self.refuse(f"{name} is no text")
        return "" if value is None else str(value).strip()

    def number(self, name: str, low: float, high: float) -> float:
        """A finite number from `low` to `high`. Raises InputError, also where it is unknown."""
        if not self.has(name):
            self.refuse(f"{name} is missing")
        return self.checked(name, self.values[name], low, high)

    def number_or(self, name: str, low: float, high: float) -> float | None:
        """None where unknown. Raises InputError."""
        return self.number(name, low, high) if self.has(name) else None

    def above_0(self, name: str, high: float) -> float:
        """A number above 0. Raises InputError."""
        value = self.number(name, 0, high)
        return value if value >= LEAST else self.refuse(f"{name} is {value:g}: give a number above 0")

    def above_0_or(self, name: str, high: float) -> float | None:
        """None where unknown. Raises InputError."""
        return self.above_0(name, high) if self.has(name) else None

    def whole(self, name: str, low: int, high: int) -> int:
        """A whole number from `low` to `high`. Raises InputError, also where it is unknown."""
        value = self.number(name, low, high)
        return int(value) if value == int(value) else self.refuse(f"{name} is {value:g}: give a whole number")

    def whole_or(self, name: str, low: int, high: int) -> int | None:
        """None where unknown. Raises InputError."""
        return self.whole(name, low, high) if self.has(name) else None

    def numbers(self, name: str, low: float, high: float) -> tuple[float, ...]:
        """A list of numbers; empty where unknown. Raises InputError."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, list):
            self.refuse(f"{name} is no list")
        return tuple(self.checked(name, item, low, high) for item in value or ())

    def part(self, name: str) -> "Fields | None":
        """The object under `name`. Raises InputError where that is no object."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, dict):
            self.refuse(f"{name} is no object")
        return None if value is None else Fields(f"{self.where}, {name}", value)

    def checked(self, name: str, value: object, low: float, high: float) -> float:
        """`value` as a finite number from `low` to `high`. Raises InputError."""
        number = _number(value)
        if number is None or not math.isfinite(number):
            self.refuse(f"{name} is {_short(value)}: give a plain number, without a unit")
        if not low <= number <= high:
            self.refuse(f"{name} is {number:g}: it lies from {low:g} to {high:g}; check the unit")
        return number


def agree(fields: Fields, names: str, first: float, second: float, share: float) -> None:
    """Refuse two figures of one thing that are further apart than `share`: mixed units, or a damaged file."""
    if abs(first - second) > share * max(abs(first), abs(second)):
        fields.refuse(f"{names} contradict each other ({first:.6g} against {second:.6g}); check units and columns")


def json_objects(source: Source) -> list[Fields]:
    """The objects of JSON (one, or a list of them) or JSONL. Raises InputError."""
    lines = source.lines()
    if len(lines) > 1 and _is_object(lines[0][1]):
        places = [(f"{shown(source.name)}, line {at}", _parsed(source, line, at)) for at, line in lines]
    else:
        whole = _parsed(source, source.text, 1)
        items = whole if isinstance(whole, list) else [whole]
        places = [(f"{shown(source.name)}, entry {at}", item) for at, item in enumerate(items, 1)]
    if not places:
        source.refuse("holds an empty list; give a file of measurements")
    return [_object(where, value) for where, value in places]


def _object(where: str, value: object) -> Fields:
    if not isinstance(value, dict):
        raise InputError(f"{where}: not a JSON object; give a list of objects or one a line")
    return Fields(where, value)


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _parsed(source: Source, text: str, line: int) -> object:
    try:
        return json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        at = line + error.lineno - 1
        source.refuse(f"line {at} is no whole JSON ({error.msg}); the file is cut or damaged, write it anew")
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else str(error)[:100]
        source.refuse(f"no usable JSON: {reason}; write it anew")


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{_short(twice)} stands twice in one object")
    return values


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _number(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        if isinstance(value, int | float):
            return float(value)
        text = str(value).strip()
        return float(text) if len(text) <= LONGEST_SHOWN and NUMBER.fullmatch(text) else None
    except OverflowError:
        return math.inf


def _short(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "..."


def listed(values: Iterable[T]) -> str:
    """Values in words: "1 to 8" where no number between is left out, "2, 4 and 8" else."""
    found = sorted(set(values))
    if len(found) > 2 and all(isinstance(v, int) for v in found) and found[-1] == int(found[0]) + len(found) - 1:
        return f"{found[0]} to {found[-1]}"
    *most, last = (str(value) for value in found)
    return f"{', '.join(most)} and {last}" if most else last

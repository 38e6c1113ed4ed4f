"""Records on disk: written whole or not at all, read with suspicion.

A file holds one record as JSON. It names its kind and schema version, and is refused as anything else. A write goes to a
temporary file in the same folder that replaces the old one only when every byte is on disk, so that a crash or a full
disk leaves the old file as it was.
"""

import glob
import hashlib
import math
import os
import stat
import struct
from pathlib import Path
from typing import TypeVar

import msgspec

from .errors import InputError, WorkFailed
from .records import Record

R = TypeVar("R", bound=Record)

MAX_BYTES = 256 * 2**20
"""Larger files are no records of ours: they are refused before they fill the memory."""


class Head(msgspec.Struct, frozen=True):
    """The two fields that say what a file is; whatever else it holds is ignored."""

    kind: str = ""
    schema_version: int = 0


def write_record(path: str | os.PathLike[str], record: Record) -> str:
    """Write `record` to `path`, whole or not at all; returns the sha256 (hex) of the file.

    Folders are made. A symbolic link is followed, not replaced. Raises WorkFailed where the system refuses (disk full,
    not writable) or a number is not finite: JSON has no NaN, and a null in its place would be found much later.
    """
    content = _encoded(record)
    target = Path(os.path.realpath(path))
    temporary = target.parent / f".{target.name}.{os.getpid()}.tmp"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_orphans(target)
        _write_through(temporary, content)
        os.replace(temporary, target)
        _sync_folder(target.parent)
    except OSError as error:
        raise WorkFailed(f"{shown(path)} cannot be written: {error.strerror or error}; {_way_out(error)}") from None
    finally:
        _remove(temporary)
    return hashlib.sha256(content).hexdigest()


def read_record(path: str | os.PathLike[str], type: type[R]) -> R:
    """The record of `type` in the file `path`. Raises InputError, one line, whatever is wrong with the file."""
    content = _content(path)
    head = _head(path, content)
    kind, version = _wanted(type)
    if head.kind != kind:
        found = f"a {shown(head.kind)}" if head.kind else "no record of specgauge"
        raise InputError(f"{shown(path)} is {found}, not a {kind}; give the file that holds one")
    if head.schema_version != version:
        raise InputError(
            f"{shown(path)} is a {kind} of schema {head.schema_version}, this specgauge reads {version}; "
            f"{'update specgauge' if head.schema_version > version else 'make the file anew'}"
        )
    try:
        return msgspec.json.decode(content, type=type)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{shown(path)} is a damaged {kind}: {_one_line(error)}; make the file anew") from None


def read_head(path: str | os.PathLike[str]) -> Head:
    """What the file `path` says it is. Raises InputError where it cannot be read or is not a JSON object."""
    return _head(path, _content(path))


def record_digest(record: Record) -> str:
    """sha256 (hex) of the file that `write_record` makes of `record`."""
    return hashlib.sha256(_encoded(record)).hexdigest()


def file_sha256(path: str | os.PathLike[str]) -> str:
    """sha256 (hex) of a file of any size. Raises OSError."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def weights_sha256(path: str | os.PathLike[str], header_bytes: int, whole_bytes: int, end_bytes: int) -> str:
    """sha256 (hex) of a file of weights of at most `whole_bytes`; above that "partial:" and the hash of its header, its size,
    and `end_bytes` at both ends of its data. Raises InputError."""
    try:
        size = os.stat(path).st_size
        if size <= whole_bytes:
            return file_sha256(path)
        with open(path, "rb") as file:
            digest = hashlib.sha256(file.read(header_bytes + end_bytes))
            digest.update(struct.pack("<Q", size))
            file.seek(-end_bytes, os.SEEK_END)
            digest.update(file.read(end_bytes))
            return f"partial:{digest.hexdigest()}"
    except OSError as error:
        raise InputError(f"{shown(path)} cannot be read: {error.strerror}; check the disk") from None


def shown(path: str | os.PathLike[str]) -> str:
    """A path or name as part of a one-line message: line breaks and control characters escaped."""
    text = os.fspath(path)
    return text if text.isprintable() else ascii(text)


def _encoded(record: Record) -> bytes:
    values = msgspec.to_builtins(record)
    bad = _not_finite(values)
    if bad:
        raise WorkFailed(f"a {record.__class__.__name__} holds {bad}: not written; please report this as a defect")
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


def _not_finite(value: object, place: str = "") -> str:
    """The first number under `value` that is NaN or infinite, as "place = value"; empty where all are finite."""
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"{place.lstrip('.')} = {value}"
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    return next((found for key, item in items if (found := _not_finite(item, f"{place}.{key}"))), "")


def _write_through(path: Path, content: bytes) -> None:
    """Write and sync a new file; left-overs of an earlier process with the same id are overwritten."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Have the rename itself on disk; some file systems cannot, and then it is as safe as they make it."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def _remove_orphans(target: Path) -> None:
    """Temporary files of `target` whose process was killed while it wrote."""
    for path in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):
        process = path.name.removeprefix(f".{target.name}.").removesuffix(".tmp")
        if process.isdigit() and not _alive(int(process)):
            _remove(path)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        pass


def _way_out(error: OSError) -> str:
    """The next step after a failed write."""
    if isinstance(error, NotADirectoryError | FileExistsError):
        return "a part of the path is a file: choose another --out"
    if isinstance(error, IsADirectoryError):
        return "it is a folder: choose another --out"
    if isinstance(error, PermissionError):
        return "make it writable or choose another --out"
    return "the old file is as it was; free some space or choose another --out"


def _content(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a regular file of at most MAX_BYTES."""
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise InputError(f"{shown(path)} is a folder; give the JSON file in it")
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{shown(path)} is not a regular file; give a JSON file of specgauge")
        if status.st_size > MAX_BYTES:
            raise InputError(f"{shown(path)} has {status.st_size / 2**20:.0f} MiB, more than any record of specgauge")
        with open(path, "rb") as file:
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise InputError(f"{shown(path)} does not exist; check the path") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{shown(path)} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _head(path: str | os.PathLike[str], content: bytes) -> Head:
    try:
        return msgspec.json.decode(content, type=Head)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{shown(path)} is not a JSON file of specgauge: {_one_line(error)}") from None


def _wanted(type: type[Record]) -> tuple[str, int]:
    """Kind and schema version of the records of `type`: the defaults of its fields of these names."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(type)}
    return defaults["kind"], defaults["schema_version"]


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())

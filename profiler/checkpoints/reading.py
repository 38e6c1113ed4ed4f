"""Whatever a path leads to, as a Checkpoint: the format is found by content, never by the name alone."""

import os
from pathlib import Path

from ..errors import InputError
from ..files import shown
from .checkpoint import Checkpoint
from .safetensors import PICKLES

FORMATS = "a .gguf file, or a folder of .safetensors with its config.json"


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """The model at `path`: a GGUF file, any part of one, a .safetensors file, or a folder of either.

    Headers, config.json and tokenizer.json are read, tensor data never. Raises InputError, one line.
    """
    given = Path(path)
    if not os.path.lexists(path):
        raise InputError(f"{shown(path)} does not exist; give {FORMATS}")
    if given.is_dir():
        return _of_folder(given)
    begin = _begin(given)
    if begin[:4] == b"GGUF":
        return _gguf(given)
    stored = begin[8:9] == b"{"  # the header of safetensors, whatever its length looks like
    if given.name.lower().endswith(PICKLES) or (begin.startswith((b"\x80", b"PK\x03\x04")) and not stored):
        raise InputError(
            f"{shown(path)} is a pickle: it could run any program and is never opened; convert it to safetensors"
        )
    if given.name.lower().endswith(".gguf"):
        return _gguf(given)
    if given.name == "config.json":
        return _safetensors(given.parent)
    if given.name.lower().endswith(".safetensors") or stored:
        return _safetensors(given)
    if given.name == "model.safetensors.index.json":
        return _safetensors(given.parent)
    raise InputError(f"{shown(path)} is no model that specgauge reads (it begins with {begin[:8]!r}); give {FORMATS}")


def _of_folder(folder: Path) -> Checkpoint:
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise InputError(f"{shown(folder)} cannot be read: {error.strerror}; check its permissions") from None
    ggufs = [name for name in names if name.lower().endswith(".gguf") and not name.lower().startswith("mmproj")]
    if "config.json" in names and (not ggufs or any(name.endswith(".safetensors") for name in names)):
        return _safetensors(folder)
    if ggufs:
        return _gguf(folder / _only_model(folder, ggufs))
    if any(name.endswith(".safetensors") for name in names):
        return _safetensors(folder)
    pickle = next((name for name in names if name.lower().endswith(PICKLES)), None)
    if pickle is not None:
        raise InputError(
            f"{shown(folder)} holds a pickle ({shown(pickle)}), which is never opened; convert it to safetensors"
        )
    raise InputError(f"{shown(folder)} holds no model: neither a .gguf nor a config.json; give {FORMATS}")


def _only_model(folder: Path, names: list[str]) -> str:
    """The one GGUF model of a folder: its only file, or the first of its parts."""
    from .gguf_parts import PART

    models: dict[str, str] = {}
    for name in names:
        match = PART.fullmatch(name)
        models.setdefault(match["stem"] if match else name, name)
    if len(models) > 1:
        raise InputError(f"{shown(folder)} holds {len(models)} GGUF models; give one of its files")
    return names[0]


def _begin(path: Path) -> bytes:
    """The first bytes of a regular file; none of one that its reader will refuse."""
    if not path.is_file():
        raise InputError(f"{shown(path)} is no regular file; give {FORMATS}")
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(16)
    except OSError as error:
        raise InputError(f"{shown(path)} cannot be read: {error.strerror}; check its permissions") from None


def _gguf(path: Path) -> Checkpoint:
    from .gguf_checkpoint import read_gguf

    return read_gguf(path)


def _safetensors(path: Path) -> Checkpoint:
    from .safetensors_checkpoint import read_safetensors

    return read_safetensors(path)

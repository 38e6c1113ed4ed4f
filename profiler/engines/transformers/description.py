"""Description: the weights of a profile's model as they will be loaded, told without loading them."""

import hashlib
from pathlib import Path

from ...checkpoints.gguf import model_file
from ...checkpoints.reading import read_checkpoint
from ...checkpoints.safetensors import read_weights
from ...errors import InputError
from ...files import file_sha256, shown
from ...records import ModelFile
from .loading import sizes_in
from .quantizing import QUANTS
from .skeleton import config_of, is_recurrent


def described(source: Path, quant: str, random: bool = False) -> ModelFile:
    """What a profile keeps of the model at `source` in `quant` (empty: as stored). The label tells quantizations of one
    checkpoint apart. Raises InputError, also for models whose state this engine cannot roll back."""
    path = Path(source).absolute()
    if not path.exists():
        raise InputError(f"{shown(source)} does not exist; give a folder of safetensors or a GGUF file")
    config = config_of(path)
    if is_recurrent(config):
        raise InputError(
            f"{shown(source)}: a {config.model_type} keeps a recurrent state, which this engine cannot roll back"
        )
    told = ModelFile(
        label="",
        path=str(path),
        sha256="",
        size_bytes=0,
        name=_name(path),
        architecture=(getattr(config, "architectures", None) or [config.model_type])[0],
        quant=quant,
        parameters=0,
        tokenizer_sha256=_tokenizer_sha256(path),
        random=random,
    )
    if quant not in QUANTS:
        return _as_stored(told, path)
    sizes = sizes_in(config, quant)
    return _with(
        told,
        label=f"{told.name}-{quant}{'-random' if random else ''}",
        sha256=_config_sha256(path) if random else _weights_sha256(path),
        size_bytes=sizes.all_bytes,
        head_bytes=sizes.head_bytes,
        unread_bytes=sizes.unread_bytes,
        parameters=sizes.parameters,
    )


def _with(model: ModelFile, **changes: object) -> ModelFile:
    import msgspec

    return msgspec.structs.replace(model, **changes)


def _as_stored(told: ModelFile, path: Path) -> ModelFile:
    found = read_checkpoint(str(path))
    return _with(
        told,
        label=f"{told.name}-{found.quant}",
        sha256=_weights_sha256(path),
        size_bytes=found.size_bytes,
        quant=found.quant,
        parameters=found.parameters,
    )


def _name(path: Path) -> str:
    """Of the folder, or of the file without its ending."""
    if path.is_dir():
        return path.name
    return path.parent.name if path.name == "config.json" else path.stem


def _config_sha256(path: Path) -> str:
    return file_sha256(path / "config.json" if path.is_dir() else path)


def _weights_sha256(path: Path) -> str:
    """Of the file; of the hashes of all files of weights, in order, where there are several."""
    if path.suffix == ".gguf":
        return model_file(path).sha256
    hashes = [file_sha256(header.path) for header in read_weights(path).headers]
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def _tokenizer_sha256(path: Path) -> str:
    """Of the vocabulary, so that equal ones have equal hashes whatever the file looks like; empty where there is none."""
    if path.suffix == ".gguf":
        return model_file(path).tokenizer_sha256
    file = (path if path.is_dir() else path.parent) / "tokenizer.json"
    return file_sha256(file) if file.exists() else ""

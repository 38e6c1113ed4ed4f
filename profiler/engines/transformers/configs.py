"""Configs: what a path stands for, and transformers' config of it, held against bounds before a model is built from it."""

from pathlib import Path
from typing import Any

import transformers

from ...checkpoints.config import LARGEST, MAX_LAYERS, read_config
from ...checkpoints.reading import read_checkpoint
from ...errors import InputError
from ...files import shown

FORMS = "a folder of safetensors with its config.json, or a .gguf file"
ROLLED_BACK = {"full_attention", "sliding_attention", "chunked_attention", "attention"}
"""Kinds of layers whose memory is a cache of tokens."""


def located(source: Path) -> Path:
    """The folder, GGUF file or config.json that `source` stands for, absolute. Raises InputError."""
    path = Path(source).expanduser().absolute()
    if not path.exists():
        raise InputError(f"{shown(source)} does not exist; give {FORMS}")
    if path.is_dir():
        ggufs = [] if (path / "config.json").exists() else sorted(path.glob("*.gguf"))
        return ggufs[0] if len(ggufs) == 1 else path
    if is_gguf(path) or path.name == "config.json":
        return path
    if path.suffix == ".safetensors" or path.name == "model.safetensors.index.json":
        return path.parent
    raise InputError(f"{shown(source)} is no model that this engine reads; give {FORMS}")


def is_gguf(path: Path) -> bool:
    """Whether a located path is that of a GGUF file."""
    return path.suffix.lower() == ".gguf"


def config_of(source: Path) -> Any:
    """transformers' config of a folder, a config.json or a GGUF file. No code of a stranger's is run. Raises InputError."""
    path = located(source)
    if is_gguf(path):
        read_checkpoint(str(path))
        return _checked(path, _without_quantization(_read(path, path.parent, gguf_file=path.name)))
    read = read_config(path)
    if "auto_map" in read.outer and read.outer.get("model_type") not in transformers.CONFIG_MAPPING:
        raise InputError(
            f"{shown(path)} asks for code of its own, which is not run; give a model that transformers has"
        )
    return _checked(path, _read(path, read.path))


def _read(path: Path, place: str | Path, **how: Any) -> Any:
    """The config at `place`; `path` is what was given."""
    try:
        return transformers.AutoConfig.from_pretrained(place, local_files_only=True, trust_remote_code=False, **how)
    except Exception as error:  # whatever a damaged file makes of a parser
        line = next(iter(str(error).strip().splitlines()), "no message")[:300]
        raise InputError(
            f"{shown(path)} is no model that transformers {transformers.__version__} reads: {type(error).__name__}: {line}"
        ) from None


def _checked(path: Path, config: Any) -> Any:
    """The config, of a language model that a machine could hold."""
    text = config.get_text_config(decoder=True)
    numbers = [
        getattr(text, name, 0) for name in ("num_hidden_layers", "hidden_size", "vocab_size", "intermediate_size")
    ]
    whole = all(isinstance(one, int) and 0 <= one <= LARGEST for one in _flat(numbers))
    if not whole or numbers[0] > MAX_LAYERS or numbers[1] * numbers[2] > LARGEST:
        raise InputError(f"{shown(path)} is damaged: no model has {numbers[0]} layers of width {numbers[1]}")
    return config


def _flat(numbers: list[Any]) -> list[Any]:
    """Some models have a width for each layer."""
    return [one for number in numbers for one in (number if isinstance(number, list | tuple) else [number])]


def _without_quantization(config: Any) -> Any:
    """A GGUF file's config says that the file is quantized; its weights are unpacked when they are read."""
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    return config


def stored_method(config: Any) -> str:
    """How the checkpoint was quantized (gptq, bitsandbytes, ...); empty where it was not."""
    said = getattr(config, "quantization_config", None)
    if said is None:
        return ""
    method = said.get("quant_method") if isinstance(said, dict) else getattr(said, "quant_method", None)
    return str(getattr(method, "value", method) or "quantized")


def plain_quant(config: Any) -> str:
    """The quantization in which a checkpoint that was not quantized is loaded as it is stored."""
    return "fp32" if str(getattr(config, "dtype", "")) in ("torch.float32", "float32") else "bf16"


def stateful_layers(config: Any) -> str:
    """The kind of layers whose state cannot be rolled back by forgetting tokens; empty where there are none."""
    kinds = set(getattr(config.get_text_config(decoder=True), "layer_types", None) or ()) - ROLLED_BACK
    if kinds:
        return min(map(str, kinds))
    known = transformers.MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    classes = known if isinstance(known, list | tuple) else [known]
    return config.model_type if any(getattr(one, "_is_stateful", False) for one in classes) else ""

"""Own loader: what only transformers' loader can read, which is checkpoints that are quantized already, GGUF files, and names
or layouts that differ from those of the model. No pickle, no code of a stranger's."""

import importlib.util
import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import torch
import transformers

from ...checkpoints.safetensors import read_weights
from ...errors import InputError
from ...files import shown
from .stored_tensors import TakenTensors

PACKAGES = {
    "gptq": ("gptqmodel",),
    "awq": ("gptqmodel",),
    "bitsandbytes": ("bitsandbytes", "accelerate"),
    "compressed-tensors": ("compressed-tensors",),
    "torchao": ("torchao",),
}
"""What transformers wants installed for a checkpoint that is quantized so."""
SAFE: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}


def as_stored(source: Path, method: str, device: str) -> Any:
    """A checkpoint that `method` quantized, as it is. Raises InputError naming the package that is missing."""
    read_weights(source)
    try:
        with silent():
            model = transformers.AutoModelForCausalLM.from_pretrained(source, device_map=device, **SAFE)
        return model.eval().requires_grad_(False)
    except Exception as error:  # each method fails in ways of its own
        missing = _missing(method)
        remedy = f"pip install {' '.join(missing)}" if missing else "take a bf16 checkpoint, which is quantized at load"
        raise InputError(
            f"{shown(source)} ({method or 'quantized'}) cannot be loaded: {first_line(error)}; {remedy}"
        ) from None


def renamed(source: Path, dtype: torch.dtype) -> TakenTensors:
    """The tensors of a folder whose names or layouts are not those of the model, as transformers converts them."""
    read_weights(source)
    try:
        with silent():
            found: Any = transformers.AutoModelForCausalLM.from_pretrained(
                source, dtype=dtype, output_loading_info=True, **SAFE
            )
    except Exception as error:  # a stranger's tensors can break a conversion in any way
        raise InputError(
            f"{shown(source)} holds no weights that transformers {transformers.__version__} reads: {first_line(error)}; "
            "update transformers, or use --engine llama.cpp"
        ) from None
    model, told = found
    _check_complete(source, told.get("missing_keys", ()))
    return TakenTensors(model)


def unpacked_gguf(source: Path, dtype: torch.dtype) -> TakenTensors:
    """The tensors of a GGUF file whose header was read, unpacked."""
    try:
        with silent():
            found: Any = transformers.AutoModelForCausalLM.from_pretrained(
                source.parent, **gguf_arguments(source), dtype=dtype, output_loading_info=True
            )
    except Exception as error:  # architectures that it does not map, types of weights that it does not know
        remedy = "" if importlib.util.find_spec("gguf") else "pip install gguf, or "
        raise InputError(
            f"{shown(source)}: transformers cannot read this GGUF file: {first_line(error)}; {remedy}use --engine llama.cpp"
        ) from None
    model, told = found
    _check_complete(source, told.get("missing_keys", ()))
    return TakenTensors(model)


def gguf_arguments(source: Path) -> dict[str, Any]:
    """How transformers is asked for a GGUF file with its weights unpacked: newer ones keep them packed otherwise."""
    more = (
        {"quantization_config": transformers.GgufConfig(dequantize=True)} if hasattr(transformers, "GgufConfig") else {}
    )
    return {"gguf_file": source.name, "local_files_only": True, **more}


@contextmanager
def silent() -> Iterator[None]:
    """transformers without its bars and its remarks, which would fall between the lines of a report. Errors are raised."""
    log = transformers.utils.logging
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        with redirect_stderr(io.StringIO()):  # its reader of GGUF draws a bar of its own
            yield
    finally:
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()


def _check_complete(source: Path, missing: Iterable[str]) -> None:
    lacking = sorted(missing)
    if lacking:
        raise InputError(
            f"{shown(source)} holds no tensor {lacking[0]}: it is not what its config describes; download it again"
        )


def _missing(method: str) -> tuple[str, ...]:
    wanted = next((packages for word, packages in PACKAGES.items() if word in method), ())
    return tuple(name for name in wanted if importlib.util.find_spec(name.replace("-", "_")) is None)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]

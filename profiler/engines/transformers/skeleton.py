"""Skeleton: a model as its config describes it, without weights: parameters on the meta device, buffers real."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from ...errors import InputError
from ...files import shown

CONFIG_BYTES = 16 << 20


def config_of(source: Path) -> Any:
    """transformers' config of a folder, a config.json or a GGUF file. No code of a stranger's is run. Raises InputError."""
    folder = source if source.is_dir() else source.parent
    try:
        if source.suffix == ".gguf":
            return _plain(transformers.AutoConfig.from_pretrained(folder, gguf_file=source.name, local_files_only=True))
        path = source / "config.json" if source.is_dir() else source
        if path.stat().st_size > CONFIG_BYTES:
            raise InputError(f"{shown(path)} is no config of a model: larger than {CONFIG_BYTES >> 20} MiB")
        fields = json.loads(path.read_bytes())
        if "auto_map" in fields and fields.get("model_type") not in transformers.CONFIG_MAPPING:
            raise InputError(
                f"{shown(path)} asks for code of its own, which is not run; give a model that transformers has"
            )
        return transformers.AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{shown(source)} has no config.json; give a folder of safetensors with one") from None
    except Exception as error:  # whatever a damaged file makes of a parser
        raise InputError(
            f"{shown(source)} is no model that transformers {transformers.__version__} reads: {_line(error)}"
        ) from None


def _plain(config: Any) -> Any:
    """The config without the quantization of the file that it came from: weights are unpacked when they are read."""
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    return config


def skeleton(config: Any, dtype: torch.dtype) -> Any:
    """The causal language model of `config` in `dtype`, in eval mode. Raises InputError."""
    try:
        with parameters_on_meta():
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False)
    except Exception as error:  # a config from a stranger can break a constructor in any way
        raise InputError(
            f"transformers {transformers.__version__} cannot build a {config.model_type}: {_line(error)}"
        ) from None
    return model.eval().requires_grad_(False)


@contextmanager
def parameters_on_meta() -> Iterator[None]:
    """Every parameter that a module registers goes to the meta device at once, where it takes no memory.

    Buffers (rotary frequencies, say) are no part of a checkpoint and keep their values.
    """
    original = nn.Module.register_parameter

    def register(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        original(module, name, parameter)
        if parameter is not None:
            module._parameters[name] = nn.Parameter(parameter.to("meta"), requires_grad=False)

    nn.Module.register_parameter = register  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        nn.Module.register_parameter = original


def linears_of(model: nn.Module) -> dict[str, nn.Linear]:
    """The matrices that a pass multiplies with, by name; the output head among them."""
    return {name: module for name, module in model.named_modules() if type(module) is nn.Linear}


def usual_shape(source: Path) -> tuple[int, int]:
    """Rows and columns of the matrices that hold most weights of a checkpoint, its head aside. Raises InputError."""
    model = skeleton(config_of(source), torch.bfloat16)
    head, weights = head_name(model), {}
    for name, linear in linears_of(model).items():
        shape = linear.out_features, linear.in_features
        weights[shape] = weights.get(shape, 0) + (0 if name == head else linear.weight.numel())
    return max(weights, key=lambda shape: weights[shape])


def head_name(model: Any) -> str:
    """Name of the output head; empty where there is none of its own."""
    head = model.get_output_embeddings()
    return next((name for name, module in model.named_modules() if module is head), "")


def is_recurrent(config: Any) -> bool:
    """Whether some layers keep a state that is no KV cache."""
    kinds = getattr(config.get_text_config(decoder=True), "layer_types", None) or []
    return bool(set(kinds) - {"full_attention", "sliding_attention", "chunked_attention"})


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), 'no message')[:300]}"

"""Skeleton: a model as its config describes it, without weights: parameters on the meta device, buffers real."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from ...checkpoints.config import MAX_LAYERS
from ...checkpoints.roles import APART, role_of
from ...errors import InputError
from .configs import config_of

ROUTERS = ("gate", "router", "shared_expert_gate")
"""Small matrices that choose experts: they keep their precision in every quantization."""


def skeleton(config: Any, dtype: torch.dtype) -> Any:
    """The causal language model of `config` in `dtype`, in eval mode. Raises InputError."""
    try:
        with parameters_on_meta():
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False)
    except Exception as error:  # a config from a stranger can break a constructor in any way
        raise InputError(
            f"transformers {transformers.__version__} cannot build a {config.model_type}: {_line(error)}"
        ) from None
    _keep_wide(model, dtype)
    return model.eval().requires_grad_(False)


def _keep_wide(model: Any, dtype: torch.dtype) -> None:
    """Parameters and buffers that the model's authors keep in fp32 whatever the rest is in, as transformers' loader does."""
    wide = getattr(model, "_keep_in_fp32_modules_strict", None) or ()
    if dtype == torch.float32 or not wide:
        return
    pattern = re.compile("|".join(rf"(^|\.){re.escape(name).replace(chr(92) + '*', '.*')}($|\.)" for name in wide))
    for owner, module in model.named_modules():
        for held in (module._parameters, module._buffers):
            for name, value in held.items():
                if value is not None and value.is_floating_point() and pattern.search(f"{owner}.{name}"):
                    held[name] = nn.Parameter(value.float(), False) if held is module._parameters else value.float()


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


def role(name: str) -> str:
    """Role of a tensor (checkpoints/roles.py) by its name."""
    return role_of(name, MAX_LAYERS)


def linears_of(model: nn.Module) -> dict[str, nn.Linear]:
    """The matrices that a pass over text multiplies with, by name; the output head among them, what chooses experts not."""
    return {
        name: module
        for name, module in model.named_modules()
        if type(module) is nn.Linear and name.rpartition(".")[2] not in ROUTERS and role(f"{name}.weight") != APART
    }


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


def tied_embedding(model: Any) -> str:
    """Name of the token embedding's weights, where the output head is tied to them; else empty."""
    if not getattr(model.config.get_text_config(decoder=True), "tie_word_embeddings", False):
        return ""
    embedding = model.get_input_embeddings()
    return next(f"{name}.weight" for name, module in model.named_modules() if module is embedding)


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), 'no message')[:300]}"

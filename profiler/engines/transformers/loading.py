"""Loading: from a checkpoint to a model on a device, matrix by matrix, so that no more than one is ever held unquantized."""

import contextlib
import copy
import resource
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...errors import InputError
from ...files import shown
from .configs import config_of, is_gguf, located, plain_quant, stored_method
from .own_loader import as_stored, renamed, unpacked_gguf
from .paths import WeightPath
from .quantizing import QUANTS, layer_of
from .random_weights import RandomTensors
from .sizes import PLAIN, weight_bytes
from .skeleton import head_name, linears_of, skeleton, tied_embedding
from .stored_tensors import StoredTensors, Tensors


@dataclass(frozen=True)
class Loaded:
    """A model ready for passes. `weight_bytes`: what one pass reads of it; `paths`: kernels of its matrices, by quantization
    path and how many; `peak_host_bytes`: growth of the process's peak memory while it was loaded."""

    model: Any
    quant: str
    random: bool
    weight_bytes: int
    paths: dict[str, int]
    peak_host_bytes: int

    @property
    def path_name(self) -> str:
        """The kernels in use, the most frequent first."""
        return ", ".join(sorted(self.paths, key=lambda name: -self.paths[name]))


def load(
    source: Path, *, quant: str = "bf16", device: str = "cpu", random_weights: bool = False, seed: int = 1
) -> Loaded:
    """The model at `source` (folder of safetensors, GGUF file; config.json is enough for random weights) in `quant`.

    `quant` empty, or anything but QUANTS: as the checkpoint stores it. Raises InputError.
    """
    before = peak_bytes()
    source = located(source)
    config = config_of(source)
    method = "" if random_weights or is_gguf(source) else stored_method(config)
    if method and quant in QUANTS:
        raise InputError(f"{shown(source)} is quantized already ({method}); leave the quantization out")
    if method:
        model = as_stored(source, method, device)
        paths = {quant or method: len(linears_of(skeleton(config, torch.bfloat16)))}
    else:
        quant = quant if quant in QUANTS else plain_quant(config)
        model = skeleton(config, _dtype(quant))
        tensors = RandomTensors(config, device, seed) if random_weights else _tensors(source, model, _dtype(quant))
        paths = _fill(model, quant, device, tensors)
    return Loaded(model, quant, random_weights, weight_bytes(model), paths, max(0, peak_bytes() - before))


def _dtype(quant: str) -> torch.dtype:
    return torch.float32 if quant == "fp32" else torch.bfloat16


def _tensors(source: Path, model: Any, dtype: torch.dtype) -> Tensors:
    """Where the weights of `model` come from: read one by one where the files hold them under the model's own names."""
    if is_gguf(source):
        return unpacked_gguf(source, dtype)
    stored = StoredTensors(source)
    instead = {f"{head_name(model)}.weight": tied_embedding(model)}
    own = all(stored.has(name) or stored.has(instead.get(name, "")) for name, _ in model.named_parameters())
    return stored if own else renamed(source, dtype)


def _fill(model: Any, quant: str, device: str, tensors: Tensors) -> dict[str, int]:
    """Put every tensor in its place, the matrices as `quant` says; how many went to each path."""
    paths = _place_packed(model, quant, device, tensors)
    _place_parameters(model, device, tensors)
    _place_buffers(model, device, tensors)
    if tied_embedding(model) and type(model.get_output_embeddings()) is nn.Linear:
        model.get_output_embeddings().weight = model.get_input_embeddings().weight
    return paths


def _place_packed(model: Any, quant: str, device: str, tensors: Tensors) -> dict[str, int]:
    """Quantized layers in place of the matrices; a tied head is made of the embedding's weights."""
    head, paths = head_name(model), {}
    made: dict[tuple[str, torch.Size, bool], nn.Module] = {}
    for name, linear in linears_of(model).items():
        path = layer_of(quant, linear.out_features, linear.in_features, name == head)
        paths[path.name] = paths.get(path.name, 0) + 1
        if path.quant in PLAIN:
            continue
        key = path.name, linear.weight.shape, linear.bias is None
        if tensors.copied and key in made:
            layer = copy.deepcopy(made[key])
        else:
            layer = _packed(path, linear, name, tied_embedding(model) if name == head else "", tensors, device)
            made |= {key: layer} if tensors.copied else {}
        _replace(model, name, layer)
    return paths


def _packed(path: WeightPath, linear: nn.Linear, name: str, instead: str, tensors: Tensors, device: str) -> nn.Module:
    """The layer in place of `linear`; `instead`: the tensor that it is tied to."""
    weight = _wanted(tensors, f"{name}.weight", linear.weight, instead).to(device)
    bias = None if linear.bias is None else _wanted(tensors, f"{name}.bias", linear.bias).to(device, linear.bias.dtype)
    return path.make(weight, bias)


def _place_parameters(model: Any, device: str, tensors: Tensors) -> None:
    """Parameters that no quantized layer took; a tied head is put in place with its embedding."""
    tied_head = f"{head_name(model)}.weight" if tied_embedding(model) else ""
    drawn: dict[tuple[torch.Size, torch.dtype], torch.Tensor] = {}
    for owner, name, parameter in _each(model, "_parameters"):
        full = _joined(owner, name)
        if not parameter.is_meta or full == tied_head:
            continue
        key = parameter.shape, parameter.dtype
        if tensors.copied and key in drawn and parameter.ndim > 1:
            value = drawn[key].clone()
        else:
            # A dtype of its own (a router in fp32) is kept where the skeleton has it.
            value = _wanted(tensors, full, parameter).to(device, parameter.dtype)
            drawn |= {key: value} if tensors.copied else {}
        model.get_submodule(owner)._parameters[name] = nn.Parameter(value, requires_grad=False)


def _place_buffers(model: Any, device: str, tensors: Tensors) -> None:
    """Buffers: computed ones (rotary frequencies) as they are, those that checkpoints hold as they were stored."""
    for owner, name, buffer in _each(model, "_buffers"):
        module = model.get_submodule(owner)
        stored = None if name in module._non_persistent_buffers_set else tensors(_joined(owner, name))
        value = buffer if stored is None or stored.shape != buffer.shape else stored
        module._buffers[name] = value.to(device, buffer.dtype)


def _each(model: nn.Module, kind: str) -> list[tuple[str, str, torch.Tensor]]:
    """Name of its module, own name and value of every parameter or buffer (`kind`: the attribute that holds them)."""
    return [
        (owner, name, value)
        for owner, module in model.named_modules()
        for name, value in getattr(module, kind).items()
        if value is not None
    ]


def _joined(owner: str, name: str) -> str:
    return f"{owner}.{name}" if owner else name


def _wanted(tensors: Tensors, name: str, like: torch.Tensor, instead: str = "") -> torch.Tensor:
    """The tensor `name`, or the one that is tied to it, in the shape that the model has. Raises InputError."""
    found = tensors(name)
    if found is None and instead:
        found = tensors(instead)
    if found is None:
        raise InputError(f"the checkpoint holds no tensor {name}: it is not what its config.json describes")
    if found.shape != like.shape:
        raise InputError(f"{name} has the shape {tuple(found.shape)}, the config says {tuple(like.shape)}")
    return found


def _replace(model: nn.Module, name: str, module: nn.Module) -> None:
    owner, _, last = name.rpartition(".")
    setattr(model.get_submodule(owner), last, module)


def peak_bytes() -> int:
    """The process's greatest resident memory so far, files that it maps included.

    On Linux from its own address space: ru_maxrss of a process that was started by a larger one begins at that one's size.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

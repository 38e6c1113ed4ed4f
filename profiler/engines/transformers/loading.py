"""Loading: from a checkpoint to a model on a device, matrix by matrix, so that no more than one is ever held unquantized."""

import importlib.util
import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from torch import nn

from ...errors import InputError
from ...files import shown
from .quantizing import QUANTS, layer_bytes, layer_of
from .skeleton import config_of, head_name, linears_of, skeleton

WEIGHT_SD = 0.02
"""Standard deviation of random weights: transformers' own initializer_range of most models."""
PACKAGES = {
    "gptq": "gptqmodel",
    "awq": "gptqmodel",
    "bitsandbytes": "bitsandbytes",
    "compressed-tensors": "compressed-tensors",
    "torchao": "torchao",
}
"""What transformers wants installed for a checkpoint that is quantized so."""

Tensors = Callable[[str], torch.Tensor | None]
"""A stored tensor by its name; None where there is none of that name."""


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
    config = config_of(source)
    stored = getattr(config, "quantization_config", None)
    if random_weights:
        model, paths = _filled(config, quant, device, _random(config, device, seed))
    elif stored is not None and quant not in QUANTS:
        model, paths = (
            _as_stored(source, stored, device),
            {quant or "as stored": len(linears_of(skeleton(config, torch.bfloat16)))},
        )
    elif stored is not None:
        raise InputError(f"{shown(source)} is quantized already; leave the quantization out")
    elif source.suffix == ".gguf":
        whole = _unpacked_gguf(source)
        model, paths = _filled(config, quant, device, whole.state_dict().get)
    else:
        with _stored(source) as tensors:
            model, paths = _filled(config, quant, device, tensors)
    return Loaded(model, quant, random_weights, weight_bytes(model), paths, max(0, peak_bytes() - before))


def _filled(config: Any, quant: str, device: str, tensors: Tensors) -> tuple[Any, dict[str, int]]:
    """The skeleton with every tensor in place, its matrices as `quant` says."""
    dtype = torch.float32 if quant == "fp32" else torch.bfloat16
    model = skeleton(config, dtype)
    head, linears, paths = head_name(model), linears_of(model), {}
    for name, linear in linears.items():
        layer = layer_of(quant, linear.out_features, linear.in_features, name == head)
        paths[layer.name] = paths.get(layer.name, 0) + 1
        if layer.quant not in ("fp32", "bf16"):
            stored = _wanted(tensors, f"{name}.weight", _embedding_name(model) if name == head else "")
            bias = None if linear.bias is None else _wanted(tensors, f"{name}.bias").to(device)
            _replace(model, name, layer.make(stored.to(device), bias))
    _place_rest(model, tensors, device, dtype)
    if _embedding_name(model) and type(model.get_output_embeddings()) is nn.Linear:
        model.get_output_embeddings().weight = model.get_input_embeddings().weight
    return model, paths


def _place_rest(model: nn.Module, tensors: Tensors, device: str, dtype: torch.dtype) -> None:
    """Parameters that no quantized layer took, and buffers."""
    tied = {f"{head_name(model)}.weight": _embedding_name(model)}
    for module_name, module in model.named_modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None and parameter.is_meta:
                full = f"{module_name}.{name}" if module_name else name
                value = _wanted(tensors, full, tied.get(full, ""))
                if value.shape != parameter.shape:
                    raise InputError(
                        f"{full} has the shape {tuple(value.shape)}, the config says {tuple(parameter.shape)}"
                    )
                # A dtype of its own (a router in fp32) is kept where the skeleton has it.
                module._parameters[name] = nn.Parameter(value.to(device, parameter.dtype), requires_grad=False)
        for name, buffer in list(module._buffers.items()):
            if buffer is not None and not isinstance(buffer, torch.nn.Parameter):
                module._buffers[name] = buffer.to(device)


def _embedding_name(model: Any) -> str:
    """Name of the token embedding's weights, where the output head is tied to them."""
    if not getattr(model.config.get_text_config(decoder=True), "tie_word_embeddings", False):
        return ""
    embedding = model.get_input_embeddings()
    return next(f"{name}.weight" for name, module in model.named_modules() if module is embedding)


def _wanted(tensors: Tensors, name: str, instead: str = "") -> torch.Tensor:
    found = tensors(name)
    if found is None and instead:
        found = tensors(instead)
    if found is None:
        raise InputError(f"the checkpoint holds no tensor {name}: it is not what its config.json describes")
    return found


def _replace(model: nn.Module, name: str, module: nn.Module) -> None:
    owner, _, last = name.rpartition(".")
    setattr(model.get_submodule(owner), last, module)


class _stored:
    """The tensors of a folder of safetensors, each read when it is asked for."""

    def __init__(self, folder: Path):
        from ...checkpoints.safetensors import read_weights

        headers = read_weights(folder).headers
        self._files = {tensor.name: header.path for header in headers for tensor in header.tensors}
        self._open: dict[str, Any] = {}

    def __enter__(self) -> Tensors:
        return self._tensor

    def __exit__(self, *error: object) -> None:
        self._open.clear()

    def _tensor(self, name: str) -> torch.Tensor | None:
        from safetensors import safe_open

        path = self._files.get(name)
        if path is None:
            return None
        if path not in self._open:
            self._open = {path: safe_open(path, framework="pt", device="cpu")}
        return self._open[path].get_tensor(name)


def _random(config: Any, device: str, seed: int) -> Tensors:
    """Values of the real shapes, made on the device one tensor at a time: norms 1, biases 0, the rest normal."""
    shapes = {
        name: (parameter.shape, parameter.dtype)
        for name, parameter in skeleton(config, torch.bfloat16).named_parameters()
    }
    generator = torch.Generator(device).manual_seed(seed)

    def tensor(name: str) -> torch.Tensor | None:
        if name not in shapes:
            return None
        shape, dtype = shapes[name]
        if name.endswith("bias"):
            return torch.zeros(shape, dtype=dtype, device=device)
        if len(shape) < 2:
            return torch.ones(shape, dtype=dtype, device=device)
        return torch.empty(shape, dtype=dtype, device=device).normal_(0, WEIGHT_SD, generator=generator)

    return tensor


def _as_stored(source: Path, stored: Any, device: str) -> nn.Module:
    """A checkpoint that is quantized already, by transformers' own loader. Raises InputError naming what is missing."""
    method = str(stored.get("quant_method", "") if isinstance(stored, dict) else getattr(stored, "quant_method", ""))
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            source, local_files_only=True, trust_remote_code=False, device_map=device
        )
        return model.eval().requires_grad_(False)
    except Exception as error:  # each method fails in ways of its own
        package = next((name for word, name in PACKAGES.items() if word in method), "")
        missing = package and importlib.util.find_spec(package.replace("-", "_")) is None
        remedy = f"pip install {package}" if missing else "or take a bf16 checkpoint, which is quantized at load"
        line = next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]
        raise InputError(f"{shown(source)} ({method or 'quantized'}) cannot be loaded: {line}; {remedy}") from None


def _unpacked_gguf(source: Path) -> Any:
    """A GGUF file with its weights as bf16, by transformers' own reader."""
    more = {}
    if hasattr(transformers, "GgufConfig"):
        more["quantization_config"] = transformers.GgufConfig(dequantize=True)
    try:
        return transformers.AutoModelForCausalLM.from_pretrained(
            source.parent, gguf_file=source.name, local_files_only=True, dtype=torch.bfloat16, **more
        )
    except Exception as error:  # architectures that it does not map, files that break off
        line = next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]
        raise InputError(
            f"{shown(source)}: transformers cannot read this GGUF file: {line}; --engine llama.cpp does"
        ) from None


def weight_bytes(model: Any) -> int:
    """Bytes that one pass reads: all tensors but the token embedding, of which it reads a few rows (unless it is the head)."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    tied = getattr(head, "weight", None) is embedding.weight
    unread = 0 if tied else embedding.weight.numel() * embedding.weight.element_size()
    every = {id(t): t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers())}
    return sum(every.values()) - unread


class Sizes(NamedTuple):
    """Of a model in some quantization: bytes of all weights, of the output head, of the embedding that no pass reads whole
    (none where it is the head), and parameters (a tied head once)."""

    all_bytes: int
    head_bytes: int
    unread_bytes: int
    parameters: int


def sizes_in(config: Any, quant: str) -> Sizes:
    """Sizes of the model that `config` describes, in `quant`, without loading it."""
    model = skeleton(config, torch.bfloat16)
    head, linears = head_name(model), linears_of(model)
    kept = {name: _bytes_of(linear, quant, name == head) for name, linear in linears.items()}
    parameters = sum(parameter.numel() for parameter in model.parameters())
    rest = parameters - sum(linear.weight.numel() for linear in linears.values())
    tied = linears[head].weight.numel() if _embedding_name(model) and head in linears else 0
    shared = kept[head] if tied and quant in ("fp32", "bf16") else 0
    rest_bytes = rest * (4 if quant == "fp32" else 2)
    embedding = model.get_input_embeddings().weight.numel() * (4 if quant == "fp32" else 2)
    unread = 0 if shared else embedding
    return Sizes(sum(kept.values()) + rest_bytes - shared, kept.get(head, 0), unread, parameters - tied)


def _bytes_of(linear: nn.Linear, quant: str, head: bool) -> int:
    rows, columns = linear.out_features, linear.in_features
    return layer_bytes(layer_of(quant, rows, columns, head).quant, rows, columns)


def peak_bytes() -> int:
    """The process's greatest resident memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

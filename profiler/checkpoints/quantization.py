"""quantization_config: how weights were packed, under one name for all quantizers, and what a packed tensor stands for.

Sources: the quantization_config classes of transformers (gptq, awq, bitsandbytes, compressed-tensors, torchao, fp8,
mxfp4), the checkpoint layouts of AutoGPTQ, AutoAWQ, vllm-project/compressed-tensors and mlx-lm.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .config import Config
from .roles import WeighedTensor
from .safetensors import StoredTensor

PACKED_SUFFIXES = (".qweight", ".weight_packed", "_blocks", ".weight_qdata")
SIDE_SUFFIXES = (
    ".qzeros", ".scales", ".biases", ".g_idx", ".weight_scale", ".weight_scale_inv", ".weight_scale_2", ".weight_shape",
    ".weight_zero_point", ".weight_g_idx", ".weight_global_scale", ".input_scale", ".input_global_scale", ".input_zero_point",
    ".output_scale", ".k_scale", ".v_scale", ".q_scale", ".SCB", ".weight_format", ".weight.absmax", ".weight.quant_map",
    ".weight.nested_absmax", ".weight.nested_quant_map", "_scales", "_weight_scale", "_weight_zero_point", "_scale_inv",
    ".weight:scale", ".weight:zero_point", ".weight_zero", "_scale", "_scale_2",
)  # fmt: skip
"""What quantizers write beside a matrix."""
_STATE = re.compile(r"\.weight\.quant_state\.\w+$")
_WORDS = {"I32": 32, "U32": 32, "I64": 64, "U8": 8, "I8": 8, "I16": 16, "U16": 16}
FLOAT_NAMES = {"F32": "F32", "F16": "F16", "BF16": "BF16", "F64": "F64", "F8_E4M3": "fp8", "F8_E5M2": "fp8"}


@dataclass(frozen=True)
class Quantization:
    """`label` as in Checkpoint.quant; `bits` of a packed weight, scales aside, None where nothing is packed."""

    label: str
    method: str = ""
    bits: int | None = None
    group_size: int | None = None


def quantization_of(config: Config) -> Quantization | None:
    """What config.json says of its weights; None where it does not say that they are quantized."""
    said = config.part("quantization_config", "compression_config")
    if not said:
        return _mlx(config.part("quantization"))
    method = str(said.get("quant_method") or said.get("quant_algo") or "").lower()
    readers = {
        "bitsandbytes": _bitsandbytes, "compressed-tensors": _compressed, "compressed_tensors": _compressed,
        "torchao": _torchao, "fp8": _fp8, "fbgemm_fp8": _fp8, "mxfp4": _mxfp4, "modelopt": _modelopt,
    }  # fmt: skip
    if method in readers:
        return readers[method](said)
    name = re.sub(r"[^a-z0-9_.-]", "", method)[:40] or "quantized"
    bits = _integer(said, "bits") or _integer(said, "w_bit") or _integer(said, "weight_bits") or _integer(said, "nbits")
    group = _integer(said, "group_size") or _integer(said, "q_group_size")
    return Quantization(_label(name, f"int{bits}" if bits else "", group), name, bits, group)


def weighed(tensors: Iterable[StoredTensor], quantization: Quantization | None) -> list[WeighedTensor]:
    """Each tensor with the parameters that it stands for."""
    stored = list(tensors)
    names = {tensor.name for tensor in stored}
    return [_weighed(tensor, names, quantization) for tensor in stored]


def stored_label(tensors: Iterable[WeighedTensor]) -> str:
    """The type that holds most bytes of the matrices."""
    held: dict[str, int] = {}
    for tensor in tensors:
        if (
            len(tensor.stored.shape) > 1
            and tensor.parameters
            and "embed" not in tensor.owner
            and "lm_head" not in tensor.owner
        ):
            held[tensor.stored.dtype] = held.get(tensor.stored.dtype, 0) + tensor.stored.size_bytes
    main = max(held, key=lambda dtype: held[dtype], default="")
    return FLOAT_NAMES.get(main, main) or "unknown"


def _weighed(tensor: StoredTensor, names: set[str], quantization: Quantization | None) -> WeighedTensor:
    name = tensor.name
    if quantization is None:
        return WeighedTensor(tensor, tensor.elements, name)
    if name.endswith(PACKED_SUFFIXES):
        return WeighedTensor(tensor, _unpacked(tensor, quantization), _owner(name, PACKED_SUFFIXES))
    if ".quant_state." in name and _STATE.search(name):
        return WeighedTensor(tensor, 0, _STATE.sub("", name))
    if name.endswith(SIDE_SUFFIXES):
        return WeighedTensor(tensor, 0, _owner(name, SIDE_SUFFIXES))
    if quantization.method in ("mlx", "bitsandbytes", "modelopt", "compressed-tensors", "torchao"):
        # Packed under the matrix's own name; an int8 of bitsandbytes is not packed.
        return WeighedTensor(
            tensor, _unpacked(tensor, quantization) if _is_packed(tensor, names) else tensor.elements, name
        )
    return WeighedTensor(tensor, tensor.elements, name)


def _owner(name: str, suffixes: tuple[str, ...]) -> str:
    """The name without the first of `suffixes` that it ends in."""
    return name.removesuffix(next(suffix for suffix in suffixes if name.endswith(suffix)))


def _is_packed(tensor: StoredTensor, names: set[str]) -> bool:
    if tensor.dtype == "U32":
        return tensor.name.removesuffix(".weight") + ".scales" in names
    return tensor.dtype == "U8"


def _unpacked(tensor: StoredTensor, quantization: Quantization) -> int:
    """Weights in a tensor of words. A group of 3-bit weights may cross words: the words' bits over the weight's."""
    word = _WORDS.get(tensor.dtype)
    bits = quantization.bits
    if word is None or bits is None or not 0 < bits <= word:
        return tensor.elements
    return tensor.elements * word // bits


def _integer(values: Mapping[str, object], key: str) -> int | None:
    value = values.get(key)
    plausible = isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 20
    return value if plausible and isinstance(value, int) else None


def _label(method: str, kind: str, group: int | None) -> str:
    return "-".join(part for part in (method, kind, f"g{group}" if group else "") if part)


def _mlx(said: Mapping[str, object]) -> Quantization | None:
    bits, group = _integer(said, "bits"), _integer(said, "group_size")
    if bits is None:
        return None
    mode = said.get("mode")
    kind = mode if mode in ("mxfp4", "mxfp8", "nvfp4") else f"int{bits}"
    return Quantization(_label("mlx", str(kind), group), "mlx", bits, group)


def _bitsandbytes(said: Mapping[str, object]) -> Quantization:
    if said.get("load_in_8bit") is True or said.get("_load_in_8bit") is True:
        return Quantization("bnb-int8", "bitsandbytes", 8)
    kind = said.get("bnb_4bit_quant_type")
    return Quantization(f"bnb-{kind if kind in ('nf4', 'fp4') else 'fp4'}", "bitsandbytes", 4, 64)


def _compressed(said: Mapping[str, object]) -> Quantization:
    groups = said.get("config_groups")
    first = next((g for g in groups.values() if isinstance(g, dict)), {}) if isinstance(groups, dict) else {}
    weights = first.get("weights")
    weights = weights if isinstance(weights, dict) else {}
    bits, group = _integer(weights, "num_bits"), _integer(weights, "group_size")
    kind = f"{'fp' if weights.get('type') == 'float' else 'int'}{bits}" if bits else ""
    return Quantization(_label("compressed-tensors", kind, group), "compressed-tensors", bits, group)


def _torchao(said: Mapping[str, object]) -> Quantization:
    """The names of torchao's configs say it: Int4WeightOnlyConfig, int8_dynamic_activation_int4_weight, Float8..."""
    kind: object = said.get("quant_type")
    if isinstance(kind, dict):
        kind = kind.get("default", kind)
    values = kind.get("_data") if isinstance(kind, dict) else said.get("quant_type_kwargs")
    values = values if isinstance(values, dict) else {}
    name = str(kind.get("_type", "") if isinstance(kind, dict) else kind or "")
    found = re.findall(r"(?i)(u?int|float)_?([1-8])(?:_?weight|\b)", name) or re.findall(
        r"(?i)(u?int|float)_?([1-8])", name
    )
    group = _integer(values, "group_size")
    if not found:
        return Quantization("torchao", "torchao", None, group)
    word, bits = found[-1]
    prefix = "fp" if word.lower() == "float" else "int"
    return Quantization(_label("torchao", f"{prefix}{bits}", group), "torchao", int(bits), group)


def _fp8(said: Mapping[str, object]) -> Quantization:
    return Quantization("fp8", "fp8", 8)


def _mxfp4(said: Mapping[str, object]) -> Quantization:
    return Quantization("mxfp4", "mxfp4", 4, 32)


def _modelopt(said: Mapping[str, object]) -> Quantization:
    kind = str(said.get("quant_algo") or "").lower()
    bits = 4 if "4" in kind else 8 if "8" in kind else None
    name = {"nvfp4": "nvfp4", "fp8": "fp8"}.get(kind, re.sub(r"[^a-z0-9_]", "", kind)[:20])
    return Quantization(_label("modelopt", name, None), "modelopt", bits, _integer(said, "group_size"))

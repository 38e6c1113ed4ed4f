"""Words that may stand in a shared profile: they are public, and too narrow to hold anything of the user's."""

import re
from collections.abc import Iterable

from ...model.recipe import RECIPES, TERMS
from ..checkpoints.families import FAMILIES

DRAFTERS = frozenset({"none", *RECIPES})
NGRAM_METHODS = frozenset(
    {"ngram-simple", "ngram-mod", "ngram-cache", "ngram-map-k", "ngram-map-k4v", "ngram", "prompt-lookup"}
)
ROLES = frozenset({"target", "draft", "sentinel"})
STEP_KINDS = frozenset({"decode", "batch", "verify", "prefill"})
ACTIONS = frozenset({"bandwidth", "steps", "verify", "rounds", "trace", "matches", "runs", "import"})
MATCH_SOURCES = frozenset({"rounds", "replay", "teacher-forced"})
OPERATIONS = frozenset({"read", "copy", "spec"})
PROVENANCES = frozenset({"measured", "spec"})
DRAFT_SAMPLINGS = frozenset({"greedy", "probabilistic"})
CLASSES = frozenset({"code", "chat", "prose", "reasoning", "other-language", "copying"})
WORKLOADS = CLASSES | {"ordinary", "prompts", "reported", "short", "long", "math", "summary", "translation", "rag"}
"""Names that many would choose; every other one is replaced."""
ENGINES = frozenset({"llama.cpp", "transformers", "vLLM", "fake"})
CAPABILITIES = NGRAM_METHODS | {
    "forced-acceptance", "probabilistic-draft", "rollback", "teacher-forced", "all-rows", "per-request-speculation",
    "draft-mtp", "draft-eagle3", "draft-dflash",
}  # fmt: skip
ROUND_TERMS = frozenset({*TERMS, "round", "rollback"})
ARCHITECTURES = frozenset(FAMILIES) | {
    "llama", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "qwen3next", "gemma", "gemma2", "gemma3", "gemma3n", "phi2", "phi3",
    "phimoe", "mistral3", "starcoder2", "command-r", "cohere2", "deepseek", "deepseek2", "gpt-oss", "glm4", "glm4moe", "olmo2",
    "granite", "granitemoe", "granitehybrid", "falcon", "falcon-h1", "mamba", "mamba2", "jamba", "nemotron", "exaone", "exaone4",
    "internlm2", "minicpm", "minicpm3", "smollm3", "stablelm", "simulated",
}  # fmt: skip
EVENTS = frozenset({
    "GpuIdle", "ApplicationsClocksSetting", "SwPowerCap", "HwSlowdown", "SyncBoost", "SwThermalSlowdown", "HwThermalSlowdown",
    "HwPowerBrakeSlowdown", "DisplayClockSetting",
})  # fmt: skip
"""Why a clock is held down, in NVML's names."""
NUMBERS_READ_BACK = frozenset({
    "temperature", "top_k", "top_p", "min_p", "repeat_penalty", "seed", "n_ctx", "dynatemp_range", "xtc_probability",
    "typical_p", "top_n_sigma", "presence_penalty", "frequency_penalty", "dry_multiplier", "mirostat", "adaptive_target",
    "speculative.n_max", "speculative.draft.n_max", "speculative.n_min", "speculative.p_min", "speculative.draft_tokens",
    "n_gpu_layers", "gpu_layers", "n_layers", "n_layer", "draft.n_gpu_layers", "draft.gpu_layers",
})  # fmt: skip
"""Settings that an engine reads back as a number."""
WORDS_READ_BACK = {
    "speculative.types": NGRAM_METHODS | {"none", "draft-simple", "draft-mtp", "draft-eagle3", "draft-dflash"},
    "speculative.type": NGRAM_METHODS | {"none", "draft-simple", "draft-mtp", "draft-eagle3", "draft-dflash"},
    "draft_sampling": DRAFT_SAMPLINGS,
    "speculative.draft_sampling": DRAFT_SAMPLINGS,
    "passes": frozenset({"captured", "eager"}),
}
SPEED_FLAGS = frozenset({
    "-ngl", "--gpu-layers", "--n-gpu-layers", "-ngld", "--gpu-layers-draft", "--n-gpu-layers-draft", "--spec-draft-ngl",
    "-t", "--threads", "-tb", "--threads-batch", "-td", "--threads-draft", "-tbd", "--threads-batch-draft",
    "-b", "--batch-size", "-ub", "--ubatch-size", "-fa", "--flash-attn", "-ctk", "--cache-type-k", "-ctv", "--cache-type-v",
    "-ctkd", "--cache-type-k-draft", "-ctvd", "--cache-type-v-draft", "-sm", "--split-mode", "-mg", "--main-gpu",
    "-ncmoe", "--n-cpu-moe", "-cmoe", "--cpu-moe", "-nkvo", "--no-kv-offload", "--no-mmap", "--mlock", "--numa", "--prio",
    "type_k", "type_v", "n_gpu_layers", "flash_attn", "n_batch", "n_ubatch", "split_mode", "no_kv_offload",
})  # fmt: skip
"""Engine flags that change speed and whose values are numbers or one of FLAG_VALUES: llama-server's and llama-bench's."""
FLAG_VALUES = frozenset({"on", "off", "auto", "all", "none", "row", "layer", "distribute", "isolate", "0", "1"})

_NUMBER = re.compile(r"-?\d{1,10}(\.\d{1,17})?(e-?\d{1,3})?", re.ASCII)
_VERSION = re.compile(r"v?\d{1,6}(\.\d{1,8}){0,4}([+-](cu|rocm|cpu|b)?\d{0,6})?", re.ASCII)
_BUILD = re.compile(r"\(?(b?\d{1,6}|b\d{1,6}-[0-9a-f]{7,9}|[0-9a-f]{7,9})\)?", re.ASCII)
_BUILD_WORDS = frozenset({"version:", "build:", "transformers", "torch", "llama.cpp", "xllamacpp", "vllm", "unknown"})
_QUANT = re.compile(
    r"((ud|gptq|awq|bnb|mlx|compressed|tensors|torchao|modelopt|quantized|xl|moe|int[1-8]|uint[1-8]|fp[48]|bf16|fp?16|fp?32|nf4|"
    r"w[1-8]a\d{1,2}|g\d{1,4}|mxfp[48]|nvfp4|i?q\d|tq\d|[01ksml]|nl|xs|xxs|e[45]m[23])(?![a-z0-9])[-_ ]?)+",
    re.ASCII | re.IGNORECASE,
)
_HARDWARE = re.compile(
    r"[a-z]{0,2}\d{3,5}[a-z]{0,3}|[mltav]\d{1,2}|l40s|rx|mi\d{2,3}[a-z]?|g?b\d{2}|i[3579]|e\d|v\d|\d{1,3}|\d{1,4}gi?b|"
    r"\d(\.\d{1,2})?ghz|sxm\d?",
    re.ASCII,
)
_HARDWARE_WORDS = frozenset({
    "nvidia", "geforce", "rtx", "gtx", "tesla", "quadro", "titan", "tegra", "jetson", "orin", "thor", "grace", "hopper",
    "blackwell", "ada", "ampere", "generation", "laptop", "gpu", "gpu:", "max", "q", "super", "ti", "pcie", "nvl", "workstation",
    "server", "edition", "amd", "radeon", "instinct", "pro", "xt", "xtx", "epyc", "ryzen", "ai", "threadripper", "core",
    "cores", "dual", "quad", "six", "eight", "processor", "intel", "intel(r)", "xeon", "xeon(r)", "gold", "silver", "platinum",
    "bronze", "arc", "iris", "xe", "graphics", "cpu", "cpu:", "apple", "ultra", "arm", "cortex", "neoverse", "qualcomm",
    "snapdragon", "core(tm)", "@", "w/", "with", "unified", "memory", "cuda", "mps", "metal", "vulkan", "rocm", "hip", "sycl",
    "blas", "rpc", "simulated", "unknown",
})  # fmt: skip
_MOST_WORDS = 16


def one_of(allowed: Iterable[str], text: str, other: str = "") -> str:
    """`text` where it is one of `allowed`."""
    return text if text in allowed else other


def hardware(text: str) -> str:
    """What of a device's name is a maker's word; words that are not are left out."""
    kept = [word for word in text.split() if all(_is_hardware(part) for part in word.lower().strip(",").split("-"))]
    return " ".join(kept[:_MOST_WORDS])


def architecture(text: str) -> str:
    """A family of models, or transformers' name of its class; empty for one that is not known."""
    family = text.removesuffix("ForCausalLM").removesuffix("ForConditionalGeneration").lower()
    return text if family in ARCHITECTURES else ""


def version(text: str) -> str:
    """What of a version or build is a number, a commit's hash, or the name of an engine."""
    kept = [word for word in text.split() if _is_version(word.rstrip(","))]
    return " ".join(kept[:_MOST_WORDS]).rstrip(",")


def quant(text: str) -> str:
    """A quantization that is spelled as they are; empty for any other text."""
    return text if len(text) <= 40 and _QUANT.fullmatch(text) else ""


def number(text: str) -> str:
    """A number, a truth value; empty for any other text."""
    return text if text in ("True", "False") or _NUMBER.fullmatch(text) else ""


def speed_flags(flags: Iterable[str]) -> tuple[str, ...]:
    """Those of an engine's flags that change its speed, with their values; all others are left out."""
    kept: list[str] = []
    open_flag = False
    for word in flags:
        name, equals, value = word.partition("=")
        if name in SPEED_FLAGS and (not equals or _is_value(value)):
            kept.append(word)
            open_flag = not equals
        elif open_flag and _is_value(word):
            kept.append(word)
            open_flag = False
        else:
            open_flag = False
    return tuple(kept)


def _is_value(text: str) -> bool:
    return text in FLAG_VALUES or bool(number(text)) or bool(quant(text))


def _is_hardware(part: str) -> bool:
    return part in _HARDWARE_WORDS or bool(_HARDWARE.fullmatch(part))


def _is_version(word: str) -> bool:
    return word.lower() in _BUILD_WORDS or bool(_VERSION.fullmatch(word)) or bool(_BUILD.fullmatch(word))

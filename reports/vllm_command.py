"""The line that starts vLLM with a setting, in the spelling of vLLM 0.10 to 0.32, and what of the setting vLLM has not got."""

import json
import shlex
from collections.abc import Sequence
from typing import Any

from ..profiler.records import ModelFile, Sampling, Setting

METHODS = {"model": "draft_model", "ngram": "ngram", "mtp": "mtp", "eagle": "eagle3", "dflash": "dflash"}
"""vLLM's name of each kind of drafter (docs.vllm.ai, features/speculative_decoding)."""
SPECULATIVE_KEYS = (
    "method", "model", "num_speculative_tokens", "prompt_lookup_min", "prompt_lookup_max", "draft_sample_method",
)  # fmt: skip
"""Keys of --speculative-config that are used here."""
OWN_KV_TYPES = ("f16", "bf16", "")
"""Types of the KV cache that vLLM's `auto` comes to."""


def vllm_serve(setting: Setting, models: Sequence[ModelFile], sampling: Sampling) -> str:
    """One line for a POSIX shell, quoted, with every value that the forecast assumed and vLLM has an option for."""
    words = [
        "vllm",
        "serve",
        _path(models, setting.target),
        *(("--max-model-len", str(setting.context)) if setting.context else ()),
        "--max-num-seqs",
        str(setting.streams),
    ]
    if _drafts(setting):
        words += ["--speculative-config", _json(_speculation(setting, models, sampling))]
    generation = _generation(sampling, drafts=_drafts(setting))
    words += ["--override-generation-config", _json(generation), "--seed", str(sampling.seed)]
    return shlex.join(words)


def vllm_drafting(setting: Setting, models: Sequence[ModelFile], sampling: Sampling) -> str:
    """The option of the drafter alone, to add to a command that is not known here; empty for plain decoding."""
    if not _drafts(setting):
        return ""
    return shlex.join(["--speculative-config", _json(_speculation(setting, models, sampling))])


def vllm_lacks(
    setting: Setting, models: Sequence[ModelFile], flags: Sequence[str], sampling: Sampling
) -> tuple[str, ...]:
    """What of the setting is not in that line, each in a sentence; nothing is left out without being said."""
    notes = []
    if any(model.path.endswith(".gguf") for model in models if model.label in (setting.target, setting.draft)):
        notes.append(
            "vLLM reads GGUF files experimentally only: a quantized folder of safetensors (GPTQ, AWQ) is its usual form."
        )
    kinds = {kind for kind in (setting.kv_type_k, setting.kv_type_v) if kind not in OWN_KV_TYPES}
    if kinds:
        notes.append(f"A KV cache of type {' and '.join(sorted(kinds))} is llama.cpp's; vLLM has --kv-cache-dtype fp8.")
    if setting.p_min > 0:
        notes.append(f"vLLM does not stop a draft by its confidence (here below {setting.p_min:g}).")
    if _drafts(setting) and sampling.temperature > 0 and sampling.min_p > 0:
        notes.append(
            f"vLLM refuses requests with a min_p while it speculates: it is 0 here, where {sampling.min_p:g} was measured."
        )
    if setting.drafter == "ngram" and setting.draft not in ("", "ngram-simple"):
        notes.append(f"vLLM's n-gram drafter has its own rule, not that of {setting.draft}.")
    if flags:
        notes.append("Your own flags are those of the profiled engine and have to be translated.")
    return tuple(notes)


def _drafts(setting: Setting) -> bool:
    return setting.drafter != "none" and setting.draft_tokens > 0


def _speculation(setting: Setting, models: Sequence[ModelFile], sampling: Sampling) -> dict[str, Any]:
    config: dict[str, Any] = {"method": METHODS.get(setting.drafter, setting.drafter)}
    # A head inside the target is no file of its own, whatever it is called.
    if setting.drafter != "ngram" and setting.draft in {model.label for model in models} - {setting.target}:
        config["model"] = _path(models, setting.draft)
    config["num_speculative_tokens"] = setting.draft_tokens
    if setting.drafter == "ngram" and setting.ngram_size:
        config |= {"prompt_lookup_min": setting.ngram_size, "prompt_lookup_max": setting.ngram_size}
    if setting.drafter != "ngram" and sampling.temperature > 0 and sampling.draft_sampling == "probabilistic":
        config["draft_sample_method"] = "probabilistic"  # greedy without it; older builds do not know the word
    return config


def _generation(sampling: Sampling, drafts: bool) -> dict[str, float | int]:
    """What every request is sampled with that does not say otherwise; `drafts`: without the min_p that vLLM then refuses."""
    return {
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": 0.0 if drafts else sampling.min_p,
        "repetition_penalty": sampling.repeat_penalty,
    }


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


def _path(models: Sequence[ModelFile], label: str) -> str:
    """Where the model lies; its name where no file is known, as of an import. A leading dash would be read as an option."""
    path = next((model.path for model in models if model.label == label and model.path), label)
    return f"./{path}" if path.startswith("-") else path

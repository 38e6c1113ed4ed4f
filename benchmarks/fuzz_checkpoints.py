"""Damaged checkpoints, many of them: python benchmarks/fuzz_checkpoints.py --inputs 100000 --seed 1 --format gguf

From a checkout with specgauge installed. Every input is one of a few small models with bits flipped, its end cut off,
fields set to huge values, or chunks moved within it or taken from another. The reader has to return a Checkpoint or raise
InputError, one line, within a second and 16 MiB plus twice the files. Prints the counts; exits 1 at the first
input that breaks this, and leaves its files beside a line that says which it was.

A format is a name, its seeds and its reader; READERS takes more of them.
"""

import argparse
import importlib.util
import json
import random
import re
import shutil
import signal
import struct
import sys
import tempfile
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from specgauge.profiler.checkpoints.checkpoint import Checkpoint
from specgauge.profiler.checkpoints.gguf_checkpoint import read_gguf
from specgauge.profiler.checkpoints.safetensors_checkpoint import read_safetensors
from specgauge.profiler.errors import InputError

if TYPE_CHECKING:
    from tests.profiler import safetensors_files
    from tests.profiler.gguf_files import Header
else:

    def _by_path(name: str):
        """A module of the tests by its path: they are no package, and any distribution may bring a "tests" of its own."""
        path = Path(__file__).resolve().parents[1] / "tests" / "profiler" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    Header, safetensors_files = _by_path("gguf_files").Header, _by_path("safetensors_files")

MOST_SECONDS, MOST_BYTES = 1.0, 16 * 2**20
HUGE = (0, 1, 2, 255, 2**15, 2**16, 2**20, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**60, 2**63 - 1, 2**63, 2**64 - 1)
CHANGES_AT_ONCE = (1, 1, 1, 2, 3, 8)


@dataclass(frozen=True)
class Model:
    """Files by name, in one folder, and the one of them that is given to the reader; empty: the folder itself."""

    files: Mapping[str, bytes]
    given: str = ""


@dataclass(frozen=True)
class Format:
    """What is fuzzed: small models, and the reader."""

    name: str
    seeds: Callable[[], Sequence[Model]]
    read: Callable[[Path], Checkpoint]


@dataclass(frozen=True)
class Outcome:
    """What a reader made of one input. `broken`: which promise it did not keep, empty where it kept all."""

    kind: str
    seconds: float
    peak_bytes: int
    broken: str = ""


class TooSlow(BaseException):
    """The alarm; no reader's `except Exception` can hide it."""


def mutant(rng: random.Random, models: Sequence[Model]) -> Model:
    """One of the `models` with one of its files damaged."""
    model = rng.choice(models)
    name = rng.choice(sorted(model.files))
    content = bytearray(model.files[name])
    for _ in range(rng.choice(CHANGES_AT_ONCE)):
        rng.choice(CHANGES)(rng, content, models)
    return Model({**model.files, name: bytes(content)}, model.given)


def _place(rng: random.Random, content: bytearray) -> int:
    """A place in the file, more often near its begin, where counts and lengths are."""
    end = rng.choice((64, 512, len(content), len(content)))
    return rng.randrange(max(1, min(end, len(content))))


def flip(rng: random.Random, content: bytearray, models: Sequence[Model]) -> None:
    """One bit."""
    if content:
        content[_place(rng, content)] ^= 1 << rng.randrange(8)


def cut(rng: random.Random, content: bytearray, models: Sequence[Model]) -> None:
    """The end, at any place."""
    del content[_place(rng, content) :]


def enlarge(rng: random.Random, content: bytearray, models: Sequence[Model]) -> None:
    """Four or eight bytes that may be a count or a length."""
    form = rng.choice(("<I", "<Q", ">Q"))
    at, size = _place(rng, content), struct.calcsize(form)
    content[at : at + size] = struct.pack(form, rng.choice(HUGE) % 256**size)


def enlarge_field(rng: random.Random, content: bytearray, models: Sequence[Model]) -> None:
    """Eight bytes that look like a small number: most likely a real count or length."""
    for _ in range(64):
        at = _place(rng, content)
        if content[at : at + 1] != b"\0" and content[at + 1 : at + 8].count(0) >= 6 and at + 8 <= len(content):
            content[at : at + 8] = struct.pack("<Q", (rng.choice(HUGE) + rng.choice((0, 0, 1, 5))) % 2**64)
            return


def splice(rng: random.Random, content: bytearray, models: Sequence[Model]) -> None:
    """A chunk from this or another model, over what is there or between it."""
    other = rng.choice(sorted(rng.choice(models).files.items()))[1]
    begin, span, at = rng.randrange(max(1, len(other))), rng.choice((1, 8, 24, 100, 1000)), _place(rng, content)
    content[at : at + (span if rng.random() < 0.5 else 0)] = other[begin : begin + span]


def drop(rng: random.Random, content: bytearray, models: Sequence[Model]) -> None:
    """A chunk out of the middle."""
    at = _place(rng, content)
    del content[at : at + rng.choice((1, 4, 8, 12, 100))]


def scramble(rng: random.Random, content: bytearray, models: Sequence[Model]) -> None:
    """Some bytes made of nothing."""
    at, span = _place(rng, content), rng.choice((1, 4, 8, 32))
    content[at : at + span] = rng.choice((rng.randbytes(span), b"\xff" * span, b"\0" * span))


def revalue(rng: random.Random, content: bytearray, models: Sequence[Model]) -> None:
    """The value of a u32 key of GGUF, or a digit of JSON: what stays readable and no longer makes sense."""
    found = [match.start(match.lastindex or 0) for match in VALUE.finditer(content)]
    if not found:
        return
    at = rng.choice(found)
    if content[at : at + 1].isdigit():
        content[at : at + 1] = rng.choice((b"0", b"-1", b"9" * 12, b"1e9", b"null", b'"7"', b"[1, 2]"))
    else:
        content[at : at + 4] = struct.pack("<I", rng.choice((*HUGE, rng.randrange(100))) % 2**32)


VALUE = re.compile(rb"[a-z]\x04\0\0\0([\0-\xff]{4})|[:\[] ?(\d)", re.DOTALL)
CHANGES = (flip, cut, enlarge, enlarge_field, enlarge_field, splice, drop, scramble, revalue, revalue, revalue)


def write(model: Model, folder: Path) -> Path:
    """The model's files in `folder`, and nothing else; returns what the reader is given."""
    for stale in folder.iterdir():
        stale.unlink()  # ext4 waits for the disk where a file is cut to nothing and written again
    for name, content in model.files.items():
        (folder / name).write_bytes(content)
    return folder / model.given


def judge(form: Format, path: Path, size_bytes: int) -> Outcome:
    """Read `path`, of `size_bytes` in all, and hold the reader to its promises."""
    signal.setitimer(signal.ITIMER_REAL, MOST_SECONDS)
    tracemalloc.reset_peak()
    before, begin = tracemalloc.get_traced_memory()[0], time.perf_counter()
    kind, broken = "", ""
    try:
        checkpoint = form.read(path)
        kind, broken = "read" if checkpoint.shape else "read, shape unknown", _promised(checkpoint)
    except InputError as error:
        kind = "refused"
        broken = "" if str(error).isprintable() and str(error) else f"no printable line: {error!r}"
    except TooSlow:
        kind, broken = "slow", f"took more than {MOST_SECONDS} s"
    except Exception as error:  # any other exception is what is looked for
        kind, broken = "crash", f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    seconds, peak = time.perf_counter() - begin, tracemalloc.get_traced_memory()[1] - before
    if not broken and peak > MOST_BYTES + 2 * size_bytes:
        broken = f"took {peak / 2**20:.1f} MiB for {size_bytes:,} bytes"
    return Outcome(kind, seconds, peak, broken)


def _promised(checkpoint: Checkpoint) -> str:
    """What is wrong with a checkpoint that was read; empty where nothing is."""
    for shape in (checkpoint.shape, checkpoint.mtp_shape):
        if shape is not None and not min(shape.kv_bytes(1000), shape.recurrent_bytes, shape.active_parameters) >= 0:
            return "a shape of less than nothing"
    unknown = checkpoint.shape_unknown
    if (checkpoint.shape is None) != bool(unknown):
        return "a shape and why there is none, or neither"
    names = checkpoint.name, checkpoint.family, checkpoint.architecture, checkpoint.quant
    lines = (unknown, *names, *checkpoint.warnings, *checkpoint.files)
    return next((f"no printable line: {line!r}" for line in lines if not line.isprintable()), "")


@dataclass
class Tally:
    """Outcomes of a run: how many of each kind, the slowest, the hungriest, and the first that broke a promise."""

    kinds: Counter[str]
    seconds: float = 0.0
    peak_bytes: int = 0
    broken: str = ""


def fuzz(form: Format, inputs: int, seed: int, folder: Path) -> Tally:
    """Read `inputs` damaged models of `form` from `folder`; stops at the first that breaks a promise and leaves it there."""
    models, rng, tally = form.seeds(), random.Random(seed), Tally(Counter())

    def too_slow(_signal: int, _frame: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, too_slow)
    tracemalloc.start()
    try:
        for number in range(inputs):
            model = mutant(rng, models)
            size_bytes = sum(map(len, model.files.values()))
            outcome = judge(form, write(model, folder), size_bytes)
            tally.kinds[outcome.kind] += 1
            tally.seconds = max(tally.seconds, outcome.seconds)
            tally.peak_bytes = max(tally.peak_bytes, outcome.peak_bytes)
            if outcome.broken:
                tally.broken = f"input {number} of seed {seed}: {outcome.broken}"
                break
    finally:
        tracemalloc.stop()
        signal.signal(signal.SIGALRM, before)
    return tally


def gguf_seeds() -> tuple[Model, ...]:
    """Small models of every kind: dense v2 and v3, windows, latents, hybrids with MTP, mixtures, split, vocabulary alone."""
    whole = (_dense("llama"), _dense("gemma3", {"attention.sliding_window": 64}), _latent(), _hybrid(), _vocabulary())
    models = [Model({"m.gguf": _file(header)}, "m.gguf") for header in whole]
    models.append(Model({"m.gguf": _file(_dense("qwen3"), version=2)}, "m.gguf"))
    return (*models, _split())


def _file(header: Header, version: int = 3) -> bytes:
    content = header.content(version)
    return content + bytes(header.size - len(content))


def _tokenizer(count: int) -> dict[str, object]:
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": [*(f"t{n}" for n in range(count - 2)), f"[PAD{count - 2}]", f"[PAD{count - 1}]"],
        "tokenizer.ggml.token_type": [1] * (count - 2) + [5, 5],
        "tokenizer.ggml.scores": [0] * count,
        "tokenizer.ggml.merges": ["a b", "b c"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.chat_template": "{{ messages }}",
    }


def _model(architecture: str, layers: int, keys: Mapping[str, object]) -> Header:
    own = {
        "general.name": f"Small {architecture} 1B",
        "block_count": layers,
        "embedding_length": 32,
        "context_length": 128,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
    }
    header = Header(architecture, own | dict(keys) | _tokenizer(24))  # pyright: ignore[reportArgumentType]
    return header.tensor("token_embd.weight", 32, 24, quant="Q8_0").tensor("output_norm.weight", 32)


def _attending(header: Header, layer: int) -> Header:
    return header.layer(layer, attn_norm=32, attn_q=(32, 32), attn_k=(32, 16), attn_v=(32, 16), attn_output=(32, 32))


def _dense(architecture: str, keys: Mapping[str, object] | None = None) -> Header:
    header = _model(architecture, 2, keys or {})
    for layer in range(2):
        _attending(header, layer).layer(layer, ffn_up=(32, 64), ffn_down=(64, 32))
    return header


def _latent() -> Header:
    """A mixture with latent attention."""
    header = _model("deepseek2", 2, {
        "attention.head_count_kv": 1, "attention.kv_lora_rank": 16, "attention.key_length": 24, "attention.key_length_mla": 12,
        "rope.dimension_count": 8, "expert_count": 4, "expert_used_count": [2, 2],
    })  # fmt: skip
    for layer in range(2):
        header.layer(layer, attn_q=(32, 48), attn_kv_a_mqa=(32, 24), ffn_gate_inp=(32, 4), ffn_up_exps=(32, 16, 4),
                     ffn_down_exps=(16, 32, 4), ffn_up_shexp=(32, 16))  # fmt: skip
    return header


def _hybrid() -> Header:
    """Two layers with a state, one that attends, an MTP head."""
    header = _model("qwen35", 4, {
        "full_attention_interval": 3, "nextn_predict_layers": 1, "ssm.conv_kernel": 4, "ssm.state_size": 8,
        "ssm.group_count": 2, "ssm.time_step_rank": 4, "ssm.inner_size": 32, "attention.recurrent_layers": [True, True, False, False],
    })  # fmt: skip
    for layer in range(2):
        header.layer(layer, attn_qkv=(32, 64), ssm_conv1d=(4, 64), ssm_out=(32, 32))
    _attending(_attending(header, 2), 3).layer(3, nextn__eh_proj=(64, 32))
    return header


def _vocabulary() -> Header:
    header = Header("llama", _tokenizer(40))  # pyright: ignore[reportArgumentType]
    header.keys["tokenizer.huggingface.json"] = "{}" * 50
    return header


def _split() -> Model:
    """A dense model in two parts, given by the second."""
    whole, names = _dense("llama"), ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf")
    files = {}
    for number, name in enumerate(names):
        part = Header("llama", {"split.no": number, "split.count": 2, "split.tensors.count": len(whole.tensors)})
        part.keys |= whole.keys if number == 0 else {}
        part.tensors = whole.tensors[number::2]
        files[name] = _file(part)
    return Model(files, names[1])


def safetensors_seeds() -> tuple[Model, ...]:
    """Small folders of every kind: dense in one file and in parts, packed, experts, latents, a hybrid with MTP."""
    small = safetensors_files.LLAMA | {"hidden_size": 8, "intermediate_size": 8, "vocab_size": 24}
    latent = {
        "model_type": "deepseek_v3", "kv_lora_rank": 4, "q_lora_rank": 4, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4,
        "v_head_dim": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 4, "n_shared_experts": 1,
        "first_k_dense_replace": 1, "num_nextn_predict_layers": 1,
    }  # fmt: skip
    hybrid = {
        "model_type": "qwen3_5", "text_config": small | {"layer_types": ["linear_attention", "full_attention"], "head_dim": 4,
        "mtp_num_hidden_layers": 1, "model_type": "qwen3_5_text"}, "tie_word_embeddings": False,
    }  # fmt: skip
    gemma = {
        "model_type": "gemma3_text",
        "sliding_window": 16,
        "sliding_window_pattern": 2,
        "tie_word_embeddings": True,
    }
    packed = {
        "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 8, "time_step_limit": [0.0, 1e9]}
    }
    tensors = safetensors_files.llama_tensors(small)
    words = {name.replace("weight", "qweight") if "proj" in name else name: ("I32", [1, 8]) for name in tensors}
    routed = tensors | {"model.layers.1.mlp.experts.0.up_proj.weight": ("F8_E4M3", [4, 8])}
    with_head = tensors | {"mtp.fc.weight": ("BF16", [8, 16]), "model.visual.patch.weight": ("F16", [3])}
    return (
        _folder(small, tensors),
        _folder(small, tensors, parts=2),
        _folder(small | packed, words),
        _folder(small | gemma, {name: one for name, one in tensors.items() if name != "lm_head.weight"}),
        _folder(small | latent, routed),
        _folder(hybrid, with_head),
        _folder(small | {"model_type": "unheard"}, tensors),
    )


def _folder(config: Mapping[str, object], tensors: Mapping[str, tuple[str, list[int]]], parts: int = 1) -> Model:
    """The files of a model of these tensors, all zeros, and a tokenizer."""
    names = (
        [f"model-{n + 1:05}-of-{parts:05}.safetensors" for n in range(parts)] if parts > 1 else ["model.safetensors"]
    )
    files = {"config.json": json.dumps(config).encode()}
    weight_map = {tensor: names[at % parts] for at, tensor in enumerate(tensors)}
    for name in names:
        held = {tensor: one for tensor, one in tensors.items() if weight_map[tensor] == name}
        files[name] = safetensors_files.header(held) + bytes(safetensors_files.data_bytes(held))
    if parts > 1:
        files["model.safetensors.index.json"] = json.dumps({"weight_map": weight_map}).encode()
    vocabulary = {"type": "BPE", "vocab": {f"t{n}": n for n in range(20)}, "merges": ["a b", ["b", "c"]]}
    added = [{"id": 20, "content": "<s>", "special": True}, {"id": 22, "content": "▁▁", "special": False}]
    files["tokenizer.json"] = json.dumps(
        {"model": vocabulary, "added_tokens": added, "pre_tokenizer": {"type": "ByteLevel"}}
    ).encode()
    files["tokenizer_config.json"] = json.dumps(
        {"bos_token": {"content": "<s>"}, "chat_template": "{{ messages }}"}
    ).encode()
    return Model(files)


READERS = {
    "gguf": Format("gguf", gguf_seeds, read_gguf),
    "safetensors": Format("safetensors", safetensors_seeds, read_safetensors),
}


def main() -> int:
    """Fuzz one format; prints what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--format", choices=sorted(READERS), default="gguf")
    asked = parser.parse_args()
    folder, begin = Path(tempfile.mkdtemp(prefix="specgauge-fuzz-")), time.perf_counter()
    tally = fuzz(READERS[asked.format], asked.inputs, asked.seed, folder)
    counts = ", ".join(f"{count:,} {kind}" for kind, count in tally.kinds.most_common())
    print(f"{asked.format}, seed {asked.seed}: {counts}; {time.perf_counter() - begin:.0f} s")
    print(f"slowest {1000 * tally.seconds:.1f} ms, most memory {tally.peak_bytes / 2**20:.2f} MiB")
    if tally.broken:
        print(f"{tally.broken}; its files are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())

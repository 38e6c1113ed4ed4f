"""llama-bench -o json, jsonl or csv: plain steps (-n) and passes of several tokens (-p 2,3,5,9) at depths (-d)."""

from collections.abc import Callable, Sequence
from statistics import fmean

from msgspec.structs import replace

from ...profiler.records import Key, ModelFile, StepSample
from . import sentences
from .base import Given, Imported
from .keys import flag
from .names import quant_of_type, weights_name
from .source import MOST_SECONDS, MOST_SPEED, MOST_TOKENS, Fields, Source, agree, listed

FORMAT = "llama-bench"
NAMING = {"n_prompt", "n_gen", "model_filename"}
WIDEST_PASS = 64
"""Wider passes are prefill, on other kernels than verification."""
ONE_IN_A_FILE = (
    "build_commit",
    "gpu_info",
    "backends",
    "n_batch",
    "n_ubatch",
    "n_threads",
    "type_k",
    "type_v",
    "n_gpu_layers",
    "split_mode",
    "main_gpu",
    "flash_attn",
    "tensor_split",
    "no_kv_offload",
)
"""What changes speed: a file that sweeps one of these holds several machines."""
SPEED_FLAGS = ("type_k", "type_v", "n_gpu_layers", "flash_attn", "n_batch", "n_ubatch", "split_mode", "no_kv_offload")
MOST_NS = 1e9 * MOST_SECONDS
LACK = "one row of output each, so a little cheap"


def read_llama_bench(source: Source, tests: Sequence[Fields], given: Given) -> Imported:
    """Evidence of the tests of a llama-bench file. Raises InputError."""
    for name in ONE_IN_A_FILE:
        _one_value(source, tests, name)
    name, models = _naming(tests, given)
    shapes = [_shape(test) for test in tests]
    left_out = [reason for test, shape in zip(tests, shapes, strict=True) if (reason := _left_out(test, *shape))]
    steps = tuple(
        sample
        for test, shape in zip(tests, shapes, strict=True)
        if not _left_out(test, *shape)
        for sample in _samples(test, *shape, name(test))
    )
    if not steps:
        source.refuse("has no generation tests and no passes of 2 to 64 tokens; run llama-bench -p 2,3,5,9 -n 128")
    steps = _with_plain_steps(steps)
    return Imported(
        source=source.name,
        format=FORMAT,
        key=_key(tests[0], given),
        steps=steps,
        learned=sentences.of_steps(steps, LACK),
        warnings=(*_without_depth(source, tests), *_means(source, tests), *_not_renamed(source, models, given)),
        left_out=tuple(left_out),
        models=models,
        digest=source.digest,
        kv_types=(tests[0].text("type_k") or "f16", tests[0].text("type_v") or "f16"),
    )


def _one_value(source: Source, tests: Sequence[Fields], name: str) -> None:
    values = dict.fromkeys(test.text(name) for test in tests)
    if len(values) > 1:
        found = " and ".join(list(values)[:2])
        source.refuse(f"{name} is {found[:100]} in one file; give a file for each")


def _naming(tests: Sequence[Fields], given: Given) -> tuple[Callable[[Fields], str], tuple[ModelFile, ...]]:
    """The name of each test's model, the user's own where the file holds one model only; and what is told of them."""
    files = dict.fromkeys(test.text("model_filename") for test in tests)
    own = given if len(files) == 1 else Given()
    known = {path: _model(next(t for t in tests if t.text("model_filename") == path), own) for path in files}
    names = [model.label for model in known.values()]
    labels = {
        path: model.label if names.count(model.label) == 1 else f"{model.label} {model.quant}".strip()
        for path, model in known.items()
    }
    models = tuple(replace(model, label=labels[path]) for path, model in known.items())
    return lambda test: labels[test.text("model_filename")], models


def _model(test: Fields, given: Given) -> ModelFile:
    name, quant = weights_name(test.text("model_filename"))
    return ModelFile(
        label=given.target or name or "target",
        path="",
        sha256="",
        size_bytes=test.whole_or("model_size", 0, 2**50) or 0,
        name=name,
        architecture="",
        quant=given.target_quant or quant or quant_of_type(test.text("model_type")),
        parameters=test.whole_or("model_n_params", 0, 10**15) or 0,
        tokenizer_sha256="",
    )


def _shape(test: Fields) -> tuple[int, int, int]:
    """Prompt tokens, generated tokens, depth. Older files have no depth: it was always 0."""
    prompt, generated = (test.whole(name, 0, MOST_TOKENS) for name in ("n_prompt", "n_gen"))
    if not prompt and not generated:
        test.refuse("n_prompt and n_gen are both 0; the file is damaged, write it anew")
    return prompt, generated, test.whole_or("n_depth", 0, MOST_TOKENS) or 0


def _left_out(test: Fields, prompt: int, generated: int, depth: int) -> str:
    """Why a test is no pass of one width; empty where it is one."""
    if prompt and generated:
        return f"{test.where}: {prompt} prompt and {generated} generated tokens in one time"
    widest = min(WIDEST_PASS, test.whole_or("n_ubatch", 1, MOST_TOKENS) or WIDEST_PASS)
    return f"{test.where}: {prompt} tokens are prefill, in pieces of a batch" if prompt > widest else ""


def _samples(test: Fields, prompt: int, generated: int, depth: int, model: str) -> list[StepSample]:
    """One sample a repeat."""
    seconds = [ns / 1e9 / max(generated, 1) for ns in _nanoseconds(test, prompt + generated)]
    kind, width, context = ("batch", prompt, depth) if prompt else ("decode", 1, depth + generated // 2)
    return [
        StepSample(model=model, role="target", kind=kind, width=width, context=context, seconds=(each,))
        for each in seconds
    ]


def _nanoseconds(test: Fields, tokens: int) -> tuple[float, ...]:
    """Of each repeat, or their mean where the file has no repeats; held against the file's own speed."""
    mean = test.above_0("avg_ns", MOST_NS)
    repeats = test.numbers("samples_ns", 1, MOST_NS)
    if repeats:
        agree(test, "avg_ns and samples_ns", mean, fmean(repeats), 0.01)
    if speed := test.above_0_or("avg_ts", MOST_SPEED * 100):
        agree(test, "avg_ts and avg_ns", speed, tokens * 1e9 / mean, 0.25)
    return repeats or (mean,)


def _with_plain_steps(steps: tuple[StepSample, ...]) -> tuple[StepSample, ...]:
    """A pass of one token is a plain step: it serves as one where a model has no generation test."""
    generated = {step.model for step in steps if step.kind == "decode"}
    alone = [step for step in steps if step.width == 1 and step.model not in generated]
    return tuple(replace(step, kind="decode") if step in alone else step for step in steps)


def _key(test: Fields, given: Given) -> Key:
    return Key(
        gpu=test.text("gpu_info") or given.gpu,
        cpu=test.text("cpu_info"),
        engine="llama.cpp",
        build=f"b{test.text('build_number')}-{test.text('build_commit')}" if test.has("build_number") else "",
        backend=_backend(test),
        flags=tuple(flag(name, test.text(name)) for name in SPEED_FLAGS if test.has(name)),
        threads=test.whole_or("n_threads", 0, 100_000) or 0,
    )


def _backend(test: Fields) -> str:
    """Older files have a switch for each backend instead of one name."""
    old = ("cuda", "vulkan", "kompute", "metal", "sycl", "rpc")
    told = [name.upper() for name in old if test.text(name).lower() in ("1", "true")]
    return test.text("backends") or ",".join(told)


def _without_depth(source: Source, tests: Sequence[Fields]) -> list[str]:
    if all(test.has("n_depth") for test in tests):
        return []
    return [f"{source.name}: no n_depth (an older llama-bench): passes count as behind an empty context"]


def _means(source: Source, tests: Sequence[Fields]) -> list[str]:
    if all(test.numbers("samples_ns", 1, MOST_NS) for test in tests):
        return []
    return [f"{source.name}: means only, no repeats (samples_ns): the noise of passes is a prior; -o jsonl has repeats"]


def _not_renamed(source: Source, models: Sequence[ModelFile], given: Given) -> list[str]:
    if len(models) < 2 or not given.target:
        return []
    return [f"{source.name}: holds {listed(m.label for m in models)}: --target is left aside, the names are the file's"]

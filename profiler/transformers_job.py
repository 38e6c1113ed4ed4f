"""The job of the transformers engine: which weights, in which quantizations, on which device; checked before any is loaded."""

import importlib.util
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from .candidates import candidates_of
from .engines.base import Engine
from .errors import InputError
from .job import DEVICES, Job, Options, Stamp, blank_job, check_unchanged, embedded_threads
from .records import Candidate, ModelFile, Profile, Sampling
from .workloads import PromptText

QUANTS = ("fp32", "bf16", "int8", "w8a8", "int4", "nf4")
PLAIN = "bf16"
STORED = ""
"""As the checkpoint stores it."""


def prepare(options: Options, stamp: Stamp, on_progress: Callable[[str], None]) -> Job:
    """The job of `options`: the embedded demo where no target is named. Raises InputError."""
    _check(options)
    device = chosen_device(options.device)
    if not options.targets:
        return _demo_job(options, stamp, device, on_progress)
    return _files_job(options, stamp, device)


def engine_of(profile: Profile, options: Options) -> Engine:
    """The engine that a profile was made with, over the same weights. Raises InputError where they have changed."""
    _check_installed()
    for model in profile.models:
        check_unchanged(model, described_again(model).sha256)
    threads = options.threads or profile.key.threads
    return _engine(profile.models, profile.key.backend, threads, profile.sampling)


def described_again(model: ModelFile) -> ModelFile:
    """What lies now where a model was."""
    from .engines.transformers.description import described

    return described(Path(model.path), model.quant, model.random)


def chosen_device(asked: str) -> str:
    """The device asked for, or the best one here. Raises InputError for one that is not here."""
    import torch

    here = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if asked and asked not in here:
        raise InputError(f"--device {asked}: give one of {', '.join(DEVICES)}")
    if asked and not here[asked]:
        raise InputError(
            f"--device {asked}: torch {torch.__version__} finds none here; leave it out, or install a torch for it"
        )
    return asked or next(device for device in ("cuda", "mps", "cpu") if here[device])


def _check(options: Options) -> None:
    if options.llama_server or options.server_url or options.flags:
        raise InputError("--llama-server, --server and flags behind -- are for --engine llama.cpp; leave them out")
    for quant in (*options.target_quants, *options.draft_quants):
        if quant not in QUANTS:
            raise InputError(f"quantization {quant!r}: give one or more of {', '.join(QUANTS)}")
    _check_installed()


def _check_installed() -> None:
    if importlib.util.find_spec("transformers") is None:
        raise InputError("no transformers here: pip install 'specgauge[transformers]'")
    try:
        import transformers
    except Exception as error:  # a half-installed optional package can break it in any way
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(
            f"transformers cannot be imported: {reason}; mend it with pip, or use another --engine"
        ) from None
    if int(transformers.__version__.split(".")[0]) < 5:
        raise InputError(f"transformers {transformers.__version__} is too old: pip install 'transformers>=5'")


def _demo_job(options: Options, stamp: Stamp, device: str, on_progress: Callable[[str], None]) -> Job:
    from . import demo_transformers

    if options.drafts:
        raise InputError("--draft needs the TARGET that it drafts for: specgauge run TARGET --draft DRAFT")
    if options.random_weights:
        raise InputError("--weights random needs the TARGET whose shape is to be timed: specgauge profile TARGET")
    source = demo_transformers.prepare(on_progress=on_progress)
    targets = in_quants(source, options.target_quants or (PLAIN,), device)
    drafts = in_quants(source, options.draft_quants or ("int8", "int4"), device)
    return _job(options, stamp, device, targets, drafts, demo_transformers.few_prompts())


def _files_job(options: Options, stamp: Stamp, device: str) -> Job:
    from . import demo

    warnings = _check_pairs(options)
    targets = [_models(one, options.target_quants, options, device) for one in dict.fromkeys(options.targets)]
    # Without a draft of its own a model can draft for itself in fewer bits.
    sources = options.drafts or (options.targets if options.draft_quants else ())
    drafts = [_models(one, options.draft_quants, options, device) for one in dict.fromkeys(sources)]
    job = _job(options, stamp, device, _joined(targets), _joined(drafts), demo.prompts())
    return Job(job.engine, job.blank, job.prompts, (*job.warnings, *warnings))


@dataclass(frozen=True)
class Models:
    """Models of one checkpoint or of several, and what is to be said about their quantizations."""

    files: tuple[ModelFile, ...]
    notes: tuple[str, ...] = ()


def _joined(parts: Sequence[Models]) -> Models:
    return Models(
        tuple(file for part in parts for file in part.files), tuple(note for part in parts for note in part.notes)
    )


def _models(source: Path, quants: Sequence[str], options: Options, device: str) -> Models:
    from .checkpoints.reading import read_checkpoint

    path = source.expanduser().absolute()
    stored = read_checkpoint(str(path)).quant if not options.random_weights else PLAIN
    if stored.upper() not in ("BF16", "F16", "F32") and path.suffix != ".gguf" and not options.random_weights:
        if quants:
            raise InputError(f"{source} is {stored} already: leave the quantization out")
        return in_quants(path, (STORED,), device)
    return in_quants(path, quants or (PLAIN,), device, options.random_weights)


def in_quants(source: Path, quants: Iterable[str], device: str, random: bool = False) -> Models:
    """The checkpoint in each of `quants`, a quantization that several kernels serve on the one that is fastest here."""
    from .engines.transformers.description import described
    from .engines.transformers.paths import choose
    from .engines.transformers.skeleton import usual_shape

    files, notes = [], []
    for quant in dict.fromkeys(quants):
        concrete = quant
        if quant not in ("fp32", PLAIN, STORED):
            choice = choose(quant, device, usual_shape(source))
            if not choice.times:
                raise InputError(f"{quant} cannot be used on {device}: {choice.sentence}; give another quantization")
            concrete = choice.quant
            notes += [f"{quant} on {device}: {choice.sentence}"] if choice.sentence else []
        files.append(described(source, concrete, random))
    return Models(tuple(files), tuple(notes))


def _check_pairs(options: Options) -> tuple[str, ...]:
    """Warnings about target and draft, from their headers; InputError for a pair that cannot work."""
    from .checkpoints.reading import read_checkpoint
    from .preflight import check_pair

    if options.random_weights:
        return ("random weights: times only; acceptance has to come from elsewhere",)
    warnings: list[str] = []
    for target in options.targets:
        for draft in options.drafts:
            pair = check_pair(read_checkpoint(str(target)), read_checkpoint(str(draft)))
            if not pair.works:
                raise InputError(pair.refusal)
            warnings += pair.warnings
    return tuple(dict.fromkeys(warnings))


def _job(
    options: Options,
    stamp: Stamp,
    device: str,
    targets: Models,
    drafts: Models,
    prompts: tuple[PromptText, ...],
) -> Job:
    models = tuple({model.label: model for model in (*targets.files, *drafts.files)}.values())
    sampling = Sampling(seed=options.seed)
    engine = _engine(models, device, options.threads or (embedded_threads() if device == "cpu" else 0), sampling)
    can = [one for one in engine.describe().capabilities if not (options.random_weights and one.startswith("ngram"))]
    candidates = tuple(
        _on_device(one)
        for target in targets.files
        for one in candidates_of(target, _smaller(target, drafts.files), can)
    )
    job = blank_job(engine, models, prompts, candidates, sampling, options, stamp)
    return Job(job.engine, job.blank, job.prompts, tuple(dict.fromkeys((*targets.notes, *drafts.notes))))


def _smaller(target: ModelFile, drafts: Sequence[ModelFile]) -> list[ModelFile]:
    """Drafts other than the target itself: in the same quantization it would only do everything twice."""
    return [draft for draft in drafts if draft.label != target.label]


def _on_device(candidate: Candidate) -> Candidate:
    """The cache of this engine has the type of the activations."""
    return replace(candidate, kv_type_k="bf16", kv_type_v="bf16")


def _engine(models: Sequence[ModelFile], device: str, threads: int, sampling: Sampling) -> Engine:
    from .engines.transformers.engine import Transformers

    return Transformers(models, device=device, threads=threads, sampling=sampling)

"""What is to be profiled: engine, models, prompts and candidates; all of it checked before anything starts."""

import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from .candidates import candidates_of
from .engines.base import Engine
from .errors import InputError
from .records import Candidate, Key, ModelFile, Profile, Sampling
from .workloads import PromptText

ENGINES = "llama.cpp, transformers, fake:NAME"
DEVICES = ("cpu", "cuda", "mps")
NEAR = ("power_limit_watts", "driver", "build", "threads")
"""Fields of a key that may differ: the numbers are then a prior, which is said."""
IGNORED = ("gpu_uuid",)


@dataclass(frozen=True)
class OwnChoice:
    """The user's own prompts: their file, how many to draw, and whether their text may stand in the profile."""

    file: Path | None = None
    count: int = 0
    """0: as many as usual."""
    store: bool = False


@dataclass(frozen=True)
class Options:
    """What the user asked for, engine and files."""

    targets: tuple[Path, ...] = ()
    drafts: tuple[Path, ...] = ()
    engine: str = "llama.cpp"
    llama_server: str | None = None
    server_url: str | None = None
    flags: tuple[str, ...] = ()
    threads: int = 0
    seed: int = 1
    draft_tokens: tuple[int, ...] = ()
    """Draft lengths to search instead of the default ones; 0 is always among them as the baseline."""
    device: str = ""
    """Of the transformers engine; empty: the best one here."""
    target_quants: tuple[str, ...] = ()
    draft_quants: tuple[str, ...] = ()
    """What models that are not quantized are quantized to when they are loaded."""
    random_weights: bool = False
    context: int = 0
    """Tokens reserved for each stream; 0: as usual."""
    own: OwnChoice = OwnChoice()
    memory_bytes: float = 0.0
    """What models may take; 0: nothing is left out."""
    budget_seconds: float = 0.0
    """What profiling may take; 0: as long as it needs."""


@dataclass(frozen=True)
class Job:
    """An engine that can be measured, the profile to fill, and the text of its prompts. Close the engine after use."""

    engine: Engine
    blank: Profile
    prompts: tuple[PromptText, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stamp:
    """When and by which version a record is made."""

    created: str
    tool_version: str


def prepare(options: Options, stamp: Stamp, log_dir: Path, on_progress: Callable[[str], None]) -> Job:
    """The job of `options`: a fake machine, the embedded demo, or the user's own files, over the user's own prompts where
    there are any. Raises InputError."""
    from .prompts.of_job import drawn, with_context, with_own_prompts

    own = drawn(options)
    job = with_context(_prepared(options, stamp, log_dir, on_progress), options.context)
    return job if own is None else with_own_prompts(job, own, store=options.own.store)


def _prepared(options: Options, stamp: Stamp, log_dir: Path, on_progress: Callable[[str], None]) -> Job:
    kind, _, name = options.engine.partition(":")
    if kind == "fake" and name:
        return _fake_job(name, options, stamp)
    if options.engine == "transformers":
        from . import transformers_job

        return transformers_job.prepare(options, stamp, on_progress)
    if options.engine != "llama.cpp":
        raise InputError(f"--engine {options.engine}: no such engine; choose one of {ENGINES}")
    if options.device or options.target_quants or options.draft_quants or options.random_weights:
        raise InputError("--device, --target-quant, --draft-quant and --weights are for --engine transformers")
    if not options.targets:
        return _demo_job(options, stamp, log_dir, on_progress)
    return _files_job(options, stamp, log_dir)


def reopen(profile: Profile, options: Options, log_dir: Path) -> Job:
    """The engine and prompts that a profile was made with, checked to be the same. Raises InputError."""
    from .prompts.of_job import check_stays_here, texts_of

    if profile.engine.name.startswith("fake"):
        return _same_machine(_reopened_fake(profile, options), profile)
    prompts = texts_of(profile, options.own.file)
    if profile.engine.name == "transformers":
        from . import transformers_job

        return _same_machine(Job(transformers_job.engine_of(profile, options), profile, prompts), profile)
    for model in profile.models:
        check_unchanged(model, _hash_of(model))
    command = profile.engine.command[0] if profile.engine.command else ""
    url = options.server_url or (command if command.startswith(("http://", "https://")) else None)
    if profile.workload_shares:
        check_stays_here(url)
    binary = options.llama_server or (None if command in ("", "xllamacpp") or url else command)
    flags, threads = options.flags or profile.key.flags, options.threads or profile.key.threads
    asked = dataclasses.replace(options, llama_server=binary, server_url=url, flags=flags, threads=threads)
    job = Job(_llama_cpp(profile.models, asked, log_dir), profile, prompts)
    return _same_machine(job, profile)


def differences(found: Key, wanted: Key) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Fields in which two keys differ: those that forbid a comparison, and those that make it a near one."""
    pairs = [
        (name, getattr(found, name), getattr(wanted, name)) for name in Key.__struct_fields__ if name not in IGNORED
    ]
    unequal = [(name, ours, theirs) for name, ours, theirs in pairs if ours != theirs]
    unknown = ("", None, 0)
    near = [name for name, ours, theirs in unequal if name in NEAR or ours in unknown or theirs in unknown]
    return tuple(name for name, _, _ in unequal if name not in near), tuple(near)


def _fake_job(name: str, options: Options, stamp: Stamp) -> Job:
    from .engines import fake

    if options.targets or options.drafts:
        raise InputError(f"--engine fake:{name} has its own models; leave TARGET and --draft out")
    if options.flags or options.llama_server or options.server_url:
        raise InputError(f"--engine fake:{name} has no llama-server; leave its options and what stands after -- out")
    if name not in fake.MACHINES:
        raise InputError(f"--engine fake:{name}: no such machine; choose one of {', '.join(fake.MACHINES)}")
    blank, prompts, engine = fake.demo(fake.MACHINES[name], options.seed)
    candidates = tuple(_limited(candidate, options.draft_tokens) for candidate in blank.candidates)
    blank = replace(blank, created=stamp.created, tool_version=stamp.tool_version, candidates=candidates)
    return Job(engine, blank, tuple(prompts))


def _demo_job(options: Options, stamp: Stamp, log_dir: Path, on_progress: Callable[[str], None]) -> Job:
    from . import demo

    if options.drafts:
        raise InputError("--draft needs the TARGET that it drafts for: specgauge run TARGET --draft DRAFT")
    if options.server_url:
        raise InputError("--server needs the file that it serves: specgauge run TARGET --server URL")
    made = demo.prepare(on_progress=on_progress)
    engine = _llama_cpp(made.models, options, log_dir)
    sampling = replace(made.sampling, seed=options.seed)
    return blank_job(engine, made.models, made.prompts, made.candidates, sampling, options, stamp)


def _files_job(options: Options, stamp: Stamp, log_dir: Path) -> Job:
    from . import demo

    models = _model_files((*options.targets, *options.drafts))
    targets = [models[_real(path)] for path in dict.fromkeys(options.targets)]
    drafts = [models[_real(path)] for path in dict.fromkeys(options.drafts)]
    warnings = _check_pairs(targets, drafts)
    files = tuple(models.values())
    engine = _llama_cpp(files, options, log_dir)
    can = engine.describe().capabilities
    candidates = tuple(one for target in targets for one in candidates_of(target, drafts, can))
    job = blank_job(engine, files, demo.prompts(), candidates, Sampling(seed=options.seed), options, stamp)
    return Job(job.engine, job.blank, job.prompts, warnings)


def blank_job(
    engine: Engine,
    models: tuple[ModelFile, ...],
    prompts: tuple[PromptText, ...],
    candidates: tuple[Candidate, ...],
    sampling: Sampling,
    options: Options,
    stamp: Stamp,
) -> Job:
    """The job over `models`, nothing measured yet."""
    targets = {candidate.target for candidate in candidates}
    smallest = min((model for model in models if model.label in targets), key=lambda model: model.size_bytes)
    blank = Profile(
        created=stamp.created,
        tool_version=stamp.tool_version,
        key=engine.key(),
        engine=engine.describe(),
        models=models,
        prompts=tuple(prompt.prompt for prompt in prompts),
        sampling=sampling,
        candidates=tuple(_limited(candidate, options.draft_tokens) for candidate in candidates),
        sentinel_model=smallest.label,
    )
    return Job(engine, blank, prompts)


def _llama_cpp(models: Sequence[ModelFile], options: Options, log_dir: Path) -> Engine:
    from .engines.llama_cpp import LlamaCpp

    return LlamaCpp(
        models=models,
        log_dir=log_dir,
        binary=options.llama_server,
        url=options.server_url,
        flags=options.flags,
        threads=options.threads or (0 if options.llama_server or options.server_url else embedded_threads()),
    )


def embedded_threads() -> int:
    """Threads of the embedded CPU engine: one processor is left to specgauge and to everything else."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, usable - 1)


def _model_files(paths: Sequence[Path]) -> dict[Path, ModelFile]:
    """Header of each file, once, by its real path; labels are made unique by the folder's name, then by a number."""
    from .checkpoints.gguf import model_file

    found: dict[Path, ModelFile] = {}
    for path in dict.fromkeys(_real(path) for path in paths):
        model, taken = model_file(path), {known.label for known in found.values()}
        if model.label in taken:
            names = [f"{path.parent.name}/{model.label}", *(f"{model.label}-{i}" for i in range(2, len(paths) + 2))]
            model = replace(model, label=next(name for name in names if name not in taken))
        found[path] = model
    return found


def _real(path: Path) -> Path:
    if not str(path) or str(path) == ".":
        raise InputError("a model's name is empty; give the path of a GGUF file")
    try:
        return Path(path).expanduser().absolute()
    except (RuntimeError, OSError) as error:  # no such user, or no current folder
        raise InputError(f"{path}: {error}; give the whole path") from None


def _check_pairs(targets: Sequence[ModelFile], drafts: Sequence[ModelFile]) -> tuple[str, ...]:
    """Warnings about the pairs, from their headers; InputError for one that cannot work."""
    from .checkpoints.reading import read_checkpoint
    from .preflight import check_pair

    warnings: list[str] = []
    read = {model.path: read_checkpoint(model.path) for model in (*targets, *drafts)} if drafts else {}
    for target in targets:
        for draft in drafts:
            pair = check_pair(read[target.path], read[draft.path])
            if not pair.works:
                raise InputError(pair.refusal)
            warnings += pair.warnings
    return tuple(dict.fromkeys(warnings))


def _limited(candidate: Candidate, draft_tokens: tuple[int, ...]) -> Candidate:
    """The candidate with the user's draft lengths; an n-gram drafter proposes at least as many as must match."""
    if not draft_tokens or candidate.drafter == "none":
        return candidate
    least = max(1, candidate.ngram_size)
    lengths = tuple(length for length in draft_tokens if length >= least)
    if lengths:
        return replace(candidate, draft_tokens=lengths)
    if candidate.drafter == "ngram":
        return replace(candidate, drafter="none", draft="", ngram_size=0, draft_tokens=())
    raise InputError("--draft-tokens names no length above 0; give N, A..B or N,N,N (0 is always measured)")


def check_unchanged(model: ModelFile, sha256: str) -> None:
    """Raises InputError where the weights are not those that were profiled."""
    if sha256 != model.sha256:
        raise InputError(f"{model.path} has changed since it was profiled; profile it again")


def _hash_of(model: ModelFile) -> str:
    from .checkpoints.gguf import model_file

    return model_file(Path(model.path)).sha256


def _reopened_fake(profile: Profile, options: Options) -> Job:
    """The fake machine whose models a profile holds."""
    from .engines import fake
    from .prompts.of_job import texts_of

    for machine in fake.MACHINES.values():
        blank, prompts, engine = fake.demo(machine)
        if (blank.key, blank.models) == (profile.key, profile.models):
            return Job(engine, profile, texts_of(profile, options.own.file, prompts))
    raise InputError("the profile's fake machine is not one of this specgauge; profile again")


def _same_machine(job: Job, profile: Profile) -> Job:
    """The job, if its engine may be compared with the profile; the differences that are near as warnings."""
    try:
        refused, near = differences(job.engine.key(), profile.key)
        if refused:
            raise InputError(f"this is not what was profiled: {', '.join(refused)} differ; profile again")
    except BaseException:
        job.engine.close()
        raise
    warnings = (f"{', '.join(near)} differ from the profile: forecasts are less certain than stated",) if near else ()
    return Job(job.engine, job.blank, job.prompts, (*job.warnings, *warnings))

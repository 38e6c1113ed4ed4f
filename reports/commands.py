"""Engine command lines to copy: every setting that a forecast assumed, in the spelling of the probed build."""

import shlex
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ..calibrate.records import Chosen
from ..profiler.errors import InputError
from ..profiler.records import ModelFile, Profile, Sampling, Setting
from .generate_call import generate_call

SPEC_TYPES = {"model": "draft-simple", "mtp": "draft-mtp", "eagle": "draft-eagle3", "dflash": "draft-dflash"}
"""llama.cpp's name of each drafter kind; an n-gram drafter's `draft` already is llama.cpp's name of the method."""

NGRAM_OPTIONS = {
    "ngram-simple": ("size-n", "size-m"),
    "ngram-map-k": ("size-n", "size-m"),
    "ngram-map-k4v": ("size-n", "size-m"),
    "ngram-mod": ("n-match", "n-max"),
}
"""What each method calls the tokens that must match and the tokens to draft; --spec-METHOD-... in full."""

CURRENT = {
    "target_model": "-m",
    "context": "-c",
    "streams": "-np",
    "kv_type_k": "-ctk",
    "kv_type_v": "-ctv",
    "threads": "-t",
    "batch_threads": "-tb",
    "draft_threads": "-td",
    "draft_batch_threads": "-tbd",
    "speculation_type": "--spec-type",
    "draft_model": "-md",
    "draft_tokens": "--spec-draft-n-max",
    "draft_min_tokens": "--spec-draft-n-min",
    "draft_p_min": "--spec-draft-p-min",
    "draft_sampling": "--spec-draft-sampling",
    "temperature": "--temp",
    "top_k": "--top-k",
    "top_p": "--top-p",
    "min_p": "--min-p",
    "repeat_penalty": "--repeat-penalty",
    "seed": "--seed",
}
"""Current llama.cpp's spelling of each option, by our name (the names of EngineInfo.spellings)."""

Option = tuple[str, str]


def llama_server(
    setting: Setting,
    models: Sequence[ModelFile],
    spellings: Mapping[str, str],
    sampling: Sampling,
    flags: Sequence[str],
    binary: str = "llama-server",
    threads: int = 0,
    draft_threads: int = 0,
) -> list[str]:
    """Arguments that start llama-server with `setting`; `models` must hold its target and draft.

    `spellings` gives this build's spelling of an option by our name (CURRENT); an empty one leaves the option out. The
    user's own `flags` come last, as they did in every measurement, so that they win. Raises InputError for a label,
    kind of drafter or n-gram method that is not known.
    """
    options = [
        ("target_model", _path(models, setting.target)),
        ("context", str(setting.context * setting.streams)),
        ("streams", str(setting.streams)),
        ("kv_type_k", setting.kv_type_k),
        ("kv_type_v", setting.kv_type_v),
        *_thread_options(setting, threads, draft_threads),
        *_drafter_options(setting, models, spellings),
        *_sampling_options(setting, sampling),
    ]
    spelled = ((spellings.get(name, CURRENT.get(name, name)), value) for name, value in options)
    return [binary, *(word for option, value in spelled if option for word in (option, value)), *flags]


def drafting_flags(setting: Setting, models: Sequence[ModelFile]) -> list[str]:
    """The options of the drafter alone, as llama.cpp spells them now: to add to a command that is not known here.

    A draft whose file is not known has its name. Raises InputError for a drafter that llama.cpp has not got.
    """
    named = [replace(model, path=model.path or model.label) for model in models]
    bare = setting if any(model.label == setting.draft for model in named) else replace(setting, draft="")
    bare = setting if setting.drafter == "ngram" else bare
    return [word for name, value in _drafter_options(bare, named, CURRENT) for word in (CURRENT.get(name, name), value)]


def shell(arguments: Sequence[str]) -> str:
    """One line for a POSIX shell, quoted."""
    return shlex.join(arguments)


def command_for(profile: Profile, chosen: Chosen, binary: str = "") -> str:
    """The line that starts what was chosen, with the binary, models, sampling, threads and flags of `profile`."""
    setting = chosen_setting(profile, chosen)
    if profile.engine.name == "transformers":
        return generate_call(setting, profile.models, profile.sampling)
    arguments = llama_server(
        setting,
        profile.models,
        profile.engine.spellings,
        profile.sampling,
        profile.key.flags,
        binary=binary or profiled_binary(profile),
        threads=profile.key.threads,
        draft_threads=profile.key.threads,
    )
    return shell(arguments)


def profiled_binary(profile: Profile) -> str:
    """The binary that was profiled; the usual name where it was embedded, behind an address or the fake."""
    command = profile.engine.command[0] if profile.engine.command else ""
    has_none = command in ("", "xllamacpp") or command.startswith(("fake:", "http:", "https:"))
    return "llama-server" if has_none else command


def chosen_setting(profile: Profile, chosen: Chosen) -> Setting:
    """The setting that `chosen` stands for: its target found again by hash, then by path."""
    return Setting(
        target=_label(profile.models, chosen),
        target_quant=chosen.target.quant,
        drafter=chosen.drafter,
        draft=chosen.draft,
        draft_quant=chosen.draft_quant,
        draft_tokens=chosen.draft_tokens,
        p_min=chosen.p_min,
        ngram_size=chosen.ngram_size,
        kv_type_k=chosen.kv_type_k,
        kv_type_v=chosen.kv_type_v,
        context=chosen.context,
        streams=chosen.streams,
    )


def _label(models: Sequence[ModelFile], chosen: Chosen) -> str:
    """Label of the chosen target; its path where no model of the profile has its hash. One file may be loaded in several
    quantizations."""
    same_content = [model for model in models if model.sha256 == chosen.target.sha256]
    same_content = [model for model in same_content if model.quant == chosen.target.quant] or same_content
    same_file = [model for model in same_content if model.path == chosen.target.path]
    return (same_file or same_content)[0].label if same_content else chosen.target.path


def _path(models: Sequence[ModelFile], label: str) -> str:
    for model in models:
        if model.label == label:
            return model.path
    raise InputError(f"no model file is labelled {label!r} here: profile that model first")


def _thread_options(setting: Setting, threads: int, draft_threads: int) -> list[Option]:
    options = [("threads", str(threads)), ("batch_threads", str(threads))] if threads else []
    if draft_threads and setting.drafter in SPEC_TYPES and setting.draft:
        options += [("draft_threads", str(draft_threads)), ("draft_batch_threads", str(draft_threads))]
    return options


def _drafter_options(setting: Setting, models: Sequence[ModelFile], spellings: Mapping[str, str]) -> list[Option]:
    if setting.drafter == "none" or setting.draft_tokens == 0:
        return [("speculation_type", "none")]
    if setting.drafter == "ngram":
        return _ngram_options(setting)
    if setting.drafter not in SPEC_TYPES:
        raise InputError(
            f"llama.cpp has no drafter kind {setting.drafter!r}: use one of {', '.join(SPEC_TYPES)}, ngram"
        )
    options = [("speculation_type", SPEC_TYPES[setting.drafter])]
    if setting.draft and setting.draft != setting.target:
        options.append(("draft_model", _path(models, setting.draft)))
    options.append(("draft_tokens", str(setting.draft_tokens)))
    if _is_current(spellings):
        options.append(("draft_min_tokens", "0"))
    return [*options, ("draft_p_min", f"{setting.p_min:g}")]


def _is_current(spellings: Mapping[str, str]) -> bool:
    """Whether the build spells draft options as llama.cpp does now, or says itself how it spells the least length."""
    current = spellings.get("draft_tokens", CURRENT["draft_tokens"]) == CURRENT["draft_tokens"]
    return current or "draft_min_tokens" in spellings


def _ngram_options(setting: Setting) -> list[Option]:
    method = setting.draft or "ngram-simple"
    if method not in NGRAM_OPTIONS:
        raise InputError(f"n-gram method {method!r} has no command line here: use one of {', '.join(NGRAM_OPTIONS)}")
    match_option, draft_option = NGRAM_OPTIONS[method]
    options = [("speculation_type", method)]
    if setting.ngram_size:
        options.append((f"--spec-{method}-{match_option}", str(setting.ngram_size)))
    options.append((f"--spec-{method}-{draft_option}", str(setting.draft_tokens)))
    # Its default least length (48) is above any draft length searched here: without this it would never draft.
    return [*options, ("--spec-ngram-mod-n-min", "1")] if method == "ngram-mod" else options


def _sampling_options(setting: Setting, sampling: Sampling) -> list[Option]:
    options = [
        ("temperature", f"{sampling.temperature:g}"),
        ("top_k", str(sampling.top_k)),
        ("top_p", f"{sampling.top_p:g}"),
        ("min_p", f"{sampling.min_p:g}"),
        ("repeat_penalty", f"{sampling.repeat_penalty:g}"),
        ("seed", str(sampling.seed)),
    ]
    if setting.drafter in SPEC_TYPES and sampling.draft_sampling != "greedy":
        options.append(("draft_sampling", sampling.draft_sampling))
    return options

"""Commands to copy for each engine: the one that was measured first, then the same setting in the words of the others."""

from msgspec.structs import replace

from ..calibrate.records import Chosen, EngineCommand, Recommendation
from ..calibrate.reported import speaks_of
from ..profiler.errors import InputError
from ..profiler.records import Profile, Setting
from .commands import CURRENT, chosen_setting, command_for, drafting_flags, llama_server, shell
from .generate_call import generate_call
from .vllm_command import vllm_drafting, vllm_lacks, vllm_serve

MEASURED_NOTE = "The forecast is for this engine."
OTHER_NOTE = "The same setting; its speed on this engine was not measured."
ADDED_NOTE = "Add this to your own command: files and flags behind imported measurements are not known."


def engine_commands(profile: Profile, chosen: Chosen) -> tuple[EngineCommand, ...]:
    """llama.cpp, vLLM and transformers, that of the profile first. An engine that cannot be told the setting is left out."""
    setting = chosen_setting(profile, chosen)
    if speaks_of(profile) or profile.redacted:
        return _flags_alone(profile, setting)
    own = profile.engine.name
    found = [
        command
        for command in (_llama(profile, chosen, setting), _vllm(profile, setting), _generate(profile, setting))
        if command is not None
    ]
    return tuple(sorted(found, key=lambda command: command.engine != _shown(own)))


def every_command(profile: Profile, recommendation: Recommendation) -> tuple[EngineCommand, ...]:
    """Those of the mix, then of each workload whose choice is another, with its name."""
    own = [advice for advice in recommendation.workloads if advice.chosen != recommendation.chosen]
    return (
        *engine_commands(profile, recommendation.chosen),
        *(
            replace(command, workload=advice.workload)
            for advice in own
            for command in engine_commands(profile, advice.chosen)
        ),
    )


def _flags_alone(profile: Profile, setting: Setting) -> tuple[EngineCommand, ...]:
    """Of imported evidence: what to add to one's own command; files and other flags behind it are not known."""
    found = []
    try:
        found.append(_added("llama.cpp", shell(drafting_flags(setting, profile.models))))
    except InputError:
        pass
    if text := vllm_drafting(setting, profile.models, profile.sampling):
        lacks = vllm_lacks(setting, profile.models, (), profile.sampling)
        found.append(_added("vLLM", text, lacks))
    return tuple(sorted(found, key=lambda command: command.engine != _shown(profile.engine.name)))


def _added(engine: str, text: str, notes: tuple[str, ...] = ()) -> EngineCommand:
    return EngineCommand(engine=engine, text=text, measured=False, notes=(ADDED_NOTE, *notes))


def _shown(name: str) -> str:
    """The engine whose command line a profile's engine has: the simulated one and llama-bench's files have llama.cpp's."""
    return name if name in ("transformers", "vLLM") else "vLLM" if name.lower() == "vllm" else "llama.cpp"


def _command(profile: Profile, engine: str, text: str, notes: tuple[str, ...] = ()) -> EngineCommand:
    measured = _shown(profile.engine.name) == engine
    first = MEASURED_NOTE if measured else OTHER_NOTE
    return EngineCommand(engine=engine, text=text, measured=measured, notes=(first, *notes))


def _llama(profile: Profile, chosen: Chosen, setting: Setting) -> EngineCommand | None:
    models = profile.models
    try:
        if _shown(profile.engine.name) == "llama.cpp":
            return _command(profile, "llama.cpp", command_for(profile, chosen))
        words = llama_server(setting, models, CURRENT, profile.sampling, (), threads=profile.key.threads)
    except InputError:
        return None
    files = [model.path for model in models if model.label in (setting.target, setting.draft)]
    converted = (
        () if all(path.endswith(".gguf") for path in files) else ("llama.cpp needs these models as GGUF files.",)
    )
    return _command(profile, "llama.cpp", shell(words), converted)


def _vllm(profile: Profile, setting: Setting) -> EngineCommand:
    flags = () if _shown(profile.engine.name) == "vLLM" else profile.key.flags
    notes = vllm_lacks(setting, profile.models, flags, profile.sampling)
    return _command(profile, "vLLM", vllm_serve(setting, profile.models, profile.sampling), notes)


def _generate(profile: Profile, setting: Setting) -> EngineCommand | None:
    if setting.drafter not in ("none", "model", "ngram"):
        return None
    text = generate_call(setting, profile.models, profile.sampling)
    if _shown(profile.engine.name) == "transformers":
        return _command(profile, "transformers", text, ("It is of specgauge's own loop, which costs less a round.",))
    return _command(profile, "transformers", text)

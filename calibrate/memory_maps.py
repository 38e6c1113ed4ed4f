"""Memory maps of a profile: which contexts, draft lengths and streams fit, from the headers of its files.

The room is the whole device that was profiled, with nothing else on it: what was free while models were loaded says little.
On a processor it is what the host has available now.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from ..model.memory import MEBIBYTE
from ..profiler.checkpoints.checkpoint import Checkpoint
from ..profiler.checkpoints.reading import read_checkpoint
from ..profiler.errors import InputError
from ..profiler.free_memory import FreeMemory, free_memory
from ..profiler.machine import cpu_model
from ..profiler.pairs.engine_rules import EngineRules
from ..profiler.records import Candidate, DeviceState, ModelFile, Profile
from .checks.memory import MemoryOptions, as_loaded, check_drafter
from .map_records import MemoryMap

STREAMS = (1, 2, 4, 8)
CHECK = "run specgauge check TARGET --draft DRAFT where the files lie"


def memory_maps(profile: Profile) -> tuple[MemoryMap, ...]:
    """One for each target and drafter of the profile, without speeds. Reads headers; nothing is loaded, nothing raises."""
    longest: dict[tuple[str, str, str], Candidate] = {}
    for candidate in profile.candidates:
        pair = candidate.target, candidate.drafter, candidate.draft
        if max(candidate.draft_tokens, default=0) >= max(longest.get(pair, candidate).draft_tokens, default=0):
            longest[pair] = candidate
    drafting = [candidate for candidate in longest.values() if candidate.drafter != "none"]
    read = cache(read_checkpoint)  # a file may be target and draft, or loaded at several widths
    return tuple(_map(profile, candidate, read) for candidate in drafting or longest.values())


def _map(profile: Profile, candidate: Candidate, read: Callable[[str], Checkpoint]) -> MemoryMap:
    blank = MemoryMap(target=candidate.target, drafter=candidate.drafter, draft=candidate.draft)
    models = {model.label: model for model in profile.models}
    used = [models[label] for label in (candidate.target, candidate.draft) if label in models]
    try:
        target, *drafts = (_checkpoint(model, read) for model in used)
        room = _room(profile)
        options = MemoryOptions(
            free=room.free,
            context=candidate.context or None,
            draft_tokens=max(candidate.draft_tokens, default=0),
            streams=candidate.streams,
            kv_type_k=candidate.kv_type_k,
            kv_type_v=candidate.kv_type_v,
            more_streams=STREAMS,
        )
        draft = drafts[0] if drafts else None
        check = check_drafter(target, draft, candidate.drafter, options, EngineRules(profile.engine.name))
    except (InputError, OSError, ValueError) as error:
        return replace(blank, unknown=f"{error}: {CHECK}")
    if not check.region:
        return replace(blank, unknown=f"{check.reason or 'free memory is not known'}: {CHECK}")
    return replace(
        blank,
        room=room.text,
        free_bytes=room.free.free_bytes,
        cells=check.region,
        largest_contexts=check.largest_contexts,
    )


def _checkpoint(model: ModelFile, read: Callable[[str], Checkpoint]) -> Checkpoint:
    """The file's header, weights as the engine loaded them. Raises InputError where it is not there or not that file."""
    if model.random:
        raise InputError(f"{model.label} has random weights and no file")
    if not model.path or not Path(model.path).exists():
        raise InputError(f"the file of {model.label} is not here")
    return as_loaded(read(model.path), model.size_bytes)


@dataclass(frozen=True)
class _Room:
    """Memory that models may take, and what it is in words."""

    free: FreeMemory
    text: str


def _room(profile: Profile) -> _Room:
    """The profiled device's memory. Raises InputError where the profile does not tell it and this is another machine."""
    totals = [
        state.memory_used_bytes + state.memory_free_bytes
        for state in _states(profile)
        if state.memory_used_bytes is not None and state.memory_free_bytes is not None
    ]
    if totals:
        name, total = profile.key.gpu or "the device", max(totals)
        free = FreeMemory(float(total), 0.0, name, "driver", on_device=True)
        return _Room(free, f"{total / MEBIBYTE:,.0f} MiB, all of {name}, with nothing else on it")
    if profile.key.gpu:
        raise InputError(f"the profile does not say how much memory {profile.key.gpu} has")
    if profile.key.cpu != cpu_model():
        raise InputError("the profile was taken on another machine, whose memory it does not tell")
    free = free_memory(gpu=False)
    return _Room(free, free.text)


def _states(profile: Profile) -> Iterable[DeviceState]:
    for measurement in profile.measurements:
        yield from (s for s in (measurement.state_before, measurement.state_after) if s is not None)
        yield from measurement.states_during

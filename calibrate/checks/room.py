"""What fits into the memory that the user allows: candidates that do not are left out before anything is loaded."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from ...model.memory import MEBIBYTE
from ...profiler.checkpoints.checkpoint import Checkpoint
from ...profiler.checkpoints.reading import read_checkpoint
from ...profiler.errors import InputError
from ...profiler.free_memory import free_memory
from ...profiler.pairs.engine_rules import EngineRules
from ...profiler.records import Candidate, ModelFile, Profile
from ...profiler.server_flags import asked_of
from ..plan import candidate_name
from .memory import MemoryOptions, as_loaded, check_drafter


@dataclass(frozen=True)
class Fitting:
    """A profile to fill without the candidates that do not fit, which stand in `dropped`; `notes`: draft lengths left out."""

    blank: Profile
    notes: tuple[str, ...] = ()


def only_what_fits(blank: Profile, memory_bytes: float) -> Fitting:
    """`blank` with the candidates, and of each the draft lengths, that fit `memory_bytes`: weights of target and draft,
    caches and workspace with room for twice the draft length, and the runtime (model/memory.py).

    Of models whose layers no header tells, weights and runtime alone are counted. A target of which plain decoding does not
    fit is left out whole. Raises InputError where nothing is left.
    """
    room = _Room(blank, memory_bytes)
    kept: list[Candidate] = []
    dropped: dict[str, str] = {}
    notes: list[str] = []
    for target in dict.fromkeys(candidate.target for candidate in blank.candidates):
        own = [candidate for candidate in blank.candidates if candidate.target == target]
        alone = room.missing(own[0], 0)
        if alone:
            dropped |= {candidate_name(one): alone for one in own}
            continue
        fitting = [room.trimmed(one) for one in own]
        dropped |= {
            candidate_name(one): room.missing(one, min(one.draft_tokens))
            for one, left in zip(own, fitting)
            if left is None
        }
        notes += [_shortened(one, left, room) for one, left in zip(own, fitting) if left not in (one, None)]
        kept += [left for left in fitting if left is not None] or [_plain(own[0])]
    if not kept:
        raise InputError(f"nothing fits: {room.least()}; give more --memory or smaller files")
    targets = {candidate.target for candidate in kept}
    smallest = min((m for m in blank.models if m.label in targets), key=lambda model: model.size_bytes)
    sentinel = smallest.label if blank.sentinel_model else ""
    changed = replace(blank, candidates=tuple(kept), dropped={**blank.dropped, **dropped}, sentinel_model=sentinel)
    return Fitting(changed, tuple(notes))


class _Room:
    """What settings need of the memory that is allowed; each header is read once."""

    def __init__(self, blank: Profile, memory_bytes: float):
        on_processor = blank.key.backend == "cpu"
        self._blank = blank
        self._asked = asked_of(blank.key.flags)
        self._allowed = memory_bytes
        self._free = free_memory(memory_bytes, gpu=False if on_processor else None)
        self._models = {model.label: model for model in blank.models}
        self._headers = {model.label: _header(model) for model in blank.models}

    def trimmed(self, candidate: Candidate) -> Candidate | None:
        """The candidate with the draft lengths that fit; None where none does."""
        lengths = tuple(g for g in candidate.draft_tokens if not self.missing(candidate, g))
        return replace(candidate, draft_tokens=lengths) if lengths or not candidate.draft_tokens else None

    def missing(self, candidate: Candidate, draft_tokens: int) -> str:
        """What a setting needs and how many MiB of it are missing; empty where it fits."""
        needed = self.needed(candidate, draft_tokens)
        short = needed - self._allowed
        if short <= 0:
            return ""
        what = f"with a draft of {draft_tokens}" if draft_tokens else "for plain decoding"
        return (
            f"needs {_mebibytes(needed)} {what}, --memory is {_mebibytes(self._allowed)}: {_mebibytes(short)} missing"
        )

    def needed(self, candidate: Candidate, draft_tokens: int) -> float:
        """Bytes of a setting of `candidate`; 0 draft tokens is plain decoding of its target."""
        options = self._options(candidate, draft_tokens)
        labels = (candidate.target, candidate.draft) if draft_tokens else (candidate.target,)
        used = [label for label in labels if label in self._models]
        target, *drafts = (self._headers[label] for label in used)
        total = None
        if target is not None and None not in drafts:
            drafter, draft = (candidate.drafter, next(iter(drafts), None)) if draft_tokens else ("none", None)
            total = check_drafter(target, draft, drafter, options, EngineRules(self._blank.engine.name)).total_bytes
        return sum(self._models[label].size_bytes for label in used) + options.runtime if total is None else total

    def _options(self, candidate: Candidate, draft_tokens: int) -> MemoryOptions:
        """Types of the caches are those of the flags behind --, where they name any."""
        asked = self._asked
        try:
            return MemoryOptions(
                free=self._free,
                context=candidate.context or None,
                draft_tokens=draft_tokens,
                streams=candidate.streams,
                kv_type_k=asked.kv_type_k or candidate.kv_type_k,
                kv_type_v=asked.kv_type_v or candidate.kv_type_v,
                draft_kv_type_k=asked.draft_kv_type_k or candidate.kv_type_k,
                draft_kv_type_v=asked.draft_kv_type_v or candidate.kv_type_v,
            )
        except ValueError as error:
            raise InputError(f"--memory: {error}") from None

    def least(self) -> str:
        """The target that needs least, and what it needs."""
        needs = {candidate.target: self.needed(candidate, 0) for candidate in self._blank.candidates}
        target = min(needs, key=lambda label: needs[label])
        candidate = next(one for one in self._blank.candidates if one.target == target)
        return f"{target} {self.missing(candidate, 0)}"


def _header(model: ModelFile) -> Checkpoint | None:
    """What its header tells; None of simulated models and of random weights, which have no file."""
    if model.random or not os.path.exists(model.path):
        return None
    return as_loaded(read_checkpoint(model.path), model.size_bytes)


def _plain(candidate: Candidate) -> Candidate:
    return replace(candidate, drafter="none", draft="", draft_quant="", ngram_size=0, draft_tokens=())


def _shortened(candidate: Candidate, left: Candidate | None, room: _Room) -> str:
    lengths: Sequence[int] = left.draft_tokens if left else ()
    first = min(g for g in candidate.draft_tokens if g not in lengths)
    return f"{candidate_name(candidate)} {room.missing(candidate, first)}; shorter drafts are kept"


def _mebibytes(size_bytes: float) -> str:
    """Rounded up: what is missing is never 0."""
    return f"{math.ceil(size_bytes / MEBIBYTE):,} MiB"

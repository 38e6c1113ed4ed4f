"""Recurrent state and rejected tokens: what an engine's build can take back, and what that costs."""

from ..checkpoints.checkpoint import Checkpoint
from ..files import shown
from ..finding import Finding, error, note, warning
from .engine_rules import LLAMA_CPP, LLAMA_CPP_CHECKPOINTS, NATIVE_ROLLBACK, EngineRules

LEAST_BUILD = f"take llama.cpp b{LLAMA_CPP_CHECKPOINTS} or newer (llama.cpp#19493)"


def pair_rollback(target: Checkpoint, draft: Checkpoint, engine: EngineRules) -> list[Finding]:
    """What a draft model meets where the target, or the draft itself, has recurrent state."""
    if not (target.recurrent or draft.recurrent):
        return []
    who, model = ("target", target) if target.recurrent else ("draft", draft)
    state = f"the {who} ({shown(model.architecture)}) has recurrent state"
    if engine.can_roll_back is False:
        return [_refused(state, engine)]
    if engine.can_roll_back is None:
        return [_unknown(state, engine)]
    if draft.head_kind and target.architecture in NATIVE_ROLLBACK:
        return []
    native = target.mtp_layers and target.architecture in NATIVE_ROLLBACK
    remedy = (
        "profile it before use: that took 74 to 77 % of a round on a 27B (PrismML-Eng/llama.cpp#173) and 600 of 825 ms on "
        f"a Strix Halo (llama.cpp#28118){'; the built-in MTP head rolls back in place' if native else ''}"
    )
    return [warning("rollback-replays", f"{state}: a rejection restores a copy of it and decodes anew", remedy)]


def target_rollback(target: Checkpoint, engine: EngineRules) -> list[Finding]:
    """What heads and n-grams meet in the target's state, with what its copies take."""
    if not target.recurrent or target.shape is None or not target.shape.recurrent_bytes:
        return []
    size = f"{target.shape.recurrent_bytes / 2**20:,.1f} MiB"
    evidence = f"{shown(target.architecture)} keeps {size} of recurrent state a stream; a head needs a copy of it for each drafted token"
    if engine.can_roll_back is False:
        return [warning("recurrent-state", f"{evidence}; b{engine.build} cannot roll it back", LEAST_BUILD)]
    return [note("recurrent-state", evidence, "the memory of each draft length counts the copies")]


def _refused(state: str, engine: EngineRules) -> Finding:
    evidence = (
        f'{state} that build b{engine.build} cannot roll back: it starts and never drafts ("does not support partial '
        'sequence removal")'
    )
    return error("no-rollback", evidence, LEAST_BUILD)


def _unknown(state: str, engine: EngineRules) -> Finding:
    evidence = f"{state}; whether this {shown(engine.name)} can take rejected tokens back is not known"
    remedy = LEAST_BUILD if engine.name == LLAMA_CPP else "try one request and see that something is drafted"
    return warning("rollback-unknown", evidence, remedy)

"""The checklist of seven points, from headers and settings alone; checklist_after.py judges them by measurements."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...profiler.checkpoints.checkpoint import Checkpoint
from ...profiler.pairs.sizes import INT8_BITS
from ...profiler.pairs.tokens import INCOMPATIBLE, UNKNOWN, file_name
from ...profiler.preflight import PairVerdict
from ...profiler.records import Sampling
from .memory import DRAFT_LIMIT, largest_draft_tokens
from .records import FAIL, NOT_MEASURED, PASS, ChecklistItem, MemoryCheck
from .sampling import both_sides

TOKENIZER, BITS, SAMPLING = "same-tokenizer", "draft-int8", "sampling-equal"
LENGTH, ROOM, WARM, SEED = "draft-tokens-in-best-region", "kv-room", "warmed-up", "seed-fixed"
POINTS = (TOKENIZER, BITS, SAMPLING, LENGTH, ROOM, WARM, SEED)


@dataclass(frozen=True)
class DraftPair:
    """A draft given for a target, and how they go together."""

    draft: Checkpoint
    verdict: PairVerdict


@dataclass(frozen=True)
class AskedSampling:
    """What the user's settings say for target and draft; None where nothing is said."""

    target: Sampling | None = None
    draft: Sampling | None = None


NOTHING_ASKED = AskedSampling()


def checklist_before(
    target: Checkpoint,
    pairs: Sequence[DraftPair],
    memories: Sequence[MemoryCheck],
    sampling: AskedSampling = NOTHING_ASKED,
) -> tuple[ChecklistItem, ...]:
    """The seven points from headers and settings alone; what only a run shows is not_measured."""
    return (
        _tokenizers(target, pairs),
        _bits(target, pairs),
        _asked_sampling(sampling),
        _asked_lengths(memories),
        _room(memories),
        item(WARM, NOT_MEASURED, "a profile warms each server with ten short requests and keeps cold times apart"),
        _asked_seed(sampling.target),
    )


def _tokenizers(target: Checkpoint, pairs: Sequence[DraftPair]) -> ChecklistItem:
    if not pairs:
        if target.mtp_layers:
            return item(TOKENIZER, PASS, "the built-in head drafts in the target's own tokens")
        return item(TOKENIZER, NOT_MEASURED, "no draft given; n-gram drafters use the target's own tokens")
    worst = max(pairs, key=lambda pair: (pair.verdict.tokens == INCOMPATIBLE, pair.verdict.tokens == UNKNOWN))
    status = {INCOMPATIBLE: FAIL, UNKNOWN: NOT_MEASURED}.get(worst.verdict.tokens, PASS)
    which = f"{file_name(worst.draft)}: " if len(pairs) > 1 else ""
    return item(TOKENIZER, status, which + worst.verdict.evidence)


def _bits(target: Checkpoint, pairs: Sequence[DraftPair]) -> ChecklistItem:
    if not pairs:
        what = (
            f"the built-in head has the target's quantization ({target.quant})"
            if target.mtp_layers
            else "no draft given"
        )
        return item(BITS, NOT_MEASURED, what)
    known = [pair.draft for pair in pairs if pair.draft.quant_bits]
    if not known:
        return item(BITS, NOT_MEASURED, "the draft's header does not tell its quantization")
    least = min(known, key=lambda draft: draft.quant_bits)
    detail = f"{least.quant} has {least.quant_bits:.1f} bits a weight"
    if least.quant_bits >= INT8_BITS:
        return item(BITS, PASS, detail)
    return item(BITS, FAIL, f"{detail}; below int8 only where its acceptance is measured to hold")


def _asked_sampling(asked: AskedSampling) -> ChecklistItem:
    if asked.target is None or asked.draft is None:
        return item(SAMPLING, NOT_MEASURED, "a profile sends sampling explicitly and reads back what the engine used")
    unequal = [field for field in both_sides(asked.target, asked.draft) if field.equal is False]
    if not unequal:
        return item(SAMPLING, PASS, f"target and draft get temperature {asked.target.temperature:g} and the same rest")
    told = ", ".join(f"{field.name} {field.sent} for the target, {field.used} for the draft" for field in unequal)
    return item(SAMPLING, FAIL, told)


def _asked_lengths(memories: Sequence[MemoryCheck]) -> ChecklistItem:
    drafting = [memory for memory in memories if memory.draft_tokens and memory.drafter != "none"]
    if not drafting and any(memory.drafter != "none" for memory in memories):
        return item(
            LENGTH, NOT_MEASURED, "0 draft tokens asked for, which is plain decoding; a profile tells whether more pay"
        )
    if not drafting:
        return item(LENGTH, NOT_MEASURED, "no draft length asked for; a profile forecasts all of them")
    first = drafting[0]
    if first.spare_bytes is None:
        return item(
            LENGTH, NOT_MEASURED, f"{first.draft_tokens} draft tokens asked for; a profile tells whether they pay"
        )
    reach = largest_draft_tokens(first)
    if reach is None:
        told = f"{first.draft_tokens} draft tokens asked for; memory is short without any"
        return item(LENGTH, NOT_MEASURED, told)
    if reach < first.draft_tokens:
        told = f"{first.draft_tokens} draft tokens, but with a context of {first.context:,} memory allows {reach}"
        return item(LENGTH, FAIL, told)
    limit = f", memory allows {reach}{' or more' if reach == DRAFT_LIMIT else ''}"
    return item(
        LENGTH, NOT_MEASURED, f"{first.draft_tokens} draft tokens asked for{limit}; a profile tells whether they pay"
    )


def _room(memories: Sequence[MemoryCheck]) -> ChecklistItem:
    known = [memory for memory in memories if memory.spare_bytes is not None]
    if not known:
        reason = next((memory.reason for memory in memories if memory.reason), "memory is not known")
        return item(ROOM, NOT_MEASURED, reason)
    worst = min(known, key=lambda memory: memory.spare_bytes or 0.0)
    spare = (worst.spare_bytes or 0.0) / 2**20
    twice = (
        f"{worst.context:,} tokens of context and room for twice {worst.draft_tokens} drafted ones, "
        f"{_streams(worst.streams)}"
    )
    if spare < 0:
        return item(ROOM, FAIL, f"{twice}: {-spare:,.0f} MiB missing")
    tight = ", which is tight" if worst.verdict == "tight" else ""
    return item(ROOM, PASS, f"{twice}: {spare:,.0f} MiB to spare{tight}")


def _asked_seed(sampling: Sampling | None) -> ChecklistItem:
    if sampling is None:
        return item(SEED, NOT_MEASURED, "a profile sends one seed with every request")
    if sampling.seed < 0:
        return item(SEED, FAIL, f"seed {sampling.seed} is a new one for each request")
    return item(SEED, PASS, f"seed {sampling.seed}")


def _streams(count: int) -> str:
    return "1 stream" if count == 1 else f"{count} streams"


def item(id: str, status: str, detail: str) -> ChecklistItem:
    """A point with its evidence."""
    return ChecklistItem(id=id, status=status, detail=detail)

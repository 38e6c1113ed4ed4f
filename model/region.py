"""The memory region: which contexts and draft lengths fit, for one or many streams, and which term takes the room.

Sized on the speculative arm: draft, its cache and the wider verification count from one draft token on.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .hardware import LayerSplit, Tier
from .kv import F16, KvTypes
from .memory import MEBIBYTE, Deployment, MemoryNeed, MemoryVerdict, ModelNeed

TERMS = ("weights", "cache", "recurrent state", "workspace")


@dataclass(frozen=True)
class Term:
    """Bytes of one term of `owner`: target, draft or runtime."""

    owner: str
    name: str
    size_bytes: float

    @property
    def mebibytes(self) -> float:
        """The same in MiB."""
        return self.size_bytes / MEBIBYTE


@dataclass(frozen=True)
class Demand:
    """What is asked for: a context a stream, how many tokens are drafted, how many streams, and the types of the cache."""

    context: int
    draft_tokens: int
    streams: int = 1
    kv: KvTypes = F16


@dataclass(frozen=True)
class Cell:
    """One setting of a region: what it needs, and its verdict."""

    streams: int
    draft_tokens: int
    context: int
    total_bytes: float
    verdict: MemoryVerdict


@dataclass(frozen=True)
class Reach:
    """The largest context at a draft length, or the largest draft length at a context; None where not even 0 fits."""

    streams: int
    at: int
    most: int | None


@dataclass(frozen=True)
class MemoryRegion:
    """What fits `free_bytes`: cells (streams x draft lengths x contexts), and how far either axis reaches.

    `contexts`: at each draft length the largest context, `draft_tokens`: at each context the largest draft length. Memory
    alone decides; whether a long draft pays is another question.
    """

    free_bytes: float
    cells: tuple[Cell, ...]
    contexts: tuple[Reach, ...]
    draft_tokens: tuple[Reach, ...]

    def cell(self, draft_tokens: int, context: int, streams: int = 1) -> Cell:
        """The cell of one setting. Raises KeyError where it is not in the region."""
        wanted = (streams, draft_tokens, context)
        for cell in self.cells:
            if (cell.streams, cell.draft_tokens, cell.context) == wanted:
                return cell
        raise KeyError(f"{draft_tokens} draft tokens at a context of {context} for {streams} streams")


def memory_region(
    deployment: Deployment,
    free_bytes: float,
    draft_tokens: Sequence[int],
    contexts: Sequence[int],
    streams: Sequence[int] = (1,),
    kv: KvTypes = F16,
    context_limit: int = 2**20,
    draft_limit: int = 64,
) -> MemoryRegion:
    """The region of `deployment` on a device with `free_bytes`, over all combinations; limits end the two reaches.

    Raises ValueError where an axis is empty or holds a value that Deployment.need refuses, or nothing is free.
    """
    if not (draft_tokens and contexts and streams) or not free_bytes > 0:
        raise ValueError("a region has draft lengths, contexts and streams, and some memory free")
    need = deployment.need(
        np.asarray(draft_tokens)[None, :, None],
        np.asarray(contexts)[None, None, :],
        np.asarray(streams)[:, None, None],
        kv,
    )
    totals = np.broadcast_to(need.total_bytes, (len(streams), len(draft_tokens), len(contexts)))
    cells = tuple(
        Cell(n, g, c, float(totals[i, j, k]), verdict_of(float(totals[i, j, k]), free_bytes))
        for i, n in enumerate(streams)
        for j, g in enumerate(draft_tokens)
        for k, c in enumerate(contexts)
    )
    return MemoryRegion(
        free_bytes,
        cells,
        tuple(
            Reach(n, g, deployment.largest_context(free_bytes, g, n, kv, context_limit))
            for n in streams
            for g in draft_tokens
        ),
        tuple(
            Reach(n, c, deployment.largest_draft_tokens(free_bytes, c, n, kv, draft_limit))
            for n in streams
            for c in contexts
        ),
    )


def verdict_of(total_bytes: float, free_bytes: float) -> MemoryVerdict:
    """fits, tight or does_not_fit, as MemoryNeed.verdict says it of the same sum."""
    return MemoryNeed(ModelNeed(), ModelNeed(), total_bytes).verdict(free_bytes)


def terms(need: MemoryNeed) -> tuple[Term, ...]:
    """The terms of one setting that are not 0, target before draft before runtime. They add up to its total."""
    found = []
    for owner, model in (("target", need.target), ("draft", need.draft)):
        sizes = (model.weight_bytes, model.kv_bytes, model.state_bytes, model.workspace_bytes)
        found += [Term(owner, name, float(size)) for name, size in zip(TERMS, sizes, strict=True) if float(size)]
    return (*found, Term("runtime", "runtime", float(need.runtime_bytes)))


def layers_that_leave(
    deployment: Deployment, demand: Demand, free_bytes: float, host_bytes: float
) -> LayerSplit | None:
    """Whole layers of the target that must move to the host, with their cache, for `demand` to fit; None where none helps.

    Nothing helps where the head, draft, workspace and runtime alone are too large, or the host has no room. Raises
    ValueError as Deployment.need.
    """
    deployment.need(demand.draft_tokens, demand.context, demand.streams, demand.kv)
    if not (free_bytes > 0 and host_bytes > 0):
        return None
    # Where the bytes go does not depend on how fast they are read.
    device, host = Tier("device", math.inf, free_bytes), Tier("host", math.inf, host_bytes)
    try:
        return deployment.partial_offload(
            device, host, demand.draft_tokens, demand.context, demand.streams, demand.kv
        ).split
    except ValueError:
        return None

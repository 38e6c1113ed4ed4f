"""Memory of a target with each of its drafters at the setting asked for, and the region around it."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from ...model.kv import KvTypes
from ...model.memory import MEBIBYTE, RUNTIME_BYTES, Deployment
from ...model.region import Demand, layers_that_leave, memory_region, terms
from ...model.shape import Shape, Tensors
from ...profiler.checkpoints.checkpoint import Checkpoint
from ...profiler.checkpoints.reading import read_checkpoint
from ...profiler.files import shown
from ...profiler.finding import Finding, note, warning
from ...profiler.free_memory import FreeMemory, free_memory, host_free_bytes, spill_risk
from ...profiler.pairs.engine_rules import LLAMA_CPP, EngineRules
from ...profiler.pairs.tokens import file_name
from ...profiler.records import Candidate, ModelFile
from .records import LargestContext, LargestDraftTokens, LayersOnHost, MemoryCheck, MemoryTerm, RegionCell

MEMORY_VERDICTS = ("fits", "tight", "unknown", "does_not_fit")
"""From good to bad."""
HOST_RUNTIME_BYTES = 512 * MEBIBYTE
"""A prior: an engine on the processor holds no device context; its buffers are those of prompt batches."""
USUAL_CONTEXT = 8192
SHOWN_CONTEXTS = tuple(2**power for power in range(11, 21))
SHOWN_DRAFT_TOKENS = (0, 1, 2, 4, 8)
UNTRAINED_LIMIT = 2**20
DRAFT_LIMIT = 64
COARSE_CACHES = ("q4_0", "q4_1", "q5_0", "q5_1")


@dataclass(frozen=True)
class MemoryOptions:
    """What is to fit where. `context` None: 8,192 tokens, or as many as the target was trained for; `host_bytes`: room
    for layers that leave a device, None: not known.

    Raises ValueError where a length is negative, streams is below 1 or a KV type has no known size.
    """

    free: FreeMemory
    context: int | None = None
    draft_tokens: int = 3
    """llama.cpp's own default."""
    streams: int = 1
    kv_type_k: str = "f16"
    kv_type_v: str = "f16"
    draft_kv_type_k: str = "f16"
    draft_kv_type_v: str = "f16"
    host_bytes: float | None = None
    runtime_bytes: float | None = None
    """Device context, kernels and batch buffers; None: a prior."""
    more_streams: tuple[int, ...] = ()
    """Numbers of streams that a region shows beside one and those asked for."""
    kv: KvTypes = field(init=False)
    draft_kv: KvTypes = field(init=False)

    def __post_init__(self) -> None:
        if (self.context or 0) < 0 or self.draft_tokens < 0 or self.streams < 1:
            raise ValueError("context and draft tokens cannot be negative, and there is one stream at least")
        object.__setattr__(self, "kv", KvTypes.named(self.kv_type_k, self.kv_type_v))
        object.__setattr__(self, "draft_kv", KvTypes.named(self.draft_kv_type_k, self.draft_kv_type_v))

    def context_of(self, target: Checkpoint) -> int:
        """Tokens a stream of `target` is to hold."""
        return self.context or min(USUAL_CONTEXT, target.context_length or USUAL_CONTEXT)

    @property
    def runtime(self) -> float:
        """Bytes of the runtime: as given, else the prior of a device or of the host."""
        prior = RUNTIME_BYTES if self.free.on_device else HOST_RUNTIME_BYTES
        return float(prior) if self.runtime_bytes is None else self.runtime_bytes


def check_memory(
    target: Checkpoint, drafts: Sequence[Checkpoint], options: MemoryOptions, engine: EngineRules
) -> tuple[MemoryCheck, ...]:
    """One check for each draft that could work, one for the built-in head; of the target alone where there is neither."""
    checks = [check_drafter(target, draft, draft.head_kind or "model", options, engine) for draft in drafts]
    if target.mtp_shape is not None:
        checks.append(check_drafter(target, None, "mtp", options, engine))
    return tuple(checks or [check_drafter(target, None, "none", options, engine)])


def candidate_findings(candidate: Candidate, models: Sequence[ModelFile], engine: str = LLAMA_CPP) -> list[Finding]:
    """Whether the longest draft of `candidate` fits what is free now, from the headers of its files and the bytes that its
    models take as loaded. Nothing of random weights, which have no file."""
    known = {model.label: model for model in models}
    used = [known[label] for label in (candidate.target, candidate.draft) if label in known]
    if any(model.random for model in used):
        return []
    target, *drafts = (as_loaded(read_checkpoint(model.path), model.size_bytes) for model in used)
    free = free_memory()
    options = MemoryOptions(
        free=free,
        context=candidate.context or None,
        draft_tokens=max(candidate.draft_tokens, default=0),
        streams=candidate.streams,
        kv_type_k=candidate.kv_type_k,
        kv_type_v=candidate.kv_type_v,
        host_bytes=host_free_bytes() if free.on_device else None,
    )
    checks = check_memory(target, drafts, options, EngineRules(engine))
    return [finding for check in checks for finding in memory_findings(check, target, options.free)]


def as_loaded(checkpoint: Checkpoint, size_bytes: int) -> Checkpoint:
    """The checkpoint whose weights take `size_bytes` in all: an engine may quantize them as it loads them."""
    stored = checkpoint.shape.weights.total.size_bytes if checkpoint.shape else 0
    if checkpoint.shape is None or not stored or stored == size_bytes:
        return checkpoint
    share = size_bytes / stored
    parts = {
        field.name: Tensors(part.parameters, round(part.size_bytes * share))
        for field in dataclasses.fields(checkpoint.shape.weights)
        for part in [getattr(checkpoint.shape.weights, field.name)]
    }
    weights = dataclasses.replace(checkpoint.shape.weights, **parts)
    return dataclasses.replace(checkpoint, shape=dataclasses.replace(checkpoint.shape, weights=weights))


def memory_findings(check: MemoryCheck, target: Checkpoint, free: FreeMemory) -> list[Finding]:
    """What a check says to do: missing bytes, little to spare, silent paging, context that drafting costs."""
    found = []
    if target.context_length and check.context > target.context_length:
        evidence = f"a context of {check.context:,} is asked for, the target was trained for {target.context_length:,}"
        found.append(warning("context-beyond-training", evidence, "its text degrades past that: ask for less"))
    found += _draft_cache(check)
    if check.total_bytes is None or check.spare_bytes is None:
        remedy = "give --memory SIZE" if check.total_bytes is not None else "take a file whose header tells its layers"
        return [*found, warning("memory-unknown", check.reason, remedy)]
    if check.verdict == "does_not_fit":
        found.append(_does_not_fit(check))
    elif check.verdict == "tight":
        evidence = (
            f"{_setting(check)} leaves {check.spare_bytes / MEBIBYTE:,.0f} MiB: less than 5 % or 512 MiB to spare"
        )
        found.append(
            warning("memory-tight", evidence, "leave room for what else runs there: a shorter context or draft")
        )
    return [*found, *spill_risk(free, check.verdict, check.spare_bytes), *_context_lost(check)]


def check_drafter(
    target: Checkpoint, draft: Checkpoint | None, drafter: str, options: MemoryOptions, engine: EngineRules
) -> MemoryCheck:
    """One drafter by kind: none, model, ngram (no weights, but room for its drafts), mtp or the kind of a head."""
    context = options.context_of(target)
    blank = MemoryCheck(
        drafter=drafter,
        draft=draft.path if draft else "",
        draft_tokens=options.draft_tokens if drafter != "none" else 0,
        context=context,
        streams=options.streams,
        kv_type_k=options.kv_type_k,
        kv_type_v=options.kv_type_v,
        draft_kv_type_k=options.draft_kv_type_k,
        draft_kv_type_v=options.draft_kv_type_v,
        verdict="unknown",
    )
    shapeless = [model for model in (target, draft) if model is not None and model.shape is None]
    if target.shape is None or shapeless:
        reason = "; ".join(f"{file_name(model)}: {model.shape_unknown or 'no shape'}" for model in shapeless)
        return replace(blank, reason=f"the header does not tell the shape ({reason})")
    small = draft.shape if draft else target.mtp_shape if drafter == "mtp" else None
    return _sized(blank, _deployment(target.shape, small, drafter, options, engine), target, options)


def _deployment(
    target: Shape, draft: Shape | None, drafter: str, options: MemoryOptions, engine: EngineRules
) -> Deployment:
    """llama.cpp rolls heads back in place (a copy a row); a draft model makes it keep one checkpoint (llama.cpp#19493)."""
    at_llama = engine.name == LLAMA_CPP
    return Deployment(
        target,
        draft,
        options.draft_kv,
        rollback="snapshot" if at_llama and drafter == "model" else "copies",
        embedding_on_host=at_llama and options.free.on_device,
        runtime_bytes=options.runtime,
    )


def _sized(blank: MemoryCheck, deployment: Deployment, target: Checkpoint, options: MemoryOptions) -> MemoryCheck:
    need = deployment.need(blank.draft_tokens, blank.context, blank.streams, options.kv)
    found = replace(
        blank,
        total_bytes=float(need.total_bytes),
        bytes_per_context_token=_more(deployment, blank, options.kv, context=1),
        bytes_per_draft_token=_more(deployment, blank, options.kv, draft_tokens=1) if blank.drafter != "none" else None,
        terms=tuple(MemoryTerm(owner=t.owner, name=t.name, size_bytes=t.size_bytes) for t in terms(need)),
    )
    free = options.free.free_bytes
    if free is None:
        return replace(found, reason="free memory is not known")
    verdict = need.verdict(free)
    sized = replace(found, verdict=verdict.verdict, spare_bytes=verdict.spare_bytes)
    if verdict.verdict == "does_not_fit" and options.free.on_device:
        sized = replace(sized, offload=_offload(deployment, blank, options, free))
    return _with_region(sized, deployment, target, options, free) if free > 0 else sized


def _more(deployment: Deployment, check: MemoryCheck, kv: KvTypes, context: int = 0, draft_tokens: int = 0) -> float:
    """Bytes that so much more context a stream, or drafting, takes."""
    # The first drafted token brings the draft's weights along: what one more takes is that of the next.
    drafted = max(check.draft_tokens, 1) if draft_tokens else check.draft_tokens
    now = deployment.need(drafted, check.context, check.streams, kv)
    then = deployment.need(drafted + draft_tokens, check.context + context, check.streams, kv)
    return float(then.total_bytes - now.total_bytes)


def _offload(
    deployment: Deployment, check: MemoryCheck, options: MemoryOptions, free_bytes: float
) -> LayersOnHost | None:
    demand = Demand(check.context, check.draft_tokens, check.streams, options.kv)
    split = layers_that_leave(deployment, demand, free_bytes, options.host_bytes or 0.0)
    if split is None:
        return None
    return LayersOnHost(
        device_layers=split.device_layers,
        host_layers=split.host_layers,
        device_bytes=split.device_bytes,
        host_bytes=split.host_bytes,
    )


def _with_region(
    check: MemoryCheck, deployment: Deployment, target: Checkpoint, options: MemoryOptions, free_bytes: float
) -> MemoryCheck:
    limit = max(target.context_length or UNTRAINED_LIMIT, check.context)
    region = memory_region(
        deployment,
        free_bytes,
        sorted({*SHOWN_DRAFT_TOKENS, check.draft_tokens} if check.drafter != "none" else {0}),
        sorted({*(context for context in SHOWN_CONTEXTS if context <= limit), check.context}),
        sorted({1, check.streams, *options.more_streams}),
        options.kv,
        context_limit=limit,
        draft_limit=max(DRAFT_LIMIT, check.draft_tokens),
    )
    return replace(
        check,
        region=tuple(
            RegionCell(
                streams=cell.streams,
                draft_tokens=cell.draft_tokens,
                context=cell.context,
                total_bytes=cell.total_bytes,
                verdict=cell.verdict.verdict,
            )
            for cell in region.cells
        ),
        largest_contexts=tuple(
            LargestContext(streams=reach.streams, draft_tokens=reach.at, context=reach.most)
            for reach in region.contexts
        ),
        largest_draft_tokens=tuple(
            LargestDraftTokens(streams=reach.streams, context=reach.at, draft_tokens=reach.most)
            for reach in region.draft_tokens
            if check.drafter != "none"
        ),
    )


def _does_not_fit(check: MemoryCheck) -> Finding:
    missing = -(check.spare_bytes or 0.0) / MEBIBYTE
    evidence = f"{_setting(check)} needs {_mebibytes(check.total_bytes)}: {missing:,.0f} MiB are missing"
    ways = []
    context, length = largest_context(check), largest_draft_tokens(check)
    if context:
        ways.append(f"a context of {context:,} at most")
    if length is not None and length < check.draft_tokens:
        ways.append("plain decoding alone" if length == 0 else f"{length} draft tokens at most")
    if check.offload:
        layers = check.offload.device_layers + check.offload.host_layers
        ways.append(f"{check.offload.host_layers} of {layers} layers on the host, which is slow")
    return warning("does-not-fit", evidence, ", or ".join(ways) or "take smaller files or fewer streams")


def _draft_cache(check: MemoryCheck) -> list[Finding]:
    """A draft's cache is small, and acceptance hangs on it."""
    coarse = {check.draft_kv_type_k, check.draft_kv_type_v} & set(COARSE_CACHES)
    if not coarse or check.drafter == "none":
        return []
    evidence = f"the draft's cache is {', '.join(sorted(coarse))}: q4_0 nearly halved acceptance (llama.cpp#15039)"
    return [warning("draft-cache-below-q8", evidence, "keep it at f16 or q8_0, or measure acceptance at this type")]


def _context_lost(check: MemoryCheck) -> list[Finding]:
    """The context that drafting takes from plain decoding: an automatic fit that ignores it would crash later."""
    plain = next((r.context for r in check.largest_contexts if (r.streams, r.draft_tokens) == (check.streams, 0)), None)
    drafting = largest_context(check)
    if not check.draft_tokens or plain is None or drafting is None or drafting >= plain:
        return []
    evidence = f"plain decoding could hold {plain:,} tokens of context, {check.draft_tokens} draft tokens{_with(check)} {drafting:,}"
    return [note("context-for-drafting", evidence, "set the context by hand for the drafting arm (llama.cpp#23472)")]


def largest_context(check: MemoryCheck) -> int | None:
    """At the draft length and streams asked for."""
    wanted = (check.streams, check.draft_tokens)
    return next((r.context for r in check.largest_contexts if (r.streams, r.draft_tokens) == wanted), None)


def largest_draft_tokens(check: MemoryCheck) -> int | None:
    """At the context and streams asked for."""
    wanted = (check.streams, check.context)
    return next((r.draft_tokens for r in check.largest_draft_tokens if (r.streams, r.context) == wanted), None)


def _setting(check: MemoryCheck) -> str:
    drafted = f", {check.draft_tokens} draft tokens{_with(check)}" if check.draft_tokens else ""
    streams = f", {check.streams} streams" if check.streams > 1 else ""
    return f"a context of {check.context:,}{drafted}{streams}"


def _with(check: MemoryCheck) -> str:
    """Which drafter, for a list of several."""
    if check.drafter == "mtp":
        return " of the built-in head"
    return f" of {shown(Path(check.draft).name or check.draft)}" if check.draft else ""


def _mebibytes(size_bytes: float | None) -> str:
    return f"{(size_bytes or 0.0) / MEBIBYTE:,.0f} MiB"

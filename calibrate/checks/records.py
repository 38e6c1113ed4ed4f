"""What `specgauge check` finds: the pair, the memory, the seven points. Sizes in bytes, shares as fractions."""

from ...profiler.finding import Finding
from ...profiler.records import Record

PASS, FAIL, NOT_MEASURED = "pass", "fail", "not_measured"


class ChecklistItem(Record, kw_only=True):
    """One of the seven points. status: pass, fail, not_measured; `detail` is its evidence in one sentence."""

    id: str
    status: str
    detail: str


class SamplingField(Record, kw_only=True):
    """One sampling setting: what was sent, and what the engine said it used, in words; empty where it said nothing."""

    name: str
    sent: str
    used: str
    equal: bool | None = None
    """None: the engine did not say."""
    where: str = ""
    """The run of the difference; empty for all of them."""


class CheckedModel(Record, kw_only=True):
    """A checkpoint as its headers tell it."""

    path: str
    format: str
    name: str
    family: str = ""
    architecture: str
    quant: str
    quant_bits: float
    size_bytes: int
    parameters: int
    active_parameters: float | None = None
    """That a token is multiplied with; None where the header does not tell the shape."""
    layers: int | None = None
    vocabulary_rows: int | None = None
    tokens: int | None = None
    kv_bytes_per_token: float | None = None
    """At f16."""
    recurrent_bytes: float | None = None
    """Of one copy of a stream's state."""
    context_length: int | None = None
    mtp_layers: int = 0
    head_kind: str = ""
    shape_unknown: str = ""
    read_bytes: int = 0
    """That were read of the files for all this."""


class CheckedPair(Record, kw_only=True):
    """A draft beside the target. verdict: compatible, padding_only, incompatible, unknown; `tokens` is that of the
    vocabularies alone, and `evidence` its grounds."""

    draft: str
    """Path of the draft."""
    verdict: str
    tokens: str
    evidence: str
    findings: tuple[Finding, ...] = ()


class MemoryTerm(Record, kw_only=True):
    """Bytes of one term of `owner`: target, draft or runtime."""

    owner: str
    name: str
    size_bytes: float


class RegionCell(Record, kw_only=True):
    """One setting of the region. verdict: fits, tight, does_not_fit, unknown."""

    streams: int
    draft_tokens: int
    context: int
    total_bytes: float
    verdict: str


class LargestContext(Record, kw_only=True):
    """The most tokens of context a stream that fit at a draft length; None where not even 0 does."""

    streams: int
    draft_tokens: int
    context: int | None = None


class LargestDraftTokens(Record, kw_only=True):
    """The longest draft that fits at a context (0: plain decoding alone); None where not even that does."""

    streams: int
    context: int
    draft_tokens: int | None = None


class LayersOnHost(Record, kw_only=True):
    """Layers of the target that must leave the device, with their cache, for the setting to fit."""

    device_layers: int
    host_layers: int
    device_bytes: float
    host_bytes: float


class MemoryCheck(Record, kw_only=True):
    """The memory of the target with one drafter at the setting asked for, and the region around it.

    drafter: none, model, mtp or the kind of a head. verdict: fits, tight, does_not_fit, unknown.
    """

    drafter: str
    draft: str = ""
    draft_tokens: int
    context: int
    streams: int
    kv_type_k: str = "f16"
    kv_type_v: str = "f16"
    draft_kv_type_k: str = "f16"
    draft_kv_type_v: str = "f16"
    verdict: str
    total_bytes: float | None = None
    spare_bytes: float | None = None
    bytes_per_context_token: float | None = None
    """That one more token of context a stream takes, all streams together."""
    bytes_per_draft_token: float | None = None
    """That one more drafted token takes; None where nothing is drafted."""
    terms: tuple[MemoryTerm, ...] = ()
    region: tuple[RegionCell, ...] = ()
    largest_contexts: tuple[LargestContext, ...] = ()
    largest_draft_tokens: tuple[LargestDraftTokens, ...] = ()
    offload: LayersOnHost | None = None
    """Where it does not fit and moving layers would help."""
    reason: str = ""
    """Why the verdict is unknown."""


class CheckReport(Record, kw_only=True):
    """What headers and settings tell before anything is loaded.

    `pair` is the worst verdict of `pairs`, `memory` that of `memories` (compatible < padding_only < unknown <
    incompatible; fits < tight < unknown < does_not_fit). `region` and the largest contexts are those of the first drafter.
    """

    kind: str = "specgauge-check"
    schema_version: int = 1
    created: str
    tool_version: str
    engine: str
    engine_build: int | None = None
    pair: str
    memory: str
    checklist: tuple[ChecklistItem, ...]
    findings: tuple[Finding, ...]
    target: CheckedModel
    drafts: tuple[CheckedModel, ...] = ()
    pairs: tuple[CheckedPair, ...] = ()
    free_bytes: float | None = None
    free_memory: str
    """Where the figure comes from."""
    memories: tuple[MemoryCheck, ...]
    region: tuple[RegionCell, ...] = ()
    largest_contexts: tuple[LargestContext, ...] = ()

"""The records of a profile: what was asked, what was measured, and what it is valid for.

A profile is evidence: raw seconds and counts, nothing rounded, nothing derived. Every record is a frozen msgspec Struct
that refuses unknown fields. Seconds and bytes are SI numbers with the unit in the name. `files.py` reads and writes them.
"""

import hashlib
import typing

import msgspec

from ..model import recipe


@typing.dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of everything that is stored."""


def _times(seconds: tuple[float, ...], *, name: str = "seconds") -> None:
    """Refuse times that cannot be: msgspec turns the ValueError into a damaged file's one line."""
    if not all(0 < value < float("inf") for value in seconds):
        raise ValueError(f"{name} have to be above 0")


def _same_spans(seconds: tuple[float, ...], other: tuple[float, ...], name: str) -> None:
    """Refuse another clock's reading that is not of the same spans. A processor's clock ticks: it may say 0."""
    if other and (len(other) != len(seconds) or not all(0 <= value < float("inf") for value in other)):
        raise ValueError(f"{name} have to be 0 or more, one for each of seconds")


def _rounds(
    seconds: tuple[float, ...], drafted: tuple[int, ...], accepted: tuple[int, ...], thread: tuple[float, ...]
) -> None:
    """Refuse rounds that cannot be."""
    _times(seconds)
    _same_spans(seconds, thread, "thread_seconds")
    if not len(seconds) == len(drafted) == len(accepted):
        raise ValueError("seconds, drafted and accepted have to be of one length")
    if not all(0 <= a <= d for a, d in zip(accepted, drafted, strict=True)):
        raise ValueError("accepted has to lie between 0 and drafted")


MOST_DRAFTED, MOST_STREAMS, MOST_CONTEXT = 1024, 65_536, 1_000_000_000


def _bounded(*fields: tuple[str, int, int, int]) -> None:
    """Refuse whole numbers outside (name, value, low, high): work and memory grow with them."""
    for name, value, low, high in fields:
        if not low <= value <= high:
            raise ValueError(f"{name} has to lie between {low} and {high}")


class ModelFile(Record, kw_only=True):
    """A file of weights, as its header describes it. `label` is unique within a profile and names the file elsewhere."""

    label: str
    path: str
    sha256: str
    """Of the whole file (of header, size and both ends where the file is larger than 4 GiB: then prefixed "partial:")."""
    size_bytes: int
    name: str
    architecture: str
    quant: str
    parameters: int
    head_bytes: int = 0
    """Bytes of the output head (the token embedding where the two are tied)."""
    unread_bytes: int = 0
    """Of size_bytes, what no pass reads whole: a token embedding beside a head of its own. 0 where it is not known."""
    tokenizer_sha256: str
    recurrent: bool = False
    """Has recurrent state, which an engine may be unable to roll back."""
    mtp_layers: int = 0
    random: bool = False
    """Weights drawn at random in the shapes of the real ones: good for times, and for no acceptance."""


class Sampling(Record, kw_only=True):
    """Sent explicitly to target and draft, and read back. temperature 0 is greedy."""

    temperature: float = 0.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    seed: int = 1
    draft_sampling: str = "greedy"
    """greedy: the draft proposes its top candidate, the target samples and compares; probabilistic: ratio test."""


class Setting(Record, kw_only=True):
    """One configuration of the engine. Drafter kinds: none, model, ngram, mtp, eagle, dflash."""

    target: str
    """Label of the target's ModelFile."""
    target_quant: str
    drafter: str = "none"
    draft: str = ""
    """Label of the draft's ModelFile; for n-gram drafters the engine's name of the method; empty for none."""
    draft_quant: str = ""
    draft_tokens: int = 0
    p_min: float = 0.0
    ngram_size: int = 0
    """Tokens that must match before an n-gram drafter proposes; 0 for the other kinds."""
    kv_type_k: str = "f16"
    kv_type_v: str = "f16"
    context: int = 2048
    """Tokens of context reserved per stream."""
    streams: int = 1

    def __post_init__(self) -> None:
        _bounded(("draft_tokens", self.draft_tokens, 0, MOST_DRAFTED), ("streams", self.streams, 1, MOST_STREAMS))
        _bounded(("context", self.context, 0, MOST_CONTEXT))

    @property
    def plain(self) -> "Setting":
        """Plain decoding of the same target, with the same context and streams."""
        return Setting(
            target=self.target,
            target_quant=self.target_quant,
            kv_type_k=self.kv_type_k,
            kv_type_v=self.kv_type_v,
            context=self.context,
            streams=self.streams,
        )


class Prompt(Record, kw_only=True):
    """One prompt of a workload. The text itself stays out of the profile; `text_sha256` tells equal prompts."""

    id: str
    workload: str
    workload_class: str
    """code, chat, prose, reasoning, other-language, copying."""
    text_sha256: str
    new_tokens: int
    """Tokens to generate, end-of-text ignored, so that every arm decodes as many."""


class Message(Record, kw_only=True):
    """One turn of a conversation."""

    role: str
    """system, developer, user, assistant, tool."""
    content: str


class StoredText(Record, kw_only=True):
    """The text of a prompt, plain or as messages, in a profile whose owner asked for it to be kept there."""

    text_sha256: str
    text: str = ""
    messages: tuple[Message, ...] = ()


class Key(Record, kw_only=True):
    """What a number is valid for. Unknown fields are empty or None."""

    gpu: str = ""
    gpu_uuid: str = ""
    power_limit_watts: float | None = None
    driver: str = ""
    cpu: str = ""
    engine: str
    build: str = ""
    backend: str = ""
    flags: tuple[str, ...] = ()
    """The user's own engine flags, as given."""
    threads: int = 0


class DeviceState(Record, kw_only=True):
    """The device beside a block of measurements; None where it does not say."""

    clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    power_limit_watts: float | None = None
    """The limit in force."""
    pcie_rx_bytes_per_second: float | None = None
    """Over the bus into the device, in the driver's last sample of about 20 ms."""
    pcie_tx_bytes_per_second: float | None = None
    """Over the bus out of the device."""
    utilization: float | None = None
    """Share of the driver's last sample in which the device was busy, 0 to 1."""
    event_reasons: tuple[str, ...] = ()
    load_average: float | None = None


class BandwidthSample(Record, kw_only=True):
    """Memory bandwidth of the device. Bytes read and written both count, as in STREAM."""

    operation: str
    """read, copy, or spec (bus width times memory clock, from the driver)."""
    device: str
    threads: int = 0
    buffer_bytes: int = 0
    bytes_per_second: tuple[float, ...]
    provenance: str
    """measured or spec."""


class StepSample(Record, kw_only=True):
    """Passes of one model over `width` tokens behind `context` cached ones."""

    model: str
    role: str
    """target or draft."""
    kind: str
    """decode (generation, width 1), batch (width tokens of a prompt in one pass: one row of output), verify (width tokens
    in one pass, a row of output for each, as a verification needs them), prefill."""
    width: int
    context: int
    streams: int = 1
    seconds: tuple[float, ...]
    thread_seconds: tuple[float, ...] = ()
    """Processor time of the engine's process over the same spans, where the system tells it."""
    device_seconds: tuple[float, ...] = ()
    """Time on the device over the same spans (events around the work), where it tells: the rest of `seconds` is overhead."""
    sentinel_seconds: float | None = None
    """A sentinel step (plain decode of the sentinel model) taken right beside this sample."""
    sentinel_thread_seconds: float | None = None
    at_seconds: float = 0.0
    """Since the profile began."""
    cold: bool = False

    def __post_init__(self) -> None:
        _times(self.seconds)
        _same_spans(self.seconds, self.thread_seconds, "thread_seconds")
        _same_spans(self.seconds, self.device_seconds, "device_seconds")
        if not self.seconds or self.width < 1 or self.context < 0:
            raise ValueError("a step has seconds, a width of 1 or more and a context of 0 or more")


class RoundSample(Record, kw_only=True):
    """Speculative rounds at one draft length: parallel tuples, one entry a round."""

    setting: Setting
    forced_rates: tuple[float, ...] | None = None
    """Cumulative acceptance by position that the engine was told to force; None for real acceptance."""
    context: int
    """Cached tokens at the first round."""
    seconds: tuple[float, ...]
    drafted: tuple[int, ...]
    accepted: tuple[int, ...]
    thread_seconds: tuple[float, ...] = ()
    """Processor time of the engine's process by round, where the system tells it."""
    sentinel_seconds: float | None = None
    sentinel_thread_seconds: float | None = None
    at_seconds: float = 0.0
    cold: bool = False

    def __post_init__(self) -> None:
        _rounds(self.seconds, self.drafted, self.accepted, self.thread_seconds)


class MatchTrace(Record, kw_only=True):
    """Where a drafter agrees with the target's own reply to one prompt, at every position.

    Position t (1-based) is the state after t reply tokens. For a draft model `match[t-1]` tells whether the draft, having
    seen the reply up to t, proposes token t+1: 1 yes, 0 no, -1 not observed; `offer` and `run` are empty. For an n-gram
    drafter `offer[t-1]` is how many tokens it could propose there at most (0: no match) and `run[t-1]` how many of those
    are right; `match` is empty. `weight[t-1]` stands instead of `match` where text is sampled and both models were read
    along it: the chance that token t+1, which the target drew, came from an accepted draft. With p and q the probabilities
    of the target and of the draft: min(1, q(y)/p(y)) for the ratio test; for sample-and-compare 1 where y is the token that
    the draft proposes, else 0 (q(y) where the draft samples). Independent by position given the text.
    """

    target: str
    drafter: str
    draft: str
    ngram_size: int = 0
    prompt: Prompt
    prompt_tokens: int
    reply_tokens: int
    match: tuple[int, ...] = ()
    weight: tuple[float, ...] = ()
    offer: tuple[int, ...] = ()
    run: tuple[int, ...] = ()
    reply_sha256: str = ""
    """Of the reply's token ids: traces of several sampled replies to one prompt are told apart by it."""
    source: str
    """rounds (rebuilt from a real speculative run), replay (of an n-gram rule over the plain reply), teacher-forced."""

    def __post_init__(self) -> None:
        if not set(self.match) <= {-1, 0, 1} or len(self.offer) != len(self.run):
            raise ValueError("match holds -1, 0 and 1; offer and run are of one length")
        if not all(0 <= weight <= 1 for weight in self.weight):
            raise ValueError("weight lies between 0 and 1")
        if self.weight and (self.match or self.offer):
            raise ValueError("a trace has match or weight or offer and run, not two of them")
        if any(not 0 <= run <= offer for run, offer in zip(self.run, self.offer, strict=True)):
            raise ValueError("run has to lie between 0 and offer")


class PromptTrace(Record, kw_only=True):
    """The rounds of one reply, parallel tuples; the first token, which prefill yields, is in no round."""

    prompt: Prompt
    prompt_tokens: int
    reply_tokens: int
    seconds: tuple[float, ...]
    drafted: tuple[int, ...]
    accepted: tuple[int, ...]
    thread_seconds: tuple[float, ...] = ()
    at_seconds: float | None = None

    def __post_init__(self) -> None:
        _rounds(self.seconds, self.drafted, self.accepted, self.thread_seconds)


class Trace(Record, kw_only=True):
    """Real rounds of one setting, by prompt."""

    setting: Setting
    sampling: Sampling
    prompts: tuple[PromptTrace, ...]


class PromptRun(Record, kw_only=True):
    """One reply, end to end. decode_seconds covers the reply_tokens - 1 tokens after the first."""

    prompt: Prompt
    repeat: int
    prompt_tokens: int
    reply_tokens: int
    decode_seconds: float
    decode_thread_seconds: float | None = None
    prefill_seconds: float
    wall_seconds: float
    drafted: int = 0
    accepted: int = 0
    reply_sha256: str = ""
    """Of the reply's token ids: equal replies have equal hashes."""
    at_seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.reply_tokens > 1:
            _times((self.decode_seconds,), name="decode_seconds")
        if self.decode_thread_seconds is not None:
            _same_spans((self.decode_seconds,), (self.decode_thread_seconds,), "decode_thread_seconds")
        if self.prompt_tokens < 0 or self.reply_tokens < 0 or not 0 <= self.accepted <= self.drafted:
            raise ValueError("counts have to be 0 or more, accepted at most drafted")


class Run(Record, kw_only=True):
    """One setting measured end to end, `repeat` by `repeat`, interleaved with the other arms of its block."""

    setting: Setting
    sampling: Sampling
    replies: tuple[PromptRun, ...]
    effective: dict[str, str] = {}
    """Settings read back from the engine, in its own names."""


class ReportedRow(Record, kw_only=True):
    """A run that specgauge did not make, as its owner reported it; None where nothing was said.

    `setting.draft_tokens` 0 is plain decoding. tokens_per_round holds the bonus token.
    """

    setting: Setting
    workload: str
    baseline_tokens_per_second: float | None = None
    """Plain decoding of the same target in the same session."""
    tokens_per_second: float | None = None
    tokens_per_round: float | None = None
    temperature: float | None = None
    repeats: int | None = None
    rounds: int | None = None
    tokens_per_second_sd: float | None = None
    """Between repeats."""
    source: str = ""
    """Name of the file, without its folder."""

    def __post_init__(self) -> None:
        known = (self.baseline_tokens_per_second, self.tokens_per_second)
        _times(tuple(value for value in known if value is not None), name="tokens per second")
        if (self.tokens_per_second_sd or 0) < 0:
            raise ValueError("a standard deviation is not negative")
        if self.tokens_per_round is not None and not 1 <= self.tokens_per_round <= self.setting.draft_tokens + 1:
            raise ValueError("tokens per round lie between 1 and draft tokens + 1")


class ReportedAcceptance(Record, kw_only=True):
    """Counters of an engine over some rounds of one setting: drafts begun, tokens drafted and accepted."""

    setting: Setting
    workload: str
    drafts: int
    drafted: int
    accepted: int
    accepted_by_position: tuple[int, ...] = ()
    """Drafts of which the first, second, ... token was accepted; empty where the engine does not say."""
    source: str = ""

    def __post_init__(self) -> None:
        falling = all(a >= b for a, b in zip((self.drafts, *self.accepted_by_position), self.accepted_by_position))
        if not (0 < self.drafts and 0 <= self.accepted <= self.drafted) or not falling:
            raise ValueError("accepted is at most drafted, and falls by position from the number of drafts")


class Request(Record, kw_only=True):
    """One measurement to take. `action`: bandwidth, steps, verify, rounds, trace, matches, runs; import: taken elsewhere."""

    action: str
    settings: tuple[Setting, ...] = ()
    model: str = ""
    role: str = ""
    widths: tuple[int, ...] = ()
    contexts: tuple[int, ...] = ()
    workloads: tuple[str, ...] = ()
    repeats: int = 5
    first_repeat: int = 0
    """Where a block of runs goes on counting."""
    forced_rates: tuple[float, ...] | None = None
    expected_seconds: float = 0.0

    def digest(self) -> str:
        """Hash of what is asked (the expected time left out): equal requests are the same measurement."""
        asked = msgspec.structs.replace(self, expected_seconds=0.0)
        return hashlib.sha256(msgspec.json.encode(asked)).hexdigest()[:16]


class Measurement(Record, kw_only=True):
    """A request and what came of it. `unsupported` says why the engine could not."""

    request: Request
    digest: str
    started_at_seconds: float
    wall_seconds: float
    steps: tuple[StepSample, ...] = ()
    rounds: tuple[RoundSample, ...] = ()
    traces: tuple[Trace, ...] = ()
    matches: tuple[MatchTrace, ...] = ()
    runs: tuple[Run, ...] = ()
    bandwidth: tuple[BandwidthSample, ...] = ()
    reported: tuple[ReportedRow, ...] = ()
    reported_acceptance: tuple[ReportedAcceptance, ...] = ()
    state_before: DeviceState | None = None
    state_after: DeviceState | None = None
    states_during: tuple[DeviceState, ...] = ()
    """Of a device that was watched while it worked; a few, evenly over the time."""
    rejected: tuple[str, ...] = ()
    """Samples thrown away, each with its reason."""
    unsupported: str = ""


class EngineInfo(Record, kw_only=True):
    """What an engine is and can do."""

    name: str
    build: str
    backend: str
    command: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    """Of: forced-acceptance, ngram-simple, ngram-mod, probabilistic-draft, rollback, and the heads that the engine drafts
    with: draft-mtp, draft-eagle3, draft-dflash. teacher-forced: where a draft model agrees is told by one pass of it along
    the target's reply. all-rows: a batch pass has an output row for each token, as a verification."""
    spellings: dict[str, str] = {}
    """This build's spelling of each option, by our name."""
    recipes: dict[str, tuple[str, ...]] = {}
    """Terms of a round by drafter kind (model/recipe.py), where they are not those of llama.cpp."""

    def __post_init__(self) -> None:
        for drafter, terms in self.recipes.items():
            if flaw := recipe.flaw(drafter, terms):
                raise ValueError(flaw)

    def recipe(self, drafter: str) -> tuple[str, ...]:
        """Terms of a round with this kind of drafter; a whole round for a kind that is not known."""
        return self.recipes.get(drafter) or recipe.RECIPES.get(drafter, recipe.COMPOSITE)


class Candidate(Record, kw_only=True):
    """A family of settings to search: one target with one drafter, and the draft lengths that it may use."""

    target: str
    target_quant: str
    drafter: str
    draft: str = ""
    draft_quant: str = ""
    ngram_size: int = 0
    p_min: float = 0.0
    draft_tokens: tuple[int, ...]
    kv_type_k: str = "f16"
    kv_type_v: str = "f16"
    context: int = 2048
    streams: int = 1

    def setting(self, draft_tokens: int) -> Setting:
        """The member with `draft_tokens`; 0 is plain decoding of the target."""
        setting = Setting(
            target=self.target,
            target_quant=self.target_quant,
            drafter=self.drafter,
            draft=self.draft,
            draft_quant=self.draft_quant,
            draft_tokens=draft_tokens,
            p_min=self.p_min,
            ngram_size=self.ngram_size,
            kv_type_k=self.kv_type_k,
            kv_type_v=self.kv_type_v,
            context=self.context,
            streams=self.streams,
        )
        return setting if draft_tokens else setting.plain


class Profile(Record, kw_only=True):
    """Immutable evidence of one machine, engine and set of models."""

    kind: str = "specgauge-profile"
    schema_version: int = 1
    created: str
    tool_version: str
    key: Key
    engine: EngineInfo
    models: tuple[ModelFile, ...]
    prompts: tuple[Prompt, ...]
    sampling: Sampling
    candidates: tuple[Candidate, ...]
    sentinel_model: str = ""
    measurements: tuple[Measurement, ...] = ()
    dropped: dict[str, str] = {}
    """Candidates that were not measured further, "target x drafter" -> the reason with its numbers."""
    unmeasured: dict[str, str] = {}
    """Candidates that could still win when the time was used up, -> what would settle it. Empty where no budget was set."""
    budget_seconds: float = 0.0
    """What profiling was allowed to take; 0: as long as it needs."""
    warnings: tuple[str, ...] = ()
    profile_seconds: float = 0.0
    """Wall time of profiling, server starts included, making quantizations not."""
    complete: bool = False
    workload_shares: dict[str, float] = {}
    """Of the tokens that the user's prompts ask for, what each workload has: the mix that is advised for. Empty: equal shares."""
    prompt_texts: tuple[StoredText, ...] = ()
    """Of the user's own prompts, kept only where that was asked for."""
    redacted: bool = False
    """Exported to be shared: names, paths and prompts are left out, so that nothing of it can be run."""

    def __post_init__(self) -> None:
        shares = self.workload_shares
        if shares and not (all(0 < share <= 1 for share in shares.values()) and abs(sum(shares.values()) - 1) < 1e-6):
            raise ValueError("workload_shares lie between 0 and 1 and add up to 1")
        if shares and not {prompt.workload for prompt in self.prompts} <= shares.keys():
            raise ValueError("workload_shares name every workload of the prompts")

"""The records derived from a profile: calibration, recommendation, validation.

Required fields are those of docs/design.md, section 7; a reader may rely on them. All ratios are fractions.
"""

from ..profiler.records import Record, Setting
from .map_records import MemoryMap, SpeedMap
from .what_if_records import WhatIfRecord


class Interval(Record, kw_only=True):
    """A value with its bounds at the level of the document that holds it (0.95 unless said otherwise)."""

    value: float
    low: float
    high: float


class CostPoint(Record, kw_only=True):
    """A calibrated pass: seconds at the profile's reference speed (drift divided out)."""

    model: str
    role: str
    kind: str
    width: int
    context: int
    seconds: Interval
    samples: int


class RoundTerm(Record, kw_only=True):
    """One bar of a round: draft, verification, draft re-decode, overhead, in_situ, unexplained."""

    name: str
    seconds: float


class RoundBreakdown(Record, kw_only=True):
    """Where a round of `draft_tokens` goes, at `context`. unexplained = measured / modelled - 1 where measured."""

    target: str
    drafter: str
    draft: str
    draft_tokens: int
    context: int
    source: str
    """measured, interpolated or prior: where the round time came from."""
    terms: tuple[RoundTerm, ...]
    modelled_seconds: float
    measured_seconds: float | None = None
    unexplained: float | None = None
    used_for_fit: bool = False


class Overhead(Record, kw_only=True):
    """constant + per_token x drafted, fitted per target and drafter on rounds at no more than three lengths."""

    target: str
    drafter: str
    draft: str
    constant_seconds: Interval
    per_token_seconds: Interval
    fitted_lengths: tuple[int, ...]


class Acceptance(Record, kw_only=True):
    """What was found about acceptance of one target, drafter and workload."""

    target: str
    drafter: str
    draft: str
    workload: str
    survival: tuple[float, ...]
    """S_1, S_2, ...: P(first j drafted tokens are all accepted), over rounds in which something was drafted."""
    survival_low: tuple[float, ...] = ()
    survival_high: tuple[float, ...] = ()
    """Bounds at the document's level, for other prompts of the workload too where prompts are resampled."""
    offer_rate: float
    prompts: int
    positions: int
    source: str


class AcceptanceCheck(Record, kw_only=True):
    """A replayed acceptance beside real rounds: tokens per round, the bonus token included, over the same prompts."""

    target: str
    drafter: str
    draft: str
    workload: str
    draft_tokens: int
    replayed_tokens_per_round: float
    measured_tokens_per_round: float
    rounds: int


class QuantEfficiency(Record, kw_only=True):
    """Share of the memory bandwidth that plain steps of a target reach: its bytes / (seconds of a step x bandwidth).

    It differs by quantization, so one quantization's times are never scaled to another by bytes alone. Above 1 weights
    stay in a cache, or the bandwidth reads low."""

    target: str
    quant: str
    share: Interval


class Calibration(Record, kw_only=True):
    """A calibrated model, derived from one profile; the same profile and seed give the same calibration."""

    kind: str = "specgauge-calibration"
    schema_version: int = 1
    created: str
    tool_version: str
    profile_sha256: str
    level: float = 0.95
    seed: int = 1
    replicates: int
    clock: str = "wall"
    """By which every second is told: wall, thread_cpu (processor time of the engine's thread)."""
    reference_sentinel_seconds: float | None = None
    drift_low: float | None = None
    """Slowest and fastest sentinel of the profile, over the reference."""
    drift_high: float | None = None
    bandwidth_bytes_per_second: Interval | None = None
    bandwidth_operation: str = ""
    bandwidth_provenance: str = ""
    efficiencies: tuple[QuantEfficiency, ...] = ()
    costs: tuple[CostPoint, ...]
    overheads: tuple[Overhead, ...]
    acceptance: tuple[Acceptance, ...]
    rounds: tuple[RoundBreakdown, ...]
    acceptance_checks: tuple[AcceptanceCheck, ...] = ()
    notes: tuple[str, ...] = ()


class TargetRef(Record, kw_only=True):
    """The target of a chosen setting."""

    path: str
    quant: str
    sha256: str


class Chosen(Record, kw_only=True):
    """A chosen setting; no speculation: drafter none, draft_tokens 0."""

    target: TargetRef
    drafter: str
    draft: str
    draft_quant: str
    draft_tokens: int
    p_min: float = 0.0
    ngram_size: int = 0
    kv_type_k: str = "f16"
    kv_type_v: str = "f16"
    context: int = 0
    streams: int = 1


class SettingForecast(Record, kw_only=True):
    """A forecast of one setting on one workload. Speeds in tokens/s; the level is the document's."""

    setting: Setting
    workload: str
    tokens_per_second: Interval
    speed_up: float
    """Over plain decoding of the same target, forecast."""
    baseline_tokens_per_second: float
    """Plain decoding of the same target, forecast."""
    tokens_per_round: float
    accepted_per_round: float
    drafted_per_round: float
    round_seconds: float
    ceiling_tokens_per_second: float
    """At perfect acceptance."""
    break_even_accepted: float
    """Accepted tokens a round at which the setting equals plain decoding: round cost / plain step - 1."""
    round_time_source: str
    in_profile: bool
    provenance: str
    """measured, calibrated or prior."""
    probability_best: float = 0.0


class WorkloadAdvice(Record, kw_only=True):
    """The verdict for one workload. verdict: speculate, tie, do-not-speculate."""

    workload: str
    verdict: str
    chosen: Chosen
    forecast_tokens_per_second: Interval
    baseline_tokens_per_second: float
    """Plain decoding of the chosen target."""
    reasons: tuple[str, ...]


class EngineCommand(Record, kw_only=True):
    """What starts one engine with the setting recommended for a workload, or for the mix (an empty name). Notes are sentences."""

    workload: str = ""
    engine: str
    text: str
    measured: bool
    """Whether the forecast was made for this engine."""
    notes: tuple[str, ...] = ()


class Recommendation(Record, kw_only=True):
    """What to set, for each workload and for their mix (the fields at the top)."""

    kind: str = "specgauge-recommendation"
    schema_version: int = 1
    created: str
    tool_version: str
    profile_sha256: str
    calibration_sha256: str
    level: float = 0.95
    verdict: str
    chosen: Chosen
    forecast_tokens_per_second: Interval
    baseline_tokens_per_second: float
    reasons: tuple[str, ...]
    workloads: tuple[WorkloadAdvice, ...]
    candidates: tuple[SettingForecast, ...]
    ceiling_tokens_per_second: float | None = None
    """What memory bandwidth allows plain decoding of the chosen target."""
    bandwidth_share: float | None = None
    """Achieved bytes per second of plain decoding over the measured bandwidth."""
    dropped: dict[str, str] = {}
    unsettled: tuple[str, ...] = ()
    command: str
    commands: tuple[EngineCommand, ...] = ()
    """For every engine that can be told: of the mix, then of each workload whose choice is another."""
    what_if: tuple[WhatIfRecord, ...] = ()
    """What a page needs to recompute speeds at another acceptance, draft length or context."""
    speed_maps: tuple[SpeedMap, ...] = ()
    memory_maps: tuple[MemoryMap, ...] = ()
    workload_shares: dict[str, float] = {}
    """Of each workload in the mix, by the tokens that the user's prompts ask for; empty: equal ones."""


class ReplySpread(Record, kw_only=True):
    """Forecast speeds of single replies in tokens/s, as a clock gives them: 5 % of them, the median, 95 %. Of the profile's own
    prompts, with the machine as restless as it was while profiling."""

    low: float
    median: float
    high: float


class ValidationRow(Record, kw_only=True):
    """One setting on one workload: forecast beside measurement. error = forecast / measured - 1."""

    workload: str
    config: Setting
    in_profile: bool
    round_time_source: str
    forecast: float
    low: float
    high: float
    measured: float
    """Median over repeats of the raw speed divided by `drift` of its own repeat, in tokens/s."""
    measured_raw: float
    """Median over repeats as the clock gave it."""
    measured_low: float
    measured_high: float
    """Interval of the median (order statistics)."""
    error: float
    speed_up: float
    """Measured, median of the paired ratio to the plain baseline of the same repeat."""
    speed_up_low: float
    speed_up_high: float
    repeats: int
    speeds: tuple[float, ...]
    """Raw tokens/s by repeat."""
    reply_speeds: tuple[float, ...] = ()
    """Raw tokens/s of each reply by itself, repeat by repeat: drift is not divided out. Empty in older files."""
    reply_spread: ReplySpread | None = None
    """What was forecast of them; None where acceptance is not known reply by reply."""
    end_to_end_tokens_per_second: float
    accepted: int
    drafted: int
    tokens_per_round_forecast: float | None = None
    tokens_per_round_measured: float | None = None
    effective: dict[str, str] = {}
    """Settings read back from the engine, in its own names."""
    chosen: bool = False


class DrafterErrors(Record, kw_only=True):
    """Errors of one drafter's rows with in_profile false."""

    n_rows: int
    mean_abs_error: float
    worst_abs_error: float
    coverage: float


class Validation(Record, kw_only=True):
    """Forecasts of a calibration, checked by runs that were interleaved with a plain baseline."""

    kind: str = "specgauge-validation"
    schema_version: int = 1
    created: str
    tool_version: str
    calibration_sha256: str
    rows: tuple[ValidationRow, ...]
    n_rows: int
    """Rows with in_profile false: mean, worst and coverage are over these."""
    level: float = 0.95
    clock: str = "wall"
    """What the headline numbers are timed by: wall or thread_cpu (processor time of the engine's thread)."""
    other_clock: "OtherClock | None" = None
    mean_abs_error: float | None
    worst_abs_error: float | None
    near_best_mean_abs_error: float | None
    """Over all rows whose measured speed is within 15 % of the best of their workload."""
    coverage: float | None
    interval_score: float | None
    """Winkler score of the rows, relative to the measured speed: interval width plus 2/(1-level) x any miss."""
    by_drafter: dict[str, DrafterErrors]
    regret: float
    """1 - measured(chosen) / best measured, baseline included, worst workload."""
    regret_low: float
    """Lower bound of the paired interval of the same; not above 0 where the choice cannot be told from the best."""
    drift: dict[str, float] = {}
    """By workload: median plain speed of this session over that of the profile; 1 is no drift."""
    rounds: tuple["RoundCheck", ...] = ()
    unexplained_median: float | None = None
    likeliest_missing_term: str = ""
    """acceptance, verification, fixed overhead, overhead per token, context slope, drift; none where the errors are noise."""
    missing_term_share: float | None = None
    """Of the squared log errors, what that term alone explains."""
    missing_term_text: str = ""
    """The same in a sentence, with what to measure."""
    profile_seconds: float
    sweep_seconds: float
    sweep_measured: bool
    validation_seconds: float = 0.0
    warnings: tuple[str, ...] = ()


class OtherClock(Record, kw_only=True):
    """The same rows forecast and measured by another clock, where all of the evidence has it."""

    clock: str
    mean_abs_error: float | None
    worst_abs_error: float | None
    coverage: float | None
    forecast: tuple[float, ...]
    """Tokens/s by row, in the order of the rows; low and high are its bounds."""
    low: tuple[float, ...]
    high: tuple[float, ...]
    measured: tuple[float, ...]
    speed_up: tuple[float, ...]
    """Measured, paired, by row."""


class RoundCheck(Record, kw_only=True):
    """Median round time at one length, not used for any fit, against the model. unexplained = measured / modelled - 1."""

    target: str
    drafter: str
    draft: str
    draft_tokens: int
    context: int
    rounds: int
    measured_seconds: float
    modelled_seconds: float
    unexplained: float


class KeyField(Record, kw_only=True):
    """One field of what numbers are valid for. state: equal, differs, unknown."""

    name: str
    a: str
    b: str
    state: str
    weight: str
    """near (may differ: numbers are a prior for each other), decisive, or informational."""


class ComparedNumber(Record, kw_only=True):
    """One number of two documents. `ratio` is B/A with its own interval; `differs` counts how many numbers were looked at."""

    group: str
    name: str
    unit: str
    whole: bool
    """Of the whole machine, or of a group of numbers; else a single number."""
    a: float
    b: float
    ratio: Interval
    at_equal_speed: Interval | None = None
    """The same with the factor of the whole machine taken out; that is what is tested where it is there."""
    differs: bool
    p_value: float
    """Holm-adjusted within its family."""
    false_alarms: float
    """Chance, at most, of any false difference in the family: the families of a comparison add up to 1 - level."""
    detectable: float
    """Difference (fraction) that would have been found in four of five such comparisons."""
    error_a: float | None = None
    error_b: float | None = None
    """Forecast / measured - 1 of a row of a validation."""


class Comparison(Record, kw_only=True):
    """Two profiles or two validations held against each other."""

    kind: str = "specgauge-comparison"
    schema_version: int = 1
    of: str
    """profile or validation."""
    a: str
    b: str
    level: float = 0.95
    key: tuple[KeyField, ...] = ()
    findings: tuple[str, ...]
    """What differs, the cause before what follows from it; or that nothing does, and what would have been seen."""
    numbers: tuple[ComparedNumber, ...]
    notes: tuple[str, ...] = ()


class Cause(Record, kw_only=True):
    """One reason why a setting is not faster, if it alone were mended and all else stayed.

    seconds_per_round = seconds of the round - tokens per round / tokens_per_second: what the mended setting would take for
    the same tokens less. None where the figures do not tell.
    """

    id: str
    account: str
    """What the seconds are taken from: draft, verification, overhead, rollback, tokens (acceptance), plain (the pass that plain
    decoding makes too), round (all of it). The seconds of causes of one account never add up to more than there are."""
    seconds_per_round: float | None
    tokens_per_second: float | None
    """With this mended."""
    gives_back_tokens_per_second: float | None
    derived: str
    """How that speed was derived."""
    evidence: str
    change: str
    """The setting to change."""
    provenance: str
    """measured, calibrated or prior."""


class Diagnosis(Record, kw_only=True):
    """Why a setting is as fast as it is: causes, the dearest first. Never empty: where nothing is wrong, no-cause."""

    kind: str = "specgauge-diagnosis"
    schema_version: int = 1
    created: str = ""
    tool_version: str = ""
    setting: Setting
    workload: str = ""
    verdict: str
    """faster, slower, even (within the noise of the two speeds), unknown (no paired baseline)."""
    per: str = "round"
    """round, or token where tokens per round are not known: seconds are then those of one token, and at least that much of a
    round."""
    tokens_per_second: float
    baseline_tokens_per_second: float | None
    speed_up: float | None
    tokens_per_round: float | None
    round_seconds: float
    plain_step_seconds: float | None
    causes: tuple[Cause, ...]
    gate: tuple[str, ...] = ()
    """Break-even, the first token against its cost, and the rules of thumb with whether they agree."""
    notes: tuple[str, ...] = ()

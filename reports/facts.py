"""Where the numbers come from: machine, engine, evidence, clocks, versions, and what was not used."""

from collections.abc import Iterable
from dataclasses import dataclass

from ..calibrate.checks.records import ChecklistItem
from ..calibrate.records import Calibration, Diagnosis, Recommendation, Validation
from ..profiler.records import DeviceState, ModelFile, Profile
from .diagnosis import cause_cells
from .numbers import duration, gigabytes_per_second, mebibytes, percent, plain, short
from .panels import Table
from .verdict import clock_words

SHOWN_REJECTED = 20
STATES = (
    ("clock_mhz", " MHz", 1.0),
    ("memory_clock_mhz", " MHz", 1.0),
    ("power_watts", " W", 1.0),
    ("temperature_celsius", " °C", 1.0),
    ("memory_used_bytes", " GiB", 2.0**-30),
    ("memory_free_bytes", " GiB", 2.0**-30),
    ("utilization", "", 1.0),
    ("load_average", "", 1.0),
)
"""Field of a device state, its unit, and what it is multiplied by."""


@dataclass(frozen=True)
class Fact:
    """A line of provenance."""

    name: str
    text: str


def facts(
    profile: Profile, calibration: Calibration, recommendation: Recommendation, validation: Validation | None
) -> Iterable[Fact]:
    """Where every number comes from."""
    key, engine, sampling = profile.key, profile.engine, profile.sampling
    yield Fact("machine", ", ".join(text for text in (key.gpu or "no GPU", key.cpu) if text))
    yield Fact("driver, power limit", f"{key.driver or 'unknown'}, {_watts(key.power_limit_watts)}")
    yield Fact("engine", f"{engine.name}, build {engine.build or 'unknown'}, {engine.backend or 'backend unknown'}")
    yield Fact("threads, flags", f"{key.threads or 'unknown'}; {' '.join(key.flags) or 'no flags of the user'}")
    yield Fact(
        "sampling",
        f"temperature {sampling.temperature:g}, top_k {sampling.top_k}, top_p {sampling.top_p:g}, min_p "
        f"{sampling.min_p:g}, repeat penalty {sampling.repeat_penalty:g}, seed {sampling.seed}, "
        f"draft {sampling.draft_sampling}",
    )
    yield Fact("workloads", _workloads_text(profile))
    yield Fact("memory bandwidth", _bandwidth(calibration))
    yield Fact("device while measuring", device_text(profile))
    yield Fact("drift", _drift(calibration, validation))
    yield Fact("samples", _samples(profile))
    yield Fact("time", _times(profile, validation))
    yield Fact("clock", _clocks(calibration, validation))
    if calibration.acceptance_checks:
        yield Fact("acceptance by replay", _replayed(calibration))
    yield Fact("profile SHA-256", calibration.profile_sha256)
    yield Fact("calibration SHA-256", recommendation.calibration_sha256)
    yield Fact("calibration", f"seed {calibration.seed}, {calibration.replicates} replicates, {calibration.created}")
    yield Fact("made again by", _again(calibration, validation))
    yield Fact(
        "versions", f"specgauge {recommendation.tool_version}; profile by {profile.tool_version}, {profile.created}"
    )


def _watts(limit: float | None) -> str:
    return "unknown" if limit is None else f"{limit:.0f} W"


def _workloads_text(profile: Profile) -> str:
    """Prompts and new tokens of each workload."""
    counts: dict[str, list[int]] = {}
    for prompt in profile.prompts:
        counts.setdefault(prompt.workload, []).append(prompt.new_tokens)
    shares = {name: f", {percent(share)} of the mix" for name, share in profile.workload_shares.items()}
    return "; ".join(
        f"{plain(name)}: {len(tokens)} prompts, up to {max(tokens)} new tokens{shares.get(name, '')}"
        for name, tokens in counts.items()
    )


def _bandwidth(calibration: Calibration) -> str:
    found = calibration.bandwidth_bytes_per_second
    if found is None:
        return "not measured"
    low, high = short(found.low / 1e9), short(found.high / 1e9)
    source = f"{calibration.bandwidth_operation}, {calibration.bandwidth_provenance}"
    return f"{gigabytes_per_second(found.value)} ({low} to {high}), {source}"


def device_text(profile: Profile) -> str:
    """Range of what the device showed before, during and after measurements, and why its clocks were held down."""
    states = [
        state
        for measurement in profile.measurements
        for state in (measurement.state_before, *measurement.states_during, measurement.state_after)
        if state is not None
    ]
    parts = [text for name, unit, scale in STATES if (text := _range(states, name, unit, scale))]
    reasons = sorted({reason for state in states for reason in state.event_reasons})
    if reasons:
        held = sum(bool(state.event_reasons) for state in states)
        parts.append(f"clocks held down in {held} of {len(states)} readings ({', '.join(plain(r) for r in reasons)})")
    return "; ".join(parts) or "no reading of clocks, power, temperature or load was taken"


def _range(states: Iterable[DeviceState], name: str, unit: str, scale: float) -> str:
    """Lowest and highest reading of one field; empty where it was never read."""
    values = [value * scale for state in states if (value := getattr(state, name)) is not None]
    words = name.rsplit("_", 1)[0].replace("_", " ") if unit else name.replace("_", " ")
    return f"{words} {short(min(values))} to {short(max(values))}{unit}" if values else ""


def _again(calibration: Calibration, validation: Validation | None) -> str:
    """The commands that make this page from its files."""
    check = ", specgauge validate (runs the engine)" if validation else ""
    return (
        f"in this folder, from profile.json: specgauge calibrate --seed {calibration.seed}, specgauge recommend{check}, "
        "specgauge report; each takes the file of the step before"
    )


def _drift(calibration: Calibration, validation: Validation | None) -> str:
    """Sentinel steps of the profile over their median; plain speed of the validation over the profile's."""
    parts = []
    if calibration.drift_low is not None and calibration.drift_high is not None:
        low, high = calibration.drift_low, calibration.drift_high
        parts.append(f"sentinel steps took {low:.2f} to {high:.2f} of their median while profiling, divided out")
    for workload, ratio in (validation.drift if validation else {}).items():
        parts.append(f"plain speed on {plain(workload)} was {ratio:.2f} of the profile's while validating, divided out")
    return "; ".join(parts) or "no sentinel was taken"


def _samples(profile: Profile) -> str:
    taken = profile.measurements
    steps = sum(len(measurement.steps) for measurement in taken)
    rounds = sum(len(sample.seconds) for measurement in taken for sample in measurement.rounds)
    traced = sum(len(p.seconds) for m in taken for trace in m.traces for p in trace.prompts)
    matches = sum(len(measurement.matches) for measurement in taken)
    replies = sum(len(run.replies) for measurement in taken for run in measurement.runs)
    rejected = sum(len(measurement.rejected) for measurement in taken)
    unsupported = sum(bool(measurement.unsupported) for measurement in taken)
    return (
        f"{len(taken)} measurements: {steps} step samples, {rounds} timed rounds, {traced} traced rounds, "
        f"{matches} match traces, {replies} replies; {rejected} samples rejected, {unsupported} requests unsupported"
    )


def _times(profile: Profile, validation: Validation | None) -> str:
    text = f"profile {duration(profile.profile_seconds)}"
    if validation is None:
        return text
    how = "measured" if validation.sweep_measured else "estimated from this session's seconds"
    return (
        f"{text}; validation {duration(validation.validation_seconds)}; running every candidate instead "
        f"{duration(validation.sweep_seconds)} ({how})"
    )


def _clocks(calibration: Calibration, validation: Validation | None) -> str:
    """By which clock forecasts and runs are told."""
    text = f"forecasts by {clock_words(calibration.clock)}"
    if validation is None:
        return text
    beside = f"; beside them by {clock_words(validation.other_clock.clock)}" if validation.other_clock else ""
    return f"{text}, runs by {clock_words(validation.clock)}{beside}"


def _replayed(calibration: Calibration) -> str:
    """How far tokens per round of replayed acceptance are from real rounds."""
    checks = calibration.acceptance_checks
    off = [check.replayed_tokens_per_round / check.measured_tokens_per_round - 1 for check in checks]
    worst = max(off, key=abs)
    rounds = sum(check.rounds for check in checks)
    return (
        f"{len(checks)} pairs and workloads checked by {rounds} real rounds: tokens per round off by "
        f"{percent(sum(map(abs, off)) / len(off))} on average, {percent(worst, signed=True)} at worst"
    )


def checklist_table(items: Iterable[ChecklistItem]) -> Table:
    words = {"pass": "pass", "fail": "FAIL", "not_measured": "not measured"}
    return Table(("point", "status", "evidence"), tuple((i.id, words[i.status], plain(i.detail, 400)) for i in items))


def causes_table(diagnoses: Iterable[Diagnosis]) -> Table:
    columns = ("workload", "setting", "cause", "takes", "what to change", "evidence")
    rows = (
        (*cause_cells(diagnosis, cause), plain(cause.evidence, 600))
        for diagnosis in diagnoses
        for cause in diagnosis.causes
    )
    return Table(columns, tuple(rows))


def models_table(models: Iterable[ModelFile]) -> Table:
    columns = ("label", "name", "quantization", "size", "path", "SHA-256")
    rows = (
        (plain(m.label), plain(m.name), m.quant, mebibytes(m.size_bytes), plain(m.path, 300), m.sha256) for m in models
    )
    return Table(columns, tuple(rows))


def named(texts: dict[str, str]) -> tuple[Fact, ...]:
    return tuple(Fact(plain(name, 120), text) for name, text in texts.items())


def rejected(profile: Profile) -> tuple[str, ...]:
    """Why samples were thrown away and requests not served; the first ones, then how many more."""
    reasons = [reason for measurement in profile.measurements for reason in measurement.rejected]
    reasons += [f"{m.request.action}: {m.unsupported}" for m in profile.measurements if m.unsupported]
    more = len(reasons) - SHOWN_REJECTED
    return (*reasons[:SHOWN_REJECTED], *((f"and {more} more",) if more > 0 else ()))

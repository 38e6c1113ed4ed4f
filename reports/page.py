"""The report: one HTML file that needs no network, a view of profile, calibration, recommendation and validation."""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..calibrate.checks.records import ChecklistItem
from ..calibrate.records import Calibration, Diagnosis, Recommendation, Validation
from ..profiler.errors import InputError, WorkFailed
from ..profiler.records import ModelFile, Profile
from .commands import command_for
from .diagnosis import cause_cells
from .figures.every import all_sections
from .numbers import duration, gigabytes_per_second, mebibytes, percent, plain, short, tokens_per_second, with_bounds
from .panels import Section, Table
from .verdict import (
    WorkloadVerdict,
    bandwidth_text,
    check_text,
    clock_words,
    headline,
    mix_text,
    random_text,
    regret_text,
    workload_verdicts,
)

TEMPLATES = Path(__file__).parent / "templates"
SHOWN_REJECTED = 20

DEFINITIONS = (
    (
        "speed",
        (
            "decoded tokens after each reply's first over their decode seconds, over one fixed list of prompts; the median "
            "over repeats. Prefill is not in it."
        ),
    ),
    (
        "in profile",
        (
            "a round time, real or forced, of this target, drafter and draft length was measured while profiling; plain "
            "decoding always is. Errors are quoted over the other rows."
        ),
    ),
    (
        "measured",
        (
            "the median over repeats with the session's drift divided out, as plain decoding beside it shows it; raw is "
            "what the clock gave."
        ),
    ),
    (
        "clock",
        (
            "wall time is what a user gets. The processor time of the engine's thread, where one thread does the work, leaves "
            "out what other processes took; forecast and measurement are then both by it."
        ),
    ),
    ("error", "forecast / measured - 1: above zero the forecast was too high."),
    (
        "interval",
        (
            "what a validation session would measure, at the level quoted, its own noise included; for a measurement the "
            "interval of its median over repeats."
        ),
    ),
    ("speed-up", "the median ratio to plain decoding of the same target within the same repeat (paired)."),
    ("ceiling", "bytes that a plain step must read, at the measured memory bandwidth."),
)


@dataclass(frozen=True)
class Card:
    """A workload's verdict with the command that sets it."""

    verdict: WorkloadVerdict
    command: str


@dataclass(frozen=True)
class Fact:
    """A line of provenance."""

    name: str
    text: str


@dataclass(frozen=True)
class Page:
    """Everything that the template shows."""

    headline: str
    cards: tuple[Card, ...]
    command: str
    statements: tuple[str, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    unsettled: tuple[str, ...]
    sections: tuple[Section, ...]
    facts: tuple[Fact, ...]
    checklist: Table
    causes: Table
    models: Table
    dropped: tuple[Fact, ...]
    rejected: tuple[str, ...]
    definitions: tuple[Fact, ...]
    level: str
    created: str
    nonce: str
    """Lets the page's own scripts run and no other."""


def write_report(
    path: Path,
    profile: Profile,
    calibration: Calibration,
    recommendation: Recommendation,
    validation: Validation | None = None,
    checklist: Sequence[ChecklistItem] = (),
    diagnoses: Sequence[Diagnosis] = (),
) -> Path:
    """Write the report to `path` whole or not at all; returns it. Raises WorkFailed where it cannot be written."""
    page = report_page(profile, calibration, recommendation, validation, checklist, diagnoses)
    _write_whole(Path(path), _render(page))
    return Path(path)


def report_page(
    profile: Profile,
    calibration: Calibration,
    recommendation: Recommendation,
    validation: Validation | None,
    checklist: Sequence[ChecklistItem] = (),
    diagnoses: Sequence[Diagnosis] = (),
) -> Page:
    """The contents of the report as values."""
    verdicts = workload_verdicts(recommendation, validation, profile)
    first = headline(verdicts, recommendation)
    all_rows = "all-rows" in profile.engine.capabilities
    sections = all_sections(calibration, recommendation, validation, all_rows, profile)
    return Page(
        headline=first[:1].upper() + first[1:],
        cards=tuple(Card(verdict, _command(profile, recommendation, verdict)) for verdict in verdicts),
        command=recommendation.command,
        statements=_statements(profile, recommendation, validation),
        warnings=_warnings(profile, calibration, recommendation, validation),
        notes=calibration.notes,
        unsettled=recommendation.unsettled,
        sections=sections,
        facts=tuple(_facts(profile, calibration, recommendation, validation)),
        checklist=_checklist_table(checklist),
        causes=_causes_table(diagnoses),
        models=_models_table(profile.models),
        dropped=_named({**profile.dropped, **recommendation.dropped}),
        rejected=_rejected(profile),
        definitions=tuple(Fact(name, text) for name, text in DEFINITIONS),
        level=percent(recommendation.level),
        created=recommendation.created,
        nonce=_nonce(sections, recommendation),
    )


def _render(page: Page) -> str:
    """HTML of the page; every string in it is escaped but plotly's script and the figures' JSON."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(plain=plain, bounds=with_bounds, speed=tokens_per_second, short=short, percent=percent)
    environment.filters["json"] = Markup
    template = environment.get_template("report.html")
    return template.render(page=page, plotly=Markup(get_plotlyjs()))


def _write_whole(path: Path, text: str) -> None:
    """Write beside the goal, then rename: a reader sees the old report or the new one."""
    temporary = None
    try:
        with tempfile.NamedTemporaryFile("wb", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            temporary = Path(file.name)
            file.write(text.encode("utf-8", "replace"))
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink()
        reason = error.strerror or str(error)
        raise WorkFailed(f"cannot write the report {path}: {reason}; choose another folder with --out") from error


def _command(profile: Profile, recommendation: Recommendation, verdict: WorkloadVerdict) -> str:
    """The workload's own command; empty where it is the one at the top, or where the engine is not llama.cpp."""
    chosen = next(item.chosen for item in recommendation.workloads if item.workload == verdict.workload)
    if chosen == recommendation.chosen or not profile.engine.name.startswith("llama"):
        return ""
    try:
        return command_for(profile, chosen)
    except InputError:
        return ""


def _statements(profile: Profile, recommendation: Recommendation, validation: Validation | None) -> tuple[str, ...]:
    mix = mix_text(recommendation, profile)
    reasons = recommendation.reasons if mix else ()
    statements = (mix, *reasons, bandwidth_text(recommendation), check_text(validation), regret_text(validation))
    return tuple(text for text in statements if text)


def _warnings(
    profile: Profile, calibration: Calibration, recommendation: Recommendation, validation: Validation | None
) -> tuple[str, ...]:
    """Warnings of every record, and what does not belong together here."""
    own = []
    if not profile.complete:
        own.append("The profile is incomplete: run specgauge profile again, it goes on where it stopped.")
    if recommendation.profile_sha256 != calibration.profile_sha256:
        own.append("Recommendation and calibration come from different profiles: run specgauge recommend again.")
    if validation and validation.calibration_sha256 != recommendation.calibration_sha256:
        own.append("The validation belongs to another calibration: run specgauge validate again.")
    if random := random_text(profile):
        own.insert(0, random)
    foreign = (*profile.warnings, *(validation.warnings if validation else ()))
    return (*own, *foreign)


def _facts(
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
    yield Fact("drift", _drift(calibration, validation))
    yield Fact("samples", _samples(profile))
    yield Fact("time", _times(profile, validation))
    yield Fact("clock", _clocks(calibration, validation))
    if calibration.acceptance_checks:
        yield Fact("acceptance by replay", _replayed(calibration))
    yield Fact("profile SHA-256", calibration.profile_sha256)
    yield Fact("calibration SHA-256", recommendation.calibration_sha256)
    yield Fact("calibration", f"seed {calibration.seed}, {calibration.replicates} replicates, {calibration.created}")
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
    return "; ".join(
        f"{plain(name)}: {len(tokens)} prompts, up to {max(tokens)} new tokens" for name, tokens in counts.items()
    )


def _bandwidth(calibration: Calibration) -> str:
    found = calibration.bandwidth_bytes_per_second
    if found is None:
        return "not measured"
    low, high = short(found.low / 1e9), short(found.high / 1e9)
    source = f"{calibration.bandwidth_operation}, {calibration.bandwidth_provenance}"
    return f"{gigabytes_per_second(found.value)} ({low} to {high}), {source}"


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


def _checklist_table(items: Iterable[ChecklistItem]) -> Table:
    words = {"pass": "pass", "fail": "FAIL", "not_measured": "not measured"}
    return Table(("point", "status", "evidence"), tuple((i.id, words[i.status], plain(i.detail, 400)) for i in items))


def _causes_table(diagnoses: Iterable[Diagnosis]) -> Table:
    columns = ("workload", "setting", "cause", "takes", "what to change", "evidence")
    rows = (
        (*cause_cells(diagnosis, cause), plain(cause.evidence, 600))
        for diagnosis in diagnoses
        for cause in diagnosis.causes
    )
    return Table(columns, tuple(rows))


def _models_table(models: Iterable[ModelFile]) -> Table:
    columns = ("label", "name", "quantization", "size", "path", "SHA-256")
    rows = (
        (plain(m.label), plain(m.name), m.quant, mebibytes(m.size_bytes), plain(m.path, 300), m.sha256) for m in models
    )
    return Table(columns, tuple(rows))


def _named(texts: dict[str, str]) -> tuple[Fact, ...]:
    return tuple(Fact(plain(name, 120), text) for name, text in texts.items())


def _rejected(profile: Profile) -> tuple[str, ...]:
    """Why samples were thrown away and requests not served; the first ones, then how many more."""
    reasons = [reason for measurement in profile.measurements for reason in measurement.rejected]
    reasons += [f"{m.request.action}: {m.unsupported}" for m in profile.measurements if m.unsupported]
    more = len(reasons) - SHOWN_REJECTED
    return (*reasons[:SHOWN_REJECTED], *((f"and {more} more",) if more > 0 else ()))


def _nonce(sections: Iterable[Section], recommendation: Recommendation) -> str:
    """From the contents, so that equal records give equal pages and no text in them can know it."""
    digest = hashlib.sha256(recommendation.command.encode("utf-8", "replace"))
    for section in sections:
        for panel in section.panels:
            digest.update(panel.figure_json.encode())
    return digest.hexdigest()[:32]

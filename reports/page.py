"""The report: one HTML file that needs no network, a view of profile, calibration, recommendation and validation."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..calibrate.checks.records import ChecklistItem
from ..calibrate.records import Calibration, Diagnosis, EngineCommand, Recommendation, Validation
from ..profiler.records import Profile
from .bounds import plain_ceilings
from .engine_commands import engine_commands
from .facts import Fact, causes_table, checklist_table, facts, models_table, named, rejected
from .figures.every import all_sections
from .figures.speeds import discussed, speeds_of
from .numbers import percent, plain, short, tokens_per_second, with_bounds
from .panels import Panel, Section, Table
from .verdict import (
    WorkloadVerdict,
    answer,
    bandwidth_text,
    check_words,
    drafter_name,
    mix_text,
    random_text,
    regret_text,
    setting_name,
    shared_text,
    workload_verdicts,
)
from .whole import write_whole

TEMPLATES = Path(__file__).parent / "templates"

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
    (
        "all drafts accepted",
        "what the setting would give if every round drafted its full length and all of it were accepted: a bound, not a forecast.",
    ),
    (
        "round",
        (
            "one draft and the pass that verifies it; where an n-gram rule finds nothing to propose, a plain step. Its time is the mean "
            "over both, so that it differs by workload."
        ),
    ),
    ("n-gram", "a drafter without a model: it proposes what followed the same few tokens (match) earlier in the text."),
    (
        "workload",
        "prompts of one kind. Built in: ordinary (short questions, free answers), copying (answers that repeat their prompt).",
    ),
    ("whisker", "of a forecast its interval; of a bar in the verdict's picture the slowest and the fastest repeat."),
)


@dataclass(frozen=True)
class Card:
    """A workload's verdict: how much it gives and how sure that is, its picture, why, and its commands where they are its own."""

    verdict: WorkloadVerdict
    sure: str
    panel: Panel | None
    why: str
    commands: tuple[EngineCommand, ...]


@dataclass(frozen=True)
class Page:
    """Everything that the template shows."""

    where: str
    answers: tuple[str, ...]
    cards: tuple[Card, ...]
    commands: tuple[EngineCommand, ...]
    shared: str
    """How the mix of workloads is made up."""
    check: str
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
    return write_page(path, report_page(profile, calibration, recommendation, validation, checklist, diagnoses))


def write_page(path: Path, page: Page) -> Path:
    """Write `page` to `path` whole or not at all; returns it. Raises WorkFailed where it cannot be written."""
    write_whole(Path(path), _render(page), "choose another folder with --out")
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
    ceilings = plain_ceilings(calibration, profile.models)
    cards = tuple(_card(profile, recommendation, validation, verdict, ceilings) for verdict in verdicts)
    sections = all_sections(profile, calibration, recommendation, validation)
    return Page(
        where=_where(profile),
        answers=tuple(_sentence(answer(verdict)) for verdict in verdicts),
        cards=cards,
        commands=engine_commands(profile, recommendation.chosen),
        shared=shared_text(recommendation),
        check=check_words(validation, profile),
        statements=_statements(profile, recommendation, validation),
        warnings=_warnings(profile, calibration, recommendation, validation),
        notes=calibration.notes,
        unsettled=recommendation.unsettled,
        sections=sections,
        facts=tuple(facts(profile, calibration, recommendation, validation)),
        checklist=checklist_table(checklist),
        causes=causes_table(diagnoses),
        models=models_table(profile.models),
        dropped=named({**profile.dropped, **recommendation.dropped}),
        rejected=rejected(profile),
        definitions=tuple(Fact(name, text) for name, text in DEFINITIONS),
        level=percent(recommendation.level),
        created=recommendation.created,
        nonce=_nonce(sections, cards, recommendation),
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


def _card(
    profile: Profile,
    recommendation: Recommendation,
    validation: Validation | None,
    verdict: WorkloadVerdict,
    ceilings: Mapping[str, float],
) -> Card:
    """One workload's; its own commands where its choice is not the one at the top."""
    chosen = next(item.chosen for item in recommendation.workloads if item.workload == verdict.workload)
    commands = () if chosen == recommendation.chosen else engine_commands(profile, chosen)
    panel = speeds_of(verdict, recommendation, validation, ceilings)
    return Card(verdict, _sure(verdict), panel, _why(recommendation, verdict), commands)


def _sure(verdict: WorkloadVerdict) -> str:
    """The gain over its paired baseline, then forecast beside measurement, each with its interval."""
    gain = f"{verdict.speed_up_text}. " if verdict.speed_up_text else ""
    forecast = f"Forecast {tokens_per_second(verdict.forecast)}"
    if verdict.measured is None or verdict.error is None:
        return f"{gain}{forecast}, not run yet."
    measured = f"measured {with_bounds(verdict.measured)}, off by {percent(verdict.error, signed=True)}"
    return f"{gain}{forecast}, {measured}."


def _why(recommendation: Recommendation, verdict: WorkloadVerdict) -> str:
    """Acceptance against break-even, of the drafting setting that is shown."""
    here = [item for item in recommendation.candidates if item.workload == verdict.workload]
    found = discussed(verdict, [item for item in here if item.setting.target == verdict.setting.target])
    if found is None:
        return "No drafter could be forecast here, so there is nothing to compare plain decoding with."
    pays = "more than" if found.accepted_per_round > found.break_even_accepted else "not"
    plural = "" if found.setting.draft_tokens == 1 else "s"
    what = f"{drafter_name(found.setting, 28)} at {found.setting.draft_tokens} draft token{plural}"
    other = ""
    if verdict.speculates and (best := verdict.faster_plain) is not None:
        speed = tokens_per_second(best.tokens_per_second)
        other = f" The best plain setting is {setting_name(best.setting, 28)}, forecast {speed}."
    return (
        f"Why: {what} gets {found.accepted_per_round:.2f} tokens accepted a round, {pays} the "
        f"{found.break_even_accepted:.2f} that a round of {short(1e3 * found.round_seconds)} ms needs to break even.{other}"
    )


def _where(profile: Profile) -> str:
    """Machine and engine in a line."""
    key, engine = profile.key, profile.engine
    return ", ".join(text for text in (key.gpu or key.cpu, engine.name, key.build or engine.build) if text)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _statements(profile: Profile, recommendation: Recommendation, validation: Validation | None) -> tuple[str, ...]:
    mix = mix_text(recommendation, profile)
    reasons = recommendation.reasons if mix else ()
    statements = (mix, *reasons, bandwidth_text(recommendation), regret_text(validation))
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


def _nonce(sections: Iterable[Section], cards: Iterable[Card], recommendation: Recommendation) -> str:
    """From the contents, so that equal records give equal pages and no text in them can know it."""
    digest = hashlib.sha256(recommendation.command.encode("utf-8", "replace"))
    panels = [panel for section in sections for panel in section.panels]
    for panel in (*(card.panel for card in cards if card.panel), *panels):
        digest.update(panel.figure_json.encode())
    for section in sections:
        if section.part:
            digest.update(section.part.data_json.encode())
    return digest.hexdigest()[:32]

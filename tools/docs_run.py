"""Blocks of the documents that come from a run: the verdict, how to read it, the files, what else they tell; the picture."""

import contextlib
import io
import re
import shutil
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from docs_session import indented, session, table

from specgauge.calibrate.records import Recommendation, Validation
from specgauge.profiler.files import read_record
from specgauge.profiler.records import Profile
from specgauge.reports.numbers import duration
from specgauge.reports.terminal import print_verdict
from specgauge.reports.verdict import check_text, regret_text

CHROMIUM = "/usr/bin/chromium"
VIEW = {"width": 1280, "height": 780}
UNWRAPPED, WIDTH = 4000, 80
STORED = ("profile.json", "calibration.json", "recommendation.json", "validation.json", "report.html")

FOLDERS = re.compile(r"(?<![\w:/.])/(?:[\w.+@-]+/)+")

LINES: tuple[tuple[str, str, str], ...] = (
    (
        r"cannot be told apart",
        (
            "The ratio of the two forecasts, with its interval, includes 1: this evidence does not order them. That is an answer "
            "and no failure."
        ),
        "Run the one that is named. Where the rest matters, the line says what would tell them apart.",
    ),
    (
        r"^measured .* over plain",
        (
            "What the setting gave in the check, prompt by prompt beside plain decoding of the same target in the same "
            "minutes. The speed of plain decoding stands behind it."
        ),
        "This is the gain to expect on prompts like these. A range that includes 1.00 is no gain.",
    ),
    (
        r"accepts .* break-even is",
        "The gate. A round costs more than a plain step; so many accepted tokens pay for it, and so many there are.",
        "Below break-even: fewer draft tokens, a nearer draft, or equal sampling on both sides; else stay plain.",
    ),
    (
        r"first drafted token is accepted with probability",
        "The cheapest test of a draft: what one drafted token brings against what it costs.",
        "Where it costs more than it brings, no draft length helps: another draft, or none.",
    ),
    (
        r"rule of thumb of 60 %",
        "What two common rules would have said. They know nothing of your round times and overrule nothing.",
        "Nothing.",
    ),
    (
        r"at perfect acceptance it could reach",
        "The ceiling: every drafted token accepted, at the round times measured here.",
        "If even that is not worth the trouble, stop looking for a better draft.",
    ),
    (
        r"reads .* a step: .* of the measured read bandwidth",
        "What a plain step reads, and the share of the memory bandwidth that it reaches.",
        "A small share means that the baseline itself is slow: `specgauge diagnose` before any drafting.",
    ),
    (
        r"^One setting for all workloads",
        "The one setting for those who start a server once and serve everything with it.",
        "Its command is printed last.",
    ),
    (
        r"forecasts .* missed by",
        "The test of the forecast: settings whose round time had not been measured, forecast first, then run.",
        "If the errors are larger than the gain that you are after, believe the measured column alone.",
    ),
    (
        r"^Likeliest missing term",
        "The term of the model that would explain most of the errors, and what to measure.",
        "Useful where errors are large; where they are small it is a footnote.",
    ),
    (
        r"anything that was run beat its choice|^The choice gave away",
        "Regret: what the choice lost against the best setting that the check ran, plain decoding included.",
        "If it is real, take the better one: the report's second figure names it.",
    ),
)
"""What the verdict prints (a pattern), what it means, what to do with it; the first that matches counts."""


@cache
def _records(out: Path) -> tuple[Recommendation, Validation, Profile]:
    return (
        read_record(out / "recommendation.json", Recommendation),
        read_record(out / "validation.json", Validation),
        read_record(out / "profile.json", Profile),
    )


def printed(out: Path, width: int = WIDTH) -> list[str]:
    """The lines of the verdict, without colours; files without their folders."""
    from rich.console import Console

    sink = io.StringIO()
    print_verdict(Console(file=sink, width=width, color_system=None), *_records(out))
    return [line.rstrip() for line in without_folders(sink.getvalue()).splitlines()]


def without_folders(text: str) -> str:
    """`text` with every absolute path cut down to its last name: the folders are those of the machine that ran it."""
    return FOLDERS.sub("", text)


def first_lines(out: Path) -> list[str]:
    """Headline and table of the verdict: what stands before the reasons."""
    recommendation, _, _ = _records(out)
    lines = printed(out)
    names = tuple(f"{advice.workload}: " for advice in recommendation.workloads)
    head = next(at for at, line in enumerate(lines) if at > 2 and line.startswith(names))
    return lines[:head]


def command(out: Path) -> str:
    """What was typed to make the run."""
    _, _, profile = _records(out)
    if profile.engine.name == "fake":
        return f"specgauge run --engine fake:{profile.engine.build}"
    return "specgauge run" if profile.engine.name == "llama.cpp" else f"specgauge run --engine {profile.engine.name}"


def verdict(out: Path) -> str:
    """The README's: headline, table, and how the forecasts did."""
    _, validation, _ = _records(out)
    checked = "\n".join(_wrapped(f"{check_text(validation)} {regret_text(validation)}"))
    return indented("\n".join([f"$ {command(out)}", *first_lines(out), "[...]", checked]))


def whole_verdict(out: Path) -> str:
    """All of it."""
    return indented("\n".join([f"$ {command(out)}", *printed(out)]))


def reading(out: Path) -> str:
    """Lines of this run's verdict, each with its meaning and what to do; each kind of line once."""
    rows, told = [], set[str]()
    for line in printed(out, UNWRAPPED):
        text = line.removeprefix(" - ").strip()
        found = next((entry for entry in LINES if re.search(entry[0], text)), None)
        if found is not None and found[0] not in told:
            told.add(found[0])
            rows.append((f"`{_without_mention(text)}`", found[1], found[2]))
    return table(("a line of it", "means", "what to do"), rows)


def where(out: Path) -> str:
    """What the run was on, and how long it took."""
    _, validation, profile = _records(out)
    key = profile.key
    device = key.gpu or key.cpu
    models = ", ".join(f"{model.label} ({model.size_bytes / 1e6:.0f} MB)" for model in profile.models)
    threads = f", {key.threads} thread{'s' * (key.threads != 1)}" if key.threads else ""
    return (
        f"{device}{threads}; {profile.engine.name} {profile.engine.build}; specgauge {profile.tool_version}, "
        f"{profile.created[:10]}. Models: {models}. Profiling took {duration(profile.profile_seconds)}, checking "
        f"{duration(validation.validation_seconds)}; running every setting instead would have taken about "
        f"{duration(validation.sweep_seconds)} (computed from this session's seconds, not run)."
    )


def sizes(out: Path) -> str:
    """The five files of the run."""
    rows = [(f"`{name}`", f"{(out / name).stat().st_size / 1e6:.2f} MB") for name in STORED]
    return table(("file in specgauge-out/", "size in this run"), rows, right=(1,))


def _asked(out: Path, *commands: str) -> str:
    """Commands over a copy of the run's files, in the usual folder."""
    with copied(out) as folder:
        return without_folders(session(folder, *commands))


def predict(out: Path) -> str:
    """Draft lengths that nobody ran."""
    return _asked(out, "specgauge predict --draft-tokens 0..8")


def diagnose(out: Path) -> str:
    """Why drafting is no faster, for one workload."""
    recommendation, _, _ = _records(out)
    return _asked(out, f"specgauge diagnose --workload {recommendation.workloads[0].workload}")


def next_steps(out: Path) -> str:
    """What specgauge alone says, over a finished run."""
    return _asked(out, "specgauge")


def photograph(out: Path, picture: Path) -> None:
    """The first screen of the run's report, made anew, as PNG: light, offline, in Debian's Chromium."""
    from playwright.sync_api import sync_playwright

    with copied(out) as folder, sync_playwright() as playwright:
        session(folder, "specgauge report")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(viewport=VIEW, color_scheme="light", offline=True)  # pyright: ignore
        page = context.new_page()
        page.goto((folder / "specgauge-out" / "report.html").as_uri())
        page.wait_for_selector("html[data-drawn=yes]", timeout=30_000)
        page.screenshot(path=str(picture))
        browser.close()


@contextlib.contextmanager
def copied(out: Path) -> Iterator[Path]:
    """A folder with a copy of the run's files in specgauge-out/."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "specgauge-out"
        copy.mkdir()
        for name in STORED:
            shutil.copy(out / name, copy / name)
        yield Path(folder)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH)


def _without_mention(text: str) -> str:
    """A line as a cell of a table: no bar, no backtick, at most 240 characters."""
    text = text.replace("|", "/").replace("`", "'")
    return text if len(text) <= 240 else f"{text[:239]}…"


BLOCKS: dict[str, Callable[[Path], str]] = {
    "verdict": verdict,
    "reading": reading,
    "run-verdict": whole_verdict,
    "run-where": where,
    "run-sizes": sizes,
    "run-predict": predict,
    "run-diagnose": diagnose,
    "run-next": next_steps,
}
"""By name: what makes it of an output folder."""

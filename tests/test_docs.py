"""README and docs/: commands parse, links and files resolve, made blocks are what their scripts make."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import CycloptsError

from specgauge import cli

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
ROOMS = ("", "docs", "model", "profiler", "calibrate", "reports", "tests", "tests/model", "profiler/engines")
LINK = re.compile(r"(?<!`)\[[^\]`]*\]\(([^)\s]+)\)")
NAMED = re.compile(r"`([\w./-]+\.(?:py|sh|md|toml|csv|txt))(?: [^`]*)?`")
USERS_OWN = {"my-runs.csv", "verdict.md", "rtx3090-mtp-ladder.csv", "FILE.csv"}
"""Names of files that a reader has or makes."""
SYNOPSIS = re.compile(r"[\[\]]|\.\.\.| / ")


def pages(*names: str) -> list[Path]:
    return [page for page in PAGES if not names or page.name in names]


def code_lines(text: str) -> Iterator[str]:
    """Lines of indented and fenced code."""
    fenced = False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield line.strip()


def commands(page: Path) -> set[str]:
    """Every `specgauge VERB ...` of a page: lines of code that begin with it, and inline code."""
    text = page.read_text()
    lines = [line.removeprefix("$ ") for line in code_lines(text)]
    found = [
        part for line in lines if line.startswith(("specgauge ", ".venv/bin/specgauge ")) for part in line.split(" && ")
    ]
    found += re.findall(r"`((?:\.venv/bin/)?specgauge [a-z][^`]*)`", text)
    return {stripped for one in found if (stripped := without_comment(one)).count(" ")}


def without_comment(command: str) -> str:
    """Without what explains it: behind a #, or behind two spaces."""
    return re.split(r"\s+#|\s{2,}", command.strip())[0].removeprefix(".venv/bin/")


def parsed(command: str) -> None:
    """The real command line, nothing run. Raises CycloptsError."""
    words = cli._with_engine_flags(shlex.split(command)[1:])
    cli.app.parse_args(words, exit_on_error=False, print_error=False)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_commands_of_a_page_exist(page):
    for command in commands(page):
        if SYNOPSIS.search(command):  # a synopsis: its verbs alone
            verbs = re.split(r" / ", command.removeprefix("specgauge "))
            assert all(verb.split()[0] in cli.app for verb in verbs), command
            continue
        try:
            parsed(command)
        except CycloptsError as error:
            pytest.fail(f"{page.name}: {command}: {error}")


def test_there_are_commands_to_check():
    assert len({command for page in PAGES for command in commands(page)}) > 25


@pytest.mark.parametrize("wrong", ["specgauge predct", "specgauge predict --draft-token 3", "specgauge check"])
def test_a_command_that_does_not_exist_is_noticed(wrong):
    with pytest.raises(CycloptsError):
        parsed(wrong)


def anchors(page: Path) -> set[str]:
    """Names of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_links_of_a_page_resolve(page):
    for target in LINK.findall(page.read_text()):
        if re.match(r"[a-z]+://", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists() and file.is_relative_to(ROOT), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(file), f"{page.name}: {target}"


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_files_that_a_page_names_exist(page):
    if page.name == "log.md":  # the past: files of then
        return
    for name in NAMED.findall(page.read_text()):
        found = any((ROOT / room / name).exists() for room in ROOMS)
        assert found or name in USERS_OWN or (ROOT / "tests" / "data" / name).exists(), f"{page.name}: {name}"


def test_every_page_is_reachable_from_the_readme():
    linked = {(ROOT / target.partition("#")[0]).resolve() for target in LINK.findall((ROOT / "README.md").read_text())}
    assert {page.resolve() for page in PAGES if page.parent == ROOT / "docs"} <= linked


def test_the_readme_names_every_verb():
    text = (ROOT / "README.md").read_text()
    verbs = [name for name in cli.app if not name.startswith("-")]
    assert len(verbs) > 10
    assert [verb for verb in verbs if f"specgauge {verb}" not in text and f"`{verb}`" not in text] == []


def test_made_blocks_are_what_their_scripts_make():
    """Those of a run are left out: only its files could make them anew."""
    done = subprocess.run(
        [sys.executable, "tools/docs_blocks.py", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}; run python tools/docs_blocks.py"


def test_every_made_block_is_filled_and_closed():
    for page in PAGES:
        text = page.read_text()
        assert text.count("<!-- made: ") == text.count("<!-- end -->"), page.name
        assert not re.search(r"<!-- made: [\w-]+ -->\s*<!-- end -->", text), page.name


def test_pictures_exist_and_have_words_instead():
    shown = [(page, *found) for page in PAGES for found in re.findall(r"!\[([^\]]*)\]\(([^)]*)\)", page.read_text())]
    assert shown
    for page, words, path in shown:
        assert words and (page.parent / path).read_bytes().startswith(b"\x89PNG"), path


def test_nothing_of_the_machine_that_made_the_pages_is_in_them():
    for page in PAGES:
        assert not re.search(r"(?<![\w.])/(?:home|root|tmp|work|Users)/", page.read_text()), page.name

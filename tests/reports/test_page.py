"""The page: one file, whole or not at all, no network, and foreign text that stays text."""

import html.parser
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from specgauge.profiler.errors import WorkFailed
from specgauge.reports.page import report_page, write_report

from .samples import Sample, sample

LIMIT_BYTES = 6 * 10**6
HOSTILE = (
    "</script><script>window.owned=1</script><img src=x onerror=owned=1>{{7*7}}\"'`\u202e&lt;$x$\u200b\ufeff\u2067"
    "\N{ROCKET}\N{WOMAN}\u200d\N{ROCKET}\n</style><style>*{display:none}</style>${owned=1}javascript:owned=1//"
    "e" + "\u0301" * 200 + "\U000e0041" + "y" * 10_000
)
"""HTML, scripts, styles, quotes, templates, line ends, right to left, zero width, emoji, piled accents, 10,000 characters."""


class Elements(html.parser.HTMLParser):
    """Counts elements and keeps attributes and the text outside scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]


def write(path: Path, records: Sample, validated: bool = True) -> str:
    validation = records.validation if validated else None
    written = write_report(path, records.profile, records.calibration, records.recommendation, validation)
    assert written == path
    return path.read_text(encoding="utf-8")


def own(text: str) -> str:
    """The page without plotly's script, which is the only script of more than a million characters."""
    return re.sub(r"<script nonce=[^>]*>.{1000000,}?</script>", "", text, flags=re.DOTALL)


def test_one_file_within_its_size_with_plotly_once(demo: Sample, tmp_path: Path):
    text = write(tmp_path / "report.html", demo)
    assert os.path.getsize(tmp_path / "report.html") < LIMIT_BYTES
    assert len(re.findall(r"<script nonce=[^>]*>.{1000000,}?</script>", text, flags=re.DOTALL)) == 1
    assert len(own(text)) < 10**6


def test_no_element_names_anything_outside(demo: Sample, tmp_path: Path):
    page = Elements(own(write(tmp_path / "report.html", demo)))
    assert not {name for _, name, _ in page.attributes} & {"src", "srcset", "action", "onclick"}
    places = {value for _, name, value in page.attributes if name == "id"}
    links = [value or "" for _, name, value in page.attributes if name == "href"]
    assert links and all(link[0] == "#" and link[1:] in places for link in links)
    assert "link" not in page.tags
    assert not re.findall(r"https?:|//\w+\.", own((tmp_path / "report.html").read_text()))


def test_first_screen_has_verdict_speeds_and_command(demo: Sample, tmp_path: Path):
    text = own(write(tmp_path / "report.html", demo))
    order = [
        "Ordinary: do not speculate",
        "Checked by runs: ",
        "Why: ",
        ">forecast</dt>",
        ">measured</dt>",
        ">ceiling</dt>",
        ">speed-up</dt>",
        "Copy this",
        "Not settled",
        'id="forecast-against-measured"',
        ">Where the numbers come from</h2>",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    for item in (demo.calibration.profile_sha256, demo.recommendation.calibration_sha256, "in profile", "drift"):
        assert item in text


def test_the_command_is_copied_as_it_is(demo: Sample):
    import html

    from jinja2 import Environment

    command = "llama-server -m '/a  b/<x>.gguf' --temp 0"
    source = (Path(sys.modules["specgauge.reports.page"].__file__ or "").parent / "templates/report.html").read_text()
    part = re.search(r"<code>(.*)</code>", source)
    assert part is not None
    shown = Environment(autoescape=True).from_string(part[1]).render(command=command)
    assert html.unescape(re.sub(r"</?span>", "", shown)) == command


def test_hostile_names_change_nothing_but_text(demo: Sample, tmp_path: Path):
    tame = Elements(own(write(tmp_path / "tame.html", demo)))
    text = write(tmp_path / "hostile.html", sample(name=HOSTILE, folder=f"/{HOSTILE}", workload=HOSTILE))
    hostile = Elements(own(text))
    count = {tag: tame.tags.count(tag) for tag in set(tame.tags) - {"span"}}
    assert {tag: hostile.tags.count(tag) for tag in set(hostile.tags) - {"span"}} == count
    assert "{{7*7}}" in text
    assert os.path.getsize(tmp_path / "hostile.html") < LIMIT_BYTES


def test_equal_records_give_equal_pages(demo: Sample, tmp_path: Path):
    assert write(tmp_path / "a.html", demo) == write(tmp_path / "b.html", demo)


def test_without_validation_or_evidence_the_page_says_what_to_run(bare: Sample, tmp_path: Path):
    text = own(write(tmp_path / "report.html", bare, validated=False))
    assert text.count('class="missing"') == 9
    assert "specgauge validate" in text and "specgauge profile" in text
    assert 'class="plot"' not in text


def test_records_that_do_not_belong_together_are_named(demo: Sample):
    other = msgspec.structs.replace(demo.validation, calibration_sha256="33" * 32)
    page = report_page(demo.profile, demo.calibration, demo.recommendation, other)
    assert any("another calibration" in text for text in page.warnings)


def test_own_command_only_where_the_workload_differs(demo: Sample):
    page = report_page(demo.profile, demo.calibration, demo.recommendation, demo.validation)
    assert [bool(card.commands) for card in page.cards] == [False, True]
    assert "--spec-ngram-simple-size-m 8" in page.cards[1].commands[0].text


@pytest.mark.parametrize("place", ["missing/report.html", "file/report.html", ""])
def test_a_place_that_cannot_be_written_is_one_line(demo: Sample, tmp_path: Path, place: str):
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkFailed) as failed:
        write(tmp_path / place, demo)
    assert "\n" not in str(failed.value) and "--out" in str(failed.value)
    assert not list(tmp_path.glob(".*"))


def test_a_failed_write_keeps_the_old_report(demo: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "report.html"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WorkFailed, match="No space left"):
        write(path, demo)
    assert path.read_text() == "old" and [found.name for found in tmp_path.iterdir()] == ["report.html"]


def test_importing_reports_loads_nothing_heavy():
    heavy = "{'plotly', 'pandas', 'jinja2', 'rich', 'scipy', 'torch'}"
    code = f"import specgauge.reports.page, specgauge.reports.terminal, sys; print(*({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == ""

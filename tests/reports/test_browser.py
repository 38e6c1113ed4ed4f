"""The report in a real browser: offline, no error, no request, all figures drawn, nothing wider than the screen."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from specgauge.reports.page import write_report

from .samples import Sample, sample
from .test_page import HOSTILE

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = Path("/usr/bin/chromium")
SECTIONS = (
    "forecast-against-measured",
    "speed-over-draft-length",
    "verification-cost",
    "where-a-round-goes",
    "acceptance-by-position",
    "quantization",
    "spread-of-replies",
)
pytestmark = pytest.mark.browser


@dataclass
class Opened:
    """A page and what it did that it should not."""

    page: Any
    url: str
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if not CHROMIUM.exists():
        pytest.skip(f"no {CHROMIUM}: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    hostile = sample(name=HOSTILE, folder=f"/{HOSTILE}", workload=HOSTILE)
    return {name: _written(folder / f"{name}.html", s) for name, s in (("demo", sample()), ("hostile", hostile))}


def _written(path: Path, records: Sample) -> Path:
    return write_report(path, records.profile, records.calibration, records.recommendation, records.validation)


def _open(browser, path: Path, width: int, scheme: str) -> Opened:
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme, offline=True)
    page = context.new_page()
    opened = Opened(page, path.as_uri())
    page.on("console", lambda message: opened.complaints.append(message.text))
    page.on("pageerror", lambda error: opened.complaints.append(str(error)))
    page.on("request", lambda request: opened.requests.append(request.url))
    page.goto(opened.url)
    page.wait_for_selector("html[data-drawn=yes]", timeout=30_000)
    return opened


@pytest.mark.parametrize("name", ["demo", "hostile"])
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_opens_clean_and_draws_every_figure(browser, reports: dict[str, Path], name: str, width: int, scheme: str):
    opened = _open(browser, reports[name], width, scheme)
    page = opened.page
    for section in SECTIONS:
        plots = page.locator(f"#{section} .plot")
        assert plots.count() > 0
        for index in range(plots.count()):
            assert plots.nth(index).locator(".main-svg").count() > 0
            assert plots.nth(index).locator(".trace, .point").count() > 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("window.owned") is None
    assert opened.complaints == []
    assert opened.requests == [opened.url]
    page.context.close()


def test_hover_shows_the_numbers_of_a_point(browser, reports: dict[str, Path]):
    page = _open(browser, reports["demo"], 1280, "light").page
    page.locator("#verification-cost").scroll_into_view_if_needed()
    page.evaluate(
        "Plotly.Fx.hover(document.querySelector('#verification-cost .plot'), [{curveNumber: 1, pointNumber: 3}])"
    )
    assert "4 tokens behind 128" in page.locator("#verification-cost .hoverlayer").first.text_content()
    page.context.close()


def test_tables_open_and_stay_inside_a_phone(browser, reports: dict[str, Path]):
    page = _open(browser, reports["demo"], 390, "light").page
    for index in range(page.locator("summary").count()):
        page.locator("summary").nth(index).click()
    assert page.locator("details[open] tbody tr").count() > 50
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.context.close()


def test_colours_follow_the_scheme_while_open(browser, reports: dict[str, Path]):
    page = _open(browser, reports["demo"], 1280, "light").page
    label = page.locator(".plot .xtick text").first
    sync_api.expect(label).to_have_css("fill", "rgb(27, 30, 35)")
    page.emulate_media(color_scheme="dark")
    sync_api.expect(label).to_have_css("fill", "rgb(233, 235, 238)")
    page.context.close()

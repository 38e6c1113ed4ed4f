"""The report in a real browser: offline, no error, no request, all figures drawn, nothing wider than the screen."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specgauge.calibrate.what_if import model_of
from specgauge.model.survival import survival_from_hazards
from specgauge.model.what_if import moved
from specgauge.reports.numbers import short
from specgauge.reports.page import write_report

from .samples import Sample, sample
from .test_page import HOSTILE
from .test_what_if import CONTEXTS, FIRSTS, GRID, agree, expected

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = Path("/usr/bin/chromium")
AXE = Path(sys.prefix) / "axe.min.js"
"""axe-core, laid there by tools/setup.sh test."""
SECTIONS = (
    "verdict",
    "forecast-against-measured",
    "speed-over-draft-length",
    "verification-cost",
    "where-a-round-goes",
    "acceptance-by-position",
    "quantization",
    "maps",
    "spread-of-replies",
    "what-if",
)
PAPER_PIXELS = 688
"""Width of an A4 sheet within margins of 14 mm, at 96 pixels an inch."""
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
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("name", "width"), [("demo", 1280), ("demo", 390), ("hostile", 390)])
def test_no_serious_violation_of_accessibility(browser, reports: dict[str, Path], name: str, width: int, scheme: str):
    if not AXE.exists():
        pytest.skip(f"no {AXE}: tools/setup.sh test fetches it where npm is")
    page = _open(browser, reports[name], width, scheme).page
    page.evaluate("for (const item of document.querySelectorAll('details')) item.open = true")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']}).then((result) => result.violations)")
    serious = [
        (item["id"], item["impact"], [node["html"][:200] for node in item["nodes"][:3]])
        for item in found
        if item["impact"] in ("serious", "critical")
    ]
    assert serious == []
    page.context.close()


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_the_first_screen_answers(browser, reports: dict[str, Path], width: int, height: int):
    """What to set, how much it gives, how sure and, with the picture, why stand above the fold."""
    page = _open(browser, reports["demo"], width, "light").page
    page.set_viewport_size({"width": width, "height": height})
    for where in ("h1", ".card .setting", ".card .sure", ".card .plot", ".card .why"):
        box = page.locator(where).first.bounding_box()
        assert box is not None and box["y"] + box["height"] <= height, where
    page.context.close()


def test_fingers_find_what_can_be_pressed(browser, reports: dict[str, Path]):
    """At least 24 pixels each way (WCAG 2.2, 2.5.8), and 40 where a finger is told of."""
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True, offline=True)
    page = context.new_page()
    page.goto(reports["demo"].as_uri())
    page.wait_for_selector("html[data-drawn=yes]", timeout=30_000)
    boxes = [item.bounding_box() for item in page.locator("summary, button, nav a, select").all() if item.is_visible()]
    assert len(boxes) > 20 and all(box is not None and box["height"] >= 40 for box in boxes)
    context.close()


def test_paper_has_all_of_it(browser, reports: dict[str, Path]):
    """Folded parts open, figures fit a sheet and are dark on white, tables are not cut; the screen comes back after it."""
    page = _open(browser, reports["demo"], 1280, "dark").page
    folded = page.locator("details:not([open])").count()
    assert folded > 0
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    page.set_viewport_size({"width": PAPER_PIXELS, "height": 1000})
    assert page.locator("details:not([open])").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= PAPER_PIXELS
    for plot in page.locator(".plot").all():
        drawn, around = plot.locator(".main-svg").first.bounding_box(), plot.bounding_box()
        assert drawn is not None and around is not None
        assert 100 < drawn["width"] <= around["width"] + 1 and drawn["height"] <= around["height"] + 1
    sync_api.expect(page.locator(".plot .xtick text").first).to_have_css("fill", "rgb(27, 30, 35)")
    for scrolled in ("pre", ".scroll"):
        cut = f"Array.from(document.querySelectorAll('{scrolled}'), (e) => e.getBoundingClientRect().right - {PAPER_PIXELS})"
        assert max(page.evaluate(cut)) <= 0
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details:not([open])").count() == folded
    page.context.close()


WHAT_IF_GRID = (
    "([firsts, contexts]) => JSON.parse(document.querySelector('script.what-if-data').textContent).drafters.map((drafter) =>"
    f" drafter.workloads.map((workload) => ({GRID.strip()})(whatIf, drafter, workload, firsts, contexts)))"
)


def test_the_pages_own_script_computes_what_the_model_does(browser, reports: dict[str, Path]):
    page = _open(browser, reports["demo"], 1280, "light").page
    found = page.evaluate(WHAT_IF_GRID, [FIRSTS, CONTEXTS])
    for record, drafter in zip(sample().recommendation.what_if, found, strict=True):
        for workload, grid in zip(record.workloads, drafter, strict=True):
            agree(grid, expected(record, workload))
    page.context.close()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_sliders_change_the_curve_as_the_model_says(browser, reports: dict[str, Path], width: int, scheme: str):
    opened = _open(browser, reports["demo"], width, scheme)
    page = opened.page
    record = sample().recommendation.what_if[0]
    model, section = model_of(record, record.workloads[1]), page.locator("#what-if")
    section.locator("[data-part=drafter]").select_option("0")
    section.locator("[data-part=workload]").select_option("1")
    assert _curve(page) == pytest.approx(model.tokens_per_second(None, record.workloads[1].context), rel=1e-9)
    for part, keys in (("first", 20 * ["ArrowLeft"]), ("context", 90 * ["ArrowRight"]), ("length", 2 * ["ArrowRight"])):
        section.locator(f"[data-part={part}]").focus()
        for key in keys:
            page.keyboard.press(key)
    first, context, place = (
        float(section.locator(f"[data-part={p}]").input_value()) for p in ("first", "context", "length")
    )
    assert 0 < first < record.workloads[1].hazard[0] - 0.15 and context > record.workloads[1].context + 300
    there = model.tokens_per_second(first, context)
    assert _curve(page) == pytest.approx(there, rel=1e-6)
    assert page.evaluate("document.querySelector('#what-if .plot').data[4].y[0]") == pytest.approx(there[int(place)])
    answer = section.locator("[data-part=answer]").text_content()
    assert f"{short(there[int(place)])} tokens/s; plain decoding there {short(there[0])}." in answer
    even = model.break_even(int(place), context)
    assert even is not None and f"accepted {100 * even:.0f} % of the time" in answer
    lengths = (0, *record.prices.draft_tokens)
    command = section.locator("[data-part=command]").text_content()
    assert command == f"specgauge predict --draft-tokens {lengths[int(place)]}"
    page.emulate_media(color_scheme="light" if scheme == "dark" else "dark")
    page.wait_for_timeout(200)
    assert _curve(page) == pytest.approx(there, rel=1e-6), "a change of colours keeps what the sliders say"
    section.locator("[data-part=reset]").click()
    assert _curve(page) == pytest.approx(model.tokens_per_second(None, record.workloads[1].context), rel=1e-9)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.complaints == []
    page.context.close()


def test_the_command_beside_the_sliders_gives_the_moved_survival(browser, reports: dict[str, Path]):
    page = _open(browser, reports["demo"], 1280, "light").page
    section, record = page.locator("#what-if"), sample().recommendation.what_if[1]
    section.locator("[data-part=drafter]").select_option("1")
    section.locator("[data-part=first]").focus()
    page.keyboard.press("ArrowRight")
    first = float(section.locator("[data-part=first]").input_value())
    workload = section.locator("[data-part=workload]").input_value()
    hazard = np.array(record.workloads[int(workload)].hazard)
    told = section.locator("[data-part=command]").text_content().split("--survival ")[1]
    expected_survival = survival_from_hazards(moved(hazard, first))
    assert [float(s) for s in told.split(",")] == pytest.approx(expected_survival, abs=1e-4)
    page.context.close()


def _curve(page) -> list[float]:
    return page.evaluate("document.querySelector('#what-if .plot').data[3].y")


def test_the_map_shows_the_numbers_of_a_cell(browser, reports: dict[str, Path]):
    page = _open(browser, reports["demo"], 1280, "light").page
    page.locator("#maps").scroll_into_view_if_needed()
    page.evaluate("Plotly.Fx.hover(document.querySelector('#maps .plot'), [{curveNumber: 0, pointNumber: 0}])")
    found = sample().recommendation
    mine = [one for one in found.speed_maps if one.workload == found.workloads[0].workload]
    cell = max(mine, key=lambda one: one.cells[0].tokens_per_second).cells[0]
    text = page.locator("#maps .hoverlayer").first.text_content()
    assert f"{cell.speed_up:.2f}x ({cell.speed_up_low:.2f} to {cell.speed_up_high:.2f}): " in text
    page.context.close()


def test_without_javascript_a_line_says_what_answers_instead(browser, reports: dict[str, Path]):
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto(reports["demo"].as_uri())
    assert "specgauge predict" in page.locator("#what-if noscript").text_content()
    assert not page.locator("#what-if .what-if").is_visible()
    context.close()

"""The README's picture and output block, from a real run: python tools/readme_picture.py specgauge-out

Photographs the figure "forecast against measured" of a run's report.html in Debian's Chromium (offline) into
docs/demo.png, and writes the verdict that the run prints behind the README's marker.
"""

import io
import re
import sys
from pathlib import Path

CHROMIUM = "/usr/bin/chromium"
SECTION = "#forecast-against-measured"
ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"<!-- demo -->\n## [^\n]*\n.*?(?=\n## )", re.DOTALL)


def photograph(report: Path, picture: Path) -> None:
    """One figure of the report as PNG, light, 1280 pixels wide."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light", offline=True)
        page = context.new_page()
        page.goto(report.resolve().as_uri())
        page.wait_for_selector("html[data-drawn=yes]", timeout=30_000)
        page.locator(SECTION).screenshot(path=str(picture))
        browser.close()


def verdict(out: Path) -> str:
    """What the run printed: the terminal's verdict, 80 columns, without colours."""
    from rich.console import Console

    from specgauge.calibrate.records import Recommendation, Validation
    from specgauge.profiler.files import read_record
    from specgauge.profiler.records import Profile
    from specgauge.reports.terminal import print_verdict

    sink = io.StringIO()
    print_verdict(
        Console(file=sink, width=80, color_system=None),
        read_record(out / "recommendation.json", Recommendation),
        read_record(out / "validation.json", Validation),
        read_record(out / "profile.json", Profile),
    )
    lines = [line.rstrip() for line in sink.getvalue().splitlines()]
    # The command names files of the machine that made the picture.
    return re.sub(r"(-m|-md) \S*/", r"\1 ", "\n".join(lines))


def main(out: Path) -> None:
    """Write docs/demo.png and the README's block."""
    photograph(out / "report.html", ROOT / "docs" / "demo.png")
    readme = ROOT / "README.md"
    block = (
        "<!-- demo -->\n## What the demo says\n\n"
        "The embedded demo is SmolLM2-135M-Instruct at three quantizations, its own Q4_0 copy and an n-gram rule as "
        "drafters, on one\nprocessor core. A run ended with (made by `tools/readme_picture.py`):\n\n"
        + "\n".join(f"    {line}".rstrip() for line in verdict(out).splitlines())
        + "\n\n![Forecast against measured speed, demo run](docs/demo.png)\n"
    )
    readme.write_text(BLOCK.sub(lambda _: block, readme.read_text(), count=1))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "specgauge-out"))

"""Is the report light? python benchmarks/report.py FOLDER [FOLDER...], each with the files of a run or an import.

Builds the page of each folder in a process that has imported nothing yet, opens it in Chromium, offline, until every figure is drawn, three
times each; prints size, median seconds, and figures. Exits 1 beyond 6 MB, 3 s to build or 2 s to open.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MOST_MEGABYTES, MOST_BUILD_SECONDS, MOST_OPEN_SECONDS = 6.0, 3.0, 2.0
REPEATS = 3
BUILD = """
import sys, time
from pathlib import Path
from specgauge.calibrate.records import Calibration, Recommendation, Validation
from specgauge.profiler.files import read_record
from specgauge.profiler.records import Profile
began = time.monotonic()
from specgauge.reports.page import write_report
folder, to = Path(sys.argv[1]), Path(sys.argv[2])
records = [read_record(folder / f"{name}.json", kind) for name, kind in
           (("profile", Profile), ("calibration", Calibration), ("recommendation", Recommendation))]
checked = folder / "validation.json"
write_report(to, *records, read_record(checked, Validation) if checked.exists() else None)
print(time.monotonic() - began)
"""


def built(folder: Path, page: Path) -> float:
    """Seconds from the first import of the reports to the written page."""
    done = subprocess.run([sys.executable, "-c", BUILD, str(folder), str(page)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{folder}: {done.stderr.strip().splitlines()[-1]}")
    return float(done.stdout)


def opened(browser, page: Path) -> tuple[float, int]:
    """Seconds until every figure is drawn, and how many there are."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    tab = context.new_page()
    began = time.monotonic()
    tab.goto(page.as_uri())
    tab.wait_for_selector("html[data-drawn=yes]", timeout=60_000)
    seconds, figures = time.monotonic() - began, tab.locator(".plot .main-svg").count()
    context.close()
    return seconds, figures


def main() -> int:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    asked = parser.parse_args()
    bad = 0
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as made:
        browser = playwright.chromium.launch(executable_path=asked.chromium, args=["--no-sandbox"])
        for number, folder in enumerate(asked.folders):
            page = Path(made) / f"{number}.html"
            build = statistics.median(built(folder, page) for _ in range(REPEATS))
            opens = [opened(browser, page) for _ in range(REPEATS)]
            seconds, size = statistics.median(found[0] for found in opens), page.stat().st_size / 1e6
            print(
                f"{folder}: {size:.2f} MB, built in {build:.2f} s, open in {seconds:.2f} s, {opens[0][1]} layers drawn"
            )
            bad += size > MOST_MEGABYTES or build > MOST_BUILD_SECONDS or seconds > MOST_OPEN_SECONDS
        browser.close()
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())

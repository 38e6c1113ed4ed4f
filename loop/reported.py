"""The report: report.html, and the same as markdown."""

from pathlib import Path
from typing import TYPE_CHECKING

from ..options import Common
from .documents import CALIBRATION, PROFILE, RECOMMENDATION, REPORT, VALIDATION
from .examined import Examined

if TYPE_CHECKING:
    from ..calibrate.records import Calibration, Recommendation, Validation
    from ..profiler.records import Profile
    from ..reports.page import Page


def reported_to(
    profile: "Profile",
    calibration: "Calibration",
    recommendation: "Recommendation",
    validation: "Validation | None",
    common: Common,
    seen: "Examined | None" = None,
    markdown: Path | None = None,
) -> tuple[str, ...]:
    """Write report.html, and the same as markdown to a file or, for "-", to stdout; the paths of all files that lie in the
    output folder now."""
    from ..reports.page import report_page, write_page

    found = seen or Examined()
    page = report_page(profile, calibration, recommendation, validation, found.checklist, found.diagnoses)
    write_page(common.path(REPORT), page)
    if markdown is not None:
        _write_markdown(markdown, page)
    names = (PROFILE, CALIBRATION, RECOMMENDATION, *((VALIDATION,) if validation else ()), REPORT)
    return tuple(str(common.path(name)) for name in names)


def _write_markdown(path: Path, page: "Page") -> None:
    from ..reports.markdown import markdown
    from ..reports.whole import write_whole

    if path == Path("-"):
        print(markdown(page), end="")
    else:
        write_whole(path, markdown(page), "give --markdown another file")

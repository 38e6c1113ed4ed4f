"""What `specgauge` alone says: the first step that is missing."""

from pathlib import Path

import pytest

from specgauge.reports.next_step import next_steps

ALL = ("profile.json", "recommendation.json", "validation.json", "report.html")


@pytest.mark.parametrize(
    ("has", "first"),
    [(0, "specgauge run"), (1, "specgauge recommend"), (2, "specgauge validate"), (3, "specgauge report")],
)
def test_the_first_missing_step_comes_first(has: int, first: str):
    lines = next_steps(Path("specgauge-out"), frozenset(ALL[:has]))
    commands = [line for line in lines if "specgauge " in line and line.startswith("  ")]
    assert commands[0].strip().endswith(first)
    assert len(lines) <= 10 and max(map(len, lines)) <= 80


def test_with_all_of_it_the_verdict_is_named():
    lines = next_steps(Path("specgauge-out"), frozenset(ALL))
    assert "specgauge recommend" in lines[1] and max(map(len, lines)) <= 80

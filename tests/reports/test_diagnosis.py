"""A diagnosis on the terminal: 80 columns, every cause in plain words, foreign names as they are."""

import io

import pytest
from rich.console import Console

from specgauge.calibrate.diagnose import diagnose
from specgauge.calibrate.symptoms import Neighbour, Symptoms, reported
from specgauge.reports.diagnosis import NAMES, print_diagnosis

LINEAR = reported(
    22.8,
    18.1,
    draft_tokens=4,
    tokens_per_round=3.604,
    drafter="mtp",
    neighbours=(Neighbour("draft_tokens", 2, 24.2, 2.596), Neighbour("draft_tokens", 3, 20.7, 3.157)),
)


def printed(symptoms: Symptoms) -> str:
    out = io.StringIO()
    print_diagnosis(Console(file=out, width=80), diagnose(symptoms))
    return out.getvalue()


def test_it_fits_into_80_columns():
    assert max(map(len, printed(LINEAR).splitlines())) <= 80


def test_it_says_what_how_much_what_it_gives_back_and_what_to_change():
    text = " ".join(printed(LINEAR).split())
    for part in (
        "18.1 tokens/s",
        "0.79x",
        "verification costs per token",
        "2 draft tokens (24.2 tokens/s)",
        "Gate:",
        "ms",
    ):
        assert part in text


def test_names_are_never_markup():
    assert "[red]x[/red]" in printed(reported(40.0, 20.0, draft_tokens=2, tokens_per_round=1.2, target="[red]x[/red]"))


def test_no_verdict_without_a_baseline():
    text = " ".join(printed(reported(37.0, 30.0, draft_tokens=3, baseline_measured=False)).split())
    assert "no verdict" in text and "no-paired-baseline" in text and "not known" in text


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_short_enough_for_its_column(name: str):
    assert len(NAMES[name]) <= 38

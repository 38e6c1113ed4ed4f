"""The report as markdown: every table of the page, and foreign text that stays text."""

import re

import pytest

from specgauge.reports.markdown import markdown, text
from specgauge.reports.page import Page, report_page

from .samples import Sample, sample

HOSTILE = "[x](javascript:alert(1)) <script>|`*_#@user $a$ ~~\n# head\u202e"


def page_of(records: Sample) -> Page:
    return report_page(records.profile, records.calibration, records.recommendation, records.validation)


def test_it_holds_what_the_page_holds(demo: Sample):
    page = page_of(demo)
    told = markdown(page)
    assert told.startswith("# specgauge verdict\n")
    for answer in page.answers:
        assert text(answer) in told
    for section in page.sections:
        assert f"## {text(section.title)}" in told or text(section.missing) in told
        for row in section.table.rows if section.table else ():
            assert f"| {' | '.join(text(cell) or ' ' for cell in row)} |" in told
    for command in page.commands:
        assert f"\n{command.text}\n```" in told


def test_every_table_has_one_width(demo: Sample):
    blocks = re.findall(r"(?:^\|.*\n)+", markdown(page_of(demo)), flags=re.MULTILINE)
    assert len(blocks) > 5
    for block in blocks:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1


@pytest.mark.parametrize("character", list("[](<>|`*_#@$~"))
def test_no_character_of_a_foreign_name_means_anything(character: str):
    told = text(f"a{character}b")
    assert told == f"a\\{character}b"


def test_hostile_names_open_no_line_and_no_link():
    told = markdown(page_of(sample(name=HOSTILE, workload=HOSTILE)))
    outside = re.sub(r"^(`{3,})\n.*?\n\1$", "", told, flags=re.MULTILINE | re.DOTALL)
    assert "<script" not in outside.replace("\\<script", "")
    assert not re.search(r"(?<!\\)\]\(", outside)
    assert "\n# head" not in outside


def test_a_fence_is_longer_than_any_in_the_command(demo: Sample):
    records = sample(folder="/a```b")
    told = markdown(page_of(records))
    assert "\n````\nllama-server" in told

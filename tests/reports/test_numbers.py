"""Foreign text as people read it: one line, within its length, nothing invisible in it, nothing over its neighbours."""

import unicodedata

import pytest

from specgauge.reports.numbers import plain

MARK = "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    "hidden",
    [
        "\n",
        "\x1b",
        "\u200b",
        "\u200d",
        "\u200f",
        "\u202e",
        "\u2029",
        "\u2060",
        "\u2067",
        "\ufeff",
        "\u00ad",
        "\U000e0041",
    ],
)
def test_what_cannot_be_seen_is_shown_as_such(hidden: str):
    assert plain(f"Qwen{hidden}-8B") == f"Qwen{MARK}-8B"


@pytest.mark.parametrize("name", ["模型-8B", "نموذج", "modèle", "mode\u0300le", "\N{ROCKET} 8B", "a&b <c> \"d\" 'e'"])
def test_what_people_write_stays(name: str):
    assert plain(name) == name


def test_piled_marks_stay_on_their_line():
    shown = plain("e" + "\u0301" * 50 + "x")
    assert shown == f"e{MARK}x" and not any(map(unicodedata.combining, shown))


@pytest.mark.parametrize("limit", [8, 9, 60])
def test_a_long_text_keeps_both_ends(limit: int):
    shown = plain("begin" + "y" * 10_000 + "the end", limit)
    assert len(shown) == limit and shown.startswith("begi"[: limit // 2]) and shown.endswith("end")

"""Parity on the terminal: 80 columns, the verdict first, foreign names never as markup."""

from io import StringIO

from msgspec.structs import replace
from rich.console import Console

from specgauge.profiler.engines.fake import MACHINES, FakeEngine
from specgauge.profiler.engines.fake_text import FakeText
from specgauge.profiler.outputs.equivalence import WHY
from specgauge.profiler.outputs.parity import parity
from specgauge.profiler.records import Sampling
from specgauge.reports.parity import print_parity

MACHINE = MACHINES["interior-tie"]
SETTING = MACHINE.candidates()[0].setting(4)
WARM = Sampling(temperature=0.7)


def printed(sampling=WARM, setting=SETTING, draws=30, unequal=None, **text) -> str:
    found = parity(
        FakeEngine(MACHINE, text=FakeText(**text)),
        [setting],
        MACHINE.prompts()[:4],
        sampling,
        draws=draws,
        unequal=unequal,
    )
    sink = StringIO()
    print_parity(Console(file=sink, width=80, color_system=None), found)
    return sink.getvalue()


def flat(text: str) -> str:
    return " ".join(text.split())


def test_no_line_is_wider_than_80_columns_and_the_verdict_comes_first():
    text = printed(rounding=0.1, unequal=replace(WARM, draft_sampling="probabilistic"))
    assert max(map(len, text.splitlines())) <= 80
    assert flat(text).startswith("0 of 4 greedy replies") and "as rounding does" in flat(text).split(":")[0]
    assert flat(WHY) in flat(text)


def test_a_fault_is_no_rounding_in_the_first_sentence_and_says_what_to_do():
    text = flat(printed(accepts_wrong=0.2))
    assert "what differs is no rounding." in text and "error: output-differs" in text and "Do: " in text
    assert flat(WHY) not in text


def test_settings_stand_side_by_side():
    text = flat(printed(used=(("temperature", "0.8"),)))
    assert "temperature 0.7 0.8 (differs)" in text and "draft_sampling greedy not told" in text


def test_the_law_shows_its_power_and_both_p_values():
    text = flat(printed(draws=60))
    assert "sampled at 0.7: same" in text and "would have been found in 80% of cases" in text
    assert "against the engine's own probabilities" in text


def test_a_mismatch_shows_both_sides_with_bounds():
    text = flat(printed(Sampling(), unequal=WARM))
    assert "temperature 0 -> 0.7" in text and "tokens a round" in text and "3 seeds each" in text


def test_the_same_everywhere_is_one_short_page():
    text = printed(Sampling(), draws=0)
    assert "identical" in text and "error" not in text and len(text.splitlines()) < 20


def test_an_engine_that_compares_nothing_says_why():
    text = printed(setting=replace(SETTING, target="[bold]none"), draws=0)
    assert "[bold]none" in text

"""The view of a check: the verdict first, 80 columns, what to do below each finding, foreign names as text."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from specgauge.calibrate.checks.check import check
from specgauge.calibrate.checks.memory import MemoryOptions
from specgauge.calibrate.checks.records import CheckReport, SamplingField
from specgauge.profiler.free_memory import FreeMemory
from specgauge.profiler.job import Stamp
from specgauge.profiler.pairs.engine_rules import EngineRules
from specgauge.reports.check import headline, print_check, print_sampling, shown_contexts

from ..profiler.pairs import MTP_LAYER, checkpoint, dense, hybrid, mixture, tokenizer, words

GIB = 2**30
TOKENS = tokenizer(words(1000))
TARGET = checkpoint("big", dense(8e9), TOKENS)
DRAFT = checkpoint("small", dense(0.6e9), TOKENS)
OTHER = checkpoint("other", dense(0.6e9), tokenizer(words(900, "v")), family="Llama 3", architecture="llama")
QWEN35 = checkpoint(
    "Qwen3.5-27B", hybrid(), TOKENS, architecture="qwen35", mtp_layers=1, mtp_shape=MTP_LAYER, context_length=262_144
)


def report(target=TARGET, drafts=(DRAFT,), free: float | None = 24 * GIB, engine=11_549, **options) -> CheckReport:
    memory = FreeMemory(free, 0.0, "NVIDIA GeForce RTX 3090", "driver", on_device=True)
    made = MemoryOptions(memory, host_bytes=64 * GIB, **options)
    return check(target, drafts, made, Stamp("2026-09-01T00:00:00Z", "0.0"), EngineRules(build=engine))


def printed(found: CheckReport, **console) -> str:
    out = io.StringIO()
    print_check(Console(**({"file": out, "width": 80} | console)), found)
    return out.getvalue()


CASES = {
    "good": report(),
    "bad": report(drafts=(OTHER, DRAFT)),
    "large": report(target=DRAFT, drafts=(TARGET,), streams=8, context=131_072, free=12 * GIB),
    "hybrid": report(target=QWEN35, streams=4, context=100_000, draft_tokens=16),
    "mixture": report(target=checkpoint("moe", mixture(397e9, 17e9, 512, 10), TOKENS)),
    "alone": report(drafts=()),
    "unknown": report(target=replace(TARGET, shape=None, shape_unknown="no hidden size"), free=None),
}


@pytest.mark.parametrize("case", CASES)
def test_every_line_fits_80_columns_and_the_verdict_is_first(case):
    text = printed(CASES[case])
    assert max(len(line) for line in text.splitlines()) <= 80
    assert text.startswith(headline(CASES[case])[:60])
    assert "Checklist" in text and text.count("same-tokenizer") == 1


@pytest.mark.parametrize(
    ("case", "words_"),
    [
        ("good", "The pair works; memory suffices."),
        ("bad", "1 of 2 drafts work; memory suffices."),
        ("large", "The pair works; memory does not suffice."),
        ("hybrid", "The pair works; memory does not suffice (the worst of its drafters)."),
        ("mixture", "The pair works; memory does not suffice."),
        ("alone", "No draft given; memory suffices."),
        ("unknown", "The pair works; memory is not known."),
    ],
)
def test_the_headline_is_one_sentence(case, words_):
    assert headline(CASES[case]) == words_


def test_other_headlines():
    assert headline(report(drafts=(OTHER,))).startswith("The pair cannot work;")
    assert headline(report(target=QWEN35, drafts=())).startswith("The target drafts with its own head;")
    assert headline(report(target=QWEN35, engine=8000)).startswith("The pair cannot work with this llama.cpp;")
    padded = replace(DRAFT, tokenizer=tokenizer(words(1000), rows=1100))
    assert "padding alone" in headline(report(drafts=(padded,)))
    assert headline(report(drafts=(replace(DRAFT, tokenizer=None),))).startswith("Whether the pair works is not known")


def test_findings_say_how_bad_what_and_below_it_what_to_do():
    lines = printed(CASES["bad"]).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(" ERROR"))
    rest = " ".join(line.strip() for line in lines[at:])
    assert "hold the same token, first at id 5: 'w5' against 'v5'" in rest and "[another-tokenizer]" in rest
    assert "-> take a draft of the target's own family (Qwen3)" in rest
    assert rest.index("ERROR") < rest.index("->")


def test_memory_is_told_by_term_and_the_region_marks_what_does_not_fit():
    text = printed(report(free=11 * GIB, draft_tokens=3, context=8192))
    for term in ("weights", "cache", "workspace", "runtime (estimate)", "total", "free", "to spare"):
        assert f"\n {term} " in text
    assert "11,264 MiB of NVIDIA GeForce RTX 3090, free now" in " ".join(text.split())
    rows = [line.split() for line in text.splitlines() if line.strip()[:2] in ("0 ", "3 ")]
    assert any("x" in row for row in rows) and all(row[-1].replace(",", "").isdigit() for row in rows)
    assert "missing" in printed(report(free=5 * GIB))


def test_a_region_without_anything_that_fits_is_one_line():
    text = printed(CASES["mixture"])
    assert "Not even plain decoding with a context of 2,048 fits." in text and "largest" not in text


def test_several_streams_show_what_one_alone_would_reach():
    text = " ".join(printed(report(streams=8, context=4096)).split())
    assert "for each stream" in text and "for one alone" in text


def test_the_checklist_is_read_without_colour():
    text = printed(report(drafts=(replace(DRAFT, quant="Q4_0", quant_bits=4.5),)))
    assert " FAIL draft-int8" in text and " pass same-tokenizer" in text and " ?    warmed-up" in text
    assert "\x1b" not in text


def test_no_term_of_a_draft_where_there_is_none():
    text = printed(CASES["alone"])
    assert "plain decoding" in text and "recurrent" not in text


def test_hostile_names_are_text():
    evil = "[red]x[/nope]\x1b]0;owned\x07\u202e" + "y" * 3000
    tokens = tokenizer([*words(990), *(f"[bold]{i}\x1b[2J" for i in range(10))])
    target = checkpoint(evil, dense(8e9), TOKENS, quant=evil, architecture=evil, warnings=(evil,))
    draft = checkpoint(evil, None, tokens, family=evil, shape_unknown=evil, quant=evil, quant_bits=2.0)
    text = printed(report(target=target, drafts=(draft,)))
    assert not any(mark in text for mark in ("\x1b", "\x07", "\u202e"))
    assert "[red]x" in text and max(len(line) for line in text.splitlines()) <= 80 and len(text) < 20_000


def test_few_contexts_are_shown_the_asked_and_the_longest_among_them():
    powers = [2**n for n in range(11, 18)]
    assert shown_contexts(powers[:5], 2048) == powers[:5]
    found = shown_contexts(sorted([*powers, 5000]), 5000)
    assert len(found) == 5 and {5000, powers[-1]} <= set(found) and found == sorted(found)


def test_sampling_stands_side_by_side():
    out = io.StringIO()
    fields = (
        SamplingField(name="top_k", sent="40", used="20", equal=False, where="big with small, 3 draft tokens"),
        SamplingField(name="seed", sent="1", used="1", equal=True),
        SamplingField(name="min_p", sent="0.05", used="", equal=None),
    )
    print_sampling(Console(file=out, width=80), fields)
    lines = out.getvalue().splitlines()
    assert next(line for line in lines if "top_k" in line).split()[:4] == ["top_k", "40", "20", "DIFFERS"]
    assert "equal" in next(line for line in lines if "seed" in line)
    assert "not told" in next(line for line in lines if "min_p" in line)

"""What is said of clocks, replays and random weights, on the terminal and on the page."""

import io

from msgspec.structs import replace
from rich.console import Console

from specgauge.calibrate.clocks import CLOCKS
from specgauge.calibrate.records import AcceptanceCheck, OtherClock, RoundTerm
from specgauge.reports.figures.passes import verification_cost
from specgauge.reports.figures.rounds import TERMS, round_breakdown
from specgauge.reports.page import report_page
from specgauge.reports.terminal import print_verdict
from specgauge.reports.verdict import check_text, random_text

from .samples import Sample

OTHER = OtherClock(
    clock="thread_cpu",
    mean_abs_error=0.012,
    worst_abs_error=0.031,
    coverage=0.95,
    forecast=(),
    low=(),
    high=(),
    measured=(),
    speed_up=(),
)


def facts(records: Sample) -> dict[str, str]:
    page = report_page(records.profile, records.calibration, records.recommendation, records.validation)
    return {fact.name: fact.text for fact in page.facts}


def with_other(records: Sample) -> Sample:
    return Sample(
        records.profile,
        records.calibration,
        records.recommendation,
        replace(records.validation, other_clock=OTHER),
    )


def test_the_headline_names_its_clock(demo: Sample):
    assert "at worst, by the wall clock; " in check_text(demo.validation)
    thread = replace(demo.validation, clock="thread_cpu")
    assert "at worst, by processor time of the engine's thread; " in check_text(thread)


def test_the_other_clock_stands_behind_it_where_there_is_one(demo: Sample):
    text = check_text(with_other(demo).validation)
    assert text.endswith("By processor time of the engine's thread: 1.2 % on average, 3.1 % at worst, 95 % inside.")
    assert text.index("wall clock") < text.index("processor time")
    assert "processor time" not in check_text(demo.validation)
    untested = replace(demo.validation, other_clock=replace(OTHER, mean_abs_error=None, worst_abs_error=None))
    assert check_text(untested) == check_text(demo.validation)


def test_every_clock_has_words(demo: Sample):
    texts = {check_text(replace(demo.validation, clock=clock)) for clock in CLOCKS}
    assert len(texts) == len(CLOCKS) and not any("_" in text for text in texts)


def test_a_clock_from_a_strangers_file_is_text(demo: Sample):
    text = check_text(replace(demo.validation, clock="sun\x1b[2Jdial" + "y" * 500))
    assert "\x1b" not in text and len(text) < 500


def test_the_terminal_fits_both_clocks_uncut(demo: Sample):
    out = io.StringIO()
    both = with_other(demo)
    print_verdict(Console(file=out, width=80), both.recommendation, both.validation, both.profile)
    assert check_text(both.validation) in " ".join(out.getvalue().split())


def test_the_page_says_by_which_clock_forecasts_and_runs_are(demo: Sample):
    assert facts(demo)["clock"] == "forecasts by the wall clock, runs by the wall clock"
    assert facts(with_other(demo))["clock"].endswith("beside them by processor time of the engine's thread")


def test_the_page_says_how_far_replayed_acceptance_is_from_real_rounds(demo: Sample):
    assert "acceptance by replay" not in facts(demo)
    checks = tuple(
        AcceptanceCheck(
            target="t",
            drafter="model",
            draft="d",
            workload=w,
            draft_tokens=4,
            replayed_tokens_per_round=replayed,
            measured_tokens_per_round=2.0,
            rounds=40,
        )
        for w, replayed in (("ordinary", 2.02), ("copying", 1.94))
    )
    calibration = replace(demo.calibration, acceptance_checks=checks)
    told = facts(Sample(demo.profile, calibration, demo.recommendation, demo.validation))["acceptance by replay"]
    assert (
        told
        == "2 pairs and workloads checked by 80 real rounds: tokens per round off by 2.0 % on average, -3.0 % at worst"
    )


def test_random_weights_are_said_first_everywhere(demo: Sample):
    assert random_text(demo.profile) == ""
    models = tuple(replace(m, random=place == 0) for place, m in enumerate(demo.profile.models))
    profile = replace(demo.profile, models=models)
    text = random_text(profile)
    assert text.startswith(f"Random weights ({models[0].label}): times only")
    page = report_page(profile, demo.calibration, demo.recommendation, demo.validation)
    assert page.warnings[0] == text
    out = io.StringIO()
    print_verdict(Console(file=out, width=80), demo.recommendation, demo.validation, profile)
    assert text in " ".join(out.getvalue().split())


def test_passes_of_an_engine_that_gives_all_rows_are_called_verification(demo: Sample):
    batches = tuple(replace(c, kind="batch") if c.kind == "verify" else c for c in demo.calibration.costs)
    calibration = replace(demo.calibration, costs=batches)
    told = {rows: verification_cost(calibration, rows) for rows in (False, True)}
    assert any("prompt passes" in panel.caption for panel in told[False].panels)
    assert not any("prompt passes" in panel.caption for panel in told[True].panels)
    assert any("verification" in panel.caption for panel in told[True].panels)
    assert "Every pass yields a row" in told[True].reading and "prompt passes yield one row" in told[False].reading


def test_the_terms_of_a_round_in_process_have_their_colours(demo: Sample):
    names = ("draft_catch_up", "draft_further", "verification", "overhead")
    assert all(name in TERMS for name in (*names, "draft_batch"))
    looks = [TERMS[name] for name in names]
    assert len(set(looks)) == len(looks)
    rounds = tuple(
        replace(r, terms=tuple(RoundTerm(name=name, seconds=0.01) for name in names)) for r in demo.calibration.rounds
    )
    section = round_breakdown(rounds, ())
    assert section.table is not None
    assert [column for column in section.table.columns if column.startswith("draft_")] == [
        "draft_catch_up, ms",
        "draft_further, ms",
    ]

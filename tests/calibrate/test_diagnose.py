"""Diagnosis: rows of tests/data, what holds for any symptoms, and what a record of it is."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specgauge.calibrate.causes.case import GOOD_ALPHA, Case
from specgauge.calibrate.combine import profile_of
from specgauge.calibrate.diagnose import diagnose
from specgauge.calibrate.examine import symptoms_of_rows
from specgauge.calibrate.importers.base import Given
from specgauge.calibrate.importers.detect import read_files
from specgauge.calibrate.records import Diagnosis
from specgauge.calibrate.symptoms import (
    Devices,
    Experts,
    Hardware,
    Neighbour,
    Parts,
    Pass,
    Symptoms,
    Used,
    reported,
)
from specgauge.model.reported import tokens_from_alpha
from specgauge.profiler.records import DeviceState

DATA = Path(__file__).parents[1] / "data"
FILES = (
    "rtx3090-mtp-ladder.csv",
    "rtx3090-context-ladder.csv",
    "community-3090-250w.csv",
    "community-5090-400w.csv",
    "community-m3ultra.csv",
    "community-3060-moe.csv",
)


@cache
def rows(name: str) -> dict[tuple[int, int], Diagnosis]:
    """By draft tokens and context."""
    given_ = Given()
    profile = profile_of(read_files([DATA / name], given_), (), given_, "", "")
    return {(s.draft_tokens, s.setting.context): diagnose(s) for s in symptoms_of_rows(profile)}


@pytest.mark.parametrize("length", [2, 3])
def test_56_and_67_percent_are_not_too_little_on_a_3090(length: int):
    found = rows("rtx3090-mtp-ladder.csv")[length, 0]
    assert found.verdict == "faster" and (found.speed_up or 0) > 1.5
    assert "acceptance-below-break-even" not in [cause.id for cause in found.causes]
    assert found.causes[0].id in ("no-cause", "draft-length-too-deep")


def test_three_draft_tokens_on_a_3090_are_one_too_many():
    first = rows("rtx3090-mtp-ladder.csv")[3, 0].causes[0]
    assert first.id == "draft-length-too-deep" and first.tokens_per_second == 66.03 and first.change == "draft_tokens 2"


def test_65_percent_lose_on_an_m3_ultra_because_verification_is_linear():
    found = rows("community-m3ultra.csv")[4, 0]
    first = found.causes[0]
    assert found.verdict == "slower" and first.id == "verification-linear-in-width"
    assert "2 draft tokens (24.2 tokens/s)" in first.change
    # 3.604 / 18.1 s less a plain step of 1/22.8 s, less what four tokens cost on a card that batches
    assert first.seconds_per_round == pytest.approx(3.604 / 18.1 - 2 / 22.8, rel=0.03)
    assert any("60 % says speculate, wrongly" in text for text in found.gate)


def test_the_marginal_cost_that_is_named_is_the_slope_of_the_measured_rounds():
    found = rows("community-m3ultra.csv")[4, 0]
    slope = (3.604 / 18.1 - 2.596 / 24.2) / 2 * 22.8
    named = next(text for text in found.gate if "first drafted token" in text)
    assert abs(float(named.split("drafted token costs on average, ")[1].split()[0]) - slope) < 0.2


@pytest.mark.parametrize("name", FILES)
def test_no_public_row_that_gains_is_blamed_on_acceptance(name: str):
    for found in rows(name).values():
        ids = [cause.id for cause in found.causes]
        assert ids and len(set(ids)) == len(ids)
        if found.verdict == "faster":
            assert "acceptance-below-break-even" not in ids and "too-many-streams" not in ids


def test_a_filled_context_is_named_and_costs_what_it_costs():
    found = rows("rtx3090-context-ladder.csv")[2, 98304]
    first = found.causes[0]
    assert first.id == "context-growth"
    assert first.seconds_per_round == pytest.approx(2.239 / 40.0 - 2.178 / 58.1, rel=1e-6)


def test_a_draft_that_is_wrong_loses_by_its_acceptance_and_by_nothing_else():
    """A card as a 3090 (0.25 plain steps a token), tokens accepted with a chance of 0.2: by hand."""
    tokens, seconds = tokens_from_alpha(0.2, 4), (1 + 4 * 0.25) / 40
    found = diagnose(reported(40.0, tokens / seconds, draft_tokens=4, tokens_per_round=tokens, drafter="mtp"))
    assert [cause.id for cause in found.causes] == ["acceptance-below-break-even"]
    good = tokens_from_alpha(GOOD_ALPHA, 4)
    assert found.causes[0].tokens_per_second == pytest.approx(good / seconds)
    assert found.causes[0].seconds_per_round == pytest.approx(seconds * (1 - tokens / good))


@pytest.mark.parametrize("alpha", [0.8, 0.9, 0.99])
@pytest.mark.parametrize("slope", [0.55, 0.8, 1.2])
def test_good_drafts_that_lose_are_never_told_to_be_wrong(alpha: float, slope: float):
    """Whatever the cost of verification: with good acceptance it is the cost that is named first."""
    tokens, seconds = tokens_from_alpha(alpha, 6), (1 + 6 * slope) / 40
    found = diagnose(reported(40.0, tokens / seconds, draft_tokens=6, tokens_per_round=tokens, drafter="mtp"))
    assert found.causes[0].id == "verification-linear-in-width"


def test_a_switch_that_pays_is_no_cause():
    """Passes of nine cost twice those of eight, but the tokens behind are nearly all accepted."""
    passes = tuple(Pass(w, (20 + (w - 1) + (22 if w > 8 else 0)) / 1e3) for w in range(1, 18))
    survival = tuple(0.99**j for j in range(1, 17))
    seconds = passes[16].seconds
    found = diagnose(
        reported(
            50.0,
            (1 + sum(survival)) / seconds,
            draft_tokens=16,
            tokens_per_round=1 + sum(survival),
            survival=survival,
            passes=passes,
            drafter="mtp",
        )
    )
    assert "kernel-switch" not in [cause.id for cause in found.causes]


def test_a_switch_just_passed_names_the_last_length_before_it():
    passes = tuple(Pass(w, (20 + (w - 1) + (22 if w > 8 else 0)) / 1e3) for w in range(1, 10))
    survival = tuple(0.7**j for j in range(1, 9))
    seconds = passes[8].seconds
    found = diagnose(
        reported(
            50.0,
            (1 + sum(survival)) / seconds,
            draft_tokens=8,
            tokens_per_round=1 + sum(survival),
            survival=survival,
            passes=passes,
            drafter="mtp",
        )
    )
    first = found.causes[0]
    assert first.id == "kernel-switch" and "draft_tokens 7" in first.change
    assert first.seconds_per_round == pytest.approx(22e-3)


def test_noise_is_no_cause():
    found = diagnose(reported(40.0, 39.6, draft_tokens=1, tokens_per_round=1.3, drafter="mtp"))
    assert found.verdict == "even" and found.causes[0].id == "no-cause"


def test_equal_settings_spelled_otherwise_are_equal():
    used = (
        Used("temperature", "0.7", "0.699999988"),
        Used("top_k", "40", "40"),
        Used("draft_sampling", "Greedy", "greedy"),
    )
    assert Symptoms(reported(1.0, 1.0, draft_tokens=1).setting, 1.0, used=used).differing() == ()


def test_a_diagnosis_is_stored_and_read():
    found = rows("community-m3ultra.csv")[4, 0]
    assert msgspec.json.decode(msgspec.json.encode(found), type=Diagnosis) == found


def test_what_is_unit_less_stays_when_the_clock_runs_slower():
    """All seconds doubled: the same causes, twice the milliseconds (no draft model: its launches are absolute)."""
    one = reported(
        22.8,
        18.1,
        draft_tokens=4,
        tokens_per_round=3.604,
        drafter="mtp",
        neighbours=(Neighbour("draft_tokens", 2, 24.2, 2.596), Neighbour("draft_tokens", 3, 20.7, 3.157)),
    )
    slower = replace(
        one,
        tokens_per_second=one.tokens_per_second / 2,
        plain_tokens_per_second=11.4,
        neighbours=tuple(replace(n, tokens_per_second=n.tokens_per_second / 2) for n in one.neighbours),
    )
    first, second = diagnose(one), diagnose(slower)
    assert [c.id for c in first.causes] == [c.id for c in second.causes]
    for a, b in zip(first.causes, second.causes, strict=True):
        assert b.seconds_per_round == pytest.approx(2 * (a.seconds_per_round or 0))


speeds = st.floats(0.5, 500.0)
states = st.builds(
    DeviceState,
    clock_mhz=st.none() | st.floats(200, 3000),
    power_watts=st.none() | st.floats(10, 600),
    pcie_rx_bytes_per_second=st.none() | st.floats(0, 30e9),
    memory_free_bytes=st.none() | st.integers(0, 1 << 35),
    event_reasons=st.just(()) | st.just(("SwPowerCap",)),
)


@st.composite
def any_symptoms(draw: st.DrawFn) -> Symptoms:
    """Whatever a report may hold, contradictions included."""
    length = draw(st.integers(1, 16))
    some = st.none() | st.floats(1e-4, 0.5)
    neighbours = st.builds(
        Neighbour,
        st.sampled_from(
            ["draft_tokens", "context", "streams", "power_limit_watts", "build", "workload", "temperature"]
        ),
        st.integers(1, 20),
        speeds,
        st.none() | st.floats(1.0, 17.0),
        st.none() | st.floats(1e-3, 1.0),
        st.booleans(),
    )
    widths = sorted(draw(st.sets(st.integers(1, 17), max_size=6)))
    return reported(
        draw(st.none() | speeds),
        draw(speeds),
        draft_tokens=length,
        drafter=draw(st.sampled_from(["model", "ngram", "mtp"])),
        streams=draw(st.integers(1, 8)),
        tokens_per_round=draw(st.none() | st.floats(1.0, length + 1.0)),
        parts=Parts(
            draw(some),
            draw(st.none() | st.floats(0, 20)),
            0.0,
            draw(some),
            draw(some),
            draw(st.just(0.0) | st.floats(0, 1)),
        ),
        passes=tuple(Pass(width, draw(st.floats(1e-3, 1.0))) for width in widths),
        neighbours=tuple(draw(st.lists(neighbours, max_size=4))),
        experts=draw(st.none() | st.just(Experts(128, 8)) | st.just(Experts(64, 6, 0.5))),
        hardware=Hardware(
            target_bytes=draw(st.none() | st.floats(1e8, 1e11)),
            draft_bytes=draw(st.none() | st.floats(1e7, 1e11)),
            bandwidth=draw(st.none() | st.floats(1e10, 3e12)),
            gpu=draw(st.booleans()),
            layers=draw(st.none() | st.integers(1, 80)),
            layers_on_device=draw(st.none() | st.integers(0, 80)),
            draft_on_device=draw(st.none() | st.booleans()),
        ),
        devices=Devices(tuple(draw(st.lists(states, max_size=2))), tuple(draw(st.lists(states, max_size=2)))),
        used=draw(st.just(()) | st.just((Used("speculative.n_max", "4", "1"), Used("draft.temperature", "0", "0.8")))),
        warm_tokens_per_second=draw(st.none() | speeds),
        baseline_measured=draw(st.booleans()),
    )


@settings(max_examples=300, deadline=None, derandomize=True)
@given(any_symptoms())
def test_any_figures_get_an_answer_that_agrees_with_itself(symptoms: Symptoms):
    found = diagnose(symptoms)
    assert found.causes
    known = [cause.seconds_per_round for cause in found.causes if cause.seconds_per_round is not None]
    assert known == sorted(known, reverse=True)
    assert all(0 <= seconds <= found.round_seconds * (1 + 1e-9) for seconds in known)
    passes = [c.seconds_per_round or 0.0 for c in found.causes if c.account in ("draft", "verification", "overhead")]
    assert sum(passes) <= found.round_seconds * (1 + 1e-9)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Diagnosis) == found


@settings(max_examples=200, deadline=None, derandomize=True)
@given(any_symptoms())
def test_the_accounts_of_a_round_are_the_round(symptoms: Symptoms):
    case = Case(symptoms)
    parts = case.draft + case.growth + case.overhead + case.rollback
    assert min(case.draft, case.growth, case.overhead) >= 0
    assert parts <= max(case.seconds - (case.plain or 0.0), 0.0) * (1 + 1e-9) + 1e-12


def test_a_copy_of_the_target_is_no_swap_of_roles():
    found = diagnose(
        reported(
            130.0,
            60.0,
            draft_tokens=4,
            accepted_share=0.9,
            hardware=Hardware(target_bytes=91.7e6, active_bytes=90e6, draft_bytes=91.7e6, bandwidth=20e9, gpu=False),
        )
    )
    assert "swapped-roles" not in {cause.id for cause in found.causes}

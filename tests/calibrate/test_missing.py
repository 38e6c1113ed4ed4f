"""The likeliest missing term, on machines that changed in exactly one way between profile and validation."""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from specgauge.calibrate import arms, fit, plan, recommend, validate
from specgauge.calibrate.fit import Calibrated
from specgauge.calibrate.missing import Clue, missing_term
from specgauge.calibrate.records import Recommendation, Validation
from specgauge.profiler import protocol
from specgauge.profiler.engines import fake
from specgauge.profiler.engines.fake import FakeEngine, FakeMachine
from specgauge.profiler.engines.fake_machine import Agreement, Segment, StepCurve
from specgauge.profiler.records import Profile
from specgauge.profiler.session import Session

BASE = fake.MACHINES["interior-tie"]
REPEATS = 3


@dataclass(frozen=True)
class Profiled:
    """The base machine, as it was profiled."""

    profile: Profile
    calibrated: Calibrated
    recommendation: Recommendation


@cache
def profiled() -> Profiled:
    blank, prompts, engine = fake.demo(BASE, 1)
    with TemporaryDirectory() as folder:
        session = Session(engine, blank, Path(folder) / "profile.json", prompts, clock=engine.clock)
        while requests := (found := plan.next_requests(session.profile)).requests:
            session.perform(requests)
        profile = session.finish(found.dropped)
    calibrated = fit.calibrate(profile)
    stamps = dict.fromkeys(("profile_sha256", "calibration_sha256", "created", "tool_version", "command"), "")
    return Profiled(profile, calibrated, recommend.recommend(profile, calibrated, **stamps))


def validated_on(machine: FakeMachine, seed: int = 5) -> Validation:
    """What was forecast for the base machine, run on `machine`."""
    known, engine, prompts = profiled(), FakeEngine(machine, seed), list(machine.prompts())
    settings = arms.settings_to_run(known.profile, known.recommendation)
    runs = protocol.interleaved_runs(engine, settings, prompts, known.profile.sampling, REPEATS, at=engine.clock)
    samples = [
        sample
        for request in arms.check_requests(known.profile, settings)
        for sample in protocol.execute(engine, request, known.profile, prompts, engine.clock).rounds
    ]
    session = validate.Session(
        calibration_sha256="",
        created="",
        tool_version="",
        validation_seconds=1.0,
        start_seconds=1.0,
        reference_sentinel_seconds=known.calibrated.drift.reference_seconds,
    )
    return validate.validation(known.profile, known.calibrated, known.recommendation, runs, samples, session)


def with_curve(change) -> FakeMachine:
    """The base machine, the curve of every target changed."""
    targets = tuple(replace(target, curve=change(target.curve)) for target in BASE.targets)
    return replace(BASE, targets=targets)


def wider_is_slower(curve: StepCurve) -> StepCurve:
    (first,) = curve.segments
    slow = Segment(5, 1.35 * first.base_seconds, 1.35 * first.per_token_seconds)
    return StepCurve((first, slow), curve.per_context_token_seconds)


def all_slower(machine: FakeMachine, factor: float) -> FakeMachine:
    def slower(curve: StepCurve) -> StepCurve:
        segments = tuple(
            replace(s, base_seconds=s.base_seconds * factor, per_token_seconds=s.per_token_seconds * factor)
            for s in curve.segments
        )
        return StepCurve(segments, curve.per_context_token_seconds * factor)

    targets = tuple(replace(target, curve=slower(target.curve)) for target in machine.targets)
    scaled = {
        name: getattr(machine, name) * factor
        for name in ("overhead_seconds", "overhead_per_token_seconds", "ngram_overhead_seconds")
    }
    return replace(machine, targets=targets, draft=replace(machine.draft, curve=slower(machine.draft.curve)), **scaled)


LESS_AGREEMENT = replace(
    BASE, workloads=tuple(replace(w, agreement=Agreement(1.2, 1.4, w.agreement.stretch_tokens)) for w in BASE.workloads)
)
FAULTS = {
    "acceptance": LESS_AGREEMENT,
    "verification": with_curve(wider_is_slower),
    "fixed overhead": replace(BASE, overhead_seconds=BASE.overhead_seconds + 6e-3),
    "overhead per token": replace(BASE, overhead_per_token_seconds=BASE.overhead_per_token_seconds + 1.5e-3),
    "context slope": with_curve(lambda curve: replace(curve, per_context_token_seconds=20e-6)),
    "drift": all_slower(BASE, 1.25),
}


@pytest.mark.parametrize("seed", [5, 6])
@pytest.mark.parametrize("term", FAULTS)
def test_the_term_that_was_changed_is_named(term: str, seed: int):
    found = validated_on(FAULTS[term], seed)
    assert found.likeliest_missing_term == term, found.missing_term_text
    assert found.missing_term_share and found.missing_term_share > 0.7
    assert found.missing_term_text.startswith(term)


@pytest.mark.parametrize("seed", [5, 6, 7])
def test_noise_names_no_term(seed: int):
    found = validated_on(BASE, seed)
    assert (found.likeliest_missing_term, found.missing_term_share) == ("none", None)
    assert "within what the intervals allow" in found.missing_term_text


# --- on paper


def clue(drafter: str = "model", width: int = 5, log_error: float = 0.0, **changes: float) -> Clue:
    """A round of 10 ms and 5 ms a drafted token behind 200 tokens of context."""
    known = Clue(
        drafter=drafter,
        log_error=log_error,
        log_sd=0.02,
        round_seconds=0.010 + 0.005 * (width - 1),
        plain_seconds=0.010,
        verification_seconds=0.010,
        drafted=width - 1,
        width=width,
        context=200.0,
    )
    return replace(known, **changes)


def test_the_overhead_that_is_missing_is_said_in_milliseconds():
    clues = [clue(width=w, log_error=0.002 / (0.010 + 0.005 * (w - 1))) for w in range(2, 10)]
    found = missing_term(clues)
    assert found.name == "fixed overhead" and found.share == pytest.approx(1)
    assert "2.00 ms more" in found.text


def test_one_drafters_overhead_is_not_blamed_on_the_other():
    clues = [clue(width=w, log_error=0.004 / (0.010 + 0.005 * (w - 1))) for w in range(2, 10)]
    clues += [clue("ngram", width=w) for w in range(4, 10)]
    found = missing_term(clues)
    assert found.name == "fixed overhead" and "draft model" in found.text


def test_errors_of_no_pattern_name_no_single_term():
    rng = np.random.default_rng(8)
    clues = [clue(width=2 + i % 8, log_error=float(e)) for i, e in enumerate(0.1 * rng.standard_normal(60))]
    found = missing_term(clues)
    assert found.name == "none" and not found.text.startswith("fixed")


def test_nothing_to_go_by_names_nothing():
    assert missing_term([]).name == "none"

"""Spread of single replies: quantiles on paper, when there is none, and against runs of a machine of known truth."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from specgauge.calibrate import fit, plan, spread
from specgauge.calibrate.replies import WorkloadReplies
from specgauge.profiler.engines import fake
from specgauge.profiler.engines.fake import FakeEngine
from specgauge.profiler.records import MatchTrace, Sampling, Setting
from specgauge.profiler.session import Session
from specgauge.profiler.workloads import PromptText

from .test_validate import MODEL_4, PLAIN, profile_with


def test_without_noise_the_quantiles_are_those_of_the_prompts():
    speeds = np.linspace(50, 150, 101)
    found = spread.spread_of(speeds, 0.0)
    assert (found.low, found.median, found.high) == pytest.approx((55, 100, 145), abs=0.05)


def test_noise_alone_spreads_one_prompt_as_it_should():
    """Log-normal of 10 %: 5 and 95 % at 1.645 standard deviations."""
    found = spread.spread_of(np.array([100.0]), 0.10)
    assert found.median == pytest.approx(100)
    assert np.log(found.high / 100) == pytest.approx(0.1645, rel=0.05)
    assert np.log(100 / found.low) == pytest.approx(0.1645, rel=0.05)


@pytest.mark.parametrize("source", ["survival", "reported", "given"])
def test_acceptance_known_as_chances_gives_none(source: str):
    assert not spread.known_by_reply(profile_with(MODEL_4), MODEL_4, WorkloadReplies((), (), source))


def test_borrowed_acceptance_gives_none_and_own_rounds_do():
    profile = profile_with(MODEL_4)
    own = WorkloadReplies((), (), "rounds")
    assert spread.known_by_reply(profile, MODEL_4, own)
    assert spread.known_by_reply(profile, PLAIN, dataclasses.replace(own, source="plain"))
    assert not spread.known_by_reply(profile, MODEL_4, dataclasses.replace(own, borrowed_from="other"))


def test_acceptance_of_sampled_text_gives_none():
    """A chance at every position: a prompt's mean says too little of one reply."""
    profile = profile_with(MODEL_4)
    trace = MatchTrace(
        target="t",
        drafter="model",
        draft="d",
        prompt=profile.prompts[0],
        prompt_tokens=20,
        reply_tokens=3,
        weight=(0.5, 0.7),
        source="teacher-forced",
    )
    measured = replace(profile.measurements[0], matches=(trace,))
    found = WorkloadReplies((), (), "matches")
    assert spread.known_by_reply(profile, MODEL_4, found)
    assert not spread.known_by_reply(replace(profile, measurements=(measured,)), MODEL_4, found)


def test_replies_of_a_machine_of_known_truth_lie_where_they_were_forecast(tmp_path: Path):
    """Nine in ten of them between the bounds, and quantiles within 8 %, plain or drafting, on prompts that differ a lot."""
    blank, prompts, engine = fake.demo(fake.MACHINES["interior-tie"], 1)
    session = Session(engine, blank, tmp_path / "profile.json", prompts, clock=engine.clock)
    while requests := (found := plan.next_requests(session.profile)).requests:
        session.perform(requests)
    profile = session.finish(found.dropped)
    calibrated = fit.calibrate(profile, replicates=20)
    candidates = {candidate.drafter: candidate for candidate in profile.candidates if candidate.target == "target-q4"}
    for setting in (candidates["model"].setting(0), candidates["model"].setting(5), candidates["ngram"].setting(6)):
        told = calibrated.reply_spread(setting, "copying")
        assert told is not None
        speeds = _speeds(engine, prompts, setting)
        inside = np.mean((speeds >= told.low) & (speeds <= told.high))
        assert 0.8 <= inside <= 1.0
        assert np.quantile(speeds, spread.QUANTILES) == pytest.approx([told.low, told.median, told.high], rel=0.08)


def _speeds(engine: FakeEngine, prompts: list[PromptText], setting: Setting) -> np.ndarray:
    runs = [engine.run(setting, prompt, Sampling()) for _ in range(4) for prompt in prompts]
    return np.array([(r.reply_tokens - 1) / r.decode_seconds for r in runs if r.prompt.workload == "copying"])

"""Spread of single replies: quantiles on paper, when there is none, and against runs of a machine of known truth."""

import dataclasses

import numpy as np
import pytest

from specgauge.calibrate import spread
from specgauge.calibrate.replies import WorkloadReplies

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

"""The mix: time for a token of it, shares of the user's prompts, and what is recommended for it."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from msgspec.structs import replace

from specgauge.calibrate import fit, plan
from specgauge.calibrate.mix import EQUAL, mix_prefix, mix_words, mixed
from specgauge.calibrate.recommend import recommend
from specgauge.calibrate.records import Recommendation
from specgauge.profiler.engines import fake
from specgauge.profiler.records import Profile
from specgauge.profiler.session import Session


def test_the_mix_is_tokens_over_their_seconds():
    fast, slow = np.array([100.0, 90.0]), np.array([20.0, 25.0])
    seconds = 70 / fast + 30 / slow
    assert mixed([fast, slow], ["code", "chat"], {"code": 0.7, "chat": 0.3}) == pytest.approx(100 / seconds)
    assert mixed([fast, slow], ["code", "chat"], {}) == pytest.approx(2 / (1 / fast + 1 / slow))
    assert mixed([fast], ["code"], {"code": 0.7, "chat": 0.3}) is fast


def test_the_mix_in_words():
    assert mix_words({}) == mix_words({"prompts": 1.0}) == EQUAL
    assert mix_words({"chat": 0.3, "code": 0.7}) == "in the shares of your prompts: 70 % code, 30 % chat"
    assert mix_prefix({"prompts": 1.0}) == "all workloads in equal shares: "
    assert mix_prefix({"a": 0.5, "b": 0.5}) == "all workloads in the shares of your prompts: 50 % a, 50 % b; "
    assert mix_words({"a": 0.999, "b": 0.001}).endswith("100 % a, below 1 % b")


@cache
def profiled(name: str) -> Profile:
    blank, prompts, engine = fake.demo(name)
    with TemporaryDirectory() as folder:
        session = Session(engine, blank, Path(folder) / "profile.json", prompts)
        while requests := plan.next_requests(session.profile).requests:
            session.perform(requests)
        return session.finish(plan.next_requests(session.profile).dropped)


def advised(profile: Profile) -> Recommendation:
    blank = dict.fromkeys(("profile_sha256", "calibration_sha256", "created", "tool_version", "command"), "")
    return recommend(profile, fit.calibrate(profile, replicates=30), **blank)


def test_advice_for_the_mix_goes_with_its_shares():
    """Nearly all of one workload: what is advised for the mix is what is advised for that one, at its speed."""
    profile = profiled("interior-tie")
    names = list(dict.fromkeys(prompt.workload for prompt in profile.prompts))
    assert len(names) > 1
    for most in names:
        shares = {name: 0.998 if name == most else 0.002 / (len(names) - 1) for name in names}
        found = advised(replace(profile, workload_shares=shares))
        alone = next(advice for advice in found.workloads if advice.workload == most)
        assert found.chosen == alone.chosen
        assert found.forecast_tokens_per_second.value == pytest.approx(alone.forecast_tokens_per_second.value, rel=0.01)
        assert found.workload_shares == shares
    equal = advised(profile)
    assert equal.workload_shares == {}
    same = advised(replace(profile, workload_shares={name: 1 / len(names) for name in names}))
    assert same.forecast_tokens_per_second.value == pytest.approx(equal.forecast_tokens_per_second.value)


def test_shares_have_to_be_those_of_the_prompts():
    profile = profiled("interior-tie")
    name = profile.prompts[0].workload
    for shares in ({name: 1.0}, {**{p.workload: 0.4 for p in profile.prompts}}, {"other": 1.0}):
        with pytest.raises(ValueError, match="workload_shares"):
            replace(profile, workload_shares=shares)

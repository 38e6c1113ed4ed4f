"""A profile in little time: it ends in time, what it says still covers the truth, and what it left out is named."""

import importlib.util
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from specgauge.calibrate import budget, fit, plan
from specgauge.calibrate.intervals import percentile_interval
from specgauge.calibrate.plan import candidate_name
from specgauge.calibrate.recommend import recommend
from specgauge.profiler.engines import fake
from specgauge.profiler.engines.fake import FakeEngine
from specgauge.profiler.engines.fake_machine import FakeMachine
from specgauge.profiler.protocol import execute
from specgauge.profiler.records import Measurement, Profile, Setting
from specgauge.reports.commands import chosen_setting

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "choosing.py"
SECONDS = 150.0
MACHINES = 14


@cache
def choosing():
    """benchmarks/choosing.py, which draws machines."""
    spec = importlib.util.spec_from_file_location("choosing", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measured(machine: FakeMachine | str, seed: int, seconds: float, profile: Profile | None = None) -> Profile:
    """The profile within `seconds`, or by the whole plan where they are 0; on from `profile`, where there is one."""
    blank, prompts, engine = fake.demo(machine, seed)
    found = blank if profile is None else replace(profile, dropped={}, unmeasured={})
    earlier = found.profile_seconds

    def spent() -> float:
        return earlier + engine.clock()

    def next_ones() -> budget.Within | plan.Plan:
        return budget.next_within(found, seconds - spent()) if seconds else plan.next_requests(found)

    step = next_ones()
    while step.requests:
        for request in step.requests:
            done = execute(engine, request, found, prompts, spent)
            found = replace(found, measurements=(*found.measurements, done), profile_seconds=spent())
        step = next_ones()
    unmeasured = step.unmeasured if isinstance(step, budget.Within) else {}
    return replace(found, dropped=step.dropped, unmeasured=unmeasured, complete=True)


def bounds(machine: FakeMachine, profile: Profile, seed: int) -> list[tuple[Setting, str, float, float, float]]:
    """Setting, workload, low, true and high speed of every setting that can be forecast, for the profile's own prompts."""
    calibrated = fit.calibrate(profile, seed=seed, replicates=200, resample_prompts=False)
    found = []
    for setting in machine.settings():
        for workload in calibrated.workloads():
            try:
                drawn = calibrated.speeds(setting, workload)
            except fit.NotCalibrated:
                continue
            interval = percentile_interval(drawn, 0.95)
            found.append((setting, workload, interval.low, machine.true_speed(setting, workload), interval.high))
    return found


@cache
def machine_of(number: int) -> FakeMachine:
    return choosing().random_machine(number)


@cache
def short(number: int) -> Profile:
    """Within a third of what the whole plan takes."""
    return measured(machine_of(number), number, short_seconds(number))


@cache
def whole(number: int) -> Profile:
    return measured(machine_of(number), number, 0.0)


def short_seconds(number: int) -> float:
    return 0.45 * whole(number).profile_seconds


@pytest.mark.slow
def test_a_short_profile_ends_in_time_on_every_machine():
    for number in range(MACHINES):
        assert 0 < short(number).profile_seconds <= short_seconds(number)


@pytest.mark.slow
def test_its_intervals_cover_the_true_speeds_and_are_wider():
    inside, wider = [], []
    for number in range(MACHINES):
        machine = machine_of(number)
        long = {(s, w): high / low for s, w, low, _, high in bounds(machine, whole(number), number)}
        for setting, workload, low, true, high in bounds(machine, short(number), number):
            inside.append(low <= true <= high)
            if (setting, workload) in long:
                wider.append(np.log(high / low) / np.log(long[setting, workload]))
    assert len(inside) >= 60 * MACHINES
    assert np.mean(inside) >= 0.90
    assert np.median(wider) > 1.1


@pytest.mark.slow
def test_it_chooses_nearly_as_well():
    regret = []
    for number in range(MACHINES):
        machine, profile = machine_of(number), short(number)
        advice = recommend(
            profile,
            fit.calibrate(profile, seed=number),
            profile_sha256="",
            calibration_sha256="",
            created="",
            tool_version="",
            command="",
        )
        for item in advice.workloads:
            speeds = {s: machine.true_speed(s, item.workload) for s in machine.settings()}
            regret.append(1 - speeds[chosen_setting(profile, item.chosen)] / max(speeds.values()))
    assert np.median(regret) <= 0.01 and np.quantile(regret, 0.9) <= 0.06


def test_costs_come_before_acceptance_and_acceptance_once_for_each_workload():
    profile = measured("interior-tie", 1, 300.0)
    actions = [m.request.action for m in profile.measurements]
    assert actions[:3] == ["steps", "steps", "runs"]
    assert "bandwidth" not in actions and actions.index("verify") < actions.index("trace")
    sparse = [m.request.widths for m in profile.measurements if m.request.action == "steps"]
    assert max(map(len, sparse)) <= len(budget.SPARSE_WIDTHS) < len(plan.WIDTHS)
    asked = [
        (m.request.settings[0].target, m.request.settings[0].draft, m.request.workloads)
        for m in profile.measurements
        if m.request.action == "trace" and m.request.settings[0].drafter == "model"
    ]
    assert asked and len(asked) == len(set(asked)) and all(len(workloads) == 1 for _, _, workloads in asked)


def test_what_lies_wholly_below_is_dropped_with_both_intervals_and_the_rest_says_what_would_settle_it():
    profile = measured("interior-tie", 1, 200.0)
    machine = fake.MACHINES["interior-tie"]
    assert profile.dropped and profile.unmeasured
    assert not set(profile.dropped) & set(profile.unmeasured)
    best = {w.name: max(machine.true_speed(s, w.name) for s in machine.settings()) for w in machine.workloads}
    for name, reason in profile.dropped.items():
        assert reason.count("wholly below") == 2 and "tokens/s" in reason
        (candidate,) = [c for c in profile.candidates if candidate_name(c) == name]
        assert all(
            machine.true_speed(candidate.setting(g), workload) < speed
            for g in candidate.draft_tokens
            for workload, speed in best.items()
        )
    assert all(text.endswith(" s") and "about" in text for text in profile.unmeasured.values())


def test_a_larger_budget_goes_on_from_a_smaller_one_and_measures_nothing_twice():
    first = measured("interior-tie", 1, 160.0)
    more = measured("interior-tie", 1, 320.0, first)
    assert more.measurements[: len(first.measurements)] == first.measurements
    digests = [m.digest for m in more.measurements]
    assert len(digests) > len(first.measurements) and len(set(digests)) == len(digests)
    assert first.profile_seconds < more.profile_seconds <= 320.0


def test_a_budget_below_the_baseline_names_the_least_that_would_do():
    blank, _, _ = fake.demo("interior-tie")
    least = budget.next_within(blank, 1.0).least_seconds
    assert least is not None and least > 1.0
    assert budget.next_within(blank, least).requests
    known = measured("interior-tie", 1, 300.0).measurements[:2]
    begun = replace(blank, measurements=known, profile_seconds=9.0)
    stated = budget.next_within(begun, 20.0)
    assert not stated.requests and stated.least_seconds is not None and 60 < stated.least_seconds < 120


def test_an_engine_that_can_do_nothing_ends_it_too():
    profile, _, _ = fake.demo("interior-tie")
    for _ in range(200):
        requests = budget.next_within(profile, 1e6).requests
        if not requests:
            break
        refused = [
            Measurement(request=r, digest=r.digest(), started_at_seconds=0.0, wall_seconds=0.0, unsupported="no")
            for r in requests
        ]
        profile = replace(profile, measurements=(*profile.measurements, *refused))
    assert budget.next_within(profile, 1e6).requests == ()


@pytest.mark.parametrize(
    "name",
    [
        "no-rollback",
        pytest.param("in-process", marks=pytest.mark.slow),
        "loses-at-90",
        pytest.param("kernel-switch", marks=pytest.mark.slow),
    ],
)
def test_every_kind_of_engine_is_answered_in_time(name: str):
    limit = 400.0
    profile = measured(name, 1, limit)
    assert profile.profile_seconds <= limit
    calibrated = fit.calibrate(profile, replicates=50)
    drafting = [c for c in profile.candidates if candidate_name(c) not in profile.dropped]
    if name == "loses-at-90":
        assert not drafting and all(reason for reason in profile.dropped.values())
        return
    assert any(calibrated.speeds(c.setting(max(c.draft_tokens)), "copying")[0] > 0 for c in drafting)


@pytest.mark.slow
def test_the_engine_is_not_asked_to_load_what_was_not_planned():
    """Two sessions over one engine give the same requests: the plan is a function of the evidence."""
    one, two = (measured("interior-tie", 1, 250.0) for _ in range(2))
    assert [m.digest for m in one.measurements] == [m.digest for m in two.measurements]
    assert isinstance(fake.demo("interior-tie")[2], FakeEngine)

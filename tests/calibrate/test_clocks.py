"""Two clocks: what other processes take is in wall time and not in the thread's; no number mixes the two."""

from collections.abc import Sequence
from dataclasses import replace as changed
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from msgspec.structs import replace

from specgauge.calibrate import clocks, fit, plan, recommend, validate
from specgauge.calibrate.clocks import THREAD, WALL, NoThreadTimes, on_clock
from specgauge.calibrate.fit import Calibrated, NotCalibrated
from specgauge.calibrate.records import Calibration, Recommendation, Validation
from specgauge.profiler.engines import fake
from specgauge.profiler.engines.fake_machine import FakeMachine, ThreadClock
from specgauge.profiler.files import read_record, write_record
from specgauge.profiler.protocol import interleaved_runs
from specgauge.profiler.records import Measurement, Profile, ReportedRow, Request, Run, Setting
from specgauge.profiler.session import Session

SHARE, THREAD_NOISE = 0.9, 0.004
BUSY = changed(
    fake.MACHINES["in-process"],
    noise=0.08,
    drift=0.25,
    drift_period_seconds=37.0,
    thread_clock=ThreadClock(SHARE, THREAD_NOISE),
    model_lengths=(1, 2, 3, 4, 5, 6, 7, 8),
)
"""Other processes take a quarter of the time in spells, and hiccups beside; the thread's clock sees none of it."""


@cache
def busy() -> tuple[Profile, fake.FakeEngine]:
    blank, prompts, engine = fake.demo(BUSY)
    with TemporaryDirectory() as folder:
        session = Session(engine, blank, Path(folder) / "profile.json", prompts, clock=engine.clock)
        while requests := (found := plan.next_requests(session.profile)).requests:
            session.perform(requests)
        return session.finish(found.dropped), engine


@cache
def calibrated(clock: str) -> Calibrated:
    return fit.calibrate(busy()[0], replicates=100, clock=clock)


def settings_of(machine: FakeMachine) -> list[Setting]:
    with_int8, with_int4, _, ngram = machine.candidates()
    return [
        with_int8.setting(0),
        *(with_int8.setting(g) for g in (2, 3, 6)),
        *(with_int4.setting(g) for g in (2, 5, 6)),
        *(ngram.setting(g) for g in (6, 12)),
    ]


def test_by_the_thread_alone_forecasts_are_as_good_as_its_clock():
    """True speed by that clock: the work's own seconds times its share. Nothing of this machine's load is left."""
    found = [
        calibrated(THREAD).forecast(setting, workload).tokens_per_second.value
        / (BUSY.true_speed(setting, workload) / SHARE)
        - 1
        for setting in settings_of(BUSY)
        for workload in ("ordinary", "copying")
    ]
    assert max(map(abs, found)) < 0.01 and np.median(np.abs(found)) < 0.003
    assert calibrated(THREAD).drift.ratio.min() > 0.97 and calibrated(THREAD).drift.ratio.max() < 1.03


def test_by_the_wall_the_same_machine_is_slower_and_less_sure():
    setting = BUSY.candidates()[0].setting(3)
    wall, thread = (calibrated(clock).forecast(setting, "ordinary").tokens_per_second for clock in (WALL, THREAD))
    assert (wall.high - wall.low) / wall.value > (thread.high - thread.low) / thread.value
    assert calibrated(WALL).drift.ratio.max() > 1.1
    assert wall.value / thread.value == pytest.approx(SHARE, rel=0.12)


def test_the_wall_is_the_default_and_the_record_says_which():
    default, thread = fit.calibrate(busy()[0], replicates=10), calibrated(THREAD)
    records = [found.record("sha", "now", "0") for found in (default, thread)]
    assert [record.clock for record in records] == [WALL, THREAD]
    assert any("processor time" in note for note in records[1].notes)
    assert not any("processor time" in note for note in records[0].notes)
    assert records[0].reference_sentinel_seconds != records[1].reference_sentinel_seconds


def test_a_calibration_by_the_thread_is_read_back(tmp_path: Path):
    record = calibrated(THREAD).record("sha", "now", "0")
    write_record(tmp_path / "calibration.json", record)
    assert read_record(tmp_path / "calibration.json", Calibration) == record


def test_every_second_that_a_forecast_reads_is_exchanged():
    """On a machine whose thread clock is a hundredth of the wall's no wall second can hide."""
    far = changed(BUSY, noise=0.0, drift=0.0, thread_clock=ThreadClock(0.01, 0.0))
    profile, prompts, engine = fake.demo(far)
    with TemporaryDirectory() as folder:
        session = Session(engine, profile, Path(folder) / "profile.json", prompts, clock=engine.clock)
        while requests := plan.next_requests(session.profile).requests:
            session.perform(requests)
        profile = session.finish({})
    wall, thread = (fit.calibrate(profile, replicates=0, clock=clock) for clock in (WALL, THREAD))
    for setting in settings_of(far):
        speeds = [found.speeds(setting, "copying")[0] for found in (wall, thread)]
        assert speeds[1] == pytest.approx(100 * speeds[0], rel=1e-6), setting
    costs = zip(wall.record("", "", "").costs, thread.record("", "", "").costs)
    assert all(b.seconds.value == pytest.approx(0.01 * a.seconds.value) for a, b in costs)


def test_samples_keep_the_sentinel_of_their_own_clock():
    seen = on_clock(busy()[0], THREAD)
    pairs = [
        (old, new)
        for before, after in zip(busy()[0].measurements, seen.measurements)
        for old, new in zip((*before.steps, *before.rounds), (*after.steps, *after.rounds))
    ]
    assert pairs and all(new.seconds == old.thread_seconds for old, new in pairs)
    assert all(new.sentinel_seconds == old.sentinel_thread_seconds for old, new in pairs)
    assert any(old.sentinel_thread_seconds for old, _ in pairs)
    assert on_clock(busy()[0], WALL) is busy()[0]


def without_thread(profile: Profile, action: str) -> Profile:
    """The profile with the samples of one action as an engine without that clock takes them."""

    def bare(m: Measurement) -> Measurement:
        if m.request.action != action:
            return m
        return replace(
            m,
            steps=tuple(replace(s, thread_seconds=()) for s in m.steps),
            rounds=tuple(replace(s, thread_seconds=()) for s in m.rounds),
            traces=tuple(replace(t, prompts=tuple(replace(p, thread_seconds=()) for p in t.prompts)) for t in m.traces),
            runs=tuple(
                replace(r, replies=tuple(replace(p, decode_thread_seconds=None) for p in r.replies)) for r in m.runs
            ),
        )

    return replace(profile, measurements=tuple(bare(m) for m in profile.measurements))


@pytest.mark.parametrize("action", ["steps", "rounds", "trace", "runs"])
def test_evidence_that_one_clock_did_not_time_is_not_filled_in_from_the_other(action: str):
    with pytest.raises(NoThreadTimes, match="by the wall clock alone"):
        fit.calibrate(without_thread(busy()[0], action), replicates=0, clock=THREAD)


def test_a_clock_that_ticked_no_further_is_no_time():
    profile = busy()[0]
    step = next(m for m in profile.measurements if m.request.action == "steps")
    still = replace(step, steps=(replace(step.steps[0], thread_seconds=(0.0,) * len(step.steps[0].seconds)),))
    with pytest.raises(NotCalibrated):
        on_clock(replace(profile, measurements=(still,)), THREAD)


def test_speeds_that_others_reported_have_one_clock():
    row = ReportedRow(setting=BUSY.candidates()[0].setting(0), workload="ordinary", tokens_per_second=20.0)
    told = Measurement(
        request=Request(action="import"), digest="i", started_at_seconds=0.0, wall_seconds=0.0, reported=(row,)
    )
    with pytest.raises(NoThreadTimes, match="wall time"):
        on_clock(replace(busy()[0], measurements=(told,)), THREAD)


def test_a_clock_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="no clock is called sundial: there are wall, thread_cpu"):
        fit.calibrate(busy()[0], clock="sundial")
    assert (clocks.other(WALL), clocks.other(THREAD)) == (THREAD, WALL)


# --- validation


@cache
def checked() -> tuple[Recommendation, tuple[Run, ...]]:
    profile, engine = busy()
    recommendation = recommend.recommend(
        profile,
        calibrated(WALL),
        profile_sha256="",
        calibration_sha256="",
        created="",
        tool_version="",
        command="",
    )
    arms = validate.settings_to_run(profile, recommendation)
    prompts = engine.machine.prompts()
    return recommendation, interleaved_runs(engine, arms, prompts, profile.sampling, 5, at=engine.clock, first_repeat=0)


SESSION = validate.Session(
    calibration_sha256="", created="", tool_version="", validation_seconds=1.0, start_seconds=1.0
)


def validated(clock: str, runs: Sequence[Run] | None = None) -> Validation:
    recommendation, made = checked()
    given = (busy()[0], calibrated(clock), replace(recommendation, candidates=()), runs or made, (), SESSION)
    return validate.with_other_clock(validate.validation(*given, clock), *given)


def test_a_validation_stores_both_clocks_and_says_which_leads():
    wall, thread = validated(WALL), validated(THREAD)
    assert (wall.clock, thread.clock) == (WALL, THREAD)
    assert wall.other_clock is not None and thread.other_clock is not None
    assert (wall.other_clock.clock, thread.other_clock.clock) == (THREAD, WALL)
    assert len(wall.rows) == len(wall.other_clock.measured) == len(wall.other_clock.forecast)
    for one, other in ((wall, thread), (thread, wall)):
        assert one.other_clock is not None
        assert one.other_clock.measured == tuple(row.measured for row in other.rows)
        assert one.other_clock.mean_abs_error == pytest.approx(other.mean_abs_error, rel=0.3)


def test_the_threads_rows_are_true_by_its_own_clock():
    """Against the machine's truth, not against a forecast: measured speeds are the true ones over the clock's share."""
    found = validated(THREAD)
    assert found.n_rows >= 6
    for row in found.rows:
        true = BUSY.true_speed(row.config, row.workload) / SHARE
        assert row.measured == pytest.approx(true, rel=0.01)
        assert row.error == pytest.approx(row.forecast / row.measured - 1)
    assert found.mean_abs_error is not None and found.mean_abs_error < 0.01
    assert found.coverage is not None and found.coverage >= 0.85


def test_runs_that_only_the_wall_timed_leave_the_other_clock_out():
    bare = tuple(
        replace(run, replies=tuple(replace(reply, decode_thread_seconds=None) for reply in run.replies))
        for run in checked()[1]
    )
    assert validated(WALL, bare).other_clock is None
    with pytest.raises(NotCalibrated):
        validated(THREAD, bare)


def test_what_is_stored_of_two_clocks_is_read_back(tmp_path: Path):
    found = validated(WALL)
    write_record(tmp_path / "validation.json", found)
    assert read_record(tmp_path / "validation.json", Validation) == found

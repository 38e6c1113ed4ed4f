"""The fake engine tells the truth it was given, plus noise; and its machines are what they are named for."""

import math
import statistics
from dataclasses import replace as changed

import pytest

from specgauge.profiler.engines import fake
from specgauge.profiler.engines.base import Engine, EngineFailed, Unsupported
from specgauge.profiler.engines.fake_machine import LONGEST_OFFER, FakeMachine, StepCurve, prompt_tokens
from specgauge.profiler.errors import InputError
from specgauge.profiler.records import Candidate, Sampling

NAMES = ("interior-tie", "loses-at-90", "kernel-switch", "no-rollback")
MACHINES = [fake.MACHINES[name] for name in NAMES]


def speeds(machine: FakeMachine, candidate: Candidate, workload: str) -> dict[int, float]:
    return {g: machine.true_speed(candidate.setting(g), workload) for g in (0, *candidate.draft_tokens)}


def test_it_speaks_the_protocol():
    engine: Engine = fake.FakeEngine(MACHINES[0])
    assert engine.describe().name == "fake" and engine.key().engine == "fake"
    engine.close()


def test_the_same_seed_gives_the_same_readings():
    def readings(seed: int) -> list:
        profile, prompts, engine = fake.demo("interior-tie", seed)
        setting = profile.candidates[0].setting(3)
        return [
            engine.step_time("target-q4", "target", "batch", 5, 128),
            engine.round_time(setting, (0.5, 0.25, 0.1), 128, 8),
            engine.run(setting, prompts[0], Sampling()),
            engine.clock(),
        ]

    assert readings(1) == readings(1) != readings(2)


def test_noise_is_what_it_is_said_to_be():
    engine = fake.FakeEngine(changed(MACHINES[0], drift=0.0))
    curve = MACHINES[0].targets[0].curve
    logs = [
        math.log(seconds / curve.seconds(1, 128 + i))
        for _ in range(300)
        for i, seconds in enumerate(engine.step_time("target-q4", "target", "decode", 1, 128).seconds)
    ][16:]
    assert statistics.fmean(logs) == pytest.approx(0.0, abs=0.002)
    assert statistics.stdev(logs) == pytest.approx(0.02, rel=0.1)


def test_drift_is_shared_by_all_readings():
    engine = fake.FakeEngine(changed(MACHINES[0], noise=0.0, drift=0.2, drift_period_seconds=100.0))
    curve = MACHINES[0].targets[0].curve
    ratios = []
    while engine.clock() < 100.0:
        decode = engine.step_time("target-q4", "target", "decode", 1, 128).seconds[-1] / curve.seconds(1, 135)
        rounds = engine.round_time(MACHINES[0].candidates()[0].setting(2), None, 128, 1).seconds[0]
        rounds /= MACHINES[0].round_seconds(MACHINES[0].candidates()[0].setting(2), 2, 128)
        ratios.append((decode, rounds))
    ratios = ratios[2:]
    assert max(d for d, _ in ratios) > 1.15 and min(d for d, _ in ratios) < 0.85
    assert all(d == pytest.approx(r, rel=0.02) for d, r in ratios)


def test_the_first_calls_of_a_shape_are_cold():
    engine = fake.FakeEngine(changed(MACHINES[0], noise=0.0, drift=0.0))
    seconds = [engine.step_time("target-q4", "target", "batch", 4, 128).seconds[0] for _ in range(4)]
    assert seconds[0] == seconds[1] > 1.2 * seconds[2] and seconds[2] == seconds[3]


def test_curves_have_kernel_switches_and_a_context_slope():
    curve: StepCurve = fake.MACHINES["kernel-switch"].targets[0].curve
    assert curve.seconds(2, 0) - curve.seconds(1, 0) == pytest.approx(1e-3)
    assert curve.seconds(9, 0) > 1.8 * curve.seconds(8, 0)
    assert curve.seconds(4, 1000) - curve.seconds(4, 0) == pytest.approx(1.5e-3)
    dear, cheap = (target.curve for target in fake.MACHINES["kernel-switch"].targets)
    line = cheap.seconds(8, 0) + (cheap.seconds(8, 0) - cheap.seconds(2, 0)) / 6
    assert cheap.seconds(9, 0) < 0.75 * line and dear.seconds(17, 0) < 2.5 * dear.seconds(1, 0) * 2


@pytest.mark.parametrize("machine", MACHINES, ids=NAMES)
def test_true_speed_is_the_cost_of_the_replies_rounds(machine):
    """By another way than the machine's own: count rounds from the bits, plain steps by hand."""
    setting = machine.candidates()[0].setting(3)
    tokens = seconds = plain = 0.0
    for prompt in machine.prompts():
        if prompt.prompt.workload == "ordinary":
            bits, length, t = machine.matches(setting, prompt.prompt), prompt_tokens(prompt.text), 0
            tokens += len(bits)
            plain += sum(machine.targets[0].curve.seconds(1, length + i) for i in range(len(bits)))
            while t < len(bits):
                drafted = min(3, len(bits) - t - 1)
                accepted = 0
                while accepted < drafted and bits[t + accepted]:
                    accepted += 1
                seconds += machine.round_seconds(setting, drafted, length + t)
                t += accepted + 1
    assert machine.true_speed(setting, "ordinary") == pytest.approx(tokens / seconds)
    assert machine.true_speed(machine.candidates()[0].setting(0), "ordinary") == pytest.approx(tokens / plain)


def test_a_geometric_curve_would_be_wrong():
    machine = fake.MACHINES["interior-tie"]
    setting = machine.candidates()[0].setting(8)
    rounds = [
        r
        for p in machine.prompts()
        if p.prompt.workload == "ordinary"
        for r in machine.rounds(setting, p.prompt, prompt_tokens(p.text))
        if r.drafted == 8
    ]
    first = sum(r.accepted >= 1 for r in rounds) / len(rounds)
    eighth = sum(r.accepted == 8 for r in rounds) / len(rounds)
    assert eighth > 1.5 * first**8


@pytest.mark.parametrize("machine", MACHINES, ids=NAMES)
def test_offers_and_runs_are_consistent(machine):
    setting = machine.candidates()[1].setting(8)
    for prompt in machine.prompts():
        offers, runs = machine.offers_and_runs(setting, prompt.prompt)
        assert len(offers) == len(runs) == prompt.prompt.new_tokens - 1
        for t, (offer, run) in enumerate(zip(offers, runs), start=1):
            assert 0 <= run <= offer and run <= prompt.prompt.new_tokens - t
            if run > 1:
                assert offers[t] > 0 and (runs[t] == run - 1 or run == LONGEST_OFFER)


def test_the_ngram_rule():
    machine = fake.MACHINES["interior-tie"]
    setting = machine.candidates()[1].setting(6)
    prompt = next(p for p in machine.prompts() if p.prompt.workload == "copying")
    offers, runs = machine.offers_and_runs(setting, prompt.prompt)
    length = prompt_tokens(prompt.text)
    for r in machine.rounds(setting, prompt.prompt, length):
        t = r.context - length + 1
        left = prompt.prompt.new_tokens - t
        wanted = min(6, offers[t - 1]) if min(6, offers[t - 1]) >= 3 else 0
        assert r.drafted == min(wanted, left - 1) and r.accepted == min(r.drafted, runs[t - 1])
    short = machine.candidates()[1].setting(2)
    assert all(r.drafted == 0 for r in machine.rounds(short, prompt.prompt, length))
    assert all(r.drafted == 0 or r.context > 10 for r in machine.rounds(setting, prompt.prompt, 2))


def test_interior_tie_is_one():
    machine = fake.MACHINES["interior-tie"]
    by_length = speeds(machine, machine.candidates()[0], "ordinary")
    best = max(by_length, key=lambda g: by_length[g])
    second = sorted(by_length.values())[-2]
    assert 1 < best < 8 and abs(by_length[best] / second - 1) < 0.005
    assert by_length[best] > 1.3 * by_length[0] and by_length[best] > 1.1 * max(by_length[1], by_length[8])
    assert sorted(by_length.values())[-3] < 0.985 * by_length[best]
    assert by_length[best] == max(machine.true_speed(s, "ordinary") for s in machine.settings())


def test_loses_at_90_does():
    machine = fake.MACHINES["loses-at-90"]
    for workload in ("ordinary", "copying"):
        bits = [
            bit
            for p in machine.prompts()
            if p.prompt.workload == workload
            for bit in machine.matches(machine.candidates()[0].setting(1), p.prompt)
        ]
        assert statistics.fmean(bits) == pytest.approx(0.9, abs=0.02)
        best = max(machine.settings(), key=lambda s: machine.true_speed(s, workload))
        assert best.drafter == "none" and best.target == "target-q4"
        modelled = speeds(machine, machine.candidates()[0], workload)
        assert max(v for g, v in modelled.items() if g) < 0.6 * modelled[0]


def test_kernel_switch_decides_the_length():
    machine = fake.MACHINES["kernel-switch"]
    dear, cheap = machine.candidates()[0], machine.candidates()[2]
    for workload in ("ordinary", "copying"):
        assert max(dear.draft_tokens, key=lambda g: machine.true_speed(dear.setting(g), workload)) == 7
        assert machine.true_speed(cheap.setting(8), workload) > 1.3 * machine.true_speed(cheap.setting(7), workload)
        best = max(machine.settings(), key=lambda s: machine.true_speed(s, workload))
        assert (best.target, best.drafter, best.draft_tokens) == ("target-q4", "model", 7)


def test_no_rollback_times_rounds_but_no_batches():
    profile, _, engine = fake.demo("no-rollback")
    with pytest.raises(Unsupported, match="rolled back"):
        engine.step_time("target-q4", "target", "batch", 4, 128)
    assert engine.step_time("target-q4", "target", "decode", 1, 128).seconds
    setting = profile.candidates[0].setting(4)
    assert engine.round_time(setting, (0.0,) * 4, 128, 5).accepted == (0,) * 5
    assert "rollback" not in engine.describe().capabilities
    machine = fake.MACHINES["no-rollback"]
    by_length = speeds(machine, profile.candidates[0], "ordinary")
    assert max(by_length, key=lambda g: by_length[g]) not in (0, 1, 8)


def test_forced_acceptance_has_the_asked_rates():
    profile, _, engine = fake.demo("interior-tie")
    setting = profile.candidates[0].setting(4)
    accepted = engine.round_time(setting, (0.8, 0.6, 0.4, 0.2), 128, 4000).accepted
    for depth, rate in enumerate((0.8, 0.6, 0.4, 0.2), start=1):
        assert sum(a >= depth for a in accepted) / 4000 == pytest.approx(rate, abs=0.03)


def test_batch_readings_miss_what_they_are_said_to_miss():
    machine = changed(MACHINES[0], noise=0.0, drift=0.0)
    engine = fake.FakeEngine(machine)
    reading = [engine.step_time("target-q4", "target", "batch", 5, 128).seconds[0] for _ in range(3)][-1]
    true = machine.targets[0].curve.seconds(5, 128)
    assert true - reading == pytest.approx(machine.batch_reads_low_seconds) != 0


def test_what_it_cannot_do_is_unsupported():
    profile, prompts, engine = fake.demo("interior-tie")
    setting = profile.candidates[0].setting(2)
    with pytest.raises(Unsupported):
        engine.step_time("target-q4", "target", "batch", 4, 128, streams=2)
    with pytest.raises(Unsupported):
        engine.step_time("nobody", "target", "decode", 1, 128)
    with pytest.raises(Unsupported):
        engine.match_trace(setting, prompts[0], Sampling())
    with pytest.raises(Unsupported):
        engine.round_time(profile.candidates[0].setting(0), None, 128, 3)


def test_it_crashes_when_told_to():
    profile, prompts, _ = fake.demo("interior-tie")
    engine = fake.FakeEngine(MACHINES[0], crash_after=2)
    setting = profile.candidates[0].setting(2)
    engine.warm_up(setting)
    engine.warm_up(setting)
    engine.run(setting, prompts[0], Sampling())
    for _ in range(2):
        with pytest.raises(EngineFailed) as caught:
            engine.run(setting, prompts[0], Sampling())
    assert "\n" not in str(caught.value)


def test_demo():
    profile, prompts, engine = fake.demo("interior-tie", seed=3)
    assert not profile.measurements and not profile.complete
    assert {p.workload for p in profile.prompts} == {"ordinary", "copying"} and len(profile.prompts) == 24
    assert [p.prompt for p in prompts] == list(profile.prompts)
    assert len({p.prompt.text_sha256 for p in prompts}) == 24
    assert {c.drafter for c in profile.candidates} == {"model", "ngram"} and len(
        {c.target for c in profile.candidates}
    ) == 2
    assert profile.sentinel_model in {m.label for m in profile.models}
    assert fake.demo(engine.machine)[0].models == profile.models
    with pytest.raises(InputError, match="interior-tie"):
        fake.demo("nowhere")

"""How requests are measured: order, warm-ups, sentinels, what an engine cannot do."""

from collections import Counter
from dataclasses import replace as changed
from types import SimpleNamespace
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from specgauge.profiler import machine, protocol
from specgauge.profiler.engines import fake
from specgauge.profiler.engines.base import EngineFailed, Unsupported
from specgauge.profiler.protocol import execute, interleaved_runs, matches_from_rounds, rotated
from specgauge.profiler.records import DeviceState, PromptTrace, Request, Sampling

QUIET = changed(fake.MACHINES["interior-tie"], noise=0.0, drift=0.0)


class Recording(fake.FakeEngine):
    """A fake engine that writes down what it was asked."""

    def __init__(self, machine=QUIET, seed=1):
        super().__init__(machine, seed)
        self.asked = []

    def warm_up(self, setting, forced_rates=None):
        self.asked.append(("warm_up", setting))
        super().warm_up(setting, forced_rates)

    def reset(self, setting):
        self.asked.append(("reset", setting))

    def step_time(self, model, role, kind, width, context, streams=1):
        self.asked.append((role, kind, width, context))
        return super().step_time(model, role, kind, width, context, streams)

    def run(self, setting, prompt, sampling):
        self.asked.append(("run", setting, prompt.prompt.id))
        return super().run(setting, prompt, sampling)


def bench(machine=QUIET):
    profile, prompts, _ = fake.demo(machine)
    return profile, prompts, Recording(machine)


def steps(**changes) -> Request:
    fields = {"action": "steps", "model": "target-q4", "role": "target", "widths": (1, 2, 9), "contexts": (128, 512)}
    return Request(**{**fields, "repeats": 5, **changes})


def test_every_shape_is_cold_twice_and_then_repeated():
    profile, prompts, engine = bench()
    done = execute(engine, steps(), profile, prompts, engine.clock)
    own = [step for step in done.steps if step.role == "target"]
    counted = Counter((s.width, s.context, s.cold) for s in own)
    assert counted == {(w, c, cold): 2 if cold else 5 for w in (1, 2, 9) for c in (128, 512) for cold in (True, False)}
    assert {s.kind for s in own if s.width == 1} == {"decode"} and {s.kind for s in own if s.width > 1} == {"batch"}
    assert not done.rejected and not done.unsupported
    assert done.digest == steps().digest() and done.wall_seconds > 0
    assert done.state_before is not None and done.state_after is not None


def test_visits_begin_in_different_places():
    profile, prompts, engine = bench()
    execute(engine, steps(), profile, prompts, engine.clock)
    shapes = [entry[2:] for entry in engine.asked if entry[0] == "target"]
    firsts = {shapes[i] for i in range(0, len(shapes), 6)}
    assert len(firsts) > 3
    assert all(sorted(shapes[i : i + 6]) == sorted(shapes[:6]) for i in range(0, len(shapes), 6))


def test_a_sentinel_stands_beside_every_sample():
    profile, prompts, engine = bench()
    done = execute(engine, steps(repeats=9), profile, prompts, engine.clock)
    sentinels = [s for s in done.steps if s.role == "sentinel" and not s.cold]
    own = [s for s in done.steps if s.role == "target"]
    true = QUIET.targets[0].curve.seconds(1, 128)
    assert len(sentinels) > 2
    assert all(s.model == profile.sentinel_model and s.kind == "decode" and s.width == 1 for s in sentinels)
    for sample in own:
        assert sample.sentinel_seconds == pytest.approx(true, rel=0.02)
        assert min(abs(sample.at_seconds - s.at_seconds) for s in sentinels) < protocol.SENTINEL_AGE_SECONDS + 1.0
    assert [s.at_seconds for s in done.steps] == sorted(s.at_seconds for s in done.steps)


def test_drift_is_divided_out_by_sentinels():
    machine = changed(QUIET, drift=0.3, drift_period_seconds=60.0)
    profile, prompts, engine = bench(machine)
    done = execute(engine, steps(repeats=150), profile, prompts, engine.clock)
    batch = [s for s in done.steps if (s.width, s.context, s.cold) == (9, 128, False)]
    raw = [s.seconds[0] for s in batch]
    normal = [s.seconds[0] / s.sentinel_seconds for s in batch if s.sentinel_seconds]
    assert max(raw) / min(raw) > 1.2
    assert max(normal) / min(normal) < 1.08


def test_the_sentinel_warms_up_before_the_setting_and_its_first_readings_are_cold():
    profile, prompts, engine = bench()
    done = execute(engine, steps(model="draft-q4", role="draft"), profile, prompts, engine.clock)
    warmed = [entry[1].target for entry in engine.asked if entry[0] == "warm_up"]
    assert warmed == [profile.sentinel_model, "draft-q4"]
    assert [s.cold for s in done.steps if s.role == "sentinel"][:3] == [True, True, False]


def test_without_a_sentinel_it_goes_on():
    profile, prompts, engine = bench()
    for other in (replace(profile, sentinel_model=""), replace(profile, sentinel_model="not here")):
        done = execute(engine, steps(), other, prompts, engine.clock)
        assert all(s.role == "target" and s.sentinel_seconds is None for s in done.steps)
        assert len(done.steps) == 42 and not done.unsupported


def test_no_rollback_rejects_each_batch_shape_once_and_keeps_decoding():
    profile, prompts, engine = bench(fake.MACHINES["no-rollback"])
    done = execute(engine, steps(), profile, prompts, engine.clock)
    own = [s for s in done.steps if s.role == "target"]
    assert {s.kind for s in own} == {"decode"} and len(own) == 2 * 7
    assert len(done.rejected) == 4 and all("cannot be rolled back" in reason for reason in done.rejected)
    assert "width 9 context 512" in " ".join(done.rejected)
    assert not done.unsupported
    nothing = execute(engine, steps(widths=(2, 9)), profile, prompts, engine.clock)
    assert "cannot be rolled back" in nothing.unsupported


def test_rounds_forced_and_real():
    profile, prompts, engine = bench()
    setting = profile.candidates[0].setting(4)
    asked = Request(action="rounds", settings=(setting,), contexts=(128, 512), forced_rates=(0.0,) * 4, repeats=3)
    done = execute(engine, asked, profile, prompts, engine.clock)
    assert Counter(sample.context for sample in done.rounds) == {128: 3, 512: 3}
    for sample in done.rounds:
        assert sample.setting == setting and sample.forced_rates == (0.0,) * 4 and set(sample.accepted) == {0}
        assert set(sample.drafted) == {4} and sample.sentinel_seconds
        assert sample.seconds[0] == pytest.approx(QUIET.round_seconds(setting, 4, sample.context))
    real = execute(engine, replace(asked, forced_rates=None), profile, prompts, engine.clock)
    assert any(sum(sample.accepted) for sample in real.rounds)
    assert done.digest != real.digest


def test_rounds_that_cannot_be_forced_are_unsupported():
    machine = changed(QUIET, forced_acceptance=False)
    profile, prompts, engine = bench(machine)
    setting = profile.candidates[0].setting(4)
    asked = Request(action="rounds", settings=(setting,), contexts=(128,), forced_rates=(0.0,) * 4)
    done = execute(engine, asked, profile, prompts, engine.clock)
    assert not done.rounds and "cannot force acceptance" in done.unsupported
    real = execute(engine, replace(asked, forced_rates=None), profile, prompts, engine.clock)
    assert len(real.rounds) == 5 and not real.unsupported


def test_trace_gives_the_true_matches_where_they_show():
    profile, prompts, engine = bench()
    setting = profile.candidates[0].setting(8)
    done = execute(engine, Request(action="trace", settings=(setting,)), profile, prompts, engine.clock)
    assert [trace.prompt for trace in done.matches] == [prompt.prompt for prompt in prompts]
    known = 0
    for trace in done.matches:
        truth = QUIET.matches(setting, trace.prompt)
        assert len(trace.match) == len(truth) == trace.reply_tokens - 1 and trace.source == "rounds"
        assert all(seen in (-1, bit) for seen, bit in zip(trace.match, truth))
        known += sum(seen >= 0 for seen in trace.match)
    assert known > 0.9 * sum(len(trace.match) for trace in done.matches)


def test_trace_of_one_workload_and_of_a_ratio_test():
    profile, prompts, engine = bench()
    setting = profile.candidates[0].setting(4)
    asked = Request(action="trace", settings=(setting,), workloads=("copying",))
    done = execute(engine, asked, profile, prompts, engine.clock)
    assert {trace.prompt.workload for trace in done.traces[0].prompts} == {"copying"}
    ratio = replace(profile, sampling=Sampling(temperature=0.7, draft_sampling="probabilistic"))
    assert not execute(engine, asked, ratio, prompts, engine.clock).matches
    compare = replace(profile, sampling=Sampling(temperature=0.7))
    assert execute(engine, asked, compare, prompts, engine.clock).matches


def test_trace_of_an_ngram_drafter_has_no_matches():
    profile, prompts, engine = bench()
    setting = profile.candidates[1].setting(4)
    done = execute(engine, Request(action="trace", settings=(setting,)), profile, prompts, engine.clock)
    assert done.traces and not done.matches


def test_matches():
    profile, prompts, engine = bench()
    ngram, model = profile.candidates[1].setting(4), profile.candidates[0].setting(4)
    done = execute(engine, Request(action="matches", settings=(ngram,)), profile, prompts, engine.clock)
    assert len(done.matches) == len(prompts) and all(m.ngram_size == 3 and len(m.offer) == 127 for m in done.matches)
    assert "come from its rounds" in (
        execute(engine, Request(action="matches", settings=(model,)), profile, prompts, engine.clock).unsupported
    )


def test_bandwidth_is_the_engines_own_and_takes_no_sentinel():
    profile, prompts, engine = bench()
    done = execute(engine, Request(action="bandwidth"), profile, prompts, engine.clock)
    assert done.bandwidth[0].bytes_per_second == pytest.approx([900e9] * 5)
    assert not engine.asked and not done.steps


def test_runs_are_interleaved_prompt_by_prompt():
    profile, prompts, engine = bench()
    settings = (profile.candidates[0].setting(0), profile.candidates[0].setting(3), profile.candidates[1].setting(4))
    asked = Request(action="runs", settings=settings, workloads=("ordinary",), repeats=3)
    done = execute(engine, asked, profile, prompts, engine.clock)
    runs = [entry for entry in engine.asked if entry[0] == "run"]
    for block in range(0, len(runs), 3):
        trio = runs[block : block + 3]
        assert len({prompt for _, _, prompt in trio}) == 1 and {setting for _, setting, _ in trio} == set(settings)
    assert {runs[block][1] for block in range(0, 36 * 3, 36)} == set(settings)
    assert [run.setting for run in done.runs] == list(settings)
    for run in done.runs:
        assert Counter(reply.repeat for reply in run.replies) == {0: 12, 1: 12, 2: 12}
        assert run.effective["speculative.n_max"] == str(run.setting.draft_tokens)
        assert [r.at_seconds for r in run.replies] == sorted(r.at_seconds for r in run.replies)
    resets = [i for i, entry in enumerate(engine.asked) if entry[0] == "reset"]
    assert len(resets) == 9
    assert {reply.reply_sha256 for reply in done.runs[0].replies} == {r.reply_sha256 for r in done.runs[1].replies}


def test_runs_can_be_continued_and_watched():
    profile, prompts, engine = bench()
    seen = []
    runs = interleaved_runs(
        engine,
        (profile.candidates[0].setting(2),),
        prompts[:2],
        profile.sampling,
        2,
        on_step=lambda done, total: seen.append((done, total)),
        first_repeat=5,
        at=engine.clock,
    )
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert [reply.repeat for reply in runs[0].replies] == [5, 5, 6, 6]


def test_speeds_of_a_quiet_machine_are_the_true_ones():
    profile, prompts, engine = bench()
    ordinary = [prompt for prompt in prompts if prompt.prompt.workload == "ordinary"]
    for setting in (
        profile.candidates[0].setting(0),
        profile.candidates[0].setting(3),
        profile.candidates[1].setting(6),
    ):
        (run,) = interleaved_runs(engine, (setting,), ordinary, profile.sampling, 1, at=engine.clock)
        speed = sum(r.reply_tokens - 1 for r in run.replies) / sum(r.decode_seconds for r in run.replies)
        assert speed == pytest.approx(QUIET.true_speed(setting, "ordinary"))


def test_a_dead_engine_is_not_swallowed():
    profile, prompts, _ = bench()
    engine = fake.FakeEngine(QUIET, crash_after=5)
    with pytest.raises(EngineFailed, match="crashed"):
        execute(engine, steps(), profile, prompts, engine.clock)
    with pytest.raises(ValueError, match="no such action"):
        execute(fake.FakeEngine(QUIET), Request(action="dance"), profile, prompts)


def test_an_engine_that_cannot_trace_says_why():
    profile, prompts, engine = bench()
    setting = replace(profile.candidates[0].setting(2), drafter="eagle")
    for action in ("trace", "runs"):
        done = execute(engine, Request(action=action, settings=(setting,)), profile, prompts, engine.clock)
        assert "eagle" in done.unsupported and not done.traces and not done.runs
    with pytest.raises(Unsupported):
        interleaved_runs(engine, (setting,), prompts, profile.sampling, 1)


def a_trace(reply: int, drafted, accepted) -> PromptTrace:
    prompt = QUIET.prompts()[0].prompt
    seconds = (0.1,) * len(drafted)
    return PromptTrace(
        prompt=prompt,
        prompt_tokens=10,
        reply_tokens=reply,
        seconds=seconds,
        drafted=tuple(drafted),
        accepted=tuple(accepted),
    )


def test_matches_from_rounds_by_hand():
    assert matches_from_rounds(a_trace(9, [3, 3, 0], [3, 1, 0])) == (1, 1, 1, -1, 1, 0, -1, -1)
    assert matches_from_rounds(a_trace(3, [3], [3])) == (1, 1)
    assert matches_from_rounds(a_trace(1, [], [])) == ()


@given(st.lists(st.integers(0, 1), min_size=1, max_size=80), st.integers(1, 9))
def test_matches_from_rounds_never_contradicts_the_reply(bits, length):
    drafted, accepted, t = [], [], 0
    while t < len(bits):
        drafted.append(min(length, len(bits) - t - 1))
        accepted.append(next((i for i, bit in enumerate(bits[t : t + drafted[-1]]) if not bit), drafted[-1]))
        t += accepted[-1] + 1
    seen = matches_from_rounds(a_trace(len(bits) + 1, drafted, accepted))
    assert len(seen) == len(bits)
    assert all(one in (-1, bit) for one, bit in zip(seen, bits))
    assert seen.count(-1) == sum(d == a for d, a in zip(drafted, accepted))


def test_rotated():
    assert rotated([1, 2, 3], 4) == [2, 3, 1]
    assert rotated([], 4) == []


def test_a_device_is_watched_while_it_works_and_a_few_looks_are_kept(monkeypatch):
    blank, prompts, engine = fake.demo("interior-tie")

    class Watching:
        looks: ClassVar = [SimpleNamespace(state=DeviceState(pcie_rx_bytes_per_second=1e9 + i)) for i in range(20)]

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    monkeypatch.delattr(type(engine), "device_state")
    monkeypatch.setattr(machine, "device", lambda: "a card")
    monkeypatch.setattr(machine, "device_state", lambda: DeviceState(power_watts=300.0))
    monkeypatch.setattr(machine, "watched", lambda pause_seconds: Watching())
    request = Request(action="steps", model="target-q4", role="target", widths=(1,), contexts=(128,), repeats=1)
    found = protocol.execute(engine, request, blank, prompts, engine.clock)
    assert found.state_after == DeviceState(power_watts=300.0)
    assert found.states_during == tuple(look.state for look in Watching.looks[::3])

"""An engine that is called in process: what is measured of it, and that forecasts of its rounds hold against its runs."""

from dataclasses import replace as changed
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from msgspec.structs import replace

from specgauge.calibrate import examine, fit, plan
from specgauge.calibrate.fit import Calibrated
from specgauge.profiler.engines import fake
from specgauge.profiler.engines.fake_machine import FakeMachine, prompt_tokens
from specgauge.profiler.protocol import execute, interleaved_runs
from specgauge.profiler.records import Measurement, Profile, Sampling
from specgauge.profiler.session import Session

MACHINE = fake.MACHINES["in-process"]
QUIET = changed(MACHINE, noise=1e-6, drift=0.0)
DRAWN = Sampling(temperature=0.7, draft_sampling="probabilistic")


def profiled(machine: FakeMachine, sampling: Sampling | None = None) -> tuple[Profile, fake.FakeEngine]:
    blank, prompts, engine = fake.demo(machine)
    blank = replace(blank, sampling=sampling) if sampling else blank
    with TemporaryDirectory() as folder:
        session = Session(engine, blank, Path(folder) / "profile.json", prompts, clock=engine.clock)
        while requests := (found := plan.next_requests(session.profile)).requests:
            session.perform(requests)
        return session.finish(found.dropped), engine


@cache
def quiet() -> tuple[Profile, Calibrated]:
    profile = profiled(QUIET)[0]
    return profile, fit.calibrate(profile, replicates=50)


def of(profile: Profile, action: str) -> list[Measurement]:
    return [m for m in profile.measurements if m.request.action == action]


# --- what is measured


def test_nothing_that_was_asked_for_was_refused():
    profile = quiet()[0]
    assert not [m.unsupported for m in profile.measurements if m.unsupported]
    assert not [reason for m in profile.measurements for reason in m.rejected]


def test_batches_serve_as_verification_and_a_draft_is_timed_at_one_and_two_tokens():
    profile = quiet()[0]
    assert not of(profile, "verify")
    widths = {(m.request.model, m.request.role): m.request.widths for m in of(profile, "steps")}
    assert widths["draft-int8", "draft"] == widths["draft-int4", "draft"] == (1, 2)
    assert set(range(1, 18)) <= set(widths["target-bf16", "target"])


@pytest.mark.parametrize(
    ("longest", "beyond"), [(8, ()), (16, ()), (17, (24,)), (23, (24,)), (24, (24, 32)), (32, (24, 32, 33))]
)
def test_passes_are_as_wide_as_the_longest_draft_asks_for(longest: int, beyond: tuple[int, ...]):
    candidates = changed(MACHINE, model_lengths=(1, 4, longest), ngram_lengths=(3,)).candidates()
    widths = plan.widths_of(fake.demo("in-process")[0], candidates)
    assert widths == (*range(1, 18), *beyond)
    assert max(widths) >= longest + 1


def test_a_model_that_is_target_and_draft_is_timed_as_both():
    profile = fake.demo("in-process")[0]
    own = replace(profile.candidates[0], target="draft-int8", draft="draft-int4")
    requests = plan.step_requests(replace(profile, candidates=(*profile.candidates, own)))
    assert [(r.role, max(r.widths)) for r in requests if r.model == "draft-int8"] == [("target", 24), ("draft", 2)]


def test_a_servers_plan_is_as_it_was():
    profile = fake.demo("interior-tie")[0]
    assert {r.action for r in plan.step_requests(profile)} == {"steps", "verify"}
    assert {r.widths for r in plan.step_requests(profile) if r.action == "steps"} == {plan.WIDTHS}
    assert {r.settings[0].drafter for r in plan.match_requests(profile)} == {"ngram"}


def test_every_draft_is_read_along_all_workloads_before_any_round():
    profile = quiet()[0]
    actions = [m.request.action for m in profile.measurements]
    assert actions.index("matches") < actions.index("rounds") < actions.index("trace")
    asked = {m.request.settings[0].draft: m.request.workloads for m in of(profile, "matches")}
    assert asked.keys() == {"draft-int8", "draft-int4", "draft-int2", "ngram-simple"}
    assert set(asked.values()) == {("ordinary", "copying")}
    sources = {t.draft: t.source for m in of(profile, "matches") for t in m.matches}
    assert sources == {d: "teacher-forced" for d in ("draft-int8", "draft-int4", "draft-int2")} | {
        "ngram-simple": "replay"
    }


def test_a_short_real_trace_checks_what_was_replayed():
    profile, calibrated = quiet()
    traced = {
        (s.draft, s.draft_tokens) for m in of(profile, "trace") for s in m.request.settings if s.drafter == "model"
    }
    assert traced == {("draft-int8", 4), ("draft-int4", 4)}
    record = calibrated.record("", "", "")
    checks = {(c.draft, c.workload, c.draft_tokens): c for c in record.acceptance_checks}
    assert {("draft-int8", "ordinary", 4), ("draft-int4", "copying", 4)} <= checks.keys()
    # Greedy: real rounds are what was replayed, round for round.
    assert all(c.replayed_tokens_per_round == pytest.approx(c.measured_tokens_per_round) for c in checks.values())
    assert sum("by replay at 4 draft tokens" in note for note in record.notes) == 5


def test_a_draft_that_quantization_destroyed_is_dropped_before_its_rounds_with_its_numbers():
    profile = quiet()[0]
    assert profile.dropped.keys() == {"target-bf16 x draft-int2"}
    reason = profile.dropped["target-bf16 x draft-int2"]
    assert "by replay of its plain replies" in reason and "ordinary" in reason and "copying" in reason
    assert not [
        m for m in (*of(profile, "rounds"), *of(profile, "trace")) if m.request.settings[0].draft == "draft-int2"
    ]
    spoiled = next(c for c in MACHINE.candidates() if c.draft == "draft-int2")
    best = max(MACHINE.true_speed(s, "ordinary") for s in MACHINE.settings())
    assert max(MACHINE.true_speed(spoiled.setting(g), "ordinary") for g in spoiled.draft_tokens) < plan.OUTRUN * best


def test_the_plan_asks_the_same_however_often_it_is_interrupted():
    profile, prompts, engine = fake.demo(QUIET)
    while requests := plan.next_requests(profile).requests:
        done = execute(engine, requests[0], profile, prompts, engine.clock)
        profile = replace(profile, measurements=(*profile.measurements, done))
    assert [m.digest for m in profile.measurements] == [m.digest for m in quiet()[0].measurements]


# --- what is forecast


def test_without_noise_every_length_that_was_never_run_is_forecast_exactly():
    """Also 20 draft tokens, whose pass of 21 tokens was not timed either."""
    calibrated = quiet()[1]
    for candidate in MACHINE.candidates():
        for length in candidate.draft_tokens if candidate.draft != "draft-int2" else ():
            for workload in calibrated.workloads():
                setting = candidate.setting(length)
                true = QUIET.true_speed(setting, workload)
                assert calibrated.speeds(setting, workload)[0] == pytest.approx(true, rel=2e-3), setting


def test_a_round_goes_where_the_machine_says():
    calibrated = quiet()[1]
    setting = MACHINE.candidates()[0].setting(6)
    terms = {t.name: t.seconds for t in calibrated.modelled_round(setting, 6, 200).terms}
    draft, target = MACHINE.draft.curve, MACHINE.targets[0].curve
    assert list(terms) == ["draft_catch_up", "draft_further", "verification", "overhead", "unexplained"]
    assert terms["draft_catch_up"] == pytest.approx(draft.seconds(2, 199), rel=1e-4)
    assert terms["draft_further"] == pytest.approx(sum(draft.seconds(1, 200 + k) for k in range(1, 6)), rel=1e-3)
    assert terms["verification"] == pytest.approx(target.seconds(7, 200), rel=1e-4)
    # A decode sample is the median of eight tokens, half of them behind more context than it names: 7 us a step here.
    assert terms["overhead"] == pytest.approx(0.6e-3 + 6 * 0.1e-3, abs=5 * 3.5 * 2e-6 + 2e-6)


def test_runs_on_the_machine_are_within_their_noise_of_the_forecast():
    """Interleaved with plain decoding as a validation runs them, five repeats, medians: the forecasts were made before."""
    profile, engine = profiled(MACHINE)
    calibrated = fit.calibrate(profile, replicates=200)
    with_int8, with_int4, _, ngram = MACHINE.candidates()
    settings = [
        with_int8.setting(0),
        *(c.setting(g) for c in (with_int8, with_int4) for g in (2, 3, 6)),
        ngram.setting(6),
    ]
    assert not any(calibrated.in_profile(setting) for setting in settings[1:])
    runs = interleaved_runs(engine, settings, MACHINE.prompts(), profile.sampling, 5, at=engine.clock)
    errors = []
    for run in runs[1:]:
        ratios = []
        for repeat in range(5):
            own, plain = (
                sum(r.reply_tokens - 1 for r in one.replies if r.repeat == repeat)
                / sum(r.decode_seconds for r in one.replies if r.repeat == repeat)
                for one in (run, runs[0])
            )
            ratios.append(own / plain)
        # Over both workloads alike: as many tokens of each.
        forecast = [
            1 / np.mean([1 / calibrated.speeds(setting, w)[0] for w in calibrated.workloads()])
            for setting in (run.setting, settings[0])
        ]
        errors.append(forecast[0] / forecast[1] / np.median(ratios) - 1)
    assert max(map(abs, errors)) < 1.5 * MACHINE.noise and np.median(np.abs(errors)) < MACHINE.noise / 2


def simulated_speed(machine: FakeMachine, setting, workload: str, draws: int) -> float:
    """Tokens a second over many outcomes of the same replies, each token accepted by its own chance."""
    dice, tokens, seconds = np.random.default_rng(2), 0, 0.0
    for prompt in machine.prompts():
        if prompt.prompt.workload != workload:
            continue
        chance, cached = np.array(machine.weights(setting, prompt.prompt)), prompt_tokens(prompt.text)
        for _ in range(draws):
            t = 1
            while t < prompt.prompt.new_tokens:
                drafted = min(setting.draft_tokens, prompt.prompt.new_tokens - t - 1)
                hits = dice.random(drafted) < chance[t - 1 : t - 1 + drafted]
                accepted = drafted if hits.all() else int(hits.argmin())
                seconds += machine.round_seconds(setting, drafted, cached + t - 1)
                t += accepted + 1
            tokens += prompt.prompt.new_tokens - 1
    return tokens / seconds


@pytest.mark.parametrize("length", [1, 3, 8])
def test_sampled_text_is_forecast_by_the_chances_along_it(length: int):
    """Not by the one outcome that the real rounds of the trace had."""
    profile, calibrated = drawn()
    traces = [t for m in of(profile, "matches") for t in m.matches if t.drafter == "model"]
    assert traces and all(t.weight and not t.match for t in traces)
    setting = MACHINE.candidates()[1].setting(length)
    true = simulated_speed(QUIET, setting, "ordinary", draws=40)
    assert calibrated.speeds(setting, "ordinary")[0] == pytest.approx(true, rel=0.01)


@cache
def drawn() -> tuple[Profile, Calibrated]:
    profile = profiled(QUIET, DRAWN)[0]
    return profile, fit.calibrate(profile, replicates=0)


def test_a_diagnosis_counts_both_kinds_of_draft_passes():
    """The accounts of a round: what the draft takes is its catching up and its steps, as the machine spends them."""
    profile, calibrated = quiet()
    setting = MACHINE.candidates()[0].setting(6)
    symptoms = examine.symptoms_of(profile, calibrated, setting, "ordinary", None, None)
    context = calibrated.mean_context(setting, "ordinary")
    draft = MACHINE.draft.curve
    spent = draft.seconds(2, round(context) - 1) + sum(draft.seconds(1, round(context) + k) for k in range(1, 6))
    assert symptoms.parts.draft_step_seconds == pytest.approx(spent / 6, rel=1e-3)
    assert symptoms.parts.draft_batch_seconds == 0


# --- random weights


@cache
def random_weights() -> tuple[Profile, Calibrated]:
    profile = profiled(changed(QUIET, random_weights=True))[0]
    return profile, fit.calibrate(profile, replicates=20)


def test_of_random_weights_passes_and_rounds_alone_are_timed():
    profile = random_weights()[0]
    assert all(model.random for model in profile.models)
    assert {m.request.action for m in profile.measurements} == {"bandwidth", "runs", "steps", "rounds"}
    assert all(s.forced_rates is not None for m in of(profile, "rounds") for s in m.rounds)


def test_their_round_times_are_known_and_their_acceptance_is_not():
    calibrated = random_weights()[1]
    setting = MACHINE.candidates()[0].setting(3)
    assert calibrated.modelled_round(setting, 3, 200).modelled_seconds == pytest.approx(
        QUIET.round_seconds(setting, 3, 200), rel=1e-3
    )
    with pytest.raises(fit.NotCalibrated, match="random weights: times only"):
        calibrated.forecast(setting, "ordinary")
    record = calibrated.record("", "", "")
    assert not record.acceptance and not record.acceptance_checks
    assert sum("random weights: times only" in note for note in record.notes) == 4
    assert calibrated.forecast(MACHINE.candidates()[0].setting(0), "ordinary").tokens_per_second.value > 0


def test_traces_of_random_weights_are_not_evidence_even_where_a_file_holds_them():
    profile = quiet()[0]
    random = replace(profile, models=tuple(replace(m, random=m.label == "draft-int8") for m in profile.models))
    calibrated = fit.calibrate(random, replicates=0)
    with pytest.raises(fit.NotCalibrated, match="target-bf16 x draft-int8: random weights"):
        calibrated.speeds(MACHINE.candidates()[0].setting(3), "ordinary")
    assert calibrated.speeds(MACHINE.candidates()[1].setting(3), "ordinary")[0] > 0
    assert {c.draft for c in calibrated.record("", "", "").acceptance_checks} == {"draft-int4", "ngram-simple"}


def test_acceptance_from_elsewhere_gives_them_a_forecast_that_is_a_prior():
    """Survival a^j: rounds of independent tokens at rate a, simulated over the same replies."""
    calibrated = random_weights()[1].with_survival((0.8, 0.64, 0.512))
    setting = MACHINE.candidates()[0].setting(5)
    steady = SteadyMachine.of(QUIET, 0.8)
    found = calibrated.forecast(setting, "ordinary")
    assert found.tokens_per_second.value == pytest.approx(simulated_speed(steady, setting, "ordinary", 60), rel=0.01)
    assert found.provenance == "prior"
    told = {a.source for a in calibrated.record("", "", "").acceptance if a.drafter == "model"}
    assert told == {"given"}
    with pytest.raises(fit.NotCalibrated, match="random weights"):
        calibrated.speeds(MACHINE.candidates()[3].setting(6), "ordinary")


class SteadyMachine(FakeMachine):
    """The same costs; every token is accepted by one chance."""

    rate: float

    @staticmethod
    def of(machine: FakeMachine, rate: float) -> "SteadyMachine":
        steady = SteadyMachine(**{name: getattr(machine, name) for name in machine.__dataclass_fields__})
        object.__setattr__(steady, "rate", rate)
        return steady

    def weights(self, setting, prompt) -> tuple[float, ...]:
        return (self.rate,) * (prompt.new_tokens - 1)


@pytest.mark.parametrize("survival", [(), (1.2,), (0.5, 0.6), (-0.1,), (float("nan"),)])
def test_a_survival_that_cannot_be_is_refused(survival: tuple[float, ...]):
    with pytest.raises(ValueError, match="give S_1, S_2"):
        quiet()[1].with_survival(survival)


# --- time on the device


def test_what_is_not_the_devices_share_of_a_step_is_told():
    profile = quiet()[0]
    assert not any("no work of the device" in note for note in quiet()[1].record("", "", "").notes)
    watched = tuple(
        replace(m, steps=tuple(replace(s, device_seconds=tuple(0.75 * x for x in s.seconds)) for s in m.steps))
        for m in profile.measurements
    )
    (note,) = [
        n
        for n in fit.calibrate(replace(profile, measurements=watched), replicates=0).record("", "", "").notes
        if "no work of the device" in n
    ]
    assert note.startswith("target-bf16: 25.0% of a plain step")

"""The plan is staged by evidence, drops only what cannot win, and is the same however often it is interrupted."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from specgauge.calibrate import plan
from specgauge.profiler.engines import fake
from specgauge.profiler.protocol import execute
from specgauge.profiler.records import Measurement, Profile, PromptRun, Request, Run


def refused(request: Request) -> Measurement:
    """What an engine that can do nothing answers."""
    digest = request.digest()
    return Measurement(request=request, digest=digest, started_at_seconds=0.0, wall_seconds=0.0, unsupported="no")


def with_measured(profile: Profile, *measurements: Measurement) -> Profile:
    return replace(profile, measurements=(*profile.measurements, *measurements))


def measured(name: str, stop_after: int = 10**6) -> tuple[Profile, list[list[Request]]]:
    """The profile of a fake machine, and the requests of each call of the plan; replanned after every measurement."""
    profile, prompts, engine = fake.demo(name)
    calls = []
    while len(profile.measurements) < stop_after:
        requests = plan.next_requests(profile).requests
        if not requests:
            break
        calls.append(list(requests))
        profile = with_measured(profile, execute(engine, requests[0], profile, prompts, engine.clock))
    return profile, calls


def test_bandwidth_and_a_plain_pass_of_every_target_come_first():
    profile, _, _ = fake.demo("interior-tie")
    bandwidth, plain = plan.next_requests(profile).requests
    assert bandwidth.action == "bandwidth"
    assert (plain.action, plain.repeats) == ("runs", plan.FIRST_REPEATS)
    assert [setting.target for setting in plain.settings] == ["target-q4", "target-q8"]
    assert set(plain.workloads) == {"ordinary", "copying"}


def test_then_every_model_on_both_sides_of_the_kernel_switches_at_contexts_that_span_the_replies():
    profile, calls = measured("interior-tie", stop_after=3)
    assert [request.action for request in calls[2]] == ["steps", "verify", "steps", "steps"]
    verify = calls[2].pop(1)
    assert verify.model == "target-q4" and verify.widths == (2, 3, 4, 5, 6, 7, 8, 9, 13, 17)
    requests = calls[2]
    assert {request.model: request.role for request in requests} == {
        "target-q4": "target",
        "target-q8": "target",
        "draft-q4": "draft",
    }
    assert all({1, 8, 9, 16, 17} <= set(request.widths) for request in requests)
    assert all(request.expected_seconds > 0 for request in requests)
    replies = [reply for run in profile.measurements[1].runs for reply in run.replies]
    for request in requests:
        low, high = request.contexts
        assert low <= max(plan.CONTEXT_GRAIN, min(reply.prompt_tokens for reply in replies))
        assert high >= max(reply.prompt_tokens + reply.reply_tokens for reply in replies)


def test_a_clearly_slower_target_is_run_once_and_the_others_go_on_counting():
    _, calls = measured("interior-tie", stop_after=7)
    (more,) = calls[6]
    assert [setting.target for setting in more.settings] == ["target-q4"]
    assert more.first_repeat == plan.FIRST_REPEATS
    assert more.first_repeat + more.repeats == plan.PLAIN_REPEATS


def test_targets_of_equal_speed_are_interleaved():
    profile, _, _ = fake.demo("interior-tie")
    for request in (*plan.first_requests(profile), *plan.step_requests(profile)):
        profile = with_measured(profile, refused(request))
    (block,) = plan.plain_requests(profile)
    assert len(block.settings) == 2


def test_at_most_three_lengths_a_drafter_are_measured_and_leave_others_to_forecast():
    profile, _ = measured("kernel-switch")
    lengths: dict[tuple[str, str], set[int]] = {}
    for measurement in profile.measurements:
        for setting in measurement.request.settings:
            if measurement.request.action in ("rounds", "trace"):
                lengths.setdefault((setting.target, setting.drafter), set()).add(setting.draft_tokens)
    assert lengths
    assert all(len(found) <= 3 for found in lengths.values())
    assert not any(measurement.unsupported for measurement in profile.measurements)


def test_what_cannot_win_is_dropped_with_its_numbers_but_each_drafter_kind_is_measured_once():
    profile, _ = measured("loses-at-90")
    screening = plan.screen(profile)
    best = plan.best_plain_speed(profile)
    assert best is not None and best.target == "target-q4"
    assert {candidate.drafter for candidate in screening.kept} == {"model", "ngram"}
    assert set(screening.dropped) < {plan.candidate_name(candidate) for candidate in profile.candidates}
    assert screening.dropped
    by_ceiling = [reason for reason in screening.dropped.values() if "perfect acceptance" in reason]
    assert by_ceiling and all(f"{best.tokens_per_second:.1f} tokens/s" in reason for reason in by_ceiling)
    assert plan.next_requests(profile).dropped == screening.dropped


def test_where_acceptance_cannot_be_forced_real_rounds_are_asked_for():
    profile, _, _ = fake.demo("interior-tie")
    candidate = profile.candidates[0]
    (forced,) = plan.round_requests(profile, candidate, [4])
    assert forced.forced_rates == (0.0,) * 4
    unforced = replace(profile, engine=replace(profile.engine, capabilities=()))
    (real,) = plan.round_requests(unforced, candidate, [4])
    assert real.forced_rates is None
    assert real.settings == (candidate.setting(4),)


def test_an_engine_that_can_do_nothing_ends_the_plan_too():
    profile, _, _ = fake.demo("no-rollback")
    for _ in range(20):
        requests = plan.next_requests(profile).requests
        profile = with_measured(profile, *map(refused, requests))
    assert plan.next_requests(profile).requests == ()
    assert plan.best_plain_speed(profile) is None


def test_the_plan_is_the_same_however_often_it_is_interrupted():
    often, _ = measured("interior-tie")
    profile, prompts, engine = fake.demo("interior-tie")
    while requests := plan.next_requests(profile).requests:
        done = [execute(engine, request, profile, prompts, engine.clock) for request in requests]
        profile = with_measured(profile, *done)
    assert [m.digest for m in profile.measurements] == [m.digest for m in often.measurements]


def test_far_apart_contexts_have_one_between_them():
    """Rounds are timed at the ends alone."""
    blank = fake.demo("interior-tie")[0]
    long = PromptRun(
        prompt=blank.prompts[0],
        repeat=0,
        prompt_tokens=4100,
        reply_tokens=512,
        prefill_seconds=1.0,
        decode_seconds=9.0,
        wall_seconds=10.0,
    )
    run = Run(
        setting=blank.candidates[0].setting(0),
        sampling=blank.sampling,
        replies=(long, replace(long, prompt_tokens=100, reply_tokens=64)),
    )
    profile = with_measured(blank, replace(refused(Request(action="runs")), unsupported="", runs=(run,)))
    low, middle, high = plan.contexts_of(profile, 8192)
    assert low <= 100 and high >= 4612 and abs(middle - (low + high) / 2) < plan.CONTEXT_GRAIN
    candidate = replace(next(one for one in profile.candidates if one.drafter == "model"), context=8192)
    assert plan.round_requests(profile, candidate, [4])[0].contexts == (low, high)
    assert plan.round_requests(profile, candidate, [4], most_contexts=1)[0].contexts == (low,)


@given(st.integers(64, 100_000))
def test_contexts_leave_room_for_the_widest_pass(reserved: int):
    contexts = plan.contexts_of(fake.demo("interior-tie")[0], reserved)
    assert len(set(contexts)) == len(contexts) == 2
    assert all(0 < context <= reserved - max(plan.WIDTHS) for context in contexts)


@given(st.sets(st.integers(1, 40), min_size=1).map(sorted))
def test_spread_takes_allowed_lengths_near_the_wanted_ones(lengths: list[int]):
    found = plan.spread(lengths, plan.ROUND_LENGTHS)
    assert set(found) <= set(lengths)
    assert list(found) == sorted(set(found))
    assert 1 <= len(found) <= 3

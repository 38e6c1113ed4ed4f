"""A session keeps what it has, resumes what fits, and overwrites nothing silently."""

import json

import pytest
from msgspec.structs import replace

from specgauge.profiler.engines import fake
from specgauge.profiler.engines.base import EngineFailed
from specgauge.profiler.errors import InputError, WorkFailed
from specgauge.profiler.files import read_record, write_record
from specgauge.profiler.records import Profile, Request
from specgauge.profiler.session import Session, open_profile


def requests(profile: Profile) -> list[Request]:
    setting = profile.candidates[0].setting(2)
    return [
        Request(action="bandwidth", expected_seconds=1.0),
        Request(action="steps", model="target-q4", role="target", widths=(1, 2), contexts=(128,), expected_seconds=2.0),
        Request(action="trace", settings=(setting,), workloads=("ordinary",), expected_seconds=3.0),
    ]


def session(path, crash_after=None, **keywords):
    blank, prompts, _ = fake.demo("interior-tie")
    engine = fake.FakeEngine(fake.MACHINES["interior-tie"], crash_after=crash_after)
    return Session(engine, open_profile(path, blank), path, prompts, **keywords), engine


def test_performs_writes_and_finishes(tmp_path):
    path, seen = tmp_path / "out" / "profile.json", []
    made, engine = session(path, on_progress=seen.append)
    profile = made.perform(requests(made.profile))
    assert [m.request.action for m in profile.measurements] == ["bandwidth", "steps", "trace"]
    assert read_record(path, Profile) == profile == made.profile and not profile.complete
    assert profile.profile_seconds == pytest.approx(engine.clock())
    assert [(p.done, p.total, p.request and p.request.action) for p in seen] == [
        (0, 3, "bandwidth"),
        (1, 3, "steps"),
        (2, 3, "trace"),
        (3, 3, None),
    ]
    assert [p.label for p in seen[1:]] == [
        "2/3 steps of target-q4",
        "3/3 trace of target-q4 with model draft-q4 2",
        "measured",
    ]
    assert seen[0].spent_seconds == 0.0 and seen[-1].spent_seconds == pytest.approx(profile.profile_seconds)
    assert seen[0].seconds_left == 6.0 and seen[-1].seconds_left == 0.0
    done = made.finish(dropped={"a x b": "too slow"}, warnings=("hot",))
    assert done.complete and read_record(path, Profile) == done
    assert done.dropped == {"a x b": "too slow"} and done.warnings == ("hot",)
    assert made.kept_aside is None


def test_the_file_is_there_after_each_measurement(tmp_path):
    path, counts = tmp_path / "profile.json", []
    made, _ = session(path, on_progress=lambda p: counts.append(len(read_record(path, Profile).measurements)))
    made.perform(requests(made.profile))
    assert counts == [0, 1, 2, 3]


def test_what_is_done_is_not_done_again(tmp_path):
    path, seen = tmp_path / "profile.json", []
    made, engine = session(path, on_progress=seen.append)
    first = made.perform(requests(made.profile)[:2])
    before = engine.clock()
    assert made.perform(requests(made.profile)[:2]) == first and engine.clock() == before
    same = replace(requests(made.profile)[0], expected_seconds=99.0)
    made.perform([same, *requests(made.profile), *requests(made.profile)])
    assert [m.request.action for m in made.profile.measurements] == ["bandwidth", "steps", "trace"]
    assert [p.total for p in seen] == [2, 2, 2, 1, 1]


def test_a_dead_engine_leaves_the_evidence_and_the_next_session_resumes(tmp_path):
    path = tmp_path / "profile.json"
    made, engine = session(path, crash_after=8)
    with pytest.raises(EngineFailed):
        made.perform(requests(made.profile))
    left = read_record(path, Profile)
    assert [m.request.action for m in left.measurements] == ["bandwidth"] and not left.complete
    assert left.profile_seconds == pytest.approx(engine.clock())
    resumed, second = session(path)
    assert resumed.profile == left
    profile = resumed.perform(requests(left))
    assert [m.request.action for m in profile.measurements] == ["bandwidth", "steps", "trace"]
    assert profile.measurements[0] == left.measurements[0]
    assert profile.profile_seconds == pytest.approx(left.profile_seconds + second.clock())
    assert profile.measurements[1].started_at_seconds >= left.profile_seconds
    assert resumed.kept_aside is None and [p.name for p in tmp_path.iterdir()] == ["profile.json"]


def test_ctrl_c_leaves_the_evidence(tmp_path, monkeypatch):
    path = tmp_path / "profile.json"
    made, engine = session(path)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "rounds", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.perform(requests(made.profile))
    left = read_record(path, Profile)
    assert [m.request.action for m in left.measurements] == ["bandwidth", "steps"] and not left.complete


def test_an_unwritable_place_is_found_before_the_first_measurement(tmp_path):
    (tmp_path / "file").write_text("mine")
    blank, prompts, engine = fake.demo("interior-tie")
    made = Session(engine, blank, tmp_path / "file" / "profile.json", prompts)
    with pytest.raises(WorkFailed):
        made.perform(requests(blank))
    assert engine.clock() == 0.0


def test_open_takes_up_only_what_fits(tmp_path):
    path = tmp_path / "profile.json"
    blank = fake.demo("interior-tie")[0]
    assert open_profile(path, blank) is blank
    old = replace(blank, created="2001-01-01", profile_seconds=7.0)
    write_record(path, old)
    assert open_profile(path, blank) == old
    changes = {
        "key": replace(blank.key, driver="other"),
        "models": blank.models[:-1],
        "prompts": blank.prompts[1:],
        "sampling": replace(blank.sampling, temperature=0.5),
        "candidates": blank.candidates[:1],
        "sentinel_model": "draft-q4",
        "complete": True,
    }
    for name, value in changes.items():
        write_record(path, replace(old, **{name: value}))
        assert open_profile(path, blank) is blank, name


def test_another_profile_is_kept_aside_not_lost(tmp_path):
    path = tmp_path / "profile.json"
    made, _ = session(path)
    made.perform(requests(made.profile)[:1])
    finished = made.finish()
    second, _ = session(path)
    assert not second.profile.measurements
    second.perform(requests(second.profile)[:2])
    second.finish()
    assert second.kept_aside is not None and read_record(second.kept_aside, Profile) == finished
    assert read_record(path, Profile) == second.profile
    assert len(list(tmp_path.iterdir())) == 2


def test_a_profile_of_another_schema_is_kept_aside(tmp_path):
    path = tmp_path / "profile.json"
    path.write_text('{"kind": "specgauge-profile", "schema_version": 0, "old": 1}')
    made, _ = session(path)
    made.perform(requests(made.profile)[:1])
    assert made.kept_aside is not None and json.loads(made.kept_aside.read_text())["old"] == 1


@pytest.mark.parametrize(
    "content", ["", "my notes", '{"mine": 1}', '{"kind": "specgauge-validation"}', '{"kind": "spec']
)
def test_what_is_not_ours_is_refused_and_left(tmp_path, content):
    path = tmp_path / "profile.json"
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        session(path)
    assert "\n" not in str(caught.value) and path.read_text() == content


def test_a_folder_in_the_place_is_refused(tmp_path):
    with pytest.raises(InputError, match="is a folder"):
        open_profile(tmp_path, fake.demo("interior-tie")[0])

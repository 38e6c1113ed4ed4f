"""Records on disk: whole or not at all, and refused in one line whatever is wrong with them."""

import hashlib
import json
import os
import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgauge.calibrate.records import Calibration, Recommendation, Validation
from specgauge.profiler import files
from specgauge.profiler.errors import InputError, WorkFailed
from specgauge.profiler.files import file_sha256, read_head, read_record, record_digest, write_record
from specgauge.profiler.records import BandwidthSample, EngineInfo, Key, Measurement, Profile, Request, Sampling


def a_profile(**changes) -> Profile:
    fields = {
        "created": "2026-01-01T00:00:00+00:00",
        "tool_version": "0",
        "key": Key(engine="fake", power_limit_watts=350.5),
        "engine": EngineInfo(name="fake", build="1", backend="simulated", spellings={"b": "2", "a": "1"}),
        "models": (),
        "prompts": (),
        "sampling": Sampling(),
        "candidates": (),
    }
    return Profile(**{**fields, **changes})


def with_bandwidth(*bytes_per_second: float) -> Profile:
    sample = BandwidthSample(operation="read", device="d", bytes_per_second=bytes_per_second, provenance="measured")
    request = Request(action="bandwidth")
    taken = Measurement(
        request=request, digest=request.digest(), started_at_seconds=0, wall_seconds=1, bandwidth=(sample,)
    )
    return a_profile(measurements=(taken,))


def message(path, type=Profile) -> str:
    with pytest.raises(InputError) as caught:
        read_record(path, type)
    text = str(caught.value)
    assert "\n" not in text
    return text


def temporaries(folder) -> list[str]:
    return [name for name in os.listdir(folder) if name.endswith(".tmp")]


def test_what_is_written_is_read_back(tmp_path):
    path = tmp_path / "made" / "on the way" / "profile.json"
    digest = write_record(path, a_profile())
    assert read_record(path, Profile) == a_profile()
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest() == record_digest(a_profile()) == file_sha256(path)
    assert read_head(path).kind == "specgauge-profile"
    assert not temporaries(path.parent)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_floats_survive_to_the_last_bit(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("floats") / "p.json"
    write_record(path, with_bandwidth(*values))
    assert read_record(path, Profile).measurements[0].bandwidth[0].bytes_per_second == tuple(values)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_none_is_never_written(tmp_path, bad):
    path = tmp_path / "profile.json"
    write_record(path, a_profile())
    before = path.read_bytes()
    with pytest.raises(WorkFailed, match=r"measurements\.0\.bandwidth\.0\.bytes_per_second\.1 = "):
        write_record(path, with_bandwidth(1.0, bad))
    with pytest.raises(WorkFailed):
        record_digest(with_bandwidth(bad))
    assert path.read_bytes() == before
    assert not temporaries(tmp_path)


def test_a_link_is_followed(tmp_path):
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    link.symlink_to(real)
    write_record(link, a_profile())
    assert link.is_symlink() and read_record(real, Profile) == a_profile()


def test_a_parent_that_is_a_file_fails_in_one_line(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(WorkFailed, match="choose another --out") as caught:
        write_record(tmp_path / "file" / "profile.json", a_profile())
    assert "\n" not in str(caught.value)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_in_the_place_is_left_alone(tmp_path):
    (tmp_path / "profile.json").mkdir()
    with pytest.raises(WorkFailed, match="it is a folder"):
        write_record(tmp_path / "profile.json", a_profile())
    assert not temporaries(tmp_path)


FULL_DISK = """
import resource, signal, sys
from specgauge.profiler.errors import WorkFailed
from specgauge.profiler.files import read_record, write_record
from specgauge.profiler.records import Profile
from msgspec.structs import replace
path = sys.argv[1]
profile = read_record(path, Profile)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    write_record(path, replace(profile, warnings=("x" * 100000,)))
except WorkFailed as error:
    print(error)
    sys.exit(1)
"""


def test_a_full_disk_leaves_the_old_file(tmp_path):
    path = tmp_path / "profile.json"
    write_record(path, a_profile())
    before = path.read_bytes()
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, path], capture_output=True, text=True, timeout=60, env=dict(os.environ)
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout.count("\n") == 1 and "cannot be written" in done.stdout and str(path) in done.stdout
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["profile.json"]


def test_what_a_killed_writer_left_is_removed_and_a_living_ones_is_not(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead, alive = (tmp_path / f".profile.json.{process}.tmp" for process in (ended.pid, os.getppid()))
    dead.write_text("half a fi")
    alive.write_text("half a fi")
    write_record(tmp_path / "profile.json", a_profile())
    assert not dead.exists() and alive.exists()


def test_missing_and_folder_and_pipe(tmp_path):
    assert "does not exist" in message(tmp_path / "none.json")
    assert "is a folder" in message(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in message(tmp_path / "pipe")
    assert "cannot be read" in message("with\0null")
    assert "does not exist" in message(tmp_path / "two\nlines")


@pytest.mark.parametrize(
    "content",
    [b"", b"text", b"[1, 2", b"\xff\xfe", b"[" * 100000, b"[]", b"3", b'{"kind": 3}', b'{"kind": "specgauge-profile"'],
)
def test_no_json_object_of_ours(tmp_path, content):
    (tmp_path / "f").write_bytes(content)
    assert "is not a JSON file of specgauge" in message(tmp_path / "f")


def test_another_kind_and_another_schema(tmp_path):
    path = tmp_path / "f.json"
    path.write_text("{}")
    assert "no record of specgauge" in message(path)
    path.write_text('{"kind": "specgauge-valid\\nation", "schema_version": 1}')
    assert "not a specgauge-profile" in message(path)
    path.write_text('{"kind": "specgauge-profile", "schema_version": 2}')
    assert "update specgauge" in message(path)
    path.write_text('{"kind": "specgauge-profile"}')
    assert "make the file anew" in message(path)


@pytest.mark.parametrize(
    ("place", "value"),
    [("surprise", 1), ("profile_seconds", None), ("models", {}), ("complete", "yes"), ("profile_seconds", "1")],
)
def test_a_damaged_profile(tmp_path, place, value):
    path = tmp_path / "profile.json"
    write_record(path, a_profile())
    path.write_text(json.dumps({**json.loads(path.read_text()), place: value}))
    assert "is a damaged specgauge-profile" in message(path) and place in message(path)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "-1e999"])
def test_a_number_that_is_none_is_never_read(tmp_path, number):
    path = tmp_path / "profile.json"
    write_record(path, a_profile())
    path.write_text(path.read_text().replace('"profile_seconds": 0.0', f'"profile_seconds": {number}'))
    assert number in path.read_text()
    message(path)


def test_a_truncated_profile(tmp_path):
    path = tmp_path / "profile.json"
    write_record(path, with_bandwidth(1.0))
    path.write_bytes(path.read_bytes()[:-20])
    assert str(path) in message(path)


def test_a_huge_file_is_refused_unread(tmp_path):
    path = tmp_path / "huge.json"
    with open(path, "wb") as file:
        file.truncate(files.MAX_BYTES + 1)
    assert "MiB" in message(path)


@pytest.mark.parametrize("type", [Profile, Calibration, Recommendation, Validation])
def test_every_stored_type_can_be_told_from_the_others(tmp_path, type):
    """By its kind: an empty record of another kind is refused, one of its own gets as far as its missing fields."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(type)}
    path = tmp_path / "f.json"
    path.write_text(json.dumps({"kind": defaults["kind"], "schema_version": defaults["schema_version"]}))
    assert "missing required field" in message(path, type)
    for other in {Profile, Calibration, Recommendation, Validation} - {type}:
        assert f"is a {defaults['kind']}, not a" in message(path, other)

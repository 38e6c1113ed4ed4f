"""The command line: exit codes, one line an error, the five files, and an interrupted profile that goes on."""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from specgauge import cli, process
from specgauge.profiler.engines.fake import FakeEngine
from specgauge.profiler.errors import InputError

FAKE = ("--engine", "fake:interior-tie")
FIELDS = {"drafter", "draft_tokens", "context", "streams", "target_quant", "draft_quant", "level", "provenance"}
FIELDS |= {"tokens_per_second", "low", "high"}
FILES = ("profile.json", "calibration.json", "recommendation.json", "validation.json", "report.html")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of one whole run on a fake machine."""
    out = tmp_path_factory.mktemp("cli") / "out"
    assert cli.main(["run", *FAKE, "--out", str(out)]) == 0
    return out


def fails(capsys: pytest.CaptureFixture[str], code: int, *words: object) -> str:
    """The one line on stderr of a command that fails with `code`."""
    assert cli.main([str(word) for word in words]) == code
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if line.startswith("specgauge: ")]
    assert len(lines) == 1, captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""
    return lines[0]


# --- a whole run


def test_a_run_leaves_the_five_files_and_says_what_to_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["run", *FAKE, "--out", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} >= set(FILES)
    shown = capsys.readouterr().out
    assert "Command, for all workloads in equal shares:" in shown and str(tmp_path / "report.html") in shown.replace(
        "\n", ""
    )


def test_a_run_forecasts_what_it_then_measures(ran: Path):
    validation = json.loads((ran / "validation.json").read_text())
    assert validation["n_rows"] >= 6
    assert set(validation["by_drafter"]) == {"model", "ngram"}
    assert validation["mean_abs_error"] < 0.08
    assert [check["draft_tokens"] for check in validation["rounds"]] == list(range(1, 9))


def test_the_calibration_was_hashed_before_the_runs(ran: Path):
    validation = json.loads((ran / "validation.json").read_text())
    import hashlib

    assert validation["calibration_sha256"] == hashlib.sha256((ran / "calibration.json").read_bytes()).hexdigest()


def test_each_step_can_be_redone_from_the_one_before_it(ran: Path, capsys: pytest.CaptureFixture[str]):
    def without_time(name: str) -> dict:
        return {key: value for key, value in json.loads((ran / name).read_text()).items() if "created" not in key}

    before = without_time("calibration.json")
    for verb in ("calibrate", "recommend", "report"):
        assert cli.main([verb, "--out", str(ran)]) == 0
    assert without_time("calibration.json") == before
    assert cli.main(["validate", "--out", str(ran), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["kind"] == "specgauge-validation"


def test_run_json_is_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["run", "--engine", "fake:loses-at-90", "--out", str(tmp_path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document) == {"recommendation", "validation", "files", "checklist", "diagnoses"}
    assert len(document["checklist"]) == 7
    causes = {(one["setting"]["drafter"], one["causes"][0]["id"]) for one in document["diagnoses"]}
    assert causes == {("ngram", "acceptance-below-break-even"), ("model", "draft-too-dear")}
    assert document["recommendation"]["verdict"] == "do-not-speculate"
    assert [Path(path).name for path in document["files"]] == list(FILES)


def test_a_missed_tolerance_warns_and_fails_only_where_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ["run", *FAKE, "--out", str(tmp_path), "--tolerance", "0.0001", "--repeats", "1"]
    assert cli.main(words) == 0
    assert "more than --tolerance" in capsys.readouterr().err
    assert cli.main([*words, "--strict"]) == 3
    assert cli.main(["validate", "--out", str(tmp_path), "--tolerance", "0.0001", "--repeats", "1"]) == 3


def test_predict_gives_the_lengths_asked_for(ran: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["predict", "--profile", str(ran / "profile.json"), "--draft-tokens", "0..8", "--json"]) == 0
    predictions = json.loads(capsys.readouterr().out)["predictions"]
    fields = [
        "drafter",
        "draft_tokens",
        "context",
        "streams",
        "target_quant",
        "draft_quant",
        "tokens_per_second",
        "low",
        "high",
        "level",
        "provenance",
    ]
    assert all(set(fields) <= set(row) for row in predictions)
    assert {row["draft_tokens"] for row in predictions if row["drafter"] == "model"} == set(range(1, 9))
    assert {row["drafter"] for row in predictions if row["draft_tokens"] == 0} == {"none"}
    assert all(row["low"] <= row["tokens_per_second"] <= row["high"] for row in predictions)


def test_predict_needs_no_calibration(ran: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "profile.json").write_bytes((ran / "profile.json").read_bytes())
    assert cli.main(["predict", "--out", str(tmp_path), "--draft-tokens", "4"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"profile.json"}
    assert "tokens/s" in capsys.readouterr().out


# --- draft tokens


@pytest.mark.parametrize(
    ("text", "lengths"), [("4", (4,)), ("1..4", (1, 2, 3, 4)), ("8,2,2", (2, 8)), ("0,2..3", (0, 2, 3)), ("5..5", (5,))]
)
def test_draft_tokens_are_a_number_a_range_or_a_list(text: str, lengths: tuple[int, ...]):
    assert cli.parse_draft_tokens(text) == lengths


@pytest.mark.parametrize("text", ["-1", "", "a", "1..", "..3", "4..2", "1.5", "0..1000000000", "1,,2", "²"])
def test_other_draft_tokens_are_refused(text: str):
    with pytest.raises(InputError, match="--draft-tokens"):
        cli.parse_draft_tokens(text)


def test_draft_tokens_limit_the_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["profile", *FAKE, "--draft-tokens", "0,2,5", "--out", str(tmp_path), "--json"]) == 0
    profile = json.loads(capsys.readouterr().out)
    lengths = {candidate["drafter"]: candidate["draft_tokens"] for candidate in profile["candidates"]}
    assert lengths == {"model": [2, 5], "ngram": [5]}


# --- usage and input


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bogus"], "bogus"),
        (["run", "--bogus"], "--bogus"),
        (["run", "--threads", "many"], "many"),
        (["run", "--threads", "-2", *FAKE], "--threads"),
        (["run", "--repeats", "0", *FAKE], "--repeats"),
        (["run", "--tolerance", "-1", *FAKE], "--tolerance"),
        (["run", "--draft-tokens", "-1", *FAKE], "--draft-tokens"),
        (["profile", "--draft-tokens=-1", *FAKE], "--draft-tokens"),
        (["run", "--draft-tokens", "0", *FAKE], "--draft-tokens"),
        (["run", "--engine", "nope"], "llama.cpp"),
        (["run", "--engine", "fake:"], "fake:NAME"),
        (["run", "--engine", "fake:nope"], "interior-tie"),
        (["run", "--draft-tokens", "٣", *FAKE], "--draft-tokens"),
        (["run", "--seed", "-1", *FAKE], "--seed"),
        (["profile", "--seed", "4294967295", *FAKE], "--seed"),
        (["calibrate", "--seed", "-1"], "--seed"),
        (["run", "--repeats", "1000000000000", *FAKE], "--repeats"),
        (["run", "--tolerance", "inf", *FAKE], "--tolerance"),
        (["run", "model.gguf", "--server", "http://127.0.0.1:9", "--llama-server", "x"], "exclude"),
        (["run", *FAKE, "--out", "n" * 300], "longer than"),
        (["run", *FAKE, "--out", "/proc/specgauge"], "--out"),
        (["run", *FAKE, "--out", ""], "--out"),
        (["run", ""], "empty"),
        (["run", "~nosuchuser/x.gguf"], "~nosuchuser"),
        (["run", "--engine", "fake:no\x1b[31m\nsuch"], "\\x1b[31m"),
        (["run", *FAKE, "--", "-ngl", "99"], "llama-server"),
        (["run", *FAKE, "model.gguf"], "TARGET"),
        (["run", "--draft", "draft.gguf"], "TARGET"),
        (["run", "/no/such.gguf"], "/no/such.gguf"),
        (["calibrate"], "specgauge profile"),
        (["report"], "specgauge profile"),
        (["predict", "--profile", "none.json"], "none.json"),
    ],
)
def test_wrong_usage_is_one_line_and_2(words: list[str], said: str, tmp_path: Path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said in fails(capsys, 2, *words)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_and_a_text_file_are_no_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = tmp_path / "notes.gguf"
    text.write_text("not a model, but long enough to look like one" * 10)
    assert "notes.gguf" in fails(capsys, 2, "run", text, "--out", tmp_path / "out")
    assert str(tmp_path) in fails(capsys, 2, "run", tmp_path, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_output_folder_below_a_file_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(FakeEngine, "warm_up", lambda *_: pytest.fail("it started"))
    (tmp_path / "file").write_text("")
    assert "is not a folder" in fails(capsys, 2, "run", *FAKE, "--out", tmp_path / "file" / "out")
    assert "is not a folder" in fails(capsys, 2, "run", *FAKE, "--out", tmp_path / "file")


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unwritable for root")
def test_an_unwritable_output_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    tmp_path.chmod(0o500)
    assert "not writable" in fails(capsys, 2, "run", *FAKE, "--out", tmp_path / "out")


def test_a_file_of_another_kind_or_run_is_refused(ran: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for name in FILES[:3]:
        (tmp_path / name).write_bytes((ran / name).read_bytes())
    (tmp_path / "profile.json").write_bytes((ran / "calibration.json").read_bytes())
    assert "specgauge-calibration" in fails(capsys, 2, "calibrate", "--out", tmp_path)
    assert cli.main(["profile", "--engine", "fake:no-rollback", "--out", str(tmp_path / "other")]) == 0
    (tmp_path / "profile.json").write_bytes((tmp_path / "other" / "profile.json").read_bytes())
    capsys.readouterr()
    assert "specgauge calibrate" in fails(capsys, 2, "recommend", "--out", tmp_path)


def edited(path: Path, edit) -> None:
    """Let `edit` change the document of a file."""
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))


def first_of(profile, kind):
    """The first sample of a kind in a profile's document."""
    return next(measurement[kind][0] for measurement in profile["measurements"] if measurement[kind])


@pytest.mark.parametrize(
    "edit",
    [
        lambda profile: first_of(profile, "steps")["seconds"].__setitem__(0, -0.01),
        lambda profile: first_of(profile, "rounds")["seconds"].__setitem__(0, 0.0),
        lambda profile: first_of(profile, "rounds")["accepted"].__setitem__(0, 99),
        lambda profile: first_of(profile, "runs")["replies"][0].__setitem__("decode_seconds", -1.0),
        lambda profile: first_of(profile, "matches")["match"].append(7),
        lambda profile: first_of(profile, "traces")["prompts"][0]["drafted"].pop(),
        lambda profile: profile.__setitem__("candidates", []),
    ],
)
def test_a_profile_with_numbers_that_cannot_be_is_refused(edit, ran: Path, tmp_path: Path, capsys):
    (tmp_path / "profile.json").write_bytes((ran / "profile.json").read_bytes())
    edited(tmp_path / "profile.json", edit)
    assert "profile.json" in fails(capsys, 2, "calibrate", "--out", tmp_path)


def test_an_edited_calibration_is_refused(ran: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for name in FILES[:2]:
        (tmp_path / name).write_bytes((ran / name).read_bytes())
    edited(tmp_path / "calibration.json", lambda found: found["acceptance"][0]["survival"].__setitem__(0, 0.1))
    assert "specgauge calibrate" in fails(capsys, 2, "recommend", "--out", tmp_path)


def test_an_edited_recommendation_is_refused(ran: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for name in FILES[:3]:
        (tmp_path / name).write_bytes((ran / name).read_bytes())
    edited(tmp_path / "recommendation.json", lambda found: found["chosen"].__setitem__("draft_tokens", 99))
    assert "specgauge recommend" in fails(capsys, 2, "validate", "--out", tmp_path)


def test_two_runs_in_one_folder_exclude_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with process.alone_in(tmp_path):
        assert "another specgauge works in" in fails(capsys, 2, "profile", *FAKE, "--out", tmp_path)


# --- failure and interruption


class Interrupted(FakeEngine):
    """Ctrl-C is pressed at the first plain run."""

    def run(self, *_):
        raise KeyboardInterrupt


def test_an_interrupted_profile_is_kept_and_goes_on(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch):
    words = ("profile", *FAKE, "--out", tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(FakeEngine, "run", Interrupted.run)
        line = fails(capsys, 1, *words)
    assert line == f"specgauge: interrupted: evidence kept in {tmp_path}/profile.json; run the same command to resume"
    kept = json.loads((tmp_path / "profile.json").read_text())
    assert len(kept["measurements"]) == 1 and not kept["complete"]
    assert "not complete" in fails(capsys, 2, "calibrate", "--out", tmp_path)
    assert cli.main([str(word) for word in words]) == 0
    whole = json.loads((tmp_path / "profile.json").read_text())
    assert whole["complete"]
    assert whole["measurements"][:1] == kept["measurements"]


def test_an_interrupted_check_says_how_to_go_on(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch):
    from specgauge.calibrate import arms

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(arms, "run_until_settled", interrupted)
        assert "specgauge validate --out" in fails(capsys, 1, "run", *FAKE, "--out", tmp_path)
    assert cli.main(["validate", "--out", str(tmp_path), "--repeats", "1", "--tolerance", "1"]) == 0


def test_a_crashed_engine_is_one_line_and_its_evidence_is_kept(tmp_path: Path, capsys, monkeypatch):
    real = FakeEngine.__init__
    monkeypatch.setattr(FakeEngine, "__init__", lambda self, machine, seed=1: real(self, machine, seed, 400))
    assert "crashed" in fails(capsys, 1, "run", *FAKE, "--out", tmp_path)
    assert json.loads((tmp_path / "profile.json").read_text())["measurements"]


def test_an_engine_is_closed_whatever_happens(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch):
    closed = []
    monkeypatch.setattr(FakeEngine, "run", Interrupted.run)
    monkeypatch.setattr(FakeEngine, "close", lambda self: closed.append(self))
    fails(capsys, 1, "profile", *FAKE, "--out", tmp_path)
    assert len(closed) == 1


def test_a_fault_of_ours_is_one_line_too_and_its_traceback_is_shown_with_debug(tmp_path: Path, capsys, monkeypatch):
    def faulty(*_):
        raise RuntimeError("broken\nin two lines")

    monkeypatch.setattr(cli, "parse_draft_tokens", faulty)
    line = fails(capsys, 1, "predict", "--draft-tokens", "3")
    assert "broken in two lines" in line and "bug" in line
    assert cli.main(["predict", "--draft-tokens", "3", "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


def in_child(*words: object, before=None, **more) -> subprocess.CompletedProcess[str]:
    """`specgauge words...` in a process of its own."""
    command = [sys.executable, "-m", "specgauge", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, preexec_fn=before, **more)


def test_a_full_disk_is_one_line_and_1(tmp_path: Path):
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    done = in_child("profile", *FAKE, "--out", tmp_path, before=small_files)
    lines = [line for line in done.stderr.splitlines() if line.startswith("specgauge: ")]
    assert (done.returncode, len(lines)) == (1, 1), done.stderr
    assert "cannot be written" in lines[0] and "Traceback" not in done.stderr
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["profile.json"]
    json.loads((tmp_path / "profile.json").read_text())


def test_sigterm_ends_the_work_as_ctrl_c_does(tmp_path: Path):
    program = (
        "import sys, time\n"
        "from specgauge import cli\n"
        "from specgauge.profiler.engines.fake import FakeEngine\n"
        "def slow(*_):\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
        "FakeEngine.run = slow\n"
        f"sys.exit(cli.main(['profile', *{FAKE!r}, '--out', {str(tmp_path)!r}]))\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGTERM)
    _, errors = child.communicate(timeout=30)
    assert child.returncode == 1
    assert errors.splitlines()[-1].startswith("specgauge: interrupted: evidence kept in")


# --- a quick start


def test_help_is_quick_because_nothing_heavy_is_imported():
    heavy = ("torch", "scipy", "pandas", "plotly", "numpy", "jinja2", "httpx", "msgspec")
    program = (
        "import sys\n"
        "from specgauge.cli import main\n"
        "code = main(['--help'])\n"
        f"print(code, [name for name in {heavy!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert "recommend" in done.stdout
    assert done.stderr == "0 []\n"


def test_the_module_is_the_command():
    done = in_child("--version")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, __import__("specgauge").__version__, "")
    assert in_child("bogus").returncode == 2


def test_what_stands_behind_two_dashes_is_the_engines():
    assert cli._with_engine_flags(["run", "a", "--", "-ngl", "99", "--", "--help"]) == [
        "run",
        "a",
        "--engine-flag=-ngl",
        "--engine-flag=99",
        "--engine-flag=--",
        "--engine-flag=--help",
    ]

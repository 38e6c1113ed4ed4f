"""Own prompts and exports on the command line: the whole line on the fake engine, and one line for whatever is wrong."""

import json
from pathlib import Path

import pytest

from specgauge import cli
from specgauge.profiler.files import read_record
from specgauge.profiler.records import Profile

from .test_cli import FAKE, FILES, fails

SECRET = "zzsecret-hunter2"


def prompts_file(folder: Path) -> Path:
    lines = [
        {"messages": [{"role": "user", "content": f"{SECRET} function {i}"}], "class": "acme tickets"}
        for i in range(14)
    ]
    lines += [{"prompt": f"{SECRET} story {i}", "class": "chat"} for i in range(6)]
    path = folder / "mine.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run over own prompts; the run is in out/."""
    folder = tmp_path_factory.mktemp("prompts")
    words = ["run", *FAKE, "--prompts", prompts_file(folder), "--prompt-count", "10", "--out", folder / "out"]
    assert cli.main([str(word) for word in words]) == 0
    return folder


def test_a_run_over_own_prompts_advises_for_their_mix_and_keeps_their_text_to_itself(ran: Path):
    out = ran / "out"
    assert {path.name for path in out.iterdir()} >= set(FILES)
    for path in out.rglob("*"):
        assert path.is_dir() or SECRET not in path.read_text(errors="replace"), path.name
    advice = json.loads((out / "recommendation.json").read_text())
    assert advice["workload_shares"] == pytest.approx({"acme tickets": 0.7, "chat": 0.3})
    assert "in the shares of your prompts: 70 % acme tickets, 30 % chat" in (out / "report.html").read_text()
    profile = read_record(out / "profile.json", Profile)
    assert len(profile.prompts) == 10 and profile.prompt_texts == ()


def test_a_validation_needs_the_same_file_again(ran: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = ran / "out"
    assert "give their file with --prompts FILE" in fails(capsys, 2, "validate", "--out", out)
    other = tmp_path / "other.txt"
    other.write_text("another prompt\n")
    assert "not the file that was profiled" in fails(capsys, 2, "validate", "--out", out, "--prompts", other)
    words = ["validate", "--out", out, "--prompts", ran / "mine.jsonl", "--repeats", "5"]
    assert cli.main([str(word) for word in words]) in (0, 3)
    shown = " ".join(capsys.readouterr().out.split())
    assert "for all workloads in the shares of your prompts: 70 % acme tickets, 30 % chat" in shown


def test_stored_prompts_need_no_file(tmp_path: Path):
    words = ["profile", *FAKE, "--prompts", prompts_file(tmp_path), "--store-prompts", "--out", tmp_path / "out"]
    assert cli.main([str(word) for word in words]) == 0
    assert SECRET in (tmp_path / "out" / "profile.json").read_text()
    assert cli.main(["validate", "--out", str(tmp_path / "out")]) in (0, 3)
    assert SECRET not in (tmp_path / "out" / "validation.json").read_text()


def test_a_prompt_that_does_not_fit_ends_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "long.jsonl"
    path.write_text('{"prompt": "short"}\n' + json.dumps({"prompt": "word " * 2100}) + "\n")
    words = ("profile", *FAKE, "--prompts", path, "--out", tmp_path / "out")
    assert "line 2: 2,100 tokens" in fails_beside_progress(capsys, 2, *words)
    assert not (tmp_path / "out" / "profile.json").exists()
    assert cli.main([str(word) for word in (*words, "--context", 4096)]) == 0
    assert {c.context for c in read_record(tmp_path / "out" / "profile.json", Profile).candidates} == {4096}


def fails_beside_progress(capsys: pytest.CaptureFixture[str], code: int, *words: object) -> str:
    assert cli.main([str(word) for word in words]) == code
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("specgauge: ")]
    assert len(lines) == 1 and SECRET not in lines[0]
    return lines[0]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--prompts", "nowhere.jsonl"], "does not exist"),
        (["--prompts", "."], "regular file"),
        (["--prompt-count", "3"], "give --prompts FILE"),
        (["--store-prompts"], "give --prompts FILE"),
        (["--prompt-count", "0"], "--prompt-count"),
        (["--context", "10"], "--context"),
        (["--context", "99999999999"], "--context"),
    ],
)
def test_wrong_options_end_in_one_line(
    words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert says in fails(capsys, 2, "profile", *FAKE, *words)


def test_an_interrupted_profile_of_own_prompts_goes_on_only_with_the_same_draw(tmp_path: Path):
    """Another seed draws other prompts: what was measured is set aside, not mixed with it."""
    file, out = prompts_file(tmp_path), tmp_path / "out"
    words = ["profile", *FAKE, "--prompts", str(file), "--prompt-count", "8", "--out", str(out)]
    assert cli.main(words) == 0
    first = read_record(out / "profile.json", Profile)
    assert cli.main([*words, "--seed", "2"]) == 0
    second = read_record(out / "profile.json", Profile)
    assert {p.text_sha256 for p in first.prompts} != {p.text_sha256 for p in second.prompts}
    used = {r.prompt.id for m in second.measurements for run in m.runs for r in run.replies}
    assert used == {prompt.id for prompt in second.prompts}


# --- export


@pytest.mark.parametrize("verb", [["export"], ["profile", "export"]])
def test_an_export_says_what_it_leaves_out_and_serves_all_that_needs_no_engine(
    verb: list[str], ran: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    shared = tmp_path / "shared" / "profile.json"
    assert cli.main([*verb, str(ran / "out"), "--out", str(shared)]) == 0
    told = capsys.readouterr()
    assert told.out.strip() == str(shared)
    assert "left out: hashes of prompts (10)" in told.err and "left out: paths (3)" in told.err
    text = shared.read_text()
    assert not any(word in text for word in ("acme", "/simulated", "target-q4", "draft-q4"))
    assert not any(prompt.text_sha256 in text for prompt in read_record(ran / "out" / "profile.json", Profile).prompts)
    for again in ("calibrate", "recommend", "diagnose", "predict", "report"):
        assert cli.main([again, "--out", str(shared.parent)]) == 0
    assert cli.main(["compare", str(shared), str(ran / "out" / "profile.json")]) == 0
    capsys.readouterr()
    assert "a shared profile names no files" in fails(capsys, 2, "validate", "--out", shared.parent)
    ours, theirs = (json.loads((folder / "recommendation.json").read_text()) for folder in (ran / "out", shared.parent))
    assert ours["forecast_tokens_per_second"] == theirs["forecast_tokens_per_second"]
    assert ours["chosen"]["draft_tokens"] == theirs["chosen"]["draft_tokens"] and theirs["command"] == ""


def test_an_export_writes_over_nothing(ran: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    profile, out = ran / "out" / "profile.json", tmp_path / "mine.txt"
    before = profile.read_bytes()
    out.write_text("mine")
    assert "is there already" in fails(capsys, 2, "export", profile, "--out", out)
    assert "the profile itself" in fails(capsys, 2, "export", profile, "--out", profile, "--force")
    assert out.read_text() == "mine" and profile.read_bytes() == before
    assert cli.main(["export", str(profile), "--out", str(out), "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["left_out"]["hashes of prompts"] == 10


def test_what_is_no_profile_is_not_exported(ran: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert "not a specgauge-profile" in fails(
        capsys, 2, "export", ran / "out" / "calibration.json", "--out", tmp_path / "x"
    )
    assert "does not exist" in fails(capsys, 2, "export", tmp_path / "nothing", "--out", tmp_path / "x")
    assert not (tmp_path / "x").exists()

"""specgauge import: every format from the command line, and nothing written for what cannot be read."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from specgauge import cli
from specgauge.profiler.files import read_record, write_record
from specgauge.profiler.records import Measurement, Profile, Request

DATA = Path(__file__).parent / "data"
LADDERS = ("community-5090-400w.csv", "rtx3090-mtp-ladder.csv", "rtx3090-context-ladder.csv")
SAMPLES = (
    "sample-rows.csv",
    "sample-llama-bench.json",
    "sample-llama-bench.jsonl",
    "sample-llama-bench-old.csv",
    "sample-completions.jsonl",
    "sample-timings.json",
    "sample-server.log",
    "sample-server-old.log",
    "sample-vllm-both.txt",
    "sample-batched-bench.jsonl",
)
EVERY = (*SAMPLES, *LADDERS)


def imports(*words: object) -> int:
    return cli.main(["import", *map(str, words)])


def refused(capsys: pytest.CaptureFixture[str], out: Path, *words: object) -> str:
    """The one line of an import that is refused with exit code 2 and writes nothing."""
    assert imports(*words, "--out", out) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 1, captured.err
    assert captured.err.startswith("specgauge: ") and "Traceback" not in captured.err
    assert not out.exists()
    return captured.err


# --- what is read


@pytest.mark.parametrize("name", EVERY)
def test_every_format_becomes_a_profile(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert imports(DATA / name, "--out", tmp_path) == 0
    profile = read_record(tmp_path / "profile.json", Profile)
    assert profile.complete and profile.candidates and profile.prompts and profile.models
    assert profile.measurements[0].request == Request(action="import")
    shown = capsys.readouterr().out
    assert name in shown and len(shown.splitlines()) > 2


def test_every_sample_is_listed_as_hand_written():
    listed = (DATA / "README.md").read_text()
    samples = [path.name for path in DATA.glob("sample-*")]
    assert len(samples) >= len(SAMPLES)
    assert [name for name in samples if name not in listed] == []


def test_two_snapshots_of_vllm_are_two_files(tmp_path: Path):
    files = [DATA / f"sample-vllm-{when}.txt" for when in ("before", "after")]
    assert imports(*files, "--drafter", "eagle", "--out", tmp_path) == 0
    (measurement,) = read_record(tmp_path / "profile.json", Profile).measurements
    assert measurement.reported_acceptance[0].setting.drafter == "eagle"


def test_json_is_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert imports(DATA / LADDERS[0], "--acceptance", DATA / LADDERS[1], "--json", "--out", tmp_path) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document) == {"profile", "files", "warnings"}
    assert [file["source"] for file in document["files"]] == list(LADDERS[:2])
    assert all(file["learned"] for file in document["files"])


def test_hints_reach_the_profile(tmp_path: Path):
    hints = [
        "--gpu",
        "RTX 3090",
        "--target",
        "T",
        "--target-quant",
        "Q4",
        "--drafter",
        "draft-mtp",
        "--draft-tokens",
        3,
    ]
    hints += ["--baseline", 41.5, "--workload", "code"]
    assert imports(DATA / "sample-timings.json", *hints, "--out", tmp_path) == 0
    profile = read_record(tmp_path / "profile.json", Profile)
    (row,) = profile.measurements[0].reported
    assert (row.setting.target, row.setting.target_quant, row.setting.drafter) == ("T", "Q4", "mtp")
    assert (row.workload, row.baseline_tokens_per_second, profile.key.gpu) == ("code", 41.5, "RTX 3090")


def test_imported_evidence_is_overwritten_and_measured_evidence_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "profile.json"
    assert imports(DATA / LADDERS[0], "--out", tmp_path) == 0
    assert imports(DATA / LADDERS[1], "--out", tmp_path) == 0
    profile = read_record(path, Profile)
    assert profile.key.gpu == "RTX 3090"
    own = Measurement(request=Request(action="steps"), digest="x", started_at_seconds=0.0, wall_seconds=1.0)
    write_record(path, _with(profile, own))
    before = path.read_bytes()
    capsys.readouterr()
    assert imports(DATA / LADDERS[0], "--out", tmp_path) == 2
    assert "was measured and is kept; choose another --out" in capsys.readouterr().err
    assert path.read_bytes() == before


def _with(profile: Profile, measurement: Measurement) -> Profile:
    return replace(profile, measurements=(*profile.measurements, measurement))


def test_a_profile_that_cannot_be_read_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "profile.json").write_text("mine")
    assert imports(DATA / LADDERS[0], "--out", tmp_path) == 2
    assert (tmp_path / "profile.json").read_text() == "mine"


def test_a_full_disk_leaves_the_old_profile(tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]):
    assert imports(DATA / LADDERS[0], "--out", tmp_path) == 0
    before = (tmp_path / "profile.json").read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    capsys.readouterr()
    assert imports(DATA / LADDERS[1], "--out", tmp_path) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["profile.json"]
    assert (tmp_path / "profile.json").read_bytes() == before


def test_an_interrupt_writes_nothing(tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("specgauge.calibrate.combine.profile_of", interrupted)
    assert imports(DATA / LADDERS[0], "--out", tmp_path / "out") == 1
    assert capsys.readouterr().err == "specgauge: interrupted\n" and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give one or more FILEs"),
        ([DATA / LADDERS[1], "--drafter", "medusa"], "--drafter medusa: no such kind"),
        ([DATA / LADDERS[1], "--draft-tokens", "0"], "--draft-tokens 0: give 1 to 64"),
        ([DATA / LADDERS[1], "--draft-tokens", "many"], "many"),
        ([DATA / LADDERS[1], "--baseline", "-1"], "--baseline -1.0: give tokens/s"),
        ([DATA / LADDERS[1], "--baseline", "nan"], "--baseline nan: give tokens/s"),
        ([DATA / LADDERS[0], DATA / LADDERS[1]], "GPU is RTX 3090, in community-5090-400w.csv it is RTX 5090 32GB"),
        ([DATA / LADDERS[1], DATA / LADDERS[1]], "would count twice"),
        ([DATA / LADDERS[1], "--acceptance", DATA / "sample-llama-bench.json"], "holds no acceptance"),
        ([DATA / "missing.csv"], "does not exist; check the path"),
        ([DATA], "is a folder"),
        (["/dev/zero"], "not a regular file"),
    ],
)
def test_what_cannot_be_meant_is_refused(words: list, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert said in refused(capsys, tmp_path / "out", *words)


# --- files that are cut, damaged, of other units or of another schema


def _cut(text: str) -> str:
    """The end missing, within a figure or name of the last line that has evidence."""
    evidence = ("#gen tokens", "accepted", "vllm:spec_decode_num_accepted_tokens_total", ",", "{")
    lines = text.rstrip("\n").split("\n")
    last = max(at for at, line in enumerate(lines) if any(mark in line for mark in evidence))
    kept = lines[last].replace("#gen tokens", "#gen tokens\0").split("\0")[0] if "#gen tokens" in lines[last] else None
    return "\n".join([*lines[:last], kept or lines[last][: len(lines[last]) // 2]])


def _repeated_column(text: str) -> str:
    """A column, field or counter that stands twice."""
    if text.startswith(("{", "[")):
        return text.replace('"n_gpu_layers": 99', '"n_gpu_layers": 99, "n_gpu_layers": 99').replace(
            '"predicted_n"', '"predicted_n": 9, "predicted_n"'
        )
    if "vllm:" in text:
        return text.replace("vllm:generation_tokens_total{", "vllm:spec_decode_num_drafts_total{", 1)
    if "eval time" in text:
        return text.replace(" accepted /", " accepted / 138 accepted /")
    header, rest = text.split("\n", 1)
    names = header.split(",")
    return ",".join([*names[:-1], names[0]]) + "\n" + rest


def _wrong_columns(text: str) -> str:
    """Columns, fields or counters that another schema has."""
    for name, other in (
        ("draft_tokens", "n_draft"),
        ("n_gen", "gen"),
        ("predicted_ms", "predicted_us"),
        ("generated)", "drafted)"),
        ("t_tg", "t_gen"),
        ("vllm:", "sglang:"),
    ):
        text = text.replace(name, other)
    return text


def _figures(text: str, value: str) -> str:
    """The figures that matter most, each replaced by `value`."""
    if text.startswith(("{", "[")):
        return re.sub(r'"(avg_ns|predicted_ms|t_tg)": [\d.]+', rf'"\1": {value}', text)
    if "vllm:" in text:
        return re.sub(r"(num_accepted_tokens_total\{.*\}|decode_time_seconds_sum\{.*\}) \S+", rf"\1 {value}", text)
    if "eval time" in text:
        return re.sub(r"( eval time =) +\S+ ms", rf"\1 {value} ms", text)
    quoted = '"' if text.split("\n")[1].startswith('"') else ""
    header, *rows = text.rstrip("\n").split("\n")
    name = "avg_ns" if "avg_ns" in header else "baseline_tps"
    at = header.split(",").index(name)
    cells = [row.split(",") for row in rows]
    return "\n".join([header, *(",".join([*c[:at], f"{quoted}{value}{quoted}", *c[at + 1 :]]) for c in cells)])


def _wide(text: str) -> str:
    """A line of 10,000 columns, where a log has it as one of its times."""
    return ("eval time =" if "eval time" in text else "") + ",".join(f"gpu{n}" for n in range(10_000)) + "\n" + text


CORRUPTIONS: dict[str, Callable[[str], str | bytes]] = {
    "cut": _cut,
    "wrong columns": _wrong_columns,
    "repeated columns": _repeated_column,
    "milliseconds": lambda text: _figures(text, "24.1 ms"),
    "NaN": lambda text: _figures(text, "NaN"),
    "infinite": lambda text: _figures(text, "Infinity"),
    "beyond any float": lambda text: _figures(text, "1e999"),
    "huge": lambda text: _figures(text, "1" + "0" * 300),
    "huge digits": lambda text: _figures(text, "1" + "0" * 6000),
    "negative": lambda text: _figures(text, "-24.1"),
    "zero": lambda text: _figures(text, "0"),
    "words": lambda text: _figures(text, "fast"),
    "empty": lambda text: "",
    "blank": lambda text: " \n\t\n",
    "not UTF-8": lambda text: text.encode()[:200] + b"\xff\xfe" + text.encode()[200:],
    "UTF-16": lambda text: text.encode("utf-16"),
    "NUL bytes": lambda text: text[:200] + "\0" + text[200:],
    "binary": lambda text: bytes(range(256)) * 40,
    "another schema": lambda text: '{"kind": "specgauge-profile", "schema_version": 99}',
    "a line of 10,000 columns": _wide,
    "deep JSON": lambda text: '{"timings": ' + "[" * 200_000 + "]" * 200_000 + "}",
    "a beginning alone": lambda text: text.split("\n")[0] + "\n" if text.startswith("gpu,") else text[:60],
}


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_a_damaged_file_is_one_line_and_exit_code_2_and_nothing_written(
    name: str, corruption: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    damaged = CORRUPTIONS[corruption]((DATA / name).read_text())
    path = tmp_path / name
    path.write_bytes(damaged if isinstance(damaged, bytes) else damaged.encode())
    line = refused(capsys, tmp_path / "out", path)
    assert name in line and len(line) < 400, line
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_a_damaged_file_beside_a_good_one_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "bad.csv"
    path.write_text("gpu,engine,target\n")
    refused(capsys, tmp_path / "out", DATA / LADDERS[1], path)
    refused(capsys, tmp_path / "out", DATA / LADDERS[1], "--acceptance", path)


def test_names_of_files_and_models_cannot_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "a\x1b[31m\nb.csv"
    text = (DATA / LADDERS[1]).read_text().replace("Qwen3.8-27B", "evil\x1b[2Jname")
    path.write_text(text)
    assert imports(path, "--out", tmp_path / "out") == 0
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err
    path.write_text("gpu\x1b,engine,target,x\n1,2,3\n")
    assert imports(path, "--out", tmp_path / "other") == 2
    assert "\x1b" not in capsys.readouterr().err

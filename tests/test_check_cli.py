"""`specgauge check` and `specgauge machine`: the verdict and the exit code for what users bring, from headers alone."""

import json
import os
import pickle
import struct
from pathlib import Path

import pytest

from specgauge import cli
from specgauge.profiler.checkpoints import source

from .calibrate.test_check_files import model, words
from .profiler.safetensors_files import model_folder

MOST_READ_BYTES = 32 * 2**20
QWEN_ROWS, MERGES = 248_320, 247_587


def checked(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, dict]:
    code = cli.main(["check", *map(str, arguments), "--memory", "8GiB", "--json"])
    return code, json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line of a file that cannot be read."""
    assert cli.main(["check", *map(str, arguments)]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1 and "Traceback" not in shown.err, shown.err
    return shown.err


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return (
        model(tmp_path, "Big-1B", words(300), hidden=256, layers=8),
        model(tmp_path, "Big-0.1B", words(300), hidden=64),
    )


def test_a_pair_of_one_tokenizer_is_compatible(pair, capsys):
    code, report = checked(capsys, pair[0], "--draft", pair[1])
    assert (code, report["pair"], report["memory"]) == (0, "compatible", "fits")
    assert len(report["checklist"]) == 7
    assert {point["status"] for point in report["checklist"]} <= {"pass", "fail", "not_measured"}


def test_another_tokenizer_is_incompatible(pair, tmp_path, capsys):
    code, report = checked(capsys, pair[0], "--draft", model(tmp_path, "Other-0.1B", words(300, "v")))
    assert (code, report["pair"]) == (2, "incompatible")
    assert report["findings"][0]["severity"] == "error" and report["findings"][0]["remedy"]


def test_padded_vocabularies_are_compatible_but_for_padding(pair, tmp_path, capsys):
    code, report = checked(capsys, pair[0], "--draft", model(tmp_path, "Padded-0.1B", words(300), padding=64))
    assert (code, report["pair"]) == (0, "padding_only")


def test_swapped_roles_warn(pair, capsys):
    code, report = checked(capsys, pair[1], "--draft", pair[0])
    assert (code, report["pair"]) == (0, "compatible")
    assert report["findings"][0]["id"] == "draft-larger-than-target"


def test_what_stands_behind_the_dashes_is_what_has_to_fit(pair, capsys):
    code = cli.main(
        ["check", str(pair[0]), "--draft", str(pair[1]), "--memory", "600MiB", "--json", "--"]
        + [
            "-c",
            "8192",
            "-np",
            "4",
            "-ctk",
            "q8_0",
            "-ctv",
            "q8_0",
            "--spec-draft-n-max",
            "6",
            "--temp",
            "0.7",
            "-s",
            "3",
        ]
    )
    report = json.loads(capsys.readouterr().out)
    memory = report["memories"][0]
    assert (memory["context"], memory["streams"], memory["draft_tokens"], memory["kv_type_k"]) == (2048, 4, 6, "q8_0")
    status = {point["id"]: point["status"] for point in report["checklist"]}
    assert (code, status["sampling-equal"], status["seed-fixed"]) == (0, "pass", "pass")


def test_a_seed_that_is_not_given_is_not_fixed(pair, capsys):
    assert cli.main(["check", str(pair[0]), "--json", "--", "--temp", "0.7"]) == 0
    status = {point["id"]: point["status"] for point in json.loads(capsys.readouterr().out)["checklist"]}
    assert status["seed-fixed"] == "fail"


def test_a_large_vocabulary_and_a_huge_file_cost_only_their_header(tmp_path, monkeypatch, capsys):
    read: list[int] = []
    plain = os.pread
    monkeypatch.setattr(source.os, "pread", lambda *a: read.append(len(found := plain(*a))) or found)
    tokens = words(QWEN_ROWS)
    target = model(tmp_path, "Qwen-27B", tokens, hidden=4096, layers=8)
    draft = model(tmp_path, "Qwen-0.8B", tokens, hidden=512)
    code, report = checked(capsys, target, "--draft", draft)
    assert (code, report["pair"]) == (0, "compatible")
    assert report["target"]["vocabulary_rows"] == QWEN_ROWS
    assert target.stat().st_size > 2 * 2**30
    assert 0 < sum(read) < MOST_READ_BYTES
    assert sum(read) >= report["target"]["read_bytes"] + report["drafts"][0]["read_bytes"]


def test_a_truncated_file_is_named(pair, capsys):
    os.truncate(pair[0], pair[0].stat().st_size - 4096)
    assert "truncated" in refused(capsys, pair[0])


def test_absurd_sizes_are_not_believed(tmp_path, capsys):
    path = tmp_path / "absurd.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 2**62, 2**61) + bytes(4096))
    assert "more than" in refused(capsys, path)


def test_a_pickle_is_never_opened(tmp_path, capsys):
    marker = tmp_path / "opened"

    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(marker),)

    path = tmp_path / "model.safetensors"
    path.write_bytes(pickle.dumps(Bomb()))
    assert "pickle" in refused(capsys, path)
    assert not marker.exists()


def test_a_folder_without_config_is_refused(tmp_path, capsys):
    folder = model_folder(tmp_path / "model")
    (folder / "config.json").unlink()
    assert "config.json" in refused(capsys, folder)


def test_a_folder_of_safetensors_is_checked_as_a_gguf_is(tmp_path, capsys):
    code, report = checked(capsys, model_folder(tmp_path / "model"))
    assert (code, report["target"]["format"], report["engine"]) == (0, "safetensors", "transformers")


@pytest.mark.parametrize(
    "wrong",
    [
        ("--kv-type", "f17"),
        ("--streams", "0"),
        ("--context", "-1"),
        ("--memory", "lots"),
        ("--draft-tokens", "99"),
        ("--memory", "24"),
        ("--engine", "vlm"),
        ("--", "-c", "many"),
        ("--", "-c", "9" * 400),
        ("--", "-np", "0"),
        ("--", "-np", "99999999999"),
        ("--", "--temp", "nan"),
        ("--", "--top-p", "1e308"),
        ("--", "-c", "١٢٣"),
        ("--", "-ctk"),
    ],
)
def test_wrong_options_are_one_line(wrong, pair, capsys):
    assert refused(capsys, pair[0], *wrong).startswith("specgauge: ")


def test_the_text_fits_80_columns(pair, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["check", str(pair[0]), "--draft", str(pair[1])]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_the_machine_is_described_without_measuring(capsys):
    assert cli.main(["machine", "--seconds", "0", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["kind"] == "specgauge-machine" and report["bandwidth"] == []


@pytest.mark.parametrize("wrong", [("--seconds", "-1"), ("--device", "tpu"), ("--threads", "-2")])
def test_machine_refuses_what_there_cannot_be(wrong, capsys):
    assert cli.main(["machine", *wrong]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_flags_that_a_check_does_not_read_are_named(pair, capsys):
    assert cli.main(["check", str(pair[0]), "--", "-ngl", "20", "-c", "1024", "-s", "-1"]) == 0
    warned = capsys.readouterr().err
    assert "not read by check: -ngl;" in warned


def test_a_header_of_more_entries_than_any_model_is_refused_before_it_is_built(tmp_path, capsys):
    folder = model_folder(tmp_path / "model")
    weights = next(folder.glob("*.safetensors"))
    header = b"{" + b",".join(b'"%x":{}' % i for i in range(1_000_000)) + b"}"
    weights.write_bytes(struct.pack("<Q", len(header)) + header)
    assert "more entries than any model" in refused(capsys, folder)


def test_a_part_with_an_impossible_name_is_refused(tmp_path, capsys):
    folder = model_folder(tmp_path / "model")
    name = "a" * 300 + ".safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    assert "lacks" in refused(capsys, folder)


def test_a_device_number_of_thousands_of_digits_is_no_device(monkeypatch, capsys):
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "9" * 10_000)
    assert cli.main(["machine", "--seconds", "0", "--json"]) == 0

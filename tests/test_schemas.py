"""docs/schemas is what the records are, and real files keep to it."""

import importlib.util
import json
import shutil
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from specgauge import cli
from specgauge.profiler.records import Record

from .json_schema import errors

ROOT = Path(__file__).resolve().parents[1]
WRITTEN = ("profile", "calibration", "recommendation", "validation")


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("schemas", ROOT / "tools" / "schemas.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCHEMAS = tool()


def schema(name: str) -> dict:
    return json.loads((SCHEMAS.FOLDER / f"specgauge-{name}.json").read_text())


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of a run on a fake machine."""
    out = tmp_path_factory.mktemp("schemas") / "out"
    assert cli.main(["run", "--engine", "fake:interior-tie", "--out", str(out)]) == 0
    return out


def printed(capsys: pytest.CaptureFixture[str], *words: object) -> dict:
    capsys.readouterr()
    assert cli.main([*map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_schemas_are_those_of_the_records():
    assert SCHEMAS.stale() == [], "run python tools/schemas.py"


def test_a_stale_schema_is_noticed(tmp_path, monkeypatch):
    shutil.copytree(SCHEMAS.FOLDER, tmp_path / "schemas")
    monkeypatch.setattr(SCHEMAS, "FOLDER", tmp_path / "schemas")
    assert SCHEMAS.stale() == []
    changed = tmp_path / "schemas" / "specgauge-profile.json"
    changed.write_text(changed.read_text().replace('"key"', '"keys"', 1))
    assert SCHEMAS.stale() == [changed]


def test_every_document_has_a_schema():
    """A record with a kind of its own is a document."""

    def below(kind: type[Record]) -> set[type[Record]]:
        return {kind} | {one for child in kind.__subclasses__() for one in below(child)}

    def is_document(kind: type[Record]) -> bool:
        defaults = {field.name: field.default for field in msgspec.structs.fields(kind)}
        return str(defaults.get("kind", "")).startswith("specgauge-")

    ours = {kind for kind in below(Record) if kind.__module__.startswith("specgauge.")}
    assert {kind for kind in ours if is_document(kind)} == set(SCHEMAS.DOCUMENTS)


@pytest.mark.parametrize("name", WRITTEN)
def test_files_of_a_run_keep_to_their_schema(name, ran):
    assert list(errors(json.loads((ran / f"{name}.json").read_text()), schema(name), schema(name))) == []


def test_printed_documents_keep_to_their_schema(ran, capsys):
    for name, words in {
        "comparison": ("compare", ran, ran),
        "machine": ("machine", "--seconds", "0"),
    }.items():
        assert list(errors(printed(capsys, *words), schema(name), schema(name))) == []
    diagnoses = printed(capsys, "diagnose", "--out", ran)["diagnoses"]
    assert diagnoses
    for one in diagnoses:
        assert list(errors(one, schema("diagnosis"), schema("diagnosis"))) == []


def test_what_a_schema_refuses_a_reader_refuses_too(ran):
    """The checker of these tests finds faults, and the reader finds the same ones."""
    whole, good = schema("profile"), json.loads((ran / "profile.json").read_text())
    reader = SCHEMAS.DOCUMENTS[0]
    for fault in (
        {"kind": "specgauge-validation"},
        {"surprise": 1},
        {"profile_seconds": "long"},
        {"models": [{"label": "x"}]},
    ):
        assert list(errors(good | fault, whole, whole)), fault
        if "kind" not in fault:  # read_record looks at the kind before it decodes
            with pytest.raises(msgspec.ValidationError):
                msgspec.convert(good | fault, type=reader)
    missing = {key: value for key, value in good.items() if key != "engine"}
    assert list(errors(missing, whole, whole)) == [": engine is missing"]

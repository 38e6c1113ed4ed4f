"""JSON Schemas of every file that specgauge writes or prints, from its records: python tools/schemas.py [--check]

Writes docs/schemas/KIND.json (JSON Schema 2020-12); with --check nothing is written, and stale files are named (exit code 1).
Texts are the records' own docstrings. What a schema cannot say (lengths that agree, falling survival) is checked when a
file is read; the docstrings tell it.
"""

import ast
import inspect
import sys
import textwrap
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from specgauge.calibrate.checks.records import CheckReport
from specgauge.calibrate.records import Calibration, Comparison, Diagnosis, Recommendation, Validation
from specgauge.profiler.devices.machine_records import MachineReport
from specgauge.profiler.outputs.parity import Parity
from specgauge.profiler.records import Profile, Record

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "schemas"
DOCUMENTS: tuple[type[Record], ...] = (
    Profile,
    Calibration,
    Recommendation,
    Validation,
    Comparison,
    Diagnosis,
    CheckReport,
    MachineReport,
    Parity,
)
"""Every record that is a whole document: it has a kind and a schema version."""


def kind_of(document: type[Record]) -> str:
    """The kind that a document of this type says it is."""
    return next(field.default for field in msgspec.structs.fields(document) if field.name == "kind")


def schema_of(document: type[Record]) -> dict[str, Any]:
    """The schema: fields with their docstrings, kind and version fixed."""
    (top,), parts = msgspec.json.schema_components([document], ref_template="#/$defs/{name}")
    for struct in records_in(document):
        part = parts[struct.__name__]
        part["description"] = inspect.cleandoc(struct.__doc__ or "")
        for name, text in field_texts(struct).items():
            if name in part["properties"]:
                part["properties"][name] = part["properties"][name] | {"description": text}
    for name in ("kind", "schema_version"):
        own = parts[document.__name__]["properties"][name]
        own["const"] = own["default"]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": kind_of(document)}
    return head | top | {"$defs": dict(sorted(parts.items()))}


def records_in(document: type[Record]) -> list[type[msgspec.Struct]]:
    """`document` and every record that it holds, each once."""
    found: dict[str, type[msgspec.Struct]] = {}

    def walk(kind: msgspec.inspect.Type) -> None:
        if isinstance(kind, msgspec.inspect.StructType) and kind.cls.__name__ not in found:
            found[kind.cls.__name__] = kind.cls
            for field in kind.fields:
                walk(field.type)
        for name in ("item_type", "value_type"):
            if inner := getattr(kind, name, None):
                walk(inner)
        for inner in (*getattr(kind, "item_types", ()), *getattr(kind, "types", ())):
            walk(inner)

    walk(msgspec.inspect.type_info(document))
    return list(found.values())


@cache
def field_texts(struct: type[msgspec.Struct]) -> dict[str, str]:
    """The docstring below each field."""
    body = ast.parse(textwrap.dedent(inspect.getsource(struct))).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, text in zip(body.body, body.body[1:]):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr)):
            continue
        if isinstance(text.value, ast.Constant) and isinstance(text.value.value, str):
            found[field.target.id] = " ".join(text.value.value.split())
    return found


def files() -> dict[Path, bytes]:
    """The schemas as they should lie in docs/schemas/."""
    return {
        FOLDER / f"{kind_of(document)}.json": msgspec.json.format(msgspec.json.encode(schema_of(document)), indent=1)
        + b"\n"
        for document in DOCUMENTS
    }


def stale() -> list[Path]:
    """Files that are missing, differ, or belong to no document."""
    wanted = files()
    odd = [path for path in FOLDER.glob("*") if path not in wanted]
    return odd + [path for path, text in wanted.items() if not path.is_file() or path.read_bytes() != text]


def main(words: list[str]) -> int:
    """The exit code."""
    if words == ["--check"]:
        for path in stale():
            print(f"stale: {path.relative_to(FOLDER.parents[1])}; run python tools/schemas.py", file=sys.stderr)
        return 1 if stale() else 0
    if words:
        print("usage: python tools/schemas.py [--check]", file=sys.stderr)
        return 2
    FOLDER.mkdir(exist_ok=True)
    for path, text in files().items():
        path.write_bytes(text)
        print(path.relative_to(FOLDER.parents[1]))
    for path in stale():
        print(f"belongs to no document, delete it: {path.name}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

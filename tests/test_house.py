"""Guards of the house: packages, floors, purity of model/, a light --help."""

import ast
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOT_PACKAGES = {"tests", "typings", "tools", "docs", "benchmarks", "build", "dist"}
HEAVY = ("torch", "scipy", "pandas", "plotly", "xllamacpp", "gguf")


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_packages_are_the_folders_with_an_init():
    inits = [
        path.parent.relative_to(ROOT)
        for path in ROOT.rglob("__init__.py")
        if not any(part.startswith(".") or part in NOT_PACKAGES for part in path.relative_to(ROOT).parts)
    ]
    found = {".".join(("specgauge", *folder.parts)) for folder in inits}
    assert set(project()["tool"]["setuptools"]["packages"]) == found
    assert "specgauge.model" in found


def test_every_room_with_modules_is_a_package():
    for module in ROOT.rglob("*.py"):
        parts = module.relative_to(ROOT).parts[:-1]
        if parts and not any(part.startswith(".") or part in NOT_PACKAGES for part in parts):
            assert (module.parent / "__init__.py").exists(), f"{module.parent} has modules and no __init__.py"


def test_typings_link_every_room_and_top_module():
    rooms = {path.name for path in ROOT.iterdir() if path.is_dir() and (path / "__init__.py").exists()} - NOT_PACKAGES
    top = {path.name for path in ROOT.glob("*.py")} | {"py.typed"}
    links = {path.name: path for path in (ROOT / "typings" / "specgauge").iterdir()}
    assert set(links) == rooms | top
    for name, link in links.items():
        assert os.readlink(link) == f"../../{name}" and link.exists()


def imports_of(path: Path) -> set[str]:
    """Top-level names of the absolute imports in a file, inside functions too; relative imports give "." and the level."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add("." * node.level or str(node.module).split(".")[0])
    return found


def test_model_imports_numpy_scipy_and_the_standard_library_only():
    modules = sorted((ROOT / "model").rglob("*.py"))
    assert len(modules) > 1
    allowed = {"numpy", "scipy", "."} | (
        set(sys.stdlib_module_names) - {"time", "os", "pathlib", "subprocess", "socket"}
    )
    for module in modules:
        assert imports_of(module) <= allowed, f"{module.relative_to(ROOT)} imports {imports_of(module) - allowed}"


def public_definitions(body: list[ast.stmt], owner: str) -> list[tuple[str, ast.FunctionDef | ast.ClassDef]]:
    """Public classes, functions and methods with their dotted names; special methods are no part of it."""
    found = []
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            found.append((f"{owner}.{node.name}", node))
            if isinstance(node, ast.ClassDef):
                found += public_definitions(node.body, f"{owner}.{node.name}")
    return found


def test_everything_public_in_model_is_explained():
    explained = 0
    for module in (ROOT / "model").rglob("*.py"):
        tree = ast.parse(module.read_text())
        assert ast.get_docstring(tree), module.name
        for name, node in public_definitions(tree.body, module.stem):
            text = ast.get_docstring(node) or ""
            assert text, f"{name} has no docstring"
            raises = any(isinstance(inner, ast.Raise) for inner in ast.walk(node)) and isinstance(node, ast.FunctionDef)
            assert not raises or "aises" in text, f"{name} does not say what it raises"
            explained += 1
    assert explained > 100


def test_inside_the_package_imports_are_relative():
    for room in ("model", "profiler", "calibrate", "reports"):
        for module in (ROOT / room).rglob("*.py"):
            assert "specgauge" not in imports_of(module), f"{module.relative_to(ROOT)} imports specgauge by name"


def test_the_floors_hold():
    command = Path(sys.executable).with_name("lint-imports")
    environment = os.environ | {"PYTHONPATH": str(ROOT / "typings")}
    done = subprocess.run(
        [command, "--no-cache"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Contracts: 2 kept, 0 broken." in done.stdout


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_leaves_heavy_packages_alone(argument, tmp_path):
    code = (
        "import runpy, sys\n"
        f"sys.argv = ['specgauge', {argument!r}]\n"
        "try:\n    runpy.run_module('specgauge', run_name='__main__')\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        f"print('HEAVY', [name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "HEAVY []"
    assert len(lines) > 1, "it printed nothing"

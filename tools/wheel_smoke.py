"""Import every module of the installed specgauge and find its template: `wheel_smoke.py ENVIRONMENT`.

Run by .ci/run from outside the checkout. Exits 1 with one line if specgauge is not the one installed in ENVIRONMENT.
"""

import importlib
import importlib.resources
import pkgutil
import sys
from pathlib import Path


def main(environment: str) -> str:
    """The complaint, or an empty string where all is well."""
    sys.path.pop(0)  # this script's own folder
    package = importlib.import_module("specgauge")
    if not Path(str(package.__file__)).resolve().is_relative_to(Path(environment).resolve()):
        return f"smoke: {package.__file__} was imported instead of the wheel in {environment}"
    names = [m.name for m in pkgutil.walk_packages(package.__path__, "specgauge.") if not m.name.endswith("__main__")]
    for name in names:
        importlib.import_module(name)
    rooms = importlib.resources.files("specgauge")
    missing = [
        f
        for f in ("py.typed", "reports/templates/report.html", "reports/templates/what_if.js")
        if not rooms.joinpath(f).is_file()
    ]
    if missing:
        return f"smoke: the wheel lacks {', '.join(missing)}: add it to package-data in pyproject.toml"
    print(f"smoke: {len(names)} modules imported from the wheel")
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) or 0)

"""Files of reports, written whole or not at all."""

import contextlib
import os
import tempfile
from pathlib import Path

from ..profiler.errors import WorkFailed
from ..profiler.files import shown


def write_whole(path: Path, text: str, remedy: str) -> None:
    """Write beside the goal, then rename: a reader sees the old report or the new one. Raises WorkFailed, which
    names what was to be written and the `remedy`."""
    temporary = None
    try:
        with tempfile.NamedTemporaryFile("wb", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            temporary = Path(file.name)
            file.write(text.encode("utf-8", "replace"))
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink()
        reason = error.strerror or str(error)
        raise WorkFailed(f"cannot write the report {shown(path)}: {reason}; {remedy}") from error

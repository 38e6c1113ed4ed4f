"""Small text files that the kernel makes: read whole, bounded, and None where one is missing or not ours to read."""

import re
from pathlib import Path

MOST_BYTES = 1 << 20


def text(path: Path) -> str | None:
    """What `path` holds, stripped."""
    try:
        with path.open("rb") as file:
            return file.read(MOST_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return None


def number(path: Path) -> int | None:
    """The whole number that `path` holds."""
    held = text(path)
    return int(held) if held is not None and re.fullmatch(r"-?\d{1,20}", held) else None


def scaled(path: Path, factor: float) -> float | None:
    """The number in `path` in another unit."""
    held = number(path)
    return None if held is None else held * factor


def matching(folder: Path, pattern: str) -> list[Path]:
    """Entries of `folder` by name, numbers in their order; none where the folder cannot be read."""
    try:
        found = list(folder.glob(pattern))
    except OSError:
        return []
    return sorted(found, key=lambda path: [int(n) for n in re.findall(r"\d+", path.name)])


def members(listed: str | None) -> set[int]:
    """Processors of a list such as 0-3,8,10-11."""
    found: set[int] = set()
    for low, high in re.findall(r"(\d{1,5})(?:-(\d{1,5}))?", listed or ""):
        found |= set(range(int(low), int(high or low) + 1))
    return found

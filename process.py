"""The process: its signals, its lock on the output folder, its one line for an error."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from .profiler.errors import InputError

LONGEST_LINE = 1000
interrupted = threading.Event()
"""Set by Ctrl-C and SIGTERM: a library that swallows the exception does not swallow this."""


def warn(text: str) -> None:
    """One line on stderr."""
    print(f"specgauge: warning: {one_line(text)}", file=sys.stderr)


def print_json(document: object) -> None:
    """One JSON document on stdout, numbers as they are."""
    import msgspec

    sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
    sys.stdout.flush()


def one_line(text: str) -> str:
    """`text` on one line, control characters shown rather than sent to the terminal, cut where it goes on and on."""
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(text.split()))
    return line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE] + "..."


@contextmanager
def alone_in(out: Path) -> Iterator[None]:
    """Hold the lock of an output folder: two runs in one would overwrite each other's files. Raises InputError."""
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        yield
        return
    out.mkdir(parents=True, exist_ok=True)
    folder = os.open(out, os.O_RDONLY)  # the folder itself is locked: nothing is left behind
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(folder)
        raise InputError(f"another specgauge works in {out}; wait for it or choose another --out") from None
    try:
        yield
    finally:
        os.close(folder)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Signals that would interrupt are ignored meanwhile: ending servers takes a moment and must not be cut short."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM ends the work as Ctrl-C does: evidence kept, servers ended."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def open_standard_streams() -> None:
    """Give closed standard streams /dev/null, so that no file of ours takes their place."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  lives as long as the process

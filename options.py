"""Options of the command line: what they are called, and what is refused before anything starts."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from .profiler.errors import InputError

if TYPE_CHECKING:
    from .profiler.job import Options

TOLERANCE = 0.10
MOST_DRAFT_TOKENS = 64
MOST_CONTEXT = 10_000_000
LONGEST_NAME = 255
MOST_REPEATS_ASKED = 1000
MOST_SEED = 2**32 - 2
"""4294967295 means a random seed to llama-server."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Common:
    """Options of every command."""

    out: Annotated[Path, Parameter(help="Folder of the five files.")] = Path("specgauge-out")
    json: Annotated[bool, Parameter(help="Print one JSON document on stdout.")] = False
    debug: Annotated[bool, Parameter(help="Show the traceback of an error.")] = False

    def path(self, name: str) -> Path:
        """The file of this name in the output folder."""
        return self.out / name


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class EngineChoice:
    """What is profiled, and on which engine."""

    draft: Annotated[tuple[Path, ...], Parameter(help="A draft model (GGUF); may be given several times.")] = ()
    engine: Annotated[str, Parameter(help="llama.cpp, or fake:NAME (a simulated machine).")] = "llama.cpp"
    llama_server: Annotated[str | None, Parameter(help="Your llama-server binary; the embedded one without it.")] = None
    server: Annotated[str | None, Parameter(help="URL of a llama-server that already runs.")] = None
    draft_tokens: Annotated[str | None, Parameter(help="Draft lengths to search: N, A..B or N,N,N.")] = None
    threads: Annotated[int, Parameter(help="Threads of the engine; 0 leaves it to the engine.")] = 0
    seed: Annotated[int, Parameter(help="Seed of sampling and of the bootstrap.")] = 1
    engine_flag: Annotated[tuple[str, ...], Parameter(show=False, allow_leading_hyphen=True)] = ()

    def options(self, targets: Sequence[Path]) -> "Options":
        """The choice as the profiler takes it. Raises InputError."""
        from .profiler.job import Options

        if self.threads < 0:
            raise InputError(f"--threads {self.threads}: give 0 (left to the engine) or more")
        if self.server is not None and self.llama_server is not None:
            raise InputError("--server and --llama-server exclude each other: give the URL or the binary")
        check_seed(self.seed)
        return Options(
            targets=tuple(targets),
            drafts=self.draft,
            engine=self.engine,
            llama_server=self.llama_server,
            server_url=self.server,
            flags=self.engine_flag,
            threads=self.threads,
            seed=self.seed,
            draft_tokens=parse_draft_tokens(self.draft_tokens) if self.draft_tokens is not None else (),
        )


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Check:
    """How a recommendation is checked."""

    tolerance: Annotated[float, Parameter(help="Mean absolute error that is still good, as a fraction.")] = TOLERANCE
    repeats: Annotated[int | None, Parameter(help="Repeats of the check, instead of 5 to 15 as it needs.")] = None


def parse_draft_tokens(text: str) -> tuple[int, ...]:
    """N, A..B (inclusive), or a list of these with commas; in order, each once. Raises InputError."""
    lengths: set[int] = set()
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        if not part.isascii() or not first.isdecimal() or (dots and not last.isdecimal()):
            raise InputError(f"--draft-tokens {text}: give N, A..B or N,N,N with whole numbers of 0 or more")
        low, high = int(first), int(last or first)
        if low > high or high > MOST_DRAFT_TOKENS:
            raise InputError(f"--draft-tokens {text}: ranges go upwards, and to {MOST_DRAFT_TOKENS} at most")
        lengths.update(range(low, high + 1))
    return tuple(sorted(lengths))


def parse_contexts(text: str) -> tuple[int, ...]:
    """Cached tokens: N, or a list of these with commas; in order, each once. Raises InputError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and len(part) < 9 and int(part) <= MOST_CONTEXT for part in parts):
        raise InputError(f"--context {text}: give N or N,N,N with whole numbers from 0 to {MOST_CONTEXT}")
    return tuple(sorted({int(part) for part in parts}))


def check_out(out: Path) -> None:
    """Refuse an output folder that cannot be one, before anything starts; nothing is made yet. Raises InputError."""
    if str(out) in ("", "."):
        raise InputError("--out: give the name of a folder for the files")
    try:
        if any(len(part.encode()) > LONGEST_NAME for part in out.parts):
            raise InputError(f"--out: a name in it is longer than {LONGEST_NAME} bytes; choose another --out")
        nearest = next((folder for folder in (out, *out.absolute().parents) if os.path.lexists(folder)), Path("/"))
        if not nearest.is_dir():
            raise InputError(f"--out {out}: {nearest} is not a folder; choose another --out")
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except UnicodeEncodeError:
        raise InputError("--out: the name is not text in this system's encoding; choose another --out") from None
    except OSError as error:
        raise InputError(f"--out {out}: not writable ({error.strerror or error}); choose another --out") from None


def check_seed(seed: int) -> None:
    """Refuse a seed that the engine or the bootstrap would not take."""
    if not 0 <= seed <= MOST_SEED:
        raise InputError(f"--seed {seed}: give a whole number from 0 to {MOST_SEED}")


def check_repeats(check: Check) -> None:
    """Refuse options of the check that make none."""
    if check.repeats is not None and not 1 <= check.repeats <= MOST_REPEATS_ASKED:
        raise InputError(f"--repeats {check.repeats}: give 1 to {MOST_REPEATS_ASKED}, or leave it out")
    if not 0 < check.tolerance < float("inf"):
        raise InputError(f"--tolerance {check.tolerance}: give a fraction above 0, such as 0.10")

"""Options of the command line: what they are called, and what is refused before anything starts."""

import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from cyclopts import Parameter

from .profiler.errors import InputError

if TYPE_CHECKING:
    from .calibrate.checks.checklist import AskedSampling
    from .calibrate.checks.memory import MemoryOptions
    from .calibrate.importers.base import Given
    from .profiler.job import Options

T = TypeVar("T")
TOLERANCE = 0.10
MOST_DRAFT_TOKENS = 64
MOST_SPEED = 1e6
SIZES = {"B": 1, "MB": 10**6, "GB": 10**9, "MiB": 2**20, "GiB": 2**30}
TIMES = {"s": 1.0, "m": 60.0, "h": 3600.0}
MOST_BUDGET_SECONDS = 7 * 24 * 3600.0
MOST_CONTEXT = 10_000_000
LEAST_CONTEXT = 256
MOST_PROMPT_COUNT = 1000
MOST_STREAMS = 1024
LONGEST_NAME = 255
MOST_REPEATS_ASKED = 1000
CHECKED_ENGINES = ("llama.cpp", "vllm", "transformers")
MOST_SECONDS = 600.0
MOST_TEMPERATURE = 5.0
MOST_DRAWS = 10_000
MOST_THREADS = 4096
MOST_SEED = 2**32 - 2
"""4294967295 means a random seed to llama-server."""


PASSED_ON = "Everything after -- is passed on to llama-server."
READ_FLAGS = "What stands after -- is read as flags of your llama-server."


def examples(*lines: str, note: str = "") -> str:
    """What stands below the options in a verb's help."""
    return "\n\n".join(part for part in (note, "\n".join(f"- `specgauge {line}`" for line in lines)) if part)


EPILOGUES = {
    "run": examples(
        "run",
        "run q4.gguf q8.gguf --draft draft.gguf --memory 24GB --budget 5m --llama-server PATH -- -ngl 99 -fa on",
        "run FOLDER --engine transformers --draft-quant int8,int4",
        note=PASSED_ON,
    ),
    "check": examples(
        "check target.gguf --draft draft.gguf",
        "check target.gguf --draft draft.gguf --memory 24GB -- -c 32768 -ctk q8_0",
        note=READ_FLAGS,
    ),
    "machine": examples("machine", "machine --json"),
    "profile": examples(
        "profile target.gguf --draft draft.gguf -- -ngl 99",
        "profile target.gguf --prompts mine.jsonl --context 8192",
        "profile CONFIG.json --engine transformers --weights random --target-quant int4",
        note=PASSED_ON,
    ),
    "export": examples("export mine --out shared.json", "export profile.json --keep-names"),
    "import": examples(
        "import llama-bench.json --out mine", "import my-runs.csv --acceptance other-machine.csv --out mine"
    ),
    "calibrate": examples("calibrate", "calibrate --seed 7 --json"),
    "recommend": examples("recommend", "recommend --out mine --json"),
    "validate": examples("validate", "validate --repeats 5 --tolerance 0.05", note=PASSED_ON),
    "parity": examples("parity", "parity target.gguf --draft draft.gguf --mismatch 0.7", note=PASSED_ON),
    "diagnose": examples("diagnose", "diagnose --workload copying --draft-tokens 8"),
    "report": examples("report", "report --markdown verdict.md", "report --markdown - | less"),
    "predict": examples("predict --draft-tokens 0..8", "predict --profile profile.json --survival 0.8,0.65,0.5 --json"),
    "compare": examples("compare a/profile.json b/profile.json", "compare a/validation.json b/validation.json --json"),
}
"""By verb: what its help ends with."""


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

    draft: Annotated[
        tuple[Path, ...],
        Parameter(help="A draft model (GGUF, or a folder of safetensors); may be given several times."),
    ] = ()
    engine: Annotated[str, Parameter(help="llama.cpp, transformers, or fake:NAME (simulated).")] = "llama.cpp"
    llama_server: Annotated[str | None, Parameter(help="Your llama-server binary; the embedded one without it.")] = None
    server: Annotated[str | None, Parameter(help="URL of a llama-server that already runs.")] = None
    draft_tokens: Annotated[str | None, Parameter(help="Draft lengths to search: N, A..B or N,N,N.")] = None
    threads: Annotated[int, Parameter(help="Threads of the engine; 0 leaves it to the engine.")] = 0
    device: Annotated[str, Parameter(help="transformers: cpu, cuda or mps; the best one here without it.")] = ""
    target_quant: Annotated[str, Parameter(help="transformers: fp32, bf16, int8, int4 or a list, made at load.")] = ""
    draft_quant: Annotated[str, Parameter(help="transformers: the same for drafts.")] = ""
    weights: Annotated[str, Parameter(help="transformers: real, or random (times of a config.json alone).")] = "real"
    seed: Annotated[int, Parameter(help="Seed of sampling and of the bootstrap.")] = 1
    prompts: Annotated[Path | None, Parameter(help="Your own prompts, one a line: JSON objects or plain text.")] = None
    prompt_count: Annotated[int | None, Parameter(help="How many of them to draw; 16 without it.")] = None
    store_prompts: Annotated[bool, Parameter(help="Keep their text in profile.json.")] = False
    context: Annotated[int | None, Parameter(help="Tokens of context to reserve; 2048 without it.")] = None
    engine_flag: Annotated[tuple[str, ...], Parameter(show=False, allow_leading_hyphen=True)] = ()

    def options(self, targets: Sequence[Path], limits: "Limits | None" = None) -> "Options":
        """The choice as the profiler takes it, within `limits`. Raises InputError."""
        from .profiler.job import Options, OwnChoice

        if self.threads < 0:
            raise InputError(f"--threads {self.threads}: give 0 (left to the engine) or more")
        if self.server is not None and self.llama_server is not None:
            raise InputError("--server and --llama-server exclude each other: give the URL or the binary")
        check_seed(self.seed)
        check_counts(
            ("--prompt-count", self.prompt_count, 1, MOST_PROMPT_COUNT),
            ("--context", self.context, LEAST_CONTEXT, MOST_CONTEXT),
        )
        if self.weights not in ("real", "random"):
            raise InputError(f"--weights {self.weights}: give real or random")
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
            device=self.device,
            target_quants=parse_quants(self.target_quant),
            draft_quants=parse_quants(self.draft_quant),
            random_weights=self.weights == "random",
            context=self.context or 0,
            own=OwnChoice(self.prompts, self.prompt_count or 0, self.store_prompts),
            memory_bytes=limits.memory_bytes if limits else 0.0,
            budget_seconds=limits.budget_seconds if limits else 0.0,
        )


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a profile may take."""

    memory: Annotated[
        str | None, Parameter(help="Memory for models, such as 24GB: what does not fit is left out, and never loaded.")
    ] = None
    budget: Annotated[
        str | None,
        Parameter(help="Time for profiling, such as 5m: what decides is measured first, and the rest is named."),
    ] = None

    @property
    def budget_seconds(self) -> float:
        """Seconds; 0 where nothing is said. Raises InputError."""
        return parse_time("--budget", self.budget) if self.budget is not None else 0.0

    @property
    def memory_bytes(self) -> float:
        """Bytes; 0 where nothing is said. Raises InputError."""
        return parse_size("--memory", self.memory) if self.memory is not None else 0.0


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Room:
    """What is to fit, for a check before anything loads. What stands behind -- counts where an option is left out."""

    context: Annotated[int | None, Parameter(help="Tokens that each stream is to hold; 8,192 without it.")] = None
    draft_tokens: Annotated[int | None, Parameter(help="Draft tokens; the engine's default of 3 without it.")] = None
    streams: Annotated[int | None, Parameter(help="Requests side by side.")] = None
    kv_type: Annotated[str | None, Parameter(help="Type of the KV cache: f16, q8_0, ...")] = None
    memory: Annotated[str | None, Parameter(help="Memory for models, such as 24GB; what is free without it.")] = None
    engine: Annotated[str | None, Parameter(help="llama.cpp, vllm or transformers; by the format without it.")] = None
    engine_build: Annotated[str, Parameter(help="Build of the engine, such as b8842.")] = ""
    engine_flag: Annotated[tuple[str, ...], Parameter(show=False, allow_leading_hyphen=True)] = ()

    def options(self) -> "tuple[MemoryOptions, AskedSampling]":
        """Memory and sampling as the check takes them. Raises InputError."""
        from .calibrate.checks.checklist import AskedSampling
        from .calibrate.checks.memory import MemoryOptions
        from .profiler.free_memory import free_memory, host_free_bytes
        from .profiler.server_flags import asked_of

        asked = asked_of(self.engine_flag)
        if self.engine is not None and self.engine not in CHECKED_ENGINES:
            raise InputError(f"--engine {self.engine}: choose one of {', '.join(CHECKED_ENGINES)}")
        check_counts(("--context", self.context, 0, MOST_CONTEXT), ("--streams", self.streams, 1, MOST_STREAMS))
        check_counts(("--draft-tokens", self.draft_tokens, 0, MOST_DRAFT_TOKENS))
        given = parse_size("--memory", self.memory) if self.memory is not None else None
        free = free_memory(given)
        said = {
            "context": _first(self.context, asked.context),
            "draft_tokens": _first(self.draft_tokens, asked.draft_tokens),
            "streams": _first(self.streams, asked.streams),
            "kv_type_k": _first(self.kv_type, asked.kv_type_k),
            "kv_type_v": _first(self.kv_type, asked.kv_type_v),
            "draft_kv_type_k": asked.draft_kv_type_k,
            "draft_kv_type_v": asked.draft_kv_type_v,
        }
        try:
            options = MemoryOptions(
                free=free,
                host_bytes=host_free_bytes() if free.on_device else None,
                **{name: value for name, value in said.items() if value is not None},
            )
        except ValueError as error:
            raise InputError(f"check: {error}") from None
        return options, AskedSampling(asked.sampling, asked.sampling)

    def unread(self) -> tuple[str, ...]:
        """Flags behind -- that say nothing to a check."""
        from .profiler.server_flags import asked_of

        return asked_of(self.engine_flag).unread


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Compared:
    """What of the output is compared with plain decoding."""

    temperature: Annotated[float, Parameter(help="Temperature that is served; 0 is greedy.")] = 0.0
    mismatch: Annotated[
        float | None, Parameter(help="Also measure what this other temperature does to acceptance.")
    ] = None
    draws: Annotated[
        int, Parameter(help="Sampled replies to each prompt that tell the law of sampled text; 0: none.")
    ] = 0

    def check(self) -> None:
        """Raises InputError."""
        for option, value in (("--temperature", self.temperature), ("--mismatch", self.mismatch)):
            if value is not None and not 0 <= value <= MOST_TEMPERATURE:
                raise InputError(f"{option} {value}: give a temperature from 0 to {MOST_TEMPERATURE:g}")
        check_counts(("--draws", self.draws, 0, MOST_DRAWS))
        if self.draws and not self.temperature:
            raise InputError("--draws asks for sampled text: give a --temperature above 0")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Check:
    """How a recommendation is checked."""

    tolerance: Annotated[float, Parameter(help="Mean absolute error that is still good, as a fraction.")] = TOLERANCE
    repeats: Annotated[int | None, Parameter(help="Repeats of the check, instead of 5 to 15 as it needs.")] = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Hints:
    """What imported files do not say themselves."""

    gpu: Annotated[str, Parameter(help="Graphics card, where a file does not name it.")] = ""
    engine: Annotated[str, Parameter(help="Engine, where a file does not name it.")] = ""
    target: Annotated[str, Parameter(help="Name of the target; also instead of a file name of weights.")] = ""
    target_quant: Annotated[str, Parameter(help="Its quantization.")] = ""
    drafter: Annotated[str, Parameter(help="none, model, ngram, mtp, eagle or dflash.")] = ""
    draft: Annotated[str, Parameter(help="Name of the draft.")] = ""
    draft_quant: Annotated[str, Parameter(help="Its quantization.")] = ""
    draft_tokens: Annotated[int | None, Parameter(help="Draft tokens asked for.")] = None
    baseline: Annotated[float | None, Parameter(help="Plain decoding in tokens/s, same machine and target.")] = None
    workload: Annotated[str, Parameter(help="Name of what was decoded.")] = ""

    def given(self) -> "Given":
        """The hints as importers take them. Raises InputError."""
        from .calibrate.importers.base import Given
        from .calibrate.importers.names import KINDS, drafter_kind

        if drafter_kind(self.drafter) is None:
            raise InputError(f"--drafter {self.drafter}: no such kind; give one of {KINDS}")
        if self.draft_tokens is not None and not 1 <= self.draft_tokens <= MOST_DRAFT_TOKENS:
            raise InputError(f"--draft-tokens {self.draft_tokens}: give 1 to {MOST_DRAFT_TOKENS}")
        if self.baseline is not None and not 0 < self.baseline <= MOST_SPEED:
            raise InputError(f"--baseline {self.baseline}: give tokens/s, above 0 and at most {MOST_SPEED:g}")
        return Given(
            gpu=self.gpu,
            engine=self.engine,
            target=self.target,
            target_quant=self.target_quant,
            drafter=self.drafter,
            draft=self.draft,
            draft_quant=self.draft_quant,
            draft_tokens=self.draft_tokens,
            baseline_tokens_per_second=self.baseline,
            workload=self.workload,
        )


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


def parse_quants(text: str) -> tuple[str, ...]:
    """A list of names with commas, each once."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def parse_contexts(text: str) -> tuple[int, ...]:
    """Cached tokens: N, or a list of these with commas; in order, each once. Raises InputError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and len(part) < 9 and int(part) <= MOST_CONTEXT for part in parts):
        raise InputError(f"--context {text}: give N or N,N,N with whole numbers from 0 to {MOST_CONTEXT}")
    return tuple(sorted({int(part) for part in parts}))


def parse_survival(text: str) -> tuple[float, ...]:
    """S_1,S_2,...: chances that the first 1, 2, ... drafted tokens are all accepted. Raises InputError."""
    refused = InputError(f"--survival {text[:60]}: give S_1,S_2,... from 0 to 1, none above the one before")
    try:
        survival = tuple(float(part) for part in text.split(",")[: MOST_DRAFT_TOKENS + 1])
    except ValueError:
        raise refused from None
    falling = all(1 >= before >= after >= 0 for before, after in zip((1.0, *survival), survival))
    if not falling or len(survival) > MOST_DRAFT_TOKENS:
        raise refused
    return survival


def parse_size(option: str, text: str) -> float:
    """Bytes of NB, NMB, NGB (powers of ten), NMiB or NGiB (powers of two). Raises InputError, also without a unit."""
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?)\s*(B|MB|GB|MiB|GiB)", text.strip(), re.ASCII)
    size = float(found[1]) * SIZES[found[2]] if found else 0.0
    if not size > 0:
        raise InputError(f"{option} {text[:40]}: give a size above 0 with its unit, such as 17GB, 16.2GiB or 800MB")
    return size


def parse_time(option: str, text: str) -> float:
    """Seconds of Ns, Nm or Nh. Raises InputError, also without a unit."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)\s*([smh])", text.strip(), re.ASCII)
    seconds = float(found[1]) * TIMES[found[2]] if found else 0.0
    if not 0 < seconds <= MOST_BUDGET_SECONDS:
        raise InputError(
            f"{option} {text[:40]}: give a time above 0 with its unit, such as 90s, 5m or 1h; a week at most"
        )
    return seconds


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


def _first(*values: T | None) -> T | None:
    """The first that is given."""
    return next((value for value in values if value is not None), None)


def check_seed(seed: int) -> None:
    """Refuse a seed that the engine or the bootstrap would not take."""
    if not 0 <= seed <= MOST_SEED:
        raise InputError(f"--seed {seed}: give a whole number from 0 to {MOST_SEED}")


def check_counts(*counts: tuple[str, int | None, int, int]) -> None:
    """Refuse (option, value, low, high) outside its bounds; None is not given."""
    for option, value, low, high in counts:
        if value is not None and not low <= value <= high:
            raise InputError(f"{option} {value}: give a whole number from {low} to {high:,}")


def check_machine(seconds: float, device: str, threads: int) -> None:
    """Refuse a time, device or number of threads that there cannot be."""
    if not 0 <= seconds <= MOST_SECONDS:
        raise InputError(f"--seconds {seconds}: give 0 (no bandwidth) to {MOST_SECONDS:.0f}")
    if device not in ("", "cuda", "mps", "cpu"):
        raise InputError(f"--device {device}: give cuda, mps or cpu, or leave it out")
    check_counts(("--threads", threads, 0, MOST_THREADS))


def check_repeats(check: Check) -> None:
    """Refuse options of the check that make none."""
    if check.repeats is not None and not 1 <= check.repeats <= MOST_REPEATS_ASKED:
        raise InputError(f"--repeats {check.repeats}: give 1 to {MOST_REPEATS_ASKED}, or leave it out")
    if not 0 < check.tolerance < float("inf"):
        raise InputError(f"--tolerance {check.tolerance}: give a fraction above 0, such as 0.10")

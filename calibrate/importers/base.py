"""What every importer takes and gives."""

from dataclasses import dataclass

from ...profiler.records import Key, ModelFile, ReportedAcceptance, ReportedRow, Sampling, StepSample


@dataclass(frozen=True)
class Given:
    """What the user says of a file that does not say it itself; empty or None where nothing is said."""

    gpu: str = ""
    engine: str = ""
    target: str = ""
    target_quant: str = ""
    drafter: str = ""
    draft: str = ""
    draft_quant: str = ""
    draft_tokens: int | None = None
    baseline_tokens_per_second: float | None = None
    workload: str = ""


@dataclass(frozen=True)
class Imported:
    """The evidence of one file. `key` has what the file tells of machine and engine, the rest of it empty.

    `learned` are sentences for the user: what forecasts it serves and what is missing for others.
    """

    source: str
    format: str
    key: Key
    reported: tuple[ReportedRow, ...] = ()
    acceptance: tuple[ReportedAcceptance, ...] = ()
    steps: tuple[StepSample, ...] = ()
    learned: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """Parts of the file that were not taken, each with its reason."""
    models: tuple[ModelFile, ...] = ()
    """What the file tells of weights; labels are the names of its steps and rows."""
    sampling: Sampling | None = None
    digest: str = ""
    """Hash of the content: a file that is given twice would count twice."""
    counted_contexts: bool = False
    """Contexts of the rows are means over replies, not settings: a few tokens between two files mean nothing."""
    kv_types: tuple[str, str] = ("f16", "f16")
    """Of keys and values, while its steps were taken."""

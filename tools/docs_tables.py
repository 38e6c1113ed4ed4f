"""Blocks of the documents that come from files of the repository: public measurements, headers, records, the command line."""

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from docs_models import write_models
from docs_session import session, table
from schemas import DOCUMENTS, kind_of

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.ladders import LADDERS, predicted, rows_of
from specgauge.calibrate.importers.rows import COLUMNS, OPTIONAL
from specgauge.calibrate.predict import Prediction

DATA = ROOT / "tests" / "data"
WHO_WRITES = {
    "specgauge-profile": ("profile.json", "`run`, `profile`, `import`"),
    "specgauge-calibration": ("calibration.json", "`run`, `calibrate`"),
    "specgauge-recommendation": ("recommendation.json", "`run`, `recommend`"),
    "specgauge-validation": ("validation.json", "`run`, `validate`"),
    "specgauge-parity": ("parity.json", "`parity`"),
    "specgauge-comparison": ("stdout", "`compare --json`"),
    "specgauge-diagnosis": ("stdout", "`diagnose --json`, a list of them"),
    "specgauge-check": ("stdout", "`check --json`"),
    "specgauge-machine": ("stdout", "`machine --json`"),
}


def round_cost(row: dict[str, str]) -> float:
    """Seconds of a round in plain steps of the same session: tokens per round / speed-up."""
    return float(row["tokens_per_round"]) * float(row["baseline_tps"]) / float(row["spec_tps"])


def public_ladders() -> str:
    """The best row of each public ladder, and what one more drafted token costs."""
    lines = []
    for name in LADDERS:
        rows = rows_of(name)
        best, first, last = max(rows, key=lambda row: float(row["spec_tps"])), rows[0], rows[-1]
        lengths = int(last["draft_tokens"]) - int(first["draft_tokens"])
        marginal = (round_cost(last) - round_cost(first)) / lengths
        plain, speed = float(best["baseline_tps"]), float(best["spec_tps"])
        lines.append(
            (
                f"{best['gpu']}",
                f"{best['target']} {best['target_quant']}",
                f"{plain:.1f}",
                best["draft_tokens"],
                f"{speed:.1f}",
                f"{speed / plain:.2f}",
                f"{float(best['tokens_per_round']):.2f}",
                f"{marginal:.2f}",
                f"`{name}.csv`",
            )
        )
    return table(
        (
            "card",
            "target, MTP head",
            "plain tokens/s",
            "best draft tokens",
            "tokens/s there",
            "x plain",
            "tokens per round there",
            "one more drafted token, plain steps",
            "rows in tests/data",
        ),
        lines,
        right=(2, 3, 4, 5, 6, 7),
    )


def ladder_3090() -> str:
    """Every row of the RTX 3090 at stock power."""
    rows = rows_of("rtx3090-mtp-ladder")
    lines = [("0", f"{float(rows[0]['baseline_tps']):.1f}", "1.00", "1.00", "1.00")]
    for row in rows:
        speed = float(row["spec_tps"])
        tokens, ratio = float(row["tokens_per_round"]), speed / float(row["baseline_tps"])
        lines.append((row["draft_tokens"], f"{speed:.1f}", f"{ratio:.2f}", f"{tokens:.2f}", f"{round_cost(row):.2f}"))
    columns = ("draft tokens", "tokens/s", "x plain", "tokens per round", "a round, in plain steps")
    return table(columns, lines, right=(0, 1, 2, 3, 4))


def contexts_3090() -> str:
    """Plain and two draft tokens over context."""
    lines = []
    for row in rows_of("rtx3090-context-ladder"):
        plain, speed = float(row["baseline_tps"]), float(row["spec_tps"])
        lines.append((f"{int(row['context']):,}", f"{plain:.1f}", f"{speed:.1f}", f"{speed / plain:.2f}"))
    return table(("context", "plain tokens/s", "2 draft tokens, tokens/s", "x plain"), lines, right=(0, 1, 2, 3))


@cache
def blind() -> tuple[tuple[str, Prediction, float], ...]:
    """Rows left out of the public ladders: ladder, forecast from the other rows, measured tokens/s."""
    found = []
    for name, anchors in LADDERS.items():
        rows = rows_of(name)
        left_out = {int(row["draft_tokens"]): float(row["spec_tps"]) for row in rows}
        kept = [row for row in rows if int(row["draft_tokens"]) in anchors]
        lengths = tuple(length for length in left_out if length not in anchors)
        found += [(name, one, left_out[one.draft_tokens]) for one in predicted(kept, lengths)]
    return tuple(found)


def blind_rows() -> str:
    """Each forecast of a row left out, beside what was measured."""
    lines = []
    for name, forecast, measured in blind():
        speed = f"{forecast.tokens_per_second:.1f} ({forecast.low:.1f} to {forecast.high:.1f})"
        error = f"{100 * (forecast.tokens_per_second / measured - 1):+.1f} %"
        lines.append((f"`{name}`", str(forecast.draft_tokens), speed, f"{measured:.1f}", error, forecast.provenance))
    columns = ("ladder", "draft tokens", "forecast tokens/s (95 %)", "measured", "error", "provenance")
    return table(columns, lines, right=(1, 2, 3, 4)) + "\n\n" + blind_summary()


def blind_summary() -> str:
    """The errors of all rows left out, in one sentence."""
    errors = [abs(forecast.tokens_per_second / measured - 1) for _, forecast, measured in blind()]
    inside = sum(forecast.low <= measured <= forecast.high for _, forecast, measured in blind())
    priors = sum(forecast.provenance == "prior" for _, forecast, _ in blind())
    mean, worst = 100 * sum(errors) / len(errors), 100 * max(errors)
    return (
        f"{len(errors)} rows of {len(LADDERS)} public ladders that the forecast had not seen: mean error {mean:.1f} %, "
        f"{worst:.1f} % at worst, {inside} of {len(errors)} inside their 95 % interval; {priors} of them are "
        "marked prior and have wide intervals."
    )


def import_session() -> str:
    """The RTX 3090 rows, imported and forecast."""
    with _folder("rtx3090-mtp-ladder.csv") as folder:
        return session(
            folder,
            "specgauge import rtx3090-mtp-ladder.csv --out mine",
            "specgauge predict --out mine --draft-tokens 0..8",
            "specgauge recommend --out mine",
        )


def check_session() -> str:
    """Memory of a 27B on 24 GB, from its header."""
    with _folder() as folder:
        write_models(folder)
        return session(folder, "specgauge check target.gguf --memory 24GB -- -c 32768 --spec-draft-n-max 2")


def pair_session() -> str:
    """A draft of the older tokenizer: verdict and the first finding."""
    with _folder() as folder:
        write_models(folder)
        command = "specgauge check target.gguf --draft older.gguf --memory 24GB"
        return session(folder, command, lines=slice(0, 16), exits=2)


def documents() -> str:
    """Every document with its kind, its schema and its fields."""
    lines = []
    for document in DOCUMENTS:
        kind = kind_of(document)
        where, by = WHO_WRITES[kind]
        text = " ".join((document.__doc__ or "").split("\n\n")[0].split())
        lines.append((f"`{kind}`", where, by, text, f"[schema](schemas/{kind}.json)"))
    return table(("kind", "where", "by", "what", "fields"), lines)


def csv_columns() -> str:
    """The columns of the CSV for import."""
    return (
        f"Columns (one that is not there counts as unknown, with a warning): {_code(COLUMNS)}.\n\n"
        f"Columns that may be there too: {_code(OPTIONAL)}."
    )


def _code(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


@contextmanager
def _folder(*data: str) -> Iterator[Path]:
    """A folder with copies of files of tests/data."""
    with tempfile.TemporaryDirectory() as folder:
        for name in data:
            (Path(folder) / name).write_bytes((DATA / name).read_bytes())
        yield Path(folder)


BLOCKS: dict[str, Callable[[], str]] = {
    "public-ladders": public_ladders,
    "ladder-3090": ladder_3090,
    "contexts-3090": contexts_3090,
    "blind-rows": blind_rows,
    "blind-summary": blind_summary,
    "import-session": import_session,
    "check-session": check_session,
    "pair-session": pair_session,
    "documents": documents,
    "csv-columns": csv_columns,
}
"""By name: what makes it."""

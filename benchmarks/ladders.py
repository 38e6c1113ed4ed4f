"""Rows left out of public ladders, forecast from the others: python benchmarks/ladders.py, from a checkout with specgauge installed.

Prints every blind row with its interval (sources: tests/data/README.md), the mean and the worst error, and the three
contexts between 8K and 96K of the context ladder. tests/test_ladders.py holds the bounds.
"""

import csv
import tempfile
from pathlib import Path

import numpy as np

from specgauge.calibrate.combine import profile_of
from specgauge.calibrate.fit import calibrate
from specgauge.calibrate.importers.base import Given
from specgauge.calibrate.importers.detect import read_files
from specgauge.calibrate.predict import Prediction, predictions_of

DATA = Path(__file__).resolve().parents[1] / "tests" / "data"
LADDERS = {
    "rtx3090-mtp-ladder": (1, 7, 8),
    "community-5090-400w": (1, 6),
    "community-3090-250w": (2, 4),
    "community-m3ultra": (2, 4),
    "community-3060-moe": (1, 4),
}


def rows_of(name: str) -> list[dict[str, str]]:
    """Rows of a file of tests/data."""
    with open(DATA / f"{name}.csv") as file:
        return list(csv.DictReader(file))


def predicted(
    rows: list[dict[str, str]], lengths: tuple[int, ...], contexts: tuple[int, ...] | None = None
) -> tuple[Prediction, ...]:
    """Forecasts from a file that holds only `rows`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
        profile = profile_of(read_files((path,), Given()), (), Given(), "", "")
    return predictions_of(profile, calibrate(profile), lengths, contexts)


def shown(label: str, found: Prediction, measured: float) -> float:
    """One line; the error as a fraction."""
    error = found.tokens_per_second / measured - 1
    inside = "inside" if found.low <= measured <= found.high else "OUTSIDE"
    interval = f"{found.tokens_per_second:6.1f} ({found.low:.1f} to {found.high:.1f})"
    print(f"{label:34} {interval:24} measured {measured:6.1f}  {100 * error:+5.1f} %  {inside}  {found.provenance}")
    return error


def main() -> None:
    """All blind rows, then their summary."""
    errors = []
    for name, anchors in LADDERS.items():
        rows = rows_of(name)
        blind = [row for row in rows if int(row["draft_tokens"]) not in anchors]
        kept = [row for row in rows if int(row["draft_tokens"]) in anchors]
        found = {p.draft_tokens: p for p in predicted(kept, tuple(int(row["draft_tokens"]) for row in blind))}
        errors += [
            shown(f"{name}, {row['draft_tokens']} tokens", found[int(row["draft_tokens"])], float(row["spec_tps"]))
            for row in blind
        ]
    print(f"{len(errors)} rows: mean {100 * np.mean(np.abs(errors)):.2f} %, worst {100 * np.max(np.abs(errors)):.2f} %")
    rows = rows_of("rtx3090-context-ladder")
    between = rows[1:-1]
    found = predicted([rows[0], rows[-1]], (0, 2), tuple(int(row["context"]) for row in between))
    speeds = {(p.context, p.draft_tokens): p for p in found}
    errors = [
        shown(f"context {row['context']}, {length} tokens", speeds[int(row["context"]), length], float(row[column]))
        for row in between
        for length, column in ((0, "baseline_tps"), (2, "spec_tps"))
    ]
    print(f"{len(errors)} rows: mean {100 * np.mean(np.abs(errors)):.2f} %, worst {100 * np.max(np.abs(errors)):.2f} %")


if __name__ == "__main__":
    main()

"""Calibration against known truth: python benchmarks/calibration.py, from a checkout with specgauge installed.

Random machines and pairs (tests/calibrate/machines.py) are profiled with 2 % noise, hiccups, drift and throttled blocks,
calibrated, and every interval is held against the truth: once with the evidence alone, on machines that are what the model says,
and once with the priors, on machines that deviate as the priors say. Exits 1 where a limit is missed.
"""

import argparse
import os
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from multiprocessing import Pool
from pathlib import Path

for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")
sys.path.append(str(Path(__file__).resolve().parents[1]))

import numpy as np

from specgauge.calibrate.priors import ENGINES, EVIDENCE_ALONE, Priors
from tests.calibrate.machines import NOISE, Check, Verdict, machine, verdict

COVERAGE = (0.92, 0.98)
MOST_ERROR = 0.5 * NOISE
"""Of the median unrun length."""
MOST_REGRET = 0.01
LEAST_SHARE = 0.95
"""Of the choices that keep to MOST_REGRET."""
TITLES = {EVIDENCE_ALONE: "evidence alone", ENGINES: "with priors for real engines"}


@dataclass(frozen=True)
class Row:
    """All checks of one quantity. Errors, half-widths and scores are fractions, of the truth or of a plain step."""

    quantity: str
    checks: int
    coverage: float
    error: float
    half_width: float
    score: float

    @classmethod
    def of(cls, quantity: str, checks: list[Check]) -> "Row":
        errors, widths = ([getattr(c, name) for c in checks] for name in ("error", "half_width"))
        scores = [c.score() for c in checks]
        coverage = float(np.mean([c.covers for c in checks]))
        error = float(np.median(np.abs(errors)))
        return cls(quantity, len(checks), coverage, error, float(np.median(widths)), float(np.mean(scores)))

    def as_line(self) -> str:
        numbers = " | ".join(f"{100 * value:.2f} %" for value in (self.error, self.half_width, self.score))
        return f"| {self.quantity} | {self.checks} | {100 * self.coverage:.1f} % | {numbers} |"


def judged(job: tuple[int, Priors]) -> Verdict:
    seed, priors = job
    return verdict(machine(seed, priors), priors)


def rows_of(verdicts: list[Verdict]) -> list[Row]:
    groups = defaultdict(list)
    for found in verdicts:
        for check in found.checks:
            groups[check.quantity].append(check)
    return [Row.of(quantity, checks) for quantity, checks in groups.items()]


def report(verdicts: list[Verdict], priors: Priors) -> list[str]:
    """Prints the table; the limits that were missed."""
    rows = rows_of(verdicts)
    print(f"\n{TITLES[priors]}, {len(verdicts)} machines\n")
    print("| quantity | intervals | covered | median error | median half-width | mean interval score |")
    print("| --- | --- | --- | --- | --- | --- |")
    for row in rows:
        print(row.as_line())
    regret = np.array([value for found in verdicts for value in found.regret])
    share = float(np.mean(regret <= MOST_REGRET))
    print(
        f"\nregret: {100 * regret.mean():.2f} % on average, {100 * np.quantile(regret, 0.95):.2f} % in the 95th percentile, "
        f"at most {100 * MOST_REGRET:.0f} % in {100 * share:.1f} % of {regret.size} choices"
    )
    judged_rows = [row for row in rows if "extrapolated" not in row.quantity]
    missed = [f"{r.quantity}: {100 * r.coverage:.1f} % covered" for r in judged_rows if not within(r.coverage)]
    unrun = next(row for row in rows if row.quantity == "true speed, unrun")
    if priors == EVIDENCE_ALONE:
        missed += [f"unrun lengths: median error {100 * unrun.error:.2f} %"] if unrun.error > MOST_ERROR else []
        missed += [f"regret: within the limit in {100 * share:.1f} % only"] if share < LEAST_SHARE else []
    return [f"{TITLES[priors]}: {text}" for text in missed]


def within(coverage: float) -> bool:
    return COVERAGE[0] <= coverage <= COVERAGE[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=2000, help="half of them with each kind of priors")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    began, missed = time.monotonic(), []
    first = given.seed * 1_000_000
    with Pool() as pool:
        for place, priors in enumerate((EVIDENCE_ALONE, ENGINES)):
            seeds = range(first + place, first + given.machines, 2)
            missed += report(pool.map(judged, [(seed, priors) for seed in seeds], chunksize=4), priors)
    print(f"\n{time.monotonic() - began:.0f} s")
    for text in missed:
        print("missed:", text)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

"""The rows of two validations, matched by setting and workload.

A row is measured as its speed over the plain baseline of the same repeat, so that the machine of each session drops out;
the machine itself is the baselines' own speed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ..profiler.records import Setting
from .compare_profiles import BESIDE_LOG_SD, SESSION_LOG_SD, SPEED, setting_name
from .contrast import Estimate, Look, mean_estimate, ratio_of
from .records import Validation, ValidationRow

Row = tuple[Setting, str]


@dataclass(frozen=True)
class _Side:
    """Rows of a validation by setting and workload; the first plain row of a workload is its baseline."""

    rows: dict[Row, ValidationRow]
    baselines: dict[str, ValidationRow]

    @staticmethod
    def of(found: Validation) -> "_Side":
        rows = {(row.config, row.workload): row for row in found.rows if row.speeds and min(row.speeds) > 0}
        plain = [row for row in rows.values() if row.config.drafter == "none"]
        return _Side(rows, {row.workload: row for row in reversed(plain)})

    def over_plain(self, key: Row) -> np.ndarray:
        """Log speed over the baseline's, by repeat."""
        row, plain = self.rows[key], self.baselines[key[1]]
        n = min(len(row.speeds), len(plain.speeds))
        return np.log(np.array(row.speeds[:n]) / np.array(plain.speeds[:n]))


def looks(a: Validation, b: Validation) -> tuple[tuple[Look, ...], tuple[str, ...]]:
    """Every row that both have, the machine first; and what to say beside them."""
    ours, theirs = _Side.of(a), _Side.of(b)
    plain = [w for w, row in ours.baselines.items() if w in theirs.baselines and _same_baseline(row, theirs, w)]
    common = [key for key in ours.rows if key in theirs.rows and key[1] in plain]
    drafting = [key for key in common if ours.baselines[key[1]].config != key[0]]
    machine = _machine(ours, theirs, plain)
    found = [
        *([machine] if machine else ()),
        *(_baseline(ours, theirs, workload, machine) for workload in plain if machine),
        *_drafters(ours, theirs, drafting),
        *(_row(ours, theirs, key) for key in drafting),
    ]
    return tuple(found), tuple(_notes(a, b, ours, theirs))


def _same_baseline(row: ValidationRow, theirs: _Side, workload: str) -> bool:
    return row.config == theirs.baselines[workload].config


def _machine(a: _Side, b: _Side, workloads: list[str]) -> Look | None:
    if not workloads:
        return None
    first, second = (mean_estimate(_by_repeat([np.log(s.baselines[w].speeds) for w in workloads])) for s in (a, b))
    name = f"plain runs of {a.baselines[workloads[0]].config.target}"
    ratio = ratio_of(first, second).with_error(SESSION_LOG_SD)
    return Look("machine", "whole machine", name, SPEED, float(np.exp(first.log)), float(np.exp(second.log)), ratio)


def _baseline(a: _Side, b: _Side, workload: str, machine: Look) -> Look:
    """Plain runs of one workload; what all workloads share is the machine."""
    ours, theirs = a.baselines[workload], b.baselines[workload]
    first, second = (mean_estimate(np.log(row.speeds)) for row in (ours, theirs))
    ratio = ratio_of(first, second)
    return Look(
        "number",
        "plain decoding",
        f"{setting_name(ours.config)} on {workload}",
        SPEED,
        float(np.exp(first.log)),
        float(np.exp(second.log)),
        ratio.with_error(SESSION_LOG_SD),
        ratio.shifted(machine.ratio.log).with_error(BESIDE_LOG_SD),
        (ours.error, theirs.error),
    )


def _drafters(a: _Side, b: _Side, keys: list[Row]) -> Iterator[Look]:
    for kind in dict.fromkeys(setting.drafter for setting, _ in keys):
        same = [key for key in keys if key[0].drafter == kind]
        first, second = (mean_estimate(_by_repeat([side.over_plain(key) for key in same])) for side in (a, b))
        yield _over_plain("group", f"drafter {kind}", f"all settings with drafter {kind} over plain", first, second)


def _row(a: _Side, b: _Side, key: Row) -> Look:
    first, second = (mean_estimate(side.over_plain(key)) for side in (a, b))
    found = _over_plain(
        "number", f"drafter {key[0].drafter}", f"{setting_name(key[0])} on {key[1]} over plain", first, second
    )
    return replace(found, errors=(a.rows[key].error, b.rows[key].error))


def _over_plain(family: str, group: str, name: str, a: Estimate, b: Estimate) -> Look:
    ratio = ratio_of(a, b).with_error(BESIDE_LOG_SD)
    return Look(family, group, name, "x plain", float(np.exp(a.log)), float(np.exp(b.log)), ratio)


def _by_repeat(series: list[np.ndarray]) -> np.ndarray:
    """Mean over rows in each repeat: what the rows of a repeat share must not count once a row."""
    n = min(one.size for one in series)
    return np.mean([one[:n] for one in series], axis=0)


def _notes(a: Validation, b: Validation, ours: _Side, theirs: _Side) -> Iterator[str]:
    yield (
        f"priors: {SESSION_LOG_SD:.1%} from session to session for the whole machine, {BESIDE_LOG_SD:.1%} for a setting over "
        "plain, beside the noise that repeats show"
    )
    if a.clock != b.clock:
        yield f"A is timed by {a.clock}, B by {b.clock}: what other processes took is in one of them alone"
    for name, found in (("A", a), ("B", b)):
        if found.mean_abs_error is not None and found.coverage is not None:
            yield (
                f"{name}: forecasts off by {found.mean_abs_error:.1%} on average over {found.n_rows} rows, "
                f"{found.coverage:.0%} inside their intervals; regret {found.regret:.1%}"
            )
    for name, rows, others in (("A", ours.rows, theirs.rows), ("B", theirs.rows, ours.rows)):
        alone = sum(key not in others for key in rows)
        if alone:
            yield f"{alone} rows are only in {name}"

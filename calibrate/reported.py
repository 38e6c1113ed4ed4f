"""Evidence that others measured: speeds and acceptance by configuration, as rounds, plain steps and survival.

    seconds of a round = tokens per round / speed, over the plain step of the same session

A row's context is that of its setting: cached tokens behind which the speed was taken.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..model.acceptance import RoundLaw
from ..model.ladder import ROW_LOG_SD, TOKENS_LOG_SD, rows_apart
from ..model.survival import survival_from_ladder, tokens_per_round
from ..profiler.records import Profile, ReportedRow
from .evidence import Pair, RoundObservation
from .rounds import NotCalibrated

LARGEST_ERROR = 0.3
"""Tokens a round by which figures of a ladder may contradict each other before they are no ladder."""


@dataclass(frozen=True)
class Ladder:
    """Tokens per round (K,) of a pair at `draft_tokens` (K,), rising, behind `context` cached tokens."""

    context: float
    draft_tokens: np.ndarray
    tokens: np.ndarray

    def at(self, draft_tokens: int) -> float:
        """Tokens per round at `draft_tokens`: a figure as it is, between figures the steadiest hazards that meet them, as
        far as they do not contradict each other."""
        if draft_tokens in self.draft_tokens:
            return float(self.tokens[self.draft_tokens == draft_tokens][0])
        return tokens_per_round(self.survival(draft_tokens))

    def survival(self, depth: int) -> np.ndarray:
        """S_1..S_depth. Raises NotCalibrated where the figures are no ladder at all."""
        error = 0.005
        while True:
            try:
                return survival_from_ladder(self.draft_tokens, self.tokens, depth, error)
            except ValueError:
                if error > LARGEST_ERROR:
                    figures = ", ".join(f"{t:g} at {n}" for n, t in zip(self.draft_tokens, self.tokens))
                    raise NotCalibrated(f"tokens per round of {figures} draft tokens contradict each other") from None
                error *= 2

    def gap(self, draft_tokens: int) -> float:
        """How far the rows around a length are apart (0 at a row)."""
        return float(rows_apart(self.draft_tokens, draft_tokens))


def speaks_of(profile: Profile) -> bool:
    """Whether a profile holds evidence of others."""
    return any(m.request.action == "import" for m in profile.measurements)


def rows_of(profile: Profile, pair: Pair | None = None) -> tuple[ReportedRow, ...]:
    """Rows of a pair, or all."""
    rows = (row for m in profile.measurements for row in m.reported)
    return tuple(row for row in rows if pair is None or Pair.of(row.setting) == pair)


def plain_seconds(profile: Profile, target: str) -> dict[int, np.ndarray]:
    """Seconds of a plain step as reported, by context: (n,) one entry a session."""
    found: dict[int, list[float]] = defaultdict(list)
    for row in rows_of(profile):
        if row.setting.target != target:
            continue
        if row.baseline_tokens_per_second:
            found[row.setting.context].append(1 / row.baseline_tokens_per_second)
        elif row.setting.draft_tokens == 0 and row.tokens_per_second:
            found[row.setting.context].append(1 / row.tokens_per_second)
    return {context: np.array(_once(seconds)) for context, seconds in sorted(found.items())}


def plain_over_all(profile: Profile, target: str, workload: str) -> np.ndarray:
    """Plain steps of a workload's rows over those of all workloads at the same context: (n,) one entry a session."""
    reference = {c: float(np.median(s)) for c, s in plain_seconds(profile, target).items()}
    own = [
        1 / row.baseline_tokens_per_second / reference[row.setting.context]
        for row in rows_of(profile)
        if row.setting.target == target and row.workload == workload and row.baseline_tokens_per_second
    ]
    return np.array(_once(own))


def _once(values: list[float]) -> list[float]:
    """Each value once: rows of one session repeat its baseline."""
    return list(dict.fromkeys(values))


def round_observations(profile: Profile, pair: Pair) -> tuple[RoundObservation, ...]:
    """Round times of `pair` by draft tokens and context, each row over its own baseline: sessions differ in speed."""
    reference = {c: float(np.median(s)) for c, s in plain_seconds(profile, pair.target).items()}
    cells: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for row in rows_of(profile, pair):
        if row.tokens_per_second and row.tokens_per_round and row.setting.draft_tokens:
            context = row.setting.context
            paired = row.baseline_tokens_per_second
            scale = reference[context] * paired if paired else 1.0
            cells[row.setting.draft_tokens, context].append(
                (row.tokens_per_round / row.tokens_per_second * scale, _row_log_sd(row))
            )
    return tuple(
        RoundObservation(drafted, float(context), np.array([s for s, _ in rows]), len(rows), False, _mean(rows))
        for (drafted, context), rows in sorted(cells.items())
    )


def _row_log_sd(row: ReportedRow) -> float:
    """Noise of a row's speed (log): its own where it says so, the prior of published rows elsewhere."""
    if row.tokens_per_second_sd and row.tokens_per_second:
        return row.tokens_per_second_sd / row.tokens_per_second / np.sqrt(max(row.repeats or 1, 1))
    return ROW_LOG_SD / np.sqrt(max(row.repeats or 1, 1))


def _mean(rows: list[tuple[float, float]]) -> float:
    return float(np.sqrt(np.mean([sd**2 for _, sd in rows])))


def lengths_of(profile: Profile) -> frozenset[tuple[Pair, int]]:
    """(pair, draft tokens) with a reported round time."""
    rows = rows_of(profile)
    return frozenset(
        (Pair.of(r.setting), r.setting.draft_tokens) for r in rows if r.tokens_per_second and r.tokens_per_round
    )


def is_row(profile: Profile, pair: Pair, draft_tokens: int, context: int, workload: str) -> bool:
    """Whether exactly this was reported, and of no other workload: a round's cost is taken over all of them."""
    cell = [
        r
        for r in rows_of(profile, pair)
        if (r.setting.draft_tokens, r.setting.context) == (draft_tokens, context) and r.tokens_per_second
    ]
    return bool(cell) and {r.workload for r in cell} == {workload}


def ladders(profile: Profile, pair: Pair, workload: str) -> tuple[Ladder, ...]:
    """Tokens per round of a pair on a workload, by context, rising: from rows, and from counters of engines."""
    figures: dict[float, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows_of(profile, pair):
        if row.workload == workload and row.tokens_per_round and row.setting.draft_tokens:
            figures[row.setting.context][row.setting.draft_tokens].append(row.tokens_per_round)
    for context, draft_tokens, tokens in _counted(profile, pair, workload):
        figures[context][draft_tokens].append(tokens)
    return tuple(
        Ladder(float(context), np.array(sorted(found)), np.array([np.mean(found[n]) for n in sorted(found)]))
        for context, found in sorted(figures.items())
    )


def _counted(profile: Profile, pair: Pair, workload: str) -> Iterable[tuple[int, int, float]]:
    """(context, draft tokens, tokens per round) of counters: at every length to which positions were counted."""
    for measurement in profile.measurements:
        for seen in measurement.reported_acceptance:
            if Pair.of(seen.setting) != pair or seen.workload != workload:
                continue
            if not seen.accepted_by_position:
                yield seen.setting.context, seen.setting.draft_tokens, 1 + seen.accepted / seen.drafts
            for depth in range(1, len(seen.accepted_by_position) + 1):
                yield seen.setting.context, depth, 1 + sum(seen.accepted_by_position[:depth]) / seen.drafts


def tokens_at(found: tuple[Ladder, ...], draft_tokens: int, context: float) -> tuple[float, float]:
    """Tokens per round at a length and context, and its doubt (log sd); linear between contexts, level beyond."""
    tokens = [ladder.at(draft_tokens) for ladder in found]
    value = float(np.interp(context, [ladder.context for ladder in found], tokens))
    nearest = min(found, key=lambda ladder: abs(ladder.context - context))
    return value, TOKENS_LOG_SD * nearest.gap(draft_tokens)


def survival_at(found: tuple[Ladder, ...], depth: int, context: float) -> np.ndarray:
    """S_1..S_depth of the ladder at the nearest context."""
    return min(found, key=lambda ladder: abs(ladder.context - context)).survival(depth)


def full_drafts(draft_tokens: int, tokens: float) -> RoundLaw:
    """The law of one round that drafts `draft_tokens` and emits `tokens` in the mean, away from a reply's end."""
    one = np.ones(1)
    return RoundLaw(np.array([draft_tokens]), np.array([tokens - 1]), one, one, draft_tokens * one)

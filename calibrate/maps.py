"""Maps of speed from a calibrated model: the best draft length over contexts and streams, and where drafting stops paying.

Several streams are derived, not run: a round of b streams is one pass over b times as many tokens, from the same tables
(model/steps.py). What that asks of the tables beyond their measured widths and contexts is marked prior.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from ..model.cost import RoundCost, WholeRounds
from ..model.maps import DraftRounds, LengthMap, best_lengths
from .fit import Calibrated
from .intervals import percentile_interval
from .map_records import SpeedCell, SpeedMap
from .what_if import model_of
from .what_if_records import WhatIfRecord, WorkloadWhatIf

STREAMS = (1, 2, 4, 8, 16)
MOST_CONTEXTS = 8
BEYOND = 2
"""Doublings of the context shown past what passes are believed to, marked as extrapolated."""
SHORTEST_CONTEXT = 64
MOST_CONTEXT = 2**20
ONE_CONTEXT = "one context was timed, so that nothing is known along it: run specgauge profile, or import rows at several contexts"
ONE_STREAM = "its rounds were timed whole, for one stream: what several cost is another measurement, which specgauge does not take yet"


def speed_maps(calibrated: Calibrated, records: Sequence[WhatIfRecord]) -> tuple[SpeedMap, ...]:
    """One map for each drafter and workload of the what-if records, with the same acceptance and prices."""
    return tuple(_map(calibrated, record, workload) for record in records for workload in record.workloads)


def _map(calibrated: Calibrated, record: WhatIfRecord, workload: WorkloadWhatIf) -> SpeedMap:
    cost = calibrated.round_cost(record.setting)
    whole = isinstance(cost, WholeRounds)
    contexts = shown_contexts(record)
    rounds = DraftRounds(
        draft_tokens=np.array([0, *record.prices.draft_tokens]),
        tokens=_tokens(calibrated, record, workload),
        offered=np.array(workload.offered),
        reply_factor=workload.reply_factor,
    )
    found = best_lengths(rounds, cost, np.array(contexts), (1,) if whole else STREAMS)
    reasons = (
        ONE_CONTEXT if len(contexts) == 1 else "",
        ONE_STREAM if whole else _too_wide(cost, record.setting.draft_tokens),
    )
    return SpeedMap(
        setting=record.setting,
        workload=workload.workload,
        cells=tuple(_cells(found, calibrated.level)),
        unknown="; ".join(filter(None, reasons)),
    )


def _too_wide(cost: RoundCost, longest: int) -> str:
    """That several streams ask for wider passes than were timed; empty where none does."""
    widest = int(cost.target.widths[-1])
    if STREAMS[-1] * (longest + 1) <= widest:
        return ""
    return (
        f"passes over at most {widest} tokens were timed: of several streams only drafts that need no wider ones are "
        "compared, and where there is none the cell is extrapolated"
    )


def _cells(found: LengthMap, level: float) -> Iterator[SpeedCell]:
    for i, streams in enumerate(found.streams):
        for j, context in enumerate(found.contexts):
            speed_up = percentile_interval(found.speed_up[:, i, j], level)
            yield SpeedCell(
                context=float(context),
                streams=streams,
                draft_tokens=int(found.best[i, j]),
                tokens_per_second=float(found.tokens_per_second[i, j]),
                plain_tokens_per_second=float(found.plain_tokens_per_second[i, j]),
                speed_up=speed_up.value,
                speed_up_low=speed_up.low,
                speed_up_high=speed_up.high,
                provenance="prior" if found.doubtful[i, j] else "calibrated",
            )


def shown_contexts(record: WhatIfRecord) -> tuple[float, ...]:
    """Doublings from the shortest context that was timed to BEYOND past the longest that is believed; the one context
    where only one was timed."""
    known = record.known_contexts
    if len(known) == 1:
        return known
    first = max(2 ** round(np.log2(max(known[0], SHORTEST_CONTEXT))), SHORTEST_CONTEXT)
    last = min(record.trusted_context * 2**BEYOND, MOST_CONTEXT)
    doubled = [float(first * 2**n) for n in range(20) if first * 2**n <= last]
    return tuple(doubled[-MOST_CONTEXTS:])


def _tokens(calibrated: Calibrated, record: WhatIfRecord, workload: WorkloadWhatIf) -> np.ndarray:
    """Tokens of a round (R, L): as the what-if model has them, scattered as the accepted tokens of drawn prompts are."""
    lengths = np.array([0, *record.prices.draft_tokens])
    draws = calibrated.survival_draws(record.setting, workload.workload)
    accepted = np.concatenate([np.zeros((draws.shape[0], 1)), np.cumsum(draws, axis=-1)], axis=-1)[:, lengths]
    scatter = np.divide(accepted, accepted[:1], out=np.ones_like(accepted), where=accepted[:1] > 0)
    return 1 + (model_of(record, workload).tokens() - 1) * scatter

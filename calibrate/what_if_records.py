"""What a report needs to recompute speeds in the page: the cost of rounds as tables, and acceptance by workload.

Point estimates; intervals at rest are those of the forecasts. Nothing here is measured anew: all of it follows from one
calibration, as calibrate/what_if.py says.
"""

from ..profiler.records import Record, Setting


class PassSeconds(Record, kw_only=True):
    """Seconds of a model's passes: `seconds[w][c]` over `widths[w]` tokens behind `contexts[c]` cached ones, both rising.

    Between contexts a line; beyond them the nearest line, never falling away from what was measured (model/steps.py)."""

    contexts: tuple[float, ...]
    widths: tuple[int, ...]
    seconds: tuple[tuple[float, ...], ...]


class RoundPrices(Record, kw_only=True):
    """What a round of each of `draft_tokens` (rising from 1) takes: the terms of `recipe` (model/cost.py)."""

    recipe: tuple[str, ...]
    draft_tokens: tuple[int, ...]
    target: PassSeconds
    draft: PassSeconds | None = None
    overhead_seconds: float = 0.0
    overhead_seconds_per_token: float = 0.0
    correction: tuple[float, ...]
    """By draft length: what rounds took over the sum of their terms."""
    ratio_contexts: tuple[float, ...] = ()
    ratio: tuple[tuple[float, ...], ...] = ()
    """Of rounds measured whole, `ratio[g][c]`: over a plain step behind `ratio_contexts[c]`; level beyond them."""


class WorkloadWhatIf(Record, kw_only=True):
    """Acceptance of one workload, and the forecasts that the curve is held to. Tuples by draft length begin with plain
    decoding, then as RoundPrices.draft_tokens."""

    workload: str
    context: float
    """Mean cached tokens of its plain steps: the context at rest."""
    hazard: tuple[float, ...]
    """Chance that the j-th drafted token is accepted once those before it are, kept off 0 and 1 (model/what_if.py)."""
    offered: tuple[float, ...]
    """Share of rounds in which anything is drafted."""
    reply_factor: float
    """Plain replies over plain steps."""
    anchor: tuple[float, ...]
    """Factor on the odds of the hazards of each draft length by which the curve at rest is the forecasts: ends of replies,
    and hazards that differ a little by draft length."""
    scale: float
    """The same for plain decoding, of speeds: 1 but for how contexts spread."""
    tokens_per_second: tuple[float, ...]
    """The forecasts themselves, at rest."""
    doubtful: tuple[bool, ...]
    """Whether the round's cost is an extrapolation not to be trusted."""


class KernelAdvice(Record, kw_only=True):
    """A kernel switch that matters to the choice: model/kernels.py, beyond noise. Fractions over other rounds."""

    workload: str
    draft_tokens: int
    """The first length past the switch; its pass is one token wider."""
    over_line: float
    over_before: float
    take: int
    never: tuple[int, ...]
    text: str


class WhatIfRecord(Record, kw_only=True):
    """One drafter, its rounds and its workloads. `setting` is the longest that was forecast."""

    setting: Setting
    prices: RoundPrices
    workloads: tuple[WorkloadWhatIf, ...]
    trusted_context: float
    """Cached tokens up to which passes are believed: one measured span beyond the longest."""
    known_contexts: tuple[float, ...]
    """At which passes, or rounds, were timed; one alone says nothing of what context costs."""
    takes_context: bool = False
    """Whether predict takes a context for it: evidence of others; the replies of a profile have their own."""
    kernels: tuple[KernelAdvice, ...] = ()

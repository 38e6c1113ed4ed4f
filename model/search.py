"""Search: every setting of a grid ranked by forecast speed, within the memory of a machine.

    rows    options (target, draft, their quantizations, KV types, placement) x settings (p_min, draft tokens)
    cells   contexts x streams
    tokens/s of a row in a cell = tokens of a round / sum over kinds of round of share x seconds

Shares do not depend on the cell and seconds of a kind not on the setting, so an option is a matrix product of the two.
Whether one of a few measured arms is really the fastest is another question: decision.py.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from .cost import RoundCost, RoundOfParts, Rounds
from .grid import Grid, Option
from .kv import KvTypes
from .law_table import LawTable
from .ranking import Ranking
from .steps import Lookup, StepTable


def rank(grid: Grid) -> Ranking:
    """All rows of `grid` in all its cells, by point estimates (entry 0 of a cost's replicates).

    The speed of a row is the mean of tokens over the mean of seconds of a round (derived: as in forecast.py), its memory that of memory.Deployment.
    """
    laws = [option.laws for option in grid.options]
    priced, needed = _priced(grid), [_needed(option, grid) for option in grid.options]
    draft_tokens = np.concatenate([one.draft_tokens for one in laws])
    simplest_first = np.argsort(draft_tokens, kind="stable")

    def rows(parts: list[np.ndarray]) -> np.ndarray:
        return np.concatenate(parts)[simplest_first]

    return Ranking(
        grid=grid,
        option=rows([np.full(one.tokens.size, i) for i, one in enumerate(laws)]),
        setting=rows([np.arange(one.tokens.size) for one in laws]),
        draft_tokens=draft_tokens[simplest_first],
        p_min=rows([one.p_min for one in laws]),
        tokens=rows([one.tokens for one in laws]),
        seconds=rows([seconds for seconds, _ in priced]),
        doubtful_share=rows([share for _, share in priced]),
        device_bytes=rows([device for device, _ in needed]),
        host_bytes=rows([host for _, host in needed]),
    )


@dataclass(frozen=True)
class _Remembering(StepTable):
    """A table that looks nothing up twice: options that share a target or a draft ask the same of it."""

    answers: dict[tuple[bytes, bytes, int], Lookup] = field(default_factory=dict)

    def lookup(self, width: np.ndarray | int, context: np.ndarray | float, streams: int = 1) -> Lookup:
        key = (np.asarray(width).tobytes(), np.asarray(context).tobytes(), streams)
        if key not in self.answers:
            self.answers[key] = super().lookup(width, context, streams)
        return self.answers[key]


def _remembering(cost: RoundCost, known: dict[int, _Remembering]) -> RoundCost:
    """`cost` over remembering tables; `known` has them by the identity of the table that they stand for."""

    def of(table: StepTable) -> _Remembering:
        return known.setdefault(
            id(table), _Remembering(table.widths, table.contexts, table.seconds, table.switches, table.prior)
        )

    if isinstance(cost, RoundOfParts) and cost.draft is not None:
        return replace(cost, target=of(cost.target), draft=of(cost.draft))
    return replace(cost, target=of(cost.target))


def _priced(grid: Grid) -> list[tuple[np.ndarray, np.ndarray]]:
    """Of each option the seconds of a round (S, C, B) and the share of them that is extrapolated.

    All options price the kinds of round of all, so that a table is asked the same each time.
    """
    own = [np.stack([option.laws.drafted, option.laws.passes]) for option in grid.options]
    kinds, index = np.unique(np.concatenate(own, axis=1), axis=1, return_inverse=True)
    places = np.split(index.ravel(), np.cumsum([one.shape[1] for one in own])[:-1])
    contexts, known = grid.contexts.size, {}
    rounds = Rounds.of(
        np.repeat(kinds[0], contexts), np.tile(grid.contexts, kinds.shape[1]), np.repeat(kinds[1], contexts)
    )
    return [
        _averaged(option.laws, _remembering(option.cost, known), place, rounds, grid)
        for option, place in zip(grid.options, places)
    ]


def _averaged(
    laws: LawTable, cost: RoundCost, place: np.ndarray, rounds: Rounds, grid: Grid
) -> tuple[np.ndarray, np.ndarray]:
    """Seconds (S, C, B) of one option and their extrapolated share; `place` (K,): where its kinds are in `rounds`.

    The share is that of the seconds or, where it is larger, of the rounds: an extrapolation far too low cannot hide.
    """
    found = [cost.lookup(replace(rounds, streams=int(streams))) for streams in grid.streams]
    point = [one.seconds.reshape(-1, rounds.drafted.size)[0] for one in found]
    cells = (-1, grid.contexts.size, grid.streams.size)
    seconds = np.stack(point, axis=-1).reshape(cells)[place]
    doubtful = np.stack([one.doubtful for one in found], axis=-1).reshape(cells)[place]
    spent, extrapolated = (np.tensordot(laws.share, seconds * of, axes=1) for of in (1.0, doubtful))
    return spent, np.maximum(extrapolated / spent, np.tensordot(laws.share, doubtful, axes=1))


def _needed(option: Option, grid: Grid) -> tuple[np.ndarray, np.ndarray]:
    """Bytes (S, C, B) on device and host; layers leave the device as in memory.partial_offload."""
    deployment, pairing = option.deployment, option.pairing
    shape = (option.laws.tokens.size, grid.contexts.size, grid.streams.size)
    need = deployment.need(
        option.laws.draft_tokens[:, None, None],
        grid.contexts[:, None],
        grid.streams,
        KvTypes.named(pairing.key_type, pairing.value_type),
    )
    weights = deployment.target.weights
    layers = (weights.dense_layers + weights.experts).size_bytes + need.target.kv_bytes + need.target.state_bytes
    host = np.broadcast_to(layers * (pairing.host_layers / deployment.target.layers), shape)
    return np.broadcast_to(need.total_bytes, shape) - host, host

"""Ranking: what a search found, its best settings by name, and how much one setting for everything gives away."""

from dataclasses import dataclass

import numpy as np

from .cost import Rounds
from .forecast import DOUBTFUL_SHARE
from .grid import Grid, Pairing
from .memory import MEBIBYTE


@dataclass(frozen=True)
class Candidate:
    """One row of a ranking in one cell, by name. Speeds in tokens/s: of a stream, and of all streams together.

    `missing_bytes` is what does not fit, on device and host together; `doubtful_share` of the seconds is extrapolated,
    `remedy` what to measure for it.
    """

    pairing: Pairing
    p_min: float
    draft_tokens: int
    context: float
    streams: int
    tokens_per_second: float
    aggregate_tokens_per_second: float
    tokens_per_round: float
    device_bytes: float
    host_bytes: float
    missing_bytes: float
    doubtful_share: float
    remedy: str


@dataclass(frozen=True)
class Compromise:
    """One setting for all cells. `regret` (C, B): the share of the best speed that it gives away there; 1 where it
    cannot be chosen, 0 where nothing can."""

    pairing: Pairing
    p_min: float
    draft_tokens: int
    regret: np.ndarray

    @property
    def worst(self) -> float:
        """The largest regret of a cell."""
        return float(self.regret.max())


@dataclass(frozen=True)
class Ranking:
    """N rows in C x B cells; of equals the first has the fewest draft tokens.

    By row (N,): `option` (place in the grid), `setting` (place in the option's laws), `draft_tokens`, `p_min`, `tokens`
    of a round. By cell (N, C, B): `seconds` of a round, `doubtful_share` of them, bytes needed on device and host.
    """

    grid: Grid
    option: np.ndarray
    setting: np.ndarray
    draft_tokens: np.ndarray
    p_min: np.ndarray
    tokens: np.ndarray
    seconds: np.ndarray
    doubtful_share: np.ndarray
    device_bytes: np.ndarray
    host_bytes: np.ndarray

    @property
    def candidates(self) -> int:
        """Rows times cells."""
        return self.seconds.size

    @property
    def tokens_per_second(self) -> np.ndarray:
        """(N, C, B) of each stream."""
        return self.tokens[:, None, None] / self.seconds

    @property
    def aggregate_tokens_per_second(self) -> np.ndarray:
        """(N, C, B) of all streams together."""
        return self.tokens_per_second * self.grid.streams

    @property
    def doubtful(self) -> np.ndarray:
        """Whether (N, C, B) more than DOUBTFUL_SHARE of the seconds or rounds is extrapolated."""
        return self.doubtful_share > DOUBTFUL_SHARE

    @property
    def missing_bytes(self) -> np.ndarray:
        """(N, C, B): what does not fit, on device and host together; 0 where all does."""
        device, host = self.device_bytes - self.grid.device_bytes, self.host_bytes - self.grid.host_bytes
        return np.maximum(device, 0.0) + np.maximum(host, 0.0)

    @property
    def winners(self) -> np.ndarray:
        """The best row (C, B) of each cell, -1 where nothing fits; a doubtful one only where none that fits is not."""
        score = self._score(self.tokens_per_second)
        return np.where(np.isneginf(score.max(axis=0)), -1, score.argmax(axis=0))

    def best(self, count: int = 1, aggregate: bool = False) -> tuple[Candidate, ...]:
        """Up to `count` different candidates that fit, over all cells: the trusted by falling speed, then the doubtful.

        By the speed of each stream, or of all together. Plain decoding of a target is one candidate for all drafts.
        """
        return self._first(
            self._score(self.aggregate_tokens_per_second if aggregate else self.tokens_per_second), count
        )

    def winner(self, context: float, streams: int) -> Candidate:
        """The best candidate of one cell of the grid. Raises ValueError for another cell, or where nothing fits."""
        cell = np.argwhere((self.grid.contexts[:, None] == context) & (self.grid.streams == streams))
        if not cell.size:
            raise ValueError(f"the grid has no cell of {context:g} tokens of context and {streams} streams")
        c, b = (int(i) for i in cell[0])
        if self.winners[c, b] < 0:
            least = self.missing_bytes[:, c, b].min() / MEBIBYTE
            raise ValueError(
                f"nothing fits at {context:g} tokens of context and {streams} streams: {least:.0f} MiB short"
            )
        return self._candidate(int(self.winners[c, b]), c, b)

    def worth_measuring(self, count: int = 1) -> tuple[Candidate, ...]:
        """Up to `count` candidates that fit and are forecast faster than the winner of their cell, by what they would
        gain. Only doubtful ones can be; each says what to measure."""
        speed = self.tokens_per_second
        gain = speed / np.take_along_axis(speed, np.maximum(self.winners, 0)[None], axis=0)
        hoped = (self.missing_bytes == 0) & (gain > 1)
        return self._first(np.where(hoped, gain, -np.inf), count)

    def compromise(self) -> Compromise:
        """The row whose worst regret over the cells is least, where what is not trusted or does not fit counts as 1.

        Cells in which nothing trusted fits are left out. Raises ValueError where that is so in all.
        """
        score = self._score(self.tokens_per_second)
        best = score.max(axis=0)
        if not (best > 0).any():
            raise ValueError("nothing that can be trusted fits in any cell: measure more, or free memory")
        regret = np.where(best > 0, 1 - np.maximum(score, 0.0) / np.where(best > 0, best, 1.0), 0.0)
        row = int(regret.max(axis=(1, 2)).argmin())
        return Compromise(self._pairing(row), float(self.p_min[row]), int(self.draft_tokens[row]), regret[row])

    def _score(self, speed: np.ndarray) -> np.ndarray:
        """`speed` (N, C, B) where trusted; below 0 but in its order where doubtful; -inf where it does not fit.

        An extrapolation that ends below 0 seconds comes last.
        """
        doubted = -1 / np.maximum(speed, 1e-300)
        return np.where(self.missing_bytes > 0, -np.inf, np.where(self.doubtful, doubted, speed))

    def _first(self, score: np.ndarray, count: int) -> tuple[Candidate, ...]:
        """Up to `count` different candidates by falling `score` (N, C, B) (used up), none at -inf."""
        found: dict[Candidate, None] = {}
        while len(found) < count:
            place = np.unravel_index(score.argmax(), score.shape)
            if np.isneginf(score[place]):
                break
            score[place] = -np.inf
            found[self._candidate(*(int(i) for i in place))] = None
        return tuple(found)

    def _pairing(self, row: int) -> Pairing:
        pairing = self.grid.options[self.option[row]].pairing
        return pairing if self.draft_tokens[row] else pairing.plain

    def _candidate(self, row: int, c: int, b: int) -> Candidate:
        speed, streams = float(self.tokens[row] / self.seconds[row, c, b]), int(self.grid.streams[b])
        return Candidate(
            pairing=self._pairing(row),
            p_min=float(self.p_min[row]) if self.draft_tokens[row] else 0.0,
            draft_tokens=int(self.draft_tokens[row]),
            context=float(self.grid.contexts[c]),
            streams=streams,
            tokens_per_second=speed,
            aggregate_tokens_per_second=speed * streams,
            tokens_per_round=float(self.tokens[row]),
            device_bytes=float(self.device_bytes[row, c, b]),
            host_bytes=float(self.host_bytes[row, c, b]),
            missing_bytes=float(self.missing_bytes[row, c, b]),
            doubtful_share=float(self.doubtful_share[row, c, b]),
            remedy=self._remedy(row, c, b) if self.doubtful_share[row, c, b] else "",
        )

    def _remedy(self, row: int, c: int, b: int) -> str:
        """What to measure for the extrapolated rounds of a row in a cell."""
        option = self.grid.options[self.option[row]]
        laws, happens = option.laws, option.laws.share[self.setting[row]] > 0
        context, streams = self.grid.contexts[c], int(self.grid.streams[b])
        return option.cost.lookup(
            Rounds.of(laws.drafted[happens], context, laws.passes[happens], streams=streams)
        ).remedy

"""Cost: seconds of a round from its recipe of named terms.

    draft           passes x step of the draft                        draft.py says what bounds it
    draft_catch_up  one pass of the draft over two tokens: it reads the last two again, whatever was accepted
    draft_further   (passes - 1) x step of the draft
    verification    one pass of the target over drafted + 1 tokens    steps.py
    draft_batch     the draft's own pass over the verified tokens
    rollback        undoing recurrent state
    overhead        what the passes do not explain
    round           all of these measured whole, where they cannot be clocked apart

Every array of seconds may carry a leading axis of replicates; results carry it too.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from .curve import Curve, CurveLookup
from .recipe import COMPOSITE
from .steps import Lookup, StepTable

VAGUE = 0.15
"""A round whose bounds between measured lengths are further apart than this share of it is not to be trusted."""


@dataclass(frozen=True)
class Rounds:
    """K rounds to be priced: arrays (K,), those of `streams` requests that run side by side.

    `passes` are draft passes paid: as many as drafted tokens, more where drafting stopped early, none in a plain step.
    `accepted` matters to rollback alone.
    """

    drafted: np.ndarray
    context: np.ndarray
    passes: np.ndarray
    accepted: np.ndarray
    streams: int = 1

    @classmethod
    def of(
        cls,
        drafted: np.ndarray | int,
        context: np.ndarray | float,
        passes: np.ndarray | None = None,
        accepted: np.ndarray | None = None,
        streams: int = 1,
    ) -> "Rounds":
        """The arrays broadcast together; `passes` as drafted and `accepted` all of it where not given."""
        drafted = np.atleast_1d(np.asarray(drafted))
        passes = drafted if passes is None else np.atleast_1d(passes)
        accepted = drafted if accepted is None else np.atleast_1d(accepted)
        context = np.atleast_1d(np.asarray(context, float))
        return cls(*np.broadcast_arrays(drafted, context, passes, accepted), streams=streams)

    @property
    def paid(self) -> np.ndarray:
        """Whether (K,) the drafter was at work: anything but a plain step."""
        return (self.passes > 0) | (self.drafted > 0)


@dataclass(frozen=True)
class Overhead:
    """Seconds of a round that its passes do not explain: constant + per_token x drafted; (...) each."""

    constant: np.ndarray
    per_token: np.ndarray

    def at(self, drafted: np.ndarray, paid: np.ndarray | None = None) -> np.ndarray:
        """Seconds (..., K); none in plain steps: where nothing is drafted, or as `paid` (K,) says."""
        line = np.asarray(self.constant)[..., None] + np.asarray(self.per_token)[..., None] * drafted
        return np.where(drafted > 0 if paid is None else paid, line, 0.0)


LEAST_SHARE = 0.5
"""Of the seconds of a round's passes: an overhead may be negative (passes that overlap), and one drawn from noisy rounds so
negative that the round would end before it began."""
NO_OVERHEAD = Overhead(np.zeros(()), np.zeros(()))


@dataclass(frozen=True)
class Rollback:
    """Undoing the recurrent state of a hybrid target after a rejection: `state_bytes` moved at `bytes_per_second`.

    With copies (llama.cpp) a round writes one state for each verified token. Where the engine `replays`, it keeps a
    snapshot of each round; a rejection restores it and pays one more target pass over what was accepted and the bonus
    token. Snapshots on the host are the same at the link's bandwidth (600 of 825 ms a round: llama.cpp PR 28118).
    """

    state_bytes: float
    bytes_per_second: float
    replays: bool = False

    def lookup(self, rounds: Rounds, target: StepTable) -> Lookup:
        """Seconds (..., K) of it, nothing in plain steps."""
        move = self.state_bytes / self.bytes_per_second * rounds.streams
        if not self.replays:
            return Lookup(np.where(rounds.paid, move * (rounds.drafted + 1), 0.0), np.zeros(rounds.drafted.shape, bool))
        again = target.lookup(rounds.accepted + 1, rounds.context, rounds.streams)
        rejected = rounds.accepted < rounds.drafted
        seconds = np.where(rejected, again.seconds + move, 0.0) + np.where(rounds.paid, move, 0.0)
        return Lookup(seconds, again.doubtful & rejected, again.remedy)


@dataclass(frozen=True)
class RoundTerms:
    """A round by term: `seconds[i]` (..., K) belongs to `names[i]`."""

    names: tuple[str, ...]
    seconds: tuple[np.ndarray, ...]
    doubtful: np.ndarray
    remedy: str = ""

    def total(self) -> np.ndarray:
        """Seconds (..., K) of the round: the sum of its terms, negative ones never leaving less than LEAST_SHARE of the others."""
        stacked = np.stack(np.broadcast_arrays(*self.seconds))
        return np.maximum(stacked.sum(axis=0), LEAST_SHARE * np.maximum(stacked, 0.0).sum(axis=0))

    def dominant(self) -> np.ndarray:
        """Names (..., K) of the terms that take longest."""
        return np.array(self.names)[np.argmax(np.stack(np.broadcast_arrays(*self.seconds)), axis=0)]


@dataclass(frozen=True)
class RoundOfParts:
    """Round cost from step times: the recipe's terms, times `correction` (..., G) for 1..G drafted tokens.

    The correction is measured over modelled round time, 1 where nothing was measured; past G the last one holds.
    """

    recipe: tuple[str, ...]
    target: StepTable
    draft: StepTable | None = None
    overhead: Overhead = NO_OVERHEAD
    correction: np.ndarray | None = None
    rollback: Rollback | None = None

    @property
    def minds_acceptance(self) -> bool:
        """Whether a round's cost depends on how many of its tokens are accepted."""
        return self.rollback is not None and self.rollback.replays

    def terms(self, rounds: Rounds) -> RoundTerms:
        """The rounds by term, before the correction. Raises ValueError for a recipe that needs a draft's step times or a
        rollback where there are none."""
        found = [self._term(name, rounds) for name in self.recipe]
        doubtful = np.any([term.doubtful for term in found], axis=0)
        seconds = tuple(term.seconds for term in found)
        return RoundTerms(self.recipe, seconds, doubtful, _joined(term.remedy for term in found))

    def lookup(self, rounds: Rounds) -> Lookup:
        """Seconds (..., K) of the rounds."""
        return _corrected(self.terms(rounds), rounds.drafted, self.correction)

    def _term(self, name: str, rounds: Rounds) -> Lookup:
        """One named term (see the module's head): seconds (..., K)."""
        if name == "verification":
            return self.target.lookup(rounds.drafted + 1, rounds.context, rounds.streams)
        if name == "overhead":
            return Lookup(self.overhead.at(rounds.drafted, rounds.paid), np.zeros(rounds.drafted.shape, bool))
        if name == "rollback":
            if self.rollback is None:
                raise ValueError("the term rollback needs the bytes of the recurrent state: give a Rollback")
            return self.rollback.lookup(rounds, self.target)
        if name not in DRAFTING:
            raise ValueError(f"no term is called {name}: see model/recipe.py")
        if self.draft is None:
            raise ValueError(f"the term {name} needs step times of the draft: measure them")
        return DRAFTING[name](self.draft, rounds)


def _passes(draft: StepTable, rounds: Rounds) -> Lookup:
    """The drafting itself: passes x one step, at the mean context of the passes."""
    step = draft.lookup(
        np.ones_like(rounds.drafted), rounds.context + np.maximum(rounds.passes - 1, 0) / 2, rounds.streams
    )
    return Lookup(step.seconds * rounds.passes, step.doubtful & rounds.paid, step.remedy)


def _re_decode(draft: StepTable, rounds: Rounds) -> Lookup:
    """llama.cpp decodes the verified tokens once more in the draft's context: one pass over drafted + 1 tokens."""
    batch = draft.lookup(np.where(rounds.paid, rounds.drafted + 1, 1), rounds.context, rounds.streams)
    return Lookup(np.where(rounds.paid, batch.seconds, 0.0), batch.doubtful & rounds.paid, batch.remedy)


def _catch_up(draft: StepTable, rounds: Rounds) -> Lookup:
    """The first pass: over the last two tokens, the older of which is in the cache and is read again."""
    at_work = rounds.passes > 0
    first = draft.lookup(np.where(at_work, 2, 1), np.maximum(rounds.context - 1, 0), rounds.streams)
    return Lookup(np.where(at_work, first.seconds, 0.0), first.doubtful & at_work, first.remedy)


def _further(draft: StepTable, rounds: Rounds) -> Lookup:
    """The passes after the first: one step each, at their mean context; the k-th is behind context + k tokens."""
    more = np.maximum(rounds.passes - 1, 0)
    step = draft.lookup(np.ones_like(rounds.drafted), rounds.context + (more + 1) / 2, rounds.streams)
    return Lookup(step.seconds * more, step.doubtful & (more > 0), step.remedy)


DRAFTING: dict[str, Callable[[StepTable, Rounds], Lookup]] = {
    "draft": _passes,
    "draft_catch_up": _catch_up,
    "draft_further": _further,
    "draft_batch": _re_decode,
}
"""The terms that a draft's step table prices."""


def _joined(remedies: Iterable[str]) -> str:
    """Each remedy once."""
    return "; ".join(filter(None, dict.fromkeys(remedies)))


def _corrected(terms: RoundTerms, drafted: np.ndarray, correction: np.ndarray | None) -> Lookup:
    """The round time x `correction` (..., G) of its drafted tokens; plain steps as they are."""
    remedy = terms.remedy if terms.doubtful.any() else ""
    if correction is None:
        return Lookup(terms.total(), terms.doubtful, remedy)
    index = np.clip(drafted - 1, 0, correction.shape[-1] - 1)
    factor = np.where(drafted > 0, correction[..., index], 1.0)
    return Lookup(terms.total() * factor, terms.doubtful, remedy)


@dataclass(frozen=True)
class WholeRounds:
    """Round cost measured whole: `ratio` (..., C, L) of a round to the plain step behind the same context.

    `lengths` (L,) and `contexts` (C,) rise. Between lengths whose verification widths (length + 1) share a kernel segment
    a monotone cubic (curve.py); the ratio is linear between contexts and level beyond them. The plain step of `target`
    carries the context: on an RTX 3090 a round of 2 draft tokens took 1.49 plain steps at 8K and 1.48 at 96K of context
    (tests/data). Rounds that stop early or run side by side are another measurement: doubtful. `correction` (..., G) as in
    RoundOfParts.
    """

    target: StepTable
    lengths: np.ndarray
    contexts: np.ndarray
    ratio: np.ndarray
    correction: np.ndarray | None = None
    recipe: tuple[str, ...] = COMPOSITE
    minds_acceptance = False

    def terms(self, rounds: Rounds) -> RoundTerms:
        """The rounds as their single term. A band wider than 15 % of the round (curve.py) is doubtful."""
        plain = self.target.lookup(np.ones_like(rounds.drafted), rounds.context, rounds.streams)
        found = self.curve.at(rounds.drafted)
        other = (rounds.passes != rounds.drafted) | ((rounds.streams > 1) & rounds.paid)
        vague = vague_lengths(found) & ~found.doubtful
        asked = ["measure rounds of this drafter as they will be run"] if other.any() else []
        asked += [f"measure rounds of {n} draft tokens" for n in np.unique(rounds.drafted[vague])]
        doubtful = found.doubtful | plain.doubtful | other | vague
        seconds = plain.seconds * self._along_context(found.value, rounds.context)
        return RoundTerms(self.recipe, (seconds,), doubtful, _joined([found.remedy, plain.remedy, *asked]))

    def lookup(self, rounds: Rounds) -> Lookup:
        """Seconds (..., K) of the rounds."""
        return _corrected(self.terms(rounds), rounds.drafted, self.correction)

    @property
    def curve(self) -> Curve:
        """Ratio (..., C) to the plain step over draft length, from 1 at length 0."""
        switches = tuple(s - 1 for s in self.target.switches)
        return Curve(self.lengths, self.ratio, switches, origin=np.ones(self.ratio.shape[:-1]))

    def _along_context(self, ratio: np.ndarray, context: np.ndarray) -> np.ndarray:
        """`ratio` (..., C, K) at `context` (K,): (..., K)."""
        if self.contexts.size == 1:
            return ratio[..., 0, :]
        left = np.clip(np.searchsorted(self.contexts, context) - 1, 0, self.contexts.size - 2)
        start, end = self.contexts[left], self.contexts[left + 1]
        share = np.clip((context - start) / (end - start), 0, 1)
        column = np.arange(context.size)
        return ratio[..., left, column] * (1 - share) + ratio[..., left + 1, column] * share


def vague_lengths(found: CurveLookup) -> np.ndarray:
    """Whether (K,) the bounds of a curve are further apart than VAGUE, by the point estimate and the worst context."""
    wide = (found.high - found.low) / found.value
    return wide.reshape(-1, *wide.shape[-2:])[0].max(axis=0) > VAGUE


RoundCost = RoundOfParts | WholeRounds

"""Law table: which kinds of round the settings of one drafter make, in the form that a search prices."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .acceptance import RoundLaw, plain_law


@dataclass(frozen=True)
class LawTable:
    """Rounds of one drafter under S settings, by K kinds of round.

    A setting is `draft_tokens` (S,), 0 for plain decoding, and `p_min` (S,). A kind is `drafted` (K,) tokens after
    `passes` (K,) draft passes. `share` (S, K): how many of a setting's rounds are of a kind; `tokens` (S,): emitted in
    a round.
    """

    draft_tokens: np.ndarray
    p_min: np.ndarray
    drafted: np.ndarray
    passes: np.ndarray
    share: np.ndarray
    tokens: np.ndarray

    @classmethod
    def of(cls, draft_tokens: Sequence[int], p_min: Sequence[float], laws: Sequence[RoundLaw]) -> "LawTable":
        """From one law for each setting (a workload's are pooled by acceptance.merged); plain decoding is added.

        A mean number of passes is split between the whole numbers next to it: exact where passes of one (drafted,
        accepted) differ by one at most, as with early stop by p_min alone. Raises ValueError where the counts differ
        or a law has no rounds.
        """
        if not len(draft_tokens) == len(p_min) == len(laws):
            raise ValueError(
                f"{len(draft_tokens)} draft tokens, {len(p_min)} p_min and {len(laws)} laws must be as many"
            )
        if 0 not in draft_tokens:
            draft_tokens, p_min, laws = [0, *draft_tokens], [0.0, *p_min], [plain_law(1), *laws]
        if not all(law.rounds for law in laws):
            raise ValueError("a law without rounds has no speed: leave replies of one token out")
        drafted, passes, share = _shares(laws)
        tokens = np.array([law.tokens / law.rounds for law in laws])
        return cls(np.asarray(draft_tokens, int), np.asarray(p_min, float), drafted, passes, share, tokens)

    @classmethod
    def of_survival(cls, survival: np.ndarray, draft_tokens: Sequence[int]) -> "LawTable":
        """Full drafts away from a reply's end, from `survival` (J,) = S_1..S_J: those of forecast.forecast_lengths.

        Raises ValueError where the survival ends before the longest of `draft_tokens`.
        """
        longest = max(draft_tokens, default=0)
        if len(survival) < longest:
            raise ValueError(f"survival is known for {len(survival)} tokens, {longest} are asked for")
        laws = [_full_drafts(n, float(np.sum(survival[:n]))) for n in draft_tokens]
        return cls.of(draft_tokens, [0.0] * len(laws), laws)


def _shares(laws: Sequence[RoundLaw]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Kinds of round of all laws, drafted (K,) and passes (K,), and the share (S, K) of each law's rounds."""
    owner = np.repeat(np.arange(len(laws)), [law.weight.size for law in laws])
    drafted = np.concatenate([law.drafted for law in laws])
    passes = np.concatenate([law.passes for law in laws]).round(9)
    part = np.concatenate([law.weight / law.rounds for law in laws])
    above = passes % 1
    whole = np.stack([np.tile(drafted, 2), np.concatenate([np.floor(passes), np.ceil(passes)])]).astype(int)
    kinds, index = np.unique(whole, axis=1, return_inverse=True)
    share = np.zeros((len(laws), kinds.shape[1]))
    np.add.at(share, (np.tile(owner, 2), index.ravel()), np.concatenate([part * (1 - above), part * above]))
    return kinds[0], kinds[1], share


def _full_drafts(draft_tokens: int, accepted: float) -> RoundLaw:
    """The law of one round that drafts `draft_tokens` and has `accepted` of them accepted in the mean."""
    drafted, one = np.array([draft_tokens]), np.ones(1)
    return RoundLaw(drafted, np.array([accepted]), one, one, drafted.astype(float))

"""Early stop: drafting that ends where the draft grows unsure, and what it pays for that.

A draft ends at the first token whose confidence (the draft's top probability) is below p_min. Its passes depend on what
follows a wrong token, too: a draft does not know that it left the text. So the round law needs, besides the confidences
on the text, either whole drafts from every state or a law of confidence off the path.
"""

from dataclasses import dataclass

import numpy as np

from .acceptance import RoundLaw, merged, start_chances


@dataclass(frozen=True)
class EarlyStop:
    """When an engine ends a draft before its length.

    A token of confidence below `p_min` ends the draft. llama.cpp tests before it appends: the failing token is not
    verified, though its pass is paid. Older builds append first (`verifies_failing_token`). A draft shorter than
    `n_min` is discarded after it was paid for; an engine with fewer than n_min tokens left to draft does not start one.
    Raises ValueError for p_min outside [0, 1] or a negative n_min.
    """

    p_min: float
    n_min: int = 0
    verifies_failing_token: bool = False

    def __post_init__(self):
        if not 0 <= self.p_min <= 1 or self.n_min < 0:
            raise ValueError(f"p_min must lie in [0, 1] and n_min must not be negative, not {self.p_min}, {self.n_min}")


def replay_stopped(
    match: np.ndarray, confidence: np.ndarray, off_path: np.ndarray, draft_tokens: int, stop: EarlyStop
) -> RoundLaw:
    """Law of a draft model with early stop over a reply, from one teacher-forced draft pass over it.

    `match` (N,): whether, or with what chance, the draft's token is right, as for acceptance.replay_matches;
    `confidence` (N,) of that token. `off_path` (K,): chance that the k-th token after a first wrong one is confident
    once those between are (off_path_from_rounds); the last one holds beyond K. Exact on the text (derived: the
    recursion of acceptance.replay_matches over drafted and accepted); off it a mean over wrong tokens, which some
    settings meet more often than others do. With all confidences from p_min up it is replay_matches. Raises ValueError for values outside [0, 1]
    (impute unknown ones first) or an `off_path` that is missing.
    """
    right, sure = _checked(match), _checked(confidence)
    if right.ndim != 1 or right.shape != sure.shape:
        raise ValueError(f"match {right.shape} and confidence {sure.shape} must be one value a state")
    hazards = _checked(off_path)
    if not hazards.size and ((right < 1) & (sure >= stop.p_min)).any():
        raise ValueError("a wrong token passes p_min: off_path must tell what follows it (off_path_from_rounds)")
    limits = _limits(right.size, draft_tokens, stop)
    return _law(_ahead(right, draft_tokens), _ahead(sure >= stop.p_min, draft_tokens), limits, stop, hazards)


def replay_stopped_drafts(match: np.ndarray, confidence: np.ndarray, draft_tokens: int, stop: EarlyStop) -> RoundLaw:
    """Exact law with early stop from whole drafts: `match`, `confidence` (N, G), G >= draft_tokens, by state and depth.

    For heads, whose proposals depend on the depth, and for any drafter run to its full length from every state. Row t:
    a draft begun in state t + 1, its confidences behind a wrong token those that it really had; `match` there does
    not matter. Cells past the end of the reply are not read. Raises ValueError for values outside [0, 1] or too few
    columns.
    """
    right, sure = np.asarray(match, float), np.asarray(confidence, float)
    if right.ndim != 2 or right.shape != sure.shape or right.shape[1] < draft_tokens:
        raise ValueError(
            f"match {right.shape} and confidence {sure.shape} must be states x {draft_tokens} or more depths"
        )
    limits = _limits(right.shape[0], draft_tokens, stop)
    read = np.arange(draft_tokens) < limits[:, None]
    right, sure = (_checked(np.where(read, cells[:, :draft_tokens], 0.0)) for cells in (right, sure))
    return _law(right, sure >= stop.p_min, limits, stop, None)


def off_path_from_rounds(confidence: np.ndarray, accepted: np.ndarray, p_min: float) -> np.ndarray:
    """Hazard (K,) of going on behind a wrong token, from rounds (R,) of drafts that no p_min above this one had cut.

    `confidence` (R, G) of the drafted tokens, a failing one included, NaN behind the last; `accepted` (R,). Entry k - 1:
    share of rounds whose k-th token after the first wrong one has a confidence of p_min or more, among those in
    which the wrong token and all between had (product-limit, Kaplan and Meier 1958: drafts that end there are
    censored). Ends where no round reached. Raises ValueError where the shapes differ.
    """
    sure, first_wrong = np.asarray(confidence, float), np.asarray(accepted, int)
    if sure.ndim != 2 or first_wrong.shape != sure.shape[:1]:
        raise ValueError(f"confidence {sure.shape} must have a row for each of accepted {first_wrong.shape}")
    padded = np.concatenate([sure, np.full(sure.shape, np.nan), np.full((sure.shape[0], 1), np.nan)], axis=1)
    tail = np.take_along_axis(padded, first_wrong[:, None] + np.arange(sure.shape[1]), axis=1)
    kept = tail >= p_min
    at_risk = np.logical_and.accumulate(kept, axis=1)[:, :-1] & ~np.isnan(tail[:, 1:])
    seen = at_risk.sum(axis=0)
    reached = int(np.argmin(np.append(seen, 0) > 0))
    return (at_risk & kept[:, 1:]).sum(axis=0)[:reached] / seen[:reached]


def confidence_to_continue(chance_so_far: float, seconds_of_one_more: float, tokens_per_second: float) -> float:
    """The confidence from which one more draft token pays: seconds x speed / chance that all before it are accepted.

    `seconds_of_one_more`: what the token still costs, draft pass (unless already paid) and wider verification;
    `tokens_per_second`: the speed to be had, best that of the best setting. Above 1 no token pays. Derived: the best ratio of tokens to seconds adds what gains more than its seconds at that ratio would; it
    looks one token ahead and takes confidence for the chance of acceptance (calibrated). Raises ValueError for a chance
    outside (0, 1] or negative seconds or speed.
    """
    if not 0 < chance_so_far <= 1 or seconds_of_one_more < 0 or tokens_per_second < 0:
        raise ValueError("the chance must lie in (0, 1], seconds and speed must not be negative")
    return seconds_of_one_more * tokens_per_second / chance_so_far


def _law(
    right: np.ndarray, sure: np.ndarray, limits: np.ndarray, stop: EarlyStop, off_path: np.ndarray | None
) -> RoundLaw:
    """The law from `right`, `sure` (N, g) by state and depth; without `off_path`, `sure` holds behind a wrong token."""
    states, length = right.shape
    within = np.arange(length) < limits[:, None]
    asked = np.where(within, _let_in(sure, stop), 0.0)
    after = [asked[:, a + 1 :] for a in range(length)]
    if off_path is not None:
        known = int(stop.verifies_failing_token)
        after = [_off_path(asked[:, a + 1 :], within[:, a + 1 :], off_path, known) for a in range(length)]
    chances = _rounds_by_state(right, asked, after)
    drafted = np.arange(length + 1)
    kept = drafted >= stop.n_min
    moves = chances[:, kept].sum(axis=1)
    moves[:, 0] += chances[:, ~kept].sum(axis=(1, 2))
    reach = start_chances(moves)
    in_vain = (drafted < limits[:, None]) & (not stop.verifies_failing_token)
    at, paid = np.arange(1, states + 1), drafted + in_vain
    parts = [_summed(reach * one, at, paid, chances) for one in (limits > 0, limits == 0)]
    weight, position, passes = (np.concatenate([part[i] for part in parts]).ravel() for i in range(3))
    emits = np.broadcast_to(kept[:, None], (length + 1, length + 1))
    proposed, taken = (np.tile(np.where(emits, count, 0).ravel(), 2) for count in (drafted[:, None], drafted))
    return merged(proposed, taken, weight, position, passes)


def _summed(reach: np.ndarray, at: np.ndarray, paid: np.ndarray, chances: np.ndarray) -> tuple[np.ndarray, ...]:
    """Expected rounds, their mean place `at` (N,) and mean passes `paid` (N, g + 1), by drafted and accepted (g + 1, g + 1),
    of states reached with chance `reach` (N,)."""
    weight = np.einsum("s,sda->da", reach, chances)
    scale = 1 / np.where(weight > 0, weight, 1.0)
    position = np.einsum("s,sda->da", reach * at, chances) * scale
    return weight, position, np.einsum("sd,sda->da", reach[:, None] * paid, chances) * scale


def _rounds_by_state(right: np.ndarray, asked: np.ndarray, after: list[np.ndarray]) -> np.ndarray:
    """Chance (N, g + 1, g + 1) that a round from a state drafts d and accepts a tokens.

    `asked` (N, g): chance that a token is appended once those before it are and are right; `after[a]` (N, g - a - 1):
    the same for the tokens after a wrong one that follows a right ones.
    """
    states, length = right.shape
    on_path = np.concatenate([np.ones((states, 1)), np.cumprod(right * asked, axis=1)], axis=1)
    wrong = on_path[:, :-1] * asked * (1 - right)
    chances = np.zeros((states, length + 1, length + 1))
    whole = np.arange(length + 1)
    chances[:, whole, whole] = on_path * (1 - np.pad(asked, ((0, 0), (0, 1))))
    for a in range(length):
        reached = np.cumprod(np.concatenate([wrong[:, a : a + 1], after[a]], axis=1), axis=1)
        chances[:, a + 1 :, a] = reached - np.pad(reached[:, 1:], ((0, 0), (0, 1)))
    return chances


def _let_in(sure: np.ndarray, stop: EarlyStop) -> np.ndarray:
    """Whether (N, g) a token is appended once those before it are. Appending first, the confidence of the token before
    lets it in, and the first comes in always."""
    if not stop.verifies_failing_token:
        return sure.astype(float)
    return np.concatenate([np.ones((sure.shape[0], 1)), sure], axis=1)[:, : sure.shape[1]]


def _off_path(asked: np.ndarray, within: np.ndarray, off_path: np.ndarray, known: int) -> np.ndarray:
    """Chance (N, J) that each token after a wrong one is appended: `asked` for the first `known`, then hazards (K,)."""
    behind = np.arange(asked.shape[1]) - known
    hazard = off_path[np.clip(behind, 0, off_path.size - 1)] if off_path.size else np.zeros(behind.size)
    return np.where(behind < 0, asked, hazard * within)


def _limits(states: int, draft_tokens: int, stop: EarlyStop) -> np.ndarray:
    """The longest draft (N,) of each state: min(g, remaining - 1), none where that is less than n_min."""
    longest = np.minimum(draft_tokens, np.arange(states)[::-1])
    return np.where(longest < stop.n_min, 0, longest)


def _ahead(values: np.ndarray, draft_tokens: int) -> np.ndarray:
    """(N, g): what `values` (N,) holds for the tokens drafted from each state; 0 past the end."""
    padded = np.concatenate([np.asarray(values, float), np.zeros(draft_tokens)])
    if not draft_tokens:
        return np.zeros((len(values), 0))
    return np.lib.stride_tricks.sliding_window_view(padded, draft_tokens)[: len(values)]


def _checked(values: np.ndarray) -> np.ndarray:
    """As floats; raises ValueError outside [0, 1]."""
    found = np.asarray(values, float)
    if found.size and not (found.min() >= 0 and found.max() <= 1):
        raise ValueError("match, confidence and off_path must lie in [0, 1]: impute unknown positions first")
    return found

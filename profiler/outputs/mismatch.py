"""What unequal sampling costs here: tokens a round with equal and with unequal settings, paired by prompt.

A drafted token is accepted where it equals what the target draws, or by the ratio of the two probabilities: in both cases
acceptance belongs to the temperature and to how the draft samples, not to the pair alone (Leviathan et al.,
arXiv:2211.17192, section 2.3).
"""

from collections.abc import Iterable, Sequence
from math import exp, log

import msgspec
import numpy as np
from msgspec.structs import replace
from scipy.stats import t as student

from ..engines.base import Engine, Unsupported
from ..records import Record, Sampling, Setting
from ..workloads import PromptText

LEVEL = 0.95


class Change(Record, kw_only=True):
    """A mean over prompts with its Student interval; no bounds from a single prompt."""

    value: float
    low: float | None = None
    high: float | None = None
    level: float = LEVEL


class PromptAcceptance(Record, kw_only=True):
    """Counts of one prompt, all its seeds together, with equal settings and with unequal ones."""

    prompt: str
    equal_drafted: int
    equal_accepted: int
    equal_rounds: int
    unequal_drafted: int
    unequal_accepted: int
    unequal_rounds: int

    @property
    def equal_tokens_per_round(self) -> float:
        return 1 + self.equal_accepted / self.equal_rounds

    @property
    def unequal_tokens_per_round(self) -> float:
        return 1 + self.unequal_accepted / self.unequal_rounds


class MismatchCost(Record, kw_only=True):
    """Acceptance of a pair under two samplings. Rounds count those in which nothing was drafted too."""

    setting: Setting
    equal: Sampling
    unequal: Sampling
    differs: tuple[str, ...]
    """What is unequal: "temperature 0 -> 0.7"."""
    prompts: tuple[PromptAcceptance, ...] = ()
    seeds: int = 0
    """Replies to each prompt under a sampling that draws."""
    equal_acceptance: float | None = None
    """Accepted over drafted tokens, all prompts together."""
    unequal_acceptance: float | None = None
    equal_tokens_per_round: float | None = None
    unequal_tokens_per_round: float | None = None
    acceptance_change: Change | None = None
    """Unequal less equal."""
    tokens_per_round_ratio: Change | None = None
    """Unequal over equal: below 1 the mismatch costs that share of each round's tokens."""
    unsupported: str = ""


def mismatch_cost(
    engine: Engine, setting: Setting, prompts: Sequence[PromptText], equal: Sampling, unequal: Sampling, seeds: int = 3
) -> MismatchCost:
    """Run each prompt under both samplings, with `seeds` seeds where one draws: at temperature 0 all are alike.

    Only counts are taken: nothing is timed. What the engine cannot do is said in `unsupported`.
    """
    said = MismatchCost(setting=setting, equal=equal, unequal=unequal, differs=differences(equal, unequal))
    count = seeds if max(equal.temperature, unequal.temperature) > 0 else 1
    try:
        found = tuple(_both(engine, setting, prompt, equal, unequal, seeds) for prompt in prompts)
    except Unsupported as reason:
        return replace(said, unsupported=str(reason))
    drafting = [one for one in found if one.equal_drafted and one.unequal_drafted]
    if not drafting:
        return replace(said, prompts=found, seeds=count, unsupported="nothing was drafted: there is no acceptance")
    return replace(
        said,
        prompts=found,
        seeds=count,
        equal_acceptance=_share(found, "equal_accepted", "equal_drafted"),
        unequal_acceptance=_share(found, "unequal_accepted", "unequal_drafted"),
        equal_tokens_per_round=1 + _share(found, "equal_accepted", "equal_rounds"),
        unequal_tokens_per_round=1 + _share(found, "unequal_accepted", "unequal_rounds"),
        acceptance_change=_mean(
            [one.unequal_accepted / one.unequal_drafted - one.equal_accepted / one.equal_drafted for one in drafting]
        ),
        tokens_per_round_ratio=_exponential(
            _mean([log(one.unequal_tokens_per_round / one.equal_tokens_per_round) for one in found])
        ),
    )


def differences(equal: Sampling, unequal: Sampling) -> tuple[str, ...]:
    """Fields in which two samplings differ, with both values."""
    pairs = zip(msgspec.structs.asdict(equal).items(), msgspec.structs.asdict(unequal).values(), strict=True)
    return tuple(f"{name} {_plain(one)} -> {_plain(two)}" for (name, one), two in pairs if one != two)


def _both(
    engine: Engine, setting: Setting, prompt: PromptText, equal: Sampling, unequal: Sampling, seeds: int
) -> PromptAcceptance:
    one, two = (_counts(engine, setting, prompt, sampling, seeds) for sampling in (equal, unequal))
    return PromptAcceptance(
        prompt=prompt.prompt.id,
        equal_drafted=one[0],
        equal_accepted=one[1],
        equal_rounds=one[2],
        unequal_drafted=two[0],
        unequal_accepted=two[1],
        unequal_rounds=two[2],
    )


def _counts(
    engine: Engine, setting: Setting, prompt: PromptText, sampling: Sampling, seeds: int
) -> tuple[int, int, int]:
    """Drafted, accepted, rounds. A reply's first token is prefill's; a round emits one token more than it accepts."""
    drafted = accepted = rounds = 0
    for seed in range(sampling.seed, sampling.seed + (seeds if sampling.temperature > 0 else 1)):
        reply = engine.reply(setting, prompt, replace(sampling, seed=seed))
        drafted, accepted = drafted + reply.drafted, accepted + reply.accepted
        rounds += len(reply.tokens) - 1 - reply.accepted
    return drafted, accepted, max(rounds, 1)


def _share(found: Iterable[PromptAcceptance], over: str, under: str) -> float:
    rows = list(found)
    return sum(getattr(one, over) for one in rows) / max(sum(getattr(one, under) for one in rows), 1)


def _mean(values: Sequence[float]) -> Change:
    mean = float(np.mean(values))
    if len(values) < 2:
        return Change(value=mean)
    half = float(student.ppf((1 + LEVEL) / 2, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))
    return Change(value=mean, low=mean - half, high=mean + half)


def _exponential(change: Change) -> Change:
    low, high = (None if bound is None else exp(bound) for bound in (change.low, change.high))
    return Change(value=exp(change.value), low=low, high=high)


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)

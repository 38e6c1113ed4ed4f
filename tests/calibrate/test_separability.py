"""Is "about N more rounds would tell them apart" true, and is a chance of being the best what it says?

Arms are two draft lengths on replies whose agreement varies from prompt to prompt; costs have noise of their own. A trial
is a fresh set of prompts and a fresh measurement of the costs, judged by the same paired interval as a recommendation.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from specgauge.calibrate.intervals import prompt_weights
from specgauge.model.acceptance import replay_matches
from specgauge.model.decision import (
    RatioInterval,
    probability_best,
    ratio_interval,
    repeats_to_separate,
    rounds_to_separate,
)

LENGTHS = (2, 4)
REPLY = 96
POOL = 3000
PILOT = 16
"""Prompts measured so far."""
REPLICATES = 200
TRIALS = 300
LEVEL = 0.95


@cache
def pool() -> np.ndarray:
    """Rounds (POOL, 2) of replies of REPLY tokens at both draft lengths; agreement by reply from Beta(4, 2)."""
    rng = np.random.default_rng(11)
    rates = rng.beta(4, 2, POOL)
    matches = [(rng.random(REPLY) < rate).astype(float) for rate in rates]
    return np.array([[replay_matches(match, length).rounds for length in LENGTHS] for match in matches])


@dataclass(frozen=True)
class Case:
    """True ratio of the two arms' speeds, and log sd of the noise of the ratio of their round times."""

    ratio: float
    cost_log_sd: float

    def speeds(self, prompts: int, rng: np.random.Generator) -> np.ndarray:
        """Speeds (2, 1 + REPLICATES) of the arms after a measurement of `prompts` prompts."""
        rounds = pool()[rng.integers(POOL, size=prompts)]
        cost = np.array([1.0, pool()[:, 0].sum() / pool()[:, 1].sum() / self.ratio])
        off = np.exp(self.cost_log_sd / 2**0.5 * rng.standard_normal((2, 1)))
        drawn = np.exp(self.cost_log_sd / 2**0.5 * rng.standard_normal((2, REPLICATES)))
        weights = prompt_weights(prompts, rng, REPLICATES)
        noise = off * np.concatenate([np.ones((2, 1)), drawn], axis=1)
        return REPLY * weights.sum(axis=1) / ((weights @ rounds).T * cost[:, None] * noise)

    def ratio_after(self, prompts: int, rng: np.random.Generator) -> RatioInterval:
        slow, fast = self.speeds(prompts, rng)
        return ratio_interval(fast, slow, LEVEL)

    def told_apart(self, prompts: float, seed: int) -> float:
        """Share of trials whose interval leaves 1 out."""
        rng = np.random.default_rng(seed)
        found = [self.ratio_after(round(prompts), rng) for _ in range(TRIALS)]
        return float(np.mean([one.low > 1 or one.high < 1 for one in found]))

    def more_prompts(self, cost_log_sd: float | None = None) -> float:
        """What the rule says at the true ratio, from the noise of pilots: the median over pilots."""
        rng = np.random.default_rng(21)
        known = self.cost_log_sd if cost_log_sd is None else cost_log_sd
        pilots = [self.ratio_after(PILOT, rng) for _ in range(60)]
        told = [RatioInterval(self.ratio, p.low, p.high, p.log_sd) for p in pilots]
        return float(np.median([rounds_to_separate(one, PILOT, known) for one in told]))


ACCEPTANCE_ONLY, WITH_COST, MOSTLY_COST = (Case(1.025, cost_log_sd) for cost_log_sd in (0.0, 0.007, 0.0095))


@pytest.mark.parametrize("case", [ACCEPTANCE_ONLY, WITH_COST], ids=["acceptance", "acceptance and cost"])
def test_the_number_of_rounds_is_right_within_a_factor_of_two(case: Case):
    """Power is one half between N / 2 and 2 N: the number at which it is, is within a factor of two of N."""
    more = case.more_prompts()
    assert more > PILOT
    power = {factor: case.told_apart(PILOT + factor * more, seed=31) for factor in (0.5, 1, 2)}
    assert power[0.5] < 0.44 and 0.42 < power[1] < 0.62 and power[2] > 0.6, power


def test_rounds_do_not_reduce_the_noise_of_round_times():
    """Taken for acceptance noise, it gives a number that is less than half of what is needed."""
    believed = MOSTLY_COST.more_prompts(0.0)
    assert believed < MOSTLY_COST.more_prompts() / 2
    assert MOSTLY_COST.told_apart(PILOT + believed, seed=32) < 0.44


def test_where_round_times_alone_are_too_noisy_no_rounds_help_and_more_repeats_do():
    case = Case(1.025, 0.02)
    assert case.more_prompts() == float("inf")
    assert case.told_apart(40 * PILOT, seed=33) < 0.4
    rng = np.random.default_rng(22)
    pilot = case.ratio_after(PILOT, rng)
    factor = repeats_to_separate(RatioInterval(case.ratio, pilot.low, pilot.high, pilot.log_sd), case.cost_log_sd)
    repeated = Case(case.ratio, case.cost_log_sd / factor**0.5)
    power = repeated.told_apart(PILOT + repeated.more_prompts(), seed=34)
    assert 0.4 < power < 0.65


def test_the_usual_pilot_that_is_a_tie_is_right_within_a_factor_of_two():
    """From a pilot's own ratio, where that is a tie, as a recommendation has it."""
    rng = np.random.default_rng(23)
    pilots = [ACCEPTANCE_ONLY.ratio_after(PILOT, rng) for _ in range(300)]
    ties = [rounds_to_separate(one, PILOT) for one in pilots if one.low <= 1 <= one.high]
    assert len(ties) > 150
    assert 0.5 < np.median(ties) / ACCEPTANCE_ONLY.more_prompts() < 2


def test_of_arms_that_are_best_with_a_chance_of_one_half_half_are():
    """Five arms of random true speeds, measured with acceptance noise that they share in part and cost noise of each."""
    rng = np.random.default_rng(24)
    said, true = [], []
    for _ in range(3000):
        speeds = 0.03 * rng.standard_normal(5)
        shared, own = 0.03 * rng.standard_normal(), 0.008 * rng.standard_normal(5)
        drawn = 0.03 * rng.standard_normal((1, REPLICATES)) + 0.008 * rng.standard_normal((5, REPLICATES))
        point = (speeds + shared + own)[:, None]
        said.append(probability_best(np.exp(np.concatenate([point, point + drawn], axis=1))))
        true.append(np.arange(5) == speeds.argmax())
    chance, best = np.concatenate(said), np.concatenate(true)
    for low, high in ((0.05, 0.2), (0.2, 0.4), (0.4, 0.6), (0.6, 0.8), (0.8, 0.95)):
        inside = (chance >= low) & (chance < high)
        assert inside.sum() > 200
        assert best[inside].mean() == pytest.approx(chance[inside].mean(), abs=0.05)

"""Do two samples come from one law? Counts of drawn tokens, in strata of equal context.

Within a stratum both arms stand behind the same text, so that under equal laws who drew which token is exchangeable: the
arms' labels are dealt anew (a multivariate hypergeometric draw) and the statistic is held against what dealing gives. This
is exact for any number of draws, and needs no expected count to be large (Good, Permutation, Parametric and Bootstrap
Tests of Hypotheses, 2005, chapter 6).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

DEALS = 2000
SIMULATED = 200
LEAST_DRAWS = 10
"""Of each arm behind one text: sparser texts would add more noise than they tell."""
WHOLE = 1e-6
"""What a law may lack of 1 and still name every token."""
SHARES = np.linspace(0.02, 1.0, 50)
"""Shares of the draws that a fault moves, tried for the power."""


@dataclass(frozen=True)
class Stratum:
    """Tokens drawn behind one text: `a` and `b` (K,) count the same K tokens in both arms."""

    a: np.ndarray
    b: np.ndarray

    @property
    def whole(self) -> np.ndarray:
        """Counts (K,) of both arms together."""
        return self.a + self.b


@dataclass(frozen=True)
class Verdict:
    """`distance`: total variation between the arms' frequencies, the mean over strata weighted by draws;
    `distance_by_chance`: what equal laws give on average, as few draws differ anyhow. `detectable`: the distance of the
    laws, arm b's pulled to its likeliest tokens, that this many draws find with the power asked for; None where none is."""

    p_value: float
    distance: float
    distance_by_chance: float
    detectable: float | None
    draws: int
    """Of arm b, in strata that both arms reached often enough."""


def compare(
    strata: Sequence[Stratum], generator: np.random.Generator, level: float = 0.01, power: float = 0.8
) -> Verdict | None:
    """Permutation test of equal laws; None where no stratum has LEAST_DRAWS of both arms and more than one token."""
    usable = [s for s in strata if min(s.a.sum(), s.b.sum()) >= LEAST_DRAWS and np.count_nonzero(s.whole) > 1]
    if not usable:
        return None
    dealt = [(own, s.whole - own) for own, s in zip((_dealt(s, generator) for s in usable), usable)]
    raw = _statistics(usable, dealt)
    scale = Scale(raw.mean(axis=1), np.maximum(raw.std(axis=1), 1e-12))
    chance = scale.larger(raw)
    found = scale.larger(_statistics(usable, [(s.a[None], s.b[None]) for s in usable]))[0]
    draws = sum(int(s.b.sum()) for s in usable)
    return Verdict(
        p_value=float((1 + np.count_nonzero(chance >= found - 1e-9)) / (1 + DEALS)),
        distance=float(sum(_weighted_distance(s.a, s.b) for s in usable)) / draws,
        distance_by_chance=float(np.sum([_weighted_distance(a, b) for a, b in dealt], axis=0).mean()) / draws,
        detectable=_detectable(usable, scale, float(np.quantile(chance, 1 - level)), power, generator),
        draws=draws,
    )


def fits(counts: Sequence[np.ndarray], laws: Sequence[np.ndarray], generator: np.random.Generator) -> float:
    """p-value of counts (K,) against known laws (K,) of the same tokens, Pearson's statistic summed over the strata and
    held against samples of the laws. Tokens expected less than once are taken together."""
    merged = [_merged(count, law) for count, law in zip(counts, laws, strict=True)]
    found = sum(_pearson(count, law) for count, law in merged)
    chance = np.sum(
        [_pearson(generator.multinomial(int(count.sum()), law, DEALS), law) for count, law in merged], axis=0
    )
    return float((1 + np.count_nonzero(chance >= found - 1e-9)) / (1 + DEALS))


def _dealt(stratum: Stratum, generator: np.random.Generator) -> np.ndarray:
    """(DEALS, K): arm a's counts when its draws are dealt anew."""
    return generator.multivariate_hypergeometric(stratum.whole, int(stratum.a.sum()), DEALS)


@dataclass(frozen=True)
class Scale:
    """Means and deviations (2,) that equal laws give the two statistics."""

    mean: np.ndarray
    deviation: np.ndarray

    def larger(self, statistics: np.ndarray) -> np.ndarray:
        """(D,): the larger of both, each in its own deviations."""
        return ((statistics - self.mean[:, None]) / self.deviation[:, None]).max(axis=0)


def _statistics(strata: Sequence[Stratum], tables: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """(2, D) for D tables (D, K) of each stratum: any difference (chi-square), and a common pull to or from the commonest
    token, which is what an engine shows that accepts too much (Mantel and Haenszel's sum of excesses, squared)."""
    whole = np.sum([_chi_square(a, b) for a, b in tables], axis=0)
    excess = [_excess(a, b, int(s.whole.argmax())) for s, (a, b) in zip(strata, tables, strict=True)]
    return np.stack([whole, np.sum(excess, axis=0) ** 2])


def _excess(a: np.ndarray, b: np.ndarray, token: int) -> np.ndarray:
    """By how much arm a drew `token` more often than its share of both arms' draws."""
    share = a.sum(axis=-1) / (a.sum(axis=-1) + b.sum(axis=-1))
    return a[..., token] - share * (a[..., token] + b[..., token])


def _chi_square(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of the 2 x K table of counts (..., K)."""
    n_a, n_b = a.sum(axis=-1, keepdims=True), b.sum(axis=-1, keepdims=True)
    return ((a * n_b - b * n_a) ** 2 / np.maximum(a + b, 1) / (n_a * n_b)).sum(axis=-1)


def _weighted_distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Total variation of two counts (..., K) times the draws of the second."""
    n_a, n_b = a.sum(axis=-1, keepdims=True), b.sum(axis=-1, keepdims=True)
    return 0.5 * np.abs(a / n_a - b / n_b).sum(axis=-1) * n_b[..., 0]


def _detectable(
    strata: Sequence[Stratum], scale: Scale, critical: float, power: float, generator: np.random.Generator
) -> float | None:
    """Smallest distance found with `power` where a share of arm b's draws go to the likeliest token whatever its law, as
    an engine does that accepts too much."""
    laws = [s.whole / s.whole.sum() for s in strata]
    draws = np.array([s.b.sum() for s in strata])
    free = np.array([1 - law.max() for law in laws])
    for share in SHARES:
        tables = [_simulated(s, law, share, generator) for s, law in zip(strata, laws)]
        if np.mean(scale.larger(_statistics(strata, tables)) > critical) >= power:
            return float(share * (free * draws).sum() / draws.sum())
    return None


def _simulated(
    stratum: Stratum, law: np.ndarray, share: float, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Counts (SIMULATED, K) of both arms when arm b is drawn from the moved law."""
    moved = (1 - share) * law + share * (np.arange(law.size) == law.argmax())
    a = generator.multinomial(int(stratum.a.sum()), law, SIMULATED)
    return a, generator.multinomial(int(stratum.b.sum()), moved, SIMULATED)


def _merged(count: np.ndarray, law: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rare tokens as one, whose law keeps at least half an expected draw: at the sampler's cut-off rounding lets a token
    in or out that plain decoding would not."""
    total = count.sum()
    rare = law * total < 1
    if not rare.any() and law.sum() > 1 - WHOLE:
        return count, law / law.sum()
    rest = max(float(law[rare].sum()), 1 - float(law[~rare].sum()), 0.5 / total)
    merged = np.append(law[~rare], rest)
    return np.append(count[~rare], count[rare].sum()), merged / merged.sum()


def _pearson(count: np.ndarray, law: np.ndarray) -> np.ndarray:
    """Pearson's statistic of counts (..., K) against a law (K,)."""
    expected = count.sum(axis=-1, keepdims=True) * law
    return ((count - expected) ** 2 / expected).sum(axis=-1)

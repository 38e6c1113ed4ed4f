"""Sampled output with and without speculation: the same law?

Texts cannot be compared, since each draw is one of many. What can be compared is which token comes next behind one and the
same text, over many draws: a speculative round must leave that law alone, whatever the draft proposes. The first token of a
reply comes from prefill; those behind it are drafted, verified and drawn again, and are the ones looked at. Both arms draw
with seeds of their own: with equal seeds an engine that samples from the target and compares gives equal texts anyhow.
"""

from collections import Counter
from collections.abc import Sequence
from math import exp

import numpy as np
from msgspec.structs import replace

from ...model import same_law
from ..engines.base import Engine, Unsupported
from ..records import Record, Sampling, Setting
from ..workloads import PromptText

PLACES = 3
"""Speculative places of a reply that are looked at, the first behind the token of prefill."""
DRAWN_TOKENS = PLACES + 3
"""An engine drafts no further than the reply goes: a few more tokens are asked for than looked at."""
LEVEL = 0.01
"""Chance of calling equal laws different, both tests of an arm together."""
POWER = 0.8
OTHER_SEEDS = 1_000_000
"""Between the seeds of plain decoding and those of speculation."""
LEAST_DRAWS = 20
"""Draws behind one text that the comparison with the engine's own probabilities takes at least."""
LAW_TOKENS = 100
SAME, DIFFERS, UNSUPPORTED = "same", "differs", "unsupported"

Counts = dict[tuple[int, tuple[int, ...]], Counter[int]]
"""Draws by prompt index and the reply's tokens before."""


class SampledLaw(Record, kw_only=True):
    """Next tokens of a setting against those of plain decoding. Distances are total variations between 0 and 1."""

    setting: Setting
    sampling: Sampling
    draws: int
    """Replies of each arm, all prompts together."""
    compared: int = 0
    """Tokens of the setting that stand behind a text which both arms reached often enough."""
    distance: float | None = None
    distance_by_chance: float | None = None
    """What as many draws of equal laws differ by on average."""
    detectable: float | None = None
    """Distance of laws that is found in 80 % of cases where speculation pulls draws to the likeliest tokens."""
    p_value: float | None = None
    """Of draws against draws, tokens dealt anew within equal texts."""
    exact_p_value: float | None = None
    """Of the first speculative token against the probabilities that plain decoding tells; None where it tells none."""
    exact_draws: int = 0
    verdict: str
    """same (nothing found), differs, unsupported."""
    reason: str


def sampled_law(
    engine: Engine, setting: Setting, prompts: Sequence[PromptText], sampling: Sampling, draws: int
) -> SampledLaw:
    """Draw `draws` replies to each prompt both ways and compare which tokens come next."""
    total = draws * len(prompts)
    if sampling.temperature <= 0:
        return _unsupported(setting, sampling, "at temperature 0 there is no law to compare: see the greedy replies")
    plain = Setting(target=setting.target, target_quant=setting.target_quant, context=setting.context)
    try:
        ours = _draw(engine, plain, prompts, sampling, draws, sampling.seed)
        theirs = _draw(engine, setting, prompts, sampling, draws, sampling.seed + OTHER_SEEDS)
    except Unsupported as reason:
        return _unsupported(setting, sampling, str(reason))
    dice = np.random.default_rng(sampling.seed)
    found = same_law.compare(
        [_stratum(ours[text], theirs[text]) for text in ours if text in theirs], dice, LEVEL, POWER
    )
    if found is None:
        return _unsupported(
            setting, sampling, "no text was reached often enough both ways and left a choice: take more draws", total
        )
    exact_p, exact_draws = _against_probabilities(engine, plain, prompts, sampling, theirs, dice)
    told = [p for p in (found.p_value, exact_p) if p is not None]
    differs = min(told) < LEVEL / len(told)
    return SampledLaw(
        setting=setting,
        sampling=sampling,
        draws=total,
        compared=found.draws,
        distance=found.distance,
        distance_by_chance=found.distance_by_chance,
        detectable=found.detectable,
        p_value=found.p_value,
        exact_p_value=exact_p,
        exact_draws=exact_draws,
        verdict=DIFFERS if differs else SAME,
        reason=_reason(found, differs),
    )


def _reason(found: same_law.Verdict, differs: bool) -> str:
    seen = f"next tokens are {found.distance:.3f} apart, {found.distance_by_chance:.3f} by chance alone"
    if differs:
        return f"{seen}: speculation changes what is drawn"
    if found.detectable is None:
        return f"{seen}; so few draws find no difference surely: take more"
    return f"{seen}; a pull of {found.detectable:.3f} to the likeliest tokens would have been found in {POWER:.0%} of cases"


def _draw(
    engine: Engine, setting: Setting, prompts: Sequence[PromptText], sampling: Sampling, draws: int, first_seed: int
) -> Counts:
    """Tokens drawn at the speculative places, by prompt and the text before."""
    counts: Counts = {}
    for index, prompt in enumerate(prompts):
        for seed in range(first_seed, first_seed + draws):
            seeded = replace(sampling, seed=seed)
            tokens = engine.reply(setting, prompt, seeded, new_tokens=DRAWN_TOKENS, cached=True).tokens
            for place in range(1, min(PLACES + 1, len(tokens))):
                counts.setdefault((index, tokens[:place]), Counter())[tokens[place]] += 1
    return counts


def _stratum(ours: Counter[int], theirs: Counter[int]) -> same_law.Stratum:
    tokens = sorted({*ours, *theirs})
    return same_law.Stratum(np.array([ours[t] for t in tokens]), np.array([theirs[t] for t in tokens]))


def _against_probabilities(
    engine: Engine,
    plain: Setting,
    prompts: Sequence[PromptText],
    sampling: Sampling,
    drawn: Counts,
    dice: np.random.Generator,
) -> tuple[float | None, int]:
    """p-value of the first speculative token against the law that the sampler draws from in plain decoding, and draws."""
    counts, laws = [], []
    for (index, text), tokens in drawn.items():
        if len(text) > 1 or tokens.total() < LEAST_DRAWS:
            continue
        law = _law(engine, plain, prompts[index], sampling, text)
        if law:
            known = sorted({*law, *tokens})
            counts.append(np.array([tokens[token] for token in known]))
            laws.append(np.array([law.get(token, 0.0) for token in known]))
    if not counts:
        return None, 0
    return same_law.fits(counts, laws, dice), int(sum(count.sum() for count in counts))


def _law(
    engine: Engine, plain: Setting, prompt: PromptText, sampling: Sampling, text: tuple[int, ...]
) -> dict[int, float]:
    """Probability of each token behind `text`, as the sampler draws it; empty where the engine does not tell."""
    try:
        found = engine.reply(plain, prompt, sampling, after=text, new_tokens=1, likely=LAW_TOKENS, sampled=True)
    except Unsupported:
        return {}
    return {one.token: exp(one.log_probability) for one in found.likely[0]} if found.likely else {}


def _unsupported(setting: Setting, sampling: Sampling, reason: str, draws: int = 0) -> SampledLaw:
    return SampledLaw(setting=setting, sampling=sampling, draws=draws, verdict=UNSUPPORTED, reason=reason)

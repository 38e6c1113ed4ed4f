"""Random machines and pairs of known truth, their true speeds, and how a calibration of their profiles fares.

True speeds follow from the rules of a round alone: by stepping through the replies of the profile's own prompts, and for all
prompts that there could be by a recursion over places in a reply, with the rate of a prompt integrated out. Nothing of
model/ is used.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.stats import beta

from specgauge.calibrate import fit
from specgauge.calibrate.fit import Calibrated
from specgauge.calibrate.intervals import percentile_interval
from specgauge.calibrate.priors import EVIDENCE_ALONE, Priors
from specgauge.calibrate.records import Interval
from specgauge.model.decision import decide

from . import synthetic
from .synthetic import MEASURED, MODEL, PLAIN, REPLY, Clock, Truth

NOISE = 0.02
LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8, 12)
WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17)
SESSION_REPEATS = 5
STATES = REPLY - 1


def machine(seed: int, priors: Priors = EVIDENCE_ALONE) -> Truth:
    """A machine and a pair, which deviates from its model as `priors` say."""
    rng = np.random.default_rng([20, seed])
    base = np.exp(rng.uniform(np.log(4e-3), np.log(40e-3)))
    draft = base * rng.uniform(0.04, 0.25)
    per_row = base * rng.uniform(0.0, 0.03)
    verified = bool(rng.random() < 0.5)
    start = base * rng.uniform(0.0, 10_000.0)
    return Truth(
        base=base,
        per_token=base * rng.uniform(0.005, 0.06),
        per_context_token=base * rng.uniform(0.01, 0.08) / 500,
        kinks=_kinks(rng, base),
        per_row=per_row if verified else 0.0,
        verified=verified,
        draft_base=draft,
        draft_per_token=draft * rng.uniform(0.01, 0.05),
        draft_per_context_token=draft * rng.uniform(0.01, 0.08) / 500,
        overhead=base * rng.uniform(0.0, 0.1),
        overhead_per_token=base * rng.uniform(0.0, 0.01),
        round_factors=_deviations(rng, priors.model_log_sd),
        noise=NOISE,
        sentinel_noise=NOISE / 2,
        outliers=0.03,
        drift=rng.uniform(0.0, 0.04),
        throttled=(start, start + base * rng.uniform(100.0, 800.0), rng.uniform(1.1, 1.5))
        if rng.random() < 0.2
        else (0.0, 0.0, 1.0),
        match_rate=rng.uniform(0.4, 0.9),
        match_concentration=np.exp(rng.uniform(np.log(5), np.log(50))),
        prompts_each=int(rng.integers(8, 41)),
        widths=WIDTHS,
        lengths=LENGTHS,
        round_contexts=synthetic.CONTEXTS,
        round_repeats=3,
        ngram=False,
        watched=True,
        seed=seed,
    )


def _kinks(rng: np.random.Generator, base: float) -> tuple[tuple[int, float], ...]:
    """Kernel switches: after 8 or 16 in half of the machines, anywhere from 2 to 15 in half; up to twice or down a quarter."""
    places = [int(rng.choice([8, 16]))] if rng.random() < 0.5 else []
    places += [int(rng.integers(2, 16))] if rng.random() < 0.5 else []
    return tuple((place, base * (rng.uniform(0.1, 1.0) if rng.random() < 0.8 else -0.25)) for place in places)


def _deviations(rng: np.random.Generator, log_sd: float) -> tuple[float, ...]:
    """What rounds take at lengths that are not measured, over what those that are lead to expect."""
    drawn = np.exp(log_sd * rng.standard_normal(max(LENGTHS)))
    return tuple(float(np.where(n in MEASURED, 1.0, factor)) for n, factor in enumerate(drawn, 1))


@lru_cache(maxsize=64)
def list_seconds(truth: Truth, draft_tokens: int, workload: str) -> np.ndarray:
    """Seconds (P,) of the replies to the profile's own prompts of a workload: every round stepped through."""
    prompts = [p for p in truth.prompts() if p.workload == workload]
    cached = np.array([truth.prompt_tokens(p) for p in prompts])
    right = _runs(np.stack([truth.match(p) for p in prompts]), draft_tokens)
    fixed, slope = _round_lines(truth, draft_tokens)
    at, seconds, who = np.zeros(len(prompts), int), np.zeros(len(prompts)), np.arange(len(prompts))
    while (going := at < STATES).any():
        here, place = who[going], at[going]
        drafted = np.minimum(draft_tokens, STATES - 1 - place)
        seconds[here] += fixed[drafted] + slope[drafted] * (cached[here] + place)
        at[here] += np.minimum(right[here, place], drafted) + 1
    return seconds


def _runs(match: np.ndarray, longest: int) -> np.ndarray:
    """Length of the run of ones from each place of (P, N) on, at most `longest`."""
    runs = np.zeros((match.shape[0], match.shape[1] + 1), int)
    for place in range(match.shape[1] - 1, -1, -1):
        runs[:, place] = np.where(match[:, place] == 1, runs[:, place + 1] + 1, 0)
    return np.minimum(runs, longest)


def _round_lines(truth: Truth, draft_tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of rounds that draft 0..g tokens at context 0, and what a cached token adds: rounds are straight lines in it."""
    kind = ["none", *["model"] * draft_tokens]
    fixed, later = (np.array([truth.round_seconds(k, d, at) for d, k in enumerate(kind)]) for at in (0.0, 1000.0))
    return fixed, (later - fixed) / 1000.0


@dataclass(frozen=True)
class Population:
    """All prompts that there could be: true speed, and true survival S_1..S_g of rounds that long."""

    tokens_per_second: float
    survival: np.ndarray


@lru_cache(maxsize=64)
def population(truth: Truth, draft_tokens: int, workload: str, nodes: int = 200) -> Population:
    """By recursion over the places of a reply for each of `nodes` equally likely rates of a prompt."""
    cached = np.mean([truth.prompt_tokens(p) for p in truth.prompts() if p.workload == workload])
    sure = truth.match_concentration
    rate = beta.ppf((np.arange(nodes) + 0.5) / nodes, sure * truth.match_rate, sure * (1 - truth.match_rate))
    fixed, slope = _round_lines(truth, draft_tokens)
    reach = np.zeros((STATES + draft_tokens + 1, nodes))
    reach[0] = 1.0
    powers = rate ** np.arange(draft_tokens + 1)[:, None]
    seconds, tried, passed = 0.0, np.zeros(draft_tokens), np.zeros(draft_tokens)
    for place in range(STATES):
        limit = min(draft_tokens, STATES - 1 - place)
        stops = np.concatenate([powers[:limit] * (1 - rate), powers[limit : limit + 1]])
        reach[place + 1 : place + limit + 2] += reach[place] * stops
        seconds += reach[place].sum() * (fixed[limit] + slope[limit] * (cached + place))
        tried[:limit] += powers[:limit] @ reach[place]
        passed[:limit] += powers[1 : limit + 1] @ reach[place]
    return Population(STATES * nodes / seconds, np.cumprod(passed / np.maximum(tried, 1e-300)))


@dataclass(frozen=True)
class Speeds:
    """True speeds at the profile's reference speed of the machine, which is `slow` times slower than its best."""

    truth: Truth
    slow: float

    def seconds(self, draft_tokens: int, workload: str) -> np.ndarray:
        return list_seconds(self.truth, draft_tokens, workload) * self.slow

    def own(self, draft_tokens: int, workload: str) -> float:
        seconds = self.seconds(draft_tokens, workload)
        return STATES * seconds.size / float(seconds.sum())

    def all(self, draft_tokens: int, workload: str) -> float:
        return population(self.truth, draft_tokens, workload).tokens_per_second / self.slow


@dataclass(frozen=True)
class Check:
    """An interval held against what it is for; widths and errors count in units of `scale`."""

    quantity: str
    truth: float
    value: float
    low: float
    high: float
    scale: float

    @property
    def covers(self) -> bool:
        return self.low <= self.truth <= self.high

    @property
    def error(self) -> float:
        return (self.value - self.truth) / self.scale

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2 / self.scale

    def score(self, level: float = 0.95) -> float:
        """Winkler 1972: width plus 2 / (1 - level) times any miss."""
        miss = max(self.low - self.truth, self.truth - self.high, 0.0)
        return (self.high - self.low + 2 / (1 - level) * miss) / self.scale


@dataclass(frozen=True)
class Verdict:
    """One machine: checks of intervals, and by workload the share of true speed that the choice gives away."""

    checks: tuple[Check, ...]
    regret: tuple[float, ...]


def verdict(truth: Truth, priors: Priors = EVIDENCE_ALONE, replicates: int = 300) -> Verdict:
    """Profile, calibrate with `priors` and check one machine."""
    clock = Clock(truth)
    profile = synthetic.measured(truth, clock)
    own = fit.calibrate(profile, replicates=replicates, resample_prompts=False, priors=priors)
    others = replace(own, resample_prompts=True, _forecasts={})
    speeds = Speeds(truth, float(np.median([slowness for _, _, slowness in clock.sentinels])))
    checks = [*_cost_checks(own, speeds), *_survival_checks(truth, others)]
    checks += _forecast_checks(own, others, speeds, priors.minutes_apart_log_sd)
    return Verdict(tuple(checks), tuple(_regret(own, speeds, workload) for workload in own.workloads()))


def _cost_checks(calibrated: Calibrated, speeds: Speeds) -> Iterator[Check]:
    record, truth, step = calibrated.record("", "", ""), speeds.truth, speeds.truth.target_pass(1, 128)
    passes = {
        ("t", "decode"): truth.target_pass,
        ("t", "batch"): truth.prompt_pass,
        ("t", "verify"): truth.target_pass,
        ("d", "decode"): truth.draft_pass,
        ("d", "batch"): truth.draft_pass,
    }
    for cost in record.costs:
        seconds = passes[cost.model, cost.kind](cost.width, cost.context) * speeds.slow
        yield _check(f"pass, {cost.kind}", seconds, cost.seconds)
    for found in record.overheads:
        yield _check("overhead, constant", truth.overhead * speeds.slow, found.constant_seconds, step)
        yield _check("overhead, per token", truth.overhead_per_token * speeds.slow, found.per_token_seconds, step)


def _survival_checks(truth: Truth, calibrated: Calibrated) -> Iterator[Check]:
    for workload in calibrated.workloads():
        true = population(truth, 8, workload).survival
        drawn = calibrated.survival_draws(MODEL.setting(8), workload)
        for position in (1, 2, 4):
            interval = percentile_interval(drawn[:, position - 1], calibrated.level)
            yield _check(f"survival, S_{position}", true[position - 1], interval)


def _forecast_checks(own: Calibrated, others: Calibrated, speeds: Speeds, session_log_sd: float) -> Iterator[Check]:
    rng = np.random.default_rng([21, speeds.truth.seed])
    for workload in own.workloads():
        plain = own.forecast(PLAIN, workload).tokens_per_second.value
        for length in (0, *speeds.truth.lengths):
            setting = MODEL.setting(length)
            forecast = own.forecast(setting, workload)
            kind = _kind(length, forecast.provenance)
            mine, theirs = (percentile_interval(c.speeds(setting, workload), own.level) for c in (own, others))
            yield _check(f"true speed, {kind}", speeds.own(length, workload), mine)
            yield _check(f"true speed, other prompts, {kind}", speeds.all(length, workload), theirs)
            if length:
                seen = _session(speeds, length, workload, plain, session_log_sd, rng)
                yield _check(f"session, {kind}", seen, forecast.tokens_per_second)


def _kind(length: int, provenance: str) -> str:
    """Lengths that were not run are extrapolated where a kernel switch hides between measured widths: marked as priors."""
    if length in (0, *MEASURED):
        return "measured" if length else "plain"
    return "extrapolated" if provenance == "prior" else "unrun"


def _session(
    speeds: Speeds, length: int, workload: str, plain: float, log_sd: float, rng: np.random.Generator
) -> float:
    """What a validation session shows of a setting: the median over repeats of its speed, each over the drift that plain
    decoding beside it shows. Rounds minutes apart differ by `log_sd`."""
    shift = np.exp(log_sd * rng.standard_normal())
    ours, theirs = (_session_speeds(speeds.seconds(n, workload), rng) for n in (length, 0))
    return float(np.median(ours * shift / (theirs / plain)))


def _session_speeds(seconds: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    noisy = seconds * np.exp(NOISE * rng.standard_normal((SESSION_REPEATS, seconds.size)))
    return STATES * seconds.size / noisy.sum(axis=1)


def _regret(calibrated: Calibrated, speeds: Speeds, workload: str) -> float:
    lengths = np.array([0, *speeds.truth.lengths])
    drawn = np.stack([calibrated.speeds(MODEL.setting(int(n)), workload) for n in lengths])
    true = np.array([speeds.own(int(n), workload) for n in lengths])
    return float(1 - true[decide(drawn, lengths, calibrated.level).chosen] / true.max())


def _check(quantity: str, truth: float, found: Interval, scale: float | None = None) -> Check:
    return Check(quantity, float(truth), found.value, found.low, found.high, float(truth if scale is None else scale))

"""From a profile to a calibrated model that forecasts every setting of its candidates, run or not.

    profile -> step tables + round costs (rounds.py) + round laws (replies.py) -> Calibrated -> forecasts

Draws of acceptance (bootstrap over prompts) and cost (over samples) go through the forecast together. An interval holds
what a validation session would measure: the session's own noise is in it, but not in comparisons between settings.
"""

from collections import defaultdict
from dataclasses import dataclass, field, replace

import numpy as np

from ..model.cost import NO_OVERHEAD, RoundCost, RoundOfParts, Rounds, WholeRounds
from ..model.forecast import (
    DOUBTFUL_SHARE,
    WorkloadForecast,
    break_even_accepted,
    forecast_workload,
    perfect_acceptance,
)
from ..model.ladder import ROW_LOG_SD
from ..model.recipe import RECIPES
from ..model.steps import BeyondTable, StepTable
from ..profiler.records import Candidate, Profile, Setting
from . import evidence, replies, reported, rounds, spread
from .acceptance_checks import acceptance_checks
from .clocks import WALL, WORDS, on_clock
from .evidence import Drift, Pair
from .intervals import (
    Noise,
    generator,
    log_noise,
    percentile_interval,
    prompt_stretch,
    prompt_weights,
    replicated_median,
    stretched,
)
from .priors import ENGINES, Priors
from .records import (
    Acceptance,
    AcceptanceCheck,
    Calibration,
    CostPoint,
    Interval,
    Overhead,
    QuantEfficiency,
    ReplySpread,
    RoundBreakdown,
    RoundTerm,
    SettingForecast,
)
from .replies import WorkloadReplies
from .rounds import PLAIN_REMEDY, NotCalibrated, PairRounds, ShapeSeconds, StepTables
from .seeds import Seed

__all__ = ["Bandwidth", "Calibrated", "NotCalibrated", "calibrate", "ceiling_at_perfect_acceptance", "plain_step_speed"]

BORROWED_ACCEPTANCE_LOG_SD = 0.05
"""Doubt of acceptance that was measured on another quantization of the target."""
BEYOND_TABLE_LOG_SD = 0.10
"""Doubt of a cost that is extrapolated."""


@dataclass(frozen=True)
class Bandwidth:
    """Memory bandwidth (1 + replicates,) in bytes per second, by the operation that was measured."""

    bytes_per_second: np.ndarray
    operation: str
    provenance: str


@dataclass(frozen=True)
class Calibrated:
    """A profile's calibrated model. Arrays have a leading axis of 1 + replicates; entry 0 is the point estimate."""

    profile: Profile
    seed: int
    replicates: int
    level: float
    resample_prompts: bool
    drift: Drift
    shapes: tuple[ShapeSeconds, ...]
    tables: StepTables
    pairs: tuple[PairRounds, ...]
    run_noise: Noise
    session_log_sd: float
    bandwidth: Bandwidth | None
    measured_lengths: frozenset[tuple[Pair, int]]
    priors: Priors = ENGINES
    clock: str = WALL
    """By which every second here is told: wall, thread_cpu."""
    given_survival: tuple[float, ...] = ()
    """S_1, S_2, ... of draft models from elsewhere; empty: as the profile's own replies say."""
    _forecasts: dict[tuple[Setting, str], WorkloadForecast] = field(default_factory=dict, repr=False, compare=False)
    _laws: dict[tuple[Setting, str], WorkloadReplies] = field(default_factory=dict, repr=False, compare=False)
    _factors: dict[tuple[str, str], np.ndarray] = field(default_factory=dict, repr=False, compare=False)

    def workloads(self) -> tuple[str, ...]:
        """Workloads of the profile."""
        return replies.workloads(self.profile)

    def speeds(self, setting: Setting, workload: str) -> np.ndarray:
        """Tokens/s (1 + replicates,) without the noise of a session: for comparing settings. Raises NotCalibrated."""
        return self._forecast(setting, workload).tokens_per_second

    def rounds_seen(self, setting: Setting, workload: str) -> float:
        """Rounds that a pass over the workload makes: what its acceptance rests on."""
        return self._forecast(setting, workload).rounds

    def mean_context(self, setting: Setting, workload: str) -> float:
        """Mean cached tokens of its rounds."""
        return self._forecast(setting, workload).mean_context

    def survival(self, setting: Setting, workload: str) -> np.ndarray:
        """S_1..S_g over rounds in which something was drafted. Raises NotCalibrated."""
        return replies.known_survival(self._replies(setting, workload), setting.draft_tokens)

    def survival_draws(self, setting: Setting, workload: str) -> np.ndarray:
        """S_1..S_g (1 + replicates, g), for other prompts of the workload too where they are resampled. Raises NotCalibrated."""
        found = self._replies(setting, workload)
        weights = self._weights(workload, found.places)
        drawn = replies.drawn_survival(found, weights, setting.draft_tokens)
        powers = self._stretch(workload, found.places)
        return np.minimum(stretched(drawn, np.broadcast_to(drawn[:1], drawn.shape), powers), 1.0)

    def forecast(self, setting: Setting, workload: str) -> SettingForecast:
        """Speed, its interval and what it is made of. Raises NotCalibrated where the evidence does not allow one."""
        found, plain = self._forecast(setting, workload), self._forecast(setting.plain, workload)
        context = plain.mean_context
        factor = self._round_factor(setting, workload, self._replies(setting, workload))[0]
        sd = self.session_noise(setting)
        session = log_noise(generator(self.seed, "session", setting, workload), self.replicates, sd)
        speed, baseline = found.tokens_per_second, plain.tokens_per_second
        ceiling = perfect_acceptance(self.round_cost(setting), setting.draft_tokens, context)
        return SettingForecast(
            setting=setting,
            workload=workload,
            tokens_per_second=percentile_interval(speed * session, self.level),
            speed_up=float(speed[0] / baseline[0]),
            baseline_tokens_per_second=float(baseline[0]),
            tokens_per_round=found.tokens_per_round,
            accepted_per_round=found.accepted_per_round,
            drafted_per_round=found.drafted_per_round,
            round_seconds=found.round_seconds,
            ceiling_tokens_per_second=float(ceiling.flat[0] / factor),
            break_even_accepted=break_even_accepted(found.round_seconds, plain.round_seconds),
            round_time_source=self.round_time_source(setting),
            in_profile=self.in_profile(setting),
            provenance=self._provenance(setting, workload, found),
        )

    def reply_spread(self, setting: Setting, workload: str) -> ReplySpread | None:
        """How far single replies to the profile's prompts lie apart; None where acceptance is not known reply by reply."""
        found = self._replies(setting, workload)
        if not spread.known_by_reply(self.profile, setting, found):
            return None
        cost, factor = self.round_cost(setting), self._round_factor(setting, workload, found)[:1]
        alone = [
            forecast_workload(cost, (reply,), np.ones((1, 1)), factor) for reply in found.replies if reply.law.rounds
        ]
        speeds = np.array([one.tokens_per_second[0] for one in alone])
        return spread.spread_of(speeds, spread.repeat_log_sd(self.profile, setting.target)) if alone else None

    def session_noise(self, setting: Setting) -> float:
        """Log sd of what a validation session would measure of `setting` beside its plain baseline."""
        apart = setting.draft_tokens > 0 and not reported.rows_of(self.profile, Pair.of(setting))
        return float(np.hypot(self.session_log_sd, self.priors.minutes_apart_log_sd if apart else 0.0))

    def round_cost(self, setting: Setting) -> RoundCost:
        """What its rounds cost, with replicates; a plain step where it drafts nothing. Raises NotCalibrated."""
        if setting.draft_tokens:
            return self._pair(setting).cost
        return RoundOfParts(("verification",), self._table(setting.target), None, NO_OVERHEAD, np.ones(1))

    def offer_rate(self, setting: Setting, workload: str) -> float:
        """Share of rounds in which something is drafted. Raises NotCalibrated."""
        laws = [reply.law for reply in self._replies(setting, workload).replies]
        rounds_of = sum(law.rounds for law in laws)
        return sum(law.offer_rate * law.rounds for law in laws) / max(rounds_of, 1e-12)

    def modelled_round(self, setting: Setting, drafted: int, context: float) -> RoundBreakdown:
        """A round at the profile's reference speed, term by term.

        At a measured length `modelled_seconds` is recipe + overhead alone and the term "unexplained" the signed rest; at
        others it is the forecast's round and the term holds what it interpolates between measured lengths. "in_situ" is
        what passes take less in a round than apart.
        """
        found = self._pair(setting)
        here = Rounds.of(drafted, context)
        terms = found.cost.terms(here)
        apart, forecast = terms.total()[0, 0], found.cost.lookup(here).seconds[0, 0]
        total = apart * found.in_situ[0]
        measured, place = None, found.observed(drafted)
        if place is not None:
            then = found.cost.terms(Rounds.of(drafted, found.observations[place].context)).total()[0, 0]
            measured = float(found.measured[0, place] * apart / then)
        named = [RoundTerm(name=n, seconds=float(s[0, 0])) for n, s in zip(terms.names, terms.seconds)]
        named += [RoundTerm(name="in_situ", seconds=float(total - apart))] if found.in_situ[0] < 1 else []
        rest = float((forecast if measured is None else measured) - total)
        modelled = float(forecast if measured is None else total)
        return RoundBreakdown(
            target=setting.target,
            drafter=setting.drafter,
            draft=setting.draft,
            draft_tokens=drafted,
            context=round(context),
            source="measured" if measured is not None else "interpolated" if found.observations else "prior",
            terms=(*named, RoundTerm(name="unexplained", seconds=rest)),
            modelled_seconds=modelled,
            measured_seconds=measured,
            unexplained=None if measured is None else measured / modelled - 1,
            used_for_fit=drafted in found.fitted_lengths,
        )

    def in_profile(self, setting: Setting) -> bool:
        """A round time of this target, drafter and draft length was measured; plain decoding always was."""
        return setting.draft_tokens == 0 or (Pair.of(setting), setting.draft_tokens) in self.measured_lengths

    def round_time_source(self, setting: Setting) -> str:
        """measured, interpolated or prior."""
        if setting.draft_tokens == 0:
            return "measured"
        pair = self._pair(setting)
        if self.in_profile(setting) and pair.observed(setting.draft_tokens) is not None:
            return "measured"
        return "interpolated" if pair.observations else "prior"

    def record(self, profile_sha256: str, created: str, tool_version: str) -> Calibration:
        """The calibration as a document."""
        drift = self.drift.ratio
        return Calibration(
            created=created,
            tool_version=tool_version,
            profile_sha256=profile_sha256,
            level=self.level,
            seed=int(self.seed),
            replicates=self.replicates,
            clock=self.clock,
            reference_sentinel_seconds=self.drift.reference_seconds,
            drift_low=float(drift.min()) if drift.size else None,
            drift_high=float(drift.max()) if drift.size else None,
            bandwidth_bytes_per_second=self._interval(self.bandwidth.bytes_per_second) if self.bandwidth else None,
            bandwidth_operation=self.bandwidth.operation if self.bandwidth else "",
            bandwidth_provenance=self.bandwidth.provenance if self.bandwidth else "",
            efficiencies=tuple(self._efficiencies()),
            costs=tuple(self._cost_point(item) for item in self.shapes),
            overheads=tuple(self._overhead(pair) for pair in self.pairs if pair.fitted_lengths),
            acceptance=tuple(self._acceptances()),
            rounds=tuple(self._breakdowns()),
            acceptance_checks=acceptance_checks(self.profile),
            notes=tuple(self._notes()),
        )

    def _interval(self, replicated: np.ndarray) -> Interval:
        return percentile_interval(replicated, self.level)

    def _forecast(self, setting: Setting, workload: str) -> WorkloadForecast:
        if (setting, workload) not in self._forecasts:
            self._forecasts[setting, workload] = self._computed(setting, workload)
        return self._forecasts[setting, workload]

    def _computed(self, setting: Setting, workload: str) -> WorkloadForecast:
        found = self._replies(setting, workload)
        weights, powers = self._weights(workload, found.places), self._stretch(workload, found.places)
        cost, factor = self.round_cost(setting), self._round_factor(setting, workload, found)
        result = forecast_workload(cost, found.replies, np.ones_like(weights), factor)
        resampled = forecast_workload(cost, found.replies, weights, factor)
        speeds = stretched(resampled.tokens_per_second, result.tokens_per_second, powers)
        borrowed = BORROWED_ACCEPTANCE_LOG_SD if found.borrowed_from else 0.0
        doubt = float(np.linalg.norm([BEYOND_TABLE_LOG_SD * result.doubtful_share, borrowed, found.log_sd]))
        noise = log_noise(generator(self.seed, "doubt", setting, workload), self.replicates, doubt)
        return replace(result, tokens_per_second=speeds * noise)

    def _replies(self, setting: Setting, workload: str) -> WorkloadReplies:
        if (setting, workload) not in self._laws:
            given = self.given_survival
            self._laws[setting, workload] = replies.workload_replies(self.profile, setting, workload, given)
        return self._laws[setting, workload]

    def _weights(self, workload: str, places: tuple[int, ...]) -> np.ndarray:
        """Prompt counts (1 + replicates, P), shared by all settings of a workload."""
        prompts = len(replies.workload_prompts(self.profile, workload))
        weights = np.ones((1 + self.replicates, prompts))
        if self.resample_prompts:
            weights = prompt_weights(prompts, generator(self.seed, "prompts", workload), self.replicates)
        chosen = weights[:, list(places)]
        return np.where(chosen.sum(axis=1, keepdims=True) > 0, chosen, 1.0)

    def _stretch(self, workload: str, places: tuple[int, ...]) -> np.ndarray:
        """Powers (1 + replicates,) for what resampling changes, shared by all settings of a workload."""
        return prompt_stretch(len(set(places)), generator(self.seed, "stretch", workload), self.replicates)

    def _round_factor(self, setting: Setting, workload: str, found: WorkloadReplies) -> np.ndarray:
        """What a run's rounds take over timed ones (1 + replicates,). What makes timed plain steps read long or short, against
        runs, belongs to the token that a step emits: a drafting round has it once, not in each of its passes."""
        factor = self.reply_factor(setting.target, workload)
        if setting.draft_tokens == 0 or isinstance(self.round_cost(setting), WholeRounds):
            return factor
        alone = forecast_workload(self.round_cost(setting), found.replies, np.ones((1, len(found.replies))), np.ones(1))
        step = self._table(setting.target).lookup(1, alone.mean_context).seconds[0, 0]
        return 1 + (factor - 1) * step / alone.round_seconds

    def of_its_own_prompts(self) -> "Calibrated":
        """The same model with bounds for the profile's own prompts, which a validation runs again."""
        return replace(self, resample_prompts=False, _forecasts={})

    def with_survival(self, survival: tuple[float, ...]) -> "Calibrated":
        """The same model with the acceptance of draft models from elsewhere: S_1, S_2, ..., each at most the one before, of
        rounds in which something was drafted; past the last one its hazard holds. Raises ValueError."""
        falling = all(1 >= a >= b >= 0 for a, b in zip((1.0, *survival), survival))
        if not survival or not falling:
            raise ValueError(f"survival {survival}: give S_1, S_2, ... between 0 and 1, none above the one before")
        return replace(self, given_survival=survival, _forecasts={}, _laws={})

    def reply_factor(self, target: str, workload: str) -> np.ndarray:
        """Plain runs over plain steps (1 + replicates,): of this workload, of this target, of any target, or 1."""
        if (target, workload) not in self._factors:
            self._factors[target, workload] = self._computed_factor(target, workload)
        return self._factors[target, workload]

    def _computed_factor(self, target: str, workload: str) -> np.ndarray:
        table = self._table(target)
        for source in (workload, None):
            ratios = replies.run_over_step(self.profile, target, source, table, self.drift)
            if ratios.size:
                rng = generator(self.seed, "runs", target, source)
                drawn = replicated_median(ratios, rng, self.replicates, self.run_noise)
                # The runs fix the product of step and factor: a step drawn long goes with a factor drawn short.
                step = table.lookup(1, replies.run_context(self.profile, target, source)).seconds[..., 0]
                return drawn * step[0] / step
        told = reported.plain_over_all(self.profile, target, workload)
        if told.size:
            return np.full(1 + self.replicates, np.median(told))
        others = [self._any_ratio(c.target) for c in self.profile.candidates if c.target != target]
        known = [ratio for ratio in others if ratio is not None]
        return np.full(1 + self.replicates, np.median(known) if known else 1.0)

    def _any_ratio(self, target: str) -> float | None:
        table = self.tables.of(target, "target")
        ratios = np.zeros(0) if table is None else replies.run_over_step(self.profile, target, None, table, self.drift)
        return float(np.median(ratios)) if ratios.size else None

    def _table(self, target: str) -> StepTable:
        table = self.tables.of(target, "target")
        if table is None:
            raise NotCalibrated(f"{target}: no step times and no plain runs: {PLAIN_REMEDY}")
        return table

    def _pair(self, setting: Setting) -> PairRounds:
        wanted = Pair.of(setting)
        for pair in self.pairs:
            if pair.pair == wanted:
                return pair
        name = f"{wanted.target} x {wanted.draft or wanted.drafter}"
        raise NotCalibrated(f"{name}: its rounds cannot be modelled from this profile: profile its rounds")

    def _provenance(self, setting: Setting, workload: str, found: WorkloadForecast) -> str:
        if self._table(setting.target).prior:
            return "prior"
        told = reported.is_row(self.profile, Pair.of(setting), setting.draft_tokens, setting.context, workload)
        if setting.draft_tokens == 0:
            if found.doubtful_share > DOUBTFUL_SHARE:
                return "prior"
            runs = evidence.plain_replies(self.profile, setting.target, workload)
            at_context = setting.context in reported.plain_seconds(self.profile, setting.target)
            return "measured" if runs or at_context else "calibrated"
        if told:
            return "measured"
        borrowed = self._replies(setting, workload).borrowed_from
        doubtful = found.doubtful_share > DOUBTFUL_SHARE
        given = bool(self.given_survival) and setting.drafter == "model"
        return "prior" if given or borrowed or doubtful or self.round_time_source(setting) == "prior" else "calibrated"

    def _cost_point(self, item: ShapeSeconds) -> CostPoint:
        shape = item.shape
        return CostPoint(
            model=shape.model,
            role=shape.role,
            kind=shape.kind,
            width=shape.width,
            context=shape.context,
            seconds=self._interval(item.seconds),
            samples=item.samples,
        )

    def _efficiencies(self):
        """One for each target with timed steps and known bytes, at its shortest context."""
        for model in self.profile.models if self.bandwidth else ():
            table = self.tables.of(model.label, "target")
            target = any(candidate.target == model.label for candidate in self.profile.candidates)
            if self.bandwidth and target and model.size_bytes and table is not None and 1 in table.widths:
                seconds = table.at(1, table.contexts[0])[..., 0]
                share = (model.size_bytes - model.unread_bytes) / (seconds * self.bandwidth.bytes_per_second)
                yield QuantEfficiency(target=model.label, quant=model.quant, share=self._interval(share))

    def _overhead(self, pair: PairRounds) -> Overhead:
        return Overhead(
            target=pair.pair.target,
            drafter=pair.pair.drafter,
            draft=pair.pair.draft,
            constant_seconds=self._interval(pair.overhead.constant),
            per_token_seconds=self._interval(pair.overhead.per_token),
            fitted_lengths=pair.fitted_lengths,
        )

    def _acceptances(self):
        for candidate in self.profile.candidates:
            longest = candidate.setting(max(candidate.draft_tokens, default=0))
            for workload in self.workloads() if longest.draft_tokens else ():
                try:
                    yield self._acceptance(longest, workload)
                except NotCalibrated:
                    continue

    def _acceptance(self, setting: Setting, workload: str) -> Acceptance:
        found = self._replies(setting, workload)
        survival = replies.known_survival(found, setting.draft_tokens)
        bounds = [self._interval(drawn) for drawn in self.survival_draws(setting, workload).T[: survival.size]]
        rounds_of = [reply.law for reply in found.replies]
        return Acceptance(
            target=setting.target,
            drafter=setting.drafter,
            draft=setting.draft,
            workload=workload,
            survival=tuple(float(s) for s in survival),
            survival_low=tuple(bound.low for bound in bounds),
            survival_high=tuple(bound.high for bound in bounds),
            offer_rate=self.offer_rate(setting, workload),
            prompts=len(set(found.places)),
            positions=round(sum(law.tokens for law in rounds_of)),
            source=f"prior: {found.source} of {found.borrowed_from}" if found.borrowed_from else found.source,
        )

    def _breakdowns(self):
        for candidate in self.profile.candidates:
            for length in sorted(set(candidate.draft_tokens) - {0}):
                setting = candidate.setting(length)
                pair = next((p for p in self.pairs if p.pair == Pair.of(setting)), None)
                if pair is not None:
                    contexts = [o.context for o in pair.observations] or list(pair.cost.target.contexts[:1])
                    yield self.modelled_round(setting, length, float(np.mean(contexts)))

    def _notes(self):
        yield from self._clock_notes()
        for model in self.profile.models:
            if model.random:
                yield f"{model.label}: {replies.RANDOM}"
        for check in acceptance_checks(self.profile):
            yield _check_note(check)
        for target in dict.fromkeys(c.target for c in self.profile.candidates):
            table = self.tables.of(target, "target")
            if table is not None:
                yield f"{target}: kernel segments of a pass end after widths {', '.join(map(str, table.switches))}"
                for workload in self.workloads():
                    factor = self.reply_factor(target, workload)[0]
                    yield f"{target} on {workload}: round seconds x {factor:.4f}, from plain runs over plain steps"
        for pair in self.pairs:
            name = f"{pair.pair.target} x {pair.pair.draft or pair.pair.drafter}"
            if pair.composite:
                yield f"{name}: composite recipe, rounds measured whole"
            elif not pair.observations:
                lender = f"of {pair.borrowed_from.target}" if pair.borrowed_from else "taken as 0"
                yield f"{name}: no rounds measured; overhead {lender} (prior)"
            elif pair.in_situ[0] < 1:
                yield f"{name}: rounds take {pair.in_situ[0]:.2f} x their passes timed apart, so that no overhead can be told"
            elif more := rounds.lengths_to_identify(pair):
                yield (
                    f"{name}: overhead per drafted token cannot be told from rounds at {_listed(pair.fitted_lengths)} draft "
                    f"tokens, it is taken as 0: measure rounds at {_listed(more)}"
                )
        yield (
            f"session noise of a median speed: {self.session_log_sd:.4f} (fraction); of a drafting one also "
            f"{self.priors.minutes_apart_log_sd:.2f} for round times taken minutes apart (prior)"
        )

    def _clock_notes(self):
        """By which clock times are told where it is not the wall's, and what of a wall second no device works in."""
        if self.clock != WALL:
            yield f"all times are {WORDS[self.clock]}"
        for model in self.profile.models if self.clock == WALL else ():
            share = evidence.share_off_device(self.profile, model.label)
            if share is not None:
                yield f"{model.label}: {share:.1%} of a plain step is no work of the device: launches and the host's loop"


def _check_note(check: AcceptanceCheck) -> str:
    off = check.replayed_tokens_per_round / check.measured_tokens_per_round - 1
    return (
        f"{check.target} x {check.draft or check.drafter} on {check.workload}: {check.replayed_tokens_per_round:.3f} tokens a round "
        f"by replay at {check.draft_tokens} draft tokens, {check.measured_tokens_per_round:.3f} in {check.rounds} real rounds "
        f"({off:+.1%})"
    )


def calibrate(
    profile: Profile,
    *,
    seed: int = 1,
    replicates: int = 400,
    level: float = 0.95,
    resample_prompts: bool = True,
    priors: Priors = ENGINES,
    clock: str = WALL,
) -> Calibrated:
    """The calibrated model of `profile`; the same profile and seed give the same model.

    `resample_prompts` draws prompts with replacement: bounds then hold for other prompts of the workload too. Without it
    they hold for the profile's own list. `clock`: wall, or thread_cpu; raises NotCalibrated where some of the evidence was not
    timed by it.
    """
    profile, seed = on_clock(profile, clock), Seed.of(seed, profile)
    drift = evidence.drift_of(profile)
    shapes = rounds.replicate_shapes(evidence.step_observations(profile, drift), seed, replicates)
    tables = _with_run_tables(profile, rounds.step_tables(shapes), seed, replicates)
    return Calibrated(
        profile=profile,
        seed=seed,
        replicates=replicates,
        level=level,
        resample_prompts=resample_prompts,
        drift=drift,
        shapes=shapes,
        tables=tables,
        pairs=_fit_pairs(profile, drift, tables, seed, replicates, priors),
        run_noise=replies.run_noise(profile, tables, drift),
        session_log_sd=replies.session_log_sd(profile, drift, priors.least_session_log_sd),
        bandwidth=_bandwidth(profile, seed, replicates),
        measured_lengths=evidence.measured_lengths(profile) | reported.lengths_of(profile),
        priors=priors,
        clock=clock,
    )


def ceiling_at_perfect_acceptance(profile: Profile, candidate: Candidate) -> float:
    """Tokens/s that no draft length of `candidate` can exceed, from step times alone: max over g of (g + 1) / T(g).

    T without overhead at the shortest context; lengths beyond the table are left out. Raises NotCalibrated, and
    BeyondTable where no length is inside it.
    """
    drift = evidence.drift_of(profile)
    tables = rounds.step_tables(rounds.replicate_shapes(evidence.step_observations(profile, drift), 1, 0))
    pair = Pair.of(candidate)
    recipe = profile.engine.recipe(candidate.drafter)
    cost = rounds.fit_pair(pair, (), tables, max(candidate.draft_tokens), 1, 0, recipe=recipe).cost
    context = float(cost.target.contexts[0])
    lengths = [g for g in candidate.draft_tokens if g > 0]
    inside = [g for g in lengths if not cost.lookup(Rounds.of(g, context)).doubtful.any()]
    if not inside:
        found = cost.lookup(Rounds.of(lengths[0], context))
        raise BeyondTable(perfect_acceptance(cost, lengths[0], context), found.remedy)
    return max(float(perfect_acceptance(cost, g, context).flat[0]) for g in inside)


def plain_step_speed(profile: Profile, target: str) -> float:
    """Tokens/s of plain decoding by step times alone, at the shortest context. Raises NotCalibrated."""
    drift = evidence.drift_of(profile)
    tables = rounds.step_tables(rounds.replicate_shapes(evidence.step_observations(profile, drift), 1, 0))
    table = tables.of(target, "target")
    if table is None or 1 not in table.widths:
        raise NotCalibrated(f"{target}: no decode steps: profile them")
    return 1 / float(table.at(1, table.contexts[0]).flat[0])


def _listed(lengths: tuple[int, ...]) -> str:
    return ", ".join(map(str, lengths))


def _reported_table(target: str, told: dict[int, np.ndarray], seed: int, replicates: int) -> StepTable:
    """Plain steps by context, as others reported them."""
    columns = [
        replicated_median(seconds, generator(seed, "plain", target, context), replicates, Noise(ROW_LOG_SD))
        for context, seconds in told.items()
    ]
    return StepTable(np.array([1]), np.array(list(told), float), np.stack(columns, axis=-1)[..., None])


def _with_run_tables(profile: Profile, tables: StepTables, seed: int, replicates: int) -> StepTables:
    """Targets without decode steps get one of the mean step of their plain runs, or of the plain speeds reported."""
    found = dict(tables.tables)
    for target in dict.fromkeys(c.target for c in profile.candidates):
        known, runs = tables.of(target, "target"), evidence.plain_replies(profile, target)
        if known is None and runs:
            steps = [reply.decode_seconds / (reply.reply_tokens - 1) for reply in runs if reply.reply_tokens > 1]
            contexts = [reply.prompt_tokens + reply.reply_tokens / 2 for reply in runs]
            seconds = np.full((1 + replicates, 1, 1), np.median(steps))
            found[target, "target"] = StepTable(np.array([1]), np.array([np.mean(contexts)]), seconds)
        elif known is None and (told := reported.plain_seconds(profile, target)):
            found[target, "target"] = _reported_table(target, told, seed, replicates)
    return StepTables(found, tables.verification)


def _fit_pairs(
    profile: Profile, drift: Drift, tables: StepTables, seed: int, replicates: int, priors: Priors
) -> tuple[PairRounds, ...]:
    """Every drafting pair that can be modelled; those with rounds first, since they lend their overhead."""
    longest: dict[Pair, int] = defaultdict(int)
    for candidate in profile.candidates:
        if candidate.drafter in RECIPES and max(candidate.draft_tokens, default=0) > 0:
            longest[Pair.of(candidate)] = max(longest[Pair.of(candidate)], *candidate.draft_tokens)
    seen = {
        pair: evidence.round_observations(profile, pair, drift) or reported.round_observations(profile, pair)
        for pair in longest
    }
    fitted: list[PairRounds] = []
    for pair in sorted(longest, key=lambda p: not seen[p]):
        lender = next((f for f in fitted if f.pair.drafter == pair.drafter and f.observations), None)
        try:
            recipe = profile.engine.recipe(pair.drafter)
            fitted.append(
                rounds.fit_pair(pair, seen[pair], tables, longest[pair], seed, replicates, lender, priors, recipe)
            )
        except NotCalibrated:
            continue
    return tuple(fitted)


def _bandwidth(profile: Profile, seed: int, replicates: int) -> Bandwidth | None:
    """The best source: read, then copy, then the driver's specification; the fastest median where there are several."""
    samples = [
        s for m in profile.measurements for s in m.bandwidth if s.bytes_per_second and min(s.bytes_per_second) > 0
    ]
    for operation in ("read", "copy", "spec"):
        of_kind = [s for s in samples if s.operation == operation]
        if of_kind:
            best = max(of_kind, key=lambda s: float(np.median(s.bytes_per_second)))
            values = np.array(best.bytes_per_second)
            drawn = replicated_median(values, generator(seed, "bandwidth"), replicates, Noise(0.01))
            return Bandwidth(drawn, operation, best.provenance)
    return None

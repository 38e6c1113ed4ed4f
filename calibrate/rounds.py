"""Round costs from evidence: step tables, and for each pair the overhead and correction that its rounds show."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ..model.cost import Overhead, RoundCost, RoundOfParts, Rounds, WholeRounds
from ..model.curve import Curve
from ..model.recipe import COMPOSITE, RECIPES
from ..model.steps import StepTable, find_switches
from .evidence import Pair, RoundObservation, Shape, StepObservation
from .intervals import Noise, generator, log_noise, pooled_noise, replicated_median
from .priors import ENGINES, Priors

FITTED_LENGTHS = 3
"""Overhead is fitted on rounds at no more than this many draft lengths."""
BORROWED_LOG_SD = 0.08
"""How far a round may lie from its recipe where the pair has no rounds at all and the overhead is another pair's (prior)."""
LEAST_LOG_SD = 0.003
"""What a median of round times is off by at least."""


PLAIN_REMEDY = "profile its plain decoding, or import its baseline"


class NotCalibrated(ValueError):
    """The profile does not hold what a forecast needs; the message says what to measure."""


@dataclass(frozen=True)
class PairRounds:
    """Round cost of one pair, and what it rests on. `measured` (1 + replicates, L): round times of `observations`."""

    pair: Pair
    cost: RoundCost
    observations: tuple[RoundObservation, ...]
    measured: np.ndarray
    overhead: Overhead
    fitted_lengths: tuple[int, ...]
    borrowed_from: Pair | None = None
    in_situ: np.ndarray = field(default_factory=lambda: np.ones(1))
    """(R,) Seconds of a round's passes in the round over those timed apart, where no overhead can be told from them."""

    @property
    def composite(self) -> bool:
        return isinstance(self.cost, WholeRounds)

    def observed(self, drafted: int) -> int | None:
        """Index of the observation at `drafted` tokens."""
        return next((i for i, o in enumerate(self.observations) if o.drafted == drafted), None)


@dataclass(frozen=True)
class StepTables:
    """Step tables by (model, role). A model timed in one role only serves in the other too.

    `verification` by model: passes with all rows of output, where those were timed.
    """

    tables: Mapping[tuple[str, str], StepTable]
    verification: Mapping[str, StepTable] = field(default_factory=dict)

    def of(self, model: str, role: str) -> StepTable | None:
        other = "draft" if role == "target" else "target"
        return self.tables.get((model, role)) or self.tables.get((model, other))

    def verifying(self, target: str) -> StepTable | None:
        """What a target's verification costs, its plain step at width 1; from prompt passes where nothing better is."""
        return self.verification.get(target) or self.of(target, "target")


@dataclass(frozen=True)
class ShapeSeconds:
    """A shape's seconds (1 + replicates,) and how many samples they rest on."""

    shape: Shape
    seconds: np.ndarray
    samples: int


def replicate_shapes(observations: Iterable[StepObservation], seed: int, replicates: int) -> tuple[ShapeSeconds, ...]:
    """Medians of step samples by shape, with draws; noise is that of passes of a model and kind. A batch of 1 is no step."""
    passes = [
        o
        for o in observations
        if o.shape.kind == "decode" or (o.shape.kind in ("batch", "verify") and o.shape.width > 1)
    ]
    kinds: dict[tuple[str, str, str], list[np.ndarray]] = defaultdict(list)
    for one in passes:
        kinds[one.shape.kind_of_pass].append(one.seconds)
    noise = {kind: pooled_noise(groups) for kind, groups in kinds.items()}
    return tuple(
        ShapeSeconds(
            o.shape,
            replicated_median(o.seconds, generator(seed, o.shape), replicates, noise[o.shape.kind_of_pass]),
            o.seconds.size,
        )
        for o in passes
    )


def step_tables(shapes: Iterable[ShapeSeconds]) -> StepTables:
    """One table a model and role, kernel switches found in it, and one of verification where such passes were timed."""
    groups: dict[tuple[str, str], list[ShapeSeconds]] = defaultdict(list)
    verifying: dict[str, list[ShapeSeconds]] = defaultdict(list)
    for item in shapes:
        if item.shape.kind == "verify":
            verifying[item.shape.model].append(item)
        else:
            groups[item.shape.model, item.shape.role].append(item)
    tables = StepTables({owner: _table(items) for owner, items in groups.items()})
    rows = {
        model: _output_rows(plain, items)
        for model, items in verifying.items()
        if (plain := tables.of(model, "target")) is not None
    }
    if not rows:
        return tables
    # Targets whose verification was not timed borrow the rows of one whose was: a prior, better than none.
    lent = next(iter(rows.values()))
    verification = {
        model: _verification_table(table, rows.get(model, lent))
        for (model, role), table in tables.tables.items()
        if role == "target" and (table.widths > 1).any()
    }
    return StepTables(tables.tables, verification)


@dataclass(frozen=True)
class OutputRows:
    """What a row of output for each token adds to a prompt pass: seconds (R, W) at `widths` (W,), rising, at `context`."""

    widths: np.ndarray
    context: float
    seconds: np.ndarray


def _output_rows(plain: StepTable, items: list[ShapeSeconds]) -> OutputRows:
    items = sorted(items, key=lambda item: item.shape.width)
    widths, context = np.array([i.shape.width for i in items]), float(items[0].shape.context)
    timed = np.stack([item.seconds for item in items], axis=-1)
    return OutputRows(widths, context, timed - plain.lookup(widths, context).seconds)


def _verification_table(plain: StepTable, rows: OutputRows) -> StepTable:
    """Prompt passes plus their rows of output, where those were timed; from there along the slope over the context.

    Attention over the cached tokens is the same work in both kinds of pass. Width 1 is the plain step.
    """
    timed = plain.lookup(rows.widths, rows.context).seconds + rows.seconds
    wide = timed[:, None, :] + _context_slope(plain, rows.widths)[:, None, :] * (plain.contexts - rows.context)[:, None]
    steps = plain.lookup(np.ones(plain.contexts.size, int), plain.contexts).seconds[..., None]
    return StepTable(
        np.array([1, *rows.widths]), plain.contexts, np.concatenate([steps, wide], axis=-1), plain.switches
    )


def _context_slope(plain: StepTable, widths: np.ndarray) -> np.ndarray:
    """Seconds a cached token adds to a pass (R, W): a line over the widths, since each token's attention is its own work.

    One line through all widths is quieter than the difference of two cells at each.
    """
    if plain.contexts.size < 2:
        return np.zeros((plain.seconds.shape[0], widths.size))
    timed = plain.widths[plain.widths > 1]
    first, last = (plain.seconds[:, at, plain.widths > 1] for at in (0, -1))
    slopes = (last - first) / (plain.contexts[-1] - plain.contexts[0])
    if timed.size < 2:
        return np.repeat(slopes, widths.size, axis=-1)
    design = np.stack([np.ones(timed.size), timed], axis=1)
    solved = slopes @ np.linalg.pinv(design).T
    return solved[:, :1] + solved[:, 1:] * widths


def _table(items: list[ShapeSeconds]) -> StepTable:
    cells = {(item.shape.context, item.shape.width): item.seconds for item in items}
    contexts, widths = sorted({c for c, _ in cells}), sorted({w for _, w in cells})
    columns = [_column(cells, contexts, widths, width) for width in widths]
    seconds = np.stack(columns, axis=-1)
    noise = float(np.median(np.log(seconds).std(axis=0)))
    switches = find_switches(np.array(widths), seconds[0].mean(axis=0), noise)
    return StepTable(np.array(widths), np.array(contexts, float), seconds, switches)


def _column(
    cells: Mapping[tuple[int, int], np.ndarray], contexts: list[int], widths: list[int], width: int
) -> np.ndarray:
    """Seconds (R, C) of one width; contexts not measured by its own line, or by the slope of the nearest width's."""
    known = [c for c in contexts if (c, width) in cells]
    if len(known) > 1:
        intercept, slope = _context_line(cells, known, width)
    else:
        slope = _borrowed_slope(cells, contexts, widths, width)
        intercept = cells[known[0], width] - slope * known[0]
    filled = [cells.get((c, width), np.maximum(intercept + slope * c, cells[known[0], width] / 4)) for c in contexts]
    return np.stack(filled, axis=-1)


def _context_line(cells: Mapping[tuple[int, int], np.ndarray], known: list[int], width: int):
    """Intercept and slope (R,) through the shortest and longest known context."""
    first, last = cells[known[0], width], cells[known[-1], width]
    slope = (last - first) / (known[-1] - known[0])
    return first - slope * known[0], slope


def _borrowed_slope(cells, contexts: list[int], widths: list[int], width: int) -> np.ndarray | float:
    for other in sorted(widths, key=lambda w: abs(w - width)):
        known = [c for c in contexts if (c, other) in cells]
        if len(known) > 1:
            return _context_line(cells, known, other)[1]
    return 0.0


@dataclass(frozen=True)
class _Measured:
    """Round times (R, L) of a pair, their noise (L,), lengths and contexts."""

    lengths: np.ndarray
    contexts: np.ndarray
    seconds: np.ndarray
    log_sd: np.ndarray


def fit_pair(
    pair: Pair,
    observations: tuple[RoundObservation, ...],
    tables: StepTables,
    longest: int,
    seed: int,
    replicates: int,
    lender: PairRounds | None = None,
    priors: Priors = ENGINES,
    recipe: tuple[str, ...] | None = None,
) -> PairRounds:
    """Cost of `pair` for 1..`longest` drafted tokens. `lender`: a pair whose overhead serves where this one has none.
    `recipe`: the engine's terms of a round; llama.cpp's where None.

    From its parts where passes of every width were timed, else from whole rounds. Raises NotCalibrated.
    """
    target = tables.verifying(pair.target)
    if target is None:
        raise NotCalibrated(f"{pair.target}: no step times and no plain runs: {PLAIN_REMEDY}")
    draft = tables.of(pair.draft, "draft") if pair.drafter == "model" else None
    recipe = recipe or RECIPES.get(pair.drafter, COMPOSITE)
    measured = _replicate(pair, observations, seed, replicates)
    if recipe != COMPOSITE and _has_batches(target) and (pair.drafter != "model" or _has_batches(draft)):
        if observations:
            return _of_parts(pair, recipe, target, draft, observations, measured, longest, seed, priors)
        return _borrowed(pair, recipe, target, draft, lender, longest, seed, replicates)
    if not observations:
        raise NotCalibrated(
            f"{pair.target} x {pair.draft or pair.drafter}: neither step nor round times: profile rounds"
        )
    return _whole(pair, target, observations, measured, longest, seed, priors)


def _has_batches(table: StepTable | None) -> bool:
    return table is not None and 1 in table.widths and bool((table.widths > 1).any())


def _replicate(pair: Pair, observations: tuple[RoundObservation, ...], seed: int, replicates: int) -> _Measured:
    noise = pooled_noise(o.seconds for o in observations).moderated()
    seconds = [
        replicated_median(
            o.seconds,
            generator(seed, "round", pair, o.drafted, o.context),
            replicates,
            noise if o.log_sd is None else Noise(o.log_sd),
        )
        * log_noise(generator(seed, "drift", pair, o.drafted, o.context), replicates, o.drift_log_sd)
        for o in observations
    ]
    stacked = np.stack(seconds, axis=-1) if seconds else np.zeros((1 + replicates, 0))
    log_sd = np.maximum(np.log(stacked).std(axis=0), LEAST_LOG_SD) if seconds else np.zeros(0)
    lengths, contexts = [o.drafted for o in observations], [o.context for o in observations]
    return _Measured(np.array(lengths, int), np.array(contexts, float), stacked, log_sd)


def _of_parts(
    pair: Pair,
    recipe: tuple[str, ...],
    target: StepTable,
    draft: StepTable | None,
    observations: tuple[RoundObservation, ...],
    measured: _Measured,
    longest: int,
    seed: int,
    priors: Priors,
) -> PairRounds:
    """Recipe + overhead fitted at three lengths at most + the rest at measured lengths, interpolated in a segment.

    Rounds that take less than their passes timed apart have no overhead to tell: passes in a round are then cheaper by one
    share (caches that are warm, work that overlaps), which holds at every context where an overhead below zero does not.
    """
    bare = RoundOfParts(recipe, target, draft)
    passes = bare.terms(Rounds.of(measured.lengths, measured.contexts)).total()
    fitted = _fitted_lengths(measured.lengths)
    doubt = np.maximum(((measured.seconds - passes) / measured.seconds[0]).std(axis=0), measured.log_sd)
    used = np.isin(measured.lengths, fitted)
    overhead, in_situ = _fit_overhead(measured, passes, doubt, used), np.zeros(len(measured.seconds))
    if overhead.at(measured.lengths[used])[0].mean() < 0:
        overhead, in_situ = Overhead(0 * in_situ, 0 * in_situ), _fit_in_situ(measured, passes, doubt, used)
    rest = np.log(measured.seconds / np.maximum(passes + overhead.at(measured.lengths), 0.1 * measured.seconds))
    rest = rest - in_situ[:, None]
    unexplained = max(float(np.sqrt(np.mean(rest[0] ** 2))), priors.model_log_sd)
    rest = rest * (1 - measured.log_sd**2 / (unexplained**2 + doubt**2))
    correction = _correction(pair, target, measured.lengths, rest, unexplained, longest, seed, priors)
    round_cost = RoundOfParts(recipe, target, draft, overhead, correction * np.exp(in_situ)[:, None])
    return PairRounds(pair, round_cost, observations, measured.seconds, overhead, fitted, in_situ=np.exp(in_situ))


def _fitted_lengths(lengths: np.ndarray) -> tuple[int, ...]:
    """At most three of the measured lengths: the ends and the one nearest their middle."""
    if lengths.size <= FITTED_LENGTHS:
        return tuple(int(n) for n in lengths)
    inner = lengths[1:-1]
    middle = inner[np.abs(inner - (lengths[0] + lengths[-1]) / 2).argmin()]
    return int(lengths[0]), int(middle), int(lengths[-1])


def lengths_to_identify(pair: PairRounds) -> tuple[int, ...]:
    """Draft lengths whose rounds would tell overhead per drafted token; none where it is fitted."""
    longest = pair.cost.correction.shape[-1] if pair.cost.correction is not None else 0
    missing = [n for n in (longest, 1, (1 + longest) // 2) if n > 0 and n not in pair.fitted_lengths]
    return tuple(sorted(dict.fromkeys(missing[: max(FITTED_LENGTHS - len(pair.fitted_lengths), 0)])))


def _fit_overhead(measured: _Measured, passes: np.ndarray, doubt: np.ndarray, used: np.ndarray) -> Overhead:
    """Least squares in every replicate, weighted by the `doubt` (L,) of what the passes leave of each length (a fraction of
    the round); the constant alone below three lengths."""
    lengths = measured.lengths[used]
    design = np.stack([np.ones(lengths.size), lengths], axis=1)[:, : 2 if lengths.size >= FITTED_LENGTHS else 1]
    weight = 1 / (measured.seconds[0, used] * doubt[used])
    solved = ((measured.seconds - passes)[:, used] * weight) @ np.linalg.pinv(design * weight[:, None]).T
    return Overhead(solved[:, 0], solved[:, 1] if solved.shape[1] > 1 else np.zeros(solved.shape[0]))


def _fit_in_situ(measured: _Measured, passes: np.ndarray, doubt: np.ndarray, used: np.ndarray) -> np.ndarray:
    """Log (R,) of what a round's passes take in a round over what they take apart: the weighted mean of the lengths."""
    logs = np.log(measured.seconds[:, used] / passes[:, used])
    return np.average(logs, axis=-1, weights=1 / doubt[used] ** 2)


def _correction(
    pair: Pair,
    target: StepTable,
    lengths: np.ndarray,
    rest: np.ndarray,
    spread: float | np.ndarray,
    longest: int,
    seed: int,
    priors: Priors,
) -> np.ndarray:
    """Factors (R, G) for 1..G: exp of the log `rest` (R, L), interpolated within a kernel segment, with its doubt.

    `spread`: log sd at lengths that were not measured, of all or of each of 1..G.
    """
    columns, spreads = [], np.broadcast_to(spread, max(longest, int(lengths.max())))
    for drafted in range(1, max(longest, int(lengths.max())) + 1):
        same = [i for i, n in enumerate(lengths) if target.segment(n + 1) == target.segment(drafted + 1)]
        exact = drafted in lengths[same]
        doubt = 0.0 if exact else float(spreads[drafted - 1]) if same else priors.unseen_segment_log_sd
        noise = log_noise(generator(seed, "length", pair, drafted), rest.shape[0] - 1, doubt)
        columns.append(np.exp(_interpolated(lengths[same], rest[:, same], drafted)) * noise)
    return np.stack(columns, axis=-1)


def _interpolated(lengths: np.ndarray, rest: np.ndarray, drafted: int) -> np.ndarray | float:
    """`rest` (R, L) at `drafted`: linear between lengths, constant beyond, 0 where there are none."""
    if not lengths.size:
        return 0.0
    right = int(np.clip(np.searchsorted(lengths, drafted), 1, max(lengths.size - 1, 1)))
    if lengths.size == 1:
        return rest[:, 0]
    share = np.clip((drafted - lengths[right - 1]) / (lengths[right] - lengths[right - 1]), 0, 1)
    return rest[:, right - 1] + share * (rest[:, right] - rest[:, right - 1])


def _borrowed(
    pair: Pair,
    recipe: tuple[str, ...],
    target: StepTable,
    draft: StepTable | None,
    lender: PairRounds | None,
    longest: int,
    seed: int,
    replicates: int,
) -> PairRounds:
    """No rounds of this pair: the lender's overhead, scaled by the plain steps, and its passes in situ; neither without."""
    overhead, in_situ = Overhead(np.zeros(1 + replicates), np.zeros(1 + replicates)), np.ones(1)
    if lender is not None and not lender.composite:
        context = np.array([target.contexts[0]])
        own, theirs = (t.lookup(np.array([1]), context).seconds[..., 0] for t in (target, lender.cost.target))
        overhead = Overhead(lender.overhead.constant * own / theirs, lender.overhead.per_token * own / theirs)
        in_situ = lender.in_situ
    doubts = [log_noise(generator(seed, "borrowed", pair), replicates, BORROWED_LOG_SD)] * longest
    round_cost = RoundOfParts(recipe, target, draft, overhead, np.stack(doubts, axis=-1) * in_situ[:, None])
    nothing = np.zeros((1 + replicates, 0))
    return PairRounds(pair, round_cost, (), nothing, overhead, (), borrowed_from=lender.pair if lender else None)


def _whole(
    pair: Pair,
    target: StepTable,
    observations: tuple[RoundObservation, ...],
    measured: _Measured,
    longest: int,
    seed: int,
    priors: Priors,
) -> PairRounds:
    """Rounds measured whole, over the plain step of the target behind the same context."""
    plain = target.lookup(np.ones_like(measured.lengths), measured.contexts).seconds
    lengths, contexts, ratio = _ratios(measured, measured.seconds / plain)
    switches = tuple(s - 1 for s in target.switches)
    longest = max(longest, int(lengths.max()))
    band = Curve(lengths, ratio[0], switches, origin=np.ones(contexts.size)).at(np.arange(1, longest + 1))
    doubt = np.hypot(priors.model_log_sd, np.log(band.high / np.maximum(band.low, 0.1 * band.value)).max(axis=0) / 4)
    nothing = np.zeros((measured.seconds.shape[0], lengths.size))
    correction = _correction(pair, target, lengths, nothing, doubt, longest, seed, priors)
    round_cost = WholeRounds(target, lengths, contexts, ratio, correction)
    zero = np.zeros(measured.seconds.shape[0])
    return PairRounds(pair, round_cost, observations, measured.seconds, Overhead(zero, zero), ())


def _ratios(measured: _Measured, ratio: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lengths (L,), contexts (C,) and ratios (R, C, L) of whole rounds.

    By context where every length was measured in each; else the mean over contexts at each length, at their mean.
    """
    lengths, contexts = np.unique(measured.lengths), np.unique(measured.contexts)
    cells = {(n, c): i for i, (n, c) in enumerate(zip(measured.lengths, measured.contexts))}
    if len(cells) == lengths.size * contexts.size:
        order = [[cells[n, c] for n in lengths] for c in contexts]
        return lengths, contexts, ratio[:, order]
    means = [ratio[:, measured.lengths == n].mean(axis=1) for n in lengths]
    return lengths, np.array([contexts.mean()]), np.stack(means, axis=-1)[:, None, :]

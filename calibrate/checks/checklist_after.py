"""The checklist of seven points, judged by a profile and what was derived from it."""

import itertools
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from ...profiler.pairs.sizes import INT8_BITS
from ...profiler.records import ModelFile, Profile, StepSample
from ..records import Acceptance, Calibration, Recommendation, SettingForecast, Validation
from .checklist import BITS, LENGTH, ROOM, SAMPLING, SEED, TOKENIZER, WARM, item
from .records import FAIL, NOT_MEASURED, PASS, ChecklistItem, SamplingField
from .sampling import runs_of, sampling_parity

HELD = 0.05
"""An acceptance of the first drafted token (S_1) this far below the int8 copy's still counts as held."""
EIGHT_BITS = re.compile("q8|int8|fp8|w8|f16|f32", re.IGNORECASE)
FEWER_BITS = re.compile("q[1-6]|tq|w4|nf4|int4|fp4|awq|gptq", re.IGNORECASE)


def checklist_after(
    profile: Profile,
    calibration: Calibration,
    recommendation: Recommendation,
    validation: Validation | None = None,
    asked_draft_tokens: int | None = None,
) -> tuple[ChecklistItem, ...]:
    """The seven points of the recommended setting from what was measured.

    `asked_draft_tokens`: the user's own draft length, judged instead of the recommended ones.
    """
    return (
        _same_hash(profile, recommendation),
        _held(profile, calibration, recommendation),
        _used_sampling(sampling_parity(runs_of(profile))),
        _best_region(recommendation, validation, asked_draft_tokens),
        _room_left(profile, recommendation),
        _warmed_up(profile),
        _seeds(profile),
    )


def _same_hash(profile: Profile, recommendation: Recommendation) -> ChecklistItem:
    models = {model.label: model for model in profile.models}
    pairs = _draft_pairs(profile, recommendation, models)
    if not pairs:
        return item(TOKENIZER, PASS, "no draft model: drafted tokens are the target's own")
    blind = [draft.label for target, draft in pairs if not (target.tokenizer_sha256 and draft.tokenizer_sha256)]
    if blind:
        return item(TOKENIZER, NOT_MEASURED, f"no vocabulary known for {', '.join(dict.fromkeys(blind))} or its target")
    unequal = [draft.label for target, draft in pairs if target.tokenizer_sha256 != draft.tokenizer_sha256]
    if unequal:
        return item(TOKENIZER, FAIL, f"another tokenizer than the target's: {', '.join(dict.fromkeys(unequal))}")
    drafts = dict.fromkeys(draft.label for _, draft in pairs)
    return item(TOKENIZER, PASS, f"tokenizers of target and draft have one hash ({', '.join(drafts)})")


def _draft_pairs(
    profile: Profile, recommendation: Recommendation, models: dict[str, ModelFile]
) -> list[tuple[ModelFile, ModelFile]]:
    """The recommended pair where it has a draft model, else all pairs that were candidates."""
    candidates = [c for c in profile.candidates if c.drafter == "model" and c.target in models and c.draft in models]
    chosen = [c for c in candidates if c.draft == recommendation.chosen.draft]
    return [(models[c.target], models[c.draft]) for c in chosen or candidates]


def _held(profile: Profile, calibration: Calibration, recommendation: Recommendation) -> ChecklistItem:
    models = {model.label: model for model in profile.models}
    drafts = dict.fromkeys(draft.label for _, draft in _draft_pairs(profile, recommendation, models))
    if not drafts:
        return item(BITS, NOT_MEASURED, "no draft model among the candidates")
    low = [models[label] for label in drafts if not is_int8(models[label])]
    if not low:
        return item(BITS, PASS, f"{', '.join(models[label].quant for label in drafts)}: 8 bits a weight or more")
    return _beside_int8(min(low, key=_mean_bits), models, calibration)


def _beside_int8(draft: ModelFile, models: dict[str, ModelFile], calibration: Calibration) -> ChecklistItem:
    """A draft below int8 against its int8 copy on the same target and workload, by the acceptance of the first token."""
    copies = {
        m.label for m in models.values() if is_int8(m) and (m.name, m.parameters) == (draft.name, draft.parameters)
    }
    found = [
        (own, other)
        for own in calibration.acceptance
        for other in calibration.acceptance
        if own.draft == draft.label and other.draft in copies and _comparable(own, other)
    ]
    bits = f"{draft.quant} has about {_mean_bits(draft):.1f} bits a weight"
    if not found:
        return item(BITS, FAIL, f"{bits} and no int8 copy of this draft was measured beside it")
    own, other = max(found, key=lambda pair: pair[1].survival[0] - pair[0].survival[0])
    told = f"{bits}; its first token is accepted {own.survival[0]:.2f} of the time, {other.survival[0]:.2f} from {other.draft}"
    held = own.survival[0] >= other.survival[0] - HELD
    return item(BITS, PASS if held else FAIL, f"{told}, workload {own.workload}")


def _comparable(own: Acceptance, other: Acceptance) -> bool:
    return (own.target, own.workload) == (other.target, other.workload) and bool(own.survival and other.survival)


def is_int8(model: ModelFile) -> bool:
    """Whether a file holds 8 bits a weight or more: by its quantization's name, else by its mean."""
    if EIGHT_BITS.search(model.quant):
        return True
    return not FEWER_BITS.search(model.quant) and _mean_bits(model) >= INT8_BITS


def _mean_bits(model: ModelFile) -> float:
    return 8 * model.size_bytes / model.parameters if model.parameters else 0.0


def _used_sampling(fields: Sequence[SamplingField]) -> ChecklistItem:
    told = [field for field in fields if field.equal is not None]
    if not told:
        return item(SAMPLING, NOT_MEASURED, "the engine did not say what it used")
    unequal = [field for field in told if not field.equal]
    if unequal:
        words = ", ".join(f"{field.name} {field.used} where {field.sent} was sent" for field in unequal)
        return item(SAMPLING, FAIL, f"{words} ({unequal[0].where})")
    missing = [field.name for field in fields if field.equal is None]
    silent = f"; not told: {', '.join(missing)}" if missing else ""
    return item(SAMPLING, PASS, f"{len(told)} settings sent were used as sent, in every run{silent}")


def _best_region(recommendation: Recommendation, validation: Validation | None, asked: int | None) -> ChecklistItem:
    if asked is None and validation is not None and validation.rows:
        return _measured_regret(validation)
    found = [_of_workload(recommendation, advice.workload, asked) for advice in recommendation.workloads]
    known = [item for item in found if item is not None]
    if not known:
        return item(LENGTH, NOT_MEASURED, "no forecast of draft lengths")
    outside = [text for inside, text in known if not inside]
    return item(LENGTH, FAIL if outside else PASS, "; ".join(outside or [text for _, text in known]))


def _measured_regret(validation: Validation) -> ChecklistItem:
    low, value = validation.regret_low, validation.regret
    if low <= 0:
        return item(
            LENGTH, PASS, f"run beside the others, the choice cannot be told from the best (regret {value * 100:.1f} %)"
        )
    return item(
        LENGTH,
        FAIL,
        f"run beside the others, the choice is {value * 100:.1f} % slower than the best (at least {low * 100:.1f} %)",
    )


def _of_workload(recommendation: Recommendation, workload: str, asked: int | None) -> tuple[bool, str] | None:
    """Whether the draft length is in the best region of the workload, and that region in words."""
    forecasts = [f for f in recommendation.candidates if f.workload == workload]
    if not forecasts:
        return None
    region = best_region(forecasts, recommendation.level)
    chosen = next(advice.chosen for advice in recommendation.workloads if advice.workload == workload)
    if asked is None:
        wanted = (chosen.drafter, chosen.draft, chosen.draft_tokens)
        inside = wanted in {(f.setting.drafter, f.setting.draft, f.setting.draft_tokens) for f in region}
    else:
        inside = asked in {f.setting.draft_tokens for f in region}
    lengths = ", ".join(str(length) for length in sorted({f.setting.draft_tokens for f in region})[:12])
    asked_or_chosen = chosen.draft_tokens if asked is None else asked
    return inside, f"{workload}: {asked_or_chosen} draft tokens, best region {lengths}"


def best_region(forecasts: Sequence[SettingForecast], level: float) -> list[SettingForecast]:
    """The fewest settings of which one is the best with probability `level`, likeliest first.

    Without probabilities, all whose interval reaches that of the best.
    """
    ranked = sorted(forecasts, key=lambda forecast: -forecast.probability_best)
    if not ranked[0].probability_best:
        best = max(forecasts, key=lambda forecast: forecast.tokens_per_second.value)
        return [f for f in forecasts if f.tokens_per_second.high >= best.tokens_per_second.low]
    covered = itertools.accumulate(forecast.probability_best for forecast in ranked)
    enough = next((i for i, share in enumerate(covered) if share >= level), len(ranked) - 1)
    return ranked[: enough + 1]


def _room_left(profile: Profile, recommendation: Recommendation) -> ChecklistItem:
    lengths = [reply.prompt_tokens + reply.reply_tokens for run in runs_of(profile) for reply in run.replies]
    traces = [prompt for m in profile.measurements for trace in m.traces for prompt in trace.prompts]
    lengths += [prompt.prompt_tokens + prompt.reply_tokens for prompt in traces]
    chosen = recommendation.chosen
    if not lengths or not chosen.context:
        return item(ROOM, NOT_MEASURED, "no reply was run, so that no length is known")
    needed = max(lengths) + 2 * chosen.draft_tokens
    told = (
        f"the longest prompt and reply have {max(lengths):,} tokens, + 2 x {chosen.draft_tokens} drafted, of "
        f"{chosen.context:,} reserved"
    )
    return item(ROOM, PASS if needed <= chosen.context else FAIL, told)


def _warmed_up(profile: Profile) -> ChecklistItem:
    steps = [step for measurement in profile.measurements for step in measurement.steps]
    cold = sum(step.cold for step in steps)
    if cold:
        gain = _gain_from_warming(steps)
        told = f"; a first pass took {gain:.2f} times a warm one (median)" if gain else ""
        return item(WARM, PASS, f"{cold} of {len(steps)} step samples were cold and kept apart{told}")
    own = [m for m in profile.measurements if m.request.action not in ("import", "bandwidth") and not m.unsupported]
    if any(m.runs or m.rounds or m.traces for m in own):
        return item(WARM, PASS, "each server answered ten short requests before it was measured")
    return item(WARM, NOT_MEASURED, "nothing was run here")


def _gain_from_warming(steps: Iterable[StepSample]) -> float | None:
    """Median over shapes of cold over warm seconds; None where no shape has both."""
    shapes: dict[tuple[str, str, str, int, int, int], tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for step in steps:
        shape = (step.model, step.role, step.kind, step.width, step.context, step.streams)
        shapes[shape][not step.cold].extend(step.seconds)
    ratios = [statistics.median(cold) / statistics.median(warm) for cold, warm in shapes.values() if cold and warm]
    return statistics.median(ratios) if ratios else None


def _seeds(profile: Profile) -> ChecklistItem:
    runs = runs_of(profile)
    if not runs:
        return item(SEED, NOT_MEASURED, "no reply was run here")
    seeds = sorted({run.sampling.seed for run in runs})
    if len(seeds) > 1 or seeds[0] < 0:
        return item(SEED, FAIL, f"replies were made with seeds {', '.join(map(str, seeds))}")
    used = {run.effective["seed"] for run in runs if run.effective.get("seed")}
    if used - {str(seeds[0])}:
        return item(SEED, FAIL, f"seed {seeds[0]} was sent, the engine used {', '.join(sorted(used))}")
    return item(SEED, PASS, f"seed {seeds[0]} in all {len(runs)} runs{_repeated(profile)}")


def _repeated(profile: Profile) -> str:
    """How many prompts gave one and the same reply in every repeat of a setting."""
    replies: dict[tuple[str, str], list[str]] = defaultdict(list)
    for run in runs_of(profile):
        for reply in run.replies:
            if reply.reply_sha256:
                replies[repr(run.setting), reply.prompt.id].append(reply.reply_sha256)
    several = [hashes for hashes in replies.values() if len(hashes) > 1]
    same = sum(len(set(hashes)) == 1 for hashes in several)
    return f"; {same} of {len(several)} replies were the same in every repeat" if several else ""

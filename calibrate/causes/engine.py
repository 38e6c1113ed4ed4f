"""The engine: what it does beside the passes, settings that it used otherwise, and how many it serves at once."""

from collections.abc import Iterator

from ..records import Cause
from ..symptoms import SAMPLING, Neighbour
from .case import Case, ms, plural

ENGINE_FIELDS = ("p_min", "build", "flags", "kv_type", "flash_attention", "threads", "backend", "draft_tokens_used")
"""What a neighbour may differ in to show that a setting of the engine is wrong."""
EATS_SHARE = 0.5
"""Overhead is a cause of its own where it eats more than half of the plain steps that accepted tokens save."""


def rollback_copies(case: Case) -> Iterator[Cause]:
    """Recurrent state is copied in every round."""
    if not case.material(case.rollback):
        return
    yield case.takes(
        "rollback-copies",
        "rollback",
        case.rollback,
        derived="the round without copies of the state",
        evidence=f"Copying the recurrent state takes {ms(case.rollback)} of each round of {ms(case.seconds)}: the engine cannot "
        "undo rejected tokens of this model in place, and saves and restores its whole state.",
        change="a build whose rollback is native for this architecture, or checkpoints that stay on the device",
    )


def engine_setting(case: Case) -> Iterator[Cause]:
    """A setting was used otherwise than it was sent, or one is known with which the same run is faster."""
    differing = [one for one in case.symptoms.differing() if one.name.split(".")[-1] not in SAMPLING]
    differing = [one for one in differing if "gpu_layers" not in one.name]
    known = [n for n in case.symptoms.neighbours if n.changed in ENGINE_FIELDS]
    better = max(known, key=lambda one: one.tokens_per_second, default=None)
    told = "; ".join(f"{one.name} was sent as {one.sent}, the engine used {one.used}" for one in differing)
    if better is not None and better.tokens_per_second > case.speed * (1 + case.margin):
        yield _with_better(case, better, told)
    elif told:
        yield case.unmeasured(
            "engine-setting",
            "round",
            derived="not known: run it once with the setting that was meant",
            evidence=f"{told[:1].upper()}{told[1:]}.",
            change=f"set {', '.join(one.name for one in differing)} under the name that this build knows, and read it back",
        )


def _with_better(case: Case, better: Neighbour, told: str) -> Cause:
    asked = better.changed == "draft_tokens_used"
    name = "draft_tokens" if asked else better.changed
    seen = f"{told[:1].upper()}{told[1:]}. " if told else ""
    tokens = ""
    if better.tokens_per_round is not None and case.per == "round":
        tokens = f" and {better.tokens_per_round:.2f} instead of {case.tokens:.2f} tokens a round"
    return case.costs(
        "engine-setting",
        "round",
        better.tokens_per_second,
        derived=f"{'measured' if better.measured else 'forecast'} speed with {name} {better.value}",
        evidence=f"{seen}With {name} {better.value} the same pair gives {better.tokens_per_second:.1f} tokens/s instead of "
        f"{case.speed:.1f}{tokens}.",
        change=f"build {better.value}, or a later one in which this is mended"
        if name == "build"
        else f"{name} {better.value}, in this build's own spelling, read back after the start",
        provenance="measured" if better.measured else "calibrated",
    )


def fixed_overhead(case: Case) -> Iterator[Cause]:
    """Seconds of a round that no pass explains."""
    if case.plain is None or not case.material(case.overhead):
        return
    saved = (max(case.tokens, case.good_tokens) - 1) * case.plain
    if case.overhead >= EATS_SHARE * saved:
        yield overhead_cause(case, case.overhead)


def overhead_cause(case: Case, seconds: float) -> Cause:
    """The cause, whatever its share."""
    steps = seconds / (case.plain or 1.0)
    work = "launches, sampling, copies and the server's own work"
    if case.per == "token":
        evidence = f"Each token takes {ms(seconds)} more than in plain decoding ({steps:.2f} plain steps), a round at least that much: {work}."
    else:
        evidence = f"{ms(seconds)} of a round belong to no pass of either model ({steps:.2f} plain steps): {work}."
    lengths = [one.width for one in case.lengths]
    if len(lengths) > 1:
        evidence += (
            f" Rounds of {', '.join(map(str, lengths))} draft tokens share it, so that no draft length avoids it."
        )
    return case.takes(
        "fixed-overhead",
        "overhead",
        seconds,
        derived="the round without the seconds that no pass explains",
        evidence=evidence,
        change="another build or engine; beside a larger target it matters less",
        provenance="calibrated" if case.per == "round" else "prior",
    )


def too_many_streams(case: Case) -> Iterator[Cause]:
    """Side by side, requests already share the reading of the weights; drafts only add work."""
    streams = case.symptoms.setting.streams
    if streams < 2 or not case.loses or case.plain is None:
        return
    alone = [n for n in case.symptoms.others("streams") if float(n.value) < streams and n.plain_step_seconds]
    gains = [n for n in alone if n.tokens_per_second * (n.plain_step_seconds or 0.0) > 1 + case.margin]
    fewer = max(gains, key=lambda one: float(one.value), default=None)
    beside = ""
    if fewer is not None and fewer.plain_step_seconds:
        gain = fewer.tokens_per_second * fewer.plain_step_seconds
        beside = f" With {plural(float(fewer.value), 'stream')} it is {gain:.2f}x."
    limit = f"speculation up to {plural(float(fewer.value), 'stream')} and none above" if fewer else "no speculation"
    yield case.costs(
        "too-many-streams",
        "round",
        1 / case.plain,
        derived=f"plain decoding at {streams} streams",
        evidence=f"At {streams} streams each gets {case.speed:.1f} tokens/s with speculation and {1 / case.plain:.1f} without "
        f"({case.speed * case.plain:.2f}x).{beside} A pass verifies {case.width} tokens of all streams, and the weights are shared "
        "without speculation already.",
        change=f"{limit}, or a schedule of draft tokens by load",
        provenance="measured",
    )


def other_prompts(case: Case) -> Iterator[Cause]:
    """The speed that was quoted belongs to other prompts."""
    known = [n for n in case.symptoms.others("workload") if n.tokens_per_second > case.speed * (1 + case.margin)]
    if not known:
        return
    quoted = max(known, key=lambda one: one.tokens_per_second)
    yield case.with_setting(
        "prompts-not-yours",
        "tokens",
        case.seconds - case.tokens / quoted.tokens_per_second,
        case.speed,
        derived="nothing to mend",
        evidence=f"{quoted.tokens_per_second:.1f} tokens/s belong to {quoted.value}; these prompts give {case.speed:.1f}. Acceptance "
        "is of the prompts, not of the machine.",
        change="nothing: measure with your own prompts (--prompts FILE.jsonl) and quote that",
        provenance="measured",
    )

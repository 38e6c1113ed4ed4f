"""Diagnosis: the causes of a setting's speed, ranked by the seconds of a round that each takes.

Each cause is taken alone: what would the round take, or emit, without it and with all else as it is. Faults come first
(a spill, throttling, a draft in the wrong place) and what they explain is not counted again by what holds on any machine
(verification's growth, the draft's price, overhead); within an account special causes come before general ones. What is
in different accounts can be mended together, but does not add up, since speed is a ratio: the notes say so.
"""

from collections.abc import Iterable, Iterator, Sequence

from .causes import acceptance, draft, engine, machine, verification
from .causes.case import Case, ms
from .records import Cause, Diagnosis
from .symptoms import Symptoms

FASTER, SLOWER, EVEN, UNKNOWN = "faster", "slower", "even", "unknown"


def diagnose(symptoms: Symptoms) -> Diagnosis:
    """Causes, the dearest first; no-cause where nothing is wrong, no-paired-baseline where nothing can be said."""
    case = Case(symptoms)
    if not symptoms.baseline_measured:
        return _diagnosis(case, UNKNOWN, [_no_baseline(case)], ())
    found = list(_causes(case))
    if not found and case.loses:
        found = [_largest(case)]
    ranked = sorted(
        found, key=lambda cause: -1.0 if cause.seconds_per_round is None else cause.seconds_per_round, reverse=True
    )
    return _diagnosis(case, _verdict(case), ranked or [_nothing(case)], _notes(case, ranked))


def _verdict(case: Case) -> str:
    if case.speed_up is None:
        return UNKNOWN
    return SLOWER if case.loses else FASTER if case.speed_up > 1 + case.margin else EVEN


def _causes(case: Case) -> Iterator[Cause]:
    """All that is there, faults first."""
    faults = list(_faults(case))
    yield from faults
    # What a fault of the round or of the plain pass explains is not the growth of verification, nor overhead.
    rest = case.relieved(_seconds(faults, "round", "plain", "verification"))
    placed = [*draft.not_on_device(rest), *draft.swapped_roles(rest)][:1]
    yield from placed
    traffic = [] if _has(faults, "kernel-switch") else list(verification.expert_traffic(rest))
    yield from traffic
    yield from verification.verification_linear(rest, _seconds(traffic, "verification"))
    yield from draft.too_dear(rest, _seconds(placed, "draft"))
    yield from engine.fixed_overhead(rest)
    yield from _of_tokens(rest.relieved(_seconds(placed, "draft")), faults)


def _faults(case: Case) -> Iterator[Cause]:
    """What need not be. A cold start comes first: rounds at other lengths are compared warm."""
    cold = list(machine.cold_cache(case))
    case = case.relieved(_seconds(cold, "round"))
    found = [*cold, *machine.spill(case)]
    spilled = len(found) > len(cold)
    found += [] if spilled else verification.kernel_switch(case)
    found += [*machine.throttling(case), *machine.layers_on_host(case)]
    found += machine.baseline_broken(case, claimed=_has(found, "layers-on-host"))
    found += machine.context_growth(case, claimed=spilled)
    found += [*engine.rollback_copies(case), *engine.engine_setting(case), *engine.too_many_streams(case)]
    return iter(found)


def _of_tokens(case: Case, faults: Sequence[Cause]) -> Iterator[Cause]:
    """Causes that cost tokens: the special one explains the acceptance, else the general one does."""
    mismatch = [*acceptance.sampling_mismatch(case), *engine.other_prompts(case)]
    yield from mismatch
    yield from acceptance.below_break_even(
        case, claimed=bool(mismatch) or _has(faults, "engine-setting", "too-many-streams")
    )
    if not _has(faults, "kernel-switch", "spill"):
        yield from draft.too_deep(case)


def _largest(case: Case) -> Cause:
    """It loses, and no single thing is out of the ordinary: the largest account."""
    accounts = {"draft": case.draft, "growth": case.growth, "overhead": case.overhead}
    name = max(accounts, key=lambda key: accounts[key])
    if case.per == "token" and name == "growth" and (case.slope or 0.0) < verification.LINEAR:
        return engine.overhead_cause(case, case.growth)
    if name == "draft":
        return draft.dear_cause(case, case.draft)
    if name == "overhead" or case.per == "token":
        return engine.overhead_cause(case, accounts[name])
    return acceptance.break_even_cause(case)


def _seconds(causes: Iterable[Cause], *accounts: str) -> float:
    return sum(cause.seconds_per_round or 0.0 for cause in causes if cause.account in accounts)


def _has(causes: Iterable[Cause], *ids: str) -> bool:
    return any(cause.id in ids for cause in causes)


def _no_baseline(case: Case) -> Cause:
    told = case.symptoms.plain_tokens_per_second
    claimed = "none was given" if told is None else f"{told:.1f} tokens/s was not measured beside it"
    return case.unmeasured(
        "no-paired-baseline",
        "plain",
        derived="no verdict without it",
        evidence=f"{case.speed:.1f} tokens/s with speculation is neither fast nor slow until plain decoding of the same model is "
        f"known from the same session: {claimed}.",
        change="run plain decoding beside it: same build, flags, prompts and power limit, arms interleaved",
    )


def _nothing(case: Case) -> Cause:
    up = case.speed_up
    if up is None:
        evidence = "No plain speed is known, and nothing in the figures is out of the ordinary."
    elif _verdict(case) == EVEN:
        evidence = f"{up:.2f}x plain is within what two measured speeds differ by chance ({case.margin:.1%})."
    else:
        evidence = f"{up:.2f}x plain decoding: no term of the round is out of the ordinary."
    longer = [n for n in case.symptoms.others("draft_tokens") if int(n.value) > case.symptoms.draft_tokens]
    better = max(longer, key=lambda one: one.tokens_per_second, default=None)
    change = "nothing"
    if better is not None and better.tokens_per_second > case.speed * (1 + case.margin):
        change = f"draft_tokens {better.value} ({better.tokens_per_second:.1f} tokens/s)"
    return Cause(
        id="no-cause",
        account="round",
        seconds_per_round=0.0,
        tokens_per_second=case.speed,
        gives_back_tokens_per_second=0.0,
        derived="as it is",
        evidence=evidence,
        change=change,
        provenance=case.symptoms.provenance,
    )


def _notes(case: Case, causes: Sequence[Cause]) -> tuple[str, ...]:
    notes = list(case.symptoms.notes)
    if case.per == "token":
        notes.append(
            "tokens per round are not known: milliseconds are those of one token, a round takes that much at least"
        )
    if len(causes) > 1:
        notes.append("each cause is taken alone, all else as it is: figures of different causes do not add up")
    return tuple(notes)


def _diagnosis(case: Case, verdict: str, causes: Sequence[Cause], notes: tuple[str, ...]) -> Diagnosis:
    symptoms, known = case.symptoms, verdict != UNKNOWN
    return Diagnosis(
        setting=symptoms.setting,
        workload=symptoms.workload,
        verdict=verdict,
        per=case.per,
        tokens_per_second=case.speed,
        baseline_tokens_per_second=symptoms.plain_tokens_per_second,
        speed_up=case.speed_up if known else None,
        tokens_per_round=symptoms.tokens_per_round,
        round_seconds=case.seconds,
        plain_step_seconds=case.plain,
        causes=tuple(causes),
        gate=acceptance.gate(case) if known else (),
        notes=notes,
    )


def headline(diagnosis: Diagnosis) -> str:
    """The verdict with its numbers in one sentence."""
    speed = f"{diagnosis.tokens_per_second:.1f} tokens/s with speculation"
    if diagnosis.verdict == UNKNOWN or diagnosis.speed_up is None:
        return f"{speed}; no verdict"
    plain = f"{diagnosis.baseline_tokens_per_second:.1f} without: {diagnosis.speed_up:.2f}x"
    step = "" if diagnosis.plain_step_seconds is None else f", a plain step {ms(diagnosis.plain_step_seconds)}"
    return f"{speed}, {plain}; a {diagnosis.per} takes {ms(diagnosis.round_seconds)}{step}"

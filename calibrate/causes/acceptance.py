"""Acceptance: too few drafted tokens are right, for what a round costs here or because the two sides differ."""

from collections.abc import Iterator

from ...model.forecast import break_even_accepted
from ..records import Cause
from ..symptoms import SAMPLING, Neighbour
from .case import GOOD_ALPHA, Case, ms, plural

RULE_ACCEPTANCE = 0.60
RULE_ACCEPTED = 1.5
"""Rules of thumb that people go by: shown with whether they agree here; they overrule nothing."""


def sampling_mismatch(case: Case) -> Iterator[Cause]:
    """Draft and target sample differently, or otherwise than was sent."""
    changed = [one for one in case.symptoms.neighbours if one.changed in SAMPLING or one.changed == "sampling"]
    better = max(changed, key=lambda one: one.tokens_per_second, default=None)
    differing = [one for one in case.symptoms.differing() if one.name.split(".")[-1] in SAMPLING]
    if better is not None and better.tokens_per_second > case.speed * (1 + case.margin):
        yield _measured_mismatch(case, better)
    elif differing:
        yield from _seen_mismatch(case, [f"{one.name} {one.used} where {one.sent} was sent" for one in differing])


def _measured_mismatch(case: Case, better: Neighbour) -> Cause:
    tokens = (
        ""
        if better.tokens_per_round is None
        else f" (now {case.tokens:.2f} tokens a round, then {better.tokens_per_round:.2f})"
    )
    return case.costs(
        "sampling-mismatch",
        "tokens",
        better.tokens_per_second,
        derived=f"measured speed with {better.changed} {better.value}",
        evidence=f"With {better.changed} {better.value} the same pair gives {better.tokens_per_second:.1f} tokens/s instead of "
        f"{case.speed:.1f}{tokens}: draft and target choose among different tokens.",
        change=f"send {better.changed} {better.value} explicitly, equal for draft and target",
        provenance="measured",
    )


def _seen_mismatch(case: Case, differing: list[str]) -> Iterator[Cause]:
    """Differing settings whose cost was not measured: what a fitting pair would accept tells it (prior)."""
    words = {
        "evidence": f"The engine used {', '.join(differing)}"
        + (
            f"; {case.tokens - 1:.2f} of {case.symptoms.drafted:g} drafted tokens are accepted a round."
            if case.per == "round"
            else "."
        ),
        "change": "send temperature, top_k, top_p and repetition penalty explicitly, equal for draft and target",
    }
    if case.per == "token" or case.tokens >= case.good_tokens:
        derived = "acceptance is as good as a fitting pair's: nothing to gain is visible"
        yield case.unmeasured("sampling-mismatch", "tokens", derived=derived, **words)
        return
    yield case.costs(
        "sampling-mismatch",
        "tokens",
        case.good_tokens / case.seconds,
        derived=f"the round if a drafted token were accepted with a chance of {GOOD_ALPHA}, as those of fitting pairs are",
        provenance="prior",
        **words,
    )


def below_break_even(case: Case, claimed: bool) -> Iterator[Cause]:
    """Fewer tokens are accepted than a round costs in plain steps, and fewer than a fitting pair accepts; `claimed` where
    something special explains the acceptance."""
    if claimed or case.per == "token" or case.plain is None:
        return
    if case.tokens / case.left * case.plain >= 1 - case.margin:
        return
    if case.tokens >= case.good_tokens and case.symptoms.setting.drafter != "ngram":
        return
    yield break_even_cause(case)


def break_even_cause(case: Case) -> Cause:
    """The cause, however good the acceptance is."""
    plain, ngram = case.plain or 1.0, case.symptoms.setting.drafter == "ngram"
    words = {
        "evidence": f"{case.tokens - 1:.2f} drafted tokens are accepted a round; break-even is "
        f"{break_even_accepted(case.seconds, plain):.2f}, because a round takes {ms(case.seconds)} and a plain step {ms(plain)}."
    }
    if ngram or case.tokens >= case.good_tokens:
        change = f"no speculation ({1 / plain:.1f} tokens/s) on prompts like these"
        return case.costs(
            "acceptance-below-break-even", "tokens", 1 / plain, derived="plain decoding", change=change, **words
        )
    reach = case.good_tokens / case.seconds
    change = "another draft of the same family and tokenizer, equal sampling, or prompts that it knows"
    if reach <= 1 / plain:
        change = (
            f"no speculation ({1 / plain:.1f} tokens/s): not even a fitting draft would pay at this cost of a round"
        )
    return case.costs(
        "acceptance-below-break-even",
        "tokens",
        reach,
        derived=f"the round if a drafted token were accepted with a chance of {GOOD_ALPHA}, as those of fitting pairs are",
        change=change,
        provenance="prior",
        **words,
    )


def gate(case: Case) -> tuple[str, ...]:
    """Break-even, the first token against its cost, and what the rules of thumb say."""
    if case.plain is None or case.per == "token":
        return ()
    accepted, even = case.tokens - 1, break_even_accepted(case.seconds, case.plain)
    pays = accepted > even
    where = "above" if pays else "below"
    times = case.speed * case.plain
    sentences = [f"{accepted:.2f} tokens accepted a round, break-even {even:.2f}: {where} it, {times:.2f}x plain"]
    first, slope = case.symptoms.first_accepted, case.slope
    if first is not None and slope is not None:
        cost = slope + case.draft / max(case.symptoms.drafted, 1.0) / case.plain
        relation = "above" if first > cost else "below"
        sentences.append(
            f"the first drafted token is accepted with probability {first:.2f}, {relation} what a drafted token costs on "
            f"average, {cost:.2f} plain steps"
        )
    if case.symptoms.drafted > 0:
        rate = accepted / case.symptoms.drafted
        sentences.append(
            f"{rate:.0%} of drafted tokens are accepted: the rule of thumb of 60 % "
            f"{_agreement(rate >= RULE_ACCEPTANCE, pays)}; {plural(round(accepted, 2), 'token')} a round: the rule of 1.5 "
            f"{_agreement(accepted >= RULE_ACCEPTED, pays)}"
        )
    return tuple(sentences)


def _agreement(rule: bool, pays: bool) -> str:
    return f"says {'speculate' if rule else 'do not'}, {'rightly' if rule == pays else 'wrongly'} here"

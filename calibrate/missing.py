"""Which term of the formula is likeliest missing, where forecasts and runs disagree.

Every term that could be off leaves its own signature on the log errors of rows and rounds: acceptance only where tokens
per round differ, a fixed overhead more on short rounds, a kernel switch on some widths, a context slope where contexts
are long. The signatures are fitted one at a time by least squares, and the one that explains most is named.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

LEAST_SHARE = 0.5
"""A term that explains less of the squared errors is not named."""
LEAST_CHI_SQUARE = 16.0
"""Nor one whose explanation is within what the intervals allow (four standard deviations of a fitted number)."""
DRAFTERS = {"model": "draft model", "ngram": "n-gram drafter"}


@dataclass(frozen=True)
class Clue:
    """One row of a validation, or one length of fresh rounds. Seconds as the model has them.

    A row's speed was divided by the drift of its plain baseline; the baseline's own was not.
    """

    drafter: str
    """none for plain decoding."""
    log_error: float
    """log(forecast / measured speed): above 0 where it was slower than forecast."""
    log_sd: float
    """What the forecast's interval and the run's own noise allow."""
    round_seconds: float
    plain_seconds: float
    """The plain step of its baseline."""
    verification_seconds: float
    drafted: float
    """Tokens drafted a round; `width` tokens are verified where all that were asked for are drafted."""
    width: int
    context: float
    """Mean cached tokens."""
    log_tokens: float = 0.0
    """log of tokens per round, forecast over measured; 0 for fresh rounds, whose acceptance is no matter."""
    is_baseline: bool = False

    @property
    def drafts(self) -> bool:
        return self.drafter != "none"


@dataclass(frozen=True)
class MissingTerm:
    """The likeliest term (none where errors are noise or no single term explains them), its share, and a sentence."""

    name: str
    share: float | None
    text: str


@dataclass(frozen=True)
class _Signature:
    """What a term does to each clue (N,) at a coefficient of 1; `fitted` numbers are paid for in its share."""

    name: str
    effect: np.ndarray
    fitted: int
    words: Callable[[float], str]


@dataclass(frozen=True)
class _Fit:
    signature: _Signature
    coefficient: float
    share: float
    chi_square: float


def missing_term(clues: Sequence[Clue]) -> MissingTerm:
    """The term whose signature explains most of the squared log errors of `clues`."""
    errors, noise = np.array([c.log_error for c in clues]), np.array([max(c.log_sd, 1e-3) for c in clues])
    found = [_fit(signature, errors, noise) for signature in _signatures(clues)] if clues else []
    found = [fit for fit in found if fit.chi_square >= LEAST_CHI_SQUARE]
    best = max(found, key=lambda fit: fit.share, default=None)
    if best is None:
        return MissingTerm("none", None, "the errors are within what the intervals allow: no term is missing")
    if best.share < LEAST_SHARE:
        text = (
            f"no single term explains the errors; the nearest, {best.signature.name}, explains {best.share:.0%} of them"
        )
        return MissingTerm("none", best.share, text)
    rivals = [fit for fit in found if fit.signature.name != best.signature.name]
    second = max(rivals, key=lambda fit: fit.share, default=None)
    rival = f"; next {second.signature.name}, {second.share:.0%}" if second and second.share > LEAST_SHARE else ""
    said = best.signature.words(best.coefficient)
    text = f"{said} (explains {best.share:.0%} of the squared errors{rival})"
    return MissingTerm(best.signature.name, best.share, text)


def _fit(signature: _Signature, errors: np.ndarray, noise: np.ndarray) -> _Fit:
    """Least squares of one coefficient (1 where none is fitted), and what it leaves."""
    x = signature.effect
    coefficient = float(x @ errors / max(x @ x, 1e-300)) if signature.fitted else 1.0
    rest = errors - coefficient * x
    free = max(errors.size - signature.fitted, 1) / errors.size
    share = 1 - float(rest @ rest) / max(float(errors @ errors), 1e-300) / free
    chi_square = float(np.sum((errors**2 - rest**2) / noise**2))
    return _Fit(signature, coefficient, share, chi_square)


def _signatures(clues: Sequence[Clue]) -> Iterator[_Signature]:
    yield _drift(clues)
    yield _acceptance(clues)
    yield _context(clues)
    kinds = list(dict.fromkeys(c.drafter for c in clues if c.drafts))
    for kind in ("", *kinds) if len(kinds) > 1 else kinds:
        of_kind = np.array([c.drafts and kind in ("", c.drafter) for c in clues], float)
        extra = 1 if kind and len(kinds) > 1 else 0
        whose = f" with the {DRAFTERS.get(kind, kind)}" if kind else ""
        yield _fixed(clues, of_kind, extra, whose)
        yield _per_token(clues, of_kind, extra, whose)
        yield from _verification(clues, of_kind, extra, whose)


def _drift(clues: Sequence[Clue]) -> _Signature:
    """Of all rows alike: after the division by each baseline only plain rows show it."""

    def words(log: float) -> str:
        return f"drift: plain decoding too ran {_more(log, 'slower', 'faster')} than profiled; profile again when it is quiet"

    return _Signature("drift", np.array([not c.drafts for c in clues], float), 1, words)


def _acceptance(clues: Sequence[Clue]) -> _Signature:
    effect = np.array([c.log_tokens for c in clues])
    mean = float(np.mean([c.log_tokens for c in clues if c.log_tokens] or [0.0]))

    def words(_: float) -> str:
        gave = _more(-mean, "more", "fewer")
        return f"acceptance: rounds gave {gave} tokens than the profile's replies say; profile traces of these prompts again"

    return _Signature("acceptance", effect, 0, words)


def _context(clues: Sequence[Clue]) -> _Signature:
    """Seconds a cached token: in a round as in a plain step; of that the division by the baseline takes the latter out."""
    effect = np.array(
        [c.context / c.round_seconds - (0 if c.is_baseline else c.context / c.plain_seconds) for c in clues]
    )

    def words(seconds: float) -> str:
        return (
            f"context slope: a cached token costs {1e6 * abs(seconds):.2f} us {_sign(seconds)} than modelled; profile passes at "
            "longer contexts"
        )

    return _Signature("context slope", effect, 1, words)


def _fixed(clues: Sequence[Clue], of_kind: np.ndarray, extra: int, whose: str) -> _Signature:
    def words(seconds: float) -> str:
        took = f"{1e3 * abs(seconds):.2f} ms {_sign(seconds)}"
        return (
            f"fixed overhead: a round{whose} takes {took} than modelled, whatever its length; profile its rounds again"
        )

    return _Signature("fixed overhead", of_kind / np.array([c.round_seconds for c in clues]), 1 + extra, words)


def _per_token(clues: Sequence[Clue], of_kind: np.ndarray, extra: int, whose: str) -> _Signature:
    def words(seconds: float) -> str:
        took = f"{1e3 * abs(seconds):.2f} ms {_sign(seconds)}"
        return (
            f"overhead per token: each token drafted{whose} takes {took} than modelled; profile rounds at three lengths"
        )

    effect = of_kind * np.array([c.drafted / c.round_seconds for c in clues])
    return _Signature("overhead per token", effect, 1 + extra, words)


def _verification(clues: Sequence[Clue], of_kind: np.ndarray, extra: int, whose: str) -> Iterator[_Signature]:
    """Passes wider than each width that was run, or up to it, off by a factor: a kernel that switches elsewhere."""
    widths = sorted({c.width for c in clues if c.drafts})
    part = of_kind * np.array([c.verification_seconds / c.round_seconds for c in clues])
    for last in widths[:-1]:
        for wider in (True, False):
            inside = np.array([(c.width > last) == wider for c in clues], float)
            where = f"of more than {last} tokens" if wider else f"of up to {last} tokens"

            def words(factor: float, where: str = where) -> str:
                took = _more(factor, "longer", "shorter")
                return f"verification: passes {where}{whose} take {took} than modelled; profile verification at those widths"

            yield _Signature("verification", part * inside, 2 + extra, words)


def _more(log: float, more: str, less: str) -> str:
    return f"{abs(float(np.expm1(log))):.1%} {more if log > 0 else less}"


def _sign(value: float) -> str:
    return "more" if value > 0 else "less"

"""Greedy output with and without speculation, token by token: the same, and where not, rounding or a fault?

At the first place where the two replies differ, plain decoding tells how much it preferred its own token: the gap

    gap = ln p(plain's token) - ln p(the other token) = difference of their logits, at temperature 1.

Rounding turns near ties only. How near is measured: the target alone reads part of its own reply in one batch, without any
drafter, and its gaps are held against those of step-by-step decoding. Four times the root mean square of what they move by
is a near tie, and never less than LEAST_NEAR_TIE. Two things are no rounding: a divergence at a larger gap (unless the
target alone, reading in a batch, prefers the other token too), and divergences more frequent than near ties are.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace
from scipy.stats import binom

from ..engines.base import Engine, Likely, ReplyTokens, Unsupported
from ..protocol import REPLAYED_DRAFTERS
from ..records import Record, Sampling, Setting
from ..workloads import PromptText

WHY = (
    "Speculation verifies several tokens in one pass, and a pass over several rows runs on other kernels than a pass over "
    "one: they add the same products in another order and round differently, so that logits move a little. Where two "
    "tokens are nearly tied the other one wins, and from there on the texts go separate ways; each is the target's own "
    "greedy text to within rounding."
)
NEAR_TIE_DEVIATIONS = 4.0
"""One gap in 16,000 moves by more, if they move as a normal law has it."""
LEAST_NEAR_TIE = 0.25
"""Between 16 and 32, where the leading logits of most models lie, bfloat16 has steps of 0.125; two logits one step off in
opposite directions move a gap by 0.25. Published flips: 0 (vllm#7627), 0.125 (vllm-rbln PR 630), 0.15 (colibri#689); two
batch geometries of one model differ by 0.235 (vllm PR 41335). SmolLM2 on a processor, our own: 0.0001 to 0.21."""
USUAL_SHARE = 0.05
"""Places at which replies may part where the engine tells no probabilities: several times what is known of rounding, one
token in 150 to 190 (mlx-lm#1470), 76 to 80 % of replies of 400 tokens (llama.cpp#27407), one in 112 of SmolLM2 at width 81."""
CERTAIN = 1e-3
"""Chance below which so many divergences are no rounding."""
LIKELY_TOKENS = 20
REREAD_PLACES = 4
"""Places of each plain reply that are read again in a batch."""
CHANCE_ROUNDS = 50
"""Rounds that it takes to say that a draft is right no more often than by chance."""
IDENTICAL, ROUNDING, FAULT = "identical", "rounding", "fault"


class Divergence(Record, kw_only=True):
    """The first place where two replies differ. Gaps are in logits (natural logarithm); None where nothing tells them."""

    position: int
    """Tokens that both replies have in common."""
    plain_token: int
    other_token: int
    gap: float | None = None
    """How much plain decoding prefers its own token."""
    gap_at_least: bool = False
    """The other token was not among the likeliest: the gap is larger than this."""
    batched_gap: float | None = None
    """The same where the target alone reads the text before it in one batch; below 0 it prefers the other token."""


class ReplyPair(Record, kw_only=True):
    """One prompt, both ways. `tokens`: compared until the replies differ, the differing one included."""

    prompt: str
    tokens: int
    divergence: Divergence | None = None


class Rounding(Record, kw_only=True):
    """How far batched reading alone moves the gaps of this target, and what follows from it."""

    samples: int
    rms: float | None
    largest: float | None
    near_tie: float
    """Gaps up to this are near ties."""
    tie_share: float
    """Share of the places of plain replies that are near ties."""


class Equivalence(Record, kw_only=True):
    """Replies of a setting against plain decoding of its target, both greedy."""

    setting: Setting
    pairs: tuple[ReplyPair, ...]
    repeated: int
    """Plain replies that came out the same when made again, of as many as there are pairs."""
    rounding: Rounding
    drafted: int
    accepted: int
    open_rounds: int
    """Rounds of replies that do not copy their prompt, of a drafter that drafts in each; 0 for n-grams. A draft that knows
    nothing of the language copies all the same."""
    open_accepted: int
    commonest_share: float
    """Share of the commonest token in those replies: a draft that always proposes it is right that often."""
    verdict: str
    """identical, rounding, fault."""
    reason: str

    @property
    def identical(self) -> int:
        return sum(pair.divergence is None for pair in self.pairs)

    @property
    def drafts_by_chance(self) -> bool:
        """The draft knows nothing of the text: it is right less often than one that proposes one and the same token."""
        return self.open_rounds >= CHANCE_ROUNDS and self.open_accepted < self.commonest_share * self.open_rounds


@dataclass(frozen=True)
class PlainReplies:
    """Greedy replies of one target without a drafter, to the prompts in their order, and how its gaps round."""

    setting: Setting
    replies: tuple[ReplyTokens, ...]
    repeated: int
    rounding: Rounding


def plain_replies(
    engine: Engine, target: Setting, prompts: Sequence[PromptText], sampling: Sampling, likely: int = LIKELY_TOKENS
) -> PlainReplies:
    """Decode each prompt twice without a drafter, and read parts of the replies again in a batch. Raises Unsupported."""
    plain = Setting(
        target=target.target,
        target_quant=target.target_quant,
        kv_type_k=target.kv_type_k,
        kv_type_v=target.kv_type_v,
        context=target.context,
        streams=target.streams,
    )
    greedy = replace(sampling, temperature=0.0)
    replies = tuple(_told(engine, plain, prompt, greedy, likely) for prompt in prompts)
    again = [engine.reply(plain, prompt, greedy).tokens for prompt in prompts]
    moves = [
        move
        for prompt, reply in zip(prompts, replies, strict=True)
        for move in _moves(engine, plain, prompt, greedy, reply)
    ]
    repeated = sum(one.tokens == two for one, two in zip(replies, again, strict=True))
    return PlainReplies(plain, replies, repeated, _rounding(replies, moves))


def equivalence(
    engine: Engine, setting: Setting, plain: PlainReplies, prompts: Sequence[PromptText], sampling: Sampling
) -> Equivalence:
    """Decode each prompt greedily with `setting` and compare. Raises Unsupported."""
    greedy = replace(sampling, temperature=0.0)
    others = [engine.reply(setting, prompt, greedy) for prompt in prompts]
    pairs = tuple(
        _pair(engine, plain.setting, prompt, greedy, own, other)
        for prompt, own, other in zip(prompts, plain.replies, others, strict=True)
    )
    verdict, reason = judge(pairs, plain.rounding)
    drafts = setting.drafter in REPLAYED_DRAFTERS
    opened = [i for i, prompt in enumerate(prompts) if drafts and prompt.prompt.workload_class != "copying"]
    accepted = sum(others[i].accepted for i in opened)
    return Equivalence(
        setting=setting,
        pairs=pairs,
        repeated=plain.repeated,
        rounding=plain.rounding,
        drafted=sum(other.drafted for other in others),
        accepted=sum(other.accepted for other in others),
        open_rounds=sum(len(others[i].tokens) - 1 for i in opened) - accepted,
        open_accepted=accepted,
        commonest_share=_commonest_share([plain.replies[i] for i in opened]),
        verdict=verdict,
        reason=reason,
    )


def _commonest_share(replies: Sequence[ReplyTokens]) -> float:
    counts = Counter(token for reply in replies for token in reply.tokens)
    return max(counts.values()) / counts.total() if counts else 0.0


def judge(pairs: Sequence[ReplyPair], rounding: Rounding) -> tuple[str, str]:
    """Verdict and reason, by the rule at the head of this file."""
    found = [(pair, pair.divergence) for pair in pairs if pair.divergence is not None]
    if not found:
        return IDENTICAL, f"all {len(pairs)} replies are the same, token by token"
    wide = [(pair, at) for pair, at in found if not _explained(at, rounding)]
    if wide:
        return FAULT, _wide_reason(wide[0][0], wide[0][1], len(wide), rounding)
    tokens = sum(pair.tokens for pair in pairs)
    chance = float(binom.sf(len(found) - 1, tokens, rounding.tie_share))
    if chance < CERTAIN:
        return FAULT, (
            f"{len(found)} divergences in {tokens} tokens are more than near ties explain, which are "
            f"{rounding.tie_share:.1%} of the places (chance {chance:.1g}): they begin at once"
        )
    return ROUNDING, _tie_reason([at for _, at in found], rounding)


def _explained(at: Divergence, rounding: Rounding) -> bool:
    """A near tie, or the target alone turns it; without a gap nothing speaks against it."""
    if at.batched_gap is not None and at.batched_gap <= 0:
        return True
    return at.gap is None or (at.gap <= rounding.near_tie and not at.gap_at_least)


def _wide_reason(pair: ReplyPair, at: Divergence, wide: int, rounding: Rounding) -> str:
    moved = "" if rounding.rms is None else f", and batched reading moves gaps here by {rounding.rms:.2g} (rms)"
    more = f" ({wide} replies do so)" if wide > 1 else ""
    return (
        f"after {at.position} tokens of {pair.prompt} the text leaves a token that plain decoding prefers by "
        f"{'more than ' if at.gap_at_least else ''}{at.gap:.2f} logits{more}: a near tie is at most "
        f"{rounding.near_tie:.2f}{moved}"
    )


def _tie_reason(found: Sequence[Divergence], rounding: Rounding) -> str:
    gaps = sorted(at.gap for at in found if at.gap is not None)
    if not gaps:
        return "the engine tells no probabilities; divergences are rare enough for rounding"
    alone = sum(at.batched_gap is not None and at.batched_gap <= 0 for at in found)
    turned = f"; {alone} of {len(found)} turn without any drafter, when the text before is read in one batch"
    spread = f"{gaps[0]:.2g}" if len(gaps) == 1 else f"{gaps[0]:.2g} to {gaps[-1]:.2g}"
    return f"near ties: gaps of {spread} logits, where one is at most {rounding.near_tie:.2f}{turned if alone else ''}"


def _pair(
    engine: Engine, plain: Setting, prompt: PromptText, greedy: Sampling, own: ReplyTokens, other: ReplyTokens
) -> ReplyPair:
    length = min(len(own.tokens), len(other.tokens))
    at = next((i for i in range(length) if own.tokens[i] != other.tokens[i]), None)
    if at is None:
        return ReplyPair(prompt=prompt.prompt.id, tokens=length)
    tokens = own.tokens[at], other.tokens[at]
    gap, beyond = _gap(own.likely[at] if own.likely else (), *tokens)
    batched = None
    if gap is not None:
        batched, lost = _gap(_read_again(engine, plain, prompt, greedy, own.tokens[:at]), *tokens)
        batched = None if lost else batched
    divergence = Divergence(
        position=at,
        plain_token=tokens[0],
        other_token=tokens[1],
        gap=gap,
        gap_at_least=beyond,
        batched_gap=batched,
    )
    return ReplyPair(prompt=prompt.prompt.id, tokens=at + 1, divergence=divergence)


def _gap(likely: Sequence[Likely], preferred: int, other: int) -> tuple[float | None, bool]:
    """Gap of two tokens of one place, and whether that is a lower bound only, the other one not being listed."""
    logs = {one.token: one.log_probability for one in likely}
    if preferred not in logs:
        return None, False
    return logs[preferred] - logs.get(other, min(logs.values())), other not in logs


def _moves(engine: Engine, plain: Setting, prompt: PromptText, greedy: Sampling, reply: ReplyTokens) -> list[float]:
    """By how much batched reading moves the gap of the two leading tokens, at places spread over a reply."""
    moves = []
    for at in np.linspace(1, len(reply.tokens) - 1, REREAD_PLACES).astype(int):
        leading = reply.likely[at][:2] if at < len(reply.likely) else ()
        if len(leading) < 2:
            continue
        again, beyond = _gap(
            _read_again(engine, plain, prompt, greedy, reply.tokens[:at]), leading[0].token, leading[1].token
        )
        if again is not None and not beyond:
            moves.append(leading[0].log_probability - leading[1].log_probability - again)
    return moves


def _told(engine: Engine, plain: Setting, prompt: PromptText, greedy: Sampling, likely: int) -> ReplyTokens:
    """A reply with the likeliest tokens of each place, without them where the engine tells none."""
    try:
        return engine.reply(plain, prompt, greedy, likely=likely)
    except Unsupported:
        return engine.reply(plain, prompt, greedy)


def _read_again(
    engine: Engine, plain: Setting, prompt: PromptText, greedy: Sampling, text: Sequence[int]
) -> tuple[Likely, ...]:
    """The likeliest tokens behind `text`, which is read in one batch; empty where the engine cannot tell."""
    try:
        found = engine.reply(plain, prompt, greedy, after=text, new_tokens=1, likely=LIKELY_TOKENS).likely
    except Unsupported:
        return ()
    return found[0] if found else ()


def _rounding(replies: Sequence[ReplyTokens], moves: Sequence[float]) -> Rounding:
    rms = float(np.sqrt(np.mean(np.square(moves)))) if moves else None
    near_tie = max(LEAST_NEAR_TIE, NEAR_TIE_DEVIATIONS * (rms or 0.0))
    gaps = [
        place[0].log_probability - place[1].log_probability
        for reply in replies
        for place in reply.likely
        if len(place) > 1
    ]
    return Rounding(
        samples=len(moves),
        rms=rms,
        largest=max(map(abs, moves)) if moves else None,
        near_tie=near_tie,
        tie_share=float(np.mean(np.array(gaps) <= near_tie)) if gaps else USUAL_SHARE,
    )

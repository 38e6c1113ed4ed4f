"""llama-server: the timings of /completion replies, as JSON or JSONL, and what replies of any source give together.

tokens per round = (n - 1) / (n - 1 - accepted)     n tokens of a reply; the first comes from prefill, and each round
                                                    emits what it accepted and one token more
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ...profiler.records import Key, ReportedRow, Setting
from . import sentences
from .base import Given, Imported
from .names import drafter_kind, weights_name
from .rows import LONGEST_DRAFT, REPORTED
from .source import MOST_SECONDS, MOST_TOKENS, Fields, Source, agree

FORMAT = "llama-server timings"
NAMING = {"timings", "predicted_n"}
FULL_SHARE = 0.75
"""Drafts at least so long in the mean are full but for the ends of replies."""
SLACK = 0.01


@dataclass(frozen=True)
class Reply:
    """One reply: `drafted` None where the server names no drafts; `limit` and `p_min` as its settings say."""

    where: str
    prompt_tokens: int
    reply_tokens: int
    decode_seconds: float
    drafted: int | None = None
    accepted: int = 0
    temperature: float | None = None
    limit: int | None = None
    p_min: float = 0.0

    @property
    def rounds(self) -> int:
        return self.reply_tokens - 1 - self.accepted


@dataclass(frozen=True)
class Told:
    """What a server says of itself beside its replies."""

    target: str = ""
    target_quant: str = ""
    drafter: str = ""
    draft: str = ""
    draft_quant: str = ""
    draft_length: float | None = None
    """Tokens in a draft, in the mean over drafts."""


def read_timings(source: Source, objects: Sequence[Fields], given: Given) -> Imported:
    """Evidence of replies with timings. Raises InputError."""
    replies = [_reply(fields) for fields in objects]
    kept = [reply for reply in replies if reply.reply_tokens > 1]
    short = [f"{reply.where}: a reply of one token has no decoding" for reply in replies if reply.reply_tokens <= 1]
    if not kept:
        source.refuse("has no reply of 2 tokens or more; give replies with timings")
    rows, warnings, left_out = rows_of_replies(source, kept, given, _told(objects))
    return Imported(
        source=source.name,
        format=FORMAT,
        key=Key(gpu=given.gpu, engine="llama.cpp"),
        reported=rows,
        learned=(f"{len(kept)} replies of {sum(r.reply_tokens for r in kept)} tokens", *sentences.of_rows(rows)),
        warnings=tuple(warnings),
        left_out=(*short, *left_out),
        digest=source.digest,
        counted_contexts=True,
    )


def rows_of_replies(
    source: Source, replies: Sequence[Reply], given: Given, told: Told
) -> tuple[tuple[ReportedRow, ...], list[str], list[str]]:
    """Rows by temperature: plain decoding and speculation; warnings; what was left out. Raises InputError."""
    speculative = [reply for reply in replies if reply.drafted is not None]
    undrafted = [reply for reply in replies if reply.drafted is None]
    drafter, warnings = _drafter(source, given, told, bool(speculative))
    left_out = []
    if speculative and undrafted and drafter == "ngram":
        left_out = [
            f"{reply.where}: no drafts: an n-gram drafter that found nothing, or plain decoding" for reply in undrafted
        ]
        undrafted = []
    context = round(sum(r.prompt_tokens + r.reply_tokens / 2 for r in replies) / len(replies))
    base = plain(given, told, context)
    baselines = {at: _speed(found) for at, found in _by_temperature(undrafted).items()}
    rows = [_plain_row(source, base, given, at, speed) for at, speed in baselines.items()]
    for at, found in _by_temperature(speculative).items():
        length, p_min, doubts = draft_length(source, found, given, told)
        warnings += doubts
        setting = speculating(base, given, told, drafter, length, p_min)
        baseline = given.baseline_tokens_per_second or baselines.get(at) or next(iter(baselines.values()), None)
        rows.append(_row(source, setting, given, at, found, baseline))
    return tuple(rows), warnings, left_out


def plain(given: Given, told: Told, context: int) -> Setting:
    """Plain decoding of the server's target; context 0 where it is not known."""
    return Setting(
        target=given.target or told.target or "target",
        target_quant=given.target_quant or told.target_quant,
        context=context,
    )


def draft_length(source: Source, replies: Sequence[Reply], given: Given, told: Told) -> tuple[int, float, list[str]]:
    """Draft tokens asked for and p_min: the user's, the settings', or the nearest whole number drafted a round."""
    drafted = sum(reply.drafted or 0 for reply in replies)
    mean = told.draft_length or drafted / max(sum(reply.rounds for reply in replies), 1)
    limits = {(reply.limit, reply.p_min) for reply in replies}
    limit, p_min = next(iter(limits)) if len(limits) == 1 else (None, 0.0)
    if given.draft_tokens:
        if mean > given.draft_tokens * (1 + SLACK):
            source.refuse(f"{mean:.2f} tokens a draft are more than --draft-tokens {given.draft_tokens}; give its own")
        return given.draft_tokens, p_min, []
    if limit and mean <= limit * (1 + SLACK) and (p_min > 0 or mean >= FULL_SHARE * limit):
        return limit, p_min, []
    accepted, rounds = (sum(getattr(reply, name) for reply in replies) for name in ("accepted", "rounds"))
    nearest = max(round(mean), math.ceil(accepted / max(rounds, 1) - SLACK), 1)
    if nearest > LONGEST_DRAFT:
        source.refuse(f"{mean:.1f} tokens a draft are more than {LONGEST_DRAFT}; give --draft-tokens")
    return (
        nearest,
        0.0,
        [f"{source.name}: draft tokens taken as {nearest}, the mean draft has {mean:.2f}; --draft-tokens"],
    )


def _drafter(source: Source, given: Given, told: Told, speculates: bool) -> tuple[str, list[str]]:
    spelled = given.drafter or told.drafter
    if spelled or not speculates:
        return drafter_kind(spelled) or "model", []
    return "model", [f"{source.name}: does not say what drafts: taken as a draft model; --drafter"]


def speculating(base: Setting, given: Given, told: Told, drafter: str, length: int, p_min: float) -> Setting:
    """`base` with a drafter; the server's own spelling of the drafter kept as the draft's name."""
    return Setting(
        target=base.target,
        target_quant=base.target_quant,
        context=base.context,
        drafter=drafter,
        draft=given.draft or told.draft or (told.drafter if drafter not in ("model", told.drafter) else ""),
        draft_quant=given.draft_quant or told.draft_quant,
        draft_tokens=length,
        p_min=p_min,
    )


def _plain_row(source: Source, base: Setting, given: Given, temperature: float | None, speed: float) -> ReportedRow:
    return ReportedRow(
        setting=base,
        workload=given.workload or REPORTED,
        baseline_tokens_per_second=speed,
        tokens_per_second=speed,
        temperature=temperature,
        source=source.name,
    )


def _row(
    source: Source,
    setting: Setting,
    given: Given,
    temperature: float | None,
    replies: Sequence[Reply],
    baseline: float | None,
) -> ReportedRow:
    rounds, tokens = (sum(values) for values in zip(*((r.rounds, r.reply_tokens - 1) for r in replies), strict=True))
    try:
        return ReportedRow(
            setting=setting,
            workload=given.workload or REPORTED,
            baseline_tokens_per_second=baseline,
            tokens_per_second=_speed(replies),
            tokens_per_round=tokens / rounds,
            temperature=temperature,
            rounds=rounds,
            source=source.name,
        )
    except ValueError as error:
        source.refuse(f"{error}; give --draft-tokens as the server had them")


def _by_temperature(replies: Sequence[Reply]) -> dict[float | None, list[Reply]]:
    found: dict[float | None, list[Reply]] = defaultdict(list)
    for reply in replies:
        found[reply.temperature].append(reply)
    return found


def _speed(replies: Sequence[Reply]) -> float:
    """Tokens after each reply's first, over their seconds."""
    return sum(reply.reply_tokens - 1 for reply in replies) / sum(reply.decode_seconds for reply in replies)


def _reply(fields: Fields) -> Reply:
    timings = fields.part("timings") or fields
    settings = fields.part("generation_settings") or Fields(fields.where, {})
    tokens = timings.whole("predicted_n", 0, MOST_TOKENS)
    milliseconds = timings.number("predicted_ms", 0, 1e3 * MOST_SECONDS)
    reply = Reply(
        where=fields.where,
        prompt_tokens=sum(timings.whole_or(name, 0, MOST_TOKENS) or 0 for name in ("cache_n", "prompt_n")),
        reply_tokens=tokens,
        decode_seconds=milliseconds / 1e3,
        drafted=timings.whole_or("draft_n", 0, MOST_TOKENS),
        accepted=timings.whole_or("draft_n_accepted", 0, MOST_TOKENS) or 0,
        temperature=settings.number_or("temperature", 0, 10),
        limit=settings.whole_or("speculative.n_max", 0, LONGEST_DRAFT) or None,
        p_min=settings.number_or("speculative.p_min", 0, 1) or 0.0,
    )
    _check_speed(timings, tokens, milliseconds)
    return checked(timings, reply)


def checked(fields: Fields, reply: Reply) -> Reply:
    """A reply that can be. Raises InputError."""
    if reply.reply_tokens > 1 and not reply.decode_seconds > 0:
        fields.refuse(f"{reply.reply_tokens} tokens in no time; the file is damaged")
    if reply.drafted is None and reply.accepted:
        fields.refuse("tokens are accepted that were not drafted; the file is damaged")
    if reply.drafted is not None and reply.accepted > reply.drafted:
        fields.refuse(f"{reply.accepted} accepted of {reply.drafted} drafted tokens; the file is damaged")
    if reply.accepted and reply.rounds < 1:
        fields.refuse(f"{reply.accepted} accepted tokens in a reply of {reply.reply_tokens}; the file is damaged")
    return reply


def _check_speed(timings: Fields, tokens: int, milliseconds: float) -> None:
    """The reply's own speed counts all its tokens or all after the first."""
    speed = timings.above_0_or("predicted_per_second", 1e9) if tokens > 1 and milliseconds else None
    if speed is not None:
        counted = min((tokens, tokens - 1), key=lambda n: abs(n * 1e3 / milliseconds - speed))
        agree(timings, "predicted_per_second and predicted_ms", speed, counted * 1e3 / milliseconds, 0.02)


def _told(objects: Sequence[Fields]) -> Told:
    """The model, where the replies name one file of weights."""
    models = {fields.text("model") for fields in objects} - {""}
    path = next(iter(models)) if len(models) == 1 else ""
    name, quant = weights_name(path) if path.endswith(".gguf") else ("", "")
    return Told(target=name, target_quant=quant)

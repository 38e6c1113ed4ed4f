"""Log lines of llama-server: timings of replies and counters of drafts, in old and new spellings."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ...profiler.files import shown
from ...profiler.records import Key, ReportedAcceptance, ReportedRow, Setting
from . import sentences
from .base import Given, Imported
from .llama_server import Reply, Told, checked, draft_length, plain, rows_of_replies, speculating
from .names import drafter_kind, weights_name
from .rows import REPORTED
from .source import MOST_SECONDS, MOST_TOKENS, Fields, Source, agree, listed

FORMAT = "llama-server log"
PROMPT = re.compile(r"prompt eval time\s*=\s*(?P<ms>\S+) ms /\s*(?P<tokens>\S+) tokens")
EVAL = re.compile(
    r"(?<!prompt )eval time\s*=\s*(?P<ms>\S+) ms /\s*(?P<tokens>\S+) (?:tokens|runs)\s*"
    r"\(.*?(?P<speed>\S+) tokens per second\)"
)
DRAFT = re.compile(
    r"draft acceptance(?: rate)?\s*=\s*(?P<rate>\S+)\s*\(\s*(?P<accepted>\S+) accepted\s*/\s*(?P<drafted>\S+) generated\)"
)
COUNTERS = re.compile(
    r"statistics\s+(?P<drafter>\S+?):\s*#calls\S*\s*=.*?#gen drafts\s*=\s*(?P<drafts>[^,\s]+),"
    r".*?#gen tokens\s*=\s*(?P<drafted>[^,\s]+),\s*#acc tokens\s*=\s*(?P<accepted>[^,\s]+)"
)
BY_POSITION = re.compile(r"#acc rate/pos\s*=\s*\((?P<rates>[^)]*)\)")
MARKS = {"eval time": (PROMPT, EVAL), "draft acceptance": (DRAFT,), "#gen tokens": (COUNTERS,)}
"""What shows that a line is one of these; a line with the mark and another form is damaged."""
MODEL = re.compile(r"loaded meta data with .* from (?P<path>\S.*?) \(version")
DEVICE = re.compile(r"using device \S+ \((?P<name>[^)]*)\)")
BUILD = re.compile(r"\bbuild(?:_info)?\s*[:=]\s*b?(?P<number>\d+)[ -]\(?(?P<commit>[0-9a-f]{7,})")


@dataclass(frozen=True)
class Counters:
    """Counters of one drafter since the server began."""

    drafter: str
    drafts: int
    drafted: int
    accepted: int
    rates: tuple[float, ...] = ()


@dataclass(frozen=True)
class Log:
    """What a log says."""

    replies: tuple[Reply, ...]
    counters: tuple[Counters, ...]
    models: tuple[str, ...]
    device: str
    build: str


def is_server_log(text: str) -> bool:
    """Whether a text has lines of this format."""
    return any(pattern.search(text) for pattern in (EVAL, DRAFT, COUNTERS)) or (
        "eval time" in text and "print_timing" in text
    )


def read_server_log(source: Source, given: Given) -> Imported:
    """Evidence of a server's log. Raises InputError."""
    log = _parsed(source)
    kept = [reply for reply in log.replies if reply.reply_tokens > 1]
    told = _told(log)
    rows, warnings, left_out = rows_of_replies(source, kept, given, told) if kept else ((), [], [])
    acceptance = _acceptance(source, log, given, told, rows)
    if not rows and not acceptance:
        source.refuse("has neither replies of 2 tokens or more nor counters of drafts; give the lines with timings")
    return Imported(
        source=source.name,
        format=FORMAT,
        key=Key(gpu=log.device or given.gpu, engine="llama.cpp", build=log.build),
        reported=rows,
        acceptance=acceptance,
        learned=(f"{len(kept)} replies", *sentences.of_rows(rows), *sentences.of_counters(acceptance)),
        warnings=(*warnings, *_several(source, log), *source.end_warnings()),
        left_out=tuple(left_out),
        digest=source.digest,
        counted_contexts=True,
    )


def _parsed(source: Source) -> Log:
    replies: list[Reply] = []
    prompt_tokens = 0
    counters: dict[str, Counters] = {}
    models: list[str] = []
    device = build = ""
    for at, line in source.lines():
        fields = Fields(f"{shown(source.name)}, line {at}", {})
        found = _matched(fields, line)
        if found is None:
            models += [match["path"] for match in MODEL.finditer(line)]
            device = device or next((match["name"] for match in DEVICE.finditer(line)), "")
            build = build or next((f"b{m['number']}-{m['commit']}" for m in BUILD.finditer(line)), "")
            continue
        fields = Fields(fields.where, found.groupdict())
        if found.re is PROMPT:
            prompt_tokens = fields.whole("tokens", 0, MOST_TOKENS)
        elif found.re is EVAL:
            replies.append(_reply(fields, prompt_tokens))
            prompt_tokens = 0
        elif found.re is DRAFT:
            _attach(fields, replies)
        else:
            own = _counters(fields, line)
            counters[own.drafter] = _later(fields, counters.get(own.drafter), own)
    return Log(tuple(replies), tuple(counters.values()), tuple(dict.fromkeys(models)), device, build)


def _matched(fields: Fields, line: str) -> re.Match[str] | None:
    """The match of a line with evidence; None for another. Raises InputError for one that is damaged."""
    for mark, patterns in MARKS.items():
        if mark in line:
            found = next((match for pattern in patterns if (match := pattern.search(line))), None)
            return found or fields.refuse(f"a line with {mark!r} that is cut or of another form; leave it out")
    return None


def _reply(fields: Fields, prompt_tokens: int) -> Reply:
    tokens = fields.whole("tokens", 0, MOST_TOKENS)
    milliseconds = fields.number("ms", 0, 1e3 * MOST_SECONDS)
    if tokens > 1 and milliseconds:
        speed = fields.above_0("speed", 1e9)
        counted = min((tokens, tokens - 1), key=lambda n: abs(n * 1e3 / milliseconds - speed))
        agree(fields, "tokens per second and ms", speed, counted * 1e3 / milliseconds, 0.02)
    return checked(fields, Reply(fields.where, prompt_tokens, tokens, milliseconds / 1e3))


def _attach(fields: Fields, replies: list[Reply]) -> None:
    """Drafts belong to the reply whose times stand before them; on their own they are part of the counters' story."""
    drafted, accepted = (fields.whole(name, 0, MOST_TOKENS) for name in ("drafted", "accepted"))
    if drafted:
        agree(fields, "acceptance rate and counts", fields.number("rate", 0, 1) + 1, accepted / drafted + 1, 0.001)
    if replies and replies[-1].drafted is None:
        replies[-1] = checked(fields, replace(replies[-1], drafted=drafted, accepted=accepted))


def _counters(fields: Fields, line: str) -> Counters:
    drafts, drafted, accepted = (fields.whole(name, 0, MOST_TOKENS) for name in ("drafts", "drafted", "accepted"))
    if accepted > drafted or drafts > drafted:
        fields.refuse(f"{drafts} drafts of {drafted} tokens, {accepted} accepted: that cannot be; the line is damaged")
    found = BY_POSITION.search(line)
    rates = [rate for rate in found["rates"].split(",") if rate.strip()] if found else []
    checked_rates = tuple(fields.checked("acceptance rate by position", rate.strip(), 0, 1) for rate in rates)
    return Counters(fields.text("drafter"), drafts, drafted, accepted, checked_rates)


def _later(fields: Fields, before: Counters | None, after: Counters) -> Counters:
    """Counters grow as long as a server lives."""
    if before and (after.drafts < before.drafts or after.drafted < before.drafted or after.accepted < before.accepted):
        fields.refuse(f"counters of {after.drafter} fall: the server was restarted; give the log of one start")
    return after


def _told(log: Log) -> Told:
    """The first model that is loaded is the target, the second the draft; the drafter of most tokens is the drafter."""
    (target, quant), (draft, draft_quant) = (
        weights_name(log.models[at]) if len(log.models) > at else ("", "") for at in (0, 1)
    )
    drafting = _main(log)
    return Told(
        target=target,
        target_quant=quant,
        drafter=drafting.drafter.replace("_", "-") if drafting and drafter_kind(drafting.drafter) else "",
        draft=draft,
        draft_quant=draft_quant,
        draft_length=drafting.drafted / drafting.drafts if drafting and len(_drafting(log)) == 1 else None,
    )


def _drafting(log: Log) -> list[Counters]:
    return [own for own in log.counters if own.drafts]


def _main(log: Log) -> Counters | None:
    return max(_drafting(log), key=lambda own: own.drafted, default=None)


def _acceptance(
    source: Source, log: Log, given: Given, told: Told, rows: Sequence[ReportedRow]
) -> tuple[ReportedAcceptance, ...]:
    """Counters where they say more than the rows: by position, or alone."""
    main = _main(log)
    speculative = [row.setting for row in rows if row.setting.draft_tokens]
    if main is None or (speculative and not main.rates):
        return ()
    setting = speculative[0] if speculative else _setting(source, main, given, told)
    by_position = tuple(round(rate * main.drafts) for rate in main.rates)
    try:
        return (
            ReportedAcceptance(
                setting=setting,
                workload=given.workload or REPORTED,
                drafts=main.drafts,
                drafted=main.drafted,
                accepted=main.accepted,
                accepted_by_position=by_position,
                source=source.name,
            ),
        )
    except ValueError as error:
        source.refuse(f"{error}; the line of statistics is damaged")


def _setting(source: Source, main: Counters, given: Given, told: Told) -> Setting:
    reply = Reply("", 0, main.drafts + main.accepted + 1, 1.0, main.drafted, main.accepted)
    length, _, _ = draft_length(source, [reply], given, told)
    drafter = drafter_kind(given.drafter or told.drafter) or "model"
    return speculating(plain(given, told, 0), given, told, drafter, length, 0.0)


def _several(source: Source, log: Log) -> Iterator[str]:
    names = [own.drafter for own in _drafting(log)]
    if len(names) > 1:
        yield f"{source.name}: {listed(names)} drafted together: taken as one drafter, that of most tokens"

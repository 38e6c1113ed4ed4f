"""The allow-list: for every field of every record of a profile, what of it may be shared.

A field that no rule names stops the export and fails a test: whoever adds one decides here.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from .. import records
from . import words
from .names import Names

Rule = Callable[[Any, Names, Any], Any]
"""(value, names, the record that it is of) -> what is shared."""
REASON = "the reason is left out of a shared profile"


def number(value: Any, names: Names, owner: Any) -> Any:
    """Numbers, truth values and tuples of them; what a test holds against the field's type."""
    return value


def nested(value: Any, names: Names, owner: Any) -> Any:
    """Records, by their own rules; redact.py walks them."""
    raise AssertionError("walked, not called")


def _left_out(kind: str, empty: Any) -> Rule:
    def rule(value: Any, names: Names, owner: Any) -> Any:
        for one in (value,) if isinstance(value, str) else value:
            names.note(kind, str(one))
        return empty

    return rule


def _word(allowed: frozenset[str], other: str = "") -> Rule:
    def rule(value: str, names: Names, owner: Any) -> str:
        return names.checked("words that are not known", value, words.one_of(allowed, value, other))

    return rule


def _words(allowed: frozenset[str]) -> Rule:
    def rule(value: tuple[str, ...], names: Names, owner: Any) -> tuple[str, ...]:
        for one in value:
            names.checked("words that are not known", one, words.one_of(allowed, one))
        return tuple(one for one in value if one in allowed)

    return rule


def _filtered(kind: str, kept: Callable[[str], str]) -> Rule:
    return lambda value, names, owner: names.checked(kind, value, kept(value))


def _reason(value: str, names: Names, owner: Any) -> str:
    """That there was a reason stays, what it said does not: it may hold paths and the words of a log."""
    names.note("reasons and lines of logs", value)
    return REASON if value else ""


def _reasons(value: tuple[str, ...], names: Names, owner: Any) -> tuple[str, ...]:
    return tuple(_reason(one, names, owner) for one in value)


def _dropped(value: Mapping[str, str], names: Names, owner: Any) -> dict[str, str]:
    return {
        names.candidates[name]: _reason(why, names, owner) for name, why in value.items() if name in names.candidates
    }


def _flags(value: tuple[str, ...], names: Names, owner: Any) -> tuple[str, ...]:
    kept = words.speed_flags(value)
    for word in set(value) - set(kept):
        names.note("engine flags and their values", word)
    return kept


def _recipes(value: Mapping[str, tuple[str, ...]], names: Names, owner: Any) -> dict[str, tuple[str, ...]]:
    known = words.ROUND_TERMS
    return {name: terms for name, terms in value.items() if name in words.DRAFTERS and known.issuperset(terms)}


def _effective(value: Mapping[str, str], names: Names, owner: Any) -> dict[str, str]:
    kept = {
        name: told
        for name, text in value.items()
        if (told := words.number(text) if name in words.NUMBERS_READ_BACK else _told(name, text))
    }
    for name in value.keys() - kept.keys():
        names.note("settings read back as text", f"{name} {value[name]}")
    return kept


def _told(name: str, text: str) -> str:
    if name in ("weights.target", "weights.draft"):
        return words.quant(text)
    return words.one_of(words.WORDS_READ_BACK.get(name, ()), text.split(":")[0])


def _time(value: str, names: Names, owner: Any) -> str:
    try:
        return datetime.fromisoformat(value).astimezone(UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError):
        return names.checked("words that are not known", value, "")


def _shares(value: Mapping[str, float], names: Names, owner: Any) -> dict[str, float]:
    return {names.workload(name): share for name, share in value.items()}


def _own_name(value: str, names: Names, owner: Any) -> str:
    """What a header calls its model."""
    return names.checked("names of models", value, value[:200] if names.keep_names and value.isprintable() else "")


_model: Rule = lambda value, names, owner: names.model(value)
_quant: Rule = lambda value, names, owner: names.quant(value)
_workload: Rule = lambda value, names, owner: names.workload(value)
_source: Rule = lambda value, names, owner: names.source(value)
_reply: Rule = lambda value, names, owner: names.reply(value)
_drafter = _word(words.DRAFTERS, "none")
_hardware = _filtered("words of hardware names", words.hardware)
_version = _filtered("words of versions", words.version)

SETTING: dict[str, Rule] = {
    **dict.fromkeys(("target", "draft"), _model),
    **dict.fromkeys(("target_quant", "draft_quant", "kv_type_k", "kv_type_v"), _quant),
    "drafter": _drafter,
    **dict.fromkeys(("draft_tokens", "p_min", "ngram_size", "context", "streams"), number),
}
ROUNDS: dict[str, Rule] = dict.fromkeys(("seconds", "drafted", "accepted", "thread_seconds", "at_seconds"), number)
SENTINEL: dict[str, Rule] = dict.fromkeys(("sentinel_seconds", "sentinel_thread_seconds"), number)
PAIR: dict[str, Rule] = {"target": _model, "drafter": _drafter, "draft": _model, "ngram_size": number}

RULES: dict[type[records.Record], dict[str, Rule]] = {
    records.Profile: {
        "kind": _word(frozenset({"specgauge-profile"}), "specgauge-profile"),
        **dict.fromkeys(("schema_version", "profile_seconds", "complete", "budget_seconds"), number),
        "created": _time,
        "tool_version": _version,
        **dict.fromkeys(
            ("key", "engine", "models", "prompts", "sampling", "candidates", "measurements"),
            nested,
        ),
        "sentinel_model": _model,
        **dict.fromkeys(("dropped", "unmeasured"), _dropped),
        "warnings": _left_out("warnings", ()),
        "workload_shares": _shares,
        "prompt_texts": _left_out("texts of prompts", ()),
        "redacted": lambda value, names, owner: True,
    },
    records.ModelFile: {
        "label": _model,
        "path": lambda value, names, owner: names.path(value),
        "sha256": lambda value, names, owner: names.weights(owner),
        "name": _own_name,
        "architecture": _filtered("families of models", words.architecture),
        "quant": _quant,
        "tokenizer_sha256": lambda value, names, owner: names.tokenizer(value),
        **dict.fromkeys(
            ("size_bytes", "parameters", "head_bytes", "unread_bytes", "recurrent", "mtp_layers", "random"), number
        ),
    },
    records.Sampling: {
        **dict.fromkeys(("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "seed"), number),
        "draft_sampling": _word(words.DRAFT_SAMPLINGS, "greedy"),
    },
    records.Setting: SETTING,
    records.Candidate: SETTING,
    records.Prompt: {
        "id": lambda value, names, owner: names.prompt(value),
        "workload": _workload,
        "workload_class": _word(words.CLASSES),
        "text_sha256": lambda value, names, owner: names.prompt_hash(value),
        "new_tokens": number,
    },
    records.Key: {
        **dict.fromkeys(("gpu", "cpu", "backend"), _hardware),
        "gpu_uuid": _left_out("UUID of the GPU", ""),
        **dict.fromkeys(("power_limit_watts", "threads"), number),
        **dict.fromkeys(("driver", "build"), _version),
        "engine": _word(words.ENGINES, "unknown"),
        "flags": _flags,
    },
    records.DeviceState: {
        **dict.fromkeys(
            (
                *("clock_mhz", "memory_clock_mhz", "power_watts", "temperature_celsius", "memory_used_bytes"),
                *("memory_free_bytes", "power_limit_watts", "pcie_rx_bytes_per_second", "pcie_tx_bytes_per_second"),
                *("utilization", "load_average"),
            ),
            number,
        ),
        "event_reasons": _words(words.EVENTS),
    },
    records.BandwidthSample: {
        "operation": _word(words.OPERATIONS, "read"),
        "device": _hardware,
        **dict.fromkeys(("threads", "buffer_bytes", "bytes_per_second"), number),
        "provenance": _word(words.PROVENANCES),
    },
    records.StepSample: {
        "model": _model,
        "role": _word(words.ROLES),
        "kind": _word(words.STEP_KINDS),
        **dict.fromkeys(
            ("width", "context", "streams", "seconds", "thread_seconds", "device_seconds", "at_seconds", "cold"), number
        ),
        **SENTINEL,
    },
    records.RoundSample: {
        "setting": nested,
        **ROUNDS,
        **SENTINEL,
        **dict.fromkeys(("forced_rates", "context", "cold"), number),
    },
    records.MatchTrace: {
        **PAIR,
        "prompt": nested,
        **dict.fromkeys(("prompt_tokens", "reply_tokens", "match", "weight", "offer", "run"), number),
        "reply_sha256": _reply,
        "source": _word(words.MATCH_SOURCES),
    },
    records.PromptTrace: {"prompt": nested, **ROUNDS, **dict.fromkeys(("prompt_tokens", "reply_tokens"), number)},
    records.Trace: dict.fromkeys(("setting", "sampling", "prompts"), nested),
    records.PromptRun: {
        "prompt": nested,
        **dict.fromkeys(
            (
                *(
                    "repeat",
                    "prompt_tokens",
                    "reply_tokens",
                    "decode_seconds",
                    "decode_thread_seconds",
                    "prefill_seconds",
                ),
                *("wall_seconds", "drafted", "accepted", "at_seconds"),
            ),
            number,
        ),
        "reply_sha256": _reply,
    },
    records.Run: {**dict.fromkeys(("setting", "sampling", "replies"), nested), "effective": _effective},
    records.ReportedRow: {
        "setting": nested,
        "workload": _workload,
        **dict.fromkeys(
            (
                *("baseline_tokens_per_second", "tokens_per_second", "tokens_per_round", "temperature", "repeats"),
                *("rounds", "tokens_per_second_sd"),
            ),
            number,
        ),
        "source": _source,
    },
    records.ReportedAcceptance: {
        "setting": nested,
        "workload": _workload,
        **dict.fromkeys(("drafts", "drafted", "accepted", "accepted_by_position"), number),
        "source": _source,
    },
    records.Request: {
        "action": _word(words.ACTIONS, "unknown"),
        "settings": nested,
        "model": _model,
        "role": _word(words.ROLES),
        **dict.fromkeys(("widths", "contexts", "repeats", "first_repeat", "forced_rates", "expected_seconds"), number),
        "workloads": lambda value, names, owner: tuple(names.workload(one) for one in value),
    },
    records.Measurement: {
        **dict.fromkeys(
            (
                *("request", "steps", "rounds", "traces", "matches", "runs", "bandwidth", "reported"),
                *("reported_acceptance", "state_before", "state_after", "states_during"),
            ),
            nested,
        ),
        "digest": lambda value, names, owner: "",  # made anew of the request that is shared
        **dict.fromkeys(("started_at_seconds", "wall_seconds"), number),
        "rejected": _reasons,
        "unsupported": _reason,
    },
    records.EngineInfo: {
        "name": _word(words.ENGINES, "unknown"),
        "build": _version,
        "backend": _hardware,
        "command": _left_out("engine commands", ()),
        "capabilities": _words(words.CAPABILITIES),
        "spellings": lambda value, names, owner: {},
        "recipes": _recipes,
    },
}

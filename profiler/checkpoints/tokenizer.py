"""tokenizer.json and what lies beside it: the vocabulary as one string of bytes, and hashes of its rules."""

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from .checkpoint import Tokenizer
from .config import Config
from .json_file import CONFIG_BYTES, TOKENIZER_BYTES, Content, read_content, read_object

MOST_TOKENS = 1 << 20
"""No vocabulary is that large."""
SPECIAL = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
SPARSE_FACTOR = 4
"""Ids may leave this many times the tokens empty, no more."""
NO_JSON = msgspec.Raw(b"null")


class _Added(msgspec.Struct):
    id: int
    content: str
    special: bool = False


class _Model(msgspec.Struct):
    type: str = ""
    vocab: msgspec.Raw = NO_JSON
    merges: msgspec.Raw = NO_JSON
    byte_fallback: bool = False
    unk_token: str | None = None
    unk_id: int | None = None


class _File(msgspec.Struct):
    model: _Model
    added_tokens: list[_Added] = []
    pre_tokenizer: msgspec.Raw = NO_JSON


@dataclass(frozen=True)
class ReadTokenizer:
    """A tokenizer, None where the folder has no tokenizer.json, and the bytes that were read for it."""

    tokenizer: Tokenizer | None
    read_bytes: int


def read_tokenizer(folder: Path, config: Config) -> ReadTokenizer:
    """The tokenizer of a folder; `config` gives the embedding's rows and ids. Raises InputError for a damaged file."""
    path = folder / "tokenizer.json"
    if not path.exists():
        return ReadTokenizer(None, 0)
    content = read_content(path, TOKENIZER_BYTES)
    beside = [
        _beside(folder / name)
        for name in ("tokenizer_config.json", "special_tokens_map.json", "generation_config.json")
    ]
    template = _template(folder, beside[0].values)
    read_bytes = len(content.data) + sum(one.read_bytes for one in beside) + template.read_bytes
    texts = (beside[0].values, beside[1].values)
    numbers = (config.values, config.outer, beside[2].values)
    return ReadTokenizer(_tokenizer(content, config, texts, numbers, template.text), read_bytes)


@dataclass(frozen=True)
class _Beside:
    """A small JSON file that may be missing."""

    values: Mapping[str, object]
    read_bytes: int = 0


@dataclass(frozen=True)
class _Template:
    text: str
    read_bytes: int = 0


def _beside(path: Path) -> _Beside:
    if not path.exists():
        return _Beside({})
    content = read_content(path, CONFIG_BYTES)
    return _Beside(read_object(content), len(content.data))


def _template(folder: Path, settings: Mapping[str, object]) -> _Template:
    """The chat template: a file of its own wins; of several named ones the default counts."""
    path = folder / "chat_template.jinja"
    if path.exists():
        content = read_content(path, CONFIG_BYTES)
        return _Template(content.data.decode("utf-8", "replace"), len(content.data))
    given = settings.get("chat_template")
    if isinstance(given, list):
        named = [one for one in given if isinstance(one, dict)]
        given = next((one.get("template") for one in named if one.get("name") == "default"), None)
    return _Template(given if isinstance(given, str) else "")


def _tokenizer(
    content: Content,
    config: Config,
    texts: Sequence[Mapping[str, object]],
    numbers: Sequence[Mapping[str, object]],
    template: str,
) -> Tokenizer:
    content.check_entries(MOST_TOKENS + (1 << 18), "vocabulary")
    file = content.decode(_File)
    ids = _vocabulary(content, file)
    tokens = _in_order(content, ids, file.added_tokens)
    model = _kind(file.model)
    return Tokenizer(
        model=model,
        pre=_rules_hash(file.pre_tokenizer),
        entries=_entries(tokens),
        tokens=len(tokens),
        rows=config.vocabulary,
        special=_special(ids, file.model, texts, numbers),
        merges_sha256=_merges_hash(content, file.model.merges) if model == "bpe" else "",
        chat_template=template,
    )


def _kind(model: _Model) -> str:
    """GGUF's families: a BPE that falls back to bytes is sentencepiece's, its merges rebuilt from the scores."""
    if model.type == "Unigram" or (model.type == "BPE" and model.byte_fallback):
        return "spm"
    return {"BPE": "bpe", "WordPiece": "wordpiece"}.get(model.type, model.type.lower()[:40])


def _vocabulary(content: Content, file: _File) -> dict[str, int]:
    """Ids by text, those of added tokens included."""
    raw = Content(content.path, bytes(file.model.vocab))
    if raw.data.lstrip()[:1] == b"[":
        pieces = raw.decode(list[tuple[str, float]])
        ids = {piece: at for at, (piece, _) in enumerate(pieces)}
    else:
        ids = {} if raw.is_null else raw.decode(dict[str, int])
    ids.update((added.content, added.id) for added in file.added_tokens)
    if not ids:
        raise content.damaged("it has no vocabulary")
    return ids


def _in_order(content: Content, ids: Mapping[str, int], added: Iterable[_Added]) -> list[str]:
    """Texts by id. An id that no token has is spelled [PAD<id>], as the GGUF converter does (ggml-org/llama.cpp)."""
    last = max(ids.values())
    if min(ids.values()) < 0 or last >= min(SPARSE_FACTOR * len(ids) + 1024, MOST_TOKENS):
        raise content.damaged("it has a token whose id is absurd")
    tokens: list[str | None] = [None] * (last + 1)
    for text, at in ids.items():
        tokens[at] = text
    for one in added:
        if not one.special:
            tokens[one.id] = one.content.replace("▁", " ")
    return [f"[PAD{at}]" if text is None else text for at, text in enumerate(tokens)]


def _entries(tokens: Iterable[str]) -> bytes:
    """Each token's length in bytes, u64 little-endian, and its UTF-8 text."""
    pack = struct.Struct("<Q").pack
    encoded = (text.encode() for text in tokens)
    return b"".join(part for text in encoded for part in (pack(len(text)), text))


def _merges_hash(content: Content, merges: msgspec.Raw) -> str:
    """Of the rules as GGUF spells them ("a b"), each with its length in front; newer files write them as pairs."""
    raw = Content(content.path, bytes(merges))
    if raw.data.count(b",") > 4 * MOST_TOKENS:
        raise content.damaged("it has more merges than any vocabulary")
    rules = [] if raw.is_null else raw.decode(list[str | tuple[str, str]])
    if not rules:
        return ""
    # A space inside a token is spelled Ġ in the file, so that the one between them stands alone.
    spelled = (
        rule if isinstance(rule, str) else f"{rule[0].replace(' ', 'Ġ')} {rule[1].replace(' ', 'Ġ')}" for rule in rules
    )
    return hashlib.sha256(_entries(spelled)).hexdigest()


def _rules_hash(rules: msgspec.Raw) -> str:
    """sha256 of the pre-tokenizer, its keys sorted and its spaces gone; empty where there is none."""
    data = bytes(rules)
    if data.strip() == b"null":
        return ""
    if len(data) <= CONFIG_BYTES:
        try:
            data = msgspec.json.encode(msgspec.json.decode(data), order="sorted")
        except (ValueError, RecursionError):
            pass
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _special(
    ids: Mapping[str, int],
    model: _Model,
    texts: Sequence[Mapping[str, object]],
    numbers: Sequence[Mapping[str, object]],
) -> dict[str, int]:
    """Ids of the tokens with a part to play: by their texts first, as the GGUF converter does, then by config.json's numbers."""
    found: dict[str, int] = {}
    for role in SPECIAL:
        named = (ids.get(_text(values.get(f"{role}_token"))) for values in texts)
        numbered = (_first_id(values.get(f"{role}_token_id")) for values in numbers)
        at = next((one for one in (*named, *numbered) if one is not None), None)
        if at is not None:
            found[role] = at
    if "unk" not in found:
        unknown = ids.get(model.unk_token) if model.unk_token is not None else model.unk_id
        found |= {} if unknown is None else {"unk": unknown}
    return found


def _text(value: object) -> str:
    """A token's text, given as such or as an object with its settings."""
    content = value.get("content") if isinstance(value, dict) else value
    return content if isinstance(content, str) else ""


def _first_id(value: object) -> int | None:
    """An id, the first of several."""
    first = value[0] if isinstance(value, list) and value else value
    plausible = isinstance(first, int) and not isinstance(first, bool) and 0 <= first < MOST_TOKENS
    return first if plausible and isinstance(first, int) else None


def tokenizer_bytes(content: bytes, config: Config, name: str = "tokenizer.json") -> Tokenizer:
    """A tokenizer from the bytes of its tokenizer.json alone. Raises InputError."""
    return _tokenizer(Content(name, content), config, (), (config.values,), "")

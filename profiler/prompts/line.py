"""One line of a file of prompts: plain text, {"prompt": text}, or OpenAI-style {"messages": [{"role", "content"}, ...]}."""

from dataclasses import dataclass

import msgspec

from ..errors import InputError
from ..records import Message
from ..workloads import text_sha256

DEFAULT_NEW_TOKENS = 64
LEAST_NEW_TOKENS, MOST_NEW_TOKENS = 2, 8192
"""A reply of one token has no speed of decoding."""
MOST_MESSAGES = 1000
LONGEST_WORKLOAD = 40
ROLES = ("system", "developer", "user", "assistant", "tool")
USUAL_WORKLOAD = "prompts"


class _Part(msgspec.Struct, frozen=True):
    """A part of a message's content; other kinds than text are refused."""

    type: str
    text: str = ""


class _Turn(msgspec.Struct, frozen=True):
    role: str
    content: str | tuple[_Part, ...]


class _Line(msgspec.Struct, frozen=True):
    """What is read of a line; other fields (model, temperature, ...) are left alone."""

    messages: tuple[_Turn, ...] | None = None
    prompt: str | None = None
    workload_class: str | None = msgspec.field(default=None, name="class")
    workload: str | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None


@dataclass(frozen=True)
class PromptLine:
    """A prompt as its line says it; `messages` is empty where `text` goes to the model as it is."""

    line: int
    workload: str
    text: str
    messages: tuple[Message, ...]
    new_tokens: int
    sha256: str


class BadLine(InputError):
    """What is wrong with a line, without where; never a word of the prompt itself."""


def plain_line(line: int, text: str) -> PromptLine:
    """A line of plain text."""
    return PromptLine(line, USUAL_WORKLOAD, text, (), DEFAULT_NEW_TOKENS, text_sha256(text))


def json_line(line: int, content: bytes) -> PromptLine:
    """A line of JSON. Raises BadLine."""
    try:
        found = msgspec.json.decode(content, type=_Line)
    except msgspec.ValidationError as error:
        raise BadLine(f"not a prompt: {' '.join(str(error).split())}") from None
    except (ValueError, RecursionError):
        raise BadLine("not JSON; each line is one object") from None
    if (found.messages is None) == (found.prompt is None):
        raise BadLine('give either "messages" or "prompt"')
    messages = _conversation(found.messages) if found.messages is not None else ()
    text = found.prompt or ""
    if not messages and not text.strip():
        raise BadLine("the prompt is empty")
    _check_text(text, messages)
    return PromptLine(line, _workload(found), text, messages, _new_tokens(found), text_sha256(text, messages))


def _conversation(turns: tuple[_Turn, ...]) -> tuple[Message, ...]:
    """The turns up to the last that is not the assistant's: what comes behind is the reply of another model."""
    if len(turns) > MOST_MESSAGES:
        raise BadLine(f"{len(turns):,} messages, more than {MOST_MESSAGES:,}")
    strange = next((place for place, turn in enumerate(turns, 1) if turn.role not in ROLES), None)
    if strange is not None:
        raise BadLine(f"the role of message {strange} is none of {', '.join(ROLES)}")
    last = max((place for place, turn in enumerate(turns, 1) if turn.role != "assistant"), default=0)
    messages = tuple(
        Message(role=turn.role, content=_content(turn, place)) for place, turn in enumerate(turns[:last], 1)
    )
    if not any(message.content.strip() for message in messages):
        raise BadLine("no message asks for a reply")
    return messages


def _content(turn: _Turn, place: int) -> str:
    if isinstance(turn.content, str):
        return turn.content
    if any(part.type != "text" for part in turn.content):
        raise BadLine(f"message {place} holds more than text")
    return "".join(part.text for part in turn.content)


def _check_text(text: str, messages: tuple[Message, ...]) -> None:
    if any("\0" in part for part in (text, *(message.content for message in messages))):
        raise BadLine("holds a NUL character")


def _workload(found: _Line) -> str:
    name = found.workload_class if found.workload_class is not None else found.workload
    if name is None:
        return USUAL_WORKLOAD
    name = name.strip()
    if not name or len(name) > LONGEST_WORKLOAD or not name.isprintable():
        raise BadLine(f'"class" is 1 to {LONGEST_WORKLOAD} printable characters')
    return name


def _new_tokens(found: _Line) -> int:
    asked = found.max_tokens if found.max_tokens is not None else found.max_completion_tokens
    if asked is None:
        return DEFAULT_NEW_TOKENS
    if not LEAST_NEW_TOKENS <= asked <= MOST_NEW_TOKENS:
        raise BadLine(f"max_tokens {asked}: give {LEAST_NEW_TOKENS} to {MOST_NEW_TOKENS:,}")
    return asked

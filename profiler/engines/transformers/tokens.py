"""Tokens: text to ids, by the checkpoint's own tokenizer."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import transformers

from ...errors import InputError
from ...files import shown
from ...records import Message
from ..base import Unsupported
from .configs import config_of, is_gguf, located
from .own_loader import first_line

OTHER_FILES = ("tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json")
"""What older tokenizers lie in; transformers converts them."""


MOST_TOLD = 300
"""Characters of what a template says."""


class Reader:
    """Prompts to ids by one checkpoint's tokenizer, which is read when it is first needed."""

    def __init__(self, path: str):
        self._path = path

    @cached_property
    def _tokenizer(self) -> Any:
        return tokenizer_of(self._path)

    @cached_property
    def _with_template(self) -> Any:
        return templated_tokenizer_of(self._path)

    def text(self, text: str) -> tuple[int, ...]:
        """Ids of a text as it stands. Raises InputError."""
        ids = self._tokenizer.encode(text)
        return tuple(getattr(ids, "ids", ids))

    def conversation(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Ids of messages in the checkpoint's own chat template, up to where a reply begins. Raises InputError, and
        Unsupported for messages that the template refuses."""
        turns = [{"role": message.role, "content": message.content} for message in messages]
        try:
            text = self._with_template.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
            # The template has the special tokens in it already.
            return tuple(self._with_template(text, add_special_tokens=False)["input_ids"])
        except InputError:
            raise
        except Exception as error:  # a template is a stranger's program and may fail in any way
            told = first_line(error)[:MOST_TOLD]
            raise Unsupported(f"its messages do not go into the chat template ({told})") from None


def templated_tokenizer_of(path: str) -> Any:
    """The checkpoint's tokenizer with its chat template. Raises InputError where it has none."""
    source = located(Path(path))
    folder = source if source.is_dir() else source.parent
    gguf = {"gguf_file": source.name} if is_gguf(source) else {}
    try:
        found = transformers.AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, **gguf
        )
    except Exception as error:  # a damaged file or a package that is missing can break a tokenizer in any way
        raise InputError(f"{shown(source)}: its tokenizer cannot be read: {first_line(error)}") from None
    if not found.chat_template:
        raise InputError(f"{shown(source)} has no chat template: give prompts as text instead of messages")
    return found


def tokenizer_of(path: str) -> Any:
    """Something with encode(text) -> ids, special tokens in the text read as such. Raises InputError."""
    source = located(Path(path))
    folder = source if source.is_dir() else source.parent
    try:
        if is_gguf(source):
            return transformers.AutoTokenizer.from_pretrained(folder, gguf_file=source.name, local_files_only=True)
        if (folder / "tokenizer.json").exists():
            from tokenizers import Tokenizer

            return Tokenizer.from_file(str(folder / "tokenizer.json"))
        if any((folder / name).exists() for name in OTHER_FILES):
            return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # a damaged file or a package that is missing can break a tokenizer in any way
        raise InputError(f"{shown(source)}: its tokenizer cannot be read: {first_line(error)}") from None
    return StandIn(config_of(source).get_text_config(decoder=True).vocab_size)


@dataclass(frozen=True)
class StandIn:
    """Where there is no tokenizer: a token for every four characters, by their bytes. The text means nothing then."""

    vocabulary: int

    def encode(self, text: str) -> list[int]:
        """Ids below the vocabulary."""
        return [
            int.from_bytes(text[at : at + 4].encode("utf-8", "replace")[:7], "little") % self.vocabulary
            for at in range(0, len(text), 4)
        ]

"""Tokens: text to ids, by the checkpoint's own tokenizer."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers

from ...errors import InputError
from ...files import shown
from .skeleton import config_of


def tokenizer_of(path: str) -> Any:
    """Something with encode(text) -> ids, special tokens in the text read as such. Raises InputError."""
    source = Path(path)
    try:
        if source.suffix == ".gguf":
            return transformers.AutoTokenizer.from_pretrained(
                source.parent, gguf_file=source.name, local_files_only=True
            )
        folder = source if source.is_dir() else source.parent
        if (folder / "tokenizer.json").exists():
            from tokenizers import Tokenizer

            return Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:
        line = next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]
        raise InputError(f"{shown(source)}: its tokenizer cannot be read: {line}") from None
    return StandIn(config_of(source).get_text_config(decoder=True).vocab_size)


@dataclass(frozen=True)
class StandIn:
    """Where there is no tokenizer: a token for every four characters, by their bytes. The text means nothing then."""

    vocabulary: int

    def encode(self, text: str) -> list[int]:
        """Ids below the vocabulary."""
        return [
            int.from_bytes(text[at : at + 4].encode()[:7], "little") % self.vocabulary for at in range(0, len(text), 4)
        ]

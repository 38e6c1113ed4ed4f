"""Tokens: text to ids, by the checkpoint's own tokenizer."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers

from ...errors import InputError
from ...files import shown
from .configs import config_of, is_gguf, located
from .own_loader import first_line

OTHER_FILES = ("tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json")
"""What older tokenizers lie in; transformers converts them."""


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

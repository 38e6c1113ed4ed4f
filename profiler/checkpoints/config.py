"""config.json: what a model says of itself, each value checked as it is asked for."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError
from ..files import shown
from .families import NESTED_DEFAULTS
from .json_file import CONFIG_BYTES, read_content, read_object

LARGEST = 1 << 40
"""No width, count or length of a model is above it: such a number is damage."""
MAX_LAYERS = 1 << 14


@dataclass(frozen=True)
class Config:
    """`values` of the language model; `outer` of the whole file, the same where nothing is nested."""

    path: str
    values: Mapping[str, object]
    outer: Mapping[str, object]
    read_bytes: int = 0

    @property
    def model_type(self) -> str:
        """transformers' word for the architecture; empty where the file does not say."""
        return self.text("model_type")

    @property
    def architecture(self) -> str:
        """The class that the file names, else its model type, else unknown."""
        named = self.outer.get("architectures")
        first = named[0] if isinstance(named, list) and named else None
        return first if isinstance(first, str) and first.isprintable() else self.model_type or "unknown"

    def has(self, *keys: str) -> bool:
        """Whether one of `keys` is there and not null."""
        return any(self.values.get(key) is not None for key in keys)

    def text(self, key: str, default: str = "") -> str:
        """The string at `key`; anything else there is as good as nothing."""
        value = self.values.get(key)
        return value if isinstance(value, str) and value.isprintable() else default

    def number(self, *keys: str, default: int | None = None) -> int:
        """The first of `keys` that is there, else `default`, an integer from 0. Raises InputError."""
        key = next((key for key in keys if self.values.get(key) is not None), None)
        if key is None:
            if default is None:
                raise InputError(
                    f"{self.path} has no {keys[0]}: it is no config.json of a language model; check the folder"
                )
            return default
        value = self.values[key]
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
            raise InputError(f"{self.path} is damaged: its {key} is {_brief(value)}; download it again")
        return value

    def count(self, *keys: str, default: int | None = None) -> int:
        """`number` of what a model has at least one of. Raises InputError."""
        value = self.number(*keys, default=default)
        if value < 1:
            raise InputError(f"{self.path} is damaged: its {keys[0]} is {value}; download it again")
        return value

    def flag(self, *keys: str, default: bool = False) -> bool:
        """The first of `keys` that is there, else `default`. Raises InputError for what is neither true nor false."""
        value = next((self.values[key] for key in keys if self.values.get(key) is not None), default)
        if not isinstance(value, bool | int):
            raise InputError(f"{self.path} is damaged: its {keys[0]} is {_brief(value)}; download it again")
        return bool(value)

    def texts(self, *keys: str) -> tuple[str, ...]:
        """The list of strings at the first of `keys`, or (). Raises InputError for another list."""
        return tuple(str(item) for item in self._items(str, keys))

    def numbers(self, *keys: str) -> tuple[int, ...]:
        """The list of integers at the first of `keys`, or (). Raises InputError for another list."""
        return tuple(item for item in self._items(int, keys) if isinstance(item, int))

    def part(self, *keys: str) -> Mapping[str, object]:
        """The object at the first of `keys`, in the text part or outside of it; empty where there is none."""
        for key in keys:
            for values in (self.outer, self.values):
                value = values.get(key)
                if isinstance(value, dict):
                    return value
        return {}

    @property
    def tied(self) -> bool | None:
        """Whether the head is the embedding; None: not said."""
        for values in (self.values, self.outer):
            value = values.get("tie_word_embeddings")
            if isinstance(value, bool):
                return value
        return None

    @property
    def layers(self) -> int:
        """Layers of the model, its MTP head aside. Raises InputError."""
        blocks = self.values.get("layers_block_type")
        listed = len(blocks) if isinstance(blocks, list) and blocks else None
        layers = self.count("num_hidden_layers", "n_layer", "n_layers", "num_layers", default=listed)
        if layers > MAX_LAYERS:
            raise InputError(f"{self.path} is damaged: its num_hidden_layers is {layers}; download it again")
        return layers

    @property
    def hidden(self) -> int:
        """Width of the residual stream. Raises InputError."""
        return self.count("hidden_size", "n_embd", "d_model")

    @property
    def vocabulary(self) -> int:
        """Rows of the embedding. Raises InputError."""
        return self.count("vocab_size")

    @property
    def context_length(self) -> int | None:
        """Tokens that the model was trained for. Raises InputError for a damaged number."""
        return self.number("max_position_embeddings", "n_positions", "max_seq_len", default=0) or None

    @property
    def mtp_layers(self) -> int:
        """Layers of a built-in head that predicts further tokens, as the file promises them. Raises InputError."""
        return min(self.number("num_nextn_predict_layers", "mtp_num_hidden_layers", default=0), MAX_LAYERS)

    def _items(self, kind: type, keys: tuple[str, ...]) -> list[object]:
        key = next((key for key in keys if self.values.get(key) is not None), None)
        if key is None:
            return []
        value = self.values[key]
        if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
            raise InputError(f"{self.path} is damaged: its {key} is {_brief(value)}; download it again")
        return value


def read_config(path: str | os.PathLike[str]) -> Config:
    """The config.json at `path`, a file or the folder that holds it; no weights are needed. Raises InputError, one line."""
    file = Path(path)
    if file.is_dir():
        file = file / "config.json"
        if not file.exists():
            raise InputError(f"{shown(path)} has no config.json: it is no folder of a model; download all of its files")
    content = read_content(file, CONFIG_BYTES)
    return _config(content.path, read_object(content), len(content.data))


def config_of(values: Mapping[str, object], path: str = "config.json") -> Config:
    """A config from its values, as read_config makes it of a file."""
    return _config(path, values, 0)


def _config(path: str, outer: Mapping[str, object], read_bytes: int) -> Config:
    """Models that see or hear keep the language model in a part of its own."""
    inner = next(
        (v for key in ("text_config", "llm_config", "language_config") if isinstance(v := outer.get(key), dict)), None
    )
    if inner is None:
        return Config(path, outer, outer, read_bytes)
    model_type = inner.get("model_type", outer.get("model_type"))
    defaults = NESTED_DEFAULTS.get(model_type, {}) if isinstance(model_type, str) else {}
    return Config(path, {**defaults, "model_type": model_type, **inner}, outer, read_bytes)


def _brief(value: object) -> str:
    """A value as part of one line."""
    kind = "a list" if isinstance(value, list) else "an object" if isinstance(value, dict) else ""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > LARGEST:
        return "an absurd number"
    return kind or repr(value)[:40]

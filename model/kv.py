"""KV cache: how many bytes an element, a token and a group of layers take in it."""

from dataclasses import dataclass

import numpy as np

BYTES_PER_ELEMENT = {
    "f32": 4.0,
    "f16": 2.0,
    "bf16": 2.0,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
}
"""Bytes of one cached element by type; quantized types store blocks of 32 with their scale (ggml's block layouts)."""


@dataclass(frozen=True)
class KvTypes:
    """Bytes per element of cached keys and values; arrays (...) where many settings are looked at together.

    Raises ValueError where one is not above 0.
    """

    key_bytes: float | np.ndarray
    value_bytes: float | np.ndarray

    def __post_init__(self) -> None:
        if not (np.all(np.asarray(self.key_bytes) > 0) and np.all(np.asarray(self.value_bytes) > 0)):
            raise ValueError("a cached element takes more than 0 bytes")

    @classmethod
    def named(cls, key_type: str, value_type: str) -> "KvTypes":
        """The types of these names. Raises ValueError for a name not in BYTES_PER_ELEMENT."""
        for name in (key_type, value_type):
            if name not in BYTES_PER_ELEMENT:
                raise ValueError(f"no KV type is called {name}: known are {', '.join(BYTES_PER_ELEMENT)}")
        return cls(BYTES_PER_ELEMENT[key_type], BYTES_PER_ELEMENT[value_type])


F16 = KvTypes.named("f16", "f16")


@dataclass(frozen=True)
class KvGroup:
    """The cache of layers that remember equally: bytes per token (all of the layers), and `window` tokens or None."""

    bytes_per_token: float | np.ndarray
    window: int | None = None

    def size_bytes(self, tokens: int | np.ndarray, rows: int | np.ndarray = 0) -> float | np.ndarray:
        """Bytes (...) behind `tokens` (...) of one stream.

        A sliding window keeps at most window + `rows` tokens: rows of a pass that may be rejected must not evict what the
        window needs after the rollback (derived).
        """
        held = tokens if self.window is None else np.minimum(tokens, self.window + rows)
        return self.bytes_per_token * held

"""Models: what the engine has loaded, and a decoder with its own cache for each use of a model."""

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from ...errors import InputError
from ...records import ModelFile
from ..base import EngineFailed
from .decoder import Decoder
from .filler import Filler
from .loading import Loaded, load

GRAIN = 1024
"""Caches hold a multiple of so many tokens."""

OnLoad = Callable[[str], None]


class Models:
    """The models of a profile by label, loaded at first use and kept. Raises InputError for one that cannot be loaded."""

    def __init__(self, files: Sequence[ModelFile], device: str):
        self._files = {file.label: file for file in files}
        self._device = device
        self._loaded: dict[str, Loaded] = {}
        self._texts: dict[tuple[str, str, int], Decoder] = {}
        self._fillers: dict[tuple[str, str, int], Filler] = {}

    def loaded(self, label: str) -> Loaded:
        """The model of this label."""
        if label not in self._loaded:
            file = self._files[label]
            with failures(f"loading {label}"):
                self._loaded[label] = load(
                    Path(file.path), quant=file.quant, device=self._device, random_weights=file.random
                )
        return self._loaded[label]

    def is_loaded(self, label: str) -> bool:
        """Whether the model was used before."""
        return label in self._loaded

    def decoder(self, label: str, role: str, room: int, streams: int = 1) -> Decoder:
        """A decoder for texts of `room` tokens; `role`: a model that drafts for itself needs a cache for either."""
        known = self._texts.get((label, role, streams))
        if known is None or known.room < room:
            known = Decoder(self.loaded(label).model, streams, grained(room))
            self._texts[label, role, streams] = known
        return known

    def filler(self, label: str, role: str, room: int, streams: int = 1) -> Filler:
        """A filler of `room` tokens at least, for this role."""
        known = self._fillers.get((label, role, streams))
        if known is None or known.decoder.room < room:
            known = Filler(Decoder(self.loaded(label).model, streams, grained(room)))
            self._fillers[label, role, streams] = known
        return known

    def eager_because(self) -> str:
        """Why some passes are not captured as graphs; empty where all are."""
        decoders = [*self._texts.values(), *(filler.decoder for filler in self._fillers.values())]
        return next((decoder.eager_because for decoder in decoders if decoder.eager_because), "")

    def close(self) -> None:
        """Let go of everything."""
        self._texts.clear()
        self._fillers.clear()
        self._loaded.clear()
        if self._device.startswith("cuda"):
            torch.cuda.empty_cache()


def grained(room: int) -> int:
    """`room` rounded up to a whole number of GRAIN."""
    return -(-room // GRAIN) * GRAIN


@contextmanager
def failures(doing: str):
    """What torch and transformers raise, as one line of EngineFailed."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise EngineFailed(
            f"{doing}: out of memory ({_first_line(error)}); a smaller quantization or context needs less"
        )
    except InputError:
        raise
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError, NotImplementedError, OSError) as error:
        raise EngineFailed(f"{doing}: {type(error).__name__}: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "no message")

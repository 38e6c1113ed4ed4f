"""Stored tensors: a checkpoint's weights by their names, each read when it is asked for and no file mapped into memory.

Read from headers that were held against the file's size (checkpoints/safetensors.py); a mapped file would count as the
process's own memory, and its pages may be dropped while a pass is timed.
"""

from pathlib import Path
from typing import Any, Protocol

import torch

from ...checkpoints.safetensors import Header, StoredTensor, read_weights
from ...errors import InputError

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
READ_BYTES = 1 << 30
"""At once: a single read of Linux ends below 2 GiB."""


class Tensors(Protocol):
    """A checkpoint's tensors. `copied`: whether one may stand for others of its shape, as only random values can."""

    @property
    def copied(self) -> bool:
        """Whether one of a shape will do for all."""
        ...

    def __call__(self, name: str) -> torch.Tensor | None:
        """The tensor of this name, on any device; None where there is none. Raises InputError."""
        ...


class StoredTensors:
    """Those of a folder of safetensors. Raises InputError for files that are none."""

    copied = False

    def __init__(self, folder: Path):
        self._at = {
            tensor.name: (header, tensor) for header in read_weights(folder).headers for tensor in header.tensors
        }

    def has(self, name: str) -> bool:
        """Whether a tensor of this name is stored."""
        return name in self._at

    def __call__(self, name: str) -> torch.Tensor | None:
        if name not in self._at:
            return None
        header, tensor = self._at[name]
        if tensor.dtype not in DTYPES:
            raise InputError(
                f"{header.path}: {name} is stored as {tensor.dtype}, and config.json does not say how it was quantized; "
                "take the checkpoint in bf16"
            )
        return _read(header, tensor).view(DTYPES[tensor.dtype]).reshape(tensor.shape)


class TakenTensors:
    """Those of a model that transformers loaded whole; each can be had once, so that its memory is freed on the way."""

    copied = False

    def __init__(self, model: Any):
        self._left = dict(model.state_dict())

    def __call__(self, name: str) -> torch.Tensor | None:
        return self._left.pop(name, None)


def _read(header: Header, tensor: StoredTensor) -> torch.Tensor:
    """The bytes of a tensor, (size,) uint8, aligned as kernels like them (numpy's own would not be). The data end with the file."""
    data = torch.empty(tensor.size_bytes, dtype=torch.uint8)
    view, done = data.numpy().data, 0
    begin = header.size_bytes - max(one.end for one in header.tensors) + tensor.begin
    try:
        with open(header.path, "rb", buffering=0) as file:
            file.seek(begin)
            while done < len(view):
                count = file.readinto(view[done : done + READ_BYTES])
                if not count:
                    raise InputError(f"{header.path} became shorter while it was read; download it again")
                done += count
    except OSError as error:
        raise InputError(f"{header.path} cannot be read: {error.strerror}; check the disk") from None
    return data

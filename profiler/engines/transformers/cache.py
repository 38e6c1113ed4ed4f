"""Cache: keys and values of a model's layers in static buffers, written at positions that the caller names.

A rejected token costs nothing to undo: the next pass simply writes over it. Buffers never move, so that a captured graph
finds them where they were.
"""

from typing import Any

import torch
import transformers


class PositionedCache(transformers.Cache):
    """`streams` sequences of at most `room` tokens. Raises ValueError where a pass would not fit.

    `place` says before each pass where its tokens go and how much of the buffers attention reads.
    """

    def __init__(self, streams: int, room: int):
        super().__init__(layers=[])
        self.streams = streams
        self.room = room
        self._buffers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._rows = torch.zeros(0, dtype=torch.long)
        self._end = 0

    def place(self, positions: torch.Tensor, end: int) -> None:
        """Token i of stream s goes to `positions[s, i]` (S, n); attention reads the first `end` entries."""
        if end > self.room:
            raise ValueError(f"a pass to token {end} does not fit into {self.room} tokens of context")
        self._rows, self._end = positions, end

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the pass's keys and values (S, H, n, D), give all that attention may read (S, H, end, D)."""
        if layer_idx not in self._buffers:
            self._buffers[layer_idx] = (self._buffer(key_states), self._buffer(value_states))
        keys, values = self._buffers[layer_idx]
        self._write(keys, key_states)
        self._write(values, value_states)
        return keys[:, :, : self._end], values[:, :, : self._end]

    def _buffer(self, states: torch.Tensor) -> torch.Tensor:
        streams, heads, _, size = states.shape
        return torch.zeros(streams, heads, self.room, size, dtype=states.dtype, device=states.device)

    def _write(self, buffer: torch.Tensor, states: torch.Tensor) -> None:
        if self.streams == 1:
            buffer.index_copy_(2, self._rows[0], states)
        else:
            buffer.scatter_(2, self._rows[:, None, :, None].expand_as(states), states)

    @property
    def bytes(self) -> int:
        """Bytes of all buffers so far."""
        return sum(part.numel() * part.element_size() for pair in self._buffers.values() for part in pair)

    # what models ask of a cache beside update; the mask is always given, so that sizes are asked for rarely

    def get_seq_length(self, layer_idx: int = 0, *args: Any, **kwargs: Any) -> int:
        """Tokens that attention reads in the pass at hand."""
        return self._end

    def get_mask_sizes(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
        """Entries that attention reads, and the first of them."""
        return self._end, 0

    def __len__(self) -> int:
        return len(self._buffers)

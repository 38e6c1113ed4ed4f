"""Decoder: passes of one model over its cached context, eager or as captured graphs, one shape a graph.

A pass takes n tokens of each stream and the position of the first of them, writes their keys and values, and gives a row of
logits for each. What lies behind the last position in the cache is never read: a pass simply starts earlier to undo.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..base import Unsupported
from .cache import PositionedCache

PREFILL_TOKENS = 512
"""Of one pass over a prompt: bounds the memory of its activations."""
BUCKET = 256
"""Graphs read the cache in multiples of this, so that one graph serves many contexts."""
CAPTURE_WARM_UPS = 3


@dataclass(frozen=True)
class Graph:
    """A captured pass: inputs are copied in, `logits` are read after a replay."""

    graph: Any
    tokens: torch.Tensor
    start: torch.Tensor
    logits: torch.Tensor


@dataclass
class Decoder:
    """`streams` sequences of at most `room` tokens each, in `model` (a causal LM in eval mode, all on one device).

    `graphs`: capture passes on CUDA. Raises Unsupported for models whose state cannot be rolled back.
    """

    model: Any
    streams: int = 1
    room: int = 2048
    graphs: bool = True
    cache: PositionedCache = field(init=False)
    eager_because: str = field(init=False, default="")
    """Why passes are not captured, once one was tried."""

    def __post_init__(self) -> None:
        self.device = next(self.model.parameters()).device
        self.cache = PositionedCache(self.streams, self.room)
        config = self.model.config.get_text_config(decoder=True)
        self._windows = _windows(config)
        self._graphs: dict[tuple[int, int], Graph | None] = {}
        parameters = inspect.signature(self.model.forward).parameters
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"
        self._keeps = "logits_to_keep" in parameters
        if self.device.type != "cuda":
            self.graphs, self.eager_because = False, f"no graphs on {self.device.type}"

    @torch.inference_mode()
    def forward(self, tokens: torch.Tensor, start: torch.Tensor, end: int) -> torch.Tensor:
        """Logits (S, n, V) of `tokens` (S, n), the first of stream s at position `start[s]` (S,); both on the device.

        `end` is at least the largest start + n, known to the host: what attention reads ends there.
        """
        if not self.graphs:
            return self._eager(tokens, start, end)
        bucket = min(-(-end // BUCKET) * BUCKET, self.room)
        captured = self._captured(tokens.shape[1], bucket)
        if captured is None:
            return self._eager(tokens, start, bucket)
        captured.tokens.copy_(tokens)
        captured.start.copy_(start)
        captured.graph.replay()
        return captured.logits

    @torch.inference_mode()
    def prefill(self, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Read `prompts`, one a stream, from position 0 on: logits (S, 1, V) behind the last token of each. Eager.

        Streams of different lengths are read to the longest one; what is read past a prompt is written over later.
        """
        longest, shortest = max(map(len, prompts)), min(map(len, prompts))
        padded = torch.tensor([[*p, *[p[-1]] * (longest - len(p))] for p in prompts], device=self.device)
        rows: dict[int, torch.Tensor] = {}
        for first in range(0, longest, PREFILL_TOKENS):
            last = min(first + PREFILL_TOKENS, longest)
            start = torch.full((self.streams,), first, device=self.device)
            one_row = self._keeps and shortest == longest
            logits = self._eager(padded[:, first:last], start, last, **({"logits_to_keep": 1} if one_row else {}))
            for stream, prompt in enumerate(prompts):
                if first < len(prompt) <= last:
                    rows[stream] = logits[stream, -1 if one_row else len(prompt) - 1 - first]
        return torch.stack([rows[stream] for stream in range(len(prompts))])[:, None]

    def _eager(self, tokens: torch.Tensor, start: torch.Tensor, end: int, **more: Any) -> torch.Tensor:
        positions = start[:, None] + torch.arange(tokens.shape[1], device=self.device)
        self.cache.place(positions, end)
        found = self.model(
            input_ids=tokens,
            attention_mask=self._mask(positions, end),
            position_ids=positions,
            use_cache=True,
            **{self._cache_name: self.cache},
            **more,
        )
        return found.logits

    def _mask(self, positions: torch.Tensor, end: int) -> torch.Tensor | dict[str, torch.Tensor]:
        """What each token may look at: (S, 1, n, end), or one such mask for each kind of layer."""
        columns = torch.arange(end, device=self.device)
        seen = columns <= positions[:, None, :, None]
        masks = {
            kind: seen if window is None else seen & (columns > positions[:, None, :, None] - window)
            for kind, window in self._windows.items()
        }
        return masks if len(masks) > 1 else next(iter(masks.values()))

    def _captured(self, width: int, bucket: int) -> Graph | None:
        """The graph of this shape; None where the pass cannot be captured."""
        if (width, bucket) not in self._graphs:
            try:
                self._graphs[width, bucket] = self._capture(width, bucket)
            except RuntimeError as error:  # what a forward does that no graph can hold is not known before
                reason = str(error).splitlines()[0]
                self.eager_because = f"width {width} cannot be captured: {reason}"
                self._graphs[width, bucket] = None
        return self._graphs[width, bucket]

    def _capture(self, width: int, bucket: int) -> Graph:
        tokens = torch.zeros(self.streams, width, dtype=torch.long, device=self.device)
        # Rehearsals write at the end of the bucket, where the pass itself may write too and nothing before it stands.
        start = torch.full((self.streams,), bucket - width, device=self.device)
        side = torch.cuda.Stream(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            for _ in range(CAPTURE_WARM_UPS):
                self._eager(tokens, start, bucket)
        torch.cuda.current_stream(self.device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logits = self._eager(tokens, start, bucket)
        return Graph(graph, tokens, start, logits)


def _windows(config: Any) -> dict[str, int | None]:
    """Tokens that attention of each kind of layer looks back over; None: all. Raises Unsupported for layers with a state."""
    kinds = getattr(config, "layer_types", None) or ["full_attention"]
    known = {"full_attention", "sliding_attention"}
    if strange := set(kinds) - known:
        raise Unsupported(f"layers of {', '.join(sorted(strange))} keep a state that this engine cannot roll back")
    window = getattr(config, "sliding_window", None)
    if kinds == ["full_attention"] and window and getattr(config, "use_sliding_window", True):
        return {"sliding_attention": window}
    found = {"full_attention": None, "sliding_attention": window}
    return {kind: found[kind] for kind in dict.fromkeys(kinds)}

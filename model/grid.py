"""Grid: what a search goes over, and the memory that it must stay in."""

from dataclasses import dataclass, replace

import numpy as np

from .cost import RoundCost
from .kv import KvTypes
from .law_table import LawTable
from .memory import Deployment


@dataclass(frozen=True)
class Pairing:
    """Names of what runs: files, quantizations, the types of the target's KV cache, target layers left to the host."""

    target: str
    target_quant: str
    drafter: str
    draft: str = ""
    draft_quant: str = ""
    key_type: str = "f16"
    value_type: str = "f16"
    host_layers: int = 0

    @property
    def plain(self) -> "Pairing":
        """The target without a drafter."""
        return replace(self, drafter="none", draft="", draft_quant="")


@dataclass(frozen=True)
class Option:
    """A pairing with its evidence: what rounds cost, which rounds there are, what lies in memory.

    `cost` is that of its placement and KV types. Raises ValueError for an unknown KV type, more host layers than the
    target has, and a cost that depends on what is accepted (the replay after a rejection): forecast_workload takes it.
    """

    pairing: Pairing
    cost: RoundCost
    laws: LawTable
    deployment: Deployment

    def __post_init__(self) -> None:
        KvTypes.named(self.pairing.key_type, self.pairing.value_type)
        if not 0 <= self.pairing.host_layers <= self.deployment.target.layers:
            raise ValueError(
                f"{self.pairing.host_layers} of {self.deployment.target.layers} layers cannot be on the host"
            )
        if self.cost.minds_acceptance:
            raise ValueError("a round that replays after a rejection costs by what is accepted: use forecast_workload")


@dataclass(frozen=True)
class Grid:
    """What is searched: `options` in cells of `contexts` (C,), cached tokens a stream, and `streams` (B,); free memory.

    All rounds of a cell are priced behind its context, and the cache is reserved for it. Raises ValueError for an
    empty axis, a negative context or fewer than one stream.
    """

    options: tuple[Option, ...]
    contexts: np.ndarray
    streams: np.ndarray
    device_bytes: float
    host_bytes: float = np.inf

    def __post_init__(self) -> None:
        if not (self.options and self.contexts.size and self.streams.size):
            raise ValueError("a search needs one option, one context and one number of streams at least")
        if self.contexts.min() < 0 or self.streams.min() < 1:
            raise ValueError("contexts cannot be negative, and there is one stream at least")

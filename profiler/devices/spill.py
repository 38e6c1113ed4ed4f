"""Silent spill: weights or cache pushed out of the device's memory, so that every pass fetches them over the bus.

Some drivers serve an allocation that does not fit from the host's memory without an error (on Windows by default, with
unified memory anywhere). Acceptance does not change; rounds slow down severalfold. The device itself shows it: the bus
carries gigabytes a second where decoding moves only tokens and logits, and power falls, because the device waits.
Reported so for an RTX 3090 whose +43 % became -46 %: 11 GB/s over PCIe, 366 W down to 252 W (a ratio of 0.69), 446 MiB
"free" (qwen38-mtp, pull request 48).
"""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..records import DeviceState

BUSY_BUS_BYTES_PER_SECOND = 1.5e9
"""What a pass cannot need: the logits of 16 positions over 250,000 tokens are 16 MB in float32, at 50 rounds a second
0.8 GB/s. The reported case carried seven times this."""
BUS_OVER_PLAIN = 3.0
"""Layers left on the host, or a model split over two cards, fill the bus in plain decoding too: that is no spill."""
POWER_DROP = 0.85
"""Power drafting over power plain. A ratio of 0.69 was reported; drafting alone moves it by some percent either way."""
NEARLY_FULL_BYTES = 512 << 20
"""The margin below which a fit is called tight; 446 MiB were free in the reported case."""


@dataclass(frozen=True)
class SpillSigns:
    """What device states tell of a spill while drafting; None where the device told nothing.

    `pcie_bytes_per_second`: both directions, median. `power_ratio`: median drafting over median plain.
    `memory_free_bytes`: the least seen. `likely`: enough signs together; `evidence`: all of them in words.
    """

    pcie_bytes_per_second: float | None
    power_ratio: float | None
    memory_free_bytes: int | None
    likely: bool
    evidence: str


def spill_signs(plain: Sequence[DeviceState], drafting: Sequence[DeviceState]) -> SpillSigns:
    """Signs of a spill in states taken while decoding plainly and while drafting.

    Likely where the bus is busy while drafting, well above plain decoding, and either power dropped or memory is nearly
    full; or, where the driver does not tell the traffic, where power dropped and memory is nearly full. One sign alone
    is never enough: low power can also be a slow draft, and full memory may well fit.
    """
    bus, plain_bus = _median(map(_traffic, drafting)), _median(map(_traffic, plain))
    power, plain_power = (_median(s.power_watts for s in states) for states in (drafting, plain))
    ratio = power / plain_power if power is not None and plain_power else None
    free = min((s.memory_free_bytes for s in drafting if s.memory_free_bytes is not None), default=None)
    busy = None if bus is None else bus > max(BUSY_BUS_BYTES_PER_SECOND, BUS_OVER_PLAIN * (plain_bus or 0.0))
    dropped = ratio is not None and ratio < POWER_DROP
    full = free is not None and free < NEARLY_FULL_BYTES
    likely = (dropped and full) if busy is None else busy and (dropped or full)
    return SpillSigns(bus, ratio, free, likely, _evidence(bus, plain_bus, power, plain_power, free))


def _traffic(state: DeviceState) -> float | None:
    told = [v for v in (state.pcie_rx_bytes_per_second, state.pcie_tx_bytes_per_second) if v is not None]
    return sum(told) if told else None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _evidence(
    bus: float | None, plain_bus: float | None, power: float | None, plain_power: float | None, free: int | None
) -> str:
    parts = []
    if bus is not None:
        beside = "" if plain_bus is None else f" (plain {plain_bus / 1e9:.1f})"
        parts.append(f"PCIe {bus / 1e9:.1f} GB/s while drafting{beside}")
    if power is not None and plain_power:
        parts.append(f"power {plain_power:.0f} -> {power:.0f} W ({power / plain_power - 1:+.0%})")
    if free is not None:
        parts.append(f"{free / 2**20:.0f} MiB of device memory free")
    return ", ".join(parts) or "the device tells neither bus traffic nor power nor free memory"

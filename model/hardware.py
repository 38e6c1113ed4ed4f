"""Hardware: memory tiers, what lies where, and what bandwidth allows a decode step.

Layers run one after another, so the readings of a step add up. A driver that fetches ahead while the device computes can
hide part of a link's time: then the sum is an estimate and no bound.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class BandwidthCeiling:
    """Plain decoding against memory bandwidth: each step reads all weights once (roofline, width 1)."""

    bytes_per_step: float
    bytes_per_second: float

    @property
    def tokens_per_second(self) -> float:
        """Upper bound of plain decoding."""
        return self.bytes_per_second / self.bytes_per_step

    def share(self, tokens_per_second: float) -> float:
        """Bandwidth that plain decoding at this speed uses, as a fraction."""
        return tokens_per_second * self.bytes_per_step / self.bytes_per_second


@dataclass(frozen=True)
class Tier:
    """A place that weights are read from: the device's memory, the host's, or the link (which holds nothing itself).

    Raises ValueError where capacity or bandwidth is not above 0.
    """

    name: str
    bytes_per_second: float
    capacity_bytes: float = math.inf

    def __post_init__(self) -> None:
        if not (self.bytes_per_second > 0 and self.capacity_bytes > 0):
            raise ValueError(f"tier {self.name}: bandwidth and capacity must be above 0")


@dataclass(frozen=True)
class Reading:
    """What a step reads from a tier. Raises ValueError for negative bytes, or more than the tier holds."""

    tier: Tier
    bytes_per_step: float

    def __post_init__(self) -> None:
        if not 0 <= self.bytes_per_step <= self.tier.capacity_bytes:
            raise ValueError(
                f"{self.bytes_per_step / 1e9:.2f} GB a step cannot come from {self.tier.name}, which holds "
                f"{self.tier.capacity_bytes / 1e9:.2f} GB: the rest comes from a slower tier"
            )

    @property
    def seconds(self) -> float:
        """Bytes over bandwidth."""
        return self.bytes_per_step / self.tier.bytes_per_second


@dataclass(frozen=True)
class Placement:
    """Bytes of a step by tier: on the device; on the host where the CPU computes; over the link where it pages."""

    readings: tuple[Reading, ...]

    @property
    def step_seconds(self) -> float:
        """Seconds that the readings take, one after another."""
        return sum(reading.seconds for reading in self.readings)

    @property
    def ceiling_steps_per_second(self) -> float:
        """1 / sum(bytes / bandwidth): steps a second at most (derived); infinite where nothing is read."""
        return 1 / self.step_seconds if self.step_seconds else math.inf


@dataclass(frozen=True)
class Efficiency:
    """Share of the bandwidth that passes over weights of one quantization reach (it differs by format: fit it for each).

    Raises ValueError where the share is not in (0, 1].
    """

    quant: str
    share: float

    def __post_init__(self) -> None:
        if not 0 < self.share:
            raise ValueError(f"{self.quant}: a share of {self.share} of the bandwidth is no measurement")
        if not self.share <= 1:
            raise ValueError(
                f"{self.quant}: {self.share:.2f} of the bandwidth would be read: the weights do not all come from that "
                "memory (a cache holds some, or a step reads fewer bytes), or the bandwidth was measured too low"
            )

    @classmethod
    def measured(cls, quant: str, bytes_read: float, seconds: float, bytes_per_second: float) -> "Efficiency":
        """From a plain step that read `bytes_read` in `seconds`: bytes / (seconds x bandwidth). Raises ValueError."""
        return cls(quant, bytes_read / (seconds * bytes_per_second))

    def seconds(self, bytes_read: float, bytes_per_second: float) -> float:
        """Seconds of a step that reads `bytes_read` where memory gives `bytes_per_second` at best."""
        return bytes_read / (self.share * bytes_per_second)


@dataclass(frozen=True)
class LayerSplit:
    """Whole layers on the device and on the host, and the bytes that lie there."""

    device_layers: int
    host_layers: int
    device_bytes: float
    host_bytes: float


def place(total_bytes: float, layers: int, device_capacity_bytes: float, fixed_device_bytes: float = 0.0) -> LayerSplit:
    """As many of `layers` equal layers (`total_bytes` together) on the device as fit beside `fixed_device_bytes`.

    device_bytes of the result includes the fixed ones. Raises ValueError where layers is below 1, a size is negative or
    the fixed part alone does not fit.
    """
    if not (layers >= 1 and total_bytes >= 0 and fixed_device_bytes >= 0):
        raise ValueError("one layer at least, and no negative bytes")
    room = device_capacity_bytes - fixed_device_bytes
    if not room >= 0:
        raise ValueError(f"what must lie on the device is {-room / 2**20:.0f} MiB too large, before any layer")
    layer_bytes = total_bytes / layers
    on_device = layers if total_bytes <= room else min(int(room // layer_bytes), layers - 1)
    return LayerSplit(
        on_device,
        layers - on_device,
        fixed_device_bytes + on_device * layer_bytes,
        (layers - on_device) * layer_bytes,
    )


def bytes_off_device(step_seconds: float, total_bytes: float, device: Tier, slow: Tier) -> float:
    """Bytes x of `total_bytes` that must come from `slow` for a step to take `step_seconds`.

    Solves (total - x) / B + x / S = t: x = (t - total / B) / (1/S - 1/B) (derived). All that makes a step slow is laid on
    the slow tier: an upper estimate. Raises ValueError where `slow` is not slower, and where the step is faster than the
    device alone or slower than the slow tier alone.
    """
    if not slow.bytes_per_second < device.bytes_per_second:
        raise ValueError(f"{slow.name} is not slower than {device.name}: bytes there explain nothing")
    fastest, slowest = total_bytes / device.bytes_per_second, total_bytes / slow.bytes_per_second
    if not step_seconds >= fastest:
        raise ValueError(
            f"a step of {step_seconds * 1e3:.1f} ms is faster than {device.name} alone allows ({fastest * 1e3:.1f} ms): "
            "it reads fewer bytes than assumed, or the bandwidth is higher"
        )
    if not step_seconds <= slowest:
        raise ValueError(
            f"a step of {step_seconds * 1e3:.1f} ms is slower than all bytes from {slow.name} ({slowest * 1e3:.1f} ms): "
            "more than bandwidth slows it"
        )
    return (step_seconds - fastest) / (1 / slow.bytes_per_second - 1 / device.bytes_per_second)

"""What of a GPU spoils a measurement or slows decoding: limits, heat, others on it, its link, its settings."""

from collections.abc import Callable, Iterator, Sequence

from ..finding import ERROR, NOTE, WARNING, Finding
from .machine_records import GpuReport, PcieLink

EVENT_WORDS = {
    "GpuIdle": "idle: clocks are down because nothing runs",
    "ApplicationsClocksSetting": "someone set the clocks",
    "SwPowerCap": "at its power limit",
    "HwSlowdown": "slowed down by the hardware: heat, or power that the supply does not give",
    "SyncBoost": "held to the clock of the other cards of its group",
    "SwThermalSlowdown": "too hot: the driver lowers the clock",
    "HwThermalSlowdown": "far too hot: the hardware halves the clock or more",
    "HwPowerBrakeSlowdown": "the power supply asks for less",
    "DisplayClockSetting": "held by what the display needs",
    "BoardLimit": "at a limit of the board",
    "Reliability": "held at a voltage that is safe",
}
HOT = {"SwThermalSlowdown", "HwThermalSlowdown", "HwSlowdown"}
POWER = {"SwPowerCap", "HwPowerBrakeSlowdown", "BoardLimit"}
SMALLEST_STEP = 0.98
"""A power limit below this share of the default counts as lowered; firmware rounds by about a percent."""
NEAR_SLOWDOWN_CELSIUS = 5.0
OTHERS_BYTES = 256 << 20
"""A desktop alone takes less; more matters to what fits."""
BUSY_SHARE = 0.10
NEARLY_FULL_SHARE = 0.10
WIDE_BUS_BITS = 1024
"""From here on the memory is HBM, whose check bits have lines of their own; GDDR's share the bus with the data."""


def of_gpus(gpus: Sequence[GpuReport], cuda_order: str = "") -> Iterator[Finding]:
    """Of the card that an engine takes first; of the others only whether the driver has lost them.

    `cuda_order`: CUDA_DEVICE_ORDER as it is set.
    """
    for gpu in gpus:
        if gpu.lost:
            yield Finding(
                id="gpu-lost",
                severity=ERROR,
                evidence=f"the driver has lost {gpu.name or 'a GPU'}: it stopped answering",
                remedy="restart the machine; if it comes back, look at the kernel log (Xid), power cables, riser",
            )
        elif gpu.chosen:
            yield from (finding for rule in GPU_RULES for finding in rule(gpu))
    kinds = {gpu.name for gpu in gpus if gpu.vendor == "nvidia"}
    if len(kinds) > 1 and cuda_order != "PCI_BUS_ID":
        yield Finding(
            id="gpu-order",
            severity=NOTE,
            evidence=f"cards of {len(kinds)} kinds: CUDA numbers the fastest first, the driver by the bus",
            remedy="set CUDA_DEVICE_ORDER=PCI_BUS_ID, and CUDA_VISIBLE_DEVICES to the card that shall work",
        )


def _power_limit(gpu: GpuReport) -> Iterator[Finding]:
    limit, default = gpu.power.limit_watts, gpu.power.default_limit_watts
    if limit is None or not default or limit >= SMALLEST_STEP * default:
        return
    command = f"nvidia-smi -pl {default:.0f} (as root)" if gpu.vendor == "nvidia" else "the tool that lowered it"
    yield Finding(
        id="power-limit",
        severity=WARNING,
        evidence=f"power limit {limit:.0f} W, default {default:.0f} W ({limit / default:.0%})",
        remedy=f"raise it by {command}, or leave it and profile at this limit: it taxes drafting more than plain "
        "decoding (an RTX 5090 from 600 to 400 W lost 4.8 % plain, 18.1 % drafting: qwen38-mtp, pull request 47)",
    )


def _slowed(gpu: GpuReport) -> Iterator[Finding]:
    """Under load where that was seen, else now."""
    reasons = set(gpu.under_load.event_reasons if gpu.under_load else gpu.clocks.event_reasons)
    when = "while its bandwidth was measured" if gpu.under_load else "now"
    if reasons & HOT:
        yield Finding(
            id="throttled-heat",
            severity=WARNING,
            evidence=f"{when}: {words(reasons & HOT)}{_degrees(gpu)}",
            remedy="let it cool, better the airflow or lower the power limit; numbers taken hot are valid hot only",
        )
    if reasons & POWER:
        supply = "HwPowerBrakeSlowdown" in reasons
        yield Finding(
            id="throttled-power",
            severity=WARNING if supply else NOTE,
            evidence=f"{when}: {words(reasons & POWER)}",
            remedy="check the supply and its cables"
            if supply
            else "nothing, if the limit is meant: most cards reach it under load; verification feels it first",
        )


def words(reasons: set[str]) -> str:
    """Event reasons as people say them."""
    return ", ".join(EVENT_WORDS.get(reason, reason) for reason in sorted(reasons))


def _degrees(gpu: GpuReport) -> str:
    celsius = gpu.under_load.celsius if gpu.under_load else gpu.heat.celsius
    return "" if celsius is None else f" ({celsius:.0f} °C)"


def _hot(gpu: GpuReport) -> Iterator[Finding]:
    heat = gpu.heat
    celsius = max((c for c in (heat.celsius, gpu.under_load and gpu.under_load.celsius) if c is not None), default=None)
    if celsius is None or heat.slowdown_celsius is None or celsius < heat.slowdown_celsius - NEAR_SLOWDOWN_CELSIUS:
        return
    yield Finding(
        id="near-slowdown",
        severity=WARNING,
        evidence=f"{celsius:.0f} °C, clocks are lowered from {heat.slowdown_celsius:.0f} °C on",
        remedy="better the airflow before profiling: a long run will be slower than a short one",
    )


def _shared(gpu: GpuReport) -> Iterator[Finding]:
    """Other processes, by what they hold; what they hold may be untold."""
    held = sum(process.memory_bytes or 0 for process in gpu.processes)
    if gpu.processes:
        names = ", ".join(f"{process.name or 'unnamed'} ({process.pid})" for process in gpu.processes[:3])
        more = f" and {len(gpu.processes) - 3} more" if len(gpu.processes) > 3 else ""
        yield Finding(
            id="gpu-shared",
            severity=WARNING if held >= OTHERS_BYTES else NOTE,
            evidence=f"other processes on the GPU: {names}{more}, {held / 2**20:.0f} MiB together as far as told",
            remedy="end them before profiling, or expect what they take: memory now, time whenever they work",
        )
    if gpu.utilization is not None and gpu.utilization >= BUSY_SHARE:
        yield Finding(
            id="gpu-busy",
            severity=WARNING,
            evidence=f"the GPU was {gpu.utilization:.0%} busy before anything of ours ran",
            remedy="wait until it idles, or end what uses it: shared time cannot be divided out",
        )


def _narrow_link(gpu: GpuReport) -> Iterator[Finding]:
    link = gpu.under_load.link if gpu.under_load and gpu.under_load.link else None
    now = link or gpu.link
    lanes = now.width is not None and now.most_width is not None and now.width < now.most_width
    slow = now.generation is not None and now.most_generation is not None and now.generation < now.most_generation
    if link is not None and (lanes or slow):
        yield Finding(
            id="link-narrow",
            severity=WARNING,
            evidence=f"PCIe {link_words(now)} while busy",
            remedy="seat the card in another slot, check riser and BIOS; it costs loading, layers on the host and "
            "spills, not decoding in the card's own memory",
        )
    elif lanes or slow:
        yield Finding(
            id="link-idle",
            severity=NOTE,
            evidence=f"PCIe {link_words(now)} while idle, which is normal: the link rests",
            remedy="look again while something runs (nvidia-smi -q -d PCIE, or here with a torch that uses the GPU)",
        )


def link_words(link: PcieLink) -> str:
    """Generation and lanes against the most that card and slot do."""
    now, most = (f"{_or_unknown(g)} x{_or_unknown(w)}" for g, w in _now_and_most(link))
    return f"generation {now} of {most}"


def _now_and_most(link: PcieLink) -> tuple[tuple[int | None, int | None], tuple[int | None, int | None]]:
    return (link.generation, link.width), (link.most_generation, link.most_width)


def _or_unknown(value: int | None) -> str:
    return "?" if value is None else str(value)


def _checked_memory(gpu: GpuReport) -> Iterator[Finding]:
    if gpu.memory.ecc and gpu.memory.bus_bits is not None and gpu.memory.bus_bits < WIDE_BUS_BITS:
        yield Finding(
            id="ecc-on",
            severity=NOTE,
            evidence=f"ECC is on with a bus of {gpu.memory.bus_bits} bits: check bits share bus and memory with data",
            remedy="weigh it: nvidia-smi -e 0 (as root, after a restart) gives back some percent of both, and no error "
            "is corrected any more",
        )


def _partitioned(gpu: GpuReport) -> Iterator[Finding]:
    if gpu.mig and not gpu.instances:
        yield Finding(
            id="mig-empty",
            severity=ERROR,
            evidence="MIG is on and no instance is made: CUDA finds no device",
            remedy="make one (nvidia-smi mig -cgi ... -C) or switch MIG off (nvidia-smi -mig 0), as root",
        )
    elif gpu.mig:
        yield Finding(
            id="mig-on",
            severity=NOTE,
            evidence=f"MIG is on: {gpu.instance or 'instance'}, one of {gpu.instances}, with its share of memory and bus",
            remedy="profile in the instance that will serve; what others do with theirs still shares the power limit",
        )


def _locked(gpu: GpuReport) -> Iterator[Finding]:
    reasons = gpu.under_load.event_reasons if gpu.under_load else gpu.clocks.event_reasons
    if "ApplicationsClocksSetting" not in reasons and not gpu.clocks.forced_level:
        return
    level = f" to level {gpu.clocks.forced_level}" if gpu.clocks.forced_level else ""
    most = f", the card does {gpu.clocks.most_core_mhz:.0f} MHz" if gpu.clocks.most_core_mhz else ""
    undo = "nvidia-smi -rgc and -rac" if gpu.vendor == "nvidia" else "power_dpm_force_performance_level auto"
    yield Finding(
        id="clocks-locked",
        severity=NOTE,
        evidence=f"someone set the clocks{level}{most}",
        remedy=f"keep it if it is meant: it steadies numbers and lowers them; {undo} (as root) undoes it",
    )


def _full(gpu: GpuReport) -> Iterator[Finding]:
    total, free = gpu.memory.total_bytes, gpu.memory.free_bytes
    if not total or free is None or free >= NEARLY_FULL_SHARE * total:
        return
    yield Finding(
        id="gpu-memory-full",
        severity=WARNING,
        evidence=f"{free / 2**20:.0f} of {total / 2**20:.0f} MiB of device memory are free",
        remedy="end what holds it; a model that does not fit fails, or spills to the host without a word and crawls",
    )


def _not_persistent(gpu: GpuReport) -> Iterator[Finding]:
    if gpu.persistence is False:
        yield Finding(
            id="persistence-off",
            severity=NOTE,
            evidence="persistence mode is off: the driver unloads between programs",
            remedy="nvidia-smi -pm 1 (as root) saves a second or more at each start; speeds do not change",
        )


GPU_RULES: tuple[Callable[[GpuReport], Iterator[Finding]], ...] = (
    _power_limit,
    _slowed,
    _hot,
    _shared,
    _narrow_link,
    _checked_memory,
    _partitioned,
    _locked,
    _full,
    _not_persistent,
)

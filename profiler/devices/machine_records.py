"""What `specgauge machine` finds out: devices, processor, memory, bandwidth, findings. None: the machine does not tell.

Sizes are bytes, powers watts, clocks MHz, temperatures degrees Celsius, shares 0 to 1.
"""

from ..finding import Finding
from ..records import BandwidthSample, Record


class Power(Record, kw_only=True):
    """What a device draws and may draw; `limit_watts` is in force, least and most are what it can be set to."""

    watts: float | None = None
    limit_watts: float | None = None
    default_limit_watts: float | None = None
    least_limit_watts: float | None = None
    most_limit_watts: float | None = None


class Clocks(Record, kw_only=True):
    """Clock of the cores and of the memory, now and at most, and what holds the core clock where it is."""

    core_mhz: float | None = None
    most_core_mhz: float | None = None
    memory_mhz: float | None = None
    most_memory_mhz: float | None = None
    event_reasons: tuple[str, ...] = ()
    """In NVML's names; gpu_findings.py says what they mean."""
    forced_level: str = ""
    """AMD: a performance level that someone set (low, high, manual, ...); empty for auto."""


class Heat(Record, kw_only=True):
    celsius: float | None = None
    slowdown_celsius: float | None = None
    """Above this the device lowers its clock."""
    shutdown_celsius: float | None = None


class PcieLink(Record, kw_only=True):
    """Generation and lanes now, and the most that card and slot can do together."""

    generation: int | None = None
    most_generation: int | None = None
    width: int | None = None
    most_width: int | None = None


class DeviceMemory(Record, kw_only=True):
    total_bytes: int | None = None
    used_bytes: int | None = None
    free_bytes: int | None = None
    bar1_bytes: int | None = None
    """The window through which the processor sees the memory: all of it where "resizable BAR" is on."""
    host_used_bytes: int | None = None
    """AMD: what lies in the host's memory for the device."""
    bus_bytes_per_second: float | None = None
    """Theory: bus width times memory clock, or the maker's figure."""
    ecc: bool | None = None
    bus_bits: int | None = None


class GpuProcess(Record, kw_only=True):
    """Somebody else's process on the device; a name where the driver tells it."""

    pid: int
    name: str = ""
    memory_bytes: int | None = None


class UnderLoad(Record, kw_only=True):
    """The device while its bandwidth was measured: medians, and every event reason that was seen."""

    samples: int
    core_mhz: float | None = None
    memory_mhz: float | None = None
    watts: float | None = None
    celsius: float | None = None
    event_reasons: tuple[str, ...] = ()
    link: PcieLink | None = None


class GpuReport(Record, kw_only=True):
    """One device. `chosen`: the one that an engine takes first."""

    vendor: str
    """nvidia, amd or apple."""
    name: str
    uuid: str = ""
    chosen: bool = False
    integrated: bool = False
    """It has no memory of its own worth the name and shares the host's."""
    lost: bool = False
    """The driver has lost it: it answers nothing until a reset."""
    power: Power = Power()
    clocks: Clocks = Clocks()
    heat: Heat = Heat()
    link: PcieLink = PcieLink()
    memory: DeviceMemory = DeviceMemory()
    utilization: float | None = None
    processes: tuple[GpuProcess, ...] = ()
    mig: bool | None = None
    """NVIDIA's partitioning into instances is on."""
    instance: str = ""
    """Name of the MIG instance that would be used."""
    instances: int | None = None
    persistence: bool | None = None
    under_load: UnderLoad | None = None


class HostMemory(Record, kw_only=True):
    """The host's memory; `limit_bytes` and `limit_used_bytes` are a control group's (a container's)."""

    total_bytes: int | None = None
    available_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_used_bytes: int | None = None
    limit_bytes: int | None = None
    limit_available_bytes: int | None = None


class ProcessorReport(Record, kw_only=True):
    model: str
    cores: int | None = None
    threads: int | None = None
    """Of the machine; `usable_threads` is what this process may use."""
    usable_threads: int | None = None
    quota_threads: float | None = None
    """Processor time that a control group allows, in threads."""
    fast_cores: int | None = None
    """Where cores are of two kinds."""
    slow_cores: int | None = None
    numa_nodes: int | None = None
    cache_bytes: int | None = None
    """All caches of the last level."""
    governor: str = ""
    """Several, joined by a comma, where processors differ."""
    frequency_driver: str = ""
    energy_preference: str = ""
    clock_mhz: float | None = None
    most_clock_mhz: float | None = None
    load_average: float | None = None
    busy_share: float | None = None
    """Of all threads, just before anything was measured."""
    steal_share: float | None = None
    """Taken by the hypervisor for other machines, since the start of this one."""
    throttle_events: int | None = None
    """Thermal, while the bandwidth was measured."""
    container: str = ""
    virtual: bool | None = None
    on_battery: bool | None = None


class MachineReport(Record, kw_only=True):
    """One look at a machine."""

    kind: str = "specgauge-machine"
    schema_version: int = 1
    created: str
    tool_version: str
    system: str
    driver: str = ""
    driver_silence: str = ""
    """Why the driver of an NVIDIA card does not answer; empty where it does."""
    nvidia_on_bus: bool | None = None
    cuda_order: str = ""
    """CUDA_DEVICE_ORDER as it is set."""
    gpus: tuple[GpuReport, ...] = ()
    processor: ProcessorReport
    memory: HostMemory
    bandwidth: tuple[BandwidthSample, ...] = ()
    findings: tuple[Finding, ...] = ()

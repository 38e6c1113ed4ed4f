"""The machine as its driver and kernel describe it. Nothing here changes a clock or a limit, and nothing raises.

NVML (the driver's library, through nvidia-ml-py) may be missing, and on consumer cards any of its getters may answer
"not supported": what a machine does not say is None or empty.
"""

import functools
import math
import os
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from .records import DeviceState

T = TypeVar("T")
CPU_CACHE = Path("/sys/devices/system/cpu/cpu0/cache")


class Identity(NamedTuple):
    """What numbers of this machine are valid for; the fields of a Key that describe it."""

    gpu: str
    gpu_uuid: str
    power_limit_watts: float | None
    driver: str
    cpu: str


@functools.cache
def _nvml() -> Any:
    """The pynvml module, initialised, or None: no package, no driver, no device."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return pynvml
    except Exception:  # NVMLError of a missing library, ImportError, an OSError of a broken driver
        return None


def _ask(getter: Callable[..., T], *arguments: Any) -> T | None:
    """What an NVML getter answers, or None where it raises (NotSupported, GpuIsLost, a function missing in the driver)."""
    try:
        return getter(*arguments)
    except Exception:
        return None


def _text(value: str | bytes | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else float(value) * factor


def gpu_handle() -> tuple[Any, Any] | None:
    """(pynvml, handle) of the GPU that CUDA takes first: the first of CUDA_VISIBLE_DEVICES, else number 0; None without."""
    nvml = _nvml()
    if nvml is None:
        return None
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    if first.isdecimal():
        handle = _ask(nvml.nvmlDeviceGetHandleByIndex, int(first))
    elif first:
        handle = _ask(nvml.nvmlDeviceGetHandleByUUID, first)
    else:  # set, and empty: the user hides every GPU
        handle = None
    return None if handle is None else (nvml, handle)


def identify() -> Identity:
    """GPU, its UUID, enforced power limit in watts, driver version, and processor."""
    found = gpu_handle()
    if found is None:
        return Identity("", "", None, "", cpu_model())
    nvml, handle = found
    return Identity(
        gpu=_text(_ask(nvml.nvmlDeviceGetName, handle)),
        gpu_uuid=_text(_ask(nvml.nvmlDeviceGetUUID, handle)),
        power_limit_watts=_scaled(_ask(nvml.nvmlDeviceGetEnforcedPowerLimit, handle), 1e-3),
        driver=_text(_ask(nvml.nvmlSystemGetDriverVersion)),
        cpu=cpu_model(),
    )


def device_state() -> DeviceState:
    """The GPU now (None where there is none or it does not say), and the load of the machine."""
    load = load_average()
    found = gpu_handle()
    if found is None:
        return DeviceState(load_average=load)
    nvml, handle = found
    memory = _ask(nvml.nvmlDeviceGetMemoryInfo, handle)
    return DeviceState(
        clock_mhz=_scaled(_ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM), 1.0),
        memory_clock_mhz=_scaled(_ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM), 1.0),
        power_watts=_scaled(_ask(nvml.nvmlDeviceGetPowerUsage, handle), 1e-3),
        temperature_celsius=_scaled(_ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU), 1.0),
        memory_used_bytes=None if memory is None else int(memory.used),
        event_reasons=_event_reasons(nvml, handle),
        load_average=load,
    )


def _event_reasons(nvml: Any, handle: Any) -> tuple[str, ...]:
    """Why the clock is where it is, in NVML's names: SwPowerCap, HwThermalSlowdown, GpuIdle, ..."""
    # Drivers before 535 know the getter by its older name.
    bits = _ask(nvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
    if bits is None:
        bits = _ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    prefixes = ("nvmlClocksEventReason", "nvmlClocksThrottleReason")
    names = [name for name in dir(nvml) if name.startswith(prefixes) and not name.endswith(("All", "None"))]
    found = {name.split("Reason", 1)[1] for name in names if bits and bits & getattr(nvml, name)}
    return tuple(sorted(found))


def spec_bandwidth_bytes_per_second() -> float | None:
    """Bus width times highest memory clock; two transfers a clock, as NVML counts clocks for GDDR and HBM alike."""
    found = gpu_handle()
    if found is None:
        return None
    nvml, handle = found
    bits = _ask(nvml.nvmlDeviceGetMemoryBusWidth, handle)
    mhz = _ask(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_MEM)
    return bits / 8 * mhz * 1e6 * 2 if bits and mhz else None


def cpu_model() -> str:
    """The processor's name, as the kernel gives it."""
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        text = ""
    found = re.search(r"^(?:model name|Model|Hardware)\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()


def load_average() -> float | None:
    """Runnable processes, averaged over the last minute."""
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):
        return None


def last_level_cache_bytes() -> int | None:
    """Size of the largest data cache that core 0 sees."""
    sizes = [_cache_bytes(index) for index in CPU_CACHE.glob("index*")]
    return max((size for size in sizes if size), default=None)


def _cache_bytes(index: Path) -> int | None:
    try:
        kind, size = (index / "type").read_text().strip(), (index / "size").read_text().strip()
    except OSError:
        return None
    found = re.fullmatch(r"(\d+)([KMG]?)", size)
    if kind == "Instruction" or not found:
        return None
    return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]]


def free_memory_bytes(gpu: bool = False) -> float:
    """Memory that can be taken: of the GPU if asked for and there, else of this process without swapping.

    The smallest figure that the kernel gives, control group included; infinite where none is told.
    """
    found = gpu_handle() if gpu else None
    memory = _ask(found[0].nvmlDeviceGetMemoryInfo, found[1]) if found else None
    if memory is not None:
        return float(memory.free)
    figures = [_meminfo_available(), _cgroup_available()]
    return float(min((figure for figure in figures if figure is not None), default=math.inf))


def _meminfo_available() -> int | None:
    try:
        found = re.search(r"^MemAvailable:\s*(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def _cgroup_available() -> int | None:
    """Of control groups version 2, where the limit of a container lies at the root that it sees."""
    root = Path("/sys/fs/cgroup")
    try:
        limit, used = (root / "memory.max").read_text().strip(), (root / "memory.current").read_text().strip()
        return max(0, int(limit) - int(used))
    except (OSError, ValueError):  # no such group, or no limit ("max")
        return None

"""The machine as its driver and kernel describe it. Nothing here changes a clock or a limit, and nothing raises.

What a machine does not tell is None or empty. Each maker's way to tell it has its own file: nvml.py, amd.py, apple.py,
processor.py; this one asks them in turn.
"""

import functools
import math
import os
import platform
import time
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from .devices import amd, apple, nvml, processor
from .devices.machine_findings import find
from .devices.machine_records import GpuReport, MachineReport
from .devices.sysfs import matching, text
from .devices.watch import Look, Watch, under_load
from .records import BandwidthSample, DeviceState

Device = nvml.Gpu | amd.Card | apple.Soc
BUSY_SECONDS = 0.25
"""Between two looks at what the processors did."""
BANDWIDTH_SECONDS = 8.0
PCI = Path("/sys/bus/pci/devices")
NVIDIA, DISPLAY_CLASS = "0x10de", "0x03"


class Identity(NamedTuple):
    """What numbers of this machine are valid for; the fields of a Key that describe it."""

    gpu: str
    gpu_uuid: str
    power_limit_watts: float | None
    driver: str
    cpu: str


@functools.cache
def _nvml() -> tuple[nvml.Nvml | None, str]:
    return nvml.opened()


def device() -> Device | None:
    """The GPU that an engine takes first; None without one, or where it only shares the memory of an x86 processor."""
    library, _ = _nvml()
    return (library.first() if library else None) or amd.first() or apple.soc()


def identify() -> Identity:
    """GPU, its UUID, enforced power limit in watts, driver version, and processor."""
    found = device()
    if found is None:
        return Identity("", "", None, "", cpu_model())
    return Identity(found.name(), found.uuid(), found.power_limit_watts(), found.driver(), cpu_model())


def device_state() -> DeviceState:
    """The GPU now (None where there is none or it does not say), and the load of the machine."""
    found, load = device(), load_average()
    return DeviceState(load_average=load) if found is None else found.state(load)


def watched(found: Device | None = None, pause_seconds: float = 0.1) -> Watch:
    """For a `with`: looks at a device (that of `device` without one) while it works.

    States taken before and after do not show what crosses the bus in between.
    """
    found = device() if found is None else found
    if found is None:
        return Watch(lambda: Look(DeviceState(load_average=load_average()), None), pause_seconds)
    link = (lambda: None) if isinstance(found, apple.Soc) else found.link
    return Watch(lambda: Look(found.state(load_average()), link()), pause_seconds)


def spec_bandwidth_bytes_per_second() -> float | None:
    """What the device's bus carries in theory, where the driver or the maker tells it."""
    found = device()
    return None if found is None else found.bus_bytes_per_second()


def free_memory_bytes(gpu: bool = False) -> float:
    """Memory that can be taken: of the GPU if asked for and there, else of this process without swapping.

    The smallest figure that the kernel gives, control group included; infinite where none is told.
    """
    found = device() if gpu else None
    of_device = None if found is None else found.free_bytes()
    if of_device is not None:
        return float(of_device)
    of_host = processor.available_bytes()
    return math.inf if of_host is None else float(of_host)


def cpu_model() -> str:
    """The processor's name, as the kernel gives it."""
    return processor.cpu_model()


def load_average() -> float | None:
    """Runnable processes, averaged over the last minute."""
    return processor.load_average()


def last_level_cache_bytes() -> int | None:
    """All caches of the last level together: what a buffer has to exceed to lie in memory."""
    return processor.caches_bytes()


def machine_report(
    created: str,
    tool_version: str,
    device_name: str = "",
    threads: int = 0,
    bandwidth_seconds: float = BANDWIDTH_SECONDS,
) -> MachineReport:
    """One look at everything, with findings; 0 `bandwidth_seconds` measure no bandwidth (and leave torch alone).

    `device_name`: cuda, mps, cpu, or empty for a GPU where there is one. `threads` of the processor, 0: torch's choice.
    """
    library, silence = _nvml()
    chosen = device()
    busy = _busy_share()  # before the reports: they work, too
    gpus, host, memory = _gpu_reports(chosen), processor.processor_report(busy_share=busy), processor.host_memory()
    heat_before = processor.throttle_events()
    bandwidth, gpus = _measured(chosen, gpus, device_name, threads, bandwidth_seconds)
    heat_after = processor.throttle_events()
    if heat_before is not None and heat_after is not None:
        host = replace(host, throttle_events=heat_after - heat_before)
    report = MachineReport(
        created=created,
        tool_version=tool_version,
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        driver=chosen.driver() if chosen else library.driver_version() if library else "",
        driver_silence=silence,
        nvidia_on_bus=nvidia_on_bus(),
        cuda_order=os.environ.get("CUDA_DEVICE_ORDER", ""),
        gpus=gpus,
        processor=host,
        memory=memory,
        bandwidth=bandwidth,
    )
    return replace(report, findings=find(report))


def _busy_share() -> float | None:
    before = processor.times()
    time.sleep(BUSY_SECONDS if before else 0)
    return processor.busy_share(before, processor.times())


def _gpu_reports(chosen: Device | None) -> tuple[GpuReport, ...]:
    """The chosen one first, then all others that are there."""
    library, _ = _nvml()
    others = (*(library.gpus() if library else ()), *amd.cards())
    own = () if chosen is None else (chosen.report(chosen=True),)
    return (*own, *(other.report() for other in others if not _same(other, chosen)))


def _same(one: Device, other: Device | None) -> bool:
    """Cards of NVIDIA are told apart by their place in the driver's list, those of AMD by their folder."""
    if isinstance(one, nvml.Gpu) and isinstance(other, nvml.Gpu):
        return one.index == (other.index or 0)
    return one == other


def _measured(
    chosen: Device | None, gpus: tuple[GpuReport, ...], device_name: str, threads: int, seconds: float
) -> tuple[tuple[BandwidthSample, ...], tuple[GpuReport, ...]]:
    """Bandwidth at several sizes, and the chosen GPU's report with what it did meanwhile, if that was measured."""
    if seconds <= 0:
        return (), gpus
    from .bandwidth import sweep  # brings torch along

    if chosen is None or device_name == "cpu":
        return sweep(device_name, threads, seconds), gpus
    with watched(chosen) as watch:
        samples = sweep(device_name, threads, seconds)
    on_gpu = any(sample.provenance == "measured" and sample.threads == 0 for sample in samples)
    return samples, (replace(gpus[0], under_load=under_load(watch.looks) if on_gpu else None), *gpus[1:])


def nvidia_on_bus(folder: Path = PCI) -> bool | None:
    """Whether an NVIDIA display adapter is on the bus, driver or not; None where the kernel lists no bus."""
    devices = matching(folder, "*")
    ours = (device for device in devices if text(device / "vendor") == NVIDIA)
    return any((text(device / "class") or "").startswith(DISPLAY_CLASS) for device in ours) if devices else None

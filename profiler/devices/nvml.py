"""NVIDIA GPUs through NVML, the driver's library (nvidia-ml-py). Reads only; nothing here raises.

The library may be missing; on consumer cards any getter may answer "not supported"; older drivers lack newer functions;
a card can be lost between two questions; a MIG instance answers for its memory, its card for the rest. What is not
answered is None, empty or zero-length, and the report says when a card is lost.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Any

from ..records import DeviceState
from .machine_records import Clocks, DeviceMemory, GpuProcess, GpuReport, Heat, PcieLink, Power

OLDER_NAMES = {
    "nvmlDeviceGetCurrentClocksEventReasons": "nvmlDeviceGetCurrentClocksThrottleReasons",
}
"""Of drivers before 535."""
MOST_GPUS, MOST_INSTANCES, MOST_PROCESSES = 64, 16, 1000
MOST_LANES = 64
"""Larger figures for a link are a driver's way to say "unknown"."""


class Nvml:
    """An initialised NVML. `library` is the pynvml module, or what behaves as it does."""

    def __init__(self, library: Any) -> None:
        self.library = library

    def call(self, getter: str, *arguments: Any) -> Any:
        """What `getter` answers; raises NVMLError. Opened again where somebody else in this process shut it down."""
        try:
            return self._called(getter, *arguments)
        except Exception as error:
            if code(error) != self.library.NVML_ERROR_UNINITIALIZED:
                raise
            self.library.nvmlInit()
            return self._called(getter, *arguments)

    def _called(self, getter: str, *arguments: Any) -> Any:
        try:
            return getattr(self.library, getter)(*arguments)
        except Exception as error:
            missing = isinstance(error, AttributeError) or code(error) == self.library.NVML_ERROR_FUNCTION_NOT_FOUND
            if not missing or getter not in OLDER_NAMES:
                raise
            return getattr(self.library, OLDER_NAMES[getter])(*arguments)

    def ask(self, getter: str, *arguments: Any) -> Any:
        """What `getter` answers, or None where it raises."""
        try:
            return self.call(getter, *arguments)
        except Exception:
            return None

    def driver_version(self) -> str:
        return _text(self.ask("nvmlSystemGetDriverVersion"))

    def gpus(self) -> "tuple[Gpu, ...]":
        """All cards, in the order of the bus (CUDA's own order may differ)."""
        return tuple(
            gpu for index in range(min(self.ask("nvmlDeviceGetCount") or 0, MOST_GPUS)) for gpu in self._at(index)
        )

    def _at(self, index: int) -> "list[Gpu]":
        """The card at `index`: none where it is not ours to open, one without a handle where the driver lost it."""
        try:
            return [Gpu(self, self.call("nvmlDeviceGetHandleByIndex", index), index=index)]
        except Exception as error:
            return [Gpu(self, None, index=index)] if self.means_lost(error) else []

    def means_lost(self, error: Exception) -> bool:
        return code(error) in (self.library.NVML_ERROR_GPU_IS_LOST, self.library.NVML_ERROR_RESET_REQUIRED)

    def first(self) -> "Gpu | None":
        """The GPU that CUDA takes first: the first of CUDA_VISIBLE_DEVICES, else number 0; None without."""
        named = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
        if named.isdecimal() and len(named) < 6:
            handle = self.ask("nvmlDeviceGetHandleByIndex", int(named))
        elif named:
            handle = self.ask("nvmlDeviceGetHandleByUUID", named) or self._by_start_of_uuid(named)
        else:  # set, and empty: the user hides every GPU
            handle = None
        return None if handle is None else self._gpu(handle)

    def _by_start_of_uuid(self, start: str) -> Any:
        """CUDA takes the first characters of a UUID for the whole, if only one card's begins so."""
        found = [gpu.handle for gpu in self.gpus() if gpu.uuid().startswith(start)]
        return found[0] if len(found) == 1 else None

    def _gpu(self, handle: Any) -> "Gpu":
        """A card, or an instance with its card."""
        if self.ask("nvmlDeviceIsMigDeviceHandle", handle):
            card = self.ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)
            card = handle if card is None else card
            return Gpu(self, card, handle, self.ask("nvmlDeviceGetIndex", card))
        return Gpu(self, handle, first_instance(self, handle), self.ask("nvmlDeviceGetIndex", handle))


def code(error: Exception) -> int | None:
    """NVML's number of an error; None for errors of other kinds."""
    return getattr(error, "value", None)


def first_instance(nvml: Nvml, card: Any) -> Any:
    """The MIG instance that CUDA takes on `card`; None where there is none or MIG is off."""
    return next(instances(nvml, card), None)


def instances(nvml: Nvml, card: Any) -> Iterator[Any]:
    """MIG instances of a card; slots may be empty in between."""
    for index in range(min(nvml.ask("nvmlDeviceGetMaxMigDeviceCount", card) or 0, MOST_INSTANCES)):
        found = nvml.ask("nvmlDeviceGetMigDeviceHandleByIndex", card, index)
        if found is not None:
            yield found


class Gpu:
    """One card, and the MIG instance of it that would be used. `lost` turns true when the driver says so.

    `index`: its place in the driver's list; None where that is not known.
    """

    def __init__(self, nvml: Nvml, handle: Any, instance: Any = None, index: int | None = None) -> None:
        self.nvml, self.handle, self.instance, self.index = nvml, handle, instance, index
        self.lost = handle is None

    def ask(self, getter: str, *arguments: Any) -> Any:
        """What the card answers, or None."""
        return self._ask(self.handle, getter, *arguments)

    def ask_instance(self, getter: str, *arguments: Any) -> Any:
        """What the instance answers, where there is one, else the card."""
        return self._ask(self.handle if self.instance is None else self.instance, getter, *arguments)

    def _ask(self, handle: Any, getter: str, *arguments: Any) -> Any:
        if handle is None:
            return None
        try:
            return self.nvml.call(getter, handle, *arguments)
        except Exception as error:
            self.lost |= self.nvml.means_lost(error)
            return None

    def name(self) -> str:
        return _text(self.ask("nvmlDeviceGetName"))

    def uuid(self) -> str:
        return _text(self.ask_instance("nvmlDeviceGetUUID"))

    def driver(self) -> str:
        return self.nvml.driver_version()

    def power_limit_watts(self) -> float | None:
        return _scaled(self.ask("nvmlDeviceGetEnforcedPowerLimit"), 1e-3)

    def free_bytes(self) -> int | None:
        return self.memory().free_bytes

    def bus_bytes_per_second(self) -> float | None:
        """Bus width times highest memory clock; two transfers a clock, as NVML counts clocks for GDDR and HBM alike.

        An instance gets the share of the bus that its share of the memory is.
        """
        bits, mhz = self.ask("nvmlDeviceGetMemoryBusWidth"), self._most_clock("NVML_CLOCK_MEM")
        return bits / 8 * mhz * 1e6 * 2 * self._share() if bits and mhz else None

    def _share(self) -> float:
        if self.instance is None:
            return 1.0
        own, all_ = self.ask_instance("nvmlDeviceGetMemoryInfo"), self.ask("nvmlDeviceGetMemoryInfo")
        return min(1.0, own.total / all_.total) if own and all_ and all_.total else 1.0

    def state(self, load_average: float | None = None) -> DeviceState:
        """The card now. Takes about 40 ms: the driver counts what crosses the bus for 20 ms each way."""
        clocks, memory = self.clocks(), self.memory()
        return DeviceState(
            clock_mhz=clocks.core_mhz,
            memory_clock_mhz=clocks.memory_mhz,
            power_watts=_scaled(self.ask("nvmlDeviceGetPowerUsage"), 1e-3),
            power_limit_watts=self.power_limit_watts(),
            temperature_celsius=self._celsius(),
            memory_used_bytes=memory.used_bytes,
            memory_free_bytes=memory.free_bytes,
            pcie_rx_bytes_per_second=self._traffic("NVML_PCIE_UTIL_RX_BYTES"),
            pcie_tx_bytes_per_second=self._traffic("NVML_PCIE_UTIL_TX_BYTES"),
            utilization=self.utilization(),
            event_reasons=clocks.event_reasons,
            load_average=load_average,
        )

    def report(self, chosen: bool = False) -> GpuReport:
        """Everything that the card tells."""
        mode = self.ask("nvmlDeviceGetMigMode")
        mig = None if mode is None else bool(mode[0])
        shown = {
            "power": self.power(),
            "clocks": self.clocks(),
            "heat": self.heat(),
            "link": self.link(),
            "memory": self.memory(),
            "utilization": self.utilization(),
            "processes": self.processes(),
            "mig": mig,
            "instance": "" if self.instance is None else _text(self.ask_instance("nvmlDeviceGetName")),
            "instances": sum(1 for _ in instances(self.nvml, self.handle)) if mig else None,
            "persistence": _enabled(self.ask("nvmlDeviceGetPersistenceMode")),
        }
        return GpuReport(
            vendor="nvidia", name=self.name(), uuid=self.uuid(), chosen=chosen, **shown, lost=self.lost
        )  # `lost` last: any question above may find out

    def power(self) -> Power:
        least, most = _pair(self.ask("nvmlDeviceGetPowerManagementLimitConstraints"))
        return Power(
            watts=_scaled(self.ask("nvmlDeviceGetPowerUsage"), 1e-3),
            limit_watts=self.power_limit_watts(),
            default_limit_watts=_scaled(self.ask("nvmlDeviceGetPowerManagementDefaultLimit"), 1e-3),
            least_limit_watts=_scaled(least, 1e-3),
            most_limit_watts=_scaled(most, 1e-3),
        )

    def clocks(self) -> Clocks:
        return Clocks(
            core_mhz=self._clock("NVML_CLOCK_SM"),
            most_core_mhz=self._most_clock("NVML_CLOCK_SM"),
            memory_mhz=self._clock("NVML_CLOCK_MEM"),
            most_memory_mhz=self._most_clock("NVML_CLOCK_MEM"),
            event_reasons=self.event_reasons(),
        )

    def event_reasons(self) -> tuple[str, ...]:
        """Why the clock is where it is, in NVML's names: SwPowerCap, HwThermalSlowdown, GpuIdle, ..."""
        bits, library = self.ask("nvmlDeviceGetCurrentClocksEventReasons"), self.nvml.library
        prefixes = ("nvmlClocksEventReason", "nvmlClocksThrottleReason")
        names = [name for name in dir(library) if name.startswith(prefixes) and not name.endswith(("All", "None"))]
        found = {name.split("Reason", 1)[1] for name in names if bits and bits & getattr(library, name)}
        return tuple(sorted(found - {"UserDefinedClocks"}))  # the old name of ApplicationsClocksSetting

    def heat(self) -> Heat:
        return Heat(
            celsius=self._celsius(),
            slowdown_celsius=self._threshold("NVML_TEMPERATURE_THRESHOLD_SLOWDOWN"),
            shutdown_celsius=self._threshold("NVML_TEMPERATURE_THRESHOLD_SHUTDOWN"),
        )

    def link(self) -> PcieLink:
        return PcieLink(
            generation=_lanes(self.ask("nvmlDeviceGetCurrPcieLinkGeneration")),
            most_generation=_lanes(self.ask("nvmlDeviceGetMaxPcieLinkGeneration")),
            width=_lanes(self.ask("nvmlDeviceGetCurrPcieLinkWidth")),
            most_width=_lanes(self.ask("nvmlDeviceGetMaxPcieLinkWidth")),
        )

    def memory(self) -> DeviceMemory:
        """Of the instance where there is one; devices that share the host's memory tell none."""
        told = self.ask_instance("nvmlDeviceGetMemoryInfo")
        bar1 = self.ask("nvmlDeviceGetBAR1MemoryInfo")
        ecc = self.ask("nvmlDeviceGetEccMode")
        return DeviceMemory(
            total_bytes=_member(told, "total"),
            used_bytes=_member(told, "used"),
            free_bytes=_member(told, "free"),
            bar1_bytes=_member(bar1, "bar1Total"),
            bus_bytes_per_second=self.bus_bytes_per_second(),
            ecc=None if ecc is None else bool(ecc[0]),
            bus_bits=self.ask("nvmlDeviceGetMemoryBusWidth"),
        )

    def utilization(self) -> float | None:
        rates = self.ask("nvmlDeviceGetUtilizationRates")
        return None if rates is None else rates.gpu / 100

    def processes(self) -> tuple[GpuProcess, ...]:
        """Other processes that compute or draw here. In a container the driver may list none of them."""
        getters = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses")
        listed = [process for getter in getters for process in self.ask(getter) or ()][:MOST_PROCESSES]
        others = {process.pid: process for process in listed if process.pid != os.getpid()}
        return tuple(self._process(process) for process in others.values())

    def _process(self, process: Any) -> GpuProcess:
        path = _text(self.nvml.ask("nvmlSystemGetProcessName", process.pid))
        used = process.usedGpuMemory
        known = isinstance(used, int) and 0 <= used < 1 << 63
        # Only the program's name: a report is passed on, and paths and arguments tell more than it needs.
        name = path.replace("\\", "/").split(" ")[0].split("/")[-1]
        return GpuProcess(pid=process.pid, name=name, memory_bytes=used if known else None)

    def _celsius(self) -> float | None:
        return _scaled(self.ask("nvmlDeviceGetTemperature", self.nvml.library.NVML_TEMPERATURE_GPU), 1.0)

    def _threshold(self, which: str) -> float | None:
        told = self.ask("nvmlDeviceGetTemperatureThreshold", getattr(self.nvml.library, which))
        return _scaled(told, 1.0) if told else None

    def _clock(self, which: str) -> float | None:
        return _scaled(self.ask("nvmlDeviceGetClockInfo", getattr(self.nvml.library, which)), 1.0)

    def _most_clock(self, which: str) -> float | None:
        return _scaled(self.ask("nvmlDeviceGetMaxClockInfo", getattr(self.nvml.library, which)), 1.0)

    def _traffic(self, which: str) -> float | None:
        """NVML counts kilobytes a second."""
        return _scaled(self.ask("nvmlDeviceGetPcieThroughput", getattr(self.nvml.library, which)), 1e3)


def opened(library: Any = None) -> tuple[Nvml | None, str]:
    """NVML, initialised, or None and why it does not answer. `library` stands in for pynvml."""
    try:
        if library is None:
            import pynvml as library
        library.nvmlInit()
        return Nvml(library), ""
    except ImportError:
        return None, "nvidia-ml-py is not installed"
    except Exception as error:  # NVMLError of a missing library or driver, an OSError of a broken one
        return None, str(error) or type(error).__name__


def _text(value: str | bytes | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else float(value) * factor


def _member(struct: Any, name: str) -> int | None:
    value = getattr(struct, name, None)
    return None if value is None else int(value)


def _pair(values: Sequence[float] | None) -> tuple[float | None, float | None]:
    return (values[0], values[1]) if values is not None else (None, None)


def _lanes(value: int | None) -> int | None:
    return value if value is not None and 0 < value <= MOST_LANES else None


def _enabled(value: int | None) -> bool | None:
    return None if value is None else bool(value)

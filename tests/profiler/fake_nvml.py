"""A stand-in for the pynvml module, with its constants, error classes, call signatures and types of answers.

Every name that the real module has is here. A getter answers what a card's table holds for it, or raises as the driver
would: NotSupported where the card does not know it, FunctionNotFound where the driver's library lacks it, Uninitialized
before nvmlInit, InvalidArgument for a handle of the wrong kind, GpuIsLost once a card is lost.
"""

import ctypes
import inspect
from dataclasses import dataclass, field
from typing import Any

import pynvml


@dataclass(eq=False)
class FakeCard:
    """`answers` by getter; a callable is called with the arguments after the handle. `instances`: its MIG instances."""

    answers: dict[str, Any]
    instances: list["FakeCard"] = field(default_factory=list)
    parent: "FakeCard | None" = None
    lost_after: int | None = None
    """Questions that it still answers before the driver loses it."""

    def __post_init__(self) -> None:
        for instance in self.instances:
            instance.parent = self


@dataclass
class FakeNvml:
    """What `import pynvml` gives. `missing`: functions that the driver's library lacks; `fails`: what nvmlInit raises."""

    cards: list[FakeCard] = field(default_factory=list)
    driver: str | bytes = "580.95.05"
    missing: frozenset[str] = frozenset()
    fails: int | None = None
    process_names: dict[int, str] = field(default_factory=dict)
    initialised: int = 0
    asked: list[str] = field(default_factory=list)

    def __dir__(self) -> list[str]:
        return dir(pynvml)

    def __getattr__(self, name: str) -> Any:
        real = getattr(pynvml, name)  # AttributeError for a name that pynvml does not have
        if not name.startswith("nvml") or not inspect.isfunction(real):
            return real
        parameters = inspect.signature(real).parameters.values()
        required = [p for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]

        def getter(*arguments: Any) -> Any:
            if len(arguments) < len(required):
                raise TypeError(f"{name} takes {len(required)} arguments")
            return self._answer(name, arguments)

        return getter

    def _answer(self, name: str, arguments: tuple[Any, ...]) -> Any:
        self.asked.append(name)
        if name == "nvmlInit":
            return self._initialise()
        if not self.initialised:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
        if name in self.missing:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        own = getattr(self, f"_{name}", None)
        return own(*arguments) if own else self._of_card(name, *arguments)

    def _initialise(self) -> None:
        if self.fails is not None:
            raise pynvml.NVMLError(self.fails)
        self.initialised += 1

    def shut_down_by_somebody_else(self) -> None:
        self.initialised = 0

    def _of_card(self, name: str, card: Any = None, *arguments: Any) -> Any:
        """NVML checks the handle, then whether the card is there, then whether it knows the answer."""
        if not isinstance(card, FakeCard):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        self._alive(card)
        if name not in card.answers:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        answer = card.answers[name]
        return answer(*arguments) if callable(answer) else answer

    def _alive(self, card: FakeCard) -> None:
        whole = card.parent or card
        if whole.lost_after is None:
            return
        if whole.lost_after <= 0:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        whole.lost_after -= 1

    def _nvmlSystemGetDriverVersion(self) -> str | bytes:
        return self.driver

    def _nvmlSystemGetProcessName(self, pid: int) -> str:
        if pid not in self.process_names:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return self.process_names[pid]

    def _nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def _nvmlDeviceGetHandleByIndex(self, index: int) -> FakeCard:
        if not 0 <= index < len(self.cards):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        self._alive(self.cards[index])
        return self.cards[index]

    def _nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeCard:
        everything = [*self.cards, *(instance for card in self.cards for instance in card.instances)]
        for card in everything:
            if card.answers.get("nvmlDeviceGetUUID") in (uuid, uuid.encode()):
                return card
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    def _nvmlDeviceGetIndex(self, card: FakeCard) -> int:
        self._alive(card)
        return self.cards.index(card)

    def _nvmlDeviceIsMigDeviceHandle(self, card: FakeCard) -> ctypes.c_uint:
        return ctypes.c_uint(card.parent is not None)  # the real module returns the C type itself

    def _nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, card: FakeCard) -> FakeCard:
        if card.parent is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return card.parent

    def _nvmlDeviceGetMaxMigDeviceCount(self, card: FakeCard) -> int:
        return 7 if card.instances else 0

    def _nvmlDeviceGetMigDeviceHandleByIndex(self, card: FakeCard, index: int) -> FakeCard:
        """Slots are not filled from the first on: the instances lie at 1, 2, ..."""
        if not 1 <= index <= len(card.instances):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return card.instances[index - 1]


def memory(total: int, used: int) -> pynvml.c_nvmlMemory_t:
    return pynvml.c_nvmlMemory_t(total=total, free=total - used, used=used)


def process(pid: int, used: int | None) -> Any:
    """As pynvml gives them: `usedGpuMemory` is None where the driver of a desktop does not tell."""
    friendly = pynvml.nvmlStructToFriendlyObject(pynvml.c_nvmlProcessInfo_v2_t(pid=pid, usedGpuMemory=used or 0))
    setattr(friendly, "usedGpuMemory", used)  # noqa: B010 (the class names no attributes)
    return friendly


def by_clock(core: int, memory_: int) -> Any:
    """Of a getter that is asked for a kind of clock."""
    return lambda kind: {
        pynvml.NVML_CLOCK_GRAPHICS: core,
        pynvml.NVML_CLOCK_SM: core,
        pynvml.NVML_CLOCK_MEM: memory_,
    }[kind]


def geforce(**other: Any) -> FakeCard:
    """A desktop card, idle: no ECC, no MIG, names as bytes as older pynvml gave them; link and clocks at rest."""
    answers = {
        "nvmlDeviceGetName": b"NVIDIA GeForce RTX 3090",
        "nvmlDeviceGetUUID": "GPU-11111111-2222-3333-4444-555555555555",
        "nvmlDeviceGetEnforcedPowerLimit": 350_000,
        "nvmlDeviceGetPowerManagementDefaultLimit": 350_000,
        "nvmlDeviceGetPowerManagementLimitConstraints": [100_000, 366_000],
        "nvmlDeviceGetPowerUsage": 31_234,
        "nvmlDeviceGetClockInfo": by_clock(210, 405),
        "nvmlDeviceGetMaxClockInfo": by_clock(2100, 9751),
        "nvmlDeviceGetCurrentClocksEventReasons": pynvml.nvmlClocksEventReasonGpuIdle,
        "nvmlDeviceGetTemperature": 41,
        "nvmlDeviceGetTemperatureThreshold": lambda which: {
            pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN: 95,
            pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN: 98,
        }[which],
        "nvmlDeviceGetUtilizationRates": pynvml.c_nvmlUtilization_t(gpu=0, memory=1),
        "nvmlDeviceGetMemoryInfo": memory(24 << 30, 600 << 20),
        "nvmlDeviceGetBAR1MemoryInfo": pynvml.c_nvmlBAR1Memory_t(bar1Total=256 << 20),
        "nvmlDeviceGetMemoryBusWidth": 384,
        "nvmlDeviceGetCurrPcieLinkGeneration": 1,
        "nvmlDeviceGetMaxPcieLinkGeneration": 4,
        "nvmlDeviceGetCurrPcieLinkWidth": 16,
        "nvmlDeviceGetMaxPcieLinkWidth": 16,
        "nvmlDeviceGetComputeRunningProcesses": [],
        "nvmlDeviceGetGraphicsRunningProcesses": [process(900, 120 << 20)],
        "nvmlDeviceGetPersistenceMode": pynvml.NVML_FEATURE_DISABLED,
        "nvmlDeviceGetPcieThroughput": lambda counter: {
            pynvml.NVML_PCIE_UTIL_TX_BYTES: 1_000,
            pynvml.NVML_PCIE_UTIL_RX_BYTES: 2_000,
        }[counter],
    }
    return FakeCard(answers | other)


def datacenter(instances: list[FakeCard] | None = None, **other: Any) -> FakeCard:
    """An H200, working: everything answered."""
    answers = {
        **geforce().answers,
        "nvmlDeviceGetName": "NVIDIA H200",
        "nvmlDeviceGetUUID": "GPU-99999999-8888-7777-6666-555555555555",
        "nvmlDeviceGetEnforcedPowerLimit": 700_000,
        "nvmlDeviceGetPowerManagementDefaultLimit": 700_000,
        "nvmlDeviceGetPowerManagementLimitConstraints": [200_000, 700_000],
        "nvmlDeviceGetPowerUsage": 512_000,
        "nvmlDeviceGetClockInfo": by_clock(1980, 3201),
        "nvmlDeviceGetMaxClockInfo": by_clock(1980, 3201),
        "nvmlDeviceGetCurrentClocksEventReasons": 0,
        "nvmlDeviceGetMemoryInfo": memory(141 << 30, 1 << 30),
        "nvmlDeviceGetBAR1MemoryInfo": pynvml.c_nvmlBAR1Memory_t(bar1Total=256 << 30),
        "nvmlDeviceGetMemoryBusWidth": 6144,
        "nvmlDeviceGetCurrPcieLinkGeneration": 5,
        "nvmlDeviceGetMaxPcieLinkGeneration": 5,
        "nvmlDeviceGetGraphicsRunningProcesses": [],
        "nvmlDeviceGetPersistenceMode": pynvml.NVML_FEATURE_ENABLED,
        "nvmlDeviceGetEccMode": [pynvml.NVML_FEATURE_ENABLED, pynvml.NVML_FEATURE_ENABLED],
        "nvmlDeviceGetMigMode": [int(instances is not None), int(instances is not None)],
    }
    return FakeCard(answers | other, instances or [])


def instance(total: int = 17 << 30, name: str = "NVIDIA H200 MIG 1g.18gb") -> FakeCard:
    """A MIG instance: it tells its name, UUID and memory, and refuses the rest."""
    return FakeCard(
        {
            "nvmlDeviceGetName": name,
            "nvmlDeviceGetUUID": "MIG-00000000-1111-2222-3333-444444444444",
            "nvmlDeviceGetMemoryInfo": memory(total, 50 << 20),
        }
    )


def broken(card: FakeCard, *getters: str) -> FakeCard:
    """`card` without an answer for `getters`."""
    return FakeCard({name: answer for name, answer in card.answers.items() if name not in getters}, card.instances)


def opened(*cards: FakeCard, **options: Any) -> FakeNvml:
    """An initialised library."""
    library = FakeNvml(list(cards), **options)
    library.nvmlInit()
    return library

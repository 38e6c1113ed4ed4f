"""Apple silicon by sysctl and vm_stat, which need no rights. Nothing here raises; elsewhere than on macOS all is None.

Power, clocks and temperature are told to root only (powermetrics): not asked.
"""

import functools
import platform
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..records import DeviceState
from .machine_records import DeviceMemory, GpuReport

Command = Callable[[Sequence[str]], str]
TIMEOUT_SECONDS = 2.0
SYSCTLS = (
    "machdep.cpu.brand_string",
    "hw.memsize",
    "hw.physicalcpu",
    "hw.logicalcpu",
    "hw.perflevel0.physicalcpu",
    "hw.perflevel1.physicalcpu",
    "hw.perflevel0.l2cachesize",
    "iogpu.wired_limit_mb",
)
BUS_GIGABYTES_PER_SECOND: Mapping[str, float] = {
    "M1": 68.25,
    "M1 Pro": 200,
    "M1 Max": 400,
    "M1 Ultra": 800,
    "M2": 100,
    "M2 Pro": 200,
    "M2 Max": 400,
    "M2 Ultra": 800,
    "M3": 100,
    "M3 Pro": 150,
    "M3 Max": 400,
    "M3 Ultra": 819,
    "M4": 120,
    "M4 Pro": 273,
    "M4 Max": 546,
    "M5": 153,
}
"""The maker's technical specifications; of the M3 Max and M4 Max the larger variant."""
WIRED_SHARE = 0.75
"""Of the memory, what the GPU may hold unless iogpu.wired_limit_mb says otherwise (about two thirds below 36 GB)."""
SMALL_WIRED_SHARE, SMALL_BYTES = 2 / 3, 36 << 30


def run_command(command: Sequence[str]) -> str:
    """What a program of the system prints; empty where it is missing, fails or takes longer than 2 s."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_SECONDS, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace")


@functools.cache
def _on_apple() -> bool:
    return platform.system() == "Darwin"


@dataclass(frozen=True)
class Soc:
    """A chip by what sysctl says of it: processor, GPU and one memory."""

    said: Mapping[str, str]
    command: Command = run_command

    def name(self) -> str:
        return self.said.get("machdep.cpu.brand_string", "")

    def uuid(self) -> str:
        return ""

    def driver(self) -> str:
        """Of the system: the driver is part of it."""
        return f"macOS {platform.mac_ver()[0]}" if platform.mac_ver()[0] else ""

    def power_limit_watts(self) -> float | None:
        return None

    def number(self, name: str) -> int | None:
        value = self.said.get(name, "")
        return int(value) if value.isdecimal() else None

    def bus_bytes_per_second(self) -> float | None:
        gigabytes = BUS_GIGABYTES_PER_SECOND.get(self.name().removeprefix("Apple ").strip())
        return gigabytes * 1e9 if gigabytes else None

    def gpu_limit_bytes(self) -> int | None:
        """Memory that the GPU may hold at once."""
        set_mebibytes, total = self.number("iogpu.wired_limit_mb"), self.number("hw.memsize")
        if set_mebibytes:
            return set_mebibytes << 20
        if total is None:
            return None
        return int(total * (SMALL_WIRED_SHARE if total < SMALL_BYTES else WIRED_SHARE))

    def available_bytes(self) -> int | None:
        """Pages that can be taken without swapping: free, inactive, speculative and purgeable ones."""
        said = self.command(("vm_stat",))
        page = re.search(r"page size of (\d{1,6}) bytes", said)
        counts = re.findall(r"^Pages (?:free|inactive|speculative|purgeable):\s+(\d{1,12})\.", said, re.MULTILINE)
        return int(page[1]) * sum(map(int, counts)) if page and counts else None

    def free_bytes(self) -> int | None:
        known = [figure for figure in (self.available_bytes(), self.gpu_limit_bytes()) if figure is not None]
        return min(known, default=None)

    def state(self, load_average: float | None = None) -> DeviceState:
        return DeviceState(memory_free_bytes=self.free_bytes(), load_average=load_average)

    def report(self, chosen: bool = False) -> GpuReport:
        total, free = self.gpu_limit_bytes(), self.free_bytes()
        memory = DeviceMemory(total_bytes=total, free_bytes=free, bus_bytes_per_second=self.bus_bytes_per_second())
        return GpuReport(vendor="apple", name=self.name(), chosen=chosen, integrated=True, memory=memory)


def soc(command: Command | None = None) -> Soc | None:
    """The chip of this machine; None elsewhere than on Apple silicon. `command` stands in for the system's programs."""
    if command is None:
        return _own_soc() if _on_apple() else None
    # One program for each name: sysctl leaves out what it does not know, and then values could not be told apart.
    said = {name: command(("sysctl", "-n", name)).strip() for name in SYSCTLS}
    found = Soc(said, command)
    return found if found.name().startswith("Apple") else None


@functools.cache
def _own_soc() -> Soc | None:
    return soc(run_command)

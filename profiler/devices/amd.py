"""AMD GPUs as the kernel's driver shows them (amdgpu, under /sys/class/drm). Reads only; nothing here raises.

Files and units: the kernel's "GPU Driver Developer's Guide, amdgpu, Misc and Thermal": powers in microwatts,
temperatures in thousandths of a degree, clocks as a list of levels with a star at the one in force.
"""

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from ..records import DeviceState
from .machine_records import Clocks, DeviceMemory, GpuReport, Heat, PcieLink, Power
from .sysfs import matching, number, scaled, text

DRM = Path("/sys/class/drm")
NAMES = Path("/usr/share/libdrm/amdgpu.ids")
VENDOR = "0x1002"
OWN_MEMORY_BYTES = 4 << 30
"""Less is the carve-out of a processor with graphics, which works in the host's memory."""
GENERATIONS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}
"""PCIe generation by GT/s of a lane."""


@dataclass(frozen=True)
class Card:
    """One card by its folder `device`; `names` is libdrm's list of marketing names."""

    device: Path
    names: Path = NAMES

    def name(self) -> str:
        return text(self.device / "product_name") or self._listed_name() or f"AMD {text(self.device / 'device') or ''}"

    def _listed_name(self) -> str:
        """By device and revision, as libdrm lists them."""
        ids = [(text(self.device / part) or "").removeprefix("0x").upper() for part in ("device", "revision")]
        found = re.search(
            rf"^{re.escape(ids[0])},\s*{re.escape(ids[1])},\s*(.+)$", text(self.names) or "", re.MULTILINE
        )
        return found[1].strip() if found and all(ids) else ""

    def uuid(self) -> str:
        return text(self.device / "unique_id") or ""

    def driver(self) -> str:
        """The kernel's own driver has the kernel's version."""
        return text(Path("/sys/module/amdgpu/version")) or f"amdgpu {platform.release()}"

    def integrated(self) -> bool:
        total = number(self.device / "mem_info_vram_total")
        return total is not None and total < OWN_MEMORY_BYTES

    def power_limit_watts(self) -> float | None:
        return self._hwmon("power1_cap", 1e-6)

    def free_bytes(self) -> int | None:
        return self.memory().free_bytes

    def bus_bytes_per_second(self) -> float | None:
        """The driver does not tell the width of the bus."""
        return None

    def state(self, load_average: float | None = None) -> DeviceState:
        """The card now. What crosses the bus is told by a few cards only, and asking takes a second: left out."""
        clocks, memory = self.clocks(), self.memory()
        return DeviceState(
            clock_mhz=clocks.core_mhz,
            memory_clock_mhz=clocks.memory_mhz,
            power_watts=self._watts(),
            power_limit_watts=self.power_limit_watts(),
            temperature_celsius=self.heat().celsius,
            memory_used_bytes=memory.used_bytes,
            memory_free_bytes=memory.free_bytes,
            utilization=self.utilization(),
            load_average=load_average,
        )

    def report(self, chosen: bool = False) -> GpuReport:
        """Everything that the card tells."""
        return GpuReport(
            vendor="amd",
            name=self.name(),
            uuid=self.uuid(),
            chosen=chosen,
            integrated=self.integrated(),
            power=self.power(),
            clocks=self.clocks(),
            heat=self.heat(),
            link=self.link(),
            memory=self.memory(),
            utilization=self.utilization(),
        )

    def power(self) -> Power:
        return Power(
            watts=self._watts(),
            limit_watts=self.power_limit_watts(),
            default_limit_watts=self._hwmon("power1_cap_default", 1e-6),
            least_limit_watts=self._hwmon("power1_cap_min", 1e-6),
            most_limit_watts=self._hwmon("power1_cap_max", 1e-6),
        )

    def clocks(self) -> Clocks:
        core, most_core = levels(text(self.device / "pp_dpm_sclk"))
        memory, most_memory = levels(text(self.device / "pp_dpm_mclk"))
        level = text(self.device / "power_dpm_force_performance_level") or ""
        return Clocks(
            core_mhz=core,
            most_core_mhz=most_core,
            memory_mhz=memory,
            most_memory_mhz=most_memory,
            forced_level="" if level == "auto" else level,
        )

    def heat(self) -> Heat:
        """Of the junction, which the driver holds against its limit, where it is told; else of the edge."""
        for sensor in ("temp2", "temp1"):
            celsius = self._hwmon(f"{sensor}_input", 1e-3)
            if celsius is not None:
                return Heat(
                    celsius=celsius,
                    slowdown_celsius=self._hwmon(f"{sensor}_crit", 1e-3),
                    shutdown_celsius=self._hwmon(f"{sensor}_emergency", 1e-3),
                )
        return Heat()

    def link(self) -> PcieLink:
        return PcieLink(
            generation=generation(text(self.device / "current_link_speed")),
            most_generation=generation(text(self.device / "max_link_speed")),
            width=number(self.device / "current_link_width") or None,
            most_width=number(self.device / "max_link_width") or None,
        )

    def memory(self) -> DeviceMemory:
        total, used = (number(self.device / f"mem_info_vram_{what}") for what in ("total", "used"))
        return DeviceMemory(
            total_bytes=total,
            used_bytes=used,
            free_bytes=None if total is None or used is None else max(0, total - used),
            bar1_bytes=number(self.device / "mem_info_vis_vram_total"),
            host_used_bytes=number(self.device / "mem_info_gtt_used"),
        )

    def utilization(self) -> float | None:
        return scaled(self.device / "gpu_busy_percent", 0.01)

    def _watts(self) -> float | None:
        average = self._hwmon("power1_average", 1e-6)
        return self._hwmon("power1_input", 1e-6) if average is None else average

    def _hwmon(self, name: str, factor: float) -> float | None:
        found = (scaled(folder / name, factor) for folder in matching(self.device / "hwmon", "hwmon*"))
        return next((value for value in found if value is not None), None)


def cards(drm: Path | None = None, names: Path = NAMES) -> tuple[Card, ...]:
    """All cards of this vendor, as the kernel numbers them."""
    folders = [folder / "device" for folder in matching(drm or DRM, "card*") if folder.name[4:].isdecimal()]
    return tuple(Card(folder, names) for folder in folders if text(folder / "vendor") == VENDOR)


def first(drm: Path | None = None) -> Card | None:
    """The card that an engine takes first: by HIP_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES, else the largest memory.

    None where every card shares the host's memory.
    """
    own = [card for card in cards(drm) if not card.integrated()]
    named = os.environ.get("HIP_VISIBLE_DEVICES", os.environ.get("ROCR_VISIBLE_DEVICES"))
    if named is None:
        return max(own, key=lambda card: card.memory().total_bytes or 0, default=None)
    index = named.split(",")[0].strip()
    return own[int(index)] if index.isdecimal() and len(index) < 6 and int(index) < len(own) else None


def levels(listed: str | None) -> tuple[float | None, float | None]:
    """MHz now and at most of lines such as `1: 1800Mhz *`; a level S (sleep) may stand before them."""
    found = re.findall(r"^\s*\w+:\s*(\d{1,6})\s*Mhz\s*(\*?)", listed or "", re.MULTILINE | re.IGNORECASE)
    now = next((float(mhz) for mhz, star in found if star), None)
    return now, max((float(mhz) for mhz, _ in found), default=None)


def generation(speed: str | None) -> int | None:
    """Of a link speed such as `16.0 GT/s PCIe`; older kernels write `8 GT/s`."""
    found = re.match(r"(\d{1,3})(\.\d)?\s*GT/s", speed or "")
    return GENERATIONS.get(f"{found[1]}{found[2] or '.0'}") if found else None

"""How much memory models can really have: what is free now, less what the desktop and the driver will still want.

A figure that a driver calls free is not all to be had: a desktop takes more when a window opens, and where the driver pages
to the host (Windows, WSL) it begins to do so before the figure is 0.
"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import machine
from .finding import Finding, warning

MEBIBYTE = 2**20
DISPLAY_BYTES = 256 * MEBIBYTE
"""A prior: what a desktop on the card may take more of while a model runs."""
PAGING_BYTES = 768 * MEBIBYTE
"""A prior: where the driver pages instead of failing, less than this free is not to be counted on. Paging was reported
with 446 MiB shown as free (qwen38-mtp, pull request 48)."""
PAGING_DEVICE = Path("/dev/dxg")
"""There in WSL, whose GPU is the Windows driver's."""
SWAPS = Path("/proc/swaps")


@dataclass(frozen=True)
class FreeMemory:
    """Bytes that models may take: `free_bytes` = what is free now - `reserve_bytes`; None where nobody tells.

    `spills`: too much does not fail, it is paged to slower memory and every pass slows down. provenance: given, driver,
    kernel; `where` names the memory in words.
    """

    free_bytes: float | None
    reserve_bytes: float
    where: str
    provenance: str
    on_device: bool
    spills: bool = False

    @property
    def text(self) -> str:
        """The figure with where it comes from, in one line."""
        if self.free_bytes is None:
            return f"free memory of {self.where} is not known"
        size = f"{self.free_bytes / MEBIBYTE:,.0f} MiB"
        if self.provenance == "given":
            return f"{size}, as given"
        held = f" less {self.reserve_bytes / MEBIBYTE:,.0f} MiB in reserve" if self.reserve_bytes else ""
        return f"{size} of {self.where}, free now by its {self.provenance}{held}"


def free_memory(given_bytes: float | None = None, gpu: bool | None = None) -> FreeMemory:
    """Memory for models: `given_bytes` where the user says so; else of the GPU (`gpu` None: if there is one) or the host.

    What is given is taken as it is, whatever the device says. Nothing raises.
    """
    device = None if gpu is False else machine.device()
    on_device = device is not None and device.free_bytes() is not None
    where = (device.name() or "the GPU") if device is not None and on_device else "host memory"
    spills = pages_to_host() if on_device else has_swap()
    if given_bytes is not None:
        return FreeMemory(given_bytes, 0.0, where, "given", on_device, spills)
    free = machine.free_memory_bytes(gpu=on_device)
    if not math.isfinite(free):
        return FreeMemory(None, 0.0, where, "", on_device, spills)
    reserve = (DISPLAY_BYTES if shows_desktop(device) else 0) + (PAGING_BYTES if on_device and spills else 0)
    provenance = "driver" if on_device else "kernel"
    return FreeMemory(max(0.0, free - reserve), float(reserve), where, provenance, on_device, spills)


def host_free_bytes() -> float | None:
    """What the host has for layers that leave a device; None where the kernel does not tell."""
    free = machine.free_memory_bytes()
    return free if math.isfinite(free) else None


def pages_to_host(device: Path = PAGING_DEVICE) -> bool:
    """Whether the GPU's driver serves what does not fit from the host's memory without an error: Windows and WSL.

    The driver's "CUDA - Sysmem Fallback Policy", from 536.40 on by default.
    """
    return os.name == "nt" or device.exists()


def has_swap(swaps: Path = SWAPS) -> bool:
    """Whether the host pages to a disk."""
    try:
        return len(swaps.read_text().splitlines()) > 1
    except OSError:
        return False


def shows_desktop(device: object) -> bool:
    """Whether a display is attached to the device, as far as its driver says."""
    ask: Callable[[str], object] | None = getattr(device, "ask", None)
    return ask is not None and ask("nvmlDeviceGetDisplayActive") == 1


def spill_risk(memory: FreeMemory, verdict: str, spare_bytes: float) -> list[Finding]:
    """A warning where too much would not fail but be paged, and there is little or nothing to spare."""
    if not memory.spills or verdict not in ("tight", "does_not_fit"):
        return []
    spare = (
        f"{spare_bytes / MEBIBYTE:,.0f} MiB to spare"
        if spare_bytes >= 0
        else f"{-spare_bytes / MEBIBYTE:,.0f} MiB missing"
    )
    if not memory.on_device:
        evidence = f"{spare}: the host swaps instead of failing, and a pass that reads from disk takes seconds"
        return [warning("silent-spill", evidence, "take a shorter context, fewer draft tokens or smaller files")]
    evidence = (
        f"{spare}: this driver pages to the host's memory instead of failing; speed then falls severalfold while acceptance "
        "stays (+43 % became -46 % with 446 MiB shown as free, qwen38-mtp PR 48)"
    )
    remedy = (
        'size the context for the speculative arm, or set "CUDA - Sysmem Fallback Policy" to "Prefer No Sysmem Fallback" so '
        "that it fails; at run time watch PCIe traffic and power"
    )
    return [warning("silent-spill", evidence, remedy)]

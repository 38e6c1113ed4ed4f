"""Files of amdgpu as an RX 7900 XTX has them under /sys/class/drm."""

from pathlib import Path

FILES = {
    "vendor": "0x1002",
    "device": "0x744c",
    "revision": "0xc8",
    "unique_id": "1c1f6b0b5e3d2a10",
    "gpu_busy_percent": "3",
    "mem_info_vram_total": str(24 << 30),
    "mem_info_vram_used": str(4 << 30),
    "mem_info_vis_vram_total": str(24 << 30),
    "mem_info_gtt_used": str(64 << 20),
    "pp_dpm_sclk": "0: 500Mhz \n1: 60Mhz *\n2: 2526Mhz",
    "pp_dpm_mclk": "0: 96Mhz *\n1: 456Mhz\n2: 1249Mhz",
    "power_dpm_force_performance_level": "auto",
    "current_link_speed": "2.5 GT/s PCIe",
    "max_link_speed": "16.0 GT/s PCIe",
    "current_link_width": "16",
    "max_link_width": "16",
    "hwmon/hwmon4/power1_average": "18000000",
    "hwmon/hwmon4/power1_cap": "303000000",
    "hwmon/hwmon4/power1_cap_default": "339000000",
    "hwmon/hwmon4/power1_cap_min": "0",
    "hwmon/hwmon4/power1_cap_max": "390000000",
    "hwmon/hwmon4/temp1_input": "40000",
    "hwmon/hwmon4/temp2_input": "47000",
    "hwmon/hwmon4/temp2_crit": "110000",
    "hwmon/hwmon4/temp2_emergency": "115000",
}


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, held in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(held + "\n")
    return folder


def amd_card(card: Path, **other: str | None) -> Path:
    """A card's folder; `other` replaces or (None) leaves out files, slashes written as two underscores."""
    changed = FILES | {name.replace("__", "/"): held for name, held in other.items()}
    write(card / "device", {name: held for name, held in changed.items() if held is not None})
    return card

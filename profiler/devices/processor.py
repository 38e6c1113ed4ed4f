"""Processor and host memory as the kernel tells them; on macOS by sysctl. Reads only; nothing here raises.

Every function takes the root of the file system, so that another machine's files can stand in.
"""

import math
import os
import platform
import re
import statistics
from pathlib import Path

from . import apple
from .machine_records import HostMemory, ProcessorReport
from .sysfs import matching, members, number, text

ROOT = Path("/")
CPUS = Path("sys/devices/system/cpu")
NO_LIMIT_BYTES = 1 << 60
"""Control groups of version 1 write a number near 2^63 where there is no limit."""


def processor_report(root: Path = ROOT, busy_share: float | None = None) -> ProcessorReport:
    """Everything but the memory. `busy_share` is taken by the caller, who can wait between two looks."""
    chip = apple.soc() if root == ROOT else None
    fast, slow = _two_kinds(root, chip)
    flags = re.search(r"^flags\s*:(.*)$", text(root / "proc/cpuinfo") or "", re.MULTILINE)
    return ProcessorReport(
        model=cpu_model(root),
        cores=core_count(root) or (chip.number("hw.physicalcpu") if chip else None),
        threads=os.cpu_count() if root == ROOT else len(matching(root / CPUS, "cpu[0-9]*")) or None,
        usable_threads=usable_threads(root),
        quota_threads=quota_threads(root),
        fast_cores=fast,
        slow_cores=slow,
        numa_nodes=len(matching(root / "sys/devices/system/node", "node[0-9]*")) or None,
        cache_bytes=caches_bytes(root),
        governor=_each(root, "scaling_governor"),
        frequency_driver=_each(root, "scaling_driver"),
        energy_preference=_each(root, "energy_performance_preference"),
        clock_mhz=clock_mhz(root),
        most_clock_mhz=_most_clock_mhz(root),
        load_average=load_average(),
        busy_share=busy_share,
        steal_share=steal_share(root),
        container=container(root),
        virtual=" hypervisor" in flags[1] if flags else None,
        on_battery=on_battery(root),
    )


def cpu_model(root: Path = ROOT) -> str:
    """The processor's name, as the kernel gives it."""
    found = re.search(r"^(?:model name|Model|Hardware)\s*:\s*(.+)$", text(root / "proc/cpuinfo") or "", re.MULTILINE)
    if found:
        return found[1].strip()
    chip = apple.soc()
    return (chip.name() if chip else "") or platform.processor() or platform.machine()


def load_average() -> float | None:
    """Runnable processes, averaged over the last minute."""
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):
        return None


def core_count(root: Path = ROOT) -> int | None:
    """Physical cores: threads of one core share a list of siblings."""
    folders = [cpu / "topology" for cpu in matching(root / CPUS, "cpu[0-9]*")]
    siblings = {text(folder / "core_cpus_list") or text(folder / "thread_siblings_list") for folder in folders}
    return len(siblings - {None, ""}) or None


def usable_threads(root: Path = ROOT) -> int | None:
    """Threads that this process may run on at once: its affinity, or fewer where a control group gives less time."""
    try:
        allowed = len(os.sched_getaffinity(0))
    except (OSError, AttributeError):  # not on macOS
        allowed = os.cpu_count()
    quota = quota_threads(root)
    return allowed if quota is None or allowed is None else max(1, min(allowed, math.floor(quota)))


def _two_kinds(root: Path, chip: apple.Soc | None) -> tuple[int | None, int | None]:
    """Fast and slow cores; None where all are alike (on x86 a core of the fast kind may be two threads)."""
    if chip is not None:
        return chip.number("hw.perflevel0.physicalcpu"), chip.number("hw.perflevel1.physicalcpu")
    kinds = [members(text(root / f"sys/devices/cpu_{kind}/cpus")) for kind in ("core", "atom")]
    if not all(kinds):
        return None, None
    return _cores_among(root, kinds[0]), _cores_among(root, kinds[1])


def _cores_among(root: Path, cpus: set[int]) -> int:
    folders = [root / CPUS / f"cpu{cpu}" / "topology" for cpu in cpus]
    return len({text(folder / "core_cpus_list") or folder.parent.name for folder in folders})


def _each(root: Path, name: str) -> str:
    """What cpufreq says of all processors: one word where they agree."""
    said = {text(policy / name) for policy in matching(root / CPUS / "cpufreq", "policy*")}
    return ", ".join(sorted(word for word in said if word))


def clock_mhz(root: Path = ROOT) -> float | None:
    """The median clock of all processors now; the lowest where they idle."""
    kilohertz = [number(policy / "scaling_cur_freq") for policy in matching(root / CPUS / "cpufreq", "policy*")]
    known = [value / 1e3 for value in kilohertz if value]
    told = re.findall(r"^cpu MHz\s*:\s*([\d.]{1,12})$", text(root / "proc/cpuinfo") or "", re.MULTILINE)
    return statistics.median(known or map(float, told)) if known or told else None


def _most_clock_mhz(root: Path) -> float | None:
    kilohertz = [number(policy / "cpuinfo_max_freq") for policy in matching(root / CPUS / "cpufreq", "policy*")]
    return max((value / 1e3 for value in kilohertz if value), default=None)


def times(root: Path = ROOT) -> tuple[int, int, int] | None:
    """Ticks of all processors since the start: (all, idle, stolen by the hypervisor)."""
    found = re.match(r"cpu\s+([\d ]+)", text(root / "proc/stat") or "")
    ticks = [int(value) for value in found[1].split()] if found else []
    # user nice system idle iowait irq softirq steal; guest time is in user already
    return (sum(ticks[:8]), ticks[3] + ticks[4], ticks[7]) if len(ticks) >= 8 else None


def busy_share(before: tuple[int, int, int] | None, after: tuple[int, int, int] | None) -> float | None:
    """Share of all threads that worked between two looks at `times`."""
    if before is None or after is None or after[0] <= before[0]:
        return None
    return max(0.0, 1 - (after[1] - before[1]) / (after[0] - before[0]))


def steal_share(root: Path = ROOT) -> float | None:
    told = times(root)
    return told[2] / told[0] if told and told[0] else None


def throttle_events(root: Path = ROOT) -> int | None:
    """Thermal events of all cores since the start (x86; other kernels do not count them)."""
    counts = [number(cpu / "thermal_throttle/core_throttle_count") for cpu in matching(root / CPUS, "cpu[0-9]*")]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def caches_bytes(root: Path = ROOT, all_: bool = True) -> int | None:
    """All caches of the last level together (large processors have one for every few cores), or the largest alone."""
    sizes: dict[tuple[int, str], int] = {}
    for index in (i for cpu in matching(root / CPUS, "cpu[0-9]*") for i in matching(cpu / "cache", "index*")):
        size = _cache_bytes(index)
        if size:
            sizes[(number(index / "level") or 0, text(index / "shared_cpu_list") or "")] = size
    last = max((level for level, _ in sizes), default=0)
    of_last = [size for (level, _), size in sizes.items() if level == last]
    chip = apple.soc() if not of_last and root == ROOT else None
    if chip is not None:
        return chip.number("hw.perflevel0.l2cachesize")
    return (sum(of_last) if all_ else max(of_last)) if of_last else None


def _cache_bytes(index: Path) -> int | None:
    kind, size = text(index / "type"), text(index / "size")
    found = re.fullmatch(r"(\d{1,12})([KMG]?)", size or "")
    if kind in (None, "Instruction") or not found:
        return None
    return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]]


def container(root: Path = ROOT) -> str:
    """docker, podman, kubernetes, lxc, wsl; empty where nothing says so."""
    for path, name in ((".dockerenv", "docker"), ("run/.containerenv", "podman")):
        if (root / path).exists():
            return name
    groups = text(root / "proc/self/cgroup") or ""
    for word, name in (("kubepods", "kubernetes"), ("docker", "docker"), ("/lxc", "lxc")):
        if word in groups:
            return name
    return "wsl" if "microsoft" in (text(root / "proc/sys/kernel/osrelease") or "").lower() else ""


def on_battery(root: Path = ROOT) -> bool | None:
    """None where there is no mains supply to tell it, as on a desktop."""
    supplies = matching(root / "sys/class/power_supply", "*")
    mains = [number(supply / "online") for supply in supplies if text(supply / "type") == "Mains"]
    return not any(mains) if mains else None


def host_memory(root: Path = ROOT) -> HostMemory:
    """The kernel's figures, and the control group's."""
    chip = apple.soc() if root == ROOT else None
    if chip is not None:
        return HostMemory(total_bytes=chip.number("hw.memsize"), available_bytes=chip.available_bytes())
    swap, unused = meminfo("SwapTotal", root), meminfo("SwapFree", root)
    limit, available = group_memory(root)
    return HostMemory(
        total_bytes=meminfo("MemTotal", root),
        available_bytes=meminfo("MemAvailable", root),
        swap_total_bytes=swap,
        swap_used_bytes=None if swap is None or unused is None else max(0, swap - unused),
        limit_bytes=limit,
        limit_available_bytes=available,
    )


def available_bytes(root: Path = ROOT) -> int | None:
    """Memory that this process can take without swapping: the smallest figure that is told."""
    memory = host_memory(root)
    return min((b for b in (memory.available_bytes, memory.limit_available_bytes) if b is not None), default=None)


def meminfo(name: str, root: Path = ROOT) -> int | None:
    """One line of /proc/meminfo, in bytes."""
    found = re.search(rf"^{name}:\s*(\d{{1,15}}) kB$", text(root / "proc/meminfo") or "", re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def group_memory(root: Path = ROOT) -> tuple[int | None, int | None]:
    """Limit of this process's control groups and what is left of it; (None, None) without a limit.

    The tightest of all groups above the process. Cached files that the kernel would drop first count as left.
    """
    known = [_limit(folder) for folder in (*_groups(root, "memory"),)]
    limits = [pair for pair in known if pair is not None]
    return min(limits, key=lambda pair: pair[1], default=(None, None))


def _limit(folder: Path) -> tuple[int, int] | None:
    """(limit, left) of one group, of version 2 or 1."""
    limit = _first(folder, "memory.max", "memory.limit_in_bytes")
    used = _first(folder, "memory.current", "memory.usage_in_bytes")
    if limit is None or used is None or limit > NO_LIMIT_BYTES:
        return None
    found = re.search(r"^(?:total_)?inactive_file (\d{1,18})$", text(folder / "memory.stat") or "", re.MULTILINE)
    return limit, max(0, limit - used + (int(found[1]) if found else 0))


def quota_threads(root: Path = ROOT) -> float | None:
    """Processor time that the tightest control group allows, in threads; None without a limit."""
    shares = []
    for folder in _groups(root, "cpu"):
        quota, _, period = (text(folder / "cpu.max") or "").partition(" ")
        if not quota:  # version 1
            quota, period = (text(folder / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period"))
        if quota.isdecimal() and period.isdecimal() and int(period):
            shares.append(int(quota) / int(period))
    return min(shares, default=None)


def _groups(root: Path, controller: str) -> list[Path]:
    """Folders of this process's group and of all above it, in the trees of both versions.

    In a container the path of the group may be the host's, which is not there: its own limits lie at the root.
    """
    base = root / "sys/fs/cgroup"
    found = [base, base / controller]
    for line in (text(root / "proc/self/cgroup") or "").splitlines():
        _, names, path = (*line.split(":", 2), "", "")[:3]
        tree = base if not names else base / controller if controller in names.split(",") else None
        parts = [part for part in path.split("/") if part not in ("", "..", ".")]
        if tree is not None:
            found += [tree.joinpath(*parts[: depth + 1]) for depth in range(len(parts))]
    return found


def _first(folder: Path, *names: str) -> int | None:
    return next((value for value in (number(folder / name) for name in names) if value is not None), None)

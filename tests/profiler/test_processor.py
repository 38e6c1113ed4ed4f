"""Processor and host memory from the kernel's files of other machines."""

from pathlib import Path

import pytest

from specgauge.profiler.devices import processor
from specgauge.profiler.devices.machine_records import HostMemory

from .amd_files import write

GIB = 1 << 30
CPU = "sys/devices/system/cpu"
CPUINFO = """processor	: 0
model name	: Some CPU @ 3.00GHz
cpu MHz		: 1200.000
flags		: fpu vme hypervisor avx

processor	: 1
model name	: Some CPU @ 3.00GHz
cpu MHz		: 3000.000
flags		: fpu vme hypervisor avx
"""
MEMINFO = """MemTotal:       65536 kB
MemFree:         1024 kB
MemAvailable:   32768 kB
SwapTotal:       8192 kB
SwapFree:        6144 kB
"""


def laptop(root: Path) -> Path:
    """Two fast cores of two threads, four slow ones, on battery, in power save."""
    files = {"proc/cpuinfo": CPUINFO, "proc/meminfo": MEMINFO, "proc/stat": "cpu  10 0 10 70 10 0 0 0 0 0"}
    for cpu in range(8):
        core = f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}" if cpu < 4 else str(cpu)
        files[f"{CPU}/cpu{cpu}/topology/core_cpus_list"] = core
        files[f"{CPU}/cpu{cpu}/thermal_throttle/core_throttle_count"] = "3"
        files[f"{CPU}/cpufreq/policy{cpu}/scaling_governor"] = "powersave"
        files[f"{CPU}/cpufreq/policy{cpu}/scaling_driver"] = "intel_pstate"
        files[f"{CPU}/cpufreq/policy{cpu}/energy_performance_preference"] = "balance_power"
        files[f"{CPU}/cpufreq/policy{cpu}/scaling_cur_freq"] = "800000"
        files[f"{CPU}/cpufreq/policy{cpu}/cpuinfo_max_freq"] = "4700000" if cpu < 4 else "3500000"
    files |= {"sys/devices/cpu_core/cpus": "0-3", "sys/devices/cpu_atom/cpus": "4-7"}
    files |= {"sys/class/power_supply/AC/type": "Mains", "sys/class/power_supply/AC/online": "0"}
    files |= {"sys/class/power_supply/BAT0/type": "Battery", "sys/devices/system/node/node0/cpulist": "0-7"}
    return write(root, files)


def test_a_laptop_tells_cores_clocks_governor_and_battery(tmp_path):
    report = processor.processor_report(laptop(tmp_path), busy_share=0.02)
    assert (report.model, report.cores, report.threads) == ("Some CPU @ 3.00GHz", 6, 8)
    assert (report.fast_cores, report.slow_cores, report.numa_nodes) == (2, 4, 1)
    assert (report.governor, report.frequency_driver) == ("powersave", "intel_pstate")
    assert report.energy_preference == "balance_power"
    assert (report.clock_mhz, report.most_clock_mhz) == (800.0, 4700.0)
    assert report.on_battery is True and report.virtual is True and report.busy_share == 0.02
    assert processor.throttle_events(tmp_path) == 24


def test_a_machine_whose_files_are_missing_is_unknown_in_all(tmp_path):
    report = processor.processor_report(tmp_path)
    known = {name for name in report.__struct_fields__ if getattr(report, name) not in (None, "")}
    assert known <= {"model", "usable_threads", "load_average"} and report.model
    assert processor.host_memory(tmp_path) == HostMemory() and processor.available_bytes(tmp_path) is None


def test_without_frequency_files_the_clock_is_the_median_of_cpuinfo(tmp_path):
    write(tmp_path, {"proc/cpuinfo": CPUINFO})
    assert processor.clock_mhz(tmp_path) == 2100.0


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/", {}, (None, None)),
        ("0::/", {"memory.max": "max", "memory.current": "5"}, (None, None)),
        ("0::/", {"memory.max": "1000", "memory.current": "400"}, (1000, 600)),
        # Cached files can be dropped: a container that has read its model is not full.
        (
            "0::/",
            {
                "memory.max": "1000",
                "memory.current": "900",
                "memory.stat": "anon 100\ninactive_file 700\nactive_file 1",
            },
            (1000, 800),
        ),
        ("0::/", {"memory.max": "1000", "memory.current": "1200"}, (1000, 0)),
        # The group above is tighter.
        (
            "0::/user.slice/session",
            {
                "user.slice/memory.max": "500",
                "user.slice/memory.current": "100",
                "user.slice/session/memory.max": "1000",
                "user.slice/session/memory.current": "100",
            },
            (500, 400),
        ),
        # Version 1, in a container that sees the host's path but not its folder.
        (
            "4:memory:/docker/abc\n0::/",
            {"memory/memory.limit_in_bytes": "2000", "memory/memory.usage_in_bytes": "500"},
            (2000, 1500),
        ),
        (
            "4:memory:/",
            {"memory/memory.limit_in_bytes": "9223372036854771712", "memory/memory.usage_in_bytes": "5"},
            (None, None),
        ),
        ("0::/../..", {"memory.max": "garbage", "memory.current": "1"}, (None, None)),
    ],
)
def test_the_tightest_memory_limit_of_both_versions_counts(tmp_path, groups, files, expected):
    write(tmp_path, {"proc/self/cgroup": groups, **{f"sys/fs/cgroup/{name}": held for name, held in files.items()}})
    assert processor.group_memory(tmp_path) == expected


def test_available_memory_is_the_smaller_of_machine_and_group(tmp_path):
    group = {"sys/fs/cgroup/memory.max": str(16 << 20), "sys/fs/cgroup/memory.current": "0"}
    write(tmp_path, {"proc/meminfo": MEMINFO, **group})
    assert processor.available_bytes(tmp_path) == 16 << 20
    memory = processor.host_memory(tmp_path)
    assert (memory.total_bytes, memory.available_bytes, memory.swap_used_bytes) == (64 << 20, 32 << 20, 2 << 20)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 0.5),
    ],
)
def test_a_quota_of_processor_time_is_told_in_threads(tmp_path, files, expected):
    write(tmp_path, {f"sys/fs/cgroup/{name}": held for name, held in files.items()})
    assert processor.quota_threads(tmp_path) == expected
    usable = processor.usable_threads(tmp_path)
    assert usable is not None and (expected is None or usable == max(1, min(usable, int(expected))))


def caches(root: Path, *domains: str) -> None:
    for cpu, domain in enumerate(domains):
        folder = f"{CPU}/cpu{cpu}/cache"
        for index, (kind, level, size, shared) in enumerate(
            [("Data", 1, "32K", str(cpu)), ("Instruction", 1, "64M", str(cpu)), ("Unified", 3, "32M", domain)]
        ):
            files = {"type": kind, "level": str(level), "size": size, "shared_cpu_list": shared}
            write(root, {f"{folder}/index{index}/{name}": held for name, held in files.items()})


def test_caches_of_the_last_level_are_added_up_over_their_groups_of_cores(tmp_path):
    caches(tmp_path, "0-1", "0-1", "2-3", "2-3")
    assert processor.caches_bytes(tmp_path) == 64 << 20
    assert processor.caches_bytes(tmp_path / "none") is None


def test_a_cache_of_a_size_nobody_can_read_is_none(tmp_path):
    write(
        tmp_path, {f"{CPU}/cpu0/cache/index0/{n}": h for n, h in {"type": "Data", "level": "1", "size": "big"}.items()}
    )
    assert processor.caches_bytes(tmp_path) is None


def test_busy_time_is_what_is_not_idle_between_two_looks():
    assert processor.busy_share((100, 60, 0), (200, 135, 0)) == 0.25
    assert processor.busy_share((100, 60, 0), (100, 60, 0)) is None
    assert processor.busy_share(None, (1, 1, 0)) is None


def test_stolen_time_is_a_share_since_the_start(tmp_path):
    write(tmp_path, {"proc/stat": "cpu  10 0 10 70 4 0 1 5 0 0\ncpu0 1 2 3 4"})
    assert processor.steal_share(tmp_path) == 0.05
    write(tmp_path, {"proc/stat": "cpu  1 2 3"})
    assert processor.steal_share(tmp_path) is None


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, ""),
        ({".dockerenv": ""}, "docker"),
        ({"run/.containerenv": ""}, "podman"),
        ({"proc/self/cgroup": "0::/kubepods/besteffort/pod1"}, "kubernetes"),
        ({"proc/sys/kernel/osrelease": "5.15.0-microsoft-standard-WSL2"}, "wsl"),
    ],
)
def test_containers_are_told_by_their_marks(tmp_path, files, expected):
    write(tmp_path, files)
    assert processor.container(tmp_path) == expected

"""A machine in the terminal: 80 columns, findings last, names that are only text."""

import io

from rich.console import Console

from specgauge.profiler.devices.machine_records import (
    Clocks,
    DeviceMemory,
    GpuProcess,
    GpuReport,
    Heat,
    HostMemory,
    MachineReport,
    PcieLink,
    Power,
    ProcessorReport,
    UnderLoad,
)
from specgauge.profiler.finding import Finding
from specgauge.profiler.records import BandwidthSample
from specgauge.reports.machine import print_machine

GIB = 1 << 30


def sample(operation: str, mebibytes: int, gigabytes: float) -> BandwidthSample:
    return BandwidthSample(
        operation=operation,
        device="NVIDIA GeForce RTX 5090",
        buffer_bytes=mebibytes << 20,
        bytes_per_second=tuple(gigabytes * 1e9 * (1 + 0.01 * turn) for turn in range(-3, 4)),
        provenance="measured",
    )


def full(
    name: str = "NVIDIA GeForce RTX 5090", evidence: str = "power limit 400 W, default 600 W (67%)"
) -> MachineReport:
    link = PcieLink(generation=5, most_generation=5, width=16, most_width=16)
    gpu = GpuReport(
        vendor="nvidia",
        name=name,
        chosen=True,
        power=Power(watts=31, limit_watts=400, default_limit_watts=600, least_limit_watts=400, most_limit_watts=600),
        clocks=Clocks(
            core_mhz=180, most_core_mhz=3090, memory_mhz=405, most_memory_mhz=14001, event_reasons=("GpuIdle",)
        ),
        heat=Heat(celsius=35, slowdown_celsius=90, shutdown_celsius=95),
        link=PcieLink(generation=1, most_generation=5, width=16, most_width=16),
        memory=DeviceMemory(total_bytes=32 * GIB, used_bytes=GIB, free_bytes=31 * GIB, bus_bytes_per_second=1792e9),
        utilization=0.0,
        processes=(GpuProcess(pid=7, name=name, memory_bytes=GIB), GpuProcess(pid=8)),
        persistence=False,
        under_load=UnderLoad(
            samples=9, core_mhz=2407, memory_mhz=14001, watts=399, event_reasons=("SwPowerCap",), link=link
        ),
    )
    processor = ProcessorReport(
        model="CPU", cores=8, threads=16, usable_threads=16, numa_nodes=1, governor="performance"
    )
    samples = [sample("read", 8, 4000), sample("copy", 8, 5000), sample("read", 1024, 1640), sample("copy", 1024, 1590)]
    return MachineReport(
        created="",
        tool_version="",
        system="Linux",
        driver="580.95",
        gpus=(gpu,),
        processor=processor,
        memory=HostMemory(total_bytes=64 * GIB, available_bytes=60 * GIB),
        bandwidth=tuple(samples),
        findings=(Finding(id="power-limit", severity="warning", evidence=evidence, remedy="raise it " * 20),),
    )


def printed(report: MachineReport, **options) -> str:
    out = io.StringIO()
    print_machine(Console(file=out, width=80, **options), report)
    return out.getvalue()


def bare() -> MachineReport:
    return MachineReport(
        created="",
        tool_version="",
        system="",
        driver_silence="NVML Shared Library Not Found",
        processor=ProcessorReport(model=""),
        memory=HostMemory(),
    )


def test_a_full_report_fits_80_columns_with_findings_last():
    text = printed(full())
    assert max(len(line) for line in text.splitlines()) <= 80
    words = " ".join(text.split())
    assert words.startswith("NVIDIA GeForce RTX 5090, driver 580.95 power")
    for told in (
        "31 of 400 W, default 600 W, can be 400 to 600 W",
        "180 of 3090 MHz, memory 405 of 14001 MHz",
        "idle: clocks are down because nothing runs",
        "35 °C, slows down from 90 °C, off at 95 °C",
        "32,768 MiB, used 1,024 MiB, free 31,744 MiB",
        "generation 1 x16 of 5 x16",
        "2407 MHz, memory 14001 MHz, 399 W, generation 5 x16 of 5 x16, at its power limit",
        "not told ECC, MIG, BAR1",
        "unnamed (memory not told)",
    ):
        assert told in words, told
    assert words.index("What stands out") > words.index("GB/s (10^9 bytes)")
    assert "-> raise it" in words


def test_bandwidth_has_median_interval_and_share_of_the_bus():
    row = next(line for line in printed(full()).splitlines() if line.split()[:2] == ["1,024", "MiB"])
    assert row.split() == ["1,024", "MiB", "1640", "(1591", "to", "1689)", "1590", "(1542", "to", "1638)", "92", "%"]


def test_a_machine_that_tells_nothing_is_printed_too():
    words = " ".join(printed(bare()).split())
    assert words.startswith("No GPU found (NVIDIA: NVML Shared Library Not Found)")
    assert "Bandwidth not measured" in words and words.endswith("Nothing stands out.")


def test_hostile_names_are_text():
    text = printed(full("[red]x[/nope]\x1b]0;owned\x07\u202e" + "y" * 9000, "[bold]\x1b[2J"), force_terminal=False)
    assert "\x1b" not in text and "\x07" not in text and "\u202e" not in text
    assert "[red]x" in text and "[bold]" in text
    assert max(len(line) for line in text.splitlines()) <= 80

"""A machine in the terminal: devices, processor, bandwidth, and last what stands out with its next step; 80 columns."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..profiler.devices.bandwidth_spread import Spread, spread
from ..profiler.devices.gpu_findings import link_words, words
from ..profiler.devices.machine_findings import bus_of
from ..profiler.devices.machine_records import GpuReport, HostMemory, MachineReport, PcieLink, ProcessorReport
from ..profiler.records import BandwidthSample
from .numbers import percent, plain, short
from .terminal import print_line, text_cell

if TYPE_CHECKING:
    from rich.console import Console

Row = tuple[str, str]
"""What, and what the machine tells of it; empty where it does not."""
LABEL_WIDTH = 12


def print_machine(console: "Console", report: MachineReport) -> None:
    """Print what the machine tells and what stands out; foreign names are never read as markup."""
    for gpu in report.gpus:
        print_line(console, _gpu_title(gpu, report), style="bold")
        _print_rows(console, _gpu_rows(gpu))
    if not report.gpus:
        print_line(console, f"No GPU found{_silence(report)}", style="bold")
    print_line(console, plain(report.processor.model), style="bold")
    _print_rows(console, [*_processor_rows(report.processor), *_memory_rows(report.memory)])
    _print_bandwidth(console, report)
    _print_findings(console, report)


def _gpu_title(gpu: GpuReport, report: MachineReport) -> str:
    driver = f", driver {plain(report.driver)}" if gpu.chosen and report.driver else ""
    kind = ", shares the host's memory" if gpu.integrated else ""
    role = "" if gpu.chosen else ", not used first"
    return f"{plain(gpu.name) or 'GPU'}{driver}{kind}{role}{', LOST' if gpu.lost else ''}"


def _silence(report: MachineReport) -> str:
    return f" (NVIDIA: {plain(report.driver_silence, 50)})" if report.driver_silence else ""


def _gpu_rows(gpu: GpuReport) -> list[Row]:
    power, clocks, heat, memory = gpu.power, gpu.clocks, gpu.heat, gpu.memory
    return [
        ("power", _joined(_of(power.watts, power.limit_watts, "W"), _limits(gpu))),
        (
            "clock",
            _joined(
                _of(clocks.core_mhz, clocks.most_core_mhz, "MHz"),
                _prefixed("memory ", _of(clocks.memory_mhz, clocks.most_memory_mhz, "MHz")),
                _prefixed("level ", plain(clocks.forced_level)),
            ),
        ),
        ("held by", words(set(clocks.event_reasons))),
        (
            "temperature",
            _joined(
                _unit(heat.celsius, "°C"),
                _prefixed("slows down from ", _unit(heat.slowdown_celsius, "°C")),
                _prefixed("off at ", _unit(heat.shutdown_celsius, "°C")),
            ),
        ),
        ("busy", "" if gpu.utilization is None else percent(gpu.utilization)),
        ("memory", _joined(_gpu_memory(gpu), _prefixed("on the host ", _mebibytes(memory.host_used_bytes)))),
        ("bus", _prefixed("", _gigabytes_per_second(memory.bus_bytes_per_second))),
        ("ECC", _switch(memory.ecc)),
        ("MIG", _joined(_switch(gpu.mig), plain(gpu.instance))),
        ("PCIe", _link(gpu.link)),
        ("BAR1", _mebibytes(memory.bar1_bytes)),
        ("persistence", _switch(gpu.persistence)),
        ("others", ", ".join(_process(gpu, index) for index in range(min(3, len(gpu.processes)))) or "none listed"),
        ("under load", _under_load(gpu)),
    ]


def _limits(gpu: GpuReport) -> str:
    power = gpu.power
    default = _prefixed("default ", _unit(power.default_limit_watts, "W"))
    if power.least_limit_watts is None or power.most_limit_watts is None:
        return default
    return _joined(default, f"can be {power.least_limit_watts:.0f} to {power.most_limit_watts:.0f} W")


def _gpu_memory(gpu: GpuReport) -> str:
    memory = gpu.memory
    return _joined(
        _prefixed("", _mebibytes(memory.total_bytes)),
        _prefixed("used ", _mebibytes(memory.used_bytes)),
        _prefixed("free ", _mebibytes(memory.free_bytes)),
    )


def _link(link: PcieLink) -> str:
    known = (link.generation, link.width, link.most_generation, link.most_width)
    return link_words(link) if any(value is not None for value in known) else ""


def _process(gpu: GpuReport, index: int) -> str:
    process = gpu.processes[index]
    return f"{plain(process.name, 30) or 'unnamed'} {_mebibytes(process.memory_bytes) or '(memory not told)'}"


def _under_load(gpu: GpuReport) -> str:
    load = gpu.under_load
    if load is None:
        return ""
    return _joined(
        _unit(load.core_mhz, "MHz"),
        _prefixed("memory ", _unit(load.memory_mhz, "MHz")),
        _unit(load.watts, "W"),
        _unit(load.celsius, "°C"),
        _link(load.link) if load.link else "",
        words(set(load.event_reasons)),
    )


def _processor_rows(processor: ProcessorReport) -> list[Row]:
    return [
        ("cores", _cores(processor)),
        ("clock", _of(processor.clock_mhz, processor.most_clock_mhz, "MHz")),
        ("governor", _joined(processor.governor, processor.frequency_driver, processor.energy_preference)),
        (
            "load",
            _joined(
                _prefixed("busy ", "" if processor.busy_share is None else percent(processor.busy_share)),
                _prefixed("average ", "" if processor.load_average is None else f"{processor.load_average:.2f}"),
            ),
        ),
        ("last cache", _mebibytes(processor.cache_bytes)),
        ("runs in", _joined(processor.container, "a virtual machine" if processor.virtual else "")),
    ]


def _cores(processor: ProcessorReport) -> str:
    kinds = f"{processor.fast_cores} fast, {processor.slow_cores} slow" if processor.slow_cores else ""
    quota = processor.quota_threads
    return _joined(
        _counted(processor.cores, "core"),
        kinds,
        _counted(processor.threads, "thread"),
        "" if processor.usable_threads in (None, processor.threads) else f"{processor.usable_threads} usable",
        "" if quota is None else f"time of {quota:.3g} allowed",
        _counted(processor.numa_nodes, "NUMA node"),
    )


def _memory_rows(memory: HostMemory) -> list[Row]:
    return [
        (
            "memory",
            _joined(_mebibytes(memory.total_bytes), _prefixed("available ", _mebibytes(memory.available_bytes))),
        ),
        (
            "limit",
            _joined(_mebibytes(memory.limit_bytes), _prefixed("left ", _mebibytes(memory.limit_available_bytes))),
        ),
        ("swap", _joined(_mebibytes(memory.swap_total_bytes), _prefixed("used ", _mebibytes(memory.swap_used_bytes)))),
    ]


def _print_rows(console: "Console", rows: Iterable[Row]) -> None:
    """The rows that say something, then in one line what is not told."""
    from rich.table import Table

    told = [(label, text) for label, text in rows if text]
    silent = [label for label, text in rows if not text]
    table = Table.grid(padding=(0, 1))
    table.add_column(min_width=LABEL_WIDTH)
    table.add_column(overflow="fold")
    for label, text in [*told, *([("not told", ", ".join(silent))] if silent else [])]:
        table.add_row(text_cell(f"  {label}"), text_cell(text))
    console.print(table)


def _print_bandwidth(console: "Console", report: MachineReport) -> None:
    measured = [sample for sample in report.bandwidth if sample.provenance == "measured"]
    if not measured:
        print_line(console, "Bandwidth not measured")
        return
    print_line(console, _bandwidth_title(measured[0]), style="bold")
    console.print(_bandwidth_table(measured, bus_of(report, measured[0])))


def _bandwidth_title(sample: BandwidthSample) -> str:
    threads = f", {_counted(sample.threads, 'thread')}" if sample.threads else ""
    repeats = len(sample.bytes_per_second)
    return f"Memory bandwidth of {plain(sample.device)}{threads}, {_counted(repeats, 'repeat')} a size"


def _bandwidth_table(samples: Sequence[BandwidthSample], bus: float | None):
    """One row a size, read and copy side by side."""
    from rich import box
    from rich.table import Table

    caption = "GB/s (10^9 bytes), bytes read and written both counted; median and 95 % interval of these repeats"
    table = Table(box=box.SIMPLE, caption=caption, caption_justify="left", padding=(0, 1), pad_edge=False)
    for heading in ("buffer", "read GB/s", "copy GB/s", *(("of the bus",) if bus else ())):
        table.add_column(heading, justify="right", overflow="fold")
    for size in sorted({sample.buffer_bytes for sample in samples}):
        of_size = {sample.operation: spread(sample) for sample in samples if sample.buffer_bytes == size}
        share = (percent(of_size["read"].median / bus) if "read" in of_size else "",) if bus else ()
        table.add_row(_size(size), *(_stated(of_size.get(name)) for name in ("read", "copy")), *share)
    return table


def _stated(found: Spread | None) -> str:
    if found is None:
        return ""
    return f"{short(found.median / 1e9)} ({short(found.low / 1e9)} to {short(found.high / 1e9)})"


def _print_findings(console: "Console", report: MachineReport) -> None:
    """Each with its next step; nothing is changed by specgauge itself."""
    from rich.table import Table

    if not report.findings:
        print_line(console, "Nothing stands out.", style="bold")
        return
    print_line(console, "What stands out:", style="bold")
    table = Table.grid(padding=(0, 1))
    table.add_column(min_width=8)
    table.add_column(overflow="fold")
    for finding in report.findings:
        table.add_row(text_cell(f" {finding.severity}"), text_cell(f"{finding.id}: {plain(finding.evidence, 400)}"))
        if finding.remedy:
            table.add_row("", text_cell(f"-> {plain(finding.remedy, 400)}"))
    console.print(table)


def _of(now: float | None, most: float | None, unit: str) -> str:
    if now is None:
        return _prefixed("at most ", _unit(most, unit))
    return f"{now:.0f} {unit}" if most is None else f"{now:.0f} of {most:.0f} {unit}"


def _unit(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:.0f} {unit}"


def _mebibytes(size_bytes: int | None) -> str:
    return "" if size_bytes is None else f"{size_bytes / 2**20:,.0f} MiB"


def _size(size_bytes: int) -> str:
    mebibytes = size_bytes / 2**20
    return f"{mebibytes:,.0f} MiB" if mebibytes >= 1 else f"{size_bytes / 1024:.0f} KiB"


def _gigabytes_per_second(value: float | None) -> str:
    return "" if value is None else f"{short(value / 1e9)} GB/s in theory"


def _switch(value: bool | None) -> str:
    return "" if value is None else "on" if value else "off"


def _counted(count: int | None, noun: str) -> str:
    return "" if count is None else f"{count} {noun}{'' if count == 1 else 's'}"


def _prefixed(prefix: str, text: str) -> str:
    return f"{prefix}{text}" if text else ""


def _joined(*texts: str) -> str:
    return ", ".join(text for text in texts if text)

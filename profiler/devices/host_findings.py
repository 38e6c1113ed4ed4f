"""What of the host spoils a measurement or slows decoding: its processors, their clocks, other work, memory."""

from collections.abc import Iterator

from ..finding import NOTE, WARNING, Finding
from .machine_records import MachineReport

BUSY_SHARE, STEAL_SHARE = 0.10, 0.01
NEARLY_FULL_SHARE = 0.10
SWAP_BYTES = 256 << 20


def of_processor(report: MachineReport) -> Iterator[Finding]:
    """Clocks, other work, threads, heat, supply and neighbours."""
    yield from _governor(report)
    yield from _other_work(report)
    yield from _threads(report)
    processor = report.processor
    if processor.throttle_events:
        yield Finding(
            id="processor-hot",
            severity=WARNING,
            evidence=f"{processor.throttle_events} thermal events of the processor while the bandwidth was measured",
            remedy="better the cooling, or use fewer threads; numbers taken hot are valid hot only",
        )
    if processor.on_battery:
        yield Finding(
            id="on-battery",
            severity=WARNING,
            evidence="running on battery",
            remedy="plug it in: processor and GPU are held to less power, and it varies",
        )
    if processor.virtual and (processor.steal_share or 0) >= STEAL_SHARE:
        yield Finding(
            id="time-stolen",
            severity=WARNING,
            evidence=f"other virtual machines took {processor.steal_share:.1%} of the processor's time since the start",
            remedy="profile when the host is quiet, and look at the sentinel's drift in the report",
        )


def _governor(report: MachineReport) -> Iterator[Finding]:
    """`powersave` holds the lowest clock under acpi-cpufreq; under intel_pstate and amd-pstate-epp it is the default."""
    processor = report.processor
    steered = processor.frequency_driver in ("intel_pstate", "amd-pstate-epp")
    slow = "powersave" in processor.governor and not steered
    thrifty = steered and processor.energy_preference == "power"
    if slow or thrifty:
        what = f"governor {processor.governor}" if slow else f"energy preference {processor.energy_preference}"
        yield Finding(
            id="governor",
            severity=WARNING,
            evidence=f"processor {what} (driver {processor.frequency_driver or 'unknown'}) holds clocks low",
            remedy="cpupower frequency-set -g performance (as root), or the desktop's power profile; then profile",
        )


def _other_work(report: MachineReport) -> Iterator[Finding]:
    processor = report.processor
    threads = processor.usable_threads or processor.threads or 1
    busy, load = processor.busy_share, processor.load_average
    if busy is not None and busy >= BUSY_SHARE:
        yield Finding(
            id="other-work",
            severity=WARNING,
            evidence=f"the processors were {busy:.0%} busy before anything was measured"
            + ("" if load is None else f", load average {load:.2f}"),
            remedy="end or wait for the other work; bandwidth is shared even where cores are free",
        )
    elif load is not None and load >= max(0.5, BUSY_SHARE * threads):
        yield Finding(
            id="load",
            severity=NOTE,
            evidence=f"load average {load:.2f} over the last minute on {threads} threads, though idle just now",
            remedy="wait a minute and look again: something works here now and then",
        )


def _threads(report: MachineReport) -> Iterator[Finding]:
    processor = report.processor
    if processor.quota_threads is not None and processor.threads and processor.quota_threads < processor.threads:
        yield Finding(
            id="processor-quota",
            severity=WARNING,
            evidence=f"a control group allows the time of {processor.quota_threads:.2g} of {processor.threads} threads",
            remedy=f"give the engine {processor.usable_threads or 1} threads: with more, all are stopped for the rest "
            "of each period",
        )
    if processor.fast_cores and processor.slow_cores:
        yield Finding(
            id="two-kinds-of-cores",
            severity=NOTE,
            evidence=f"{processor.fast_cores} fast and {processor.slow_cores} slow cores",
            remedy=f"on the processor use {processor.fast_cores} threads: a pass waits for the slowest one",
        )
    elif processor.cores and processor.threads and processor.threads > processor.cores:
        yield Finding(
            id="threads-share-cores",
            severity=NOTE,
            evidence=f"{processor.threads} threads on {processor.cores} cores",
            remedy=f"on the processor use {processor.cores} threads: a second one on a core adds no bandwidth",
        )
    if (processor.numa_nodes or 1) > 1:
        yield Finding(
            id="numa",
            severity=NOTE,
            evidence=f"memory in {processor.numa_nodes} NUMA nodes",
            remedy="on the processor run in one node (numactl -N 0 -m 0) or spread pages (numactl -i all); always alike",
        )


def of_memory(report: MachineReport) -> Iterator[Finding]:
    """The host's memory: nearly full, swapped, limited."""
    memory = report.memory
    total, available = memory.total_bytes, memory.available_bytes
    if total and available is not None and available < NEARLY_FULL_SHARE * total:
        yield Finding(
            id="memory-full",
            severity=WARNING,
            evidence=f"{available / 2**30:.1f} of {total / 2**30:.1f} GiB of the host's memory are available",
            remedy="end what holds it: weights that were read from a file are dropped and read again at every pass",
        )
    if (memory.swap_used_bytes or 0) >= SWAP_BYTES:
        yield Finding(
            id="swap",
            severity=WARNING,
            evidence=f"{(memory.swap_used_bytes or 0) / 2**30:.1f} GiB are swapped out",
            remedy="free memory before profiling: what comes back from swap lands in somebody's round",
        )
    if memory.limit_bytes is not None and (total is None or memory.limit_bytes < total):
        left = "" if memory.limit_available_bytes is None else f", {memory.limit_available_bytes / 2**30:.1f} GiB left"
        where = f"the container ({report.processor.container})" if report.processor.container else "a control group"
        yield Finding(
            id="memory-limit",
            severity=NOTE,
            evidence=f"{where} allows {memory.limit_bytes / 2**30:.1f} GiB of memory{left}",
            remedy="choose models for this limit, not for the machine; past it the engine is killed",
        )

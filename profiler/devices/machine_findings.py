"""What of a machine spoils a measurement or slows decoding, each with what was seen and the next step.

Nothing is changed here or anywhere: a remedy is for the owner to carry out. Findings are about the device that an
engine takes first (gpu_findings.py) and about the host (host_findings.py).
"""

from collections.abc import Iterator

from ..finding import ERROR, NOTE, WARNING, Finding
from ..records import BandwidthSample
from .bandwidth_spread import ARITHMETIC_RATIO, DISTURBED_RATIO, cache_over_memory, in_memory, median
from .gpu_findings import of_gpus
from .host_findings import of_memory, of_processor
from .machine_records import MachineReport

OLD_DRIVER = 535
"""Older drivers lack the event reasons under their present name, and CUDA 12.2."""
LOW_BUS_SHARE = 0.70
SEVERITIES = (ERROR, WARNING, NOTE)


def find(report: MachineReport) -> tuple[Finding, ...]:
    """All findings, the gravest first."""
    found = [
        *_of_driver(report),
        *of_gpus(report.gpus, report.cuda_order),
        *of_processor(report),
        *of_memory(report),
        *_of_bandwidth(report),
    ]
    return tuple(sorted(found, key=lambda finding: SEVERITIES.index(finding.severity)))


def _of_driver(report: MachineReport) -> Iterator[Finding]:
    major = report.driver.split(".")[0]
    nvidia = any(gpu.vendor == "nvidia" for gpu in report.gpus)
    if report.nvidia_on_bus and report.driver_silence:
        yield Finding(
            id="driver-silent",
            severity=WARNING,
            evidence=f"an NVIDIA card is on the bus, but its driver does not answer: {report.driver_silence}",
            remedy="install or load the driver (after an update: restart the machine); a container needs --gpus all",
        )
    if nvidia and not major.isdecimal():
        yield Finding(
            id="driver-unknown",
            severity=NOTE,
            evidence="the driver does not tell its version",
            remedy="note it beside the profile: numbers are valid for one driver",
        )
    elif nvidia and int(major) < OLD_DRIVER:
        yield Finding(
            id="driver-old",
            severity=NOTE,
            evidence=f"driver {report.driver} is older than {OLD_DRIVER}",
            remedy="update it, then profile: kernels of newer engines may not run or run slower on it",
        )


def bus_of(report: MachineReport, sample: BandwidthSample) -> float | None:
    """What the bus behind a sample carries in theory, in bytes per second: known of GPUs, by their name."""
    chosen = next((gpu for gpu in report.gpus if gpu.chosen), None)
    on_it = chosen is not None and not sample.threads and sample.device.startswith(chosen.name)
    return chosen.memory.bus_bytes_per_second if chosen and on_it else None


def _of_bandwidth(report: MachineReport) -> Iterator[Finding]:
    for sample in in_memory(report.bandwidth):
        bus = bus_of(report, sample)
        share = median(sample) / bus if bus else None
        if sample.operation == "read" and share is not None and share < LOW_BUS_SHARE:
            yield Finding(
                id="bandwidth-low",
                severity=WARNING,
                evidence=f"reads at {median(sample) / 1e9:.0f} GB/s, {share:.0%} of what the bus carries in theory",
                remedy="look at memory clock, other processes and ECC above; 80 to 95 % is usual",
            )
    ratio = cache_over_memory(report.bandwidth)
    if ratio is not None and ratio < DISTURBED_RATIO:
        yield Finding(
            id="bandwidth-disturbed",
            severity=WARNING,
            evidence=f"a small buffer is read at {ratio:.0%} of a large one's speed: threads waited for one that "
            "did not run",
            remedy="end the other work or measure with fewer threads (--threads 1); drafting suffers the same way",
        )
    elif ratio is not None and ratio < ARITHMETIC_RATIO:
        yield Finding(
            id="bandwidth-understated",
            severity=NOTE,
            evidence=f"a read from the cache is only {ratio:.2f} times as fast as one from memory: additions may "
            "limit both",
            remedy="measure with more threads, or take the copy's figure",
        )

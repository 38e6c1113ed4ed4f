"""Our memory bandwidth beside tools of others: python benchmarks/bandwidth.py [THREADS...], from a checkout.

Same operation, threads, size of buffer and byte convention, in turn, five times; medians are compared. Reads beside
likwid-bench (load) and sysbench (`--memory-oper=read`, a buffer for each thread; one word at a time, which can be its
limit), copies beside likwid-bench (copy) and mbw (memcpy; as many processes as threads; it counts bytes copied, we
count them read and written). Our threads meet after every pass, as an engine's do; those of the tools do not, so that
whatever stops one thread for a moment costs us more. Exits 1 where a pair is more than 15 % apart, 2 without a tool.
Waits for a quiet moment before each figure, and says how many got none. Debian has the tools: apt-get install likwid
sysbench mbw.
"""

import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from specgauge.profiler import bandwidth, machine
from specgauge.profiler.devices import processor
from specgauge.profiler.devices.sysfs import text

ROUNDS = 5
MOST_APART = 0.15
PATIENCE_SECONDS, LOOK_SECONDS, QUIET_SHARE = 5.0, 0.3, 0.05
SECONDS = 1.0
"""Of one figure of ours and of sysbench."""
MBW_REPEATS = 9
TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Pair:
    """One operation, ours and theirs: each returns bytes per second at a number of threads."""

    operation: str
    tool: str
    ours: Callable[[int], float]
    theirs: Callable[[int], float]


def our(operation: str) -> Callable[[int], float]:
    """The median of our own repeats."""

    def bytes_per_second(threads: int) -> float:
        samples = bandwidth.measure("cpu", threads, SECONDS)
        return next(statistics.median(s.bytes_per_second) for s in samples if s.operation == operation)

    return bytes_per_second


def buffer_mebibytes() -> int:
    return bandwidth.buffer_bytes(machine.last_level_cache_bytes(), machine.free_memory_bytes()) >> 20


def sysbench_read(threads: int) -> float:
    options = ("oper=read", "scope=local", f"block-size={buffer_mebibytes()}M", "total-size=100T")
    command = ["sysbench", "memory", *(f"--memory-{option}" for option in options)]
    return sysbench_bytes(output([*command, f"--threads={threads}", f"--time={SECONDS:.0f}", "run"]))


def sysbench_bytes(said: str) -> float:
    """Of its line `53760.00 MiB transferred (26836.20 MiB/sec)`."""
    return float(re.findall(r"transferred \(([\d.]+) MiB/sec\)", said)[0]) * 2**20


def mbw_copy(threads: int) -> float:
    """As many processes at once as threads, their medians added up."""
    command = ["mbw", "-q", "-t0", "-n", str(MBW_REPEATS), str(buffer_mebibytes())]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(threads)]
    return sum(mbw_bytes(process.communicate(timeout=TIMEOUT_SECONDS)[0]) for process in running)


def mbw_bytes(said: str) -> float:
    """Of its lines `0 Method: MEMCPY Elapsed: 0.01941 MiB: 256.00000 Copy: 13191.253 MiB/s`; read and written both."""
    speeds = re.findall(r"^\d+\s+Method: MEMCPY\s.*Copy: ([\d.]+) MiB/s", said, re.MULTILINE)
    return statistics.median(map(float, speeds)) * 2**20 * 2


def likwid(kernel: str) -> Callable[[int], float]:
    """One of its kernels, in AVX where this processor has it; bytes read and written count, as ours do."""

    def bytes_per_second(threads: int) -> float:
        name = f"{kernel}_avx" if has_avx() else kernel
        work = f"N:{(buffer_mebibytes() << 20) // 1000}kB:{threads}"
        return likwid_bytes(output(["likwid-bench", "-t", name, "-w", work, "-s", f"{SECONDS:.0f}"]))

    return bytes_per_second


def likwid_bytes(said: str) -> float:
    """Of its line `MByte/s: 26841.67`, which means 10^6 bytes."""
    return float(re.findall(r"^MByte/s:\s*([\d.]+)", said, re.MULTILINE)[0]) * 1e6


def has_avx() -> bool:
    return " avx " in (text(Path("/proc/cpuinfo")) or "")


def output(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=True).stdout


PAIRS = (
    Pair("read", "likwid-bench", our("read"), likwid("load")),
    Pair("read", "sysbench", our("read"), sysbench_read),
    Pair("copy", "likwid-bench", our("copy"), likwid("copy")),
    Pair("copy", "mbw", our("copy"), mbw_copy),
)


def quiet() -> bool:
    """Wait until the processors idle, for a while at most; whether they did."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        before = processor.times()
        time.sleep(LOOK_SECONDS)
        share = processor.busy_share(before, processor.times())
        if share is None or share <= QUIET_SHARE:
            return True
    return False


def compare(pair: Pair, threads: int) -> bool:
    """Print both medians and whether they agree."""
    ours: list[float] = []
    theirs: list[float] = []
    loud = 0
    for turn in range(ROUNDS):
        order = [(pair.ours, ours), (pair.theirs, theirs)]
        for measure, taken in order if turn % 2 == 0 else order[::-1]:
            loud += not quiet()
            taken.append(measure(threads))
    ratio = statistics.median(ours) / statistics.median(theirs)
    agree = abs(ratio - 1) <= MOST_APART
    noise = f"; {loud} of {2 * ROUNDS} figures while others worked" if loud else ""
    print(
        f"{pair.operation}, {threads} thread{'s' if threads > 1 else ''}: ours {shown(ours)}, "
        f"{pair.tool} {shown(theirs)} GB/s: {ratio - 1:+.1%}{'' if agree else ', TOO FAR APART'}{noise}",
        flush=True,
    )
    return agree


def shown(values: Sequence[float]) -> str:
    """Median (lowest to highest), GB/s."""
    return f"{statistics.median(values) / 1e9:.1f} ({min(values) / 1e9:.1f} to {max(values) / 1e9:.1f})"


def main(arguments: Sequence[str]) -> int:
    present = [pair for pair in PAIRS if shutil.which(pair.tool)]
    if not present:
        print("none of the tools is installed; on Debian: apt-get install likwid sysbench mbw", file=sys.stderr)
        return 2
    print(f"{machine.cpu_model()}, buffers of {buffer_mebibytes()} MiB, {ROUNDS} figures each, in turn")
    threads = [int(word) for word in arguments] or [1, processor.usable_threads() or 1]
    agreed = [compare(pair, count) for count in dict.fromkeys(threads) for pair in present]
    return 0 if all(agreed) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

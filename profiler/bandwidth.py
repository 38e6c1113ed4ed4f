"""Memory bandwidth of the device: what physics allows a decode step that has to read every weight once.

Two kernels: a read (a sum) and a copy. In buffers of eight times all caches of the last level nothing is served from
them; smaller ones show where the cache ends. Bytes read and bytes written both count, as in STREAM; the lines that a
processor fetches before it overwrites them do not. torch is imported here and nowhere else in this room; without it the
driver's specification is given, labelled so.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from . import machine
from .devices import processor
from .records import BandwidthSample

CACHES = 8
REPEATS = (3, 15)
"""At least and at most, whatever the budget."""
LARGEST_BYTES = 4 << 30
FALLBACK_CACHE_BYTES = 32 << 20
GPU_LEAST_BYTES = 1 << 30
"""Of a GPU's buffer: below, the start and the end of a kernel take a share of its time."""
STEP = 4
"""Between sizes."""
SMALLEST_BYTES = {"cpu": 1 << 20, "mps": 4 << 20, "cuda": 8 << 20}
"""Below, the start of a kernel takes a share of its time."""
SPAN_BYTES = {"cpu": 16 << 20, "mps": 8 << 30, "cuda": 32 << 30}
"""Read at least at a time, by several calls where the buffer is smaller: a clock or a launch is too coarse for less.
On a GPU enough of it for clocks and link to leave their rest, so that a look meanwhile shows them at work."""


def measure(device: str = "", threads: int = 0, seconds_budget: float = 3.0) -> tuple[BandwidthSample, ...]:
    """Read and copy bandwidth of the memory of `device`: cuda, mps, cpu, or empty for a GPU where there is one.

    `threads` counts on the processor only; 0: torch's choice, fewer where a control group gives less time. Raw bytes per
    second of each repeat are kept.
    Where torch cannot use the device: the specification of the GPU (operation spec); of a processor: nothing.
    """
    return _measured(device, threads, seconds_budget, memory_only=True)


def sweep(device: str = "", threads: int = 0, seconds_budget: float = 8.0) -> tuple[BandwidthSample, ...]:
    """As `measure`, at several sizes from well within a cache up to the memory's, and the specification beside them."""
    found = _measured(device, threads, seconds_budget, memory_only=False)
    on_processor = any(sample.threads for sample in found)
    spec = () if on_processor or any(sample.operation == "spec" for sample in found) else _spec()
    return (*found, *spec)


def _measured(device: str, threads: int, seconds_budget: float, memory_only: bool) -> tuple[BandwidthSample, ...]:
    torch = _torch()
    backend = _backend(torch, device)
    if torch is None or backend is None:
        return () if device == "cpu" else _spec()
    bench = _bench(torch, backend, threads)
    sizes = (bench.size,) if memory_only else ladder(bench.size, SMALLEST_BYTES[backend])
    before = torch.get_num_threads()
    torch.set_num_threads(bench.threads or before)
    try:
        return _kernels(torch, bench, sizes, seconds_budget)
    except RuntimeError:  # torch's word for out of memory, or for a driver that it does not know
        return () if backend == "cpu" else _spec()
    finally:
        torch.set_num_threads(before)


def _backend(torch: Any, device: str) -> str | None:
    """What torch is to use: cuda (ROCm too), mps or cpu; None where a GPU is wanted that it cannot use."""
    if torch is None:
        return None
    usable = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available, "cpu": lambda: True}
    if device:
        return device if device in usable and usable[device]() else None
    gpu = next((name for name in ("cuda", "mps") if usable[name]()), None)
    return gpu or (None if machine.device() is not None else "cpu")


@dataclass(frozen=True)
class Bench:
    """Where kernels run and how they are clocked. `threads` 0: not on the processor. `size`: bytes of a large buffer."""

    backend: str
    name: str
    threads: int
    size: int
    seconds_of: Callable[[Callable[[], object]], float]


def _bench(torch: Any, backend: str, threads: int) -> Bench:
    if backend == "cuda":
        properties = torch.cuda.get_device_properties(0)
        cache, free = getattr(properties, "L2_cache_size", None), torch.cuda.mem_get_info(0)[0]
        size = max(buffer_bytes(cache, free), min(GPU_LEAST_BYTES, buffer_bytes(GPU_LEAST_BYTES, free)))
        return Bench(backend, properties.name, 0, size, _events(torch))
    size = buffer_bytes(machine.last_level_cache_bytes(), machine.free_memory_bytes(gpu=backend == "mps"))
    if backend == "mps":
        return Bench(backend, machine.identify().gpu, 0, size, _synchronized(torch.mps.synchronize))
    usable = processor.usable_threads() or torch.get_num_threads()
    return Bench(backend, machine.cpu_model(), threads or min(usable, torch.get_num_threads()), size, _wall)


def buffer_bytes(cache_bytes: int | None, free_bytes: float) -> int:
    """Eight caches, at most an eighth of the free memory (there are two buffers), in whole pages of 4096 bytes."""
    wanted = min(CACHES * (cache_bytes or FALLBACK_CACHE_BYTES), LARGEST_BYTES, free_bytes / 8)
    return max(1, int(wanted) // 4096) * 4096


def ladder(largest: int, smallest: int) -> tuple[int, ...]:
    """Sizes from about `smallest` to `largest`, each four times the one before; `largest` always."""
    steps = max(0, math.floor(math.log(largest / smallest, STEP))) if largest > smallest else 0
    return tuple(largest // STEP**step // 4096 * 4096 for step in range(steps, -1, -1))


def _torch() -> Any:
    try:
        import torch

        return torch
    except Exception:  # not installed, or a build that does not load on this machine
        return None


def _spec() -> tuple[BandwidthSample, ...]:
    speed = machine.spec_bandwidth_bytes_per_second()
    if speed is None:
        return ()
    name = machine.identify().gpu
    return (BandwidthSample(operation="spec", device=name, bytes_per_second=(speed,), provenance="spec"),)


class Kernel(NamedTuple):
    """One operation on a buffer of `size` bytes; `moved` bytes a call, `calls` in a row to be clocked."""

    operation: str
    size: int
    moved: int
    calls: int
    call: Callable[[], object]

    def run(self) -> None:
        for _ in range(self.calls):
            self.call()


def _kernels(torch: Any, bench: Bench, sizes: Sequence[int], seconds_budget: float) -> tuple[BandwidthSample, ...]:
    """Both operations at each size, over the beginning of two buffers; every repeat visits all of them."""
    source = torch.ones(max(sizes) // 4, dtype=torch.float32, device=bench.backend)
    target = torch.zeros_like(source)
    kernels = [kernel for size in sizes for kernel in _pair(bench.backend, source, target, size)]
    seconds = _repeat(kernels, bench.seconds_of, seconds_budget)
    return tuple(
        BandwidthSample(
            operation=kernel.operation,
            device=bench.name,
            threads=bench.threads,
            buffer_bytes=kernel.size,
            bytes_per_second=tuple(kernel.moved * kernel.calls / s for s in taken),
            provenance="measured",
        )
        for kernel, taken in zip(kernels, seconds, strict=True)
    )


def _pair(backend: str, source: Any, target: Any, size: int) -> tuple[Kernel, Kernel]:
    """A sum in one thread could be limited by its additions: the cache's figure tells (bandwidth_spread.py).

    On an EPYC core the sum reads 91 GB/s from the cache and 30 from memory, where maximum and dot product read 30, too.
    """
    begin, end = source[: size // 4], target[: size // 4]
    calls = max(1, SPAN_BYTES[backend] // size)
    read = Kernel("read", size, size, calls, lambda: begin.sum())
    return read, Kernel("copy", size, 2 * size, calls, lambda: end.copy_(begin))


def _repeat(
    kernels: Sequence[Kernel], seconds_of: Callable[[Callable[[], object]], float], seconds_budget: float
) -> list[list[float]]:
    """Seconds of each repeat by kernel, after one that is thrown away (first touch of pages, loading of the kernel).

    A kernel is called once before it is clocked: the one before it left other lines in the cache.
    """
    begin = time.perf_counter()
    for kernel in kernels:
        seconds_of(kernel.call)
    taken: list[list[float]] = [[] for _ in kernels]
    least, most = REPEATS
    repeats = 0
    while repeats < most and (repeats < least or time.perf_counter() - begin < seconds_budget):
        for kernel, own in zip(kernels, taken, strict=True):
            if kernel.calls > 1:
                seconds_of(kernel.call)
            own.append(seconds_of(kernel.run))
        repeats += 1
    return taken


def _wall(kernel: Callable[[], object]) -> float:
    """Seconds of a kernel that returns when it is done."""
    begin = time.perf_counter()
    kernel()
    return time.perf_counter() - begin


def _synchronized(synchronize: Callable[[], object]) -> Callable[[Callable[[], object]], float]:
    """A clock for kernels that return before they are done."""

    def seconds(kernel: Callable[[], object]) -> float:
        synchronize()
        begin = time.perf_counter()
        kernel()
        synchronize()
        return time.perf_counter() - begin

    return seconds


def _events(torch: Any) -> Callable[[Callable[[], object]], float]:
    """A clock on the GPU itself: a kernel of a fraction of a millisecond drowns in the time of its launch."""

    def seconds(kernel: Callable[[], object]) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        kernel()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) * 1e-3

    return seconds

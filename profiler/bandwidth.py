"""Memory bandwidth of the device: what physics allows a decode step that has to read every weight once.

Two kernels over buffers of eight times the last-level cache, so that nothing is served from it: a read (a sum) and a copy.
Bytes read and bytes written both count, as in STREAM; the lines that a processor fetches before it overwrites them do
not. torch is imported here and nowhere else in this room; without it the driver's specification is given, labelled so.
"""

import time
from collections.abc import Callable
from typing import Any

from . import machine
from .records import BandwidthSample

CACHES = 8
REPEATS = (3, 15)
"""At least and at most, whatever the budget."""
LARGEST_BYTES = 4 << 30
FALLBACK_CACHE_BYTES = 32 << 20


def measure(device: str = "", threads: int = 0, seconds_budget: float = 3.0) -> tuple[BandwidthSample, ...]:
    """Read and copy bandwidth of `device`: cuda, cpu, or empty for a GPU where there is one, else the processor.

    `threads` counts on the processor only; 0 leaves torch's own choice. Raw bytes per second of each repeat are kept.
    Where torch cannot use the device: the specification of the GPU (operation spec); of a processor: nothing.
    """
    torch = _torch()
    wants_gpu = device == "cuda" or (device == "" and machine.gpu_handle() is not None)
    if wants_gpu:
        usable = torch is not None and torch.cuda.is_available()
        return (_cuda(torch, seconds_budget) if usable else ()) or _spec()
    return _cpu(torch, threads, seconds_budget) if torch is not None else ()


def buffer_bytes(cache_bytes: int | None, free_bytes: float) -> int:
    """Eight caches, at most an eighth of the free memory (there are two buffers), in whole pages of 4096 bytes."""
    wanted = min(CACHES * (cache_bytes or FALLBACK_CACHE_BYTES), LARGEST_BYTES, free_bytes / 8)
    return max(1, int(wanted) // 4096) * 4096


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


def _cpu(torch: Any, threads: int, seconds_budget: float) -> tuple[BandwidthSample, ...]:
    size = buffer_bytes(machine.last_level_cache_bytes(), machine.free_memory_bytes())
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        # A sum in one thread could be limited by its additions. It is not where it reads at least about half of what a
        # copy moves: on an EPYC core sum, dot product and maximum all read 28 to 30 GB/s, and a copy moved 25.
        return _kernels(torch, "cpu", machine.cpu_model(), threads or before, size, seconds_budget, _wall)
    except RuntimeError:  # torch's word for out of memory
        return ()
    finally:
        torch.set_num_threads(before)


def _cuda(torch: Any, seconds_budget: float) -> tuple[BandwidthSample, ...]:
    try:
        properties = torch.cuda.get_device_properties(0)
        size = buffer_bytes(getattr(properties, "L2_cache_size", None), torch.cuda.mem_get_info(0)[0])
        return _kernels(torch, "cuda", properties.name, 0, size, seconds_budget, _events(torch))
    except RuntimeError:  # out of memory, or a driver that this torch does not know
        return ()


def _kernels(
    torch: Any,
    device: str,
    name: str,
    threads: int,
    size: int,
    seconds_budget: float,
    seconds_of: Callable[[Callable[[], object]], float],
) -> tuple[BandwidthSample, ...]:
    """Both kernels over two buffers of `size` bytes, half of the budget each."""
    source = torch.ones(size // 4, dtype=torch.float32, device=device)
    target = torch.zeros_like(source)
    kernels = (("read", size, lambda: source.sum()), ("copy", 2 * size, lambda: target.copy_(source)))
    return tuple(
        BandwidthSample(
            operation=operation,
            device=name,
            threads=threads,
            buffer_bytes=size,
            bytes_per_second=tuple(moved / s for s in _repeat(kernel, seconds_of, seconds_budget / 2)),
            provenance="measured",
        )
        for operation, moved, kernel in kernels
    )


def _repeat(
    kernel: Callable[[], object], seconds_of: Callable[[Callable[[], object]], float], seconds_budget: float
) -> list[float]:
    """Seconds of each repeat, after one that is thrown away (first touch of the pages, loading of the kernel)."""
    begin = time.perf_counter()
    seconds_of(kernel)
    taken: list[float] = []
    least, most = REPEATS
    while len(taken) < most and (len(taken) < least or time.perf_counter() - begin < seconds_budget):
        taken.append(seconds_of(kernel))
    return taken


def _wall(kernel: Callable[[], object]) -> float:
    """Seconds of a kernel that returns when it is done."""
    begin = time.perf_counter()
    kernel()
    return time.perf_counter() - begin


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

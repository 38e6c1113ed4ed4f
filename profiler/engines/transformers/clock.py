"""Clock: wall and thread time of a span of work, the device's included."""

import time
from collections.abc import Callable
from typing import NamedTuple

import torch


class Span(NamedTuple):
    """Seconds of some work. `thread`: processor time of the calling thread, None where several threads share the work;
    `device`: between two events around it on the device, None where there are none."""

    wall: float
    thread: float | None = None
    device: float | None = None


class Clock:
    """Marks on one device: a mark waits until the device is done."""

    def __init__(self, device: torch.device):
        self._device = device

    def mark(self) -> Span:
        """The time now, once all work given to the device is done."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        elif self._device.type == "mps":
            torch.mps.synchronize()
        return Span(time.perf_counter(), time.thread_time() if torch.get_num_threads() == 1 else None)

    def timed(self, work: Callable[[], object]) -> Span:
        """Seconds of `work`, waited for."""
        if self._device.type != "cuda":
            began = self.mark()
            work()
            return between(began, self.mark())
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began = self.mark()
        first.record()
        work()
        last.record()
        ended = self.mark()
        return between(began, ended, first.elapsed_time(last) / 1e3)


def between(first: Span, last: Span, device: float | None = None) -> Span:
    """Seconds from one mark to another."""
    thread = None if first.thread is None or last.thread is None else last.thread - first.thread
    return Span(last.wall - first.wall, thread, device)

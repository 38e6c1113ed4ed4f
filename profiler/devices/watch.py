"""A device looked at again and again while something else works it: clocks and links fall when it idles."""

import statistics
import threading
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from ..records import DeviceState
from .machine_records import PcieLink, UnderLoad

BUSY = 0.5
"""Utilization from which a look counts as one under load."""


class Look(NamedTuple):
    state: DeviceState
    link: PcieLink | None


class Watch:
    """Takes a look about every `pause_seconds` in a thread of its own, as long as the `with` lasts."""

    def __init__(self, look: Callable[[], Look], pause_seconds: float = 0.1) -> None:
        self._look, self._pause_seconds = look, pause_seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.looks: list[Look] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._pause_seconds):
            self.looks.append(self._look())


def under_load(looks: Sequence[Look]) -> UnderLoad | None:
    """Medians over the looks at a busy device; over all of them where it does not tell how busy it is."""
    told = [look for look in looks if look.state.utilization is not None]
    busy = [look for look in told if (look.state.utilization or 0) >= BUSY] if told else list(looks)
    if not busy:
        return None
    states = [look.state for look in busy]
    return UnderLoad(
        samples=len(busy),
        core_mhz=_median(state.clock_mhz for state in states),
        memory_mhz=_median(state.memory_clock_mhz for state in states),
        watts=_median(state.power_watts for state in states),
        celsius=max((s.temperature_celsius for s in states if s.temperature_celsius is not None), default=None),
        event_reasons=tuple(sorted({reason for state in states for reason in state.event_reasons})),
        link=_widest([look.link for look in busy if look.link is not None]),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _widest(links: Sequence[PcieLink]) -> PcieLink | None:
    """The best link that was seen: it takes a moment to leave its idle state."""
    return max(links, key=lambda link: (link.generation or 0, link.width or 0), default=None)

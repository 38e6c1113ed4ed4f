"""Looks at a device under load."""

import threading

from specgauge.profiler.devices.machine_records import PcieLink
from specgauge.profiler.devices.watch import Look, Watch, under_load
from specgauge.profiler.records import DeviceState

IDLE, BUSY = PcieLink(generation=1, width=16), PcieLink(generation=5, width=16)


def look(utilization: float | None, mhz: float, link: PcieLink | None = None, *reasons: str) -> Look:
    return Look(DeviceState(utilization=utilization, clock_mhz=mhz, event_reasons=reasons), link)


def test_only_looks_at_a_busy_device_count():
    found = under_load([look(0.0, 210, IDLE, "GpuIdle"), look(0.9, 1900, IDLE), look(1.0, 1980, BUSY, "SwPowerCap")])
    assert found is not None and (found.samples, found.core_mhz, found.event_reasons) == (2, 1940.0, ("SwPowerCap",))
    assert found.link == BUSY and found.watts is None


def test_a_device_that_does_not_tell_how_busy_it_is_counts_always():
    found = under_load([look(None, 100), look(None, 300)])
    assert found is not None and (found.samples, found.core_mhz, found.link) == (2, 200.0, None)


def test_a_device_that_was_never_busy_has_no_figures_under_load():
    assert under_load([look(0.1, 210, IDLE)]) is None and under_load([]) is None


def test_looks_are_taken_as_long_as_it_lasts_and_the_thread_ends():
    enough = threading.Event()

    def take() -> Look:
        if len(watch.looks) >= 2:
            enough.set()
        return look(1.0, 1.0)

    threads = threading.active_count()
    watch = Watch(take, 0.001)
    with watch:
        assert enough.wait(10)
    taken = len(watch.looks)
    assert taken >= 2 and threading.active_count() == threads

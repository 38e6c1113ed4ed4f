"""Memory really available: reserves where a desktop or a paging driver takes its share, and the warning of silent paging."""

import math

import pytest

from specgauge.profiler import free_memory as room
from specgauge.profiler import machine

MIB = 2**20


class Card:
    """A device of 10 GiB free."""

    def __init__(self, free: int | None = 10 * 1024 * MIB, display=0):
        self._free, self._display = free, display

    def name(self):
        return "Card"

    def free_bytes(self):
        return self._free

    def ask(self, getter):
        assert getter == "nvmlDeviceGetDisplayActive"
        return self._display


@pytest.fixture
def on(monkeypatch):
    def use(device, paging=False, swap=False, host=8 * 1024 * MIB):
        monkeypatch.setattr(machine, "device", lambda: device)
        free = device.free_bytes() if device else None
        monkeypatch.setattr(
            machine, "free_memory_bytes", lambda gpu=False: float(free if gpu and free is not None else host)
        )
        monkeypatch.setattr(room, "pages_to_host", lambda: paging)
        monkeypatch.setattr(room, "has_swap", lambda: swap)

    return use


def test_free_memory_of_a_card_is_the_drivers_figure(on):
    on(Card())
    found = room.free_memory()
    assert (found.free_bytes, found.reserve_bytes, found.provenance) == (10 * 1024 * MIB, 0, "driver")
    assert found.on_device and not found.spills and "10,240 MiB of Card" in found.text


def test_a_desktop_and_a_driver_that_pages_keep_their_share(on):
    on(Card(display=1), paging=True)
    found = room.free_memory()
    assert found.reserve_bytes == room.DISPLAY_BYTES + room.PAGING_BYTES
    assert found.free_bytes == 10 * 1024 * MIB - found.reserve_bytes
    assert found.spills and "1,024 MiB in reserve" in found.text


def test_what_is_left_is_never_negative(on):
    on(Card(free=100 * MIB), paging=True)
    assert room.free_memory().free_bytes == 0


def test_what_the_user_gives_is_taken_as_it_is(on):
    on(Card(display=1), paging=True)
    found = room.free_memory(24e9)
    assert (found.free_bytes, found.reserve_bytes, found.provenance) == (24e9, 0, "given")
    assert found.spills and found.text == "22,888 MiB, as given"


def test_without_a_gpu_it_is_the_hosts_memory(on):
    on(None, swap=True)
    found = room.free_memory()
    assert (found.free_bytes, found.where, found.provenance) == (8 * 1024 * MIB, "host memory", "kernel")
    assert not found.on_device and found.spills
    on(Card(), swap=False)
    assert room.free_memory(gpu=False).where == "host memory"


def test_a_card_that_does_not_tell_is_not_counted_and_an_unknown_host_is_unknown(on):
    on(Card(free=None), host=math.inf)
    found = room.free_memory()
    assert found.free_bytes is None and found.text == "free memory of host memory is not known"
    assert room.host_free_bytes() is None


def test_this_machine_has_some_memory():
    found = room.free_memory(gpu=False)
    assert found.free_bytes is None or found.free_bytes > MIB
    assert isinstance(room.has_swap(), bool) and isinstance(room.pages_to_host(), bool)


def test_swap_is_what_the_kernel_lists(tmp_path):
    swaps = tmp_path / "swaps"
    assert not room.has_swap(swaps)
    swaps.write_text("Filename Type Size Used Priority\n")
    assert not room.has_swap(swaps)
    swaps.write_text("Filename Type Size Used Priority\n/swap file 1 0 -2\n")
    assert room.has_swap(swaps)


@pytest.mark.parametrize(("verdict", "spare"), [("tight", 446 * MIB), ("does_not_fit", -300 * MIB)])
def test_silent_paging_is_warned_of_where_it_is_tight(verdict, spare):
    """qwen38-mtp PR 48: a flag turned +43 % into -46 % with 446 MiB free and acceptance unchanged."""
    paging = room.FreeMemory(1.0, 0.0, "Card", "driver", on_device=True, spills=True)
    (found,) = room.spill_risk(paging, verdict, spare)
    assert found.id == "silent-spill" and found.severity == "warning"
    assert ("446 MiB to spare" in found.evidence) == (verdict == "tight")
    assert "Sysmem" in found.remedy and "power" in found.remedy
    swapping = room.FreeMemory(1.0, 0.0, "host memory", "kernel", on_device=False, spills=True)
    assert "swaps" in room.spill_risk(swapping, verdict, spare)[0].evidence


def test_no_warning_where_it_fits_or_the_driver_fails_openly():
    paging = room.FreeMemory(1.0, 0.0, "Card", "driver", on_device=True, spills=True)
    failing = room.FreeMemory(1.0, 0.0, "Card", "driver", on_device=True)
    assert room.spill_risk(paging, "fits", 9e9) == [] == room.spill_risk(failing, "tight", 1e6)

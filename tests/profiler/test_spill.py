"""Signs of a spill in device states: the reported case, and what only looks like one."""

import math

from hypothesis import given
from hypothesis import strategies as st

from specgauge.profiler.devices.spill import spill_signs
from specgauge.profiler.records import DeviceState

MIB = 1 << 20


def states(pcie: float | None = None, watts: float | None = None, free_mib: int | None = None) -> list[DeviceState]:
    """Three looks at a device; `pcie` in GB/s, into the device."""
    return [
        DeviceState(
            pcie_rx_bytes_per_second=None if pcie is None else pcie * 1e9,
            pcie_tx_bytes_per_second=None if pcie is None else 0.0,
            power_watts=watts,
            memory_free_bytes=None if free_mib is None else free_mib * MIB,
        )
    ] * 3


def test_the_reported_case_is_a_spill():
    """qwen38-mtp, pull request 48: 11 GB/s, 366 -> 252 W, 446 MiB "free"."""
    signs = spill_signs(states(0.1, 366), states(11, 252, 446))
    assert signs.likely
    assert signs.pcie_bytes_per_second == 11e9 and signs.memory_free_bytes == 446 * MIB
    assert signs.power_ratio is not None and math.isclose(signs.power_ratio, 252 / 366)
    assert signs.evidence == (
        "PCIe 11.0 GB/s while drafting (plain 0.1), power 366 -> 252 W (-31%), 446 MiB of device memory free"
    )


def test_drafting_that_fits_is_none():
    assert not spill_signs(states(0.1, 340, 6000), states(0.3, 350, 5000)).likely


def test_layers_on_the_host_fill_the_bus_in_plain_decoding_too():
    assert not spill_signs(states(10, 200, 400), states(11, 190, 300)).likely


def test_a_slow_draft_lowers_the_power_and_is_no_spill():
    assert not spill_signs(states(0.1, 366, 6000), states(0.2, 200, 5000)).likely


def test_a_full_memory_that_fits_is_no_spill():
    assert not spill_signs(states(0.1, 366, 300), states(0.3, 370, 200)).likely


def test_a_busy_bus_alone_is_no_spill():
    """Two cards, or an engine that copies state to the host each round: named by another cause."""
    assert not spill_signs(states(0.1, 300, 9000), states(5, 310, 8000)).likely


def test_without_a_figure_for_the_bus_power_and_memory_decide_together():
    assert spill_signs(states(None, 366), states(None, 252, 446)).likely
    assert not spill_signs(states(None, 366), states(None, 252, 4000)).likely
    assert not spill_signs(states(None, 366), states(None, 360, 446)).likely


def test_nothing_told_is_nothing_known():
    signs = spill_signs([], [])
    assert (signs.pcie_bytes_per_second, signs.power_ratio, signs.memory_free_bytes) == (None, None, None)
    assert not signs.likely and signs.evidence.startswith("the device tells neither")


def test_one_disturbed_look_does_not_make_a_spill():
    calm = states(0.2, 360, 5000)
    assert not spill_signs(states(0.1, 366), [*calm, *states(12, 200, 100)[:1]]).likely


LOOKS = st.lists(
    st.builds(
        DeviceState,
        pcie_rx_bytes_per_second=st.none() | st.floats(0, 1e11),
        pcie_tx_bytes_per_second=st.none() | st.floats(0, 1e11),
        power_watts=st.none() | st.floats(0, 2000),
        memory_free_bytes=st.none() | st.integers(0, 1 << 40),
    ),
    max_size=5,
)


@given(LOOKS, LOOKS)
def test_any_looks_give_signs_and_a_spill_needs_two(plain, drafting):
    signs = spill_signs(plain, drafting)
    assert signs.evidence
    if signs.likely:
        told = (signs.pcie_bytes_per_second, signs.power_ratio, signs.memory_free_bytes)
        assert sum(value is not None for value in told) >= 2

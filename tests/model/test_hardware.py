"""Tiers, placement and the inverse audit, on the figures of a 24 GB card that was tuned for a day."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgauge.model import hardware
from specgauge.model.hardware import BandwidthCeiling, Efficiency, Placement, Reading, Tier

GB = 1e9
SLOW_CARD, FAST_CARD = (Tier("device", speed, 24 * GB) for speed in (1.0e12, 1.5e12))
LINK = Tier("link", 60 * GB)


@pytest.mark.parametrize(("weights", "low", "high"), [(27, 37.0, 55.6), (17, 58.8, 88.2)])
def test_bandwidth_allows_what_the_account_says(weights, low, high):
    slow, fast = (BandwidthCeiling(weights * GB, speed).tokens_per_second for speed in (1.0e12, 1.5e12))
    assert (slow, fast) == pytest.approx((low, high), abs=0.05)
    assert Placement((Reading(Tier("any", 1.0e12), weights * GB),)).ceiling_steps_per_second == pytest.approx(slow)


def test_five_gigabytes_over_the_link_add_83_milliseconds():
    fits = Placement((Reading(SLOW_CARD, 22 * GB),))
    paged = Placement((Reading(SLOW_CARD, 22 * GB), Reading(LINK, 5 * GB)))
    assert paged.step_seconds - fits.step_seconds == pytest.approx(0.0833, abs=1e-4)
    assert paged.ceiling_steps_per_second == pytest.approx(9.49, abs=0.01)


def test_what_a_tier_does_not_hold_it_cannot_give():
    with pytest.raises(ValueError, match=r"27.00 GB a step cannot come from device, which holds 24.00 GB"):
        Reading(SLOW_CARD, 27 * GB)
    with pytest.raises(ValueError):
        Reading(SLOW_CARD, -1.0)


def test_nothing_read_has_no_ceiling():
    assert Placement(()).ceiling_steps_per_second == math.inf


@pytest.mark.parametrize(("bandwidth", "capacity"), [(0, 1), (1, 0), (math.nan, 1)])
def test_a_tier_without_bandwidth_or_room_is_refused(bandwidth, capacity):
    with pytest.raises(ValueError, match="tier x"):
        Tier("x", bandwidth, capacity)


def test_27_gigabytes_leave_layers_of_a_24_gigabyte_card():
    split = hardware.place(27 * GB, 64, SLOW_CARD.capacity_bytes)
    assert (split.device_layers, split.host_layers) == (56, 8)
    assert split.host_bytes == pytest.approx(3.375 * GB)
    assert hardware.place(17 * GB, 64, SLOW_CARD.capacity_bytes).host_layers == 0


@given(st.floats(1, 1e11), st.integers(1, 100), st.floats(0, 1e11), st.floats(0, 1e11))
def test_as_many_layers_as_fit_and_no_more_are_placed(total, layers, capacity, fixed):
    if fixed > capacity:
        with pytest.raises(ValueError, match="too large"):
            hardware.place(total, layers, capacity, fixed)
        return
    split = hardware.place(total, layers, capacity, fixed)
    assert split.device_layers + split.host_layers == layers
    assert split.device_bytes <= capacity * (1 + 1e-12)
    assert split.device_bytes + split.host_bytes == pytest.approx(total + fixed)
    if split.host_layers:
        assert split.device_bytes + total / layers > capacity * (1 - 1e-12)


def test_no_layers_cannot_be_placed():
    with pytest.raises(ValueError, match="one layer"):
        hardware.place(1.0, 0, 1.0)


def test_the_first_stage_of_the_account_is_explained_by_three_gigabytes_over_the_link():
    """14 tokens/s with 27 GB of weights on 24 GB: what has to lie elsewhere is just what does not fit."""
    found = [hardware.bytes_off_device(1 / 14, 27 * GB, card, LINK) / GB for card in (SLOW_CARD, FAST_CARD)]
    assert found == pytest.approx([2.84, 3.34], abs=0.01)


@given(st.floats(0, 27e9))
def test_the_audit_undoes_the_placement(off):
    placed = Placement((Reading(Tier("device", 1.0e12), 27 * GB - off), Reading(LINK, off)))
    assert hardware.bytes_off_device(placed.step_seconds, 27 * GB, SLOW_CARD, LINK) == pytest.approx(off, abs=10)


@pytest.mark.parametrize(("seconds", "slow", "words"), [
    (0.020, LINK, "faster than device alone"),
    (0.500, LINK, "slower than all bytes from link"),
    (math.nan, LINK, "faster"),
    (0.050, FAST_CARD, "not slower"),
])  # fmt: skip
def test_a_step_that_no_split_explains_is_refused(seconds, slow, words):
    with pytest.raises(ValueError, match=words):
        hardware.bytes_off_device(seconds, 27 * GB, SLOW_CARD, slow)


def test_an_efficiency_gives_back_the_step_it_was_measured_on():
    measured = Efficiency.measured("Q4_0", 17 * GB, 1 / 42, 936 * GB)
    assert measured.share == pytest.approx(0.763, abs=0.001)
    assert measured.seconds(17 * GB, 936 * GB) == pytest.approx(1 / 42)
    assert measured.seconds(8.5 * GB, 468 * GB) == pytest.approx(1 / 42)


def test_more_than_the_bandwidth_is_no_efficiency():
    with pytest.raises(ValueError, match="do not all come from that memory"):
        Efficiency.measured("Q4_0", 17 * GB, 1 / 60, 936 * GB)
    with pytest.raises(ValueError, match="no measurement"):
        Efficiency("Q4_0", 0.0)

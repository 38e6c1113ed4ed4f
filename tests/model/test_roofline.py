"""The roofline: published ridges, a bound below measurements, and the traffic of experts."""

import numpy as np
import pytest

from specgauge.model import experts
from specgauge.model.experts import RoutedExperts
from specgauge.model.kv import KvGroup
from specgauge.model.roofline import Roofline, prior_table
from specgauge.model.shape import LinearAttention, Shape, SoftmaxAttention, Tensors, Weights
from specgauge.model.steps import BeyondTable
from specgauge.model.traffic import Traffic

A100, RTX4090 = (2.0e12, 312e12), (1.008e12, 165e12)


def dense(parameters: float, bytes_per_weight: float, card: tuple[float, float], **more) -> Roofline:
    return Roofline(Traffic(parameters * bytes_per_weight, **more), 2 * parameters, *card)


@pytest.mark.parametrize(("card", "bytes_per_weight", "ridge"), [
    (A100, 2.0, 156), (A100, 0.5, 39), (RTX4090, 2.0, 164), (RTX4090, 0.5, 41),
])  # fmt: skip
def test_ridges_of_known_cards(card, bytes_per_weight, ridge):
    """A100: 312 TFLOPS and 2.0 TB/s; RTX 4090: 165 TFLOPS (dense bf16) and 1.008 TB/s."""
    line = dense(7e9, bytes_per_weight, card)
    assert line.ridge == pytest.approx(ridge, abs=0.5)
    below, above = line.seconds(np.array([int(line.ridge), int(line.ridge) + 1]))
    assert below == pytest.approx(7e9 * bytes_per_weight / card[0])
    assert above > below


def test_every_term_is_added_as_stated():
    traffic = Traffic(8e9, kv=(KvGroup(1e5),), state_bytes=5e6)
    line = Roofline(traffic, 16e9, 1e12, 1e14, tile_rows=32, fixed_seconds=1e-3, row_seconds=1e-4)
    reading, arithmetic = 8e-3, 64 * 16e9 / 1e14
    assert line.seconds(3, context=1000, streams=2) == pytest.approx(1e-3 + reading + 2e-4 + 2e-5 + 3e-4)
    assert line.seconds(33) == pytest.approx(1e-3 + arithmetic + 1e-5 + 33e-4)
    assert line.seconds(64) - line.seconds(33) == pytest.approx(31e-4)


def test_the_bound_lies_below_measured_passes():
    """A100, 34B Q8_0, llama.cpp pull request 5625: 28.8 ms at width 1 to 112.7 at 11, where kernels switch."""
    line = dense(34e9, 34 / 32, (2.039e12, 312e12))
    measured = np.array([28.8, 30.9, 32.3, 37.0, 37.0, 44.5, 46.4, 49.8, 112.0, 112.1, 112.7]) * 1e-3
    shares = [line.share(seconds, width) for width, seconds in enumerate(measured, start=1)]
    assert max(shares) == shares[0] == pytest.approx(0.615, abs=0.001)
    assert max(shares[8:]) < 0.16


def test_a_pass_faster_than_the_bound_is_refused():
    line = dense(34e9, 34 / 32, A100)
    assert line.share(float(line.seconds(4)), 4) == 1
    with pytest.raises(ValueError, match="beats its bound of 18.06 ms"):
        line.share(17e-3, 1)


def mixture(correlation: float = 0.0) -> Roofline:
    weights = Weights(
        embedding=Tensors(10**9, 2 * 10**9),
        attention=Tensors(2 * 10**9, 4 * 10**9),
        experts=Tensors(32 * 10**9, 64 * 10**9),
    )
    shape = Shape(
        weights,
        vocabulary=100_000,
        hidden=10_000,
        attention=(SoftmaxAttention(10, 8, 2, 128, 128, window=512),),
        linear_attention=(LinearAttention(30, 32, 16, 128, 128, 4),),
        experts=256,
        experts_per_token=8,
    )
    return Roofline.of(shape, *A100, tile_rows=1, correlation=correlation)


def test_experts_make_a_wider_pass_dearer_before_the_ridge():
    widths = np.array([1, 2, 4, 8])
    touched = experts.distinct_experts(256, 8, widths)
    state = 2 * 30 * (32 * 128 * 128 + 3 * 8192) * 4
    expected = (4e9 + widths * 20_000 + 64e9 * touched / 256 + state) / A100[0]
    assert mixture().seconds(widths) == pytest.approx(expected)
    assert (mixture(0.45).seconds(widths)[1:] < mixture().seconds(widths)[1:]).all()


def test_a_full_window_costs_no_more_with_context():
    line = mixture()
    short, long, longer = (float(line.seconds(4, context)) for context in (100, 5000, 50_000))
    assert short < long == longer


def test_arithmetic_of_a_mixture_is_that_of_its_active_parameters():
    line = mixture()
    assert line.flops_per_token == 2 * (2e9 + 32e9 * 8 / 256)


def test_the_ridge_of_a_mixture_is_where_both_sides_meet_and_far_later_than_a_dense_one():
    line = mixture()
    routed = RoutedExperts(256, 8, 64e9)
    reading = (4e9 + float(routed.bytes_read(line.ridge))) / A100[0]
    assert reading == pytest.approx(line.ridge * line.flops_per_token / A100[1])
    assert line.ridge > 5 * dense(3e9, 2.0, A100).ridge


@pytest.mark.parametrize("change", [
    {"flops_per_token": 0}, {"bytes_per_second": 0}, {"flops_per_second": -1}, {"tile_rows": 0}, {"fixed_seconds": -1},
    {"row_seconds": -1}, {"bytes_per_second": float("nan")},
])  # fmt: skip
def test_impossible_rooflines_are_refused(change):
    with pytest.raises(ValueError):
        Roofline(Traffic(1.0), **({"flops_per_token": 1, "bytes_per_second": 1, "flops_per_second": 1} | change))


def test_a_table_made_from_the_bound_is_a_prior_and_says_so():
    line = dense(27e9, 0.5, A100, kv=(KvGroup(65536),))
    table = prior_table(line, 0.6, np.array([1, 2, 4, 8]), np.array([0, 4096]))
    found = table.lookup(np.array([1, 4]), np.array([0.0, 4096.0]))
    assert found.seconds == pytest.approx([13.5e9 / 2.0e12 / 0.6, (13.5e9 + 65536 * 4096) / 2.0e12 / 0.6])
    with pytest.raises(BeyondTable, match="nothing of this table was measured"):
        table.at(4, 0.0)
    with pytest.raises(ValueError, match="share"):
        prior_table(line, 1.2, np.array([1]), np.array([0]))

"""Bandwidth: real kernels on small buffers, the driver's specification, and nothing where nothing is known."""

import math
import statistics
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgauge.profiler import bandwidth, machine
from specgauge.profiler.bandwidth import Kernel
from specgauge.profiler.devices.bandwidth_spread import cache_over_memory, in_memory, spread
from specgauge.profiler.records import BandwidthSample

MIB = 1 << 20


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(machine, "device", lambda: None)


@pytest.fixture
def a_card(monkeypatch):
    """A GPU whose driver tells its bus, with a torch that cannot use it or is not there."""
    monkeypatch.setattr(machine, "device", lambda: "a card")
    monkeypatch.setattr(machine, "spec_bandwidth_bytes_per_second", lambda: 936e9)
    monkeypatch.setattr(machine, "identify", lambda: machine.Identity("Card", "", None, "", ""))


def sample(operation: str, mebibytes: int, *gigabytes: float, provenance: str = "measured") -> BandwidthSample:
    return BandwidthSample(
        operation=operation,
        device="d",
        threads=1,
        buffer_bytes=mebibytes * MIB,
        bytes_per_second=tuple(value * 1e9 for value in gigabytes),
        provenance=provenance,
    )


def test_the_processor_is_measured_by_a_read_and_a_copy(no_gpu, monkeypatch):
    monkeypatch.setattr(bandwidth, "LARGEST_BYTES", 4 * MIB)
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    read, copy = bandwidth.measure("", threads=1, seconds_budget=0.05)
    assert (read.operation, copy.operation) == ("read", "copy")
    for found in (read, copy):
        assert found.provenance == "measured" and found.threads == 1 and found.buffer_bytes == 4 * MIB
        assert len(found.bytes_per_second) >= 3
        assert all(1e8 < speed < 1e13 for speed in found.bytes_per_second)
    assert torch.get_num_threads() == before


def test_a_sweep_goes_from_a_cache_to_the_memory(no_gpu, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(bandwidth, "LARGEST_BYTES", 16 * MIB)
    samples = bandwidth.sweep("cpu", threads=1, seconds_budget=0.05)
    assert [(s.operation, s.buffer_bytes // MIB) for s in samples] == [
        (operation, size) for size in (1, 4, 16) for operation in ("read", "copy")
    ]
    assert {len(s.bytes_per_second) for s in samples} == {len(samples[0].bytes_per_second)}


@pytest.mark.parametrize("device", ["", "cuda"])
def test_a_gpu_without_torch_is_given_by_its_specification(a_card, monkeypatch, device):
    monkeypatch.setattr(bandwidth, "_torch", lambda: None)
    for found in (bandwidth.measure(device), bandwidth.sweep(device)):
        (spec,) = found
        assert (spec.operation, spec.provenance, spec.bytes_per_second) == ("spec", "spec", (936e9,))


def test_a_gpu_that_this_torch_cannot_use_is_given_by_its_specification(a_card):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available() or torch.backends.mps.is_available():
        pytest.skip("a torch that can use a GPU")
    for device in ("", "cuda", "mps"):
        assert [s.operation for s in bandwidth.measure(device)] == ["spec"]


def test_the_processor_beside_a_gpu_is_measured_where_it_is_meant(a_card, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(bandwidth, "LARGEST_BYTES", MIB)
    assert [s.operation for s in bandwidth.sweep("cpu", 1, 0.01)] == ["read", "copy"]


def test_without_torch_and_driver_there_is_nothing(no_gpu, monkeypatch):
    monkeypatch.setattr(bandwidth, "_torch", lambda: None)
    monkeypatch.setattr(machine, "spec_bandwidth_bytes_per_second", lambda: None)
    assert bandwidth.measure("cpu", 1) == () == bandwidth.measure("cuda") == bandwidth.sweep("cpu", 1)


def test_memory_that_runs_out_is_no_error(no_gpu, monkeypatch):
    torch = pytest.importorskip("torch")

    def ones(*arguments, **options):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(torch, "ones", ones)
    assert bandwidth.measure("cpu", 1, 0.01) == ()


@pytest.mark.parametrize(
    ("cache", "free", "expected"),
    [
        (32 * MIB, 1 << 40, 256 * MIB),
        (None, math.inf, 256 * MIB),
        (2 << 30, math.inf, 4 << 30),
        (32 * MIB, 64 * MIB, 8 * MIB),
        (1, 1, 4096),
    ],
)
def test_buffers_are_eight_caches_within_the_free_memory(cache, free, expected):
    assert bandwidth.buffer_bytes(cache, free) == expected


@pytest.mark.parametrize(
    ("largest", "expected"),
    [(256 * MIB, (1, 4, 16, 64, 256)), (100 * MIB, (1.5625, 6.25, 25, 100)), (MIB, (1,)), (MIB // 4, (0.25,))],
)
def test_sizes_grow_fourfold_up_to_the_largest(largest, expected):
    assert bandwidth.ladder(largest, MIB) == tuple(int(size * MIB) // 4096 * 4096 for size in expected)


def kernel(calls: int = 1, call=lambda: None) -> Kernel:
    return Kernel("read", MIB, MIB, calls, call)


def test_repeats_stop_at_the_budget_but_never_below_the_least():
    assert len(bandwidth._repeat([kernel()], lambda kernel: 1.0, -1.0)[0]) == bandwidth.REPEATS[0]
    assert len(bandwidth._repeat([kernel()], lambda kernel: 1.0, 1e9)[0]) == bandwidth.REPEATS[1]


def test_kernels_take_turns_and_those_of_a_cache_are_called_once_before_they_are_clocked():
    order: list[str] = []
    small, large = kernel(2, lambda: order.append("small")), kernel(1, lambda: order.append("large"))

    def seconds(call):
        call()
        return 1.0

    bandwidth._repeat([small, large], seconds, -1.0)
    assert order == ["small", "large", *["small", "small", "small", "large"] * bandwidth.REPEATS[0]]


def test_bytes_of_all_calls_in_a_row_count(no_gpu, monkeypatch):
    torch = pytest.importorskip("torch")
    bench = bandwidth.Bench("cpu", "d", 1, 2 * MIB, lambda call: 0.5)
    monkeypatch.setitem(bandwidth.SPAN_BYTES, "cpu", 4 * MIB)
    samples = bandwidth._kernels(torch, bench, (MIB, 2 * MIB), -1.0)
    # Four and two calls in half a second; a copy moves each byte twice.
    assert [s.bytes_per_second[0] / MIB for s in samples] == [8.0, 16.0, 8.0, 16.0]


def test_the_interval_of_a_median_lies_between_order_statistics():
    found = spread(sample("read", 1, *range(1, 16)))
    # n = 15: P(Binomial(15, 1/2) <= 3) = 1.8 %, <= 4: 5.9 %. So from the 4th to the 12th.
    assert (found.low, found.median, found.high) == (4e9, 8e9, 12e9)
    few = spread(sample("read", 1, 3, 1, 2))
    assert (few.low, few.median, few.high) == (1e9, 2e9, 3e9)
    assert spread(sample("read", 1, 5)).low == 5e9


@given(st.lists(st.floats(1, 1e3), min_size=1, max_size=40))
def test_an_interval_holds_its_median_and_stays_within_the_values(values):
    found = spread(sample("read", 1, *values))
    assert min(values) * 1e9 <= found.low <= found.median <= found.high <= max(values) * 1e9
    assert found.median == statistics.median(value * 1e9 for value in values)


def test_only_the_largest_measured_buffer_is_memory():
    samples = [
        sample("read", 1, 90),
        sample("read", 256, 30),
        sample("copy", 256, 28),
        sample("spec", 0, 50, provenance="spec"),
    ]
    assert in_memory(samples) == samples[1:3] and in_memory([]) == []


def test_a_cache_that_reads_no_faster_than_memory_shows_in_the_ratio():
    assert cache_over_memory([sample("read", 1, 90), sample("read", 4, 60), sample("read", 256, 30)]) == 3.0
    assert cache_over_memory([sample("read", 256, 30), sample("copy", 1, 90)]) is None


def test_a_gpu_clock_waits_for_the_device():
    order: list[str] = []
    clock = bandwidth._synchronized(lambda: order.append("wait"))
    assert clock(lambda: order.append("run")) >= 0 and order == ["wait", "run", "wait"]


def test_a_gpu_gets_a_buffer_of_a_gibibyte_at_least_where_it_is_free():
    def torch(cache: int, free: int):
        cuda = SimpleNamespace(
            get_device_properties=lambda index: SimpleNamespace(name="Card", L2_cache_size=cache),
            mem_get_info=lambda index: (free, 0),
        )
        return SimpleNamespace(cuda=cuda)

    assert bandwidth._bench(torch(6 * MIB, 20 << 30), "cuda", 0).size == 1 << 30
    assert bandwidth._bench(torch(256 * MIB, 100 << 30), "cuda", 0).size == 2 << 30
    assert bandwidth._bench(torch(6 * MIB, 4 << 30), "cuda", 0).size == 512 * MIB


@pytest.mark.gpu
def test_a_gpu_is_measured_on_its_own_clock():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU that torch can use")
    read, copy = bandwidth.measure("cuda", seconds_budget=0.5)
    specification = machine.spec_bandwidth_bytes_per_second()
    for found in (read, copy):
        assert found.provenance == "measured" and found.threads == 0
        if specification:
            assert 0.3 * specification < sorted(found.bytes_per_second)[1] < 1.1 * specification

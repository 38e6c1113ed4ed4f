"""Bandwidth: real kernels on small buffers, the driver's specification, and nothing where nothing is known."""

import math

import pytest

from specgauge.profiler import bandwidth, machine


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(machine, "gpu_handle", lambda: None)


def test_the_processor_is_measured_by_a_read_and_a_copy(no_gpu, monkeypatch):
    monkeypatch.setattr(bandwidth, "LARGEST_BYTES", 4 << 20)
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    read, copy = bandwidth.measure("", threads=1, seconds_budget=0.05)
    assert (read.operation, copy.operation) == ("read", "copy")
    for sample in (read, copy):
        assert sample.provenance == "measured" and sample.threads == 1 and sample.buffer_bytes == 4 << 20
        assert len(sample.bytes_per_second) >= 3
        assert all(1e8 < speed < 1e13 for speed in sample.bytes_per_second)
    assert torch.get_num_threads() == before


def test_a_gpu_that_torch_cannot_use_is_given_by_its_specification(monkeypatch):
    monkeypatch.setattr(bandwidth, "_torch", lambda: None)
    monkeypatch.setattr(machine, "gpu_handle", lambda: ("nvml", "handle"))
    monkeypatch.setattr(machine, "spec_bandwidth_bytes_per_second", lambda: 936e9)
    monkeypatch.setattr(machine, "identify", lambda: machine.Identity("Card", "", None, "", ""))
    for device in ("", "cuda"):
        (sample,) = bandwidth.measure(device)
        assert (sample.operation, sample.provenance, sample.bytes_per_second) == ("spec", "spec", (936e9,))


def test_without_torch_and_driver_there_is_nothing(no_gpu, monkeypatch):
    monkeypatch.setattr(bandwidth, "_torch", lambda: None)
    monkeypatch.setattr(machine, "spec_bandwidth_bytes_per_second", lambda: None)
    assert bandwidth.measure("cpu", 1) == () == bandwidth.measure("cuda")


@pytest.mark.parametrize(
    ("cache", "free", "expected"),
    [
        (32 << 20, 1 << 40, 256 << 20),
        (None, math.inf, 256 << 20),
        (2 << 30, math.inf, 4 << 30),
        (32 << 20, 64 << 20, 8 << 20),
        (1, 1, 4096),
    ],
)
def test_buffers_are_eight_caches_within_the_free_memory(cache, free, expected):
    assert bandwidth.buffer_bytes(cache, free) == expected


def test_repeats_stop_at_the_budget_but_never_below_the_least():
    assert len(bandwidth._repeat(lambda: None, lambda kernel: 1.0, -1.0)) == bandwidth.REPEATS[0]
    assert len(bandwidth._repeat(lambda: None, lambda kernel: 1.0, 1e9)) == bandwidth.REPEATS[1]


@pytest.mark.gpu
def test_a_gpu_is_measured_on_its_own_clock():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU that torch can use")
    read, copy = bandwidth.measure("cuda", seconds_budget=0.5)
    specification = machine.spec_bandwidth_bytes_per_second()
    for sample in (read, copy):
        assert sample.provenance == "measured"
        if specification:
            assert 0.3 * specification < sorted(sample.bytes_per_second)[1] < 1.1 * specification

"""The machine as a whole: who is asked, what a report holds, and that a machine without anything is one, too."""

import math
import time
from types import SimpleNamespace

import msgspec
import pytest

from specgauge.profiler import bandwidth, machine
from specgauge.profiler.devices import amd, apple, nvml, processor
from specgauge.profiler.devices.machine_records import MachineReport
from specgauge.profiler.files import read_record, write_record
from specgauge.profiler.records import BandwidthSample, DeviceState

from .amd_files import amd_card
from .fake_nvml import FakeCard, FakeNvml, broken, datacenter, geforce

SILENCE = "NVML Shared Library Not Found"


@pytest.fixture
def use(monkeypatch, tmp_path):
    """A machine with the given NVML library, or none, and no card of AMD's; nothing is waited for."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(amd, "DRM", tmp_path / "drm")
    monkeypatch.setattr(apple, "soc", lambda command=None: None)
    monkeypatch.setattr(machine, "BUSY_SECONDS", 0.0)

    def with_library(library: FakeNvml | None) -> None:
        opened = nvml.opened(library) if library is not None else (None, SILENCE)
        monkeypatch.setattr(machine, "_nvml", lambda: opened)

    with_library(None)
    return with_library


def report(seconds: float = 0.0, **options) -> MachineReport:
    return machine.machine_report("2026-01-01T00:00:00Z", "1.0", bandwidth_seconds=seconds, **options)


def test_without_a_gpu_the_processor_is_known_and_the_rest_empty(use):
    found = machine.identify()
    assert found[:4] == ("", "", None, "") and found.cpu
    state = machine.device_state()
    assert state == DeviceState(load_average=state.load_average) and state.load_average is not None
    assert machine.spec_bandwidth_bytes_per_second() is None and machine.device() is None


def test_a_card_is_given_in_si_units(use):
    use(FakeNvml([geforce()]))
    assert machine.identify()[:4] == (
        "NVIDIA GeForce RTX 3090",
        "GPU-11111111-2222-3333-4444-555555555555",
        350.0,
        "580.95.05",
    )
    state = machine.device_state()
    assert (state.clock_mhz, state.memory_clock_mhz, state.power_watts) == (210.0, 405.0, 31.234)
    assert (state.temperature_celsius, state.memory_used_bytes) == (41.0, 600 << 20)
    assert machine.spec_bandwidth_bytes_per_second() == pytest.approx(936.1e9, rel=1e-3)


def test_a_card_that_supports_nothing_is_all_unknown(use):
    use(FakeNvml([FakeCard({})], driver=""))
    assert machine.identify()[:4] == ("", "", None, "")
    assert machine.device_state().power_watts is None
    assert machine.spec_bandwidth_bytes_per_second() is None


def test_free_memory_is_that_of_the_gpu_where_one_tells_it(use):
    assert 1 << 20 < machine.free_memory_bytes(gpu=True) < math.inf
    use(FakeNvml([geforce()]))
    assert machine.free_memory_bytes(gpu=True) == (24 << 30) - (600 << 20)
    assert 1 << 20 < machine.free_memory_bytes() < math.inf
    # A device that shares the host's memory (a GB10, a Jetson) refuses the question: the host's figure counts.
    use(FakeNvml([broken(geforce(), "nvmlDeviceGetMemoryInfo")]))
    assert machine.free_memory_bytes(gpu=True) == pytest.approx(machine.free_memory_bytes(), rel=0.2)


def test_free_memory_is_infinite_where_nothing_is_told(use, monkeypatch):
    monkeypatch.setattr(processor, "available_bytes", lambda: None)
    assert machine.free_memory_bytes() == math.inf


def test_a_card_of_amd_is_taken_where_nvml_has_none(use, monkeypatch, tmp_path):
    amd_card(tmp_path / "drm" / "card0")
    assert machine.identify().power_limit_watts == 303.0
    assert machine.device_state().utilization == 0.03
    assert machine.free_memory_bytes(gpu=True) == 20 << 30
    use(FakeNvml([geforce()]))
    assert machine.identify().gpu.startswith("NVIDIA")


def test_a_report_of_a_machine_without_a_gpu_says_why(use):
    found = report()
    assert found.gpus == () and found.bandwidth == () and found.driver_silence == SILENCE
    assert found.processor.model and (found.memory.total_bytes or 0) > 1 << 20
    assert found.kind == "specgauge-machine" and found.schema_version == 1


def test_a_report_lists_every_card_the_chosen_one_first(use, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    use(FakeNvml([geforce(), datacenter(), geforce()]))
    assert [(gpu.name[-4:], gpu.chosen) for gpu in report().gpus] == [("H200", True), ("3090", False), ("3090", False)]


def test_a_card_whose_place_is_not_told_is_listed_once(use):
    class Older(FakeNvml):
        def __getattr__(self, name):
            if name == "nvmlDeviceGetIndex":
                raise AttributeError(name)
            return super().__getattr__(name)

    use(Older([FakeCard({})]))
    assert len(report().gpus) == 1


def test_a_lost_card_is_a_grave_finding(use):
    card = geforce()
    use(FakeNvml([card, datacenter()]))
    card.lost_after = 9
    found = report()
    assert found.gpus[0].lost and not found.gpus[1].lost
    assert (found.findings[0].id, found.findings[0].severity) == ("gpu-lost", "error")


def test_a_report_can_be_stored_and_read(use, tmp_path):
    use(FakeNvml([datacenter()]))
    found = report()
    write_record(tmp_path / "machine.json", found)
    assert read_record(tmp_path / "machine.json", MachineReport) == found


def test_a_gpu_is_watched_while_its_bandwidth_is_measured(use, monkeypatch):
    card = geforce()
    use(FakeNvml([card]))

    watches: list[machine.Watch] = []

    def measure(device, threads, seconds):
        card.answers |= datacenter().answers
        card.answers["nvmlDeviceGetUtilizationRates"] = SimpleNamespace(gpu=97)
        while len(watches[0].looks) < 3:
            time.sleep(0.001)
        sample = BandwidthSample(operation="read", device="x", bytes_per_second=(1.0,), provenance="measured")
        return (sample,)

    class Watch(machine.Watch):
        def __init__(self, look, pause_seconds):
            super().__init__(look, 0.001)
            watches.append(self)

    monkeypatch.setattr(machine, "Watch", Watch)
    monkeypatch.setattr(bandwidth, "sweep", measure)
    (gpu,) = report(seconds=1.0).gpus
    assert gpu.link.generation == 1  # idle, before
    assert gpu.under_load is not None and gpu.under_load.link is not None
    assert gpu.under_load.link.generation == 5 and gpu.under_load.core_mhz == 1980.0


def test_a_gpu_that_was_not_measured_was_not_under_load(use, monkeypatch):
    use(FakeNvml([geforce()]))
    spec = BandwidthSample(operation="spec", device="x", bytes_per_second=(1.0,), provenance="spec")
    monkeypatch.setattr(bandwidth, "sweep", lambda *arguments: (spec,))
    assert report(seconds=1.0).gpus[0].under_load is None


def test_stored_states_of_earlier_profiles_still_load():
    stored = b'{"clock_mhz":1500.0,"memory_used_bytes":7,"event_reasons":["GpuIdle"],"load_average":0.1}'
    state = msgspec.json.decode(stored, type=DeviceState)
    assert state.clock_mhz == 1500.0 and state.pcie_rx_bytes_per_second is None and state.utilization is None


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ({}, None),
        ({"0": ("0x10de", "0x030000")}, True),
        ({"0": ("0x10de", "0x0c0330"), "1": ("0x8086", "0x030000")}, False),  # its USB controller; a display of Intel's
    ],
)
def test_an_nvidia_card_is_found_on_the_bus_without_a_driver(tmp_path, devices, expected):
    for name, (vendor, kind) in devices.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "vendor").write_text(vendor + "\n")
        (folder / "class").write_text(kind + "\n")
    assert machine.nvidia_on_bus(tmp_path) is expected

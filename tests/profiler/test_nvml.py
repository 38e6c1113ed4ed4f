"""NVML behind its stand-in: no library, a card that refuses, an older driver, a lost card, MIG, one that tells all."""

import os

import pynvml
import pytest

from specgauge.profiler.devices.machine_records import GpuReport
from specgauge.profiler.devices.nvml import Nvml, opened

from . import fake_nvml
from .fake_nvml import FakeNvml, datacenter, geforce, instance

GIB = 1 << 30


@pytest.fixture(autouse=True)
def any_gpu_may_be_used(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def first(library: FakeNvml):
    found, silence = opened(library)
    assert found is not None and silence == ""
    gpu = found.first()
    assert gpu is not None
    return gpu


def known(report) -> set[str]:
    """Fields of a record that say something."""
    silent = (None, (), "", False)
    return {
        name
        for name in report.__struct_fields__
        if not any(getattr(report, name) is nothing or getattr(report, name) == nothing == "" for nothing in silent)
    }


def test_every_getter_that_is_asked_is_one_that_pynvml_has():
    library = FakeNvml([datacenter([instance()]), geforce()])
    gpu = first(library)
    gpu.report()
    gpu.state()
    assert set(library.asked) > {"nvmlInit", "nvmlDeviceGetPcieThroughput", "nvmlDeviceGetMigMode"}
    assert all(hasattr(pynvml, name) for name in library.asked)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "not found"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "not loaded"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "mismatch"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "permission"),
    ],
)
def test_a_library_that_does_not_start_says_why(fault, words):
    found, silence = opened(FakeNvml(fails=fault))
    assert found is None and words in silence.lower()


def test_a_broken_driver_that_raises_something_else_is_silence_too():
    class Broken:
        def nvmlInit(self):
            raise OSError("libnvidia-ml.so.1: file too short")

    assert opened(Broken()) == (None, "libnvidia-ml.so.1: file too short")


def test_a_geforce_tells_what_it_can_and_the_rest_is_none():
    report = first(FakeNvml([geforce()], process_names={900: "/usr/lib/xorg/Xorg -core :0"})).report(chosen=True)
    assert (report.vendor, report.name, report.chosen, report.lost) == (
        "nvidia",
        "NVIDIA GeForce RTX 3090",
        True,
        False,
    )
    assert report.memory.ecc is None and report.mig is None and report.persistence is False
    assert (report.power.watts, report.power.limit_watts, report.power.default_limit_watts) == (31.234, 350.0, 350.0)
    assert (report.power.least_limit_watts, report.power.most_limit_watts) == (100.0, 366.0)
    assert (report.clocks.core_mhz, report.clocks.most_core_mhz, report.clocks.memory_mhz) == (210.0, 2100.0, 405.0)
    assert report.clocks.event_reasons == ("GpuIdle",)
    assert (report.heat.celsius, report.heat.slowdown_celsius, report.heat.shutdown_celsius) == (41.0, 95.0, 98.0)
    assert (report.link.generation, report.link.most_generation, report.link.width) == (1, 4, 16)
    assert (report.memory.total_bytes, report.memory.used_bytes) == (24 * GIB, 600 << 20)
    assert report.memory.free_bytes == 24 * GIB - (600 << 20) and report.memory.bar1_bytes == 256 << 20
    # 384 bits at 9751 MHz, two transfers a clock, are the card's 936 GB/s.
    assert report.memory.bus_bytes_per_second == pytest.approx(936.1e9, rel=1e-3)
    (desktop,) = report.processes
    assert (desktop.pid, desktop.name, desktop.memory_bytes) == (900, "Xorg", 120 << 20)


def test_a_card_that_supports_nothing_is_all_unknown():
    report = first(FakeNvml([fake_nvml.FakeCard({})])).report()
    assert known(report) == {"vendor", "power", "clocks", "heat", "link", "memory"}
    for part in (report.power, report.clocks, report.heat, report.link, report.memory):
        assert known(part) == set()


def test_a_datacenter_card_tells_everything():
    report = first(FakeNvml([datacenter()])).report()
    silent = {name for name in GpuReport.__struct_fields__ if name not in known(report)}
    assert silent == {"chosen", "integrated", "lost", "mig", "instance", "instances", "processes", "under_load"}
    assert report.memory.ecc is True and report.mig is False and report.persistence is True
    assert report.memory.bus_bytes_per_second == pytest.approx(4.917e12, rel=1e-3)  # 4.9 TB/s, HBM3e of an H200


def test_the_state_beside_a_measurement_is_in_si_units():
    state = first(FakeNvml([datacenter()])).state(load_average=0.5)
    assert (state.pcie_rx_bytes_per_second, state.pcie_tx_bytes_per_second) == (2e6, 1e6)  # NVML: KB/s
    assert (state.power_watts, state.power_limit_watts, state.utilization) == (512.0, 700.0, 0.0)
    assert state.memory_free_bytes == 140 * GIB and state.load_average == 0.5


def test_an_older_driver_is_asked_by_the_older_name():
    library = FakeNvml(
        [geforce(nvmlDeviceGetCurrentClocksThrottleReasons=pynvml.nvmlClocksThrottleReasonSwPowerCap)],
        missing=frozenset({"nvmlDeviceGetCurrentClocksEventReasons"}),
    )
    assert first(library).event_reasons() == ("SwPowerCap",)


def test_a_pynvml_without_a_newer_function_is_no_error():
    class Older(FakeNvml):
        def __getattr__(self, name):
            if name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetMigMode"):
                raise AttributeError(name)
            return super().__getattr__(name)

    report = first(Older([geforce(nvmlDeviceGetCurrentClocksThrottleReasons=4)])).report()
    assert report.clocks.event_reasons == ("SwPowerCap",) and report.mig is None


@pytest.mark.parametrize("answered", [0, 1, 5, 12, 20])
def test_a_card_lost_after_any_question_is_reported_lost(answered):
    card = geforce()
    library = FakeNvml([card])
    gpu = first(library)
    card.lost_after = answered
    report = gpu.report()
    assert report.lost
    assert gpu.state().power_watts is None and gpu.free_bytes() is None


def test_a_card_that_is_lost_from_the_start_is_listed_beside_the_one_that_works():
    card = geforce()
    card.lost_after = 0
    library, _ = opened(FakeNvml([card, datacenter()]))
    assert library is not None and library.first() is None
    assert [(gpu.lost, gpu.name()) for gpu in library.gpus()] == [(True, ""), (False, "NVIDIA H200")]


def test_nvml_that_somebody_shut_down_is_opened_again():
    library = FakeNvml([geforce()])
    gpu = first(library)
    library.shut_down_by_somebody_else()
    assert gpu.name() == "NVIDIA GeForce RTX 3090" and library.initialised == 1


def test_with_mig_the_first_instance_answers_for_memory_and_the_card_for_the_rest():
    report = first(FakeNvml([datacenter([instance()])])).report()
    assert (report.mig, report.instances, report.instance) == (True, 1, "NVIDIA H200 MIG 1g.18gb")
    assert report.name == "NVIDIA H200" and report.uuid.startswith("MIG-")
    assert report.memory.total_bytes == 17 * GIB and report.power.limit_watts == 700.0
    assert report.memory.bus_bytes_per_second == pytest.approx(4.917e12 * 17 / 141, rel=1e-3)


def test_an_instance_named_to_cuda_is_the_one_that_is_used(monkeypatch):
    big = instance(total=71 * GIB, name="NVIDIA H200 MIG 4g.71gb")
    big.answers["nvmlDeviceGetUUID"] = "MIG-big"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-big")
    gpu = first(FakeNvml([datacenter([instance(), big])]))
    assert gpu.report().instance == "NVIDIA H200 MIG 4g.71gb" and gpu.index == 0


def test_mig_without_an_instance_shows_none():
    report = first(FakeNvml([datacenter(instances=[])])).report()
    assert (report.mig, report.instances, report.instance) == (True, 0, "")


@pytest.mark.parametrize(
    ("named", "name"),
    [
        ("1,0", "NVIDIA H200"),
        ("GPU-99999999-8888-7777-6666-555555555555", "NVIDIA H200"),
        ("GPU-9999", "NVIDIA H200"),
        (" 0 ", "NVIDIA GeForce RTX 3090"),
    ],
)
def test_the_gpu_is_the_one_that_cuda_takes_first(monkeypatch, named, name):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert first(FakeNvml([geforce(), datacenter()])).name() == name


@pytest.mark.parametrize("named", ["", "-1", "7", "GPU-", "MIG-none"])
def test_a_hidden_or_unknown_gpu_is_none(monkeypatch, named):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    library, _ = opened(FakeNvml([geforce(), datacenter()]))
    assert library is not None and library.first() is None


def test_our_own_process_is_no_other_and_untold_memory_stays_untold():
    card = geforce(
        nvmlDeviceGetComputeRunningProcesses=[
            fake_nvml.process(os.getpid(), GIB),
            fake_nvml.process(7, None),
            fake_nvml.process(8, 2 * GIB),
        ],
        nvmlDeviceGetGraphicsRunningProcesses=[fake_nvml.process(8, 2 * GIB)],
    )
    library = FakeNvml([card], process_names={8: "C:\\Games\\game.exe"})
    told = {(p.pid, p.name, p.memory_bytes) for p in first(library).processes()}
    assert told == {(7, "", None), (8, "game.exe", 2 * GIB)}


def test_figures_that_mean_unknown_are_none():
    card = geforce(nvmlDeviceGetCurrPcieLinkWidth=0xFFFFFFFF, nvmlDeviceGetTemperatureThreshold=lambda which: 0)
    report = first(FakeNvml([card])).report()
    assert report.link.width is None and report.heat.slowdown_celsius is None


def test_the_driver_version_may_come_as_bytes():
    assert Nvml(fake_nvml.opened(driver=b"550.1")).driver_version() == "550.1"


def test_a_driver_that_counts_a_thousand_cards_is_not_believed():
    library = fake_nvml.opened(*[geforce() for _ in range(70)])
    assert len(Nvml(library).gpus()) == 64

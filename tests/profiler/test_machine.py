"""The machine as NVML and the kernel describe it, with an NVML that refuses and one that answers."""

import math
from types import SimpleNamespace

import pynvml
import pytest

from specgauge.profiler import machine


def nvml(**answers) -> SimpleNamespace:
    """An NVML with the real one's names, whose getters answer `answers` or raise NotSupported."""

    def getter(name):
        def get(*arguments):
            if name not in answers:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
            answer = answers[name]
            return answer(*arguments) if callable(answer) else answer

        return get

    members = {name: getattr(pynvml, name) for name in dir(pynvml)}
    return SimpleNamespace(
        **{n: getter(n) if n.startswith(("nvmlDevice", "nvmlSystem")) else m for n, m in members.items()}
    )


@pytest.fixture
def use(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return lambda library: monkeypatch.setattr(machine, "_nvml", lambda: library)


def test_without_nvml_the_gpu_is_unknown_and_the_processor_known(use):
    use(None)
    found = machine.identify()
    assert found[:4] == ("", "", None, "") and found.cpu
    state = machine.device_state()
    assert state.clock_mhz is None and state.event_reasons == () and state.load_average is not None
    assert machine.spec_bandwidth_bytes_per_second() is None


def test_a_card_that_supports_nothing_is_all_unknown(use):
    use(nvml(nvmlDeviceGetHandleByIndex="handle"))
    assert machine.identify()[:4] == ("", "", None, "")
    assert machine.device_state().power_watts is None
    assert machine.spec_bandwidth_bytes_per_second() is None


def test_a_card_that_answers_is_given_in_si_units(use):
    use(
        nvml(
            nvmlDeviceGetHandleByIndex="handle",
            nvmlDeviceGetName=b"Card",
            nvmlDeviceGetUUID="GPU-1",
            nvmlDeviceGetEnforcedPowerLimit=350_000,
            nvmlSystemGetDriverVersion="999.1",
            nvmlDeviceGetPowerUsage=123_000,
            nvmlDeviceGetClockInfo=lambda handle, which: {pynvml.NVML_CLOCK_SM: 1700, pynvml.NVML_CLOCK_MEM: 9501}[
                which
            ],
            nvmlDeviceGetTemperature=61,
            nvmlDeviceGetMemoryInfo=SimpleNamespace(used=1 << 30),
            nvmlDeviceGetCurrentClocksEventReasons=(
                pynvml.nvmlClocksEventReasonSwPowerCap | pynvml.nvmlClocksThrottleReasonHwThermalSlowdown
            ),
            nvmlDeviceGetMemoryBusWidth=384,
            nvmlDeviceGetMaxClockInfo=9751,
        )
    )
    assert machine.identify()[:4] == ("Card", "GPU-1", 350.0, "999.1")
    state = machine.device_state()
    assert (state.clock_mhz, state.memory_clock_mhz, state.power_watts) == (1700.0, 9501.0, 123.0)
    assert (state.temperature_celsius, state.memory_used_bytes) == (61.0, 1 << 30)
    assert state.event_reasons == ("HwThermalSlowdown", "SwPowerCap")
    # An RTX 3090: 384 bits at 9751 MHz, two transfers a clock, is its 936 GB/s.
    assert machine.spec_bandwidth_bytes_per_second() == pytest.approx(936.1e9, rel=1e-3)


def test_the_gpu_is_the_one_that_cuda_takes_first(use, monkeypatch):
    use(
        nvml(nvmlDeviceGetHandleByIndex=lambda i: f"#{i}", nvmlDeviceGetHandleByUUID=lambda u: u, nvmlDeviceGetName=str)
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    assert machine.identify().gpu == "#2"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-abc")
    assert machine.identify().gpu == "GPU-abc"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert machine.identify().gpu == ""


def test_the_last_level_cache_is_the_largest_that_holds_data(monkeypatch, tmp_path):
    for index, (kind, size) in enumerate(
        [("Data", "32K"), ("Instruction", "64M"), ("Unified", "1024K"), ("Unified", "8M")]
    ):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        (folder / "type").write_text(kind + "\n")
        (folder / "size").write_text(size + "\n")
    monkeypatch.setattr(machine, "CPU_CACHE", tmp_path)
    assert machine.last_level_cache_bytes() == 8 << 20
    monkeypatch.setattr(machine, "CPU_CACHE", tmp_path / "none")
    assert machine.last_level_cache_bytes() is None


def test_free_memory_is_that_of_the_gpu_where_one_tells_it(use):
    use(nvml(nvmlDeviceGetHandleByIndex="handle", nvmlDeviceGetMemoryInfo=SimpleNamespace(free=123)))
    assert machine.free_memory_bytes(gpu=True) == 123.0
    assert 1 << 20 < machine.free_memory_bytes() < math.inf
    use(None)
    assert 1 << 20 < machine.free_memory_bytes(gpu=True) < math.inf

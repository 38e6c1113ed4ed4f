"""Findings of a machine: each situation names its id and its next step, and a machine that is well has none."""

import pytest
from msgspec.structs import replace

from specgauge.profiler.devices.gpu_findings import EVENT_WORDS
from specgauge.profiler.devices.machine_findings import find
from specgauge.profiler.devices.machine_records import (
    Clocks,
    DeviceMemory,
    GpuProcess,
    GpuReport,
    Heat,
    HostMemory,
    MachineReport,
    PcieLink,
    Power,
    ProcessorReport,
    UnderLoad,
)
from specgauge.profiler.finding import Finding
from specgauge.profiler.records import BandwidthSample

GIB, MIB = 1 << 30, 1 << 20
GPU = GpuReport(
    vendor="nvidia",
    name="Card",
    chosen=True,
    power=Power(watts=30, limit_watts=350, default_limit_watts=350),
    clocks=Clocks(core_mhz=210, most_core_mhz=2100, event_reasons=("GpuIdle",)),
    heat=Heat(celsius=40, slowdown_celsius=90),
    link=PcieLink(generation=4, most_generation=4, width=16, most_width=16),
    memory=DeviceMemory(
        total_bytes=24 * GIB, used_bytes=GIB, free_bytes=23 * GIB, bus_bits=384, bus_bytes_per_second=936e9
    ),
    utilization=0.0,
    persistence=True,
)
PROCESSOR = ProcessorReport(
    model="CPU", cores=8, threads=8, usable_threads=8, numa_nodes=1, load_average=0.1, busy_share=0.01, steal_share=0.0
)
MEMORY = HostMemory(total_bytes=64 * GIB, available_bytes=60 * GIB, swap_total_bytes=GIB, swap_used_bytes=0)
WELL = MachineReport(
    created="", tool_version="", system="Linux", driver="580.1", gpus=(GPU,), processor=PROCESSOR, memory=MEMORY
)


def read(mebibytes: int, gigabytes: float, device: str = "Card", threads: int = 0) -> BandwidthSample:
    return BandwidthSample(
        operation="read",
        device=device,
        threads=threads,
        buffer_bytes=mebibytes * MIB,
        bytes_per_second=(gigabytes * 1e9,) * 3,
        provenance="measured",
    )


def with_gpu(**changes) -> MachineReport:
    return replace(WELL, gpus=(replace(GPU, **changes),))


def with_processor(**changes) -> MachineReport:
    return replace(WELL, processor=replace(PROCESSOR, **changes))


def with_memory(**changes) -> MachineReport:
    return replace(WELL, memory=replace(MEMORY, **changes))


def loaded(*reasons: str, link: PcieLink | None = None, celsius: float = 60) -> UnderLoad:
    return UnderLoad(samples=9, core_mhz=1900, celsius=celsius, event_reasons=reasons, link=link)


def only(report: MachineReport) -> Finding:
    (finding,) = find(report)
    return finding


def test_a_machine_that_is_well_has_no_findings():
    assert find(WELL) == ()
    assert find(replace(WELL, bandwidth=(read(1, 3000), read(1024, 860)))) == ()


def test_a_machine_that_tells_nothing_has_no_findings():
    nothing = replace(WELL, driver="", gpus=(), processor=ProcessorReport(model=""), memory=HostMemory())
    assert find(nothing) == ()
    silent = replace(nothing, driver="580.1", gpus=(GpuReport(vendor="nvidia", name="", chosen=True),))
    assert find(silent) == ()


NARROW = PcieLink(generation=4, most_generation=4, width=4, most_width=16)
RESTING = PcieLink(generation=1, most_generation=4, width=16, most_width=16)
SITUATIONS = {
    "gpu-lost error": with_gpu(lost=True),
    "power-limit warning": with_gpu(power=Power(limit_watts=250, default_limit_watts=350)),
    "throttled-heat warning": with_gpu(under_load=loaded("SwThermalSlowdown", celsius=84)),
    "throttled-power note": with_gpu(under_load=loaded("SwPowerCap")),
    "throttled-power warning": with_gpu(under_load=loaded("HwPowerBrakeSlowdown")),
    "near-slowdown warning": with_gpu(heat=Heat(celsius=87, slowdown_celsius=90)),
    "gpu-shared warning": with_gpu(processes=(GpuProcess(pid=7, name="python", memory_bytes=4 * GIB),)),
    "gpu-shared note": with_gpu(processes=(GpuProcess(pid=9, name="Xorg", memory_bytes=100 * MIB),)),
    "gpu-busy warning": with_gpu(utilization=0.5),
    "link-narrow warning": with_gpu(under_load=loaded(link=NARROW), link=RESTING),
    "link-idle note": with_gpu(link=RESTING),
    "ecc-on note": with_gpu(memory=replace(GPU.memory, ecc=True)),
    "mig-empty error": with_gpu(mig=True, instances=0),
    "mig-on note": with_gpu(mig=True, instances=2, instance="1g.18gb"),
    "clocks-locked note": with_gpu(clocks=Clocks(event_reasons=("ApplicationsClocksSetting",), most_core_mhz=2100)),
    "gpu-memory-full warning": with_gpu(memory=replace(GPU.memory, free_bytes=GIB)),
    "persistence-off note": with_gpu(persistence=False),
    "gpu-order note": replace(WELL, gpus=(GPU, replace(GPU, chosen=False, name="Other"))),
    "driver-old note": replace(WELL, driver="470.82"),
    "driver-unknown note": replace(WELL, driver=""),
    "driver-silent warning": replace(WELL, gpus=(), nvidia_on_bus=True, driver_silence="Driver Not Loaded"),
    "governor warning": with_processor(governor="powersave", frequency_driver="acpi-cpufreq"),
    "other-work warning": with_processor(busy_share=0.4, load_average=3.0),
    "load note": with_processor(load_average=3.0),
    "processor-quota warning": with_processor(quota_threads=1.5, usable_threads=1),
    "two-kinds-of-cores note": with_processor(fast_cores=6, slow_cores=2),
    "threads-share-cores note": with_processor(threads=16, usable_threads=16),
    "numa note": with_processor(numa_nodes=2),
    "processor-hot warning": with_processor(throttle_events=3),
    "on-battery warning": with_processor(on_battery=True),
    "time-stolen warning": with_processor(virtual=True, steal_share=0.05),
    "memory-full warning": with_memory(available_bytes=2 * GIB),
    "swap warning": with_memory(swap_used_bytes=GIB),
    "memory-limit note": with_memory(limit_bytes=8 * GIB, limit_available_bytes=7 * GIB),
    "bandwidth-low warning": replace(WELL, bandwidth=(read(8, 2000), read(1024, 400))),
    "bandwidth-understated note": replace(WELL, gpus=(), bandwidth=(read(1, 31, "CPU", 1), read(256, 30, "CPU", 1))),
    "bandwidth-disturbed warning": replace(WELL, gpus=(), bandwidth=(read(1, 1, "CPU", 2), read(256, 30, "CPU", 2))),
}


@pytest.mark.parametrize("expected", SITUATIONS)
def test_each_situation_alone_is_found_with_its_evidence_and_next_step(expected):
    finding = only(SITUATIONS[expected])
    assert f"{finding.id} {finding.severity}" == expected
    assert finding.evidence and finding.remedy
    assert len(finding.evidence) <= 400 and len(finding.remedy) <= 400  # what a terminal shows of one


def test_the_gravest_come_first():
    worst = replace(with_gpu(mig=True, instances=0, persistence=False), processor=replace(PROCESSOR, on_battery=True))
    assert [finding.severity for finding in find(worst)] == ["error", "warning", "note"]


def test_a_lowered_power_limit_tells_what_drafting_pays():
    finding = only(with_gpu(power=Power(limit_watts=400, default_limit_watts=600)))
    assert "400 W, default 600 W (67%)" in finding.evidence
    assert "4.8 %" in finding.remedy and "18.1 %" in finding.remedy and "-pl 600" in finding.remedy


def test_a_limit_of_a_percent_below_the_default_is_rounding():
    assert find(with_gpu(power=Power(limit_watts=349, default_limit_watts=350))) == ()


def test_a_limit_above_the_default_is_no_finding():
    assert find(with_gpu(power=Power(limit_watts=366, default_limit_watts=350))) == ()


def test_cards_that_do_not_work_for_us_may_be_as_they_like():
    other = replace(GPU, chosen=False, utilization=1.0, power=Power(limit_watts=100, default_limit_watts=350))
    assert find(replace(WELL, gpus=(GPU, other))) == ()


def test_a_lost_card_is_named_even_if_another_works():
    other = replace(GPU, chosen=False, lost=True, name="")
    assert only(replace(WELL, gpus=(GPU, replace(other, name="Card")))).id == "gpu-lost"


def test_cards_in_the_order_of_the_bus_are_as_the_driver_lists_them():
    report = SITUATIONS["gpu-order note"]
    assert find(replace(report, cuda_order="PCI_BUS_ID")) == ()


def test_a_link_that_trains_up_under_load_is_well():
    full = PcieLink(generation=4, most_generation=4, width=16, most_width=16)
    assert find(with_gpu(link=RESTING, under_load=loaded(link=full))) == ()


def test_ecc_of_high_bandwidth_memory_costs_nothing():
    memory = DeviceMemory(total_bytes=141 * GIB, free_bytes=140 * GIB, bus_bits=6144, ecc=True)
    assert find(with_gpu(memory=memory)) == ()


@pytest.mark.parametrize(("driver", "preference", "count"), [
    ("intel_pstate", "balance_performance", 0),
    ("amd-pstate-epp", "power", 1),
    ("acpi-cpufreq", "", 1),
    ("", "", 1),
])  # fmt: skip
def test_powersave_holds_clocks_low_only_where_the_processor_does_not_steer_itself(driver, preference, count):
    report = with_processor(governor="powersave", frequency_driver=driver, energy_preference=preference)
    assert len(find(report)) == count


def test_a_limit_as_large_as_the_machine_is_none():
    assert find(with_memory(limit_bytes=64 * GIB)) == ()


def test_a_processor_is_not_held_against_the_bus_of_the_card():
    assert find(replace(WELL, bandwidth=(read(1, 90, "CPU", 8), read(256, 30, "CPU", 8)))) == ()


def test_every_reason_that_nvml_knows_has_words():
    import pynvml

    prefixes = ("nvmlClocksEventReason", "nvmlClocksThrottleReason")
    names = {n.split("Reason", 1)[1] for n in dir(pynvml) if n.startswith(prefixes)}
    assert names - {"All", "None", "UserDefinedClocks"} <= set(EVENT_WORDS)

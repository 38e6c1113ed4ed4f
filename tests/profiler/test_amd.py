"""AMD cards from files of the kernel's driver, whole, sparse and damaged."""

import pytest

from specgauge.profiler.devices import amd
from specgauge.profiler.devices.machine_records import Clocks, DeviceMemory, Heat, PcieLink, Power

from .amd_files import FILES, amd_card, write

NAMES = "# comment\n1.0.0\n744C,\tC8,\tAMD Radeon RX 7900 XTX\n744C,\tCC,\tAMD Radeon RX 7900 XT\n"


@pytest.fixture
def names(tmp_path):
    path = tmp_path / "amdgpu.ids"
    path.write_text(NAMES)
    return path


def test_a_card_tells_everything_in_our_units(tmp_path, names):
    amd_card(tmp_path / "card1")
    (card,) = amd.cards(tmp_path, names)
    report = card.report(chosen=True)
    assert (report.name, report.uuid, report.vendor) == ("AMD Radeon RX 7900 XTX", "1c1f6b0b5e3d2a10", "amd")
    assert report.power == Power(
        watts=18.0, limit_watts=303.0, default_limit_watts=339.0, least_limit_watts=0.0, most_limit_watts=390.0
    )
    assert report.clocks == Clocks(core_mhz=60.0, most_core_mhz=2526.0, memory_mhz=96.0, most_memory_mhz=1249.0)
    assert report.heat == Heat(celsius=47.0, slowdown_celsius=110.0, shutdown_celsius=115.0)
    assert report.link == PcieLink(generation=1, most_generation=4, width=16, most_width=16)
    assert report.memory == DeviceMemory(
        total_bytes=24 << 30,
        used_bytes=4 << 30,
        free_bytes=20 << 30,
        bar1_bytes=24 << 30,
        host_used_bytes=64 << 20,
    )
    assert report.utilization == pytest.approx(0.03) and not report.integrated


def test_a_card_whose_files_are_missing_is_unknown_in_all(tmp_path, names):
    write(tmp_path / "card0" / "device", {"vendor": "0x1002", "device": "0x1234", "revision": "0x01"})
    (card,) = amd.cards(tmp_path, names)
    report = card.report()
    assert report.name == "AMD 0x1234" and report.power == Power() and report.memory == DeviceMemory()
    assert card.state().power_watts is None and card.free_bytes() is None


def test_damaged_files_are_unknown(tmp_path, names):
    amd_card(tmp_path / "card0", **dict.fromkeys(FILES, "\udcff garbage".encode("utf-8", "replace").decode()))
    write(tmp_path / "card0" / "device", {"vendor": "0x1002"})
    (card,) = amd.cards(tmp_path, names)
    assert card.report().power == Power() and card.report().link == PcieLink()


def test_only_cards_of_this_vendor_count_and_connectors_do_not(tmp_path, names):
    amd_card(tmp_path / "card0", vendor="0x8086")
    amd_card(tmp_path / "card1")
    amd_card(tmp_path / "card1-DP-1")
    amd_card(tmp_path / "card10")
    amd_card(tmp_path / "card2")
    assert [card.device.parent.name for card in amd.cards(tmp_path, names)] == ["card1", "card2", "card10"]
    assert amd.cards(tmp_path / "none") == ()


def test_newer_kernels_give_the_power_by_another_name(tmp_path):
    amd_card(tmp_path / "card0", hwmon__hwmon4__power1_average=None, hwmon__hwmon4__power1_input="21000000")
    assert amd.cards(tmp_path)[0].state().power_watts == 21.0


def test_the_card_with_the_most_memory_is_taken_first_unless_named(tmp_path, monkeypatch):
    monkeypatch.delenv("HIP_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("ROCR_VISIBLE_DEVICES", raising=False)
    amd_card(tmp_path / "card0", mem_info_vram_total=str(512 << 20))  # a processor's own graphics
    amd_card(tmp_path / "card1", mem_info_vram_total=str(8 << 30))
    amd_card(tmp_path / "card2")

    def taken() -> str | None:
        card = amd.first(tmp_path)
        return card and card.device.parent.name

    assert taken() == "card2"
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "0")
    assert taken() == "card1"
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "")
    assert taken() is None


def test_graphics_of_a_processor_are_listed_and_never_taken(tmp_path):
    amd_card(tmp_path / "card0", mem_info_vram_total=str(512 << 20))
    assert amd.first(tmp_path) is None
    assert amd.cards(tmp_path)[0].report().integrated


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ("0: 500Mhz \n1: 2371Mhz *", (2371.0, 2371.0)),
        ("S: 19Mhz *\n0: 615Mhz\n1: 2250Mhz", (19.0, 2250.0)),
        ("0: 500Mhz\n1: 2000Mhz", (None, 2000.0)),
        ("", (None, None)),
        (None, (None, None)),
        ("no levels", (None, None)),
    ],
)
def test_clock_levels(listed, expected):
    assert amd.levels(listed) == expected


@pytest.mark.parametrize(
    ("speed", "expected"),
    [
        ("16.0 GT/s PCIe", 4),
        ("8 GT/s", 3),
        ("2.5 GT/s PCIe", 1),
        ("32.0 GT/s PCIe", 5),
        ("Unknown", None),
        (None, None),
    ],
)
def test_link_generations(speed, expected):
    assert amd.generation(speed) == expected


def test_a_level_that_someone_forced_is_named(tmp_path):
    amd_card(tmp_path / "card0", power_dpm_force_performance_level="low")
    assert amd.cards(tmp_path)[0].clocks().forced_level == "low"

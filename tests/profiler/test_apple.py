"""Apple chips by what sysctl and vm_stat print."""

import pytest

from specgauge.profiler.devices import apple

VM_STAT = """Mach Virtual Memory Statistics: (page size of 16384 bytes)
Pages free:                               100000.
Pages active:                            1500000.
Pages inactive:                           200000.
Pages speculative:                         10000.
Pages throttled:                               0.
Pages wired down:                         300000.
Pages purgeable:                            5000.
"Translation faults":                 1234567890.
"""
M3_ULTRA = {
    "machdep.cpu.brand_string": "Apple M3 Ultra",
    "hw.memsize": str(256 << 30),
    "hw.physicalcpu": "28",
    "hw.perflevel0.physicalcpu": "20",
    "hw.perflevel1.physicalcpu": "8",
    "iogpu.wired_limit_mb": "0",
}


def system(**said: str):
    """Programs that print `said`, and nothing for what they do not know."""
    values = M3_ULTRA | {name.replace("__", "."): value for name, value in said.items()}

    def command(words):
        return VM_STAT if words[0] == "vm_stat" else values.get(words[-1], "") + "\n"

    return command


def test_a_chip_is_its_own_gpu_with_a_share_of_the_memory():
    chip = apple.soc(system())
    assert chip is not None
    report = chip.report(chosen=True)
    assert (report.vendor, report.name, report.integrated) == ("apple", "Apple M3 Ultra", True)
    assert report.memory.total_bytes == 192 << 30 and report.memory.bus_bytes_per_second == 819e9
    assert report.memory.free_bytes == 315_000 * 16384 == chip.available_bytes()
    assert chip.number("hw.perflevel1.physicalcpu") == 8


def test_a_limit_that_the_owner_set_counts():
    chip = apple.soc(system(iogpu__wired_limit_mb="1024"))
    assert chip is not None and chip.gpu_limit_bytes() == 1 << 30 == chip.free_bytes()


def test_a_small_memory_gives_two_thirds():
    chip = apple.soc(system(hw__memsize=str(24 << 30)))
    assert chip is not None and chip.gpu_limit_bytes() == 16 << 30


@pytest.mark.parametrize("name", ["", "Intel(R) Core(TM) i9-9980HK CPU @ 2.40GHz"])
def test_other_processors_are_no_chip_of_this_kind(name):
    assert apple.soc(system(machdep__cpu__brand_string=name)) is None


def test_a_chip_that_is_not_in_the_table_has_no_figure():
    chip = apple.soc(system(machdep__cpu__brand_string="Apple M9 Ultra"))
    assert chip is not None and chip.bus_bytes_per_second() is None


def test_programs_that_say_nothing_leave_all_unknown():
    chip = apple.Soc({}, lambda words: "")
    assert (chip.available_bytes(), chip.gpu_limit_bytes(), chip.free_bytes(), chip.name()) == (None, None, None, "")


@pytest.mark.parametrize("command", [["/nowhere/sysctl"], ["false"]])
def test_a_program_that_is_missing_or_fails_says_nothing(command):
    assert apple.run_command(command) == ""


def test_a_program_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(apple, "TIMEOUT_SECONDS", 0.05)
    assert apple.run_command(["sleep", "30"]) == ""

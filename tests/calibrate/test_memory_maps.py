"""Memory maps: from the headers of a profile's files and the memory of the device that it saw; else why not."""

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from specgauge.calibrate.map_records import MemoryMap
from specgauge.calibrate.memory_maps import STREAMS, memory_maps
from specgauge.profiler.machine import cpu_model
from specgauge.profiler.records import DeviceState, Profile

from . import synthetic
from .synthetic import quiet
from .test_check_files import model, words

GIGABYTE = 2**30


def profile(folder: Path, card: str = "Card", used: int = 3 * GIGABYTE, free: int = GIGABYTE // 2) -> Profile:
    """The hand-written profile with real headers behind its labels, on a device with `used` + `free` bytes."""
    base = synthetic.profile(quiet())
    files = {"t": model(folder, "t", words(300), hidden=512, layers=8), "d": model(folder, "d", words(300))}
    models = tuple(replace(m, path=str(files[m.label]), size_bytes=files[m.label].stat().st_size) for m in base.models)
    state = DeviceState(memory_used_bytes=used, memory_free_bytes=free) if card else None
    taken = tuple(replace(m, state_after=state) for m in base.measurements)
    return replace(base, models=models, measurements=taken, key=replace(base.key, gpu=card, cpu=cpu_model()))


def by_drafter(found: tuple[MemoryMap, ...]) -> dict[str, MemoryMap]:
    return {one.drafter: one for one in found}


def test_each_drafter_has_its_region_over_contexts_lengths_and_streams(tmp_path):
    found = by_drafter(memory_maps(profile(tmp_path)))
    assert set(found) == {"model", "ngram"}
    for one in found.values():
        assert not one.unknown and one.free_bytes == 3.5 * GIGABYTE
        assert one.room == "3,584 MiB, all of Card, with nothing else on it"
        assert set(STREAMS) <= {cell.streams for cell in one.cells}
        assert max(cell.draft_tokens for cell in one.cells) >= 8
        for cell in one.cells:
            assert (cell.verdict == "does_not_fit") == (cell.total_bytes > 3.5 * GIGABYTE)
    drafted = {(c.context, c.draft_tokens, c.streams): c.total_bytes for c in found["model"].cells}
    alone = {(c.context, c.draft_tokens, c.streams): c.total_bytes for c in found["ngram"].cells}
    shared = [key for key in drafted.keys() & alone.keys() if key[1] > 0]
    assert shared and all(drafted[key] > alone[key] for key in shared), "a draft model has weights and a cache"


def test_a_smaller_device_holds_less(tmp_path):
    large = by_drafter(memory_maps(profile(tmp_path)))["model"]
    totals = sorted(cell.total_bytes for cell in large.cells)
    middle = int(totals[len(totals) // 2])
    small = by_drafter(memory_maps(profile(tmp_path, used=0, free=middle)))["model"]
    fitting = [sum(cell.verdict != "does_not_fit" for cell in one.cells) for one in (large, small)]
    assert fitting[0] == len(totals) > fitting[1] > 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda p: replace(p, models=tuple(replace(m, path="/nowhere/x.gguf") for m in p.models)), "is not here"),
        (lambda p: replace(p, models=tuple(replace(m, random=True) for m in p.models)), "random weights"),
        (lambda p: replace(p, measurements=()), "does not say how much memory Card has"),
        (lambda p: replace(p, measurements=(), key=replace(p.key, gpu="", cpu="another")), "another machine"),
    ],
)
def test_what_cannot_be_told_is_said_with_what_to_run(tmp_path, change, reason):
    for one in memory_maps(change(profile(tmp_path))):
        assert not one.cells and reason in one.unknown and "specgauge check" in one.unknown


def test_a_file_that_is_no_checkpoint_is_a_reason_and_no_crash(tmp_path):
    whole = profile(tmp_path)
    (tmp_path / "t.gguf").write_bytes(b"GGUF" + b"\xff" * 40)
    assert all(one.unknown for one in memory_maps(whole))


def test_without_a_device_it_is_what_the_host_has(tmp_path):
    found = memory_maps(profile(tmp_path, card=""))
    assert all("host memory" in one.room and one.cells for one in found)
    assert msgspec.json.decode(msgspec.json.encode(found), type=tuple[MemoryMap, ...]) == found

"""Two thousand damaged GGUF models (benchmarks/fuzz_checkpoints.py runs a hundred thousand), and that the fuzzer sees defects."""

import importlib.util
import random
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from specgauge.profiler.checkpoints.gguf_checkpoint import read_gguf
from specgauge.profiler.errors import InputError

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "fuzz_checkpoints.py"
spec = importlib.util.spec_from_file_location("fuzz_checkpoints", SCRIPT)
assert spec is not None and spec.loader is not None
fuzzer = importlib.util.module_from_spec(spec)
sys.modules["fuzz_checkpoints"] = fuzzer  # dataclasses look their module up
spec.loader.exec_module(fuzzer)


@pytest.mark.parametrize("name", sorted(fuzzer.READERS))
def test_the_seeds_are_models_that_can_be_read(name, tmp_path):
    for model in fuzzer.READERS[name].seeds():
        checkpoint = fuzzer.READERS[name].read(fuzzer.write(model, tmp_path))
        assert checkpoint.shape is not None or not checkpoint.parameters, checkpoint.shape_unknown


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", sorted(fuzzer.READERS))
def test_damaged_models_are_refused_or_read_and_never_crash_hang_or_fill_the_memory(name, seed, tmp_path):
    tally = fuzzer.fuzz(fuzzer.READERS[name], 1000, seed, tmp_path)
    assert not tally.broken
    assert tally.kinds["refused"] > 100 and tally.kinds["read"] > 100


def crash(path: Path):
    raise KeyError("block_count")


def hang(path: Path):
    time.sleep(5)


def fill(path: Path):
    bytearray(fuzzer.MOST_BYTES + 2**20)
    raise InputError("too large; use another")


def babble(path: Path):
    raise InputError("two\nlines")


@pytest.mark.parametrize(("read", "broken"), [
    (crash, "KeyError"), (hang, "took more than 1.0 s"), (fill, "took 17.0 MiB"), (babble, "no printable line"),
])  # fmt: skip
def test_the_fuzzer_sees_what_it_looks_for_and_leaves_the_input(read, broken, tmp_path):
    form = fuzzer.Format("broken", fuzzer.gguf_seeds, read)
    tally = fuzzer.fuzz(form, 10, 3, tmp_path)
    assert broken in tally.broken and tally.broken.startswith("input 0 of seed 3")
    assert list(tmp_path.iterdir())


def test_the_same_seed_makes_the_same_inputs():
    models = fuzzer.gguf_seeds()
    one, other = ([fuzzer.mutant(random.Random(seed), models) for _ in range(2)] for seed in (5, 5))
    assert one == other


def test_every_change_breaks_some_models_and_all_but_shortening_leave_some_readable(tmp_path):
    models, rng = fuzzer.gguf_seeds(), random.Random(4)
    for change in dict.fromkeys(fuzzer.CHANGES):
        outcomes: Counter[bool] = Counter()
        for _ in range(60):
            model = rng.choice(models)
            name = rng.choice(sorted(model.files))
            content = bytearray(model.files[name])
            change(rng, content, models)
            path = fuzzer.write(fuzzer.Model({**model.files, name: bytes(content)}, model.given), tmp_path)
            try:
                outcomes[bool(read_gguf(path))] += 1
            except InputError:
                outcomes[False] += 1
        assert outcomes[False] and (outcomes[True] or change in (fuzzer.cut, fuzzer.drop)), change.__name__

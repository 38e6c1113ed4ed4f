"""benchmarks/sweep.py on a simulated machine: resumed where it stopped, and right about what it saw."""

import importlib.util
import itertools
import sys
from pathlib import Path

import pytest

from specgauge import cli
from specgauge.calibrate.records import Recommendation
from specgauge.profiler.errors import InputError
from specgauge.profiler.files import read_record, record_digest
from specgauge.profiler.job import Options, reopen
from specgauge.profiler.records import Profile

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "sweep.py"
_spec = importlib.util.spec_from_file_location("sweep", SCRIPT)
assert _spec is not None and _spec.loader is not None
sweep = importlib.util.module_from_spec(_spec)
sys.modules["sweep"] = sweep  # msgspec looks its types up there
_spec.loader.exec_module(sweep)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep") / "out"
    assert cli.main(["profile", "--engine", "fake:interior-tie", "--out", str(folder)]) == 0
    assert cli.main(["recommend", "--out", str(folder)]) == 0
    return folder


def run(out: Path, store: Path, blocks: int | None = None) -> None:
    """Sweep two repeats, at most `blocks` of them."""
    profile = read_record(out / "profile.json", Profile)
    job = reopen(profile, Options(), out / "logs")
    with pytest.MonkeyPatch.context() as patch:
        every = sweep.missing_blocks
        patch.setattr(sweep, "missing_blocks", lambda *words: itertools.islice(every(*words), blocks))
        sweep.sweep(job, profile, store, 2, job.engine.clock)  # pyright: ignore[reportAttributeAccessIssue]


def test_a_sweep_goes_on_where_it_stopped_and_knows_the_regret(out: Path, tmp_path: Path):
    store, profile = tmp_path / "sweep.jsonl", read_record(out / "profile.json", Profile)
    digest, settings = record_digest(profile), sweep.settings_of(profile)
    run(out, store, blocks=2)
    first = sweep.stored(store, digest)
    assert 0 < len(first) < len(settings)
    store.write_bytes(store.read_bytes() + b'{"profile_sha256": "cut o')
    store.write_bytes(store.read_bytes() + b"\n")
    run(out, store)
    passes = sweep.stored(store, digest)
    assert passes[: len(first)] == first
    assert {(one.repeat, one.run.setting) for one in passes} == set(itertools.product((0, 1), settings))
    assert len(passes) == 2 * len(settings)

    recommendation = read_record(out / "recommendation.json", Recommendation)
    lines = sweep.table(profile, recommendation, passes)
    names = [advice.workload for advice in recommendation.workloads]
    assert [line.split(":")[0] for line in lines[: 3 * len(names)]] == [name for name in names for _ in range(3)]
    regrets = [float(line.split("regret ")[1].split("%")[0]) for line in lines if "regret" in line]
    assert len(regrets) == len(names) and max(regrets) < 5


def test_a_sweep_of_another_profile_is_not_mixed_in(out: Path, tmp_path: Path):
    store = tmp_path / "sweep.jsonl"
    run(out, store, blocks=1)
    with pytest.raises(InputError, match="another profile"):
        sweep.stored(store, "0" * 64)

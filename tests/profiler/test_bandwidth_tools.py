"""What the tools that bandwidth is compared with print, read in our byte convention."""

import importlib.util
from pathlib import Path

import pytest

MBW = """0\tMethod: MEMCPY\tElapsed: 0.02000\tMiB: 256.00000\tCopy: 12800.000 MiB/s
1\tMethod: MEMCPY\tElapsed: 0.02560\tMiB: 256.00000\tCopy: 10000.000 MiB/s
2\tMethod: MEMCPY\tElapsed: 0.01280\tMiB: 256.00000\tCopy: 20000.000 MiB/s
AVG\tMethod: MEMCPY\tElapsed: 0.01947\tMiB: 256.00000\tCopy: 13150.685 MiB/s
"""
SYSBENCH = "Total operations: 210 (104.83 per second)\n\n53760.00 MiB transferred (26836.20 MiB/sec)\n"
LIKWID = "Data volume (Byte):\t32768000000\nMByte/s:\t\t26841.67\nCycles per update:\t1.083748\n"


@pytest.fixture(scope="module")
def tools():
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "bandwidth.py"
    spec = importlib.util.spec_from_file_location("bandwidth_benchmark", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_copies_are_counted_read_and_written(tools):
    assert tools.mbw_bytes(MBW) == 12800 * 2**20 * 2


def test_reads_of_both_tools_are_bytes_a_second(tools):
    assert tools.sysbench_bytes(SYSBENCH) == pytest.approx(26836.2 * 2**20)
    assert tools.likwid_bytes(LIKWID) == pytest.approx(26.84167e9)


def test_without_a_tool_it_says_what_to_install(tools, monkeypatch, capsys):
    monkeypatch.setattr(tools.shutil, "which", lambda name: None)
    assert tools.main([]) == 2 and "apt-get install" in capsys.readouterr().err


@pytest.mark.parametrize(("theirs", "code"), [(30e9, 0), (26e9, 0), (25e9, 1), (36e9, 1)])
def test_pairs_more_than_15_percent_apart_fail(tools, monkeypatch, capsys, theirs, code):
    taken: list[str] = []
    pair = tools.Pair(
        "read", "tool", lambda threads: taken.append("ours") or 29.5e9, lambda threads: taken.append("theirs") or theirs
    )
    monkeypatch.setattr(tools, "PAIRS", (pair,))
    monkeypatch.setattr(tools.shutil, "which", str)
    monkeypatch.setattr(tools, "quiet", lambda: True)
    assert tools.main(["1"]) == code
    assert ("TOO FAR APART" in capsys.readouterr().out) is bool(code)
    assert taken[:4] == ["ours", "theirs", "theirs", "ours"] and len(taken) == 10

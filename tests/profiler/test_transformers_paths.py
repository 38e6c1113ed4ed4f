"""Paths are tried before they are believed; a kernel that fell to scalar code is named."""

import pytest

pytest.importorskip("transformers")

import torch
from torch import nn

from specgauge.profiler.engines.transformers import paths
from specgauge.profiler.engines.transformers.linears import Int4Linear
from specgauge.profiler.engines.transformers.paths import PathTimes, WeightPath, choose, path_of, scalar_fallback

SHAPE = (512, 512)


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


class OffBy(nn.Module):
    """A kernel whose products are wrong."""

    def __init__(self, weight, bias):
        super().__init__()
        self.weight = weight * 1.5

    def forward(self, x):
        return x @ self.weight.t().to(x.dtype)


class ScalarInt4(Int4Linear):
    """The int4 kernel with fp32 activations, which torch runs on scalar code."""

    def forward(self, x):
        rows = x.reshape(-1, self.in_features).float()
        return torch.ops.aten._weight_int4pack_mm_for_cpu(rows, self.packed, self.group, self.scales.float())


def broken(weight, bias):
    raise ImportError("no module named 'somewhere'\nand more lines")


@pytest.mark.parametrize("quant", ["fp32", "bf16", "int8", "w8a8", "int4"])
def test_the_paths_of_torch_work_here(quant):
    assert paths.unusable(path_of(quant), "cpu") == ""


def test_a_path_that_raises_or_is_wrong_is_refused_in_one_line():
    assert paths.unusable(WeightPath("x", "int4", broken), "cpu") == "ImportError: no module named 'somewhere'"
    assert paths.unusable(WeightPath("x", "int8", OffBy), "cpu") == "its products are off by 50%"


def test_times_are_raw_and_of_every_row_count():
    found = paths.time_paths([path_of("bf16"), path_of("int4")], "cpu", (64, 128), rows=(1, 3), repeats=4)
    assert [one.path for one in found] == ["bf16", "aten-int4"]
    assert all(len(one.seconds) == 2 and all(len(s) == 4 and min(s) > 0 for s in one.seconds) for one in found)


def test_a_real_scalar_fallback_is_named():
    scalar = WeightPath("scalar int4", "int4", ScalarInt4, torch.float32)
    assert paths.unusable(scalar, "cpu") == "", "it is right, and slow"
    bf16, slow, fast = paths.time_paths([path_of("bf16"), scalar, path_of("int4")], "cpu", SHAPE, rows=(1,), repeats=3)
    assert "scalar code" in scalar_fallback(slow, bf16)
    assert scalar_fallback(fast, bf16) == ""


def times(name: str, quant: str, *seconds: float) -> PathTimes:
    return PathTimes(name, quant, SHAPE, paths.ROWS, tuple((s,) * 3 for s in seconds))


def chosen(monkeypatch, int4, nf4, bf16=(1.0,) * 4, unusable=()):
    told = {"bf16": times("bf16", "bf16", *bf16), "int4": times("aten-int4", "int4", *int4)}
    told["nf4"] = times("bitsandbytes-nf4", "nf4", *nf4)
    monkeypatch.setattr(paths, "time_paths", lambda asked, *rest: tuple(told[path.quant] for path in asked))
    monkeypatch.setattr(paths, "unusable", lambda path, device: "not here" if path.quant in unusable else "")
    return choose("int4", "cpu", SHAPE)


def test_the_first_path_stays_unless_another_is_clearly_faster(monkeypatch):
    assert chosen(monkeypatch, (1.0,) * 4, (0.95,) * 4).quant == "int4"
    assert chosen(monkeypatch, (1.0,) * 4, (0.8,) * 4).quant == "nf4"
    assert "bitsandbytes-nf4 is used" in chosen(monkeypatch, (1.0,) * 4, (0.8,) * 4).sentence


def test_a_path_that_is_not_here_or_runs_on_scalar_code_is_not_taken(monkeypatch):
    missing = chosen(monkeypatch, (1.0,) * 4, (0.1,) * 4, unusable=("nf4",))
    assert (missing.quant, missing.rejected) == ("int4", {"bitsandbytes-nf4": "not here"})
    slow = chosen(monkeypatch, (30.0,) * 4, (0.9,) * 4)
    assert slow.quant == "nf4"
    assert "30 times as long as bf16" in slow.rejected["aten-int4"]

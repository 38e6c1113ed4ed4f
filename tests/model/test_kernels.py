"""Unequal kernels: the bargain of an RTX 3090, the trap of an A100, and silence where noise is as large."""

import csv
from pathlib import Path

import numpy as np
import pytest

from specgauge.model.kernels import KernelSwitch, kernel_switches

DATA = Path(__file__).resolve().parents[1] / "data" / "rtx3090-mtp-ladder.csv"


def ladder() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draft tokens, tokens a round and seconds a round of the public ladder: eight rows."""
    with open(DATA) as file:
        rows = list(csv.DictReader(file))
    lengths, tokens, speeds = (
        np.array([float(row[name]) for row in rows]) for name in ("draft_tokens", "tokens_per_round", "spec_tps")
    )
    return lengths.astype(int), tokens, tokens / speeds


def scattered(seconds: np.ndarray, log_sd: float, count: int = 400) -> np.ndarray:
    """The point estimate and its replicates (1 + count, L)."""
    noise = np.random.default_rng(3).normal(0, log_sd, (count, seconds.size))
    return np.vstack([seconds, seconds * np.exp(noise)])


def found(seconds: np.ndarray, log_sd: float, tokens: np.ndarray, doubtful: tuple[int, ...] = ()) -> list[KernelSwitch]:
    lengths = np.arange(1, seconds.size + 1)
    return list(kernel_switches(lengths, scattered(seconds, log_sd), tokens, np.isin(lengths, doubtful)))


def test_on_an_rtx_3090_nine_tokens_cost_less_than_eight():
    lengths, tokens, seconds = ladder()
    assert lengths.tolist() == list(range(1, 9))
    [switch] = found(seconds, 0.003, tokens)
    assert (switch.draft_tokens, switch.width, switch.cheaper) == (8, 9, True)
    assert switch.over_line == pytest.approx(-0.26, abs=0.005)
    assert switch.over_before == pytest.approx(seconds[7] / seconds[6] - 1)
    assert (switch.take, switch.never) == (8, (5, 6, 7))


def test_only_what_is_beyond_noise_is_said():
    _, tokens, seconds = ladder()
    assert found(seconds, 0.03, tokens)[0].never == (6, 7)
    assert found(seconds, 0.2, tokens) == []
    assert kernel_switches(np.arange(1, 9), seconds[None], tokens, np.zeros(8, bool)) == ()


def test_a_jump_is_a_trap_as_far_as_longer_drafts_stay_behind():
    seconds = 1e-3 * np.array([31.0, 33, 35, 37, 39, 41, 43, 83, 84, 85])
    tokens = 1 + np.cumsum(0.9 ** np.arange(1, 11))
    [switch] = found(seconds, 0.003, tokens)
    assert (switch.draft_tokens, switch.cheaper, switch.take, switch.never) == (8, False, 7, (8, 9, 10))
    assert found(seconds, 0.003, 2.0 ** np.arange(1, 11)) == []


def test_one_kernel_or_doubtful_costs_give_no_advice():
    _, tokens, seconds = ladder()
    assert found(20e-3 + 2e-3 * np.arange(8), 0.003, tokens) == []
    assert found(seconds, 0.003, tokens, doubtful=(8,)) == []
    assert found(seconds, 0.003, tokens, doubtful=(7,)) == []

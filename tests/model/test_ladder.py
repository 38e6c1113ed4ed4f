"""Ladders of public measurements: rows that were left out come back."""

import csv
from pathlib import Path

import numpy as np
import pytest

from specgauge.model.ladder import Ladder

DATA = Path(__file__).resolve().parents[1] / "data"


def rows(name: str) -> Ladder:
    """Every row of a file of tests/data (sources in its README)."""
    with open(DATA / f"{name}.csv") as file:
        found = list(csv.DictReader(file))
    numbers = {key: np.array([float(row[key]) for row in found]) for key in ("tokens_per_round", "spec_tps")}
    baseline = np.array([float(row["baseline_tps"]) for row in found])
    lengths = np.array([int(row["draft_tokens"]) for row in found])
    return Ladder(lengths, numbers["tokens_per_round"], numbers["spec_tps"] / baseline)


def blind(name: str, *anchors: int) -> tuple[np.ndarray, np.ndarray]:
    """Errors of speed (fractions) at the rows that are no anchors, and whether each is in its interval."""
    all_rows = rows(name)
    kept = np.isin(all_rows.draft_tokens, anchors)
    ladder = Ladder(*(getattr(all_rows, f)[kept] for f in ("draft_tokens", "tokens_per_round", "speed_up")))
    found = ladder.forecast(all_rows.draft_tokens[~kept])
    truth = all_rows.speed_up[~kept]
    return found.speed_up / truth - 1, (found.low <= truth) & (truth <= found.high)


def test_rows_of_the_3090_ladder_come_back_blind():
    """From 1, 3, 7 and 8 draft tokens; straight lines are off by 2.0 % on average and 3.0 % at worst."""
    errors, inside = blind("rtx3090-mtp-ladder", 1, 3, 7, 8)
    assert np.abs(errors).mean() <= 0.012
    assert np.abs(errors).max() <= 0.02
    assert inside.all()


@pytest.mark.parametrize(
    "name, anchors",
    [
        ("rtx3090-mtp-ladder", (1, 7, 8)),
        ("community-5090-400w", (1, 6)),
        ("community-3090-250w", (2, 4)),
        ("community-m3ultra", (2, 4)),
        ("community-3060-moe", (1, 4)),
    ],
)
def test_from_the_shallowest_and_the_deepest_row_all_others_are_inside_their_intervals(name, anchors):
    errors, inside = blind(name, *anchors)
    assert np.abs(errors).max() <= 0.04 and inside.all()


def test_the_kernel_switch_of_the_3090_is_kept_and_not_smoothed():
    """Eight draft tokens cost less than six: the ninth column takes another kernel."""
    ladder = rows("rtx3090-mtp-ladder")
    found = ladder.forecast(np.arange(0, 9))
    assert found.round_steps[8] < found.round_steps[6] < found.round_steps[7]
    assert found.speed_up == pytest.approx(np.concatenate([[1.0], ladder.speed_up]), rel=0.002)
    assert set(found.provenance) == {"measured"}


def test_across_a_switch_a_ladder_asks_for_the_length():
    ladder = rows("rtx3090-mtp-ladder")
    kept = np.isin(ladder.draft_tokens, (1, 3, 8))
    found = Ladder(ladder.draft_tokens[kept], ladder.tokens_per_round[kept], ladder.speed_up[kept]).forecast(
        np.array([2, 7])
    )
    assert found.provenance.tolist() == ["interpolated", "prior"]
    assert found.remedy == "measure 7 draft tokens"
    assert found.low[1] < ladder.speed_up[6] < found.high[1]


def test_a_hidden_step_between_anchors_widens_the_interval_and_is_asked_for():
    """A100, 34B Q8_0 (ggml-org/llama.cpp pull request 5625): 49.8 ms for 8 tokens, 112.0 for 9; nothing said of a switch."""
    milliseconds = np.array([28.8, 30.9, 32.3, 37.0, 37.0, 44.5, 46.4, 49.8, 112.0, 112.1, 112.7])
    tokens = 1 + np.cumsum(0.8 ** np.arange(1, 11))
    anchors = np.array([1, 3, 5, 10])
    speed_up = tokens / (milliseconds[1:] / milliseconds[0])
    found = Ladder(anchors, tokens[anchors - 1], speed_up[anchors - 1], switches=()).forecast(np.array([7, 8]))
    assert found.provenance.tolist() == ["prior", "prior"]
    assert found.remedy == "measure 7 and 8 draft tokens"
    assert (found.low < speed_up[[6, 7]]).all() and (speed_up[[6, 7]] < found.high).all()


@pytest.mark.parametrize(
    "tokens, speed, lengths, message",
    [
        ([0.9, 2.0], [1.1, 1.2], [1, 2], "bonus"),
        ([2.5, 2.6], [1.1, 1.2], [1, 2], "bonus"),
        ([1.5, 2.0], [0.0, 1.2], [1, 2], "positive"),
        ([1.5, 2.0], [1.1, 1.2], [2, 1], "rise"),
        ([1.5], [1.1, 1.2], [1, 2], "as many"),
    ],
)
def test_rows_that_cannot_be_are_refused(tokens, speed, lengths, message):
    with pytest.raises(ValueError, match=message):
        Ladder(np.array(lengths), np.array(tokens), np.array(speed))

"""The sliders: the page's script computes what the model does, and the figure starts from the forecasts."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from specgauge.calibrate.what_if import model_of, prices_of
from specgauge.calibrate.what_if_records import WhatIfRecord, WorkloadWhatIf
from specgauge.model.cost import Overhead, RoundCost, RoundOfParts, WholeRounds
from specgauge.model.steps import StepTable
from specgauge.profiler.records import Setting
from specgauge.reports.figures import what_if as figure
from specgauge.reports.figures.what_if import what_if

from .samples import Sample, sample
from .test_page import HOSTILE

SCRIPT = Path(figure.__file__).parents[1] / "templates" / "what_if.js"
FIRSTS = (0.0, 0.04, 0.37, 0.62, 0.93, 1.0)
CONTEXTS = (0.0, 60.0, 128.0, 256.0, 701.5, 1024.0, 1900.0, 9000.0)
TOLERANCE = 1e-6

WIDTHS, KNOWN = np.arange(1, 10), np.array([100.0, 700.0, 2000.0])
TARGET = StepTable(WIDTHS, KNOWN, 20e-3 + 1e-3 * (WIDTHS - 1) + np.array([[0.0], [2e-3], [1e-3]]))
DRAFT = StepTable(WIDTHS, KNOWN, 2e-3 + 1e-4 * (WIDTHS - 1) + np.array([[0.0], [5e-4], [9e-4]]))
EXTRA = Overhead(np.array([4e-4]), np.array([1e-4]))
COSTS = {
    "a draft model's server": RoundOfParts(("draft", "verification", "draft_batch", "overhead"), TARGET, DRAFT, EXTRA),
    "in process": RoundOfParts(
        ("draft_catch_up", "draft_further", "verification", "overhead"), TARGET, DRAFT, EXTRA, np.array([1.1, 0.9, 1.2])
    ),
    "n-grams": RoundOfParts(("verification", "overhead"), TARGET, None, EXTRA),
    "measured whole": WholeRounds(
        TARGET, np.arange(1, 9), KNOWN[:2], 1 + 0.2 * np.arange(1, 9) + np.array([[0.0], [0.3]])
    ),
    "one context": WholeRounds(
        StepTable(WIDTHS[:1], KNOWN[:1], TARGET.seconds[:1, :1]),
        np.arange(1, 9),
        KNOWN[:1],
        np.linspace(1.2, 2.5, 8)[None],
    ),
}


def record(cost: RoundCost, lengths: tuple[int, ...] = (1, 2, 3, 5, 8)) -> WhatIfRecord:
    """A record with every field away from its trivial value."""
    count = len(lengths) + 1
    workload = WorkloadWhatIf(
        workload="w",
        context=256.0,
        hazard=(0.62, 0.7, 0.75, 0.79, 0.81, 0.4, 0.9, 0.88),
        offered=(0.0, *np.linspace(0.95, 0.4, count - 1).tolist()),
        reply_factor=1.07,
        anchor=tuple(np.linspace(1.0, 1.4, count).tolist()),
        scale=0.98,
        tokens_per_second=(50.0,) * count,
        doubtful=(False,) * count,
    )
    setting = Setting(target="t", target_quant="", drafter="model", draft="d", draft_tokens=lengths[-1])
    with_replicates = _replicated(cost)
    return WhatIfRecord(
        setting=setting,
        prices=prices_of(with_replicates, lengths),
        workloads=(workload,),
        trusted_context=3000.0,
        known_contexts=(100.0, 700.0, 2000.0),
    )


def _replicated(cost: RoundCost) -> RoundCost:
    """With the leading axis that calibrated costs have."""
    if isinstance(cost, WholeRounds):
        return WholeRounds(cost.target, cost.lengths, cost.contexts, cost.ratio[None], cost.correction)
    return cost


def expected(one: WhatIfRecord, workload: WorkloadWhatIf) -> list[dict[str, Any]]:
    """Speeds and break-evens over the grid, by the model."""
    model = model_of(one, workload)
    return [
        {
            "speeds": model.tokens_per_second(first, context).tolist(),
            "even": [model.break_even(place, context) for place in range(1, model.draft_tokens.size)],
        }
        for first in FIRSTS
        for context in CONTEXTS
    ]


GRID = """
(lib, drafter, workload, firsts, contexts) => firsts.flatMap((first) => contexts.map((context) => ({
  speeds: lib.speeds(drafter, workload, first, context),
  even: lib.lengthsOf(drafter).slice(1).map((g, i) => lib.breakEven(drafter, workload, i + 1, context)) })))
"""


def agree(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    """Equal to TOLERANCE, relative; a break-even of 0 or nowhere exactly."""
    assert len(found) == len(wanted) == len(FIRSTS) * len(CONTEXTS)
    for one, other in zip(found, wanted, strict=True):
        assert one["speeds"] == pytest.approx(other["speeds"], rel=TOLERANCE)
        assert min(one["speeds"]) > 0
        for even, own in zip(one["even"], other["even"], strict=True):
            assert (even is None) == (own is None)
            assert own is None or even == pytest.approx(own, rel=TOLERANCE, abs=1e-12)


@pytest.mark.parametrize("name", COSTS)
def test_the_script_computes_what_the_model_does(name: str):
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node here: the browser's test holds the same script against the model")
    one = record(COSTS[name])
    given = json.dumps([msgspec.to_builtins(one), msgspec.to_builtins(one.workloads[0]), FIRSTS, CONTEXTS])
    program = (
        f"const lib = require({json.dumps(str(SCRIPT))}); const grid = {GRID.strip()};"
        "console.log(JSON.stringify(grid(lib, ...JSON.parse(require('fs').readFileSync(0, 'utf8')))));"
    )
    done = subprocess.run([node, "-e", program], input=given, capture_output=True, text=True, timeout=60, check=True)
    agree(json.loads(done.stdout), expected(one, one.workloads[0]))


def test_the_curve_starts_from_the_forecasts_with_their_intervals(demo: Sample):
    section = what_if(demo.recommendation)
    [panel] = section.panels
    drawn = json.loads(panel.figure_json)["data"]
    band, rest, plain, sliders, chosen, best = drawn
    first = demo.recommendation.workloads[0].workload
    drafting = [f for f in demo.recommendation.candidates if f.workload == first and f.setting.draft_tokens]
    fastest = max(drafting, key=lambda f: f.tokens_per_second.value).setting
    mine = {
        f.setting.draft_tokens: f
        for f in drafting
        if (f.setting.target, f.setting.drafter) == (fastest.target, fastest.drafter)
    }
    assert rest["y"][1:] == sliders["y"][1:] == [mine[int(n)].tokens_per_second.value for n in rest["x"][1:]]
    assert band["y"] == [
        *(mine[n].tokens_per_second.high for n in sorted(mine)),
        *(mine[n].tokens_per_second.low for n in sorted(mine, reverse=True)),
    ]
    assert plain["y"] == [rest["y"][0]] * 2 and best["y"] == [max(rest["y"])]
    assert chosen["y"] == [max(rest["y"][1:])]
    assert "%" in section.finding and "plain" in section.finding


def test_the_page_is_given_every_drafter_and_workload_and_no_path(demo: Sample):
    part = what_if(demo.recommendation).part
    assert part is not None and part.name == "what_if"
    data = json.loads(part.data_json)
    assert len(data["drafters"]) == len(demo.recommendation.what_if)
    assert [w["workload"] for w in data["drafters"][0]["workloads"]] == ["ordinary", "copying"]
    assert {d["takes_survival"] for d in data["drafters"]} == {True, False}
    assert "setting" not in data["drafters"][0] and ".gguf" not in part.data_json
    assert len(part.notes) == 2 and all("take 8 draft tokens" in note for note in part.notes)


def test_the_table_holds_break_even_and_ceiling_of_every_length(demo: Sample):
    table = what_if(demo.recommendation).table
    assert table is not None
    lengths = sum(len(r.prices.draft_tokens) * len(r.workloads) for r in demo.recommendation.what_if)
    assert len(table.rows) == lengths
    assert {row[6] for row in table.rows} & {"never"} or all("%" in row[6] for row in table.rows)


def test_old_recommendations_say_what_fills_it(demo: Sample):
    old = msgspec.structs.replace(demo.recommendation, what_if=())
    assert "specgauge recommend" in what_if(old).missing


def test_hostile_names_stay_data():
    hostile = sample(name=HOSTILE, workload=HOSTILE)
    part = what_if(hostile.recommendation).part
    assert part is not None and "<" not in part.data_json and "&" not in part.data_json
    assert len(part.data_json) < 200_000
    names = [d["name"] for d in json.loads(part.data_json)["drafters"]]
    assert all(len(name) < 100 for name in names)

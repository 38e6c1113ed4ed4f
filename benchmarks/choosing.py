"""Does the profile choose as well as a sweep, and what does it cost? python benchmarks/choosing.py --problems 200

Random simulated machines of known truth, 60 settings each (three targets, two drafts at six lengths, n-grams at seven, plain). Each is
profiled, calibrated and asked for a recommendation. Regret is 1 - true speed of the choice / true speed of the best setting, on the
workload where that is worst; cost is what the profile took over what a sweep of every setting takes (start, ten warm-ups and three
repeats of each), both by the simulated clock. Beside it, at the cost that each profile had: random search, and a rule of two anchors.
"""

import argparse
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from specgauge.calibrate.fit import calibrate
from specgauge.calibrate.plan import next_requests
from specgauge.calibrate.recommend import recommend
from specgauge.profiler.engines.fake import START_SECONDS, WARM_UP_SECONDS, FakeEngine, demo
from specgauge.profiler.engines.fake_machine import (
    Agreement,
    Copying,
    FakeMachine,
    FakeModel,
    FakeWorkload,
    Segment,
    StepCurve,
    prompt_tokens,
)
from specgauge.profiler.records import Profile, Setting
from specgauge.profiler.session import Session
from specgauge.reports.commands import chosen_setting

REPEATS = 3
PREFILL_SHARE = 0.05
"""Of a plain step, for each token of a prompt: as the fake engine has it."""


@dataclass(frozen=True)
class Outcome:
    """One problem: regrets at equal cost, and the cost as a share of the sweep's."""

    regret: float
    cost: float
    random_search: float
    two_anchors: float
    speculates: bool


def random_machine(number: int) -> FakeMachine:
    """A machine drawn from what cards and processors are like: from flat verification to linear, with and without switches."""
    dice = random.Random(f"machine {number}")
    plain = 10 ** dice.uniform(-2.3, -1.3)
    flat = dice.choice((0.01, 0.03, 0.1, 0.3, 0.7))
    sizes = (("q4", 1.0), ("q6", dice.uniform(1.15, 1.6)), ("q8", dice.uniform(1.5, 2.2)))
    targets = tuple(
        FakeModel(f"target-{quant}", quant, int(15e9 * size), int(27e9), _curve(dice, plain * size, flat))
        for quant, size in sizes
    )
    share = dice.uniform(0.03, 0.35)
    drafts = tuple(
        FakeModel(f"draft-{quant}", quant, int(4e8 * size), int(6e8), _curve(dice, plain * share * size, 0.05), agrees)
        for quant, size, agrees in (("q4", 1.0, dice.uniform(0.8, 1.0)), ("q8", dice.uniform(1.2, 1.9), 1.0))
    )
    return FakeMachine(
        name=f"random-{number}",
        targets=targets,
        draft=drafts[0],
        more_drafts=drafts[1:],
        workloads=(
            _workload(dice, "ordinary", "prose", (60, 128), dice.uniform(1.0, 6.0), dice.uniform(0.4, 4.0), 60.0, 6.0),
            _workload(
                dice, "copying", "copying", (300, 480), dice.uniform(4.0, 18.0), 1.0, 10.0, dice.uniform(6.0, 40.0)
            ),
        ),
        overhead_seconds=plain * dice.uniform(0.0, 0.05),
        overhead_per_token_seconds=plain * dice.uniform(0.0, 0.01),
        ngram_overhead_seconds=plain * dice.uniform(0.0, 0.03),
        batch_reads_low_seconds=plain * dice.uniform(0.0, 0.02),
        forced_acceptance=dice.random() < 0.5,
        model_lengths=(1, 2, 3, 4, 6, 8),
    )


def _curve(dice: random.Random, base: float, slope: float) -> StepCurve:
    """A line over width, in half of all cases with a switch after 8, cheaper or dearer."""
    first = Segment(1, base * (1 - slope), base * slope)
    if dice.random() < 0.5:
        return StepCurve((first,), base * 1e-4)
    at_nine = (first.base_seconds + 9 * first.per_token_seconds) * dice.uniform(0.7, 1.8)
    return StepCurve((first, Segment(9, max(at_nine * 0.9, base), at_nine * 0.1 / 9)), base * 1e-4)


def _workload(
    dice: random.Random,
    name: str,
    kind: str,
    prompt: tuple[int, int],
    alpha: float,
    beta: float,
    new: float,
    copied: float,
) -> FakeWorkload:
    agreement = Agreement(alpha, beta, dice.uniform(6.0, 20.0))
    return FakeWorkload(name, kind, prompt, agreement, Copying(new, copied, dice.uniform(0.0, 0.06)))


def solved(machine: FakeMachine, seed: int) -> Outcome:
    """Profile, calibrate, recommend; then the truth."""
    profile = profiled(machine, seed)
    calibrated = calibrate(profile, seed=seed)
    advice = recommend(
        profile, calibrated, profile_sha256="", calibration_sha256="", created="", tool_version="", command=""
    )
    speeds = {
        workload.name: {setting: machine.true_speed(setting, workload.name) for setting in machine.settings()}
        for workload in machine.workloads
    }
    chosen = {item.workload: chosen_setting(profile, item.chosen) for item in advice.workloads}
    sweep = {setting: _sweep_seconds(machine, setting) for setting in machine.settings()}
    budget = profile.profile_seconds
    dice = random.Random(f"{machine.name}|{seed}|search")
    return Outcome(
        regret=_worst(speeds, chosen),
        cost=budget / sum(sweep.values()),
        random_search=_worst(speeds, _random_search(dice, machine, speeds, sweep, budget)),
        two_anchors=_worst(speeds, _two_anchors(dice, machine, speeds, sweep, budget)),
        speculates=any(setting.draft_tokens for setting in chosen.values()),
    )


def profiled(machine: FakeMachine, seed: int) -> Profile:
    """The complete profile, by the plan."""
    profile, prompts, _ = demo(machine, seed)
    engine = FakeEngine(machine, seed)
    with tempfile.TemporaryDirectory() as folder:
        session = Session(engine, profile, Path(folder) / "profile.json", prompts)
        plan = next_requests(session.profile)
        while plan.requests:
            session.perform(plan.requests)
            plan = next_requests(session.profile)
        return session.finish(plan.dropped)


def _sweep_seconds(machine: FakeMachine, setting: Setting) -> float:
    """Start, warm-up and REPEATS passes over all prompts of one setting."""
    once = 0.0
    plain = machine.model(setting.target).curve.seconds(1, 0)
    for prompt in machine.prompts():
        tokens = prompt_tokens(prompt.text)
        rounds = machine.rounds(setting, prompt.prompt, tokens)
        once += sum(machine.round_seconds(setting, r.drafted, r.context) for r in rounds)
        once += plain * (1 + PREFILL_SHARE * tokens)
    return START_SECONDS + WARM_UP_SECONDS + REPEATS * once


def _worst(speeds: dict[str, dict[Setting, float]], chosen: dict[str, Setting]) -> float:
    return max(1 - speeds[workload][setting] / max(speeds[workload].values()) for workload, setting in chosen.items())


def _measured(dice: random.Random, machine: FakeMachine, speed: float) -> float:
    """The median of REPEATS noisy readings of a pass."""
    return speed * statistics.median(np.exp(dice.gauss(0, machine.noise + machine.drift / 2)) for _ in range(REPEATS))


def _best_of(
    dice: random.Random, machine: FakeMachine, speeds: dict[str, dict[Setting, float]], ran: list[Setting]
) -> dict[str, Setting]:
    return {
        workload: max(ran, key=lambda setting: _measured(dice, machine, found[setting]))
        for workload, found in speeds.items()
    }


def _random_search(
    dice: random.Random,
    machine: FakeMachine,
    speeds: dict[str, dict[Setting, float]],
    sweep: dict[Setting, float],
    budget: float,
) -> dict[str, Setting]:
    """Plain decoding of the smallest target, then settings at random until the budget is used up."""
    ran, spent = [], 0.0
    others = list(sweep)
    dice.shuffle(others)
    first = next(setting for setting in sweep if not setting.draft_tokens)
    for setting in (first, *(other for other in others if other != first)):
        if ran and spent + sweep[setting] > budget:
            break
        ran.append(setting)
        spent += sweep[setting]
    return _best_of(dice, machine, speeds, ran)


def _two_anchors(
    dice: random.Random,
    machine: FakeMachine,
    speeds: dict[str, dict[Setting, float]],
    sweep: dict[Setting, float],
    budget: float,
) -> dict[str, Setting]:
    """Plain decoding of the smallest target, then each drafter of it at its shortest and longest length: the better end is taken."""
    smallest = machine.targets[0].label
    mine = [setting for setting in sweep if setting.target == smallest]
    ran = [next(setting for setting in mine if not setting.draft_tokens)]
    spent = sweep[ran[0]]
    drafters = dict.fromkeys((s.drafter, s.draft) for s in mine if s.draft_tokens)
    for drafter in drafters:
        own = [setting for setting in mine if (setting.drafter, setting.draft) == drafter and setting.draft_tokens]
        for setting in (own[0], own[-1]):
            if spent + sweep[setting] <= budget:
                ran.append(setting)
                spent += sweep[setting]
    return _best_of(dice, machine, speeds, ran)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--verbose", action="store_true")
    asked = parser.parse_args()
    began, outcomes = time.monotonic(), []
    for number in range(asked.first, asked.first + asked.problems):
        machine = random_machine(number)
        outcomes.append(solved(machine, seed=number))
        if asked.verbose:
            print(number, len(machine.settings()), outcomes[-1], flush=True)
    for name in ("regret", "random_search", "two_anchors", "cost"):
        values = np.array([getattr(outcome, name) for outcome in outcomes])
        middle, high = 100 * np.median(values), 100 * np.quantile(values, 0.95)
        print(f"{name:14} median {middle:6.2f} %, 95th percentile {high:6.2f} %, worst {100 * values.max():6.2f} %")
    print(f"{sum(o.speculates for o in outcomes)} of {len(outcomes)} speculate; {time.monotonic() - began:.0f} s")
    regret = np.array([outcome.regret for outcome in outcomes])
    cost = np.median([outcome.cost for outcome in outcomes])
    return int(np.median(regret) > 0 or np.quantile(regret, 0.95) > 0.02 or cost > 0.12)


if __name__ == "__main__":
    sys.exit(main())

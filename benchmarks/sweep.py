"""The full sweep that a profile replaces, run once for the truth: python benchmarks/sweep.py OUT [--repeats 3] [--table]

OUT is the output folder of `specgauge run` (or `profile` and `recommend`). Every candidate setting of its profile is run over
its prompts, `--repeats` times, in another order each time and a few settings side by side; each pass over the prompts is kept
in OUT/sweep.jsonl as it ends, so that the same command goes on where it stopped. Then, as --table does without running: what
the recommended setting gives beside the best of the sweep, in each workload, what profile and sweep cost, and how far off the
forecasts of all settings were, run or not.

Regret is 1 - speed of the choice / speed of the best, from the replies to the same prompts in the same repeat, with a 95 %
interval of their mean log ratio. The best of many is flattered by its luck: an interval that holds 0 tells no better setting.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import mean, median

import msgspec
import numpy as np

from specgauge.calibrate.arms import chosen_by_workload, workloads_of
from specgauge.calibrate.contrast import mean_estimate
from specgauge.calibrate.fit import calibrate
from specgauge.calibrate.records import Recommendation
from specgauge.process import warn
from specgauge.profiler.errors import InputError, WorkFailed
from specgauge.profiler.files import read_record, record_digest
from specgauge.profiler.job import Job, Options, reopen
from specgauge.profiler.protocol import interleaved_runs, named
from specgauge.profiler.records import Profile, Run, Setting

SIDE_BY_SIDE = 4
"""Settings whose replies take turns; each has a warm server of its own."""
STORE = "sweep.jsonl"


class Pass(msgspec.Struct, frozen=True, kw_only=True):
    """One setting over all prompts, once. `wall_seconds`: its share of its block, start and warm-up included."""

    profile_sha256: str
    repeat: int
    wall_seconds: float
    run: Run


def settings_of(profile: Profile) -> tuple[Setting, ...]:
    """Every candidate setting, plain ones included."""
    return tuple(
        dict.fromkeys(
            candidate.setting(length) for candidate in profile.candidates for length in (0, *candidate.draft_tokens)
        )
    )


def stored(store: Path, profile_sha256: str) -> list[Pass]:
    """The passes that are there. A line that an interrupt cut off is left out. Raises InputError for another profile's."""
    found: list[Pass] = []
    for line in store.read_bytes().splitlines() if store.exists() else ():
        try:
            found.append(msgspec.json.decode(line, type=Pass))
        except msgspec.DecodeError:
            continue
    if any(one.profile_sha256 != profile_sha256 for one in found):
        raise InputError(f"{store} belongs to another profile; move it away")
    return found


def missing_blocks(
    settings: Sequence[Setting], done: Iterable[Pass], repeats: int
) -> Iterable[tuple[int, tuple[Setting, ...]]]:
    """(repeat, settings to run side by side): each repeat in an order of its own."""
    known = {(one.repeat, one.run.setting) for one in done}
    for repeat in range(repeats):
        order = random.Random(f"sweep {repeat}").sample(settings, len(settings))
        left = [setting for setting in order if (repeat, setting) not in known]
        for at in range(0, len(left), SIDE_BY_SIDE):
            yield repeat, tuple(left[at : at + SIDE_BY_SIDE])


def sweep(job: Job, profile: Profile, store: Path, repeats: int, clock: Callable[[], float]) -> None:
    """Run what is missing."""
    profile_sha256, settings = record_digest(profile), settings_of(profile)
    done = stored(store, profile_sha256)
    with store.open("ab") as file:
        for repeat, block in missing_blocks(settings, done, repeats):
            began = clock()
            runs = interleaved_runs(job.engine, block, job.prompts, profile.sampling, 1, first_repeat=repeat, at=clock)
            spent = (clock() - began) / len(block)
            for run in runs:
                file.write(
                    msgspec.json.encode(Pass(profile_sha256=profile_sha256, repeat=repeat, wall_seconds=spent, run=run))
                )
                file.write(b"\n")
            file.flush()
            print(f"repeat {repeat + 1}: {', '.join(map(named, block))}: {spent:.1f} s each", file=sys.stderr)


def speeds(passes: Iterable[Pass], setting: Setting, workload: str) -> dict[tuple[int, str], float]:
    """tokens/s of each reply, by repeat and prompt."""
    return {
        (one.repeat, reply.prompt.id): (reply.reply_tokens - 1) / reply.decode_seconds
        for one in passes
        if one.run.setting == setting
        for reply in one.run.replies
        if reply.prompt.workload == workload and reply.reply_tokens > 1
    }


def repeat_medians(found: dict[tuple[int, str], float]) -> float:
    """Median over repeats of the harmonic mean over prompts: tokens over seconds, where replies are equally long."""
    by_repeat: dict[int, list[float]] = {}
    for (repeat, _), speed in found.items():
        by_repeat.setdefault(repeat, []).append(1 / speed)
    return median(1 / mean(inverse) for inverse in by_repeat.values())


def table(profile: Profile, recommendation: Recommendation, passes: Sequence[Pass]) -> list[str]:
    """What the docstring of this file says, as lines."""
    calibrated = calibrate(profile)
    settings = settings_of(profile)
    choices = chosen_by_workload(profile, recommendation)
    lines, errors, inside = [], [], []
    for workload in workloads_of([one.run for one in passes]):
        found = {setting: speeds(passes, setting, workload) for setting in settings}
        by_setting = {setting: repeat_medians(own) for setting, own in found.items() if own}
        best, choice = max(by_setting, key=lambda one: by_setting[one]), choices[workload]
        both = [key for key in found[choice] if key in found[best]]
        ratio = mean_estimate([np.log(found[choice][key] / found[best][key]) for key in both])
        span = ratio.interval(0.95)
        lines += [
            f"{workload}: chosen {named(choice)}, {by_setting[choice]:.2f} tokens/s",
            f"{workload}: best of {len(by_setting)} {named(best)}, {by_setting[best]:.2f} tokens/s",
            f"{workload}: regret {1 - np.exp(ratio.log):.2%} ({1 - span.high:.2%} to {1 - span.low:.2%}), paired, {len(both)} replies",
        ]
        for setting, measured in by_setting.items():
            forecast = calibrated.forecast(setting, workload).tokens_per_second
            errors.append(abs(forecast.value / measured - 1))
            inside.append(forecast.low <= measured <= forecast.high)
    sweep_seconds = sum(one.wall_seconds for one in passes)
    repeats = len({one.repeat for one in passes})
    share = profile.profile_seconds / sweep_seconds
    spent = f"profile {profile.profile_seconds:.0f} s, sweep {sweep_seconds:.0f} s"
    lines.append(f"cost: {spent} ({repeats} repeats of {len(settings)} settings): {share:.1%}")
    told = f"mean error {mean(errors):.1%}, worst {max(errors):.1%}, {mean(inside):.0%} inside their 95 % interval"
    lines.append(
        f"forecasts of all {len(errors)} (setting x workload): {told}; sessions differ, nothing is divided out"
    )
    return lines


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description="Run the full sweep that a profile replaces, and compare.")
    parser.add_argument("out", type=Path, help="output folder with profile.json and recommendation.json")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--table", action="store_true", help="run nothing")
    given = parser.parse_args()
    try:
        profile = read_record(given.out / "profile.json", Profile)
        recommendation = read_record(given.out / "recommendation.json", Recommendation)
        store = given.out / STORE
        if not given.table:
            job = reopen(profile, Options(), given.out / "logs")
            for text in job.warnings:
                warn(text)
            try:
                sweep(job, profile, store, given.repeats, getattr(job.engine, "clock", time.monotonic))
            finally:
                job.engine.close()
        passes = stored(store, record_digest(profile))
        if not passes:
            raise InputError(f"{store} holds nothing yet")
        print("\n".join(table(profile, recommendation, passes)))
    except (InputError, WorkFailed) as error:
        print(f"sweep: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("sweep: interrupted; the same command goes on", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

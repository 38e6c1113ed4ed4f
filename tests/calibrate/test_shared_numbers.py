"""A shared profile gives the numbers of the one that it was made of: calibrated, recommended, forecast, compared."""

from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from specgauge.calibrate import fit
from specgauge.calibrate.combine import profile_of
from specgauge.calibrate.compare import Documents, comparison
from specgauge.calibrate.importers.base import Given
from specgauge.calibrate.importers.detect import read_files
from specgauge.calibrate.predict import predictions_of
from specgauge.calibrate.recommend import recommend
from specgauge.calibrate.seeds import Seed
from specgauge.profiler.records import Profile
from specgauge.profiler.sharing.redact import redacted

from .test_mix import profiled

DATA = Path(__file__).parents[1] / "data"
LADDER = DATA / "rtx3090-mtp-ladder.csv"
BLANK = dict.fromkeys(("profile_sha256", "calibration_sha256", "created", "tool_version", "command"), "")


def own(name: str) -> Profile:
    """A machine's profile as one of own prompts, of workloads that none but the user has."""
    profile = profiled(name)
    text = msgspec.json.encode(profile).decode()
    for place, workload in enumerate(dict.fromkeys(prompt.workload for prompt in profile.prompts)):
        text = text.replace(f'"{workload}"', f'"tickets of customer {9 - place}"')
    made = msgspec.json.decode(text, type=Profile)
    names = list(dict.fromkeys(prompt.workload for prompt in made.prompts))
    return replace(
        made, workload_shares={name: (place + 1) / 3 for place, name in enumerate(names)} if len(names) == 2 else {}
    )


@cache
def profile(kind: str) -> Profile:
    if kind == "imported":
        parts = read_files((LADDER,), Given())
        return profile_of(parts, (), Given(), "2026-01-01T00:00:00+00:00", "0")
    return own(kind)


def numbers(value: Any, place: str = "") -> list[tuple[str, float]]:
    """Every number of a document with the names of the fields above it; lists may be in another order."""
    if isinstance(value, bool) or not isinstance(value, int | float | dict | list | tuple):
        return []
    if isinstance(value, int | float):
        return [(place, value)]
    if isinstance(value, dict):
        parts = [("" if place.endswith("workload_shares") else key, one) for key, one in value.items()]
    else:
        parts = [("", one) for one in value]
    return [found for key, one in parts for found in numbers(one, f"{place}.{key}")]


def documents(evidence: Profile) -> list[tuple[str, float]]:
    calibrated = fit.calibrate(evidence, replicates=40)
    found = (
        calibrated.record("", "", ""),
        recommend(evidence, calibrated, **BLANK),
        predictions_of(evidence, calibrated, tuple(range(6)), None, told=lambda text: None),
    )
    return sorted(numbers(msgspec.to_builtins(found)))


@pytest.mark.parametrize("kind", ["interior-tie", "in-process", "imported"])
def test_every_number_of_a_shared_profile_is_that_of_the_original(kind: str):
    assert documents(redacted(profile(kind)).profile) == documents(profile(kind))


def test_draws_go_with_places_and_not_with_names():
    one = profile("interior-tie")
    seed, other = Seed.of(3, one), Seed.of(3, redacted(one).profile)
    setting = one.candidates[0].setting(2)
    assert list(seed.words(setting)) == list(other.words(redacted(one).profile.candidates[0].setting(2)))
    assert list(seed.words(setting)) != list(seed.words(one.candidates[1].setting(2)))
    assert seed == 3 and msgspec.json.encode(int(seed)) == b"3"


def test_a_shared_profile_is_compared_with_one_that_has_names():
    one = profiled("interior-tie")
    for pair in ((redacted(one).profile, one), (one, redacted(one).profile), (redacted(one, True).profile, one)):
        found = comparison(Documents(*pair, ("A", "B")))
        groups = {number.group for number in found.numbers}
        assert {"plain decoding", "verification", "draft", "rounds", "acceptance", "forecast"} <= groups
        assert not any(number.differs for number in found.numbers)
        assert not [field.name for field in found.key if field.state == "differs"]


def test_hidden_prompts_are_not_taken_for_each_other():
    shared = redacted(profile("interior-tie")).profile
    hidden = replace(shared, prompts=tuple(replace(prompt, text_sha256="") for prompt in shared.prompts))
    found = comparison(Documents(hidden, hidden, ("A", "B")))
    assert "acceptance" not in {number.group for number in found.numbers}

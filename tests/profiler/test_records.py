"""Records refuse what cannot be, in one line, whoever wrote the file."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from specgauge.profiler.engines import fake
from specgauge.profiler.errors import InputError
from specgauge.profiler.files import read_record, write_record
from specgauge.profiler.records import (
    EngineInfo,
    MatchTrace,
    Profile,
    Prompt,
    PromptRun,
    PromptTrace,
    RoundSample,
    Setting,
    StepSample,
)

PROMPT = Prompt(id="p", workload="w", workload_class="prose", text_sha256="p", new_tokens=4)
STEP: dict[str, Any] = {
    "model": "m",
    "role": "target",
    "kind": "decode",
    "width": 1,
    "context": 8,
    "seconds": (0.1, 0.2),
}
ROUND: dict[str, Any] = {
    "setting": Setting(target="t", target_quant="q", drafter="model", draft="d", draft_tokens=2),
    "context": 8,
}
ROUND |= {"seconds": (0.1, 0.2), "drafted": (2, 2), "accepted": (0, 2)}
TRACE: dict[str, Any] = {
    "prompt": PROMPT,
    "prompt_tokens": 8,
    "reply_tokens": 4,
    "seconds": (0.1,),
    "drafted": (2,),
    "accepted": (2,),
}
MATCH: dict[str, Any] = {
    "target": "t",
    "drafter": "model",
    "draft": "d",
    "prompt": PROMPT,
    "prompt_tokens": 8,
    "reply_tokens": 4,
}
MATCH |= {"source": "teacher-forced"}
RUN: dict[str, Any] = {"prompt": PROMPT, "repeat": 0, "prompt_tokens": 8, "reply_tokens": 4, "decode_seconds": 0.3}
RUN |= {"prefill_seconds": 0.1, "wall_seconds": 0.4}
ENGINE: dict[str, Any] = {"name": "e", "build": "b", "backend": "cpu"}


@pytest.mark.parametrize(
    ("record", "fields"),
    [
        (StepSample, {**STEP, "thread_seconds": (0.1,)}),
        (StepSample, {**STEP, "thread_seconds": (0.1, -0.1)}),
        (StepSample, {**STEP, "thread_seconds": (0.1, float("inf"))}),
        (StepSample, {**STEP, "device_seconds": (0.1, 0.1, 0.1)}),
        (RoundSample, {**ROUND, "thread_seconds": (0.1,)}),
        (PromptTrace, {**TRACE, "thread_seconds": (0.1, 0.1)}),
        (PromptRun, {**RUN, "decode_thread_seconds": float("nan")}),
        (MatchTrace, {**MATCH, "weight": (0.5, 1.5)}),
        (MatchTrace, {**MATCH, "weight": (float("nan"),)}),
        (MatchTrace, {**MATCH, "weight": (0.5,), "match": (1,)}),
        (MatchTrace, {**MATCH, "weight": (0.5,), "offer": (1,), "run": (1,)}),
        (EngineInfo, {**ENGINE, "recipes": {"model": ("draft", "teleport", "verification", "overhead")}}),
        (EngineInfo, {**ENGINE, "recipes": {"oracle": ("verification", "overhead")}}),
    ],
)
def test_what_cannot_be_is_refused(record, fields):
    with pytest.raises(ValueError):
        record(**fields)


def test_what_can_be_is_taken_and_read_back():
    clocked = StepSample(**STEP, thread_seconds=(0.0, 0.1), device_seconds=(0.05, 0.1))
    weighted = MatchTrace(**MATCH, weight=(0.0, 0.25, 1.0))
    recipe = ("draft_catch_up", "draft_further", "verification", "overhead")
    engine = EngineInfo(**ENGINE, recipes={"model": recipe})
    rounds = RoundSample(**ROUND, thread_seconds=(0.1, 0.2))
    for record in (clocked, weighted, engine, rounds):
        assert msgspec.json.decode(msgspec.json.encode(record), type=type(record)) == record
    assert engine.recipe("model") == recipe
    assert engine.recipe("ngram") == ("verification", "overhead") and engine.recipe("nobody") == ("round",)


def test_what_older_files_do_not_say_has_its_old_meaning():
    assert not any(model.random for model in fake.demo("interior-tie")[0].models)
    old = StepSample(**STEP)
    assert (old.thread_seconds, old.device_seconds, old.sentinel_thread_seconds) == ((), (), None)
    assert EngineInfo(**ENGINE).recipe("model") == ("draft", "verification", "draft_batch", "overhead")


def with_recipe(path: Path, recipe: object) -> None:
    profile, _, _ = fake.demo("in-process")
    write_record(path, profile)
    document = json.loads(path.read_text())
    document["engine"]["recipes"]["model"] = recipe
    path.write_text(json.dumps(document))


@pytest.mark.parametrize("recipe", [["draft", "teleport"], ["rollback", "verification", "overhead"], [], ["draft"] * 9])
def test_a_strangers_recipe_is_one_line(tmp_path: Path, recipe: list[str]):
    path = tmp_path / "profile.json"
    with_recipe(path, recipe)
    with pytest.raises(InputError) as caught:
        read_record(path, Profile)
    assert "\n" not in str(caught.value) and "damaged" in str(caught.value)
    assert "term" in str(caught.value) or "recipe" in str(caught.value)

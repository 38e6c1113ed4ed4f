"""Commands of three engines: the measured one first, every value in them, nothing left out in silence."""

import ast
import json
import shlex

import msgspec
import pytest

from specgauge.calibrate.records import Chosen, EngineCommand
from specgauge.profiler.records import Measurement, ReportedRow, Request, Sampling, Setting
from specgauge.reports.commands import chosen_setting
from specgauge.reports.engine_commands import ADDED_NOTE, MEASURED_NOTE, OTHER_NOTE, engine_commands, every_command
from specgauge.reports.vllm_command import SPECULATIVE_KEYS, vllm_lacks, vllm_serve

from .samples import Sample, sample

PLAIN = Setting(target="smol-F16", target_quant="F16", context=4096, streams=2)
MODEL = msgspec.structs.replace(PLAIN, drafter="model", draft="smol-Q4_0", draft_quant="Q4_0", draft_tokens=5)
NGRAM = msgspec.structs.replace(PLAIN, drafter="ngram", draft="ngram-simple", draft_tokens=8, ngram_size=3)
HOSTILE_FOLDERS = ("/a b/'$(reboot)'", '/q"uote`id`', "/new\nline", "/;rm -rf ~", "-dash")


GREEDY = Sampling()


def of(setting: Setting, sampling: Sampling = GREEDY, folder: str = "/models") -> list[str]:
    return shlex.split(vllm_serve(setting, sample(folder=folder).profile.models, sampling))


def option(words: list[str], name: str) -> str:
    assert words.count(name) == 1, words
    return words[words.index(name) + 1]


def test_vllm_plain_has_room_streams_and_sampling_and_no_speculation():
    words = of(PLAIN, Sampling(temperature=0.7, seed=3))
    assert words[:3] == ["vllm", "serve", "/models/smol-F16.gguf"]
    assert option(words, "--max-model-len") == "4096" and option(words, "--max-num-seqs") == "2"
    assert json.loads(option(words, "--override-generation-config")) == {
        "temperature": 0.7,
        "top_k": 40,
        "top_p": 0.95,
        "min_p": 0.05,
        "repetition_penalty": 1.0,
    }
    assert option(words, "--seed") == "3" and "--speculative-config" not in words


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (MODEL, {"method": "draft_model", "model": "/models/smol-Q4_0.gguf", "num_speculative_tokens": 5}),
        (
            NGRAM,
            {"method": "ngram", "num_speculative_tokens": 8, "prompt_lookup_min": 3, "prompt_lookup_max": 3},
        ),
        (
            msgspec.structs.replace(PLAIN, drafter="mtp", draft_tokens=3),
            {"method": "mtp", "num_speculative_tokens": 3},
        ),
    ],
)
def test_vllm_speculation_as_its_own_keys(setting: Setting, expected: dict):
    config = json.loads(option(of(setting), "--speculative-config"))
    assert config == expected and set(config) <= set(SPECULATIVE_KEYS)


@pytest.mark.parametrize("folder", HOSTILE_FOLDERS)
def test_a_hostile_path_stays_one_word(folder: str):
    words = of(MODEL, folder=folder)
    path = f"{folder}/smol-F16.gguf"
    assert words[2] == (f"./{path}" if folder.startswith("-") else path)
    assert json.loads(option(words, "--speculative-config"))["model"].endswith(f"{folder}/smol-Q4_0.gguf")


def test_what_vllm_has_not_got_is_said():
    setting = msgspec.structs.replace(MODEL, kv_type_k="q8_0", kv_type_v="q8_0", p_min=0.4)
    notes = " ".join(vllm_lacks(setting, sample().profile.models, ("-ngl", "99"), GREEDY))
    for word in ("GGUF", "q8_0", "0.4", "own flags"):
        assert word in notes
    other = msgspec.structs.replace(NGRAM, draft="ngram-mod")
    assert any("ngram-mod" in note for note in vllm_lacks(other, (), (), GREEDY))


def test_vllm_gets_no_min_p_while_it_speculates_and_that_is_said():
    """It answers such requests with status 400."""
    warm = Sampling(temperature=0.7, min_p=0.05)
    for setting in (MODEL, NGRAM):
        assert json.loads(option(of(setting, warm), "--override-generation-config"))["min_p"] == 0
        assert any("min_p" in note and "0.05" in note for note in vllm_lacks(setting, (), (), warm))
        assert not any("min_p" in note for note in vllm_lacks(setting, (), (), GREEDY))
    assert json.loads(option(of(PLAIN, warm), "--override-generation-config"))["min_p"] == 0.05
    assert not any("min_p" in note for note in vllm_lacks(PLAIN, (), (), warm))


def test_a_draft_that_was_sampled_is_sampled_in_vllm_too():
    warm = Sampling(temperature=0.7, draft_sampling="probabilistic")
    config = json.loads(option(of(MODEL, warm), "--speculative-config"))
    assert config["draft_sample_method"] == "probabilistic" and set(config) <= set(SPECULATIVE_KEYS)
    for setting, sampling in ((NGRAM, warm), (MODEL, Sampling(draft_sampling="probabilistic")), (MODEL, GREEDY)):
        assert "draft_sample_method" not in json.loads(option(of(setting, sampling), "--speculative-config"))


def told(profile, chosen: Chosen) -> dict[str, EngineCommand]:
    found = engine_commands(profile, chosen)
    assert found[0].measured and not any(command.measured for command in found[1:])
    assert all((MEASURED_NOTE if command.measured else OTHER_NOTE) in command.notes for command in found)
    return {command.engine: command for command in found}


def test_the_measured_engine_comes_first_and_the_others_have_the_same_setting(demo: Sample):
    chosen = next(advice.chosen for advice in demo.recommendation.workloads if advice.chosen.drafter == "ngram")
    setting = chosen_setting(demo.profile, chosen)
    found = told(demo.profile, chosen)
    assert list(found) == ["llama.cpp", "vLLM", "transformers"]
    config = json.loads(option(shlex.split(found["vLLM"].text), "--speculative-config"))
    assert config["num_speculative_tokens"] == setting.draft_tokens
    keywords = {word.arg: word.value for word in call(found["transformers"].text).keywords if word.arg}
    assert ast.literal_eval(keywords["prompt_lookup_num_tokens"]) == setting.draft_tokens


def call(text: str) -> ast.Call:
    """The call of generate, the last statement of the line."""
    statement = ast.parse(text).body[-1]
    assert isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    return statement.value


def test_of_a_transformers_profile_its_own_call_comes_first(demo: Sample):
    engine = msgspec.structs.replace(demo.profile.engine, name="transformers")
    found = told(msgspec.structs.replace(demo.profile, engine=engine), demo.recommendation.chosen)
    assert next(iter(found)) == "transformers"
    assert "llama-server" in shlex.split(found["llama.cpp"].text)[0]


def test_the_keywords_of_the_call_are_those_of_transformers(demo: Sample):
    transformers = pytest.importorskip("transformers")
    known = vars(transformers.GenerationConfig())
    for advice in demo.recommendation.workloads:
        found = told(demo.profile, advice.chosen)
        keywords = {word.arg for word in call(found["transformers"].text).keywords if word.arg}
        assert keywords - {"assistant_model"} <= set(known), keywords


def test_of_imported_rows_only_the_drafters_options_are_told(demo: Sample):
    row = ReportedRow(setting=MODEL, workload="reported", tokens_per_second=60.0, baseline_tokens_per_second=40.0)
    measurement = Measurement(
        request=Request(action="import"), digest="0", started_at_seconds=0.0, wall_seconds=0.0, reported=(row,)
    )
    profile = msgspec.structs.replace(demo.profile, measurements=(measurement,))
    chosen = msgspec.structs.replace(demo.recommendation.chosen, drafter="mtp", draft="draft-mtp", draft_tokens=3)
    found = {command.engine: command for command in engine_commands(profile, chosen)}
    words = shlex.split(found["llama.cpp"].text)
    assert option(words, "--spec-type") == "draft-mtp" and option(words, "--spec-draft-n-max") == "3"
    assert "-md" not in words and "-m" not in words
    assert json.loads(shlex.split(found["vLLM"].text)[1]) == {"method": "mtp", "num_speculative_tokens": 3}
    assert all(ADDED_NOTE in command.notes and not command.measured for command in found.values())


def test_a_drafter_that_an_engine_has_not_got_is_left_out(demo: Sample):
    chosen = msgspec.structs.replace(demo.recommendation.chosen, drafter="mtp", draft="", draft_tokens=3)
    assert "transformers" not in told(demo.profile, chosen)


def test_every_command_is_of_the_mix_first_and_of_each_workload_that_differs(demo: Sample):
    found = every_command(demo.profile, demo.recommendation)
    own = {one.workload for one in demo.recommendation.workloads if one.chosen != demo.recommendation.chosen}
    assert own and {command.workload for command in found} == {"", *own}
    assert [command.workload for command in found] == sorted((c.workload for c in found), key=lambda name: name != "")
    assert found[0].text == engine_commands(demo.profile, demo.recommendation.chosen)[0].text and found[0].measured
    assert sum(command.measured for command in found) == 1 + len(own)

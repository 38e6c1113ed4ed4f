"""The command of the transformers engine: a call of generate that transformers itself takes."""

import ast

import pytest
from msgspec.structs import replace

from specgauge.profiler.records import ModelFile, Sampling, Setting
from specgauge.reports.generate_call import generate_call

MODELS = tuple(
    ModelFile(
        label=f"m-{quant}", path="/models/m", sha256="0", size_bytes=1, name="m", architecture="llama", quant=quant,
        parameters=1, tokenizer_sha256="t",
    )
    for quant in ("bf16", "int4")
)  # fmt: skip
PLAIN = Setting(target="m-bf16", target_quant="bf16")
DRAFT = replace(PLAIN, drafter="model", draft="m-int4", draft_quant="int4", draft_tokens=5)
NGRAM = replace(PLAIN, drafter="ngram", draft="ngram-simple", ngram_size=3, draft_tokens=12)
WARM = Sampling(temperature=0.7, top_k=20, top_p=0.9, min_p=0.0, repeat_penalty=1.1)


def words(line: str) -> dict[str, object]:
    """Keyword arguments of the call; names as text."""
    call = ast.parse(line, mode="eval").body
    assert isinstance(call, ast.Call)
    return {
        word.arg: word.value.id if isinstance(word.value, ast.Name) else ast.literal_eval(word.value)
        for word in call.keywords
        if word.arg
    }


def test_a_draft_model_is_asked_for_exactly_its_draft_length():
    told = words(generate_call(DRAFT, MODELS, Sampling()))
    assert told == {
        "assistant_model": "draft",
        "num_assistant_tokens": 5,
        "num_assistant_tokens_schedule": "constant",
        "assistant_confidence_threshold": 0,
        "do_sample": False,
    }


def test_ngrams_and_plain_decoding_have_their_own_words():
    assert words(generate_call(PLAIN, MODELS, Sampling())) == {"do_sample": False}
    told = words(generate_call(NGRAM, MODELS, Sampling()))
    assert (told["prompt_lookup_num_tokens"], told["max_matching_ngram_size"]) == (12, 3)


def test_sampling_is_spelled_out_and_the_weights_are_named():
    line = generate_call(DRAFT, MODELS, WARM)
    told = words(line)
    assert {name: told[name] for name in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")} == {
        "temperature": 0.7, "top_k": 20, "top_p": 0.9, "min_p": 0, "repetition_penalty": 1.1,
    }  # fmt: skip
    assert line.endswith("# target: /models/m in bf16; draft: /models/m in int4")


@pytest.mark.parametrize("setting", [PLAIN, DRAFT, NGRAM])
def test_transformers_knows_every_word(setting):
    transformers = pytest.importorskip("transformers")
    known = {
        **transformers.GenerationConfig().to_dict(),
        "assistant_model": None,
        "assistant_confidence_threshold": None,
    }
    asked = words(generate_call(setting, MODELS, WARM))
    assert set(asked) <= set(known)


def test_a_path_with_a_line_end_stays_in_the_comment():
    models = tuple(replace(model, path="/models/a\nimport os") for model in MODELS)
    line = generate_call(DRAFT, models, WARM)
    assert "\n" not in line and words(line)["num_assistant_tokens"] == 5

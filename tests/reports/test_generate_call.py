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


def words(line: str, of: str = "target.generate") -> dict[str, object]:
    """Keyword arguments of the call of that name in the line; names as text."""
    for statement in ast.parse(line).body:
        assert isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
        if ast.unparse(statement.value.func) == of:
            return {
                word.arg: word.value.id if isinstance(word.value, ast.Name) else ast.literal_eval(word.value)
                for word in statement.value.keywords
                if word.arg
            }
    return {}


def test_a_draft_model_is_asked_for_exactly_its_draft_length():
    line = generate_call(DRAFT, MODELS, Sampling())
    assert words(line) == {"assistant_model": "draft", "do_sample": False}
    assert words(line, "draft.generation_config.update") == {
        "num_assistant_tokens": 5,
        "num_assistant_tokens_schedule": "constant",
        "assistant_confidence_threshold": 0,
    }
    stopping = generate_call(replace(DRAFT, p_min=0.3), MODELS, Sampling())
    assert words(stopping, "draft.generation_config.update")["assistant_confidence_threshold"] == 0.3


@pytest.mark.parametrize("draft_tokens", [1, 3, 5])
def test_transformers_drafts_that_many_tokens_a_round(draft_tokens: int):
    """The line itself, run: what is asked of `generate` alone is ignored there, and 20 tokens are the default."""
    torch = pytest.importorskip("torch")
    candidates = pytest.importorskip("transformers.generation.candidate_generator")
    from ..profiler.torch_models import perturbed, tiny_llama

    target = tiny_llama()
    draft, inputs = perturbed(target, 0.05), {"input_ids": torch.tensor([[3, 1, 4, 1, 5]])}
    seen: list[int] = []
    get = candidates.AssistedCandidateGenerator.get_candidates

    def counted(self, input_ids, **more):
        found = get(self, input_ids, **more)
        seen.append(found[0].shape[1] - input_ids.shape[1])
        return found

    target.generation_config.max_new_tokens = 40
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates.AssistedCandidateGenerator, "get_candidates", counted)
        exec(  # noqa: S102 - our own text
            generate_call(replace(DRAFT, draft_tokens=draft_tokens), MODELS, Sampling()),
            {"target": target, "draft": draft, "inputs": inputs},
        )
    assert len(seen) > 5 and set(seen[:-2]) == {draft_tokens}  # the last drafts end with the reply


def test_ngrams_and_plain_decoding_have_their_own_words():
    assert words(generate_call(PLAIN, MODELS, Sampling())) == {"do_sample": False}
    assert "draft" not in generate_call(replace(DRAFT, draft_tokens=0), MODELS, Sampling())
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
    line = generate_call(setting, MODELS, WARM)
    known = set(transformers.GenerationConfig().to_dict())
    assert set(words(line)) - {"assistant_model"} <= known
    assert set(words(line, "draft.generation_config.update")) <= known


def test_a_path_with_a_line_end_stays_in_the_comment():
    models = tuple(replace(model, path="/models/a\nimport os") for model in MODELS)
    line = generate_call(DRAFT, models, WARM)
    assert "\n" not in line and words(line, "draft.generation_config.update")["num_assistant_tokens"] == 5

"""The job of the transformers engine: what is refused before anything loads, and which quantizations it makes."""

from pathlib import Path

import pytest

pytest.importorskip("transformers")

from specgauge.profiler import job, transformers_job
from specgauge.profiler.engines.transformers import paths
from specgauge.profiler.errors import InputError
from specgauge.profiler.job import Options, Stamp

from .torch_models import tiny_llama

STAMP = Stamp(created="2026-12-01T00:00:00+00:00", tool_version="0")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    base = tmp_path_factory.mktemp("models") / "tiny"
    tiny_llama(vocabulary=128, hidden_size=64, intermediate_size=128).bfloat16().save_pretrained(base)
    return base


def prepared(folder: Path, **options):
    return job.prepare(
        Options(engine="transformers", targets=(folder,), threads=1, **options), STAMP, Path("logs"), print
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"llama_server": "x"}, "--llama-server"),
        ({"flags": ("-ngl", "99")}, "behind --"),
        ({"device": "tpu"}, "--device tpu"),
        ({"target_quants": ("int3",)}, "int3"),
        ({"drafts": (Path("/nonexistent"),)}, "does not exist"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(folder, options, said):
    with pytest.raises(InputError, match=said) as refused:
        prepared(folder, **options)
    assert "\n" not in str(refused.value)


def test_options_of_this_engine_are_not_for_another(folder):
    with pytest.raises(InputError, match="--engine transformers"):
        job.prepare(Options(targets=(folder,), draft_quants=("int4",)), STAMP, Path("logs"), print)


def test_a_model_drafts_for_itself_in_fewer_bits_where_asked(folder):
    made = prepared(folder, draft_quants=("int8", "int4"))
    made.engine.close()
    drafters = [(one.drafter, one.draft_quant) for one in made.blank.candidates]
    assert drafters == [("model", "int8"), ("model", "int4"), ("ngram", "")]
    assert made.blank.sentinel_model == "tiny-bf16"
    assert made.blank.engine.recipes["model"][0] == "draft_catch_up"


def test_a_draft_in_the_targets_own_quantization_is_left_out(folder):
    made = prepared(folder, drafts=(folder,), target_quants=("int4",), draft_quants=("int4",))
    made.engine.close()
    assert [one.drafter for one in made.blank.candidates] == ["ngram"]


def test_random_weights_have_no_ngrams_and_say_what_they_are(folder):
    made = prepared(folder / "config.json", random_weights=True, draft_quants=("int8",))
    made.engine.close()
    assert [one.drafter for one in made.blank.candidates] == ["model"]
    assert any("random weights" in warning for warning in made.warnings)


def test_a_quantization_without_a_working_kernel_is_refused_with_the_reason(folder, monkeypatch):
    monkeypatch.setattr(paths, "unusable", lambda path, device: "no kernel here")
    with pytest.raises(InputError, match="no kernel here"):
        prepared(folder, target_quants=("int8",))


def test_the_device_asked_for_has_to_be_here():
    assert transformers_job.chosen_device("cpu") == "cpu"
    with pytest.raises(InputError, match="finds none here"):
        transformers_job.chosen_device("mps")

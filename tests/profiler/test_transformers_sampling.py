"""One sampler for both sides: its law is that of transformers' own generate, its settings are read back."""

import numpy as np
import pytest

pytest.importorskip("transformers")

import torch
import transformers

from specgauge.profiler.engines.transformers.sampling import Sampler
from specgauge.profiler.records import Sampling

from .torch_models import tiny_llama

SETTINGS = [
    Sampling(temperature=0.7, top_k=0, top_p=1.0, min_p=0.0),
    Sampling(temperature=1.0, top_k=5, top_p=1.0, min_p=0.0),
    Sampling(temperature=1.3, top_k=12, top_p=0.8, min_p=0.0),
    Sampling(temperature=0.7, top_k=40, top_p=0.95, min_p=0.05),
    Sampling(temperature=0.9, top_k=10, top_p=0.9, min_p=0.1, repeat_penalty=1.3),
]


def processed(model, text, sampling: Sampling) -> np.ndarray:
    """The law of the next token that generate() draws from: the scores that it returns are those after its processors."""
    found = model.generate(
        text, attention_mask=torch.ones_like(text), max_new_tokens=1, do_sample=True, temperature=sampling.temperature,
        top_k=sampling.top_k, top_p=sampling.top_p, min_p=sampling.min_p, repetition_penalty=sampling.repeat_penalty,
        output_scores=True, return_dict_in_generate=True, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    return found.scores[0][0].softmax(-1).numpy()


@pytest.mark.parametrize("sampling", SETTINGS)
def test_the_law_is_that_of_generate(sampling):
    model, text = tiny_llama(vocabulary=64), torch.tensor([[3, 9, 9, 27, 5]])
    ours = Sampler(sampling).probabilities(text, model(text).logits[:, -1:])[0, 0].numpy()
    np.testing.assert_allclose(ours, processed(model, text, sampling), atol=1e-6)


@pytest.mark.parametrize("sampling", SETTINGS)
def test_every_row_of_a_pass_has_the_law_behind_its_own_text(sampling):
    model, text, drafted = tiny_llama(vocabulary=64), torch.tensor([[3, 9, 9]]), torch.tensor([[27, 5, 27]])
    rows = model(torch.cat([text, drafted], dim=1)).logits[:, 2:]
    together = Sampler(sampling).probabilities(text, rows, drafted)
    for row in range(4):
        alone = torch.cat([text, drafted[:, :row]], dim=1)
        np.testing.assert_allclose(
            together[0, row].numpy(), processed(model, alone, sampling), atol=2e-6, err_msg=f"row {row}"
        )


def test_greedy_is_the_likeliest_token_behind_the_penalty():
    text, logits = torch.tensor([[1, 2]]), torch.tensor([[[0.0, 2.0, 1.9, 1.8]]])
    assert Sampler(Sampling()).likeliest(text, logits).item() == 1
    assert Sampler(Sampling(repeat_penalty=2.0)).likeliest(text, logits).item() == 3


@pytest.mark.parametrize("sampling", SETTINGS)
def test_settings_are_read_back_as_they_were_sent(sampling):
    told = Sampler(sampling).settings()
    sent = {name: getattr(sampling, name) for name in ("temperature", "top_k", "top_p", "min_p", "repeat_penalty")}
    assert {name: float(value) for name, value in told.items()} == pytest.approx(sent)


def test_a_parameter_that_transformers_refuses_is_refused():
    with pytest.raises(ValueError):
        Sampler(Sampling(temperature=0.5, top_p=-0.1))


def test_equal_samplers_are_told_from_unequal_ones():
    one = Sampling(temperature=0.7)
    assert Sampler(one).settings() == Sampler(one).settings()
    assert Sampler(one).settings() != Sampler(Sampling(temperature=1.0)).settings()
    assert transformers.__version__

"""The speculative loop on tiny models: greedy text is the target's own, counts add up, replay tells the rounds."""

import numpy as np
import pytest

pytest.importorskip("transformers")

import torch
import transformers

from specgauge.model import acceptance
from specgauge.profiler.engines.base import Unsupported
from specgauge.profiler.engines.transformers import teacher
from specgauge.profiler.engines.transformers.decoder import Decoder
from specgauge.profiler.engines.transformers.drafters import ModelDrafter, NgramDrafter
from specgauge.profiler.engines.transformers.rounds import Loop
from specgauge.profiler.engines.transformers.sampling import Sampler
from specgauge.profiler.ngram import offers_and_runs
from specgauge.profiler.records import Sampling

from .torch_models import perturbed, tiny_llama

ROOM, LENGTH = 96, 40
GREEDY, DRAWN = Sampling(), Sampling(temperature=0.9, draft_sampling="probabilistic", top_k=8, top_p=0.95, min_p=0.0)
PROMPTS = [(3, 5, 7, 1, 2), (9, 9, 2), (4, 8, 15, 16, 23, 1, 0), (1, 2, 3, 1, 2, 3, 1, 2)]


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def target():
    return tiny_llama(vocabulary=64)


@pytest.fixture(scope="module")
def draft(target):
    return perturbed(target, 0.15)


def plain(model, prompt, length=LENGTH, sampling=GREEDY, seed=1):
    return Loop(Decoder(model, 1, ROOM), Sampler(sampling), seed=seed).replies([prompt], length).tokens[0]


def drafting(model, draft, streams=1, sampling=GREEDY, **more):
    sampler = Sampler(sampling)
    loop = Loop(Decoder(model, streams, ROOM), sampler, drawn=sampling == DRAWN, **more)
    loop.drafter = ModelDrafter(Decoder(draft, streams, ROOM), sampler, loop.generator if loop.drawn else None)
    return loop


def reference(model, prompt, length=LENGTH):
    """transformers' own greedy decoding."""
    text = torch.tensor([prompt])
    found = model.generate(
        text,
        attention_mask=torch.ones_like(text),
        max_new_tokens=length,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return tuple(found[0, len(prompt) :].tolist())


@pytest.mark.parametrize("prompt", PROMPTS)
def test_plain_decoding_is_that_of_transformers(target, prompt):
    assert plain(target, prompt) == reference(target, prompt)


@pytest.mark.parametrize("draft_tokens", [1, 2, 3, 5, 8, 16])
def test_greedy_speculation_with_a_draft_model_gives_the_targets_own_text(target, draft, draft_tokens):
    for prompt in PROMPTS:
        assert drafting(target, draft).replies([prompt], LENGTH, draft_tokens).tokens[0] == plain(target, prompt)


@pytest.mark.parametrize("draft_tokens", [3, 5, 8])
def test_greedy_speculation_with_an_ngram_drafter_gives_the_targets_own_text(target, draft_tokens):
    for prompt in PROMPTS:
        loop = Loop(Decoder(target, 1, ROOM), Sampler(GREEDY), NgramDrafter(2))
        assert loop.replies([prompt], LENGTH, draft_tokens).tokens[0] == plain(target, prompt)


def test_a_copy_of_the_target_is_accepted_whole(target):
    found = drafting(target, target).replies([PROMPTS[0]], LENGTH, 4)
    assert all(one.accepted == one.drafted for one in found.rounds)


def test_rounds_add_up_to_the_reply(target, draft):
    for prompt in PROMPTS:
        found = drafting(target, draft).replies([prompt], LENGTH, 5)
        assert 1 + sum(one.accepted[0] + 1 for one in found.rounds) == LENGTH == len(found.tokens[0])
        assert all(one.accepted[0] <= one.drafted[0] <= 5 for one in found.rounds)


def test_streams_of_different_lengths_decode_as_they_would_alone(target, draft):
    alone = tuple(plain(target, prompt) for prompt in PROMPTS)
    found = drafting(target, draft, streams=4).replies(PROMPTS, LENGTH, 3)
    assert found.tokens == alone
    for stream in range(4):
        alive = [one.accepted[stream] for one in found.rounds if one.accepted[stream] >= 0]
        assert 1 + sum(accepted + 1 for accepted in alive) >= LENGTH
    ngrams = Loop(Decoder(target, 4, ROOM), Sampler(GREEDY), NgramDrafter(2))
    assert ngrams.replies(PROMPTS, LENGTH, 4).tokens == alone


@pytest.mark.parametrize("draft_tokens", [1, 2, 4, 8])
def test_one_teacher_forced_pass_tells_the_rounds_of_every_draft_length(target, draft, draft_tokens):
    for prompt in PROMPTS:
        reply = plain(target, prompt)
        match = teacher.matches(Decoder(draft, 1, ROOM), prompt, reply, Sampler(GREEDY))
        law = acceptance.replay_matches(np.array(match), draft_tokens)
        found = drafting(target, draft).replies([prompt], LENGTH, draft_tokens)
        assert law.rounds == pytest.approx(len(found.rounds))
        assert law.accepted_total == pytest.approx(sum(one.accepted[0] for one in found.rounds))


def test_weights_of_the_ratio_test_tell_tokens_per_round_in_the_mean(target, draft):
    prompt, texts, length = PROMPTS[0], 200, 24
    sampler = Sampler(DRAWN)
    real = drafting(target, draft, streams=texts, sampling=DRAWN).replies([prompt] * texts, length, 4)
    tokens = texts * (length - 1)
    rounds = sum(accepted >= 0 for one in real.rounds for accepted in one.accepted)
    replies = Loop(Decoder(target, texts, ROOM), sampler, seed=7).replies([prompt] * texts, length).tokens
    decoders = Decoder(target, 1, ROOM), Decoder(draft, 1, ROOM)
    laws = [
        acceptance.replay_matches(np.array(teacher.weights(*decoders, prompt, r, sampler)), 4) for r in replies[:60]
    ]
    replayed = sum(law.tokens for law in laws) / sum(law.rounds for law in laws)
    assert replayed == pytest.approx(tokens / rounds, rel=0.06)


@pytest.mark.parametrize("draft_tokens", [3, 6])
def test_rounds_of_the_ngram_drafter_are_those_of_its_replay(target, draft_tokens):
    for prompt in PROMPTS:
        reply = plain(target, prompt)
        offer, run = offers_and_runs(prompt, reply, 2)
        law = acceptance.replay_ngram(np.array(offer), np.array(run), len(prompt), 2, draft_tokens)
        loop = Loop(Decoder(target, 1, ROOM), Sampler(GREEDY), NgramDrafter(2))
        found = loop.replies([prompt], LENGTH, draft_tokens).rounds
        assert (law.rounds, law.drafted_total) == (len(found), sum(one.drafted[0] for one in found))


def test_a_reply_that_does_not_fit_is_refused(target):
    with pytest.raises(ValueError, match="do not fit"):
        plain(target, PROMPTS[0], length=ROOM)


@pytest.mark.parametrize("prompt", [(5,), (5, 6)])
def test_the_shortest_prompts_work(target, draft, prompt):
    assert drafting(target, draft).replies([prompt], LENGTH, 3).tokens[0] == plain(target, prompt)


def test_a_sliding_window_is_kept_to():
    torch.manual_seed(2)
    config = transformers.MistralConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, sliding_window=8, initializer_range=0.6, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model = transformers.MistralForCausalLM(config).eval()
    assert plain(model, PROMPTS[2]) == reference(model, PROMPTS[2])
    assert drafting(model, perturbed(model, 0.1)).replies([PROMPTS[2]], LENGTH, 3).tokens[0] == plain(model, PROMPTS[2])


def test_layers_of_both_kinds_each_keep_to_their_own_window():
    torch.manual_seed(2)
    config = transformers.Gemma3TextConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4, head_dim=8,
        num_key_value_heads=2, sliding_window=8, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        initializer_range=0.6, bos_token_id=None, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    model = transformers.Gemma3ForCausalLM(config).eval()
    assert plain(model, PROMPTS[2]) == reference(model, PROMPTS[2])


def test_a_model_with_recurrent_layers_is_not_this_engines():
    model = tiny_llama()
    model.config.layer_types = ["linear_attention"]
    with pytest.raises(Unsupported, match="roll back"):
        Decoder(model)

"""The llama.cpp engine on the demo's real model. Counts are exact; times are only required to exist."""

import pytest

from specgauge.model.acceptance import replay_ngram
from specgauge.profiler.engines.llama_cpp import LlamaCpp
from specgauge.profiler.records import Sampling

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def engine(demo, tmp_path_factory):
    """The embedded engine on one thread."""
    engine = LlamaCpp(demo.models, log_dir=tmp_path_factory.mktemp("logs"), threads=1)
    yield engine
    engine.close()


def candidate(demo, quant, drafter):
    return next(c for c in demo.candidates if (c.target_quant, c.drafter) == (quant, drafter))


def test_step_times_are_the_pass_asked_for_at_every_width(demo, engine):
    label = demo.models[0].label
    for width in (2, 3, 9, 17):
        sample = engine.step_time(label, "target", "batch", width, 64)
        assert sample.width == width and sample.seconds[0] > 0 and sample.thread_seconds[0] > 0
    assert len(engine.step_time(label, "target", "decode", 1, 64).seconds) == 12


def test_verification_passes_decode_as_many_sequences_side_by_side(demo, engine):
    sample = engine.step_time(demo.models[0].label, "target", "verify", 5, 32)
    # Of ten tokens each sequence decodes nine after its first, all five together but for those of the staggered start.
    assert (sample.kind, sample.width, sample.context) == ("verify", 5, 32)
    assert 4 <= len(sample.seconds) <= 9 and min(sample.seconds) > 0


def test_forced_rates_accept_nothing(demo, engine):
    setting = candidate(demo, "Q4_0", "model").setting(3)
    sample = engine.round_time(setting, (0.0, 0.0, 0.0), 64, 5)
    assert len(sample.seconds) >= 5 and set(sample.drafted) == {3} and set(sample.accepted) == {0}


def test_a_draft_equal_to_its_target_is_accepted(demo, engine):
    setting = candidate(demo, "Q4_0", "model").setting(4)
    trace = engine.rounds(setting, demo.prompts[:1], Sampling())
    drafted, accepted = sum(trace.prompts[0].drafted), sum(trace.prompts[0].accepted)
    assert accepted >= 0.95 * drafted > 0
    assert accepted + len(trace.prompts[0].drafted) == trace.prompts[0].reply_tokens - 1


@pytest.mark.parametrize("draft_tokens", [4, 8])
def test_ngram_replay_of_the_plain_reply_equals_the_engine_round_for_round(demo, engine, draft_tokens):
    family = candidate(demo, "Q4_0", "ngram")
    prompt = next(p for p in demo.prompts if p.prompt.id == "copying/inventory")
    match = engine.match_trace(family.setting(draft_tokens), prompt, Sampling())
    law = replay_ngram(match.offer, match.run, match.prompt_tokens, match.ngram_size, draft_tokens)
    real = engine.rounds(family.setting(draft_tokens), [prompt], Sampling()).prompts[0]
    assert law.weight.sum() == len(real.seconds)
    assert (law.weight * law.drafted).sum() == sum(real.drafted)
    assert (law.weight * law.accepted).sum() == sum(real.accepted)


def test_the_flag_of_another_build_is_refused_in_llama_servers_words(demo, tmp_path):
    from specgauge.profiler.engines.base import EngineFailed

    engine = LlamaCpp(demo.models, log_dir=tmp_path, flags=["--no-such-flag"])
    with pytest.raises(EngineFailed, match="invalid argument: --no-such-flag"):
        engine.warm_up(candidate(demo, "Q4_0", "model").setting(0))
    engine.close()

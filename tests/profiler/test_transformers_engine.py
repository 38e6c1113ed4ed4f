"""The engine protocol over tiny models in a folder: counts, clocks, read-back, and one line for what it cannot do."""

from pathlib import Path

import pytest

pytest.importorskip("transformers")

import torch
from msgspec.structs import replace

from specgauge.profiler.engines.base import EngineFailed, Unsupported
from specgauge.profiler.engines.transformers.description import described
from specgauge.profiler.engines.transformers.engine import Transformers
from specgauge.profiler.engines.transformers.passes import DECODE_PASSES
from specgauge.profiler.records import Sampling, Setting
from specgauge.profiler.workloads import prompt_text

from .torch_models import perturbed, tiny_llama

PROMPT = prompt_text("ordinary/one", "ordinary", "prose", "A text that a stand-in for a tokenizer reads.", 24)


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> tuple[Path, Path]:
    base = tmp_path_factory.mktemp("models")
    target = tiny_llama(vocabulary=128, hidden_size=64, intermediate_size=128)
    target.save_pretrained(base / "target")
    perturbed(target, 0.05).save_pretrained(base / "draft")
    return base / "target", base / "draft"


@pytest.fixture
def engine(folders):
    models = [described(folders[0], "fp32"), described(folders[1], "fp32"), described(folders[0], "int4")]
    engine = Transformers(models, device="cpu", threads=1)
    yield engine
    engine.close()


def setting(draft_tokens: int = 0, drafter: str = "model", draft: str = "draft-fp32", **more) -> Setting:
    if not draft_tokens:
        return Setting(target="target-fp32", target_quant="fp32", context=128, **more)
    ngram = {"ngram_size": 2, "draft": "ngram-simple"} if drafter == "ngram" else {"draft": draft}
    fields = {"target": "target-fp32", "target_quant": "fp32", "drafter": drafter, "context": 128}
    return Setting(**(fields | ngram), draft_tokens=draft_tokens, **more)


SETTINGS = [setting(3), setting(2, draft="target-int4"), setting(4, "ngram"), setting(5, draft="target-fp32")]


@pytest.mark.parametrize("drafting", SETTINGS)
def test_speculation_gives_the_plain_reply_and_counts_that_add_up(engine, drafting):
    plain, run = (engine.run(one, PROMPT, Sampling()) for one in (setting(), drafting))
    trace = engine.rounds(drafting, [PROMPT], Sampling()).prompts[0]
    assert run.reply_sha256 == plain.reply_sha256
    assert run.reply_tokens == plain.reply_tokens == 24
    assert (run.drafted, run.accepted) == (sum(trace.drafted), sum(trace.accepted))
    assert 1 + sum(accepted + 1 for accepted in trace.accepted) == 24
    assert len(trace.thread_seconds) == len(trace.seconds)
    assert run.decode_thread_seconds is not None
    assert 0 < run.decode_thread_seconds <= run.decode_seconds * 1.05


def test_a_model_that_drafts_for_itself_is_accepted_whole(engine):
    trace = engine.rounds(setting(5, draft="target-fp32"), [PROMPT], Sampling()).prompts[0]
    assert trace.accepted == trace.drafted


@pytest.mark.parametrize(
    ("role", "kind", "width", "entries"),
    [
        ("target", "decode", 1, DECODE_PASSES),
        ("target", "batch", 9, 1),
        ("target", "verify", 33, 1),
        ("sentinel", "decode", 1, DECODE_PASSES),
        ("draft", "decode", 1, 4),
        ("draft", "batch", 2, 1),
    ],
)
def test_step_samples_are_of_the_shape_asked_for_with_both_clocks(engine, role, kind, width, entries):
    model = "draft-fp32" if role == "draft" else "target-fp32"
    for streams in (1, 8):
        sample = engine.step_time(model, role, kind, width, 40, streams)
        assert (sample.role, sample.kind, sample.width, sample.streams) == (role, kind, width, streams)
        assert len(sample.seconds) == len(sample.thread_seconds) == entries


def test_passes_of_a_draft_that_no_round_has_are_unsupported(engine):
    with pytest.raises(Unsupported, match="one or two tokens wide"):
        engine.step_time("draft-fp32", "draft", "batch", 5, 40)


@pytest.mark.parametrize("rates", [(0.0,) * 4, (1.0,) * 4, None])
def test_rounds_are_as_long_as_asked_and_forced_as_told(engine, rates):
    sample = engine.round_time(setting(4), rates, 48, 6)
    assert sample.drafted == (4,) * 6
    if rates is not None:
        assert sample.accepted == (4 * int(rates[0]),) * 6
    again = engine.round_time(setting(4), rates, 16, 6)
    assert len(again.seconds) == 6


def test_real_rounds_over_a_filler_leave_its_passes_as_they_were(engine):
    first = engine._models.filler("target-fp32", "target", 128)
    first.reach(60)
    before = first.read(60, 4).clone()
    engine.round_time(setting(3), (0.5,) * 3, 30, 5)
    first.reach(60)
    torch.testing.assert_close(first.read(60, 4), before)


def test_match_traces_are_teacher_forced_for_models_and_replayed_for_ngrams(engine):
    forced = engine.match_trace(setting(3), PROMPT, Sampling())
    assert forced.source == "teacher-forced"
    assert len(forced.match) == forced.reply_tokens - 1 == 23
    drawn = Sampling(temperature=0.8, draft_sampling="probabilistic")
    weighed = engine.match_trace(setting(3), PROMPT, drawn)
    assert len(weighed.weight) == 23
    assert 0 < sum(weighed.weight) <= 23
    assert engine.match_trace(setting(3), PROMPT, replace(drawn, draft_sampling="greedy")).match
    assert engine.match_trace(setting(4, "ngram"), PROMPT, Sampling()).source == "replay"


def test_the_sampling_sent_is_the_sampling_read_back(engine):
    sampling = Sampling(temperature=0.7, top_k=11, top_p=0.9, min_p=0.02, repeat_penalty=1.1)
    engine.run(setting(3), PROMPT, sampling)
    told = engine.effective(setting(3))
    for name in ("temperature", "top_k", "top_p", "min_p", "repeat_penalty"):
        assert float(told[name]) == getattr(sampling, name)
    assert told["weights.target"] == "fp32"
    assert told["speculative.n_max"] == "3"


def test_a_reply_tells_the_likeliest_tokens_of_each_place(engine):
    reply = engine.reply(setting(3), PROMPT, Sampling(), new_tokens=9, likely=3)
    assert len(reply.tokens) == len(reply.likely) == 9
    assert all(place[0].token == token for place, token in zip(reply.likely, reply.tokens))
    on = engine.reply(setting(), PROMPT, Sampling(), after=reply.tokens[:4], new_tokens=5)
    assert on.tokens == reply.tokens[4:]
    drawn = engine.reply(setting(), PROMPT, Sampling(temperature=0.8, top_k=2), new_tokens=5, likely=8, sampled=True)
    assert all(1 <= len(place) <= 2 for place in drawn.likely)


def test_what_cannot_be_loaded_or_held_is_one_line(folders, tmp_path):
    gone = replace(described(folders[0], "fp32"), path=str(tmp_path / "gone"))
    with pytest.raises(Exception, match="does not exist"):
        Transformers([gone], threads=1).run(setting(), PROMPT, Sampling())
    engine = Transformers([described(folders[0], "fp32")], threads=1)
    with pytest.raises(EngineFailed) as failed:
        engine.reply(setting(), PROMPT, Sampling(), new_tokens=10**14)
    assert "\n" not in str(failed.value)
    engine.close()


def test_closing_gives_torch_its_threads_back(folders):
    before = torch.get_num_threads()
    Transformers([described(folders[0], "fp32")], threads=before + 1).close()
    assert torch.get_num_threads() == before

"""Which drafters a target is searched with."""

from msgspec.structs import replace

from specgauge.profiler.candidates import NGRAM_SIZE, candidates_of
from specgauge.profiler.records import ModelFile

TARGET = ModelFile(
    label="t.gguf",
    path="/t.gguf",
    sha256="a",
    size_bytes=1,
    name="t",
    architecture="qwen35",
    quant="Q4_K_M",
    parameters=1,
    tokenizer_sha256="x",
)
DRAFT = replace(TARGET, label="d.gguf", sha256="b", architecture="qwen3", quant="Q8_0")


def kinds(target=TARGET, drafts=(), can=()):
    return [(c.drafter, c.draft) for c in candidates_of(target, drafts, can)]


def test_a_target_alone_is_decoded_plainly():
    assert kinds() == [("none", "")]
    assert candidates_of(TARGET, (), ())[0].draft_tokens == ()


def test_each_draft_and_the_ngram_rule_where_the_engine_has_it():
    assert kinds(drafts=[DRAFT]) == [("model", "d.gguf")]
    assert kinds(drafts=[DRAFT], can=["ngram-simple"]) == [("model", "d.gguf"), ("ngram", "ngram-simple")]
    assert min(candidates_of(TARGET, (), ["ngram-simple"])[0].draft_tokens) >= NGRAM_SIZE


def test_the_built_in_head_where_file_and_engine_have_it():
    with_head = replace(TARGET, mtp_layers=1)
    assert kinds(with_head, can=["draft-mtp"]) == [("mtp", "")]
    assert kinds(with_head) == [("none", "")]
    assert kinds(TARGET, can=["draft-mtp"]) == [("none", "")]


def test_heads_in_files_of_their_own_are_known_by_architecture():
    assert kinds(drafts=[replace(DRAFT, architecture="eagle3")]) == [("eagle", "d.gguf")]
    assert kinds(drafts=[replace(DRAFT, architecture="dflash-draft")]) == [("dflash", "d.gguf")]

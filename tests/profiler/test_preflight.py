"""Pairs of target and draft, judged from their headers; reports of users as cases, named by repository and number."""

from dataclasses import replace

import pytest

from specgauge.profiler.pairs.engine_rules import EngineRules, engine_of, engine_rules, llama_cpp_build
from specgauge.profiler.preflight import PairVerdict, check_pair, check_target

from .pairs import checkpoint, dense, hybrid, mixture, tokenizer, words

TOKENS = tokenizer(words(1000))
TARGET = checkpoint("big", dense(8e9), TOKENS)
DRAFT = checkpoint("small", dense(0.6e9), TOKENS)
NEW_BUILD, OLD_BUILD = EngineRules(build=11_549), EngineRules(build=8808)


def ids(found: PairVerdict, severity: str = "") -> list[str]:
    return [finding.id for finding in found.findings if severity in ("", finding.severity)]


def finding(found: PairVerdict, id: str):
    return next(finding for finding in found.findings if finding.id == id)


def test_equal_vocabularies_are_compatible_without_a_word():
    found = check_pair(TARGET, DRAFT)
    assert (found.verdict, found.findings, found.works) == ("compatible", (), True)
    assert found.evidence == "all 1,000 tokens are equal"


def test_another_tokenizer_shows_where_they_part_and_what_to_take():
    other = checkpoint("other", dense(0.6e9), tokenizer(words(900, "v")), family="Llama 3.2", architecture="llama")
    found = check_pair(TARGET, other)
    assert (found.verdict, found.works) == ("incompatible", False)
    assert "0 of 900 ids hold the same token, first at id 5: 'w5' against 'v5'" in found.refusal
    assert "own family (Qwen3)" in found.refusal and "\n" not in found.refusal


def test_the_same_size_with_other_tokens_is_another_tokenizer():
    shuffled = checkpoint("other", dense(0.6e9), tokenizer(reversed(words(1000))), family="Yi", architecture="llama")
    found = check_pair(TARGET, shuffled)
    assert found.verdict == "incompatible" and "1,000 of the draft's tokens are in the target" in found.evidence


def test_tokens_in_another_order_are_not_the_same():
    swapped = words(1000)
    swapped[500:520] = reversed(swapped[500:520])
    found = check_pair(TARGET, checkpoint("x", dense(0.6e9), tokenizer(swapped)))
    assert found.verdict == "incompatible"


QWEN = words(151_665)


@pytest.mark.parametrize("rows", [(152_064, 151_936), (151_936, 152_064)])
def test_padding_is_safe_and_each_engine_says_what_it_takes(rows):
    """Qwen3#326, vllm#5203, #7252, #10913: 151,936 and 152,064 rows of one tokenizer."""
    target = checkpoint("Qwen2.5-72B", dense(72e9), tokenizer(QWEN, rows[0]))
    draft = checkpoint("Qwen2.5-1.5B", dense(1.5e9), tokenizer(QWEN, rows[1]))
    found = check_pair(target, draft)
    assert (found.verdict, found.works, ids(found)) == ("padding_only", True, ["vocabulary-padding"])
    told = finding(found, "vocabulary-padding")
    assert told.severity == "note" and "all 151,665 real tokens are equal" in told.evidence
    assert "152,064" in told.evidence and "151,936" in told.evidence and "llama.cpp takes it" in told.evidence
    refusing = check_pair(target, draft, EngineRules("vllm"))
    assert (refusing.verdict, refusing.works) == ("padding_only", True)
    told = finding(refusing, "vocabulary-padding")
    assert told.severity == "warning" and "equal vocabulary sizes" in told.evidence and "#10913" in told.remedy
    assert "assistant_tokenizer" in check_pair(target, draft, EngineRules("transformers")).warnings[0]


def test_padding_beyond_128_rows_is_refused_by_llama_cpp_with_a_way_out():
    found = check_pair(TARGET, replace(DRAFT, tokenizer=tokenizer(words(1000), rows=1129)))
    assert (found.verdict, found.works) == ("padding_only", True)
    told = finding(found, "vocabulary-padding")
    assert told.severity == "warning" and "128 rows at most" in told.evidence and "padding rows" in told.remedy


def test_another_generation_of_the_family_is_named_as_that():
    """thc1006's study of an RTX 3090: Qwen3-0.6B (151,936) drafts for no Qwen3.6 (248,320), and nothing says so."""
    newer = words(248_044, "v")
    newer[:1000] = QWEN[:1000]
    target = checkpoint(
        "Qwen3.6-27B", hybrid(), tokenizer(newer, 248_320), family="Qwen3.6", architecture="qwen35", mtp_layers=1
    )
    draft = checkpoint("Qwen3-0.6B", dense(0.6e9), tokenizer(QWEN, 151_936))
    found = check_pair(target, draft, NEW_BUILD)
    assert (found.verdict, ids(found, "error")) == ("incompatible", ["another-generation"])
    told = finding(found, "another-generation")
    assert "another generation" in told.evidence and "248,320" in told.evidence and "151,936" in told.evidence
    assert "1,000 of 151,665 ids" in told.evidence and "Qwen 2 to 3" in told.evidence
    assert "will not draft" in told.remedy and "0.8B" in told.remedy and "MTP head" in told.remedy


def test_the_reason_of_a_refusal_is_given():
    """koboldcpp#2325, LM Studio #1597: one message for every reason, or none. Vocabulary type, special tokens, architecture."""
    kind = tokenizer(words(1000, "▁"), model="spm")
    spm = checkpoint("gemma", dense(0.6e9), kind, family="Gemma 2", architecture="gemma2")
    assert ids(check_pair(TARGET, spm), "error") == ["vocabulary-type"]
    assert "bpe" in check_pair(TARGET, spm).refusal and "spm" in check_pair(TARGET, spm).refusal
    ends = replace(DRAFT, tokenizer=tokenizer(words(1000), special={"bos": 1, "eos": 9}))
    told = finding(check_pair(TARGET, ends), "special-tokens")
    assert told.severity == "warning" and told.evidence == "eos is 9 in the draft and 2 in the target"
    state = check_pair(checkpoint("q", hybrid(), TOKENS, architecture="qwen35"), DRAFT, OLD_BUILD)
    assert ids(state, "error") == ["no-rollback"]


def test_special_tokens_that_one_file_does_not_name_are_not_compared():
    silent = replace(DRAFT, tokenizer=tokenizer(words(1000), special={"eos": 2}))
    assert check_pair(TARGET, silent).findings == ()


def test_a_few_renamed_tokens_are_refused_where_the_engine_compares_token_by_token():
    """Llama 3 and 3.1, Qwen2.5 and its R1 distillations: reserved tokens got names."""
    names = words(1000)
    names[990] = "<|finetune_right_pad_id|>"
    draft = replace(DRAFT, tokenizer=tokenizer(names))
    found = check_pair(TARGET, draft)
    assert (found.verdict, ids(found)) == ("incompatible", ["renamed-tokens"])
    assert (
        "1 of 1,000 ids hold another token, first id 990: 'w990' against '<|finetune_right_pad_id|>'" in found.refusal
    )
    assert check_pair(TARGET, draft, EngineRules("vllm")).verdict == "compatible"


def test_tokens_below_id_5_are_not_compared_by_llama_cpp_and_warned_of():
    names = words(1000)
    names[0] = "<unk>"
    found = check_pair(TARGET, replace(DRAFT, tokenizer=tokenizer(names)))
    assert (found.verdict, ids(found)) == ("compatible", ["first-ids"])


def test_a_vocabulary_that_goes_on_is_judged_by_the_engine():
    """Qwen2.5 has 151,665 tokens and Qwen3 four more (<think>, ...), both in 151,936 rows."""
    longer = [*words(1000), "<think>", "</think>"]
    target = replace(TARGET, tokenizer=tokenizer(longer, rows=1100))
    draft = replace(DRAFT, tokenizer=tokenizer(words(1000), rows=1100))
    found = check_pair(target, draft)
    assert found.verdict == "incompatible" and "the target has 2 more" in found.refusal and "id 1000" in found.refusal
    assert check_pair(target, draft, EngineRules("vllm")).verdict == "compatible"
    unpadded = replace(DRAFT, tokenizer=tokenizer(words(1000), rows=1000))
    found = check_pair(target, unpadded)
    assert (found.verdict, ids(found)) == ("compatible", ["extra-tokens"])


def test_files_of_two_formats_are_named():
    found = check_pair(TARGET, replace(DRAFT, format="safetensors"))
    assert ids(found) == ["formats"] and engine_of("gguf").name == "llama.cpp" != engine_of("safetensors").name


@pytest.mark.parametrize("role", ["target", "draft"])
def test_without_a_vocabulary_it_is_unknown(role):
    pair = {"target": TARGET, "draft": DRAFT}
    pair[role] = replace(pair[role], tokenizer=None)
    found = check_pair(pair["target"], pair["draft"])
    assert (found.verdict, found.works) == ("unknown", True)
    assert pair[role].path.rsplit("/", 1)[1] in found.warnings[0]


def test_an_empty_vocabulary_is_never_compatible():
    found = check_pair(TARGET, replace(DRAFT, tokenizer=tokenizer([])))
    assert found.verdict == "incompatible"


def test_what_costs_acceptance_is_a_note():
    other = replace(TOKENS, pre="llama-bpe", merges_sha256="b" * 64, chat_template="{{ other }}")
    ours = replace(TARGET, tokenizer=replace(TOKENS, merges_sha256="a" * 64, chat_template="{{ ours }}"))
    found = check_pair(ours, replace(DRAFT, tokenizer=other, family="Llama 3", architecture="llama"))
    assert found.verdict == "compatible"
    assert ids(found, "note") == ["pre-tokenizer", "merges", "chat-template", "another-family"] == ids(found)


def test_pre_tokenizers_of_two_formats_are_not_compared():
    hashed = replace(DRAFT, tokenizer=replace(TOKENS, pre="sha256:" + "0" * 64))
    assert check_pair(TARGET, hashed).findings == ()


def test_many_families_share_the_architecture_llama():
    one = checkpoint("one", dense(8e9), TOKENS, family="", architecture="llama")
    other = checkpoint("two", dense(0.6e9), tokenizer(words(900, "v")), family="", architecture="llama")
    assert ids(check_pair(one, other), "error") == ["another-tokenizer"]
    older = replace(other, family="Llama 2")
    assert ids(check_pair(replace(one, family="Llama 3.1"), older), "error") == ["another-generation"]


# sizes


def test_swapped_roles_are_named_with_their_factor():
    """llama.cpp PR 10455: 50 tokens/s fell to 10 to 12; the draft was 14 times larger than the target."""
    small, large = checkpoint("0.5B", dense(0.5e9), TOKENS), checkpoint("7B", dense(7e9), TOKENS)
    found = check_pair(small, large)
    assert (found.verdict, found.works, ids(found)) == ("compatible", True, ["draft-larger-than-target"])
    assert "14.0 times its bytes" in found.warnings[0] and "swap" in found.warnings[0]


def test_a_draft_that_is_the_target_itself_gains_nothing():
    found = check_pair(TARGET, TARGET)
    assert (found.verdict, ids(found)) == ("compatible", ["same-file"])
    assert ids(check_pair(TARGET, replace(TARGET, path="/copy.gguf", files=("/copy.gguf",)))) == ["draft-too-large"]


def test_a_large_draft_is_warned_of_with_the_break_even():
    found = check_pair(TARGET, checkpoint("half", dense(4e9), TOKENS))
    told = finding(found, "draft-too-large")
    # 0.50 of a step: llama.cpp decodes the verified tokens once more in the draft, so one token costs a whole step.
    assert "0.50 of a target step" in told.evidence and "pays above 99 % acceptance" in told.evidence
    assert "1.44x at most" in told.evidence  # 5 / (1 + 5 x 0.496): the embedding is not read
    larger = check_pair(TARGET, checkpoint("more", dense(5e9), TOKENS))
    assert "never pays" in finding(larger, "draft-too-large").evidence
    elsewhere = finding(
        check_pair(TARGET, checkpoint("half", dense(4e9), TOKENS), EngineRules("vllm")), "draft-too-large"
    )
    assert "pays above 50 % acceptance" in elsewhere.evidence
    assert ids(check_pair(TARGET, checkpoint("fifth", dense(1.6e9), TOKENS))) == []


def test_active_parameters_are_held_against_the_draft():
    """mlx-lm#1132, PR 1313: a 9B draft lost 35 % on a 397B-A17B target."""
    target = checkpoint("397B-A17B", mixture(397e9, 17e9, 512, 10), TOKENS, quant="Q4_K_M", quant_bits=4.5)
    draft = checkpoint("9B", dense(9e9, bits=4.5), TOKENS, quant_bits=8.5)
    told = finding(check_pair(target, draft), "draft-against-active-parameters")
    assert told.severity == "warning"
    assert "17.0B of its 397.0B parameters a token, the draft 8.9B" in told.evidence and "0.5" in told.evidence
    assert check_pair(target, checkpoint("0.8B", dense(0.8e9, bits=4.5), TOKENS)).findings == ()


def test_verification_of_a_mixture_reads_more_than_a_step():
    """thc1006's study: 19 configurations, none helped 35B-A3B on an RTX 3090, even at 100 % acceptance."""
    (told,) = check_target(checkpoint("35B-A3B", mixture(35e9, 3e9, 256, 8), TOKENS))
    assert told.id == "experts-in-verification" and told.severity == "warning"
    # 256 (1 - (31/32)^5) = 37.6 of 256 experts: 1.97 + 33.03 x 0.147 = 6.8 of 3.0 billion parameters.
    assert "8 of 256 experts" in told.evidence and "2.3 times a plain step" in told.evidence and "32 %" in told.evidence


@pytest.mark.parametrize(
    ("quant", "bits", "warned"),
    [
        ("Q4_0", 4.5, True),
        ("Q6_K", 6.6, True),
        ("Q8_0", 8.5, False),
        ("BF16", 16, False),
        ("int8", 8.0, False),
        ("?", 0, False),
    ],
)
def test_a_draft_below_int8_is_warned_of(quant, bits, warned):
    found = check_pair(TARGET, replace(DRAFT, quant=quant, quant_bits=bits))
    assert (ids(found) == ["draft-below-int8"]) == warned
    assert not warned or quant in found.warnings[0]


def test_a_draft_of_16_bits_is_told_what_int8_would_read():
    """llama.cpp#10664: three pairs with f16 drafts were slower than plain decoding."""
    (told,) = check_pair(TARGET, replace(DRAFT, quant="F16", quant_bits=16.0)).findings
    assert (told.id, told.severity) == ("draft-above-int8", "note") and "0.53 of its bytes" in told.remedy


def test_a_draft_of_short_context_is_named():
    """ik_llama.cpp#732: speed halved once a draft window of 1,024 tokens was full."""
    short = replace(DRAFT, context_length=1024)
    told = finding(check_pair(TARGET, short), "draft-context")
    assert told.severity == "note" and "1,024" in told.evidence and "32,768" in told.evidence
    assert finding(check_pair(TARGET, short, context=8192), "draft-context").severity == "warning"
    assert check_pair(TARGET, short, context=1000).findings == ()


# rollback and heads

QWEN35 = checkpoint("Qwen3.5-27B", hybrid(), TOKENS, family="Qwen3.5", architecture="qwen35", mtp_layers=1)


def test_a_build_that_cannot_roll_back_is_refused_with_the_least_build():
    """llama.cpp#20039, #20080, #21840: speculation silently blocked, still so in b8808; #19493 is in b8842."""
    found = check_pair(QWEN35, DRAFT, OLD_BUILD)
    assert (found.verdict, found.tokens, found.works) == ("incompatible", "compatible", False)
    assert "b8808" in found.refusal and "b8842 or newer" in found.refusal
    assert ids(check_pair(QWEN35, DRAFT, EngineRules(build=8841)), "error") == ["no-rollback"]
    assert check_pair(QWEN35, DRAFT, EngineRules(build=8842)).works


def test_an_unknown_build_is_told_the_least_one():
    told = finding(check_pair(QWEN35, DRAFT), "rollback-unknown")
    assert told.severity == "warning" and "b8842" in told.remedy
    assert (
        "see that something is drafted"
        in finding(check_pair(QWEN35, DRAFT, EngineRules("vllm")), "rollback-unknown").remedy
    )


def test_a_draft_model_on_a_hybrid_pays_for_each_rejection():
    """llama.cpp#28118: 600 of 825 ms a round were copies of the state."""
    told = finding(check_pair(QWEN35, DRAFT, NEW_BUILD), "rollback-replays")
    assert "600 of 825 ms" in told.remedy and "MTP head rolls back in place" in told.remedy
    head = checkpoint("head", dense(0.5e9, hidden=5120), head_kind="dflash")
    assert ids(check_pair(QWEN35, head, NEW_BUILD)) == ["head-owner"]


def test_a_draft_with_recurrent_state_is_named_too():
    draft = checkpoint("Qwen3.5-0.8B", dense(0.6e9), TOKENS, architecture="qwen35", recurrent=True)
    assert "the draft (qwen35) has recurrent state" in check_pair(TARGET, draft, NEW_BUILD).warnings[0]


def test_the_targets_own_head_and_state_are_told_without_any_draft():
    found = check_target(QWEN35)
    assert [f.id for f in found] == ["built-in-head", "recurrent-state"]
    assert "--spec-type draft-mtp" in found[0].remedy and "149.6 MiB" in found[1].evidence
    assert check_target(QWEN35, OLD_BUILD)[0].severity == "warning"
    assert check_target(TARGET) == ()


def test_a_head_belongs_to_a_target_of_its_width():
    """z-lab/dflash#152: 2 to 12 % accepted on one target and 50 to 59 % on its sibling, flat over quantizations."""
    head = checkpoint("eagle", dense(0.5e9, hidden=2048), None, head_kind="eagle", quant="F16", quant_bits=16)
    found = check_pair(TARGET, head)
    assert (found.verdict, ids(found)) == ("compatible", ["head-owner"])
    assert "before the quantization" in finding(found, "head-owner").remedy
    other = check_pair(TARGET, replace(head, shape=dense(0.5e9, hidden=1024)))
    assert (other.verdict, ids(other, "error")) == ("incompatible", ["head-of-another-target"])
    assert "1,024" in other.refusal and "2,048" in other.refusal
    assert check_pair(TARGET, replace(head, shape=None)).verdict == "unknown"


def test_errors_come_before_warnings_and_notes():
    draft = replace(DRAFT, tokenizer=tokenizer(words(900, "v")), quant_bits=4.5, context_length=10, shape=dense(6e9))
    severities = [finding.severity for finding in check_pair(QWEN35, draft, OLD_BUILD).findings]
    assert severities == sorted(severities, key=["error", "warning", "note"].index) and len(set(severities)) == 3


def test_every_finding_says_what_was_seen_and_what_to_do_in_one_printable_line():
    hostile = "evil\n\x1b[2J\u202e"
    tokens = tokenizer([*words(20), hostile], pre=hostile)
    target = checkpoint(hostile, hybrid(), TOKENS, family="Qwen3.5", architecture=hostile)
    draft = checkpoint(hostile, dense(20e9), tokens, family=hostile, architecture="x", quant=hostile, quant_bits=2.0)
    found = (*check_pair(target, draft).findings, *check_target(target))
    assert len(found) >= 4
    for one in found:
        assert one.evidence and one.remedy and one.sentence.isprintable(), one


# engines


@pytest.mark.parametrize(
    ("text", "build"),
    [
        ("b8842", 8842),
        ("version: 5142 (80f19b41)", 5142),
        ("version: xllamacpp 2026.10.11549", 11_549),
        ("b8808-408225bb1", 8808),
        ("version: 0.3.0-dev (build 252, commit 6b39dd5d5)", 10_000),
        ("xllamacpp 0.2.9", None),
        ("", None),
        ("unknown", None),
    ],
)
def test_builds_are_read_from_what_a_server_says(text, build):
    assert llama_cpp_build(text) == build


def test_rules_are_those_of_the_engine_named():
    assert engine_rules("llama-server", "b9000") == EngineRules("llama.cpp", 9000)
    assert engine_rules("vLLM", "0.32.0") == EngineRules("vllm")
    assert engine_rules("other").can_roll_back is None

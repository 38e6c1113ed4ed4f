"""The whole check from headers: contract, memory by term, verdicts, exit codes; cases named by repository and number."""

from dataclasses import replace

import msgspec
import pytest

from specgauge.calibrate.checks.check import check, exit_code
from specgauge.calibrate.checks.memory import MemoryOptions
from specgauge.calibrate.checks.records import CheckReport
from specgauge.profiler.free_memory import FreeMemory
from specgauge.profiler.job import Stamp
from specgauge.profiler.pairs.engine_rules import EngineRules

from ..profiler.pairs import MTP_LAYER, checkpoint, dense, hybrid, tokenizer, words

MIB, GIB = 2**20, 2**30
TOKENS = tokenizer(words(1000))
TARGET = checkpoint("big", dense(8e9), TOKENS)
DRAFT = checkpoint("small", dense(0.6e9), TOKENS)
QWEN35 = checkpoint(
    "Qwen3.5-27B",
    hybrid(bits=3.5),
    TOKENS,
    architecture="qwen35",
    mtp_layers=1,
    mtp_shape=MTP_LAYER,
    context_length=262_144,
)
STAMP = Stamp("2026-09-01T00:00:00Z", "0.0")
NEW = EngineRules(build=11_549)


def card(free_bytes: float | None, **changes) -> MemoryOptions:
    return MemoryOptions(FreeMemory(free_bytes, 0.0, "Card", "driver", on_device=True), **changes)


def ids(report: CheckReport) -> list[str]:
    return [finding.id for finding in report.findings]


def test_the_report_has_the_fields_of_the_contract_and_survives_json():
    report = check(TARGET, [DRAFT], card(24 * GIB), STAMP)
    written = msgspec.json.decode(msgspec.json.encode(report))
    assert written["kind"] == "specgauge-check" and written["schema_version"] == 1
    assert (written["pair"], written["memory"]) == ("compatible", "fits")
    assert [set(item) for item in written["checklist"]] == [{"id", "status", "detail"}] * 7
    assert all(item["status"] in ("pass", "fail", "not_measured") for item in written["checklist"])
    assert written["findings"] == [] and written["pairs"][0]["verdict"] == "compatible"
    assert written["region"] and written["largest_contexts"]
    assert msgspec.convert(written, CheckReport) == report
    assert exit_code(report) == 0


def test_terms_add_up_and_the_rest_is_what_is_free():
    report = check(TARGET, [DRAFT], card(24 * GIB, context=16_384, draft_tokens=4), STAMP)
    (memory,) = report.memories
    assert sum(term.size_bytes for term in memory.terms) == pytest.approx(memory.total_bytes)
    assert memory.spare_bytes == pytest.approx(24 * GIB - (memory.total_bytes or 0))
    owners = {(term.owner, term.name): term.size_bytes for term in memory.terms}
    assert owners["target", "cache"] == (16_384 + 8) * 24 * 4 * 2 * 128 * 2
    # llama.cpp leaves the embedding of an untied model on the host.
    assert owners["draft", "weights"] == DRAFT.size_bytes - dense(0.6e9).weights.embedding.size_bytes
    assert owners["runtime", "runtime"] == GIB


def test_the_region_is_around_what_was_asked_for():
    report = check(TARGET, [DRAFT], card(24 * GIB, context=5000, draft_tokens=3, streams=4), STAMP)
    (memory,) = report.memories
    asked = [c for c in memory.region if (c.streams, c.draft_tokens, c.context) == (4, 3, 5000)]
    assert len(asked) == 1 and asked[0].total_bytes == pytest.approx(memory.total_bytes)
    assert {c.streams for c in memory.region} == {1, 4} and {c.draft_tokens for c in memory.region} == {
        0,
        1,
        2,
        3,
        4,
        8,
    }
    assert max(c.context for c in memory.region) == TARGET.context_length
    assert all(reach.context is None or reach.context <= 32_768 for reach in memory.largest_contexts)


def test_the_default_context_is_no_longer_than_the_training():
    assert check(replace(TARGET, context_length=2048), [], card(24 * GIB), STAMP).memories[0].context == 2048
    assert check(TARGET, [], card(24 * GIB), STAMP).memories[0].context == 8192


def test_a_fit_that_forgets_the_draft_is_caught_before_anything_loads():
    """llama.cpp#23472, #28172: the automatic fit ignored the draft head and crashed at inference."""
    plain = check(TARGET, [], card(24 * GIB, context=32_768), STAMP).memories[0]
    free = (plain.total_bytes or 0) + 600 * MIB
    report = check(TARGET, [DRAFT], card(free, context=32_768, host_bytes=64 * GIB), STAMP)
    (memory,) = report.memories
    assert (report.memory, exit_code(report)) == ("does_not_fit", 0)
    told = next(finding for finding in report.findings if finding.id == "does-not-fit")
    missing = -(memory.spare_bytes or 0) / MIB
    assert f"{missing:,.0f} MiB are missing" in told.evidence
    assert {("draft", "weights"), ("draft", "cache"), ("draft", "workspace")} <= {
        (t.owner, t.name) for t in memory.terms
    }
    assert (
        "a context of" in told.remedy and "plain decoding alone" in told.remedy and "layers on the host" in told.remedy
    )
    assert memory.offload and memory.offload.host_layers >= 1
    assert next(item for item in report.checklist if item.id == "kv-room").status == "fail"
    assert next(item for item in report.checklist if item.id == "draft-tokens-in-best-region").status == "fail"


def test_each_depth_of_a_head_costs_memory_until_none_is_left():
    """qwen38-mtp PR 52, 47: +150 MiB for each depth, out of memory at 6 on 16 GB."""
    five = check(QWEN35, [], card(40 * GIB, draft_tokens=5, context=32_768), STAMP, NEW).memories[0]
    report = check(QWEN35, [], card((five.total_bytes or 0) + 50 * MIB, draft_tokens=6, context=32_768), STAMP, NEW)
    (memory,) = report.memories
    assert (memory.drafter, memory.verdict) == ("mtp", "does_not_fit")
    reach = next(r for r in memory.largest_draft_tokens if r.context == 32_768)
    assert reach.draft_tokens == 5
    told = next(finding for finding in report.findings if finding.id == "does-not-fit")
    assert "5 draft tokens at most" in told.remedy
    assert report.pair == "compatible" and "built-in-head" in ids(report)


def test_a_longer_context_is_refused_where_a_shorter_one_fits():
    """vllm#9995, #22624; club-3090#613: 98K ran out of memory, 65K was fine."""
    asked = card(40 * GIB, draft_tokens=2, context=80_000)
    room = check(QWEN35, [], asked, STAMP, NEW).memories[0].total_bytes or 0
    long, short = (
        check(QWEN35, [], card(room, draft_tokens=2, context=context), STAMP, NEW) for context in (98_304, 65_536)
    )
    assert (long.memory, short.memory) == ("does_not_fit", "fits")
    told = next(finding for finding in long.findings if finding.id == "does-not-fit")
    assert "a context of 80,000 at most" in told.remedy or "a context of 79,9" in told.remedy
    lost = next(finding for finding in short.findings if finding.id == "context-for-drafting")
    assert (
        "plain decoding could hold" in lost.evidence and "2 draft tokens of the built-in head 80,000" in lost.evidence
    )


def test_little_to_spare_on_a_driver_that_pages_is_a_silent_spill():
    """qwen38-mtp PR 48."""
    need = check(TARGET, [DRAFT], card(24 * GIB), STAMP).memories[0].total_bytes or 0
    paging = FreeMemory(need + 446 * MIB, 0.0, "Card", "driver", on_device=True, spills=True)
    report = check(TARGET, [DRAFT], MemoryOptions(paging), STAMP)
    assert report.memory == "tight" and {"memory-tight", "silent-spill"} <= set(ids(report))
    assert "446 MiB to spare" in next(f for f in report.findings if f.id == "silent-spill").evidence


def test_a_head_and_a_draft_are_checked_side_by_side():
    draft = checkpoint("Qwen3.5-0.8B", dense(0.8e9), TOKENS, architecture="qwen35")
    report = check(QWEN35, [draft], card(40 * GIB), STAMP, NEW)
    assert [(m.drafter, m.draft) for m in report.memories] == [("model", draft.path), ("mtp", "")]
    states = [next(t.size_bytes for t in m.terms if t.name == "recurrent state") for m in report.memories]
    # One checkpoint beside the state for a draft model, a copy for each verified row for the head.
    assert states == pytest.approx([2 * 149.625 * MIB, 4 * 149.625 * MIB], rel=1e-3)


def test_the_worst_of_several_drafts_decides():
    other = checkpoint("other", dense(0.6e9), tokenizer(words(900, "v")), family="Llama 3", architecture="llama")
    report = check(TARGET, [DRAFT, other], card(24 * GIB), STAMP)
    assert (report.pair, exit_code(report)) == ("incompatible", 2)
    assert [pair.verdict for pair in report.pairs] == ["compatible", "incompatible"]
    tokens = report.checklist[0]
    assert (tokens.id, tokens.status) == ("same-tokenizer", "fail") and tokens.detail.startswith("other.gguf: 0 of 900")


@pytest.mark.parametrize(
    ("draft", "engine", "verdict", "code"),
    [
        (DRAFT, NEW, "compatible", 0),
        (replace(DRAFT, quant_bits=4.5), NEW, "compatible", 0),
        (replace(DRAFT, tokenizer=tokenizer(words(1000), rows=1100)), NEW, "padding_only", 0),
        (replace(DRAFT, tokenizer=tokenizer(words(1000), rows=5000)), NEW, "padding_only", 0),
        (checkpoint("large", dense(70e9), TOKENS), NEW, "compatible", 0),
        (replace(DRAFT, tokenizer=None), NEW, "unknown", 0),
        (replace(DRAFT, tokenizer=tokenizer(words(1000, "v"))), NEW, "incompatible", 2),
        (replace(DRAFT, recurrent=True, architecture="mamba"), EngineRules(build=8000), "incompatible", 2),
    ],
)
def test_only_a_pair_that_cannot_work_exits_with_2(draft, engine, verdict, code):
    report = check(TARGET, [draft], card(200 * GIB), STAMP, engine)
    assert (report.pair, exit_code(report)) == (verdict, code)


def test_a_target_alone_is_no_pair():
    report = check(TARGET, [], card(24 * GIB), STAMP)
    assert (report.pair, report.memory, report.pairs, exit_code(report)) == ("unknown", "fits", (), 0)
    assert report.memories[0].drafter == "none" and report.memories[0].draft_tokens == 0
    assert report.checklist[0].status == "not_measured"


def test_an_unknown_shape_or_no_figure_of_memory_is_unknown_and_says_why():
    blind = replace(DRAFT, shape=None, shape_unknown="no hidden size in the header")
    report = check(TARGET, [blind], card(24 * GIB), STAMP)
    assert report.memory == "unknown" and "no hidden size" in report.memories[0].reason
    assert "memory-unknown" in ids(report) and exit_code(report) == 0
    report = check(TARGET, [DRAFT], card(None), STAMP)
    assert report.memory == "unknown" and report.memories[0].terms and report.memories[0].region == ()
    assert "--memory" in next(f for f in report.findings if f.id == "memory-unknown").remedy


def test_nothing_free_does_not_fit_and_has_no_region():
    report = check(TARGET, [DRAFT], card(0.0), STAMP)
    assert report.memory == "does_not_fit" and report.region == () and exit_code(report) == 0


def test_a_context_beyond_the_training_is_warned_of():
    report = check(TARGET, [DRAFT], card(48 * GIB, context=40_000), STAMP)
    assert "context-beyond-training" in ids(report) and "draft-context" in ids(report)


def test_quantized_caches_take_less():
    f16, q8 = (
        check(TARGET, [DRAFT], card(24 * GIB, kv_type_k=t, kv_type_v=t), STAMP).memories[0].terms
        for t in ("f16", "q8_0")
    )
    sizes = [next(t.size_bytes for t in terms if (t.owner, t.name) == ("target", "cache")) for terms in (f16, q8)]
    assert sizes[1] / sizes[0] == pytest.approx(34 / 64)


def test_a_coarse_cache_of_the_draft_is_warned_of():
    """llama.cpp#15039, vllm#55557."""
    coarse = card(24 * GIB, draft_kv_type_k="q4_0")
    assert "draft-cache-below-q8" in ids(check(TARGET, [DRAFT], coarse, STAMP))
    assert "draft-cache-below-q8" not in ids(check(TARGET, [], coarse, STAMP))


@pytest.mark.parametrize("bad", [{"context": -1}, {"draft_tokens": -1}, {"streams": 0}, {"kv_type_k": "q9"}])
def test_impossible_options_are_refused(bad):
    with pytest.raises(ValueError):
        card(24 * GIB, **bad)


def test_what_the_readers_found_odd_is_told_once():
    odd = replace(TARGET, warnings=("tensor data ends before the file does",))
    report = check(odd, [DRAFT, DRAFT], card(24 * GIB), STAMP)
    assert ids(report).count("file") == 1


def test_weights_that_an_engine_quantizes_at_load_are_counted_as_loaded(tmp_path):
    from specgauge.calibrate.checks.memory import as_loaded
    from specgauge.profiler.checkpoints.reading import read_checkpoint

    from ..profiler.safetensors_files import model_folder

    checkpoint = read_checkpoint(str(model_folder(tmp_path)))
    assert checkpoint.shape
    stored = checkpoint.shape.weights.total
    smaller = as_loaded(checkpoint, stored.size_bytes // 4).shape
    assert smaller
    loaded = smaller.weights.total
    assert loaded.size_bytes == pytest.approx(stored.size_bytes / 4, rel=0.01)
    assert loaded.parameters == stored.parameters
    assert as_loaded(checkpoint, stored.size_bytes) is checkpoint

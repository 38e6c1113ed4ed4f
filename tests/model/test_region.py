"""The memory region: every cell against the deployment itself, reaches against a scan, terms that add up."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specgauge.model.kv import KvTypes
from specgauge.model.memory import Deployment
from specgauge.model.region import Demand, layers_that_leave, memory_region, terms
from specgauge.model.shape import LinearAttention, Shape, SoftmaxAttention, Tensors, Weights

MIB, GIB = 2**20, 2**30
Q8 = KvTypes.named("q8_0", "q8_0")


def dense(size_bytes: int, layers: int, hidden: int, kv_heads: int, head_dim: int, vocabulary: int) -> Shape:
    head = size_bytes // 20
    return Shape(
        Weights(
            embedding=Tensors(vocabulary * hidden, head),
            output_head=Tensors(vocabulary * hidden, head),
            mlp=Tensors(1, size_bytes - 2 * head),
        ),
        vocabulary=vocabulary,
        hidden=hidden,
        attention=(SoftmaxAttention(layers, kv_heads * 4, kv_heads, head_dim, head_dim),),
    )


QWEN_27B = Shape(
    Weights(
        embedding=Tensors(1, 10**9),
        output_head=Tensors(1, 10**9),
        mlp=Tensors(1, 8 * 10**9),
        mtp_head=Tensors(1, 10**8),
    ),
    vocabulary=248_320,
    hidden=5120,
    attention=(SoftmaxAttention(16, 24, 4, 256, 256),),
    linear_attention=(LinearAttention(48, 48, 16, 128, 128, 4),),
)
"""The hybrid of qwen38-mtp PR 52, at about 3 bits a weight so that 16 GB hold it."""
MTP_LAYER = Shape(Weights(), vocabulary=248_320, hidden=5120, attention=(SoftmaxAttention(1, 24, 4, 256, 256),))
SMALL = dense(500 * MIB, layers=12, hidden=1024, kv_heads=4, head_dim=64, vocabulary=32_000)
LARGE = dense(4 * GIB, layers=32, hidden=4096, kv_heads=8, head_dim=128, vocabulary=32_000)
PAIR = Deployment(LARGE, SMALL)


def test_every_cell_is_what_the_deployment_needs():
    region = memory_region(PAIR, 8 * GIB, (0, 1, 4), (512, 8192), (1, 3), Q8)
    assert len(region.cells) == 12
    for cell in region.cells:
        need = PAIR.need(cell.draft_tokens, cell.context, cell.streams, Q8)
        assert cell.total_bytes == pytest.approx(float(need.total_bytes))
        assert cell.verdict == need.verdict(8 * GIB)
    assert region.cell(4, 8192, 3).total_bytes > region.cell(4, 8192, 1).total_bytes
    with pytest.raises(KeyError):
        region.cell(5, 8192)


@given(st.integers(5 * GIB, 16 * GIB), st.integers(1, 4))
@settings(max_examples=25, deadline=None)
def test_the_largest_context_fits_and_one_token_more_does_not(free_bytes, streams):
    region = memory_region(PAIR, free_bytes, (0, 2, 8), (1024,), (streams,))
    for reach in region.contexts:

        def needed(context, g=reach.at):
            return PAIR.need(g, context, streams).total_bytes

        if reach.most is None:
            assert needed(0) > free_bytes
        else:
            assert needed(reach.most) <= free_bytes
            assert reach.most == 2**20 or needed(reach.most + 1) > free_bytes


def test_the_largest_draft_length_is_that_of_a_scan():
    region = memory_region(PAIR, 7 * GIB, (1,), (1000, 8000, 14_000), draft_limit=40)
    for reach in region.draft_tokens:
        fits = [g for g in range(41) if PAIR.need(g, reach.at).total_bytes <= 7 * GIB]
        assert reach.most == (max(fits) if fits else None)


def test_terms_add_up_to_the_total_and_name_their_owner():
    need = Deployment(QWEN_27B, MTP_LAYER).need(3, 8192, 2)
    found = terms(need)
    assert sum(term.size_bytes for term in found) == pytest.approx(float(need.total_bytes))
    assert [(t.owner, t.name) for t in found[:4]] == [
        ("target", "weights"),
        ("target", "cache"),
        ("target", "recurrent state"),
        ("target", "workspace"),
    ]
    assert ("draft", "weights") not in [(t.owner, t.name) for t in found]
    state = next(t for t in found if t.name == "recurrent state")
    assert state.mebibytes == pytest.approx(2 * 4 * 149.625, abs=0.1)


def test_plain_decoding_has_no_draft_term():
    assert {term.owner for term in terms(PAIR.need(0, 1000))} == {"target", "runtime"}
    assert {term.owner for term in terms(PAIR.need(1, 1000))} == {"target", "draft", "runtime"}


def test_each_further_draft_token_of_a_hybrid_costs_about_150_mib_and_16_gb_end_at_a_depth():
    """qwen38-mtp PR 52 and 47: +150 MiB each after the first, out of memory at 6 on a card of 16 GB."""
    deployment = Deployment(QWEN_27B, MTP_LAYER)
    totals = np.array([deployment.need(g, 32_768).total_bytes for g in range(1, 9)]) / MIB
    assert np.diff(totals) == pytest.approx(np.full(7, 150), abs=8)
    room_at_five = float(deployment.need(5, 32_768).total_bytes) + 50 * MIB
    region = memory_region(deployment, room_at_five, (1, 5, 6), (32_768,))
    assert region.draft_tokens[0].most == 5
    assert region.cell(6, 32_768).verdict.verdict == "does_not_fit"
    assert region.cell(6, 32_768).verdict.missing_mebibytes == pytest.approx(100, abs=10)


def test_context_and_draft_length_are_zero_sum():
    """vllm#9995, club-3090#613: 98K ran out of memory where 65K was fine; each drafted token takes context away."""
    free = float(PAIR.need(4, 80_000).total_bytes)
    region = memory_region(PAIR, free, (0, 1, 2, 4, 8), (65_536, 98_304))
    assert region.cell(4, 65_536).verdict.verdict != "does_not_fit"
    assert region.cell(4, 98_304).verdict.verdict == "does_not_fit"
    reaches = [reach.most or 0 for reach in region.contexts]
    assert reaches == sorted(reaches, reverse=True) and len(set(reaches)) == len(reaches)


def test_an_automatic_fit_that_ignores_the_draft_would_crash():
    """llama.cpp#23472, #28172: what fits the target alone is beyond the card once draft, its cache and the wider pass count."""
    context = 16_384
    plain = float(PAIR.need(0, context).total_bytes)
    region = memory_region(PAIR, plain + 100 * MIB, (0, 3), (context,))
    assert region.cell(0, context).verdict.verdict == "tight"
    missing = region.cell(3, context).verdict.missing_mebibytes
    extra = {(t.owner, t.name): t.mebibytes for t in terms(PAIR.need(3, context))}
    draft = sum(size for (owner, _), size in extra.items() if owner == "draft")
    assert missing == pytest.approx(
        draft + (PAIR.need(3, context).target.total_bytes - PAIR.need(0, context).target.total_bytes) / MIB - 100
    )
    assert extra["draft", "weights"] > 0 and extra["draft", "cache"] > 0 and extra["draft", "workspace"] > 0


def test_layers_leave_until_the_rest_fits():
    demand = Demand(context=8192, draft_tokens=2)
    need = float(PAIR.need(2, 8192).total_bytes)
    split = layers_that_leave(PAIR, demand, need - GIB, 64 * GIB)
    assert split and split.device_layers + split.host_layers == 32
    assert split.device_bytes <= need - GIB and split.device_bytes + split.host_bytes == pytest.approx(need)
    fewer = layers_that_leave(PAIR, demand, need - GIB / 2, 64 * GIB)
    assert fewer and fewer.host_layers < split.host_layers
    all_stay = layers_that_leave(PAIR, demand, need, 64 * GIB)
    assert all_stay and all_stay.host_layers == 0


@pytest.mark.parametrize(("free", "host"), [(GIB // 4, 64 * GIB), (5 * GIB, 1000), (0, 64 * GIB), (5 * GIB, 0)])
def test_where_no_split_helps_there_is_none(free, host):
    assert layers_that_leave(PAIR, Demand(8192, 2), free, host) is None


@pytest.mark.parametrize("axes", [((), (1,), (1,)), ((1,), (), (1,)), ((1,), (1,), ()), ((-1,), (1,), (1,))])
def test_an_empty_axis_or_a_negative_length_is_refused(axes):
    with pytest.raises(ValueError):
        memory_region(PAIR, GIB, *axes)
    with pytest.raises(ValueError):
        memory_region(PAIR, 0, (1,), (1,))

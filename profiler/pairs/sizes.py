"""Draft against target by size: bytes of a step, active parameters, bits, trained context."""

from ..checkpoints.checkpoint import Checkpoint
from ..files import shown
from ..finding import Finding, note, warning
from .cost import PairCost, pair_cost
from .tokens import file_name

LARGEST_SHARE = 0.25
"""A draft step above this share of a target step is warned of: an RTX 3090 asks as much for one more verified token, the
draft's own time not counted (marginal costs reported in qwen38-mtp: 0.17 steps on an RTX 5090, 0.25 on an RTX 3090)."""
INT8_BITS = 7.5
"""Bits a weight from which a file counts as int8: Q8_0 has 8.5, int8 with its scales 8 and more, Q6_K 6.6."""
WIDE_BITS, Q8_0_BITS = 12.0, 8.5
SHOWN_DRAFT_TOKENS = 4


def compare_sizes(
    target: Checkpoint, draft: Checkpoint, engine: str, context: int | None = None
) -> tuple[Finding, ...]:
    """Findings on bytes, bits and trained context of a draft for `target`; `context`: tokens that a stream is to hold."""
    cost = pair_cost(target, draft, engine)
    return (*_bytes(target, draft, cost), *_bits(draft), *_context(target, draft, context))


def draft_larger(draft: str, target: str, draft_bytes: float, target_bytes: float) -> Finding:
    """A draft file larger than its target: the roles are swapped, most likely."""
    evidence = (
        f"draft {draft} is larger than target {target}, {draft_bytes / target_bytes:.1f} times its bytes "
        f"({draft_bytes / 1e6:,.0f} MB against {target_bytes / 1e6:,.0f} MB)"
    )
    return warning("draft-larger-than-target", evidence, "it can only slow it down; swap them?")


def expert_traffic(target: Checkpoint) -> list[Finding]:
    """Verification of a mixture of experts touches more of them than a step: U(n) distinct ones (arXiv 2505.19645)."""
    shape = target.shape
    if shape is None or not shape.experts:
        return []
    ratio = float(shape.pass_bytes(SHOWN_DRAFT_TOKENS + 1).total / shape.pass_bytes(1).total)
    needed = min((ratio - 1) / SHOWN_DRAFT_TOKENS, 1.0)
    evidence = (
        f"a token uses {shape.experts_per_token} of {shape.experts} experts: verifying {SHOWN_DRAFT_TOKENS} drafted tokens "
        f"reads {ratio:.1f} times a plain step where tokens choose independently, which takes {needed * 100:.0f} % of them accepted "
        "to pay, the draft's own time aside"
    )
    finding = warning if needed > LARGEST_SHARE else note
    return [finding("experts-in-verification", evidence, "profile draft lengths 1 and 2 beside plain decoding")]


def _bytes(target: Checkpoint, draft: Checkpoint, cost: PairCost | None) -> list[Finding]:
    """By bytes of a step, which is what a step of one stream costs."""
    if target.files and set(target.files) == set(draft.files):
        evidence = "draft and target are the same file: a drafted token costs what it could save"
        return [warning("same-file", evidence, "take a smaller draft, a built-in head or an n-gram drafter")]
    larger = draft.size_bytes > target.size_bytes > 0
    if larger and (cost is None or cost.share > 1):
        names = [file_name(model) for model in (draft, target)]
        return [draft_larger(names[0], names[1], draft.size_bytes, target.size_bytes)]
    return [_draft_large(target, draft, cost)] if cost and cost.share > LARGEST_SHARE else []


def _draft_large(target: Checkpoint, draft: Checkpoint, cost: PairCost) -> Finding:
    """With few active experts a target's step is small, whatever its file: that is named where it is the reason."""
    evidence = (
        f"a draft step reads {cost.share:.2f} of a target step "
        f"({cost.draft_bytes / 1e9:.2f} GB against {cost.target_bytes / 1e9:.2f} GB)"
    )
    id = "draft-too-large"
    if target.shape and target.shape.experts:
        id = "draft-against-active-parameters"
        active = f"{_count(target.shape.active_parameters)} of its {_count(target.parameters)} parameters a token"
        evidence = f"the target uses {active}, the draft {_count(_active(draft))}: {evidence}"
    told = f"{evidence}; by bytes alone, {_gain(cost)}"
    fewer = ", or one of fewer bits where its acceptance holds" if draft.quant_bits >= INT8_BITS else ""
    return warning(id, told, f"take a smaller draft{fewer}")


def _gain(cost: PairCost) -> str:
    ceiling = f"perfect drafts of {SHOWN_DRAFT_TOKENS} reach {cost.ceiling(SHOWN_DRAFT_TOKENS):.2f}x at most"
    one = "one drafted token" + (", two draft passes a round," if cost.extra_passes else "")
    if cost.break_even >= 1:
        return f"{one} never pays and {ceiling}"
    return f"{one} pays above {cost.break_even * 100:.0f} % acceptance and {ceiling}"


def _bits(draft: Checkpoint) -> list[Finding]:
    if draft.quant_bits >= WIDE_BITS and not draft.head_kind:
        evidence = f"the draft is {shown(draft.quant)}, {draft.quant_bits:.0f} bits a weight"
        remedy = f"a Q8_0 copy reads {Q8_0_BITS / draft.quant_bits:.2f} of its bytes for each drafted token"
        return [note("draft-above-int8", evidence, remedy)]
    if not draft.quant_bits or draft.quant_bits >= INT8_BITS:
        return []
    evidence = (
        f"the draft is {shown(draft.quant)}, {draft.quant_bits:.1f} bits a weight: below int8 acceptance can break"
    )
    remedy = "take Q8_0 or int8, or keep it only where its acceptance is measured to hold beside an int8 copy"
    return [warning("draft-below-int8", evidence, remedy)]


def _context(target: Checkpoint, draft: Checkpoint, context: int | None) -> list[Finding]:
    wanted = context or target.context_length or 0
    if draft.head_kind or not draft.context_length or draft.context_length >= wanted:
        return []
    evidence = f"the draft was trained for {draft.context_length:,} tokens of context, {wanted:,} are wanted"
    remedy = (
        "past that acceptance falls, and an engine that slides the draft's window reads it in anew (ik_llama.cpp#732): stay "
        "below it, or profile there"
    )
    return [(warning if context else note)("draft-context", evidence, remedy)]


def _active(model: Checkpoint) -> float:
    return model.shape.active_parameters if model.shape else model.parameters


def _count(parameters: float) -> str:
    return f"{parameters / 1e9:.1f}B" if parameters >= 1e9 else f"{parameters / 1e6:.0f}M"

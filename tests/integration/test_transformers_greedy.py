"""Greedy speculation on the real model gives the target's own text, but where two tokens are as good as equal."""

import pytest

pytest.importorskip("transformers")

import torch

from .smollm2 import loop, questions, top_two_gap

NEW_TOKENS, DRAFT_TOKENS, EQUAL = 64, 4, 1e-3


def differences(prompts) -> list[float]:
    """Top-two logit gap at the first difference of each pair of texts that differ: fp32 target, its own int4 copy drafting."""
    torch.set_num_threads(1)
    gaps = []
    for prompt in prompts:
        plain = loop("fp32").replies([prompt], NEW_TOKENS).tokens[0]
        drafted = loop("fp32", "int4").replies([prompt], NEW_TOKENS, DRAFT_TOKENS).tokens[0]
        at = next((i for i, (a, b) in enumerate(zip(plain, drafted)) if a != b), None)
        if at is not None:
            gaps.append(top_two_gap("fp32", [*prompt, *plain[:at]]))
    return gaps


@pytest.mark.parametrize("count", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_an_int4_self_draft_changes_no_greedy_text(count):
    gaps = differences(questions(count))
    print(f"{len(gaps)} of {count} texts differ, at top-two gaps {gaps}")
    assert all(gap < EQUAL for gap in gaps)

"""A draft step's floor: small drafts wait for launches."""

import pytest

from specgauge.model.draft import draft_step_seconds


def test_a_small_draft_is_bound_by_launches_and_no_ratio_of_parameters():
    """Qwen3-1.7B in bf16 on an H100 (vLLM without CUDA graphs for the draft): 3.0 ms where its bytes take 1.0 ms."""
    step = draft_step_seconds(1.7e9 * 2, 3.35e12, 3.0e-3)
    assert step.launch_bound and step.seconds == pytest.approx(3.0e-3)
    assert draft_step_seconds(1.7e9 * 2, 3.35e12, 0.0).seconds == pytest.approx(1.0e-3, rel=0.02)


def test_a_large_draft_is_bound_by_its_bytes():
    step = draft_step_seconds(7e9, 1e12, 1.5e-3)
    assert not step.launch_bound and step.body_seconds == pytest.approx(7e-3)


def test_head_sampling_and_host_come_on_top_and_keep_their_names():
    step = draft_step_seconds(1e9, 1e12, 2e-3, head_seconds=0.5e-3, sample_seconds=0.2e-3, host_seconds=0.1e-3)
    assert (step.body_seconds, step.head_seconds, step.sample_seconds, step.host_seconds) == (
        2e-3,
        0.5e-3,
        0.2e-3,
        0.1e-3,
    )
    assert step.seconds == pytest.approx(2.8e-3)


@pytest.mark.parametrize("arguments", [(1e9, 0.0, 0.0), (-1.0, 1e12, 0.0), (1e9, 1e12, -1e-3), (1e9, 1e12, 0.0, -1e-3)])
def test_impossible_parts_are_refused(arguments):
    with pytest.raises(ValueError):
        draft_step_seconds(*arguments)

"""Pairs of target and draft, judged from their headers."""

import msgspec
import pytest

from specgauge.profiler.preflight import check_pair
from specgauge.profiler.records import ModelFile

TARGET = ModelFile(
    label="big",
    path="/models/big.gguf",
    sha256="1" * 64,
    size_bytes=8_000_000,
    name="big",
    architecture="llama",
    quant="Q8_0",
    parameters=8_000_000,
    tokenizer_sha256="a" * 64,
)
DRAFT = msgspec.structs.replace(TARGET, label="small", path="/models/small.gguf", sha256="2" * 64, size_bytes=1_000_000)


def test_one_tokenizer_is_compatible():
    found = check_pair(TARGET, DRAFT)
    assert (found.verdict, found.warnings) == ("compatible", ())


def test_another_tokenizer_is_incompatible_and_says_which_file_and_what_to_do():
    found = check_pair(TARGET, msgspec.structs.replace(DRAFT, tokenizer_sha256="b" * 64))
    assert found.verdict == "incompatible"
    assert "/models/small.gguf" in found.reasons[0] and "family" in found.reasons[0]


@pytest.mark.parametrize("role", ["target", "draft"])
def test_a_file_without_vocabulary_leaves_it_unknown(role):
    pair = {"target": TARGET, "draft": DRAFT}
    pair[role] = msgspec.structs.replace(pair[role], tokenizer_sha256="")
    found = check_pair(**pair)
    assert found.verdict == "unknown" and pair[role].label in found.reasons[0]


def test_swapped_roles_are_warned_of():
    found = check_pair(DRAFT, TARGET)
    assert found.verdict == "compatible" and "swap" in found.warnings[0]


def test_the_same_file_may_draft_for_itself():
    found = check_pair(TARGET, TARGET)
    assert (found.verdict, found.warnings) == ("compatible", ()) and "same file" in found.reasons[0]

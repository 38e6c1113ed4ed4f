"""Vocabularies compared by content, against a comparison written out."""

from hypothesis import given
from hypothesis import strategies as st

from specgauge.profiler.pairs.vocabulary import FIRST_CHECKED_ID, overlap, shown_token, tokens_of

from .pairs import tokenizer, words

VOCABULARY = st.lists(st.text(max_size=3), max_size=12)


@given(VOCABULARY)
def test_tokens_are_those_that_were_packed(tokens):
    assert [token.decode() for token in tokens_of(tokenizer(tokens))] == tokens


@given(VOCABULARY, VOCABULARY)
def test_the_overlap_is_that_of_a_comparison_id_by_id(ours, theirs):
    found = overlap(tokenizer(ours, rows=20), tokenizer(theirs, rows=30))
    unequal = [i for i in range(min(len(ours), len(theirs))) if ours[i] != theirs[i]]
    assert found.equal_ids == found.common_ids - len(unequal)
    assert (found.first.id if found.first else None) == (unequal[0] if unequal else None)
    checked = [i for i in unequal if i >= FIRST_CHECKED_ID]
    assert (found.first_checked.id if found.first_checked else None) == (checked[0] if checked else None)
    assert found.extra_tokens == len(ours) - len(theirs) and found.extra_rows == 10
    if ours != theirs:
        assert found.shared == len(set(ours) & set(theirs))


def test_the_first_difference_shows_both_tokens():
    ours = words(20)
    found = overlap(tokenizer(ours), tokenizer([*ours[:9], "\x1b[31m\n", *ours[10:]]))
    assert found.first and (found.first.id, found.first.target) == (9, "'w9'")
    assert found.first.draft.isprintable() and "x1b" in found.first.draft


def test_shown_tokens_are_short_printable_and_never_fail():
    assert shown_token("Ġthe".encode()) == "'Ġthe'"
    assert shown_token(b"\xff\xfe").isprintable()
    assert len(shown_token(b"x" * 10_000)) < 40
    assert "\u202e" not in shown_token("\u202eabc".encode())


def test_entries_that_lie_of_their_length_do_no_harm():
    lying = tokenizer(["ab"], entries=(2**60).to_bytes(8, "little") + b"ab")
    assert tokens_of(lying) == [b"ab"]
    assert tokens_of(tokenizer([], entries=b"\x01\x00")) == []

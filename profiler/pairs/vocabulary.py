"""Two vocabularies side by side: which ids mean the same token in both. Compared by content, never by size alone."""

from dataclasses import dataclass

from ..checkpoints.checkpoint import Tokenizer

LENGTH_BYTES = 8
SHOWN_CHARACTERS = 32


@dataclass(frozen=True)
class Difference:
    """The first id at which two vocabularies hold different tokens, and both as printable text."""

    id: int
    target: str
    draft: str


@dataclass(frozen=True)
class Overlap:
    """What the vocabularies of a target and a draft have in common.

    `equal_ids` of the `common_ids` that both have hold the same token; `shared` tokens of the draft are in the target under
    any id. `first` is where they first differ, `first_checked` the same from llama.cpp's first compared id (5) on.
    """

    target_tokens: int
    draft_tokens: int
    target_rows: int
    draft_rows: int
    equal_ids: int
    shared: int
    first: Difference | None = None
    first_checked: Difference | None = None

    @property
    def common_ids(self) -> int:
        """Ids of real tokens that both have."""
        return min(self.target_tokens, self.draft_tokens)

    @property
    def extra_tokens(self) -> int:
        """Real tokens that one has behind the last of the other: above 0 the target's, below 0 the draft's."""
        return self.target_tokens - self.draft_tokens

    @property
    def extra_rows(self) -> int:
        """By how many rows the embeddings differ, either way."""
        return abs(self.target_rows - self.draft_rows)


FIRST_CHECKED_ID = 5
"""llama.cpp compares the texts of tokens from this id on (common/speculative.cpp, SPEC_VOCAB_CHECK_START_TOKEN_ID)."""


def overlap(target: Tokenizer, draft: Tokenizer) -> Overlap:
    """Compare the tokens of `target` and `draft` id by id. Equal vocabularies are told without taking them apart."""
    sizes = (target.tokens, draft.tokens, target.rows, draft.rows)
    if target.entries == draft.entries:
        return Overlap(*sizes, equal_ids=target.tokens, shared=target.tokens)
    ours, theirs = tokens_of(target), tokens_of(draft)
    unequal = [id for id, (a, b) in enumerate(zip(ours, theirs)) if a != b]
    checked = next((id for id in unequal if id >= FIRST_CHECKED_ID), None)
    return Overlap(
        *sizes,
        equal_ids=min(len(ours), len(theirs)) - len(unequal),
        shared=len(set(ours).intersection(theirs)),
        first=_difference(ours, theirs, unequal[0]) if unequal else None,
        first_checked=None if checked is None else _difference(ours, theirs, checked),
    )


def tokens_of(tokenizer: Tokenizer) -> list[bytes]:
    """The tokens in the order of their ids; what does not end where its length says is cut there."""
    entries, found, at = tokenizer.entries, [], 0
    while at + LENGTH_BYTES <= len(entries):
        end = at + LENGTH_BYTES + int.from_bytes(entries[at : at + LENGTH_BYTES], "little")
        found.append(entries[at + LENGTH_BYTES : end])
        at = end
    return found


def shown_token(token: bytes) -> str:
    """A token for people: printable and short, what cannot be printed escaped."""
    text = token.decode("utf-8", "backslashreplace")
    text = text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 3]}..."
    return repr(text) if text.isprintable() else ascii(text)


def _difference(ours: list[bytes], theirs: list[bytes], id: int) -> Difference:
    return Difference(id, shown_token(ours[id]), shown_token(theirs[id]))

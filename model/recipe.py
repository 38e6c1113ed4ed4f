"""Recipes: which named terms a round has, by drafter kind. What each term takes is in cost.py.

draft           passes x step of the draft
draft_catch_up  one pass of the draft over two tokens, which also gives the first drafted one
draft_further   (passes - 1) x step of the draft
verification    one pass of the target over drafted + 1 tokens
draft_batch     the draft's own pass over the verified tokens
rollback        undoing recurrent state
overhead        what the passes do not explain
round           all of these measured whole, where they cannot be clocked apart
"""

COMPOSITE = ("round",)

RECIPES: dict[str, tuple[str, ...]] = {
    "model": ("draft", "verification", "draft_batch", "overhead"),
    "ngram": ("verification", "overhead"),
    "mtp": COMPOSITE,
    "eagle": COMPOSITE,
    "dflash": COMPOSITE,
}
"""For llama.cpp; an engine whose rounds are made otherwise says so itself."""

DRAFT_TERMS = ("draft", "draft_catch_up", "draft_further", "draft_batch")
"""Passes of a draft model of its own."""
NEEDED_TERMS = ("verification", "overhead")
TERMS = (*DRAFT_TERMS, *NEEDED_TERMS)
"""Of which an engine's own recipe may be made: what step times and rounds alone can price."""


def flaw(drafter: str, terms: tuple[str, ...]) -> str:
    """What is wrong with an engine's own recipe for a drafter kind, in a few words; empty where nothing is."""
    if drafter not in RECIPES:
        return f"no drafter kind is called {drafter[:40]!r}: there are {', '.join(RECIPES)}"
    if terms == COMPOSITE:
        return ""
    unknown = next((term for term in terms if term not in TERMS), None)
    if unknown is not None:
        return f"no term of a round is called {unknown[:40]!r}: there are {', '.join(TERMS)}, or round alone"
    if len(set(terms)) < len(terms):
        return f"the recipe for {drafter} names a term twice"
    if lacking := [term for term in NEEDED_TERMS if term not in terms]:
        return f"the recipe for {drafter} lacks {' and '.join(lacking)}"
    if drafter != "model" and (odd := [term for term in terms if term in DRAFT_TERMS]):
        return f"the recipe for {drafter} has the term {odd[0]}, which only a draft model has"
    return ""


def widths_of_draft(terms: tuple[str, ...], longest: int) -> range | tuple[int, ...]:
    """Widths of the draft's passes in rounds of up to `longest` drafted tokens."""
    if "draft_batch" in terms:
        return range(1, longest + 2)
    return (1, 2) if "draft_catch_up" in terms else (1,)

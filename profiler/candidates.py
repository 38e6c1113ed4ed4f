"""Candidates: the settings that are searched, from the files given and what the engine can draft with."""

from collections.abc import Sequence

from msgspec.structs import replace

from .records import Candidate, ModelFile

MODEL_LENGTHS = tuple(range(1, 9))
NGRAM_SIZE = 3
NGRAM_LENGTHS = (3, 4, 5, 6, 8, 12, 16)
"""An n-gram drafter proposes at least as many tokens as have to match."""


def candidates_of(target: ModelFile, drafts: Sequence[ModelFile], can: Sequence[str]) -> list[Candidate]:
    """The target with each draft, its built-in MTP head and the n-gram drafter; alone where there is none of them.

    `can`: the engine's capabilities.
    """
    found = [_candidate(target, drafter_kind(draft), draft.label, draft.quant) for draft in drafts]
    if target.mtp_layers and "draft-mtp" in can:
        found.append(_candidate(target, "mtp"))
    if "ngram-simple" in can:
        found.append(
            replace(_candidate(target, "ngram", "ngram-simple"), ngram_size=NGRAM_SIZE, draft_tokens=NGRAM_LENGTHS)
        )
    return found or [replace(_candidate(target, "none"), draft_tokens=())]


def drafter_kind(draft: ModelFile) -> str:
    """A head that reads the target's own states, by its architecture (eagle, dflash), or a model of its own."""
    for kind in ("eagle", "dflash"):
        if draft.architecture.startswith(kind):
            return kind
    return "model"


def _candidate(target: ModelFile, drafter: str, draft: str = "", draft_quant: str = "") -> Candidate:
    return Candidate(
        target=target.label,
        target_quant=target.quant,
        drafter=drafter,
        draft=draft,
        draft_quant=draft_quant,
        draft_tokens=MODEL_LENGTHS,
    )

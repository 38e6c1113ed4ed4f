"""Whether a drafted token means the same to the target: vocabularies, special tokens, splits, family."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..checkpoints.checkpoint import Checkpoint, Tokenizer
from ..files import shown
from ..finding import Finding, error, note, warning
from .engine_rules import LLAMA_CPP, EngineRules
from .vocabulary import FIRST_CHECKED_ID, Overlap, overlap

COMPATIBLE, PADDING_ONLY, UNKNOWN, INCOMPATIBLE = "compatible", "padding_only", "unknown", "incompatible"
GENERATIONS = {151_936: "Qwen 2 to 3", 152_064: "Qwen 2 to 3", 248_320: "Qwen 3.5 and newer"}
"""Rows of embeddings by which generations of a family are known (vllm#7252, llama.cpp#20039)."""
SMALLEST_DRAFTS = {248_320: "its smallest is a 0.8B"}
SAME_SHARE = 0.99
"""Of the ids that both have: from here on two vocabularies are one, in which a few tokens were renamed."""
WATCH = "watch its acceptance"


@dataclass(frozen=True)
class Grounds:
    """A verdict, the sentence that it rests on, and what was found on the way."""

    verdict: str
    evidence: str
    findings: tuple[Finding, ...] = ()


def compare_tokens(target: Checkpoint, draft: Checkpoint, engine: EngineRules) -> Grounds:
    """Tokens by content and id, then what changes how text is split and read."""
    ours, theirs = target.tokenizer, draft.tokenizer
    if ours is None or theirs is None:
        blind = [file_name(model) for model in (target, draft) if model.tokenizer is None]
        return Grounds(UNKNOWN, "no vocabulary to compare", (tokenizer_unknown(blind),))
    found = overlap(ours, theirs)
    if found.equal_ids < SAME_SHARE * found.common_ids or not found.common_ids:
        return _another_vocabulary(target, draft, found)
    grounds = _renamed(found, engine) if found.first_checked else _same_tokens(found, engine)
    beside = (*_first_ids(found), *_special_tokens(ours, theirs), *_splits(ours, theirs), *_family(target, draft))
    return Grounds(grounds.verdict, grounds.evidence, (*grounds.findings, *beside))


def tokenizer_unknown(blind: Iterable[str]) -> Finding:
    """The files named `blind` have no vocabulary."""
    evidence = f"{' and '.join(blind)}: no vocabulary in the file, so the tokenizers cannot be compared"
    return warning("tokenizer-unknown", evidence, "take a file that has one (beside safetensors, tokenizer.json)")


def _same_tokens(found: Overlap, engine: EngineRules) -> Grounds:
    """Equal as far as both go: all of them, all but padding, or one goes on where the other ends."""
    refusal = engine.refusal(found)
    if found.extra_tokens:
        return _unequal_lengths(found, refusal)
    if not found.extra_rows:
        return Grounds(COMPATIBLE, f"all {found.equal_ids:,} tokens are equal")
    evidence = (
        f"all {found.equal_ids:,} real tokens are equal; {found.target_rows:,} rows in the target and "
        f"{found.draft_rows:,} in the draft differ by padding alone"
    )
    return Grounds(PADDING_ONLY, evidence, (_padding(evidence, refusal, engine),))


def _padding(evidence: str, refusal: str, engine: EngineRules) -> Finding:
    if refusal:
        return warning("vocabulary-padding", f"{evidence}, which is safe, but {refusal}", engine.padding_remedy)
    others = "vLLM wants equal rows (vllm#10913), transformers both tokenizers"
    taken = f"{evidence}, which is safe; {engine.name} takes it"
    return note("vocabulary-padding", taken, others if engine.name == LLAMA_CPP else "")


def _unequal_lengths(found: Overlap, refusal: str) -> Grounds:
    """Drafted tokens mean the same; those that one file has alone can never be drafted, or never be accepted."""
    more, less = ("target", "draft") if found.extra_tokens > 0 else ("draft", "target")
    evidence = (
        f"all {found.common_ids:,} tokens of the {less} are equal, the {more} has {abs(found.extra_tokens):,} more"
    )
    if refusal:
        remedy = "take a draft of the target's own generation, or an engine that compares sizes alone"
        return Grounds(INCOMPATIBLE, evidence, (error("extra-tokens", f"{evidence}; {refusal}", remedy),))
    remedy = "drafts end at them: watch acceptance where they are frequent (tool calls, thinking)"
    return Grounds(COMPATIBLE, evidence, (warning("extra-tokens", evidence, remedy),))


def _renamed(found: Overlap, engine: EngineRules) -> Grounds:
    """One vocabulary whose reserved or special tokens have other names in one of the files (fine-tunes, distillations)."""
    first = found.first_checked
    assert first
    evidence = (
        f"{found.common_ids - found.equal_ids:,} of {found.common_ids:,} ids hold another token, first id {first.id}: "
        f"{first.target} against {first.draft}"
    )
    if engine.compares_tokens:
        told = f"{evidence}; {engine.name} compares token by token and refuses the pair"
        remedy = "take a draft of the same fine-tune, or rewrite the draft's token names to the target's"
        return Grounds(INCOMPATIBLE, evidence, (error("renamed-tokens", told, remedy),))
    remedy = "a draft of such a token means another to the target: watch acceptance where they are frequent"
    return Grounds(COMPATIBLE, evidence, (warning("renamed-tokens", evidence, remedy),))


def _another_vocabulary(target: Checkpoint, draft: Checkpoint, found: Overlap) -> Grounds:
    first = found.first_checked or found.first
    where = f", first at id {first.id}: {first.target} against {first.draft}" if first else ""
    evidence = (
        f"{found.equal_ids:,} of {found.common_ids:,} ids hold the same token{where}; {found.shared:,} of the draft's tokens "
        f"are in the target under some id; {found.target_rows:,} rows in the target, {found.draft_rows:,} in the draft"
    )
    if kin(target, draft):
        return Grounds(INCOMPATIBLE, evidence, (_another_generation(target, found, evidence),))
    remedy = (
        f"take a draft of the target's own family{f' ({shown(target.family)})' if target.family else ''}; only "
        "transformers (assistant_tokenizer) and vLLM (use_heterogeneous_vocab) translate between tokenizers"
    )
    kinds = [model.tokenizer.model for model in (target, draft) if model.tokenizer]
    if len(set(kinds)) == 2:
        told = f"the target's vocabulary is {shown(kinds[0])}, the draft's {shown(kinds[1])}; {evidence}"
        return Grounds(INCOMPATIBLE, evidence, (error("vocabulary-type", told, remedy),))
    return Grounds(INCOMPATIBLE, evidence, (error("another-tokenizer", evidence, remedy),))


def _another_generation(target: Checkpoint, found: Overlap, evidence: str) -> Finding:
    """The small model of an older generation looks right and drafts nothing."""
    ours, theirs = GENERATIONS.get(found.target_rows, ""), GENERATIONS.get(found.draft_rows, "")
    names = f" ({theirs} for {ours})" if ours and theirs and ours != theirs else ""
    smallest = f" ({SMALLEST_DRAFTS[found.target_rows]})" if found.target_rows in SMALLEST_DRAFTS else ""
    head = ", or its built-in MTP head" if target.mtp_layers else ""
    remedy = f"will not draft; take a draft of the target's generation{smallest}{head}"
    return error("another-generation", f"another generation of the family{names}: {evidence}", remedy)


def _first_ids(found: Overlap) -> list[Finding]:
    first = found.first
    if first is None or found.first_checked:
        return []
    evidence = (
        f"only tokens below id {FIRST_CHECKED_ID} differ, first id {first.id}: {first.target} against {first.draft}"
    )
    return [warning("first-ids", evidence, "llama.cpp does not compare them; see that both files are of one variant")]


def _special_tokens(ours: Tokenizer, theirs: Tokenizer) -> list[Finding]:
    named = [name for name in ("bos", "eos", "eot") if name in ours.special and name in theirs.special]
    unequal = [
        f"{name} is {theirs.special[name]} in the draft and {ours.special[name]} in the target"
        for name in named
        if ours.special[name] != theirs.special[name]
    ]
    if not unequal:
        return []
    remedy = (
        "take both files of one variant (base or instruct): llama.cpp refuses another bos or eos where it adds that token, "
        "older builds always"
    )
    return [warning("special-tokens", ", ".join(unequal), remedy)]


def _splits(ours: Tokenizer, theirs: Tokenizer) -> list[Finding]:
    """What makes the draft meet text in a form that it was not trained on: acceptance, not correctness."""
    found = []
    hashed = [pre.startswith("sha256:") for pre in (ours.pre, theirs.pre)]
    if ours.pre and theirs.pre and ours.pre != theirs.pre and hashed[0] == hashed[1]:
        evidence = f"pre-tokenizers differ ({shown(ours.pre)[:24]} against {shown(theirs.pre)[:24]})"
        found.append(note("pre-tokenizer", evidence, f"the draft learned another split of text: {WATCH}"))
    if ours.merges_sha256 and theirs.merges_sha256 and ours.merges_sha256 != theirs.merges_sha256:
        found.append(note("merges", "tokens are equal and merges differ", f"the draft learned other splits: {WATCH}"))
    if ours.chat_template and theirs.chat_template and ours.chat_template != theirs.chat_template:
        remedy = f"the target's is used for both, and the draft was not trained on it: {WATCH}"
        found.append(note("chat-template", "chat templates differ", remedy))
    return found


def _family(target: Checkpoint, draft: Checkpoint) -> list[Finding]:
    if not (target.family and draft.family) or kin(target, draft):
        return []
    evidence = f"a {shown(draft.family)} drafts for a {shown(target.family)}"
    return [note("another-family", evidence, f"equal tokens do not make equal habits: {WATCH}")]


def file_name(model: Checkpoint) -> str:
    """What people call the file or folder of a model: its last part, printable."""
    return shown(Path(model.path).name or model.path)


def kin(target: Checkpoint, draft: Checkpoint) -> bool:
    """Whether families begin with the same word, Qwen3 and Qwen3.6; where one is unknown, architectures.

    Many families have the architecture llama: it makes no kin.
    """
    if target.family and draft.family:
        return _stem(target.family) == _stem(draft.family) != ""
    return _stem(target.architecture) == _stem(draft.architecture) not in ("", "llama")


def _stem(name: str) -> str:
    found = re.match(r"[a-z]+", name.lower().removesuffix("forcausallm"))
    return found[0] if found else ""

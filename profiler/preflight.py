"""Can this draft work with this target, and what will disappoint? Answered from the headers, before anything starts."""

from collections.abc import Iterable
from dataclasses import dataclass

from .checkpoints.checkpoint import Checkpoint
from .finding import ERROR, WARNING, Finding, by_severity, error, note, warning
from .pairs.engine_rules import LLAMA_CPP, EngineRules
from .pairs.rollback import pair_rollback, target_rollback
from .pairs.sizes import compare_sizes, expert_traffic
from .pairs.tokens import COMPATIBLE, INCOMPATIBLE, UNKNOWN, Grounds, compare_tokens, file_name

ENGINE = EngineRules()
"""A llama.cpp of unknown build."""


@dataclass(frozen=True)
class PairVerdict:
    """verdict: compatible, padding_only, incompatible, unknown. `tokens` is that of the vocabularies (or a head's width)
    alone, and `evidence` its grounds in one sentence.

    An error among the findings makes any pair incompatible; findings come errors first.
    """

    verdict: str
    tokens: str
    evidence: str
    findings: tuple[Finding, ...] = ()

    @property
    def works(self) -> bool:
        """Whether nothing forbids the pair."""
        return self.verdict != INCOMPATIBLE

    @property
    def refusal(self) -> str:
        """All that forbids the pair, in one line; empty where it works."""
        return "; ".join(self._sentences(ERROR))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What will disappoint, a line each."""
        return self._sentences(WARNING)

    def _sentences(self, severity: str) -> tuple[str, ...]:
        return tuple(finding.sentence for finding in self.findings if finding.severity == severity)


def check_pair(
    target: Checkpoint, draft: Checkpoint, engine: EngineRules = ENGINE, context: int | None = None
) -> PairVerdict:
    """Compare two checkpoints: tokens by content, special tokens, sizes, quantization, rollback on `engine`.

    `context`: tokens a stream is to hold; None: the target's own length.
    """
    grounds = _head(target, draft) if draft.head_kind else compare_tokens(target, draft, engine)
    sizes = compare_sizes(target, draft, engine.name, context)
    others = (*sizes, *pair_rollback(target, draft, engine), *_formats(target, draft))
    return _verdict(grounds.verdict, grounds.evidence, (*grounds.findings, *others))


def check_target(target: Checkpoint, engine: EngineRules = ENGINE) -> tuple[Finding, ...]:
    """What the target alone says: its own draft head, experts that a verification touches, recurrent state."""
    return by_severity([*_built_in_head(target, engine), *expert_traffic(target), *target_rollback(target, engine)])


def _head(target: Checkpoint, draft: Checkpoint) -> Grounds:
    """A file that is a draft head reads one target's hidden states: their width must be that target's."""
    if target.shape is None or draft.shape is None:
        evidence = f"the draft is a {draft.head_kind} head; its width cannot be compared"
        unknown = warning("head-unknown", evidence, "make sure that it was trained on this very target")
        return Grounds(UNKNOWN, evidence, (unknown, _head_owner(draft)))
    ours, theirs = target.shape.hidden, draft.shape.hidden
    if ours != theirs:
        evidence = f"the {draft.head_kind} head reads states of width {theirs:,}, the target's have {ours:,}"
        refused = error("head-of-another-target", evidence, "take the head that was trained on this target")
        return Grounds(INCOMPATIBLE, evidence, (refused,))
    return Grounds(COMPATIBLE, f"{draft.head_kind} head and target share the width {ours:,}", (_head_owner(draft),))


def _head_owner(draft: Checkpoint) -> Finding:
    evidence = (
        f"a {draft.head_kind} head ({file_name(draft)}) is trained on one target's states; a header does "
        "not prove which"
    )
    remedy = (
        "if acceptance is low, suspect the head's target or its implementation before the quantization: it was flat from "
        "3.5 to 5.5 bits (z-lab/dflash#152)"
    )
    return note("head-owner", evidence, remedy)


def _formats(target: Checkpoint, draft: Checkpoint) -> list[Finding]:
    if target.format == draft.format:
        return []
    evidence = f"the target is {target.format} and the draft {draft.format}"
    return [warning("formats", evidence, "convert one of them: engines load both from one format")]


def _built_in_head(target: Checkpoint, engine: EngineRules) -> list[Finding]:
    if not target.mtp_layers or target.head_kind:
        return []
    layers = "layer" if target.mtp_layers == 1 else "layers"
    evidence = f"the target has a built-in MTP head of {target.mtp_layers} {layers}: it drafts without a second file"
    flag = " (--spec-type draft-mtp)" if engine.name == LLAMA_CPP else ""
    return [note("built-in-head", evidence, f"let it compete with any draft{flag}")]


def _verdict(tokens: str, evidence: str, findings: Iterable[Finding]) -> PairVerdict:
    ordered = by_severity(findings)
    forbidden = any(finding.severity == ERROR for finding in ordered)
    return PairVerdict(INCOMPATIBLE if forbidden else tokens, tokens, evidence, ordered)

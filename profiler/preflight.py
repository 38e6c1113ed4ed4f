"""Can this draft work with this target? Answered from the headers, before anything starts."""

from dataclasses import dataclass

from .records import ModelFile


@dataclass(frozen=True)
class PairVerdict:
    """verdict: compatible, padding_only, incompatible, unknown. Warnings do not forbid the pair."""

    verdict: str
    reasons: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def check_pair(target: ModelFile, draft: ModelFile) -> PairVerdict:
    """Compare the tokenizers of `target` and `draft`: a drafted token must mean the same to both.

    Equal hashes are compatible, different ones incompatible (also where only padding tokens differ: a hash cannot tell),
    and a file without a vocabulary leaves it unknown.
    """
    warnings = _warnings(target, draft)
    blind = [model.label for model in (target, draft) if not model.tokenizer_sha256]
    if blind:
        reason = f"{' and '.join(blind)}: no vocabulary in the file, so the tokenizers cannot be compared"
        return PairVerdict("unknown", (reason,), warnings)
    if target.tokenizer_sha256 != draft.tokenizer_sha256:
        reason = (
            f"draft {draft.label} ({draft.path}) has another tokenizer than target {target.label}: "
            "take a draft of the target's own family"
        )
        return PairVerdict("incompatible", (reason,), warnings)
    same = target.sha256 == draft.sha256
    reason = "draft and target are the same file" if same else "draft and target have the same tokenizer"
    return PairVerdict("compatible", (reason,), warnings)


def _warnings(target: ModelFile, draft: ModelFile) -> tuple[str, ...]:
    if target.sha256 == draft.sha256 or draft.size_bytes <= target.size_bytes:
        return ()
    sizes = f"{draft.size_bytes / 1e6:,.0f} MB against {target.size_bytes / 1e6:,.0f} MB"
    return (
        f"draft {draft.label} is larger than target {target.label} ({sizes}): it can only slow it down; swap them?",
    )

"""What engines accept as a pair, and which of their builds can take rejected tokens back. Facts with their sources.

Read in public source and issue trackers up to September 2026; engines move, so each text names where it comes from.
"""

import re
from dataclasses import dataclass

from .vocabulary import Overlap

LLAMA_CPP, VLLM, TRANSFORMERS = "llama.cpp", "vllm", "transformers"
LLAMA_CPP_ROWS = 128
"""Rows by which two vocabularies may differ (ggml-org/llama.cpp, common/speculative.cpp, SPEC_VOCAB_MAX_SIZE_DIFFERENCE)."""
LLAMA_CPP_CHECKPOINTS = 8842
"""First build in which a recurrent or hybrid model can drop rejected tokens (ggml-org/llama.cpp#19493, 19 April 2026)."""
NATIVE_ROLLBACK = ("qwen35", "qwen35moe", "qwen4exp")
"""Architectures whose recurrent state llama.cpp rolls back in place, for heads (ggml-org/llama.cpp#22400, #28123)."""


@dataclass(frozen=True)
class EngineRules:
    """An engine by name, and its build number where that is known (llama.cpp: 8842 of b8842)."""

    name: str = LLAMA_CPP
    build: int | None = None

    @property
    def compares_tokens(self) -> bool:
        """Whether the engine itself refuses a pair in which any token differs (from id 5 on)."""
        return self.name == LLAMA_CPP

    def refusal(self, overlap: Overlap) -> str:
        """Why the engine refuses a pair whose drafted tokens all mean the same to the target; empty where it takes it."""
        rows = f"{overlap.target_rows:,} rows in the target, {overlap.draft_rows:,} in the draft"
        if self.name == LLAMA_CPP and overlap.extra_rows > LLAMA_CPP_ROWS:
            return f"llama.cpp takes vocabularies that differ by {LLAMA_CPP_ROWS} rows at most ({rows})"
        if self.name == LLAMA_CPP and self._meets_padding(overlap):
            return f"llama.cpp compares token by token, and id {overlap.common_ids} is a token in one file only"
        if self.name == VLLM and overlap.extra_rows:
            return f"vLLM wants equal vocabulary sizes ({rows})"
        if self.name == TRANSFORMERS and overlap.extra_rows:
            return f"transformers takes other vocabulary sizes for another tokenizer ({rows})"
        return ""

    @property
    def padding_remedy(self) -> str:
        """What to do where the engine refuses a vocabulary that differs by padding alone."""
        return {
            LLAMA_CPP: "cut or add padding rows of the draft's file so that they differ by 128 at most",
            VLLM: "pad the draft's embedding and its config's vocab_size to the target's (vllm#10913), or set "
            "use_heterogeneous_vocab with greedy drafts (vllm#38174)",
            TRANSFORMERS: "resize the draft's embedding to the target's, or give tokenizer and assistant_tokenizer",
        }.get(self.name, "see what the engine says of unequal vocabulary sizes")

    @property
    def can_roll_back(self) -> bool | None:
        """Whether recurrent state survives a rejected token; None where that is not known of the build or engine."""
        if self.name != LLAMA_CPP or self.build is None:
            return None
        return self.build >= LLAMA_CPP_CHECKPOINTS

    def _meets_padding(self, overlap: Overlap) -> bool:
        """Whether a token that one file alone has stands where the other has padding under another name."""
        return bool(overlap.extra_tokens) and overlap.common_ids < min(overlap.target_rows, overlap.draft_rows)


def llama_cpp_build(text: str) -> int | None:
    """The build number in what a llama-server says of itself: b8842, version: 8842 (...), xllamacpp 2026.10.11549.

    Releases that count 0.2.0, 0.3.0, ... came after b10000 and are newer than any number asked for here.
    """
    found = re.search(r"\bb(\d{3,6})\b|version: (\d{3,6}) \(|xllamacpp \d+\.\d+\.(\d{3,6})", text)
    if found:
        return int(next(group for group in found.groups() if group))
    return 10_000 if "xllamacpp" not in text and re.search(r"\bv?0\.\d+\.\d+", text) else None


def engine_of(format: str) -> EngineRules:
    """The engine that a format is made for, where none is named."""
    return EngineRules(LLAMA_CPP if format == "gguf" else TRANSFORMERS)


def engine_rules(name: str, build: str = "") -> EngineRules:
    """The rules of an engine as the command line or EngineInfo names it."""
    known = {LLAMA_CPP: LLAMA_CPP, "llama-server": LLAMA_CPP, "llamacpp": LLAMA_CPP, VLLM: VLLM}
    plain = known.get(name.lower(), name.lower())
    return EngineRules(plain, llama_cpp_build(build) if plain == LLAMA_CPP else None)

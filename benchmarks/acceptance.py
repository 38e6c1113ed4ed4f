"""Acceptance of SmolLM2-135M (bf16) from one teacher-forced pass of each draft, against real rounds.

    python benchmarks/acceptance.py [--prompts 20] [--new-tokens 64] [--texts 2]

Drafts bf16, int8, int4 and n-gram at draft tokens 1, 2, 4 and 8, greedy and at temperature 0.7 by both rules. Rounds are counted and
nothing is timed. Sampled text differs from run to run: there the mean over prompts is compared. Last what unequal sampling costs:
a draft that draws at temperature 1 for a target at 0.7.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from msgspec.structs import replace

from specgauge.model import acceptance
from specgauge.profiler.engines.transformers.drafters import ModelDrafter
from specgauge.profiler.engines.transformers.rounds import Replies
from specgauge.profiler.engines.transformers.sampling import Sampler
from specgauge.profiler.ngram import offers_and_runs
from specgauge.profiler.records import Sampling
from tests.integration import smollm2

LENGTHS = (1, 2, 4, 8)
DRAFTS = ("bf16", "int8", "int4", "ngram")
NGRAM_SIZE = 1
"""So that draft length 1 exists; the rule proposes at least as many tokens as must match."""
WARM = Sampling(temperature=0.7, top_k=0, top_p=1.0, min_p=0.0)
RULES = {
    "greedy": Sampling(),
    "0.7, sample and compare": WARM,
    "0.7, ratio test": replace(WARM, draft_sampling="probabilistic"),
}
Text = tuple[int, ...]


@dataclass(frozen=True)
class Counts:
    """Tokens after the first and rounds, over all prompts."""

    tokens: float
    rounds: float

    @property
    def tokens_per_round(self) -> float:
        return self.tokens / self.rounds


def real(draft: str, sampling: Sampling, prompts: Sequence[Text], new_tokens: int, length: int) -> Counts:
    """By rounds of the loop, all prompts side by side."""
    made = smollm2.loop("bf16", draft, replace(sampling, seed=1000), NGRAM_SIZE, len(prompts))
    return _counts(made.replies(prompts, new_tokens, length), new_tokens)


def _counts(found: Replies, new_tokens: int) -> Counts:
    """Rounds of each stream until its reply was whole."""
    rounds = sum(accepted >= 0 for one in found.rounds for accepted in one.accepted)
    return Counts(len(found.tokens) * (new_tokens - 1), rounds)


def _plain(sampling: Sampling, prompts: Sequence[Text], new_tokens: int) -> tuple[Text, ...]:
    return smollm2.loop("bf16", "", sampling, streams=len(prompts)).replies(prompts, new_tokens).tokens


def replayed(draft: str, sampling: Sampling, prompts: Sequence[Text], replies: Sequence[Text], length: int) -> Counts:
    """From the target's own replies, by one pass of the draft over each."""
    laws = [_law(draft, sampling, prompt, reply, length) for prompt, reply in zip(prompts, replies, strict=True)]
    return Counts(sum(law.tokens for law in laws), sum(law.rounds for law in laws))


def _law(draft: str, sampling: Sampling, prompt: Text, reply: Text, length: int) -> acceptance.RoundLaw:
    if draft == "ngram":
        offer, run = offers_and_runs(prompt, reply, NGRAM_SIZE)
        return acceptance.replay_ngram(np.array(offer), np.array(run), len(prompt), NGRAM_SIZE, length)
    return acceptance.replay_matches(_along(draft, sampling, prompt, reply), length)


_WEIGHTS: dict[tuple[str, Sampling, Text, Text], np.ndarray] = {}


def _along(draft: str, sampling: Sampling, prompt: Text, reply: Text) -> np.ndarray:
    known = (draft, sampling, prompt, reply)
    if known not in _WEIGHTS:
        _WEIGHTS[known] = np.array(smollm2.weights_along("bf16", draft, prompt, reply, sampling))
    return _WEIGHTS[known]


def mismatch(prompts: Sequence[Text], new_tokens: int, length: int) -> tuple[Counts, Counts]:
    """Ratio test with equal sampling on both sides, and with a draft left at temperature 1."""
    equal, unequal = RULES["0.7, ratio test"], Sampler(replace(WARM, temperature=1.0))
    made = smollm2.loop("bf16", "int8", replace(equal, seed=1000), streams=len(prompts))
    made.drafter = ModelDrafter(smollm2.decoder("int8", "draft", len(prompts)), unequal, made.generator)
    found = _counts(made.replies(prompts, new_tokens, length), new_tokens)
    return real("int8", equal, prompts, new_tokens, length), found


def main() -> int:
    """Print the tables; exit status 1 where a replay is further than 3 % from its rounds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--texts", type=int, default=2, help="sampled replies to each prompt that are replayed")
    parser.add_argument("--rule", default="", help="only the rules whose name holds this")
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    prompts, worst = smollm2.questions(asked.prompts), 0.0
    for rule, sampling in ((name, one) for name, one in RULES.items() if asked.rule in name):
        print(f"{rule}: tokens per round, replayed and real, over {asked.prompts} prompts x {asked.new_tokens} tokens")
        replies = [
            reply
            for seed in range(asked.texts if sampling.temperature else 1)
            for reply in _plain(replace(sampling, seed=seed), prompts, asked.new_tokens)
        ]
        for draft in DRAFTS:
            cells = []
            for length in LENGTHS:
                told = replayed(draft, sampling, prompts * (len(replies) // len(prompts)), replies, length)
                found = real(draft, sampling, prompts, asked.new_tokens, length)
                error = told.tokens_per_round / found.tokens_per_round - 1
                worst = max(worst, abs(error))
                cells.append(f"{told.tokens_per_round:6.3f} {found.tokens_per_round:6.3f} {error:+6.1%}")
            print(f"  {draft:6s} " + "   ".join(cells), flush=True)
    equal, unequal = mismatch(prompts, asked.new_tokens, 4)
    print(
        f"int8 draft, 4 draft tokens, ratio test at 0.7: {equal.tokens_per_round:.3f} tokens per round; with the draft left at "
        f"temperature 1: {unequal.tokens_per_round:.3f} ({unequal.tokens_per_round / equal.tokens_per_round - 1:+.1%})"
    )
    print(f"worst error of a replay: {worst:.1%}")
    return 0 if worst <= 0.03 else 1


if __name__ == "__main__":
    sys.exit(main())

"""Sampling: the law that tokens are drawn from, through transformers' own logits processors, the same for target and draft.

One Sampler serves both sides: that is what proves their parameters equal.
"""

from typing import cast

import torch
import transformers

from ...records import Sampling

NAMES = {
    "TemperatureLogitsWarper": "temperature",
    "TopKLogitsWarper": "top_k",
    "TopPLogitsWarper": "top_p",
    "MinPLogitsWarper": "min_p",
}
"""What each processor's class is for; its value is the attribute of that name."""
OFF = {"temperature": "1", "top_k": "0", "top_p": "1", "min_p": "0", "repeat_penalty": "1"}


class Sampler:
    """The law of one Sampling. Raises ValueError where transformers refuses a parameter.

    Order as in transformers' generate: repetition penalty, temperature, top_k, top_p, min_p.
    """

    def __init__(self, sampling: Sampling):
        self.greedy = sampling.temperature == 0
        self._penalty = (
            None
            if sampling.repeat_penalty == 1.0
            else transformers.RepetitionPenaltyLogitsProcessor(sampling.repeat_penalty)
        )
        self._warpers = [] if self.greedy else _warpers(sampling)

    @property
    def minds_history(self) -> bool:
        """Whether the law depends on the text beyond the logits."""
        return self._penalty is not None

    def settings(self) -> dict[str, str]:
        """The parameters in use, by our names, read back from the processors; one without a processor is at its off value."""
        found = dict(OFF if not self.greedy else {"temperature": "0", "repeat_penalty": OFF["repeat_penalty"]})
        if self._penalty is not None:
            found["repeat_penalty"] = f"{self._penalty.penalty:g}"
        for warper in self._warpers:
            name = NAMES[type(warper).__name__]
            found[name] = f"{getattr(warper, name):g}"
        return found

    def likeliest(
        self, history: torch.Tensor, logits: torch.Tensor, drafted: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The likeliest token (S, n) of each row; see probabilities."""
        return self._penalized(history, logits, drafted).argmax(-1)

    def probabilities(
        self, history: torch.Tensor, logits: torch.Tensor, drafted: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The law (S, n, V) of each row of `logits` (S, n, V). Row i stands behind `history` (S, L) and the first i of
        `drafted` (S, n - 1)."""
        scores = self._penalized(history, logits, drafted).float()
        flat = scores.reshape(-1, scores.shape[-1])
        ids = history[:, :1].expand(-1, scores.shape[1]).reshape(-1, 1)
        for warper in self._warpers:
            flat = warper(ids, flat)
        return flat.softmax(-1).reshape(scores.shape)

    def draw(self, law: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
        """One token (S, n) from each row of `law` (S, n, V)."""
        flat = law.reshape(-1, law.shape[-1])
        return torch.multinomial(flat, 1, generator=generator).reshape(law.shape[:-1])

    def _penalized(self, history: torch.Tensor, logits: torch.Tensor, drafted: torch.Tensor | None) -> torch.Tensor:
        if self._penalty is None:
            return logits
        if drafted is None:
            drafted = history[:, :0]
        rows = [
            self._penalty(cast(torch.LongTensor, torch.cat([history, drafted[:, :row]], dim=1)), logits[:, row].float())
            for row in range(logits.shape[1])
        ]
        return torch.stack(rows, dim=1)


def _warpers(sampling: Sampling) -> list:
    found: list = []
    if sampling.temperature != 1.0:
        found.append(transformers.TemperatureLogitsWarper(sampling.temperature))
    if sampling.top_k > 0:
        found.append(transformers.TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1.0:
        found.append(transformers.TopPLogitsWarper(sampling.top_p))
    if sampling.min_p > 0:
        found.append(transformers.MinPLogitsWarper(sampling.min_p))
    return found

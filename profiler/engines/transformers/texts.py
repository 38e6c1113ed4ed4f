"""Texts: the sequences that are being decoded, on the device for the passes and on the host for everything else."""

from collections.abc import Sequence

import torch


class Texts:
    """One growing text a stream. `host[s]` is its list of token ids; `tokens` (S, room) and `lengths` (S,) lie on the device.

    A text that has reached its end (`ends`, tokens in all; None: there is none) stays as it is while others go on. Entries
    of `tokens` behind a text's length are left over from rejected drafts.
    """

    def __init__(
        self, texts: Sequence[Sequence[int]], room: int, device: torch.device, ends: Sequence[int] | None = None
    ):
        self.host = [list(text) for text in texts]
        self.tokens = torch.zeros(len(texts), room, dtype=torch.long, device=device)
        for row, text in enumerate(texts):
            self.tokens[row, : len(text)] = torch.tensor(text, device=device)
        self.lengths = torch.tensor([len(text) for text in texts], device=device)
        self.ends = [room + 1] * len(texts) if ends is None else list(ends)
        self._ends = torch.tensor(self.ends, device=device)

    @property
    def remaining(self) -> int:
        """Tokens that the text farthest from its end still wants."""
        return max(end - len(text) for end, text in zip(self.ends, self.host, strict=True))

    @property
    def longest(self) -> int:
        """Tokens of the longest text."""
        return max(map(len, self.host))

    def last(self, count: int) -> torch.Tensor:
        """The newest `count` tokens of each text, (S, count)."""
        return self.tokens.gather(1, self.lengths[:, None] - count + torch.arange(count, device=self.tokens.device))

    def history(self) -> torch.Tensor:
        """All texts, (S, longest): behind the end of a shorter one stands its first token again."""
        length = self.longest
        if all(len(text) == length for text in self.host):
            return self.tokens[:, :length]
        inside = torch.arange(length, device=self.tokens.device) < self.lengths[:, None]
        return torch.where(inside, self.tokens[:, :length], self.tokens[:, :1])

    def append(self, drafted: torch.Tensor, accepted: torch.Tensor, token: torch.Tensor) -> list[int]:
        """Put the first `accepted[s]` (S,) of `drafted` (S, g) and then `token[s]` (S,) behind each text, on both sides.

        The only read from the device in a round. Gives what each stream accepted; -1 where its text was whole already.
        """
        places = self.lengths[:, None] + torch.arange(drafted.shape[1] + 1, device=self.tokens.device)
        written = torch.cat([drafted, token[:, None]], dim=1).scatter_(1, accepted[:, None], token[:, None])
        self.tokens.scatter_(1, places, written)
        taken = torch.where(self.lengths < self._ends, accepted, -1)
        self.lengths = self.lengths + taken + 1
        rows = torch.cat([taken[:, None], token[:, None], drafted], dim=1).tolist()
        for text, (count, last, *proposed) in zip(self.host, rows, strict=True):
            text.extend([*proposed[:count], last] if count >= 0 else [])
        return [row[0] for row in rows]

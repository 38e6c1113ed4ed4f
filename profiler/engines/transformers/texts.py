"""Texts: the sequences that are being decoded, on the device for the passes and on the host for everything else."""

from collections.abc import Sequence

import torch


class Texts:
    """One growing text a stream. `host[s]` is its list of token ids; `tokens` (S, room) and `lengths` (S,) lie on the device.

    Entries of `tokens` behind a text's length are left over from rejected drafts.
    """

    def __init__(self, texts: Sequence[Sequence[int]], room: int, device: torch.device):
        self.host = [list(text) for text in texts]
        self.tokens = torch.zeros(len(texts), room, dtype=torch.long, device=device)
        for row, text in enumerate(texts):
            self.tokens[row, : len(text)] = torch.tensor(text, device=device)
        self.lengths = torch.tensor([len(text) for text in texts], device=device)

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

    def append(self, drafted: torch.Tensor, accepted: torch.Tensor, token: torch.Tensor) -> list[tuple[int, int]]:
        """Put the first `accepted[s]` (S,) of `drafted` (S, g) and then `token[s]` (S,) behind each text, on both sides.

        The only read from the device in a round. Gives (accepted, token) of each stream.
        """
        places = self.lengths[:, None] + torch.arange(drafted.shape[1] + 1, device=self.tokens.device)
        written = torch.cat([drafted, token[:, None]], dim=1).scatter_(1, accepted[:, None], token[:, None])
        self.tokens.scatter_(1, places, written)
        self.lengths = self.lengths + accepted + 1
        rows = torch.cat([accepted[:, None], token[:, None], drafted], dim=1).tolist()
        for text, (count, last, *proposed) in zip(self.host, rows, strict=True):
            text.extend([*proposed[:count], last])
        return [(row[0], row[1]) for row in rows]

"""Rules: how much of a draft is accepted, and the token behind it. All on the device: nothing is read by the host.

compare     a proposal passes where it equals the target's own token: P = p(d) for a proposal d
ratio test  a proposal drawn from q passes with min(1, p/q), else the token comes from max(p - q, 0): P = sum min(p, q)
            (arXiv 2211.17192, 2302.01318)
forced      as many pass as chance with given rates says, whatever the text: for timing
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch


class Verdict(NamedTuple):
    """`accepted` (S,): how many of a stream's proposals pass; `token` (S,): the one behind them, the target's own."""

    accepted: torch.Tensor
    token: torch.Tensor


def compare(own: torch.Tensor, drafted: torch.Tensor) -> Verdict:
    """`own` (S, g + 1): the target's tokens behind 0..g of `drafted` (S, g)."""
    accepted = (own[:, :-1] == drafted).long().cumprod(dim=1).sum(dim=1)
    return Verdict(accepted, _at(own, accepted))


def ratio_test(p: torch.Tensor, q: torch.Tensor, drafted: torch.Tensor, generator: torch.Generator) -> Verdict:
    """`p` (S, g + 1, V) and `q` (S, g, V): laws of target and draft; `drafted` (S, g) was drawn from `q`."""
    chosen = drafted[:, :, None]
    ratio = p[:, :-1].gather(2, chosen)[:, :, 0] / q.gather(2, chosen)[:, :, 0]
    lot = torch.rand(ratio.shape, generator=generator, device=ratio.device)
    accepted = (lot < ratio).long().cumprod(dim=1).sum(dim=1)
    padded = torch.cat([q, torch.zeros_like(p[:, :1])], dim=1)  # behind a whole draft the target draws from its own law
    at = accepted[:, None, None].expand(-1, 1, p.shape[2])
    law, rest = p.gather(1, at)[:, 0], (p - padded).clamp(min=0).gather(1, at)[:, 0]
    # Where both laws are equal nothing is ever rejected but for rounding; the target's law then stands in.
    rest = torch.where(rest.sum(dim=-1, keepdim=True) > 0, rest, law)
    return Verdict(accepted, torch.multinomial(rest, 1, generator=generator)[:, 0])


def forced(own: torch.Tensor, rates: Sequence[float], generator: torch.Generator) -> Verdict:
    """`rates[j]`: chance that the first j + 1 proposals pass; the last rate holds on."""
    streams, drafted = own.shape[0], own.shape[1] - 1
    known = torch.tensor([*rates, *[rates[-1]] * drafted][:drafted], device=own.device)
    lot = torch.rand((streams, 1), generator=generator, device=own.device)
    accepted = (lot < known).long().cumprod(dim=1).sum(dim=1)
    return Verdict(accepted, _at(own, accepted))


def _at(tokens: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    return tokens.gather(1, place[:, None])[:, 0]

"""Spread: how far single replies lie apart, where acceptance is known reply by reply.

The speed of a reply to each prompt follows from its own rounds; on top comes what the same reply differs by when it is
repeated, as plain replies of the profile show by the clock, drift and all: that is what a user sees. Luck is not drawn
anew (model/simulate.py): a greedy reply's own rounds hold it. Where acceptance is known only as chances, a prompt's mean
says too little of one reply, and nothing is forecast.
"""

from collections import defaultdict
from statistics import NormalDist

import numpy as np

from ..profiler.records import Profile, Setting
from .evidence import Pair, matches_of, plain_replies
from .intervals import pooled_noise
from .records import ReplySpread
from .replies import WorkloadReplies

OWN_ROUNDS = ("plain", "matches", "rounds")
QUANTILES = (0.05, 0.5, 0.95)
NOISE_POINTS = np.array([NormalDist().inv_cdf((place + 0.5) / 401) for place in range(401)])
"""Normal noise as equally likely points."""


def known_by_reply(profile: Profile, setting: Setting, found: WorkloadReplies) -> bool:
    """Whether the laws of `found` are those of real replies of this pair: replayed flags or real rounds, not chances."""
    if found.borrowed_from or found.source not in OWN_ROUNDS:
        return False
    traces = matches_of(profile, Pair.of(setting)).values() if found.source == "matches" else ()
    return not any(trace.weight for of_prompt in traces for trace in of_prompt)


def repeat_log_sd(profile: Profile, target: str) -> float:
    """Log sd of a reply's speed between repeats of one prompt, from plain runs as the clock gave them; a stated prior where
    none was repeated."""
    speeds: dict[str, list[float]] = defaultdict(list)
    for reply in plain_replies(profile, target):
        if reply.reply_tokens > 1:
            speeds[reply.prompt.id].append((reply.reply_tokens - 1) / reply.decode_seconds)
    return pooled_noise(np.array(values) for values in speeds.values()).log_sd


def spread_of(tokens_per_second: np.ndarray, log_sd: float) -> ReplySpread:
    """5 %, median and 95 % of replies to prompts of these speeds (P,), each drawn as often, with log-normal noise."""
    replies = np.asarray(tokens_per_second)[:, None] * np.exp(log_sd * NOISE_POINTS)
    low, median, high = (float(value) for value in np.quantile(replies, QUANTILES))
    return ReplySpread(low=low, median=median, high=high)

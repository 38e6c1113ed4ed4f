"""The mix of workloads that one setting is advised for: in the shares of the user's prompts, else in equal ones."""

from collections.abc import Mapping, Sequence

import numpy as np

EQUAL = "in equal shares"


def mixed(speeds: Sequence[np.ndarray], workloads: Sequence[str], shares: Mapping[str, float]) -> np.ndarray:
    """Speed (1 + replicates,) over tokens of which each workload has its share: the weighted harmonic mean of `speeds`.

    Time for a token of the mix is the weighted mean of the times of each workload's (derived). Without `shares` all count alike.
    """
    if len(speeds) == 1:
        return speeds[0]
    weights = [shares[workload] for workload in workloads] if shares else None
    return 1 / np.average([1 / speed for speed in speeds], axis=0, weights=weights)


def mix_words(shares: Mapping[str, float]) -> str:
    """The mix in words, behind "for all workloads": "in the shares of your prompts: 70 % code, 30 % chat"."""
    if len(shares) < 2:
        return EQUAL
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    return f"in the shares of your prompts: {', '.join(f'{_percent(share)} {name}' for name, share in ordered)}"


def mix_prefix(shares: Mapping[str, float]) -> str:
    """The mix at the head of a sentence: "all workloads in equal shares: ", or with a semicolon behind named shares."""
    words = mix_words(shares)
    return f"all workloads {words}{': ' if words == EQUAL else '; '}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 else "below 1 %"

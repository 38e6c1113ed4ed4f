"""Do random weights time like the real ones? Passes of SmolLM2-135M and of its shape with random values, interleaved.

    python benchmarks/random_weights.py [--threads 1] [--pairs 40]

The median of the paired ratios with its 95 % interval (order statistics), at one and at five tokens a pass. Exit code 1 where a
median is more than 5 % from 1.
"""

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from scipy.stats import binom

from specgauge.profiler import demo_transformers
from specgauge.profiler.engines.transformers import passes
from specgauge.profiler.engines.transformers.decoder import Decoder
from specgauge.profiler.engines.transformers.filler import Filler
from specgauge.profiler.engines.transformers.loading import load
from specgauge.profiler.engines.transformers.sampling import Sampler
from specgauge.profiler.records import Sampling

QUANTS, WIDTHS, CONTEXT = ("bf16", "int8", "int4"), (1, 5), 256
MOST = 0.05


def ratios(quant: str, width: int, pairs: int) -> np.ndarray:
    """Random over real, pair by pair; who goes first changes."""
    folder, sampler = demo_transformers.prepare(), Sampler(Sampling())
    models = [load(folder, quant=quant, random_weights=random).model for random in (False, True)]
    fillers = [Filler(Decoder(model, room=CONTEXT + 64)) for model in models]
    seconds: list[list[float]] = [[], []]
    for pair in range(pairs + 3):
        for which in (0, 1) if pair % 2 else (1, 0):
            (span,) = passes.verification(fillers[which], sampler, width, CONTEXT)
            if pair >= 3:
                seconds[which].append(span.wall)
    return np.array(seconds[1]) / np.array(seconds[0])


def main() -> int:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=40)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    worst = 0.0
    for quant in QUANTS:
        for width in WIDTHS:
            found = np.sort(ratios(quant, width, asked.pairs))
            low = int(binom.ppf(0.025, found.size, 0.5))
            middle = float(np.median(found))
            worst = max(worst, abs(middle - 1))
            print(
                f"{quant} n = {width}: random / real {middle:.3f} [{found[low]:.3f} to {found[-1 - low]:.3f}]",
                flush=True,
            )
    print(f"worst median: {worst:.1%} from 1")
    return 0 if worst <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())

"""t(n) of every weight path on this device: seconds of a pass over n = 1 to 17 tokens, as a table and a figure.

    python benchmarks/paths.py [--device cpu] [--threads 1] [--shape 4096,4096] [--repeats 7] [--out paths]
    python benchmarks/paths.py --model [FOLDER] [--context 256]

Of one matrix, copies of which exceed the caches; with --model of whole models, the demo's where no folder is named: passes as a
verification needs them. All paths are interleaved; medians are shown, raw seconds are in the figure's page. The page
(DIR/paths.html) needs no network.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

import plotly.graph_objects as go
import torch

from specgauge.profiler.engines.transformers import passes
from specgauge.profiler.engines.transformers.decoder import Decoder
from specgauge.profiler.engines.transformers.filler import Filler
from specgauge.profiler.engines.transformers.loading import load
from specgauge.profiler.engines.transformers.paths import PATHS, WeightPath, scalar_fallback, time_paths, unusable
from specgauge.profiler.engines.transformers.sampling import Sampler
from specgauge.profiler.records import Sampling

WIDTHS = tuple(range(1, 18))


@dataclass(frozen=True)
class Line:
    """One path's raw seconds, `seconds[i]` at WIDTHS[i]."""

    name: str
    seconds: tuple[tuple[float, ...], ...]

    @property
    def milliseconds(self) -> list[float]:
        return [1e3 * statistics.median(one) for one in self.seconds]


def of_matrices(usable: Sequence[WeightPath], device: str, shape: tuple[int, int], repeats: int) -> list[Line]:
    """Lines of one product with a matrix of `shape`; says which path runs on scalar code."""
    fitting = [path for path in usable if path.fits(*shape)]
    found = time_paths(fitting, device, shape, WIDTHS, repeats)
    bf16 = next(one for one in found if one.path == "bf16")
    for one in found:
        if slow := scalar_fallback(one, bf16):
            print(slow)
    return [Line(one.path, one.seconds) for one in found]


def of_models(usable: Sequence[WeightPath], device: str, folder: Path, context: int, repeats: int) -> list[Line]:
    """Lines of whole passes of the model in `folder`; every path's model is held at once."""
    fillers = {
        path.name: Filler(Decoder(load(folder, quant=path.quant, device=device).model, room=context + 64))
        for path in usable
    }
    sampler, found = Sampler(Sampling()), {name: [[] for _ in WIDTHS] for name in fillers}
    for repeat in range(repeats + 1):
        for at, width in enumerate(WIDTHS):
            for name, filler in fillers.items():
                (span,) = passes.verification(filler, sampler, width, context)
                if repeat:  # the first is cold
                    found[name][at].append(span.wall)
    return [Line(name, tuple(map(tuple, seconds))) for name, seconds in found.items()]


def table(lines: Sequence[Line]) -> None:
    """Medians in ms."""
    print(f"{'ms at n =':18}" + "".join(f"{width:7d}" for width in WIDTHS))
    for line in lines:
        print(f"{line.name:18}" + "".join(f"{value:7.2f}" for value in line.milliseconds))


def figure(lines: Sequence[Line], title: str) -> go.Figure:
    """Medians over n, with every reading as a faint point."""
    drawn = go.Figure(layout={"title": title, "xaxis_title": "tokens in one pass, n", "yaxis_title": "ms"})
    for line in lines:
        drawn.add_scatter(x=WIDTHS, y=line.milliseconds, name=line.name, mode="lines+markers")
        points = [(width, 1e3 * value) for width, values in zip(WIDTHS, line.seconds) for value in values]
        drawn.add_scatter(
            x=[x for x, _ in points], y=[y for _, y in points], mode="markers", opacity=0.2, showlegend=False,
            hoverinfo="skip", marker={"size": 4, "color": "gray"},
        )  # fmt: skip
    return drawn.update_yaxes(rangemode="tozero")


def main() -> int:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--shape", default="4096,4096")
    parser.add_argument("--model", nargs="?", const="", metavar="FOLDER")
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("paths"))
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    usable = []
    for path in PATHS:
        reason = unusable(path, asked.device)
        print(f"{path.name} cannot be used on {asked.device}: {reason}") if reason else usable.append(path)
    if asked.model is None:
        rows, columns = map(int, asked.shape.split(","))
        lines = of_matrices(usable, asked.device, (rows, columns), asked.repeats)
        title = f"A matrix of {rows} x {columns} on {asked.device}, {asked.threads} threads"
    else:
        from specgauge.profiler import demo_transformers

        folder = Path(asked.model) if asked.model else demo_transformers.prepare(on_progress=print)
        lines = of_models(usable, asked.device, folder, asked.context, asked.repeats)
        title = f"{folder.name} on {asked.device}, {asked.threads} threads, behind {asked.context} tokens"
    print(title)
    table(lines)
    asked.out.mkdir(parents=True, exist_ok=True)
    written = asked.out / "paths.html"
    temporary = written.with_suffix(".tmp")
    figure(lines, title).write_html(temporary, include_plotlyjs=True)
    temporary.replace(written)
    print(written)
    return 0


if __name__ == "__main__":
    sys.exit(main())

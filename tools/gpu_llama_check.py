"""The whole line on a CUDA build of llama.cpp, in at most eight minutes: profile, forecast, check, report.

    python tools/gpu_llama_check.py --llama-server PATH TARGET DRAFT [--out DIR]
    python tools/gpu_llama_check.py --tiny [--llama-server PATH] [--out DIR]

TARGET and DRAFT are GGUF files with one tokenizer; layers go to the GPU as llama-server decides. `--tiny` runs the same
line on the embedded demo's smallest pair, for machines without a GPU. Writes the five files of `specgauge run` to DIR
(default gpu-check/) and prints a short table last. Exit code 0: forecast and measurement exist and the mean error is at
most 10 %; 3: it is larger; else that of specgauge.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

MOST_SECONDS = 480.0


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Check forecasts on a CUDA build of llama.cpp.")
    parser.add_argument("files", nargs="*", metavar="TARGET DRAFT", type=Path)
    parser.add_argument("--llama-server", metavar="PATH")
    parser.add_argument("--out", type=Path, default=Path("gpu-check"))
    parser.add_argument("--tiny", action="store_true", help="the embedded demo's smallest pair, on the CPU")
    given = parser.parse_args()
    if given.tiny == bool(given.files) or (given.files and len(given.files) != 2):
        parser.error("give TARGET and DRAFT, or --tiny")
    if not given.tiny and not given.llama_server:
        parser.error("--llama-server PATH is needed: a CUDA build")
    return given


def tiny_files() -> list[Path]:
    """The demo's Q4_0 file as its own draft."""
    from specgauge.profiler import demo

    by_quant = {model.quant: Path(model.path) for model in demo.prepare().models}
    return [by_quant["Q4_0"], by_quant["Q4_0"]]


def main() -> int:
    """Run the line and print the table."""
    given = arguments()
    target, draft = tiny_files() if given.tiny else given.files
    command = [sys.executable, "-m", "specgauge", "run", str(target), "--draft", str(draft), "--out", str(given.out)]
    command += ["--llama-server", given.llama_server] if given.llama_server else []
    command += ["--strict", "--repeats", "5"]
    began = time.monotonic()
    try:
        status = subprocess.run(command, timeout=MOST_SECONDS).returncode
    except subprocess.TimeoutExpired:
        print(f"stopped after {MOST_SECONDS:.0f} s; evidence so far: {given.out}/profile.json", file=sys.stderr)
        return 1
    if status not in (0, 3):
        return status
    table(given.out, time.monotonic() - began)
    return status


def table(out: Path, seconds: float) -> None:
    """Forecast beside measurement, a line a row."""
    validation = json.loads((out / "validation.json").read_text())
    profile = json.loads((out / "profile.json").read_text())
    print(f"\n{profile['key']['gpu'] or profile['key']['cpu']}, {profile['engine']['build']}, {seconds:.0f} s")
    print(f"{'workload':10} {'drafter':22} {'g':>3} {'forecast':>9} {'measured':>9} {'error':>7}  round time")
    for row in validation["rows"]:
        config = row["config"]
        name = config["draft"] or config["drafter"]
        print(
            f"{row['workload']:10} {name[:22]:22} {config['draft_tokens']:3d} {row['forecast']:9.1f} "
            f"{row['measured']:9.1f} {row['error']:+7.1%}  {'in profile' if row['in_profile'] else row['round_time_source']}"
        )
    print(
        f"mean {validation['mean_abs_error']:.1%}, worst {validation['worst_abs_error']:.1%} of {validation['n_rows']} rows"
    )


if __name__ == "__main__":
    sys.exit(main())

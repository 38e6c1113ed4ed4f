"""512-token replies behind 4,000 tokens of prompt, forecast and run: python benchmarks/long_replies.py OUT [--quant Q4_0] [--prompts 2]

Writes prompts of about 4,100 tokens to OUT/long.jsonl and runs `specgauge run` on the demo's model over them, with a context of
8,192 tokens and three repeats: step times at three contexts, acceptance along the growing context. Prints forecast and
measurement of every setting that was run. Drafts are n-grams, whose acceptance is replayed.
"""

import argparse
import json
import random
import sys
from pathlib import Path

from specgauge import cli
from specgauge.calibrate.records import Validation
from specgauge.profiler import demo
from specgauge.profiler.files import read_record
from specgauge.profiler.protocol import named
from specgauge.profiler.records import Profile

NEW_TOKENS = 512
LINES = 250
"""About 16 tokens each."""
THINGS = (
    "barrel",
    "lantern",
    "ladder",
    "kettle",
    "wagon",
    "saddle",
    "anvil",
    "basket",
    "mirror",
    "plough",
    "candle",
    "trunk",
)
PLACES = (
    "mill",
    "harbour",
    "orchard",
    "chapel",
    "stable",
    "market",
    "bridge",
    "forge",
    "cellar",
    "attic",
    "garden",
    "quarry",
)
STATES = (
    "repaired",
    "painted",
    "sold",
    "lent",
    "returned",
    "weighed",
    "cleaned",
    "lost",
    "found",
    "counted",
    "marked",
    "moved",
)


def prompt(seed: int) -> str:
    """A ledger of many lines, and what to do with it."""
    dice = random.Random(f"ledger {seed}")
    lines = [
        f"{at}. The {dice.choice(THINGS)} of the {dice.choice(PLACES)} was {dice.choice(STATES)} on day {dice.randint(1, 365)}."
        for at in range(1, LINES + 1)
    ]
    ledger = "\n".join(lines)
    return f"Below is a ledger.\n\n{ledger}\n\nContinue the ledger with the next forty lines, then say what it was kept for."


def main() -> int:
    """The exit code of the run."""
    parser = argparse.ArgumentParser(description="Forecast and run long replies behind long prompts.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--quant", default="Q4_0", choices=demo.QUANTIZATIONS)
    parser.add_argument("--prompts", type=int, default=2)
    parser.add_argument("--draft", action="store_true", help="with the model's Q4_0 copy as a draft: an hour")
    parser.add_argument("--draft-tokens", default="3,4,8")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    file = given.out / "long.jsonl"
    file.write_text(
        "".join(
            json.dumps(
                {
                    "messages": [{"role": "user", "content": prompt(seed)}],
                    "workload": "long",
                    "max_tokens": NEW_TOKENS,
                }
            )
            + "\n"
            for seed in range(given.prompts)
        )
    )
    files = {model.quant: model.path for model in demo.prepare(on_progress=lambda text: None).models}
    words = ["run", files[given.quant], "--prompts", str(file), "--context", "8192"]
    words += ["--draft", files["Q4_0"]] if given.draft else []
    words += ["--draft-tokens", given.draft_tokens, "--repeats", "3", "--tolerance", "0.06", "--out", str(given.out)]
    code = cli.main(words)
    if not (given.out / "validation.json").exists():
        return code
    profile = read_record(given.out / "profile.json", Profile)
    contexts = sorted({s.context for m in profile.measurements for s in m.steps if s.role == "target"})
    print(f"\nstep times at {contexts} cached tokens")
    for row in read_record(given.out / "validation.json", Validation).rows:
        told = f"{row.forecast:.2f} ({row.low:.2f} to {row.high:.2f}) against {row.measured:.2f} tokens/s"
        kind = "round time measured" if row.in_profile else "not in the profile"
        print(f"{named(row.config)}: {told}, {row.error:+.1%}, {row.repeats} repeats, {kind}")
    return code


if __name__ == "__main__":
    sys.exit(main())

"""What scripts write into README.md and docs/: python tools/docs_blocks.py [--check] [--run DIR]

A block stands between <!-- made: NAME --> and <!-- end -->. Without an option the blocks that come from files of the
repository are made anew (docs_tables.py). --run DIR makes those of a demo run too, from the files in its output folder, and
its picture (docs_run.py). --check writes nothing and names what is stale (exit code 1).
"""

import argparse
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import docs_run
import docs_tables

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"(<!-- made: ([a-z0-9-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def rewritten(text: str, makers: Mapping[str, Callable[[], str]]) -> str:
    """`text` with the blocks that `makers` knows made anew; the others stay. Raises KeyError where nobody knows one."""

    def made(found: re.Match[str]) -> str:
        name = found[2]
        if name not in docs_tables.BLOCKS and name not in docs_run.BLOCKS:
            raise KeyError(f"no script makes a block called {name}")
        return found[0] if name not in makers else f"{found[1]}{makers[name]().rstrip()}\n{found[3]}"

    return BLOCK.sub(made, text)


def stale(makers: Mapping[str, Callable[[], str]]) -> list[Path]:
    """Pages whose blocks differ from what `makers` give."""
    return [page for page in PAGES if rewritten(text := page.read_text(), makers) != text]


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description="Make the blocks of README.md and docs/.")
    parser.add_argument("--check", action="store_true", help="write nothing, name what is stale")
    parser.add_argument("--run", metavar="DIR", type=Path, help="output folder of `specgauge run` on the demo")
    given = parser.parse_args()
    makers = dict(docs_tables.BLOCKS)
    if given.run is not None:
        makers |= {name: lambda make=make: make(given.run) for name, make in docs_run.BLOCKS.items()}
    pages = stale(makers)
    for page in pages:
        print(f"{'stale' if given.check else 'made'}: {page.relative_to(ROOT)}")
    if given.check:
        return 1 if pages else 0
    for page in pages:
        page.write_text(rewritten(page.read_text(), makers))
    if given.run is not None:
        docs_run.photograph(given.run, ROOT / "docs" / "demo.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())

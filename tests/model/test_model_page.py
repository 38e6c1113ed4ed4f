"""docs/model.md computes what it says."""

import doctest
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "model.md"


def test_every_example_of_the_page_holds():
    done = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert done.attempted > 60
    assert done.failed == 0

"""The prompts that a profile measures: drawn from the file without replacement, with the shares of its classes."""

import hashlib
import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import InputError
from ..files import shown
from ..records import Prompt, StoredText
from ..workloads import PromptText
from .file import read_prompts
from .line import PromptLine

USUAL_COUNT = 16
LEAST_OF_A_CLASS = 3
"""Prompts of each class, where the file has them: of fewer none could tell how prompts differ."""
MOST_CLASSES = 8
"""Every class is a workload of its own and costs runs of its own."""
KNOWN_CLASSES = ("code", "chat", "prose", "reasoning", "other-language", "copying")


@dataclass(frozen=True)
class OwnPrompts:
    """Drawn prompts, classes in the order of the file; `shares` of each class in the tokens that the whole file asks for."""

    prompts: tuple[PromptText, ...]
    shares: dict[str, float]
    in_file: int

    def stored(self) -> tuple[StoredText, ...]:
        """The texts, for a profile whose owner wants them in it."""
        return tuple(
            StoredText(text_sha256=one.prompt.text_sha256, text=one.text, messages=one.messages) for one in self.prompts
        )


@dataclass
class _Class:
    """What is kept of a class while the file is read: its tokens, and the prompts that come first by lot."""

    tokens: int = 0
    prompts: int = 0
    kept: list[tuple[int, int, PromptLine]] = field(default_factory=list)

    def add(self, found: PromptLine, lot: int, most: int) -> None:
        """The lots are negated: the heap gives the largest one, which has to go first."""
        self.tokens, self.prompts = self.tokens + found.new_tokens, self.prompts + 1
        entry = (-lot, -found.line, found)
        if len(self.kept) < most:
            heapq.heappush(self.kept, entry)
        else:
            heapq.heappushpop(self.kept, entry)

    def drawn(self, count: int) -> list[PromptLine]:
        """The first `count` by lot, in the order of the file."""
        return sorted((entry[2] for entry in heapq.nlargest(count, self.kept)), key=lambda found: found.line)


def own_prompts(path: Path, count: int = USUAL_COUNT, seed: int = 1) -> OwnPrompts:
    """Draw about `count` prompts from a file, classes by their shares, at least LEAST_OF_A_CLASS of each that has them.

    A prompt's lot depends on seed and text alone: the draw of a larger `count` holds that of a smaller one, and none is drawn
    twice. Raises InputError for a file that is wrong in any line.
    """
    classes: dict[str, _Class] = {}
    for found in read_prompts(path):
        if found.workload not in classes and len(classes) == MOST_CLASSES:
            raise InputError(f"{shown(path)}, line {found.line}: more than {MOST_CLASSES} classes; join some")
        classes.setdefault(found.workload, _Class()).add(found, _lot(found, seed), count)
    counts = allotted({name: one.prompts for name, one in classes.items()}, count)
    total = sum(one.tokens for one in classes.values())
    return OwnPrompts(
        prompts=tuple(_with_text(found) for name, one in classes.items() for found in one.drawn(counts[name])),
        shares={name: one.tokens / total for name, one in classes.items()},
        in_file=sum(one.prompts for one in classes.values()),
    )


def allotted(prompts: dict[str, int], count: int) -> dict[str, int]:
    """How many to draw of each class that has so many `prompts`: by largest remainder, not fewer than LEAST_OF_A_CLASS and
    not more than there are."""
    total = sum(prompts.values())
    exact = {name: min(count, total) * here / total for name, here in prompts.items()}
    given = Counter({name: int(share) for name, share in exact.items()})
    left = min(count, total) - given.total()
    given.update(sorted(exact, key=lambda name: exact[name] - int(exact[name]), reverse=True)[:left])
    return {name: min(here, max(given[name], LEAST_OF_A_CLASS)) for name, here in prompts.items()}


def found_again(path: Path, wanted: Iterable[Prompt]) -> tuple[PromptText, ...]:
    """The texts of a profile's prompts in the file that they came from. Raises InputError where one is not in it."""
    prompts = tuple(wanted)
    asked = {prompt.text_sha256 for prompt in prompts}
    texts = {found.sha256: found for found in read_prompts(path) if found.sha256 in asked}
    missing = [prompt.id for prompt in prompts if prompt.text_sha256 not in texts]
    if missing:
        raise InputError(
            f"--prompts {shown(path)}: not the file that was profiled: it has not the prompt {shown(missing[0])}"
        )
    return tuple(
        PromptText(prompt=prompt, text=found.text, messages=found.messages, line=found.line)
        for prompt in prompts
        for found in (texts[prompt.text_sha256],)
    )


def _lot(found: PromptLine, seed: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}|{found.sha256}".encode()).digest()[:8], "big")


def _with_text(found: PromptLine) -> PromptText:
    record = Prompt(
        id=f"{found.workload}/line {found.line}",
        workload=found.workload,
        workload_class=found.workload if found.workload in KNOWN_CLASSES else "",
        text_sha256=found.sha256,
        new_tokens=found.new_tokens,
    )
    return PromptText(prompt=record, text=found.text, messages=found.messages, line=found.line)

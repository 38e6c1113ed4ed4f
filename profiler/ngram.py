"""The n-gram rule of llama.cpp's ngram-simple drafter, replayed over a known text.

The drafter looks for the latest earlier place where the last n tokens stand, and proposes what followed there. Along a
reply that is known, where it would propose, how much, and how much of it is right can be read off without running it.
"""

from collections.abc import Sequence


class NgramIndex:
    """A text that grows, and the latest earlier place of each run of `size` tokens in it."""

    def __init__(self, text: Sequence[int], size: int):
        self.text = list(text)
        self._size = size
        self._latest: dict[tuple[int, ...], int] = {}
        self._indexed = 1

    def extend(self, tokens: Sequence[int]) -> None:
        """Put `tokens` at the end of the text."""
        self.text.extend(tokens)

    def offered(self, longest: int) -> list[int]:
        """What followed the latest earlier place where the text's last `size` tokens stand, cut at `longest`; may be empty.

        A place counts once the token behind it is not the newest one; the very first token of the text never starts one.
        """
        newest, size = len(self.text) - 1, self._size
        while self._indexed <= newest - size - 1:
            self._latest[tuple(self.text[self._indexed : self._indexed + size])] = self._indexed
            self._indexed += 1
        start = self._latest.get(tuple(self.text[newest - size + 1 :])) if newest + 1 >= size else None
        return [] if start is None else self.text[start + size : min(newest, start + size + longest)]

    def proposal(self, draft_tokens: int, remaining: int) -> list[int]:
        """What the drafter proposes when `remaining` tokens are still to come: nothing where it offers fewer than `size`
        tokens or the text before the newest token is not longer than size + draft tokens + 1."""
        offered = self.offered(draft_tokens)
        if len(offered) < max(self._size, 1) or len(self.text) - 1 <= self._size + draft_tokens + 1:
            return []
        return offered[: max(remaining - 1, 0)]


def offers_and_runs(
    prompt: Sequence[int], reply: Sequence[int], size: int, longest: int = 64
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """For every state t = 1 .. len(reply) - 1: tokens that could be proposed, and how many of the first ones are right.

    `size` is the n-gram length; proposals are cut at `longest`. State t is the one after t reply tokens: the t-th reply
    token is the newest one, and the history before it has len(prompt) + t - 1 tokens. The engine further asks for a
    history longer than size + draft tokens + 1 and for at least `size` proposed tokens; both depend on the draft length
    and are left to the replay (model/acceptance.py). The very first token of the text never starts a match there either.
    """
    index, offers, runs = NgramIndex([*prompt, *reply[:1]], size), [], []
    for t in range(1, len(reply)):
        proposed = index.offered(longest)
        truth = reply[t : t + len(proposed)]
        run = next((i for i, (a, b) in enumerate(zip(proposed, truth)) if a != b), min(len(proposed), len(truth)))
        offers.append(len(proposed))
        runs.append(run)
        index.extend(reply[t : t + 1])
    return tuple(offers), tuple(runs)

"""The n-gram rule of llama.cpp's ngram-simple drafter, replayed over a known text.

The drafter looks for the latest earlier place where the last n tokens stand, and proposes what followed there. Along a
reply that is known, where it would propose, how much, and how much of it is right can be read off without running it.
"""

from collections.abc import Sequence


def offers_and_runs(
    prompt: Sequence[int], reply: Sequence[int], size: int, longest: int = 64
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """For every state t = 1 .. len(reply) - 1: tokens that could be proposed, and how many of the first ones are right.

    `size` is the n-gram length; proposals are cut at `longest`. State t is the one after t reply tokens: the t-th reply
    token is the newest one, and the history before it has len(prompt) + t - 1 tokens. The engine further asks for a
    history longer than size + draft tokens + 1 and for at least `size` proposed tokens; both depend on the draft length
    and are left to the replay (model/acceptance.py). The very first token of the text never starts a match there either.
    """
    text = [*prompt, *reply]
    latest: dict[tuple[int, ...], int] = {}
    indexed = 1
    offers, runs = [], []
    for t in range(1, len(reply)):
        newest = len(prompt) + t - 1
        while indexed <= newest - size - 1:
            latest[tuple(text[indexed : indexed + size])] = indexed
            indexed += 1
        start = latest.get(tuple(text[newest - size + 1 : newest + 1])) if newest + 1 >= size else None
        if start is None:
            offers.append(0)
            runs.append(0)
            continue
        proposed = text[start + size : min(newest, start + size + longest)]
        truth = text[newest + 1 : newest + 1 + len(proposed)]
        run = next((i for i, (a, b) in enumerate(zip(proposed, truth)) if a != b), min(len(proposed), len(truth)))
        offers.append(len(proposed))
        runs.append(run)
    return tuple(offers), tuple(runs)

"""llama-batched-bench --output-format jsonl: sequences decoded side by side, a row of output for each."""

from collections.abc import Sequence

from ...profiler.records import Key, StepSample
from . import sentences
from .base import Given, Imported
from .keys import flag
from .llama_bench import SPEED_FLAGS, WIDEST_PASS
from .source import MOST_SECONDS, MOST_SPEED, MOST_TOKENS, Fields, Source, agree

FORMAT = "llama-batched-bench"
NAMING = {"pp", "tg", "pl", "t_tg"}
ONE_IN_A_FILE = ("n_batch", "n_ubatch", "flash_attn", "is_pp_shared", "n_gpu_layers", "n_threads")
SHARED = "a row of output each, the prompt's cache shared as in a verification"
APART = "a row of output each, but each sequence reads a cache of its own: a little dear at long contexts"


def read_batched_bench(source: Source, tests: Sequence[Fields], given: Given) -> Imported:
    """Evidence of the lines of llama-batched-bench. Raises InputError."""
    for name in ONE_IN_A_FILE:
        if len({test.text(name) for test in tests}) > 1:
            source.refuse(f"{name} differs between its lines; give a file for each")
    model = given.target or "target"
    steps = [_step(test, model) for test in tests]
    kept = tuple(step for step in steps if step is not None)
    if not kept:
        source.refuse(f"has no passes of 1 to {WIDEST_PASS} sequences; run llama-batched-bench -npl 1,2,3,5,9")
    shared = tests[0].text("is_pp_shared").lower() in ("1", "true")
    return Imported(
        source=source.name,
        format=FORMAT,
        key=_key(tests[0], given),
        steps=kept,
        learned=sentences.of_steps(kept, SHARED if shared else APART),
        warnings=() if given.target else (f"{source.name}: does not name its model; --target does",),
        left_out=tuple(_reason(test) for test, step in zip(tests, steps, strict=True) if step is None),
        digest=source.digest,
    )


def _step(test: Fields, model: str) -> StepSample | None:
    """Passes of `pl` tokens in the mean; None for those that generate nothing or are too wide."""
    prompt, generated = (test.whole(name, 0, MOST_TOKENS) for name in ("pp", "tg"))
    width = test.whole("pl", 1, MOST_TOKENS)
    _check(test, prompt, generated, width)
    if not generated or width > WIDEST_PASS:
        return None
    return StepSample(
        model=model,
        role="target",
        kind="decode" if width == 1 else "verify",
        width=width,
        context=prompt + generated // 2,
        seconds=(test.above_0("t_tg", MOST_SECONDS) / generated,),
    )


def _check(test: Fields, prompt: int, generated: int, width: int) -> None:
    """The figures of a line follow from each other."""
    seconds = test.number("t_tg", 0, MOST_SECONDS)
    if generated and (speed := test.above_0_or("speed_tg", 100 * MOST_SPEED)):
        agree(test, "speed_tg and t_tg", speed, width * generated / test.above_0("t_tg", MOST_SECONDS), 0.02)
    whole = test.above_0_or("t", 2 * MOST_SECONDS)
    if whole is not None:
        agree(test, "t, t_pp and t_tg", whole, seconds + test.number("t_pp", 0, MOST_SECONDS), 0.02)
    cached = test.whole_or("n_kv", 0, MOST_TOKENS)
    if cached not in (None, width * (prompt + generated), prompt + width * generated):
        test.refuse(f"n_kv {cached} is not what pp {prompt}, tg {generated} and pl {width} give; the line is damaged")


def _reason(test: Fields) -> str:
    return f"{test.where}: {test.text('pl')} sequences and {test.text('tg')} generated tokens are no verification"


def _key(test: Fields, given: Given) -> Key:
    return Key(
        gpu=given.gpu,
        engine="llama.cpp",
        flags=tuple(flag(name, test.text(name)) for name in SPEED_FLAGS if test.has(name)),
        threads=test.whole_or("n_threads", 0, 100_000) or 0,
    )

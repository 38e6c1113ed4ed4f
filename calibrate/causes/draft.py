"""The draft: in the wrong place, in the wrong role, too large, or deeper than it is worth."""

from collections.abc import Iterator

from ..records import Cause
from ..symptoms import Neighbour
from .case import Case, ms, plural
from .host import HOST_BYTES_PER_SECOND, HOST_RATIO

LAUNCH_SECONDS = 3e-3
"""The slowest step that launches alone explain on a GPU: Qwen3-1.7B on an H100 without CUDA graphs, 3.0 ms for 1.0 ms of bytes
(vLLM pull request 47460). On a processor there are none."""
STARVED_RATIO = 2.5
"""Without a card both models read the same memory. A small one reaches about half of the rate (barriers between its
layers); slower than that it lacks threads."""
GOOD_STEP = 0.05
"""Of a plain step: a draft step of a fitting pair. Bytes of 0.5B against 14B to 32B are 1/28 to 1/64; launches make it more."""
DEAR_SHARE = 0.5
"""A draft is too dear where it eats more than half of the plain steps that its accepted tokens save."""


def not_on_device(case: Case) -> Iterator[Cause]:
    """A draft step far slower than its bytes: on the host, or short of threads."""
    hardware, step = case.symptoms.hardware, case.symptoms.parts.draft_step_seconds
    moved = case.best_neighbour("draft_gpu_layers")
    if moved is not None and moved.tokens_per_second > case.speed * (1 + case.margin):
        yield _moved(case, moved)
        return
    if case.symptoms.setting.drafter != "model" or case.bytes_step is None:
        return
    if not step:
        yield from _told_to_be_on_host(case)
        return
    floor = LAUNCH_SECONDS if hardware.gpu else 0.0
    expected = max(case.bytes_step, floor)
    ratio = HOST_RATIO if hardware.gpu else STARVED_RATIO
    if step < ratio * expected and hardware.draft_on_device is not False:
        return
    passes = case.draft / step
    seconds = min(max(step - expected, 0.0) * passes, case.draft)
    if not case.material(seconds):
        return
    size = (hardware.draft_bytes or 0.0) / 1e9
    where = (
        "It runs on the host's processor, or its layers are spread over it"
        if hardware.gpu
        else "It is short of threads"
    )
    yield case.takes(
        "draft-not-on-device",
        "draft",
        seconds,
        derived=f"the round with draft steps of {ms(expected)}: its bytes at the rate that the target reads"
        + (", 3 ms of launches at least" if expected == floor and floor else ""),
        evidence=f"A draft step takes {ms(step)}; its {size:.2f} GB at the rate at which the target is read are "
        f"{ms(case.bytes_step)}. It is {step / expected:.0f} times slower than it could be. {where}.",
        change="put all layers of the draft on the device (llama.cpp: -ngld 99)"
        if hardware.gpu
        else "give the draft as many threads as the target (llama.cpp: -td)",
        provenance="calibrated",
    )


def _moved(case: Case, moved: Neighbour) -> Cause:
    return case.costs(
        "draft-not-on-device",
        "draft",
        moved.tokens_per_second,
        derived=f"measured speed with {moved.value} layers of the draft on the device",
        evidence=f"With {moved.value} layers of the draft on the device the same run gives {moved.tokens_per_second:.1f} tokens/s "
        f"instead of {case.speed:.1f}: the draft runs on the host's processor.",
        change=f"put all layers of the draft on the device (llama.cpp: -ngld {moved.value})",
        provenance="measured",
    )


def _told_to_be_on_host(case: Case) -> Iterator[Cause]:
    """The engine says that the draft is on the host; its step was not timed."""
    hardware = case.symptoms.hardware
    if hardware.draft_on_device is not False or hardware.draft_bytes is None or case.plain is None:
        return
    slow = hardware.draft_bytes / (hardware.host_bandwidth or HOST_BYTES_PER_SECOND)
    there = max(case.bytes_step or 0.0, LAUNCH_SECONDS)
    seconds = min(max(slow - there, 0.0) * case.symptoms.drafted, max(case.seconds - case.plain, 0.0))
    if not case.material(seconds):
        return
    rate = (hardware.host_bandwidth or HOST_BYTES_PER_SECOND) / 1e9
    yield case.takes(
        "draft-not-on-device",
        "draft",
        seconds,
        derived=f"the round with draft steps of {ms(there)} instead of {ms(slow)}",
        evidence=f"No layer of the draft is on the device. Its {hardware.draft_bytes / 1e9:.2f} GB take {ms(slow)} a step "
        f"from host memory at {rate:.0f} GB/s, {ms(there)} on the device, and a round has "
        f"{plural(case.symptoms.drafted, 'step')}.",
        change="put all layers of the draft on the device (llama.cpp: -ngld 99)",
        provenance="prior",
    )


LARGER = 1.1
"""Draft over target, in bytes of the files, from which their roles are taken to be exchanged: a copy of the target is no swap."""


def swapped_roles(case: Case) -> Iterator[Cause]:
    """The draft is the larger model."""
    hardware = case.symptoms.hardware
    draft, target = hardware.draft_bytes, hardware.target_bytes
    if case.symptoms.setting.drafter != "model" or draft is None or target is None or draft < LARGER * target:
        return
    yield case.takes(
        "swapped-roles",
        "draft",
        case.draft,
        derived="the round with a draft that costs nothing; a bound",
        evidence=f"The draft reads {draft / 1e9:.1f} GB a step, the target {target / 1e9:.1f} GB: the draft is "
        f"{draft / target:.1f} times the target, and a round has {plural(case.symptoms.drafted, 'draft step')} "
        f"({ms(case.draft)}).",
        change="exchange the two models: the small one drafts, the large one is the target",
        provenance="calibrated" if case.draft_is_timed else "prior",
    )


def too_dear(case: Case, claimed: float) -> Iterator[Cause]:
    """An honest draft, and still too much for what it saves; `claimed` seconds of it are explained already."""
    seconds = case.draft - claimed
    if case.plain is None or not case.material(seconds):
        return
    saved = (max(case.tokens, case.good_tokens) - 1) * case.plain
    if seconds >= DEAR_SHARE * saved:
        yield dear_cause(case, seconds)


def dear_cause(case: Case, seconds: float) -> Cause:
    """The cause, whatever its share."""
    plain, drafted = case.plain or 1.0, max(case.symptoms.drafted, 1.0)
    change = "a smaller draft, a lower quantization of it (int8), the target's own head, or fewer draft tokens"
    if case.per == "token":
        return case.takes(
            "draft-too-dear",
            "draft",
            seconds,
            derived="plain decoding: two speeds tell no more",
            evidence=f"Each token takes {ms(seconds)} more than in plain decoding. By its bytes a draft step takes "
            f"{ms(case.bytes_step or 0.0)} at the rate at which the target is read, {(case.bytes_step or 0.0) / plain:.2f} of a plain "
            f"step, and a round of {plural(drafted, 'draft token')} {ms((case.bytes_step or 0.0) * drafted)}.",
            change=change,
            provenance="prior",
        )
    good = min(GOOD_STEP * plain * drafted, seconds)
    how = "" if case.draft_is_timed else " (from its bytes, not timed)"
    return case.takes(
        "draft-too-dear",
        "draft",
        seconds - good,
        derived=f"the round with a draft step of {GOOD_STEP} of a plain step, as fitting pairs have ({ms(good)} a round)",
        evidence=f"Drafting takes {ms(seconds)} of a round{how}, {seconds / drafted / plain:.2f} of a plain step for each token. Its "
        f"accepted tokens save {ms((case.tokens - 1) * plain)} of plain decoding.",
        change=change,
        provenance="prior",
    )


def too_deep(case: Case) -> Iterator[Cause]:
    """A shorter draft is faster: the last tokens cost more than they bring."""
    better, speed = case.shorter(), max(case.symptoms.warm_tokens_per_second or 0.0, case.speed)
    if better is None or better.tokens_per_second <= speed * (1 + case.margin):
        return
    if case.plain is not None and better.tokens_per_second * case.plain <= 1:
        return  # no length pays: it is not the length
    fewer = case.symptoms.draft_tokens - int(better.value)
    told = ""
    if better.round_seconds is not None and case.per == "round":
        told = (
            f" The last {plural(fewer, 'token')} of a draft {'adds' if fewer == 1 else 'add'} "
            f"{ms(case.seconds - better.round_seconds)} to a round and {case.tokens - (better.tokens_per_round or 0):.2f} "
            "tokens to what it emits."
        )
    yield case.with_setting(
        "draft-length-too-deep",
        "tokens",
        case.tokens / speed - case.tokens / better.tokens_per_second,
        better.tokens_per_second,
        derived=f"{'measured' if better.measured else 'forecast'} speed at {plural(int(better.value), 'draft token')}",
        evidence=f"{plural(int(better.value), 'draft token')} {'gives' if better.value == 1 else 'give'} "
        f"{better.tokens_per_second:.1f} tokens/s, {case.symptoms.draft_tokens} give {case.speed:.1f}.{told}",
        change=f"draft_tokens {better.value}",
        provenance="measured" if better.measured else "calibrated",
    )

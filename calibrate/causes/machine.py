"""The machine: paging, throttling, cold buffers, layers on the host, a slow baseline, a filled context."""

from collections.abc import Iterator
from statistics import median

from ...profiler.devices.spill import SpillSigns, spill_signs
from ...profiler.records import DeviceState
from ..records import Cause
from .case import Case, ms, plural
from .host import HOST_BYTES_PER_SECOND, HOST_RATIO
from .verification import LARGEST_SWITCH_STEPS, at_known_switch, length_jump, width_jump

SLOWED = ("HwThermalSlowdown", "SwThermalSlowdown", "HwSlowdown", "HwPowerBrakeSlowdown", "SwPowerCap")
"""NVML's reasons for a clock below what the device could run."""
SLOWER_CLOCK = 0.9
"""Clock drafting over clock plain. Boost steps with temperature move it by some percent; a limit takes more."""
COLD = 0.1
"""A first pass slower than the rest by this share is cold: warming up is reported to give 15 to 20 %; drift, 4 to 5 %."""
LEAST_SHARE = 1 / 3
"""Share of the memory bandwidth that plain decoding reaches at least: 0.42 to 0.54 with int4 and 0.69 with fp16 on an A100
(gpt-fast), 0.75 with 4 bits on an RTX 3090 (tests/data). Less has another cause."""
USUAL_SHARE = 0.5


def spill(case: Case) -> Iterator[Cause]:
    """Device memory overflows into the host's: rounds slow down severalfold, acceptance stays."""
    if not case.symptoms.hardware.gpu:
        return
    signs = _signs(case)
    seconds = max(_length_spill(case, signs.likely), _context_spill(case), _beyond_passes(case, signs.likely))
    if not case.material(seconds):
        return
    told = f" The device: {signs.evidence}." if signs.pcie_bytes_per_second or signs.power_ratio else ""
    surely = "memory of the device overflows into the host's and is fetched over the bus"
    why = (
        f"{surely[:1].upper()}{surely[1:]}"
        if signs.likely
        else f"No change of kernels is known to cost that much: {surely}"
    )
    yield case.takes(
        "spill",
        "round",
        seconds,
        derived="the round without that jump",
        evidence=f"{_jumped(case, seconds)}, while as many tokens are accepted. {why}.{told}",
        change=f"reserve less context, fewer draft tokens or a smaller KV type{_free(signs)}; on Windows forbid the driver's "
        "fallback to system memory",
        provenance="calibrated",
    )


def _signs(case: Case) -> SpillSigns:
    return spill_signs(case.symptoms.devices.plain, case.symptoms.devices.drafting)


def _free(signs: SpillSigns) -> str:
    return (
        ""
        if signs.memory_free_bytes is None
        else f" until more than {signs.memory_free_bytes / 2**20:.0f} MiB stay free"
    )


def _jumped(case: Case, seconds: float) -> str:
    steps = "" if case.plain is None else f", {seconds / case.plain:.1f} plain steps"
    return f"A round of {plural(case.symptoms.draft_tokens, 'draft token')} takes {ms(seconds)} more than it should ({ms(case.seconds)} in all{steps})"


def _length_spill(case: Case, likely: bool) -> float:
    """A jump over draft length that no kernel explains: the target's own passes do not have it, or it is too large for one."""
    jump = length_jump(case)
    if jump is None or case.plain is None:
        return 0.0
    passes = case.symptoms.passes
    if passes and passes[-1].width > jump.last + 1:
        own = width_jump(case)
        return max(jump.seconds - (own.seconds if own else 0.0), 0.0)
    known = at_known_switch(jump, case.symptoms.setting.streams)
    too_large = jump.seconds > LARGEST_SWITCH_STEPS * case.plain and not known
    return jump.seconds if likely or too_large else 0.0


def _context_spill(case: Case) -> float:
    """A jump over context that plain decoding does not share: attention would slow both."""
    short = case.best_neighbour("context")
    if short is None or short.round_seconds is None or short.plain_step_seconds is None or case.plain is None:
        return 0.0
    grown = max(case.plain - short.plain_step_seconds, 0.0) * case.width
    seconds = case.left - short.round_seconds - grown
    return seconds if seconds > case.plain else 0.0


def _beyond_passes(case: Case, likely: bool) -> float:
    """With signs of the device alone: what the passes, timed without the draft beside them, do not explain."""
    if not likely or case.plain is None or case.verification is None:
        return 0.0
    known = case.draft + case.verification + case.rollback
    return max(case.left - known, 0.0)


def throttling(case: Case) -> Iterator[Cause]:
    """The clock is held down while drafting."""
    free = [
        n for n in case.symptoms.others("power_limit_watts") if n.tokens_per_second > case.speed * (1 + case.margin)
    ]
    if free:
        best = max(free, key=lambda one: one.tokens_per_second)
        yield _capped(case, best.value, best.tokens_per_second, best.plain_step_seconds)
        return
    plain, drafting = case.symptoms.devices.plain, case.symptoms.devices.drafting
    fast, slow = max(_clocks(plain), default=None), _median(_clocks(drafting))
    reasons = sorted({reason for state in drafting for reason in state.event_reasons if reason in SLOWED})
    if fast is None or slow is None or slow >= SLOWER_CLOCK * fast:
        return
    seconds = case.left * (1 - slow / fast)
    why = f" The driver says {', '.join(reasons)}." if reasons else ""
    yield case.takes(
        "throttling",
        "round",
        seconds,
        derived="the round at the plain clock, if all of it follows the clock; a bound",
        evidence=f"The clock is {slow:.0f} MHz while drafting and {fast:.0f} MHz in plain decoding.{why} Verification computes "
        "more than plain decoding does, and so it pays more for a lower clock.",
        change="cool the device or raise its power limit; profile again at the limit that it will run with",
        provenance="calibrated",
    )


def _capped(case: Case, limit: float | str, speed: float, plain_there: float | None) -> Cause:
    beside = ""
    if plain_there is not None and case.plain is not None:
        beside = f", plain decoding {1 / plain_there:.1f} instead of {1 / case.plain:.1f}"
    return case.costs(
        "throttling",
        "round",
        speed,
        derived=f"measured speed at {limit} W",
        evidence=f"At a power limit of {limit} W this setting gives {speed:.1f} tokens/s instead of {case.speed:.1f}{beside}: "
        "verification computes, so that a power limit takes more of it.",
        change=f"power limit {limit} W, or fewer draft tokens at this one; profile at the limit that it will run with",
        provenance="measured",
    )


def _clocks(states: tuple[DeviceState, ...]) -> list[float]:
    return [state.clock_mhz for state in states if state.clock_mhz is not None]


def _median(values: list[float]) -> float | None:
    return median(values) if values else None


def cold_cache(case: Case) -> Iterator[Cause]:
    """The speed was taken before buffers, kernels, graphs and the prompt cache were warm."""
    warm = case.symptoms.warm_tokens_per_second
    if warm is None or case.speed > (1 - COLD) * warm:
        return
    yield case.costs(
        "cold-cache",
        "round",
        warm,
        derived="measured speed of the same setting once warm",
        evidence=f"The first pass ran at {case.speed:.1f} tokens/s, later ones at {warm:.1f}: the first replies "
        "after a start set up buffers, graphs and kernels, and have no prompt cached.",
        change="ten short requests after each start, before anything is measured or served",
        provenance="measured",
    )


def layers_on_host(case: Case) -> Iterator[Cause]:
    """Layers of the target are computed by the host, or fetched from it, in every pass."""
    hardware = case.symptoms.hardware
    layers, on_device, size = hardware.layers, hardware.layers_on_device, hardware.step_bytes
    if layers is None or on_device is None or on_device >= layers or size is None or case.plain is None:
        return
    away = size * (1 - on_device / layers)
    slow = hardware.host_bandwidth or HOST_BYTES_PER_SECOND
    # What is left of the plain step tells the device's rate, where its bandwidth is not known.
    told = (size - away) / max(case.plain - away / slow, 0.1 * case.plain)
    fast = hardware.bandwidth or max(told, HOST_RATIO * slow)
    seconds = min(away * max(1 / slow - 1 / fast, 0.0), 0.95 * case.plain)
    if not case.material(seconds):
        return
    assumed = "" if hardware.host_bandwidth else " (assumed)"
    yield case.takes(
        "layers-on-host",
        "plain",
        seconds,
        derived=f"the round with all layers on the device, {away / 1e9:.1f} GB at {fast / 1e9:.0f} instead of {slow / 1e9:.0f} "
        "GB/s; plain decoding gains the same milliseconds",
        evidence=f"{layers - on_device} of {layers} layers lie on the host: {away / 1e9:.1f} GB that every pass reads at about "
        f"{slow / 1e9:.0f} GB/s{assumed}.",
        change="all layers on the device (llama.cpp: -ngl 99): a smaller quantization, less context or a smaller KV type make room",
        provenance="calibrated" if hardware.host_bandwidth else "prior",
    )


def baseline_broken(case: Case, claimed: bool) -> Iterator[Cause]:
    """Plain decoding is far from what memory bandwidth allows; `claimed` where layers on the host explain it."""
    hardware = case.symptoms.hardware
    if claimed or hardware.bandwidth is None or hardware.step_bytes is None or case.plain is None:
        return
    # Of the shortest context that is known: reading a filled cache is no fault of the baseline.
    short = case.best_neighbour("context")
    step = case.plain if short is None or short.plain_step_seconds is None else short.plain_step_seconds
    share = hardware.step_bytes / step / hardware.bandwidth
    if share >= LEAST_SHARE:
        return
    could = hardware.step_bytes / (USUAL_SHARE * hardware.bandwidth)
    yield case.takes(
        "baseline-broken",
        "plain",
        step - could,
        derived=f"the round with a plain step of {ms(could)}, {USUAL_SHARE:.0%} of the bandwidth; plain decoding gains the same",
        evidence=f"Plain decoding reads {hardware.step_bytes / 1e9:.1f} GB in {ms(step)}: {share:.0%} of the "
        f"{hardware.bandwidth / 1e9:.0f} GB/s that memory gives, where a third is the least for sound kernels. The baseline "
        "itself is slow, and every speed-up over it says little.",
        change="the engine's build or backend, offloaded layers, flash attention, other programs on the device: mend plain "
        "decoding first",
        provenance="prior",
    )


def context_growth(case: Case, claimed: bool) -> Iterator[Cause]:
    """Attention reads the cache in every pass; `claimed` where a spill explains the context's cost."""
    short = case.best_neighbour("context")
    if claimed or short is None:
        return
    before = case.tokens / short.tokens_per_second if short.round_seconds is None else short.round_seconds
    seconds = case.left - before
    if not case.material(seconds):
        return
    plain = ""
    if short.plain_step_seconds is not None and case.plain is not None:
        plain = f" A plain step grows by {ms(case.plain - short.plain_step_seconds)}."
    fewer = case.better_setting()
    yield case.takes(
        "context-growth",
        "round",
        seconds,
        derived=f"the same tokens at the round of {short.value} tokens of context",
        evidence=f"Behind {case.symptoms.setting.context} cached tokens a {case.per} takes {ms(case.seconds)}, behind {short.value} "
        f"{ms(before)}: reading the cache takes the rest.{plain}",
        change="a shorter context, or a smaller KV type (q8_0)" + (f"; at this context {fewer}" if fewer else ""),
        provenance="measured" if short.measured else "calibrated",
    )

"""What numbers are valid for, over several files: fields equal, differing or unknown."""

from collections.abc import Iterable

from msgspec.structs import replace

from ...profiler.errors import InputError
from ...profiler.job import differences
from ...profiler.records import Key
from .names import same_gpu

SWITCHES = {"true": "1", "on": "1", "false": "0", "off": "0"}
PLAIN_WORDS = {"power_limit_watts": "power limit", "gpu": "GPU"}


def merged_key(keys: Iterable[tuple[str, Key]]) -> tuple[Key, tuple[str, ...]]:
    """One key of all (source, key), and warnings for fields that make one of them a near one.

    Raises InputError naming a field whose difference forbids that the numbers stand together.
    """
    found = list(dict.fromkeys(keys))
    (_, whole), warnings = found[0], []
    for source, key in found[1:]:
        key, whole = _aligned(key, whole)
        forbidding, near = differences(key, whole)
        if forbidding:
            name = forbidding[0]
            raise InputError(
                f"{source}: {_said(name)} is {_value(key, name)}, in {found[0][0]} it is {_value(whole, name)}: these are "
                "two machines; import them apart, or this one with --acceptance"
            )
        warnings += [_near(source, near, key, whole)] if near else []
        whole = replace(whole, **{name: getattr(key, name) for name in near if not _known(whole, name)})
    return whole, tuple(dict.fromkeys(warnings))


def flag(name: str, value: str) -> str:
    """An engine's setting that changes speed, in one spelling for all of its tools."""
    return f"{name}={SWITCHES.get(value.lower(), value)}"


def _aligned(key: Key, whole: Key) -> tuple[Key, Key]:
    """Both with one spelling of what means one thing, and with the flags that either of them says, if none contradicts."""
    gpu = whole.gpu if key.gpu and whole.gpu and same_gpu(key.gpu, whole.gpu) else key.gpu
    cpu = whole.cpu if gpu or whole.gpu else key.cpu  # beside a graphics card the processor is no matter of speed
    key = replace(key, gpu=gpu, cpu=cpu)
    ours, theirs = _flags(key), _flags(whole)
    if any(ours[name] != theirs[name] for name in ours.keys() & theirs.keys()):
        return key, whole
    flags = tuple(f"{name}={value}" for name, value in (theirs | ours).items())
    return replace(key, flags=flags), replace(whole, flags=flags)


def _flags(key: Key) -> dict[str, str]:
    return {name: value for name, _, value in (item.partition("=") for item in key.flags)}


def _known(key: Key, name: str) -> bool:
    return getattr(key, name) not in ("", None, 0, ())


def _near(source: str, names: Iterable[str], key: Key, whole: Key) -> str:
    fields = ", ".join(f"{_said(name)} {_value(key, name)} (elsewhere {_value(whole, name)})" for name in names)
    return f"{source}: near, its speeds beside the others are a prior: {fields}"


def _said(name: str) -> str:
    return PLAIN_WORDS.get(name, name)


def _value(key: Key, name: str) -> str:
    value = getattr(key, name)
    if not _known(key, name):
        return "unknown"
    return " ".join(value) if isinstance(value, tuple) else f"{value}"

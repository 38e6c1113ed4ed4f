"""How numbers and foreign names are written for people. Rounding happens here and nowhere earlier."""

import re

from ..calibrate.records import Interval

_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]|[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{4,}"
)
"""Control and direction marks, what has no width, tags, and marks piled on one letter until they cover the lines above."""


def printable(text: str) -> str:
    """`text` whole, on one line, with what would steer a terminal shown as its escape: control characters, line ends, marks
    that turn the direction of writing. A command with such a path in it can be read, and no longer be run as it stands."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def plain(text: str, limit: int = 60) -> str:
    """`text` as one printable line of at most `limit` characters: control, direction and invisible marks shown as
    such, the middle cut."""
    line = _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)
    if len(line) <= limit:
        return line
    tail = (limit - 1) // 2
    return f"{line[: limit - 1 - tail]}…{line[len(line) - tail :]}"


def short(value: float) -> str:
    """About three significant digits, never in powers of ten."""
    size = abs(value)
    if size >= 99.95:
        return f"{value:.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}"


def with_bounds(interval: Interval) -> str:
    """value (low to high)."""
    return f"{short(interval.value)} ({short(interval.low)} to {short(interval.high)})"


def tokens_per_second(interval: Interval) -> str:
    """A speed with its interval and unit."""
    return f"{with_bounds(interval)} tokens/s"


def milliseconds(seconds: float) -> str:
    """Seconds as milliseconds with unit."""
    return f"{short(seconds * 1e3)} ms"


def percent(fraction: float, signed: bool = False) -> str:
    """A fraction in percent, one decimal place below 10 %."""
    decimals = 0 if abs(fraction) >= 0.0995 else 1
    sign = "+" if signed else ""
    return f"{fraction * 100:{sign}.{decimals}f} %"


def duration(seconds: float) -> str:
    """Seconds as a person says them: 45 s, 3 min 20 s, 2 h 5 min."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def gigabytes_per_second(bytes_per_second: float) -> str:
    """Bandwidth in GB/s (10^9)."""
    return f"{short(bytes_per_second / 1e9)} GB/s"


def mebibytes(size_bytes: int) -> str:
    """A file's size in MiB."""
    return f"{size_bytes / 2**20:,.0f} MiB"

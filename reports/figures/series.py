"""Telling series apart: one look for each drafter in every figure, and grouping in order."""

from collections.abc import Callable, Iterable
from itertools import chain, groupby
from typing import Any, TypeVar

from ...profiler.records import Setting
from ..panels import REFERENCE, Style, style

T = TypeVar("T")

PLAIN = Style(REFERENCE, "x", "dash")


def drafter_key(setting: Setting) -> tuple[str, ...]:
    return (setting.drafter, setting.draft, str(setting.ngram_size))


def styles(settings: Iterable[Setting]) -> dict[tuple[str, ...], Style]:
    """A look for each drafter; plain decoding is grey."""
    keys = in_order(drafter_key(setting) for setting in settings)
    drafters = [key for key in keys if key[0] != "none"]
    looks = {key: style(place) for place, key in enumerate(drafters)}
    return {key: looks.get(key, PLAIN) for key in keys}


def looks_of_pairs(settings: Iterable[Setting], pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Style]:
    """Looks by (drafter, draft), for records that do not tell the n-gram size: as `settings` have it, then `pairs`."""
    asked = list(pairs)
    rest = (Setting(target="", target_quant="", drafter=drafter, draft=draft) for drafter, draft in asked)
    known = list(settings)
    names = {(setting.drafter, setting.draft) for setting in known}
    looks = styles(chain(known, (setting for setting in rest if (setting.drafter, setting.draft) not in names)))
    return {pair: next(look for key, look in looks.items() if key[:2] == pair) for pair in asked}


def in_order(items: Iterable[T]) -> list[T]:
    """Distinct items in order of appearance."""
    return list(dict.fromkeys(items))


def grouped(items: Iterable[T], key: Callable[[T], tuple[Any, ...]]) -> list[list[T]]:
    """Lists of items of equal key, by key."""
    return [list(group) for _, group in groupby(sorted(items, key=key), key=key)]

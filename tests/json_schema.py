"""As much of JSON Schema 2020-12 as our schemas use; any other keyword is an error, so that nothing is skipped in silence."""

from collections.abc import Iterator
from typing import Any

TYPES = {
    "object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "integer": int, "number": (int, float),
}  # fmt: skip
KEYWORDS_OF = {"required": dict, "properties": dict, "additionalProperties": dict, "items": list}
"""Keywords that say something of values of one type alone."""
TEXTS = {"title", "description", "default", "$schema", "$defs"}


def errors(value: Any, schema: dict[str, Any], whole: dict[str, Any], place: str = "") -> Iterator[str]:
    """What of `value` breaks `schema`, a part of `whole`."""
    for keyword, wanted in schema.items():
        if keyword in KEYWORDS_OF and not isinstance(value, KEYWORDS_OF[keyword]):
            continue
        if keyword == "$ref":
            yield from errors(value, whole["$defs"][wanted.removeprefix("#/$defs/")], whole, place)
        elif keyword == "type":
            if not is_a(value, wanted):
                yield f"{place}: {value!r} is no {wanted}"
        elif keyword == "const":
            if value != wanted:
                yield f"{place}: {value!r} is not {wanted!r}"
        elif keyword == "anyOf":
            if not any(not list(errors(value, one, whole, place)) for one in wanted):
                yield f"{place}: {value!r} is none of the alternatives"
        elif keyword == "required":
            yield from (f"{place}: {name} is missing" for name in wanted if name not in value)
        elif keyword == "properties":
            for name in wanted.keys() & value.keys():
                yield from errors(value[name], wanted[name], whole, f"{place}.{name}")
        elif keyword == "additionalProperties":
            for name in value.keys() - schema.get("properties", {}).keys():
                if wanted is False:
                    yield f"{place}: {name} is unknown"
                elif wanted is not True:
                    yield from errors(value[name], wanted, whole, f"{place}.{name}")
        elif keyword == "items":
            for at, item in enumerate(value):
                yield from errors(item, wanted, whole, f"{place}[{at}]")
        elif keyword not in TEXTS:
            raise NotImplementedError(keyword)


def is_a(value: object, name: str) -> bool:
    """Whether `value` has the JSON type of this name; true and false are no numbers."""
    return isinstance(value, TYPES[name]) and not (isinstance(value, bool) and name in ("integer", "number"))

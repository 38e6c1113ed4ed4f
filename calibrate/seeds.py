"""Seeds: what is drawn for a quantity depends on the place of its models and workload in the profile, not on their names."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

import msgspec

from ..profiler.records import Profile


class Seed(int):
    """A seed that knows the `places` of a profile's names. A profile whose names were changed has the same draws."""

    places: Mapping[str, str]

    def __new__(cls, seed: int, places: Mapping[str, str]) -> Self:
        """`places`: what stands for each name."""
        made = super().__new__(cls, seed)
        made.places = places
        return made

    @staticmethod
    def of(seed: int, profile: Profile) -> "Seed":
        """`seed` with the places of the profile's models and workloads."""
        workloads = dict.fromkeys(prompt.workload for prompt in profile.prompts)
        drafts = (candidate.draft for candidate in profile.candidates)  # heads and n-gram methods are no models
        models = dict.fromkeys((*(model.label for model in profile.models), *drafts))
        names = {name: f"workload {place}" for place, name in enumerate(workloads)}
        return Seed(seed, names | {name: f"model {place}" for place, name in enumerate(models)})

    def words(self, owner: object) -> Iterator[str]:
        """What tells `owner` (a name, a number, a setting, a pair, a shape) from others, names by their places."""
        if isinstance(owner, str):
            yield self.places.get(owner, owner)
        elif isinstance(owner, msgspec.Struct) or dataclasses.is_dataclass(owner):
            for field in _fields(owner):
                yield from self.words(getattr(owner, field))
        else:
            yield str(owner)


def _fields(owner: Any) -> Iterator[str]:
    """Its fields but for quantizations, which the models have."""
    if isinstance(owner, msgspec.Struct):
        names: Iterable[str] = owner.__struct_fields__
    else:
        names = owner.__dataclass_fields__
    return (name for name in names if not name.endswith("_quant"))

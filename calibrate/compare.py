"""Two profiles or two validations held against each other: what differs, and what is noise.

Tests come in three families, each corrected for its number of looks (contrast.py): the whole machine, groups of numbers
(what a part of the work costs, a pair's acceptance), and single numbers. Together they report a false difference in at
most 1 - level of the comparisons of documents that differ by noise alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from ..profiler.errors import InputError
from ..profiler.files import read_head, read_record, shown
from ..profiler.job import IGNORED, NEAR
from ..profiler.records import Profile
from ..profiler.sharing.redact import redacted
from . import compare_profiles, compare_validations
from .contrast import Look, holm
from .findings import findings_of
from .records import ComparedNumber, Comparison, KeyField, Validation

LEVEL = 0.95
FAMILIES = {"machine": 0.5, "group": 0.3, "number": 0.2}
"""Share of the false alarms that each family may have."""
KINDS: dict[str, type[Profile] | type[Validation]] = {
    "specgauge-profile": Profile,
    "specgauge-validation": Validation,
}
FILES = {"specgauge-profile": "profile.json", "specgauge-validation": "validation.json"}


@dataclass(frozen=True)
class Documents:
    """Two of a kind, with the files that they are from."""

    a: Profile | Validation
    b: Profile | Validation
    names: tuple[str, str]


def read_pair(a: Path, b: Path) -> Documents:
    """Two profiles or two validations from files or output folders. Raises InputError.

    Of two folders that hold both kinds the profiles are taken; beside a file, the folder's document of the same kind.
    """
    kind = _common_kind(a, b)
    paths = tuple(path / FILES[kind] if path.is_dir() else path for path in (a, b))
    first, second = (read_record(path, KINDS[kind]) for path in paths)
    for path, found in zip(paths, (first, second)):
        if isinstance(found, Profile) and not (found.models and found.prompts and found.candidates):
            raise InputError(f"{shown(path)} names no models, prompts or candidates; profile again")
    return Documents(first, second, (str(paths[0]), str(paths[1])))


def _common_kind(a: Path, b: Path) -> str:
    kinds = [_kinds_at(path) for path in (a, b)]
    common = [kind for kind in KINDS if kind in kinds[0] and kind in kinds[1]]
    if common:
        return common[0]
    said = " and ".join(
        f"{shown(path)} ({', '.join(kind.removeprefix('specgauge-') for kind in found)})"
        for path, found in zip((a, b), kinds)
    )
    raise InputError(f"{said} are of different kinds; give two profiles or two validations")


def _kinds_at(path: Path) -> list[str]:
    """Kinds of documents that a file or folder holds. Raises InputError where it is none of them."""
    if path.is_dir():
        found = [kind for kind, name in FILES.items() if (path / name).exists()]
        if not found:
            raise InputError(f"{shown(path)} has neither profile.json nor validation.json; give another folder")
        return found
    kind = read_head(path).kind
    if kind not in KINDS:
        what = f"a {shown(kind)}" if kind else "no record of specgauge"
        raise InputError(f"{shown(path)} is {what}; give a profile or a validation")
    return [kind]


def comparison(found: Documents, level: float = LEVEL) -> Comparison:
    """What differs between `found.a` and `found.b`. Raises InputError where they have no number in common."""
    a, b = found.a, found.b
    if isinstance(a, Profile) and isinstance(b, Profile):
        a, b = in_one_tongue(a, b)
        looks, notes = compare_profiles.looks(a, b)
        key, kind = key_fields(a, b), "profile"
    elif isinstance(a, Validation) and isinstance(b, Validation):
        looks, notes = compare_validations.looks(a, b)
        key, kind = (), "validation"
    else:
        raise InputError("a profile and a validation cannot be compared; give two of a kind")
    if not looks:
        raise InputError(
            f"{shown(found.names[0])} and {shown(found.names[1])} have no measurement in common; "
            "compare documents of the same models and workloads"
        )
    numbers = tuple(_numbers(looks, level))
    return Comparison(
        of=kind,
        a=found.names[0],
        b=found.names[1],
        level=level,
        key=key,
        findings=findings_of(looks, numbers),
        numbers=numbers,
        notes=notes,
    )


def _numbers(looks: Sequence[Look], level: float) -> Iterable[ComparedNumber]:
    """Looks judged within their families, in their order."""
    judged: dict[int, tuple[float, float, int]] = {}
    for family, share in FAMILIES.items():
        places = [i for i, look in enumerate(looks) if look.family == family]
        adjusted = holm([looks[i].tested.p_value() for i in places])
        alpha = (1 - level) * share
        judged |= {i: (p, alpha, len(places)) for i, p in zip(places, adjusted)}
    for i, look in enumerate(looks):
        p_value, alpha, count = judged[i]
        yield ComparedNumber(
            group=look.group,
            name=look.name,
            unit=look.unit,
            whole=look.family != "number",
            a=look.a,
            b=look.b,
            ratio=look.ratio.interval(level),
            at_equal_speed=look.at_equal_speed.interval(level) if look.at_equal_speed else None,
            differs=p_value <= alpha,
            p_value=p_value,
            false_alarms=alpha,
            detectable=look.tested.detectable(alpha / count),
            error_a=look.errors[0] if look.errors else None,
            error_b=look.errors[1] if look.errors else None,
        )


# --- keys ------------------------------------------------------------------------------------------------------------


def in_one_tongue(a: Profile, b: Profile) -> tuple[Profile, Profile]:
    """Both profiles with the names that a shared one has, where one of them is shared."""
    if a.redacted == b.redacted:
        return a, b
    named = bool({model.label for model in a.models} & {model.label for model in b.models})
    first, second = (profile if profile.redacted else redacted(profile, named).profile for profile in (a, b))
    return first, second


def key_fields(a: Profile, b: Profile) -> tuple[KeyField, ...]:
    """What the numbers of two profiles are valid for, field by field (docs/design.md, section 3)."""
    fields = [_key_field(name, getattr(a.key, name), getattr(b.key, name)) for name in a.key.__struct_fields__]
    fields += _model_fields(a, b)
    return (*fields, _key_field("sampling", *(_sampling_text(p) for p in (a, b))))


def _key_field(name: str, a: object, b: object) -> KeyField:
    weight = "informational" if name in IGNORED else "near" if name in NEAR else "decisive"
    unknown = name != "flags" and (a in ("", None, 0) or b in ("", None, 0))
    state = "unknown" if unknown else "equal" if a == b else "differs"
    return KeyField(name=name, a=_text(a), b=_text(b), state=state, weight=weight)


def _model_fields(a: Profile, b: Profile) -> list[KeyField]:
    """Hash and quantization of every model that both name. A shared profile may have a model's name in place of its hash."""
    ours, theirs = (
        {m.label: replace(m, sha256="") if profile.redacted and m.sha256 == m.label else m for m in profile.models}
        for profile in (a, b)
    )
    return [
        _key_field(f"{label}: {name}", getattr(ours[label], name), getattr(theirs[label], name))
        for label in ours
        if label in theirs
        for name in ("sha256", "quant")
    ]


def _sampling_text(profile: Profile) -> str:
    """All but the seed, which decides no speed."""
    known = profile.sampling
    return ", ".join(f"{name} {getattr(known, name)}" for name in known.__struct_fields__ if name != "seed")


def _text(value: object) -> str:
    if value in ("", None, 0):
        return ""
    return " ".join(value) if isinstance(value, tuple) else str(value)

"""Files of others together: one profile, as far as their keys allow."""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from msgspec.structs import replace

from ..profiler.errors import InputError
from ..profiler.records import (
    Candidate,
    EngineInfo,
    Key,
    Measurement,
    ModelFile,
    Profile,
    Prompt,
    ReportedRow,
    Request,
    Sampling,
    Setting,
)
from .importers import sentences
from .importers.base import Given, Imported
from .importers.keys import merged_key
from .importers.names import says_only_the_kind

IMPORT = Request(action="import")
NEAR_SHARE, NEAR_TOKENS = 0.25, 512
"""Contexts that were counted, not set, are one where they are no further apart than either."""
Claim = Any
"""A ReportedRow or a ReportedAcceptance."""


@dataclass(frozen=True)
class _Part:
    """A file's evidence on its way into the profile; `elsewhere`: of another machine, acceptance only."""

    imported: Imported
    elsewhere: bool

    @property
    def claims(self) -> tuple[Claim, ...]:
        return (*self.imported.reported, *self.imported.acceptance)

    def changed(self, change: Callable[[Claim], Claim]) -> "_Part":
        """With every row and counter changed."""
        rows, seen = (tuple(map(change, found)) for found in (self.imported.reported, self.imported.acceptance))
        return _Part(dataclasses.replace(self.imported, reported=rows, acceptance=seen), self.elsewhere)


def profile_of(
    parts: Sequence[Imported], acceptance_only: Sequence[Imported], given: Given, created: str, tool_version: str
) -> Profile:
    """The complete profile of `parts`, with the acceptance alone of those that come from other machines.

    Raises InputError where two files contradict each other, naming the field, or a file is given twice.
    """
    _check_once((*parts, *acceptance_only))
    _check_alike(parts)
    key, near = merged_key((part.source, _with_given(part.key, given)) for part in parts)
    moved = [_Part(acceptance_of(part), elsewhere=True) for part in acceptance_only]
    taken = _one_name_each([*(_Part(part, elsewhere=False) for part in parts), *moved])
    taken = _apart_from_here(_one_context_each(_named_by_temperature(taken)))
    workloads = dict.fromkeys(claim.workload for part in taken for claim in part.claims)
    return Profile(
        created=created,
        tool_version=tool_version,
        key=key,
        engine=EngineInfo(name=key.engine, build=key.build, backend=key.backend),
        models=_models(taken),
        prompts=tuple(_prompt(workload) for workload in workloads or {given.workload or "reported": None}),
        sampling=_sampling(taken),
        candidates=_candidates(taken),
        measurements=tuple(_measurement(part) for part in taken),
        warnings=(*chain.from_iterable(p.imported.warnings for p in taken), *near, *_elsewhere(taken)),
        complete=True,
    )


def _check_alike(parts: Iterable[Imported]) -> None:
    """Rows of several streams or KV types have plain speeds of their own: they would be taken for repeats."""
    seen: dict[str, str] = {}
    for part in parts:
        for row in part.reported:
            for name in ("streams", "kv_type_k", "kv_type_v"):
                value = str(getattr(row.setting, name))
                if seen.setdefault(name, value) != value:
                    raise InputError(
                        f"{part.source}: rows with {name} {seen[name]} and {value}: import each into an --out of its own"
                    )


def _check_once(parts: Iterable[Imported]) -> None:
    seen: dict[str, str] = {}
    for part in parts:
        if part.digest in seen:
            raise InputError(
                f"{part.source} has the content of {seen[part.digest]}: it would count twice; give it once"
            )
        seen[part.digest] = part.source


def _with_given(key: Key, given: Given) -> Key:
    return replace(key, gpu=key.gpu or given.gpu, engine=key.engine or given.engine)


def acceptance_of(part: Imported) -> Imported:
    """What moves between machines: tokens per round and counters. Raises InputError where there is none."""
    rows = tuple(
        replace(row, baseline_tokens_per_second=None, tokens_per_second=None, tokens_per_second_sd=None)
        for row in part.reported
        if row.tokens_per_round is not None and row.setting.draft_tokens
    )
    if not rows and not part.acceptance:
        raise InputError(f"{part.source}: holds no acceptance (tokens per round); leave it out of --acceptance")
    learned = (*sentences.of_acceptance(rows), *sentences.of_counters(part.acceptance))
    return dataclasses.replace(part, reported=rows, steps=(), models=(), learned=learned)


def _one_name_each(parts: list[_Part]) -> list[_Part]:
    """Labels: a target's name, with its quantization where it comes in several; one spelling for a target's own head."""
    settings = [claim.setting for part in parts for claim in part.claims]
    weights = [(model.label, model.quant) for part in parts for model in part.imported.models if part.imported.steps]
    targets = _Labels.of([*((s.target, s.target_quant) for s in settings), *weights])
    drafts = _Labels.of((s.draft, s.draft_quant) for s in settings if s.draft)
    heads = {s.drafter: s.draft for s in reversed(settings) if says_only_the_kind(s.draft, s.drafter)}

    def named(setting: Setting) -> Setting:
        head = says_only_the_kind(setting.draft, setting.drafter) or (setting.drafter in heads and not setting.draft)
        return replace(
            setting,
            target=targets.label(setting.target, setting.target_quant),
            target_quant=targets.quant(setting.target, setting.target_quant),
            draft=heads[setting.drafter] if head else drafts.label(setting.draft, setting.draft_quant),
        )

    return [_renamed(part, named, targets) for part in parts]


@dataclass(frozen=True)
class _Labels:
    """Quantizations by name."""

    quants: dict[str, tuple[str, ...]]

    @staticmethod
    def of(names: Iterable[tuple[str, str]]) -> "_Labels":
        found: dict[str, dict[str, None]] = defaultdict(dict)
        for name, quant in names:
            found[name] |= {quant: None} if quant else {}
        return _Labels({name: tuple(quants) for name, quants in found.items()})

    def quant(self, name: str, quant: str) -> str:
        """As told, or the only one that is told of this name."""
        known = self.quants.get(name, ())
        return quant or (known[0] if len(known) == 1 else "")

    def label(self, name: str, quant: str) -> str:
        several = len(self.quants.get(name, ())) > 1
        return f"{name} {quant}" if several and quant else name


def _renamed(part: _Part, named: Callable[[Setting], Setting], targets: _Labels) -> _Part:
    imported, quants = part.imported, {model.label: model.quant for model in part.imported.models}
    names = {step.model for step in imported.steps} | quants.keys()
    labels = {name: targets.label(name, quants.get(name, "")) for name in names}
    imported = dataclasses.replace(
        imported,
        steps=tuple(replace(step, model=labels[step.model]) for step in imported.steps),
        models=tuple(replace(model, label=labels[model.label]) for model in imported.models),
    )
    return _Part(imported, part.elsewhere).changed(lambda claim: replace(claim, setting=named(claim.setting)))


def _named_by_temperature(parts: list[_Part]) -> list[_Part]:
    """Acceptance belongs to a temperature: where rows differ in it, each is a workload of its own."""
    if len(_temperatures(parts)) < 2:
        return parts
    return [part.changed(lambda claim: replace(claim, workload=_workload(claim))) for part in parts]


def _temperatures(parts: Sequence[_Part]) -> set[float]:
    return {row.temperature for part in parts for row in part.imported.reported if row.temperature is not None}


def _workload(claim: Claim) -> str:
    temperature = claim.temperature if isinstance(claim, ReportedRow) else None
    return claim.workload if temperature is None else f"{claim.workload}, temperature {temperature:g}"


def _one_context_each(parts: list[_Part]) -> list[_Part]:
    """Contexts that are means over replies, brought together: those of two draft lengths are one ladder."""
    counted = sorted(claim.setting.context for part in parts if part.imported.counted_contexts for claim in part.claims)
    groups: list[list[int]] = []
    for context in counted:
        if groups and context - groups[-1][0] <= max(NEAR_TOKENS, NEAR_SHARE * groups[-1][0]):
            groups[-1].append(context)
        else:
            groups.append([context])
    middle = {context: group[len(group) // 2] for group in groups for context in group}

    def at(claim: Claim) -> Claim:
        return replace(claim, setting=replace(claim.setting, context=middle[claim.setting.context]))

    return [part.changed(at) if part.imported.counted_contexts else part for part in parts]


def _apart_from_here(parts: list[_Part]) -> list[_Part]:
    """A workload of another machine that has the name of one here is not the same prompts: named by its file too."""
    here = {
        (claim.workload, *_drafter_of(claim.setting)) for part in parts if not part.elsewhere for claim in part.claims
    }

    def met(part: _Part) -> bool:
        return part.elsewhere and any((c.workload, *_drafter_of(c.setting)) in here for c in part.claims)

    return [
        part.changed(lambda c, at=part.imported.source: replace(c, workload=f"{c.workload} in {at}"))
        if met(part)
        else part
        for part in parts
    ]


def _models(parts: Sequence[_Part]) -> tuple[ModelFile, ...]:
    """One a label: what a file tells of the weights, else the name alone."""
    found: dict[str, ModelFile] = {}
    for model in (model for part in parts for model in part.imported.models):
        found.setdefault(model.label, model)
    settings = [claim.setting for part in parts for claim in part.claims]
    for label, quant in [(s.target, s.target_quant) for s in settings] + _draft_names(settings):
        found.setdefault(label, _nameless(label, quant))
    for label in (step.model for part in parts for step in part.imported.steps):
        found.setdefault(label, _nameless(label, ""))
    return tuple(found.values())


def _draft_names(settings: Iterable[Setting]) -> list[tuple[str, str]]:
    """Drafts that are files of their own."""
    return [
        (s.draft, s.draft_quant)
        for s in settings
        if s.draft and s.drafter != "ngram" and not says_only_the_kind(s.draft, s.drafter)
    ]


def _nameless(label: str, quant: str) -> ModelFile:
    return ModelFile(
        label=label,
        path="",
        sha256="",
        size_bytes=0,
        name=label,
        architecture="",
        quant=quant,
        parameters=0,
        tokenizer_sha256="",
    )


def _candidates(parts: Sequence[_Part]) -> tuple[Candidate, ...]:
    """What this machine ran; with drafters whose acceptance comes from elsewhere; plain targets last."""
    here = [claim.setting for part in parts if not part.elsewhere for claim in part.claims]
    plain = dict.fromkeys([setting.plain for setting in here] + _timed_targets(parts, here))
    lengths: dict[Candidate, set[int]] = defaultdict(set)
    for setting in here:
        if setting.draft_tokens:
            lengths[_family(setting)].add(setting.draft_tokens)
    ran = {_drafter_of(setting) for setting in here}
    moved = [claim.setting for part in parts if part.elsewhere for claim in part.claims]
    for drafting in (_drafting(base, away) for away in moved for base in _homes(away, plain)):
        if _drafter_of(drafting) not in ran:
            lengths[_family(drafting)].add(drafting.draft_tokens)
    families = [replace(family, draft_tokens=_between(family, found)) for family, found in lengths.items()]
    covered = {family.setting(0) for family in families}
    return (*families, *(_family(setting) for setting in plain if setting not in covered))


def _between(family: Candidate, lengths: set[int]) -> tuple[int, ...]:
    """The lengths that rows bound, all of them: those between are forecast. With early stop those of the rows alone."""
    every = range(min(lengths), max(lengths) + 1)
    return tuple(sorted(lengths)) if family.p_min else tuple(every)


def _drafter_of(setting: Setting) -> tuple[str, str, str, float]:
    """What acceptance belongs to, beside the workload."""
    return setting.target, setting.drafter, setting.draft, setting.p_min


def _homes(setting: Setting, plain: Iterable[Setting]) -> list[Setting]:
    """Where a drafter of another machine can run here: on its own target, else on the only one."""
    targets = list(dict.fromkeys(base.target for base in plain))
    home = setting.target if setting.target in targets or len(targets) != 1 else targets[0]
    return [base for base in plain if base.target == home]


def _drafting(base: Setting, setting: Setting) -> Setting:
    return replace(
        base,
        drafter=setting.drafter,
        draft=setting.draft,
        draft_quant=setting.draft_quant,
        p_min=setting.p_min,
        draft_tokens=setting.draft_tokens,
    )


def _timed_targets(parts: Sequence[_Part], settings: Sequence[Setting]) -> list[Setting]:
    """Plain decoding of models of which only passes were timed, where they were timed; drafts are no targets."""
    told = {name for setting in settings for name in (setting.target, setting.draft)}
    told |= {claim.setting.draft for part in parts for claim in part.claims}
    steps = [(part.imported, step) for part in parts for step in part.imported.steps if step.model not in told]
    wide = {step.model for _, step in steps if step.width > 1}
    return [
        Setting(
            target=step.model,
            target_quant=next((model.quant for model in imported.models if model.label == step.model), ""),
            kv_type_k=imported.kv_types[0],
            kv_type_v=imported.kv_types[1],
            context=step.context,
        )
        for imported, step in steps
        if step.width > 1 or step.model not in wide
    ]


def _family(setting: Setting) -> Candidate:
    """The candidate that a setting belongs to, its draft lengths left out."""
    drafts = setting.draft_tokens > 0
    return Candidate(
        target=setting.target,
        target_quant=setting.target_quant,
        drafter=setting.drafter if drafts else "none",
        draft=setting.draft,
        draft_quant=setting.draft_quant,
        p_min=setting.p_min,
        draft_tokens=(),
        kv_type_k=setting.kv_type_k,
        kv_type_v=setting.kv_type_v,
        context=setting.context,
        streams=setting.streams,
    )


def _prompt(workload: str) -> Prompt:
    """A workload of which no text is known."""
    return Prompt(id=workload, workload=workload, workload_class="", text_sha256="", new_tokens=0)


def _sampling(parts: Sequence[_Part]) -> Sampling:
    told = next((part.imported.sampling for part in parts if part.imported.sampling), Sampling())
    temperatures = _temperatures(parts)
    return replace(told, temperature=next(iter(temperatures)) if len(temperatures) == 1 else 0.0)


def _measurement(part: _Part) -> Measurement:
    return Measurement(
        request=IMPORT,
        digest=part.imported.digest[:16],
        started_at_seconds=0.0,
        wall_seconds=0.0,
        steps=part.imported.steps,
        reported=part.imported.reported,
        reported_acceptance=part.imported.acceptance,
        rejected=part.imported.left_out,
    )


def _elsewhere(parts: Sequence[_Part]) -> list[str]:
    return [
        f"{part.imported.source}: only its acceptance is taken, speeds are left out: it may be of another machine"
        for part in parts
        if part.elsewhere
    ]

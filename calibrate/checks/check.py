"""The whole check of a target and its drafts: pair, memory, the seven points, from headers and settings alone."""

from collections.abc import Sequence

from msgspec.structs import replace

from ...profiler.checkpoints.checkpoint import Checkpoint
from ...profiler.errors import InputError
from ...profiler.finding import Finding, by_severity, warning
from ...profiler.job import Stamp
from ...profiler.pairs.engine_rules import EngineRules
from ...profiler.pairs.tokens import COMPATIBLE, INCOMPATIBLE, PADDING_ONLY, UNKNOWN, file_name
from ...profiler.preflight import ENGINE, check_pair, check_target
from .checklist import NOTHING_ASKED, AskedSampling, DraftPair, checklist_before
from .memory import MEMORY_VERDICTS, MemoryOptions, check_memory, memory_findings
from .records import CheckedModel, CheckedPair, CheckReport

PAIR_VERDICTS = (COMPATIBLE, PADDING_ONLY, UNKNOWN, INCOMPATIBLE)
"""From good to bad."""


def check(
    target: Checkpoint,
    drafts: Sequence[Checkpoint],
    options: MemoryOptions,
    stamp: Stamp,
    engine: EngineRules = ENGINE,
    sampling: AskedSampling = NOTHING_ASKED,
) -> CheckReport:
    """Everything that is known before weights are read. A head in the target's own file is a drafter like the others.

    Raises InputError for a file without weights.
    """
    for one in (target, *drafts):
        if not one.parameters:
            raise InputError(f"{one.path} holds no weights (a vocabulary only?); give the file of a model")
    context = options.context
    pairs = [DraftPair(draft, check_pair(target, draft, engine, context)) for draft in drafts]
    able = [pair.draft for pair in pairs if pair.verdict.verdict != INCOMPATIBLE]
    memories = check_memory(target, able, options, engine)
    first = memories[0]
    findings = [
        *_read_warnings([target, *drafts]),
        *(_of_draft(pair, finding, len(pairs)) for pair in pairs for finding in pair.verdict.findings),
        *check_target(target, engine),
        *(finding for memory in memories for finding in memory_findings(memory, target, options.free)),
    ]
    return CheckReport(
        created=stamp.created,
        tool_version=stamp.tool_version,
        engine=engine.name,
        engine_build=engine.build,
        pair=_pair(target, pairs),
        memory=max((memory.verdict for memory in memories), key=MEMORY_VERDICTS.index),
        checklist=checklist_before(target, pairs, memories, sampling),
        findings=_unique(by_severity(findings)),
        target=_model(target),
        drafts=tuple(map(_model, drafts)),
        pairs=tuple(
            CheckedPair(
                draft=pair.draft.path,
                verdict=pair.verdict.verdict,
                tokens=pair.verdict.tokens,
                evidence=pair.verdict.evidence,
                findings=pair.verdict.findings,
            )
            for pair in pairs
        ),
        free_bytes=options.free.free_bytes,
        free_memory=options.free.text,
        memories=memories,
        region=first.region,
        largest_contexts=first.largest_contexts,
    )


def exit_code(report: CheckReport) -> int:
    """2 for a pair that cannot work, 0 for everything else.

    Memory never makes it 2: what does not fit is warned of with its missing MiB and the settings that do fit, and what is
    free now is not what will be free, layers may move to the host, and engines map weights that exceed memory. A pair
    that an engine's build refuses is one that cannot work.
    """
    return 2 if report.pair == INCOMPATIBLE else 0


def _pair(target: Checkpoint, pairs: Sequence[DraftPair]) -> str:
    """The worst verdict: a pair that was asked for and cannot work is not made good by another."""
    if pairs:
        return max((pair.verdict.verdict for pair in pairs), key=PAIR_VERDICTS.index)
    return COMPATIBLE if target.mtp_layers else UNKNOWN


def _model(checkpoint: Checkpoint) -> CheckedModel:
    shape, tokenizer = checkpoint.shape, checkpoint.tokenizer
    return CheckedModel(
        path=checkpoint.path,
        format=checkpoint.format,
        name=checkpoint.name,
        family=checkpoint.family,
        architecture=checkpoint.architecture,
        quant=checkpoint.quant,
        quant_bits=checkpoint.quant_bits,
        size_bytes=checkpoint.size_bytes,
        parameters=checkpoint.parameters,
        active_parameters=float(shape.active_parameters) if shape else None,
        layers=shape.layers if shape else None,
        vocabulary_rows=tokenizer.rows if tokenizer else shape.vocabulary if shape else None,
        tokens=tokenizer.tokens if tokenizer else None,
        kv_bytes_per_token=float(shape.kv_bytes_per_token()) if shape else None,
        recurrent_bytes=float(shape.recurrent_bytes) if shape else None,
        context_length=checkpoint.context_length,
        mtp_layers=checkpoint.mtp_layers,
        head_kind=checkpoint.head_kind,
        shape_unknown=checkpoint.shape_unknown,
        read_bytes=checkpoint.read_bytes,
    )


def _read_warnings(checkpoints: Sequence[Checkpoint]) -> list[Finding]:
    """What the readers found odd in the files."""
    return [warning("file", f"{checkpoint.path}: {text}") for checkpoint in checkpoints for text in checkpoint.warnings]


def _of_draft(pair: DraftPair, finding: Finding, drafts: int) -> Finding:
    """The finding, with the draft that it is about where there are several."""
    name = file_name(pair.draft)
    if drafts == 1 or name in finding.evidence:
        return finding
    return replace(finding, evidence=f"{name}: {finding.evidence}")


def _unique(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Each finding once: several drafts meet the same target."""
    return tuple(dict.fromkeys(findings))

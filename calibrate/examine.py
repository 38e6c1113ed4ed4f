"""Examination: the symptoms of a setting, from a profile with its calibration and what was run, or from imported rows."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from ..model.shape import Shape
from ..model.traffic import Traffic
from ..profiler.records import Candidate, DeviceState, Measurement, ModelFile, Profile, ReportedRow, Sampling, Setting
from . import reported
from .evidence import Pair
from .fit import Calibrated, NotCalibrated
from .records import Recommendation, SettingForecast, Validation, ValidationRow
from .symptoms import SAMPLING, Devices, Experts, Hardware, Neighbour, Parts, Pass, Symptoms, Used

LEAST_COLD_REPEATS = 2
"""Repeats behind the first one, without which it cannot be called cold."""
STEPWISE = ("draft", "draft_catch_up", "draft_further")
"""Terms of a round that together are one pass of the draft for each drafted token."""
LAYER_NAMES = ("n_gpu_layers", "gpu_layers")
LAYERS_NAMES = ("n_layers", "n_layer")
ALIASES = {
    "draft_tokens": ("speculative.n_max", "speculative.draft_tokens"),
    "p_min": ("speculative.p_min",),
    "kv_type_k": ("type_k", "cache_type_k"),
    "kv_type_v": ("type_v", "cache_type_v"),
}
"""Names under which engines read back a field of Setting."""


def usual_setting(recommendation: Recommendation, workload: str) -> Setting | None:
    """The fastest drafting setting by forecast; None where nothing drafts."""
    drafting = [f for f in recommendation.candidates if f.workload == workload and f.setting.draft_tokens]
    best = max(drafting, key=lambda f: f.tokens_per_second.value, default=None)
    return best.setting if best else None


def usual_settings(
    profile: Profile, calibrated: Calibrated, target: str, workload: str, draft_tokens: int | None = None
) -> tuple[Setting, ...]:
    """What to diagnose where nobody says: of each drafter of `target`, also one that was dropped, the fastest length that
    can be forecast (or `draft_tokens`); the fastest drafter first."""
    fastest = [
        max(known, key=lambda pair: pair[0])
        for candidate in profile.candidates
        if candidate.target == target
        for known in [_forecast_lengths(calibrated, candidate, workload, draft_tokens)]
        if known
    ]
    return tuple(setting for _, setting in sorted(fastest, key=lambda pair: -pair[0]))


def _forecast_lengths(
    calibrated: Calibrated, candidate: Candidate, workload: str, draft_tokens: int | None
) -> list[tuple[float, Setting]]:
    """Speed and setting of each draft length that the evidence allows to forecast."""
    found = []
    for length in candidate.draft_tokens if draft_tokens is None else (draft_tokens,):
        setting = candidate.setting(length)
        try:
            found.append((float(calibrated.speeds(setting, workload)[0]), setting))
        except NotCalibrated:
            continue
    return found


def symptoms_of(
    profile: Profile,
    calibrated: Calibrated,
    setting: Setting,
    workload: str,
    validation: Validation | None = None,
    shape: Shape | None = None,
    known: Sequence[Neighbour] = (),
) -> Symptoms:
    """Of one drafting setting on a workload. `shape`: the target's, where its header was read; `known`: what else was
    measured with one thing changed. Raises NotCalibrated where the setting cannot be forecast."""
    forecast = calibrated.forecast(setting, workload)
    row = _row(validation, setting, workload)
    effective = row.effective if row else {}
    plain = _row(validation, setting.plain, workload)
    speed = forecast.tokens_per_second.value if row is None else row.measured
    baseline = forecast.baseline_tokens_per_second if plain is None else plain.measured / _drift(validation, workload)
    tokens = forecast.tokens_per_round if row is None else row.tokens_per_round_measured or forecast.tokens_per_round
    context = calibrated.mean_context(setting, workload)
    passes = tuple(_passes(calibrated, setting.target, context, forecast.round_time_source))
    used = tuple(_used(profile.sampling, setting, effective))
    found = Symptoms(
        setting=setting,
        workload=workload,
        tokens_per_second=speed,
        plain_tokens_per_second=baseline,
        tokens_per_round=tokens,
        drafted_per_round=forecast.drafted_per_round,
        survival=tuple(float(s) for s in calibrated.survival(setting, workload)),
        parts=_parts(calibrated, setting, context, passes),
        passes=passes,
        neighbours=(
            *_lengths(profile, calibrated, setting, workload, validation),
            *_context(calibrated, setting, workload),
            *known,
        ),
        experts=experts_of(shape),
        hardware=_hardware(profile, calibrated, setting, shape, effective),
        devices=_devices(profile, setting),
        used=used,
        log_sd=float(np.hypot(calibrated.session_noise(setting), 0.01)),
        provenance="measured" if row is not None else forecast.provenance,
    )
    return _as_asked(_cold(found, row), forecast, used)


def symptoms_of_rows(profile: Profile) -> tuple[Symptoms, ...]:
    """Of every imported row that drafts, its neighbours in draft length and context with it."""
    rows = [row for row in reported.rows_of(profile) if row.setting.draft_tokens and row.tokens_per_second]
    return tuple(_of_row(profile, row, rows) for row in rows)


def experts_of(shape: Shape | None) -> Experts | None:
    """Routed experts of a target; None for a dense one, or where its header was not read."""
    if shape is None:
        return None
    traffic: Traffic = shape.traffic()
    if traffic.experts is None:
        return None
    one = traffic.pass_bytes(1)
    return Experts(traffic.experts.experts, traffic.experts.per_token, float(np.asarray(one.experts / one.total)))


# rows


def _of_row(profile: Profile, row: ReportedRow, rows: Sequence[ReportedRow]) -> Symptoms:
    setting, pair = row.setting, Pair.of(row.setting)
    alike = [r for r in rows if Pair.of(r.setting) == pair and r.workload == row.workload and r is not row]
    here = [r for r in alike if _place(r.setting) == _place(setting)]
    elsewhere = [
        r for r in alike if r.setting.draft_tokens == setting.draft_tokens and r.setting.context < setting.context
    ]
    plain = _plain_of_row(profile, row)
    neighbours = [
        *(_neighbour("draft_tokens", r.setting.draft_tokens, r) for r in here),
        *(_neighbour("context", r.setting.context, r) for r in elsewhere),
    ]
    return Symptoms(
        setting=setting,
        workload=row.workload,
        tokens_per_second=row.tokens_per_second or 0.0,
        plain_tokens_per_second=plain,
        tokens_per_round=row.tokens_per_round,
        neighbours=tuple(neighbours),
        hardware=Hardware(gpu=bool(profile.key.gpu)),
        baseline_measured=plain is not None,
    )


def _place(setting: Setting) -> tuple[int, int]:
    return setting.context, setting.streams


def _plain_of_row(profile: Profile, row: ReportedRow) -> float | None:
    """Plain decoding of the same session, else of any session at the same context."""
    if row.baseline_tokens_per_second:
        return row.baseline_tokens_per_second
    seconds = reported.plain_seconds(profile, row.setting.target).get(row.setting.context)
    return None if seconds is None else 1 / float(np.median(seconds))


def _neighbour(changed: str, value: int, row: ReportedRow) -> Neighbour:
    plain = row.baseline_tokens_per_second
    return Neighbour(changed, value, row.tokens_per_second or 0.0, row.tokens_per_round, 1 / plain if plain else None)


# a profile


def _row(validation: Validation | None, setting: Setting, workload: str) -> ValidationRow | None:
    rows = validation.rows if validation else ()
    return next((row for row in rows if row.config == setting and row.workload == workload), None)


def _drift(validation: Validation | None, workload: str) -> float:
    """Plain speed of the validation over the profile's: the plain row is as the clock gave it, the others are not."""
    return validation.drift.get(workload, 1.0) if validation else 1.0


def _passes(calibrated: Calibrated, target: str, context: float, source: str) -> Iterator[Pass]:
    """Verification passes as they were timed; none where the table is of reported speeds."""
    table = calibrated.tables.verifying(target)
    if table is None or (table.widths > 1).sum() == 0:
        return
    seconds = table.lookup(table.widths, np.full(table.widths.size, float(context))).seconds[0]
    for width, one in zip(table.widths, seconds):
        yield Pass(int(width), float(one))


def _parts(calibrated: Calibrated, setting: Setting, context: float, passes: Sequence[Pass]) -> Parts:
    """The model's terms of a full round; the signed rest of measured rounds is left to be explained."""
    found = calibrated.modelled_round(setting, setting.draft_tokens, context)
    terms = {term.name: term.seconds for term in found.terms}
    steps = [terms[name] for name in STEPWISE if name in terms]
    if "verification" not in terms:
        return Parts(verification_seconds=_pass_seconds(passes, setting.draft_tokens + 1))
    return Parts(
        draft_step_seconds=sum(steps) / setting.draft_tokens if steps else None,
        draft_passes=None,
        draft_batch_seconds=terms.get("draft_batch", 0.0),
        verification_seconds=terms["verification"],
        rollback_seconds=terms.get("rollback", 0.0),
    )


def _pass_seconds(passes: Sequence[Pass], width: int) -> float | None:
    return next((one.seconds for one in passes if one.width == width), None)


def _lengths(
    profile: Profile, calibrated: Calibrated, setting: Setting, workload: str, validation: Validation | None
) -> Iterator[Neighbour]:
    """The other draft lengths of the same pair: as run, else as forecast; measured where their rounds were."""
    pair = Pair.of(setting)
    lengths = {n for c in profile.candidates if Pair.of(c) == pair for n in c.draft_tokens} - {0, setting.draft_tokens}
    for length in sorted(lengths):
        other = _with_length(setting, length)
        row = _row(validation, other, workload)
        try:
            forecast = calibrated.forecast(other, workload)
        except NotCalibrated:
            continue
        speed, tokens = forecast.tokens_per_second.value, forecast.tokens_per_round
        if row is not None and row.tokens_per_round_measured:
            speed, tokens = row.measured, row.tokens_per_round_measured
        yield Neighbour("draft_tokens", length, speed, tokens, measured=row is not None or forecast.in_profile)


def _with_length(setting: Setting, draft_tokens: int) -> Setting:
    import msgspec

    return msgspec.structs.replace(setting, draft_tokens=draft_tokens)


def _context(calibrated: Calibrated, setting: Setting, workload: str) -> Iterator[Neighbour]:
    """The same rounds at the shortest context that was profiled."""
    table = calibrated.tables.verifying(setting.target)
    here = calibrated.mean_context(setting, workload)
    if table is None or float(table.contexts[0]) >= here:
        return
    short = float(table.contexts[0])
    pair = next((p for p in calibrated.pairs if p.pair == Pair.of(setting)), None)
    if pair is None:
        return
    forecast = calibrated.forecast(setting, workload)
    plain = table.lookup(np.array([1, 1]), np.array([short, here])).seconds[0]
    now = calibrated.modelled_round(setting, setting.draft_tokens, here).modelled_seconds
    then = calibrated.modelled_round(setting, setting.draft_tokens, short).modelled_seconds
    yield Neighbour(
        "context",
        round(short),
        forecast.tokens_per_second.value * now / then,
        forecast.tokens_per_round,
        float(plain[0] / plain[1] / forecast.baseline_tokens_per_second),
        measured=False,
    )


def _hardware(
    profile: Profile, calibrated: Calibrated, setting: Setting, shape: Shape | None, effective: dict[str, str]
) -> Hardware:
    target, draft = _model(profile, setting.target), _model(profile, setting.draft)
    layers, on_device = _number(effective, LAYERS_NAMES), _number(effective, LAYER_NAMES)
    draft_layers = _number(effective, [f"draft.{name}" for name in LAYER_NAMES])
    active = None if shape is None else float(np.asarray(shape.traffic().pass_bytes(1).total))
    return Hardware(
        target_bytes=target.size_bytes or None if target else None,
        active_bytes=active,
        draft_bytes=draft.size_bytes or None if draft else None,
        bandwidth=float(calibrated.bandwidth.bytes_per_second[0]) if calibrated.bandwidth else None,
        gpu=bool(profile.key.gpu) and profile.key.backend != "cpu",
        layers=layers,
        layers_on_device=on_device,
        draft_on_device=None if draft_layers is None else draft_layers > 0,
    )


def _model(profile: Profile, label: str) -> ModelFile | None:
    return next((model for model in profile.models if model.label == label), None)


def _number(effective: dict[str, str], names: Iterable[str]) -> int | None:
    """The first of `names` that the engine told as a whole number."""
    told = (effective[name] for name in names if name in effective)
    return next((int(value) for value in told if value.lstrip("-").isdigit()), None)


def _devices(profile: Profile, setting: Setting) -> Devices:
    """States during plain work of the target and right after it, and of rounds of this setting."""
    plain = [m for m in profile.measurements if m.request.action in ("steps", "runs", "verify") and not _drafts(m)]
    drafting = [m for m in profile.measurements if m.request.action in ("rounds", "trace") and _drafted(m, setting)]
    return Devices(_states(plain), _states(drafting))


def _drafts(measurement: Measurement) -> bool:
    return any(one.draft_tokens for one in measurement.request.settings)


def _drafted(measurement: Measurement, setting: Setting) -> bool:
    own = [one for one in measurement.request.settings if Pair.of(one) == Pair.of(setting)]
    return any(one.draft_tokens == setting.draft_tokens for one in own)


def _states(measurements: Iterable[Measurement]) -> tuple[DeviceState, ...]:
    """Those while it worked where it was watched, else the one right after."""
    worked = [m for m in measurements if not m.unsupported]
    after = [m.state_after for m in worked if m.state_after is not None and not m.states_during]
    return (*after, *(state for m in worked for state in m.states_during))


def _used(sampling: Sampling, setting: Setting, effective: dict[str, str]) -> Iterator[Used]:
    """Sampling of target and draft, and fields of the setting, as sent and as read back."""
    for name in SAMPLING:
        for told in (name, f"draft.{name}", f"speculative.{name}"):
            if told in effective:
                yield Used(told, _text(getattr(sampling, name)), effective[told])
    for name, spellings in ALIASES.items():
        for told in spellings:
            if told in effective:
                yield Used(told, _text(getattr(setting, name)), effective[told])


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cold(found: Symptoms, row: ValidationRow | None) -> Symptoms:
    """A first repeat that is slower than the rest is what a fresh server gives: then that is what is examined."""
    if row is None or len(row.speeds) <= LEAST_COLD_REPEATS:
        return found
    first, warm = row.speeds[0], median(row.speeds[1:])
    if first >= (1 - 2 * found.log_sd) * warm or first > 0.9 * warm:
        return found
    return replace(
        found,
        tokens_per_second=found.tokens_per_second * first / warm,
        warm_tokens_per_second=found.tokens_per_second,
    )


def _as_asked(found: Symptoms, forecast: SettingForecast, used: Sequence[Used]) -> Symptoms:
    """Where the engine drafted otherwise than asked, the forecast of what was asked stands beside it."""
    names = ALIASES["draft_tokens"]
    if not any(one.name in names for one in found.differing()):
        return found
    asked = Neighbour(
        "draft_tokens_used",
        found.setting.draft_tokens,
        forecast.tokens_per_second.value,
        forecast.tokens_per_round,
        measured=False,
    )
    return replace(found, neighbours=(*found.neighbours, asked))

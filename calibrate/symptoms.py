"""Symptoms: everything that can be known of one speculative setting against plain decoding, None where it is not.

From a profile and its validation, or from imported rows (examine.py), or straight from the figures of somebody's report.
"""

from dataclasses import dataclass, field, replace

from ..model.experts import distinct_experts
from ..model.reported import alpha_from_tokens, tokens_from_acceptance_rate
from ..profiler.outputs.sampling_parity import same_value
from ..profiler.records import DeviceState, Setting

PUBLISHED_LOG_SD = 0.014
"""Noise of a published speed-up: 1 % of each of its two speeds (model/ladder.py)."""
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "draft_sampling")
"""Settings that decide acceptance, and not what a round takes."""


@dataclass(frozen=True)
class Parts:
    """Seconds of a round by term, as far as they were clocked apart."""

    draft_step_seconds: float | None = None
    draft_passes: float | None = None
    """One for each drafted token where None."""
    draft_batch_seconds: float = 0.0
    """The draft's own pass over the verified tokens."""
    verification_seconds: float | None = None
    overhead_seconds: float | None = None
    rollback_seconds: float = 0.0


@dataclass(frozen=True)
class Pass:
    """A pass of the target over `width` tokens, timed without the draft; width 1 is the plain step."""

    width: int
    seconds: float


@dataclass(frozen=True)
class Neighbour:
    """The same run with one thing changed: a field of Setting, a sampling setting, or build, flags, power_limit_watts,
    workload, rollback."""

    changed: str
    value: float | str
    tokens_per_second: float
    tokens_per_round: float | None = None
    plain_step_seconds: float | None = None
    """Of plain decoding with the same change, where the change concerns it."""
    measured: bool = True

    @property
    def round_seconds(self) -> float | None:
        return None if self.tokens_per_round is None else self.tokens_per_round / self.tokens_per_second


@dataclass(frozen=True)
class Experts:
    """Routed experts of the target: `per_token` of `experts` are read for a token. `share` of a plain step's bytes are
    theirs; None where it is not known: then all may be."""

    experts: int
    per_token: int
    share: float | None = None

    def growth(self, width: int) -> float:
        """What a pass over `width` tokens reads more than one over a single token, in plain steps; independent routing."""
        touched = float(distinct_experts(self.experts, self.per_token, width))
        return (1.0 if self.share is None else self.share) * (touched / self.per_token - 1)


@dataclass(frozen=True)
class Hardware:
    """What a step could take. Bandwidths in bytes per second; layers of the target, and how many lie on the device."""

    target_bytes: float | None = None
    active_bytes: float | None = None
    """Read by a plain step; target_bytes where None."""
    draft_bytes: float | None = None
    bandwidth: float | None = None
    host_bandwidth: float | None = None
    gpu: bool = True
    layers: int | None = None
    layers_on_device: int | None = None
    draft_on_device: bool | None = None

    @property
    def step_bytes(self) -> float | None:
        return self.target_bytes if self.active_bytes is None else self.active_bytes


@dataclass(frozen=True)
class Used:
    """A setting as sent and as the engine says it used it."""

    name: str
    sent: str
    used: str


@dataclass(frozen=True)
class Devices:
    """States of the device while decoding plainly and while drafting."""

    plain: tuple[DeviceState, ...] = ()
    drafting: tuple[DeviceState, ...] = ()


@dataclass(frozen=True)
class Symptoms:
    """One setting on one workload. Speeds are those of one stream.

    `tokens_per_round` counts the bonus token. Without it seconds are those of one token, a lower bound of a round's.
    """

    setting: Setting
    tokens_per_second: float
    plain_tokens_per_second: float | None = None
    workload: str = ""
    tokens_per_round: float | None = None
    drafted_per_round: float | None = None
    survival: tuple[float, ...] = ()
    """S_1, S_2, ...: chance that the first, the first two, ... drafted tokens are accepted."""
    parts: Parts = Parts()
    passes: tuple[Pass, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    experts: Experts | None = None
    hardware: Hardware = Hardware()
    devices: Devices = Devices()
    used: tuple[Used, ...] = ()
    warm_tokens_per_second: float | None = None
    """Of the same setting once warmed up, where `tokens_per_second` was taken cold."""
    baseline_measured: bool = True
    """The plain speed was measured, in the same session."""
    log_sd: float = PUBLISHED_LOG_SD
    """Noise of speed over plain speed (log)."""
    provenance: str = "measured"
    notes: tuple[str, ...] = field(default=())

    @property
    def draft_tokens(self) -> int:
        return self.setting.draft_tokens

    @property
    def drafted(self) -> float:
        """Tokens drafted a round: as counted, else as asked for."""
        return float(self.draft_tokens) if self.drafted_per_round is None else self.drafted_per_round

    @property
    def first_accepted(self) -> float | None:
        """S_1: as measured, else the constant chance that gives these tokens a round."""
        if self.survival:
            return self.survival[0]
        if self.tokens_per_round is None or not 1 <= self.tokens_per_round <= self.draft_tokens + 1:
            return None
        return alpha_from_tokens(self.tokens_per_round, self.draft_tokens)

    def others(self, changed: str) -> tuple[Neighbour, ...]:
        """Neighbours that differ in this field."""
        return tuple(one for one in self.neighbours if one.changed == changed)

    def differing(self) -> tuple[Used, ...]:
        """Settings that the engine used otherwise than they were sent."""
        return tuple(one for one in self.used if not same_value(one.sent, one.used))


DRAFT_NAMES = {"model": "model", "mtp": "head", "eagle": "head", "dflash": "head"}
"""What a drafter is called where a report does not name it."""


def reported(
    plain: float | None,
    speed: float,
    *,
    draft_tokens: int,
    accepted_share: float | None = None,
    drafter: str = "model",
    target: str = "target",
    draft: str = "",
    p_min: float = 0.0,
    context: int = 0,
    streams: int = 1,
    **more: object,
) -> Symptoms:
    """Symptoms from a report's two speeds in tokens/s. `accepted_share` is accepted / drafted of full drafts; `more` are
    fields of Symptoms. Raises ValueError for a share outside [0, 1]."""
    setting = Setting(
        target=target,
        target_quant="",
        drafter=drafter,
        draft=draft or DRAFT_NAMES.get(drafter, ""),
        draft_tokens=draft_tokens,
        p_min=p_min,
        context=context,
        streams=streams,
    )
    found = Symptoms(setting=setting, tokens_per_second=speed, plain_tokens_per_second=plain)
    if accepted_share is not None:
        found = replace(found, tokens_per_round=tokens_from_acceptance_rate(accepted_share, draft_tokens))
    return replace(found, **more)

"""Parity: does speculation leave the output alone, and were the settings used that were sent?

Four looks at the same arms: greedy replies against plain decoding (equivalence.py), the law of sampled ones
(sampled_law.py), settings as sent beside settings as used (sampling_parity.py), and what a mismatch costs (mismatch.py).
"""

from collections.abc import Iterable, Sequence

from ..engines.base import Engine, Unsupported
from ..finding import ERROR, NOTE, WARNING, Finding
from ..protocol import OnStep, named
from ..records import EngineInfo, Key, Prompt, Record, Sampling, Setting
from ..workloads import PromptText
from .equivalence import FAULT, ROUNDING, WHY, Equivalence, PlainReplies, equivalence, plain_replies
from .mismatch import MismatchCost, mismatch_cost
from .sampled_law import DIFFERS, SampledLaw, sampled_law
from .sampling_parity import SettingParity, sampling_parity


class Parity(Record, kw_only=True):
    """What was compared on one engine, and what was found."""

    kind: str = "specgauge-parity"
    schema_version: int = 1
    created: str = ""
    tool_version: str = ""
    key: Key
    engine: EngineInfo
    sampling: Sampling
    prompts: tuple[Prompt, ...]
    settings: tuple[SettingParity, ...]
    """Sent and used, arm by arm; plain decoding of each target first."""
    equivalence: tuple[Equivalence, ...] = ()
    laws: tuple[SampledLaw, ...] = ()
    mismatches: tuple[MismatchCost, ...] = ()
    findings: tuple[Finding, ...] = ()
    unsupported: tuple[str, ...] = ()
    """What could not be compared, each with its reason."""


def parity(
    engine: Engine,
    settings: Sequence[Setting],
    prompts: Sequence[PromptText],
    sampling: Sampling,
    *,
    draws: int = 0,
    unequal: Sampling | None = None,
    seeds: int = 3,
    created: str = "",
    tool_version: str = "",
    on_step: OnStep = lambda done, total: None,
) -> Parity:
    """Compare each of `settings`, which draft, with plain decoding of its target.

    `draws` sampled replies of each arm to each prompt tell its law (0: not asked for; temperature 0 has none). With
    `unequal` the cost of sampling that way instead of `sampling` is measured too. Raises EngineFailed.
    """
    arms = [setting for setting in settings if setting.drafter != "none"]
    done = _Done(engine, prompts, sampling)
    for index, setting in enumerate(arms):
        done.compare(setting)
        if draws and sampling.temperature > 0:
            done.laws.append(sampled_law(engine, setting, prompts, sampling, draws))
        if unequal is not None:
            done.mismatches.append(mismatch_cost(engine, setting, prompts, sampling, unequal, seeds))
        on_step(index + 1, len(arms))
    return Parity(
        created=created,
        tool_version=tool_version,
        key=engine.key(),
        engine=engine.describe(),
        sampling=sampling,
        prompts=tuple(prompt.prompt for prompt in prompts),
        settings=tuple(done.parities),
        equivalence=tuple(done.equivalences),
        laws=tuple(done.laws),
        mismatches=tuple(done.mismatches),
        findings=tuple(find(done.parities, done.equivalences, done.laws, done.mismatches)),
        unsupported=tuple(done.unsupported),
    )


class _Done:
    """What has been compared so far; plain replies are made once for each target."""

    def __init__(self, engine: Engine, prompts: Sequence[PromptText], sampling: Sampling):
        self._engine, self._prompts, self._sampling = engine, prompts, sampling
        self._plain: dict[tuple[str, str, str], PlainReplies] = {}
        self.parities: list[SettingParity] = []
        self.equivalences: list[Equivalence] = []
        self.laws: list[SampledLaw] = []
        self.mismatches: list[MismatchCost] = []
        self.unsupported: list[str] = []

    def compare(self, setting: Setting) -> None:
        """Greedy replies, and the settings that a short reply as asked for really used."""
        try:
            plain = self._plain_of(setting)
            self._read_back(setting)
            self.equivalences.append(equivalence(self._engine, setting, plain, self._prompts, self._sampling))
        except Unsupported as reason:
            self.unsupported.append(f"{named(setting)}: {reason}")

    def _plain_of(self, setting: Setting) -> PlainReplies:
        target = setting.target, setting.kv_type_k, setting.kv_type_v
        if target not in self._plain:
            self._plain[target] = plain_replies(self._engine, setting, self._prompts, self._sampling)
            self._read_back(self._plain[target].setting)
        return self._plain[target]

    def _read_back(self, setting: Setting) -> None:
        self._engine.reply(setting, self._prompts[0], self._sampling, new_tokens=1)
        self.parities.append(sampling_parity(setting, self._sampling, self._engine.effective(setting)))


def find(
    parities: Iterable[SettingParity],
    equivalences: Iterable[Equivalence],
    laws: Iterable[SampledLaw],
    mismatches: Iterable[MismatchCost],
) -> Iterable[Finding]:
    """Findings, faults of the output first."""
    equivalences = list(equivalences)
    yield from (_fault(one) for one in equivalences if one.verdict == FAULT)
    yield from (_other_law(law) for law in laws if law.verdict == DIFFERS)
    yield from (_unlike_sent(one) for one in parities if one.differing)
    yield from (_by_chance(one) for one in equivalences if one.drafts_by_chance)
    yield from (_restless(one) for one in equivalences[:1] if one.repeated < len(one.pairs))
    yield from (_costly(one) for one in mismatches if one.tokens_per_round_ratio is not None)
    yield from (_rounded(one) for one in equivalences if one.verdict == ROUNDING)


def _fault(one: Equivalence) -> Finding:
    return Finding(
        id="output-differs",
        severity=ERROR,
        evidence=f"{named(one.setting)}: {one.identical} of {len(one.pairs)} greedy replies are those of plain decoding; "
        f"{one.reason}",
        remedy="this is no rounding: do not use this drafter on this build; report it with these positions and gaps",
    )


def _other_law(law: SampledLaw) -> Finding:
    told = [p for p in (law.p_value, law.exact_p_value) if p is not None]
    return Finding(
        id="sampled-law-differs",
        severity=ERROR,
        evidence=f"{named(law.setting)}: {law.reason} (p {min(told):.2g} over {law.compared} tokens)",
        remedy="sampled text is not the target's own: use another draft sampling mode or build, and report it",
    )


def _unlike_sent(one: SettingParity) -> Finding:
    words = ", ".join(f"{field.name} {field.used} where {field.sent} was sent" for field in one.differing)
    return Finding(
        id="setting-not-as-sent",
        severity=ERROR,
        evidence=f"{named(one.setting)}: the engine used {words}",
        remedy="look for a flag, an environment variable or a wrapper that sets it; measure again once both agree",
    )


def _by_chance(one: Equivalence) -> Finding:
    return Finding(
        id="draft-right-by-chance",
        severity=WARNING,
        evidence=f"{named(one.setting)}: {one.open_accepted} tokens accepted in {one.open_rounds} rounds, where always "
        f"proposing the commonest token would get {one.commonest_share * one.open_rounds:.0f}; the output "
        f"{'is not' if one.verdict == FAULT else 'is'} the target's own",
        remedy="the draft speaks another vocabulary or is broken: compare the tokenizers (specgauge check), try the draft alone",
    )


def _restless(one: Equivalence) -> Finding:
    return Finding(
        id="plain-not-repeatable",
        severity=WARNING,
        evidence=f"plain decoding of {one.setting.target} gave {one.repeated} of {len(one.pairs)} greedy replies again when "
        "asked twice",
        remedy="other requests on the server, or kernels that add in varying order: run alone before comparing outputs",
    )


def _costly(one: MismatchCost) -> Finding:
    ratio = one.tokens_per_round_ratio
    assert ratio is not None
    bounds = "one prompt: no interval" if ratio.low is None else f"{ratio.low:.2f} to {ratio.high:.2f}"
    sure = ratio.high is not None and ratio.high < 1
    return Finding(
        id="mismatch-cost",
        severity=WARNING if sure else NOTE,
        evidence=f"{named(one.setting)}, {', '.join(one.differs)}: {one.equal_acceptance:.0%} -> {one.unequal_acceptance:.0%} "
        f"accepted, {one.equal_tokens_per_round:.2f} -> {one.unequal_tokens_per_round:.2f} tokens a round, "
        f"{ratio.value:.2f} times as many ({bounds})",
        remedy="profile with the sampling that is served" if sure else "",
    )


def _rounded(one: Equivalence) -> Finding:
    return Finding(
        id="output-rounds",
        severity=NOTE,
        evidence=f"{named(one.setting)}: {one.identical} of {len(one.pairs)} greedy replies are identical; {one.reason}. {WHY}",
    )

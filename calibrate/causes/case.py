"""A case: symptoms as seconds of a round by account, and what mending one thing would give.

    speed = tokens of a round / seconds of a round
    a cause costs: seconds now - tokens now / speed with it mended

A cause that takes time is mended by its seconds; one that takes tokens by the seconds that its tokens would have been worth.
So both are milliseconds of a round and can be ranked together. They are taken one at a time and do not add up across
accounts; within an account what is special comes first and what is general keeps the rest, so that no second counts twice.
"""

from dataclasses import dataclass, replace
from functools import cached_property

from ...model.reported import tokens_from_alpha
from ..records import Cause
from ..symptoms import Neighbour, Pass, Symptoms

MATERIAL = 0.05
"""A cause that takes less of a round than this is not named: the same run taken minutes later differs by 2 % as a rule and by
up to 14 % (calibrate/priors.py), and two published speeds by 1 % each."""
GOOD_ALPHA = 0.8
"""Chance that a drafted token of a fitting pair is accepted. First tokens of the public ladders in tests/data: 0.79, 0.88,
0.88, 0.88 and 0.89 by Qwen3.5 to 3.8's own heads; 0.8 is what Google states for Gemma 4's (mlxcel#737)."""
MOST_OF_A_ROUND = 0.99
HEADS = ("mtp", "eagle", "dflash")
"""Drafters inside the target's server, which cannot be clocked apart: what they cost is within verification."""
LEAST_SEVERAL = 2.0
"""Noise (log sd) that a difference must exceed to be one."""


@dataclass(frozen=True)
class Case:
    """Symptoms by account. `relieved_seconds` of the round are explained already, by faults that come before the rest."""

    symptoms: Symptoms
    relieved_seconds: float = 0.0

    # the round

    @property
    def per(self) -> str:
        return "token" if self.symptoms.tokens_per_round is None else "round"

    @property
    def tokens(self) -> float:
        """Tokens of a round; 1 where they are not known, the least that a round can emit."""
        return self.symptoms.tokens_per_round or 1.0

    @property
    def speed(self) -> float:
        return self.symptoms.tokens_per_second

    @property
    def seconds(self) -> float:
        """Of a round as it is."""
        return self.tokens / self.speed

    @property
    def left(self) -> float:
        """Seconds of the round that no fault explains so far."""
        return max(self.seconds - self.relieved_seconds, (1 - MOST_OF_A_ROUND) * self.seconds)

    @property
    def plain(self) -> float | None:
        """Seconds of a plain step."""
        told = self.symptoms.plain_tokens_per_second
        return 1 / told if told else None

    @property
    def speed_up(self) -> float | None:
        return None if self.plain is None else self.speed * self.plain

    @property
    def margin(self) -> float:
        """Share by which two speeds must differ to be told apart."""
        return LEAST_SEVERAL * self.symptoms.log_sd

    @property
    def loses(self) -> bool:
        return self.speed_up is not None and self.speed_up < 1 - self.margin

    @property
    def width(self) -> int:
        """Tokens of a verification pass, of all streams together."""
        return (self.symptoms.draft_tokens + 1) * self.symptoms.setting.streams

    @property
    def good_tokens(self) -> float:
        """Tokens a round of a fitting pair at this length."""
        return tokens_from_alpha(GOOD_ALPHA, max(self.symptoms.draft_tokens, 1))

    def material(self, seconds: float) -> bool:
        """Whether so many seconds of a round are worth a name, and more than its noise."""
        return seconds >= max(MATERIAL, self.symptoms.log_sd) * self.seconds

    # its accounts

    @cached_property
    def draft(self) -> float:
        """Seconds of the draft: its steps and its own pass over the verified tokens; what its bytes ask for at least where no
        step was timed; 0 for n-grams, and for heads, whose part lies in the rest."""
        step = self.symptoms.parts.draft_step_seconds
        if step is None:
            step = (self.bytes_step or 0.0) if self.symptoms.setting.drafter == "model" else 0.0
        passes = self.symptoms.parts.draft_passes
        steps = step * (self.symptoms.drafted if passes is None else passes)
        return min(steps + self.symptoms.parts.draft_batch_seconds, self._beyond_plain - self.rollback)

    @property
    def draft_is_timed(self) -> bool:
        return self.symptoms.parts.draft_step_seconds is not None

    @property
    def bytes_step(self) -> float | None:
        """Seconds that a draft's bytes take at the rate at which plain decoding reads."""
        rate, size = self.reached, self.symptoms.hardware.draft_bytes
        return None if rate is None or size is None else size / rate

    @property
    def reached(self) -> float | None:
        """Bytes per second that plain decoding reads."""
        size = self.symptoms.hardware.step_bytes
        return None if size is None or self.plain is None else size / self.plain

    @property
    def rollback(self) -> float:
        return min(self.symptoms.parts.rollback_seconds, self._beyond_plain)

    @property
    def _beyond_plain(self) -> float:
        """Seconds of the round beside one plain step and what is explained already."""
        return max(self.left - (self.plain or 0.0), 0.0)

    @property
    def _rest(self) -> float:
        """Of these, what neither the draft nor the rollback takes: verification beyond a plain step, and overhead."""
        return max(self._beyond_plain - self.draft - self.rollback, 0.0)

    @cached_property
    def growth(self) -> float:
        """Seconds of verification beyond a plain step: timed, else the part of the rest that grows with the draft length."""
        timed = self.verification
        if timed is not None and self.plain is not None:
            return min(max(timed - self.plain, 0.0), self._rest)
        if self.symptoms.parts.overhead_seconds is not None:
            return max(self._rest - self.symptoms.parts.overhead_seconds, 0.0)
        slope = self.measured_slope
        if slope is None:
            return self._rest
        return min(max(slope - self._draft_step, 0.0) * self.symptoms.draft_tokens, self._rest)

    @property
    def overhead(self) -> float:
        """Seconds that no pass explains."""
        told = self.symptoms.parts.overhead_seconds
        known = self.verification is not None or self.measured_slope is not None
        if told is not None:
            return min(told, max(self._rest - self.growth, 0.0))
        return max(self._rest - self.growth, 0.0) if known else 0.0

    @property
    def _draft_step(self) -> float:
        return self.draft / self.symptoms.drafted if self.symptoms.drafted else 0.0

    @property
    def verification(self) -> float | None:
        """Seconds of the verification pass, timed."""
        if self.symptoms.parts.verification_seconds is not None:
            return self.symptoms.parts.verification_seconds
        return next((p.seconds for p in self.symptoms.passes if p.width == self.width and p.width > 1), None)

    @property
    def slope(self) -> float | None:
        """Plain steps that verification grows by for each drafted token."""
        return None if not self.plain else self.growth / max(self.symptoms.drafted, 1.0) / self.plain

    @cached_property
    def measured_slope(self) -> float | None:
        """Seconds of a round for each further drafted token: from the shortest length measured to this one, or from this
        one, if it is the shortest, to the next. None without rounds at another length."""
        here = self.symptoms.draft_tokens
        others = [one for one in self.lengths if one.width != here]
        own = next((one for one in self.lengths if one.width == here), None)
        if own is None or not others:
            return None
        other = others[0]
        return max((own.seconds - other.seconds) / (own.width - other.width), 0.0)

    @cached_property
    def lengths(self) -> tuple[Pass, ...]:
        """Rounds measured at several draft lengths, this one with them: widths are draft lengths here."""
        found = {
            int(n.value): n.round_seconds
            for n in self.symptoms.others("draft_tokens")
            if n.measured and n.round_seconds
        }
        if self.per == "round":
            found[self.symptoms.draft_tokens] = self.left
        return tuple(Pass(length, seconds) for length, seconds in sorted(found.items()) if length > 0)

    # what could be instead

    def relieved(self, seconds: float) -> "Case":
        """The same with more of the round explained."""
        return replace(self, relieved_seconds=min(self.relieved_seconds + seconds, self.seconds))

    def best_neighbour(self, changed: str = "draft_tokens") -> Neighbour | None:
        """The fastest run that differs in `changed`."""
        return max(self.symptoms.others(changed), key=lambda one: one.tokens_per_second, default=None)

    def shorter(self) -> Neighbour | None:
        """The fastest shorter draft that is known."""
        shorter = [n for n in self.symptoms.others("draft_tokens") if 0 < int(n.value) < self.symptoms.draft_tokens]
        return max(shorter, key=lambda one: one.tokens_per_second, default=None)

    def better_setting(self) -> str:
        """The fastest draft length that is known here, or no speculation, in words with its speed."""
        options = {
            f"{n.value} draft token{'' if n.value == 1 else 's'}": n for n in self.symptoms.others("draft_tokens")
        }
        speeds = {name: one.tokens_per_second for name, one in options.items() if one.value != 0}
        if self.plain:
            speeds["no speculation"] = 1 / self.plain
        name = max(speeds, key=lambda key: speeds[key], default="")
        return f"{name} ({speeds[name]:.1f} tokens/s)" if name and speeds[name] > self.speed * (1 + self.margin) else ""

    # what a cause is made of

    def takes(self, id: str, account: str, seconds: float, **words: str) -> Cause:
        """A cause that takes time: the round without these seconds (figures that contradict each other may say more than
        the round has)."""
        seconds = min(seconds, MOST_OF_A_ROUND * self.seconds)
        mended = self.tokens / (self.seconds - seconds)
        return self._cause(id, account, seconds, mended, words)

    def costs(self, id: str, account: str, speed: float, **words: str) -> Cause:
        """A cause that costs speed in another way (tokens, a better setting): mended it is `speed` tokens/s."""
        return self._cause(id, account, self.seconds - self.tokens / speed, speed, words)

    def with_setting(self, id: str, account: str, seconds: float, speed: float, **words: str) -> Cause:
        """A cause that takes time, for which another setting is known: its seconds, and that setting's speed."""
        return self._cause(id, account, seconds, speed, words)

    def unmeasured(self, id: str, account: str, **words: str) -> Cause:
        """A cause that shows, with nothing to tell what it costs."""
        return self._cause(id, account, None, None, words)

    def _cause(self, id: str, account: str, seconds: float | None, speed: float | None, words: dict[str, str]) -> Cause:
        return Cause(
            id=id,
            account=account,
            seconds_per_round=seconds,
            tokens_per_second=speed,
            gives_back_tokens_per_second=None if speed is None else speed - self.speed,
            derived=words["derived"],
            evidence=words["evidence"],
            change=words["change"],
            provenance=_weaker(self.symptoms.provenance, words.get("provenance", "measured")),
        )


def _weaker(*provenances: str) -> str:
    """The one that is known least: measured, calibrated (derived from what was), prior (something is assumed)."""
    return max(provenances, key=("measured", "calibrated", "prior").index)


def ms(seconds: float) -> str:
    """Milliseconds for a sentence."""
    value = 1e3 * seconds
    return f"{value:.0f} ms" if abs(value) >= 100 else f"{value:.1f} ms"


def plural(number: float, noun: str) -> str:
    """2 draft tokens, 1 draft token."""
    return f"{number:g} {noun}{'' if number == 1 else 's'}"

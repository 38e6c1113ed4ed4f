"""The protocol that every engine speaks, and the ways in which it can fail.

One method measures one thing once; repeating, warming up, interleaving and drift are the business of `protocol.py`.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ..errors import WorkFailed
from ..records import EngineInfo, Key, MatchTrace, PromptRun, RoundSample, Sampling, Setting, StepSample, Trace
from ..workloads import PromptText


class Unsupported(Exception):
    """The engine cannot do what was asked; the message is the reason. Never an error of the user's."""


class EngineFailed(WorkFailed):
    """The engine refused, crashed or stopped answering; one line: what, the cause from its log, where the log is."""


class Likely(NamedTuple):
    """A token that may come next, and the natural logarithm of its probability."""

    token: int
    log_probability: float


@dataclass(frozen=True)
class ReplyTokens:
    """A reply as token ids; `likely` for each of them: the likeliest tokens of its place, best first.

    A place is empty where the engine does not tell (llama-server: all but the first token of a speculative reply).
    """

    tokens: tuple[int, ...]
    likely: tuple[tuple[Likely, ...], ...] = ()
    drafted: int = 0
    accepted: int = 0


class Engine(Protocol):
    """An inference engine that can be measured. Seconds are wall clock; counts come from the engine's own counters."""

    def describe(self) -> EngineInfo:
        """Identity and capabilities, as probed."""
        ...

    def key(self) -> Key:
        """What numbers of this engine are valid for."""
        ...

    def warm_up(self, setting: Setting, forced_rates: tuple[float, ...] | None = None) -> None:
        """Have `setting` running and warm: ten short requests after each start; nothing if it already is."""
        ...

    def reset(self, setting: Setting) -> None:
        """Forget what replies taught a drafter of `setting` (tables, caches), so that a repeat is not a replay."""
        ...

    def prompt_tokens(self, setting: Setting, prompts: Sequence[PromptText]) -> Generator[int, None, None]:
        """Tokens of each prompt as the target of `setting` reads it, its chat template put on where the prompt is messages.

        Nothing stays loaded behind the last one. Raises Unsupported at a prompt that the template refuses.
        """
        ...

    def effective(self, setting: Setting) -> dict[str, str]:
        """The settings that the engine says it uses, in its own names."""
        ...

    def run(self, setting: Setting, prompt: PromptText, sampling: Sampling) -> PromptRun:
        """One reply end to end, its prompt not cached. Raises EngineFailed."""
        ...

    def reply(
        self,
        setting: Setting,
        prompt: PromptText,
        sampling: Sampling,
        *,
        after: Sequence[int] = (),
        new_tokens: int | None = None,
        likely: int = 0,
        sampled: bool = False,
        cached: bool = False,
    ) -> ReplyTokens:
        """The tokens of one reply, for their content: nothing is timed. Raises Unsupported where none are returned.

        `after`: tokens of the reply that stand already, read together with the prompt. `new_tokens`: those of the prompt
        where None. `likely`: how many of the likeliest tokens to tell at each place, by the model's own probabilities or,
        if `sampled`, by those that the sampler draws from. `cached`: what was read for the last reply may be reused.
        Settings that the engine used differently from what was sent are in effective(), and raise nothing.
        """
        ...

    def step_time(self, model: str, role: str, kind: str, width: int, context: int, streams: int = 1) -> StepSample:
        """One pass of `model` (a ModelFile label) over `width` tokens behind `context` cached ones.

        kind "decode": several successive generated tokens, each an entry of `seconds`. kind "batch": one entry.
        kind "verify": several passes with an output row for each of the `width` tokens.
        Raises Unsupported where the engine did not do exactly that pass (it re-processed the prompt, say).
        """
        ...

    def round_time(
        self, setting: Setting, forced_rates: tuple[float, ...] | None, context: int, rounds: int
    ) -> RoundSample:
        """About `rounds` rounds of `setting` from `context` cached tokens on, at forced or real acceptance."""
        ...

    def rounds(self, setting: Setting, prompts: Sequence[PromptText], sampling: Sampling) -> Trace:
        """Real rounds of `setting` over `prompts`."""
        ...

    def match_trace(self, setting: Setting, prompt: PromptText, sampling: Sampling) -> MatchTrace:
        """Where the drafter of `setting` agrees with the target along its own reply. Raises Unsupported."""
        ...

    def close(self) -> None:
        """End every process that this engine started."""
        ...

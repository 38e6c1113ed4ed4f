"""Do the user's prompts fit into the context that is reserved for them? Asked before anything is measured."""

from collections.abc import Iterator, Sequence
from contextlib import closing

from ..engines.base import Engine, Unsupported
from ..errors import InputError
from ..records import Candidate, Profile
from ..workloads import PromptText

GRAIN = 256


def check_lengths(engine: Engine, profile: Profile, prompts: Sequence[PromptText]) -> None:
    """Count every own prompt's tokens with every tokenizer. Raises InputError, with the line, for one that has no room for
    its reply and the longest draft behind it, or that the model's chat template refuses."""
    own = [prompt for prompt in prompts if prompt.line]
    for candidate in _tokenizers(profile) if own else ():
        longest = max(max(one.draft_tokens, default=0) for one in profile.candidates)
        with closing(engine.prompt_tokens(candidate.setting(0), own)) as counts:
            for prompt in own:
                _check(counts, candidate, prompt, longest)


def _tokenizers(profile: Profile) -> Iterator[Candidate]:
    """A candidate of each model that reads prompts in a way of its own; quantizations of one model read alike."""
    seen, models = set(), {model.label: model for model in profile.models}
    for candidate in profile.candidates:
        model = models[candidate.target]
        reads = (model.tokenizer_sha256, model.architecture, model.name)
        if reads not in seen:
            seen.add(reads)
            yield candidate


def _check(counts: Iterator[int], candidate: Candidate, prompt: PromptText, longest: int) -> None:
    try:
        tokens = next(counts)
    except Unsupported as error:
        raise InputError(f"--prompts, line {prompt.line}: {error}") from None
    wanted = tokens + prompt.prompt.new_tokens + longest + 1
    if wanted > candidate.context:
        raise InputError(
            f"--prompts, line {prompt.line}: {tokens:,} tokens, with {prompt.prompt.new_tokens:,} to generate and the draft "
            f"more than the {candidate.context:,} of context; give --context {-(-wanted // GRAIN) * GRAIN} or shorten it"
        )

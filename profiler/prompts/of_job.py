"""The prompts of a job: the user's own in place of those that specgauge brings, and their texts found again later."""

from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec.structs import replace

from ..errors import InputError
from ..records import Profile
from ..workloads import PromptText
from .sample import USUAL_COUNT, OwnPrompts, found_again, own_prompts

if TYPE_CHECKING:
    from pathlib import Path

    from ..job import Job, Options

LOGGING_FLAGS = (
    *("-v", "--verbose", "--log-verbose", "-lv", "--verbosity", "--log-verbosity", "--log-prompts-dir"),
    *("-lcd", "--lookup-cache-dynamic"),
)
"""Of llama-server: with them it writes prompts, or what was made of them, into a file."""
HERE = ("localhost", "127.0.0.1", "::1")


def drawn(options: "Options") -> OwnPrompts | None:
    """The prompts that `options` ask for; None for those that specgauge brings. Raises InputError."""
    if options.own.file is None:
        if options.own.count or options.own.store:
            raise InputError("--prompt-count and --store-prompts are of your own prompts: give --prompts FILE")
        return None
    loud = next((flag for flag in options.flags if flag.split("=", 1)[0] in LOGGING_FLAGS), "")
    if loud:
        raise InputError(f"{loud} has llama-server write prompts into a file; leave it out, or --prompts")
    check_stays_here(options.server_url)
    return own_prompts(options.own.file, options.own.count or USUAL_COUNT, options.seed)


def check_stays_here(url: str | None) -> None:
    """Own prompts are sent to no other machine. Raises InputError for a server that is not on this one."""
    try:
        host = urlsplit(url or "//localhost").hostname
    except ValueError:
        return  # no URL: refused as one elsewhere
    if host is not None and host not in HERE:
        raise InputError(
            "--server is on another machine, where your own prompts are not sent; start one on this machine"
        )


def with_own_prompts(job: "Job", own: OwnPrompts, *, store: bool = False) -> "Job":
    """The job over the user's own prompts, their texts in the profile only if `store`."""
    blank = replace(
        job.blank,
        prompts=tuple(one.prompt for one in own.prompts),
        workload_shares=own.shares,
        prompt_texts=own.stored() if store else (),
    )
    return type(job)(job.engine, blank, own.prompts, job.warnings)


def with_context(job: "Job", context: int) -> "Job":
    """The job with so many tokens of context reserved for each stream; 0 leaves it as it is."""
    if not context:
        return job
    candidates = tuple(replace(candidate, context=context) for candidate in job.blank.candidates)
    return type(job)(job.engine, replace(job.blank, candidates=candidates), job.prompts, job.warnings)


def texts_of(profile: Profile, file: "Path | None", known: Iterable[PromptText] = ()) -> tuple[PromptText, ...]:
    """The texts of a profile's prompts, by their hash: from `file`, from the profile itself where they were stored, from
    `known` ones or those of the demo. Raises InputError where they are in none of them."""
    if file is not None:
        return found_again(file, profile.prompts)
    texts = {text.text_sha256: (text.text, text.messages) for text in profile.prompt_texts}
    texts |= {one.prompt.text_sha256: (one.text, one.messages) for one in (*known, *_brought())}
    missing = [prompt.id for prompt in profile.prompts if prompt.text_sha256 not in texts]
    if missing and profile.workload_shares:
        raise InputError("the profile's prompts are your own and not stored in it: give their file with --prompts FILE")
    if missing:
        raise InputError(f"the text of prompt {missing[0]} is not one of this specgauge; profile again")
    return tuple(
        PromptText(prompt=prompt, text=texts[prompt.text_sha256][0], messages=texts[prompt.text_sha256][1])
        for prompt in profile.prompts
    )


def _brought() -> tuple[PromptText, ...]:
    from ..demo import prompts

    return prompts()

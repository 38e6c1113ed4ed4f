"""Workloads: fixed lists of prompts, by name, with their text."""

import hashlib

from .records import Prompt, Record


class PromptText(Record, kw_only=True):
    """A prompt with its text (never stored in a profile)."""

    prompt: Prompt
    text: str


def prompt_text(id: str, workload: str, workload_class: str, text: str, new_tokens: int) -> PromptText:
    """A prompt whose record carries only the hash of its text."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    record = Prompt(id=id, workload=workload, workload_class=workload_class, text_sha256=digest, new_tokens=new_tokens)
    return PromptText(prompt=record, text=text)

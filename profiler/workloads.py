"""Workloads: fixed lists of prompts, by name, with their text."""

import hashlib

import msgspec

from .records import Message, Prompt, Record


class PromptText(Record, kw_only=True):
    """A prompt with its text: `text` as it goes to the model, or `messages` that the model's own template makes one of."""

    prompt: Prompt
    text: str = ""
    messages: tuple[Message, ...] = ()
    line: int = 0
    """Where it stands in the user's file, from 1; 0 for the prompts that specgauge brings along."""

    @property
    def words(self) -> str:
        """All of its text without any template."""
        return self.text or "\n".join(message.content for message in self.messages)


def prompt_text(id: str, workload: str, workload_class: str, text: str, new_tokens: int) -> PromptText:
    """A prompt whose record carries only the hash of its text."""
    digest = text_sha256(text)
    record = Prompt(id=id, workload=workload, workload_class=workload_class, text_sha256=digest, new_tokens=new_tokens)
    return PromptText(prompt=record, text=text)


def text_sha256(text: str, messages: tuple[Message, ...] = ()) -> str:
    """sha256 (hex) of a prompt: of its text, or of the JSON of its messages."""
    return hashlib.sha256(msgspec.json.encode(messages) if messages else text.encode()).hexdigest()

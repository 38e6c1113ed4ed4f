"""Names in a shared profile: what stands for a model, a workload, a prompt or a reply, alike wherever it is named."""

import re
from collections import defaultdict
from pathlib import PurePath

from ..records import ModelFile, Profile
from . import words

_CLASS = re.compile(r"For(CausalLM|ConditionalGeneration)$")
_SHA256 = re.compile(r"(partial:)?[0-9a-f]{64}")


class Names:
    """What each name of `profile` is replaced by, and what was left out on the way: distinct values by kind.

    Models are called by family, size and quantization; with `keep_names` by the name of their file.
    """

    def __init__(self, profile: Profile, keep_names: bool, public_prompts: frozenset[str]):
        self.left_out: defaultdict[str, set[str]] = defaultdict(set)
        self.keep_names = keep_names
        self._public = public_prompts
        self._models = {"": ""}
        self._spoken: dict[str, dict[str, str]] = defaultdict(dict)
        for model in profile.models:
            self._models[model.label] = self._distinct(_file_name(model.label) if keep_names else described(model))
        counted: defaultdict[str, int] = defaultdict(int)
        self._prompts: dict[str, str] = {}
        for prompt in profile.prompts:
            workload = self.workload(prompt.workload)
            counted[workload] += 1
            self._prompts[prompt.id] = f"{workload}/{counted[workload]}"
        # The names of candidates are the keys of what was dropped.
        self.candidates = {
            f"{c.target} x {c.draft or c.drafter}": f"{self.model(c.target)} x {self.model(c.draft) or words.one_of(words.DRAFTERS, c.drafter)}"
            for c in profile.candidates
        }

    def note(self, kind: str, value: str) -> None:
        """Remember that `value` was left out."""
        if value:
            self.left_out[kind].add(value)

    def checked(self, kind: str, value: str, kept: str) -> str:
        """`kept`; noted where that is not all of `value`."""
        if kept != value:
            self.note(kind, value)
        return kept

    def model(self, label: str) -> str:
        """A model's label, or an n-gram method, which has a name of its own."""
        if label not in self._models and label in words.NGRAM_METHODS:
            return label
        if label not in self._models:  # of evidence that others reported
            self._models[label] = self._distinct("model")
        return self.checked("names of models", label, self._models[label])

    def workload(self, name: str) -> str:
        """A workload that many have keeps its name."""
        kept = name if name in words.WORKLOADS else self._numbered("workload", name)
        return self.checked("names of workloads", name, kept)

    def prompt(self, id: str) -> str:
        """A prompt by its workload and place."""
        return self._prompts.get(id) or self._numbered("prompt", id)

    def prompt_hash(self, digest: str) -> str:
        """Of a prompt that comes with specgauge; the hash of any other could be guessed from its text."""
        return self.checked("hashes of prompts", digest, digest if digest in self._public else "")

    def reply(self, digest: str) -> str:
        """Equal replies stay equal."""
        return self.checked("hashes of replies", digest, self._numbered("reply", digest))

    def tokenizer(self, digest: str) -> str:
        """Equal tokenizers stay equal."""
        return self.checked("hashes of tokenizers", digest, self._numbered("tokenizer", digest))

    def source(self, name: str) -> str:
        """A file that evidence was imported from."""
        return self.checked("names of files", name, self._numbered("file", name))

    def quant(self, text: str) -> str:
        """A quantization; one of an unknown spelling is numbered."""
        return self.checked("quantizations of unknown names", text, words.quant(text) or self._numbered("quant", text))

    def weights(self, model: ModelFile) -> str:
        """What tells a file of weights from others: its hash, which names it to whoever has it, only with `keep_names`."""
        kept = model.sha256 if self.keep_names and _SHA256.fullmatch(model.sha256) else self.model(model.label)
        return self.checked("hashes of weights", model.sha256, kept)

    def path(self, path: str) -> str:
        """The name of a file without its folder, with `keep_names`."""
        return self.checked("paths", path, _file_name(path) if self.keep_names else "")

    def _numbered(self, kind: str, value: str) -> str:
        known = self._spoken[kind]
        return known.setdefault(value, f"{kind}-{len(known) + 1}") if value else ""

    def _distinct(self, name: str) -> str:
        taken = set(self._models.values())
        return next(one for one in _numbers(name) if one not in taken)


def described(model: ModelFile) -> str:
    """A model by what is told of it anyway: "llama-135M-Q4_0"."""
    size = f"{model.parameters / 1e9:.3g}B" if model.parameters >= 1e9 else f"{model.parameters / 1e6:.3g}M"
    parts = (
        _CLASS.sub("", words.architecture(model.architecture)).lower() or "model",
        size if model.parameters > 0 else "",
        words.quant(model.quant),
    )
    return "-".join(part for part in parts if part)


def _numbers(name: str):
    yield name
    yield from (f"{name}-{place}" for place in range(2, 1 << 30))


def _file_name(path: str) -> str:
    return PurePath(path.replace("\\", "/")).name[:200]

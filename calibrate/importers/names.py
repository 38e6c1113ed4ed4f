"""Names as strangers spell them: drafters, files of weights, graphics cards, engines."""

import re
from pathlib import PurePosixPath

KINDS = "none, model, ngram, mtp, eagle, dflash"
PLAIN = {"", "none", "off", "plain", "baseline", "nodraft", "nospec"}
MODELS = {"model", "draft", "draftmodel", "draftsimple", "modeldraft", "simple", "separatedraft"}
LOOKUPS = ("ngram", "promptlookup", "pld")
HEADS = ("mtp", "eagle", "dflash")
FILLING = {"built", "in", "builtin", "native", "own", "draft", "head", "heads", "layer", "module"}
QUANT = r"(?:UD-)?(?:I?Q\d(?:_[A-Z0-9]+)*|TQ\d_\d|BF16|FP?16|F32|FP8|MXFP4(?:_MOE)?|NVFP4|INT[48]|AWQ|GPTQ)"
SIZES = {"small": "S", "medium": "M", "large": "L"}
VENDORS = {"nvidia", "geforce", "amd", "ati", "radeon", "intel", "apple", "r", "tm", "graphics"}
ENGINES = {"llamacpp": "llama.cpp", "llamaserver": "llama.cpp", "vllm": "vLLM", "transformers": "transformers"}


def drafter_kind(text: str) -> str | None:
    """The kind that a foreign spelling means; None where it means none that is known."""
    joined = "".join(_words(text))
    if joined in PLAIN:
        return "none"
    if joined in MODELS:
        return "model"
    if any(name in joined for name in LOOKUPS):
        return "ngram"
    return next((kind for kind in HEADS if kind in joined), None)


def says_only_the_kind(draft: str, kind: str) -> bool:
    """Whether a draft's name is but another spelling of a target's own head ("built-in MTP head", "draft-mtp")."""
    words = {word.rstrip("0123456789") for word in _words(draft)} - {""}
    return kind in HEADS and kind in words and words <= FILLING | {kind}


def weights_name(path: str) -> tuple[str, str]:
    """Model and quantization, as a file of weights or a repository is named; the quantization empty where it is not."""
    stem = PurePosixPath(path.replace("\\", "/")).name
    stem = re.sub(r"-\d{5}-of-\d{5}$", "", stem.removesuffix(".gguf"))
    found = re.fullmatch(rf"(.+?)[-._]({QUANT})", stem, re.IGNORECASE)
    return (found[1], found[2]) if found else (stem, "")


def quant_of_type(model_type: str) -> str:
    """ "qwen2 7B Q4_K - Medium" -> "Q4_K_M"; empty where it names none."""
    found = re.search(rf"\b({QUANT})\b(?: - (\w+))?", model_type)
    if not found:
        return ""
    size = SIZES.get((found[2] or "").lower(), "")
    return f"{found[1]}_{size}" if size else found[1]


def same_gpu(first: str, second: str) -> bool:
    """Whether two names mean one card: makers left out; sizes of memory only where both say one."""
    (ours, our_sizes), (theirs, their_sizes) = _card(first), _card(second)
    return ours == theirs and (our_sizes == their_sizes or not our_sizes or not their_sizes)


def engine_name(text: str) -> str:
    """The usual spelling of an engine; others as they are."""
    return ENGINES.get("".join(_words(text)), text)


def _card(name: str) -> tuple[frozenset[str], frozenset[str]]:
    spaced = re.sub(r"(\d+)\s*(?:GB|GiB|G)\b", r"\1gb", name, flags=re.IGNORECASE)
    words = [word for word in _words(spaced) if word not in VENDORS]
    sizes = frozenset(word for word in words if re.fullmatch(r"\d+gb", word))
    return frozenset(words) - sizes, sizes


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())

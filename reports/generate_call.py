"""The call of transformers' own generate that decodes with a setting: the command of the transformers engine."""

from collections.abc import Sequence

from ..profiler.records import ModelFile, Sampling, Setting


def generate_call(setting: Setting, models: Sequence[ModelFile], sampling: Sampling) -> str:
    """One line of Python for loaded `target` and `draft` models, with every value that the forecast assumed.

    transformers' names: num_assistant_tokens is the draft length, kept as it is by the schedule "constant" and not cut
    short by a confidence threshold of 0; prompt_lookup_num_tokens and max_matching_ngram_size are an n-gram drafter's.
    """
    words = [*_drafter(setting), *_sampling(sampling)]
    loaded = [f"target: {_loaded(models, setting.target)}"]
    if setting.drafter == "model":
        loaded.append(f"draft: {_loaded(models, setting.draft)}")
    return f"target.generate(**inputs, {', '.join(words)})  # {'; '.join(loaded)}"


def _drafter(setting: Setting) -> list[str]:
    if setting.draft_tokens == 0 or setting.drafter == "none":
        return []
    if setting.drafter == "ngram":
        return [
            f"prompt_lookup_num_tokens={setting.draft_tokens}",
            f"max_matching_ngram_size={setting.ngram_size}",
        ]
    return [
        "assistant_model=draft",
        f"num_assistant_tokens={setting.draft_tokens}",
        "num_assistant_tokens_schedule='constant'",
        "assistant_confidence_threshold=0",
    ]


def _sampling(sampling: Sampling) -> list[str]:
    penalty = [] if sampling.repeat_penalty == 1.0 else [f"repetition_penalty={sampling.repeat_penalty:g}"]
    if sampling.temperature == 0:
        return ["do_sample=False", *penalty]
    return [
        "do_sample=True",
        f"temperature={sampling.temperature:g}",
        f"top_k={sampling.top_k}",
        f"top_p={sampling.top_p:g}",
        f"min_p={sampling.min_p:g}",
        *penalty,
    ]


def _loaded(models: Sequence[ModelFile], label: str) -> str:
    model = next((model for model in models if model.label == label), None)
    text = label if model is None else f"{model.path} in {model.quant or 'its own quantization'}"
    return text if text.isprintable() else repr(text)  # a line end would end the comment

"""The call of transformers' own generate that decodes with a setting: the command of the transformers engine."""

from collections.abc import Sequence

from ..profiler.records import ModelFile, Sampling, Setting


def generate_call(setting: Setting, models: Sequence[ModelFile], sampling: Sampling) -> str:
    """One line of Python for loaded `target` and `draft` models, with every value that the forecast assumed.

    transformers reads how long a draft is, whether that length adapts and below which confidence it ends from the draft's
    own generation config alone (AssistedCandidateGenerator); the same words given to `generate` are silently of no effect.
    prompt_lookup_num_tokens and max_matching_ngram_size are an n-gram drafter's, and `generate`'s.
    """
    drafts = setting.drafter == "model" and setting.draft_tokens > 0
    given = ["**inputs", *(["assistant_model=draft"] if drafts else _ngram(setting)), *_sampling(sampling)]
    loaded = [f"target: {_loaded(models, setting.target)}"]
    if drafts:
        loaded.append(f"draft: {_loaded(models, setting.draft)}")
    call = f"target.generate({', '.join(given)})"
    return f"{_draft_config(setting) + '; ' if drafts else ''}{call}  # {'; '.join(loaded)}"


def _draft_config(setting: Setting) -> str:
    """transformers' defaults are 20 tokens and a threshold of 0.4."""
    return (
        f"draft.generation_config.update(num_assistant_tokens={setting.draft_tokens}, "
        f"num_assistant_tokens_schedule='constant', assistant_confidence_threshold={setting.p_min:g})"
    )


def _ngram(setting: Setting) -> list[str]:
    if setting.drafter != "ngram" or setting.draft_tokens == 0:
        return []
    return [f"prompt_lookup_num_tokens={setting.draft_tokens}", f"max_matching_ngram_size={setting.ngram_size}"]


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

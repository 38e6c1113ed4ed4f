"""Small models for the tests of the transformers engine: tables whose laws are known, and tiny random Llamas."""

import copy

import numpy as np
import torch
import transformers


class TableDecoder:
    """Stands in for Decoder: the logits behind a text are a row of a table, chosen by its newest token."""

    def __init__(self, logits: np.ndarray, streams: int, room: int = 32):
        self._logits = torch.tensor(logits, dtype=torch.float32)
        self.streams, self.room, self.device = streams, room, torch.device("cpu")
        self.passes: list[int] = []

    def forward(self, tokens: torch.Tensor, start: torch.Tensor, end: int) -> torch.Tensor:
        self.passes.append(tokens.shape[1])
        return self._logits[tokens]

    def prefill(self, prompts) -> torch.Tensor:
        return self._logits[torch.tensor([[prompt[-1]] for prompt in prompts])]


def tiny_llama(seed: int = 0, vocabulary: int = 24, spread: float = 0.6, **changes) -> transformers.LlamaForCausalLM:
    """Two layers, random weights large enough that its laws are far from flat; fp32."""
    fields = {
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "initializer_range": spread,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": 0,
    }
    torch.manual_seed(seed)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**(fields | changes)))
    return model.float().eval().requires_grad_(False)


def perturbed(model, by: float, seed: int = 1):
    """A copy whose weights are off by a share `by` of their own spread: a draft that mostly agrees."""
    generator = torch.Generator().manual_seed(seed)
    other = copy.deepcopy(model).requires_grad_(False)
    for parameter in other.parameters():
        if parameter.ndim > 1:
            parameter += by * parameter.std() * torch.randn(parameter.shape, generator=generator)
    return other

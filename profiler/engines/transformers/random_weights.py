"""Random weights: the shapes of a config.json with values drawn on the device, for times of a model that is not here.

Times do not depend on values, acceptance does: it has to come from elsewhere.
"""

from typing import Any

import torch
from torch import nn

from .skeleton import skeleton

WEIGHT_SD = 0.02
"""Standard deviation: transformers' own initializer_range of most models, at which no sum overflows."""


class RandomTensors:
    """Tensors by their names, each drawn when it is asked for: norms 1, biases 0, the rest normal. None: no such tensor.

    `copied`: a matrix as large as an earlier one may be its copy, in memory of its own: times are the same, and 27B values
    need not be drawn and rounded one by one.
    """

    copied = True

    def __init__(self, config: Any, device: str, seed: int):
        parameters = skeleton(config, torch.bfloat16).named_parameters(remove_duplicate=False)
        self._shapes = {name: (parameter.shape, parameter.dtype) for name, parameter in parameters}
        self._generator = torch.Generator(device).manual_seed(seed)
        self._device = device

    def __call__(self, name: str) -> torch.Tensor | None:
        if name not in self._shapes:
            return None
        shape, dtype = self._shapes[name]
        made = torch.empty(shape, dtype=dtype, device=self._device)
        if name.endswith("bias"):
            return nn.init.zeros_(made)
        return nn.init.ones_(made) if len(shape) < 2 else made.normal_(0, WEIGHT_SD, generator=self._generator)

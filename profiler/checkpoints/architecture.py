"""What a config.json describes, and the Shape that follows from it alone, without any weights."""

from dataclasses import fields

from ...model.shape import Shape, Tensors, Weights
from ..errors import InputError
from .config import Config
from .decoder import Architecture, Decoder, UnknownArchitecture, unread
from .families import FAMILIES, GENERIC, NOT_PLAIN
from .gemma4 import GEMMA4, Gemma4


def shape_of(config: Config, bytes_per_parameter: float) -> Shape:
    """The Shape of a model of known architecture whose weights take `bytes_per_parameter`, all roles alike.

    Raises InputError where the architecture is not known or the config is damaged.
    """
    try:
        described = architecture_of(config)
    except UnknownArchitecture as unknown:
        raise InputError(f"{config.path}: {unknown}; give a model that specgauge knows") from None
    if not described.known:
        raise InputError(f"{config.path}: {unread(config)}; give a model that specgauge knows")
    sized = {
        role.name: Tensors(
            count := getattr(described.weights, role.name).parameters, round(count * bytes_per_parameter)
        )
        for role in fields(Weights)
    }
    try:
        return described.shape(Weights(**sized))
    except ValueError as error:
        raise InputError(f"{config.path} contradicts itself: {error}; download it again") from None


def architecture_of(config: Config) -> Architecture:
    """What `config` describes. Raises UnknownArchitecture, and InputError where a number is damaged or missing."""
    family = FAMILIES.get(config.model_type)
    if family is None:
        strange = next((key for key in NOT_PLAIN if config.has(key)), None)
        if strange is not None:
            raise UnknownArchitecture(f"{unread(config)}, and {strange} says that it is no plain decoder")
    decoder = Gemma4 if family is GEMMA4 else Decoder
    try:
        return decoder(config, family or GENERIC).describe(known=family is not None)
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        raise InputError(f"{config.path} contradicts itself: {error}; download it again") from None

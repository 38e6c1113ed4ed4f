"""What memory bandwidth allows: a pass reads its model's weights once, and no pass is faster than that."""

from collections.abc import Sequence

from ..calibrate.records import Calibration
from ..profiler.records import ModelFile


def reading_seconds(calibration: Calibration, models: Sequence[ModelFile], label: str) -> float | None:
    """The roofline's floor of a pass: seconds to read the weights of `label` once at the measured bandwidth, without what no
    pass reads whole; None where bandwidth or size is not known."""
    model = next((model for model in models if model.label == label), None)
    if calibration.bandwidth_bytes_per_second is None or model is None or model.size_bytes <= model.unread_bytes:
        return None
    return (model.size_bytes - model.unread_bytes) / calibration.bandwidth_bytes_per_second.value


def plain_ceilings(calibration: Calibration, models: Sequence[ModelFile]) -> dict[str, float]:
    """Tokens/s that bandwidth allows plain decoding of each model, by label; without those that are not known."""
    floors = ((model.label, reading_seconds(calibration, models, model.label)) for model in models)
    return {label: 1 / seconds for label, seconds in floors if seconds}

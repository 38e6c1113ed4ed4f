"""Every figure of the report, in order. Nothing is fitted here; the figures show records."""

from ...calibrate.records import Calibration, Recommendation, Validation
from ...profiler.records import Profile
from ..panels import Section
from .acceptance import acceptance_by_position
from .checked import forecast_against_measured
from .lengths import speed_over_length
from .passes import verification_cost
from .quantization import quantization
from .rounds import round_breakdown
from .spread import reply_spread


def all_sections(
    calibration: Calibration,
    recommendation: Recommendation,
    validation: Validation | None,
    all_rows: bool = False,
    profile: Profile | None = None,
) -> tuple[Section, ...]:
    """Every figure of the report, in order. `all_rows`: of this engine any pass has a row of output for each token.

    A figure without evidence becomes one line that says what to run."""
    rows = validation.rows if validation else ()
    checks = validation.rounds if validation else ()
    settings = [forecast.setting for forecast in recommendation.candidates]
    return (
        forecast_against_measured(validation, settings),
        speed_over_length(recommendation, rows),
        verification_cost(calibration, all_rows),
        round_breakdown(calibration.rounds, checks),
        acceptance_by_position(calibration, settings, profile.prompts if profile else ()),
        quantization(recommendation, calibration, profile, rows),
        reply_spread(validation, settings),
    )

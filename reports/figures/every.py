"""Every figure of the report, in order. Nothing is fitted here; the figures show records."""

from ...calibrate.records import Calibration, Recommendation, Validation
from ...profiler.records import Profile
from ..bounds import plain_ceilings
from ..panels import Section
from .acceptance import acceptance_by_position
from .checked import forecast_against_measured
from .lengths import speed_over_length
from .maps import maps
from .passes import verification_cost
from .quantization import quantizations
from .rounds import round_breakdown
from .spread import spread_of_replies
from .what_if import what_if


def all_sections(
    profile: Profile, calibration: Calibration, recommendation: Recommendation, validation: Validation | None
) -> tuple[Section, ...]:
    """Every figure of the report, in order. A figure without evidence becomes one line that says what to run."""
    rows = validation.rows if validation else ()
    checks = validation.rounds if validation else ()
    settings = [forecast.setting for forecast in recommendation.candidates]
    all_rows = "all-rows" in profile.engine.capabilities
    return (
        forecast_against_measured(validation, settings),
        speed_over_length(recommendation, rows, calibration.costs, plain_ceilings(calibration, profile.models)),
        verification_cost(calibration, all_rows, profile.models),
        round_breakdown(calibration.rounds, checks),
        acceptance_by_position(calibration, settings, profile.prompts),
        quantizations(recommendation, calibration, profile, rows),
        maps(recommendation),
        spread_of_replies(validation, settings),
        what_if(recommendation),
    )

"""Plan and measure, until nothing is left to measure or the time is used up."""

from contextlib import suppress
from math import ceil
from typing import TYPE_CHECKING

from ..options import Common
from ..profiler.errors import InputError
from .documents import PROFILE
from .progress import clock_of, told

if TYPE_CHECKING:
    from ..profiler.job import Job
    from ..profiler.records import Profile
    from ..profiler.session import Session


def measured_profile(job: "Job", common: Common, budget_seconds: float = 0.0) -> "Profile":
    """The plan-measure loop: requests are planned from the evidence so far until none is left, or `budget_seconds` are used
    up. Raises InputError for a budget in which not even plain decoding can be measured."""
    from ..profiler.session import Session, open_profile
    from ..reports.terminal import Progress

    with Progress() as progress:
        session = Session(
            job.engine,
            open_profile(common.path(PROFILE), job.blank, budget_seconds),
            common.path(PROFILE),
            job.prompts,
            on_progress=told(progress, clock_of(job)),
            budget_seconds=budget_seconds,
        )
        dropped, unmeasured = _within_budget(session) if budget_seconds else (_planned(session), {})
        return session.finish({**job.blank.dropped, **dropped}, job.warnings, unmeasured)


def _planned(session: "Session") -> dict[str, str]:
    """Everything that the plan asks for; the candidates dropped."""
    from ..calibrate.plan import next_requests

    plan = next_requests(session.profile)
    while plan.requests:
        session.perform(plan.requests)
        plan = next_requests(session.profile)
    return plan.dropped


def _within_budget(session: "Session") -> tuple[dict[str, str], dict[str, str]]:
    """What decides most, while there is time; the candidates dropped, and what of the others was not measured."""
    from ..calibrate.budget import next_within
    from ..profiler.session import OutOfTime

    found = next_within(session.profile, session.seconds_left)
    with suppress(OutOfTime):
        while found.requests:
            session.perform(found.requests)
            found = next_within(session.profile, session.seconds_left)
    if found.requests:
        found = next_within(session.profile, 0.0)
    if found.least_seconds is not None:
        raise InputError(
            f"--budget is too short for plain decoding of one target over all prompts: give {ceil(found.least_seconds)}s or "
            "more; what was measured is kept"
        )
    return found.dropped, found.unmeasured

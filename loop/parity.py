"""Output, sampling and acceptance beside plain decoding: parity.json."""

from typing import TYPE_CHECKING

from ..options import Common, Compared
from ..profiler.errors import InputError
from .documents import PARITY
from .progress import telling
from .stamp import stamped

if TYPE_CHECKING:
    from ..profiler.job import Job
    from ..profiler.outputs.parity import Parity


def parity_to(job: "Job", asked: Compared, common: Common) -> "Parity":
    """Compare each drafter's output, sampling and acceptance with plain decoding, and write parity.json."""
    from msgspec.structs import replace

    from ..profiler.files import write_record
    from ..profiler.outputs.parity import parity

    arms = [
        one.setting(one.draft_tokens[len(one.draft_tokens) // 2]) for one in job.blank.candidates if one.draft_tokens
    ]
    if not arms:
        raise InputError("parity: nothing drafts here; give a --draft, or a target whose engine drafts by n-grams")
    sampling = replace(job.blank.sampling, temperature=asked.temperature)
    unequal = None if asked.mismatch is None else replace(sampling, temperature=asked.mismatch)
    stamp = stamped()
    with telling() as tell:
        tell(
            f"drafter 1 of {len(arms)}, {len(job.prompts)} prompts: greedy, again, {'sampled, ' if unequal else ''}drafting"
        )
        found = parity(
            job.engine,
            arms,
            job.prompts,
            sampling,
            draws=asked.draws,
            unequal=unequal,
            created=stamp.created,
            tool_version=stamp.tool_version,
            on_step=lambda done, total: tell(f"drafter {min(done + 1, total)} of {total}, {len(job.prompts)} prompts"),
        )
    write_record(common.path(PARITY), found)
    return found

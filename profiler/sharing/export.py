"""Writing a profile to share: never over another file, and never over the profile itself."""

import os
from pathlib import Path

from ..errors import InputError
from ..files import shown, write_record
from ..records import Profile
from .redact import Redacted, redacted

SHARED = "profile-shared.json"


def exported(profile: Profile, source: Path, out: Path, *, keep_names: bool = False, force: bool = False) -> Redacted:
    """Write what may be shared of `profile`, which was read from `source`, to `out`; `force`: over a file that is there.

    Raises InputError where that is not to be written over, and WorkFailed where it cannot be written.
    """
    if os.path.lexists(out):
        if os.path.exists(out) and os.path.samefile(source, out):
            raise InputError(f"--out {shown(out)}: this is the profile itself; choose another file")
        if not force:
            raise InputError(f"--out {shown(out)}: is there already; choose another file, or --force")
    found = redacted(profile, keep_names)
    write_record(out, found.profile)
    return found

"""The two ways in which specgauge gives up; the message is one line: what, where, next step."""


class InputError(Exception):
    """Usage, a file or a pair is wrong: exit code 2."""


class WorkFailed(Exception):
    """The work itself failed (an engine crashed, a disk is full): exit code 1."""

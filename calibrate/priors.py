"""Priors: doubts that no repeat shows. Named and apart from the evidence, so that its own intervals can be checked without."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Priors:
    """Log standard deviations, as real engines were seen to need them (docs/log.md)."""

    model_log_sd: float = 0.02
    """How far a round may lie from its recipe at lengths that were not measured."""
    unseen_segment_log_sd: float = 0.05
    """The same in a kernel segment without any measured round."""
    minutes_apart_log_sd: float = 0.02
    """How far round times taken minutes apart may differ beyond what their repeats show (up to 14 % in one of four runs on a
    shared CPU, 2 % in the others; the cause is not known). With model_log_sd 2.8 %: 42 forecasts of seven demo runs were off
    by 2.8 %, root mean square."""
    least_session_log_sd: float = 0.01
    """The least noise of a validation session's median."""


ENGINES = Priors()
EVIDENCE_ALONE = Priors(0.0, 0.0, 0.0, 0.0)
"""For machines that are what the model says: simulated ones."""

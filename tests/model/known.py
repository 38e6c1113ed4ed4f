"""Step times of known truth."""

import numpy as np

from specgauge.model.steps import StepTable

WIDTHS = np.array([1, 2, 4, 6, 8, 9, 12, 16, 17])
CONTEXTS = np.array([100.0, 500.0])


def seconds_of(width, context):
    """A pass with a switch after 8: lines of their own slope on both sides, decode apart, linear in context."""
    base = np.where(width == 1, 9e-3, np.where(width <= 8, 10e-3 + 1e-3 * width, 6e-3 + 0.5e-3 * width))
    return base + 2e-6 * context * (1 + 0.1 * width)


def table(widths=WIDTHS) -> StepTable:
    return StepTable(widths, CONTEXTS, seconds_of(widths[None, :], CONTEXTS[:, None]))

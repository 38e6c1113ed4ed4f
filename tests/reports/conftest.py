"""The sample records, made once."""

import pytest

from .samples import Sample, sample, without_evidence


@pytest.fixture(scope="session")
def demo() -> Sample:
    return sample()


@pytest.fixture(scope="session")
def bare() -> Sample:
    return without_evidence()

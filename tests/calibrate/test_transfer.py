"""Another model of the same quantization: steps by bytes, and nothing of it called measured."""

import msgspec
import pytest

from specgauge.calibrate import fit
from specgauge.calibrate.transfer import Sizes, transferred
from specgauge.profiler.errors import InputError
from specgauge.profiler.records import Profile

from . import synthetic
from .synthetic import quiet


def profile() -> Profile:
    return synthetic.profile(quiet())


def test_twice_the_bytes_are_twice_the_step_and_a_prior():
    evidence = profile()
    calibrated = fit.calibrate(evidence)
    candidate = evidence.candidates[0]
    (target,) = [model for model in evidence.models if model.label == candidate.target]
    other = transferred(calibrated, Sizes(target_bytes=2.0 * target.size_bytes))
    here, there = (c.forecast(candidate.setting(0), "ordinary") for c in (calibrated, other))
    assert there.tokens_per_second.value == pytest.approx(here.tokens_per_second.value / 2, rel=1e-6)
    assert (here.provenance, there.provenance) == ("measured", "prior")
    width = there.tokens_per_second.high / there.tokens_per_second.low
    assert width > 1.3 * here.tokens_per_second.high / here.tokens_per_second.low
    drafting = next(c for c in evidence.candidates if c.drafter == "model").setting(4)
    found = other.forecast(drafting, "ordinary")
    assert found.provenance == "prior"
    assert found.speed_up > calibrated.forecast(drafting, "ordinary").speed_up, "the draft is relatively cheaper"


def test_a_larger_draft_makes_drafting_dearer_and_plain_decoding_stays():
    evidence = profile()
    calibrated = fit.calibrate(evidence)
    candidate = next(c for c in evidence.candidates if c.drafter == "model")
    (draft,) = [model for model in evidence.models if model.label == candidate.draft]
    other = transferred(calibrated, Sizes(draft_bytes=3.0 * draft.size_bytes))
    plain, drafting = candidate.setting(0), candidate.setting(4)
    assert other.forecast(plain, "ordinary") == calibrated.forecast(plain, "ordinary")
    assert other.forecast(drafting, "ordinary").round_seconds > calibrated.forecast(drafting, "ordinary").round_seconds


def test_unknown_or_several_sizes_are_refused():
    evidence = profile()
    nothing = msgspec.structs.replace(
        evidence, models=tuple(msgspec.structs.replace(m, size_bytes=0) for m in evidence.models)
    )
    with pytest.raises(InputError, match="does not know the bytes"):
        transferred(fit.calibrate(nothing), Sizes(target_bytes=1e9))
    with pytest.raises(InputError, match="times the size"):
        transferred(fit.calibrate(evidence), Sizes(target_bytes=1.0))

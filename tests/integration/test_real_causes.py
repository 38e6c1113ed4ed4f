"""Four causes of a slow setting made for real on the demo's model, and found: by hand, up to four minutes each.

The whole line runs (profile, calibrate, recommend, runs, diagnose), with one pair and few draft lengths. Machines are shared
and clocks wander: only ranks, and ratios within one session, are asserted.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import pytest
from msgspec.structs import replace as changed

from specgauge.calibrate import arms, fit, plan, recommend, validate
from specgauge.calibrate.diagnose import diagnose, headline
from specgauge.calibrate.examine import symptoms_of
from specgauge.calibrate.records import Diagnosis
from specgauge.calibrate.symptoms import Hardware, Symptoms
from specgauge.profiler import protocol
from specgauge.profiler.candidates import candidates_of
from specgauge.profiler.checkpoints.gguf import model_file
from specgauge.profiler.engines.llama_cpp import LlamaCpp
from specgauge.profiler.records import ModelFile, Profile, Sampling, Setting
from specgauge.profiler.session import Session

from .drafts import rewrite

pytestmark = [pytest.mark.engine, pytest.mark.slow]

LENGTHS = (1, 2, 4)


class Line:
    """The whole line on one pair; ordinary prompts only."""

    def __init__(self, demo, target: ModelFile, draft: ModelFile, folder: Path, flags: Sequence[str] = ()):
        self.models = (target, draft)
        self.engine = LlamaCpp(self.models, log_dir=folder / "logs", threads=1, flags=flags)
        self.prompts = [prompt for prompt in demo.prompts if prompt.prompt.workload == "ordinary"][:3]
        self.folder = folder

    def profile(self) -> Profile:
        target, draft = self.models
        candidate = changed(candidates_of(target, [draft], ())[0], draft_tokens=LENGTHS)
        blank = Profile(
            created="",
            tool_version="",
            key=self.engine.key(),
            engine=self.engine.describe(),
            models=self.models,
            prompts=tuple(prompt.prompt for prompt in self.prompts),
            sampling=Sampling(),
            candidates=(candidate,),
            # No sentinel: on two shared processors it reads what others do, and one minute does not drift far.
            sentinel_model="",
        )
        session = Session(self.engine, blank, self.folder / "profile.json", self.prompts)
        # What a candidate is dropped for is what is looked for here: it is measured all the same.
        while requests := self._waiting(session.profile):
            session.perform(requests)
        return session.finish({})

    def _waiting(self, profile: Profile):
        found = plan.next_requests(profile).requests
        done = {measurement.digest for measurement in profile.measurements}
        asked = found or plan.drafter_requests(profile, profile.candidates)
        return tuple(request for request in asked if request.digest() not in done)

    def diagnose(self, draft_tokens: int = 4) -> Diagnosis:
        profile = self.profile()
        calibrated = fit.calibrate(profile, replicates=60)
        stamps = dict.fromkeys(("profile_sha256", "calibration_sha256", "created", "tool_version", "command"), "")
        made = recommend.recommend(profile, calibrated, **stamps)
        setting = profile.candidates[0].setting(draft_tokens)
        settings = tuple(dict.fromkeys((*arms.settings_to_run(profile, made), setting)))
        runs = protocol.interleaved_runs(self.engine, settings, self.prompts, profile.sampling, 3)
        at = validate.Session(
            calibration_sha256="", created="", tool_version="", validation_seconds=0.0, start_seconds=0.0
        )
        validation = validate.validation(profile, calibrated, made, runs, (), at)
        symptoms = symptoms_of(profile, calibrated, setting, "ordinary", validation)
        self.symptoms = symptoms
        found = diagnose(symptoms)
        print(headline(found), [(cause.id, cause.seconds_per_round) for cause in found.causes], symptoms.parts)
        return found


@pytest.fixture
def line(demo, tmp_path):
    """Makes a line of two models; its servers end with the test."""
    made = []

    def make(target: ModelFile, draft: ModelFile, flags: Sequence[str] = ()) -> Line:
        made.append(Line(demo, target, draft, tmp_path, flags))
        return made[-1]

    yield make
    for one in made:
        one.engine.close()


def of(demo, quant: str) -> ModelFile:
    return next(model for model in demo.models if model.quant == quant)


def test_a_draft_larger_than_its_target_is_found(demo, line):
    found = line(of(demo, "Q4_0"), of(demo, "F16")).diagnose()
    assert found.verdict == "slower"
    assert found.causes[0].id in ("swapped-roles", "draft-too-dear")
    assert "swapped-roles" in [cause.id for cause in found.causes]


def test_a_draft_that_guesses_is_found_by_its_acceptance(demo, line, tmp_path):
    """Two of thirty layers: hardly any price, and hardly a token right."""
    bad = model_file(rewrite(of(demo, "Q4_0").path, tmp_path / "two-layers.gguf", layers=2))
    found = line(of(demo, "Q4_0"), bad).diagnose()
    assert found.verdict == "slower"
    assert found.tokens_per_round < 1.3
    assert found.causes[0].id == "acceptance-below-break-even"


def test_a_draft_short_of_threads_is_found_by_its_steps(demo, line):
    """Threads beyond the processors wait for each other at the end of each layer."""
    threads = str(3 * (os.cpu_count() or 1))
    starved = line(of(demo, "Q8_0"), of(demo, "Q4_0"), ["-td", threads, "-tbd", threads])
    found = starved.diagnose()
    assert found.verdict == "slower"
    assert found.causes[0].id == "draft-not-on-device"
    assert "threads" in found.causes[0].change


def end_to_end(engine: LlamaCpp, setting: Setting, prompt) -> tuple[float, float]:
    """Tokens per second of a request as its sender sees it, prompt and all, and tokens a round."""
    began = time.monotonic()
    reply = engine.reply(setting, prompt, Sampling(), cached=True)
    rounds = len(reply.tokens) - 1 - reply.accepted
    return len(reply.tokens) / (time.monotonic() - began), (len(reply.tokens) - 1) / rounds


def test_the_first_request_after_a_start_is_found_to_be_cold(demo, tmp_path):
    """Speculation just switched on, beside plain decoding that has served for a while: the prompt is in no cache yet.

    On a processor nothing else is cold: passes right after a start are as fast as later ones.
    """
    target = of(demo, "F16")
    prompt = next(p for p in demo.prompts if p.prompt.id == "copying/inventory")
    plain = Setting(target=target.label, target_quant=target.quant)
    drafting = changed(plain, drafter="ngram", draft="ngram-simple", draft_tokens=8, ngram_size=3)
    engine = LlamaCpp(demo.models, log_dir=tmp_path, threads=1)
    try:
        usual = [end_to_end(engine, plain, prompt)[0] for _ in range(4)][1:]
        cold, tokens_per_round = end_to_end(engine, drafting, prompt)
        warm = [end_to_end(engine, drafting, prompt)[0] for _ in range(3)]
    finally:
        engine.close()
    symptoms = Symptoms(
        setting=drafting,
        tokens_per_second=cold,
        plain_tokens_per_second=median(usual),
        tokens_per_round=tokens_per_round,
        warm_tokens_per_second=median(warm),
        hardware=Hardware(target_bytes=target.size_bytes, gpu=False),
    )
    found = diagnose(symptoms)
    print(headline(found), [(cause.id, cause.seconds_per_round) for cause in found.causes], usual, cold, warm)
    assert found.verdict == "slower" and median(warm) > 1.2 * median(usual)
    assert found.causes[0].id == "cold-cache"

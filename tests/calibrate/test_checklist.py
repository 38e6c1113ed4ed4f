"""The seven points: before a profile from headers, after one from what was measured on a machine of known truth."""

from dataclasses import replace

import msgspec
import pytest

from specgauge.calibrate.checks.checklist import NOTHING_ASKED, POINTS, AskedSampling, DraftPair, checklist_before
from specgauge.calibrate.checks.checklist_after import best_region, checklist_after, is_int8
from specgauge.calibrate.checks.memory import MemoryOptions, check_memory
from specgauge.calibrate.checks.records import ChecklistItem
from specgauge.calibrate.checks.sampling import both_sides, sampling_parity
from specgauge.calibrate.records import Acceptance
from specgauge.profiler.free_memory import FreeMemory
from specgauge.profiler.preflight import ENGINE, check_pair
from specgauge.profiler.records import Prompt, PromptRun, Run, Sampling, Setting, StepSample

from ..profiler.pairs import checkpoint, dense, tokenizer, words
from ..reports.samples import Sample, sample

TOKENS = tokenizer(words(1000))
TARGET = checkpoint("big", dense(8e9), TOKENS)
DRAFT = checkpoint("small", dense(0.6e9), TOKENS)
CARD = FreeMemory(24 * 2**30, 0.0, "Card", "driver", on_device=True)
LLAMA = {
    "seed": "1",
    "temperature": "0.0",
    "top_k": "40",
    "top_p": "0.949999988079071",
    "min_p": "0.05000000074505806",
    "repeat_penalty": "1.0",
    "typical_p": "1.0",
    "mirostat": "0",
    "xtc_probability": "0.0",
    "presence_penalty": "0.0",
}
"""As llama-server gives it back: 32-bit floats."""
GREEDY = Sampling()


def before(*drafts, target=TARGET, free=CARD, sampling=NOTHING_ASKED, **options) -> dict[str, ChecklistItem]:
    pairs = [DraftPair(draft, check_pair(target, draft)) for draft in drafts]
    memories = check_memory(target, drafts, MemoryOptions(free, **options), ENGINE)
    items = checklist_before(target, pairs, memories, sampling)
    assert tuple(item.id for item in items) == POINTS
    return {item.id: item for item in items}


def test_headers_show_tokenizer_bits_and_room():
    found = before(DRAFT)
    assert [found[id].status for id in POINTS] == [
        "pass",
        "pass",
        "not_measured",
        "not_measured",
        "pass",
        "not_measured",
        "not_measured",
    ]
    assert found["same-tokenizer"].detail == "all 1,000 tokens are equal"
    assert "8.5 bits" in found["draft-int8"].detail
    assert "8,192 tokens of context and room for twice 3 drafted ones, 1 stream" in found["kv-room"].detail


def test_the_least_bits_of_the_drafts_decide():
    found = before(DRAFT, replace(DRAFT, quant="Q4_0", quant_bits=4.5))
    assert found["draft-int8"].status == "fail" and "Q4_0 has 4.5 bits" in found["draft-int8"].detail
    assert before(replace(DRAFT, quant_bits=0.0))["draft-int8"].status == "not_measured"


def test_a_pair_of_unknown_tokens_is_not_measured_and_another_tokenizer_fails():
    assert before(replace(DRAFT, tokenizer=None))["same-tokenizer"].status == "not_measured"
    other = replace(DRAFT, tokenizer=tokenizer(words(500, "v")))
    assert before(DRAFT, other)["same-tokenizer"].status == "fail"


def test_no_draft_leaves_the_pair_open_and_a_built_in_head_shares_the_tokens():
    assert before()["same-tokenizer"].status == "not_measured"
    assert before(target=replace(TARGET, mtp_layers=1))["same-tokenizer"].status == "pass"


def test_room_is_unknown_without_a_figure_and_missing_mib_are_told():
    unknown = FreeMemory(None, 0.0, "Card", "", on_device=True)
    assert before(DRAFT, free=unknown)["kv-room"].status == "not_measured"
    small = FreeMemory(8 * 2**30, 0.0, "Card", "driver", on_device=True)
    found = before(DRAFT, free=small, streams=4)
    assert (
        found["kv-room"].status == "fail"
        and "MiB missing" in found["kv-room"].detail
        and "4 streams" in found["kv-room"].detail
    )


def test_settings_of_both_sides_are_compared_where_they_are_given():
    greedy, warm = Sampling(), Sampling(temperature=0.7)
    assert before(DRAFT, sampling=AskedSampling(greedy, greedy))["sampling-equal"].status == "pass"
    found = before(DRAFT, sampling=AskedSampling(greedy, warm))["sampling-equal"]
    assert found.status == "fail" and found.detail == "temperature 0 for the target, 0.7 for the draft"
    assert before(DRAFT, sampling=AskedSampling(greedy))["sampling-equal"].status == "not_measured"


def test_a_seed_is_fixed_unless_it_is_drawn_for_each_request():
    assert before(DRAFT, sampling=AskedSampling(Sampling(seed=7)))["seed-fixed"].detail == "seed 7"
    assert before(DRAFT, sampling=AskedSampling(Sampling(seed=-1)))["seed-fixed"].status == "fail"


# after


@pytest.fixture(scope="module")
def demo() -> Sample:
    return sample()


def after(records: Sample, validated=True, **options) -> dict[str, ChecklistItem]:
    items = checklist_after(
        records.profile,
        records.calibration,
        records.recommendation,
        records.validation if validated else None,
        **options,
    )
    assert tuple(item.id for item in items) == POINTS
    return {item.id: item for item in items}


def with_runs(records: Sample, *runs: Run) -> Sample:
    measurement = msgspec.structs.replace(records.profile.measurements[0], runs=runs)
    return replace(records, profile=msgspec.structs.replace(records.profile, measurements=(measurement,)))


def run(
    effective: dict[str, str] = LLAMA, sampling: Sampling = GREEDY, tokens: int = 100, hashes=("a", "a"), **setting
) -> Run:
    prompt = Prompt(id="p", workload="w", workload_class="code", text_sha256="0" * 64, new_tokens=tokens)
    replies = tuple(
        PromptRun(
            prompt=prompt,
            repeat=i,
            prompt_tokens=50,
            reply_tokens=tokens,
            decode_seconds=1.0,
            prefill_seconds=0.1,
            wall_seconds=1.2,
            reply_sha256=sha,
        )
        for i, sha in enumerate(hashes)
    )
    made = msgspec.structs.replace(Setting(target="smol-Q4_0", target_quant="Q4_0"), **setting)
    return Run(setting=made, sampling=sampling, replies=replies, effective=effective)


def test_a_profile_answers_all_it_measured(demo):
    found = after(with_runs(demo, run()))
    statuses = {id: found[id].status for id in POINTS}
    assert statuses["same-tokenizer"] == statuses["sampling-equal"] == statuses["seed-fixed"] == "pass"
    assert statuses["kv-room"] == statuses["warmed-up"] == "pass"
    assert all(item.detail for item in found.values())


def test_what_was_sent_stands_beside_what_was_used():
    fields = {field.name: field for field in sampling_parity([run()])}
    assert list(fields) == ["temperature", "top_k", "top_p", "min_p", "repeat_penalty", "seed"]
    assert (fields["top_p"].sent, fields["top_p"].used, fields["top_p"].equal) == ("0.95", "0.95", True)


def test_a_setting_that_the_engine_changed_is_shown_with_its_run(demo):
    changed = run(LLAMA | {"top_k": "20"}, draft_tokens=3, drafter="ngram", draft="ngram-simple")
    found = after(with_runs(demo, run(), changed))["sampling-equal"]
    assert found.status == "fail" and "top_k 20 where 40 was sent" in found.detail and "3 draft tokens" in found.detail
    field = next(f for f in sampling_parity([run(), changed]) if f.name == "top_k")
    assert field.equal is False and field.where.startswith("smol-Q4_0 with ngram-simple")


def test_a_sampler_that_nobody_sent_is_a_difference():
    fields = sampling_parity([run(LLAMA | {"presence_penalty": "1.5"})])
    assert [(f.name, f.sent, f.used) for f in fields if f.equal is False] == [("presence_penalty", "0", "1.5")]


def test_a_silent_engine_is_not_measured(demo):
    assert sampling_parity([run({})]) == ()
    assert after(with_runs(demo, run({})))["sampling-equal"].status == "not_measured"
    partly = sampling_parity([run({"seed": "1"})])
    assert [f.equal for f in partly] == [None] * 5 + [True]


def test_both_sides_before_a_run_show_the_drafting_mode_too():
    fields = both_sides(Sampling(), Sampling(draft_sampling="probabilistic"))
    assert [f.name for f in fields if f.equal is False] == ["draft_sampling"]


def test_a_context_that_a_reply_with_drafts_would_overrun_fails(demo):
    context = demo.recommendation.chosen.context or 2048
    chosen = msgspec.structs.replace(demo.recommendation.chosen, draft_tokens=8, context=context)
    records = replace(demo, recommendation=msgspec.structs.replace(demo.recommendation, chosen=chosen))
    assert after(with_runs(records, run(tokens=context - 50 - 16)))["kv-room"].status == "pass"
    assert after(with_runs(records, run(tokens=context - 50 - 15)))["kv-room"].status == "fail"


def test_seeds_that_differ_fail_and_repeats_are_counted(demo):
    found = after(with_runs(demo, run(), run(sampling=Sampling(seed=2))))["seed-fixed"]
    assert found.status == "fail" and "1, 2" in found.detail
    assert after(with_runs(demo, run(LLAMA | {"seed": "99"})))["seed-fixed"].status == "fail"
    told = after(with_runs(demo, run(), run(hashes=("a", "b"), context=512)))["seed-fixed"]
    assert told.status == "pass" and "1 of 2 replies were the same in every repeat" in told.detail


def test_cold_samples_show_what_warming_gains(demo):
    steps = tuple(
        StepSample(model="m", role="target", kind="decode", width=1, context=0, seconds=(seconds,), cold=cold)
        for seconds, cold in ((0.03, True), (0.03, True), (0.02, False), (0.02, False))
    )
    measurement = msgspec.structs.replace(demo.profile.measurements[0], steps=steps)
    records = replace(demo, profile=msgspec.structs.replace(demo.profile, measurements=(measurement,)))
    told = after(records)["warmed-up"]
    assert told.status == "pass" and "2 of 4 step samples" in told.detail and "1.50 times a warm one" in told.detail


def test_nothing_run_is_nothing_measured(demo):
    records = replace(demo, profile=msgspec.structs.replace(demo.profile, measurements=()))
    found = after(records)
    assert [found[id].status for id in ("sampling-equal", "kv-room", "warmed-up", "seed-fixed")] == ["not_measured"] * 4


def test_the_best_region_is_what_cannot_be_told_from_the_best(demo):
    assert after(demo, validated=False)["draft-tokens-in-best-region"].status == "pass"
    asked = after(demo, asked_draft_tokens=7)["draft-tokens-in-best-region"]
    assert asked.status == "fail" and "7 draft tokens, best region" in asked.detail


def test_the_region_is_the_fewest_settings_that_hold_the_best_at_the_level(demo):
    forecasts = [
        msgspec.structs.replace(
            demo.recommendation.candidates[0],
            setting=Setting(target="t", target_quant="Q4_0", drafter="ngram", draft_tokens=length),
            probability_best=share,
        )
        for length, share in ((1, 0.02), (2, 0.30), (3, 0.60), (4, 0.06), (5, 0.02))
    ]
    assert [f.setting.draft_tokens for f in best_region(forecasts, 0.95)] == [3, 2, 4]
    assert [f.setting.draft_tokens for f in best_region(forecasts, 0.5)] == [3]


def test_a_measured_regret_overrules_the_forecast(demo):
    validation = demo.validation
    assert validation is not None
    good = replace(demo, validation=msgspec.structs.replace(validation, regret=0.02, regret_low=-0.01))
    bad = replace(demo, validation=msgspec.structs.replace(validation, regret=0.12, regret_low=0.05))
    assert after(good)["draft-tokens-in-best-region"].status == "pass"
    found = after(bad)["draft-tokens-in-best-region"]
    assert found.status == "fail" and "12.0 % slower" in found.detail


def acceptance(draft: str, first: float, target: str = "smol-F16") -> Acceptance:
    return Acceptance(
        target=target,
        drafter="model",
        draft=draft,
        workload="w",
        survival=(first, first**2),
        offer_rate=1.0,
        prompts=4,
        positions=400,
        source="rounds",
    )


def with_draft(demo: Sample, label: str, *acceptances: Acceptance) -> Sample:
    candidate = msgspec.structs.replace(
        demo.profile.candidates[0], drafter="model", target="smol-F16", draft=label, draft_quant="Q4_0"
    )
    chosen = msgspec.structs.replace(demo.recommendation.chosen, drafter="model", draft=label)
    return replace(
        demo,
        profile=msgspec.structs.replace(demo.profile, candidates=(candidate,)),
        recommendation=msgspec.structs.replace(demo.recommendation, chosen=chosen),
        calibration=msgspec.structs.replace(demo.calibration, acceptance=acceptances),
    )


def test_a_draft_below_int8_passes_only_where_it_holds_beside_its_int8_copy(demo):
    """A distilled draft fell from 0.28 to 0.02 in int4; a quantized copy of the target kept 0.90 of 0.98."""
    labels = {model.quant: model.label for model in demo.profile.models}
    low, high = labels["Q4_0"], labels["Q8_0"]
    alone = after(with_draft(demo, low, acceptance(low, 0.9)))["draft-int8"]
    assert alone.status == "fail" and "no int8 copy" in alone.detail
    held = after(with_draft(demo, low, acceptance(low, 0.94), acceptance(high, 0.98)))["draft-int8"]
    assert held.status == "pass" and "0.94" in held.detail and "0.98" in held.detail
    broken = after(with_draft(demo, low, acceptance(low, 0.02), acceptance(high, 0.28)))["draft-int8"]
    assert broken.status == "fail"
    assert after(with_draft(demo, high))["draft-int8"].status == "pass"


@pytest.mark.parametrize(
    ("quant", "int8"),
    [
        ("Q8_0", True),
        ("BF16", True),
        ("gptq-int8-g128", True),
        ("compressed-tensors-fp8", True),
        ("Q6_K", False),
        ("IQ4_XS", False),
        ("gptq-int4-g128", False),
        ("bnb-nf4", False),
        ("awq-int4-g128", False),
        ("MXFP4", False),
    ],
)
def test_int8_or_better_is_read_from_the_name(demo, quant, int8):
    assert is_int8(msgspec.structs.replace(demo.profile.models[0], quant=quant)) == int8


def test_another_hash_fails_and_an_unknown_one_is_not_measured(demo):
    labels = {model.quant: model.label for model in demo.profile.models}
    records = with_draft(demo, labels["Q8_0"])
    for sha, status in (("cd" * 32, "fail"), ("", "not_measured")):
        models = tuple(
            msgspec.structs.replace(m, tokenizer_sha256=sha) if m.quant == "Q8_0" else m for m in records.profile.models
        )
        changed = replace(records, profile=msgspec.structs.replace(records.profile, models=models))
        assert after(changed)["same-tokenizer"].status == status

"""Several files as one profile: where keys allow, refused by the field's name where they do not."""

from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from specgauge.calibrate.combine import profile_of
from specgauge.calibrate.importers.base import Given, Imported
from specgauge.calibrate.importers.detect import read_files
from specgauge.profiler.errors import InputError
from specgauge.profiler.files import read_record, write_record
from specgauge.profiler.records import Key, Profile, ReportedRow, Setting

DATA = Path(__file__).parents[1] / "data"
NOTHING = Given()
LLAMA_CPP = Key(engine="llama.cpp")
LADDER, BENCH, OTHER = "rtx3090-mtp-ladder.csv", "sample-llama-bench.json", "community-5090-400w.csv"


def files(*names: str, given: Given = NOTHING) -> tuple[Imported, ...]:
    return read_files([DATA / name for name in names], given)


def together(*names: str, acceptance: tuple[str, ...] = (), given: Given = NOTHING) -> Profile:
    return combined(files(*names, given=given), files(*acceptance, given=given), given)


def combined(parts: tuple[Imported, ...], elsewhere: tuple[Imported, ...] = (), given: Given = NOTHING) -> Profile:
    return profile_of(parts, elsewhere, given, "2026-10-03T00:00:00+00:00", "0")


def part(source: str, key: Key = LLAMA_CPP, **changes: Any) -> Imported:
    """A file with one row at two draft tokens."""
    setting = Setting(target="T", target_quant="Q4_K_M", drafter="model", draft="D", draft_tokens=2, context=0)
    row = ReportedRow(
        setting=replace(setting, **{k: v for k, v in changes.items() if k in Setting.__struct_fields__}),
        workload="reported",
        baseline_tokens_per_second=40.0,
        tokens_per_second=60.0,
        tokens_per_round=2.0,
        temperature=changes.get("temperature"),
        source=source,
    )
    return Imported(source=source, format="CSV", key=key, reported=(row,), digest=source)


def test_a_ladder_becomes_a_complete_profile_that_can_be_stored(tmp_path: Path):
    profile = together(LADDER)
    write_record(tmp_path / "profile.json", profile)
    assert read_record(tmp_path / "profile.json", Profile) == profile
    (measurement,) = profile.measurements
    assert profile.complete and measurement.request.action == "import" and len(measurement.reported) == 8
    (candidate,) = profile.candidates
    assert (candidate.drafter, candidate.draft, candidate.draft_tokens) == ("mtp", "draft-mtp", tuple(range(1, 9)))
    assert (profile.key.gpu, profile.engine.name) == ("RTX 3090", "llama.cpp")
    assert [(p.id, p.workload, p.text_sha256) for p in profile.prompts] == [("reported", "reported", "")]
    assert [model.label for model in profile.models] == ["Qwen3.8-27B"]


def test_a_curve_and_a_ladder_of_one_machine_are_one_profile():
    profile = together(BENCH, LADDER)
    assert profile.key.gpu == "NVIDIA GeForce RTX 3090" and profile.key.backend == "CUDA"
    assert [bool(m.steps) for m in profile.measurements] == [True, False]
    assert {step.model for step in profile.measurements[0].steps} == {c.target for c in profile.candidates}
    assert len(profile.candidates) == 1
    assert len({m.digest for m in profile.measurements}) == 2


def test_unknown_fields_are_near_and_said_so():
    warnings = [text for text in together(BENCH, LADDER).warnings if ": near" in text]
    assert len(warnings) == 1 and warnings[0].startswith(LADDER)
    assert "build unknown (elsewhere b7312-b7f1c2e)" in warnings[0]


@pytest.mark.parametrize(
    "field",
    [{"power_limit_watts": 250.0}, {"driver": "570"}, {"build": "b1"}, {"threads": 4}],
    ids=lambda field: next(iter(field)),
)
def test_near_fields_may_differ_and_are_named(field: dict):
    known = Key(engine="llama.cpp", power_limit_watts=350.0, driver="580", build="b2", threads=8)
    (warning,) = combined((part("a", known), part("b", replace(known, **field)))).warnings
    assert warning.startswith("b: near") and str(next(iter(field.values()))).removesuffix(".0") in warning


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ({"gpu": "RTX 4090"}, "b: GPU is RTX 4090, in a it is RTX 3090"),
        ({"engine": "vLLM"}, "engine is vLLM"),
        ({"backend": "Vulkan"}, "backend is Vulkan"),
        ({"flags": ("n_gpu_layers=30", "flash_attn=1")}, "flags is n_gpu_layers=30 flash_attn=1"),
    ],
)
def test_other_machines_are_refused_by_the_name_of_the_field(field: dict, said: str):
    known = Key(gpu="RTX 3090", engine="llama.cpp", backend="CUDA", flags=("n_gpu_layers=99",))
    with pytest.raises(InputError, match=said):
        combined((part("a", known), part("b", replace(known, **field))))


def test_flags_that_only_one_file_says_do_not_contradict():
    key = Key(engine="llama.cpp")
    first, second = replace(key, flags=("n_gpu_layers=99",)), replace(key, flags=("n_batch=512",))
    assert combined((part("a", first), part("b"), part("c", second))).key.flags == ("n_gpu_layers=99", "n_batch=512")


def test_a_file_given_twice_is_refused():
    with pytest.raises(InputError, match="would count twice"):
        together(LADDER, LADDER)


def test_only_acceptance_moves_between_machines():
    profile = together(BENCH, acceptance=(OTHER,))
    rows = profile.measurements[1].reported
    assert len(rows) == 6
    assert all(row.baseline_tokens_per_second is None and row.tokens_per_second is None for row in rows)
    assert [row.tokens_per_round for row in rows] == [1.883, 2.6, 3.157, 3.572, 3.925, 4.192]
    assert profile.key.gpu == "NVIDIA GeForce RTX 3090"
    assert any(text.startswith(OTHER) and "only its acceptance is taken" in text for text in profile.warnings)


def test_acceptance_of_elsewhere_makes_candidates_of_the_steps_here():
    candidates = together(BENCH, acceptance=(OTHER,)).candidates
    assert {(c.target, c.target_quant, c.drafter, c.draft_tokens) for c in candidates} == {
        ("Qwen3.8-27B", "UD-Q4_K_XL", "mtp", (1, 2, 3, 4, 5, 6))
    }
    assert {c.context for c in candidates} == {0, 8192}


def test_acceptance_of_elsewhere_does_not_mix_with_the_own():
    profile = together(LADDER, acceptance=(OTHER,))
    own, moved = (m.reported for m in profile.measurements)
    assert {row.workload for row in own} == {"reported"}
    assert {row.workload for row in moved} == {f"reported in {OTHER}"}
    assert {row.setting.draft for row in (*own, *moved)} == {"draft-mtp"}
    assert [c.draft_tokens for c in profile.candidates] == [tuple(range(1, 9))]


def test_acceptance_of_elsewhere_adds_no_lengths_to_a_drafter_that_ran_here():
    profile = combined((part("a"),), (part("b", draft_tokens=6), part("c", draft="E", draft_tokens=5)))
    assert [(c.draft, c.draft_tokens) for c in profile.candidates] == [("D", (2,)), ("E", (5,))]


def test_a_file_without_acceptance_has_nothing_that_moves():
    with pytest.raises(InputError, match="holds no acceptance"):
        together(LADDER, acceptance=(BENCH,))


def test_two_quantizations_of_a_target_are_two_targets():
    parts = (part("a"), part("b", target_quant="Q8_0"), part("c", target_quant=""))
    profile = combined(parts)
    assert {model.label for model in profile.models} == {"T Q4_K_M", "T Q8_0", "T", "D"}
    assert {(c.target, c.target_quant) for c in profile.candidates} == {
        ("T Q4_K_M", "Q4_K_M"),
        ("T Q8_0", "Q8_0"),
        ("T", ""),
    }


def test_an_unknown_quantization_is_the_only_one_that_is_told():
    profile = combined((part("a"), part("b", target_quant="", draft_tokens=4)))
    assert [(c.target, c.target_quant, c.draft_tokens) for c in profile.candidates] == [("T", "Q4_K_M", (2, 3, 4))]


def test_settings_that_change_speed_are_candidates_of_their_own():
    changes: tuple[dict[str, Any], ...] = (
        {},
        {"context": 8192},
        {"p_min": 0.75},
        {"draft": "E"},
    )
    profile = combined(tuple(part(str(n), **change) for n, change in enumerate(changes)))
    assert len(profile.candidates) == len(changes)
    assert {c.p_min for c in profile.candidates} == {0.0, 0.75}


@pytest.mark.parametrize("change", [{"streams": 4}, {"kv_type_k": "q8_0"}, {"kv_type_v": "q8_0"}])
def test_rows_whose_plain_speeds_are_not_one_are_refused(change: dict[str, Any]):
    """They would be averaged as repeats of one baseline."""
    with pytest.raises(InputError, match=f"rows with {next(iter(change))}"):
        combined((part("a"), part("b", **change)))


def test_the_lengths_between_rows_are_candidates_and_with_early_stop_those_of_the_rows():
    full = combined((part("a", draft_tokens=1), part("b", draft_tokens=4)))
    assert [c.draft_tokens for c in full.candidates] == [(1, 2, 3, 4)]
    early = combined((part("a", draft_tokens=1, p_min=0.5), part("b", draft_tokens=4, p_min=0.5)))
    assert [c.draft_tokens for c in early.candidates] == [(1, 4)]


def test_temperatures_that_differ_are_workloads_of_their_own():
    profile = combined((part("a", temperature=0.0), part("b", temperature=0.7), part("c")))
    assert [p.workload for p in profile.prompts] == ["reported, temperature 0", "reported, temperature 0.7", "reported"]
    same = combined((part("a", temperature=0.7), part("c")))
    assert [p.workload for p in same.prompts] == ["reported"] and same.sampling.temperature == 0.7


def test_counted_contexts_of_one_ladder_are_one_context():
    near = [
        changed(part(str(n), context=n, draft_tokens=2 + at), counted_contexts=True)
        for at, n in enumerate((310, 342, 401))
    ]
    far = changed(part("far", context=9000), counted_contexts=True)
    stated = part("stated", context=300)
    contexts = [c.context for c in combined((*near, far, stated)).candidates]
    assert sorted(set(contexts)) == [300, 342, 9000]


def test_steps_of_a_draft_are_no_target():
    (bench,) = files(BENCH, given=Given(target="D"))
    profile = combined((bench, part("ladder")))
    assert {c.target for c in profile.candidates} == {"T"}
    assert {m.label for m in profile.models} == {"T", "D"}


def test_what_the_user_says_of_the_machine_fills_the_key():
    profile = combined((part("a", Key(engine="")),), given=Given(gpu="RTX 3090", engine="llama.cpp"))
    assert (profile.key.gpu, profile.key.engine) == ("RTX 3090", "llama.cpp")

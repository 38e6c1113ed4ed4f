"""Importers: each format read as its tool writes it, and what it says of what it could and could not learn."""

import csv
import io
import json
import statistics
from pathlib import Path

import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from specgauge.calibrate.importers.base import Given, Imported
from specgauge.calibrate.importers.detect import read_files
from specgauge.calibrate.importers.names import drafter_kind, quant_of_type, same_gpu, says_only_the_kind, weights_name
from specgauge.calibrate.importers.rows import COLUMNS
from specgauge.calibrate.importers.source import Fields, listed
from specgauge.profiler.errors import InputError

DATA = Path(__file__).parents[1] / "data"
NOTHING = Given()
LADDERS = [path for path in sorted(DATA.glob("*.csv")) if "llama-bench" not in path.name]
ROW = {
    "gpu": "RTX 3090",
    "engine": "llama.cpp",
    "target": "T",
    "target_quant": "Q4_K_M",
    "drafter": "model",
    "draft_tokens": "4",
    "p_min": "0",
    "streams": "1",
    "baseline_tps": "40",
    "spec_tps": "60",
    "tokens_per_round": "2.5",
}


def read(name: str, given: Given = NOTHING) -> Imported:
    """The evidence of one file of tests/data."""
    (found,) = read_files([DATA / name], given)
    return found


def imported(tmp_path: Path, text: str, given: Given = NOTHING, name: str = "file.txt") -> Imported:
    path = tmp_path / name
    path.write_text(text, newline="")
    (found,) = read_files([path], given)
    return found


def rows(tmp_path: Path, *changes: dict[str, str], given: Given = NOTHING, extra: tuple[str, ...] = ()) -> Imported:
    """A CSV of the import format with one row for each change of ROW."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [*COLUMNS, *extra])
    writer.writeheader()
    writer.writerows(ROW | change for change in changes)
    return imported(tmp_path, text.getvalue(), given, "rows.csv")


# --- CSV


@pytest.mark.parametrize("path", LADDERS, ids=lambda path: path.stem)
def test_the_ladders_are_read_figure_by_figure(path: Path):
    table = list(csv.DictReader(path.open()))
    found = read(path.name)
    assert len(found.reported) == len(table)
    for line, row in zip(table, found.reported, strict=True):
        speculative = int(line["draft_tokens"]) > 0
        assert row.setting.draft_tokens == int(line["draft_tokens"])
        assert row.tokens_per_second == float(line["spec_tps"] or line["baseline_tps"])
        assert row.baseline_tokens_per_second == float(line["baseline_tps"] or line["spec_tps"])
        assert row.setting.context == int(line["context"] or 0)
        if line["tokens_per_round"]:
            assert row.tokens_per_round == float(line["tokens_per_round"])
        assert row.setting.drafter == ("none" if not speculative else "model" if "sample" in path.name else "mtp")
    assert found.key.gpu == table[0]["gpu"] and found.key.engine == "llama.cpp"


@pytest.mark.parametrize(
    ("spelled", "kind"),
    [
        ("built-in MTP head", "mtp"),
        ("draft-mtp", "mtp"),
        ("EAGLE-3", "eagle"),
        ("draft-eagle3", "eagle"),
        ("DFlash", "dflash"),
        ("ngram-mod", "ngram"),
        ("prompt lookup", "ngram"),
        ("draft-simple", "model"),
        ("Draft Model", "model"),
        ("", "none"),
        ("off", "none"),
        ("medusa", None),
    ],
)
def test_foreign_spellings_of_drafters_are_mapped(spelled: str, kind: str | None):
    assert drafter_kind(spelled) == kind


def test_the_original_spelling_of_a_drafter_is_kept(tmp_path: Path):
    (row,) = rows(tmp_path, {"drafter": "built-in MTP head"}).reported
    assert (row.setting.drafter, row.setting.draft) == ("mtp", "built-in MTP head")
    assert says_only_the_kind("built-in MTP head", "mtp") and says_only_the_kind("draft-mtp", "mtp")
    assert not says_only_the_kind("Qwen3-0.6B-mtp", "mtp") and not says_only_the_kind("", "mtp")


def test_tokens_per_round_win_over_the_acceptance_rate_and_a_contradiction_is_told(tmp_path: Path):
    found = rows(tmp_path, {"acceptance_rate": "0.5", "tokens_per_round": "2.5"})
    assert found.reported[0].tokens_per_round == 2.5
    assert any("disagree beyond rounding (2.5 against 1 + 4 x 0.5 = 3)" in text for text in found.warnings)


@pytest.mark.parametrize(("rate", "tokens"), [("0.38", "2.5"), ("0.375", "2.50"), ("0.374", "2.5")])
def test_figures_that_are_equal_but_for_rounding_are_no_contradiction(tmp_path: Path, rate: str, tokens: str):
    assert not rows(tmp_path, {"acceptance_rate": rate, "tokens_per_round": tokens}).warnings


def test_a_stopped_draft_contradicts_nothing(tmp_path: Path):
    assert not rows(tmp_path, {"acceptance_rate": "0.9", "tokens_per_round": "2.5", "p_min": "0.75"}).warnings


def test_tokens_per_round_follow_from_the_rate_of_full_drafts_only(tmp_path: Path):
    full, stopped, lookup, unknown = rows(
        tmp_path,
        {"acceptance_rate": "0.5", "tokens_per_round": ""},
        {"acceptance_rate": "0.5", "tokens_per_round": "", "p_min": "0.75"},
        {"acceptance_rate": "0.5", "tokens_per_round": "", "drafter": "ngram-mod"},
        {"acceptance_rate": "0.5", "tokens_per_round": "", "p_min": ""},
    ).reported
    assert (full.tokens_per_round, unknown.tokens_per_round) == (3.0, 3.0)
    assert stopped.tokens_per_round is None and lookup.tokens_per_round is None
    assert stopped.setting.p_min == 0.75


def test_an_unknown_p_min_is_said_to_be_taken_as_0(tmp_path: Path):
    found = rows(tmp_path, {"acceptance_rate": "0.5", "tokens_per_round": "", "p_min": ""})
    assert any("p_min is unknown and taken as 0" in text for text in found.warnings)


def test_an_equal_column_name_is_an_error(tmp_path: Path):
    with pytest.raises(InputError, match="column gpu stands twice"):
        imported(tmp_path, f"gpu,{','.join(COLUMNS)}\n" + "," * len(COLUMNS) + "\n")


def test_unknown_columns_are_named_in_a_warning(tmp_path: Path):
    found = rows(tmp_path, {"mood": "good", "weather": "rain"}, extra=("mood", "weather"))
    assert any("unknown columns left out: mood, weather" in text for text in found.warnings)
    assert found.reported[0].tokens_per_second == 60


def test_a_misspelt_column_is_an_error(tmp_path: Path):
    text = ",".join(COLUMNS).replace("spec_tps", "speculative_tps") + "\n" + ",".join(["1"] * len(COLUMNS)) + "\n"
    with pytest.raises(InputError, match="column spec_tps is missing and speculative_tps is unknown"):
        imported(tmp_path, text)


def test_columns_that_are_not_there_are_unknown_and_said_so(tmp_path: Path):
    text = "target,drafter,draft_tokens,baseline_tps,spec_tps,acceptance_rate\nT,model,2,40,60,0.7\n"
    found = imported(tmp_path, text, Given(gpu="RTX 3090"))
    assert found.reported[0].tokens_per_round == pytest.approx(2.4)
    assert found.key.gpu == "RTX 3090"
    assert any("columns not there, taken as unknown: gpu, engine" in text for text in found.warnings)


def test_what_the_user_says_fills_only_what_is_empty(tmp_path: Path):
    given = Given(gpu="other", target="other", drafter="mtp", draft_tokens=7, baseline_tokens_per_second=1.0)
    stated, silent = rows(
        tmp_path, {}, {"target": "", "drafter": "", "draft_tokens": "", "baseline_tps": "", "spec_tps": ""}, given=given
    ).reported
    assert (stated.setting.target, stated.setting.drafter, stated.setting.draft_tokens) == ("T", "model", 4)
    assert stated.baseline_tokens_per_second == 40
    assert (silent.setting.target, silent.setting.drafter, silent.setting.draft_tokens) == ("other", "mtp", 7)
    assert silent.baseline_tokens_per_second == 1


def test_rows_of_one_configuration_are_repeats(tmp_path: Path):
    found = rows(tmp_path, {}, {"spec_tps": "61"}, {"draft_tokens": "2"})
    assert len({row.setting for row in found.reported}) == 2
    assert "1 of 3 rows repeat a configuration: they show the noise" in found.learned


def test_rows_of_two_cards_are_refused_by_the_name_of_the_field(tmp_path: Path):
    with pytest.raises(InputError, match="line 3: GPU is RTX 4090, in .*line 2 it is RTX 3090"):
        rows(tmp_path, {}, {"gpu": "RTX 4090"})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"spec_tps": "16.5 ms"}, "spec_tps is '16.5 ms': give a plain number, without a unit"),
        ({"spec_tps": "-3"}, "spec_tps is -3: it lies from 0"),
        ({"spec_tps": "0"}, "spec_tps is 0: give a number above 0"),
        ({"spec_tps": "nan"}, "give a plain number"),
        ({"spec_tps": "1e999"}, "give a plain number"),
        ({"spec_tps": "1e9"}, "check the unit"),
        ({"spec_tps": "6000"}, "150 times the baseline with 2.5 tokens a round"),
        ({"acceptance_rate": "79.3"}, "acceptance_rate is 79.3: it lies from 0 to 1"),
        ({"tokens_per_round": "5.5"}, "tokens_per_round is 5.5: it lies from 1 to 5"),
        ({"draft_tokens": "2.5"}, "give a whole number"),
        ({"draft_tokens": "65"}, "it lies from 0 to 64"),
        ({"draft_tokens": ""}, "draft_tokens is empty"),
        ({"drafter": "medusa"}, "drafter medusa is unknown"),
        ({"drafter": ""}, "draft_tokens is 4 without a drafter"),
        ({"baseline_tps": "", "spec_tps": "", "tokens_per_round": ""}, "is given; leave the row out"),
    ],
)
def test_a_row_that_cannot_be_is_refused_where_it_stands(tmp_path: Path, change: dict[str, str], said: str):
    with pytest.raises(InputError) as error:
        rows(tmp_path, {}, change)
    assert "rows.csv, line 3" in str(error.value) and said in str(error.value)


def test_optional_columns_are_kept():
    *_, row = read("sample-rows.csv").reported
    assert (row.repeats, row.rounds, row.tokens_per_second_sd, row.workload) == (5, 240, 0.5, "code")
    assert (row.setting.draft_quant, row.setting.kv_type_k, row.setting.kv_type_v) == ("Q8_0", "q8_0", "q8_0")
    assert read("sample-rows.csv").key.power_limit_watts == 350


def test_what_a_ladder_serves_is_said():
    assert "every length to 8 can be forecast" in " ".join(read("rtx3090-mtp-ladder.csv").learned)
    assert "2 draft tokens can be forecast; other lengths need" in " ".join(read("rtx3090-context-ladder.csv").learned)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tokens_per_round": ""}, "speeds without acceptance at 4 draft tokens: no acceptance"),
        ({"spec_tps": ""}, "acceptance without speeds at 4 draft tokens: no round times"),
        ({"baseline_tps": ""}, "no plain speed"),
        ({"drafter": "none", "draft_tokens": "0", "tokens_per_round": ""}, "plain speed; no drafter"),
    ],
)
def test_what_is_missing_for_forecasts_is_said(tmp_path: Path, change: dict[str, str], said: str):
    assert said in " ".join(rows(tmp_path, change).learned)


# --- llama-bench


def test_llama_bench_gives_plain_steps_and_passes_a_sample_a_repeat():
    tests = json.loads((DATA / "sample-llama-bench.json").read_text())
    found = read("sample-llama-bench.json")
    for test in tests:
        kind, width = ("batch", test["n_prompt"]) if test["n_prompt"] else ("decode", 1)
        context = test["n_depth"] + test["n_gen"] // 2
        seconds = [s.seconds[0] for s in found.steps if (s.kind, s.width, s.context) == (kind, width, context)]
        wanted = [ns * 1e-9 / max(test["n_gen"], 1) for ns in test["samples_ns"]]
        assert seconds == pytest.approx([] if test["n_prompt"] > 64 else wanted)


def test_llama_bench_knows_its_machine_and_weights():
    found = read("sample-llama-bench.json")
    assert (found.key.gpu, found.key.backend, found.key.threads) == ("NVIDIA GeForce RTX 3090", "CUDA", 12)
    assert found.key.build == "b7312-b7f1c2e"
    assert {"n_gpu_layers=99", "flash_attn=1", "n_ubatch=512"} <= set(found.key.flags)
    (model,) = found.models
    assert (model.label, model.quant, model.size_bytes) == ("Qwen3.8-27B", "UD-Q4_K_XL", 17612345344)


def test_prefill_is_left_out_and_said_so():
    (text,) = read("sample-llama-bench.json").left_out
    assert "512 tokens are prefill" in text


def test_an_older_llama_bench_has_no_depth_and_csv_no_repeats():
    found = read("sample-llama-bench-old.csv")
    assert {step.context for step in found.steps if step.kind == "batch"} == {0}
    assert [step.width for step in found.steps] == [1, 2, 4, 8]
    assert found.key.backend == "CUDA"
    assert any("no n_depth" in text for text in found.warnings) and any("means only" in text for text in found.warnings)


def bench(**changes: object) -> str:
    tests = json.loads((DATA / "sample-llama-bench.json").read_text())
    return json.dumps([tests[0] | changes, *tests[1:]])


def test_a_sweep_of_what_changes_speed_is_refused_by_its_name(tmp_path: Path):
    with pytest.raises(InputError, match="n_gpu_layers is 30 and 99 in one file"):
        imported(tmp_path, bench(n_gpu_layers=30))


def test_times_in_other_units_contradict_the_speeds(tmp_path: Path):
    with pytest.raises(InputError, match="avg_ns and samples_ns contradict each other"):
        imported(tmp_path, bench(avg_ns=1_538_000))
    with pytest.raises(InputError, match="avg_ts and avg_ns contradict each other"):
        imported(tmp_path, bench(avg_ts=24.1))


def test_a_pass_of_one_token_is_a_plain_step_where_nothing_was_generated(tmp_path: Path):
    tests = json.loads((DATA / "sample-llama-bench.json").read_text())
    one = tests[2] | {"n_prompt": 1, "avg_ts": 1e9 / tests[2]["avg_ns"]}
    alone = imported(tmp_path, json.dumps([one, tests[3]]), name="a.json")
    beside = imported(tmp_path, json.dumps([one, tests[0]]), name="b.json")
    assert {s.kind for s in alone.steps if s.width == 1} == {"decode"}
    assert {s.kind for s in beside.steps if s.context == 0} == {"batch"}


def test_prompt_and_generation_in_one_time_are_left_out(tmp_path: Path):
    tests = json.loads((DATA / "sample-llama-bench.json").read_text())
    mixed = tests[0] | {"n_prompt": 64, "avg_ts": tests[0]["avg_ts"] * 2}
    found = imported(tmp_path, json.dumps([mixed, tests[2]]))
    assert "64 prompt and 64 generated tokens in one time" in found.left_out[0]


# --- llama-server


def test_tokens_per_round_of_replies_count_the_first_token_out():
    plain, row = read("sample-completions.jsonl").reported
    replies = [json.loads(line)["timings"] for line in (DATA / "sample-completions.jsonl").read_text().splitlines()]
    drafted = [t for t in replies if "draft_n" in t]
    rounds = sum(t["predicted_n"] - 1 - t["draft_n_accepted"] for t in drafted)
    tokens = sum(t["predicted_n"] - 1 for t in drafted)
    assert row.tokens_per_round == pytest.approx(tokens / rounds) and row.rounds == rounds
    assert row.tokens_per_second == pytest.approx(tokens / sum(t["predicted_ms"] for t in drafted) * 1e3)
    undrafted = [t for t in replies if "draft_n" not in t]
    speed = sum(t["predicted_n"] - 1 for t in undrafted) / sum(t["predicted_ms"] for t in undrafted) * 1e3
    assert plain.tokens_per_second == pytest.approx(speed)
    assert row.baseline_tokens_per_second == plain.tokens_per_second
    assert (row.setting.target, row.setting.target_quant) == ("Qwen3.8-27B", "UD-Q4_K_XL")
    assert row.setting.draft_tokens == 3 and row.temperature == 0


def test_draft_tokens_are_the_nearest_whole_number_where_nobody_says():
    found = read("sample-timings.json")
    assert found.reported[0].setting.draft_tokens == 3
    assert any("draft tokens taken as 3, the mean draft has 3.00" in text for text in found.warnings)
    told = read("sample-timings.json", Given(draft_tokens=4, drafter="mtp", baseline_tokens_per_second=41.0))
    assert told.reported[0].setting.draft_tokens == 4 and told.reported[0].setting.drafter == "mtp"
    assert told.reported[0].baseline_tokens_per_second == 41 and not told.warnings


def test_more_drafted_than_asked_for_is_refused():
    with pytest.raises(InputError, match="3.00 tokens a draft are more than --draft-tokens 2"):
        read("sample-timings.json", Given(draft_tokens=2))


def test_replies_without_drafts_of_an_ngram_drafter_are_no_baseline():
    found = read("sample-completions.jsonl", Given(drafter="ngram"))
    assert len(found.reported) == 1 and found.reported[0].baseline_tokens_per_second is None
    assert len(found.left_out) == 3 and "an n-gram drafter that found nothing" in found.left_out[0]


def test_replies_of_two_temperatures_are_two_rows(tmp_path: Path):
    lines = [json.loads(line) for line in (DATA / "sample-completions.jsonl").read_text().splitlines()]
    lines[-1]["generation_settings"]["temperature"] = 0.7
    found = imported(tmp_path, "\n".join(map(json.dumps, lines)))
    assert [row.temperature for row in found.reported if row.setting.draft_tokens] == [0, 0.7]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"predicted_ms": 3.0}, "predicted_per_second and predicted_ms contradict each other"),
        ({"draft_n_accepted": 140}, "140 accepted of 138 drafted tokens"),
        ({"predicted_n": 60, "predicted_per_second": 30.0}, "81 accepted tokens in a reply of 60"),
        ({"predicted_ms": "many"}, "predicted_ms is 'many'"),
        ({"draft_n": -1}, "draft_n is -1"),
    ],
)
def test_a_reply_that_cannot_be_is_refused(tmp_path: Path, change: dict[str, object], said: str):
    timings = json.loads((DATA / "sample-timings.json").read_text())
    with pytest.raises(InputError, match=said):
        imported(tmp_path, json.dumps([timings[0] | change]))


def test_the_log_gives_what_the_replies_give():
    new = read("sample-server.log")
    (row,) = new.reported
    assert row.tokens_per_round == pytest.approx((127 + 159) / (127 - 81 + 159 - 98))
    assert row.tokens_per_second == pytest.approx((127 + 159) / (2.01427 + 2.60638))
    assert (row.setting.drafter, row.setting.draft, row.setting.draft_tokens) == ("mtp", "draft-mtp", 3)
    assert (new.key.gpu, new.key.build) == ("NVIDIA GeForce RTX 3090", "b7312-b7f1c2e")


def test_counters_by_position_come_from_the_last_line_of_statistics():
    (seen,) = read("sample-server.log").acceptance
    assert (seen.drafts, seen.drafted, seen.accepted) == (106, 318, 179)
    assert seen.accepted_by_position == (86, 59, 34) and sum(seen.accepted_by_position) == 179


def test_the_older_log_is_read_too():
    found = read("sample-server-old.log")
    (row,) = found.reported
    assert row.tokens_per_round == pytest.approx((199 + 199) / (199 - 140 + 199 - 130))
    assert (row.setting.target, row.setting.target_quant) == ("Qwen2.5-Coder-32B-Instruct", "Q4_K_M")
    assert (row.setting.drafter, row.setting.draft, row.setting.draft_quant) == (
        "model",
        "Qwen2.5-Coder-0.5B-Instruct",
        "Q8_0",
    )
    assert found.key.build == "b4743-d07c6213" and not found.acceptance


def test_a_log_of_counters_alone_gives_acceptance(tmp_path: Path):
    line = "statistics draft: #calls = 14, #gen drafts = 14, #acc drafts = 12, #gen tokens = 84, #acc tokens = 61\n"
    found = imported(tmp_path, line)
    (seen,) = found.acceptance
    assert not found.reported and (seen.drafts, seen.drafted, seen.accepted) == (14, 84, 61)
    assert seen.setting.draft_tokens == 6 and seen.setting.drafter == "model"


def test_counters_of_a_log_that_fall_are_refused(tmp_path: Path):
    line = "statistics draft: #calls = 9, #gen drafts = {0}, #acc drafts = 1, #gen tokens = {0}0, #acc tokens = 1\n"
    with pytest.raises(InputError, match="counters of draft fall: the server was restarted"):
        imported(tmp_path, line.format(20) + line.format(10))


def test_a_figure_at_an_end_without_a_line_break_may_be_cut_and_is_told(tmp_path: Path):
    line = "statistics draft: #calls = 14, #gen drafts = 14, #acc drafts = 12, #gen tokens = 84, #acc tokens = 61"
    for text in (line, (DATA / "sample-vllm-both.txt").read_text().rstrip()):
        assert any("its last line has no end" in text for text in imported(tmp_path, text).warnings)
        assert not any("its last line has no end" in text for text in imported(tmp_path, text + "\n").warnings)


# --- vLLM


def test_two_snapshots_of_vllm_in_two_files_or_one_say_the_same():
    (two,) = read_files([DATA / "sample-vllm-before.txt", DATA / "sample-vllm-after.txt"], Given())
    one = read("sample-vllm-both.txt")
    for found in (one, two):
        (seen,), (row,) = found.acceptance, found.reported
        assert (seen.drafts, seen.drafted, seen.accepted) == (1600, 4800, 2640)
        assert seen.accepted_by_position == (1240, 831, 569)
        assert row.tokens_per_round == pytest.approx(1 + 2640 / 1600)
        assert row.tokens_per_second == pytest.approx((4330 - 104 - 24) / (42.1873 - 1.0521))
        assert row.setting.target == "Qwen3-8B" and row.setting.draft_tokens == 3
        assert found.key.engine == "vLLM"


def test_without_decode_times_the_gaps_between_rounds_give_the_speed(tmp_path: Path):
    text = (DATA / "sample-vllm-both.txt").read_text()
    kept = "\n".join(line for line in text.splitlines() if "request_decode_time" not in line)
    (row,) = imported(tmp_path, kept).reported
    assert row.tokens_per_second == pytest.approx((1 + 2640 / 1600) * 1600 / (42.1873 - 1.0521))


def test_counters_that_fall_are_refused():
    with pytest.raises(
        InputError, match="falls between the snapshots: the server was restarted, or the order is wrong"
    ):
        read_files([DATA / "sample-vllm-after.txt", DATA / "sample-vllm-before.txt"], Given())


def test_one_snapshot_is_refused():
    with pytest.raises(InputError, match="give two around each workload"):
        read("sample-vllm-after.txt")


def test_a_workload_without_drafts_is_a_baseline(tmp_path: Path):
    text = (DATA / "sample-vllm-both.txt").read_text()
    found = imported(tmp_path, "\n".join(line for line in text.splitlines() if "spec_decode" not in line))
    (row,) = found.reported
    assert row.setting.draft_tokens == 0 and row.baseline_tokens_per_second == row.tokens_per_second
    assert not found.acceptance


# --- llama-batched-bench


def test_sequences_side_by_side_are_verification_passes():
    lines = [json.loads(line) for line in (DATA / "sample-batched-bench.jsonl").read_text().splitlines()]
    found = read("sample-batched-bench.jsonl", Given(target="T"))
    assert [(s.kind, s.width, s.context, s.streams) for s in found.steps] == [
        ("decode" if line["pl"] == 1 else "verify", line["pl"], line["pp"] + line["tg"] // 2, 1) for line in lines
    ]
    assert [s.seconds[0] for s in found.steps] == pytest.approx([line["t_tg"] / line["tg"] for line in lines])


def test_a_line_whose_figures_contradict_each_other_is_refused(tmp_path: Path):
    line = json.loads((DATA / "sample-batched-bench.jsonl").read_text().splitlines()[1])
    for change, said in (
        ({"t_tg": line["t_tg"] * 1e3}, "speed_tg and t_tg contradict"),
        ({"t": 1.0}, "t, t_pp and t_tg"),
        ({"n_kv": 7}, "n_kv 7"),
    ):
        with pytest.raises(InputError, match=said):
            imported(tmp_path, json.dumps(line | change))


# --- which format


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hello world\n", "of no known format; known are the CSV"),
        ('{"a": 1}', "JSON of no known format"),
        ("[]", "holds an empty list"),
        ("[{}, 2]", "entry 2: not a JSON object"),
        ('{"kind": "specgauge-profile", "schema_version": 1}', "is a file of specgauge"),
        ('{"timings": {"predicted_n": 1, "predicted_n": 2}}', "'predicted_n' stands twice"),
        ('{"timings": {"predicted_n": NaN}}', "NaN is no number"),
        ("[" * 100_000, "no usable JSON|no whole JSON"),
    ],
)
def test_what_is_of_no_format_is_refused_with_their_names(tmp_path: Path, text: str, said: str):
    with pytest.raises(InputError, match=said):
        imported(tmp_path, text)


def test_the_format_is_told_by_content_not_by_ending(tmp_path: Path):
    names = ("sample-llama-bench.json", "sample-server.log", "sample-vllm-both.txt", "sample-rows.csv")
    formats = [imported(tmp_path, (DATA / name).read_text(), name="x.bin").format for name in names]
    assert formats == ["llama-bench", "llama-server log", "vLLM metrics", "CSV"]


def test_line_endings_and_a_byte_order_mark_do_not_matter(tmp_path: Path):
    for name in ("sample-rows.csv", "sample-server.log", "sample-completions.jsonl", "sample-vllm-both.txt"):
        text = "\ufeff" + (DATA / name).read_text().replace("\n", "\r\n")
        found, original = imported(tmp_path, text, name=name), read(name)
        assert (found.reported, found.acceptance) == (original.reported, original.acceptance)


# --- names and numbers


@pytest.mark.parametrize(
    ("path", "name", "quant"),
    [
        ("models/Qwen3.8-27B-UD-Q4_K_XL.gguf", "Qwen3.8-27B", "UD-Q4_K_XL"),
        ("C:\\m\\llama-2-7b.Q4_0.gguf", "llama-2-7b", "Q4_0"),
        ("gpt-oss-20b-mxfp4.gguf", "gpt-oss-20b", "mxfp4"),
        ("Qwen3-235B-A22B-IQ4_XS-00001-of-00003.gguf", "Qwen3-235B-A22B", "IQ4_XS"),
        ("Qwen/Qwen3-8B", "Qwen3-8B", ""),
        ("Qwen3-8B-AWQ", "Qwen3-8B", "AWQ"),
    ],
)
def test_files_of_weights_tell_model_and_quantization(path: str, name: str, quant: str):
    assert weights_name(path) == (name, quant)


def test_types_of_llama_bench_tell_the_quantization():
    assert quant_of_type("qwen2 7B Q4_K - Medium") == "Q4_K_M"
    assert quant_of_type("llama 7B Q4_0") == "Q4_0"
    assert quant_of_type("llama 7B") == ""


def test_one_card_has_many_names():
    assert same_gpu("NVIDIA GeForce RTX 3090", "RTX 3090") and same_gpu("RTX 5090 32GB", "RTX 5090")
    assert not same_gpu("RTX 3090", "RTX 3090 Ti") and not same_gpu("RTX 3060 12 GB", "RTX 3060 8GB")


def test_lists_are_told_shortly():
    assert [listed({1, 2, 3}), listed([4, 2]), listed([7]), listed([1, 2, 4])] == [
        "1 to 3",
        "2 and 4",
        "7",
        "1, 2 and 4",
    ]


@settings(deadline=None, max_examples=200)
@drawn(st.text(max_size=20) | st.floats() | st.integers() | st.booleans() | st.none() | st.lists(st.integers()))
def test_a_field_is_a_finite_number_in_its_range_or_refused(value: object):
    try:
        number = Fields("here", {"x": value}).number("x", 0, 100)
    except InputError as error:
        assert "here" in str(error)
    else:
        assert 0 <= number <= 100 and number == float(str(value))


def test_the_samples_agree_with_each_other():
    """Log and replies are of one made-up machine: the same speeds within 3 %."""
    _, replies = read("sample-completions.jsonl").reported
    (log,) = read("sample-server.log").reported
    steps = [s.seconds[0] for s in read("sample-llama-bench.json").steps if s.kind == "decode" and s.context < 100]
    assert log.tokens_per_second == pytest.approx(replies.tokens_per_second, rel=0.03)
    assert 1 / statistics.median(steps) == pytest.approx(replies.baseline_tokens_per_second, rel=0.03)

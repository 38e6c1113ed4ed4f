"""The terminal: verdict first, 80 columns, names that are only text, progress that keeps out of pipes."""

import io
import re
from dataclasses import replace

import msgspec
import pytest
from rich.console import Console

from specgauge.calibrate.records import EngineCommand, Interval
from specgauge.reports.commands import chosen_setting
from specgauge.reports.engine_commands import every_command
from specgauge.reports.terminal import Progress, print_verdict
from specgauge.reports.verdict import answer, workload_verdicts

from .samples import Sample, sample


def printed(records: Sample, validated: bool = True, **console) -> str:
    out = io.StringIO()
    options = {"file": out, "width": 80} | console
    print_verdict(
        Console(**options), records.recommendation, records.validation if validated else None, records.profile
    )
    return out.getvalue()


def without_command(text: str) -> str:
    """What is printed before the command, which must stay one line to be copied."""
    return text[: text.index("Command")]


def test_verdict_comes_first_and_fits_80_columns(demo: Sample):
    text = printed(demo)
    assert text.startswith("Ordinary: do not speculate, run plain smol-Q4_0; copying: speculate with")
    assert max(len(line) for line in without_command(text).splitlines()) <= 80
    assert text.rstrip().endswith(demo.recommendation.command)


def test_each_workload_with_a_choice_of_its_own_has_its_command(demo: Sample):
    commands = every_command(demo.profile, demo.recommendation)
    text = printed(replace(demo, recommendation=msgspec.structs.replace(demo.recommendation, commands=commands)))
    own = [command for command in commands if command.workload and command.measured]
    assert own and all(f"Command for {one.workload} alone:\n{one.text}\n" in text for one in own)
    assert text.rstrip().endswith(demo.recommendation.command)


def test_a_path_in_a_command_cannot_steer_the_terminal(demo: Sample):
    hostile = "llama-server -m '/models/\x1b]0;owned\x07\x1b[2J\u202egpj\r\n.gguf' -c 2048"
    command = EngineCommand(workload="ordinary", engine="llama.cpp", text=hostile, measured=True)
    changed = msgspec.structs.replace(demo.recommendation, command=hostile, commands=(command,))
    text = printed(replace(demo, recommendation=changed))
    assert all(c.isprintable() or c == "\n" for c in text)
    assert text.count("/models/\\x1b]0;owned\\x07\\x1b[2J\\u202egpj\\r\\n.gguf") == 2


def test_speeds_have_unit_and_interval_and_a_speed_up_its_baseline(demo: Sample):
    text = " ".join(printed(demo).split())
    row = next(r for r in demo.validation.rows if r.workload == "copying" and r.config.drafter == "none")
    assert re.search(r"4\.\d\d x \(4\.\d\d to 4\.\d\d\) over plain, [\d.]+ \([\d.]+ to [\d.]+\) tokens/s, paired", text)
    assert row.measured > 0
    assert len(re.findall(r"\d x \(", text)) == len(re.findall(r" over plain, ", text)) == 1


def test_a_slower_target_is_held_against_the_fastest_plain_one(demo: Sample):
    """Another target's plain decoding is what the user would run else."""
    recommendation = demo.recommendation
    advice = next(one for one in recommendation.workloads if one.chosen.drafter != "none")
    own = chosen_setting(demo.profile, advice.chosen)
    same = [
        one for one in recommendation.candidates if one.workload == advice.workload and one.setting.drafter == "none"
    ]
    faster = msgspec.structs.replace(
        same[0],
        setting=msgspec.structs.replace(own.plain, target="smol-faster"),
        tokens_per_second=Interval(value=999.0, low=990.0, high=1010.0),
    )
    more = msgspec.structs.replace(recommendation, candidates=(*recommendation.candidates, faster))
    for validation in (None, demo.validation):
        found = next(v for v in workload_verdicts(more, validation, demo.profile) if v.workload == advice.workload)
        assert "999" in answer(found) and "plain smol-faster" in answer(found)
        usual = next(
            v for v in workload_verdicts(recommendation, validation, demo.profile) if v.workload == advice.workload
        )
        if max(same, key=lambda one: one.tokens_per_second.value).setting.target == own.target:
            assert usual.faster_plain is None and "smol" not in answer(usual)


def test_without_validation_no_speed_up_is_claimed(demo: Sample):
    text = printed(demo, validated=False)
    assert "over plain" not in text
    assert "not run" in text and "specgauge validate" in text


def test_piped_output_has_no_escape_codes_and_no_color_is_honoured(demo: Sample, monkeypatch: pytest.MonkeyPatch):
    assert "\x1b" not in printed(demo)
    monkeypatch.setenv("NO_COLOR", "1")
    coloured = re.findall(r"\x1b\[([\d;]*)m", printed(demo, force_terminal=True))
    assert coloured and not any(re.match(r"[349]\d", code) for codes in coloured for code in codes.split(";"))


def test_hostile_names_are_text():
    hostile = sample(name="[red]x[/nope]\x1b]0;owned\x07\u202e" + "y" * 10_000, workload="[bold]\x1b[2J")
    text = without_command(printed(hostile))
    assert "\x1b" not in text and "\x07" not in text and "\u202e" not in text
    assert "[red]x" in text and "[bold]" in text
    assert max(len(line) for line in text.splitlines()) <= 80


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal_rewrites_one_line_with_the_time_left():
    stream = Terminal()
    with Progress(stream) as progress:
        progress("steps of smol-F16", 30, 240)
        progress("steps of smol-F16", 60, 240)
        progress("rounds", 250, 240)
    text = stream.getvalue()
    assert "\n" not in text
    assert "steps of smol-F16: 1 min 0 s so far, about 3 min 0 s left" in text
    assert "longer than the 4 min 0 s expected" in text
    assert text.endswith("\r\x1b[2K")


def test_progress_in_a_pipe_is_one_plain_line_a_step():
    stream = io.StringIO()
    with Progress(stream) as progress:
        for done in range(5):
            progress("steps", done, 10)
        progress("rounds\x1b[2J", 5, 0)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "steps: 0 s so far, about 10 s left"
    assert len(lines) == 2 and "\x1b" not in lines[1] and lines[1].endswith("5 s so far")


def test_progress_survives_a_closed_stream():
    stream = Terminal()
    progress = Progress(stream)
    stream.close()
    progress("steps", 1, 2)
    progress.close()

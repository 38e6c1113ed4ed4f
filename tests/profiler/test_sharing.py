"""Sharing: every field decided, no planted secret in what is shared, every number as it was."""

import re
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from specgauge.calibrate import plan
from specgauge.calibrate.importers.llama_bench import SPEED_FLAGS
from specgauge.profiler.engines import fake
from specgauge.profiler.engines.transformers.paths import PATHS
from specgauge.profiler.errors import InputError
from specgauge.profiler.files import read_record, write_record
from specgauge.profiler.records import (
    Key,
    Measurement,
    Message,
    Profile,
    Record,
    ReportedAcceptance,
    ReportedRow,
    Request,
    StoredText,
)
from specgauge.profiler.session import Session
from specgauge.profiler.sharing import words
from specgauge.profiler.sharing.export import exported
from specgauge.profiler.sharing.redact import public_prompts, redacted
from specgauge.profiler.sharing.rules import RULES, nested, number

NEVER_SHARED = {Message, StoredText}
"""Records that only fields hold which are left out whole."""


def records_in(hint: Any) -> Iterator[type[Record]]:
    if isinstance(hint, type) and issubclass(hint, Record):
        yield hint
    for part in typing.get_args(hint):
        yield from records_in(part)


def leaves_of(hint: Any) -> set[Any]:
    parts = typing.get_args(hint)
    return {leaf for part in parts for leaf in leaves_of(part)} if parts else {hint}


@cache
def reachable() -> tuple[type[Record], ...]:
    """Profile and every record that is stored in one, found by their types."""
    found: dict[type[Record], None] = {}
    waiting: list[type[Record]] = [Profile]
    while waiting:
        record = waiting.pop()
        if record not in found:
            found[record] = None
            waiting += [part for hint in typing.get_type_hints(record).values() for part in records_in(hint)]
    return tuple(found)


def test_every_field_of_every_record_of_a_profile_is_decided():
    """Whoever adds a field to a profile says in profiler/sharing/rules.py what of it may be shared."""
    assert {*reachable()} - NEVER_SHARED == {*RULES}
    for record in RULES:
        assert {*RULES[record]} == {*record.__struct_fields__}, f"undecided or gone: fields of {record.__name__}"


def test_what_passes_as_a_number_is_one():
    numbers = {int, float, bool, type(None), ...}
    for record, rules in RULES.items():
        hints = typing.get_type_hints(record)
        for name, rule in rules.items():
            if rule is number:
                assert leaves_of(hints[name]) <= numbers, f"{record.__name__}.{name} is no number"
            if rule is nested:
                assert all(issubclass(leaf, Record) for leaf in leaves_of(hints[name]) - numbers)


# --- a profile with something in every field


@cache
def measured() -> Profile:
    """A fake machine profiled to the end, with what imported evidence and logs add to it."""
    blank, prompts, engine = fake.demo("interior-tie")
    with TemporaryDirectory() as folder:
        session = Session(engine, blank, Path(folder) / "profile.json", prompts)
        while requests := plan.next_requests(session.profile).requests:
            session.perform(requests)
        profile = session.finish(plan.next_requests(session.profile).dropped, ("a warning",))
    return profile


@cache
def full() -> Profile:
    """The same with a value in every field that the fake machine leaves empty."""
    profile = measured()
    setting = profile.candidates[0].setting(2)
    taken = Request(action="import", settings=(setting,), role="target", model=setting.target)
    imported = Measurement(
        request=taken,
        digest=taken.digest(),
        started_at_seconds=0.0,
        wall_seconds=0.0,
        reported=(ReportedRow(setting=setting, workload="chat", tokens_per_second=9.0, source="mine.csv"),),
        reported_acceptance=(
            ReportedAcceptance(setting=setting, workload="chat", drafts=3, drafted=6, accepted=2, source="mine.log"),
        ),
        rejected=("/home/me/model.gguf: too slow",),
        unsupported="no such file",
    )
    shares = dict.fromkeys([prompt.workload for prompt in profile.prompts], 0.0)
    return replace(
        profile,
        measurements=(*profile.measurements, imported),
        key=replace(profile.key, gpu_uuid="GPU-1", driver="570.86", flags=("-ngl", "99"), cpu="AMD EPYC"),
        workload_shares={name: 1 / len(shares) for name in shares},
        prompt_texts=(StoredText(text_sha256="0", text="t", messages=(Message(role="user", content="c"),)),),
    )


def with_few_measurements() -> Profile:
    """One measurement of each action."""
    kinds = {measurement.request.action: measurement for measurement in full().measurements}
    return replace(full(), measurements=tuple(kinds.values()))


def strings_of(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every string below `value`, keys of dictionaries too, with the names of the fields above it."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield path, key
            yield from strings_of(one, path)
    elif isinstance(value, Record):
        for name in value.__struct_fields__:
            yield from strings_of(getattr(value, name), (*path, type(value).__name__ + "." + name))
    elif isinstance(value, tuple):
        for one in value:
            yield from strings_of(one, path)


def planted(value: Any, plant, path: tuple[str, ...] = ()) -> Any:
    """`value` with every string of it replaced by `plant(path, string)`, fields that need a fixed word by themselves."""
    if isinstance(value, str):
        return plant(path, value)
    if isinstance(value, dict):
        return {planted(key, plant, path): planted(one, plant, path) for key, one in value.items()}
    if isinstance(value, tuple):
        return tuple(planted(one, plant, path) for one in value)
    if not isinstance(value, Record):
        return value
    return type(value)(
        **{
            name: planted(getattr(value, name), plant, (*path, f"{type(value).__name__}.{name}"))
            for name in value.__struct_fields__
        }
    )


CHECKED_ON_READING = {"EngineInfo.recipes"}
"""Such a profile could not be read."""
CHECKED_TOGETHER = {"Profile.workload_shares"}
"""Its names have to be those of the prompts: planted in both by the first test."""
SHAPES = (
    "{}",
    "/home/{}/models/x.gguf",
    "--api-key={}",
    "http://{}:8080",
    "NVIDIA {} 3090",
    "x {} y",
    "GPU-{}",
    "Q4_0-{}",
)

secrets = st.from_regex(r"zq[a-f]{6}[0-9]{4}[a-z]{4}", fullmatch=True)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(secret=secrets, shape=st.sampled_from(SHAPES), append=st.booleans())
def test_a_secret_in_any_string_of_a_profile_is_never_shared(secret: str, shape: str, append: bool):
    small = with_few_measurements()
    hidden = shape.format(secret)

    def plant(path: tuple[str, ...], text: str) -> str:
        if path[-1] in CHECKED_ON_READING:
            return text
        return f"{text} {hidden}" if append else f"{hidden}|{text}"

    profile = planted(small, plant)
    assert secret in str(profile)
    found = redacted(profile)
    assert secret not in str(found.profile) and secret[:8] not in str(found.profile)
    assert found.left_out


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_a_secret_in_one_string_alone_is_never_shared(data: st.DataObject):
    """Whatever stands beside it is as it was, so that a rule cannot hide behind another one's refusal."""
    small = with_few_measurements()
    places = [path for path, _ in strings_of(small) if path[-1] not in CHECKED_ON_READING | CHECKED_TOGETHER]
    chosen, secret = data.draw(st.sampled_from(sorted(set(places)))), data.draw(secrets)
    hidden = data.draw(st.sampled_from(SHAPES)).format(secret)
    profile = planted(small, lambda path, text: hidden if path == chosen else text)
    assert secret not in str(redacted(profile).profile), chosen


def test_every_string_that_is_shared_is_a_known_word_or_a_made_name():
    """On a profile as it is: each string is one that an allow-list holds, or one that names.py makes."""
    made = re.compile(
        r"(simulated|model|workload|prompt|reply|tokenizer|file|quant)-[\w.-]*\d|[\w-]+/\d+|[\w.-]+ x [\w.-]+|[0-9a-f]{16}|[0-9a-f]{64}"
    )
    known = set().union(
        *(getattr(words, name) for name in dir(words) if isinstance(getattr(words, name), frozenset)),
        *words.WORDS_READ_BACK.values(),
    )
    allowed = known | {"", "specgauge-profile", "the reason is left out of a shared profile", "simulated", "570.86"}
    for path, text in strings_of(redacted(full()).profile):
        plain = text in allowed or made.fullmatch(text) or words.number(text) or words.quant(text)
        plain = plain or words.version(text) == text or words.hardware(text) == text or path[-1] == "Profile.created"
        assert plain, (path[-1], text)


# --- what stays


def numbers_of(value: Any) -> list[Any]:
    if isinstance(value, str):
        return []
    if isinstance(value, dict):
        return [one for part in value.values() for one in numbers_of(part)]
    if isinstance(value, tuple):
        return [one for part in value for one in numbers_of(part)]
    if isinstance(value, Record):
        return [
            one for name in value.__struct_fields__ if name != "redacted" for one in numbers_of(getattr(value, name))
        ]
    return [value]


def test_every_number_stays_and_the_result_is_a_profile(tmp_path: Path):
    profile = full()
    shared = redacted(replace(profile, prompt_texts=())).profile
    assert numbers_of(shared) == numbers_of(replace(profile, prompt_texts=()))
    write_record(tmp_path / "p.json", shared)
    assert read_record(tmp_path / "p.json", Profile) == shared
    assert all(m.digest == m.request.digest() for m in shared.measurements)
    assert shared.redacted and shared.complete


def test_names_are_alike_wherever_they_stand():
    profile, shared = measured(), redacted(measured()).profile
    for one, other in zip(profile.candidates, shared.candidates, strict=True):
        places = [[model.label for model in p.models].index(c.target) for p, c in ((profile, one), (shared, other))]
        assert places[0] == places[1]
    assert {model.label for model in shared.models} == {
        "simulated-27B-Q4_0",
        "simulated-27B-Q8_0",
        "simulated-600M-Q4_0",
    }
    assert len({(model.sha256, model.quant) for model in shared.models}) == len(shared.models)
    ids = {prompt.id for prompt in shared.prompts}
    assert len(ids) == len(profile.prompts)
    assert {r.prompt.id for m in shared.measurements for run in m.runs for r in run.replies} <= ids
    assert set(shared.dropped) <= {f"{c.target} x {c.draft or c.drafter}" for c in shared.candidates}


def test_equal_replies_stay_equal_and_different_ones_different():
    def hashes(profile: Profile) -> list[str]:
        return [r.reply_sha256 for m in profile.measurements for run in m.runs for r in run.replies]

    pairs = set(zip(hashes(measured()), hashes(redacted(measured()).profile), strict=True))
    assert len(pairs) == len({one for one, _ in pairs}) == len({other for _, other in pairs}) > 3


def test_hashes_of_public_prompts_stay_and_those_of_own_ones_go():
    assert {prompt.text_sha256 for prompt in measured().prompts} <= public_prompts()
    assert redacted(measured()).profile.prompts[0].text_sha256 == measured().prompts[0].text_sha256
    own = replace(measured(), prompts=tuple(replace(p, text_sha256="ab" * 32) for p in measured().prompts))
    assert {prompt.text_sha256 for prompt in redacted(own).profile.prompts} == {""}


def test_names_of_files_stay_only_if_asked_for():
    path = "/home/me/secret/My-Model.Q4_0.gguf"
    models = [
        replace(m, path=path, label="secret/My-Model.Q4_0" if i else m.label) for i, m in enumerate(measured().models)
    ]
    profile = replace(measured(), models=tuple(models[:2]), candidates=measured().candidates[:1], measurements=())
    kept, left = redacted(profile, keep_names=True).profile, redacted(profile).profile
    assert [model.path for model in kept.models] == ["My-Model.Q4_0.gguf"] * 2
    assert "My-Model.Q4_0" in [model.label for model in kept.models] and "secret" not in str(kept)
    assert "My-Model" not in str(left) and {model.path for model in left.models} == {""}


def test_a_shared_profile_shared_again_is_the_same():
    once = redacted(full()).profile
    assert redacted(once).profile == once


# --- words


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA GeForce RTX 3090",
        "NVIDIA GeForce RTX 4070 Laptop GPU",
        "NVIDIA H200",
        "NVIDIA A100-SXM4-80GB",
        "NVIDIA RTX 6000 Ada Generation",
        "AMD Instinct MI300X",
        "AMD Ryzen 9 7950X 16-Core Processor",
        "AMD EPYC 9554 64-Core Processor",
        "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz",
        "Apple M2 Max",
        "gpu: NVIDIA L40S",
    ],
)
def test_names_of_hardware_pass(name: str):
    assert words.hardware(name) == name


def test_other_words_of_hardware_do_not_pass():
    assert words.hardware("NVIDIA hunter2 RTX 3090 of alice-workstation GPU-8932f937") == "NVIDIA RTX 3090"


@pytest.mark.parametrize(
    "build",
    [
        "transformers 5.24.0, torch 2.13.0+cpu",
        "transformers 5.1.0, torch 2.9.1+cu128",
        "version: 6189 (abc1234f)",
        "version: xllamacpp 2026.10.11549",
        "b6189-abc1234",
        "570.133.20",
    ],
)
def test_versions_pass(build: str):
    assert words.version(build) == build
    assert words.version(f"{build} /opt/me") == build.rstrip(",")


@pytest.mark.parametrize(
    "quant",
    [
        "Q4_0",
        "Q4_K_M",
        "IQ4_XS",
        "UD-Q4_K_XL",
        "bf16",
        "F16",
        "fp8",
        "nf4",
        "int8",
        "w8a8",
        "gptq-int4-g128",
        "mlx-int4-g64",
    ]
    + [
        "bnb-nf4",
        "mxfp4",
        "nvfp4",
        "compressed-tensors-int4-g128",
        "q8_0",
        *dict.fromkeys(path.quant for path in PATHS),
    ],
)
def test_quantizations_pass(quant: str):
    assert words.quant(quant) == quant and words.quant(f"{quant} of alice") == ""


def test_only_flags_of_speed_pass_with_values_that_say_nothing_else():
    given_flags = (
        "-ngl",
        "99",
        "--api-key",
        "sk-1",
        "-fa",
        "on",
        "-ctk=q8_0",
        "--log-file",
        "/home/me/x",
        "--no-mmap",
        "/x",
    )
    assert words.speed_flags(given_flags) == ("-ngl", "99", "-fa", "on", "-ctk=q8_0", "--no-mmap")
    assert words.speed_flags(("-ngl", "secret", "-t=secret", "--threads")) == ("-ngl", "--threads")
    assert words.SPEED_FLAGS.issuperset(SPEED_FLAGS)


def test_a_key_says_what_was_left_out():
    key = Key(engine="llama.cpp", gpu="NVIDIA H200 at lab7.example", gpu_uuid="GPU-1", flags=("--api-key", "sk-1"))
    found = redacted(replace(full(), key=key))
    assert found.profile.key == Key(engine="llama.cpp", gpu="NVIDIA H200")
    assert found.left_out["engine flags and their values"] == 2 and found.left_out["UUID of the GPU"] == 1


# --- the file


def test_nothing_is_written_over_unless_forced_and_never_the_profile(tmp_path: Path):
    source, out = tmp_path / "profile.json", tmp_path / "shared.json"
    write_record(source, measured())
    exported(measured(), source, out)
    with pytest.raises(InputError, match="is there already"):
        exported(measured(), source, out)
    exported(measured(), source, out, force=True)
    (tmp_path / "link.json").symlink_to(source)
    for same in (source, tmp_path / "link.json"):
        with pytest.raises(InputError, match="the profile itself"):
            exported(measured(), source, same, force=True)
    assert read_record(source, Profile) == measured()

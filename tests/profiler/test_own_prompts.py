"""Own prompts: what a file may hold, what is refused with its line, what is drawn, and how texts are found again."""

import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from specgauge.profiler.engines import fake
from specgauge.profiler.engines.base import Unsupported
from specgauge.profiler.errors import InputError
from specgauge.profiler.job import Options, OwnChoice, Stamp, prepare, reopen
from specgauge.profiler.prompts import file as prompt_file
from specgauge.profiler.prompts.file import read_prompts
from specgauge.profiler.prompts.lengths import check_lengths
from specgauge.profiler.prompts.line import DEFAULT_NEW_TOKENS
from specgauge.profiler.prompts.of_job import check_stays_here
from specgauge.profiler.prompts.sample import LEAST_OF_A_CLASS, allotted, own_prompts
from specgauge.profiler.records import Message
from specgauge.profiler.workloads import text_sha256

STAMP = Stamp("2026-01-01T00:00:00+00:00", "0")
USER = {"role": "user", "content": "Why do rivers bend?"}


def written(path: Path, *lines: object) -> Path:
    """A file of these lines: text as it is, everything else as JSON."""
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        list(read_prompts(path))
    message = str(caught.value)
    assert "\n" not in message
    return message


# --- lines


def test_the_three_forms_of_a_prompt(tmp_path: Path):
    turns = [{"role": "system", "content": "Be short."}, USER, {"role": "assistant", "content": "An old reply."}]
    path = written(
        tmp_path / "p.jsonl",
        {"messages": turns, "class": "chat", "max_tokens": 32, "temperature": 1, "model": "x"},
        "",
        {"prompt": "def f(", "workload": "code"},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]},
    )
    talk, code, parts = read_prompts(path)
    assert talk.messages == (Message(role="system", content="Be short."), Message(role="user", content=USER["content"]))
    assert (talk.line, talk.workload, talk.new_tokens, talk.text) == (1, "chat", 32, "")
    assert (code.line, code.workload, code.text, code.messages) == (3, "code", "def f(", ())
    assert code.new_tokens == DEFAULT_NEW_TOKENS and code.sha256 == text_sha256("def f(")
    assert parts.messages == (Message(role="user", content="ab"),) and parts.workload == "prompts"


def test_lines_of_plain_text_are_prompts_as_they_stand(tmp_path: Path):
    path = tmp_path / "p.txt"
    path.write_bytes(b"\xef\xbb\xbfWhy do rivers bend?\r\n\r\n  { is a brace\n")
    assert [(found.line, found.text) for found in read_prompts(path)] == [
        (1, "Why do rivers bend?"),
        (3, "{ is a brace"),
    ]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"prompt": ', "not JSON"),
        ('{"prompt": "a\\ud800"}', "line 2"),
        ("[1, 2]", "not"),
        ('{"prompt": 3}', "not a prompt"),
        ({"messages": [{"role": "user"}]}, "content"),
        ({"messages": [{"role": "wizard", "content": "a"}]}, "role of message 1"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "u"}]}]}, "more than text"),
        ({"messages": [{"role": "assistant", "content": "a"}]}, "no message asks"),
        ({"messages": []}, "no message asks"),
        ({"prompt": "a", "messages": [USER]}, "either"),
        ({"class": "code"}, "either"),
        ({"prompt": "  "}, "empty"),
        ({"prompt": "a\0b"}, "NUL"),
        ({"prompt": "a", "max_tokens": 1}, "max_tokens 1"),
        ({"prompt": "a", "max_tokens": 10**30}, "line 2"),
        ({"prompt": "a", "class": "x" * 41}, "class"),
        ({"prompt": "a", "class": "\u202e"}, "class"),
        ({"prompt": "first"}, "the same prompt as line 1"),
        ("[" * 100_000, "line 2"),
        ('{"prompt": ' + "[" * 100_000, "line 2"),
    ],
)
def test_a_wrong_line_is_refused_by_its_number(tmp_path: Path, line: object, says: str):
    message = refusal(written(tmp_path / "p.jsonl", {"prompt": "first"}, line))
    assert "line 2" in message and says in message and len(message) < 500


def test_files_that_hold_no_prompts_are_refused(tmp_path: Path):
    assert "no prompt" in refusal(written(tmp_path / "empty.jsonl"))
    assert "no prompt" in refusal(written(tmp_path / "blank.txt", "", "   "))
    assert "does not exist" in refusal(tmp_path / "missing.jsonl")
    assert "regular file" in refusal(tmp_path)
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    assert "line 1: not UTF-8" in refusal(tmp_path / "binary")
    assert "line 1: not JSON objects" in refusal(written(tmp_path / "list.json", "[", '{"prompt": "a"}', "]"))


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(tmp_path: Path):
    path = tmp_path / "long.jsonl"
    with open(path, "wb") as file:
        file.write(b'{"prompt": "a"}\n{"prompt": "')
        file.truncate(2 * 2**30)  # sparse: takes no room on the disk
    tracemalloc.start()
    message = refusal(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "line 2: longer than 1 MiB" in message and most < 16 * 2**20


def test_more_than_there_is_room_for_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = written(tmp_path / "p.txt", *(f"prompt {i}" for i in range(10)))
    monkeypatch.setattr(prompt_file, "MOST_PROMPTS", 9)
    assert "line 10" in refusal(path)
    monkeypatch.setattr(prompt_file, "MOST_BYTES", 40)
    assert "line 5" in refusal(path)


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_whatever_a_file_holds_it_is_prompts_or_one_line_of_refusal(tmp_path_factory: pytest.TempPathFactory, parts):
    path = tmp_path_factory.mktemp("any") / "p.jsonl"
    path.write_bytes(b"\n".join(parts))
    try:
        assert list(read_prompts(path))
    except InputError as error:
        assert "\n" not in str(error) and "line " in str(error)


SECRET = "hunter2-zzsecret"


@pytest.mark.parametrize(
    "line",
    [
        f'{{"prompt": "{SECRET}", }}',
        {"messages": [{"role": SECRET, "content": SECRET}]},
        {"messages": [{"role": "user", "content": [{"type": SECRET, "text": SECRET}]}]},
        {"prompt": SECRET, "max_tokens": SECRET},
        {"prompt": SECRET, "class": "\n" + SECRET * 9},
    ],
)
def test_no_refusal_tells_a_word_of_the_prompt(tmp_path: Path, line: object):
    assert SECRET not in refusal(written(tmp_path / "p.jsonl", line))


# --- the draw


def mixed_file(folder: Path) -> Path:
    code = [{"prompt": f"code {i}", "class": "code", "max_tokens": 64} for i in range(70)]
    chat = [{"prompt": f"chat {i}", "class": "chat", "max_tokens": 64} for i in range(30)]
    return written(folder / "mixed.jsonl", *code, *chat)


def test_classes_are_drawn_by_their_shares_and_no_prompt_twice(tmp_path: Path):
    own = own_prompts(mixed_file(tmp_path), 20, seed=3)
    counts = {name: sum(p.prompt.workload == name for p in own.prompts) for name in ("code", "chat")}
    assert counts == {"code": 14, "chat": 6} and own.in_file == 100
    assert own.shares == pytest.approx({"code": 0.7, "chat": 0.3})
    assert len({p.prompt.text_sha256 for p in own.prompts}) == len({p.prompt.id for p in own.prompts}) == 20
    assert [p.prompt.workload_class for p in own.prompts[:1]] == ["code"]


def test_shares_are_of_the_tokens_that_are_asked_for(tmp_path: Path):
    lines = [
        {"prompt": "a", "class": "long", "max_tokens": 90},
        *({"prompt": f"b{i}", "class": "short", "max_tokens": 10} for i in range(9)),
    ]
    assert own_prompts(written(tmp_path / "p.jsonl", *lines)).shares == pytest.approx({"long": 0.5, "short": 0.5})


def test_a_draw_is_that_of_its_seed_and_a_larger_one_holds_the_smaller(tmp_path: Path):
    path = mixed_file(tmp_path)

    def drawn(count: int, seed: int) -> set[str]:
        return {p.prompt.id for p in own_prompts(path, count, seed).prompts}

    assert drawn(20, 1) == drawn(20, 1) != drawn(20, 2)
    assert drawn(20, 1) < drawn(60, 1)
    assert len(drawn(1000, 1)) == 100


def test_every_prompt_has_the_same_chance(tmp_path: Path):
    path, drawn = written(tmp_path / "p.txt", *(f"prompt {i}" for i in range(20))), dict.fromkeys(range(1, 21), 0)
    for seed in range(400):
        for prompt in own_prompts(path, 5, seed).prompts:
            drawn[prompt.line] += 1
    expected = 400 * 5 / 20
    chi2 = sum((count - expected) ** 2 / expected for count in drawn.values()) / (1 - 5 / 20)
    assert chi2 < 43.8  # 0.999 of chi-square with 19 degrees of freedom


@given(st.dictionaries(st.text(max_size=3), st.integers(1, 50), min_size=1, max_size=8), st.integers(1, 60))
def test_an_allotment_is_whole_and_within_bounds(prompts: dict[str, int], count: int):
    given_out = allotted(prompts, count)
    assert given_out.keys() == prompts.keys()
    for name, here in prompts.items():
        assert min(here, LEAST_OF_A_CLASS) <= given_out[name] <= here
    assert sum(given_out.values()) >= min(count, sum(prompts.values()))


def test_too_many_classes_are_refused_by_line(tmp_path: Path):
    path = written(tmp_path / "p.jsonl", *({"prompt": f"p{i}", "class": f"c{i}"} for i in range(9)))
    with pytest.raises(InputError, match="line 9: more than 8 classes"):
        own_prompts(path)


# --- a job over them


def options(file: Path | None, store: bool = False, count: int = 0, context: int = 0) -> Options:
    own = OwnChoice(file, count, store)
    return Options(engine="fake:interior-tie", own=own, context=context)


def job(folder: Path, file: Path | None, **choice):
    return prepare(options(file, **choice), STAMP, folder, lambda text: None)


def test_a_job_runs_over_own_prompts_and_its_profile_holds_only_their_hashes(tmp_path: Path):
    made = job(tmp_path, mixed_file(tmp_path), count=10, context=4096)
    assert [p.prompt for p in made.prompts] == list(made.blank.prompts) and len(made.prompts) == 10
    assert made.blank.workload_shares == pytest.approx({"code": 0.7, "chat": 0.3})
    assert {candidate.context for candidate in made.blank.candidates} == {4096}
    assert made.blank.prompt_texts == () and "code 1" not in str(made.blank)


def test_texts_are_found_again_by_hash_or_where_they_were_stored(tmp_path: Path):
    file = mixed_file(tmp_path)
    made, stored = job(tmp_path, file), job(tmp_path, file, store=True)
    again = reopen(made.blank, options(file), tmp_path)
    assert [(p.text, p.prompt) for p in again.prompts] == [(p.text, p.prompt) for p in made.prompts]
    kept = reopen(stored.blank, options(None), tmp_path)
    assert [p.words for p in kept.prompts] == [p.words for p in stored.prompts]
    with pytest.raises(InputError, match="--prompts FILE"):
        reopen(made.blank, options(None), tmp_path)
    with pytest.raises(InputError, match="not the file that was profiled: it has not the prompt"):
        reopen(made.blank, options(written(tmp_path / "other.txt", "another prompt")), tmp_path)


def test_a_file_that_grew_is_still_the_file(tmp_path: Path):
    file = mixed_file(tmp_path)
    made = job(tmp_path, file)
    with open(file, "a") as grown:
        grown.write('{"prompt": "one more"}\n')
    assert len(reopen(made.blank, options(file), tmp_path).prompts) == len(made.prompts)


def test_options_of_own_prompts_need_their_file(tmp_path: Path):
    for choice in ({"store": True}, {"count": 3}):
        with pytest.raises(InputError, match="give --prompts FILE"):
            job(tmp_path, None, **choice)


def test_flags_that_log_prompts_are_refused(tmp_path: Path):
    asked = Options(flags=("-ngl", "9", "--verbose"), own=OwnChoice(mixed_file(tmp_path)))
    with pytest.raises(InputError, match="--verbose has llama-server write prompts"):
        prepare(asked, STAMP, tmp_path, lambda text: None)


@pytest.mark.parametrize("url", ["http://gpu7.example:8080", "https://10.0.0.7", "http://[2001:db8::1]:80"])
def test_own_prompts_are_sent_to_no_other_machine(tmp_path: Path, url: str):
    asked = Options(targets=(tmp_path / "m.gguf",), server_url=url, own=OwnChoice(mixed_file(tmp_path)))
    with pytest.raises(InputError, match="another machine"):
        prepare(asked, STAMP, tmp_path, lambda text: None)


@pytest.mark.parametrize("url", ["http://localhost:8080", "http://127.0.0.1:8080", "http://[::1]:8080", None])
def test_a_server_on_this_machine_is_asked(url: str | None):
    check_stays_here(url)


# --- lengths


class Refusing(fake.FakeEngine):
    """An engine whose template takes no second prompt."""

    def __init__(self):
        super().__init__(fake.MACHINES["interior-tie"])

    def prompt_tokens(self, setting, prompts):
        yield 5
        raise Unsupported("its messages do not go into the chat template (roles must alternate)")


def test_a_prompt_that_does_not_fit_is_refused_by_line_with_the_context_that_it_needs(tmp_path: Path):
    file = written(tmp_path / "p.jsonl", {"prompt": "short"}, {"prompt": "word " * 3000, "max_tokens": 100})
    made = job(tmp_path, file)
    with pytest.raises(InputError, match=r"line 2: 3,000 tokens.* 2,048 of context; give --context (\d+)") as caught:
        check_lengths(made.engine, made.blank, made.prompts)
    needed = int(str(caught.value).split("--context ")[1].split()[0])
    roomy = job(tmp_path, file, context=needed)
    check_lengths(roomy.engine, roomy.blank, roomy.prompts)
    longest = max(max(candidate.draft_tokens) for candidate in roomy.blank.candidates)
    assert needed - 256 < 3000 + 100 + longest + 1 <= needed


def test_what_a_template_refuses_is_told_with_its_line(tmp_path: Path):
    made = job(tmp_path, written(tmp_path / "p.jsonl", {"messages": [USER]}, {"prompt": "second"}))
    with pytest.raises(InputError, match="line 2: its messages do not go into the chat template"):
        check_lengths(Refusing(), made.blank, made.prompts)


def test_prompts_that_specgauge_brings_are_not_counted(tmp_path: Path):
    made = job(tmp_path, None)
    blank = replace(made.blank, candidates=tuple(replace(c, context=1) for c in made.blank.candidates))
    check_lengths(made.engine, blank, made.prompts)

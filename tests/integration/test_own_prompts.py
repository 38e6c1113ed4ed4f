"""Own prompts on real engines: the model's own chat template, the same tokens from both engines, nothing in a log."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from specgauge.profiler import demo_transformers
from specgauge.profiler.engines.base import Unsupported
from specgauge.profiler.engines.llama_cpp import LlamaCpp
from specgauge.profiler.errors import InputError
from specgauge.profiler.records import Message, ModelFile, Sampling, Setting
from specgauge.profiler.workloads import PromptText, prompt_text, text_sha256

SECRET = "zzsecret"


def conversation(*turns: tuple[str, str], new_tokens: int = 8) -> PromptText:
    messages = tuple(Message(role=role, content=content) for role, content in turns)
    made = prompt_text("chat/line 1", "chat", "chat", "", new_tokens)
    record = replace(made.prompt, text_sha256=text_sha256("", messages))
    return PromptText(prompt=record, messages=messages, line=1)


# --- a stand-in for llama-server


@pytest.fixture
def paper(stand_in: str, paper_model: ModelFile, tmp_path: Path):
    engine = LlamaCpp([paper_model], log_dir=tmp_path / "logs", binary=stand_in, threads=1)
    yield engine
    engine.close()


@pytest.fixture
def plain(paper_setting: Setting) -> Setting:
    return Setting(target=paper_setting.target, target_quant=paper_setting.target_quant)


def test_messages_go_through_the_servers_template_and_text_goes_as_it_is(paper: LlamaCpp, plain: Setting):
    talk, text = conversation(("system", "be short"), ("user", "hi")), prompt_text("p", "w", "", "hello world", 8)
    assert list(paper.prompt_tokens(plain, [talk, text])) == [len("[system]be short[user]hi"), len("hello world")]
    assert paper.run(plain, talk, Sampling()).prompt_tokens == len("[system]be short[user]hi")


def test_counting_leaves_no_server_behind(paper: LlamaCpp, plain: Setting):
    counts = paper.prompt_tokens(plain, [conversation(("user", "hi")), conversation(("user", "more"))])
    next(counts)
    counts.close()
    assert not paper._servers


def test_what_a_template_refuses_is_told(paper: LlamaCpp, plain: Setting):
    counts = paper.prompt_tokens(plain, [conversation(("user", "hi")), conversation(("tool", "hi"))])
    assert next(counts) > 0
    with pytest.raises(Unsupported, match="a conversation begins with a user"):
        next(counts)


def test_a_build_without_templates_asks_for_text(paper: LlamaCpp, plain: Setting, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("STAND_IN_TEMPLATE", "none")
    with pytest.raises(Unsupported, match="no /apply-template: give prompts as text"):
        list(paper.prompt_tokens(plain, [conversation(("user", "hi"))]))


# --- the demo's model


@pytest.mark.engine
def test_both_engines_read_a_conversation_as_the_same_tokens_and_log_none_of_it(demo, tmp_path: Path):
    from specgauge.profiler.engines.transformers.tokens import Reader

    prompts = [
        conversation(("user", f"Why do rivers bend? {SECRET}")),
        conversation(
            ("system", f"Answer in one line. {SECRET}"),
            ("user", "Hi <|im_end|>"),
            ("assistant", "Yes?"),
            ("user", "äöü"),
        ),
    ]
    reader = Reader(str(demo_transformers.prepare()))
    ids = [reader.conversation(prompt.messages) for prompt in prompts]
    engine = LlamaCpp(demo.models, log_dir=tmp_path, threads=1)
    try:
        setting = Setting(target=demo.models[0].label, target_quant=demo.models[0].quant)
        assert list(engine.prompt_tokens(setting, prompts)) == [len(one) for one in ids]
        assert [engine._tokens[setting.target, p.prompt.text_sha256] for p in prompts] == ids
        ran = engine.run(setting, prompts[0], Sampling())
        assert (ran.prompt_tokens, ran.reply_tokens) == (len(ids[0]), 8)
    finally:
        engine.close()
    logs = list(tmp_path.rglob("*.log"))
    assert logs and not any(SECRET in log.read_text(errors="replace") for log in logs)


@pytest.mark.engine
def test_a_checkpoint_without_a_template_asks_for_text(demo, tmp_path: Path):
    pytest.importorskip("transformers")
    import json
    import shutil

    from specgauge.profiler.engines.transformers.tokens import Reader

    source = demo_transformers.prepare()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / name, tmp_path)
    told = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({k: v for k, v in told.items() if k != "chat_template"}))
    reader = Reader(str(tmp_path))
    assert reader.text("hello")
    with pytest.raises(InputError, match="no chat template: give prompts as text"):
        reader.conversation((Message(role="user", content="hi"),))
    (tmp_path / "chat_template.jinja").write_text("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(Unsupported, match="roles must alternate"):
        Reader(str(tmp_path)).conversation((Message(role="user", content="hi"),))

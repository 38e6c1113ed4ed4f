"""Loading: the same logits as transformers' own loader, sizes told beforehand, one line for what cannot be loaded."""

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers")

import torch
import transformers
from safetensors.torch import load_file, save_file

from specgauge.profiler import demo, demo_transformers
from specgauge.profiler.engines.transformers import description, loading
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


def test_fp32_does_too(tmp_path):
    folder = saved(tmp_path / "model")
    own = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    assert torch.equal(loading.load(folder, quant="fp32").model(TEXT).logits, own(TEXT).logits)


@pytest.mark.parametrize(
    ("dtype", "quant"), [(torch.bfloat16, "bf16"), (torch.float32, "fp32"), (torch.float16, "bf16")]
)
def test_weights_that_are_not_quantized_are_taken_as_stored(tmp_path, dtype, quant):
    folder = tmp_path / "model"
    tiny_llama(vocabulary=128).to(dtype).save_pretrained(folder)
    told = described(folder, "")
    assert (told.quant, told.label) == (quant, f"model-{quant}")
    assert loading.load(Path(told.path), quant="").quant == quant


def test_parts_of_a_checkpoint_are_read_like_one_file(tmp_path):
    whole = saved(tmp_path / "whole")
    transformers.AutoModelForCausalLM.from_pretrained(whole, dtype=torch.bfloat16).save_pretrained(
        tmp_path / "parts", max_shard_size="60KB"
    )
    assert len(list((tmp_path / "parts").glob("*.safetensors"))) > 1
    one, other = (loading.load(tmp_path / name, quant="int4").model(TEXT).logits for name in ("whole", "parts"))
    assert torch.equal(one, other)


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


def test_random_matrices_of_a_shape_share_values_and_no_memory(tmp_path):
    folder = saved(tmp_path / "model")
    for quant in ("bf16", "int8", "int4"):
        made = [loading.load(folder, quant=quant, random_weights=True, seed=seed).model for seed in (1, 1, 2)]
        places = [tensor.data_ptr() for tensor in (*made[0].parameters(), *made[0].buffers())]
        assert len(set(places)) == len(places)
        first, again, other = (model(TEXT).logits for model in made)
        assert torch.equal(first, again)
        assert not torch.equal(first, other)


def test_a_label_is_the_name_that_a_person_knows(tmp_path):
    folder = saved(tmp_path / "models--some--Tiny-1B" / "snapshots" / "0123abc")
    told = described(folder, "int4")
    assert told.label == "Tiny-1B-int4"
    for given in (folder / "config.json", folder / "model.safetensors"):
        assert described(given, "int4").sha256 == told.sha256


def test_the_hash_is_that_of_the_weights_and_of_both_ends_of_a_large_file(tmp_path, monkeypatch):
    folder = saved(tmp_path / "model")
    file = folder / "model.safetensors"
    assert described(folder, "bf16").sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    monkeypatch.setattr(description, "WHOLE_HASH_BYTES", 1000)
    monkeypatch.setattr(description, "END_HASH_BYTES", 100)
    told = []
    for changed in ([], [-50], [-5000]):
        content = bytearray(file.read_bytes())
        for place in changed:
            content[place] ^= 1
        (tmp_path / "other").mkdir(exist_ok=True)
        (tmp_path / "other" / "config.json").write_bytes((folder / "config.json").read_bytes())
        (tmp_path / "other" / "model.safetensors").write_bytes(content)
        description._file_sha256.cache_clear()
        told.append(described(tmp_path / "other", "bf16").sha256)
    assert all(one.startswith("partial:") for one in told)
    assert told[0] != told[1]
    assert told[0] == told[2]


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
        (lambda folder: (folder / "config.json").write_text("{"), "damaged"),
        (
            lambda folder: (folder / "config.json").write_text('{"model_type": "no-such-thing"}'),
            "no model that transformers",
        ),
        (lambda folder: change(folder, num_hidden_layers=3), "holds no tensor model.layers.2"),
        (lambda folder: change(folder, intermediate_size=96), "the config says"),
        (lambda folder: change(folder, hidden_size=1 << 41), "damaged"),
        (lambda folder: change(folder, num_hidden_layers=10**6), "no model has 1000000 layers"),
        (lambda folder: change(folder, vocab_size="many"), "no model that transformers"),
        (lambda folder: in_integers(folder), "is stored as I8"),
        (lambda folder: os.rename(folder / "model.safetensors", folder / "pytorch_model.bin"), "pickles"),
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


def in_integers(folder: Path) -> None:
    path = folder / "model.safetensors"
    save_file({name: tensor.to(torch.int8) for name, tensor in load_file(path).items()}, path)


def change(folder: Path, **fields: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_a_checkpoint_quantized_by_a_package_that_is_not_here_names_it(tmp_path):
    pytest.importorskip("torch")
    folder = saved(tmp_path / "model")
    change(folder, quantization_config={"quant_method": "gptq", "bits": 4, "group_size": 128})
    if importlib.util.find_spec("gptqmodel"):
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


def test_torchao_is_loaded_as_it_was_stored(tmp_path):
    config = pytest.importorskip("torchao.quantization", reason="torchao is optional").Int8WeightOnlyConfig()
    folder, stored = saved(tmp_path / "model"), tmp_path / "ao"
    transformers.AutoModelForCausalLM.from_pretrained(
        folder, quantization_config=transformers.TorchAoConfig(config), dtype=torch.bfloat16
    ).save_pretrained(stored)
    told, loaded = described(stored, ""), loading.load(stored, quant="")
    exact = loading.load(folder).model(TEXT).logits.float()
    assert ((loaded.model(TEXT).logits.float() - exact).norm() / exact.norm()).item() < 0.1
    assert told.quant == "torchao-int8"
    assert loaded.weight_bytes == pytest.approx(told.size_bytes - told.unread_bytes, rel=0.15)


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
    grown = int(done.stdout.split()[-1])
    assert grown > 2**20, "a load that takes no memory was not measured"
    return grown


def test_loading_in_int4_takes_little_more_memory_than_the_file(tmp_path):
    folder = tmp_path / "wide"
    saved(
        folder, vocabulary=32000, hidden_size=1024, intermediate_size=4096, num_hidden_layers=4, num_attention_heads=16,
        num_key_value_heads=4,
    )  # fmt: skip
    size = (folder / "model.safetensors").stat().st_size
    assert peak_of_loading(folder) <= 1.3 * size + 2**30


@pytest.mark.slow
def test_loading_a_model_of_a_billion_weights_in_int4_takes_less_memory_than_its_file(tmp_path):
    config = transformers.LlamaConfig(
        vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
        num_key_value_heads=8, tie_word_embeddings=True, dtype="bfloat16",
    )  # fmt: skip
    config.save_pretrained(tmp_path)
    made = loading.load(tmp_path, random_weights=True).model.state_dict()
    made.pop("lm_head.weight")
    save_file(made, tmp_path / "model.safetensors")
    size = (tmp_path / "model.safetensors").stat().st_size
    peak = peak_of_loading(tmp_path)
    print(f"{size / 2**20:.0f} MiB in bf16, peak {peak / 2**20:.0f} MiB")
    assert peak <= size


def test_the_demo_has_the_tokenizer_of_its_gguf():
    folder = demo_transformers.prepare()
    text = demo.prompts()[0].text
    ids = tokenizer_of(str(folder)).encode(text).ids
    whole = transformers.AutoTokenizer.from_pretrained(folder)
    assert whole.decode(ids) == text
    assert whole.convert_ids_to_tokens(ids)[0] == "<|im_start|>"
    assert list(tokenizer_of(str(demo.source_path())).encode(text)) == ids


def test_the_demo_has_the_rows_of_its_gguf_in_transformers_order():
    """GGUF interleaves the two halves of each head of q and k (ggml-org/llama.cpp, convert_hf_to_gguf.py)."""
    gguf = pytest.importorskip("gguf")
    found = {tensor.name: tensor for tensor in gguf.GGUFReader(demo.source_path()).tensors}
    stored = load_file(demo_transformers.prepare() / "model.safetensors")
    for name, own, heads in (("attn_q", "q_proj", 9), ("attn_k", "k_proj", 3)):
        packed = found[f"blk.7.{name}.weight"]
        rows = gguf.dequantize(packed.data, packed.tensor_type)
        halves = stored[f"model.layers.7.self_attn.{own}.weight"].reshape(heads, 2, 32, -1)
        assert torch.equal(halves.swapaxes(1, 2).reshape(rows.shape), torch.tensor(rows).bfloat16())


def packed_gguf(model: Any, path: Path, kind: str) -> Path:
    """The GGUF file of a Llama, its matrices as `kind`, rows of q and k in GGUF's order."""
    gguf = pytest.importorskip("gguf")
    config, quant = model.config, gguf.GGMLQuantizationType[kind]
    writer, names = gguf.GGUFWriter(path, "llama"), gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
    writer.add_block_count(2)
    writer.add_context_length(512)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"t{token}" for token in range(config.vocab_size)])
    writer.add_token_merges(["t 1"])
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, tensor in model.state_dict().items():
        values, own = tensor.float(), names.get_name(name, try_suffixes=(".weight",))
        count = next((count for part, count in heads.items() if part in name), 0)
        if count:
            values = values.reshape(count, 2, -1, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
        raw = values.numpy() if values.ndim == 1 else gguf.quantize(values.contiguous().numpy(), quant)
        writer.add_tensor(own, raw, raw_dtype=None if values.ndim == 1 else quant)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(("kind", "most"), [("F32", 1e-5), ("Q8_0", 0.06)])
def test_a_gguf_file_gives_the_logits_of_the_model_that_it_was_made_of(tmp_path, kind, most):
    model = tiny_llama(vocabulary=128, hidden_size=64, intermediate_size=128, spread=0.2)
    path = packed_gguf(model, tmp_path / "model.gguf", kind)
    found, exact = loading.load(path, quant="fp32").model(TEXT).logits, model(TEXT).logits
    assert ((found - exact).norm() / exact.norm()).item() < most


def test_a_gguf_file_is_quantized_like_a_folder(tmp_path):
    model = tiny_llama(vocabulary=128, hidden_size=64, intermediate_size=128, spread=0.2).bfloat16()
    path = packed_gguf(model, tmp_path / "model.gguf", "F32")
    model.save_pretrained(tmp_path / "folder")
    one, other = (loading.load(source, quant="int4") for source in (path, tmp_path / "folder"))
    assert torch.equal(one.model(TEXT).logits, other.model(TEXT).logits)
    told = [described(source, "int4") for source in (path, tmp_path / "folder")]
    assert (told[0].size_bytes, told[0].parameters) == (told[1].size_bytes, told[1].parameters)
    assert (told[0].label, described(path, "").quant) == ("model-int4", "bf16")
    os.truncate(path, 20000)
    with pytest.raises(InputError, match="truncated"):
        loading.load(path)


@pytest.mark.slow
def test_the_demos_gguf_gives_the_logits_of_the_folder_that_was_made_of_it():
    folder, gguf = demo_transformers.prepare(), demo.source_path()
    text = torch.tensor([tokenizer_of(str(folder)).encode("Rivers bend because").ids])
    for quant in ("bf16", "int4"):
        one, other = (loading.load(source, quant=quant).model(text).logits for source in (folder, gguf))
        assert torch.equal(one, other)
    told = [described(source, "int4") for source in (folder, gguf)]
    assert told[0].tokenizer_sha256 == told[1].tokenizer_sha256 != ""


def test_a_damaged_demo_is_made_again_and_an_unusable_cache_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(demo_transformers, "_unpack", lambda source, folder: (folder / "config.json").write_text("{}"))
    said: list[str] = []
    folder = demo_transformers.prepare(tmp_path, said.append)
    assert demo_transformers.prepare(tmp_path, said.append) == folder
    assert len(said) == 1
    (folder / "config.json").write_text("{ }")
    demo_transformers.prepare(tmp_path, said.append)
    assert "making it again" in said[1]
    assert (folder / "config.json").read_text() == "{}"
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="SPECGAUGE_CACHE"):
        demo_transformers.prepare(tmp_path / "file")

import json

import numpy as np
import pytest
import safetensors.numpy

from mlc_errors import MLCError, UnsupportedError
from mlc_toolchain.lora import LoraCheckpoint
from mlc_toolchain.readers.safetensors import SafetensorsReader

RANK, ALPHA = 2, 8
CONFIG = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "fan_in_fan_out": False, "use_dora": False}
RNG = np.random.default_rng(0)


def matrix(*shape, dtype=np.float16):
    return RNG.standard_normal(shape).astype(dtype)


BASE = {
    "model.layers.0.self_attn.q_proj.weight": matrix(6, 4),
    "model.embed_tokens.weight": matrix(10, 4),
    "model.norm.weight": matrix(4),
    "lm_head.weight": matrix(10, 4),
}
Q = "base_model.model.model.layers.0.self_attn.q_proj"


def opened(folder, tensors, base=BASE, **config):
    safetensors.numpy.save_file(base, folder / "model.safetensors")
    safetensors.numpy.save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(CONFIG | config))
    return LoraCheckpoint(SafetensorsReader(folder / "model.safetensors"), folder)


def pair(name=Q, out=6, inputs=4):
    return {
        f"{name}.lora_A.weight": matrix(RANK, inputs, dtype=np.float32),
        f"{name}.lora_B.weight": matrix(out, RANK, dtype=np.float32),
    }


def test_the_product_is_added_in_float32(tmp_path):
    adapter = pair()
    checkpoint = opened(tmp_path, adapter)
    name = "model.layers.0.self_attn.q_proj.weight"
    made = checkpoint.read(name)
    product = adapter[f"{Q}.lora_B.weight"].astype(np.float64) @ adapter[f"{Q}.lora_A.weight"]
    np.testing.assert_allclose(made, BASE[name] + ALPHA / RANK * product, rtol=1e-5, atol=1e-6)
    assert made.dtype == np.float32
    assert checkpoint.info(name).dtype == "float32"
    assert np.array_equal(checkpoint.read("model.norm.weight"), BASE["model.norm.weight"])
    assert checkpoint.names() == list(SafetensorsReader(tmp_path / "model.safetensors").names())
    assert tmp_path / "adapter_model.safetensors" in checkpoint.files()


def test_rslora_divides_by_the_root_of_the_rank(tmp_path):
    adapter = pair()
    made = opened(tmp_path, adapter, use_rslora=True).read("model.layers.0.self_attn.q_proj.weight")
    product = adapter[f"{Q}.lora_B.weight"] @ adapter[f"{Q}.lora_A.weight"]
    base = BASE["model.layers.0.self_attn.q_proj.weight"]
    np.testing.assert_allclose(made, base + ALPHA / RANK**0.5 * product, rtol=1e-5, atol=1e-5)


def test_embeddings_and_saved_modules(tmp_path):
    embed = "base_model.model.model.embed_tokens.lora_embedding"
    head = matrix(10, 4, dtype=np.float32)
    adapter = {
        f"{embed}_A": matrix(RANK, 10, dtype=np.float32),
        f"{embed}_B": matrix(4, RANK, dtype=np.float32),
        "base_model.model.lm_head.weight": head,
    }
    checkpoint = opened(tmp_path, adapter)
    product = (adapter[f"{embed}_B"] @ adapter[f"{embed}_A"]).T
    expected = BASE["model.embed_tokens.weight"] + ALPHA / RANK * product
    np.testing.assert_allclose(checkpoint.read("model.embed_tokens.weight"), expected, rtol=1e-5, atol=1e-6)
    assert np.array_equal(checkpoint.read("lm_head.weight"), head)


def test_weights_stored_transposed_and_names_without_prefix(tmp_path):
    base = {"h.0.attn.c_attn.weight": matrix(4, 6)}
    adapter = pair("base_model.model.transformer.h.0.attn.c_attn")
    made = opened(tmp_path, adapter, base, fan_in_fan_out=True).read("h.0.attn.c_attn.weight")
    first, second = adapter.values()
    np.testing.assert_allclose(made, base["h.0.attn.c_attn.weight"] + ALPHA / RANK * (second @ first).T, rtol=1e-5)


def test_an_adapter_of_another_model_is_an_error(tmp_path):
    with pytest.raises(MLCError, match=r"layers.7.self_attn.q_proj.weight', which the checkpoint lacks") as caught:
        opened(tmp_path, pair("base_model.model.model.layers.7.self_attn.q_proj"))
    assert caught.value.hint == "near: model.layers.0.self_attn.q_proj.weight"
    with pytest.raises(MLCError, match=r"gives \[5, 4\]; .* of the checkpoint has \[6, 4\]"):
        opened(tmp_path, pair(out=5))
    alone = {name: value for name, value in pair().items() if "lora_A" in name}
    with pytest.raises(MLCError, match=r"without its lora_B.weight"):
        opened(tmp_path, alone)
    alone = {name: value for name, value in pair().items() if "lora_B" in name}
    with pytest.raises(MLCError, match="without its other half"):
        opened(tmp_path, alone)


@pytest.mark.parametrize(
    "config", [{"peft_type": "IA3"}, {"use_dora": True}, {"alpha_pattern": {"q_proj": 4}}, {"rank_pattern": {"q": 1}}]
)
def test_what_is_no_plain_lora_is_unsupported(config, tmp_path):
    with pytest.raises(UnsupportedError):
        opened(tmp_path, pair(), **config)


@pytest.mark.parametrize("config", [{"r": 0}, {"r": None}, {"lora_alpha": "8"}])
def test_impossible_ranks(config, tmp_path):
    with pytest.raises(MLCError, match="expected positive numbers"):
        opened(tmp_path, pair(), **config)

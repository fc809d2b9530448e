"""Block-scaled fp8 and AWQ checkpoints converted without requantization, and models compiled for them."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaForCausalLM

from mlc_errors import UnsupportedError
from mlc_runtime import LLM
from mlc_toolchain.compile import CompileOptions, compile_model
from mlc_toolchain.convert_weight import ConvertOptions, convert_weight
from mlc_toolchain.gen_config import GenConfigOptions, gen_config
from tests.model_zoo.interpreted import hf_logits
from tests.toolchain import packing
from tests.toolchain.packing import as_torch
from tests.toolchain.test_convert_weight import tensors_of

BLOCK, AWQ = "fp8_e4m3fn_bf16_block_scale", "q4f16_autoawq"
STATIC = f"{BLOCK}_static_activation"
SETTINGS = {
    BLOCK: {"quant_method": "fp8", "weight_block_size": [128, 128]},
    AWQ: {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": True},
}
PARTS = {BLOCK: ("weight", "weight_scale_inv"), AWQ: ("qweight", "qzeros", "scales")}
HIDDEN, INNER, IDS = 128, 256, [3, 1, 4, 1, 5]
FUSED = {
    "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attn.o_proj": ("self_attn.o_proj",),
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
    "mlp.down_proj": ("mlp.down_proj",),
}
Arrays = dict[str, np.ndarray]


def block_tensors(rng: np.random.Generator, name: str, outputs: int, inputs: int) -> tuple[Arrays, np.ndarray]:
    """The stored tensors of a layer, and its weights."""
    codes = (rng.standard_normal((outputs, inputs)) * 50).astype(ml_dtypes.float8_e4m3fn)
    scales = rng.uniform(0.001, 0.003, (-(-outputs // 128), inputs // 128)).astype(np.float32)
    values = codes.astype(np.float32) * np.repeat(np.repeat(scales, 128, 0)[:outputs], 128, 1)
    return {f"{name}.weight": codes, f"{name}.weight_scale_inv": scales}, values


def awq_tensors(rng: np.random.Generator, name: str, outputs: int, inputs: int) -> tuple[Arrays, np.ndarray]:
    codes, zeros, scales = packing.random_codes(rng, outputs, inputs, 128, 4)
    scales = (scales / 10).astype(np.float16)
    values = packing.values(codes, zeros, scales, np.arange(inputs) // 128)
    return packing.awq_tensors(name, codes, zeros, scales), values.astype(np.float32)


WRITERS = {BLOCK: block_tensors, AWQ: awq_tensors}


def llama(folder: Path, scheme: str, kv_heads: int = 4) -> tuple[Arrays, Path]:
    """A one-layer Llama stored for the scheme, and in float32 beside it; the stored tensors, and the second folder."""
    rng, keys = np.random.default_rng(0), kv_heads * 32
    sizes = {"self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.k_proj": (keys, HIDDEN), "mlp.gate_proj": (INNER, HIDDEN)}
    sizes |= {"self_attn.v_proj": (keys, HIDDEN), "self_attn.o_proj": (HIDDEN, HIDDEN)}
    sizes |= {"mlp.up_proj": (INNER, HIDDEN), "mlp.down_proj": (HIDDEN, INNER)}
    shared = {"model.embed_tokens.weight": rng.integers(-8, 8, (40, HIDDEN)).astype(np.float32) / 8}
    norms = ("norm", "layers.0.input_layernorm", "layers.0.post_attention_layernorm")
    shared |= {f"model.{norm}.weight": np.ones(HIDDEN, np.float32) for norm in norms}
    stored, plain = dict(shared), dict(shared)
    for layer, size in sizes.items():
        name = f"model.layers.0.{layer}"
        made, plain[f"{name}.weight"] = WRITERS[scheme](rng, name, *size)
        stored |= made
    config = {"model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": 1}
    config |= {"num_attention_heads": 4, "num_key_value_heads": kv_heads, "vocab_size": 40, "tie_word_embeddings": True}
    write(folder / "stored", stored, {**config, "quantization_config": SETTINGS[scheme]})
    write(folder / "plain", plain, config)
    return stored, folder / "plain"


def write(folder: Path, tensors: Arrays, config: dict) -> None:
    folder.mkdir()
    made = {name: as_torch(array) for name, array in tensors.items()}
    save_file(made, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))


def logits(source: Path, scheme: str, output: Path) -> np.ndarray:
    convert_weight(ConvertOptions(str(source), scheme, output))
    gen_config(GenConfigOptions(str(source), scheme, output))
    compile_model(CompileOptions(output, output / "lib.so", "cpu"))
    with LLM(output) as llm:
        return llm.logits(IDS)


@pytest.mark.parametrize("scheme", PARTS)
def test_a_checkpoint_is_kept_bit_by_bit_and_computed_with_its_weights(scheme: str, tmp_path: Path) -> None:
    stored, plain = llama(tmp_path, scheme)
    got = logits(tmp_path / "stored", scheme, tmp_path / "out")
    made = tensors_of(tmp_path / "out")
    axis = 1 if scheme == AWQ else 0
    for fused, layers in FUSED.items():
        for part in PARTS[scheme]:
            expected = np.concatenate([stored[f"model.layers.0.{layer}.{part}"] for layer in layers], axis=axis)
            assert made[f"model.layers.0.{fused}.{part}"].tobytes() == expected.tobytes()
    expected = hf_logits(LlamaForCausalLM.from_pretrained(plain).float().eval(), IDS)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_weights_whose_blocks_do_not_meet_are_quantized_again(tmp_path: Path) -> None:
    stored, plain = llama(tmp_path, BLOCK, kv_heads=2)
    made = {}
    for source in (tmp_path / "stored", plain):
        convert_weight(ConvertOptions(str(source), BLOCK, tmp_path / "out" / source.name))
        made[source.name] = tensors_of(tmp_path / "out" / source.name)
    fused, kept = "model.layers.0.self_attn.qkv_proj.weight", "model.layers.0.mlp.down_proj.weight"
    assert made["stored"][fused].tobytes() == made["plain"][fused].tobytes()
    assert made["stored"][kept].tobytes() == stored[kept].tobytes() != made["plain"][kept].tobytes()


def as_static(folder: Path, stored: Arrays, input_scales: dict[str, float]) -> Arrays:
    """The checkpoint in ``folder`` with one scale for the weights and one for the inputs of every layer."""
    made = {}
    for name, array in stored.items():
        if name.endswith("weight_scale_inv"):
            layer = name.removesuffix(".weight_scale_inv")
            made[name] = array.mean().reshape(())
            made[f"{layer}.activation_scale"] = np.float32(input_scales[layer.rpartition(".")[2]]).reshape(())
        else:
            made[name] = array
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None}
    save_file({name: as_torch(array) for name, array in made.items()}, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    return made


QKV, GATE_UP = dict.fromkeys(("q_proj", "k_proj", "v_proj"), 0.011), dict.fromkeys(("gate_proj", "up_proj"), 0.009)
INPUT_SCALES = {**QKV, "o_proj": 0.002, **GATE_UP, "down_proj": 0.003}


def test_inputs_are_rounded_with_the_scales_of_the_checkpoint(tmp_path: Path) -> None:
    """As in Ministral 3's files; in torch, each layer's inputs are rounded before."""
    stored, plain = llama(tmp_path, BLOCK)
    stored = as_static(tmp_path / "stored", stored, INPUT_SCALES)
    got = logits(tmp_path / "stored", STATIC, tmp_path / "out")
    made = tensors_of(tmp_path / "out")
    assert made["model.layers.0.mlp.down_proj.activation_scale"].tolist() == [np.float32(0.003)] * 2
    assert made["model.layers.0.self_attn.qkv_proj.activation_scale"].tolist() == [np.float32(0.011)]
    model = LlamaForCausalLM.from_pretrained(plain).float().eval()
    for name, layer in model.named_modules():
        if f"{name}.weight_scale_inv" in stored:
            scale = float(stored[f"{name}.activation_scale"])
            weight = stored[f"{name}.weight"].astype(np.float32) * stored[f"{name}.weight_scale_inv"]
            layer.weight.data = torch.from_numpy(weight)
            layer.register_forward_pre_hook(lambda _, inputs, scale=scale: (rounded(inputs[0], scale),))
    expected = hf_logits(model, IDS)
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-3 * np.abs(expected).max())


def rounded(x: torch.Tensor, scale: float) -> torch.Tensor:
    return (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() * scale


@pytest.mark.parametrize(
    ("scales", "message"),
    [
        ({**INPUT_SCALES, "k_proj": 0.012}, "q_proj.weight and model.layers.0.self_attn.k_proj.weight have different"),
        (None, "down_proj.weight is not made of whole float8 layers with blocks of 128 x 128 and scales of their"),
    ],
)
def test_checkpoints_whose_scales_of_inputs_do_not_fit(scales: dict | None, message: str, tmp_path: Path) -> None:
    stored, _ = llama(tmp_path, BLOCK)
    if scales:
        as_static(tmp_path / "stored", stored, scales)
    with pytest.raises(UnsupportedError, match=message):
        convert_weight(ConvertOptions(str(tmp_path / "stored"), STATIC, tmp_path / "out"))


def test_other_checkpoints_are_no_source_of_awq_codes(tmp_path: Path) -> None:
    _, plain = llama(tmp_path, AWQ)
    with pytest.raises(
        UnsupportedError, match="_proj.weight is not made of whole AWQ layers with groups of 128"
    ) as caught:
        convert_weight(ConvertOptions(str(plain), AWQ, tmp_path / "out"))
    assert caught.value.hint == "q4f16_1 and q4f16_3 quantize any checkpoint"
    assert not (tmp_path / "out").exists()

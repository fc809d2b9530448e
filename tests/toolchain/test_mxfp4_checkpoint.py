"""MXFP4 experts against transformers' dequantization, and a gpt-oss checkpoint that has them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from mlc_errors import MLCError
from mlc_toolchain.convert_weight import ConvertOptions, convert_weight
from mlc_toolchain.mxfp4_checkpoint import Mxfp4Checkpoint
from mlc_toolchain.readers.base import CheckpointError
from mlc_toolchain.readers.safetensors import SafetensorsReader
from quantization.group import decode
from quantization.schemes import SCHEMES
from tests.toolchain.test_convert_weight import tensors_of

EXPERTS, HIDDEN, INNER = 3, 64, 32
SETTINGS = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.embed_tokens", "lm_head"]}
Tensors = dict[str, np.ndarray]


def packed(rng: np.random.Generator, name: str, outputs: int, inputs: int) -> Tensors:
    blocks = rng.integers(0, 256, (EXPERTS, outputs, inputs // 32, 16), np.uint8)
    return {f"{name}_blocks": blocks, f"{name}_scales": rng.integers(119, 123, blocks.shape[:-1], np.uint8)}


def unpacked(tensors: Tensors, name: str) -> np.ndarray:
    """Dequantized experts, float32 [E, in, out]."""
    parts = (torch.from_numpy(tensors[f"{name}_{kind}"]) for kind in ("blocks", "scales"))
    return convert_moe_packed_tensors(*parts, dtype=torch.float32).numpy()


def opened(folder: Path, tensors: Tensors) -> Mxfp4Checkpoint:
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")
    return Mxfp4Checkpoint(SafetensorsReader(folder / "model.safetensors"))


def test_experts_are_read_as_transformers_decodes_them(tmp_path: Path) -> None:
    tensors = packed(np.random.default_rng(0), "experts.up", 5, HIDDEN)
    tensors["experts.up_scales"][0, :, 0] = [0, 1, 250, 100, 127]
    reader = opened(tmp_path, {**tensors, "norm.weight": np.ones(4, np.float32)})
    assert sorted(reader.names()) == ["experts.up", "norm.weight"]
    info = reader.info("experts.up")
    assert (info.shape, info.dtype, info.nbytes) == ((EXPERTS, HIDDEN, 5), "float32", EXPERTS * 5 * 2 * 17)
    assert [rows.shape for rows in reader.read_rows("experts.up")] == [(1, HIDDEN, 5)] * EXPERTS
    np.testing.assert_array_equal(reader.read("experts.up"), unpacked(tensors, "experts.up"))
    assert reader.read("norm.weight").tolist() == [1, 1, 1, 1]


BROKEN = {
    "no scales": lambda t: t.pop("up_scales"),
    "scales of another shape": lambda t: t.update(up_scales=t["up_scales"][:, :1]),
    "blocks of another type": lambda t: t.update(up_blocks=t["up_blocks"].astype(np.int8)),
    "blocks of another size": lambda t: t.update(up_blocks=t["up_blocks"][..., :8]),
    "weights beside the blocks": lambda t: t.update(up=np.ones(1, np.float32)),
}


@pytest.mark.parametrize("case", BROKEN)
def test_parts_that_do_not_fit_are_an_error(case: str, tmp_path: Path) -> None:
    tensors = packed(np.random.default_rng(0), "up", 5, HIDDEN)
    BROKEN[case](tensors)
    with pytest.raises(CheckpointError, match="up: got blocks") as caught:
        opened(tmp_path, tensors)
    assert caught.value.where == (str(tmp_path / "model.safetensors"),)


def gpt_oss(folder: Path, scale: int | None = None) -> Tensors:
    """A checkpoint of one layer; returns its tensors."""
    rng = np.random.default_rng(1)
    shapes = {"q_proj": (64, HIDDEN), "k_proj": (32, HIDDEN), "v_proj": (32, HIDDEN), "o_proj": (HIDDEN, 64)}
    attention = {f"self_attn.{name}.weight": shape for name, shape in shapes.items()}
    attention |= {f"self_attn.{name}.bias": shape[:1] for name, shape in shapes.items()}
    layer = {
        **attention,
        "self_attn.sinks": (4,),
        "input_layernorm.weight": (HIDDEN,),
        "post_attention_layernorm.weight": (HIDDEN,),
        "mlp.router.weight": (EXPERTS, HIDDEN),
        "mlp.router.bias": (EXPERTS,),
        "mlp.experts.gate_up_proj_bias": (EXPERTS, 2 * INNER),
        "mlp.experts.down_proj_bias": (EXPERTS, HIDDEN),
    }
    named = {f"model.layers.0.{name}": shape for name, shape in layer.items()}
    named |= {"model.embed_tokens.weight": (40, HIDDEN), "model.norm.weight": (HIDDEN,), "lm_head.weight": (40, HIDDEN)}
    tensors = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in named.items()}
    tensors |= packed(rng, "model.layers.0.mlp.experts.gate_up_proj", 2 * INNER, HIDDEN)
    tensors |= packed(rng, "model.layers.0.mlp.experts.down_proj", HIDDEN, INNER)
    if scale is not None:
        tensors["model.layers.0.mlp.experts.down_proj_scales"][:] = scale
    config = {"model_type": "gpt_oss", "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": 1}
    config |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 40}
    config |= {"num_local_experts": EXPERTS, "experts_per_token": 2, "quantization_config": SETTINGS}
    folder.mkdir()
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return tensors


def test_experts_of_a_model_keep_their_values(tmp_path: Path) -> None:
    """Rows of gates come before those of inputs, of which the checkpoint has one of each in turn."""
    tensors = gpt_oss(tmp_path / "source")
    convert_weight(ConvertOptions(str(tmp_path / "source"), "q0f16", tmp_path / "out"))
    made, mlp = tensors_of(tmp_path / "out"), "model.layers.0.mlp"
    up = np.swapaxes(unpacked(tensors, f"{mlp}.experts.gate_up_proj"), 1, 2)
    np.testing.assert_array_equal(
        made[f"{mlp}.moe_gate_up_proj.weight"], np.concatenate([up[:, ::2], up[:, 1::2]], axis=1)
    )
    down = np.swapaxes(unpacked(tensors, f"{mlp}.experts.down_proj"), 1, 2)
    np.testing.assert_array_equal(made[f"{mlp}.moe_down_proj.weight"], down)
    bias = tensors[f"{mlp}.experts.gate_up_proj_bias"].astype(np.float16)
    np.testing.assert_array_equal(
        made[f"{mlp}.moe_gate_up_proj.bias"], np.concatenate([bias[:, ::2], bias[:, 1::2]], axis=1)
    )


def test_a_scheme_keeps_the_codes(tmp_path: Path) -> None:
    tensors = gpt_oss(tmp_path / "source")
    convert_weight(ConvertOptions(str(tmp_path / "source"), "q8f16_1,*moe_*=q4f16_mxfp4", tmp_path / "out"))
    made, name = tensors_of(tmp_path / "out"), "model.layers.0.mlp.moe_down_proj"
    parts = {kind: made[f"{name}.{kind}"] for kind in ("q_weight", "q_scale")}
    down = np.swapaxes(unpacked(tensors, "model.layers.0.mlp.experts.down_proj"), 1, 2)
    np.testing.assert_array_equal(decode(parts, SCHEMES["q4f16_mxfp4"], INNER), down)


def test_a_scale_that_is_no_number_is_an_error(tmp_path: Path) -> None:
    gpt_oss(tmp_path / "source", scale=255)
    with pytest.raises(MLCError, match=r"moe_down_proj\.weight has values that float16 cannot hold"):
        convert_weight(ConvertOptions(str(tmp_path / "source"), "q4f16_1", tmp_path / "out"))

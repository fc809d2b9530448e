"""GGUF files with DeepSeek's experts, latent attention, or Llama 4's experts give the checkpoint's parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlc_toolchain.gguf_checkpoint import GGUFCheckpoint
from mlc_toolchain.gguf_routed import LATENT_DENSE, ROUTED_MIXTURES
from tests.toolchain.gguf_forms import (
    Form,
    Tensors,
    changed,
    correction,
    experts_stacked,
    in_turn,
    longrope,
    parameters_of_both,
)

COMMON: dict[str, Any] = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "context_length": "max_position_embeddings",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": 1e4,
    "expert_used_count": "num_experts_per_tok",
}
ROUTED: dict[str, Any] = {
    **COMMON,
    "expert_count": "n_routed_experts",
    "expert_shared_count": "n_shared_experts",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_weights_scale": "routed_scaling_factor",
    "leading_dense_block_count": 1,
}
GROUPS: dict[str, Any] = {"expert_group_count": "n_group", "expert_group_used_count": "topk_group"}
LATENT: dict[str, Any] = {
    **ROUTED,
    **GROUPS,
    "attention.head_count_kv": 1,
    "attention.q_lora_rank": "q_lora_rank",
    "attention.kv_lora_rank": "kv_lora_rank",
    "attention.key_length": 28,
    "attention.value_length": 20,
    "attention.key_length_mla": 20,
    "attention.value_length_mla": 14,
    "rope.dimension_count": "qk_rope_head_dim",
}
ATTENTION: dict[str, Any] = {"attention.head_count_kv": "num_key_value_heads", "attention.key_length": "head_dim"}
YARN: dict[str, Any] = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}
YARN_KEYS: dict[str, Any] = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 16,
    "rope.scaling.yarn_log_multiplier": 0.07,
}
LLAMA4: dict[str, Any] = {
    "no_rope_layer_interval": 4,
    "no_rope_layers": None,
    "layer_types": None,
    "attn_scale": 0.1,
    "floor_scale": 8192,
    "attention_chunk_size": 8192,
}


def absorbed(raw: dict[str, Any], tensors: Tensors) -> Tensors:
    """Split ``kv_b_proj`` into keys, transposed, and values."""
    made = {}
    for name, tensor in tensors.items():
        if not name.endswith("kv_b_proj.weight"):
            made[name] = tensor
            continue
        by_head = tensor.reshape(raw["num_attention_heads"], -1, tensor.shape[1])
        keys, values = np.split(by_head, [raw["qk_nope_head_dim"]], axis=1)
        made[name.replace("kv_b_proj", "k_b_proj")] = keys.swapaxes(1, 2)
        made[name.replace("kv_b_proj", "v_b_proj")] = values
    return made


def llama4(raw: dict[str, Any], tensors: Tensors) -> Tensors:
    made = {}
    for name, tensor in tensors.items():
        if name.endswith("experts.gate_up_proj"):
            stem = name.removesuffix("gate_up_proj")
            gates, inputs = np.split(tensor.swapaxes(1, 2), 2, axis=1)
            made |= {f"{stem}gate_proj.weight": gates, f"{stem}up_proj.weight": inputs}
        else:
            is_output = name.endswith("experts.down_proj")
            made[f"{name}.weight" if is_output else name] = tensor.swapaxes(1, 2) if is_output else tensor
    return made


DEEPSEEK = in_turn(experts_stacked, absorbed, changed(correction))
NEXT = frozenset({"num_nextn_predict_layers"})
LONGROPE: dict[str, Any] = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0, 1.1, 1.3, 1.5],
    "long_factor": [1.5, 4.0, 9.0, 11.0],
    "original_max_position_embeddings": 64,
}
FORMS = [
    Form(
        "minicpm3",
        "minicpm3",
        {key: value for key, value in {**LATENT, "attention.key_length": 20}.items() if "expert" not in key}
        | {"attention.head_count_kv": "num_key_value_heads", "leading_dense_block_count": 0},
        longrope,
        {"v_head_dim": 10, "rope_parameters": LONGROPE},
    ),
    Form("deepseek2", "deepseek_v2/groups-q-lora", LATENT, DEEPSEEK),
    Form(
        "deepseek2",
        "deepseek_v3",
        {**LATENT, **YARN_KEYS, "expert_weights_norm": True},
        DEEPSEEK,
        {"rope_parameters": {**YARN, "mscale": 0.7, "mscale_all_dim": 0.7}},
        NEXT,
    ),
    Form(
        "glm4moe",
        "glm4_moe",
        {**ROUTED, **GROUPS, **ATTENTION, "rope.dimension_count": 6, "expert_weights_norm": True},
        in_turn(experts_stacked, changed(correction)),
        lost=NEXT,
    ),
    Form(
        "dots1",
        "dots1",
        {**ROUTED, **GROUPS, **ATTENTION, "expert_weights_norm": "norm_topk_prob"},
        in_turn(experts_stacked, changed(correction)),
        {"sliding_window": None, "layer_types": ["full_attention"] * 2, "head_dim": 12},
        frozenset({"max_window_layers"}),
    ),
    Form(
        "llama4",
        "llama4_text",
        {**COMMON, **ATTENTION, "feed_forward_length": "intermediate_size_mlp", "rope.freq_base": 5e5}
        | {"expert_count": "num_local_experts", "expert_feed_forward_length": "intermediate_size"}
        | {"interleave_moe_layer_step": "interleave_moe_layer_step"},
        llama4,
        LLAMA4,
    ),
]


def test_every_architecture_is_tested() -> None:
    assert {*ROUTED_MIXTURES, *LATENT_DENSE} == {form.arch for form in FORMS}


@pytest.mark.parametrize("form", FORMS, ids=[form.id for form in FORMS])
def test_parameters_are_those_of_the_checkpoint(form: Form, tmp_path: Path) -> None:
    for name, value, wanted in parameters_of_both(form, tmp_path / "a.gguf", *form.model(tmp_path)):
        np.testing.assert_array_equal(value, wanted, err_msg=name)


def test_layers_that_predict_further_tokens_are_left_out(tmp_path: Path) -> None:
    form = next(form for form in FORMS if form.arch == "glm4moe")
    raw, tensors = form.model(tmp_path)
    extra = {"blk.2.nextn.eh_proj.weight": np.zeros((60, 120), np.float32), "blk.2.attn_norm.weight": np.zeros(60)}
    added = Form("glm4moe", form.case, {**form.metadata, "block_count": 3, "nextn_predict_layers": 1}, form.change)
    checkpoint = GGUFCheckpoint(added.write(tmp_path / "a.gguf", raw, {**tensors, **extra}))
    assert checkpoint.config()["num_hidden_layers"] == 2
    assert not any(".layers.2." in name for name in checkpoint.names())

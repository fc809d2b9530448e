"""GGUF files of Granite, ERNIE, Hunyuan, MiniMax and Phi with experts give the checkpoint's parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlc_toolchain.gguf_mixtures import FAMILY_MIXTURES
from tests.model_zoo.architecture_cases.experts import PHIMOE_ROPE
from tests.toolchain.gguf_forms import (
    Form,
    Tensors,
    changed,
    correction,
    experts_stacked,
    in_turn,
    longrope,
    parameters_of_both,
    permuted_heads,
)

COMMON: dict[str, Any] = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "context_length": "max_position_embeddings",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": 1e4,
    "expert_used_count": "num_experts_per_tok",
}
SIZED: dict[str, Any] = {
    **COMMON,
    "attention.key_length": "head_dim",
    "expert_feed_forward_length": "intermediate_size",
}


def input_linear_split(raw: dict[str, Any], tensors: Tensors) -> Tensors:
    """Split gates and inputs of all experts into a tensor each."""
    made = {}
    for name, tensor in tensors.items():
        if not name.endswith("input_linear.weight"):
            made[name] = tensor
            continue
        gates, inputs = np.split(tensor, 2, axis=1)
        layer = name.split(".")[2]
        made |= {f"blk.{layer}.ffn_gate_exps.weight": gates, f"blk.{layer}.ffn_up_exps.weight": inputs}
    return made


PHI_ROPE = {**PHIMOE_ROPE, "short_mscale": 1.243163121016122, "long_mscale": 1.243163121016122}
ROUTED = in_turn(experts_stacked, changed(correction))
FORMS = [
    Form(
        "granitemoe",
        "granitemoe",
        {**COMMON, "expert_count": "num_local_experts", "embedding_scale": "embedding_multiplier"}
        | {"attention.scale": "attention_multiplier", "residual_scale": "residual_multiplier"}
        | {"logit_scale": "logits_scaling"},
        in_turn(input_linear_split, changed(permuted_heads)),
    ),
    Form(
        "ernie4_5-moe",
        "ernie4_5_moe",
        {**COMMON, "rope.freq_base": 5e5, "expert_count": "moe_num_experts", "expert_used_count": "moe_k"}
        | {"expert_feed_forward_length": "moe_intermediate_size", "expert_shared_count": "moe_num_shared_experts"}
        | {"interleave_moe_layer_step": "moe_layer_interval", "leading_dense_block_count": "moe_layer_start_index"},
        ROUTED,
    ),
    Form(
        "hunyuan-moe",
        "hunyuan_v1_moe",
        {**SIZED, "expert_count": "num_experts", "expert_used_count": "moe_topk", "expert_shared_count": 1},
        ROUTED,
        {"rope_parameters": None},
    ),
    Form(
        "phimoe",
        "phimoe",
        {**COMMON, "rope.freq_base": 1e4, "expert_count": "num_local_experts"}
        | {"rope.scaling.original_context_length": 12, "rope.scaling.attn_factor": 1.4},
        in_turn(experts_stacked, longrope),
        {"router_jitter_noise": 0.01, "rope_parameters": PHI_ROPE},
    ),
    Form(
        "minimax-m2",
        "minimax_m2",
        {**SIZED, "expert_count": "num_local_experts", "rope.dimension_count": 6},
        ROUTED,
    ),
]


def test_every_architecture_is_tested() -> None:
    assert set(FAMILY_MIXTURES) == {form.arch for form in FORMS}


@pytest.mark.parametrize("form", FORMS, ids=[form.id for form in FORMS])
def test_parameters_are_those_of_the_checkpoint(form: Form, tmp_path: Path) -> None:
    for name, value, wanted in parameters_of_both(form, tmp_path / "a.gguf", *form.model(tmp_path)):
        np.testing.assert_array_equal(value, wanted, err_msg=name)

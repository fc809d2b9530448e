"""GGUF files of Bailing, MiMo V2 and Step 3.5 give the checkpoint's parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlc_toolchain.gguf_routed_families import ROUTED_FAMILIES
from tests.toolchain.gguf_forms import Form, Tensors, changed, in_turn, parameters_of_both
from tests.toolchain.test_gguf_routed import ATTENTION, GROUPS, ROUTED, correction

BAILING: dict[str, Any] = {
    **ROUTED,
    "attention.head_count_kv": "num_key_value_heads",
    "expert_count": 6,
    "expert_shared_count": "num_shared_experts",
    "expert_weights_norm": True,
}


def experts_split(raw: dict[str, Any], tensors: Tensors) -> Tensors:
    """Split gates and inputs of all experts into a tensor each."""
    made = {}
    for name, tensor in tensors.items():
        stem, _, part = name.rpartition(".")
        if part == "gate_up_proj":
            gates, inputs = np.split(tensor, 2, axis=1)
            made |= {f"{stem}.gate_proj.weight": gates, f"{stem}.up_proj.weight": inputs}
        else:
            made[f"{name}.weight" if part == "down_proj" else name] = tensor
    return made


def separate_heads(raw: dict[str, Any], tensors: Tensors) -> Tensors:
    """Separate queries, keys and values; permute rows of queries and keys to interleaved pairs."""
    heads, kv_heads = raw["num_attention_heads"], raw["num_key_value_heads"]
    made = {}
    for name, tensor in tensors.items():
        if not name.endswith("query_key_value.weight"):
            made[name] = tensor
            continue
        size = tensor.shape[0] // (heads + 2 * kv_heads)
        q, k, v = np.split(tensor, [heads * size, (heads + kv_heads) * size])
        for letter, part, count in (("q", q, heads), ("k", k, kv_heads)):
            pairs = part.reshape(count, 2, size // 2, -1).swapaxes(1, 2)
            made[f"blk.{name.split('.')[2]}.attn_{letter}.weight"] = pairs.reshape(part.shape)
        made[f"blk.{name.split('.')[2]}.attn_v.weight"] = v
    return made


def as_published(raw: dict[str, Any], tensors: Tensors) -> Tensors:
    """Adapt the config: published files of the first version have no biases, and experts in all layers."""
    raw |= {"use_qkv_bias": False, "first_k_dense_replace": 0}
    return tensors


def expert_bias(raw: dict[str, Any], name: str, tensor: np.ndarray) -> tuple[str, np.ndarray]:
    return (f"{name}.bias" if name.endswith("expert_bias") else name), tensor


def sinks(raw: dict[str, Any], name: str, tensor: np.ndarray) -> tuple[str, np.ndarray]:
    return (f"{name}.weight" if name.endswith("attention_sink_bias") else name), tensor


def step(raw: dict[str, Any], tensors: Tensors) -> Tensors:
    """Store norms as factors, without the multi-token prediction layer."""
    made = {}
    for name, tensor in tensors.items():
        if not name.startswith("model.layers.2."):
            made[f"{name}.bias" if name.endswith("router_bias") else name] = tensor + name.endswith("norm.weight")
    return made


STEP: dict[str, Any] = {
    "attention.head_count": [6, 4],
    "attention.head_count_kv": [2, 2],
    "attention.sliding_window": "sliding_window",
    "attention.sliding_window_pattern": [False, True],
    "expert_count": "moe_num_experts",
    "expert_used_count": "moe_top_k",
    "expert_shared_feed_forward_length": "share_expert_dim",
    "expert_weights_scale": "moe_router_scaling_factor",
    "rope.freq_base": 5e3,
    "rope.freq_base_swa": 1e4,
    "swiglu_clamp_exp": [0.0, 0.7],
    "swiglu_clamp_shexp": [0.9, 0.8],
}
FORMS = [
    Form(
        "bailingmoe",
        "bailing_moe",
        BAILING | {"expert_weights_scale": 1.0},
        in_turn(as_published, experts_split, separate_heads),
        {"mlp_only_layers": [], "qkv_bias": False},
    ),
    Form(
        "bailingmoe2",
        "bailing_moe_v2",
        {**BAILING, **GROUPS, "attention.key_length": "head_dim", "rope.dimension_count": 6},
        in_turn(experts_split, changed(expert_bias)),
        lost=frozenset({"moe_shared_expert_intermediate_size"}),
    ),
    Form(
        "mimo2",
        "mimo_v2_flash/published",
        {key: value for key, value in {**ROUTED, **GROUPS, **ATTENTION}.items() if key != "expert_shared_count"}
        | {"attention.head_count_kv": [2, 4], "attention.sliding_window_pattern": "hybrid_layer_pattern"}
        | {"attention.sliding_window": "sliding_window_size", "attention.value_length": "v_head_dim"}
        | {"rope.freq_base": 5e3, "rope.freq_base_swa": 1e4, "rope.dimension_count": 4},
        in_turn(experts_split, changed(correction, sinks)),
        lost=frozenset("swa_head_dim mlp_layer_types partial_rotary_factor local_partial_rotary_factor".split()),
    ),
    Form(
        "step35",
        "step3p5",
        {key: value for key, value in {**ROUTED, **ATTENTION, **STEP}.items() if key != "expert_shared_count"},
        step,
        lost=frozenset({"layer_types", "num_nextn_predict_layers"}),
        exact=False,
    ),
]


def test_every_architecture_is_tested() -> None:
    assert set(ROUTED_FAMILIES) == {form.arch for form in FORMS}


@pytest.mark.parametrize("form", FORMS, ids=[form.id for form in FORMS])
def test_parameters_are_those_of_the_checkpoint(form: Form, tmp_path: Path) -> None:
    for name, value, wanted in parameters_of_both(form, tmp_path / "a.gguf", *form.model(tmp_path)):
        np.testing.assert_allclose(value, wanted, rtol=0, atol=0 if form.exact else 2e-7, err_msg=name)

"""GGUF files of models with recurrent layers give the parameters of the checkpoints that they were made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlc_errors import MLCError
from mlc_toolchain.gguf_checkpoint import GGUFCheckpoint
from mlc_toolchain.gguf_mamba import STATE_SPACE, STATE_SPACE_MIXTURES
from mlc_toolchain.gguf_recurrent import RECURRENT, RECURRENT_MIXTURES
from tests.toolchain.gguf_forms import (
    Form,
    Tensors,
    changed,
    experts_stacked,
    in_turn,
    parameters_of_both,
    permuted_heads,
    write,
)

SIZES = {"block_count": "num_hidden_layers", "embedding_length": "hidden_size"}
MAMBA: dict[str, Any] = {
    **SIZES,
    "feed_forward_length": 0,
    "attention.head_count": 0,
    "context_length": 1 << 20,
    "ssm.conv_kernel": "conv_kernel",
    "ssm.inner_size": 120,
    "ssm.state_size": "state_size",
    "attention.layer_norm_rms_epsilon": "layer_norm_epsilon",
}
ATTENTION: dict[str, Any] = {
    **SIZES,
    "context_length": "max_position_embeddings",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "rope.freq_base": 1e4,
}
RMS = {"attention.layer_norm_rms_epsilon": "rms_norm_eps"}
MIXED: dict[str, Any] = {
    "ssm.conv_kernel": "mamba_d_conv",
    "ssm.state_size": "mamba_d_state",
    "ssm.group_count": "mamba_n_groups",
    "ssm.time_step_rank": "mamba_n_heads",
}
GRANITE: dict[str, Any] = {
    **ATTENTION,
    **RMS,
    **MIXED,
    "ssm.inner_size": 120,
    "attention.head_count_kv": [0, 2],
    "expert_shared_feed_forward_length": "shared_intermediate_size",
    "rope.scaling.finetuned": False,
}
NEMOTRON: dict[str, Any] = {
    "embedding_length": "hidden_size",
    "context_length": "max_position_embeddings",
    "attention.head_count": "num_attention_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "layer_norm_epsilon",
    "ssm.conv_kernel": "conv_kernel",
    "ssm.state_size": "ssm_state_size",
    "ssm.group_count": "n_groups",
    "ssm.inner_size": 40,
    "ssm.time_step_rank": "mamba_num_heads",
}
LFM2: dict[str, Any] = {
    **ATTENTION,
    "rope.freq_base": 1e6,
    "shortconv.l_cache": "conv_L_cache",
    "attention.layer_norm_rms_epsilon": "norm_eps",
}
DELTA_NET: dict[str, Any] = {
    **ATTENTION,
    **RMS,
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "rope.dimension_count": 3,
    "ssm.conv_kernel": "linear_conv_kernel_dim",
    "ssm.state_size": "linear_key_head_dim",
    "ssm.group_count": "linear_num_key_heads",
    "ssm.time_step_rank": "linear_num_value_heads",
    "ssm.inner_size": 56,
}
SHARED: dict[str, Any] = {
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
}
RWKV: dict[str, Any] = {**SIZES, "context_length": 1 << 20, "feed_forward_length": "intermediate_size"}
RWKV6_OPTIONS = {"time_mix_extra_dim": 7, "time_decay_extra_dim": 9, "rescale_every": 1, "layer_norm_epsilon": 1e-5}


def state_space(raw: dict[str, Any], name: str, tensor: np.ndarray) -> tuple[str, np.ndarray]:
    """Mamba-1: store decay rates instead of their logarithms, and convolutions without the axis of size 1."""
    if name.endswith(".A_log"):
        return name, -np.exp(tensor)
    return name, tensor.squeeze(1) if name.endswith(("conv1d.weight", "conv.conv.weight")) else tensor


def of_heads(raw: dict[str, Any], name: str, tensor: np.ndarray) -> tuple[str, np.ndarray]:
    """Mamba-2's further changes: a second axis, and norms by group."""
    if name.endswith((".A_log", ".D")):
        return name, tensor[:, None]
    if name.endswith(("mixer.norm.weight", "mamba.norm.weight")):
        groups = raw["n_groups"] if "n_groups" in raw else raw["mamba_n_groups"]
        return name, tensor.reshape(groups, -1)
    return (name.replace(".dt_bias", ".dt_proj.bias"), tensor)


def multiplied(raw: dict[str, Any], name: str, tensor: np.ndarray) -> tuple[str, np.ndarray]:
    """Fold in Falcon-H1's multipliers; those of this test are powers of two, so that their order does not matter."""
    into, part = raw["attention_in_multiplier"], name.split(".")[-2]
    gate, down = raw["mlp_multipliers"]
    factors = {
        "q_proj": into,
        "k_proj": into * raw["key_multiplier"],
        "v_proj": into,
        "o_proj": raw["attention_out_multiplier"],
        "out_proj": raw["ssm_out_multiplier"],
        "gate_proj": gate,
        "down_proj": down,
    }
    if part != "in_proj":
        return name, tensor * np.float32(factors.get(part, 1))
    channels, states = raw["mamba_d_ssm"], raw["mamba_n_groups"] * raw["mamba_d_state"]
    rows = np.repeat(raw["ssm_multipliers"], [channels, channels, states, states, raw["mamba_n_heads"]])
    return name, tensor * (rows * raw["ssm_in_multiplier"]).astype(np.float32)[:, None]


def granite(raw: dict[str, Any], tensors: Tensors) -> Tensors:
    made, kind = {}, "shexp" if raw["num_local_experts"] else ""
    for name, tensor in tensors.items():
        layer, _, rest = name.removeprefix("model.layers.").partition(".")
        ending = f"_{kind}.weight" if kind else ".weight"
        if rest == "shared_mlp.input_linear.weight":
            gate, up = np.split(tensor, 2)
            made |= {f"blk.{layer}.ffn_gate{ending}": gate, f"blk.{layer}.ffn_up{ending}": up}
        elif rest == "shared_mlp.output_linear.weight":
            made[f"blk.{layer}.ffn_down{ending}"] = tensor
        elif rest == "block_sparse_moe.input_linear.weight":
            gate, up = np.split(tensor, 2, axis=1)
            made |= {f"blk.{layer}.ffn_gate_exps.weight": gate, f"blk.{layer}.ffn_up_exps.weight": up}
        else:
            made[name] = tensor
    return made


def nemotron_experts(raw: dict[str, Any], name: str, tensor: np.ndarray) -> tuple[str, np.ndarray]:
    if name.endswith("mixer.gate.e_score_correction_bias"):
        return f"blk.{name.split('.')[2]}.exp_probs_b.bias", tensor
    return name.replace("backbone", "model").replace("mixer", "mlp") if ".experts." in name else name, tensor


def one_plus(raw: dict[str, Any], name: str, tensor: np.ndarray) -> tuple[str, np.ndarray]:
    is_shifted = name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight")
    return name.replace(".dt_bias", ".dt_proj.bias"), tensor + 1 if is_shifted else tensor


def by_kind(raw: dict[str, Any], tensors: Tensors) -> Tensors:
    """Reorder rows of Qwen3-Next's input projection from key heads to queries, keys, values, and separate the gates."""
    made = {}
    for name, tensor in tensors.items():
        if not name.endswith("in_proj_qkvz.weight"):
            made[name] = tensor
            continue
        heads, size = raw["linear_num_key_heads"], raw["linear_key_head_dim"]
        value = raw["linear_num_value_heads"] * raw["linear_value_head_dim"] // heads
        parts = np.split(tensor.reshape(heads, -1, tensor.shape[1]), np.cumsum([size, size, value]), axis=1)
        *qkv, gate = (part.reshape(-1, tensor.shape[1]) for part in parts)
        layer = f"blk.{name.split('.')[2]}"
        made |= {f"{layer}.attn_qkv.weight": np.concatenate(qkv), f"{layer}.attn_gate.weight": gate}
    return made


def tiled(raw: dict[str, Any], name: str, tensor: np.ndarray) -> tuple[str, np.ndarray]:
    """Reorder Qwen3.5's value heads from [group, index] to [index, group]."""
    groups, heads = raw["linear_num_key_heads"], raw["linear_num_value_heads"]
    size, keys = raw["linear_value_head_dim"], 2 * groups * raw["linear_key_head_dim"]

    def reordered(rows: np.ndarray, size: int) -> np.ndarray:
        return rows.reshape(groups, heads // groups, size, *rows.shape[1:]).swapaxes(0, 1).reshape(rows.shape)

    part = name.partition("linear_attn.")[2]
    if part in ("in_proj_qkv.weight", "conv1d.weight"):
        return name, np.concatenate([tensor[:keys], reordered(tensor[keys:], size)])
    if part == "in_proj_z.weight":
        return name, reordered(tensor, size)
    if part in ("in_proj_a.weight", "in_proj_b.weight", "A_log", "dt_bias"):
        return name, reordered(tensor, 1)
    return name, reordered(tensor.T, size).T if part == "out_proj.weight" else tensor


def lfm2_experts(raw: dict[str, Any], name: str, tensor: np.ndarray) -> tuple[str, np.ndarray]:
    if name.endswith("expert_bias"):
        return f"blk.{name.split('.')[2]}.exp_probs_b.bias", tensor
    return name.removeprefix("model.") if "experts" in name else name, tensor


def rwkv6(raw: dict[str, Any], tensors: Tensors) -> Tensors:
    made: Tensors = {}
    for name, tensor in tensors.items():
        layer, part = (int(name.split(".")[2]), name.split(".", 3)[3]) if ".blocks." in name else (0, "")
        if part in (f"attention.time_maa_{letter}" for letter in "wkvrg"):
            continue
        if part in ("attention.time_maa_w1", "attention.time_decay_w1", "attention.time_decay_w2"):
            tensor = tensor.T
        elif part == "attention.time_maa_w2":
            tensor = tensor.swapaxes(1, 2)
        elif part in ("attention.output.weight", "feed_forward.value.weight"):
            tensor = tensor / np.float32(2 ** (layer // raw["rescale_every"]))
        elif part.startswith(("attention.time_maa_x", "attention.time_decay", "feed_forward.time_maa")):
            tensor = tensor.squeeze()
        made[name if name.endswith((".weight", ".bias")) else f"{name}.weight"] = tensor
    for layer in range(raw["num_hidden_layers"]):
        shares = [tensors[f"rwkv.blocks.{layer}.attention.time_maa_{letter}"][None] for letter in "wkvrg"]
        made[f"blk.{layer}.time_mix_lerp_fused.weight"] = np.concatenate(shares)
    return made


def rwkv7(raw: dict[str, Any], tensors: Tensors) -> Tensors:
    made: Tensors = {}
    for name, tensor in tensors.items():
        if ".attn.x_" in name:
            continue
        for ours, theirs in (("_lora.lora.0.weight", "1"), ("_lora.lora.2.weight", "2"), ("_lora.lora.2.bias", "0")):
            name = name.replace(ours, theirs)
        name = name.replace(".ffn_norm", ".ln2").replace(".ffn", ".feed_forward").replace(".attn_norm", ".ln1")
        name = name.replace(".attn.g_norm", ".attention.ln_x").replace(".attn.", ".attention.")
        tensor = tensor.reshape(-1) if name.endswith("r_k") else tensor
        made[name if name.endswith((".weight", ".bias")) else f"{name}.weight"] = tensor
        if ".0.attention.a" in name:  # the first layer has no shares of the first layer's values
            made[f"blk.0.time_mix_v{name[-1]}.weight"] = tensor
    for layer in range(raw["num_hidden_layers"]):
        shares = [tensors[f"model.layers.{layer}.attn.x_{letter}"] for letter in "rwkvag"]
        made[f"blk.{layer}.time_mix_lerp_fused.weight"] = np.stack(shares)
    return made


SSM = changed(state_space, of_heads)
POWERS_OF_TWO = {
    **{"head_dim": 12, "embedding_multiplier": 1.0, "lm_head_multiplier": 1.0, "mamba_norm_before_gate": False},
    **{"key_multiplier": 0.5, "attention_in_multiplier": 2.0, "attention_out_multiplier": 0.25},
    **{"ssm_in_multiplier": 0.5, "ssm_out_multiplier": 4.0, "ssm_multipliers": [0.5, 2.0, 4.0, 0.25, 8.0]},
    "mlp_multipliers": [0.5, 0.125],
}
FORMS = [
    Form("mamba", "mamba", {**MAMBA, "ssm.time_step_rank": "time_step_rank"}, changed(state_space)),
    Form(
        "mamba",
        "falcon_mamba",
        {**MAMBA, "ssm.time_step_rank": "time_step_rank", "ssm.dt_b_c_rms": True},
        changed(state_space),
    ),
    Form("mamba2", "mamba2", {**MAMBA, "ssm.time_step_rank": "num_heads", "ssm.group_count": "n_groups"}, SSM),
    Form(
        "falcon-h1",
        "falcon_h1/norm",
        {**ATTENTION, **RMS, **MIXED, "attention.head_count_kv": 2, "attention.key_length": 12, "ssm.inner_size": 48},
        changed(state_space, of_heads, multiplied),
        {**POWERS_OF_TWO, "time_step_limit": (0.0, float("inf"))},
        frozenset(key for key in POWERS_OF_TWO if "multiplier" in key) | {"mamba_d_head"},
    ),
    Form(
        "granitehybrid",
        "granitemoehybrid",
        {**GRANITE, "expert_count": 5, "expert_used_count": 2, "attention.scale": 0.4, "embedding_scale": 1.5}
        | {"residual_scale": 0.7, "logit_scale": 2.0},
        in_turn(SSM, changed(permuted_heads), granite),
        lost=frozenset({"mamba_d_head"}),
    ),
    Form(
        "granitehybrid",
        "granitemoehybrid/dense-rope",
        {**GRANITE, "feed_forward_length": 52},
        in_turn(SSM, changed(permuted_heads), granite),
        {"position_embedding_type": None},
        frozenset({"mamba_d_head", "num_experts_per_tok"}),
    ),
    Form(
        "nemotron_h",
        "nemotron_h",
        {**NEMOTRON, "block_count": 3, "attention.head_count_kv": [0, 0, 2], "feed_forward_length": [0, 52, 0]},
        in_turn(SSM, changed(permuted_heads)),
        {"time_step_min": 0.001},
        frozenset({"hybrid_override_pattern"}),
    ),
    Form(
        "nemotron_h_moe",
        "nemotron_h/latent-experts",
        {**NEMOTRON, "block_count": 4, "attention.head_count_kv": [0, 0, 2, 0], "feed_forward_length": [0, 20, 0, 20]}
        | {"expert_count": 6, "expert_used_count": 2, "expert_feed_forward_length": 20, "expert_weights_norm": True}
        | {"expert_shared_feed_forward_length": 24, "expert_weights_scale": 1.5, "moe_latent_size": 28}
        | {"expert_group_count": 3, "expert_group_used_count": 2},
        in_turn(SSM, experts_stacked, changed(permuted_heads, nemotron_experts)),
        lost=frozenset({"hybrid_override_pattern", "intermediate_size"}),
    ),
    Form(
        "lfm2",
        "lfm2",
        {**LFM2, "feed_forward_length": 36, "attention.head_count_kv": [0, 2]},
        changed(state_space),
        lost=frozenset({"block_multiple_of"}),
    ),
    Form(
        "lfm2moe",
        "lfm2_moe",
        {**LFM2, "attention.head_count_kv": [2, 0], "expert_count": "num_experts", "leading_dense_block_count": 1}
        | {"expert_used_count": "num_experts_per_tok", "expert_feed_forward_length": "moe_intermediate_size"},
        in_turn(changed(state_space), experts_stacked, changed(lfm2_experts)),
        {"routed_scaling_factor": 1.0},
    ),
    Form(
        "qwen3next",
        "qwen3_next",
        {**DELTA_NET, **SHARED},
        in_turn(by_kind, changed(state_space, one_plus), experts_stacked),
        exact=False,
    ),
    Form("qwen35", "qwen3_5_text", DELTA_NET, changed(tiled, state_space, one_plus), exact=False),
    Form(
        "qwen35moe",
        "qwen3_5_moe_text",
        {**DELTA_NET, **SHARED},
        in_turn(changed(tiled, state_space, one_plus), experts_stacked),
        lost=frozenset({"intermediate_size"}),
        exact=False,
    ),
    Form(
        "rwkv6",
        "rwkv6",
        {**RWKV, "wkv.head_size": "head_size", "attention.layer_norm_epsilon": 1e-5, "rescale_every_n_layers": 1}
        | {"time_mix_extra_dim": 7, "time_decay_extra_dim": 9},
        rwkv6,
        RWKV6_OPTIONS,
    ),
    Form(
        "rwkv7",
        "rwkv7",
        {**RWKV, "wkv.head_size": "head_dim", "attention.layer_norm_epsilon": "norm_eps"}
        | {"attention.decay_lora_rank": 7, "attention.gate_lora_rank": 9}
        | {"attention.iclr_lora_rank": 6, "attention.value_residual_mix_lora_rank": 5},
        rwkv7,
    ),
]


def test_every_architecture_is_tested() -> None:
    assert {*STATE_SPACE, *STATE_SPACE_MIXTURES, *RECURRENT, *RECURRENT_MIXTURES} == {form.arch for form in FORMS}


@pytest.mark.parametrize("form", FORMS, ids=[form.id for form in FORMS])
def test_parameters_are_those_of_the_checkpoint(form: Form, tmp_path: Path) -> None:
    for name, value, wanted in parameters_of_both(form, tmp_path / "a.gguf", *form.model(tmp_path)):
        np.testing.assert_allclose(
            value, wanted, rtol=0 if form.exact else 1e-6, atol=0 if form.exact else 1e-7, err_msg=name
        )


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("attention.head_count_kv", [0], r"lfm2.attention.head_count_kv is \[0\]; expected 2 numbers"),
        ("attention.head_count_kv", [0, -1], r"expected 2 numbers"),
        ("block_count", 1 << 30, "lfm2.block_count is 1073741824; the file has 18 tensors"),
    ],
)
def test_numbers_of_layers_are_checked(key: str, value: object, message: str, tmp_path: Path) -> None:
    form = next(form for form in FORMS if form.arch == "lfm2")
    values = {k: 2 if isinstance(v, str) else v for k, v in form.metadata.items()} | {key: value}
    tensors = {f"blk.{i}.attn_norm.weight": np.zeros(4, np.float32) for i in range(17)}
    path = write(tmp_path / "a.gguf", "lfm2", values, {"token_embd.weight": np.zeros((3, 4), np.float32), **tensors})
    with pytest.raises(MLCError, match=message):
        GGUFCheckpoint(path)

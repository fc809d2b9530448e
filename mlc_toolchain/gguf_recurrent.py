"""GGUF architectures with other recurrent layers: gated delta nets, short convolutions, RWKV."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mlc_toolchain.gguf_base import EXPERTS, LLAMA, QK_NORMS, ROTARY, SHARED, GGUFArchitecture, like_llama, rotary_part
from model_zoo.weight_expr import CheckpointTensor, Concat, Expr, Permute, Ranges, Read, Reshape, Scaled, Shape, Slice

DELTA_NET = {
    "linear_conv_kernel_dim": "ssm.conv_kernel",
    "linear_key_head_dim": "ssm.state_size",
    "linear_num_key_heads": "ssm.group_count",
    "linear_num_value_heads": "ssm.time_step_rank",
    "inner_size": "ssm.inner_size",
}
EXPERT_SIZES = {
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
}
LINEAR, FULL, CONV = "linear_attention", "full_attention", "conv"


@dataclass(frozen=True)
class LogRates(Expr):
    """``log(-x)`` of every element, computed in float64: log decay rates, which the file stores as ``-exp(x)``."""

    parts: tuple[Expr]

    def shape(self, shapes: Mapping[str, Shape]) -> Shape:
        return self.parts[0].shape(shapes)

    def evaluate(self, read: Read) -> np.ndarray:
        return np.log(-self.parts[0].evaluate(read).astype(np.float64))


def _tensor(name: str) -> CheckpointTensor:
    return CheckpointTensor(name)


def _delta_net(config: dict[str, Any]) -> dict[str, Any]:
    """Layers with query tensors are attention layers; the others are gated delta nets."""
    types = [FULL if has else LINEAR for has in config.pop("has_attention")]
    size = config.pop("inner_size") // config["linear_num_value_heads"]
    return {"layer_types": types, "linear_value_head_dim": size, **rotary_part(config)}


def _key_and_value_rows(config: Mapping[str, Any]) -> tuple[int, int]:
    """The numbers of rows of all keys and of all values."""
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    return keys, config["linear_num_value_heads"] * config["linear_value_head_dim"]


def _qwen3_next(config: Mapping[str, Any], layer: int) -> dict[str, Expr]:
    """Reorder rows of queries, keys, values and gates by key head, as in the checkpoint."""
    heads, (keys, values) = config["linear_num_key_heads"], _key_and_value_rows(config)
    key, value = keys // heads, values // heads
    starts = ((0, key), (keys, key), (2 * keys, value), (2 * keys + values, value))
    ranges = tuple((start + i * size, start + (i + 1) * size) for i in range(heads) for start, size in starts)
    joined = Concat((_tensor("attn_qkv.weight"), _tensor("attn_gate.weight")))
    return {
        "linear_attn.in_proj_qkvz.weight": Ranges((joined,), ranges),
        "linear_attn.A_log": LogRates((_tensor("ssm_a"),)),
    }


def _qwen3_5(config: Mapping[str, Any], layer: int) -> dict[str, Expr]:
    """Reorder value heads by group, as in the checkpoint; the file orders them by their index within a group."""
    groups, heads, size = (config[f"linear_{k}"] for k in ("num_key_heads", "num_value_heads", "value_head_dim"))
    keys, values = _key_and_value_rows(config)

    def by_group(value: Expr, size: int, axis: int = 0) -> Expr:
        return Permute((value,), (heads // groups, groups, size), (1, 0, 2), axis)

    def of_values(name: str) -> Expr:
        tensor, first = _tensor(name), 2 * keys
        rows = Slice((tensor,), 0, first, first + values)
        return Concat((Slice((tensor,), 0, 0, first), by_group(rows, size)))

    return {
        "linear_attn.in_proj_qkv.weight": of_values("attn_qkv.weight"),
        "linear_attn.conv1d.weight": of_values("ssm_conv1d.weight"),
        "linear_attn.in_proj_z.weight": by_group(_tensor("attn_gate.weight"), size),
        "linear_attn.in_proj_b.weight": by_group(_tensor("ssm_beta.weight"), 1),
        "linear_attn.in_proj_a.weight": by_group(_tensor("ssm_alpha.weight"), 1),
        "linear_attn.dt_bias": by_group(_tensor("ssm_dt.bias"), 1),
        "linear_attn.A_log": LogRates((by_group(_tensor("ssm_a"), 1),)),
        "linear_attn.out_proj.weight": by_group(_tensor("ssm_out.weight"), size, axis=1),
    }


QWEN3_NEXT = like_llama(
    "qwen3_next",
    "Qwen3NextForCausalLM",
    config={**LLAMA.config, **DELTA_NET, **EXPERT_SIZES},
    optional=ROTARY,
    having={"has_attention": "attn_q.weight"},
    names={
        **QK_NORMS,
        **EXPERTS,
        **SHARED,
        "post_attention_norm": "post_attention_layernorm",
        "ssm_in": "linear_attn.in_proj_qkvz",
        "ssm_ba": "linear_attn.in_proj_ba",
        "ssm_conv1d": "linear_attn.conv1d",
        "ssm_dt.bias": "linear_attn.dt_bias",
        "ssm_norm": "linear_attn.norm",
        "ssm_out": "linear_attn.out_proj",
    },
    one_plus=frozenset({"attn_norm", "post_attention_norm", "attn_q_norm", "attn_k_norm", "output_norm"}),
    derived=_qwen3_next,
    finish=_delta_net,
)
QWEN3_5 = replace(
    QWEN3_NEXT,
    model_type="qwen3_5_text",
    config={**LLAMA.config, **DELTA_NET},
    fixed={"architectures": ["Qwen3_5ForCausalLM"]},
    derived=_qwen3_5,
)
QWEN3_5_MOE = replace(
    QWEN3_5,
    model_type="qwen3_5_moe_text",
    config={**{k: v for k, v in QWEN3_NEXT.config.items() if k != "intermediate_size"}},
    fixed={"architectures": ["Qwen3_5MoeForCausalLM"]},
)


def _convolutions(config: dict[str, Any]) -> dict[str, Any]:
    heads = config["num_key_value_heads"]
    types = [FULL if count else CONV for count in heads]
    return {"layer_types": types, "num_key_value_heads": max(heads), "block_auto_adjust_ff_dim": False}


LFM2 = like_llama(
    "lfm2",
    "Lfm2ForCausalLM",
    config={
        **{k: v for k, v in LLAMA.config.items() if k != "rms_norm_eps"},
        "norm_eps": LLAMA.config["rms_norm_eps"],
        "conv_L_cache": "shortconv.l_cache",
    },
    lists={"num_key_value_heads": "attention.head_count_kv"},
    names={
        "output_norm": "model.embedding_norm",
        "token_embd_norm": "model.embedding_norm",
        "attn_norm": "operator_norm",
        "ffn_norm": "ffn_norm",
        "attn_output": "self_attn.out_proj",
        "attn_q_norm": "self_attn.q_layernorm",
        "attn_k_norm": "self_attn.k_layernorm",
        "ffn_gate": "feed_forward.w1",
        "ffn_up": "feed_forward.w3",
        "ffn_down": "feed_forward.w2",
        **{f"shortconv.{part}": f"conv.{part}" for part in ("conv", "in_proj", "out_proj")},
    },
    present={"conv_bias": "shortconv.in_proj.bias"},
    finish=_convolutions,
)
LFM2_MOE = replace(
    LFM2,
    model_type="lfm2_moe",
    config={
        **LFM2.config,
        "num_experts": "expert_count",
        "num_experts_per_tok": "expert_used_count",
        "moe_intermediate_size": "expert_feed_forward_length",
        "num_dense_layers": "leading_dense_block_count",
    },
    fixed={"architectures": ["Lfm2MoeForCausalLM"], "norm_topk_prob": True},
    names={
        **LFM2.names,
        "ffn_gate_inp": "feed_forward.gate",
        "exp_probs_b.bias": "feed_forward.expert_bias",
        **{f"ffn_{part}_exps": f"feed_forward.experts.{part}_proj" for part in ("gate", "up", "down")},
    },
    present={**LFM2.present, "use_expert_bias": "exp_probs_b.bias"},
)


def _fused(index: int, config: Mapping[str, Any]) -> Expr:
    """One of the token-shift mixing factors, which the file stacks in one tensor [factors, 1, 1, D]."""
    row = Slice((_tensor("time_mix_lerp_fused.weight"),), 0, index, index + 1)
    return Reshape((row,), (1, 1, config["hidden_size"]))


def _rwkv6(config: Mapping[str, Any], layer: int) -> dict[str, Expr]:
    """Vectors are [1, 1, D] in the checkpoint, and the projections into the residual are not scaled down."""
    vectors = {
        "attention.time_maa_x": "time_mix_lerp_x",
        "attention.time_decay": "time_mix_decay",
        "feed_forward.time_maa_k": "channel_mix_lerp_k",
        "feed_forward.time_maa_r": "channel_mix_lerp_r",
    }
    products = {"attention.output.weight": "time_mix_output", "feed_forward.value.weight": "channel_mix_value"}
    halvings = layer // config["rescale_every"] if config.get("rescale_every") else 0
    shape = (1, 1, config["hidden_size"])
    return {
        **{f"attention.time_maa_{name}": _fused(i, config) for i, name in enumerate("wkvrg")},
        **{name: Reshape((_tensor(f"{stem}.weight"),), shape) for name, stem in vectors.items()},
        **({n: Scaled((_tensor(f"{s}.weight"),), 2.0**halvings) for n, s in products.items()} if halvings else {}),
    }


def _rwkv7(config: Mapping[str, Any], layer: int) -> dict[str, Expr]:
    heads = config["hidden_size"] // config["head_dim"]
    shares = {f"attn.x_{name}": _fused(i, config) for i, name in enumerate("rwkvag")}
    return {**shares, "attn.r_k": Reshape((_tensor("time_mix_r_k.weight"),), (heads, config["head_dim"]))}


RWKV_SIZES = {
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "intermediate_size": "feed_forward_length",
}
PRODUCTS = ("key", "value", "receptance", "gate", "output")
RWKV6 = GGUFArchitecture(
    model_type="rwkv6",
    config={
        **RWKV_SIZES,
        "head_size": "wkv.head_size",
        "layer_norm_epsilon": "attention.layer_norm_epsilon",
        "time_mix_extra_dim": "time_mix_extra_dim",
        "time_decay_extra_dim": "time_decay_extra_dim",
    },
    optional={"rescale_every": ("rescale_every_n_layers",)},
    fixed={"architectures": ["Rwkv6ForCausalLM"]},
    layer="rwkv.blocks",
    names={
        "token_embd": "rwkv.embeddings",
        "token_embd_norm": "rwkv.blocks.0.pre_ln",
        "output_norm": "rwkv.ln_out",
        "output": "head",
        "attn_norm": "ln1",
        "attn_norm_2": "ln2",
        "time_mix_w1.weight": "attention.time_maa_w1",
        "time_mix_w2.weight": "attention.time_maa_w2",
        "time_mix_first.weight": "attention.time_faaaa",
        "time_mix_decay_w1.weight": "attention.time_decay_w1",
        "time_mix_decay_w2.weight": "attention.time_decay_w2",
        "time_mix_ln": "attention.ln_x",
        **{f"time_mix_{name}": f"attention.{name}" for name in PRODUCTS},
        **{f"channel_mix_{name}": f"feed_forward.{name}" for name in PRODUCTS[:3]},
    },
    embedding="token_embd.weight",
    head="output.weight",
    heads={},
    transposed=frozenset({"time_mix_w1", "time_mix_w2", "time_mix_decay_w1", "time_mix_decay_w2"}),
    derived=_rwkv6,
)
RANKS = {
    "decay_low_rank_dim": "attention.decay_lora_rank",
    "a_low_rank_dim": "attention.iclr_lora_rank",
    "v_low_rank_dim": "attention.value_residual_mix_lora_rank",
    "gate_low_rank_dim": "attention.gate_lora_rank",
}
LOW_RANK = {
    f"time_mix_{letter}{index}.weight": f"attn.{letter}_lora.lora.{part}"
    for letter in "wavg"
    for index, part in enumerate(("2.bias", "0.weight", "2.weight"))
}
RWKV7 = GGUFArchitecture(
    model_type="rwkv7",
    config={**RWKV_SIZES, **RANKS, "head_dim": "wkv.head_size", "norm_eps": "attention.layer_norm_epsilon"},
    optional={},
    fixed={"architectures": ["RWKV7ForCausalLM"]},
    layer="model.layers",
    names={
        "token_embd": "model.embeddings",
        "token_embd_norm": "model.layers.0.pre_norm",
        "output_norm": "model.norm",
        "output": "lm_head",
        "attn_norm": "attn_norm",
        "attn_norm_2": "ffn_norm",
        "time_mix_ln": "attn.g_norm",
        "time_mix_k_k.weight": "attn.k_k",
        "time_mix_k_a.weight": "attn.k_a",
        "time_mix_receptance": "attn.r_proj",
        "time_mix_key": "attn.k_proj",
        "time_mix_value": "attn.v_proj",
        "time_mix_output": "attn.o_proj",
        "channel_mix_lerp_k.weight": "ffn.x_k",
        "channel_mix_key": "ffn.key",
        "channel_mix_value": "ffn.value",
        **LOW_RANK,
    },
    embedding="token_embd.weight",
    head="output.weight",
    heads={},
    derived=_rwkv7,
    unused=frozenset(f"blk.0.time_mix_v{i}.weight" for i in range(3)),
)
RECURRENT = {"lfm2": LFM2, "qwen35": QWEN3_5, "rwkv6": RWKV6, "rwkv7": RWKV7}
"""By ``general.architecture``."""
RECURRENT_MIXTURES = {"lfm2moe": LFM2_MOE, "qwen3next": QWEN3_NEXT, "qwen35moe": QWEN3_5_MOE}
"""By ``general.architecture``, of files with experts."""

"""GGUF architectures with state-space layers: Mamba, Mamba-2, and hybrids with attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mlc_toolchain.gguf_base import LLAMA, SCALES, GGUFArchitecture, like_llama
from model_zoo.weight_expr import CheckpointTensor, Concat, Expr

SSM = {
    "ssm_in": "in_proj",
    "ssm_conv1d": "conv1d",
    "ssm_x": "x_proj",
    "ssm_a": "A",
    "ssm_d": "D",
    "ssm_norm": "norm",
    "ssm_out": "out_proj",
}
FLAT = frozenset({"ssm_a", "ssm_d", "ssm_norm"})
BIASES = {"use_bias": "ssm_in.bias", "use_conv_bias": "ssm_conv1d.bias"}
RMS_EPSILON = {"layer_norm_epsilon": "attention.layer_norm_rms_epsilon"}


def mixer_names(path: str) -> dict[str, str]:
    """The names of a state-space layer's tensors without its step sizes (dt), for a layer called ``path``."""
    return {stem: f"{path}.{name}" for stem, name in SSM.items()}


def _falcon_mamba(config: dict[str, Any]) -> dict[str, Any]:
    if not config.pop("dt_b_c_rms", False):
        return {}
    return {"model_type": "falcon_mamba", "architectures": ["FalconMambaForCausalLM"]}


def _expansion(config: dict[str, Any]) -> dict[str, Any]:
    inner = config.pop("inner_size")
    return {"expand": inner // config["hidden_size"], "head_dim": inner // config["num_heads"]}


def _layer_types(config: dict[str, Any]) -> list[str]:
    """Layers with key/value heads are attention layers."""
    return ["attention" if heads else "mamba" for heads in config["num_key_value_heads"]]


def _granite(config: dict[str, Any]) -> dict[str, Any]:
    """In files with experts, the feed-forward length is that of one expert."""
    types, expand = _layer_types(config), config.pop("inner_size") // config["hidden_size"]
    return {"layer_types": types, "num_key_value_heads": max(config["num_key_value_heads"]), "mamba_expand": expand}


def _nemotron(config: dict[str, Any]) -> dict[str, Any]:
    wide = config.pop("feed_forward_lengths")
    inner = "moe" if "n_routed_experts" in config else "mlp"
    types = [inner if size else kind for size, kind in zip(wide, _layer_types(config), strict=True)]
    return {
        "layers_block_type": types,
        "num_key_value_heads": max(config["num_key_value_heads"]),
        "mamba_head_dim": config.pop("inner_size") // config["mamba_num_heads"],
        "intermediate_size": max(wide) or config["hidden_size"],
    }


def _granite_tensors(config: Mapping[str, Any], layer: int) -> dict[str, Expr]:
    """Gate and up projections are one tensor in the checkpoint."""
    joined = {
        "shared_mlp.input_linear.weight": ("ffn_gate", "ffn_up", 0),
        "block_sparse_moe.input_linear.weight": ("ffn_gate_exps", "ffn_up_exps", 1),
    }
    if config.get("num_local_experts"):
        joined["shared_mlp.input_linear.weight"] = ("ffn_gate_shexp", "ffn_up_shexp", 0)
    return {
        name: Concat((CheckpointTensor(f"{gate}.weight"), CheckpointTensor(f"{up}.weight")), axis)
        for name, (gate, up, axis) in joined.items()
    }


def _backbone(model_type: str, class_name: str, names: Mapping[str, str], **more: Any) -> GGUFArchitecture:
    """An architecture without attention."""
    return GGUFArchitecture(
        model_type=model_type,
        fixed={"architectures": [class_name]},
        layer="backbone.layers",
        names={
            "token_embd": "backbone.embeddings",
            "output_norm": "backbone.norm_f",
            "output": "lm_head",
            "attn_norm": "norm",
            **mixer_names("mixer"),
            **names,
        },
        embedding="token_embd.weight",
        head="output.weight",
        heads={},
        present=BIASES,
        **more,
    )


SIZES = {
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "conv_kernel": "ssm.conv_kernel",
    "state_size": "ssm.state_size",
}
MAMBA = _backbone(
    "mamba",
    "MambaForCausalLM",
    {"ssm_dt": "mixer.dt_proj"},
    config={**SIZES, **RMS_EPSILON, "intermediate_size": "ssm.inner_size", "time_step_rank": "ssm.time_step_rank"},
    optional={"dt_b_c_rms": ("ssm.dt_b_c_rms",)},
    finish=_falcon_mamba,
    others=("falcon_mamba",),
)
HEADS = {"num_heads": "ssm.time_step_rank", "n_groups": "ssm.group_count", "inner_size": "ssm.inner_size"}
MAMBA2 = _backbone(
    "mamba2",
    "Mamba2ForCausalLM",
    {"ssm_dt.bias": "mixer.dt_bias"},
    config={**SIZES, **RMS_EPSILON, **HEADS},
    optional={},
    flat=FLAT,
    finish=_expansion,
)
MIXED = {
    "mamba_d_conv": "ssm.conv_kernel",
    "mamba_d_state": "ssm.state_size",
    "mamba_n_heads": "ssm.time_step_rank",
    "mamba_n_groups": "ssm.group_count",
}
MIXED_NAMES = {**mixer_names("mamba"), "ssm_dt.bias": "mamba.dt_bias"}
FALCON_H1 = like_llama(
    "falcon_h1",
    "FalconH1ForCausalLM",
    config={**LLAMA.config, **MIXED, "mamba_d_ssm": "ssm.inner_size"},
    fixed={"mamba_norm_before_gate": False},
    names={
        **MIXED_NAMES,
        "output_norm": "model.final_layernorm",
        "ffn_norm": "pre_ff_layernorm.weight",
        "ffn_norm.weight": "pre_ff_layernorm.weight",
        **{f"ffn_{part}": f"feed_forward.{part}_proj" for part in ("gate", "up", "down")},
    },
    present={"mamba_rms_norm": "ssm_norm.weight", "mamba_conv_bias": "ssm_conv1d.bias"},
    flat=FLAT,
)
"""The converter folded the multipliers into the tensors, except for norms."""
GRANITE_HYBRID = like_llama(
    "granitemoehybrid",
    "GraniteMoeHybridForCausalLM",
    config={
        **LLAMA.config,
        **MIXED,
        "inner_size": "ssm.inner_size",
        "shared_intermediate_size": "expert_shared_feed_forward_length",
    },
    optional=SCALES,
    lists={"num_key_value_heads": "attention.head_count_kv"},
    fixed={"num_local_experts": 0},
    names={**MIXED_NAMES, "ffn_down": "shared_mlp.output_linear"},
    heads=LLAMA.heads,
    present={
        "mamba_conv_bias": "ssm_conv1d.bias",
        "mamba_proj_bias": "ssm_in.bias",
        "attention_bias": "attn_q.bias",
    },
    flat=FLAT,
    derived=_granite_tensors,
    finish=_granite,
)
GRANITE_HYBRID_MOE = replace(
    GRANITE_HYBRID,
    config={
        **GRANITE_HYBRID.config,
        "num_local_experts": "expert_count",
        "num_experts_per_tok": "expert_used_count",
    },
    names={
        **GRANITE_HYBRID.names,
        "ffn_gate_inp": "block_sparse_moe.router.layer",
        "ffn_down_exps": "block_sparse_moe.output_linear",
        "ffn_down_shexp": "shared_mlp.output_linear",
    },
)
NEMOTRON_H = GGUFArchitecture(
    model_type="nemotron_h",
    config={
        "hidden_size": "embedding_length",
        "num_hidden_layers": "block_count",
        "num_attention_heads": "attention.head_count",
        "head_dim": "attention.key_length",
        "max_position_embeddings": "context_length",
        "conv_kernel": "ssm.conv_kernel",
        "ssm_state_size": "ssm.state_size",
        "mamba_num_heads": "ssm.time_step_rank",
        "n_groups": "ssm.group_count",
        "inner_size": "ssm.inner_size",
    },
    optional={"layer_norm_epsilon": ("attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon")},
    fixed={"architectures": ["NemotronHForCausalLM"]},
    lists={"num_key_value_heads": "attention.head_count_kv", "feed_forward_lengths": "feed_forward_length"},
    layer="backbone.layers",
    names={
        **MAMBA2.names,
        **{f"attn_{part}": f"mixer.{part}_proj" for part in "qkv"},
        "attn_output": "mixer.o_proj",
        "ffn_up": "mixer.up_proj",
        "ffn_down": "mixer.down_proj",
    },
    embedding="token_embd.weight",
    head="output.weight",
    heads=LLAMA.heads,
    present={**BIASES, "mlp_bias": "ffn_up.bias", "attention_bias": "attn_q.bias"},
    flat=FLAT,
    finish=_nemotron,
)
NEMOTRON_H_MOE = replace(
    NEMOTRON_H,
    config={
        **NEMOTRON_H.config,
        "n_routed_experts": "expert_count",
        "num_experts_per_tok": "expert_used_count",
        "moe_intermediate_size": "expert_feed_forward_length",
        "moe_shared_expert_intermediate_size": "expert_shared_feed_forward_length",
        "norm_topk_prob": "expert_weights_norm",
        "routed_scaling_factor": "expert_weights_scale",
    },
    optional={
        **NEMOTRON_H.optional,
        "n_group": ("expert_group_count",),
        "topk_group": ("expert_group_used_count",),
        "moe_latent_size": ("moe_latent_size",),
    },
    names={
        **NEMOTRON_H.names,
        "ffn_gate_inp": "mixer.gate",
        "exp_probs_b.bias": "mixer.gate.e_score_correction_bias",
        "ffn_up_exps.weight": "mixer.experts.up_proj",
        "ffn_down_exps.weight": "mixer.experts.down_proj",
        "ffn_up_shexp": "mixer.shared_experts.up_proj",
        "ffn_down_shexp": "mixer.shared_experts.down_proj",
        "ffn_latent_down": "mixer.fc1_latent_proj",
        "ffn_latent_up": "mixer.fc2_latent_proj",
    },
)
STATE_SPACE = {
    "mamba": MAMBA,
    "mamba2": MAMBA2,
    "falcon-h1": FALCON_H1,
    "granitehybrid": GRANITE_HYBRID,
    "nemotron_h": NEMOTRON_H,
}
"""By ``general.architecture``."""
STATE_SPACE_MIXTURES = {"granitehybrid": GRANITE_HYBRID_MOE, "nemotron_h_moe": NEMOTRON_H_MOE}
"""By ``general.architecture``, of files with experts."""

"""Checkpoints of architectures without a class in transformers, made from equivalent models of another class.

Each function takes config and tensors of that model and returns them with the architecture's keys, names and layouts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

Tensors = dict[str, torch.Tensor]
Checkpoint = tuple[dict[str, Any], Tensors]
ToCheckpoint = Callable[[dict[str, Any], Tensors], Checkpoint]
COMMON = ("vocab_size", "bos_token_id", "eos_token_id", "pad_token_id", "tie_word_embeddings", "torch_dtype")
SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings")
DIM_BASE, DEPTH = 20, 1.2


def _config(config: dict[str, Any], model_type: str, *keys: str, **more: Any) -> dict[str, Any]:
    return {"model_type": model_type, **{k: config[k] for k in (*COMMON, *keys) if k in config}, **more}


def _renamed(tensors: Tensors, names: dict[str, str]) -> Tensors:
    """Replace parts of names, every occurrence, in order."""
    result = {}
    for name, tensor in tensors.items():
        for old, new in names.items():
            name = name.replace(old, new)
        result[name] = tensor
    return result


def _joined(tensors: Tensors, parts: tuple[str, ...], target: str) -> Tensors:
    """Concatenate the tensors with ``parts`` in their names along axis 0, in this order, under the name with
    ``target``."""
    result = {n: t for n, t in tensors.items() if not any(p in n for p in parts)}
    for name in tensors:
        if parts[0] in name:
            result[name.replace(parts[0], target)] = torch.cat([tensors[name.replace(parts[0], p)] for p in parts])
    return result


def _qkv(tensors: Tensors, target: str) -> Tensors:
    return _joined(tensors, ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), target)


def phi_msft(config: dict[str, Any], tensors: Tensors) -> Checkpoint:
    names = {
        "model.layers": "transformer.h",
        "self_attn.dense": "mixer.out_proj",
        "input_layernorm": "ln",
        "model.embed_tokens": "transformer.embd.wte",
        "lm_head": "lm_head.linear",
        "model.final_layernorm": "lm_head.ln",
    }
    sizes = {"n_embd": 60, "n_layer": 2, "n_head": 6, "n_head_kv": 2, "n_inner": 52, "n_positions": 64}
    made = _config(config, "phi-msft", **sizes, rotary_dim=4, activation_function="gelu_new", layer_norm_epsilon=1e-5)
    return made, _renamed(_qkv(tensors, "mixer.Wqkv"), names)


def internlm2(config: dict[str, Any], tensors: Tensors) -> Checkpoint:
    made = _config(config, "internlm2", *SIZES, "num_key_value_heads", "rms_norm_eps", bias=False, rope_theta=1e4)
    groups, size = config["num_key_value_heads"], config["head_dim"]

    def grouped(prefix: str) -> torch.Tensor:
        parts = [tensors[f"{prefix}.{x}_proj.weight"].reshape(groups, -1, size, config["hidden_size"]) for x in "qkv"]
        return torch.cat(parts, dim=1).reshape(-1, config["hidden_size"])

    prefixes = sorted({n.split(".q_proj")[0] for n in tensors if ".q_proj" in n})
    rest = {n: t for n, t in tensors.items() if not any(f".{x}_proj" in n for x in "qkv")}
    names = {
        "self_attn.o_proj": "attention.wo",
        "self_attn": "attention",
        "mlp.gate_proj": "feed_forward.w1",
        "mlp.up_proj": "feed_forward.w3",
        "mlp.down_proj": "feed_forward.w2",
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "ffn_norm",
        "embed_tokens": "tok_embeddings",
        "lm_head": "output",
    }
    return made, _renamed({**rest, **{f"{p}.wqkv.weight": grouped(p) for p in prefixes}}, names)


def exaone(config: dict[str, Any], tensors: Tensors) -> Checkpoint:
    """Keys and names of published files, whichever transformers wrote."""
    names = {
        "model.embed_tokens": "transformer.wte",
        "model.norm": "transformer.ln_f",
        "model.layers": "transformer.h",
        "self_attn.o_proj": "attn.attention.out_proj",
        "self_attn": "attn.attention",
        "input_layernorm": "ln_1",
        "post_attention_layernorm": "ln_2",
        "mlp.gate_proj": "mlp.c_fc_0",
        "mlp.up_proj": "mlp.c_fc_1",
        "mlp.down_proj": "mlp.c_proj",
    }
    keys = {
        "num_hidden_layers": "num_layers",
        "rms_norm_eps": "layer_norm_epsilon",
        "hidden_act": "activation_function",
    }
    return {keys.get(key, key): value for key, value in config.items()}, _renamed(tensors, names)


def internlm(config: dict[str, Any], tensors: Tensors) -> Checkpoint:
    return _config(config, "internlm", *SIZES, "rms_norm_eps", bias=True, rotary={"base": 10000}), tensors


def baichuan(config: dict[str, Any], tensors: Tensors) -> Checkpoint:
    return _config(config, "baichuan", *SIZES, "rms_norm_eps"), _qkv(tensors, "self_attn.W_pack")


def baichuan_alibi(config: dict[str, Any], tensors: Tensors) -> Checkpoint:
    """Baichuan with ALiBi; the stored head is three times the normalized one of the expected logits."""
    made, packed = baichuan(config, tensors)
    scaled = {**packed, "lm_head.weight": packed["lm_head.weight"] * 3}
    return {**made, "position_embedding": "ALIBI", "norm_head": True, "model_max_length": 64}, scaled


def orion(config: dict[str, Any], tensors: Tensors) -> Checkpoint:
    return _config(config, "orion", *SIZES, "num_key_value_heads", rms_norm_eps=1e-5), tensors


def qwen(config: dict[str, Any], tensors: Tensors) -> Checkpoint:
    names = {
        "model.layers": "transformer.h",
        "self_attn.o_proj": "attn.c_proj",
        "mlp.gate_proj": "mlp.w2",
        "mlp.up_proj": "mlp.w1",
        "mlp.down_proj": "mlp.c_proj",
        "input_layernorm": "ln_1",
        "post_attention_layernorm": "ln_2",
        "model.embed_tokens": "transformer.wte",
        "model.norm": "transformer.ln_f",
    }
    keys = ("hidden_size", "num_hidden_layers", "num_attention_heads")
    more = {"intermediate_size": 104, "seq_length": 64, "kv_channels": 10, "no_bias": True, "use_logn_attn": True}
    made = _config(config, "qwen", *keys, **more, rotary_emb_base=10000, layer_norm_epsilon=1e-6)
    return made, _renamed(_qkv(tensors, "attn.c_attn"), names)


def minicpm_multipliers() -> dict[str, Any]:
    """Granite's multipliers of the model of ``minicpm``: 60 wide, 2 layers, heads of 10 elements."""
    return {
        "embedding_multiplier": 1.5,
        "residual_multiplier": DEPTH / math.sqrt(2),
        "logits_scaling": 60 / DIM_BASE,
        "attention_multiplier": 1 / math.sqrt(10),
        "tie_word_embeddings": True,
    }


def minicpm(config: dict[str, Any], tensors: Tensors) -> Checkpoint:
    tensors = {n: t for n, t in tensors.items() if n != "lm_head.weight"}
    keys = (*SIZES, "num_key_value_heads", "rms_norm_eps")
    return _config(config, "minicpm", *keys, scale_emb=1.5, scale_depth=DEPTH, dim_model_base=DIM_BASE), tensors


def chatglm(config: dict[str, Any], tensors: Tensors) -> Checkpoint:
    names = {
        "model.layers": "transformer.encoder.layers",
        "self_attn.o_proj": "self_attention.dense",
        "self_attn": "self_attention",
        "mlp.gate_up_proj": "mlp.dense_h_to_4h",
        "mlp.down_proj": "mlp.dense_4h_to_h",
        "model.embed_tokens": "transformer.embedding.word_embeddings",
        "model.norm": "transformer.encoder.final_layernorm",
        "lm_head": "transformer.output_layer",
    }
    more = {
        "num_layers": 2,
        "ffn_hidden_size": 52,
        "padded_vocab_size": config["vocab_size"],
        "kv_channels": 12,
        "multi_query_attention": True,
        "multi_query_group_num": 2,
        "seq_length": 64,
        "layernorm_epsilon": config["rms_norm_eps"],
        "add_qkv_bias": True,
        "add_bias_linear": False,
        "rope_ratio": 1.0,
        "rmsnorm": True,
        "post_layer_norm": True,
        "original_rope": True,
    }
    made = _config(config, "chatglm", "hidden_size", "num_attention_heads", **more)
    return made, _renamed(_qkv(tensors, "self_attn.query_key_value"), names)


def gemma3n_text_part(config: dict[str, Any], tensors: Tensors) -> Checkpoint:
    """A checkpoint for texts and sound, of which the text part is used."""
    outer = {"model_type": "gemma3n", "text_config": config, "audio_config": {"hidden_size": 8}, "audio_token_id": 7}
    others = {"model.embed_audio.projection.weight": torch.zeros(8, 3)}
    text = {n.replace("model.", "model.language_model.", 1): t for n, t in tensors.items() if "lm_head" not in n}
    return outer, {**text, **others}


def with_experts_by_input(config: dict[str, Any], tensors: Tensors) -> Checkpoint:
    """Expert weights as [E, in, out], as in published checkpoints."""
    return config, {name: t.mT if ".experts." in name else t for name, t in tensors.items()}


def with_mtp(config: dict[str, Any], tensors: Tensors) -> Checkpoint:
    """Add the tensor of a multi-token prediction (MTP) layer."""
    return config, {**tensors, "mtp.fc.weight": torch.zeros(8, 8)}


def mimo(config: dict[str, Any], tensors: Tensors) -> Checkpoint:
    """Qwen2, with a layer that predicts further tokens."""
    unused = {"model.mtp_layers.0.input_proj.weight": torch.zeros(8, 8)}
    return {**config, "model_type": "mimo", "num_nextn_predict_layers": 1}, {**unused, **tensors}


def without_shared_gate(model: torch.nn.Module) -> None:
    """Make a Qwen2-MoE model add its shared experts ungated."""
    for layer in model.get_submodule("model.layers").children():
        if hasattr(layer.mlp, "shared_expert_gate"):
            layer.mlp.shared_expert_gate = Open()


class Open(torch.nn.Module):
    """A gate whose sigmoid is 1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.full((*x.shape[:-1], 1), 40.0)


def deepseek(config: dict[str, Any], tensors: Tensors) -> Checkpoint:
    keys = (*SIZES, "num_key_value_heads", "rms_norm_eps", "moe_intermediate_size", "num_experts_per_tok")
    experts = {"n_routed_experts": 6, "n_shared_experts": 2, "first_k_dense_replace": 1, "moe_layer_freq": 1}
    more = {"norm_topk_prob": False, "scoring_func": "softmax", "aux_loss_alpha": 0.001, "seq_aux": True}
    return _config(config, "deepseek", *keys, **experts, **more), _renamed(
        tensors, {"shared_expert.": "shared_experts."}
    )


BAILING_NAMES = {
    "model.embed_tokens": "model.word_embeddings",
    "self_attn.o_proj": "attention.dense",
    "self_attn.q_norm": "attention.query_layernorm",
    "self_attn.k_norm": "attention.key_layernorm",
    "mlp.gate.e_score_correction_bias": "mlp.gate.expert_bias",
    "shared_expert.": "shared_experts.",
}


def bailing_moe(config: dict[str, Any], tensors: Tensors) -> Checkpoint:
    keys = (*SIZES, "num_key_value_heads", "rms_norm_eps", "moe_intermediate_size", "num_experts_per_tok")
    experts = {"num_experts": 6, "num_shared_experts": 2, "first_k_dense_replace": 1, "norm_topk_prob": True}
    made = _config(config, "bailing_moe", *keys, **experts, norm_head=False, use_bias=False, use_qkv_bias=True)
    return made, _renamed(_qkv(tensors, "attention.query_key_value"), BAILING_NAMES)


def bailing_moe_v2(config: dict[str, Any], tensors: Tensors) -> Checkpoint:
    """Bailing MoE 2; published files have the first version's ``model_type``."""
    same = ("num_key_value_heads", "head_dim", "rms_norm_eps", "moe_intermediate_size", "num_experts_per_tok")
    routing = ("n_group", "topk_group", "routed_scaling_factor", "first_k_dense_replace")
    experts = {"num_experts": 6, "num_shared_experts": 2, "moe_shared_expert_intermediate_size": 20}
    more = {"score_function": "sigmoid", "moe_router_enable_expert_bias": True, "router_dtype": "fp32"}
    more |= {"use_qk_norm": True, "partial_rotary_factor": 0.5, "rope_theta": 1e4, "use_rmsnorm": True}
    made = _config(config, "bailing_moe", *SIZES, *same, *routing, **experts, **more)
    return made, _renamed(_qkv(tensors, "attention.query_key_value"), BAILING_NAMES)


def step3p5(config: dict[str, Any], tensors: Tensors) -> Checkpoint:
    """The text model with published keys and names, and a multi-token prediction (MTP) layer."""
    text = config["text_config"]
    same = ("head_dim", "num_attention_heads", "moe_intermediate_size", "sliding_window", "rms_norm_eps")
    made = _config(text, "step3p5", *SIZES, *same, **STEP_TEXT, num_attention_groups=2, moe_num_experts=6)
    made |= {"moe_top_k": 3, "zero_centered": True, "use_moe": True, "moe_router_activation": "sigmoid"}
    names = {
        "model.language_model.": "model.",
        "mlp.shared_experts": "share_expert",
        "mlp.gate.weight": "moe.gate.weight",
        "mlp.gate.e_score_correction_bias": "moe.router_bias",
        "mlp.experts.down_proj": "moe.down_proj.weight",
    }
    result = {"model.layers.2.eh_proj.weight": torch.zeros(8, 8)}
    for name, tensor in _renamed({n: t for n, t in tensors.items() if "vision" not in n}, names).items():
        if "experts.gate_up_proj" in name:
            halves = zip(("gate", "up"), tensor.chunk(2, dim=1), strict=True)
            result |= {name.replace("mlp.experts.gate_up_proj", f"moe.{n}_proj.weight"): half for n, half in halves}
        elif "multi_modal" not in name:
            result[name] = tensor
    return made, result


STEP_TEXT: dict[str, Any] = {
    "layer_types": ["full_attention", "sliding_attention", "full_attention"],
    "num_nextn_predict_layers": 1,
    "rope_theta": [5e3, 1e4, 5e3],
    "partial_rotary_factors": [0.5, 1.0, 0.5],
    "attention_other_setting": {"attention_type": "sliding_attention", "num_attention_heads": 4, "head_dim": 12},
    "moe_layers_enum": "1",
    "moe_router_scaling_factor": 1.5,
    "share_expert_dim": 28,
    "swiglu_limits": [0.0, 0.7, 0.0],
    "swiglu_limits_shared": [0.9, 0.8, 0.0],
}


def mimo_v2(config: dict[str, Any], tensors: Tensors) -> Checkpoint:
    """The published keys and names of windows, RoPE and sinks."""
    rope = config.pop("rope_parameters")
    full, local = rope["full_attention"], rope["sliding_attention"]
    made = {key: value for key, value in config.items() if key not in ("layer_types", "mlp_layer_types")}
    made |= {"hybrid_layer_pattern": [0, 1], "moe_layer_freq": [0, 1], "sliding_window": 6, "sliding_window_size": 6}
    made |= {"rope_theta": full["rope_theta"], "swa_rope_theta": local["rope_theta"], "partial_rotary_factor": 0.334}
    made |= {"add_swa_attention_sink_bias": True, "add_full_attention_sink_bias": False, "attention_chunk_size": 6}
    made |= {"swa_num_key_value_heads": 4, "swa_head_dim": 12, "layernorm_epsilon": config["rms_norm_eps"]}
    return made, _renamed(tensors, {"self_attn.sinks": "self_attn.attention_sink_bias"})


def mistral3_text(config: dict[str, Any], tensors: Tensors) -> Checkpoint:
    """A checkpoint without the configuration of the vision tower, but with its tensors."""
    vision = {"vision_tower.patch.weight": torch.zeros(8, 3), "multi_modal_projector.weight": torch.zeros(8, 8)}
    outer = {"model_type": "mistral3", "text_config": config}
    return outer, {**{f"language_model.{name}": t for name, t in tensors.items()}, **vision}


def nomic_bert(config: dict[str, Any], tensors: Tensors) -> Checkpoint:
    """The published keys; the published names are those that transformers writes, here they are its own."""
    sizes = {"n_embd": 60, "n_layer": 1, "n_head": 6, "n_inner": 52, "n_positions": 64, "type_vocab_size": 2}
    more = {"rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "activation_function": "swiglu", "prenorm": False}
    made = _config(config, "nomic_bert", **sizes, **more, layer_norm_epsilon=1e-12, parallel_block_tied_norm=False)
    return made, tensors


def kimi_k2(config: dict[str, Any], tensors: Tensors) -> Checkpoint:
    """DeepSeek-V3 under another name."""
    return {**config, "model_type": "kimi_k2"}, tensors

"""Models with experts and with latent attention: their caches, quantized weights, and supported configs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlc_errors import MLCError
from mlc_toolchain.conversion_plan import describe_model
from mlc_toolchain.model_sizes import SizeOverrides, model_sizes
from mlc_toolchain.source import resolve_source
from model_zoo import deepseek_v3, registry
from model_zoo.weight_expr import CheckpointTensor, Reshape
from model_zoo.weight_map import WeightMapError
from quantization.schemes import get_scheme

Q4 = get_scheme("q4f16_1")


@pytest.mark.parametrize(
    ("preset", "bytes_per_token"),
    [("deepseek-v2-lite-chat", 27 * (512 + 64) * 2), ("deepseek-v3", 61 * 576 * 2), ("minicpm3-4b", 62 * 288 * 2)],
)
def test_latent_attention_keeps_one_vector_of_a_position(preset: str, bytes_per_token: int) -> None:
    sizes = model_sizes(resolve_source(preset).config(), "auto", Q4, SizeOverrides())
    assert sizes.kv_bytes_per_token == bytes_per_token


def test_routers_are_not_quantized_and_corrections_stay_float32() -> None:
    config = {"model_type": "deepseek_v3", **deepseek_v3.TINY.chat_model_config()}
    weights = describe_model(config, "auto", Q4)
    mlp = "model.layers.1.mlp"
    assert weights.dtypes[f"{mlp}.gate.weight"] == "float16"
    assert weights.dtypes[f"{mlp}.e_score_correction_bias"] == "float32"
    assert {f"{mlp}.moe_down_proj.weight", "model.layers.1.self_attn.k_b_proj.weight"} <= weights.quantized.keys()
    exported = registry.export_model(deepseek_v3.TINY, Q4, "float16")
    assert {p.dtype for p in exported.params if p.name.endswith("e_score_correction_bias")} == {"float32"}


def checkpoint_shapes(c: deepseek_v3.DeepseekV3Config) -> dict[str, tuple[int, ...]]:
    """Tensor shapes of a DeepSeek-V3 checkpoint with a dense layer, an experts layer, and an MTP layer."""
    d, heads, inner = c.hidden_size, c.num_attention_heads, c.moe_intermediate_size
    attention = {
        "q_a_proj": (c.q_lora_rank, d),
        "q_a_layernorm": (c.q_lora_rank,),
        "q_b_proj": (heads * c.head_dim, c.q_lora_rank),
        "kv_a_proj_with_mqa": (c.kv_lora_rank + c.qk_rope_head_dim, d),
        "kv_a_layernorm": (c.kv_lora_rank,),
        "kv_b_proj": (heads * (c.qk_nope_head_dim + c.v_head_dim), c.kv_lora_rank),
        "o_proj": (d, heads * c.v_head_dim),
    }
    shapes: dict[str, Any] = {"model.embed_tokens": (c.vocab_size, d), "model.norm": (d,), "lm_head": (c.vocab_size, d)}
    for i in range(3):
        layer = f"model.layers.{i}"
        shapes |= {f"{layer}.self_attn.{name}": shape for name, shape in attention.items()}
        shapes |= {f"{layer}.{name}_layernorm": (d,) for name in ("input", "post_attention")}
        sizes = {"mlp": c.intermediate_size} if i == 0 else {f"mlp.experts.{e}": inner for e in range(6)}
        sizes |= {"mlp.shared_experts": 2 * inner} if i else {}
        for mlp, size in sizes.items():
            shapes |= {f"{layer}.{mlp}.{name}_proj": (size, d) for name in ("gate", "up")}
            shapes[f"{layer}.{mlp}.down_proj"] = (d, size)
        shapes |= {f"{layer}.mlp.gate": (6, d)} if i else {}
    weights = {f"{name}.weight": shape for name, shape in shapes.items()}
    return weights | {f"model.layers.{i}.mlp.gate.e_score_correction_bias": (6,) for i in (1, 2)}


def test_layers_that_predict_further_tokens_are_not_used() -> None:
    config = {"model_type": "deepseek_v3", **deepseek_v3.TINY.chat_model_config()}
    shapes = checkpoint_shapes(deepseek_v3.TINY) | {"model.layers.2.eh_proj.weight": (100, 200)}
    described = describe_model({**config, "num_nextn_predict_layers": 1}, "auto", Q4)
    plan = described.weight_map.resolve(described.parameters, shapes)
    assert set(plan.unused) == {name for name in shapes if name.startswith("model.layers.2.")}
    described = describe_model(config, "auto", Q4)
    with pytest.raises(WeightMapError, match="left-over"):
        described.weight_map.resolve(described.parameters, shapes)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("deepseek", {"num_experts_per_tok": 7}, "num_experts_per_tok: got 7; expected at most n_routed_experts, 6"),
        ("deepseek_v3", {"n_group": 4}, "n_group: got 4; expected a divisor of n_routed_experts, 6"),
        ("deepseek_v3", {"topk_group": 4}, "n_group: got 3; expected .* at least topk_group, 4"),
        ("deepseek_v3", {"scoring_func": "softmax"}, "scoring_func: got softmax; .* with 'sigmoid' only"),
        ("deepseek_v3", {"rope_interleave": False}, "rope_interleave: got False"),
        ("deepseek_v3", {"num_key_value_heads": 2}, "num_key_value_heads: got 2; expected num_attention_heads, 4"),
        ("deepseek_v2", {"attention_bias": True}, "attention_bias: got True; expected False .* without q_lora_rank"),
        ("deepseek_v2", {"topk_method": "noaux_tc"}, "topk_method: got 'noaux_tc'; expected greedy or group_limited"),
        ("deepseek_v2", {"norm_topk_prob": True}, "norm_topk_prob: got True; expected False"),
        ("glm4_moe_lite", {"mlp_layer_types": ["dense", "mixed"]}, "mlp_layer_types: .* expected dense or sparse"),
        ("mistral4", {"partial_rotary_factor": 0.5}, "partial_rotary_factor: got 0.5; expected 0.375"),
        ("minimax_m2", {"attn_type_list": [1, 0]}, "attn_type_list: .* expected 1 for each layer"),
        ("hunyuan_v1_moe", {"moe_topk": [1, 2]}, "moe_topk: .* expected the same in all layers"),
        ("ernie4_5_moe", {"use_bias": True, "tie_word_embeddings": True}, "use_bias: got True; expected False"),
        ("olmoe", {"clip_qkv": 8.0}, "clip_qkv: got 8.0"),
    ],
)
def test_configs_that_make_no_sense_or_are_not_implemented(name: str, changes: dict[str, Any], message: str) -> None:
    architecture = registry.get(name)
    written = architecture.tiny.chat_model_config()  # type: ignore[attr-defined]
    with pytest.raises(MLCError, match=message):
        architecture.config.from_hf({**written, **changes})


def test_a_value_for_each_layer_is_one_for_all() -> None:
    architecture = registry.get("hunyuan_v1_moe")
    written = architecture.tiny.chat_model_config()  # type: ignore[attr-defined]
    lists = {"num_experts_per_tok": None, "moe_topk": [2, 2], "num_shared_expert": [1, 1]}
    assert architecture.config.from_hf({**written, **lists}) == architecture.tiny


def test_reshaped_tensors_have_as_many_elements() -> None:
    rows = Reshape((CheckpointTensor("x"),), (2, 3, 4))
    assert rows.shape({"x": (6, 4)}) == (2, 3, 4)
    assert rows.evaluate(lambda _: np.arange(24).reshape(6, 4))[1, 2].tolist() == [20, 21, 22, 23]
    with pytest.raises(MLCError, match=r"cannot view \[5, 4\] as \[2, 3, 4\]"):
        rows.shape({"x": (5, 4)})

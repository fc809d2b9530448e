"""Description of how llama.cpp's converter renames, reorders and shifts tensors; here the format, and Llama's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from model_zoo.weight_expr import Expr


@dataclass(frozen=True)
class GGUFArchitecture:
    """How llama.cpp's converter maps a model's config and tensors. Tensor names are without layer prefix.

    config: Hugging Face key -> metadata key under the architecture's prefix. optional: the same with several metadata
    keys, of which the first present is used. lists: the same with one number per layer, for ``finish``. having: config
    key -> tensor; a list of whether each layer has it, for ``finish``. rows: config key -> tensor whose number of
    rows is the value, if the tensor exists. fixed: config values that the architecture implies. present: config key ->
    tensor; true if any layer has it. layer: the Hugging Face layer prefix. parts: for models with several stacks of
    layers, the prefix of each stack's tensors -> its layer prefix; ``names`` include the former. names: tensor
    name -> Hugging Face name, with the suffix if it differs. heads: tensors whose rows were
    reordered per attention head -> metadata key of the number of heads. grouped: joined queries, keys and values
    whose rows were ordered by group. transposed: matrices with the last two axes swapped in the checkpoint. flat:
    matrices that are vectors in the checkpoint. stacked: tensors that stack matrices along axis 0 -> the Hugging Face
    name of each, with a placeholder for its number. unused: tensors to ignore. one_plus: norms stored as ``w + 1``
    where the checkpoint has w. derived: (config, layer) -> tensors computed from others of the layer, as Hugging
    Face name in the layer -> expression; skipped if the file lacks a source. yarn: entries of a rotary scaling of this
    type that the metadata lacks; longrope: likewise. magnitude: ratio of YaRN's ``yarn_log_multiplier`` to
    ``mscale_all_dim``. instead: tensor -> the description to use for files that have it. finish: computes entries from
    the rest of the config. others: other model types that ``finish`` may choose. expected: tensor -> warning to show
    if the file lacks it.
    """

    model_type: str
    config: Mapping[str, str]
    optional: Mapping[str, tuple[str, ...]]
    fixed: Mapping[str, Any]
    layer: str
    names: Mapping[str, str]
    embedding: str
    head: str
    heads: Mapping[str, str]
    grouped: frozenset[str] = frozenset()
    transposed: frozenset[str] = frozenset()
    flat: frozenset[str] = frozenset()
    stacked: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)
    unused: frozenset[str] = frozenset()
    one_plus: frozenset[str] = frozenset()
    derived: Callable[[Mapping[str, Any], int], Mapping[str, Expr]] = lambda config, layer: {}
    yarn: Mapping[str, Any] = field(default_factory=dict)
    longrope: Mapping[str, Any] = field(default_factory=dict)
    magnitude: float | None = None
    lists: Mapping[str, str] = field(default_factory=dict)
    having: Mapping[str, str] = field(default_factory=dict)
    rows: Mapping[str, str] = field(default_factory=dict)
    present: Mapping[str, str] = field(default_factory=dict)
    finish: Callable[[dict[str, Any]], dict[str, Any]] = lambda config: {}
    others: tuple[str, ...] = ()
    expected: Mapping[str, str] = field(default_factory=dict)
    instead: Mapping[str, GGUFArchitecture] = field(default_factory=dict)

    @property
    def layer_prefixes(self) -> Mapping[str, str]:
        """``parts``, or a single one without tensor prefix."""
        return self.parts or {"": self.layer}


LLAMA = GGUFArchitecture(
    model_type="llama",
    config={
        "hidden_size": "embedding_length",
        "intermediate_size": "feed_forward_length",
        "num_hidden_layers": "block_count",
        "num_attention_heads": "attention.head_count",
        "max_position_embeddings": "context_length",
        "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    },
    optional={
        "num_key_value_heads": ("attention.head_count_kv",),
        "rope_theta": ("rope.freq_base",),
        "head_dim": ("attention.key_length", "rope.dimension_count"),
    },
    fixed={"architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "rope_theta": 10000.0},
    layer="model.layers",
    names={
        "token_embd": "model.embed_tokens",
        "output_norm": "model.norm",
        "output": "lm_head",
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    },
    embedding="token_embd.weight",
    head="output.weight",
    heads={"attn_q": "attention.head_count", "attn_k": "attention.head_count_kv"},
    present={"attention_bias": "attn_q.bias", "mlp_bias": "ffn_up.bias"},
)
LAYER_NORM_CONFIG = {k: v for k, v in LLAMA.config.items() if k != "rms_norm_eps"}
LAYER_NORM_EPSILON = "attention.layer_norm_epsilon"
ROTARY = {"rotary_dim": ("rope.dimension_count",)}
WINDOW = {"sliding_window": ("attention.sliding_window",)}
QK_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
POST_NORMS = {"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
SCALES = {
    "embedding_multiplier": ("embedding_scale",),
    "attention_multiplier": ("attention.scale",),
    "residual_multiplier": ("residual_scale",),
    "logits_scaling": ("logit_scale",),
}
EXPERTS = {
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.gate_proj",
    "ffn_up_exps": "mlp.experts.up_proj",
    "ffn_down_exps": "mlp.experts.down_proj",
}
SHARED = {
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}


def like_llama(model_type: str, class_name: str, **changes: Any) -> GGUFArchitecture:
    """A description with Llama's names, without reordered rows, and other fixed values; ``changes`` replace fields."""
    fixed = {"architectures": [class_name], **changes.pop("fixed", {})}
    optional = {**LLAMA.optional, "head_dim": ("attention.key_length",), **changes.pop("optional", {})}
    names = {**LLAMA.names, **changes.pop("names", {})}
    base: dict[str, Any] = {"heads": {}, "present": {}, **changes}
    return replace(LLAMA, model_type=model_type, fixed=fixed, optional=optional, names=names, **base)


def rotary_part(config: dict[str, Any]) -> dict[str, Any]:
    """``rope.dimension_count`` counts rotated elements; Hugging Face's key is the fraction of the head size."""
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    rotated = config.pop("rotary_dim", head_dim)
    return {"partial_rotary_factor": rotated / head_dim}

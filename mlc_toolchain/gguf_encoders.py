"""GGUF architectures of encoders: BERT, Nomic Embed, ModernBERT."""

from __future__ import annotations

from typing import Any

from mlc_toolchain.gguf_base import LAYER_NORM_CONFIG, LAYER_NORM_EPSILON, GGUFArchitecture

POOLING_BY_FIRST = 2  # value of ``pooling_type`` for CLS pooling
SIZES = {**LAYER_NORM_CONFIG, "layer_norm_eps": LAYER_NORM_EPSILON}
EMBEDDINGS = {
    "token_embd": "embeddings.word_embeddings",
    "token_types": "embeddings.token_type_embeddings",
    "position_embd": "embeddings.position_embeddings",
}
TYPES = {"type_vocab_size": "token_types.weight"}


def _pooled(config: dict[str, Any]) -> dict[str, Any]:
    """BERT with CLS pooling is the model type of BGE."""
    return {"model_type": "bert-bge"} if config.pop("pooling_type", 0) == POOLING_BY_FIRST else {}


def _encoder(model_type: str, class_name: str, layer: str, names: dict[str, str], **more: Any) -> GGUFArchitecture:
    return GGUFArchitecture(
        model_type=model_type,
        fixed={"architectures": [class_name]},
        layer=layer,
        names=names,
        embedding="token_embd.weight",
        head="output.weight",
        heads={},
        **more,
    )


BERT = _encoder(
    "bert",
    "BertModel",
    "encoder.layer",
    {
        **EMBEDDINGS,
        "token_embd_norm": "embeddings.LayerNorm",
        "attn_q": "attention.self.query",
        "attn_k": "attention.self.key",
        "attn_v": "attention.self.value",
        "attn_output": "attention.output.dense",
        "attn_output_norm": "attention.output.LayerNorm",
        "ffn_up": "intermediate.dense",
        "ffn_down": "output.dense",
        "layer_output_norm": "output.LayerNorm",
    },
    config=SIZES,
    optional={"pooling_type": ("pooling_type",)},
    rows=TYPES,
    finish=_pooled,
    others=("bert-bge", "roberta", "xlm-roberta"),
)
"""Also for RoBERTa, whose converted table of positions begins with the first used position."""
NOMIC_BERT = _encoder(
    "nomic_bert",
    "NomicBertModel",
    "encoder.layers",
    {
        **EMBEDDINGS,
        "token_embd_norm": "emb_ln",
        "attn_qkv": "attn.Wqkv",
        "attn_output": "attn.out_proj",
        "attn_output_norm": "norm1",
        "ffn_up": "mlp.fc11",
        "ffn_gate": "mlp.fc12",
        "ffn_down": "mlp.fc2",
        "layer_output_norm": "norm2",
    },
    config=SIZES,
    optional={"rope_theta": ("rope.freq_base",)},
    rows=TYPES,
)
MODERN_BERT = _encoder(
    "modernbert",
    "ModernBertModel",
    "layers",
    {
        "token_embd": "embeddings.tok_embeddings",
        "token_embd_norm": "embeddings.norm",
        "output_norm": "final_norm",
        "attn_norm": "attn_norm",
        "attn_qkv": "attn.Wqkv",
        "attn_output": "attn.Wo",
        "ffn_norm": "mlp_norm",
        "ffn_up": "mlp.Wi",
        "ffn_down": "mlp.Wo",
    },
    config={**LAYER_NORM_CONFIG, "local_attention": "attention.sliding_window"},
    optional={
        "norm_eps": ("attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon"),
        "rope_theta": ("rope.freq_base",),
        "rope_local_base_freq": ("rope.freq_base_swa",),
        "global_attn_every_n_layers": ("attention.sliding_window_pattern",),
        "hidden_activation": ("hidden_activation",),
    },
    present={"attention_bias": "attn_qkv.bias", "mlp_bias": "ffn_up.bias", "norm_bias": "ffn_norm.bias"},
)
ENCODERS = {"bert": BERT, "nomic-bert": NOMIC_BERT, "modern-bert": MODERN_BERT}
"""Architectures by ``general.architecture``."""

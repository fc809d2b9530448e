"""GGUF architectures of T5 and its encoder. A gate tensor distinguishes T5 1.1 and Flan-T5 from T5 1.0."""

from __future__ import annotations

from dataclasses import replace

from mlc_toolchain.gguf_base import GGUFArchitecture

ATTENTION = {"q": "q", "k": "k", "v": "v", "o": "o", "rel_b": "relative_attention_bias"}


def _part(part: str, feed_forward: int) -> dict[str, str]:
    """The tensor names of the encoder or decoder. feed_forward: index of the feed-forward part in a layer."""
    own = {f"attn_{stem}": f"layer.0.SelfAttention.{name}" for stem, name in ATTENTION.items()}
    own["attn_norm"] = "layer.0.layer_norm"
    if part == "dec.":
        own |= {f"cross_attn_{stem}": f"layer.1.EncDecAttention.{name}" for stem, name in ATTENTION.items()}
        own["cross_attn_norm"] = "layer.1.layer_norm"
    dense = f"layer.{feed_forward}.DenseReluDense"
    own |= {"ffn_norm": f"layer.{feed_forward}.layer_norm", "ffn_up": f"{dense}.wi", "ffn_down": f"{dense}.wo"}
    return {f"{part}{stem}": name for stem, name in own.items()}


def _gated(ungated: GGUFArchitecture) -> GGUFArchitecture:
    """The variant with the GELU gates of T5 1.1 and Flan-T5; the first versions have ReLU and no gate."""
    names = dict(ungated.names)
    for up, name in ungated.names.items():
        if up.endswith("ffn_up"):
            names |= {up: f"{name}_1", f"{up.removesuffix('up')}gate": f"{name}_0"}
    return replace(ungated, names=names, fixed={**ungated.fixed, "feed_forward_proj": "gated-gelu"})


T5_RELU = GGUFArchitecture(
    model_type="t5",
    config={
        "d_model": "embedding_length",
        "d_ff": "feed_forward_length",
        "d_kv": "attention.key_length",
        "num_layers": "block_count",
        "num_heads": "attention.head_count",
        "n_positions": "context_length",
        "layer_norm_epsilon": "attention.layer_norm_rms_epsilon",
        "relative_attention_num_buckets": "attention.relative_buckets_count",
    },
    optional={
        "num_decoder_layers": ("decoder_block_count",),
        "decoder_start_token_id": ("decoder_start_token_id",),
    },
    fixed={"architectures": ["T5ForConditionalGeneration"], "feed_forward_proj": "relu"},
    layer="encoder.block",
    parts={"enc.": "encoder.block", "dec.": "decoder.block"},
    names={
        "token_embd": "shared",
        "output": "lm_head",
        "enc.output_norm": "encoder.final_layer_norm",
        "dec.output_norm": "decoder.final_layer_norm",
        **_part("enc.", 1),
        **_part("dec.", 2),
    },
    embedding="token_embd.weight",
    head="output.weight",
    heads={},
)
ENCODER_RELU = replace(
    T5_RELU, model_type="t5_encoder", fixed={**T5_RELU.fixed, "architectures": ["T5EncoderModel"]}, optional={}
)
GATES = "enc.blk.0.ffn_gate.weight"
T5 = replace(T5_RELU, instead={GATES: _gated(T5_RELU)})
T5_ENCODER = replace(ENCODER_RELU, instead={GATES: _gated(ENCODER_RELU)})

"""The tables of encoders and encoder-decoders and their variants that are compared with transformers."""

from __future__ import annotations

from dataclasses import dataclass

import transformers
from transformers import PreTrainedModel

from tests.model_zoo.architecture_cases import COMMON, CONTEXT, LLAMA_LIKE, Case
from tests.model_zoo.checkpoint_forms import nomic_bert


@dataclass(frozen=True)
class EncoderCase(Case):
    """One variant; what is compared are hidden states. model_type: where config.json does not say it."""

    model_type: str = "auto"

    def model(self) -> PreTrainedModel:
        config = self.config(**{**COMMON, **self.sizes, **self.options})
        return transformers.AutoModel.from_config(config)


BERT_LIKE = {k: v for k, v in LLAMA_LIKE.items() if k != "num_key_value_heads"}
ONE_LAYER = {"num_hidden_layers": 1}
OFFSET = {**BERT_LIKE, "max_position_embeddings": CONTEXT + 2, "pad_token_id": 1, "type_vocab_size": 1}
DEBERTA = {
    "relative_attention": True,
    "position_biased_input": False,
    "pos_att_type": "p2c|c2p",
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_buckets": 12,
}
DISTIL_LIKE = {
    "dim": 60,
    "hidden_dim": 52,
    "n_layers": 2,
    "n_heads": 6,
    "max_position_embeddings": CONTEXT,
}
CASES = [
    EncoderCase("bert", transformers.BertConfig, sizes=BERT_LIKE, quantized=True),
    EncoderCase("bert-bge", transformers.BertConfig, ONE_LAYER, sizes=BERT_LIKE, model_type="bert-bge"),
    EncoderCase("roberta", transformers.RobertaConfig, sizes=OFFSET),
    EncoderCase("xlm-roberta", transformers.XLMRobertaConfig, ONE_LAYER, sizes=OFFSET),
    EncoderCase("distilbert", transformers.DistilBertConfig, sizes=DISTIL_LIKE),
    EncoderCase("mpnet", transformers.MPNetConfig, sizes={**OFFSET, "type_vocab_size": None}),
    EncoderCase("deberta-v2", transformers.DebertaV2Config, DEBERTA, sizes={**BERT_LIKE, "type_vocab_size": 0}),
    EncoderCase(
        "deberta-v2",
        transformers.DebertaV2Config,
        {**DEBERTA, **ONE_LAYER, "share_att_key": False, "norm_rel_ebd": "none", "position_buckets": -1},
        "own-projections",
        sizes={**BERT_LIKE, "type_vocab_size": 2},
    ),
    EncoderCase("gte", transformers.GteConfig, sizes=BERT_LIKE),
    EncoderCase("gte", transformers.GteConfig, {**ONE_LAYER, "type_vocab_size": 0}, "no-types", BERT_LIKE),
    EncoderCase("jina_embeddings_v3", transformers.JinaEmbeddingsV3Config, ONE_LAYER, sizes=BERT_LIKE),
    EncoderCase(
        "modernbert",
        transformers.ModernBertConfig,
        {"num_hidden_layers": 4, "local_attention": 14, "global_attn_every_n_layers": 3},
        sizes=BERT_LIKE,
        quantized=True,
    ),
    EncoderCase(
        "modernbert",
        transformers.ModernBertConfig,
        {"attention_bias": True, "mlp_bias": True, "norm_bias": True, "local_attention": 6},
        "bias",
        sizes=BERT_LIKE,
    ),
    EncoderCase("nomic_bert", transformers.NomicBertConfig, sizes=BERT_LIKE),
    EncoderCase(
        "nomic_bert", transformers.NomicBertConfig, ONE_LAYER, "published", BERT_LIKE, to_checkpoint=nomic_bert
    ),
    EncoderCase("eurobert", transformers.EuroBertConfig),
    EncoderCase(
        "embeddinggemma",
        transformers.Gemma3TextConfig,
        {
            "head_dim": 12,
            "num_hidden_layers": 3,
            "sliding_window": 10,
            "sliding_window_pattern": 3,
            "query_pre_attn_scalar": 9,
            "use_bidirectional_attention": True,
        },
        norms_around_zero=True,
    ),
    EncoderCase("qwen3-embedding", transformers.Qwen3Config, {"head_dim": 12}, model_type="qwen3-embedding"),
]

T5_LIKE = {
    "d_model": 60,
    "d_kv": 10,
    "d_ff": 52,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 6,
    "relative_attention_num_buckets": 16,
    "relative_attention_max_distance": 20,
    "decoder_start_token_id": 0,
    "n_positions": CONTEXT,
}


@dataclass(frozen=True)
class T5EncoderCase(EncoderCase):
    def model(self) -> PreTrainedModel:
        return transformers.T5EncoderModel(transformers.T5Config(**{**COMMON, **self.sizes, **self.options}))


CASES += [
    T5EncoderCase("t5_encoder", transformers.T5Config, sizes=T5_LIKE),
    T5EncoderCase("t5_encoder", transformers.T5Config, {"feed_forward_proj": "gated-gelu"}, "gated", T5_LIKE),
]


class EncoderDecoderCase(Case):
    """One variant of an encoder-decoder; what is compared are logits after a source."""

    def model(self) -> PreTrainedModel:
        config = self.config(**{**COMMON, **self.sizes, **self.options})
        return transformers.AutoModelForSeq2SeqLM.from_config(config)


ENCODER_DECODERS = [
    EncoderDecoderCase("t5", transformers.T5Config, sizes=T5_LIKE),
    EncoderDecoderCase(
        "t5", transformers.T5Config, {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}, "gated", T5_LIKE
    ),
]

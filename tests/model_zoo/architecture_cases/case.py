"""One variant of an architecture, and the options that several families share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import transformers
from transformers import PretrainedConfig, PreTrainedModel

from tests.model_zoo.checkpoint_forms import ToCheckpoint
from tests.model_zoo.mobilenetv5_reference import with_tower

UNKNOWN_TO_AUTO = {
    transformers.Gemma3nConfig: with_tower,
    transformers.Mistral4Config: transformers.Mistral4ForCausalLM,
    transformers.Step3p7Config: transformers.Step3p7ForConditionalGeneration,
}
VOCAB, CONTEXT, IMAGE_TOKEN = 261, 64, 250
COMMON = {"vocab_size": VOCAB, "attn_implementation": "eager", "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
LLAMA_LIKE = {
    "hidden_size": 60,
    "intermediate_size": 52,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}
HEADS = {"head_dim": 12}
WINDOWS = {**HEADS, "sliding_window": 7}
MIXED = ["sliding_attention", "full_attention"]
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0, 1.1, 1.3],
    "long_factor": [1.5, 4.0, 9.0],
    "partial_rotary_factor": 0.6,
}
MULTIPLIERS = {
    "embedding_multiplier": 1.5,
    "attention_multiplier": 0.4,
    "residual_multiplier": 0.7,
    "logits_scaling": 2.0,
}
MINISTRAL = {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.5}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 20}
LONGROPE_OF_8 = {
    **LONGROPE,
    "short_factor": [1.0] * 4,
    "long_factor": [1.5, 4.0, 9.0, 11.0],
    "partial_rotary_factor": 1.0,
    "original_max_position_embeddings": 12,
}
GROUPS = {"n_group": 3, "topk_group": 2, "routed_scaling_factor": 1.5}
ALPHA = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 1.0, "alpha": 50.0}
PARTIAL = {"partial_rotary_factor": 0.4}


def rope(**more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, **more}}


@dataclass(frozen=True)
class Case:
    """One variant. config, options: transformers' class that computes the expected logits, and its arguments.

    norms_around_zero: norms store ``w - 1``. to_checkpoint: converts config and tensors to the form of the
    architecture's checkpoints, if transformers has no class for it. quantized: also compare with 4-bit weights.
    adapt: changes the model of that class in place. alibi: the expected logits are computed without RoPE, with ALiBi
    added to the scores. image_tokens: number of tokens of an image, if the model takes images; these are compared
    too. grids: rows and columns of the tokens of two images, if the model takes images of any size.
    """

    name: str
    config: type[PretrainedConfig]
    options: Mapping[str, Any] = field(default_factory=dict)
    variant: str = ""
    sizes: Mapping[str, Any] = field(default_factory=lambda: LLAMA_LIKE)
    norms_around_zero: bool = False
    to_checkpoint: ToCheckpoint | None = None
    quantized: bool = False
    adapt: Callable[[PreTrainedModel], None] | None = None
    alibi: bool = False
    image_tokens: int = 0
    grids: Sequence[tuple[int, int]] = ()

    @property
    def id(self) -> str:
        return f"{self.name}-{self.variant}" if self.variant else self.name

    def model(self) -> PreTrainedModel:
        config = self.config(**deepcopy({**COMMON, **self.sizes, **self.options}))  # some configs write into theirs
        takes_images = self.image_tokens or self.grids
        auto = transformers.AutoModelForImageTextToText if takes_images else transformers.AutoModelForCausalLM
        model = UNKNOWN_TO_AUTO.get(self.config, auto.from_config)(config)
        if self.adapt:
            self.adapt(model)
        return model

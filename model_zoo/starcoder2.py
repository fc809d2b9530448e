"""StarCoder2: layer norms, an ungated MLP, biases everywhere, RoPE, optional sliding window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.config import DecoderConfig
from model_zoo.transformer import CausalLM, attention, layer_norm, plain_mlp, pre_norm_model
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, llama_names


@dataclass(frozen=True, kw_only=True)
class Starcoder2Config(DecoderConfig):
    model_type: ClassVar[str] = "starcoder2"
    norm_epsilon: float = 1e-5
    hidden_act: str = "gelu_pytorch_tanh"
    use_bias: bool = True
    sliding_window: int | None = None  # type: ignore[misc]  # a field here, a class constant of the base
    tie_word_embeddings: bool = True


def model(c: Starcoder2Config) -> CausalLM:
    return pre_norm_model(
        c,
        layer_norm(c.norm_epsilon),
        lambda: attention(c, qkv_bias=c.use_bias, out_bias=c.use_bias),
        lambda: plain_mlp(c, c.hidden_act, c.use_bias),
    )


def weights(c: Starcoder2Config) -> WeightMap:
    m = llama_names(c, gated=False)
    for layer in m.layers(LAYER, c.num_hidden_layers):
        m.rename(f"{layer}.mlp.up_proj", f"{layer}.mlp.c_fc")
        m.rename(f"{layer}.mlp.down_proj", f"{layer}.mlp.c_proj")
    return m


TINY = Starcoder2Config(**tiny.SIZES, sliding_window=21)
ARCHITECTURE = Architecture("starcoder2", Starcoder2Config, model, weights, tiny=TINY)

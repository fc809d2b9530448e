"""SmolLM3: Llama without RoPE in some layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from model_zoo import tiny
from model_zoo.architecture import Architecture
from model_zoo.layer_types import FULL, SLIDING, LayerTypesConfig
from model_zoo.transformer import CausalLM, attention, gated_mlp, pre_norm_model, rms_norm
from model_zoo.weight_rules import llama_names


@dataclass(frozen=True, kw_only=True)
class SmolLM3Config(LayerTypesConfig):
    """no_rope_layers: 1 for a layer with RoPE, else 0; by default, every ``no_rope_layer_interval``-th has none.

    A window, if any, applies in the layers without RoPE, unless ``layer_types`` is given.
    """

    model_type: ClassVar[str] = "smollm3"
    has_window_switch: ClassVar[bool] = True
    rms_norm_eps: float = 1e-6
    rope_theta: float = 2e6
    hidden_act: str = "silu"
    attention_bias: bool = False
    mlp_bias: bool = False
    no_rope_layers: Sequence[int] | None = None
    no_rope_layer_interval: int = 4
    tie_word_embeddings: bool = True

    def __post_init__(self) -> None:
        interval, layers = self.no_rope_layer_interval, range(self.num_hidden_layers)
        rotated = self.no_rope_layers or [int((i + 1) % interval != 0) for i in layers]
        self._check_layers("no_rope_layers", rotated)
        object.__setattr__(self, "no_rope_layers", tuple(rotated))
        super().__post_init__()

    def has_rope(self, layer: int) -> bool:
        assert self.no_rope_layers is not None
        return bool(self.no_rope_layers[layer])

    def default_layer_types(self) -> tuple[str, ...]:
        windowed = (self.sliding_window and not self.has_rope(i) for i in range(self.num_hidden_layers))
        return tuple(SLIDING if has_window else FULL for has_window in windowed)


def model(c: SmolLM3Config) -> CausalLM:
    return pre_norm_model(
        c,
        rms_norm(c.rms_norm_eps),
        lambda: attention(c, qkv_bias=c.attention_bias, out_bias=c.attention_bias),
        lambda: gated_mlp(c, c.hidden_act, c.mlp_bias),
    )


TINY = SmolLM3Config(**tiny.SIZES, no_rope_layer_interval=2)
ARCHITECTURE = Architecture("smollm3", SmolLM3Config, model, llama_names, tiny=TINY)

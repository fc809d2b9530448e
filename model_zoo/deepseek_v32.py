"""DeepSeek-V3.2, GLM-5: DeepSeek-V3 with an indexer that chooses the keys of each token, for contexts without a choice.

A token attends to ``index_topk`` keys, those with the greatest scores of the indexer; up to that length to all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from model_zoo import deepseek_v2, deepseek_v3
from model_zoo.config_check import unsupported
from model_zoo.deepseek_v2 import SIZES, DeepseekConfig
from model_zoo.deepseek_v3 import DeepseekV3Config
from model_zoo.weight_map import WeightMap

OF_INDEXER = frozenset(
    "index_head_dim index_n_heads index_skip_topk_offset index_topk_freq index_topk_pattern indexer_rope_interleave "
    "indexer_types".split()
)
"""Keys of the indexer, which is not computed."""
INDEXED = "indexed_attention"


@dataclass(frozen=True, kw_only=True)
class DeepseekV32Config(DeepseekV3Config):
    """index_topk: the longest context, unless config.json gives a shorter one."""

    model_type: ClassVar[str] = "deepseek_v32"
    ignored: ClassVar[frozenset[str]] = DeepseekConfig.ignored | OF_INDEXER
    index_topk: int = 2048

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> Self:
        values = dict(raw)
        longest, chosen = values.get("max_position_embeddings"), values.get("index_topk", cls.index_topk)
        if "context_window_size" not in values and isinstance(longest, int) and isinstance(chosen, int):
            values["context_window_size"] = min(longest, chosen)
        types = values.get("layer_types")
        if isinstance(types, list) and all(kind == INDEXED for kind in types):
            del values["layer_types"]
        return super().from_hf(values)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.context_window_size > self.index_topk:
            raise unsupported("context_window_size", self.context_window_size, f"at most index_topk, {self.index_topk}")


@dataclass(frozen=True, kw_only=True)
class GlmMoeDsaConfig(DeepseekV32Config):
    model_type: ClassVar[str] = "glm_moe_dsa"
    rms_norm_eps: float = 1e-5
    first_k_dense_replace: int | None = 3


def weights(c: DeepseekV32Config) -> WeightMap:
    m = deepseek_v2.weights(c)
    m.unused("model.layers.*.self_attn.indexer.*")
    return m


TINY = DeepseekV32Config(**SIZES, q_lora_rank=44)
TINY_GLM = GlmMoeDsaConfig(**SIZES, q_lora_rank=44)
ARCHITECTURE = replace(
    deepseek_v3.ARCHITECTURE, name="deepseek_v32", config=DeepseekV32Config, weights=weights, tiny=TINY
)
GLM = replace(ARCHITECTURE, name="glm_moe_dsa", config=GlmMoeDsaConfig, tiny=TINY_GLM)

"""MiMo 7B (Xiaomi 2025): Qwen2 with a layer that predicts the token after the next one."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from model_zoo import mtp, qwen2
from model_zoo.architecture import Architecture
from model_zoo.weight_map import WeightMap


@dataclass(frozen=True, kw_only=True)
class MiMoConfig(qwen2.Qwen2Config):
    model_type: ClassVar[str] = "mimo"
    ignored: ClassVar[frozenset[str]] = frozenset({"num_nextn_predict_layers"})


def weights(c: MiMoConfig) -> WeightMap:
    m = qwen2.weights(c)
    m.unused("model.mtp_layers.*")
    return m


TINY = MiMoConfig(**{f.name: getattr(qwen2.TINY, f.name) for f in fields(qwen2.TINY)})
ARCHITECTURE = Architecture("mimo", MiMoConfig, qwen2.Qwen2ForCausalLM, weights, tiny=TINY)
MTP = mtp.head(ARCHITECTURE, mtp.MIMO)

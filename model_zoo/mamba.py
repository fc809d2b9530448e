"""Mamba and Falcon Mamba: pre-norm selective state space layers; Falcon Mamba also normalizes dt, B and C."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from mlc_compiler import nn
from mlc_compiler.nn.mamba import Mamba, MambaSizes
from mlc_compiler.nn.norms import UnweightedRMSNorm
from mlc_errors import MLCError
from model_zoo.architecture import Architecture
from model_zoo.config import LayerKinds, RecurrentKind
from model_zoo.hybrid import HybridConfig, conv_taps, layers_of
from model_zoo.mamba2 import COMMON, OUTER, PATTERN, TRAINING
from model_zoo.mamba2_layers import MAMBA
from model_zoo.transformer import CausalLM, MixerLayer
from model_zoo.weight_expr import CheckpointTensor, NegativeExp, Transpose
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import renamed


@dataclass(frozen=True, kw_only=True)
class MambaConfig(HybridConfig):
    """intermediate_size: channels of the scan; by default ``expand`` times the hidden size.

    time_step_rank: rank of the projection of dt; "auto": a sixteenth of the hidden size.
    """

    model_type: ClassVar[str] = "mamba"
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {"residual_in_fp32": (True, False)}
    ignored: ClassVar[frozenset[str]] = TRAINING - {"time_step_rank"}
    names: ClassVar[Mapping[str, tuple[str, ...]]] = {"rms_norm_eps": ("layer_norm_epsilon",)}
    tie_word_embeddings: bool = True
    rms_norm_eps: float = 1e-5
    intermediate_size: int = 0
    expand: float = 2.0
    state_size: int = 16
    conv_kernel: int = 4
    time_step_rank: int | str = "auto"
    use_bias: bool = False
    use_conv_bias: bool = True

    def __post_init__(self) -> None:
        self._fill("intermediate_size", int(self.expand * self.hidden_size))
        super().__post_init__()
        if self.time_step_rank != "auto" and not isinstance(self.time_step_rank, int):
            raise MLCError(
                f'time_step_rank: got {str(self.time_step_rank)[:20]!r}; expected a size or "auto"',
                where=["config.json"],
            )

    def default_layer_types(self) -> tuple[str, ...]:
        return (MAMBA,) * self.num_hidden_layers

    @property
    def sizes(self) -> MambaSizes:
        rank = self.time_step_rank if isinstance(self.time_step_rank, int) else -(-self.hidden_size // 16)
        return MambaSizes(self.hidden_size, self.intermediate_size, self.state_size, rank, self.conv_kernel)

    @property
    def kinds_by_type(self) -> Mapping[str, LayerKinds]:
        return {MAMBA: (RecurrentKind(self.sizes.arrays),)}

    def mixer(self) -> Mamba:
        return Mamba(self.sizes, bias=self.use_bias, conv_bias=self.use_conv_bias)


@dataclass(frozen=True, kw_only=True)
class FalconMambaConfig(MambaConfig):
    model_type: ClassVar[str] = "falcon_mamba"
    mixer_rms_eps: float = 1e-6

    def mixer(self) -> Mamba:
        sizes = {"dt_norm": self.sizes.rank, "b_norm": self.state_size, "c_norm": self.state_size}
        norms = {name: UnweightedRMSNorm(size, self.mixer_rms_eps) for name, size in sizes.items()}
        return Mamba(self.sizes, bias=self.use_bias, conv_bias=self.use_conv_bias, **norms)


def model(c: MambaConfig) -> CausalLM:
    """Build Mamba or Falcon Mamba."""
    layers = [MixerLayer(nn.RMSNorm(c.hidden_size, c.rms_norm_eps), c.mixer()) for _ in range(c.num_hidden_layers)]
    return CausalLM(c, layers, nn.RMSNorm(c.hidden_size, c.rms_norm_eps))


def weights(c: MambaConfig) -> WeightMap:
    names = ("norm", *(f"mixer.{name}" for name in ("in_proj", "x_proj", "dt_proj", "out_proj", "D")))
    m = renamed(c, OUTER, PATTERN, {name: name for name in names})
    mamba_rules(m, c, "mixer", "mixer", PATTERN)
    return m


def mamba_rules(m: WeightMap, c: HybridConfig, target: str, source: str, pattern: str) -> None:
    """Add the rules of convolutions and decay rates in layers with a ``Mamba``, see ``conv_taps``."""
    conv_taps(m, c, {MAMBA}, f"{target}.conv1d", f"{source}.conv1d", pattern)
    for layer, theirs in layers_of(m, c, {MAMBA}, pattern):
        logarithms, rates = (CheckpointTensor(f"{theirs}.{source}.{name}") for name in ("A_log", "A"))
        m.either(f"{layer}.{target}.A", Transpose((NegativeExp((logarithms,)),)), Transpose((rates,)))  # GGUF files


ARCHITECTURE = Architecture("mamba", MambaConfig, model, weights, tiny=MambaConfig(**COMMON, state_size=12))
FALCON = Architecture(
    "falcon_mamba", FalconMambaConfig, model, weights, tiny=FalconMambaConfig(**COMMON, state_size=12)
)

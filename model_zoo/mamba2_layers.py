"""Base configuration, layers and weight map rules of models with Mamba-2."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlc_compiler import nn
from mlc_compiler.nn.mamba import Mamba2, Mamba2Sizes
from mlc_compiler.nn.norms import GroupedRMSNorm
from mlc_errors import MLCError
from model_zoo.config import RecurrentKind
from model_zoo.hybrid import HybridConfig, conv_taps, layers_of
from model_zoo.weight_expr import CheckpointTensor, NegativeExp
from model_zoo.weight_map import WeightMap
from model_zoo.weight_rules import LAYER, LayerNames

MAMBA = "linear_attention"


@dataclass(frozen=True, kw_only=True)
class Mamba2Config(HybridConfig):
    """mamba_d_head: channels of a head, or "auto". time_step_limit: minimum and maximum of dt, None for no limits."""

    mamba_n_heads: int = 128
    mamba_d_head: int | str = "auto"
    mamba_n_groups: int = 1
    mamba_d_state: int = 256
    mamba_d_conv: int = 4
    mamba_expand: int = 2
    mamba_conv_bias: bool = True
    mamba_proj_bias: bool = False
    time_step_limit: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "time_step_limit", _limits(self.time_step_limit))
        super().__post_init__()
        channels, heads = self.mamba_channels, self.mamba_n_heads
        if channels % heads or self.mamba_d_head not in ("auto", channels // heads):
            raise MLCError(
                f"mamba_d_head: got {str(self.mamba_d_head)[:20]!r} for {heads} heads; expected that heads have "
                f"{channels} channels together",
                where=["config.json"],
            )
        if heads % self.mamba_n_groups:
            raise MLCError(
                f"mamba_n_groups: got {self.mamba_n_groups}; expected a divisor of {heads} heads", where=["config.json"]
            )

    @property
    def mamba_channels(self) -> int:
        """Channels of all heads."""
        return self.mamba_expand * self.hidden_size

    @property
    def mamba_sizes(self) -> Mamba2Sizes:
        heads = self.mamba_n_heads
        sizes = (heads, self.mamba_channels // heads, self.mamba_d_state, self.mamba_n_groups, self.mamba_d_conv)
        return Mamba2Sizes(self.hidden_size, *sizes)

    @property
    def mamba_kind(self) -> RecurrentKind:
        return RecurrentKind(self.mamba_sizes.arrays)

    def mamba_layer(self, epsilon: float, **options: Any) -> Mamba2:
        """A Mamba-2 layer with a norm of each group after the gate; options: see ``Mamba2``."""
        norm: nn.Module = GroupedRMSNorm(self.mamba_channels, self.mamba_n_groups, epsilon)
        shared: dict[str, Any] = {"norm": norm, "bias": self.mamba_proj_bias, "out_bias": self.mamba_proj_bias}
        limits = self.time_step_limit or ()
        return Mamba2(self.mamba_sizes, **{**shared, **options}, conv_bias=self.mamba_conv_bias, dt_limits=limits)


def _limits(given: Sequence[Any] | None) -> tuple[float, float] | None:
    """Parse the bounds of dt in config.json, which may be infinite; None if they never apply."""
    if given is None:
        return None
    try:
        lower, upper = (float(v["__float__"] if isinstance(v, Mapping) else v) for v in given)
    except (TypeError, ValueError, KeyError):
        raise MLCError(f"time_step_limit: got {str(given)[:80]}; expected two numbers", where=["config.json"]) from None
    if lower <= 0 and math.isinf(upper):
        return None
    return lower, min(upper, 1e30)


MAMBA_NAMES: LayerNames = {
    f"self_attn.{name}": f"mamba.{name}" for name in ("in_proj", "out_proj", "norm", "dt_bias", "D")
}
"""Names of a ``Mamba2`` that replaces attention, without its convolution and decay rates."""


def mamba2_rules(
    m: WeightMap,
    c: HybridConfig,
    target: str,
    source: str,
    types: Container[str] = (MAMBA,),
    pattern: str = LAYER,
) -> None:
    """Add the rules of convolutions and decay rates in layers of some types, see ``conv_taps``."""
    conv_taps(m, c, types, f"{target}.conv1d", f"{source}.conv1d", pattern)
    for layer, theirs in layers_of(m, c, types, pattern):
        logarithms = CheckpointTensor(f"{theirs}.{source}.A_log")
        m.either(f"{layer}.{target}.A", NegativeExp((logarithms,)), f"{theirs}.{source}.A")  # the latter in GGUF files

"""Recurrences on a CPU: tiles of channels over the worker team, SIMD within a tile, the tokens in order."""

from __future__ import annotations

from ....ir.expr import IntImm, PrimExpr, Var
from ....relax.ops.recurrent.convolution import Convolution
from ....relax.ops.recurrent.places import Places
from ....target import Target
from ....tir import te
from ....tir.nodes import PARALLEL, For
from ..machine import Cpu

CONV_VECTORS = 2  # SIMD registers of channels that are computed together


def causal_conv(
    state: te.Tensor,
    x: te.Tensor,
    weight: te.Tensor,
    slots: te.Tensor,
    token_seq: te.Tensor,
    token_pos: te.Tensor,
    layer: PrimExpr,
    bias: te.Tensor | None = None,
    *,
    target: Target,
    first: int = 0,
    activation: str = "",
) -> list[te.Tensor]:
    """Kernel of the operator ``recurrent.causal_conv``."""
    places, width = Places(state.shape[0], slots, token_seq, token_pos), CONV_VECTORS * Cpu.of(target).lanes(32)
    conv = Convolution(state, x, weight, places, layer, bias, first, activation, width)
    tile = Var("tile")
    return conv.results(For(tile, IntImm(conv.lanes.tiles), conv.tile(tile), PARALLEL))

"""Causal depthwise convolution over the tokens of each sequence."""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.expr import IntImm, PrimExpr, Var
from ....tir import te
from ....tir.nodes import PARALLEL, BufferStore, For, Stmt, buffer, seq
from ...info import show_shape, static_size
from ..registry import operator
from .places import Lanes, Places

ACTIVATIONS = ("", "silu")


@operator("recurrent.causal_conv", updates=("state",), scalars=("layer",))
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
    first: int = 0,
    activation: str = "",
) -> list[te.Tensor]:
    """``y[t, c] = activation(bias[c] + sum over k of weight[k, c] * x[t - (K - 1) + k, first + c])``, per sequence.

    state: floating [slots, L, K - 1, C], the last K - 1 inputs of each sequence, the oldest first, 0 before its
    beginning; x: [n, W], of which columns ``first`` to ``first + C`` are used; weight: [K, C]; bias: [C]. activation:
    "" or "silu". Returns ``state``, written in place, and y [n, C] in x's dtype; computed in float32.
    """
    return Convolution(state, x, weight, slots, token_seq, token_pos, layer, bias, first, activation).results()


@dataclass(eq=False)
class Convolution:
    """Builds the statements of ``causal_conv``. width: the number of channels per SIMD tile."""

    state: te.Tensor
    x: te.Tensor
    weight: te.Tensor
    slots: te.Tensor
    token_seq: te.Tensor
    token_pos: te.Tensor
    layer: PrimExpr
    bias: te.Tensor | None = None
    first: int = 0
    activation: str = ""
    width: int = 1

    def __post_init__(self) -> None:
        taps, channels = map(static_size, self.weight.shape)
        columns = static_size(self.x.shape[1])
        if taps is None or channels is None or taps < 2 or columns is None or columns < self.first + channels:
            raise ValueError(
                f"got x {show_shape(self.x.shape)} and weight {show_shape(self.weight.shape)}; expected [n, at least "
                f"{self.first} + C] and [2 or more, C]"
            )
        if [static_size(s) for s in self.state.shape[2:]] != [taps - 1, channels]:
            raise ValueError(f"got state {show_shape(self.state.shape)}; expected [slots, L, {taps - 1}, {channels}]")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation: got {self.activation!r}; expected '' or 'silu'")
        self.places = Places(self.state.shape[0], self.slots, self.token_seq, self.token_pos)
        self.taps, self.lanes = taps, Lanes(channels, self.width)
        self.y = buffer("y", (self.x.shape[0], IntImm(channels)), self.x.dtype)

    def results(self) -> list[te.Tensor]:
        """The operator's results, as tensors of a schedulable function."""
        return self._of(te.each((self.lanes.tiles,), "causal_conv", self._tile))

    def parallel_results(self) -> list[te.Tensor]:
        """The results, computed by one parallel loop over the tiles of channels."""
        tile = Var("tile")
        return self._of(For(tile, IntImm(self.lanes.tiles), self._tile(tile), PARALLEL))

    def _of(self, body: Stmt) -> list[te.Tensor]:
        inputs = [operand for operand in vars(self).values() if isinstance(operand, te.Tensor)]
        return [te.updated(self.state, inputs, body), *te.extern([self.y], inputs, body)]

    def _tile(self, tile: PrimExpr) -> Stmt:
        """Process all tokens for one tile of channels."""

        def step(t: PrimExpr, slot: PrimExpr) -> Stmt:
            result = self.lanes.each(tile, lambda _, c: BufferStore(self.y, self._result(t, slot, c), (t, c)))
            return seq(result, self.lanes.each(tile, lambda _, c: self._shift(t, slot, c)))

        def skip(t: PrimExpr) -> Stmt:
            return self.lanes.each(tile, lambda _, c: BufferStore(self.y, te.cast(te.f32(0), self.y.dtype), (t, c)))

        return self.places.each_token(step, skip)

    def _result(self, t: PrimExpr, slot: PrimExpr, c: PrimExpr) -> PrimExpr:
        total = te.f32(0) if self.bias is None else te.f32(self.bias[c])
        for k in range(self.taps - 1):
            total = total + te.f32(self.weight[k, c]) * te.f32(self.state[slot, self.layer, k, c])
        total = total + te.f32(self.weight[self.taps - 1, c]) * te.f32(self.x[t, c + self.first])
        result = total * te.sigmoid(total) if self.activation == "silu" else total
        return te.cast(result, self.y.dtype)

    def _shift(self, t: PrimExpr, slot: PrimExpr, c: PrimExpr) -> Stmt:
        state, last = self.state, self.taps - 2
        moved = [
            BufferStore(state.buffer, state.buffer[slot, self.layer, k + 1, c], (slot, self.layer, IntImm(k), c))
            for k in range(last)
        ]
        newest = te.cast(self.x[t, c + self.first], state.dtype)
        return seq(*moved, BufferStore(state.buffer, newest, (slot, self.layer, IntImm(last), c)))

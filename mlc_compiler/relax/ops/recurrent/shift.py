"""Token shift: replaces each token's vector by that of the previous token."""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.expr import IntImm, PrimExpr, Var
from ....tir import te
from ....tir.nodes import PARALLEL, BufferStore, For, Stmt, buffer, seq
from ...info import show_shape, static_size
from ..registry import operator
from .places import Lanes, Places


@operator("recurrent.token_shift", updates=("state",), scalars=("layer",))
def token_shift(
    state: te.Tensor,
    x: te.Tensor,
    slots: te.Tensor,
    token_seq: te.Tensor,
    token_pos: te.Tensor,
    layer: PrimExpr,
) -> list[te.Tensor]:
    """``y[t] = state;  state = x[t]``, per sequence: y is the previous token's x, 0 for the first token.

    state: floating [slots, L, C]; x: [n, C]. Returns ``state``, written in place, and y [n, C] in x's dtype.
    """
    return TokenShift(state, x, slots, token_seq, token_pos, layer).results()


@dataclass(eq=False)
class TokenShift:
    """Builds the statements of ``token_shift``. width: the number of channels per SIMD tile."""

    state: te.Tensor
    x: te.Tensor
    slots: te.Tensor
    token_seq: te.Tensor
    token_pos: te.Tensor
    layer: PrimExpr
    width: int = 1

    def __post_init__(self) -> None:
        channels = static_size(self.x.shape[1])
        if channels is None or self.state.ndim != 3 or static_size(self.state.shape[2]) != channels:
            got = f"{show_shape(self.state.shape)} and {show_shape(self.x.shape)}"
            raise ValueError(f"got {got}; expected a state [slots, L, C] and x [n, C] of known C")
        self.lanes = Lanes(channels, self.width)
        self.places = Places(self.state.shape[0], self.slots, self.token_seq, self.token_pos)
        self.y = buffer("y", self.x.shape, self.x.dtype)

    def results(self) -> list[te.Tensor]:
        """The operator's results, as tensors of a schedulable function."""
        return self._of(te.each((self.lanes.tiles,), "token_shift", self._tile))

    def parallel_results(self) -> list[te.Tensor]:
        """The results, computed by one parallel loop over the tiles of channels."""
        tile = Var("tile")
        return self._of(For(tile, IntImm(self.lanes.tiles), self._tile(tile), PARALLEL))

    def _of(self, body: Stmt) -> list[te.Tensor]:
        inputs = [self.state, self.x, *self.places.inputs]
        return [te.updated(self.state, inputs, body), *te.extern([self.y], inputs, body)]

    def _tile(self, tile: PrimExpr) -> Stmt:
        def step(t: PrimExpr, slot: PrimExpr) -> Stmt:
            def shift(_: PrimExpr, c: PrimExpr) -> Stmt:
                at, state = (slot, self.layer, c), self.state.buffer
                shifted = BufferStore(self.y, te.cast(state[at], self.y.dtype), (t, c))
                return seq(shifted, BufferStore(state, te.cast(self.x[t, c], state.dtype), at))

            return self.lanes.each(tile, shift)

        def skip(t: PrimExpr) -> Stmt:
            return self.lanes.each(tile, lambda _, c: BufferStore(self.y, te.cast(te.f32(0), self.y.dtype), (t, c)))

        return self.places.each_token(step, skip)

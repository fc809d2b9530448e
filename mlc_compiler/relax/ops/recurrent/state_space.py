"""Selective state-space models: Mamba and Mamba-2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ....ir.expr import IntImm, PrimExpr, Var, maximum, minimum
from ....tir import te
from ....tir.nodes import Buffer, LetStmt, Stmt, buffer
from ...info import show_shape, static_size
from ..elementwise import log1p
from ..registry import operator
from .matrix_state import Element, MatrixRecurrence


@operator("recurrent.ssd", updates=("state",), scalars=("layer",))
def ssd(
    state: te.Tensor,
    xbc: te.Tensor,
    dt: te.Tensor,
    dt_bias: te.Tensor,
    a: te.Tensor,
    d: te.Tensor,
    slots: te.Tensor,
    token_seq: te.Tensor,
    token_pos: te.Tensor,
    layer: PrimExpr,
    *,
    groups: int = 1,
    dt_first: int = 0,
    dt_limits: tuple[float, ...] = (),
) -> list[te.Tensor]:
    """The scan of Mamba-2 (Dao and Gu 2024, "Transformers are SSMs", section 2), per sequence and head:

    ``S = exp(a s) S + s B x^T;  y[t] = S^T C + d x``, with ``s = softplus(dt + dt_bias)``, clamped to
    ``dt_limits`` = (minimum, maximum), if given.

    state: float32 [slots, L, H, N, P]; xbc: [n, H * P + 2 * groups * N], which has for each token x, [H, P], then B and
    C, [groups, N] each; a group is shared by H / groups adjacent heads. dt: [n, W], of which columns ``dt_first`` to
    ``dt_first + H`` are used; dt_bias, a, d: [H]. Returns ``state``, written in place, and y [n, H, P] in xbc's dtype.
    """
    scan = Ssd(state, xbc, dt, dt_bias, a, d, slots, token_seq, token_pos, layer, groups, dt_first, dt_limits)
    return scan.results()


@dataclass(eq=False)
class Ssd(MatrixRecurrence):
    """Builds the statements of ``ssd``."""

    name: ClassVar[str] = "ssd"

    state: te.Tensor
    xbc: te.Tensor
    dt: te.Tensor
    dt_bias: te.Tensor
    a: te.Tensor
    d: te.Tensor
    slots: te.Tensor
    token_seq: te.Tensor
    token_pos: te.Tensor
    layer: PrimExpr
    groups: int = 1
    dt_first: int = 0
    dt_limits: tuple[float, ...] = ()
    width: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require((self.heads,), dt_bias=self.dt_bias, a=self.a, d=self.d)
        if (static_size(self.dt.shape[-1]) or 0) < self.dt_first + self.heads:
            raise ValueError(f"dt: got {show_shape(self.dt.shape)}; expected at least {self.dt_first} + {self.heads}")
        if len(self.dt_limits) not in (0, 2):
            raise ValueError(f"dt_limits: got {self.dt_limits}; expected none or two")
        self.time_step, self.decay = Var("time_step", "float32"), Var("decay", "float32")

    def result(self) -> Buffer:
        heads, size = self.heads, self.lanes.size
        if self.groups < 1 or heads % self.groups:
            raise ValueError(f"groups: got {self.groups}; expected a divisor of {heads} heads")
        self.require((heads * size + 2 * self.groups * self.rows,), xbc=self.xbc)
        return buffer("y", (self.xbc.shape[0], IntImm(heads), IntImm(size)), self.xbc.dtype)

    def _step(self, t: PrimExpr, h: PrimExpr, tile: PrimExpr, slot: PrimExpr) -> Stmt:
        time_step = softplus(te.f32(self.dt[t, h + self.dt_first]) + te.f32(self.dt_bias[h]))
        if self.dt_limits:
            time_step = minimum(maximum(time_step, self.dt_limits[0]), self.dt_limits[1])
        decay = te.exp(te.f32(self.a[h]) * self.time_step)
        return LetStmt(self.time_step, time_step, LetStmt(self.decay, decay, super()._step(t, h, tile, slot)))

    def initial(self, at: Element) -> PrimExpr:
        return te.f32(self.d[at.h]) * self._x(at)

    def updated(self, at: Element, old: PrimExpr, memory: PrimExpr) -> PrimExpr:
        return self.decay * old + self.time_step * self._of_group(at, 0) * self._x(at)

    def seen(self, at: Element, old: PrimExpr, new: PrimExpr) -> PrimExpr:
        return self._of_group(at, 1) * new

    def _x(self, at: Element) -> PrimExpr:
        return te.f32(self.xbc[at.t, at.h * self.lanes.size + at.c])

    def _of_group(self, at: Element, which: int) -> PrimExpr:
        """Element i of B (``which`` = 0) or C (1) for the head's group."""
        first = self.heads * self.lanes.size + which * self.groups * self.rows
        return te.f32(self.xbc[at.t, at.h // (self.heads // self.groups) * self.rows + at.i + first])


@operator("recurrent.selective_scan", updates=("state",), scalars=("layer",))
def selective_scan(
    state: te.Tensor,
    x: te.Tensor,
    dt: te.Tensor,
    b: te.Tensor,
    c: te.Tensor,
    a: te.Tensor,
    d: te.Tensor,
    slots: te.Tensor,
    token_seq: te.Tensor,
    token_pos: te.Tensor,
    layer: PrimExpr,
) -> list[te.Tensor]:
    """The scan of Mamba (Gu and Dao 2023, algorithm 2), per sequence and channel:

    ``S[i] = exp(a[i] dt) S[i] + dt b[i] x;  y[t] = d x + sum over i of c[i] S[i]``

    state: float32 [slots, L, 1, N, C]; x, dt: [n, 1, C], dt after softplus; b, c: [n, N]; a: [N, C]; d: [C].
    Returns ``state``, written in place, and y [n, 1, C] in x's dtype.
    """
    return SelectiveScan(state, x, dt, b, c, a, d, slots, token_seq, token_pos, layer).results()


@dataclass(eq=False)
class SelectiveScan(MatrixRecurrence):
    """Builds the statements of ``selective_scan``."""

    name: ClassVar[str] = "selective_scan"

    state: te.Tensor
    v: te.Tensor
    dt: te.Tensor
    b: te.Tensor
    c: te.Tensor
    a: te.Tensor
    d: te.Tensor
    slots: te.Tensor
    token_seq: te.Tensor
    token_pos: te.Tensor
    layer: PrimExpr
    width: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        channels = self.lanes.size
        self.require((1, channels), x=self.v, dt=self.dt)
        self.require((self.rows,), b=self.b, c=self.c)
        self.require((self.rows, channels), a=self.a)
        self.require((channels,), d=self.d)

    def initial(self, at: Element) -> PrimExpr:
        return te.f32(self.d[at.c]) * te.f32(self.v[at.t, at.h, at.c])

    def updated(self, at: Element, old: PrimExpr, memory: PrimExpr) -> PrimExpr:
        dt = te.f32(self.dt[at.t, at.h, at.c])
        decay = te.exp(te.f32(self.a[at.i, at.c]) * dt)
        return decay * old + dt * te.f32(self.b[at.t, at.i]) * te.f32(self.v[at.t, at.h, at.c])

    def seen(self, at: Element, old: PrimExpr, new: PrimExpr) -> PrimExpr:
        return te.f32(self.c[at.t, at.i]) * new


def softplus(x: PrimExpr) -> PrimExpr:
    """``log(1 + exp(x))``, float32"""
    return maximum(x, 0.0) + log1p(te.exp(-maximum(x, -x)))

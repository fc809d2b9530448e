"""The recurrences of RWKV: linear attention with a decay per row, and the generalized delta rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ....ir.expr import PrimExpr
from ....tir import te
from ..registry import operator
from .matrix_state import Element, MatrixRecurrence


@operator("recurrent.wkv", updates=("state",), scalars=("layer",))
def wkv(
    state: te.Tensor,
    r: te.Tensor,
    decay: te.Tensor,
    k: te.Tensor,
    v: te.Tensor,
    bonus: te.Tensor,
    slots: te.Tensor,
    token_seq: te.Tensor,
    token_pos: te.Tensor,
    layer: PrimExpr,
) -> list[te.Tensor]:
    """RWKV-5 and RWKV-6 (Peng et al. 2024, "Eagle and Finch", equations 6 and 19), per sequence and head:

    ``y[t] = (S + diag(bonus) k[t] v[t]^T)^T r[t];  S = diag(decay[t]) S + k[t] v[t]^T``

    state: float32 [slots, L, H, K, V]; r, k: [n, H, K]; v: [n, H, V]; decay: [n, H, K], or [H, K] for all tokens;
    bonus: [H, K]. Returns ``state``, written in place, and y [n, H, V] in v's dtype.
    """
    return Wkv(state, r, decay, k, v, bonus, slots, token_seq, token_pos, layer).results()


@dataclass(eq=False)
class Wkv(MatrixRecurrence):
    """Builds the statements of ``wkv``."""

    name: ClassVar[str] = "wkv"

    state: te.Tensor
    r: te.Tensor
    decay: te.Tensor
    k: te.Tensor
    v: te.Tensor
    bonus: te.Tensor
    slots: te.Tensor
    token_seq: te.Tensor
    token_pos: te.Tensor
    layer: PrimExpr
    width: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require((self.heads, self.rows), r=self.r, decay=self.decay, k=self.k, bonus=self.bonus)

    def updated(self, at: Element, old: PrimExpr, memory: PrimExpr) -> PrimExpr:
        decay = self.decay[at.t, at.h, at.i] if self.decay.ndim == 3 else self.decay[at.h, at.i]
        return te.f32(decay) * old + te.f32(self.k[at.t, at.h, at.i]) * te.f32(self.v[at.t, at.h, at.c])

    def seen(self, at: Element, old: PrimExpr, new: PrimExpr) -> PrimExpr:
        itself = te.f32(self.bonus[at.h, at.i]) * te.f32(self.k[at.t, at.h, at.i]) * te.f32(self.v[at.t, at.h, at.c])
        return te.f32(self.r[at.t, at.h, at.i]) * (old + itself)


@operator("recurrent.rwkv7", updates=("state",), scalars=("layer",))
def rwkv7(
    state: te.Tensor,
    r: te.Tensor,
    decay: te.Tensor,
    k: te.Tensor,
    v: te.Tensor,
    a: te.Tensor,
    b: te.Tensor,
    slots: te.Tensor,
    token_seq: te.Tensor,
    token_pos: te.Tensor,
    layer: PrimExpr,
) -> list[te.Tensor]:
    """RWKV-7's generalized delta rule (Peng et al. 2025, "RWKV-7 Goose", equation 16), per sequence and head:

    ``S = diag(decay[t]) S + b[t] (S^T a[t])^T + k[t] v[t]^T;  y[t] = S^T r[t]``

    state: float32 [slots, L, H, K, V]; r, decay, k, a, b: [n, H, K]; v: [n, H, V]. Returns ``state``, written in place,
    and y [n, H, V] in v's dtype.
    """
    return Rwkv7(state, r, decay, k, v, a, b, slots, token_seq, token_pos, layer).results()


@dataclass(eq=False)
class Rwkv7(MatrixRecurrence):
    """Builds the statements of ``rwkv7``."""

    name: ClassVar[str] = "rwkv7"
    recalls: ClassVar[bool] = True

    state: te.Tensor
    r: te.Tensor
    decay: te.Tensor
    k: te.Tensor
    v: te.Tensor
    a: te.Tensor
    b: te.Tensor
    slots: te.Tensor
    token_seq: te.Tensor
    token_pos: te.Tensor
    layer: PrimExpr
    width: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require((self.heads, self.rows), r=self.r, decay=self.decay, k=self.k, a=self.a, b=self.b)

    def recalled(self, at: Element, old: PrimExpr) -> PrimExpr:
        return te.f32(self.a[at.t, at.h, at.i]) * old

    def updated(self, at: Element, old: PrimExpr, memory: PrimExpr) -> PrimExpr:
        added = te.f32(self.b[at.t, at.h, at.i]) * memory + te.f32(self.k[at.t, at.h, at.i]) * te.f32(
            self.v[at.t, at.h, at.c]
        )
        return te.f32(self.decay[at.t, at.h, at.i]) * old + added

    def seen(self, at: Element, old: PrimExpr, new: PrimExpr) -> PrimExpr:
        return te.f32(self.r[at.t, at.h, at.i]) * new

"""The gated delta rule: a step overwrites the value that the state associates with a key, instead of adding to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ....ir.expr import PrimExpr
from ....tir import te
from ...info import show_shape, static_size
from ..registry import operator
from .matrix_state import Element, MatrixRecurrence


@operator("recurrent.gated_delta_rule", updates=("state",), scalars=("layer",))
def gated_delta_rule(
    state: te.Tensor,
    q: te.Tensor,
    k: te.Tensor,
    v: te.Tensor,
    decay: te.Tensor,
    beta: te.Tensor,
    slots: te.Tensor,
    token_seq: te.Tensor,
    token_pos: te.Tensor,
    layer: PrimExpr,
) -> list[te.Tensor]:
    """The gated delta rule (Yang et al. 2024, "Gated Delta Networks", equation 10), per sequence and head:

    ``S = diag(decay[t]) S;  S = S + k[t] (beta[t] (v[t] - S^T k[t]))^T;  y[t] = S^T q[t]``

    state: float32 [slots, L, H, K, V]; q, k: [n, G, K], whose G heads are each shared by H / G adjacent heads of v
    [n, H, V]; beta: [n, H]; decay: [n, H], or [n, H, K] for a separate decay of each row of the state (Kimi
    Team 2025, "Kimi Linear", equation 1). Returns ``state``, written in place, and y [n, H, V] in v's dtype.
    """
    return GatedDeltaRule(state, q, k, v, decay, beta, slots, token_seq, token_pos, layer).results()


@dataclass(eq=False)
class GatedDeltaRule(MatrixRecurrence):
    """Builds the statements of ``gated_delta_rule``."""

    name: ClassVar[str] = "gated_delta_rule"
    recalls: ClassVar[bool] = True

    state: te.Tensor
    q: te.Tensor
    k: te.Tensor
    v: te.Tensor
    decay: te.Tensor
    beta: te.Tensor
    slots: te.Tensor
    token_seq: te.Tensor
    token_pos: te.Tensor
    layer: PrimExpr
    width: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        groups = static_size(self.k.shape[1]) or 0
        if not groups or self.heads % groups:
            raise ValueError(f"k: got {show_shape(self.k.shape)}; expected a number of heads that divides {self.heads}")
        self.group = self.heads // groups
        self.require((groups, self.rows), q=self.q, k=self.k)
        self.by_row = self.decay.ndim == 3
        self.require((self.heads, self.rows) if self.by_row else (self.heads,), decay=self.decay)
        self.require((self.heads,), beta=self.beta)

    def recalled(self, at: Element, old: PrimExpr) -> PrimExpr:
        decayed = self._decay(at) * old if self.by_row else old
        return te.f32(self.k[at.t, at.h // self.group, at.i]) * decayed

    def updated(self, at: Element, old: PrimExpr, memory: PrimExpr) -> PrimExpr:
        decay = self._decay(at)
        held = memory if self.by_row else decay * memory
        change = te.f32(self.beta[at.t, at.h]) * (te.f32(self.v[at.t, at.h, at.c]) - held)
        return decay * old + te.f32(self.k[at.t, at.h // self.group, at.i]) * change

    def _decay(self, at: Element) -> PrimExpr:
        return te.f32(self.decay[at.t, at.h, at.i] if self.by_row else self.decay[at.t, at.h])

    def seen(self, at: Element, old: PrimExpr, new: PrimExpr) -> PrimExpr:
        return te.f32(self.q[at.t, at.h // self.group, at.i]) * new

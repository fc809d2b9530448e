"""Appending to a paged KV cache on a CPU: a key is rotated and rounded as vectors before its elements are scattered."""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.expr import PrimExpr, Var, cast
from ....relax.ops.attention import Pages, as_index, stored
from ....script import expand
from ....tir import te
from ....tir.nodes import PARALLEL, Allocate, Buffer, For, Stmt, buffer
from ...paged_attention import RotatedPairs, known_size
from .append_loops import append_token


def append(
    k_pages: te.Tensor,
    v_pages: te.Tensor,
    k: te.Tensor,
    v: te.Tensor,
    page_table: te.Tensor,
    token_seq: te.Tensor,
    token_pos: te.Tensor,
    layer: PrimExpr,
    rotation: tuple[te.Tensor, ...],
    *,
    k_first: int = 0,
    v_first: int = 0,
    interleaved: bool = False,
) -> list[te.Tensor]:
    """Kernel of the operator ``kv_cache.append``, with its operands and attributes."""
    pages = Pages(page_table, k_pages.shape[1], k_pages.shape[4])
    kernel = _Append(
        k_pages.buffer,
        v_pages.buffer,
        k,
        v,
        pages,
        token_seq,
        token_pos,
        layer,
        rotation,
        k_first,
        v_first,
        interleaved,
    )
    inputs = [k_pages, v_pages, k, v, page_table, token_seq, token_pos, *rotation]
    body = kernel.body()
    return [te.updated(written, inputs, body) for written in (k_pages, v_pages)]


@dataclass(eq=False)
class _Append(RotatedPairs):
    """Operands, sizes and scratch of one call. row: a key in float32; rounded: as it is stored."""

    k_pages: Buffer
    v_pages: Buffer
    k: te.Tensor
    v: te.Tensor
    pages: Pages
    token_seq: te.Tensor
    token_pos: te.Tensor
    layer: PrimExpr
    rotation: tuple[te.Tensor, ...]
    k_first: int
    v_first: int
    interleaved: bool

    def __post_init__(self) -> None:
        self.heads, self.key = (known_size(size) for size in self.k_pages.shape[2:4])
        self.value = known_size(self.v_pages.shape[4])
        self.pairs = known_size(self.rotation[0].shape[1]) if self.rotation else 0
        self.row = buffer("row", (self.key,), "float32", scope="local")
        self.rounded = buffer("rounded", (self.key,), self.k_pages.dtype, scope="local")

    def body(self) -> Stmt:
        token = Var("token")
        nest = Allocate(self.row, Allocate(self.rounded, expand(append_token, self, token)))
        return For(token, self.k.shape[0], nest, PARALLEL)

    def place(self, token: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
        """Page and slot of a token, and whether they exist."""
        return self.pages.place(as_index(self.token_seq[token]), as_index(self.token_pos[token]))

    def stored_key(self, d: PrimExpr) -> PrimExpr:
        return stored(self.row[d], self.k_pages.dtype)

    def stored_value(self, token: PrimExpr, g: PrimExpr, e: PrimExpr) -> PrimExpr:
        return stored(self.v[token, g + self.v_first, e], self.v_pages.dtype)

    def key_at(self, token: PrimExpr, g: PrimExpr, d: PrimExpr) -> PrimExpr:
        return cast("float32", self.k[token, g + self.k_first, d])

    def cos(self, token: PrimExpr, i: PrimExpr) -> PrimExpr:
        return self.rotation[0][token, i]

    def sin(self, token: PrimExpr, i: PrimExpr) -> PrimExpr:
        return self.rotation[1][token, i]

"""Appending to a paged KV cache on a CPU: a key is rotated and rounded as vectors before its elements are scattered."""

# The bodies of macros are TVMScript, which is parsed from source: a type checker cannot check them.
# mypy: ignore-errors

from __future__ import annotations

from dataclasses import dataclass

from ....ir.expr import PrimExpr, Var, cast
from ....relax.ops.attention import Pages, as_index, stored
from ....script import T, expand
from ....target import Target
from ....tir import te
from ....tir.nodes import PARALLEL, Allocate, Buffer, For, Stmt, buffer
from ...paged_attention import known_size


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
    target: Target,
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
class _Append:
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

    def pair(self, i: PrimExpr) -> PrimExpr:
        """Index of the first element of rotated pair ``i``."""
        return i * 2 if self.interleaved else i

    def partner(self, i: PrimExpr) -> PrimExpr:
        """Index of the second element of rotated pair ``i``."""
        return i * 2 + 1 if self.interleaved else i + self.pairs


@T.macro
def append_token(k, token):
    if k.place(token)[2]:
        page = k.place(token)[0]
        slot = k.place(token)[1]
        for g in range(k.heads):
            for d in T.vectorized(k.key):
                k.row[d] = k.key_at(token, g, d)
            if k.pairs:
                for i in T.vectorized(k.pairs):
                    x = k.row[k.pair(i)]
                    y = k.row[k.partner(i)]
                    k.row[k.pair(i)] = x * k.cos(token, i) - y * k.sin(token, i)
                    k.row[k.partner(i)] = y * k.cos(token, i) + x * k.sin(token, i)
            for d in T.vectorized(k.key):
                k.rounded[d] = k.stored_key(d)
            for d in range(k.key):
                k.k_pages[k.layer, page, g, d, slot] = k.rounded[d]
            for e in T.vectorized(k.value):
                k.v_pages[k.layer, page, g, slot, e] = k.stored_value(token, g, e)

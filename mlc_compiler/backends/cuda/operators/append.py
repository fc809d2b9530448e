"""Appending to a paged KV cache on a GPU: keys are transposed in shared memory, so that reads and writes coalesce."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ....ir import dtype as dt
from ....ir.expr import PrimExpr, Var, ceildiv, const
from ....relax.ops.attention import Element, Pages, as_index, rotated, stored
from ....relax.ops.quantized_cache import check_dtypes
from ....relax.tensor_call import NoKernel
from ....script import expand
from ....target import Target
from ....tir import te
from ....tir.nodes import Buffer, Stmt, buffer
from ...paged_attention import known_size
from ..machine import WARP, Gpu
from .append_loops import append_tile
from .nests import nest

WARPS = 8
BANK_BYTES = 4

KeyAt = Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr]
"""(token, key/value head, element) -> the element of the key."""


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
    key = _rotated_keys(k, rotation, k_first, interleaved)
    pages = Pages(page_table, k_pages.shape[1], k_pages.shape[4])
    kernel = _Append(k_pages.buffer, pages, token_seq, token_pos, layer, key, v_pages.buffer, v, v_first)
    inputs = [k_pages, v_pages, k, v, page_table, token_seq, token_pos, *rotation]
    body = kernel.nest(target)
    return [te.updated(written, inputs, body) for written in (k_pages, v_pages)]


def append_quantized(
    k_pages: te.Tensor,
    v_pages: te.Tensor,
    k_scales: te.Tensor,
    v_scales: te.Tensor,
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
    """Kernel of the operator ``kv_cache.append_quantized``, with its operands and attributes."""
    updates = (k_pages, v_pages, k_scales, v_scales)
    check_dtypes(*updates)
    key = _rotated_keys(k, rotation, k_first, interleaved)
    pages = Pages(page_table, k_pages.shape[1], k_pages.shape[4])
    scales = (k_scales.buffer, v_scales.buffer)
    kernel = _Append(k_pages.buffer, pages, token_seq, token_pos, layer, key, v_pages.buffer, v, v_first, scales)
    body = kernel.nest(target)
    return [te.updated(x, [*updates, k, v, page_table, token_seq, token_pos, *rotation], body) for x in updates]


def _rotated_keys(k: te.Tensor, rotation: tuple[te.Tensor, ...], k_first: int, interleaved: bool) -> KeyAt:
    def key(token: PrimExpr, g: PrimExpr, d: PrimExpr) -> PrimExpr:
        element: Element = lambda i: te.f32(k[token, g + k_first, i])  # noqa: E731
        if not rotation:
            return element(d)
        cos, sin = rotation
        return rotated(element, lambda j: cos[token, j], lambda j: sin[token, j], cos.shape[1], interleaved)(d)

    return key


def append_latent(
    pages: te.Tensor,
    latent: te.Tensor,
    page_table: te.Tensor,
    token_seq: te.Tensor,
    token_pos: te.Tensor,
    layer: PrimExpr,
    *,
    target: Target,
) -> te.Tensor:
    """Kernel of the operator ``kv_cache.append_latent``."""
    where = Pages(page_table, pages.shape[1], pages.shape[4])
    kernel = _Append(pages.buffer, where, token_seq, token_pos, layer, lambda token, _, d: latent[token, d])
    return te.updated(pages, [pages, latent, page_table, token_seq, token_pos], kernel.nest(target))


@dataclass(eq=False)
class _Append:
    """Operands, sizes and expressions for the macros; a tile is one token for each lane.

    scales: k_scales and v_scales, if keys and values are quantized. staged: the keys of a tile, in shared memory. In
    registers, if quantized: vector, the lane's elements of a key or a value; largest, the greatest magnitude; inverse,
    the reciprocal of the scale.
    """

    k_pages: Buffer
    pages: Pages
    token_seq: te.Tensor
    token_pos: te.Tensor
    layer: PrimExpr
    key_at: KeyAt
    v_pages: Buffer | None = None
    v: te.Tensor | None = None
    v_first: int = 0
    scales: tuple[Buffer, ...] = ()

    def __post_init__(self) -> None:
        self.n, self.warps = self.token_seq.shape[0], WARPS
        self.kv_heads, self.key = known_size(self.k_pages.shape[2]), known_size(self.k_pages.shape[3])
        self.value = known_size(self.v_pages.shape[4]) if self.v_pages is not None else 0
        padding = max(1, BANK_BYTES // dt.nbytes(self.k_pages.dtype))
        self.staged = buffer("staged", (WARP, self.key + padding), self.k_pages.dtype, scope="shared")
        self.scratch = [self.staged]
        if self.scales:
            steps = -(-max(self.key, self.value) // WARP)
            sizes = {"vector": steps, "largest": 1, "inverse": 1, "other": 1}
            registers = [buffer(name, (size,), "float32", scope="local") for name, size in sizes.items()]
            self.vector, self.largest, self.inverse, self.other = registers
            self.scratch += registers

    def nest(self, target: Target) -> Stmt:
        """The kernel. Raises NoKernel if a tile does not fit into shared memory."""
        tile, g, lane, warp = Var("tile"), Var("g"), Var("lane"), Var("warp")
        if known_size(self.staged.shape[1]) * WARP * dt.nbytes(self.staged.dtype) > Gpu.of(target).shared_bytes:
            raise NoKernel
        blocks = ((tile, ceildiv(self.n, WARP)), (g, const(self.kv_heads, "int64")))
        body = expand(append_tile, self, tile, g, warp, lane)
        return nest(blocks, ((lane, WARP), (warp, WARPS)), self.scratch, body)

    # -- where the key of a token goes

    def page(self, token: PrimExpr) -> PrimExpr:
        return self._place(token)[0]

    def slot(self, token: PrimExpr) -> PrimExpr:
        return self._place(token)[1]

    def exists(self, token: PrimExpr) -> PrimExpr:
        return self._place(token)[2]

    def _place(self, token: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
        return self.pages.place(as_index(self.token_seq[token]), as_index(self.token_pos[token]))

    # -- what is stored

    def stored_key(self, token: PrimExpr, g: PrimExpr, d: PrimExpr) -> PrimExpr:
        return stored(self.key_at(token, g, d), self.k_pages.dtype)

    def stored_value(self, token: PrimExpr, g: PrimExpr, e: PrimExpr) -> PrimExpr:
        assert self.v is not None and self.v_pages is not None
        return stored(self.v[token, g + self.v_first, e], self.v_pages.dtype)

    def value_at(self, token: PrimExpr, g: PrimExpr, e: PrimExpr) -> PrimExpr:
        assert self.v is not None
        return te.f32(self.v[token, g + self.v_first, e])

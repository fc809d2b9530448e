"""Attention over whole tensors on a CPU: tiles of queries against blocks of keys and values, as in ``attention.py``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ....ir.expr import PrimExpr, Var, cast, ceildiv, const, is_const, maximum, minimum, product
from ....relax.ops.dense import masked
from ....relax.tensor_call import NoKernel
from ....script import expand
from ....target import Target
from ....tir import te
from ....tir.nodes import Buffer, Stmt, buffer
from ...paged_attention import known_size
from ..machine import Cpu
from .attention import TILES_PER_THREAD
from .attention_buffers import TileBuffers
from .attention_tiles import FLOAT_BYTES, Sizes, Tiles
from .dense_attention_loops import attend


def dense_attention(
    query: te.Tensor,
    keys: te.Tensor,
    values: te.Tensor,
    mask: te.Tensor | None = None,
    *,
    scale: float,
    zero_rows: bool,
    target: Target,
) -> te.Tensor:
    """Kernel of the operator ``nn.dense_attention``. Raises NoKernel for keys or values of symbolic size."""
    inputs = [t for t in (query, keys, values, mask) if t is not None]
    if mask is not None and len(mask.shape) > len(query.shape):
        raise NoKernel
    lead = te.broadcast_shape([t.shape[:-2] for t in (query, keys, values)])
    buffers = (query.buffer, keys.buffer, values.buffer, mask.buffer if mask is not None else None)
    kernel = _Kernel(*buffers, lead, scale, zero_rows, target)
    return te.extern([kernel.out], inputs, kernel.body())[0]


LOWEST = float(np.finfo(np.float32).min)
"""Initial row maximum, the lowest finite float32: a score that a mask lowers to this value still counts."""


@dataclass(eq=False)
class _Kernel(TileBuffers):
    """Operands, tiles and buffers that the macros use; a row is a query. lead: sizes of the batch axes."""

    q: Buffer
    key_columns: Buffer
    value_rows: Buffer
    mask: Buffer | None
    lead: tuple[PrimExpr, ...]
    scale: float
    zero_rows: bool
    target: Target

    narrow = scaled = False
    group = 1
    lowest, hidden = LOWEST, -math.inf
    out: Buffer = field(init=False)

    def __post_init__(self) -> None:
        self.n, self.key, self.value = (
            self.q.shape[-2],
            known_size(self.q.shape[-1]),
            known_size(self.value_rows.shape[-1]),
        )
        self.length = self.value_rows.shape[-2]
        cpu = Cpu.of(self.target)
        sizes = Sizes(1, 1, self.key, self.value, cpu.lanes(32), FLOAT_BYTES)
        self.tiles = t = Tiles.of(sizes, cpu, single_query=False, readable=False)
        self.make_tile(t, self.key)
        self.keys, self.values = self.local("keys", self.key, t.block), self.local("values", t.block, self.padded_value)
        self.has_mask = self.mask is not None
        self.bias = self.local("bias", t.row_tile, t.block) if self.has_mask else None
        self.out = buffer("attention", (*self.lead, self.n, self.value), self.q.dtype)

    def body(self) -> Stmt:
        """The kernel's statements."""
        item, all_lead = Var("item"), product(self.lead)
        threads = Cpu.of(self.target).cores
        share = maximum(ceildiv(self.n * all_lead, TILES_PER_THREAD * threads), 1)
        tiles = maximum(ceildiv(self.n, minimum(share, self.tiles.rows)), 1)
        self.step = maximum(ceildiv(self.n, tiles), 1)  # tiles of a matrix are as even as possible
        self.count = ceildiv(self.n, self.step)
        return self.parallel(item, all_lead * self.count, expand(attend, self, item))

    # -- expressions

    def place(self, of: Buffer, lead: PrimExpr, row: PrimExpr, column: PrimExpr) -> Sequence[PrimExpr]:
        """The index (lead, row, column) of a buffer; axes of size 1 are broadcast."""
        axes = [column, row]
        for size in reversed(self.lead):
            axes.append(lead % size)
            lead = lead // size
        used = list(reversed(axes[: len(of.shape)]))
        return tuple(const(0, "int64") if is_const(s, 1) else i for i, s in zip(used, of.shape, strict=True))

    def key_at(self, lead: PrimExpr, d: PrimExpr, start: PrimExpr, lane: PrimExpr) -> PrimExpr:
        """Element d of the block's key ``start + lane``."""
        return self.keys[d, start + lane]

    def mask_at(self, lead: PrimExpr, row: PrimExpr, key: PrimExpr) -> PrimExpr:
        """The value that the mask adds to a score, float32; minus infinity where a bool mask is false."""
        assert self.mask is not None
        return masked(const(0.0, "float32"), self.mask[tuple(self.place(self.mask, lead, row, key))])

    def weight(self, x: PrimExpr) -> PrimExpr:
        """exp(x) of a score minus the row maximum."""
        return te.exp(x)

    def scored(self, product: PrimExpr, row: PrimExpr, lead: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
        """The score of a row and the key ``j`` (int32), the i-th of the block; ``product``: of scaled query and key."""
        if self.bias is None:
            return te.select(j < cast("int32", self.length), product, const(-math.inf, "float32"))
        bias = self.bias[row % self.row_tile, i]
        return te.select(bias > const(-math.inf, "float32"), product + bias, const(-math.inf, "float32"))

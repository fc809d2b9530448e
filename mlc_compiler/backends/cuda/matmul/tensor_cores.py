"""The kernels of a matmul on tensor cores, and the choice between them by the rows of a call."""

from __future__ import annotations

from ....ir.expr import ceildiv
from ....tir.nodes import PrimFunc, Stmt
from ..machine import Gpu
from .boxes import activations, weights
from .few_rows import MAX_ROWS, FewRows
from .grids import either
from .kernel import Kernel
from .pipeline import Pipeline
from .product import Product
from .tiles import FEW_ROWS, LARGE, LARGE_UNPACKED, MEDIUM, SMALL, WARPGROUPS, Tile


def tensor_core_product(func: PrimFunc, product: Product, gpu: Gpu) -> PrimFunc:
    """``func`` as a kernel that computes ``product``; if the rows are not constant, as one kernel per tile size.

    Only ``FewRows`` computes statistics of the rows.
    """
    large_tiles = ceildiv(product.rows, LARGE.rows) * -(-product.columns // LARGE.columns)

    def many() -> Stmt:
        medium = Kernel(product, MEDIUM)
        if medium.x_computed:  # in registers that larger tiles need for their sums
            return medium.nest()
        tile = large_tile(product, gpu)
        large = _by_warpgroups(product) if tile is WARPGROUPS else Kernel(product, tile)
        return either(large_tiles >= gpu.multiprocessors, large.nest, medium.nest)

    def several() -> Stmt:
        return either(product.rows <= FEW_ROWS, Kernel(product, SMALL).nest, many)

    body = either(product.rows <= MAX_ROWS, FewRows(product, gpu).nest, several)
    return PrimFunc(func.params, body, {**func.attrs, "cuda.explicit_sync": True})


def large_tile(product: Product, gpu: Gpu) -> Tile:
    """The largest tile for a matmul on a GPU."""
    if gpu.arch == "sm_90a":
        return WARPGROUPS
    return LARGE_UNPACKED if product.packed else LARGE


def _by_warpgroups(product: Product) -> Kernel:
    """The kernel for large tiles by wgmma: a ``Pipeline`` if tensor copies can read both operands."""
    x, w = activations(product, WARPGROUPS), weights(product, WARPGROUPS)
    return Kernel(product, WARPGROUPS) if x is None or w is None else Pipeline(product, x, w)

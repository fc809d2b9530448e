"""The kernels of a matmul on tensor cores, and the choice between them by the rows of a call."""

from __future__ import annotations

from ....ir.expr import ceildiv
from ....tir.nodes import PrimFunc, Stmt
from ..machine import Gpu
from .boxes import activations, weights
from .few_rows import MAX_ROWS, FewRows
from .fused_matmul import FusedMatmul
from .grids import either
from .kernel import Kernel
from .pipeline import Pipeline
from .tiles import FEW_ROWS, LARGE, LARGE_UNPACKED, MEDIUM, SMALL, WARPGROUPS, Tile


def tensor_core_kernel(func: PrimFunc, matmul: FusedMatmul, gpu: Gpu) -> PrimFunc:
    """``func`` as a kernel that computes ``matmul``; if the rows are not constant, as one kernel per tile size.

    Only ``FewRows`` computes statistics of the rows.
    """
    large_tiles = ceildiv(matmul.rows, LARGE.rows) * -(-matmul.columns // LARGE.columns)

    def many() -> Stmt:
        medium = Kernel(matmul, MEDIUM)
        if medium.x_computed:  # in registers that larger tiles need for their sums
            return medium.nest()
        tile = large_tile(matmul, gpu)
        large = _by_warpgroups(matmul) if tile is WARPGROUPS else Kernel(matmul, tile)
        return either(large_tiles >= gpu.multiprocessors, large.nest, medium.nest)

    def several() -> Stmt:
        return either(matmul.rows <= FEW_ROWS, Kernel(matmul, SMALL).nest, many)

    body = either(matmul.rows <= MAX_ROWS, FewRows(matmul, gpu).nest, several)
    return PrimFunc(func.params, body, {**func.attrs, "cuda.explicit_sync": True})


def large_tile(matmul: FusedMatmul, gpu: Gpu) -> Tile:
    """The largest tile for a matmul on a GPU."""
    if gpu.arch == "sm_90a":
        return WARPGROUPS
    return LARGE_UNPACKED if matmul.packed else LARGE


def _by_warpgroups(matmul: FusedMatmul) -> Kernel:
    """The kernel for large tiles by wgmma: a ``Pipeline`` if tensor copies can read both operands."""
    x, w = activations(matmul, WARPGROUPS), weights(matmul, WARPGROUPS)
    return Kernel(matmul, WARPGROUPS) if x is None or w is None else Pipeline(matmul, x, w)

"""Loop nests over blocks and threads around the bodies of kernels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ....ir.expr import ExprLike, Var, as_expr, cast
from ....tir.nodes import THREAD, Allocate, Buffer, For, Stmt
from ..emitter import MIN_BLOCKS
from ..passes.place_syncs import EXPLICIT

AXES = ("x", "y", "z")


def nest(
    blocks: Sequence[tuple[Var, ExprLike]],
    threads: Sequence[tuple[Var, int]],
    scratch: Iterable[Buffer],
    body: Stmt,
    min_blocks: int = 1,
) -> Stmt:
    """A kernel with explicit barriers.

    blocks, threads: variables and sizes of the grid and of a block, along x, y, z. scratch: buffers of a block (scope
    shared) or of a thread (scope local). min_blocks: minimum blocks per multiprocessor, which limits the registers of a
    thread.
    """
    axes = [("blockIdx", *axis) for axis in zip(AXES, blocks, strict=False)]
    axes += [("threadIdx", *axis) for axis in zip(AXES, threads, strict=False)]
    body = allocated(scratch, body)
    for kind, axis, (var, size) in reversed(axes):
        is_outermost = axis == "x" and kind == "blockIdx"
        annotations = {EXPLICIT: True, MIN_BLOCKS: min_blocks} if is_outermost else {}
        body = For(var, cast(var.dtype, as_expr(size)), body, THREAD, f"{kind}.{axis}", annotations)
    return body


def allocated(buffers: Iterable[Buffer], body: Stmt) -> Stmt:
    """``body`` with scratch buffers allocated around it."""
    for scratch in buffers:
        body = Allocate(scratch, body)
    return body

"""Tensors computed by statements instead of an expression per element: prefix sums, sorting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from ...ir.expr import ExprLike, IntImm, PrimExpr, Var, as_expr
from ...ir.recursion import deep_recursion
from .. import nodes as tir
from ..nodes import Buffer
from ..regions import infer_regions
from .expressions import Tensor

_shapes_only = ContextVar("_shapes_only", default=False)


@contextmanager
def shapes_only() -> Iterator[None]:
    """Context manager: of tensors defined inside, only shapes and dtypes are used, so ``each`` infers no regions."""
    token = _shapes_only.set(True)
    try:
        yield
    finally:
        _shapes_only.reset(token)


def extern(results: Sequence[Buffer], inputs: Sequence[Tensor], body: tir.Stmt) -> tuple[Tensor, ...]:
    """Define tensors computed by the statement ``body``, one per buffer of ``results`` (see ``nodes.buffer``).

    body: loops and blocks, see ``each``; it may read only ``results`` and the buffers of ``inputs``.
    """
    return tuple(Tensor(b, (), body, tuple(inputs), results=tuple(results)) for b in results)


def updated(tensor: Tensor, inputs: Sequence[Tensor], body: tir.Stmt) -> Tensor:
    """Define ``tensor`` after an in-place update: ``body`` reads ``inputs`` and writes some elements of ``tensor``."""
    return Tensor(tensor.buffer, (), body, (tensor, *inputs), results=(tensor.buffer,))


@deep_recursion
def each(
    shape: Sequence[ExprLike], name: str, body: Callable[..., tir.Stmt], scratch: Sequence[Buffer] = ()
) -> tir.Stmt:
    """Run ``body(i, j, …)`` at every point of ``shape``, in any order: loops around one block of spatial variables.

    Sequential work needs loops inside the body. scratch: buffers allocated by the block.
    """
    extents = [as_expr(s) for s in shape]
    axes = [Var(f"v_i{n}") for n in range(len(extents))]
    iters = tuple(tir.IterVar(v, e, "S") for v, e in zip(axes, extents, strict=True))
    inner = body(*axes)
    if _shapes_only.get():
        return inner
    private = {id(b) for b in scratch}
    reads, writes = (tuple(r for r in found if id(r.buffer) not in private) for found in infer_regions(inner, iters))
    loops = [Var(f"i{n}") for n in range(len(extents))]
    block = tir.Block(name, iters, reads, writes, inner, None, tuple(scratch))
    realize = tir.BlockRealize(tuple(loops), IntImm(1, "bool"), block)
    return tir.loop_nest(zip(loops, extents, strict=True), realize)


class Cell:
    """A mutable scalar variable in statements: a ``local`` buffer of one element."""

    def __init__(self, name: str, dtype: str):
        self.buffer = tir.buffer(name, (1,), dtype, scope="local")

    @property
    def value(self) -> PrimExpr:
        return self.buffer[0]

    def set(self, value: ExprLike) -> tir.Stmt:
        """The statement that assigns a value."""
        return tir.BufferStore(self.buffer, as_expr(value, like=self.buffer.dtype), (IntImm(0),))

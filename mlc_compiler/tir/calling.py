"""Calling convention of tensor functions: buffers in order, then scalars and symbolic sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..ir.expr import INDEX_DTYPE, PrimExpr, Var, cast, const
from ..ir.simplify import Analyzer
from ..ir.visitor import free_vars, uses
from .nodes import Buffer, BufferLoad, BufferStore, PrimFunc


def size_parameters(func: PrimFunc) -> list[Var]:
    """The symbolic sizes of a tensor function's buffers, in order of appearance, without its scalar parameters."""
    scalars = {id(p) for p in func.params if isinstance(p, Var)}
    return free_vars([buffer.shape for buffer in func.buffers], lambda var: id(var) not in scalars)


def scalar_parameters(func: PrimFunc) -> list[Var]:
    """The integer parameters of a kernel after its buffers: scalar parameters, then symbolic sizes."""
    return [p for p in func.params if isinstance(p, Var)] + size_parameters(func)


def flat_index(buffer: Buffer, indices: Sequence[PrimExpr]) -> PrimExpr:
    """The row-major offset of an element, in elements, as int64."""
    flat: PrimExpr = const(0, INDEX_DTYPE)
    for index, size in zip(indices, buffer.shape, strict=True):
        flat = flat * size + cast(INDEX_DTYPE, index)
    return flat


def step_along(access: BufferLoad | BufferStore, var: Var, analyzer: Analyzer) -> int | None:
    """The stride of an access along an integer variable, in elements; None when it is not constant."""
    form = analyzer.linear(flat_index(access.buffer, access.indices))
    moving = [(atom, step) for atom, step in form.terms.values() if uses(atom, var)]
    if not moving:
        return 0
    return moving[0][1] if len(moving) == 1 and moving[0][0] is var else None


def match_sizes(buffers: Sequence[Buffer], shapes: Sequence[Sequence[PrimExpr]]) -> dict[Var, PrimExpr]:
    """Map each symbolic size to the caller's size, by matching the buffers' shapes with those of the arguments."""
    sizes: dict[Var, PrimExpr] = {}
    for buffer, shape in zip(buffers, shapes, strict=False):
        bind_sizes(buffer.shape, shape, sizes)
    return sizes


def bind_sizes(formal: Iterable[PrimExpr], actual: Iterable[PrimExpr], sizes: dict[Var, PrimExpr]) -> None:
    """Bind each variable in ``formal`` to the size at the same position in ``actual``, unless it is bound already."""
    for symbol, size in zip(formal, actual, strict=False):
        if isinstance(symbol, Var):
            sizes.setdefault(symbol, size)

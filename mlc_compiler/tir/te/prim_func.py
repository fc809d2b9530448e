"""Lowering of tensor expressions to a tensor function, with a loop nest and a block per tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ir import expr as ir
from ...ir.expr import IntImm, PrimExpr, Var
from ...ir.naming import unique_name
from ...ir.recursion import deep_recursion
from ...ir.visitor import Substitute, free_vars, substitute, walk
from .. import nodes as tir
from ..nodes import Buffer
from ..regions import infer_regions
from .expressions import Reduce, ReduceAxis, Tensor, TensorLoad

_COMBINE: dict[str, Callable[[PrimExpr, PrimExpr], PrimExpr]] = {
    "sum": lambda a, b: a + b,
    "prod": lambda a, b: a * b,
    "max": ir.maximum,
    "min": ir.minimum,
}


def reduction_identity(kind: str, dtype: str) -> PrimExpr:
    """The identity element of a reduction."""
    if kind == "max":
        return ir.min_value(dtype)
    if kind == "min":
        return ir.max_value(dtype)
    return ir.const(1 if kind == "prod" else 0, dtype)


def _block(tensor: Tensor) -> tir.Stmt:
    """The loop nest and the block of one compute."""
    body = tensor.body
    reduce_axes: tuple[ReduceAxis, ...] = ()
    reduce = body if isinstance(body, Reduce) else None
    if reduce is not None:
        reduce_axes, body = reduce.axes, reduce.value
    assert body is not None
    block_vars = [Var(f"v_{a.name}") for a in (*tensor.axes, *reduce_axes)]
    loop_vars = [Var(a.name) for a in (*tensor.axes, *reduce_axes)]
    extents = [*tensor.shape, *(a.extent for a in reduce_axes)]
    variables = dict(zip((*tensor.axes, *reduce_axes), block_vars, strict=True))
    value = substitute(body, variables)
    indices = tuple(block_vars[: len(tensor.axes)])
    init: tir.Stmt | None = None
    if reduce is not None:
        start = reduction_identity(reduce.kind, value.dtype) if reduce.init is None else reduce.init
        init = tir.BufferStore(tensor.buffer, substitute(start, variables), indices)
        value = _COMBINE[reduce.kind](tensor.buffer[indices], value)
    store = tir.BufferStore(tensor.buffer, value, indices)
    kinds = ["S"] * len(tensor.axes) + ["R"] * len(reduce_axes)
    iters = tuple(tir.IterVar(v, e, k) for v, e, k in zip(block_vars, extents, kinds, strict=True))
    reads, writes = infer_regions((init, store) if reduce is not None and reduce.init is not None else store, iters)
    block = tir.Block(tensor.name, iters, reads, writes, store, init, (), dict(tensor.attrs))
    realize = tir.BlockRealize(tuple(loop_vars), IntImm(1, "bool"), block)
    return tir.loop_nest(zip(loop_vars, extents, strict=True), realize)


class _Renamed(Substitute):
    """Replaces loads of tensors by loads of the function's buffers."""

    def rewrite_TensorLoad(self, node: TensorLoad) -> tir.BufferLoad:
        return tir.BufferLoad(self(node.buffer), self(node.indices))


def _statements(tensors: Mapping[Tensor, Buffer], renamed: Mapping[Buffer, Buffer]) -> list[tir.Stmt]:
    """The statements that compute the tensors, in order; one that computes several tensors occurs once."""
    stmts: dict[int, tir.Stmt] = {}
    for tensor, buffer in tensors.items():
        body = _Renamed(renamed)(tensor.body)
        if not isinstance(body, tir.Stmt):
            body = _block(Tensor(buffer, tensor.axes, body, (), tensor.attrs))
        stmts.setdefault(id(tensor.body), body)
    return list(stmts.values())


def _topological(outputs: Sequence[Tensor]) -> list[Tensor]:
    order: list[Tensor] = []
    done: set[int] = set()

    def visit(tensor: Tensor) -> None:
        if id(tensor) in done:
            return
        done.add(id(tensor))
        for source in tensor.inputs:
            visit(source)
        order.append(tensor)

    for tensor in outputs:
        visit(tensor)
    return order


@deep_recursion
def create_prim_func(
    params: Sequence[Tensor | Var],
    name: str | None = None,
    attrs: Mapping[str, Any] | None = None,
    updates: Sequence[Tensor] = (),
) -> tir.PrimFunc:
    """Create the tensor function with these parameters; computes that are not parameters become intermediate buffers.

    Block names and buffer names are made unique. ``attrs["num_outputs"]`` is the number of parameters that are
    computed; ``updates`` (see ``updated``) are parameters that are written in place.
    """
    tensors = [p for p in params if isinstance(p, Tensor)]
    order = _unique_names(_topological([*tensors, *updates]), tensors)
    listed = {id(t) for t in tensors}
    missing = [t.name for t in order if t.body is None and id(t) not in listed]
    if missing:
        raise ValueError(f"create_prim_func: {', '.join(missing)} is read but not a parameter")
    renamed = {t.buffer: b for t, b in order.items()}
    computed = {t: b for t, b in order.items() if t.body is not None}
    stmts = _statements(computed, renamed)
    allocs = [b for t, b in computed.items() if id(t) not in listed and not t.is_update]
    known = {id(b) for b in renamed}
    allocs += {id(b): b for t in computed for b in t.results if id(b) not in known}.values()
    buffers = tuple(order[p] if isinstance(p, Tensor) else p for p in params)
    outputs = [t for t in tensors if t.body is not None]
    all_attrs: dict[str, Any] = {"tir.noalias": True, "num_outputs": len(outputs), **(attrs or {})}
    if name:
        all_attrs["global_symbol"] = name
    func = tir.PrimFunc(buffers, tir.root_block(tir.seq(*stmts), tuple(allocs)), all_attrs)
    _check_scalars(func)
    return func


def _unique_names(order: list[Tensor], params: Sequence[Tensor]) -> dict[Tensor, Buffer]:
    """Map each tensor to a buffer with a unique name, in order of computation."""
    taken: set[str] = set()
    result: dict[Tensor, Buffer] = {}
    for tensor in order:
        if tensor.is_update:
            result[tensor] = result[tensor.inputs[0]]
            continue
        name = unique_name(tensor.name, taken)
        taken.add(name)
        result[tensor] = Buffer(name, tensor.buffer.shape, tensor.dtype, tensor.buffer.scope)
    for tensor in params:
        result.setdefault(tensor, tensor.buffer)
    return result


def _check_scalars(func: tir.PrimFunc) -> None:
    known = {id(p) for p in func.params if isinstance(p, Var)}
    known |= {id(v) for b in func.buffers for s in b.shape for v in free_vars(s)}
    bound = {id(n.var) for n in walk(func.body) if isinstance(n, tir.For | tir.IterVar | tir.LetStmt | ir.Let)}
    for var in free_vars(func.body):
        if id(var) not in known and id(var) not in bound:
            raise ValueError(f"create_prim_func: {var.name!r} is no parameter nor the size of one; add it to params")

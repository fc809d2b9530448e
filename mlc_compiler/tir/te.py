"""Tensor expressions: a formula for each element of a tensor; ``create_prim_func`` turns them into loops and blocks.

A = te.placeholder((n, 64), "float32", "A")
k = te.reduce_axis(64, "k")
S = te.compute((n,), lambda i: te.sum(A[i, k] * A[i, k], axis=k), name="S")
func = te.create_prim_func([A, S])
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from ..ir import dtype as dt
from ..ir import expr as ir
from ..ir.expr import ExprLike, IntImm, PrimExpr, Select, Var, as_expr
from ..ir.visitor import Rewriter, free_vars, substitute, walk
from . import nodes as tir
from .nodes import Buffer, BufferLoad
from .regions import infer_regions

ONE = IntImm(1)


@dataclass(frozen=True, eq=False, slots=True)
class ReduceAxis(Var):
    """A reduction variable over ``[0, extent)``."""

    extent: PrimExpr = ONE


@dataclass(frozen=True, eq=False, slots=True)
class Reduce(PrimExpr):
    """A reduction of ``value`` over ``axes``; only as the whole body of a compute."""

    kind: str
    value: PrimExpr
    axes: tuple[ReduceAxis, ...]

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.value.dtype


@dataclass(frozen=True, eq=False)
class Tensor:
    """The result of a placeholder or compute. Index it with expressions; arithmetic works element by element."""

    buffer: Buffer
    axes: tuple[Var, ...] = ()
    body: PrimExpr | None = None
    inputs: tuple[Tensor, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[PrimExpr, ...]:
        return self.buffer.shape

    @property
    def dtype(self) -> str:
        return self.buffer.dtype

    @property
    def ndim(self) -> int:
        return len(self.buffer.shape)

    @property
    def name(self) -> str:
        return self.buffer.name

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> BufferLoad:
        items = indices if isinstance(indices, tuple) else (indices,)
        if len(items) != self.ndim:
            raise ValueError(f"tensor {self.name!r} has {self.ndim} axes; indexed with {len(items)}")
        load = self.buffer[items]
        _owners[id(self.buffer)] = self
        return load

    def __call__(self, *indices: ExprLike) -> BufferLoad:
        return self[indices]

    def __add__(self, other: Any) -> Tensor:
        return elementwise("add", lambda a, b: a + b, self, other)

    def __sub__(self, other: Any) -> Tensor:
        return elementwise("subtract", lambda a, b: a - b, self, other)

    def __mul__(self, other: Any) -> Tensor:
        return elementwise("multiply", lambda a, b: a * b, self, other)

    def __truediv__(self, other: Any) -> Tensor:
        return elementwise("divide", lambda a, b: a / b, self, other)


# Which tensor a buffer belongs to; filled when a tensor is indexed, read when a compute collects its inputs.
_owners: dict[int, Tensor] = {}


def placeholder(shape: Sequence[ExprLike], dtype: str = "float32", name: str = "placeholder") -> Tensor:
    """An input of the given shape."""
    return Tensor(tir.buffer(name, tuple(shape), dtype))


def reduce_axis(extent: ExprLike | tuple[ExprLike, ExprLike], name: str = "k") -> ReduceAxis:
    """A reduction variable; ``(0, n)`` is accepted for ``n``."""
    if isinstance(extent, tuple):
        low, high = extent
        if not ir.is_const(as_expr(low), 0):
            raise ValueError(f"reduce_axis {name!r}: the range must start at 0; got {low!r}")
        extent = high
    return ReduceAxis(name, ir.INDEX_DTYPE, as_expr(extent))


def _reduce(kind: str, value: PrimExpr, axis: ReduceAxis | Sequence[ReduceAxis]) -> Reduce:
    return Reduce(kind, value, (axis,) if isinstance(axis, ReduceAxis) else tuple(axis))


def sum(value: PrimExpr, axis: ReduceAxis | Sequence[ReduceAxis]) -> Reduce:
    """Sum over reduction axes, in the dtype of ``value``."""
    return _reduce("sum", value, axis)


def max(a: ExprLike, b: ExprLike | None = None, axis: ReduceAxis | Sequence[ReduceAxis] | None = None) -> PrimExpr:
    """The greater of two values, or with ``axis`` the maximum over reduction axes."""
    return ir.maximum(a, b) if axis is None else _reduce("max", as_expr(a), axis)  # type: ignore[arg-type]


def min(a: ExprLike, b: ExprLike | None = None, axis: ReduceAxis | Sequence[ReduceAxis] | None = None) -> PrimExpr:
    """The lesser of two values, or with ``axis`` the minimum over reduction axes."""
    return ir.minimum(a, b) if axis is None else _reduce("min", as_expr(a), axis)  # type: ignore[arg-type]


def f32(value: ExprLike) -> PrimExpr:
    """The value as float32."""
    return ir.cast("float32", value)


def cast(value: ExprLike, dtype: str) -> PrimExpr:
    return ir.cast(dtype, value)


def select(condition: PrimExpr, true_value: ExprLike, false_value: ExprLike) -> PrimExpr:
    """One of two values, both of which may be evaluated."""
    a, b = _common(true_value, false_value)
    return Select(condition, a, b)


def if_then_else(condition: PrimExpr, true_value: ExprLike, false_value: ExprLike) -> PrimExpr:
    """One of two values; only the chosen one is evaluated (so it may guard an access)."""
    a, b = _common(true_value, false_value)
    return ir.Call("if_then_else", (condition, a, b), a.dtype)


def _common(a: ExprLike, b: ExprLike) -> tuple[PrimExpr, PrimExpr]:
    a_expr = as_expr(a, like=b.dtype if isinstance(b, PrimExpr) else None)
    b_expr = as_expr(b, like=a_expr.dtype)
    if a_expr.dtype != b_expr.dtype:
        common = dt.promote(a_expr.dtype, b_expr.dtype)
        a_expr, b_expr = ir.cast(common, a_expr), ir.cast(common, b_expr)
    return a_expr, b_expr


def call(name: str, *args: ExprLike) -> PrimExpr:
    """A scalar function of the field's name (``exp``, ``tanh``, ``sqrt`` …) in the dtype of its first argument."""
    exprs = tuple(as_expr(a) for a in args)
    return ir.Call(name, exprs, exprs[0].dtype)


def exp(x: ExprLike) -> PrimExpr:
    return call("exp", x)


def log(x: ExprLike) -> PrimExpr:
    return call("log", x)


def tanh(x: ExprLike) -> PrimExpr:
    return call("tanh", x)


def erf(x: ExprLike) -> PrimExpr:
    return call("erf", x)


def sqrt(x: ExprLike) -> PrimExpr:
    return call("sqrt", x)


def rsqrt(x: ExprLike) -> PrimExpr:
    return call("rsqrt", x)


def sigmoid(x: ExprLike) -> PrimExpr:
    return call("sigmoid", x)


def sin(x: ExprLike) -> PrimExpr:
    return call("sin", x)


def cos(x: ExprLike) -> PrimExpr:
    return call("cos", x)


def compute(
    shape: Sequence[ExprLike],
    fcompute: Callable[..., PrimExpr],
    name: str = "compute",
    attrs: Mapping[str, Any] | None = None,
) -> Tensor:
    """A tensor whose element at ``(i, j, …)`` is ``fcompute(i, j, …)``."""
    extents = tuple(as_expr(s) for s in shape)
    axes = tuple(Var(axis_name) for axis_name in _axis_names(fcompute, len(extents)))
    body = as_expr(fcompute(*axes))
    inputs = {id(n.buffer): _owners[id(n.buffer)] for n in walk(body) if isinstance(n, BufferLoad)}
    return Tensor(Buffer(name, extents, body.dtype), axes, body, tuple(inputs.values()), attrs or {})


def _axis_names(fcompute: Callable[..., PrimExpr], count: int) -> list[str]:
    parameters = list(inspect.signature(fcompute).parameters.values())
    required = [p for p in parameters if p.default is inspect.Parameter.empty]
    names = [p.name for p in required if p.kind is not inspect.Parameter.VAR_POSITIONAL]
    variadic = [p.name for p in parameters if p.kind is inspect.Parameter.VAR_POSITIONAL]
    if variadic:
        return names + [f"{variadic[0]}{i}" for i in range(count - len(names))]
    if len(names) != count:
        raise ValueError(f"compute over {count} axes needs a function of {count} arguments; got {len(names)}")
    return [f"i{i}" if n == "_" else n for i, n in enumerate(names)]


def elementwise(name: str, f: Callable[..., PrimExpr], *operands: Any) -> Tensor:
    """``f`` applied element by element to tensors and numbers, with numpy's broadcasting."""
    tensors = [t for t in operands if isinstance(t, Tensor)]
    shape = broadcast_shape([t.shape for t in tensors])

    def element(*i: Var) -> PrimExpr:
        return f(*(t[broadcast_index(t.shape, i)] if isinstance(t, Tensor) else t for t in operands))

    return compute(shape, element, name=name)


def broadcast_shape(shapes: Sequence[Sequence[PrimExpr]]) -> tuple[PrimExpr, ...]:
    """numpy's broadcasting over symbolic shapes. Raises ValueError where two sizes are neither equal nor 1."""
    rank = __builtins_max(len(s) for s in shapes)
    result: list[PrimExpr] = []
    for axis in range(rank):
        sizes = [s[axis - (rank - len(s))] for s in shapes if axis - (rank - len(s)) >= 0]
        result.append(_broadcast_size(sizes, axis))
    return tuple(result)


def _broadcast_size(sizes: list[PrimExpr], axis: int) -> PrimExpr:
    wide = [s for s in sizes if not ir.is_const(s, 1)]
    for other in wide[1:]:
        require_equal(wide[0], other, f"sizes to broadcast on axis {axis}")
    return wide[0] if wide else sizes[0]


_assumptions: ContextVar[list[tuple[PrimExpr, PrimExpr]] | None] = ContextVar("assumptions", default=None)


def require_equal(a: PrimExpr, b: PrimExpr, what: str) -> None:
    """Raises ValueError when two sizes are known and differ; symbolic ones are noted for ``collect_assumptions``."""
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        if a.value != b.value:
            raise ValueError(f"{what} differ: got {a.value} and {b.value}")
        return
    noted = _assumptions.get()
    if noted is not None:
        noted.append((a, b))


@contextmanager
def collect_assumptions() -> Iterator[list[tuple[PrimExpr, PrimExpr]]]:
    """Gives the pairs of sizes that the tensor expressions built inside take for equal."""
    noted: list[tuple[PrimExpr, PrimExpr]] = []
    token = _assumptions.set(noted)
    try:
        yield noted
    finally:
        _assumptions.reset(token)


def broadcast_index(shape: Sequence[PrimExpr], indices: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
    """The index into a tensor of ``shape`` for an index into the broadcast result."""
    tail = indices[len(indices) - len(shape) :]
    return tuple(IntImm(0) if ir.is_const(s, 1) else i for s, i in zip(shape, tail, strict=True))


def __builtins_max(values: Any) -> int:
    best = 0
    for v in values:
        best = v if v > best else best
    return best


# -- to loops -----------------------------------------------------------------------------------------------------

_COMBINE: dict[str, Callable[[PrimExpr, PrimExpr], PrimExpr]] = {
    "sum": lambda a, b: a + b,
    "prod": lambda a, b: a * b,
    "max": ir.maximum,
    "min": ir.minimum,
}


def reduction_identity(kind: str, dtype: str) -> PrimExpr:
    """The value that leaves the other operand of a reduction unchanged."""
    if kind == "max":
        return ir.min_value(dtype)
    if kind == "min":
        return ir.max_value(dtype)
    return ir.const(1 if kind == "prod" else 0, dtype)


class _ReadsRemap(Rewriter):
    def __init__(self, buffers: dict[int, Buffer]):
        self.buffers = buffers

    def rewrite_BufferLoad(self, node: BufferLoad) -> BufferLoad:
        return BufferLoad(self.buffers.get(id(node.buffer), node.buffer), self(node.indices))


def _block(tensor: Tensor) -> tir.Stmt:
    """Loops and block of one compute."""
    body = tensor.body
    reduce_axes: tuple[ReduceAxis, ...] = ()
    reduce = body if isinstance(body, Reduce) else None
    if reduce is not None:
        reduce_axes, body = reduce.axes, reduce.value
    assert body is not None
    block_vars = [Var(f"v_{a.name}") for a in (*tensor.axes, *reduce_axes)]
    loop_vars = [Var(a.name) for a in (*tensor.axes, *reduce_axes)]
    extents = [*tensor.shape, *(a.extent for a in reduce_axes)]
    value = substitute(body, dict(zip((*tensor.axes, *reduce_axes), block_vars, strict=True)))
    indices = tuple(block_vars[: len(tensor.axes)])
    init: tir.Stmt | None = None
    if reduce is not None:
        init = tir.BufferStore(tensor.buffer, reduction_identity(reduce.kind, value.dtype), indices)
        value = _COMBINE[reduce.kind](tensor.buffer[indices], value)
    store = tir.BufferStore(tensor.buffer, value, indices)
    kinds = ["S"] * len(tensor.axes) + ["R"] * len(reduce_axes)
    iters = tuple(tir.IterVar(v, e, k) for v, e, k in zip(block_vars, extents, kinds, strict=True))
    reads, writes = infer_regions(store, iters)
    block = tir.Block(tensor.name, iters, reads, writes, store, init, (), dict(tensor.attrs))
    stmt: tir.Stmt = tir.BlockRealize(tuple(loop_vars), IntImm(1, "bool"), block)
    for var, extent in zip(reversed(loop_vars), reversed(extents), strict=True):
        stmt = tir.For(var, extent, stmt)
    return stmt


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


def create_prim_func(
    params: Sequence[Tensor | Var], name: str | None = None, attrs: Mapping[str, Any] | None = None
) -> tir.PrimFunc:
    """The tensor function with these parameters; computes that are not parameters become intermediate buffers.

    Block names and buffer names are made unique. ``attrs["num_outputs"]`` counts the parameters that are computed.
    """
    tensors = [p for p in params if isinstance(p, Tensor)]
    order = _unique_names(_topological(tensors), tensors)
    listed = {id(t) for t in tensors}
    missing = [t.name for t in order if t.body is None and id(t) not in listed]
    if missing:
        raise ValueError(f"create_prim_func: {', '.join(missing)} is read but not a parameter")
    renamed = {id(t.buffer): b for t, b in order.items()}
    remap = _ReadsRemap(renamed)
    stmts, allocs = [], []
    for tensor, buffer in order.items():
        if tensor.body is None:
            continue
        stmts.append(_block(Tensor(buffer, tensor.axes, remap(tensor.body), (), tensor.attrs)))
        if id(tensor) not in listed:
            allocs.append(buffer)
    buffers = tuple(order[p] if isinstance(p, Tensor) else p for p in params)
    outputs = [t for t in tensors if t.body is not None]
    all_attrs: dict[str, Any] = {"tir.noalias": True, "num_outputs": len(outputs), **(attrs or {})}
    if name:
        all_attrs["global_symbol"] = name
    func = tir.PrimFunc(buffers, tir.root_block(tir.seq(*stmts), tuple(allocs)), all_attrs)
    _check_scalars(func)
    return func


def _unique_names(order: list[Tensor], params: Sequence[Tensor]) -> Any:
    """Tensor -> buffer with a name of its own, in computation order."""
    taken: set[str] = set()
    result: dict[Tensor, Buffer] = {}
    for tensor in order:
        name, i = tensor.name, 0
        while name in taken:
            i += 1
            name = f"{tensor.name}_{i}"
        taken.add(name)
        result[tensor] = Buffer(name, tensor.shape, tensor.dtype, tensor.buffer.scope)
    for tensor in params:
        result.setdefault(tensor, tensor.buffer)
    return result


def _check_scalars(func: tir.PrimFunc) -> None:
    known = {id(p) for p in func.params if isinstance(p, Var)}
    known |= {id(v) for b in func.buffers for s in b.shape for v in free_vars(s)}
    bound = {id(n.var) for n in walk(func.body) if isinstance(n, tir.For | tir.IterVar | ir.Let)}
    for var in free_vars(func.body):
        if id(var) not in known and id(var) not in bound:
            raise ValueError(f"create_prim_func: {var.name!r} is no parameter nor the size of one; add it to params")

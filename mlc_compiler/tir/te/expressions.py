"""Tensors and the scalar expressions of their elements."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, ClassVar

from ...ir import dtype as dt
from ...ir import expr as ir
from ...ir.expr import ExprLike, IntImm, PrimExpr, Select, Var, as_expr
from ...ir.node import node
from ...ir.recursion import deep_recursion
from ...ir.shape import Shape
from ...ir.visitor import nodes_of
from .. import nodes as tir
from ..nodes import Buffer, BufferLoad

ONE = IntImm(1)


@node
class ReduceAxis(Var):
    """A reduction variable over ``[0, extent)``."""

    extent: PrimExpr = ONE


@node
class Reduce(PrimExpr):
    """A reduction of ``value`` over ``axes`` with initial value ``init``; only as the whole body of a compute."""

    kind: str
    value: PrimExpr
    axes: tuple[ReduceAxis, ...]
    init: PrimExpr | None = None

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.value.dtype


class Tensor:
    """The result of a placeholder or compute. Index it with expressions; arithmetic works element by element.

    body: the expression of the element at ``axes``, or the statement that computes all of ``results`` (see ``extern``).
    """

    __iter__: ClassVar[None] = None  # not iterable: ``__getitem__`` never raises IndexError

    def __init__(
        self,
        buffer: Buffer,
        axes: tuple[Var, ...] = (),
        body: PrimExpr | tir.Stmt | None = None,
        inputs: tuple[Tensor, ...] = (),
        attrs: Mapping[str, Any] | None = None,
        results: tuple[Buffer, ...] = (),
    ):
        self.buffer = buffer
        self.axes = axes
        self.body = body
        self.inputs = inputs
        self.attrs = attrs or {}
        self.results = results

    def __repr__(self) -> str:
        return f"Tensor({self.buffer!r})"

    @property
    def shape(self) -> Shape:
        return Shape(self.buffer.shape)

    @property
    def dtype(self) -> str:
        return self.buffer.dtype

    @property
    def ndim(self) -> int:
        return len(self.buffer.shape)

    @property
    def name(self) -> str:
        return self.buffer.name

    @property
    def is_update(self) -> bool:
        """Whether this is the result of an in-place update of another tensor, see ``updated``."""
        return self.body is not None and bool(self.inputs) and self.inputs[0].buffer is self.buffer

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> PrimExpr:
        items = indices if isinstance(indices, tuple) else (indices,)
        if len(items) != self.ndim:
            raise ValueError(f"tensor {self.name!r} has {self.ndim} axes; indexed with {len(items)}")
        return TensorLoad(self.buffer, tuple(as_expr(i) for i in items), self)

    def __call__(self, *indices: ExprLike) -> PrimExpr:
        return self[indices]

    def __add__(self, other: Any) -> Tensor:
        return elementwise("add", lambda a, b: a + b, self, other)

    def __sub__(self, other: Any) -> Tensor:
        return elementwise("subtract", lambda a, b: a - b, self, other)

    def __mul__(self, other: Any) -> Tensor:
        return elementwise("multiply", lambda a, b: a * b, self, other)

    def __truediv__(self, other: Any) -> Tensor:
        return elementwise("divide", lambda a, b: a / b, self, other)


@node
class TensorLoad(BufferLoad):
    """An element of a tensor. In a tensor function it is a load of the tensor's buffer."""

    tensor: Tensor


class Scalar(Tensor):
    """A constant as a tensor without axes; its only element is the constant itself."""

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> PrimExpr:
        assert indices == () and isinstance(self.body, PrimExpr)
        return self.body


def scalar(value: PrimExpr) -> Scalar:
    """Wrap a scalar expression as a tensor without axes."""
    return Scalar(tir.buffer("scalar", (), value.dtype), body=value)


def var(name: str, dtype: str = "int64") -> Var:
    """A symbolic size. Two variables of one name are different sizes."""
    return Var(name, dtype)


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


def sum(value: PrimExpr, axis: ReduceAxis | Sequence[ReduceAxis], init: PrimExpr | None = None) -> Reduce:
    """Sum over reduction axes, in the dtype of ``value``; ``init``, of the same dtype, is added (None: 0)."""
    return replace(_reduce("sum", value, axis), init=init)


def max(a: ExprLike, b: ExprLike | None = None, axis: ReduceAxis | Sequence[ReduceAxis] | None = None) -> PrimExpr:
    """The maximum of two values, or with ``axis`` over reduction axes."""
    return ir.maximum(a, b) if axis is None else _reduce("max", as_expr(a), axis)  # type: ignore[arg-type]


def min(a: ExprLike, b: ExprLike | None = None, axis: ReduceAxis | Sequence[ReduceAxis] | None = None) -> PrimExpr:
    """The minimum of two values, or with ``axis`` over reduction axes."""
    return ir.minimum(a, b) if axis is None else _reduce("min", as_expr(a), axis)  # type: ignore[arg-type]


def prod(value: PrimExpr, axis: ReduceAxis | Sequence[ReduceAxis]) -> Reduce:
    """Product over reduction axes, in the dtype of ``value``."""
    return _reduce("prod", value, axis)


def f32(value: ExprLike) -> PrimExpr:
    """Cast a value to float32."""
    return ir.cast("float32", value)


def cast(value: ExprLike, dtype: str) -> PrimExpr:
    return ir.cast(dtype, value)


def select(condition: PrimExpr, true_value: ExprLike, false_value: ExprLike) -> PrimExpr:
    """``true_value`` where ``condition`` holds, else ``false_value``; both may be evaluated."""
    a, b = _common(true_value, false_value)
    return Select(condition, a, b)


def if_then_else(condition: PrimExpr, true_value: ExprLike, false_value: ExprLike) -> PrimExpr:
    """``true_value`` where ``condition`` holds, else ``false_value``; only one is evaluated: it may guard a load."""
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
    """A call of the scalar function ``name`` (``exp``, ``tanh``, ``sqrt`` …) in the dtype of its first argument."""
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


def floor(x: ExprLike) -> PrimExpr:
    return call("floor", x)


def ceil(x: ExprLike) -> PrimExpr:
    return call("ceil", x)


def round(x: ExprLike) -> PrimExpr:
    """Round to the nearest integer, ties to even."""
    return call("round", x)


def power(x: ExprLike, y: ExprLike) -> PrimExpr:
    return call("pow", *_common(x, y))


def abs(x: ExprLike) -> PrimExpr:
    value = as_expr(x)
    return ir.maximum(value, -value)


def all(*conditions: PrimExpr) -> PrimExpr:
    """Whether all conditions hold."""
    return ir.logical_and(*conditions)


def any(*conditions: PrimExpr) -> PrimExpr:
    """Whether one of the conditions holds."""
    return ir.logical_or(*conditions)


def const(value: float | bool, dtype: str = "int32") -> PrimExpr:
    return ir.const(value, dtype)


@deep_recursion
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
    inputs = dict.fromkeys(load.tensor for load in nodes_of(body, TensorLoad))
    return Tensor(Buffer(name, extents, body.dtype), axes, body, tuple(inputs), attrs)


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
    rank = builtins.max((len(s) for s in shapes), default=0)
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
    """Raise ValueError when two constant sizes differ; pairs with symbolic sizes go to ``collect_assumptions``."""
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        if a.value != b.value:
            raise ValueError(f"{what} differ: got {a.value} and {b.value}")
        return
    assumptions = _assumptions.get()
    if assumptions is not None:
        assumptions.append((a, b))


@contextmanager
def collect_assumptions() -> Iterator[list[tuple[PrimExpr, PrimExpr]]]:
    """Context manager: yields a list of the pairs of sizes that tensor expressions built inside assume equal."""
    assumptions: list[tuple[PrimExpr, PrimExpr]] = []
    token = _assumptions.set(assumptions)
    try:
        yield assumptions
    finally:
        _assumptions.reset(token)


def broadcast_index(shape: Sequence[PrimExpr], indices: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
    """The index into a tensor of ``shape`` for an index into the broadcast result."""
    tail = indices[len(indices) - len(shape) :]
    return tuple(IntImm(0) if ir.is_const(s, 1) else i for s, i in zip(shape, tail, strict=True))

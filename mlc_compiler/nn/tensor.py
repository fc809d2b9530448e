"""Tensors of the function being traced. Operations on them emit graph bindings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, get_origin

import numpy as np

from mlc_errors import MLCError

from ..ir.dtype import is_float
from ..ir.expr import ExprLike, IntImm, PrimExpr
from ..ir.expr import Var as SizeVar
from ..ir.shape import Shape
from ..relax import ops
from ..relax.builder import BlockBuilder
from ..relax.info import prim_value, shape_of, tensor_info, tensor_info_of
from ..relax.nodes import Call, Expr, ObjectStructInfo, Op, StringImm, TensorStructInfo, TupleStructInfo, Var
from ..relax.ops.registry import Operator, OperatorError

Size = int | PrimExpr
Number = int | float


class Tensor:
    """A tensor of known shape; sizes are ``int`` or symbolic. ``+ - * /`` broadcast and accept numbers."""

    def __init__(self, expr: Expr):
        tensor_info_of(expr)
        self._expr: Expr | None = expr

    @property
    def expr(self) -> Expr:
        """The graph expression of the tensor."""
        assert self._expr is not None
        return self._expr

    @property
    def shape(self) -> Shape:
        return _shape(self.expr)

    @property
    def dtype(self) -> str:
        return tensor_info_of(self.expr).dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @staticmethod
    def placeholder(shape: Sequence[Size], dtype: str = "float32", name: str = "tensor") -> Tensor:
        """A tensor without a value that describes the shape and dtype of a result."""
        return Tensor(Var(name, tensor_info(shape, dtype)))

    def __repr__(self) -> str:
        return f'Tensor({list(self.shape)}, "{self.dtype}")'

    def astype(self, dtype: str) -> Tensor:
        """Cast the elements to ``dtype``; the tensor itself when it has that dtype."""
        return self if self.dtype == dtype else apply(ops.astype, self, dtype=dtype)

    def reshape(self, *shape: Size | Sequence[Size]) -> Tensor:
        """The same elements with another shape, given as sizes or as one sequence; one size may be -1."""
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
        return apply(ops.reshape, self, sizes)

    def permute_dims(self, *axes: int | Sequence[int]) -> Tensor:
        """Axis ``i`` of the result is axis ``axes[i]``, given as ints or one sequence; reversed without axes."""
        order = axes[0] if len(axes) == 1 and isinstance(axes[0], Sequence) else axes
        return apply(ops.permute_dims, self, axes=tuple(order) or None)

    def repeat(self, repeats: int, axis: int | None = None) -> Tensor:
        """Repeat each element ``repeats`` times along ``axis``; None: the tensor is flattened first."""
        return apply(ops.repeat, self, repeats=repeats, axis=axis)

    def __add__(self, other: Tensor | Number) -> Tensor:
        return apply(ops.add, self, other)

    def __radd__(self, other: Tensor | Number) -> Tensor:
        return apply(ops.add, other, self)

    def __sub__(self, other: Tensor | Number) -> Tensor:
        return apply(ops.subtract, self, other)

    def __rsub__(self, other: Tensor | Number) -> Tensor:
        return apply(ops.subtract, other, self)

    def __mul__(self, other: Tensor | Number) -> Tensor:
        return apply(ops.multiply, self, other)

    def __rmul__(self, other: Tensor | Number) -> Tensor:
        return apply(ops.multiply, other, self)

    def __truediv__(self, other: Tensor | Number) -> Tensor:
        return apply(ops.divide, self, other)

    def __rtruediv__(self, other: Tensor | Number) -> Tensor:
        return apply(ops.divide, other, self)

    def __matmul__(self, other: Tensor) -> Tensor:
        return apply(ops.matmul, self, other)

    def __neg__(self) -> Tensor:
        return apply(ops.negative, self)

    def __lt__(self, other: Tensor | Number) -> Tensor:
        return apply(ops.less, self, other)

    def __le__(self, other: Tensor | Number) -> Tensor:
        return apply(ops.less_equal, self, other)

    def __gt__(self, other: Tensor | Number) -> Tensor:
        return apply(ops.greater, self, other)

    def __ge__(self, other: Tensor | Number) -> Tensor:
        return apply(ops.greater_equal, self, other)


class ParameterError(MLCError, ValueError):
    """Missing data of a parameter, data of a wrong shape or dtype, or an unknown parameter path."""


class Parameter(Tensor):
    """A weight with a storage dtype. It has a graph value only while a function is traced or built.

    shape: integers, and names of symbolic sizes of the exported functions. name: name of the graph
    variable in functions built with a ``BlockBuilder``, where it must be a parameter. keeps_dtype: ``to`` does not
    change the storage dtype. ``data`` is the array that a compiled module uses for it: numpy or any that
    supports DLPack, initially None.
    """

    def __init__(
        self,
        shape: Sequence[int | str],
        dtype: str = "float32",
        name: str = "param",
        *,
        keeps_dtype: bool = False,
    ):
        self._keeps_dtype = keeps_dtype
        self._shape = Shape(SizeVar(s) if isinstance(s, str) else s for s in shape)
        self._dtype = dtype
        self._expr = None
        self._name = name
        self._variable: Var | None = None
        self._data: Any = None

    @property
    def expr(self) -> Expr:
        return BlockBuilder.current().parameter(self.variable) if self._expr is None else self._expr

    @property
    def variable(self) -> Var:
        """The graph variable of the parameter in functions built with a ``BlockBuilder``."""
        if self._variable is None:
            self._variable = Var(self._name, tensor_info(self.shape, self.dtype))
        return self._variable

    @property
    def shape(self) -> Shape:
        return self._shape if self._expr is None else _shape(self._expr)

    @property
    def dtype(self) -> str:
        return self._dtype

    def to(self, dtype: str) -> None:
        """Set the storage dtype, unless it is an integer. Raises ParameterError when there is data of another dtype."""
        if not is_float(self._dtype) or dtype == self._dtype or self._keeps_dtype:
            return
        if self._data is not None:
            hint = "choose the type before setting the data"
            raise ParameterError(f"a parameter with {self._dtype} data cannot become {dtype}", hint=hint)
        self._dtype, self._variable = dtype, None

    @property
    def data(self) -> Any:
        return self._data

    @data.setter
    def data(self, value: Any) -> None:
        self._data = None if value is None else self.fitting(value)

    def fitting(self, value: Any, name: str = "parameter") -> Any:
        """Check ``value`` as data of this parameter and return it, C-contiguous if numpy. Raises ParameterError."""
        expected = f"{self.dtype} {list(self.shape)}"
        try:
            shape, dtype = [int(s) for s in value.shape], str(value.dtype).removeprefix("torch.")
        except (AttributeError, TypeError):
            raise ParameterError(f"{name} got {type(value).__name__}; expected an array {expected}") from None
        if not _matches(shape, self.shape) or dtype != self.dtype:
            raise ParameterError(f"{name} got {dtype} {shape}; expected {expected}")
        return np.asarray(value, order="C") if isinstance(value, np.ndarray) else value

    def bind(self, expr: Expr | None) -> None:
        """Set the graph value of this parameter; None when tracing ends."""
        self._expr = expr


def _shape(expr: Expr) -> Shape:
    return Shape(s.value if isinstance(s, IntImm) else s for s in shape_of(expr))


def _matches(shape: Sequence[int], sizes: Sequence[Size]) -> bool:
    """Whether a shape matches the given sizes; symbolic sizes match any."""
    return len(shape) == len(sizes) and all(s == size for s, size in zip(shape, sizes) if isinstance(size, int))


def graph_value(what: str, value: Tensor | ExprLike | str) -> Expr:
    """Convert a tensor, number or string to a graph value. Raises OperatorError (prefix ``what``) for others."""
    if isinstance(value, Tensor):
        return value.expr
    if isinstance(value, str):
        return StringImm(value, ObjectStructInfo())
    try:
        return prim_value(value)
    except TypeError:
        got = type(value).__name__
        raise OperatorError(f"{what}: got an argument of type {got}; expected a tensor, number or string") from None


def apply(operator: Operator, *args: Any, **attrs: Any) -> Tensor:
    """Bind the result of an operator; arguments are tensors, numbers, shapes, tuples of tensors.

    Raises OperatorError for any other value, and for invalid arguments.
    """
    return emit(operator(*_operands(operator, args), **attrs))


def apply_tuple(operator: Operator, *args: Any, **attrs: Any) -> tuple[Tensor, ...]:
    """Like ``apply``, for an operator that returns several tensors."""
    return emit_tuple(operator(*_operands(operator, args), **attrs))


def _operands(operator: Operator, args: Sequence[Any]) -> list[Any]:
    given = zip(operator.kinds.items(), args, strict=False)
    return [_operand(operator.name, name, _as_sequence(kind, value)) for (name, kind), value in given]


def _as_sequence(kind: Any, value: Any) -> Any:
    """Convert an iterable to a tuple, for a parameter that is a shape or several tensors."""
    return tuple(value) if get_origin(kind) is tuple and isinstance(value, Iterable) else value


def _operand(operator: str, name: str, value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.expr
    if isinstance(value, tuple):
        return [_operand(operator, name, v) for v in value]
    if value is None or isinstance(value, int | float | PrimExpr):
        return value
    raise OperatorError(f"{operator}: {name} is a {type(value).__name__}; expected a Tensor or a number")


def emit(call: Call, name: str | None = None) -> Tensor:
    """Bind a call in the function being traced and return its result."""
    return Tensor(_bind(call, name))


def emit_tuple(call: Call, name: str | None = None) -> tuple[Tensor, ...]:
    """Bind a call that returns several tensors and return them."""
    return unpack(_bind(call, name))


def unpack(value: Var) -> tuple[Tensor, ...]:
    """The tensors of a variable: the variable itself, or the fields of a tuple."""
    if isinstance(value.struct_info, TensorStructInfo):
        return (Tensor(value),)
    assert isinstance(value.struct_info, TupleStructInfo)
    return tuple(Tensor(v) for v in BlockBuilder.current().split_tuple(value))


def _bind(call: Call, name: str | None) -> Var:
    target = call.target.name if isinstance(call.target, Op) else "lv"
    return BlockBuilder.current().emit(call, name or target.split(".")[-1])

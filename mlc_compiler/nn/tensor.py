"""Values of the function being traced. Operations on them emit graph bindings."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlc_errors import MLCError

from ..ir.dtype import is_float
from ..ir.expr import IntImm, PrimExpr
from ..relax import ops
from ..relax.builder import BlockBuilder
from ..relax.info import shape_of, tensor_info_of
from ..relax.nodes import Call, Expr, Op, TensorStructInfo, TupleStructInfo, Var

Size = int | PrimExpr


class Tensor:
    """A tensor of known shape; sizes are ``int`` or symbolic. ``+ - * /`` broadcast and accept numbers."""

    def __init__(self, expr: Expr):
        tensor_info_of(expr)
        self._expr: Expr | None = expr

    @property
    def expr(self) -> Expr:
        """The graph value."""
        assert self._expr is not None
        return self._expr

    @property
    def shape(self) -> tuple[Size, ...]:
        return tuple(s.value if isinstance(s, IntImm) else s for s in shape_of(self.expr))

    @property
    def dtype(self) -> str:
        return tensor_info_of(self.expr).dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return f'Tensor({list(self.shape)}, "{self.dtype}")'

    def astype(self, dtype: str) -> Tensor:
        """In another type; itself when it has that type."""
        return self if self.dtype == dtype else emit(ops.astype(self.expr, dtype=dtype))

    def __add__(self, other: Any) -> Tensor:
        return emit(ops.add(self.expr, _operand(other)))

    def __radd__(self, other: Any) -> Tensor:
        return emit(ops.add(_operand(other), self.expr))

    def __sub__(self, other: Any) -> Tensor:
        return emit(ops.subtract(self.expr, _operand(other)))

    def __rsub__(self, other: Any) -> Tensor:
        return emit(ops.subtract(_operand(other), self.expr))

    def __mul__(self, other: Any) -> Tensor:
        return emit(ops.multiply(self.expr, _operand(other)))

    def __rmul__(self, other: Any) -> Tensor:
        return emit(ops.multiply(_operand(other), self.expr))

    def __truediv__(self, other: Any) -> Tensor:
        return emit(ops.divide(self.expr, _operand(other)))

    def __rtruediv__(self, other: Any) -> Tensor:
        return emit(ops.divide(_operand(other), self.expr))

    def __neg__(self) -> Tensor:
        return emit(ops.negative(self.expr))


class ParameterError(MLCError, ValueError):
    """Data that does not fit a parameter, or that is missing."""


class Parameter(Tensor):
    """A weight: static shape and storage type. It has a graph value only while a function is traced.

    ``data`` is the array that a compiled module uses for it: numpy or any other that speaks DLPack, None at first.
    """

    def __init__(self, shape: tuple[int, ...] | list[int], dtype: str = "float32"):
        self._shape = tuple(shape)
        self._dtype = dtype
        self._expr = None
        self._data: Any = None

    @property
    def expr(self) -> Expr:
        if self._expr is None:
            raise RuntimeError("a parameter has a value only while its module is exported")
        return self._expr

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def dtype(self) -> str:
        return self._dtype

    def to(self, dtype: str) -> None:
        """Set the storage type; packed integers keep theirs. Raises ParameterError when there is data of another."""
        if not is_float(self._dtype) or dtype == self._dtype:
            return
        if self._data is not None:
            hint = "choose the type before setting the data"
            raise ParameterError(f"a parameter with {self._dtype} data cannot become {dtype}", hint=hint)
        self._dtype = dtype

    @property
    def data(self) -> Any:
        return self._data

    @data.setter
    def data(self, value: Any) -> None:
        self._data = None if value is None else self.fitting(value)

    def fitting(self, value: Any, name: str = "parameter") -> Any:
        """``value``, an array for this parameter. Raises ParameterError when it has another shape or dtype."""
        wanted = f"{self.dtype} {list(self.shape)}"
        try:
            shape, dtype = [int(s) for s in value.shape], str(value.dtype).removeprefix("torch.")
        except (AttributeError, TypeError):
            raise ParameterError(f"{name} got {type(value).__name__}; expected an array {wanted}") from None
        if shape != list(self.shape) or dtype != self.dtype:
            raise ParameterError(f"{name} got {dtype} {shape}; expected {wanted}")
        return np.asarray(value, order="C") if isinstance(value, np.ndarray) else value

    def bind(self, expr: Expr | None) -> None:
        """The graph value that stands for this parameter from now on."""
        self._expr = expr


def _operand(value: Any) -> Any:
    return value.expr if isinstance(value, Tensor) else value


def emit(call: Call, name: str | None = None) -> Tensor:
    """Bind a call in the function being traced."""
    return Tensor(_bind(call, name))


def emit_tuple(call: Call, name: str | None = None) -> tuple[Tensor, ...]:
    """Bind a call that gives several tensors."""
    return unpack(_bind(call, name))


def unpack(value: Var) -> tuple[Tensor, ...]:
    """The tensors of a variable that holds one or several."""
    if isinstance(value.struct_info, TensorStructInfo):
        return (Tensor(value),)
    assert isinstance(value.struct_info, TupleStructInfo)
    return tuple(Tensor(v) for v in BlockBuilder.current().split_tuple(value))


def _bind(call: Call, name: str | None) -> Var:
    target = call.target.name if isinstance(call.target, Op) else "lv"
    return BlockBuilder.current().emit(call, name or target.split(".")[-1])

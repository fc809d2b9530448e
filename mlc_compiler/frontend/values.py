"""Values during import: graph values for tensors, integers or symbolic expressions for sizes, and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from mlc_errors import MLCError

from ..ir import dtype as dt
from ..ir.expr import PrimExpr, is_const
from ..ir.simplify import simplify
from ..relax import ops
from ..relax.info import prim_value, scalar_constant, shape_of, tensor_info_of
from ..relax.nodes import Expr

Size = int | PrimExpr
Number = int | float | bool | PrimExpr
Value = Expr | Number


class ImportModelError(MLCError, ValueError):
    """A model contains something that the compiler cannot represent."""


def dtype_of(x: Value) -> str:
    """The dtype of a tensor; for a number, PyTorch's default: bool, int64 or float32."""
    if isinstance(x, Expr) and not _is_size(x):
        return tensor_info_of(x).dtype
    if isinstance(x, bool):
        return "bool"
    return "float32" if isinstance(x, float) else "int64"


def rank(x: Expr) -> int:
    return len(shape_of(x))


def axis_of(x: Expr, axis: int) -> int:
    """Normalize a negative axis, which counts from the last; the range is left to the operator to check."""
    return axis + rank(x) if axis < 0 else axis


def size_of(x: Expr, axis: int) -> Size:
    return plain(shape_of(x)[axis])


def plain(size: Size) -> Size:
    """Simplify a size; a constant one becomes an integer."""
    if isinstance(size, int):
        return size
    simple = simplify(size)
    return simple.value if is_const(simple) else simple  # type: ignore[attr-defined]


def constant_size(x: Expr, axis: int) -> int:
    """The size of an axis. Raises ImportModelError for a symbolic one."""
    size = size_of(x, axis)
    if not isinstance(size, int):
        raise ImportModelError(f"axis {axis} has the symbolic size {size}; expected a number")
    return size


def count_of(x: Expr, axes: Sequence[int]) -> Size:
    """The number of elements along some axes."""
    total: Size = 1
    for axis in axes:
        total = total * size_of(x, axis)
    return plain(total)


def cast(x: Value, dtype: str) -> Expr:
    """Cast to a tensor of ``dtype``; a number becomes a tensor of shape ()."""
    if isinstance(x, PrimExpr):
        x = prim_value(x)
    if not isinstance(x, Expr):
        return scalar_constant(x, dtype)
    return x if not _is_size(x) and dtype_of(x) == dtype else ops.astype(x, dtype=dtype)


def result_type(operands: Sequence[Value]) -> str:
    """The common dtype of operands by PyTorch's type promotion.

    Tensors with axes take precedence; those of shape (), and then numbers, count only if their kind (bool, integer,
    floating) is higher: https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc
    """
    order: list[list[str]] = [[], [], []]
    for x in operands:
        tensor = isinstance(x, Expr) and not _is_size(x)
        order[0 if tensor and rank(x) else 1 if tensor else 2].append(dtype_of(x))  # type: ignore[arg-type]
    found = [reduce(dt.promote, dtypes) for dtypes in order if dtypes]
    return reduce(lambda a, b: b if _kind(b) > _kind(a) else a, found)


def promoted(*operands: Value) -> list[Expr]:
    """The operands as tensors of their common dtype."""
    common = result_type(operands)
    return [cast(x, common) for x in operands]


def floating(x: Value) -> Expr:
    """Convert to a floating tensor; integers become float32."""
    return cast(x, dtype_of(x) if dt.is_float(dtype_of(x)) else "float32")


def _kind(dtype: str) -> int:
    return 2 if dt.is_float(dtype) else 0 if dtype == "bool" else 1


def _is_size(x: Value) -> bool:
    return type(x).__name__ == "PrimValue"

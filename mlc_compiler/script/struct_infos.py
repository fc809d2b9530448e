"""Parser of structure info: ``R.Tensor((n, 4), dtype="float32")``, ``R.Tuple(…)``, ``R.Shape(…)``, ``R.Prim(…)``."""

from __future__ import annotations

import ast
from typing import Any

from ..ir import dtype as dt
from ..ir.expr import PrimExpr
from ..relax.nodes import (
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from .arithmetic import to_expr
from .evaluate import Evaluator
from .scope import Namespace
from .source import describe


class StructInfoReader(Evaluator):
    """Parses annotations. A size may be a string; undefined names in it become symbolic sizes of the function."""

    def annotation(self, node: ast.expr) -> StructInfo:
        return self.as_info(node, self.value(node))

    def as_info(self, node: ast.AST, value: Any) -> StructInfo:
        """Convert a value to structure info; ``R.Object`` needs no parentheses, a list or tuple is an ``R.Tuple``."""
        if isinstance(value, StructInfo):
            return value
        if isinstance(value, Namespace) and value.path == "R.Object":
            return ObjectStructInfo()
        if isinstance(value, Namespace) and value.path == "R.Tuple":
            return TupleStructInfo(())
        if isinstance(value, tuple | list):
            return TupleStructInfo(tuple(self.as_info(node, v) for v in value))
        raise self.error(
            node, f'expected structure info such as R.Tensor((2, 3), dtype="float32"), got {describe(value)}'
        )

    def size(self, node: ast.AST, value: Any) -> PrimExpr:
        """Convert a number, an expression, or a string with an expression to a size."""
        if not isinstance(value, str):
            return self.attempt(node, to_expr, value)
        try:
            parsed = ast.parse(value, mode="eval").body
        except SyntaxError:
            raise self.error(node, f"expected a symbolic size, got {value!r}") from None
        for inner in ast.walk(parsed):
            ast.copy_location(inner, node)
            if isinstance(inner, ast.Name) and not self.scope.find(inner.id)[0]:
                self.scope.symbol(inner.id)
        return self.expr(parsed)

    def sizes(self, node: ast.AST, value: Any) -> tuple[PrimExpr, ...]:
        items = value if isinstance(value, tuple | list) else getattr(value, "values", None)
        if not isinstance(items, tuple | list):
            raise self.error(node, f"expected a shape, got {describe(value)}")
        return tuple(self.size(node, v) for v in items)

    def tensor(self, node: ast.AST, shape: Any, dtype: Any) -> TensorStructInfo:
        """The structure info of a tensor of known shape; float32 when ``dtype`` is None."""
        sizes = self.sizes(node, shape)
        wrong = next((size for size in sizes if not dt.is_int(size.dtype)), None)
        if wrong is not None:
            raise self.error(node, f"a size is {describe(wrong)}; expected an integer")
        return TensorStructInfo(sizes, self.dtype(node, dtype, "float32"))

    def info_call(self, node: ast.Call, name: str, args: list[Any], kwargs: dict[str, Any]) -> StructInfo:
        """Evaluate ``R.Tensor(…)``, ``R.Tuple(…)``, ``R.Shape(…)``, ``R.Prim(…)`` or ``R.Object()``."""
        if name == "Tensor":
            return self._tensor(node, args, kwargs)
        if name == "Tuple":
            fields = args[0] if len(args) == 1 and isinstance(args[0], list | tuple) else args
            return TupleStructInfo(tuple(self.as_info(node, f) for f in fields))
        if name == "Shape":
            values = args[0] if args else kwargs.get("values")
            exprs = self.sizes(node, values) if values is not None else None
            return ShapeStructInfo(exprs, self._rank(node, kwargs))
        if name == "Prim":
            return self._prim(node, args, kwargs)
        return ObjectStructInfo()

    def _tensor(self, node: ast.Call, args: list[Any], kwargs: dict[str, Any]) -> TensorStructInfo:
        if args and isinstance(args[0], str):
            args = [None, *args]
        given = dict(zip(("shape", "dtype"), args)) | kwargs
        if given.get("shape") is not None:
            return self.tensor(node, given["shape"], given.get("dtype"))
        return TensorStructInfo(None, self.dtype(node, given.get("dtype"), "float32"), self._rank(node, given))

    def _prim(self, node: ast.Call, args: list[Any], kwargs: dict[str, Any]) -> PrimStructInfo:
        given = dict(zip(("dtype", "value"), args)) | kwargs
        value = self.size(node, given["value"]) if given.get("value") is not None else None
        dtype = self.dtype(node, given.get("dtype"), value.dtype if value is not None else "int64")
        return PrimStructInfo(dtype, value)

    def dtype(self, node: ast.AST, value: Any, default: str) -> str:
        """Check and return a dtype name; ``default`` for None."""
        name = default if value is None else value
        if not isinstance(name, str) or not dt.is_known(name):
            raise self.error(node, f'expected a dtype such as "float32", got {describe(name)}')
        return name

    def _rank(self, node: ast.AST, given: dict[str, Any]) -> int:
        """The number of axes; -1 (unknown) when not given."""
        rank = given.get("ndim", -1)
        if not isinstance(rank, int) or rank < -1:
            raise self.error(node, f"expected a number of axes, got {describe(rank)}")
        return int(rank)

"""``tvm.relax``: graph functions, BlockBuilder, and compilation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlc_errors import MLCError

from .. import api
from ..ir.module import IRModule
from ..relax import builder
from ..relax.info import prim_value as PrimValue
from ..relax.info import shape_expr as ShapeExpr
from ..relax.nodes import Constant, Expr, Function, constant
from ..relax.nodes import Var as GraphVar
from . import relax_op as op
from . import relax_pipeline as pipeline
from . import relax_transform as transform
from . import relax_vm as vm
from .relax_op import graph_value
from .relax_pipeline import get_pipeline, register_pipeline
from .virtual_machine import Executable, VirtualMachine


@dataclass(frozen=True)
class DynTensorType:
    """The number of axes and the dtype of a tensor."""

    ndim: int = -1
    dtype: str = "float32"


class _VarType(type):
    """``Var(name, shape, type)`` makes a graph variable; graph variables are its instances."""

    def __call__(cls, name: str, shape: Sequence[Any], kind: DynTensorType = DynTensorType()) -> GraphVar:
        if kind.ndim not in (-1, len(shape)):
            raise MLCError(f"variable {name}: got {len(shape)} sizes; its type has {kind.ndim} axes")
        return builder.tensor_var(name, shape, kind.dtype)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, GraphVar)


class Var(metaclass=_VarType):
    """A variable of a graph function: ``Var("x", (1, 784), DynTensorType(2, "float32"))``."""


def const(value: Any, dtype: str | DynTensorType = "float32") -> Constant:
    """A tensor constant."""
    return constant(np.asarray(value, dtype.dtype if isinstance(dtype, DynTensorType) else dtype))


class BlockBuilder(builder.BlockBuilder):
    """The BlockBuilder, extended to accept traced tensors (``nn``) as graph values."""

    def emit(self, expr: Any, name_hint: str | None = None) -> GraphVar:
        return super().emit(graph_value(expr), name_hint)

    def emit_output(self, expr: Any, name_hint: str = "gv") -> GraphVar:
        return super().emit_output(graph_value(expr), name_hint)

    def emit_te(self, f: Callable[..., Any], *args: Any, name_hint: str | None = None, **attrs: Any) -> GraphVar:
        return super().emit_te(f, *map(graph_value, args), name_hint=name_hint, **attrs)

    def emit_func_output(self, output: Any, params: Sequence[Any] = ()) -> None:
        super().emit_func_output(graph_value(output), tuple(map(graph_value, params)))


def build(mod: IRModule, target: Any = None, pipeline: Callable[[IRModule], IRModule] | None = None) -> Executable:
    """Compile a module after applying ``pipeline`` to it. See ``mlc_compiler.build``."""
    creating = {n: f.attrs["creates"]["kind"] for n, f in mod.of_type(Function).items() if "creates" in f.attrs}
    return Executable(api.build(mod, target, pipeline=pipeline), creating)


__all__ = [
    "BlockBuilder",
    "DynTensorType",
    "Expr",
    "PrimValue",
    "ShapeExpr",
    "Var",
    "VirtualMachine",
    "build",
    "const",
    "get_pipeline",
    "op",
    "pipeline",
    "register_pipeline",
    "transform",
    "vm",
]

"""Nodes of graph functions: variables with structure info, bindings in blocks, calls of operators and functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, ClassVar

import numpy as np

from mlc_errors import MLCError

from ..ir import dtype as dt
from ..ir.expr import IntImm, PrimExpr
from ..ir.module import GlobalVar
from ..ir.node import node
from ..ir.printable import Printable, with_attr


class StructInfo:
    """Static information about a value: its type, and the shape and dtype of tensors."""

    __slots__ = ()


@node
class TensorStructInfo(StructInfo):
    """A tensor of ``shape`` (None: unknown, then ``ndim`` may be known) and ``dtype``."""

    shape: tuple[PrimExpr, ...] | None
    dtype: str
    ndim: int = -1

    def __post_init__(self) -> None:
        if self.shape is not None:
            object.__setattr__(self, "ndim", len(self.shape))


@node
class TupleStructInfo(StructInfo):
    fields: tuple[StructInfo, ...]


@node
class ShapeStructInfo(StructInfo):
    values: tuple[PrimExpr, ...] | None
    ndim: int = -1

    def __post_init__(self) -> None:
        if self.values is not None:
            object.__setattr__(self, "ndim", len(self.values))


@node
class PrimStructInfo(StructInfo):
    dtype: str
    value: PrimExpr | None = None


@node
class ObjectStructInfo(StructInfo):
    """A value of any other type: an opaque handle."""


class Expr:
    """Base of graph expressions."""

    __slots__ = ()
    struct_info: StructInfo | None


@node
class Var(Expr):
    """A graph variable. dataflow: whether it is visible only inside its dataflow block."""

    binds_by_identity: ClassVar[bool] = True

    name: str
    struct_info: StructInfo | None
    dataflow: bool = False

    def __repr__(self) -> str:
        return self.name


@node
class Constant(Expr):
    """A tensor known at compile time."""

    not_compared: ClassVar[tuple[str, ...]] = ("struct_info",)

    data: np.ndarray
    struct_info: StructInfo | None = None


@node
class ShapeExpr(Expr):
    not_compared: ClassVar[tuple[str, ...]] = ("struct_info",)

    values: tuple[PrimExpr, ...]
    struct_info: StructInfo | None = None


@node
class PrimValue(Expr):
    """A scalar (symbolic or constant) as a graph value."""

    not_compared: ClassVar[tuple[str, ...]] = ("struct_info",)

    value: PrimExpr
    struct_info: StructInfo | None = None


@node
class StringImm(Expr):
    not_compared: ClassVar[tuple[str, ...]] = ("struct_info",)

    value: str
    struct_info: StructInfo | None = None


@node
class DataTypeImm(Expr):
    not_compared: ClassVar[tuple[str, ...]] = ("struct_info",)

    value: str
    struct_info: StructInfo | None = None


@node
class Tuple(Expr):
    not_compared: ClassVar[tuple[str, ...]] = ("struct_info",)

    fields: tuple[Expr, ...]
    struct_info: StructInfo | None = None


@node
class TupleGetItem(Expr):
    not_compared: ClassVar[tuple[str, ...]] = ("struct_info",)

    tuple_value: Expr
    index: int
    struct_info: StructInfo | None = None


@node
class Op:
    """A graph operator by its registered name: ``add``, ``nn.rms_norm``, ``call_tir``."""

    name: str


@node
class ExternFunc:
    """A function that is registered by name. pure: whether calls of it have no side effects."""

    name: str
    pure: bool = False


@node
class Call(Expr):
    """``target(args, attrs)``.

    ``call_tir``, ``call_tir_inplace`` and ``call_dps_packed`` are ``Op`` calls whose args are
    ``(GlobalVar | ExternFunc, Tuple of inputs[, ShapeExpr of scalar arguments])`` and whose ``out_info`` is the
    structure info of the results.
    """

    not_compared: ClassVar[tuple[str, ...]] = ("struct_info",)

    target: Op | GlobalVar | ExternFunc
    args: tuple[Any, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    out_info: StructInfo | None = None
    struct_info: StructInfo | None = None


@node
class Binding:
    """``var = value``; ``matched`` for ``R.match_cast``: the value's structure info is asserted, not derived."""

    var: Var
    value: Expr
    matched: bool = False


@node
class BindingBlock:
    """Bindings in order. A dataflow block has no side effects; its ``outputs`` are visible after it."""

    bindings: tuple[Binding, ...]
    dataflow: bool = False

    @property
    def outputs(self) -> tuple[Var, ...]:
        return tuple(b.var for b in self.bindings if not b.var.dataflow) if self.dataflow else ()


def _joined(blocks: tuple[BindingBlock, ...]) -> tuple[BindingBlock, ...]:
    """Blocks in normal form: adjacent plain blocks are merged, empty ones removed."""
    result: list[BindingBlock] = []
    for block in blocks:
        if not block.dataflow and result and not result[-1].dataflow:
            result[-1] = BindingBlock(result[-1].bindings + block.bindings)
        elif block.dataflow or block.bindings:
            result.append(block)
    return tuple(result)


@node
class Function(Printable):
    """A graph function: parameters, blocks of bindings, the returned value.

    ``attrs``: ``num_input`` (number of leading parameters that are not weights), ``tir_var_upper_bound`` (maximum of
    symbolic sizes by name), ``tir_non_negative_var`` (names of symbolic sizes >= 0), ``Primitive`` (a fused group),
    ``global_symbol``.
    """

    is_closed: ClassVar[bool] = True

    params: tuple[Var, ...]
    blocks: tuple[BindingBlock, ...]
    ret: Expr
    ret_info: StructInfo | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    is_pure: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", _joined(self.blocks))

    def with_attr(self, key: str | Mapping[str, Any], value: Any = None) -> Function:
        """The function with an attribute, or all of a mapping, set."""
        return replace(self, attrs=with_attr(self.attrs, key, value))

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """All bindings of all blocks, in order."""
        return tuple(b for block in self.blocks for b in block.bindings)


def constant(data: np.ndarray) -> Constant:
    """A constant tensor with its structure info: ``constant(np.ones((2, 3), np.float32))``.

    data: an array of a dtype that the IR supports, those of ml_dtypes included. Raises MLCError for any other value.
    """
    name = str(getattr(data, "dtype", type(data).__name__))
    if not isinstance(data, np.ndarray) or not dt.is_known(name):
        raise MLCError(f"constant: got {name}; expected a numpy array of a known dtype", hint="np.array(…, np.float32)")
    return Constant(data, TensorStructInfo(tuple(IntImm(int(s)) for s in data.shape), name))

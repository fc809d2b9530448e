"""Printer of graph functions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.expr import PrimExpr
from ..ir.expr import Var as Symbol
from ..ir.module import GlobalVar
from ..ir.simplify import key
from ..ir.structural import structural_equal
from ..ir.visitor import free_vars, walk
from ..relax.nodes import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataTypeImm,
    Expr,
    ExternFunc,
    Function,
    Op,
    PrimStructInfo,
    PrimValue,
    ShapeExpr,
    ShapeStructInfo,
    StringImm,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
)
from .expr_printer import ExprPrinter
from .lines import Lines
from .names import Names

MAX_INLINE_ELEMENTS = 16
DESTINATION_PASSING = ("call_tir", "call_tir_inplace", "call_dps_packed")


class StructInfoPrinter:
    """Prints structure info. ``quoted``: print symbolic sizes as strings, as signatures precede declarations."""

    def __init__(self, e: ExprPrinter, quoted: bool = False):
        self.e, self.quoted = e, quoted

    def __call__(self, info: StructInfo) -> str:
        if isinstance(info, TensorStructInfo):
            return self._tensor(info)
        if isinstance(info, TupleStructInfo):
            return f"R.Tuple({', '.join(map(self, info.fields))})"
        if isinstance(info, ShapeStructInfo):
            return self._shape(info)
        if isinstance(info, PrimStructInfo):
            return self._prim(info)
        return "R.Object"

    def dim(self, value: PrimExpr) -> str:
        text = self.e.expr(value)
        return json.dumps(text) if self.quoted and free_vars(value) else text

    def _tensor(self, info: TensorStructInfo) -> str:
        if info.shape is None:
            ndim = f", ndim={info.ndim}" if info.ndim >= 0 else ""
            return f"R.Tensor(dtype={json.dumps(info.dtype)}{ndim})"
        dims = ", ".join(map(self.dim, info.shape)) + ("," if len(info.shape) == 1 else "")
        return f"R.Tensor(({dims}), dtype={json.dumps(info.dtype)})"

    def _shape(self, info: ShapeStructInfo) -> str:
        if info.values is not None:
            return f"R.Shape([{', '.join(map(self.dim, info.values))}])"
        return f"R.Shape(ndim={info.ndim})" if info.ndim >= 0 else "R.Shape()"

    def _prim(self, info: PrimStructInfo) -> str:
        if info.value is None:
            return f"R.Prim({json.dumps(info.dtype)})"
        return f"R.Prim({json.dumps(info.dtype)}, value={self.dim(info.value)})"


class RelaxPrinter:
    """Prints graph functions; large constants are appended to the list ``constants``."""

    def __init__(self, out: Lines, names: Names, constants: list[np.ndarray]):
        self.out, self.names, self.constants = out, names, constants
        self.e = ExprPrinter(names)
        self.info = StructInfoPrinter(self.e)

    def function(self, func: Function, name: str) -> None:
        signature = StructInfoPrinter(self.e, quoted=True)
        with self.names.scope():
            symbols = [(v, self.names.define(v)) for v in free_vars(_scalars(func))]
            params = [f"{self.names.define(p)}{_annotation(signature, p.struct_info)}" for p in func.params]
            result = f" -> {signature(func.ret_info)}" if func.ret_info is not None else ""
            self.out.add(_decorator(func))
            with self.out.block(f"def {name}({', '.join(params)}){result}:"):
                self._prologue(func, name, symbols)
                for block in func.blocks:
                    self.block(block)
                self.out.add(f"return {self.expr(func.ret)}")

    def _prologue(self, func: Function, name: str, symbols: Sequence[tuple[Symbol, str]]) -> None:
        for var, symbol in symbols:
            self.out.add(f"{symbol} = T.{var.dtype}()")
        attrs = {k: v for k, v in func.attrs.items() if k != "global_symbol" or v != name}
        if attrs:
            self.out.add(f"R.func_attr({self.attr(attrs)})")
        if any(isinstance(n, GlobalVar) for n in walk((func.blocks, func.ret))):
            self.out.add("cls = Module")

    def block(self, block: BindingBlock) -> None:
        if not block.dataflow:
            for b in block.bindings:
                self.binding(b)
            return
        with self.out.block("with R.dataflow():"):
            for b in block.bindings:
                self.binding(b)
            self.out.add(f"R.output({', '.join(self.names.of(v) for v in block.outputs)})")

    def binding(self, binding: Binding) -> None:
        var, value = binding.var, binding.value
        if binding.matched:
            assert var.struct_info is not None
            matched = f"R.match_cast({self.expr(value)}, {self.info(var.struct_info)})"
            self.out.add(f"{self.names.define(var)} = {matched}")
            return
        text = self.expr(value)
        annotation = "" if _is_implied_by(value, var.struct_info) else _annotation(self.info, var.struct_info)
        self.out.add(f"{self.names.define(var)}{annotation} = {text}")

    # -- expressions

    def expr(self, node: Any) -> str:
        if isinstance(node, Var):
            return self.names.of(node)
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, GlobalVar):
            return f"cls.{node.name}"
        if isinstance(node, ExternFunc):
            return json.dumps(node.name)
        if isinstance(node, Tuple):
            return self._tuple(node.fields)
        if isinstance(node, TupleGetItem):
            return f"{self.expr(node.tuple_value)}[{node.index}]"
        if isinstance(node, Constant):
            return self._constant(node.data)
        return self._immediate(node)

    def attr(self, value: Any) -> str:
        """Print an attribute value, which may contain structure info, functions and graph expressions."""
        return _AttrPrinter(self).attr(value)

    def _immediate(self, node: Any) -> str:
        if isinstance(node, ShapeExpr):
            return f"R.shape([{self.e.exprs(node.values)}])"
        if isinstance(node, PrimValue):
            return f"R.prim_value({self.e.typed(node.value)})"
        if isinstance(node, StringImm):
            return f"R.str({json.dumps(node.value)})"
        if isinstance(node, DataTypeImm):
            return f"R.dtype({json.dumps(node.value)})"
        raise TypeError(f"cannot print a graph expression of type {type(node).__name__}")

    def _tuple(self, fields: Sequence[Expr]) -> str:
        return f"({', '.join(map(self.expr, fields))}{',' if len(fields) == 1 else ''})"

    def _call(self, node: Call) -> str:
        if isinstance(node.target, Op) and node.target.name in DESTINATION_PASSING:
            return self._destination_passing(node)
        args = [self.expr(a) for a in node.args]
        args += [f"{k}={self.attr(v)}" for k, v in node.attrs.items()]
        if isinstance(node.target, ExternFunc):
            infos = f"sinfo_args=({self.info(node.out_info)},)" if node.out_info is not None else ""
            listed = ", ".join(filter(None, [json.dumps(node.target.name), *args, infos]))
            return f"R.call_pure_packed({listed})" if node.target.pure else f"R.call_packed({listed})"
        if node.out_info is not None:
            args.append(f"out_sinfo={self._out_info(node.out_info)}")
        target = f"R.{node.target.name}" if isinstance(node.target, Op) else f"cls.{node.target.name}"
        return f"{target}({', '.join(args)})"

    def _destination_passing(self, node: Call) -> str:
        function, inputs, *scalars = node.args
        args = [self.expr(function), self.expr(inputs)]
        if node.out_info is not None:
            args.append(f"out_sinfo={self._out_info(node.out_info)}")
        args += [f"{k}={self.attr(v)}" for k, v in node.attrs.items()]
        args += [f"tir_vars={self.expr(s)}" for s in scalars]
        return f"R.{node.target.name}({', '.join(args)})"

    def _out_info(self, info: StructInfo) -> str:
        if isinstance(info, TupleStructInfo):
            return f"[{', '.join(map(self.info, info.fields))}]"
        return self.info(info)

    def _constant(self, data: np.ndarray) -> str:
        dtype = "bool" if data.dtype == np.bool_ else str(data.dtype)
        wide = data.astype(np.float64) if dtype.startswith(("float", "bfloat")) else data.astype(object)
        if data.size > MAX_INLINE_ELEMENTS or 0 in data.shape or not (wide.dtype == object or np.isfinite(wide).all()):
            self.constants.append(data)
            return f'metadata["relax.expr.Constant"][{len(self.constants) - 1}]'
        return f"R.const({wide.tolist()}, {json.dumps(dtype)})"


class _AttrPrinter(ExprPrinter):
    def __init__(self, outer: RelaxPrinter):
        super().__init__(outer.names)
        self.outer = outer

    def attr(self, value: Any) -> str:
        if isinstance(value, StructInfo):
            return self.outer.info(value)
        if isinstance(value, Expr | GlobalVar):
            return self.outer.expr(value)
        return super().attr(value)


def _annotation(printer: StructInfoPrinter, info: StructInfo | None) -> str:
    return f": {printer(info)}" if info is not None else ""


def _decorator(func: Function) -> str:
    options = [] if "global_symbol" in func.attrs else ["private=True"]
    options += [] if func.is_pure else ["pure=False"]
    return f"@R.function({', '.join(options)})" if options else "@R.function"


def _scalars(func: Function) -> list[Any]:
    """The parts of a function that contain symbolic sizes, in the order of their declarations: signature first."""
    return [[p.struct_info for p in func.params], func.ret_info, func.blocks, func.ret]


def _is_implied_by(value: Expr, info: StructInfo | None) -> bool:
    """Whether the variable's structure info is the call's ``out_sinfo``, so that no annotation is printed."""
    if not isinstance(value, Call) or value.out_info is None or info is None:
        return False
    return structural_equal(value.out_info, info) and key(_symbols(value.out_info)) == key(_symbols(info))


def _symbols(info: StructInfo) -> tuple[Symbol, ...]:
    return tuple(n for n in walk(info) if isinstance(n, Symbol))

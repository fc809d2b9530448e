"""Verification of graph functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from mlc_errors import MLCError

from ..ir.expr import IntImm, PrimExpr
from ..ir.expr import Var as Symbol
from ..ir.module import GlobalVar, IRModule
from ..ir.simplify import simplify
from ..ir.visitor import nodes_of, substitute, walk
from ..relax.nodes import (
    Binding,
    BindingBlock,
    Call,
    Expr,
    ExternFunc,
    Function,
    Op,
    ShapeExpr,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
)
from ..relax.ops import OPERATORS
from ..script.names import identifier
from ..tir.calling import bind_sizes, scalar_parameters
from ..tir.nodes import Buffer, PrimFunc
from .errors import VerifyError, unknown_attribute

_CALL_TIR = ("call_tir", "call_tir_inplace")


def verify_function(func: Function, name: str, mod: IRModule) -> None:
    """Raise VerifyError for a graph function that is not well formed. The rules are:

    Every variable is bound once, before its use, and has structure info. Dataflow variables are used only in their
    block. Symbolic sizes are defined by parameters or ``match_cast``. Arguments of calls are not calls. Arguments match
    the callee's parameters in number, rank, dtype and known sizes.
    """
    _Verifier(func, name, mod).run()


def disagreement(got: StructInfo | None, expected: StructInfo | None) -> str | None:
    """Describe the first difference that rules out that ``got`` matches ``expected``; None when they may match."""
    if isinstance(got, TensorStructInfo) and isinstance(expected, TensorStructInfo):
        return _tensors_disagree(got, expected)
    if isinstance(got, TupleStructInfo) and isinstance(expected, TupleStructInfo):
        if len(got.fields) != len(expected.fields):
            return f"{len(got.fields)} fields; expected {len(expected.fields)}"
        pairs = zip(got.fields, expected.fields)
        return next((f"field {i}: {why}" for i, (g, e) in enumerate(pairs) if (why := disagreement(g, e))), None)
    if got is None or expected is None or type(got) is type(expected):
        return None
    either_object = "ObjectStructInfo" in (type(got).__name__, type(expected).__name__)
    return None if either_object else f"{type(got).__name__}; expected {type(expected).__name__}"


def _tensors_disagree(got: TensorStructInfo, expected: TensorStructInfo) -> str | None:
    if got.dtype != expected.dtype:
        return f"dtype {got.dtype}; expected {expected.dtype}"
    if -1 not in (got.ndim, expected.ndim) and got.ndim != expected.ndim:
        return f"rank {got.ndim}; expected {expected.ndim}"
    return _sizes_disagree(got.shape or (), expected.shape or ())


def _sizes_disagree(got: Iterable[PrimExpr], expected: Iterable[PrimExpr]) -> str | None:
    for axis, (a, b) in enumerate(zip(got, expected)):
        if a is b:
            continue
        difference = a - b
        if not isinstance(difference, IntImm):
            difference = simplify(difference)
        if isinstance(difference, IntImm) and difference.value:
            return f"size {_show(a)} on axis {axis}; expected {_show(b)}"
    return None


def _show(size: PrimExpr) -> str:
    return str(size.value) if isinstance(size, IntImm) else getattr(size, "name", "of another value")


class _Verifier:
    def __init__(self, func: Function, name: str, mod: IRModule):
        self.func, self.name, self.mod = func, name, mod
        self.bound: dict[int, Var] = {}
        self.ended: set[int] = set()
        self.symbols: set[int] = set()
        self.in_scope: set[int] = set()
        """The ``id`` of each structure info whose symbolic sizes were already checked."""
        self.attribute_names: set[Any] = set()
        """Names of attributes that were already checked."""
        self.at: Any = None

    def require(self, holds: Any, message: str) -> None:
        if not holds:
            self.fail(message)

    def fail(self, message: str) -> NoReturn:
        raise VerifyError(message, self.name, self.at)

    def run(self) -> None:
        names = [p.name for p in self.func.params]
        for p in self.func.params:
            self._define(p)
            self.require(p.struct_info is not None, f"parameter {p.name!r} has no structure info")
            self._bind_symbols(p.struct_info)
        for p in self.func.params:
            self.require(names.count(p.name) == 1, f"two parameters are called {p.name!r}")
            self._use_symbols(p.struct_info, f"parameter {p.name!r}")
        for block in self.func.blocks:
            self._block(block)
        self.at = self.func.ret
        self.require(not isinstance(self.func.ret, Call), "a call is returned; bind it to a variable")
        self._atom(self.func.ret)
        self.require(self.func.ret_info is not None, "the result has no structure info")
        why = disagreement(self.func.ret.struct_info, self.func.ret_info)
        self.require(why is None, f"the result has {why}")

    # -- variables and symbolic sizes

    def _define(self, var: Var) -> None:
        if id(var) in self.bound or id(var) in self.ended:
            self.fail(f"variable {var.name!r} is bound twice")
        self.bound[id(var)] = var

    def _bind_symbols(self, info: StructInfo | None) -> None:
        """Define the symbolic sizes that are a whole dimension in a parameter or ``match_cast``."""
        for node in walk(info):
            values = getattr(node, "shape", None) or getattr(node, "values", None) or (getattr(node, "value", None),)
            if isinstance(node, StructInfo) and isinstance(values, tuple):
                self.symbols |= {id(v) for v in values if isinstance(v, Symbol)}

    def _use_symbols(self, node: Any, what: str) -> None:
        if id(node) in self.in_scope:
            return
        for symbol in nodes_of(node, Symbol):
            if id(symbol) not in self.symbols:
                self.fail(f"the symbolic size {symbol.name!r} of {what} comes from no parameter and no match_cast")
        if isinstance(node, StructInfo):
            self.in_scope.add(id(node))

    # -- blocks and bindings

    def _block(self, block: BindingBlock) -> None:
        for binding in block.bindings:
            self.at = binding
            self._binding(binding)
            self._require_pure(binding.value, block.dataflow)
            if binding.var.dataflow and not block.dataflow:
                self.fail(f"{binding.var.name!r} is a dataflow variable outside a dataflow block")
        for var in (b.var for b in block.bindings if b.var.dataflow):
            self.ended.add(id(self.bound.pop(id(var))))

    def _binding(self, binding: Binding) -> None:
        value, info = binding.value, binding.var.struct_info
        if isinstance(value, Call):
            self._call(value)
        else:
            self._atom(value)
        if binding.matched:
            self._bind_symbols(info)
        else:
            why = disagreement(self._derived(value), info)
            if why is not None:
                self.fail(f"the value of {binding.var.name!r} has {why}")
        self._define(binding.var)
        self._use_symbols(info, f"{binding.var.name!r}")

    def _require_pure(self, value: Expr, in_dataflow: bool) -> None:
        """Check that a value with side effects is outside dataflow blocks, in a function that is declared impure."""
        if not isinstance(value, Call) or not (in_dataflow or self.func.is_pure):
            return
        callee = self.mod.functions.get(value.target.name) if isinstance(value.target, GlobalVar) else None
        effect = isinstance(value.target, ExternFunc) and not value.target.pure
        if effect or (isinstance(callee, Function) and not callee.is_pure):
            place = "a dataflow block" if in_dataflow else "a pure function"
            hint = "call it outside dataflow blocks of a function with pure=False, or use R.call_pure_packed"
            message = f"{value.target.name!r}, which may have side effects, is called in {place}"
            raise VerifyError(message, self.name, self.at, hint=hint)

    def _derived(self, value: Expr) -> StructInfo | None:
        if not isinstance(value, Call):
            return value.struct_info
        if value.out_info is not None or not isinstance(value.target, Op) or value.target.name not in OPERATORS:
            return value.out_info
        try:
            return OPERATORS[value.target.name].infer(value)
        except MLCError as error:
            raise VerifyError(error.message, self.name, self.at) from error

    # -- expressions

    def _atom(self, e: Any) -> None:
        """Check a value that contains no call."""
        if not isinstance(e, Expr):
            self.fail(f"got a {type(e).__name__} where a graph value is expected")
        self.require(not isinstance(e, Call), "a call is an argument; bind it to a variable")
        if isinstance(e, Var):
            if id(e) in self.ended:
                self.fail(f"{e.name!r} is used outside its dataflow block")
            if id(e) not in self.bound:
                self.fail(f"variable {e.name!r} is used before it is bound")
            if e.struct_info is None:
                self.fail(f"variable {e.name!r} has no structure info and thus no value")
        elif isinstance(e, Tuple):
            for field in e.fields:
                self._atom(field)
        elif isinstance(e, TupleGetItem):
            self._item(e)
        else:
            self._use_symbols(e, "a value")

    def _item(self, e: TupleGetItem) -> None:
        self._atom(e.tuple_value)
        info = e.tuple_value.struct_info
        if isinstance(info, TupleStructInfo):
            self.require(0 <= e.index < len(info.fields), f"item {e.index} of a tuple of {len(info.fields)}")

    def _call(self, call: Call) -> None:
        self._attributes(call.attrs)
        self._use_symbols(call.out_info, "the call")
        for arg in call.args:
            if not isinstance(arg, GlobalVar | ExternFunc):
                self._atom(arg)
        if isinstance(call.target, GlobalVar):
            self._function_call(call, call.target)
        elif isinstance(call.target, Op) and call.target.name in _CALL_TIR:
            self._call_tir(call)

    def _attributes(self, attrs: Mapping[str, Any]) -> None:
        for name, value in attrs.items():
            if name not in self.attribute_names:
                self.require(identifier(str(name)) == name, f"{name!r} is not a valid attribute name")
                self.attribute_names.add(name)
            wrong = unknown_attribute(value)
            self.require(wrong is None, f"an attribute holds {wrong}")
            if not isinstance(value, int | float | str):
                self._use_symbols(value, "the call")

    def _function_call(self, call: Call, target: GlobalVar) -> None:
        callee = self._callee(target, Function | PrimFunc)
        if callee is None:
            return
        if isinstance(callee, PrimFunc):
            self._kernel_call(call, callee, target.name)
            return
        counts = len(call.args), len(callee.params)
        self.require(counts[0] == counts[1], f"{target.name} takes {counts[1]} arguments; got {counts[0]}")
        for arg, param in zip(call.args, callee.params):
            why = disagreement(arg.struct_info, _without_symbols(param.struct_info))
            self.require(why is None, f"argument {param.name!r} of {target.name} has {why}")

    def _kernel_call(self, call: Call, callee: PrimFunc, name: str) -> None:
        """Check a direct call of a tensor function, as made by PlanMemory: buffers (reshaped), scalars, then sizes."""
        wanted = len(callee.buffers) + len(scalar_parameters(callee))
        self.require(len(call.args) == wanted, f"{name} takes {wanted} arguments; got {len(call.args)}")
        for buffer, arg in zip(callee.buffers, call.args):
            got = arg.struct_info.dtype if isinstance(arg.struct_info, TensorStructInfo) else "no tensor"
            if got != buffer.dtype:
                self.fail(f"tensor {buffer.name!r} of {name} is {got}; expected {buffer.dtype}")

    def _callee(self, target: GlobalVar, level: Any) -> Any:
        """Look up the callee; None when a function is verified without its module."""
        if not self.mod.functions:
            return None
        self.require(target.name in self.mod, f"the module has no function {target.name!r}")
        found = self.mod[target]
        expected = getattr(level, "__name__", "function")
        self.require(isinstance(found, level), f"{target.name!r} is a {type(found).__name__}; expected {expected}")
        return found

    # -- destination passing

    def _call_tir(self, call: Call) -> None:
        target = call.args[0]
        self.require(isinstance(target, GlobalVar), "call_tir takes a function of the module first")
        callee = self._callee(target, PrimFunc)
        self.require(call.out_info is not None, "call_tir has no out_sinfo")
        self.require(len(call.args) in (2, 3), f"call_tir has {len(call.args)} arguments; expected 2 or 3")
        infos = [*_fields(call.args[1].struct_info, call.args[1]), *self._fresh_outputs(call)]
        if callee is not None:
            self._match_params(callee, target.name, infos, call.args[2:])

    def _fresh_outputs(self, call: Call) -> list[StructInfo | None]:
        """The structure infos of the results that do not overwrite an input."""
        infos = _fields(call.out_info, None)
        if isinstance(call.target, Op) and call.target.name == "call_tir_inplace":
            indices = call.attrs.get("inplace_indices", ())
            listed = isinstance(indices, list | tuple) and all(isinstance(k, int) for k in indices)
            self.require(listed, f"inplace_indices is {indices!r}; expected a list of integers")
            self.require(
                len(indices) == len(infos), f"inplace_indices has {len(indices)} items for {len(infos)} results"
            )
            return [info for info, k in zip(infos, indices) if k < 0]
        return infos

    def _match_params(self, callee: PrimFunc, name: str, infos: list[Any], scalars: tuple[Any, ...]) -> None:
        """Match arguments with parameters. Scratch buffers, and shapes of buffers with a layout, are not checked."""
        buffers, extra = callee.buffers, len(callee.params) - len(callee.buffers)
        buffers = buffers[: len(buffers) - int(callee.attrs.get("num_scratch", 0))]
        stored = {id(callee.params[int(index)]) for index in callee.attrs.get("layouts", {})}
        given = len(scalars[0].values) if scalars and isinstance(scalars[0], ShapeExpr) else 0
        self.require(len(infos) == len(buffers), f"{name} takes {len(buffers)} tensors; got {len(infos)}")
        self.require(given == extra, f"{name} takes {extra} scalars; got {given}")
        sizes: dict[Any, PrimExpr] = {}
        for buffer, info in zip(buffers, infos):
            if id(buffer) not in stored:
                self._match_buffer(buffer, info, name, sizes)

    def _match_buffer(self, buffer: Buffer, info: Any, name: str, sizes: dict[Any, PrimExpr]) -> None:
        if not isinstance(info, TensorStructInfo):
            return
        what = f"tensor {buffer.name!r} of {name}"
        self.require(info.dtype == buffer.dtype, f"{what} has dtype {info.dtype}; expected {buffer.dtype}")
        rank = len(buffer.shape)
        self.require(info.ndim in (-1, rank), f"{what} has rank {info.ndim}; expected {rank}")
        bind_sizes(buffer.shape, info.shape or (), sizes)
        known = [dim if isinstance(dim, IntImm) else substitute(dim, sizes) for dim in buffer.shape]
        why = _sizes_disagree(info.shape or (), known)
        self.require(why is None, f"{what} has {why}")


def _fields(info: StructInfo | None, value: Expr | None) -> list[StructInfo | None]:
    if isinstance(value, Tuple):
        return [f.struct_info for f in value.fields]
    return list(info.fields) if isinstance(info, TupleStructInfo) else [info]


def _without_symbols(info: StructInfo | None) -> StructInfo | None:
    """Replace shapes with the callee's symbolic sizes in a parameter's struct info by their rank."""
    if isinstance(info, TensorStructInfo) and nodes_of(info, Symbol):
        return TensorStructInfo(None, info.dtype, info.ndim)
    if isinstance(info, TupleStructInfo):
        return TupleStructInfo(tuple(_without_symbols(f) or f for f in info.fields))
    return info

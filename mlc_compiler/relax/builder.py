"""BlockBuilder: builds graph functions binding by binding, and the tensor functions that they call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from mlc_errors import MLCError

from ..ir.expr import ExprLike, PrimExpr
from ..ir.module import GlobalVar, IRModule
from ..ir.naming import unique_name
from ..ir.recursion import deep_recursion
from ..ir.structural import structural_equal
from ..ir.visitor import substitute, walk
from ..tir.nodes import PrimFunc
from .info import get_item, info_of, make_tuple, shape_expr, tensor_info
from .nodes import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataTypeImm,
    Expr,
    ExternFunc,
    Function,
    Op,
    PrimValue,
    ShapeExpr,
    StringImm,
    StructInfo,
    Tuple,
    TupleGetItem,
    Var,
)
from .tensor_call import TensorExpression, lower_te, size_checks

LEAVES = (Var, Constant, ShapeExpr, PrimValue, StringImm, DataTypeImm)


def tensor_var(name: str, shape: Sequence[ExprLike], dtype: str = "float32") -> Var:
    """A tensor variable, for the parameters of ``BlockBuilder.function``.

        n = te.var("n")
        x = tensor_var("x", (n, 64), "float16")

    Sizes are integers or symbolic. Raises StructInfoError for an unknown dtype or any other size.
    """
    return Var(name, tensor_info(shape, dtype))


def with_visible_result(blocks: tuple[BindingBlock, ...], ret: Expr) -> tuple[tuple[BindingBlock, ...], Expr]:
    """Make variables of dataflow blocks that occur in a function's result visible outside of their blocks."""
    inner = [v for v in walk(ret) if isinstance(v, Var) and v.dataflow]
    return substitute((blocks, ret), {v: replace(v, dataflow=False) for v in inner})


def call_tir(func: GlobalVar, inputs: Sequence[Expr], out_info: StructInfo, scalars: Sequence[ExprLike] = ()) -> Call:
    """``R.call_tir(func, inputs, out_info)``: call ``func(*inputs, *outputs, *scalars)`` with allocated outputs."""
    return Call(Op("call_tir"), _callee_args(func, inputs, scalars), {}, out_info, out_info)


def call_tir_inplace(
    func: GlobalVar,
    inputs: Sequence[Expr],
    inplace_indices: Sequence[int],
    out_info: StructInfo,
    scalars: Sequence[ExprLike] = (),
) -> Call:
    """Like ``call_tir``, but result ``i`` overwrites input ``inplace_indices[i]``, or is newly allocated for -1.

    The tensor function takes the inputs, then the newly allocated results, then the scalars.
    """
    attrs = {"inplace_indices": tuple(inplace_indices)}
    return Call(Op("call_tir_inplace"), _callee_args(func, inputs, scalars), attrs, out_info, out_info)


def call_dps_packed(name: str, inputs: Sequence[Expr], out_info: StructInfo) -> Call:
    """``R.call_dps_packed(name, inputs, out_info)``: call a registered function with allocated outputs."""
    return Call(Op("call_dps_packed"), (ExternFunc(name), make_tuple(inputs)), {}, out_info, out_info)


def _callee_args(func: GlobalVar, inputs: Sequence[Expr], scalars: Sequence[ExprLike]) -> tuple[Any, ...]:
    args = (func, make_tuple(inputs))
    return (*args, shape_expr(scalars)) if scalars else args


class BuilderError(MLCError, RuntimeError):
    """A method of the builder called in a wrong state, such as outside a function."""


@dataclass
class _FunctionFrame:
    """The graph function that is being built."""

    name: str
    params: tuple[Var, ...]
    attrs: Mapping[str, Any]
    is_pure: bool
    blocks: list[BindingBlock] = field(default_factory=list)
    bindings: list[Binding] = field(default_factory=list)
    in_dataflow: bool = False
    ret: Expr | None = None
    used: list[Var] = field(default_factory=list)
    checks: list[tuple[str, PrimExpr, PrimExpr]] = field(default_factory=list)
    taken: dict[str, int] = field(default_factory=dict)

    def unique(self, base: str) -> str:
        """The first of ``base``, ``base1``, ``base2`` … that is not taken."""
        count = self.taken.get(base)
        name = base if count is None else f"{base}{count}"
        self.taken[base] = 1 if count is None else count + 1
        return name if count is None or name not in self.taken else self.unique(base)

    def close_block(self) -> None:
        if self.bindings:
            self.blocks.append(BindingBlock(tuple(self.bindings), self.in_dataflow))
        self.bindings = []


class BlockBuilder:
    """Builds an IRModule.

        bb = BlockBuilder()
        with bb.function("main", [x]):
            with bb.dataflow():
                out = bb.emit_output(ops.add(bb.emit(ops.exp(x)), x))
            bb.emit_func_output(out)
        mod = bb.get()

    Inside ``function`` the builder is ``BlockBuilder.current()``.
    """

    _active: ClassVar[list[BlockBuilder]] = []

    def __init__(self, mod: IRModule | None = None):
        self._mod = mod or IRModule()
        self._frame: _FunctionFrame | None = None
        self._by_hint: dict[str, list[str]] = {}

    @staticmethod
    def current() -> BlockBuilder:
        """The builder of the innermost function being built. Raises BuilderError when there is none."""
        if not BlockBuilder._active:
            raise BuilderError("no function is being built: call this inside `with builder.function(...)`")
        return BlockBuilder._active[-1]

    @property
    def frame(self) -> _FunctionFrame:
        if self._frame is None:
            raise BuilderError("no function is being built: use `with builder.function(...)`")
        return self._frame

    @contextmanager
    def function(
        self, name: str, params: Sequence[Var] = (), attrs: Mapping[str, Any] | None = None, is_pure: bool = True
    ) -> Iterator[None]:
        """Build a graph function inside the ``with`` block and add it to the module.

        Raises BuilderError when the block does not call ``emit_func_output``.
        """
        self._frame = _FunctionFrame(name, tuple(params), {"global_symbol": name, **(attrs or {})}, is_pure)
        for param in params:
            self._frame.unique(param.name)
        BlockBuilder._active.append(self)
        try:
            yield
            self._mod = self._mod.with_function(name, self._finished())
        finally:
            BlockBuilder._active.pop()
            self._frame = None

    def _finished(self) -> Function:
        frame = self.frame
        frame.close_block()
        if frame.ret is None:
            raise BuilderError(f"function {frame.name}: no output; call emit_func_output")
        missing = [v.name for v in frame.used if v not in frame.params]
        if missing:
            hint = "emit_func_output(output, [*inputs, *module.parameters()])"
            raise BuilderError(f"function {frame.name}: {missing[0]} is not among its parameters", hint=hint)
        blocks, ret = with_visible_result(tuple(frame.blocks), frame.ret)
        params, blocks, ret = substitute((frame.params, blocks, ret), _distinct(frame.params))
        attrs = {**frame.attrs, **({"size_checks": tuple(frame.checks)} if frame.checks else {})}
        return Function(params, blocks, ret, info_of(ret), attrs, frame.is_pure)

    def parameter(self, var: Var) -> Var:
        """Return ``var`` and require that it is a parameter of the function when that is finished."""
        if not any(v is var for v in self.frame.used):
            self.frame.used.append(var)
        return var

    @contextmanager
    def dataflow(self) -> Iterator[None]:
        """Context manager of a dataflow block: no side effects; only ``emit_output`` values are visible after it."""
        frame = self.frame
        frame.close_block()
        frame.in_dataflow = True
        yield
        frame.close_block()
        frame.in_dataflow = False

    # -- bindings -----------------------------------------------------------------------------------------------

    def emit(self, expr: Expr, name_hint: str | None = None) -> Var:
        """Bind a value to a new variable; nested calls are bound first."""
        return self._bind(expr, name_hint, dataflow=self.frame.in_dataflow)

    def emit_output(self, expr: Expr, name_hint: str = "gv") -> Var:
        """Bind a value that is visible after the dataflow block."""
        return self._bind(expr, name_hint, dataflow=False)

    def emit_func_output(self, output: Expr, params: Sequence[Var] = ()) -> None:
        """Set the value that the function returns, and its parameters unless ``function`` was given them."""
        if params and self.frame.params:
            raise BuilderError(f"function {self.frame.name}: its parameters were given before")
        self.frame.params = self.frame.params or tuple(params)
        self.frame.ret = self._flat(output)

    def match_cast(self, expr: Expr, info: StructInfo, name_hint: str = "match") -> Var:
        """Bind a value and declare its structure info, which is checked when the function runs."""
        var = Var(self.frame.unique(name_hint), info, self.frame.in_dataflow)
        self.frame.bindings.append(Binding(var, self._flat(expr), matched=True))
        return var

    def emit_te(self, f: TensorExpression, *args: Any, name_hint: str | None = None, **attrs: Any) -> Var:
        """Bind ``f(*args, **attrs)``, a tensor expression over graph values, as a call of a new tensor function.

        The function has its own symbolic sizes; those that are not the size of a buffer are passed as scalars.
        """
        hint = name_hint or getattr(f, "__name__", "te").strip("_<>")
        names = _parameter_names(f, len(args))
        call = lower_te(f, names, [self._flat(a) if isinstance(a, Expr) else a for a in args], attrs)
        self.frame.checks += size_checks(f"an argument of {hint}", call)
        func = self.add_func(call.func, hint)
        return self.emit(call_tir(func, call.inputs, call.out_info, call.scalars), hint)

    def split_tuple(self, value: Var, name_hint: str | None = None) -> tuple[Var, ...]:
        """A variable for each field of a tuple."""
        count = len(info_of(value).fields)  # type: ignore[attr-defined]
        return tuple(self.emit(get_item(value, i), f"{name_hint or value.name}_{i}") for i in range(count))

    @deep_recursion
    def _bind(self, expr: Expr, name_hint: str | None, dataflow: bool) -> Var:
        value = self._flat_inside(expr)
        var = Var(self.frame.unique(name_hint or "lv"), info_of(value), dataflow)
        self.frame.bindings.append(Binding(var, value))
        return var

    def _flat(self, expr: Any) -> Any:
        """Return a leaf or a tuple of leaves; any other expression is bound to a new variable, which is returned."""
        if isinstance(expr, Tuple):
            return make_tuple([self._flat(f) for f in expr.fields])
        if isinstance(expr, LEAVES) or not isinstance(expr, Expr):
            return expr
        return self._bind(expr, None, dataflow=self.frame.in_dataflow)

    def _flat_inside(self, expr: Expr) -> Expr:
        if isinstance(expr, Call):
            args = tuple(map(self._flat, expr.args))
            return expr if all(a is b for a, b in zip(args, expr.args, strict=True)) else replace(expr, args=args)
        if isinstance(expr, TupleGetItem):
            return replace(expr, tuple_value=self._flat(expr.tuple_value))
        return self._flat(expr) if isinstance(expr, Tuple) else expr

    # -- functions of the module --------------------------------------------------------------------------------

    def add_func(self, func: PrimFunc | Function, name_hint: str) -> GlobalVar:
        """Add a function to the module, unless a structurally equal one was added with the same hint."""
        for name in self._by_hint.setdefault(name_hint, []):
            if structural_equal(self._mod[name], func):
                return GlobalVar(name)
        name = self._mod.unique_name(name_hint)
        self._mod = self._mod.with_function(name, func)
        self._by_hint[name_hint].append(name)
        return GlobalVar(name)

    def link(self, symbol: str, definition: str) -> None:
        """Record the definition of a C function for ``call_dps_packed``; see ``codegen/linked.py``.

        Raises BuilderError for a second definition of the symbol.
        """
        linked = dict(self._mod.attrs.get("linked", {}))
        if linked.setdefault(symbol, definition) != definition:
            raise BuilderError(f"the function {symbol!r} is defined twice")
        self._mod = self._mod.with_attr("linked", linked)

    def get(self) -> IRModule:
        """The module as built so far."""
        return self._mod


def _distinct(params: Sequence[Var]) -> dict[Var, Var]:
    """Map each parameter whose name an earlier one has to a copy with a unique name (``weight_1``)."""
    renamed: dict[Var, Var] = {}
    names: set[str] = set()
    for param in params:
        name = unique_name(param.name, names, separator="_")
        if name != param.name:
            renamed[param] = replace(param, name=name)
        names.add(name)
    return renamed


def _parameter_names(f: Callable[..., Any], count: int) -> list[str]:
    code = getattr(f, "__code__", None)
    names = list(code.co_varnames[: code.co_argcount]) if code else []
    return names[:count]

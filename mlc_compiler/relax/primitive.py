"""Private graph functions for groups of bindings: created by FuseOps, merged by FuseTensorFunctions."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..ir import expr as ir
from ..ir.linear import key
from ..ir.module import GlobalVar, IRModule
from ..ir.naming import unique_name
from ..ir.structural import structural_key
from ..ir.visitor import Rewriter
from . import nodes as rx
from .dataflow import TirCall, make_tir_call, tir_call
from .tensor_call import info_signature

MAX_NAME_PARTS = 6


class FreshSymbols(Rewriter):
    """Replaces symbolic sizes by new variables, because functions do not share variables."""

    def __init__(self) -> None:
        self.fresh: dict[ir.Var, ir.Var] = {}

    def rewrite_Var(self, node: ir.Var) -> ir.Var:
        if node not in self.fresh:
            self.fresh[node] = ir.Var(node.name, node.dtype)
        return self.fresh[node]

    def rewrite_BinaryOp(self, node: ir.BinaryOp) -> ir.PrimExpr:
        return ir.BinaryOp(node.op, self(node.a), self(node.b))


def defined_sizes(infos: Iterable[object]) -> set[ir.Var]:
    """The symbolic sizes that are themselves the size of an axis, or an item of a shape, in these infos."""
    sizes: set[ir.Var] = set()
    for info in infos:
        if isinstance(info, rx.TensorStructInfo):
            sizes |= {s for s in info.shape or () if isinstance(s, ir.Var)}
        elif isinstance(info, rx.ShapeStructInfo):
            sizes |= {s for s in info.values or () if isinstance(s, ir.Var)}
    return sizes


@dataclass
class PrimitiveFunctions:
    """The functions created so far, by name; structurally equal groups share one."""

    mod: IRModule
    functions: dict[str, rx.Function] = field(default_factory=dict)
    names: dict[Hashable, str] = field(default_factory=dict)
    known: dict[Hashable, tuple[str, tuple[rx.Expr, ...]]] = field(default_factory=dict)
    """The function of a group by what it computes with the same size variables, and the sizes that its calls pass."""

    def rewrite(self, bindings: Sequence[rx.Binding], groups: Mapping[int, Sequence[int]]) -> tuple[rx.Binding, ...]:
        """The bindings with each group replaced by a call.

        groups: maps the position of a group's last binding to the positions of all its bindings, in order. Bindings
        that are not the last of a group are removed.
        """
        items = {id(b.var): b.value for b in bindings if isinstance(b.value, rx.TupleGetItem)}
        result = []
        for i, binding in enumerate(bindings):
            members = [bindings[m] for m in groups.get(i, ())]
            if len(members) == 1:
                result.append(binding)
            elif members:
                result.append(rx.Binding(binding.var, self._call(members, items)))
        return tuple(result)

    def _call(self, members: Sequence[rx.Binding], items: Mapping[int, rx.TupleGetItem]) -> rx.Call:
        group = _Group(items)
        identity = tuple([group.add(member) for member in members])
        if identity not in self.known:
            self.known[identity] = self._function(members, items)
        name, sizes = self.known[identity]
        return rx.Call(GlobalVar(name), (*group.arguments, *sizes), struct_info=members[-1].var.struct_info)

    def _function(
        self, members: Sequence[rx.Binding], items: Mapping[int, rx.TupleGetItem]
    ) -> tuple[str, tuple[rx.Expr, ...]]:
        """The name of a group's function, which is created if there is no equal one, and the sizes to pass to it."""
        group = _GroupFunction(self.mod, items)
        for member in members:
            group.add(member)
        function, sizes = group.finish()
        structure = structural_key(function)
        if structure not in self.names:
            self.names[structure] = self._unique_name(group.callees)
            self.functions[self.names[structure]] = function
        return self.names[structure], sizes

    def _unique_name(self, callees: Sequence[str]) -> str:
        base = "_".join(["fused", *(self._base_name(c) for c in callees[:MAX_NAME_PARTS])])
        return unique_name(base, {*self.functions, *self.mod.functions}, separator="")

    def _base_name(self, name: str) -> str:
        """Strip the suffix that ``unique_name`` added: ``add`` for ``add3``, if the module has an ``add``."""
        base = name.rstrip("0123456789")
        return base if base in self.mod else name


class _Group:
    """What a group of calls computes, and the ``arguments`` that its function takes: values from outside of it."""

    def __init__(self, items: Mapping[int, rx.TupleGetItem]):
        self.items = items
        self.arguments: list[rx.Expr] = []
        self.values: dict[Path, Hashable] = {}

    def add(self, member: rx.Binding) -> Hashable:
        """A value that is equal for equal computations on equal inputs: arguments, or results of earlier members."""
        call = _tir_call_of(member)
        inputs = tuple([self._value(e) for e in call.inputs])
        self.values[(id(member.var),)] = ("result", len(self.values))
        return call.callee, inputs, key(call.scalars), info_signature(call.out_info)

    def _value(self, expr: rx.Expr) -> Hashable:
        path = path_of(expr, self.items)
        if path not in self.values:
            base = self.values.get(path[:1])
            if base is None:
                self.values[path] = ("argument", len(self.arguments), info_signature(expr.struct_info))
                self.arguments.append(expr)
            else:
                self.values[path] = (base, path[1:])
        return self.values[path]


Path = tuple[int, ...]
"""The identity of a value: the ``id`` of a variable, then the indices of the tuple items taken from it."""


def path_of(expr: rx.Expr, items: Mapping[int, rx.TupleGetItem]) -> Path:
    """The path of a value; ``items``: the tuple items that variables (by ``id``) are bound to."""
    if isinstance(expr, rx.Var) and id(expr) in items:
        expr = items[id(expr)]
    if isinstance(expr, rx.TupleGetItem):
        return (*path_of(expr.tuple_value, items), expr.index)
    return (id(expr),)


def _tir_call_of(member: rx.Binding) -> TirCall:
    call = tir_call(member.value)
    assert call is not None and call.out_info is not None
    return call


class _GroupFunction:
    """The graph function of one group, built call by call. Values from outside the group become parameters."""

    def __init__(self, mod: IRModule, items: Mapping[int, rx.TupleGetItem]):
        self.mod = mod
        self.items = items
        self.symbols = FreshSymbols()
        self.params: list[rx.Var] = []
        self.values: dict[Path, rx.Expr] = {}
        self.bindings: list[rx.Binding] = []
        self.callees: list[str] = []

    def add(self, member: rx.Binding) -> None:
        call = _tir_call_of(member)
        buffers = self.mod[call.callee].buffers
        inputs = tuple(self._value(e, b.name) for e, b in zip(call.inputs, buffers, strict=False))
        out_info = self.symbols(call.out_info)
        value = make_tir_call(call.callee, inputs, self.symbols(call.scalars), out_info)
        var = rx.Var(f"lv{len(self.bindings) or ''}", out_info, dataflow=True)
        self.callees.append(call.callee)
        self.values[(id(member.var),)] = var
        self.bindings.append(rx.Binding(var, value))

    def _value(self, expr: rx.Expr, name: str) -> rx.Expr:
        """The value inside the function that corresponds to ``expr``."""
        path = path_of(expr, self.items)
        if path not in self.values:
            base = self.values.get(path[:1])
            self.values[path] = self._param(expr, name) if base is None else _item(base, path[1:])
        return self.values[path]

    def _param(self, expr: rx.Expr, name: str) -> rx.Var:
        param = rx.Var(unique_name(name, {p.name for p in self.params}), self.symbols(expr.struct_info))
        self.params.append(param)
        return param

    def finish(self) -> tuple[rx.Function, tuple[rx.Expr, ...]]:
        """The function, and the last argument of its calls: a shape of the sizes that are no axis of a parameter."""
        sizes = self._hidden_sizes()
        last = self.bindings[-1]
        result = rx.Var("gv", last.var.struct_info)
        block = rx.BindingBlock((*self.bindings[:-1], rx.Binding(result, last.value)), dataflow=True)
        function = rx.Function(tuple(self.params), (block,), result, result.struct_info, {"Primitive": 1})
        return function, sizes

    def _hidden_sizes(self) -> tuple[rx.Expr, ...]:
        """Add the parameter for sizes that are no axis of another one, if there are any; return its argument."""
        defined = defined_sizes(p.struct_info for p in self.params)
        hidden = {old: new for old, new in self.symbols.fresh.items() if new not in defined}
        if not hidden:
            return ()
        self.params.append(rx.Var("sizes", rx.ShapeStructInfo(tuple(hidden.values()), len(hidden))))
        return (rx.ShapeExpr(tuple(hidden), rx.ShapeStructInfo(tuple(hidden), len(hidden))),)


def _item(value: rx.Expr, indices: Sequence[int]) -> rx.Expr:
    for index in indices:
        assert isinstance(value.struct_info, rx.TupleStructInfo)
        value = rx.TupleGetItem(value, index, value.struct_info.fields[index])
    return value

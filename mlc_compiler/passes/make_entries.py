"""Flatten the parameters of exported functions to tensors and numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mlc_errors import MLCError

from ..ir.expr import Var as SizeVar
from ..ir.module import GlobalVar, IRModule
from ..ir.naming import unique_name
from ..ir.visitor import Rewriter, walk
from ..relax import nodes as rx
from ..relax.builder import call_tir_inplace
from ..relax.info import get_item, make_tuple, shape_expr
from ..relax.primitive import FreshSymbols
from ..tir.intrinsics import written_buffers
from ..tir.nodes import Buffer, PrimFunc
from ..tir.schedule.layout import LAYOUTS
from .base import Pass

NON_NEGATIVE = "tir_non_negative_var"


class EntryError(MLCError):
    """An exported function with a parameter that a caller cannot pass."""


@dataclass(frozen=True)
class MakeEntries(Pass):
    """Make every exported function a graph function whose parameters are tensors and numbers.

    A public tensor function (one with a ``global_symbol``; any, when there is no graph function) is wrapped in a graph
    function of its name that takes its parameters, outputs included; packed buffers are passed in their stored layout.
    Tuple and shape parameters of exported graph functions are flattened; the attribute ``arguments`` records their
    nesting. Symbols that are both number parameters and sizes are added to the attribute ``tir_non_negative_var``.
    """

    name = "make-entries"

    def run(self, mod: IRModule) -> IRModule:
        mod = _wrap_tensor_functions(mod)
        flat = {name: _Flatten(name).function(f) for name, f in mod.of_type(rx.Function).items()}
        return mod.updated({name: _with_sizes_marked(f) for name, f in flat.items()})


# -- tensor functions ---------------------------------------------------------------------------------------------


def _wrap_tensor_functions(mod: IRModule) -> IRModule:
    public = _public_tensor_functions(mod)
    renamed: dict[str, str] = {}
    for name in public:
        renamed[name] = unique_name(f"{name}_kernel", {*mod.functions, *renamed.values()}, separator="")
    rename = _Rename(renamed)
    functions = {renamed.get(name, name): rename(f) for name, f in mod.functions.items()}
    for name in (name for name, f in public.items() if LAYOUTS in f.attrs):
        as_stored = functions[renamed[name]].without_attr(LAYOUTS)
        renamed[name] = unique_name(f"{renamed[name]}_stored", functions, separator="")
        functions[renamed[name]] = as_stored
    wrappers = {name: _wrapper(name, renamed[name], f) for name, f in public.items()}
    return mod.with_functions({**functions, **wrappers})


def _public_tensor_functions(mod: IRModule) -> dict[str, PrimFunc]:
    tensor = mod.of_type(PrimFunc)
    if not mod.of_type(rx.Function):
        return tensor
    return {name: f for name, f in tensor.items() if "global_symbol" in f.attrs}


class _Rename(Rewriter):
    def __init__(self, names: Mapping[str, str]):
        self.names = names

    def rewrite_GlobalVar(self, node: GlobalVar) -> GlobalVar:
        return GlobalVar(self.names[node.name]) if node.name in self.names else node

    def rewrite_PrimFunc(self, node: PrimFunc) -> PrimFunc:
        name = str(node.attrs.get("global_symbol"))
        return node.with_attr("global_symbol", self.names[name]) if name in self.names else node


def _wrapper(name: str, kernel: str, func: PrimFunc) -> rx.Function:
    """Create a graph function ``name`` that calls the tensor function in place on its parameters."""
    fresh = FreshSymbols()
    params = [_parameter(p, fresh) for p in func.params]
    tensors = [v for v, p in zip(params, func.params, strict=True) if isinstance(p, Buffer)]
    scalars = [fresh(p) for p in func.params if isinstance(p, SizeVar)]
    stored = written_buffers(func.body)
    written = [i for i, b in enumerate(func.buffers) if id(b) in stored]
    attrs = {"global_symbol": name}
    bindings = []
    if written:
        info = rx.TupleStructInfo(tuple(tensors[i].struct_info for i in written))  # type: ignore[misc]
        call = call_tir_inplace(GlobalVar(kernel), tensors, written, info, scalars)
        bindings.append(rx.Binding(rx.Var("written", info), call))
    nothing = rx.Tuple((), rx.TupleStructInfo(()))
    return rx.Function(tuple(params), (rx.BindingBlock(tuple(bindings)),), nothing, nothing.struct_info, attrs, False)


def _parameter(param: Buffer | SizeVar, fresh: FreshSymbols) -> rx.Var:
    if isinstance(param, Buffer):
        return rx.Var(param.name, rx.TensorStructInfo(fresh(param.shape), param.dtype))
    return rx.Var(param.name, rx.PrimStructInfo(param.dtype, fresh(param)))


# -- graph functions ----------------------------------------------------------------------------------------------


@dataclass
class _Flatten:
    """Replaces tuple and shape parameters of one function."""

    name: str
    params: list[rx.Var] = field(default_factory=list)
    parts: dict[int, rx.Expr] = field(default_factory=dict)

    def function(self, func: rx.Function) -> rx.Function:
        arguments = [self._parameter(p) for p in func.params]
        if not self.parts:
            return func
        swap = _ReplaceParameters(self.parts)
        attrs = {**func.attrs, "arguments": tuple(arguments)}
        return replace(func, params=tuple(self.params), blocks=swap(func.blocks), ret=swap(func.ret), attrs=attrs)

    def _parameter(self, param: rx.Var) -> Any:
        """Add the flattened parts of a parameter; returns its position, or the nested positions of its parts."""
        assert param.struct_info is not None
        value, places = self._parts(param.name, param.struct_info, param)
        if value is not param:
            self.parts[id(param)] = value
        return places

    def _parts(self, name: str, info: rx.StructInfo, given: rx.Var | None = None) -> tuple[rx.Expr, Any]:
        if isinstance(info, rx.TupleStructInfo):
            parts = [self._parts(f"{name}_{i}", f) for i, f in enumerate(info.fields)]
            return make_tuple([value for value, _ in parts]), tuple(places for _, places in parts)
        if isinstance(info, rx.ShapeStructInfo):
            return self._shape(name, info)
        if isinstance(info, rx.TensorStructInfo) and info.shape is None and info.ndim >= 0:
            sizes = tuple(SizeVar(f"{name}_{axis}") for axis in range(info.ndim))
            return self._parts(name, rx.TensorStructInfo(sizes, info.dtype))
        self._check(name, info)
        self.params.append(given or rx.Var(name, info))
        return self.params[-1], len(self.params) - 1

    def _shape(self, name: str, info: rx.ShapeStructInfo) -> tuple[rx.Expr, Any]:
        if info.values is None:
            raise EntryError(f"{self.name}: the shape {name!r} has unknown sizes; expected R.Shape([…])")
        first = len(self.params)
        self.params += [
            rx.Var(f"{name}_{i}", rx.PrimStructInfo(size.dtype, size)) for i, size in enumerate(info.values)
        ]
        return shape_expr(info.values), tuple(range(first, len(self.params)))

    def _check(self, name: str, info: rx.StructInfo | None) -> None:
        if isinstance(info, rx.TensorStructInfo) and info.shape is None:
            raise EntryError(
                f"{self.name}: the parameter {name!r} is a tensor of unknown shape",
                hint='name its sizes: R.Tensor(("n", "m"), "float32")',
            )
        if not isinstance(info, rx.TensorStructInfo | rx.PrimStructInfo):
            what = type(info).__name__.removesuffix("StructInfo")
            raise EntryError(f"{self.name}: the parameter {name!r} is {what}; expected tensors, tuples, shapes, ints")


def _with_sizes_marked(func: rx.Function) -> rx.Function:
    infos = (p.struct_info for p in func.params)
    numbers = {id(info.value): info.value for info in infos if isinstance(info, rx.PrimStructInfo)}
    given = {key: value for key, value in numbers.items() if isinstance(value, SizeVar)}
    if not given:
        return func
    shapes = (node.shape or () for node in walk(func) if isinstance(node, rx.TensorStructInfo))
    sizes = {given[id(size)].name for shape in shapes for size in shape if id(size) in given}
    marked = sizes | set(func.attrs.get(NON_NEGATIVE, ()))
    return replace(func, attrs={**func.attrs, NON_NEGATIVE: tuple(sorted(marked))}) if marked else func


class _ReplaceParameters(Rewriter):
    def __init__(self, values: Mapping[int, rx.Expr]):
        self.values = values

    def rewrite_Var(self, node: Any) -> Any:
        return self.values.get(id(node), node)

    def rewrite_TupleGetItem(self, node: rx.TupleGetItem) -> rx.Expr:
        value = self(node.tuple_value)
        return node if value is node.tuple_value else get_item(value, node.index)

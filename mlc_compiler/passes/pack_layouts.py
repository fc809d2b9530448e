"""Propagate the weight layouts of scheduled tensor functions to the module's weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..ir import expr as ir
from ..ir.expr import IntImm, PrimExpr, Var, const, logical_and
from ..ir.module import GlobalVar, IRModule
from ..ir.structural import structural_equal
from ..ir.visitor import nodes_of, walk
from ..relax.dataflow import is_op
from ..relax.nodes import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    Expr,
    Function,
    Op,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    constant,
)
from ..relax.nodes import Var as GraphVar
from ..tir import te
from ..tir.index_map import IndexMap
from ..tir.nodes import PrimFunc
from ..tir.schedule.layout import LAYOUTS, with_layout
from .base import Pass


@dataclass(frozen=True)
class PackLayouts(Pass):
    """Pack weights in the layouts that scheduled tensor functions read (their attribute ``layouts``).

    A field of the tuple of weights (a parameter from ``num_input`` on, of the same type in all functions) is packed:
    the tuple's type changes, other readers are adapted, and an exported function ``pack_N(weight) -> packed weight`` is
    added; the module attribute ``packed`` maps the field's index to its name. A field stays unpacked when anything but
    a tensor function reads it, or when two layouts are required. Constants are packed at compile time, any other value
    by a call right before its use.
    """

    name = "pack-layouts"

    def run(self, mod: IRModule) -> IRModule:
        graph = mod.of_type(Function)
        weights = Weights.of(graph)
        return _Packer(mod, weights, weights.layouts(mod, graph.values())).run(graph)


def pack_function(shape: tuple[PrimExpr, ...], dtype: str, layout: IndexMap) -> PrimFunc:
    """The tensor function that copies a tensor of logical ``shape`` to a layout; padding is filled with zeros."""
    source = te.placeholder(shape, dtype, "source")
    inverse, padded = layout.inverse(shape), layout.padded_axes(shape)

    def element(*stored: Var) -> PrimExpr:
        index = inverse(stored)
        inside = logical_and(*(index[axis] < shape[axis] for axis in padded))
        return te.if_then_else(inside, source[index], const(0, dtype)) if padded else source[index]

    return te.create_prim_func([source, te.compute(layout.stored_shape(shape), element, name="packed")])


# -- layouts of the weights ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Weights:
    """The weight tuple of each function that has one, and the variables bound to its fields."""

    tables: Mapping[str, GraphVar]
    fields: Mapping[int, int]

    @classmethod
    def of(cls, graph: Mapping[str, Function]) -> Weights:
        found = {name: table for name, func in graph.items() if (table := _weight_tuple(func)) is not None}
        infos = [table.struct_info for table in found.values()]
        if any(not structural_equal(info, infos[0]) for info in infos):
            return cls({}, {})
        fields: dict[int, int] = {}
        for name, table in found.items():
            for b in graph[name].bindings:
                if isinstance(b.value, TupleGetItem) and b.value.tuple_value is table:
                    fields[id(b.var)] = b.value.index
        return cls(found, fields)

    def index(self, value: object) -> int | None:
        """The index of the weight to which a value refers, or None."""
        if isinstance(value, TupleGetItem) and any(value.tuple_value is t for t in self.tables.values()):
            return value.index
        return self.fields.get(id(value))

    def layouts(self, mod: IRModule, funcs: Iterable[Function]) -> dict[int, IndexMap]:
        """The layout of each packed weight, by index."""
        required: dict[int, set[IndexMap]] = {}
        fixed: set[int] = set()
        for func in funcs:
            for binding in func.bindings:
                if id(binding.var) not in self.fields:
                    fixed |= self._read(mod, binding.value, required)
            fixed |= self._inside(func.ret)
        return {i: next(iter(layouts)) for i, layouts in required.items() if len(layouts) == 1 and i not in fixed}

    def _read(self, mod: IRModule, value: Expr, required: dict[int, set[IndexMap]]) -> set[int]:
        """Add the layouts that a call requires to ``required``; return the weights that must stay unpacked."""
        args = tensor_args(value)
        if not args:
            return self._inside(value)
        assert isinstance(value, Call)
        callee, written = mod[value.args[0]], value.attrs.get("inplace_indices", ())
        fixed: set[int] = set()
        for position, arg in enumerate(args):
            index = self.index(arg)
            if index is None:
                continue
            layout = _layouts(callee).get(position)
            if position in written or (layout is None and not _accepts_layout(callee, position)):
                fixed.add(index)
            elif layout is not None:
                required.setdefault(index, set()).add(layout)
        return fixed

    def _inside(self, value: object) -> set[int]:
        """The weights that occur in an expression; all weights if the tuple itself occurs."""
        whole = any(n is t for n in _free_of_fields(value) for t in self.tables.values())
        every = range(max((len(t.struct_info.fields) for t in self.tables.values()), default=0))  # type: ignore[union-attr]
        return set(every) if whole else {i for n in walk(value) if (i := self.index(n)) is not None}


def _free_of_fields(value: object) -> Iterator[object]:
    """The nodes of an expression, without the tuple operands of ``TupleGetItem``."""
    taken = {id(n.tuple_value) for n in walk(value) if isinstance(n, TupleGetItem)}
    return (n for n in walk(value) if id(n) not in taken)


def _weight_tuple(func: Function) -> GraphVar | None:
    first = int(func.attrs.get("num_input", len(func.params)))
    return next((p for p in func.params[first:] if isinstance(p.struct_info, TupleStructInfo)), None)


def _layouts(func: object) -> dict[int, IndexMap]:
    assert isinstance(func, PrimFunc)
    return {int(position): layout for position, layout in func.attrs.get(LAYOUTS, {}).items()}


def _accepts_layout(func: object, position: int) -> bool:
    """Whether a reader of a weight can read another layout: its shape is constant and its address is not taken."""
    assert isinstance(func, PrimFunc)
    buffer = func.buffers[position]
    addresses = [n for n in nodes_of(func.body, ir.Call) if n.op == "address_of"]
    taken = any(n is buffer for n in walk(addresses))
    return all(isinstance(s, IntImm) for s in buffer.shape) and not taken


def tensor_args(value: Expr) -> tuple[Expr, ...]:
    """The tensor arguments of a call of a tensor function; none for any other expression."""
    if not is_op(value, "call_tir", "call_tir_inplace"):
        return ()
    inputs = value.args[1]  # type: ignore[attr-defined]
    return inputs.fields if isinstance(inputs, Tuple) else ()


# -- graph functions ----------------------------------------------------------------------------------------------


@dataclass
class _Packer:
    mod: IRModule
    weights: Weights
    layouts: Mapping[int, IndexMap]
    functions: dict[str, Any] = field(default_factory=dict)
    pack_names: dict[object, str] = field(default_factory=dict)
    exported: dict[str, str] = field(default_factory=dict)
    variants: dict[tuple[str, int, IndexMap], GlobalVar] = field(default_factory=dict)

    def run(self, graph: Mapping[str, Function]) -> IRModule:
        for name, func in graph.items():
            self.functions[name] = self._rewrite(func, self.weights.tables.get(name))
        packed = {str(i): self._exported_pack(i, layout) for i, layout in sorted(self.layouts.items())}
        mod = self.mod.updated(self.functions)
        return mod.with_attr("packed", packed) if packed else mod

    def _rewrite(self, func: Function, table: GraphVar | None) -> Function:
        swaps: dict[int, Expr] = {}
        params = func.params
        if table is not None:
            new_table = replace(table, struct_info=self._packed_info(table.struct_info))
            swaps[id(table)] = new_table
            params = tuple(new_table if p is table else p for p in params)
        blocks = tuple(self._block(block, swaps) for block in func.blocks)
        return replace(func, params=params, blocks=blocks, ret=self._swap(func.ret, swaps))

    def _packed_info(self, info: StructInfo | None) -> TupleStructInfo:
        assert isinstance(info, TupleStructInfo)
        return TupleStructInfo(tuple(self._info(i, f) for i, f in enumerate(info.fields)))

    def _info(self, index: int, info: StructInfo) -> StructInfo:
        return _stored_info(info, self.layouts[index]) if index in self.layouts else info

    def _block(self, block: BindingBlock, swaps: dict[int, Expr]) -> BindingBlock:
        result: list[Binding] = []
        for binding in block.bindings:
            if id(binding.var) in self.weights.fields:
                value = self._swap(binding.value, swaps)
                swaps[id(binding.var)] = var = replace(binding.var, struct_info=value.struct_info)
                result.append(Binding(var, value))
            elif tensor_args(binding.value):
                result.append(replace(binding, value=self._call(binding.value, swaps, result)))
            else:
                result.append(replace(binding, value=self._swap(binding.value, swaps)))
        return replace(block, bindings=tuple(result))

    def _call(self, call: Expr, swaps: Mapping[int, Expr], result: list[Binding]) -> Call:
        """The call with operands packed in the layouts that it reads, or of a variant that reads their layouts."""
        assert isinstance(call, Call)
        callee, inputs = call.args[0], []
        layouts = _layouts(self.mod[callee])
        for position, arg in enumerate(tensor_args(call)):
            index = self.weights.index(arg)
            given, expected = None if index is None else self.layouts.get(index), layouts.get(position)
            new = self._swap(arg, swaps)
            if given and not expected:
                callee = self._variant(callee, position, given)
            elif expected and not given:
                new = self._pack_here(new, expected, result)
            inputs.append(new)
        return replace(call, args=(callee, replace(call.args[1], fields=tuple(inputs)), *call.args[2:]))

    def _variant(self, callee: GlobalVar, position: int, layout: IndexMap) -> GlobalVar:
        """The variant of ``callee`` that reads parameter ``position`` in ``layout``."""
        key = (callee.name, position, layout)
        if key not in self.variants:
            func = self.functions.get(callee.name) or self.mod[callee]
            stored, _ = with_layout(func.without_attr("global_symbol"), func.buffers[position], layout)
            self.variants[key] = GlobalVar(self._add(f"{callee.name}_stored{position}", stored))
        return self.variants[key]

    def _add(self, name: str, func: PrimFunc | Function) -> str:
        name = self.mod.updated(self.functions).unique_name(name)
        self.functions[name] = func
        return name

    def _pack_here(self, value: Expr, layout: IndexMap, result: list[Binding]) -> Expr:
        """Pack a value in another layout: at compile time for a constant, otherwise by a packing call."""
        if isinstance(value, Constant):
            return constant(layout.pack(value.data))
        packed = _stored_info(value.struct_info, layout)
        func = GlobalVar(self._pack_prim_func(value.struct_info, layout))
        var = GraphVar(f"packed{len(result)}", packed, dataflow=True)
        result.append(Binding(var, Call(Op("call_tir"), (func, Tuple((value,))), {}, packed, packed)))
        return var

    # -- packing functions --------------------------------------------------------------------------------------

    def _pack_prim_func(self, info: StructInfo | None, layout: IndexMap) -> str:
        assert isinstance(info, TensorStructInfo)
        key = (tuple(getattr(s, "value", str(s)) for s in info.shape or ()), info.dtype, layout)
        if key not in self.pack_names:
            func = pack_function(info.shape or (), info.dtype, layout)
            self.pack_names[key] = self._add(f"layout_pack{len(self.pack_names)}", func)
        return self.pack_names[key]

    def _exported_pack(self, index: int, layout: IndexMap) -> str:
        table = next(iter(self.weights.tables.values()))
        assert isinstance(table.struct_info, TupleStructInfo)
        info = table.struct_info.fields[index]
        kernel = self._pack_prim_func(info, layout)
        if kernel not in self.exported:
            source, packed = GraphVar("source", info), _stored_info(info, layout)
            out = GraphVar("packed", packed)
            call = Call(Op("call_tir"), (GlobalVar(kernel), Tuple((source,))), {}, packed, packed)
            func = Function((source,), (BindingBlock((Binding(out, call),), True),), out, packed)
            name = self.exported[kernel] = self._add(f"pack_{len(self.exported)}", func)
            self.functions[name] = func.with_attr("global_symbol", name)
        return self.exported[kernel]

    def _swap(self, value: Expr, swaps: Mapping[int, Expr]) -> Expr:
        """Rewrite a value: replace variables, and update the types of packed weights."""
        if id(value) in swaps:
            return swaps[id(value)]
        if isinstance(value, Tuple):
            return replace(value, fields=tuple(self._swap(f, swaps) for f in value.fields))
        if isinstance(value, TupleGetItem):
            index, info = self.weights.index(value), value.struct_info
            if index is not None and info is not None:
                info = self._info(index, info)
            return TupleGetItem(self._swap(value.tuple_value, swaps), value.index, info)
        if isinstance(value, Call):
            return replace(value, args=tuple(self._swap(a, swaps) if isinstance(a, Expr) else a for a in value.args))
        return value


def _stored_info(info: StructInfo | None, layout: IndexMap) -> TensorStructInfo:
    assert isinstance(info, TensorStructInfo) and info.shape is not None
    return TensorStructInfo(layout.stored_shape(info.shape), info.dtype)

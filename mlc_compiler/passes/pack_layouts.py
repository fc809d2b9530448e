"""Carry the layouts that kernels want for weights to where the weights come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..ir.expr import IntImm, PrimExpr, Var, const
from ..ir.module import GlobalVar, IRModule
from ..relax.nodes import (
    Binding,
    BindingBlock,
    Call,
    Expr,
    Function,
    Op,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
)
from ..relax.nodes import Var as GraphVar
from ..tir import te
from ..tir.nodes import PrimFunc
from ..tir.schedule.layout import tile_layout
from .base import Pass

Tile = tuple[int, int]


@dataclass(frozen=True)
class PackLayouts(Pass):
    """Make weights arrive in the tiled layouts that scheduled tensor functions read (their attribute ``tiled``).

    A field of a packed parameter tuple takes the layout itself: the tuple's type changes in every function, other
    readers are adapted, and an exported function ``pack_N(weight) -> packed weight`` is added; the module attribute
    ``packed`` maps the field's index to its name. Any other value is packed by a call right before it is used.
    """

    name = "pack-layouts"

    def run(self, mod: IRModule) -> IRModule:
        return _Packer(mod).run()


def pack_function(shape: tuple[PrimExpr, ...], dtype: str, tile: Tile) -> PrimFunc:
    """``[N, K] -> [ceil(N/f), K, f]`` along ``tile = (axis, f)``; zeros where the last tile is not full."""
    axis, factor = tile
    source = te.placeholder(shape, dtype, "source")
    tiles = (shape[axis] + (factor - 1)) // const(factor, "int64")
    packed_shape = (*shape[:axis], tiles, *shape[axis + 1 :], IntImm(factor))

    def element(*i: Var) -> PrimExpr:
        position = i[axis] * factor + i[-1]
        inside = source[(*i[:axis], position, *i[axis + 1 : -1])]
        return te.if_then_else(position < shape[axis], inside, const(0, dtype))

    return te.create_prim_func([source, te.compute(packed_shape, element, name="packed")])


@dataclass
class _Packer:
    mod: IRModule
    wanted: dict[int, Tile] = field(default_factory=dict)
    functions: dict[str, Any] = field(default_factory=dict)
    pack_names: dict[object, str] = field(default_factory=dict)

    def run(self) -> IRModule:
        graph = self.mod.of_type(Function)
        for func in graph.values():
            self._collect(func)
        for name, func in graph.items():
            self.functions[name] = self._rewrite(func)
        packed = {str(i): self._exported_pack(i, tile, graph) for i, tile in sorted(self.wanted.items())}
        mod = self.mod.updated(self.functions)
        return mod.with_attr("packed", packed) if packed else mod

    # -- which weights want which layout ------------------------------------------------------------------------

    def _collect(self, func: Function) -> None:
        fields = _packed_fields(func)
        for binding in func.bindings:
            for position, arg in self._tensor_args(binding.value):
                tile = _tiles(self.mod[binding.value.args[0]]).get(position)  # type: ignore[attr-defined]
                if tile and id(arg) in fields:
                    self.wanted.setdefault(fields[id(arg)], tile)

    def _tensor_args(self, value: Expr) -> list[tuple[int, Expr]]:
        is_call = isinstance(value, Call) and isinstance(value.target, Op)
        if not is_call or value.target.name not in ("call_tir", "call_tir_inplace"):  # type: ignore[attr-defined]
            return []
        inputs = value.args[1]  # type: ignore[attr-defined]
        return list(enumerate(inputs.fields)) if isinstance(inputs, Tuple) else []

    # -- graph functions ----------------------------------------------------------------------------------------

    def _rewrite(self, func: Function) -> Function:
        fields = _packed_fields(func)
        table = _packed_parameter(func)
        replacements: dict[int, Expr] = {}
        params = func.params
        if table is not None:
            new_table = replace(table, struct_info=self._packed_info(table.struct_info))
            replacements[id(table)] = new_table
            params = tuple(new_table if p is table else p for p in params)
        blocks = tuple(self._block(block, fields, replacements) for block in func.blocks)
        return replace(func, params=params, blocks=blocks, ret=_swap(func.ret, replacements))

    def _packed_info(self, info: StructInfo | None) -> TupleStructInfo:
        assert isinstance(info, TupleStructInfo)
        return TupleStructInfo(
            tuple(_tiled_info(f, self.wanted[i]) if i in self.wanted else f for i, f in enumerate(info.fields))
        )

    def _block(self, block: BindingBlock, fields: Mapping[int, int], swaps: dict[int, Expr]) -> BindingBlock:
        result: list[Binding] = []
        for binding in block.bindings:
            if id(binding.var) in fields:
                result.append(self._field_binding(binding, fields[id(binding.var)], swaps))
            else:
                self._call_binding(binding, fields, swaps, result)
        return replace(block, bindings=tuple(result))

    def _field_binding(self, binding: Binding, index: int, swaps: dict[int, Expr]) -> Binding:
        value = binding.value
        assert isinstance(value, TupleGetItem)
        info = _tiled_info(value.struct_info, self.wanted[index]) if index in self.wanted else value.struct_info
        var = replace(binding.var, struct_info=info)
        swaps[id(binding.var)] = var
        return Binding(var, TupleGetItem(_swap(value.tuple_value, swaps), index, info))

    def _call_binding(
        self, binding: Binding, fields: Mapping[int, int], swaps: dict[int, Expr], result: list[Binding]
    ) -> None:
        args = self._tensor_args(binding.value)
        if not args:
            result.append(replace(binding, value=_swap(binding.value, swaps)))
            return
        call = binding.value
        assert isinstance(call, Call)
        callee, inputs = call.args[0], []
        tiles = _tiles(self.mod[callee])
        for position, arg in args:
            index = fields.get(id(arg), -1)
            given, expected = self.wanted.get(index), tiles.get(position)
            new = _swap(arg, swaps)
            if given and not expected:
                callee = self._tiled_variant(callee, position, given)
            elif expected and given != expected:
                new = self._pack_here(new, expected, result)
            inputs.append(new)
        new_args = (callee, replace(call.args[1], fields=tuple(inputs)), *call.args[2:])
        result.append(replace(binding, value=replace(call, args=new_args)))

    def _tiled_variant(self, callee: GlobalVar, position: int, tile: Tile) -> GlobalVar:
        """The function that reads parameter ``position`` in the layout of another function."""
        name = f"{callee.name}_tiled{position}"
        if name not in self.functions:
            func = self.functions.get(callee.name) or self.mod[callee]
            self.functions[name], _ = tile_layout(func, func.params[position], *tile)
        return GlobalVar(name)

    def _pack_here(self, value: Expr, tile: Tile, result: list[Binding]) -> Expr:
        """Pack a value that is not a packed parameter, every time the function runs."""
        info = _info_of(value)
        packed = _tiled_info(info, tile)
        func = GlobalVar(self._pack_prim_func(info, tile))
        var = GraphVar(f"packed{len(result)}", packed, dataflow=True)
        result.append(Binding(var, Call(Op("call_tir"), (func, Tuple((value,))), {}, packed, packed)))
        return var

    # -- packing functions --------------------------------------------------------------------------------------

    def _pack_prim_func(self, info: TensorStructInfo, tile: Tile) -> str:
        key = (tuple(getattr(s, "value", str(s)) for s in info.shape or ()), info.dtype, tile)
        if key not in self.pack_names:
            func = pack_function(info.shape or (), info.dtype, tile)
            name = self.mod.unique_name(f"layout_pack{len(self.pack_names)}")
            self.functions[name] = func
            self.pack_names[key] = name
        return self.pack_names[key]

    def _exported_pack(self, index: int, tile: Tile, graph: Mapping[str, Function]) -> str:
        table = next(t for t in map(_packed_parameter, graph.values()) if t is not None)
        assert isinstance(table.struct_info, TupleStructInfo)
        info = table.struct_info.fields[index]
        assert isinstance(info, TensorStructInfo)
        kernel = self._pack_prim_func(info, tile)
        name = kernel.replace("layout_pack", "pack_")
        if name not in self.functions:
            source, packed = GraphVar("source", info), _tiled_info(info, tile)
            out = GraphVar("packed", packed)
            call = Call(Op("call_tir"), (GlobalVar(kernel), Tuple((source,))), {}, packed, packed)
            body = (BindingBlock((Binding(out, call),), True),)
            self.functions[name] = Function((source,), body, out, packed, attrs={"global_symbol": name})
        return name


def _tiles(func: object) -> dict[int, Tile]:
    assert isinstance(func, PrimFunc)
    return {int(k): (int(v[0]), int(v[1])) for k, v in func.attrs.get("tiled", {}).items()}


def _tiled_info(info: StructInfo | None, tile: Tile) -> TensorStructInfo:
    assert isinstance(info, TensorStructInfo) and info.shape is not None
    axis, factor = tile
    tiles = (info.shape[axis] + (factor - 1)) // const(factor, "int64")
    return TensorStructInfo((*info.shape[:axis], tiles, *info.shape[axis + 1 :], IntImm(factor)), info.dtype)


def _info_of(value: Expr) -> TensorStructInfo:
    assert isinstance(value.struct_info, TensorStructInfo)
    return value.struct_info


def _packed_parameter(func: Function) -> GraphVar | None:
    return next((p for p in func.params if isinstance(p.struct_info, TupleStructInfo)), None)


def _packed_fields(func: Function) -> dict[int, int]:
    """Variables bound to fields of the packed parameter, with the field's index."""
    table = _packed_parameter(func)
    return {
        id(b.var): b.value.index
        for b in func.bindings
        if isinstance(b.value, TupleGetItem) and table is not None and b.value.tuple_value is table
    }


def _swap(value: Expr, swaps: Mapping[int, Expr]) -> Expr:
    if id(value) in swaps:
        return swaps[id(value)]
    if isinstance(value, Tuple):
        return replace(value, fields=tuple(_swap(f, swaps) for f in value.fields))
    if isinstance(value, TupleGetItem):
        return replace(value, tuple_value=_swap(value.tuple_value, swaps))
    if isinstance(value, Call):
        return replace(value, args=tuple(_swap(a, swaps) if isinstance(a, Expr) else a for a in value.args))
    return value

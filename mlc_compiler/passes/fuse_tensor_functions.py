"""Merge the tensor functions of each group of ``FuseOps``; intermediates become buffers of the merged function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..ir import expr as ir
from ..ir.module import GlobalVar, IRModule
from ..ir.naming import unique_name
from ..ir.structural import structural_key
from ..ir.visitor import Rewriter, substitute, walk
from ..relax import nodes as rx
from ..relax.dataflow import TirCall, make_tir_call, tir_call
from ..relax.primitive import FreshSymbols
from ..tir import nodes as tir
from .annotate_patterns import INJECTIVE_PATTERNS, MATMUL, OPAQUE, REDUCTION
from .base import Pass

# A group has the pattern of its member with the highest rank.
_RANK = (*INJECTIVE_PATTERNS, REDUCTION, MATMUL, OPAQUE)


@dataclass(frozen=True)
class FuseTensorFunctions(Pass):
    """Replace ``Primitive`` graph functions by tensor functions of the same name, and their calls by ``call_tir``.

    The parameters are the group's inputs, its outputs, then the sizes that are not a buffer axis. ``op_pattern`` is
    that of the anchor (a matmul, else a reduction, else any member). Structurally equal functions are deduplicated.
    """

    name = "fuse-tensor-functions"

    def run(self, mod: IRModule) -> IRModule:
        fused = _fuse_all(mod)
        rewriter = _Calls(fused)
        functions = {}
        for name, func in mod.functions.items():
            if name not in fused:
                functions[name] = rewriter(func) if isinstance(func, rx.Function) else func
            elif fused[name].name == name:
                functions[name] = fused[name].func
        return mod.with_functions(functions)


@dataclass(frozen=True)
class _Fused:
    """The tensor function of a group; ``scalars``: indices of its scalar parameters in the group's sizes."""

    name: str
    func: tir.PrimFunc
    scalars: tuple[int, ...]


def _fuse_all(mod: IRModule) -> dict[str, _Fused]:
    by_key: dict[object, _Fused] = {}
    fused = {}
    for name, func in mod.of_type(rx.Function).items():
        if func.attrs.get("Primitive"):
            prim_func, scalars = _Merge(mod, func).run()
            first = by_key.setdefault(structural_key(prim_func), _Fused(name, prim_func, scalars))
            fused[name] = replace(first, scalars=scalars)
    return fused


class _Calls(Rewriter):
    """Replaces calls of fused groups by ``call_tir``."""

    def __init__(self, fused: Mapping[str, _Fused]):
        self.fused = fused

    def rewrite_Binding(self, node: rx.Binding) -> rx.Binding:
        value = node.value
        if not isinstance(value, rx.Call) or not isinstance(value.target, GlobalVar):
            return node
        target = self.fused.get(value.target.name)
        if target is None or node.var.struct_info is None:
            return node
        sizes = [v for a in value.args if isinstance(a, rx.ShapeExpr) for v in a.values]
        inputs = tuple(a for a in value.args if not isinstance(a, rx.ShapeExpr))
        scalars = tuple(sizes[i] for i in target.scalars)
        return replace(node, value=make_tir_call(target.name, inputs, scalars, node.var.struct_info))

    def rewrite_Function(self, node: rx.Function) -> rx.Function:
        blocks = tuple(replace(b, bindings=tuple(map(self.rewrite_Binding, b.bindings))) for b in node.blocks)
        return replace(node, blocks=blocks)


class _Merge:
    """Merges the calls of a ``Primitive`` graph function into one tensor function."""

    def __init__(self, mod: IRModule, group: rx.Function):
        self.mod = mod
        self.group = group
        self.symbols = FreshSymbols()
        self.names: set[str] = set()
        self.buffers: dict[int, tuple[tir.Buffer, ...]] = {}
        self.sizes: list[Any] = []
        self.intermediates: list[tir.Buffer] = []
        self.stmts: list[tir.Stmt] = []
        self.patterns: list[str] = []

    def run(self) -> tuple[tir.PrimFunc, tuple[int, ...]]:
        """Return the merged function, and the indices in ``sizes`` of its scalar parameters."""
        inputs = self._inputs()
        for binding in self.group.bindings:
            self._add(binding)
        outputs = self.buffers[id(self.group.ret)]
        shown = {s for b in (*inputs, *outputs) for s in b.shape if isinstance(s, ir.Var)}
        scalars = tuple(i for i, v in enumerate(self.sizes) if v not in shown)
        params: tuple[tir.Buffer | ir.Var, ...] = (*inputs, *outputs, *(self.sizes[i] for i in scalars))
        pattern = max(self.patterns, key=_RANK.index)
        attrs = {"tir.noalias": True, "op_pattern": pattern, "num_outputs": len(outputs)}
        body = _UniqueBlockNames()(tir.seq(*self.stmts))
        return tir.PrimFunc(params, tir.root_block(body, tuple(self.intermediates)), attrs), scalars

    def _add(self, binding: rx.Binding) -> None:
        if isinstance(binding.value, rx.TupleGetItem):
            self.buffers[id(binding.var)] = (self._argument(binding.value),)
            return
        call = tir_call(binding.value)
        assert call is not None, "a Primitive function consists of call_tir and items of their results"
        callee = self.mod[call.callee]
        outputs = self._outputs(callee, call)
        self.buffers[id(binding.var)] = outputs
        if binding.var is not self.group.ret:
            self.intermediates += outputs
        self.stmts.append(self._body(callee, call, outputs))
        self.patterns.append(callee.attrs.get("op_pattern", OPAQUE))

    def _inputs(self) -> list[tir.Buffer]:
        inputs = []
        for param in self.group.params:
            info = param.struct_info
            if isinstance(info, rx.ShapeStructInfo):
                self.sizes += [self.symbols(v) for v in info.values or ()]
            else:
                inputs.append(self._buffer(param.name, info))
                self.buffers[id(param)] = (inputs[-1],)
        return inputs

    def _outputs(self, callee: tir.PrimFunc, call: TirCall) -> tuple[tir.Buffer, ...]:
        declared = callee.buffers[len(call.inputs) :]
        return tuple(self._buffer(b.name, info) for b, info in zip(declared, call.outputs, strict=True))

    def _buffer(self, name: str, info: rx.StructInfo | None) -> tir.Buffer:
        assert isinstance(info, rx.TensorStructInfo) and info.shape is not None
        return tir.Buffer(_unique(name, self.names), self.symbols(info.shape), info.dtype)

    def _argument(self, expr: rx.Expr) -> tir.Buffer:
        if isinstance(expr, rx.TupleGetItem):
            return self.buffers[id(expr.tuple_value)][expr.index]
        return self.buffers[id(expr)][0]

    def _body(self, callee: tir.PrimFunc, call: TirCall, outputs: Sequence[tir.Buffer]) -> tir.Stmt:
        """The callee's statements on this function's buffers, with fresh variables and intermediate buffers."""
        actual = [*(self._argument(e) for e in call.inputs), *outputs]
        mapping: dict[Any, Any] = dict(zip(callee.buffers, actual, strict=True))
        scalars = [p for p in callee.params if isinstance(p, ir.Var)]
        mapping.update(zip(scalars, self.symbols(call.scalars), strict=True))
        mapping.update(_matched_sizes(callee.buffers, actual))
        root = callee.body.block  # type: ignore[attr-defined]
        for node in walk(root.body):
            if isinstance(node, tir.For | tir.IterVar | ir.Let):
                mapping[node.var] = ir.Var(node.var.name, node.var.dtype)
        for local in root.alloc_buffers:
            shape = substitute(local.shape, mapping)
            self.intermediates.append(replace(local, name=_unique(local.name, self.names), shape=shape))
            mapping[local] = self.intermediates[-1]
        return substitute(root.body, mapping)


def _matched_sizes(formal: Sequence[tir.Buffer], actual: Sequence[tir.Buffer]) -> dict[ir.Var, ir.PrimExpr]:
    """The values of a function's symbolic sizes for the given argument buffers."""
    sizes: dict[ir.Var, ir.PrimExpr] = {}
    for f, a in zip(formal, actual, strict=True):
        for size, value in zip(f.shape, a.shape, strict=True):
            if isinstance(size, ir.Var):
                sizes.setdefault(size, value)
    return sizes


class _UniqueBlockNames(Rewriter):
    def __init__(self) -> None:
        self.names = {"root"}

    def rewrite_Block(self, node: tir.Block) -> tir.Block:
        return replace(node, name=_unique(node.name, self.names))


def _unique(name: str, taken: set[str]) -> str:
    """``name``, or ``name_1``, ``name_2`` …; the result is added to ``taken``."""
    unique = unique_name(name, taken)
    taken.add(unique)
    return unique

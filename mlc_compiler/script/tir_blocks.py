"""Parser of the declarations in ``with T.block(…)``: axes, predicate, regions, annotations, buffers."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..ir import dtype as dt
from ..ir.expr import IntImm, PrimExpr, Var, is_const
from ..tir.nodes import Block, BlockRealize, Buffer, BufferLoad, BufferRegion, IterVar, Stmt, buffer
from ..tir.regions import infer_regions
from .evaluate import Evaluator
from .regions import as_region
from .scope import Namespace, Scope
from .source import Source, describe

_TRUE = IntImm(1, "bool")
AXIS_KINDS = {"spatial": "S", "reduce": "R", "S": "S", "R": "R"}
_IGNORED_BUFFER_ARGUMENTS = frozenset({"align", "offset_factor", "buffer_type", "axis_separators", "logical_scope"})


@dataclass
class BlockFrame:
    """State of a block while its body is parsed; the outermost one is the root block of the function."""

    name: str = "root"
    iter_vars: list[IterVar] = field(default_factory=list)
    values: list[PrimExpr] = field(default_factory=list)
    predicate: PrimExpr = _TRUE
    reads: tuple[BufferRegion, ...] | None = None
    writes: tuple[BufferRegion, ...] | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict)
    alloc_buffers: list[Buffer] = field(default_factory=list)
    init: Stmt | None = None

    def realize(self, body: Stmt) -> BlockRealize:
        """Build the block with its body; regions that the text does not declare are inferred."""
        iters = tuple(self.iter_vars)
        reads, writes = self.reads, self.writes
        if reads is None or writes is None:
            inferred = infer_regions((self.init, body), iters, self.init is None, self.alloc_buffers)
            reads = inferred[0] if reads is None else reads
            writes = inferred[1] if writes is None else writes
        block = Block(self.name, iters, reads, writes, body, self.init, tuple(self.alloc_buffers), self.annotations)
        return BlockRealize(tuple(self.values), self.predicate, block)


class BlockParser(Evaluator):
    """Parses the declarations of buffers, block axes and block attributes."""

    def __init__(self, source: Source, scope: Scope):
        super().__init__(source, scope)
        self.blocks: list[BlockFrame] = [BlockFrame()]
        self.extents: dict[int, PrimExpr] = {}
        self.keep: list[Var] = []

    @property
    def block(self) -> BlockFrame:
        return self.blocks[-1]

    # -- buffers

    def buffer_from(self, node: ast.AST, name: str, args: list[Any], kwargs: dict[str, Any]) -> Buffer:
        """Build a buffer from the arguments of ``T.Buffer``, ``T.match_buffer``, ``T.alloc_buffer`` …"""
        given = dict(zip(("shape", "dtype"), args)) | kwargs
        unknown = set(given) - {"shape", "dtype", "scope"} - _IGNORED_BUFFER_ARGUMENTS
        for extra in sorted(unknown):
            if given[extra] not in (None, [], ()) and not is_const(given[extra], 0):
                raise self.error(node, f"buffer {name!r}: buffers are dense and row-major; got {extra}=")
        if "shape" not in given:
            raise self.error(node, f"buffer {name!r} has no shape")
        shape, dtype = given["shape"], given.get("dtype", "float32")
        if not isinstance(dtype, str) or not dt.is_known(dtype):
            raise self.error(node, f'buffer {name!r}: expected a dtype such as "float32", got {describe(dtype)}')
        items = shape if isinstance(shape, tuple | list) else (shape,)
        sizes = tuple(self.scope.symbol(s) if isinstance(s, str) else s for s in items)
        return self.attempt(node, buffer, name, sizes, dtype, given.get("scope") or "global")

    def alloc_buffer(self, node: ast.Call, name: str) -> None:
        """Parse ``X = T.alloc_buffer(…)``, a buffer of the enclosing block."""
        made = self.buffer_from(node, name, *self.arguments(node))
        self.block.alloc_buffers.append(made)
        self.scope.define(name, made)

    def subscript_of_name(self, node: ast.Subscript, base: Namespace) -> Any:
        if base.path == "T.Buffer":
            value = self.value(node.slice)
            old = isinstance(value, tuple) and len(value) > 1 and isinstance(value[1], str)
            return self.buffer_from(node, "buffer", list(value) if old else [value], {})
        return super().subscript_of_name(node, base)

    # -- axes

    def axis(self, node: ast.Call, path: str, targets: list[ast.Name]) -> None:
        """Parse ``vi = T.axis.spatial(extent, value)`` or ``vi, vj = T.axis.remap("SR", [i, j])``."""
        kind = path.removeprefix("T.axis.")
        if kind == "remap":
            self._remap(node, targets)
        elif kind in AXIS_KINDS and len(targets) == 1 and len(node.args) == 2:
            domain = self.value(self.operand(node))
            value = self._index(self.operand(node, 1))
            self._add_axis(targets[0].id, self._extent(node, domain, value), AXIS_KINDS[kind], value)
        else:
            raise self.error(node, f"expected T.axis.spatial, T.axis.reduce or T.axis.remap; got {ast.unparse(node)}")

    def _extent(self, node: ast.Call, domain: Any, value: PrimExpr) -> PrimExpr:
        if isinstance(domain, tuple | list):
            if len(domain) != 2 or not (domain[0] == 0 or is_const(domain[0], 0)):
                raise self.error(node.args[0], "a block axis must start at 0")
            domain = domain[1]
        return self.attempt(node.args[0], _sized, domain, value.dtype)

    def _remap(self, node: ast.Call, targets: list[ast.Name]) -> None:
        kinds = self.string(self.operand(node))
        values = self.exprs(self.operand(node, 1))
        if not len(kinds) == len(values) == len(targets):
            counts = f"{len(targets)} names, {len(kinds)} kinds, {len(values)} loops"
            raise self.error(node, f"T.axis.remap: got {counts}; expected as many of each")
        for target, kind, value in zip(targets, kinds, values):
            extent = self.extents.get(id(value))
            if extent is None or kind not in "SR":
                raise self.error(node, "T.axis.remap takes kinds S and R and variables of enclosing loops")
            self._add_axis(target.id, extent, kind, value)

    def _index(self, node: ast.expr) -> PrimExpr:
        value = self.expr(node)
        if not dt.is_int(value.dtype):
            raise self.error(node, f"expected an integer, got {describe(value)}")
        return value

    def _add_axis(self, name: str, extent: PrimExpr, kind: str, value: PrimExpr) -> None:
        var = Var(name, value.dtype)
        self.block.iter_vars.append(IterVar(var, extent, kind))
        self.block.values.append(value)
        self.scope.define(name, var)

    # -- declarations

    def declaration(self, path: str) -> Callable[[ast.Call], None] | None:
        """The method that parses a block-level declaration such as ``T.reads(…)``, or None."""
        if path in ("T.block_attr", "T.sblock_attr"):
            return self._annotate
        return {"T.where": self._where, "T.reads": self._reads, "T.writes": self._writes}.get(path)

    def _where(self, node: ast.Call) -> None:
        self.block.predicate = self.expr(self.operand(node))

    def _reads(self, node: ast.Call) -> None:
        self.block.reads = self._regions(node)

    def _writes(self, node: ast.Call) -> None:
        self.block.writes = self._regions(node)

    def _annotate(self, node: ast.Call) -> None:
        attrs = self.attempt(node, plain_attrs, self.value(self.operand(node)))
        self.block.annotations = {**self.block.annotations, **attrs}

    def _regions(self, node: ast.Call) -> tuple[BufferRegion, ...]:
        values = self.arguments(node)[0]
        flat = [v for item in values for v in (item if isinstance(item, list | tuple) else [item])]
        for v in flat:
            if not isinstance(v, BufferLoad | BufferRegion):
                raise self.error(node, f"expected regions such as A[0:4, vi], got {describe(v)}")
        return tuple(map(as_region, flat))


def _sized(domain: Any, dtype: str) -> PrimExpr:
    """Convert the extent of a block axis to the dtype of the value bound to it."""
    return domain if isinstance(domain, PrimExpr) else IntImm(int(domain), dtype)


def plain_attrs(attrs: Any) -> dict[str, Any]:
    """Convert attributes to Python values: ``T.bool(True)`` to ``True``, and the prefix ``tirx.`` to ``tir.``.

    Raises TypeError unless ``attrs`` is a mapping with string keys, ValueError for an invalid ``global_symbol``.
    """
    if not isinstance(attrs, Mapping) or not all(isinstance(k, str) for k in attrs):
        raise TypeError(f"expected a dictionary of attributes by name, got {describe(attrs)}")
    symbol = attrs.get("global_symbol", "main")
    if not isinstance(symbol, str) or not symbol.isidentifier():
        raise ValueError(f"global_symbol is {describe(symbol)}; expected a name")
    renamed = {k.replace("tirx.", "tir.", 1) if k.startswith("tirx.") else k: v for k, v in attrs.items()}
    return {k: bool(v.value) if isinstance(v, IntImm) and v.dtype == "bool" else v for k, v in renamed.items()}

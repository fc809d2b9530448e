"""Loop transformations: split, fuse, reorder, kinds, partition, merge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from ...ir.expr import ExprLike, IntImm, PrimExpr, Var, as_expr, ceildiv, logical_and
from ...ir.simplify import Analyzer
from ...ir.visitor import Rewriter, substitute, walk
from ..nodes import (
    SERIAL,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    IterVar,
    PrimFunc,
    SeqStmt,
    Stmt,
    seq,
)
from .tree import (
    ScheduleError,
    analyzer_at,
    find_loop,
    loop_path,
    paths,
    replace_stmts,
    root_of,
    sub_statements,
    with_allocs,
)


class _Guard(Rewriter):
    """Adds a condition to the outermost blocks inside and simplifies what they are bound to."""

    def __init__(self, condition: PrimExpr | None, analyzer: Analyzer):
        self.condition = condition
        self.analyzer = analyzer

    def rewrite_For(self, node: For) -> For:
        self.analyzer.bind(node.var, node.extent)
        return replace(node, body=self(node.body))

    def rewrite_BlockRealize(self, node: BlockRealize) -> BlockRealize:
        values = tuple(self.analyzer.simplify(v) for v in node.iter_values)
        predicate = self.analyzer.simplify(node.predicate)
        if self.condition is not None:
            predicate = logical_and(predicate, self.condition)
        return replace(node, iter_values=values, predicate=predicate)


def _constant_product(factors: Sequence[PrimExpr | None]) -> PrimExpr:
    product: PrimExpr = IntImm(1)
    for f in factors:
        product = product if f is None else product * f
    return product


def split(func: PrimFunc, var: Var, factors: Sequence[ExprLike | None]) -> tuple[PrimFunc, list[Var]]:
    """One loop into nested ones; one factor may be None. A predicate guards what exceeds the extent."""
    loop = find_loop(func, var)
    if sum(f is None for f in factors) > 1:
        raise ScheduleError(f"split of {var.name!r}: only one factor may be None; got {list(factors)}")
    known = [None if f is None else as_expr(f) for f in factors]
    path = loop_path(func, var)
    analyzer = analyzer_at(path)
    inferred = analyzer.simplify(ceildiv(loop.extent, _constant_product(known)))
    extents = [inferred if f is None else f for f in known]
    new_vars = [Var(f"{var.name}_{i}") for i in range(len(extents))]
    value: PrimExpr = IntImm(0)
    for v, e in zip(new_vars, extents, strict=True):
        value = value * e + v
        analyzer.bind(v, e)
    total = _constant_product(extents)
    if not analyzer.prove(total >= loop.extent):
        raise ScheduleError(f"split of {var.name!r}: factors {list(factors)} do not cover the extent")
    exact = analyzer.prove(value < loop.extent)
    body = substitute(loop.body, {var: value})
    body = _Guard(None if exact else value < loop.extent, analyzer)(body)
    for v, e in zip(reversed(new_vars), reversed(extents), strict=True):
        body = For(v, e, body)
    outer = replace(body, kind=loop.kind, annotations=loop.annotations)
    return replace_stmts(func, {loop: outer}), new_vars


def fuse(func: PrimFunc, loops: Sequence[Var]) -> tuple[PrimFunc, Var]:
    """Directly nested loops into one."""
    chain = [find_loop(func, v) for v in loops]
    for outer, inner in pairwise(chain):
        if outer.body is not inner:
            raise ScheduleError(f"fuse: {inner.var.name!r} is not the only statement inside {outer.var.name!r}")
    if len(chain) == 1:
        return func, loops[0]
    fused = Var("_".join(v.name for v in loops) + "_fused")
    analyzer = analyzer_at(loop_path(func, loops[0])[:-1])
    extent = analyzer.simplify(_constant_product([c.extent for c in chain]))
    analyzer.bind(fused, extent)
    mapping: dict[Var, PrimExpr] = {}
    rest: PrimExpr = fused
    for loop in reversed(chain[1:]):
        mapping[loop.var] = analyzer.simplify(rest % loop.extent)
        rest = analyzer.simplify(rest // loop.extent)
    mapping[chain[0].var] = rest
    body = _Guard(None, analyzer)(substitute(chain[-1].body, mapping))
    return replace_stmts(func, {chain[0]: For(fused, extent, body, chain[0].kind)}), fused


def reorder(func: PrimFunc, order: Sequence[Var]) -> PrimFunc:
    """Loops of one perfect nest in another order; loops between them keep their place."""
    wanted = {id(v) for v in order}
    deepest = max((loop_path(func, v) for v in order), key=len)
    start = next(i for i, s in enumerate(deepest) if isinstance(s, For) and id(s.var) in wanted)
    chain = deepest[start:]
    found = {id(s.var) for s in chain if isinstance(s, For)}
    if not wanted <= found:
        missing = [v.name for v in order if id(v) not in found]
        raise ScheduleError(f"reorder: {', '.join(missing)} not in the same nest as the others")
    for outer, inner in pairwise(chain):
        if not (isinstance(outer, For) and outer.body is inner and isinstance(inner, For)):
            raise ScheduleError("reorder: the loops do not form a perfect nest")
    queue = [find_loop(func, v) for v in order]
    body: Stmt = chain[-1].body  # type: ignore[attr-defined]
    for loop in reversed(chain):
        assert isinstance(loop, For)
        source = queue.pop() if id(loop.var) in wanted else loop
        body = replace(source, body=body)
    return replace_stmts(func, {chain[0]: body})


def set_kind(func: PrimFunc, var: Var, kind: str, thread: str | None = None) -> PrimFunc:
    """Mark a loop parallel, vectorized, unrolled or bound to a GPU index."""
    loop = find_loop(func, var)
    if kind == "vectorized" and not isinstance(loop.extent, IntImm):
        raise ScheduleError(f"vectorize: the extent of {var.name!r} is not a constant")
    if kind in ("parallel", "vectorized", "thread_binding"):
        _check_spatial(loop, kind)
    return replace_stmts(func, {loop: replace(loop, kind=kind, thread=thread)})


def _check_spatial(loop: For, kind: str) -> None:
    for node in walk(loop.body):
        if not isinstance(node, BlockRealize):
            continue
        for it, value in zip(node.block.iter_vars, node.iter_values, strict=True):
            if it.kind == "R" and any(n is loop.var for n in walk(value)):
                what = f"the reduction {it.var.name!r} of block {node.block.name!r}"
                raise ScheduleError(
                    f"{kind}: loop {loop.var.name!r} carries {what}",
                    hint="use rfactor, or choose a spatial loop",
                )


def annotate(func: PrimFunc, var: Var, key: str, value: Any) -> PrimFunc:
    loop = find_loop(func, var)
    return replace_stmts(func, {loop: replace(loop, annotations={**loop.annotations, key: value})})


class _Fresh(Rewriter):
    """A copy with its own loop variables, block variables, intermediate buffers and block names."""

    def __init__(self, buffers: Mapping[int, Buffer], suffix: str):
        self.buffers = buffers
        self.suffix = suffix
        self.vars: dict[int, Var] = {}

    def fresh(self, var: Var) -> Var:
        self.vars[id(var)] = Var(var.name, var.dtype)
        return self.vars[id(var)]

    def rewrite_Var(self, node: Var) -> Var:
        return self.vars.get(id(node), node)

    def rewrite_For(self, node: For) -> For:
        extent = self(node.extent)
        var = self.fresh(node.var)
        return replace(node, var=var, extent=extent, body=self(node.body))

    def rewrite_BlockRealize(self, node: BlockRealize) -> BlockRealize:
        values, predicate = self(node.iter_values), self(node.predicate)
        return BlockRealize(values, predicate, self.copy_block(node.block))

    def copy_block(self, block: Block) -> Block:
        iters = tuple(IterVar(self.fresh(it.var), self(it.extent), it.kind) for it in block.iter_vars)
        name = f"{block.name}{self.suffix}"
        changed = replace(block, name=name, iter_vars=iters)
        return self.rewrite_children(changed)

    def rewrite_IterVar(self, node: IterVar) -> IterVar:
        return node

    def rewrite_BufferLoad(self, node: BufferLoad) -> BufferLoad:
        return BufferLoad(self.buffers.get(id(node.buffer), node.buffer), self(node.indices))

    def rewrite_BufferStore(self, node: BufferStore) -> BufferStore:
        return BufferStore(self.buffers.get(id(node.buffer), node.buffer), self(node.value), self(node.indices))

    def rewrite_BufferRegion(self, node: BufferRegion) -> BufferRegion:
        return BufferRegion(self.buffers.get(id(node.buffer), node.buffer), self(node.region))


def partition(
    func: PrimFunc, loops: Sequence[Var], points: Sequence[ExprLike]
) -> tuple[PrimFunc, list[list[Var]], list[str]]:
    """The whole function once for each part ``[0, p0), [p0, p1), … [pn, extent)`` of one loop of each of its nests.

    ``loops`` names that loop in every top-level nest; all have the same extent and index the same axis of the data, so
    the parts are independent. Each part has its own intermediate buffers; its blocks carry the suffix returned.
    Returns the function, the loops of each part, and the suffixes.
    """
    root = root_of(func)
    chosen = [find_loop(func, v) for v in loops]
    extent = chosen[0].extent
    bounds = [IntImm(0), *(as_expr(p) for p in points), extent]
    parts: list[Stmt] = []
    all_loops: list[list[Var]] = []
    suffixes: list[str] = []
    allocs: list[Buffer] = []
    for i, (low, high) in enumerate(pairwise(bounds)):
        suffix = f"_p{i}"
        buffers = {id(b): replace(b, name=f"{b.name}{suffix}") for b in root.block.alloc_buffers}
        copier = _Fresh(buffers, suffix)
        body = copier(root.block.body)
        new_loops = [copier.vars[id(v)] for v in loops]
        parts.append(_narrow(body, new_loops, low, high))
        all_loops.append(new_loops)
        suffixes.append(suffix)
        allocs.extend(buffers.values())
    func = with_allocs(func, tuple(allocs), root.block.alloc_buffers)
    root = root_of(func)
    return replace_stmts(func, {root.block.body: seq(*parts)}), all_loops, suffixes


def _narrow(body: Stmt, loops: Sequence[Var], low: PrimExpr, high: PrimExpr) -> Stmt:
    ids = {id(v) for v in loops}

    class Narrow(Rewriter):
        def rewrite_For(self, node: For) -> For:
            if id(node.var) not in ids:
                return replace(node, body=self(node.body))
            analyzer = Analyzer()
            extent = analyzer.simplify(high - low)
            analyzer.bind(node.var, extent)
            inner = substitute(node.body, {node.var: node.var + low}) if not _is_zero(low) else node.body
            return replace(node, extent=extent, body=inner)

    return Narrow()(body)


def _is_zero(expr: PrimExpr) -> bool:
    return isinstance(expr, IntImm) and expr.value == 0


def merge(func: PrimFunc, loops: Sequence[Var]) -> tuple[PrimFunc, Var]:
    """Sibling loops of equal extent, one directly after the other, into one loop that runs their bodies in order.

    The caller answers for the bodies being independent from one iteration to the next (parallel loops are).
    """
    members = [find_loop(func, v) for v in loops]
    parent = next((p[-1] for p in paths(func.body) if _has_children(p[-1], members)), None)
    if parent is None:
        raise ScheduleError("merge: the loops are not neighbours in one sequence")
    first = members[0]
    analyzer = Analyzer()
    for other in members[1:]:
        if not analyzer.prove_equal(other.extent, first.extent):
            raise ScheduleError(f"merge: extents of {first.var.name!r} and {other.var.name!r} differ")
    bodies = [substitute(m.body, {m.var: first.var}) for m in members]
    merged = replace(first, body=seq(*bodies))
    changes: dict[Stmt, Stmt | None] = {m: None for m in members[1:]}
    changes[first] = merged
    return replace_stmts(func, changes), first.var


def _has_children(stmt: Stmt, members: Sequence[For]) -> bool:
    return isinstance(stmt, SeqStmt) and all(any(s is m for s in sub_statements(stmt)) for m in members)


def serial_loop(var: Var, extent: PrimExpr, body: Stmt) -> For:
    return For(var, extent, body, SERIAL)

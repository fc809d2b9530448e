"""partition: specialize a function's body for parts of an axis; merge: fuse sibling loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from ...ir.expr import BinaryOp, ExprLike, IntImm, PrimExpr, Var, as_expr, cast, const
from ...ir.simplify import Analyzer
from ...ir.visitor import Rewriter, substitute, walk
from ..nodes import (
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
from .access import accesses_in
from .affine import equal, is_one
from .dependence import conflicts, own_conflicts
from .tree import ScheduleError, find_loop, parent_of, replace_stmts, root_of, sub_statements, with_allocs


class FreshCopy(Rewriter):
    """Copies statements with fresh loop variables, block variables, intermediate buffers and block names."""

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
) -> tuple[PrimFunc, tuple[list[list[Var]], list[str]]]:
    """Copy the function's loop nests for each part ``[0, p0), [p0, p1), … [pn, extent)`` of one loop of each nest.

    ``loops``: that loop in each top-level nest, from the first nest that has it; earlier nests stay as they
    are. The loops must have equal extents, and the parts must be independent. Each part has block names and
    intermediate buffers of its own, except for buffers that earlier nests use. Returns the function, the loops of each
    part, and the suffixes of the parts' block names.
    """
    root = root_of(func)
    chosen = [find_loop(func, v) for v in loops]
    dtype = chosen[0].var.dtype
    bounds = [const(0, dtype), *(cast(dtype, as_expr(p, like=dtype)) for p in points), chosen[0].extent]
    before, nests = _divided(root.block.body, chosen)
    _check_parts(nests, chosen, bounds)
    common = {id(a.buffer) for nest in before for a in accesses_in(nest)}
    own = [b for b in root.block.alloc_buffers if id(b) not in common]
    parts: list[Stmt] = [*before]
    all_loops: list[list[Var]] = []
    suffixes: list[str] = []
    allocs: list[Buffer] = []
    for i, (low, high) in enumerate(pairwise(bounds)):
        suffix = f"_p{i}"
        buffers = {id(b): replace(b, name=f"{b.name}{suffix}") for b in own}
        copier = FreshCopy(buffers, suffix)
        body = copier(seq(*nests))
        new_loops = [copier.vars[id(v)] for v in loops]
        parts.append(_narrow(body, new_loops, low, high))
        all_loops.append(new_loops)
        suffixes.append(suffix)
        allocs.extend(buffers.values())
    func = with_allocs(func, tuple(allocs), tuple(own))
    root = root_of(func)
    return replace_stmts(func, {root.block.body: seq(*parts)}), (all_loops, suffixes)


def _divided(body: Stmt, chosen: Sequence[For]) -> tuple[Sequence[Stmt], Sequence[Stmt]]:
    """The top-level nests before the first one that contains one of the loops, and the rest."""
    nests = body.stmts if isinstance(body, SeqStmt) else (body,)
    first = next(i for i, nest in enumerate(nests) if any(n is c for n in walk(nest) for c in chosen))
    return nests[:first], nests[first:]


def _check_parts(nests: Sequence[Stmt], chosen: Sequence[For], bounds: Sequence[PrimExpr]) -> None:
    analyzer = Analyzer()
    names = ", ".join(repr(c.var.name) for c in chosen)
    for other in chosen[1:]:
        _check_same_range("partition", chosen[0], other)
    for low, high in pairwise(bounds):
        if not (analyzer.prove(low <= high) or _is_finer(low, high)):
            raise ScheduleError(f"partition: points of {names} do not ascend from 0 to the extent")
        if analyzer.prove(low >= high):
            raise ScheduleError(f"partition: a part of {names} is empty")
    for nest in nests:
        if sum(any(n is c for c in chosen) for n in walk(nest)) != 1:
            raise ScheduleError(f"partition: {names} are not one loop of each top-level nest")
    unified = _Rename({c.var: chosen[0].var for c in chosen})(seq(*nests))
    for conflict in own_conflicts(accesses_in(unified), ()):
        if id(chosen[0].var) not in conflict.equal:
            raise ScheduleError(f"partition: parts of {names} depend on each other: {conflict} ({conflict.kind})")


def _check_same_range(step: str, a: For, b: For) -> None:
    if a.var.dtype != b.var.dtype or not equal(a.extent, b.extent, Analyzer()):
        raise ScheduleError(f"{step}: extents of {a.var.name!r} and {b.var.name!r} differ")


def _is_finer(low: PrimExpr, high: PrimExpr) -> bool:
    """Whether both round one value down, ``high`` to a divisor of the step of ``low``: n // 12 * 12 <= n // 4 * 4."""
    a, b = _rounded(low), _rounded(high)
    return a is not None and b is not None and a[0] is b[0] and a[1] % b[1] == 0


def _rounded(expr: PrimExpr) -> tuple[PrimExpr, int] | None:
    if not (isinstance(expr, BinaryOp) and expr.op == "*" and isinstance(expr.b, IntImm)):
        return None
    inner, step = expr.a, expr.b.value
    if not (isinstance(inner, BinaryOp) and inner.op == "//" and isinstance(inner.b, IntImm)):
        return None
    return (inner.a, step) if inner.b.value == step > 0 else None


class _Rename(Rewriter):
    """Replaces variables in uses and definitions."""

    def __init__(self, names: Mapping[Var, Var]):
        self.names = {id(k): v for k, v in names.items()}

    def rewrite_Var(self, node: Var) -> Var:
        return self.names.get(id(node), node)


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


# -- merge --------------------------------------------------------------------------------------------------------


def merge(func: PrimFunc, loops: Sequence[Var]) -> tuple[PrimFunc, Var]:
    """Merge adjacent sibling loops of equal extent into one loop that runs their bodies in order."""
    if len({id(v) for v in loops}) != len(loops) or len(loops) < 2:
        raise ScheduleError(f"merge: got {[v.name for v in loops]}; expected two or more different loops")
    members = [find_loop(func, v) for v in loops]
    path = parent_of(func, members[0])
    siblings = list(sub_statements(path[-1]))
    positions = [next((i for i, s in enumerate(siblings) if s is m), -1) for m in members]
    if positions != list(range(positions[0], positions[0] + len(members))):
        raise ScheduleError("merge: the loops are not neighbours in one sequence, in this order")
    first = members[0]
    _check_alike(members)
    renamed = [_Rename({m.var: first.var})(m) for m in members]
    for i, later in enumerate(renamed):
        for earlier in renamed[:i]:
            for conflict in conflicts(accesses_in(earlier), accesses_in(later), path):
                if id(first.var) not in conflict.equal and not is_one(first.extent):
                    raise ScheduleError(f"merge: the loops depend on each other: {conflict} ({conflict.kind})")
    changes: dict[Stmt, Stmt | None] = {m: None for m in members[1:]}
    changes[first] = replace(first, body=seq(*(m.body for m in renamed)))
    return replace_stmts(func, changes), first.var


def _check_alike(members: Sequence[For]) -> None:
    first = members[0]
    for other in members[1:]:
        _check_same_range("merge", first, other)
        if other.kind != first.kind or other.thread != first.thread:
            raise ScheduleError(
                f"merge: {first.var.name!r} is {first.kind} and {other.var.name!r} is {other.kind}",
                hint="merge first, then say how the loop runs",
            )

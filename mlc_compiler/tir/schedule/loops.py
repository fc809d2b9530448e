"""Loop transformations: split, fuse, reorder, kinds, annotations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from ...ir.expr import ExprLike, IntImm, PrimExpr, Var, as_expr, cast, ceildiv, logical_and, product
from ...ir.simplify import Analyzer
from ...ir.visitor import Rewriter, nodes_of, substitute, uses
from ..nodes import (
    PARALLEL,
    SERIAL,
    THREAD,
    UNROLLED,
    VECTORIZED,
    BlockRealize,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    Stmt,
    While,
)
from ..threads import AXES, BLOCK_AXES, THREAD_AXES
from .legality import REDUCES, check_independent, check_order, check_runs
from .tree import ScheduleError, analyzer_at, depends_on_loops, find_block, find_loop, loop_path, replace_stmts


class _Guard(Rewriter):
    """Adds a condition to the outermost blocks and bare statements, and simplifies the values of block variables."""

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

    def _conditional(self, node: Stmt) -> Stmt:
        return node if self.condition is None else IfThenElse(self.condition, node)

    def rewrite_BufferStore(self, node: BufferStore) -> Stmt:
        return self._conditional(node)

    def rewrite_Evaluate(self, node: Evaluate) -> Stmt:
        return self._conditional(node)

    def rewrite_IfThenElse(self, node: IfThenElse) -> Stmt:
        return self._conditional(node)

    def rewrite_LetStmt(self, node: LetStmt) -> Stmt:
        return self._conditional(node)

    def rewrite_While(self, node: While) -> Stmt:
        return self._conditional(node)


# -- split --------------------------------------------------------------------------------------------------------


def split(func: PrimFunc, var: Var, factors: Sequence[ExprLike | None]) -> tuple[PrimFunc, list[Var]]:
    """Split a loop into nested loops; one factor may be None. A predicate guards iterations beyond the extent."""
    path = loop_path(func, var)
    loop = find_loop(func, var)
    known = _checked_factors(func, loop, factors)
    analyzer = analyzer_at(path)
    inferred = analyzer.simplify(ceildiv(loop.extent, product((f for f in known if f is not None), var.dtype)))
    extents = [inferred if f is None else f for f in known]
    new_vars = [Var(f"{var.name}_{i}", var.dtype) for i in range(len(extents))]
    value: PrimExpr = IntImm(0, var.dtype)
    for v, e in zip(new_vars, extents, strict=True):
        value = value * e + v
        analyzer.bind(v, e)
    if not analyzer.prove(product(extents, var.dtype) >= loop.extent):
        raise ScheduleError(f"split of {var.name!r}: factors {_shown(factors)} do not cover the extent")
    exact = analyzer.prove(value < loop.extent)
    body = substitute(loop.body, {var: value})
    body = _Guard(None if exact else value < loop.extent, analyzer)(body)
    inner_kind = UNROLLED if loop.kind == UNROLLED else SERIAL
    for v, e in zip(reversed(new_vars), reversed(extents), strict=True):
        body = For(v, e, body, inner_kind)
    outer = replace(body, kind=loop.kind, annotations=loop.annotations)
    return replace_stmts(func, {loop: outer}), new_vars


def _shown(factors: Sequence[ExprLike | None]) -> str:
    return str([getattr(f, "value", f) for f in factors])


def _checked_factors(func: PrimFunc, loop: For, factors: Sequence[ExprLike | None]) -> list[PrimExpr | None]:
    name, given, dtype = loop.var.name, _shown(factors), loop.var.dtype
    if loop.kind in (VECTORIZED, THREAD):
        raise ScheduleError(f"split of {name!r}: the loop is {loop.kind} already; split first")
    check_runs("split", loop)
    if not factors or sum(f is None for f in factors) > 1:
        raise ScheduleError(f"split of {name!r}: got factors {given}; expected one or more, of which one may be None")
    analyzer = Analyzer(least=1)
    known: list[PrimExpr | None] = []
    for f in factors:
        expr = None if f is None else cast(dtype, as_expr(f, like=dtype))
        if expr is not None and depends_on_loops(expr, func):
            raise ScheduleError(f"split of {name!r}: a factor is no constant and no size of the function")
        if expr is not None and not analyzer.prove(expr > 0):
            raise ScheduleError(f"split of {name!r}: got factors {given}; expected positive ones")
        known.append(expr)
    return known


# -- fuse and reorder ---------------------------------------------------------------------------------------------


def _chosen(func: PrimFunc, loops: Sequence[Var], step: str) -> list[For]:
    if not loops or len({id(v) for v in loops}) != len(loops):
        raise ScheduleError(f"{step}: got {[v.name for v in loops]}; expected one or more different loops")
    return [find_loop(func, v) for v in loops]


def fuse(func: PrimFunc, loops: Sequence[Var]) -> tuple[PrimFunc, Var]:
    """Fuse directly nested loops into one."""
    chain = _chosen(func, loops, "fuse")
    _check_fusible(chain)
    if len(chain) == 1:
        return func, loops[0]
    dtype = loops[0].dtype
    fused = Var("_".join(v.name for v in loops) + "_fused", dtype)
    analyzer = analyzer_at(loop_path(func, loops[0])[:-1])
    extent = analyzer.simplify(product((cast(dtype, c.extent) for c in chain), dtype))
    analyzer.bind(fused, extent)
    mapping: dict[Var, PrimExpr] = {}
    rest: PrimExpr = fused
    for loop in reversed(chain[1:]):
        mapping[loop.var] = cast(loop.var.dtype, analyzer.simplify(rest % loop.extent))
        rest = analyzer.simplify(rest // loop.extent)
    mapping[chain[0].var] = rest
    body = _Guard(None, analyzer)(substitute(chain[-1].body, mapping))
    annotations = {k: v for loop in chain for k, v in loop.annotations.items()}
    return replace_stmts(func, {chain[0]: For(fused, extent, body, chain[0].kind, None, annotations)}), fused


def _check_fusible(chain: Sequence[For]) -> None:
    for loop in chain:
        check_runs("fuse", loop)
    for outer, inner in pairwise(chain):
        if outer.body is not inner:
            raise ScheduleError(f"fuse: {inner.var.name!r} is not the only statement inside {outer.var.name!r}")
        if inner.kind != outer.kind or THREAD in (inner.kind, outer.kind):
            raise ScheduleError(
                f"fuse: {outer.var.name!r} is {outer.kind} and {inner.var.name!r} is {inner.kind}",
                hint="fuse first, then say how the loop runs",
            )
    for i, inner in enumerate(chain):
        for outer in chain[:i]:
            if uses(inner.extent, outer.var):
                raise ScheduleError(f"fuse: the extent of {inner.var.name!r} depends on {outer.var.name!r}")


def reorder(func: PrimFunc, order: Sequence[Var]) -> PrimFunc:
    """Reorder loops of one perfect nest; other loops between them keep their positions."""
    _chosen(func, order, "reorder")
    moved = {id(v) for v in order}
    deepest = max((loop_path(func, v) for v in order), key=len)
    start = next(i for i, s in enumerate(deepest) if isinstance(s, For) and id(s.var) in moved)
    chain = _perfect_nest(deepest[start:])
    found = {id(s.var) for s in chain}
    missing = [v.name for v in order if id(v) not in found]
    if missing:
        raise ScheduleError(f"reorder: {', '.join(missing)} not in the same nest as the others")
    queue = [find_loop(func, v) for v in order]
    placed = [queue.pop(0) if id(loop.var) in moved else loop for loop in chain]
    for i, loop in enumerate(placed):
        for later in placed[i:]:
            if uses(loop.extent, later.var):
                raise ScheduleError(f"reorder: the extent of {loop.var.name!r} depends on {later.var.name!r}")
    check_order(func, deepest[:start], chain, placed)
    body: Stmt = chain[-1].body
    for source in reversed(placed):
        body = replace(source, body=body)
    return replace_stmts(func, {chain[0]: body})


def _perfect_nest(stmts: Sequence[Stmt]) -> list[For]:
    chain: list[For] = []
    for stmt in stmts:
        if not isinstance(stmt, For) or (chain and chain[-1].body is not stmt):
            raise ScheduleError(f"reorder: loop {chain[-1].var.name!r} holds more than one loop: no perfect nest")
        chain.append(stmt)
    return chain


# -- loop kinds and annotations -----------------------------------------------------------------------------------


def set_kind(func: PrimFunc, var: Var, kind: str, thread: str | None = None) -> PrimFunc:
    """Mark a loop parallel, vectorized, unrolled or bound to a GPU index (``blockIdx``, ``threadIdx``, ``vthread``)."""
    loop = find_loop(func, var)
    if kind == VECTORIZED:
        _check_vector(func, loop)
    if kind == THREAD:
        _check_thread(loop, thread)
        _check_same_threads(func, loop, thread)
    annotations = dict(loop.annotations)
    if kind in (PARALLEL, VECTORIZED, THREAD) and check_independent(func, var, kind, thread):
        annotations[REDUCES] = True
    return replace_stmts(func, {loop: replace(loop, kind=kind, thread=thread, annotations=annotations)})


def _check_vector(func: PrimFunc, loop: For) -> None:
    name = loop.var.name
    if not isinstance(loop.extent, IntImm):
        raise ScheduleError(f"vectorize: the extent of {name!r} is not a constant", hint="split it by the SIMD width")
    around = [s for s in loop_path(func, loop.var)[:-1] if isinstance(s, For)]
    inside = nodes_of(loop.body, For)
    for other in (*around, *inside):
        if other.kind == VECTORIZED:
            raise ScheduleError(f"vectorize: {other.var.name!r}, around or inside {name!r}, is vectorized already")
    for other in inside:
        if other.kind in (PARALLEL, THREAD):
            raise ScheduleError(f"vectorize: loop {other.var.name!r} inside {name!r} is {other.kind}")
        if uses(other.extent, loop.var):
            raise ScheduleError(f"vectorize: the extent of {other.var.name!r} depends on {name!r}")


def _check_thread(loop: For, thread: str | None) -> None:
    if thread not in AXES:
        raise ScheduleError(f"bind: got thread {thread!r}; expected one of {', '.join(AXES)}")
    if thread not in BLOCK_AXES and not isinstance(loop.extent, IntImm):
        name = loop.var.name
        raise ScheduleError(f"bind: the extent of {name!r} is not a constant", hint=f"split it to bind it to {thread}")


def _check_same_threads(func: PrimFunc, loop: For, thread: str | None) -> None:
    """Reject a loop over ``thread`` inside another one that depends on it: both loops are the same threads."""
    if thread not in (*BLOCK_AXES, *THREAD_AXES):
        return
    around = [(s, loop) for s in loop_path(func, loop.var)[:-1] if isinstance(s, For) and s.thread == thread]
    inside = [(loop, n) for n in nodes_of(loop.body, For) if n.thread == thread]
    for outer, inner in (*around, *inside):
        if uses(inner.body, outer.var):
            raise ScheduleError(
                f"bind: loop {inner.var.name!r} inside {outer.var.name!r} is bound to {thread}, too, and depends on "
                f"{outer.var.name!r}",
                hint="bind the outer loop first, then use compute_at: it computes what all threads of the block read",
            )


def annotate(func: PrimFunc, target: Var | str, key: str, value: Any) -> PrimFunc:
    """Set an annotation of a loop or a block; the value must be JSON data."""
    if not _is_data(value):
        raise ScheduleError(f"annotate: got {value!r}; expected numbers, strings, lists and dicts of them")
    if isinstance(target, Var):
        loop = find_loop(func, target)
        return replace_stmts(func, {loop: replace(loop, annotations={**loop.annotations, key: value})})
    realize = find_block(func, target)
    block = replace(realize.block, annotations={**realize.block.annotations, key: value})
    return replace_stmts(func, {realize: replace(realize, block=block)})


def _is_data(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_data, value))
    if isinstance(value, dict):
        return all(isinstance(k, str) and _is_data(v) for k, v in value.items())
    return isinstance(value, str | int | float | bool | None)


def unannotate(func: PrimFunc, target: Var | str, key: str) -> PrimFunc:
    """Remove an annotation. Raises ScheduleError when the loop or block has no annotation ``key``."""
    node = find_loop(func, target) if isinstance(target, Var) else find_block(func, target).block
    if key not in node.annotations:
        raise ScheduleError(f"unannotate: there is no {key!r}; got {', '.join(node.annotations) or 'no annotation'}")
    kept = {k: v for k, v in node.annotations.items() if k != key}
    if isinstance(node, For):
        return replace_stmts(func, {node: replace(node, annotations=kept)})
    realize = find_block(func, node.name)
    return replace_stmts(func, {realize: replace(realize, block=replace(node, annotations=kept))})

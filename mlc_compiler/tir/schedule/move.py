"""Shared state and helpers of compute_at and reverse_compute_at: paths of block and loop, and the new nest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...ir.expr import PrimExpr, Var, cast, logical_and
from ...ir.simplify import Analyzer
from ..nodes import BlockRealize, For, IterVar, PrimFunc, SeqStmt, Stmt, loop_nest
from .access import Access, accesses_in
from .affine import Bounds, clip, interval, is_one
from .blocks import block_nest
from .legality import all_accesses
from .tree import ScheduleError, analyzer_at, block_path, loop_path, replace_stmts, true

Domain = dict[Var, Bounds]


@dataclass
class Move:
    """A block and the loop to move it under.

    path: from the root to the loop. shared: loops around both; own: loops around the block only; chain: the loops down
    to the target loop, inclusive, that are not around the block. found: all accesses of the function.
    """

    step: str
    func: PrimFunc
    realize: BlockRealize
    loop: For
    path: tuple[Stmt, ...]
    shared: tuple[For, ...]
    own: tuple[For, ...]
    chain: tuple[For, ...]
    found: list[Access]

    @classmethod
    def of(cls, step: str, func: PrimFunc, name: str, var: Var) -> Move:
        block, target = block_path(func, name), loop_path(func, var)
        count = len(_common(block, target))
        apart = (*block[count:-1], *target[count:])
        if count == len(target):
            raise ScheduleError(f"{step}: block {name!r} is inside loop {var.name!r} already")
        if any(isinstance(s, BlockRealize) for s in apart):
            raise ScheduleError(f"{step}: block {name!r} and loop {var.name!r} are inside different blocks")
        if any(not isinstance(s, For | SeqStmt) for s in apart):
            raise ScheduleError(f"{step}: a condition lies between block {name!r} and loop {var.name!r}")
        scope = max(i for i, s in enumerate(block[:count]) if isinstance(s, BlockRealize))
        realize, loop = block[-1], target[-1]
        assert isinstance(realize, BlockRealize) and isinstance(loop, For)
        shared, own, chain = _loops(block[scope:count]), _loops(block[count:]), _loops(target[count:])
        return cls(step, func, realize, loop, target, shared, own, chain, all_accesses(func))

    @property
    def name(self) -> str:
        return self.realize.block.name

    def error(self, why: str) -> ScheduleError:
        return ScheduleError(f"{self.step}: {why}")

    def analyzer(self) -> Analyzer:
        """An analyzer with the ranges of the variables along the path and of the block's own loops."""
        analyzer = analyzer_at(self.path)
        for loop in self.own:
            analyzer.bind(loop.var, loop.extent)
        return analyzer

    def target_accesses(self) -> list[Access]:
        """The accesses in the target loop's body, as functions of the loops inside it."""
        return accesses_in(self.loop.body)

    def block_accesses(self) -> list[Access]:
        """The accesses in the block's body, as functions of the block's variables."""
        return accesses_in(self.realize.block.body)

    def iter_var(self, index: PrimExpr) -> IterVar | None:
        """The block variable that is ``index`` itself, or None."""
        return next((it for it in self.realize.block.iter_vars if it.var is index), None)

    def clipped(self, bounds: Bounds, it: IterVar, analyzer: Analyzer) -> Bounds:
        """Clip ``bounds`` to the block's iteration space. Raises ScheduleError for only a part of a reduction."""
        low, high = clip(bounds, it.extent - 1, analyzer)
        if it.kind == "R" and not (analyzer.prove(low <= 0) and analyzer.prove(high >= it.extent - 1)):
            around = ", ".join(repr(lp.var.name) for lp in self.shared)
            raise self.error(f"one iteration of {around} runs only part of the reduction {it.var.name!r}")
        return low, high

    def over_chain(self, bounds: Bounds, analyzer: Analyzer) -> Bounds | None:
        """The hull of an interval over the iterations of ``chain``."""
        inner = {lp.var: lp.extent for lp in self.chain}
        low, high = interval(bounds[0], inner, analyzer), interval(bounds[1], inner, analyzer)
        return None if low is None or high is None else (low[0], high[1])

    def place(self, body: Stmt) -> PrimFunc:
        """The function with the block's old nest removed and the target loop's body replaced."""
        nest = block_nest(self.func, self.name)
        func = replace_stmts(self.func, {self.loop: replace(self.loop, body=body)})
        return replace_stmts(func, {nest: None})

    def new_nest(self, domain: Domain, limits: Domain, analyzer: Analyzer) -> Stmt:
        """Loops that run the block over ``domain``, guarded to stay within ``limits``."""
        values: list[PrimExpr] = []
        loops: list[tuple[Var, PrimExpr]] = []
        guards: list[PrimExpr] = []
        for it in self.realize.block.iter_vars:
            value, last = (cast(it.var.dtype, bound) for bound in domain[it.var])
            extent = analyzer.simplify(last - value + 1)
            if not is_one(extent):
                loop = Var(f"ax{len(loops)}", it.var.dtype)
                analyzer.bind(loop, extent)
                loops.append((loop, extent))
                value = analyzer.simplify(value + loop)
            values.append(value)
            guards += _guards(value, limits[it.var], it.extent, analyzer)
        predicate = logical_and(true(), *guards)
        return loop_nest(loops, replace(self.realize, iter_values=tuple(values), predicate=predicate))


def _common(a: Sequence[Stmt], b: Sequence[Stmt]) -> list[Stmt]:
    same: list[Stmt] = []
    for x, y in zip(a, b, strict=False):
        if x is not y:
            break
        same.append(x)
    return same


def _loops(path: Sequence[Stmt]) -> tuple[For, ...]:
    return tuple(s for s in path if isinstance(s, For))


def _guards(value: PrimExpr, limits: Bounds, extent: PrimExpr, analyzer: Analyzer) -> list[PrimExpr]:
    low, end = limits[0], analyzer.simplify(limits[1] + 1)
    guards = [value >= low, value < end]
    if not analyzer.prove(end <= extent):
        guards.append(value < extent)
    return [g for g in guards if not analyzer.prove(g)]

"""Matmuls in which each row uses the weight of its expert: consecutive rows of one expert are multiplied together.

Tiles of columns run in parallel; each thread goes through the runs of rows of the same expert, so that the weights of a
tile are in its caches from the first row of a run to the last, and those of experts without rows are not read.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.expr import IntImm, PrimExpr, Var, const, minimum
from ....ir.visitor import Rewriter, substitute, walk
from ....passes.lower_blocks import Simplify
from ....schedules.experts import ExpertMatmulBlock
from ....schedules.rule import accumulate_locally
from ....script import expand
from ....script.scope import Macro
from ....tir.index_map import IndexMap
from ....tir.nodes import PARALLEL, Allocate, Buffer, BufferLoad, BufferStore, For, PrimFunc, Stmt, buffer
from ....tir.schedule import Schedule, ScheduleError
from .expert_loops import multiply_runs


@dataclass(eq=False)
class Runs:
    """Operands and expressions of the macros in ``expert_loops.py``: elements of a matmul, by row and column.

    func: the function, its weights stored in tiles of ``tile_columns`` columns. tile: index of a tile; its columns are
    counted from 0. run: first row, number of rows (at most ``max_rows``; 0: no limit) and expert of a run.
    """

    func: PrimFunc
    matched: ExpertMatmulBlock
    tile_columns: int
    max_rows: int

    def __post_init__(self) -> None:
        self.tile, self.expert, name = Var("tile"), Var("expert"), self.matched.block.name
        s = Schedule(self.matched.of_one(self.func, self.expert))
        names = s.get_blocks()
        for producer in names[: names.index(name)]:
            s.compute_inline(producer)
        for weight, axis in self._weights(s, name):
            s.transform_layout(name, weight, _tiled(axis, self.tile_columns))
        last = accumulate_locally(s, name, names[names.index(name) + 1 :])
        self.func, self.matmul, self.last = s.func, s.block(name), s.block(last)
        self.rows = self.matmul.iter_vars[0].extent
        self.columns, self.depth = (int(size.value) for size in self.matched.weight.shape[1:])  # type: ignore[attr-defined]
        self.run = buffer("run", (3,), "int64", "local")
        self.out = self._store().buffer

    def _weights(self, s: Schedule, name: str) -> list[tuple[str, int]]:
        """The parameters that the matmul reads by expert and column, with the axis of the columns."""
        block, column = s.block(name), s.block(name).iter_vars[1].var
        loads = [n for n in walk(block.body) if isinstance(n, BufferLoad) and len(n.indices) == 3]
        found = {n.buffer.name: (n.indices[0], [i is column for i in n.indices]) for n in loads}
        return [(b, at.index(True)) for b, (expert, at) in found.items() if expert is self.expert and any(at)]

    def nest(self, multiply: Macro) -> Stmt:
        """The loop over tiles of columns."""
        body = Allocate(self.run, expand(multiply_runs, self, multiply))
        tiles = IntImm(-(-self.columns // self.tile_columns))
        nest: Stmt = Simplify()(For(self.tile, tiles, body, PARALLEL))
        return nest

    def expert_of(self, row: PrimExpr) -> PrimExpr:
        return self.matched.expert_of(minimum(row, self.rows - 1))

    def longest(self, first: PrimExpr) -> PrimExpr:
        """The greatest number of rows of a run."""
        return minimum(self.rows - first, self.max_rows) if self.max_rows else self.rows - first

    def column(self, c: PrimExpr) -> PrimExpr:
        return self.tile * self.tile_columns + c

    # -- results

    def _store(self) -> BufferStore:
        store, own = self.last.body, [it.var for it in self.last.iter_vars]
        sums = self.matmul.writes[0].buffer
        if not isinstance(store, BufferStore) or self.last.is_reduction or len(own) != 2:
            raise ScheduleError(f"block {self.last.name!r} does not compute one result of a row and a column")
        for load in (n for n in walk(store.value) if isinstance(n, BufferLoad) and n.buffer is sums):
            if any(i is not v for i, v in zip(load.indices, own, strict=True)):
                raise ScheduleError(f"block {self.last.name!r} reads {sums.name!r} elsewhere than where it writes")
        return store

    def _at(self, row: PrimExpr, c: PrimExpr) -> dict[Var, PrimExpr]:
        r, n = (it.var for it in self.last.iter_vars)
        return {r: row, n: self.column(c)}

    def is_column(self, c: PrimExpr) -> PrimExpr:
        return self.column(c) < self.columns if self.columns % self.tile_columns else const(1, "bool")

    def place(self, row: PrimExpr, c: PrimExpr) -> tuple[PrimExpr, ...]:
        indices: tuple[PrimExpr, ...] = substitute(self._store().indices, self._at(row, c))
        return indices

    def value(self, row: PrimExpr, c: PrimExpr, total: PrimExpr) -> PrimExpr:
        of_total = _WithSum(self.matmul.writes[0].buffer, total)(self._store().value)
        value: PrimExpr = substitute(of_total, self._at(row, c))
        return value


class _WithSum(Rewriter):
    """Replaces the loads of a buffer by a value."""

    def __init__(self, sums: Buffer, value: PrimExpr):
        self.sums, self.value = sums, value

    def rewrite_BufferLoad(self, node: BufferLoad) -> PrimExpr:
        return self.value if node.buffer is self.sums else self.rewrite_children(node)


def _tiled(axis: int, factor: int) -> IndexMap:
    """The layout [E, tiles, K, factor] of expert weights, whose columns are on axis 1 or 2."""
    if axis == 1:
        return IndexMap.from_func(lambda e, n, k: (e, n // factor, k, n % factor))
    return IndexMap.from_func(lambda e, k, n: (e, n // factor, k, n % factor))

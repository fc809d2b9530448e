"""Replace loops that compute what one hardware instruction computes by that instruction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...ir.expr import Call, IntImm, PrimExpr, Var, const
from ...ir.simplify import Analyzer, key
from ...ir.visitor import field_names, substitute, uses
from ..intrinsics import TensorIntrin
from ..nodes import Block, BlockRealize, Buffer, BufferLoad, BufferStore, Evaluate, For, PrimFunc, Stmt
from ..regions import span
from .blocks import with_accumulator_read
from .tree import ScheduleError, analyzer_at, find_loop, loop_path, replace_stmts, root_of, single_store


@dataclass
class _Nest:
    """Loops directly inside each other around one block of one store, the store in terms of the loop variables."""

    loops: list[For]
    realize: BlockRealize
    store: BufferStore


def tensorize(func: PrimFunc, var: Var, row: TensorIntrin) -> PrimFunc:
    """The nest from loop ``var`` inwards becomes the instruction ``row``.

    Both must be the same loops (extents in order) over the same expression, every buffer accessed with the operand's
    strides. A predicate may guard the instruction as a whole. A reduction must have been decomposed: the instruction
    only updates.
    """
    loop = find_loop(func, var)
    nest = _nest_of(loop)
    if nest.realize.block.init is not None:
        raise ScheduleError(
            f"tensorize: block {nest.realize.block.name!r} still initialises; use decompose_reduction first"
        )
    wanted = _nest_of(root_of(row.function).block.body)
    matcher = _Matcher(row, nest, wanted, analyzer_at(loop_path(func, var)))
    pointers = matcher.match()
    call = Evaluate(Call(f"intrinsic.{row.name}", tuple(pointers), "handle"))
    block = replace(nest.realize.block, iter_vars=(), body=call)
    reads, writes = _regions(nest, matcher)
    block = Block(block.name, (), reads, writes, call, None, (), {**block.annotations, "tensorized": row.name})
    return replace_stmts(func, {loop: BlockRealize((), nest.realize.predicate, block)})


def _regions(nest: _Nest, matcher: _Matcher) -> tuple[tuple, tuple]:
    binding = matcher.binding
    block = with_accumulator_read(nest.realize.block) if _accumulates(nest.store) else nest.realize.block
    zero: dict[Var, PrimExpr] = {lp.var: IntImm(0) for lp in nest.loops}

    def at(regions: Sequence) -> tuple:
        return tuple(substitute(substitute(r, binding), zero) for r in regions)

    return at(block.reads), at(block.writes)


def _accumulates(store: BufferStore) -> bool:
    return any(isinstance(n, BufferLoad) and n.buffer is store.buffer for n in (getattr(store.value, "a", None),))


def _nest_of(stmt: Stmt) -> _Nest:
    loops: list[For] = []
    while isinstance(stmt, For):
        loops.append(stmt)
        stmt = stmt.body
    if not isinstance(stmt, BlockRealize):
        raise ScheduleError("tensorize: the loop holds more than one nest around one block")
    binding = {it.var: v for it, v in zip(stmt.block.iter_vars, stmt.iter_values, strict=True)}
    store = substitute(single_store(stmt.block), binding)
    return _Nest(loops, stmt, store)


class _Matcher:
    def __init__(self, row: TensorIntrin, nest: _Nest, wanted: _Nest, analyzer: Analyzer):
        self.row, self.nest, self.wanted, self.analyzer = row, nest, wanted, analyzer
        block = nest.realize.block
        values = nest.realize.iter_values
        self.binding = {it.var: v for it, v in zip(block.iter_vars, values, strict=True)}
        self.loop_of: dict[int, Var] = {}
        self.base: dict[int, BufferLoad] = {}
        self.extents: dict[int, tuple[PrimExpr, ...]] = {}
        self.scalars: dict[int, PrimExpr] = {}

    def fail(self, why: str) -> ScheduleError:
        return ScheduleError(f"tensorize: block {self.nest.realize.block.name!r} is not {self.row.name!r}: {why}")

    def match(self) -> list[PrimExpr]:
        """Addresses of the operands, the result first."""
        have, want = ([lp.extent for lp in n.loops] for n in (self.nest, self.wanted))
        if [key(e) for e in have] != [key(e) for e in want]:
            shown = [getattr(e, "value", "?") for e in have]
            raise self.fail(f"its loops have extents {shown}; the instruction's {[e.value for e in want]}")  # type: ignore[attr-defined]
        for mine, theirs in zip(self.nest.loops, self.wanted.loops, strict=True):
            self.loop_of[id(theirs.var)] = mine.var
            self.analyzer.bind(mine.var, mine.extent)
        if any(uses(self.nest.realize.predicate, lp.var) for lp in self.nest.loops):
            raise self.fail("its predicate depends on the loops of the instruction")
        mine_store, their_store = self.nest.store, self.wanted.store
        self._access(mine_store.buffer, mine_store.indices, their_store.buffer, their_store.indices)
        self._expr(mine_store.value, their_store.value)
        missing = [v.name for v in self.row.function.params if isinstance(v, Var) and id(v) not in self.scalars]
        if missing:
            raise self.fail(f"nothing tells its {', '.join(missing)}")
        params = list(self.row.function.buffers)
        order = [params[-1], *params[:-1]]
        addresses = [Call("address_of", (self.base[id(b)], *self.extents[id(b)]), "handle") for b in order]
        return [*addresses, *(self.scalars[id(v)] for v in self.row.function.params if isinstance(v, Var))]

    def _expr(self, mine: PrimExpr, theirs: PrimExpr) -> None:
        if isinstance(theirs, Var) and id(theirs) in self.loop_of:
            if key(self.analyzer.simplify(mine)) != key(self.loop_of[id(theirs)]):
                raise self.fail(f"{theirs.name!r} stands where the block has another index")
            return
        if isinstance(theirs, Var) and any(p is theirs for p in self.row.function.params):
            self._scalar(self.analyzer.simplify(mine), theirs)
            return
        if type(mine) is not type(theirs) or mine.dtype != theirs.dtype:
            raise self.fail(
                f"it has {type(mine).__name__} of {mine.dtype}, not {type(theirs).__name__} of {theirs.dtype}"
            )
        if isinstance(mine, BufferLoad) and isinstance(theirs, BufferLoad):
            self._access(mine.buffer, mine.indices, theirs.buffer, theirs.indices)
            return
        for name in field_names(type(theirs)):
            self._field(getattr(mine, name), getattr(theirs, name))

    def _scalar(self, mine: PrimExpr, theirs: Var) -> None:
        if any(uses(mine, lp.var) for lp in self.nest.loops):
            raise self.fail(f"its {theirs.name} varies within the instruction")
        known = self.scalars.setdefault(id(theirs), mine)
        if key(known) != key(mine):
            raise self.fail(f"it needs two values for {theirs.name}")

    def _field(self, mine: object, theirs: object) -> None:
        if isinstance(theirs, PrimExpr):
            assert isinstance(mine, PrimExpr)
            self._expr(mine, theirs)
        elif isinstance(theirs, tuple):
            for a, b in zip(mine, theirs, strict=True):  # type: ignore[call-overload]
                self._field(a, b)
        elif mine != theirs:
            raise self.fail(f"it has {mine!r}, not {theirs!r}")

    def _access(self, buffer: Buffer, indices: Sequence[PrimExpr], operand: Buffer, wanted: Sequence[PrimExpr]) -> None:
        """The access has the operand's dtype and the operand's strides in the loops of the nest."""
        if buffer.dtype != operand.dtype:
            raise self.fail(f"{buffer.name!r} is {buffer.dtype}; operand {operand.name!r} is {operand.dtype}")
        mine, theirs = self._strides(buffer, indices), self._strides(operand, wanted)
        expected = {id(self.loop_of[k]): v for k, v in theirs.items() if k in self.loop_of}
        found = {id(lp.var): mine.get(id(lp.var), 0) for lp in self.nest.loops}
        if any(found[k] != expected.get(k, 0) for k in found):
            raise self.fail(f"{buffer.name!r} is not laid out like operand {operand.name!r}")
        zero = {lp.var: const(0, lp.var.dtype) for lp in self.nest.loops}
        base = BufferLoad(buffer, tuple(self.analyzer.simplify(substitute(i, zero)) for i in indices))
        inner = {lp.var: lp.extent for lp in self.nest.loops}
        spans = [span(i, inner, self.analyzer) for i in indices]
        self.extents[id(operand)] = tuple(IntImm(1) if r is None else r.extent for r in spans)
        known = self.base.setdefault(id(operand), base)
        if key(known) != key(base):
            raise self.fail(f"operand {operand.name!r} would lie at two places")

    def _strides(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> dict[int, int]:
        flat: PrimExpr = const(0, "int64")
        for index, size in zip(indices, buffer.shape, strict=True):
            flat = flat * size + index
        form = self.analyzer.linear(flat)
        return {id(atom): coefficient for atom, coefficient in form.terms.values() if isinstance(atom, Var)}

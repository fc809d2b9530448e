"""tensorize: replace a loop nest by a hardware instruction with the same semantics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...ir.expr import Call, IntImm, PrimExpr, Var, const
from ...ir.simplify import Analyzer, key
from ...ir.visitor import field_names, substitute, uses
from ..intrinsics import TensorIntrin
from ..nodes import Block, BlockRealize, Buffer, BufferLoad, BufferStore, Evaluate, For, PrimFunc, Stmt, open_nest
from ..regions import span
from .blocks import with_accumulator_read
from .tree import ScheduleError, analyzer_at, find_loop, loop_path, replace_stmts, root_of, single_store


@dataclass
class Nest:
    """A perfect nest around a block with one store; ``store`` is expressed in the loop variables."""

    loops: list[For]
    realize: BlockRealize
    store: BufferStore


def tensorize(func: PrimFunc, var: Var, row: TensorIntrin) -> PrimFunc:
    """Replace the loop nest rooted at ``var`` by the instruction ``row``.

    The nest must have the loop extents and the expression of the instruction's semantics, and access every buffer with
    the operand's strides. A predicate may guard the instruction as a whole. A reduction must have been decomposed.
    """
    loop = find_loop(func, var)
    nest = update_nest(loop)
    pattern = nest_of(root_of(row.function).block.body)
    matcher = Matcher(row.name, row.function, nest, pattern, analyzer_at(loop_path(func, var)))
    matcher.match()
    pointers = matcher.operands()
    call = Evaluate(Call(f"intrinsic.{row.name}", tuple(pointers), "handle"))
    block = replace(nest.realize.block, iter_vars=(), body=call)
    reads, writes = _regions(nest, matcher)
    block = Block(block.name, (), reads, writes, call, None, (), {**block.annotations, "tensorized": row.name})
    return replace_stmts(func, {loop: BlockRealize((), nest.realize.predicate, block)})


def update_nest(loop: For) -> Nest:
    """The nest of a block without ``init``. Raises ScheduleError when it has one."""
    nest = nest_of(loop)
    if nest.realize.block.init is not None:
        raise ScheduleError(
            f"tensorize: block {nest.realize.block.name!r} still initialises; use decompose_reduction first"
        )
    return nest


def _regions(nest: Nest, matcher: Matcher) -> tuple[tuple, tuple]:
    binding = matcher.binding
    block = with_accumulator_read(nest.realize.block) if _accumulates(nest.store) else nest.realize.block
    zero: dict[Var, PrimExpr] = {lp.var: IntImm(0) for lp in nest.loops}

    def at(regions: Sequence) -> tuple:
        return tuple(substitute(substitute(r, binding), zero) for r in regions)

    return at(block.reads), at(block.writes)


def _accumulates(store: BufferStore) -> bool:
    return any(isinstance(n, BufferLoad) and n.buffer is store.buffer for n in (getattr(store.value, "a", None),))


def nest_of(stmt: Stmt) -> Nest:
    loops, realize = open_nest(stmt)
    if not isinstance(realize, BlockRealize):
        raise ScheduleError("tensorize: the loop holds more than one nest around one block")
    binding = {it.var: v for it, v in zip(realize.block.iter_vars, realize.iter_values, strict=True)}
    store = substitute(single_store(realize.block), binding)
    return Nest(loops, realize, store)


class Matcher:
    """Matches a loop nest against the nest of ``function``, the semantics of the instruction ``name``."""

    def __init__(self, name: str, function: PrimFunc, nest: Nest, pattern: Nest, analyzer: Analyzer):
        self.name, self.function = name, function
        self.nest, self.pattern, self.analyzer = nest, pattern, analyzer
        block = nest.realize.block
        values = nest.realize.iter_values
        self.binding = {it.var: v for it, v in zip(block.iter_vars, values, strict=True)}
        self.loop_of: dict[int, Var] = {}
        self.base: dict[int, BufferLoad] = {}
        self.extents: dict[int, tuple[PrimExpr, ...]] = {}
        self.scalars: dict[int, PrimExpr] = {}

    def fail(self, why: str) -> ScheduleError:
        return ScheduleError(f"tensorize: block {self.nest.realize.block.name!r} is not {self.name!r}: {why}")

    def match(self) -> None:
        """Match the nest and find the operands. Raises ScheduleError when it does not match."""
        found, expected = ([lp.extent for lp in n.loops] for n in (self.nest, self.pattern))
        if [key(e) for e in found] != [key(e) for e in expected]:
            shown = [getattr(e, "value", "?") for e in found]
            raise self.fail(f"its loops have extents {shown}; the instruction's {[e.value for e in expected]}")  # type: ignore[attr-defined]
        for loop, pattern_loop in zip(self.nest.loops, self.pattern.loops, strict=True):
            self.loop_of[id(pattern_loop.var)] = loop.var
            self.analyzer.bind(loop.var, loop.extent)
        if any(uses(self.nest.realize.predicate, lp.var) for lp in self.nest.loops):
            raise self.fail("its predicate depends on the loops of the instruction")
        store, pattern = self.nest.store, self.pattern.store
        self._access(store.buffer, store.indices, pattern.buffer, pattern.indices)
        self._expr(store.value, pattern.value)

    def operands(self) -> list[PrimExpr]:
        """The arguments of the instruction: addresses of the operands, the result first, then the scalars."""
        missing = [v.name for v in self.function.params if isinstance(v, Var) and id(v) not in self.scalars]
        if missing:
            raise self.fail(f"nothing tells its {', '.join(missing)}")
        params = list(self.function.buffers)
        order = [params[-1], *params[:-1]]
        addresses = [Call("address_of", (self.base[id(b)], *self.extents[id(b)]), "handle") for b in order]
        return [*addresses, *(self.scalars[id(v)] for v in self.function.params if isinstance(v, Var))]

    def _expr(self, expr: PrimExpr, pattern: PrimExpr) -> None:
        if isinstance(pattern, Var) and id(pattern) in self.loop_of:
            if key(self.analyzer.simplify(expr)) != key(self.loop_of[id(pattern)]):
                raise self.fail(f"{pattern.name!r} stands where the block has another index")
            return
        if isinstance(pattern, Var) and any(p is pattern for p in self.function.params):
            self._scalar(self.analyzer.simplify(expr), pattern)
            return
        if type(expr) is not type(pattern) or expr.dtype != pattern.dtype:
            raise self.fail(
                f"it has {type(expr).__name__} of {expr.dtype}, not {type(pattern).__name__} of {pattern.dtype}"
            )
        if isinstance(expr, BufferLoad) and isinstance(pattern, BufferLoad):
            self._access(expr.buffer, expr.indices, pattern.buffer, pattern.indices)
            return
        for name in field_names(type(pattern)):
            self._field(getattr(expr, name), getattr(pattern, name))

    def _scalar(self, value: PrimExpr, scalar: Var) -> None:
        if any(uses(value, lp.var) for lp in self.nest.loops):
            raise self.fail(f"its {scalar.name} varies within the instruction")
        known = self.scalars.setdefault(id(scalar), value)
        if key(known) != key(value):
            raise self.fail(f"it needs two values for {scalar.name}")

    def _field(self, value: object, pattern: object) -> None:
        if isinstance(pattern, PrimExpr):
            assert isinstance(value, PrimExpr)
            self._expr(value, pattern)
        elif isinstance(pattern, tuple):
            for a, b in zip(value, pattern, strict=True):  # type: ignore[call-overload]
                self._field(a, b)
        elif value != pattern:
            raise self.fail(f"it has {value!r}, not {pattern!r}")

    def _access(
        self, buffer: Buffer, indices: Sequence[PrimExpr], operand: Buffer, pattern: Sequence[PrimExpr]
    ) -> None:
        """Check that an access has the operand's dtype, and the operand's strides along the loops of the nest."""
        if buffer.dtype != operand.dtype:
            raise self.fail(f"{buffer.name!r} is {buffer.dtype}; operand {operand.name!r} is {operand.dtype}")
        strides, operand_strides = self._strides(buffer, indices), self._strides(operand, pattern)
        expected = {id(self.loop_of[k]): v for k, v in operand_strides.items() if k in self.loop_of}
        found = {id(lp.var): strides.get(id(lp.var), 0) for lp in self.nest.loops}
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

"""Dependence analysis: conflicts between accesses in different iterations, and private buffers.

Distinct parameters are assumed not to alias.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...ir.expr import BinaryOp, IntImm, PrimExpr, Var, conjuncts
from ...ir.simplify import Analyzer, key
from ...ir.visitor import nodes_of, substitute, uses
from ..nodes import BlockRealize, Buffer, BufferLoad, For, PrimFunc, Range, Stmt
from .access import Access, accesses_in
from .affine import Bounds, Equation, Extents, equal, equal_variables, interval, is_one, mentions, points
from .tree import analyzer_at


@dataclass(frozen=True)
class Conflict:
    """A pair of accesses to one buffer, at least one of them a write.

    equal: the loops (by variable) that have equal values whenever both access the same element.
    """

    first: Access
    second: Access
    equal: frozenset[int]

    @property
    def kind(self) -> str:
        if self.first.is_write and self.second.is_write:
            return "write after write"
        return "read after write" if self.first.is_write else "write after read"

    def __str__(self) -> str:
        return (
            f"{self.second.block_name!r} {'writes' if self.second.is_write else 'reads'} {self.first.buffer.name!r}, "
            f"which {self.first.block_name!r} {'writes' if self.first.is_write else 'reads'}"
        )


def common_loops(a: Access, b: Access) -> int:
    """The number of outermost loops that two accesses share."""
    count = 0
    for x, y in zip(a.loops, b.loops, strict=False):
        if x.var is not y.var:
            break
        count += 1
    return count


def bind_loops(analyzer: Analyzer, *accesses: Access) -> None:
    for access in accesses:
        for loop in access.loops:
            analyzer.bind(loop.var, loop.extent)


def meeting(a: Access, b: Access, analyzer: Analyzer, wanted: Var | None = None) -> set[int] | None:
    """The loops (by variable) that have equal values whenever ``a`` and ``b`` access the same element.

    None when they never do. Loops outside of the accesses' ``loops`` are the same for both. wanted: see
    ``equal_variables``.
    """
    bind_loops(analyzer, a, b)
    equations = [same_element(x, y) for x, y in zip(a.box, b.box, strict=True)] + _spatial_promise(a, b)
    varying = {id(lp.var): lp.var for lp in (*a.loops, *b.loops)}
    return equal_variables(equations, list(varying.values()), analyzer, wanted)


def same_element(a: Range, b: Range) -> Equation:
    low = 1 - a.extent.value if isinstance(a.extent, IntImm) else None
    high = b.extent.value - 1 if isinstance(b.extent, IntImm) else None
    return Equation(a.min, b.min, low, high)


def _spatial_promise(a: Access, b: Access) -> list[Equation]:
    """Assume that a block with data-dependent indices writes each element once per value of its spatial variables."""
    same = a.blocks and b.blocks and a.blocks[-1] is b.blocks[-1]
    if not same or not nodes_of([r.min for r in (*a.box, *b.box)], BufferLoad):
        return []
    spatial = [it.var for it in a.blocks[-1].block.iter_vars if it.kind == "S"]
    return [Equation(a.values[v], b.values[v]) for v in spatial]


def conflicts(first: Sequence[Access], second: Sequence[Access], path: Sequence[Stmt]) -> Iterator[Conflict]:
    """All pairs of accesses to a common element, at least one a write; ``path`` leads to the statement of both."""
    analyzer, others = analyzer_at(tuple(path)), _distinct(second)
    for a in _distinct(first):
        for b in others:
            yield from _conflict(a, b, analyzer)


def own_conflicts(found: Sequence[Access], path: Sequence[Stmt]) -> Iterator[Conflict]:
    """The conflicts of a statement with itself, each pair once."""
    analyzer = analyzer_at(tuple(path))
    for a, b in _pairs(found):
        yield from _conflict(a, b, analyzer)


def carried_conflicts(found: Sequence[Access], path: Sequence[Stmt], loop: Var) -> list[Conflict]:
    """The conflicts of a loop's body with itself in different iterations of the loop; ``path`` leads to the loop."""
    analyzer = analyzer_at(tuple(path))
    conflicts = (c for a, b in _pairs(found) for c in _conflict(a, b, analyzer, loop))
    return [c for c in conflicts if id(loop) not in c.equal]


def _pairs(found: Sequence[Access]) -> Iterator[tuple[Access, Access]]:
    items = _distinct(found)
    return ((a, b) for i, a in enumerate(items) for b in items[i:])


def _conflict(a: Access, b: Access, analyzer: Analyzer, wanted: Var | None = None) -> Iterator[Conflict]:
    if a.buffer is b.buffer and (a.is_write or b.is_write):
        met = meeting(a, b, analyzer, wanted)
        if met is not None:
            yield Conflict(a, b, frozenset(met))


def _distinct(found: Sequence[Access]) -> list[Access]:
    """One representative of each set of accesses that are equivalent for dependence analysis."""
    result: dict[object, Access] = {}
    for a in found:
        region = tuple((key(r.min), key(r.extent)) for r in a.box)
        block = id(a.blocks[-1]) if a.blocks else 0
        loops = tuple(id(lp.var) for lp in a.loops)
        result.setdefault((id(a.buffer), a.is_write, region, block, loops, a.update, a.is_init), a)
    return list(result.values())


# -- private buffers ----------------------------------------------------------------------------------------------


def is_private(func: PrimFunc, loop: For, path: Sequence[Stmt], buffer: Buffer) -> bool:
    """Whether a buffer is used only inside a loop, and each iteration reads only elements that it wrote before.

    Such a buffer can be allocated inside the loop. ``path`` leads to the loop.
    """
    if any(p is buffer for p in func.params):
        return False
    inside = [a for a in accesses_in(loop.body) if a.buffer is buffer]
    everywhere = sum(1 for a in accesses_in(func.body) if a.buffer is buffer)
    return len(inside) == everywhere and is_self_contained(inside, (*path, loop))


def is_self_contained(found: Sequence[Access], path: Sequence[Stmt]) -> bool:
    """Whether every read among the accesses of one buffer is covered by an earlier write."""
    for i, access in enumerate(found):
        if access.is_write or _reads_own_init(access, found):
            continue
        if not any(_covers(w, access, path) for w in found[:i] if w.is_write and w.place < access.place):
            return False
    return True


def _reads_own_init(access: Access, found: Sequence[Access]) -> bool:
    """Whether an access reads the accumulator of a reduction that runs entirely inside the statement."""
    if not access.blocks or access.is_init or access.blocks[-1].block.init is None:
        return False
    realize = access.blocks[-1]
    box = [key(r.min) for r in access.box]
    inside = {id(lp.var) for lp in access.loops}
    for it in realize.block.iter_vars:
        value = access.values[it.var]
        if it.kind == "R" and any(id(var) not in inside for var in nodes_of(value, Var)):
            return False
    return any(a.is_init and a.blocks[-1] is realize and [key(r.min) for r in a.box] == box for a in found)


def _covers(write: Access, read: Access, path: Sequence[Stmt]) -> bool:
    analyzer = analyzer_at(tuple(path))
    bind_loops(analyzer, write, read)
    shared = common_loops(write, read)
    assumed: set[object] = {key(analyzer.simplify(g)) for g in read.guards}
    written = exact_box(write, write.loops[shared:], analyzer, assumed)
    if written is None:
        return False
    inner = {lp.var: lp.extent for lp in read.loops[shared:]}
    for (low, high), r, size in zip(written, read.box, read.buffer.shape, strict=True):
        if analyzer.prove(low <= 0) and analyzer.prove(high >= size - 1):
            continue
        needed = interval(r.min, inner, analyzer)
        if needed is None or not analyzer.prove(low <= needed[0]):
            return False
        if not analyzer.prove(needed[1] + r.extent - 1 <= high):
            return False
    return True


def exact_box(
    write: Access, inner: Sequence[For], analyzer: Analyzer, assumed: set[object] | None = None
) -> list[Bounds] | None:
    """The box of elements that a write covers over its ``inner`` loops, if it writes every element of the box.

    None when the box has gaps, or gaps cannot be excluded. ``assumed``: keys of guards that are known to hold.
    """
    indices, wide = _point_indices(write, analyzer)
    loops = {lp.var: lp.extent for lp in inner if any(uses(i, lp.var) for i in indices)} | wide
    guards = [g for g in write.guards if not _is_harmless(g, write, loops, analyzer, assumed or set())]
    found = points(loops, guards, analyzer)
    if found is None:
        return None
    indices = [analyzer.simplify(substitute(i, found.mapping)) for i in indices]
    if not one_to_one(indices, found.extents, {id(v) for v in loops}, analyzer):
        return None
    boxes: list[Bounds] = []
    volume: PrimExpr = IntImm(1)
    for index in indices:
        bounds = interval(index, found.extents, analyzer)
        if bounds is None:
            return None
        boxes.append(bounds)
        volume = volume * (bounds[1] - bounds[0] + 1)
    full = equal(found.count(analyzer), analyzer.simplify(volume), analyzer)
    return boxes if full else None


def _point_indices(write: Access, analyzer: Analyzer) -> tuple[list[PrimExpr], dict[Var, PrimExpr]]:
    """The indices of a box's elements, with a fresh variable for each extent above 1."""
    wide: dict[Var, PrimExpr] = {}
    indices = []
    for r in write.box:
        if is_one(r.extent):
            indices.append(r.min)
            continue
        offset = Var("o", r.min.dtype)
        wide[offset] = r.extent
        analyzer.bind(offset, r.extent)
        indices.append(r.min + offset)
    return indices, wide


def one_to_one(values: Sequence[PrimExpr], extents: Extents, loops: set[int], analyzer: Analyzer) -> bool:
    """Whether ``values`` is an injective function of the variables; ``loops``: variables that must not occur."""
    varying = [v for v, extent in extents.items() if not is_one(extent)]
    kept = {id(v) for v in extents}
    if any(mentions(v, loops - kept) for v in values):
        return False
    same = equal_variables([Equation(v, v) for v in values], varying, analyzer)
    return same is not None and all(id(v) in same for v in varying)


def _is_harmless(guard: PrimExpr, write: Access, loops: Extents, analyzer: Analyzer, assumed: set[object]) -> bool:
    """Whether a guard only keeps indices inside the buffer, is known to hold, or only cuts off a reduction."""
    guard = analyzer.simplify(guard)
    if key(guard) in assumed or (isinstance(guard, IntImm) and guard.value):
        return True
    if not (isinstance(guard, BinaryOp) and guard.op in ("<", ">=")):
        return False
    if guard.op == ">=":
        return any(equal(guard.a, r.min, analyzer) for r in write.box) and analyzer.prove(guard.b <= 0)
    for r, size in zip(write.box, write.buffer.shape, strict=True):
        if equal(guard.a, r.min, analyzer) and analyzer.prove(size <= guard.b):
            return True
    return _bounds_reduction(guard, write, loops)


def _bounds_reduction(guard: BinaryOp, write: Access, loops: Extents) -> bool:
    """Whether the guard is ``e < n`` over loops that the write's indices do not use, with ``e`` zero at their start."""
    own = {id(lp.var): lp.var for lp in write.loops}
    variables = nodes_of(guard.a, Var)
    if any(id(v) not in own or v in loops for v in variables):
        return False
    start = substitute(guard.a, {v: IntImm(0, v.dtype) for v in variables})
    return isinstance(start, IntImm) and start.value == 0


def run_space(realize: BlockRealize, loops: Sequence[For], analyzer: Analyzer) -> list[Bounds] | None:
    """The box of a block's iteration space that it runs over ``loops``, each point once; None when it is not a box."""
    space = Buffer("space", tuple(it.extent for it in realize.block.iter_vars))
    box = tuple(Range(v, IntImm(1)) for v in realize.iter_values)
    for loop in loops:
        analyzer.bind(loop.var, loop.extent)
    if any(not is_one(lp.extent) and not any(uses(v, lp.var) for v in realize.iter_values) for lp in loops):
        return None
    return exact_box(Access(space, box, True, tuple(loops), (), tuple(conjuncts(realize.predicate))), loops, analyzer)

"""rolling_buffer: keep a window of an intermediate buffer, which advances with a loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...ir.expr import IntImm, PrimExpr, const, logical_and, logical_or
from ...ir.simplify import Analyzer
from ...ir.visitor import Rewriter, substitute
from ..nodes import (
    SERIAL,
    UNROLLED,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IterVar,
    PrimFunc,
    SeqStmt,
)
from .access import Access, accesses_in
from .affine import Bounds, interval, is_one, mentions
from .blocks import rebuilt
from .caching import chosen
from .dependence import bind_loops, common_loops, exact_box
from .legality import all_accesses, check_complete, check_intermediate, check_only_writer, split_by_block
from .tree import (
    ScheduleError,
    analyzer_at,
    block_path,
    find_block,
    loop_path,
    loops_above,
    replace_stmts,
    single_store,
    with_allocs,
)

STEP = "rolling_buffer"


@dataclass(frozen=True)
class _Axis:
    """An axis of the buffer along which windows overlap.

    One iteration of ``loop`` writes ``extent`` elements from ``loop.var * stride`` on; ``it``: the block's variable.
    """

    axis: int
    loop: For
    stride: int
    extent: int
    it: IterVar


@dataclass(frozen=True)
class _Window:
    """A block that writes windows of a buffer. around: the loops around all uses; found: the function's accesses."""

    func: PrimFunc
    realize: BlockRealize
    buffer: Buffer
    around: tuple[For, ...]
    found: list[Access]

    @property
    def name(self) -> str:
        return self.realize.block.name

    def error(self, why: str) -> ScheduleError:
        return ScheduleError(f"{STEP}: {why}")


def rolling_buffer(func: PrimFunc, name: str, index: int) -> PrimFunc:
    """Shrink a buffer that a block writes to a window, and skip the elements that the iteration before has computed.

    The block and its readers are inside one loop, as after ``compute_at``, whose iterations write windows that overlap.
    The outermost such axis becomes circular: index ``i`` is stored at ``i % extent``. Of producers in a chain, the last
    one is rolled first. Raises ScheduleError unless every reader stays within the window of its iteration.
    """
    realize, found = find_block(func, name), all_accesses(func)
    buffer = chosen(STEP, name, "writes", [r.buffer for r in realize.block.writes], index)
    check_complete(STEP, found, realize)
    check_intermediate(STEP, func, buffer)
    check_only_writer(STEP, found, realize, buffer)
    window = _Window(func, realize, buffer, _loops_around(func, name, buffer, found), found)
    axes = _axes(window)
    rolled = min(axes, key=lambda a: window.around.index(a.loop))
    _check_loops(window, rolled)
    _check_readers(window, rolled)
    _check_inputs(window, rolled)
    guarded = replace(realize, predicate=logical_and(realize.predicate, *(_is_new(window, a) for a in axes)))
    func = replace_stmts(func, {realize: guarded})
    shape = tuple(const(rolled.extent, s.dtype) if i == rolled.axis else s for i, s in enumerate(buffer.shape))
    small = replace(buffer, shape=shape)
    func = replace(func, body=_Fold(buffer, small, rolled)(func.body))
    return with_allocs(func, (small,), (buffer,))


def _loops_around(func: PrimFunc, name: str, buffer: Buffer, found: Sequence[Access]) -> tuple[For, ...]:
    """The loops around a block that are around all accesses of a buffer."""
    touching = [a for a in found if a.buffer is buffer]
    count = min(common_loops(touching[0], a) for a in touching)
    shared = {id(lp.var) for lp in touching[0].loops[:count]}
    around = tuple(lp for lp in loops_above(block_path(func, name)) if id(lp.var) in shared)
    if len(touching) == 1 or all(a.block_name == name for a in touching) or not around:
        raise ScheduleError(
            f"{STEP}: no loop is around block {name!r} and all readers of {buffer.name!r}; use compute_at first"
        )
    return around


# -- windows ------------------------------------------------------------------------------------------------------


def _axes(w: _Window) -> list[_Axis]:
    """The axes along which the windows of consecutive iterations of a loop overlap."""
    store = single_store(w.realize.block)
    analyzer = analyzer_at(loop_path(w.func, w.around[-1].var))
    writes = [a for a in accesses_in(w.around[-1].body) if a.buffer is w.buffer and a.is_write and not a.is_init]
    bind_loops(analyzer, *writes)
    box = exact_box(writes[0], writes[0].loops, analyzer) if len(writes) == 1 else None
    if box is None:
        raise w.error(f"what block {w.name!r} writes to {w.buffer.name!r} is not known to be a box")
    iters = {id(it.var): it for it in w.realize.block.iter_vars}
    axes: list[_Axis] = []
    for axis, (bounds, index) in enumerate(zip(box, store.indices, strict=True)):
        found = _overlap(w, bounds, analyzer)
        if found is not None and id(index) in iters and all(a.loop is not found[0] for a in axes):
            axes.append(_Axis(axis, *found, iters[id(index)]))
    if not axes:
        names = ", ".join(repr(lp.var.name) for lp in w.around)
        raise w.error(
            f"what block {w.name!r} writes to {w.buffer.name!r} does not overlap between iterations of {names}"
        )
    return axes


def _overlap(w: _Window, bounds: Bounds, analyzer: Analyzer) -> tuple[For, int, int] | None:
    """The loop that moves a window, by how much, and the window's extent; None when windows do not overlap."""
    low, extent = analyzer.linear(bounds[0]), analyzer.simplify(bounds[1] - bounds[0] + 1)
    if low.const or len(low.terms) != 1 or not isinstance(extent, IntImm):
        return None
    ((atom, stride),) = low.terms.values()
    loop = next((lp for lp in w.around if lp.var is atom), None)
    return (loop, stride, extent.value) if loop is not None and 0 < stride < extent.value else None


def _is_new(w: _Window, a: _Axis) -> PrimExpr:
    """Whether the element was not computed by the iteration before: the first one computes all."""
    position = w.realize.block.iter_vars.index(a.it)
    value = w.realize.iter_values[position]
    inside = Analyzer().simplify(substitute(value, {a.loop.var: const(0, a.loop.var.dtype)}))
    return logical_or(a.loop.var < 1, inside >= a.extent - a.stride)


# -- legality -----------------------------------------------------------------------------------------------------


def _check_loops(w: _Window, rolled: _Axis) -> None:
    """Raise ScheduleError unless the iterations that share the buffer all run, one after the other."""
    around = w.around[w.around.index(rolled.loop) :]
    for loop in around:
        if loop.kind not in (SERIAL, UNROLLED):
            raise w.error(f"loop {loop.var.name!r} around block {w.name!r} is {loop.kind}")
        if mentions(loop.extent, {id(lp.var) for lp in around}):
            raise w.error(f"the extent of loop {loop.var.name!r} around block {w.name!r} depends on other loops")
    path = loop_path(w.func, around[-1].var)
    if any(not isinstance(s, For | SeqStmt) for s in path[path.index(rolled.loop) :]):
        raise w.error(f"a condition lies between loop {rolled.loop.var.name!r} and block {w.name!r}")


def _check_readers(w: _Window, rolled: _Axis) -> None:
    """Raise ScheduleError unless every reader stays in the window of its iteration."""
    analyzer = analyzer_at(loop_path(w.func, w.around[-1].var))
    first = rolled.loop.var * rolled.stride
    for a in accesses_in(w.around[-1].body):
        if a.buffer is not w.buffer or a.is_write or a.block_name == w.name:
            continue
        bind_loops(analyzer, a)
        r = a.box[rolled.axis]
        bounds = interval(r.min, {lp.var: lp.extent for lp in a.loops}, analyzer)
        low, high = bounds or (first - 1, first)
        if not (analyzer.prove(low >= first) and analyzer.prove(high + r.extent <= first + rolled.extent)):
            raise w.error(
                f"block {a.block_name!r} reads {w.buffer.name!r} outside of what one iteration of "
                f"{w.around[-1].var.name!r} writes"
            )


def _check_inputs(w: _Window, rolled: _Axis) -> None:
    """Raise ScheduleError unless an element has the same value in all iterations that compute it."""
    pending, known = [w.realize], {id(w.realize)}
    while pending:
        realize = pending.pop()
        _check_determined(w, realize.block)
        read = {id(a.buffer) for a in split_by_block(w.found, realize)[0] if not a.is_write}
        for write in (a for a in w.found if a.is_write and id(a.buffer) in read and _is_inside(a, rolled.loop)):
            if id(write.blocks[-1]) not in known:
                check_complete(STEP, w.found, write.blocks[-1])
                check_only_writer(STEP, w.found, write.blocks[-1], write.buffer)
                known.add(id(write.blocks[-1]))
                pending.append(write.blocks[-1])


def _is_inside(a: Access, loop: For) -> bool:
    return any(lp.var is loop.var for lp in a.loops)


def _check_determined(w: _Window, block: Block) -> None:
    """Raise ScheduleError unless the index of an element says for which spatial variables the block computed it."""
    indices = single_store(block).indices
    spatial = [it for it in block.iter_vars if it.kind == "S" and not is_one(it.extent)]
    missing = [it.var.name for it in spatial if all(i is not it.var for i in indices)]
    if missing:
        raise w.error(f"what block {block.name!r} writes may differ between values of {', '.join(missing)}")


# -- the circular axis --------------------------------------------------------------------------------------------


class _Fold(Rewriter):
    """Replaces a buffer by its window, of which one axis is circular."""

    def __init__(self, old: Buffer, new: Buffer, rolled: _Axis):
        self.old, self.new, self.rolled = old, new, rolled

    def _folded(self, indices: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        axis = self.rolled.axis
        return tuple(i % self.rolled.extent if n == axis else i for n, i in enumerate(self(indices)))

    def rewrite_BufferLoad(self, node: BufferLoad) -> BufferLoad:
        return (
            BufferLoad(self.new, self._folded(node.indices)) if node.buffer is self.old else self.rewrite_children(node)
        )

    def rewrite_BufferStore(self, node: BufferStore) -> BufferStore:
        value = self(node.value)
        if node.buffer is self.old:
            return BufferStore(self.new, value, self._folded(node.indices))
        return BufferStore(node.buffer, value, self(node.indices))

    def rewrite_Block(self, node: Block) -> Block:
        body, init = self(node.body), self(node.init)
        if body is node.body and init is node.init:
            return node
        return replace(node, body=body) if node.name == "root" else rebuilt(node, body, init)

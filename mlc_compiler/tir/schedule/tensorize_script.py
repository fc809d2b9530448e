"""tensorize by statements: replace a loop nest by the implementation that a user registered for its computation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...ir.expr import IntImm, PrimExpr, Var
from ...ir.simplify import key
from ...ir.visitor import substitute, uses
from ..nodes import Buffer, BufferLoad, BufferRegion, BufferStore, PrimFunc, Range
from ..script_intrin import ScriptIntrin
from .blockize import blockize
from .blocks import rebuilt
from .partition import FreshCopy
from .tensorize import Matcher, nest_of, update_nest
from .tree import analyzer_at, block_path, find_block, find_loop, replace_stmts, root_of


def tensorize_script(func: PrimFunc, var: Var, intrin: ScriptIntrin) -> PrimFunc:
    """Replace the loop nest rooted at ``var`` by the statements of ``intrin``.

    The nest must have the loop extents and the expression of ``intrin.desc``. Each of its buffers must match a box of a
    buffer of the function along that buffer's last axes; the other axes must not vary in the nest. A predicate may
    guard the statements as a whole. A reduction must have been decomposed.
    The statements are wrapped in a block, as by ``blockize``.
    """
    update_nest(find_loop(func, var))
    func, name = blockize(func, var)
    realize = find_block(func, name)
    nest, pattern = nest_of(realize.block.body), nest_of(root_of(intrin.desc).block.body)
    matcher = _BoxMatcher(intrin.name, intrin.desc, nest, pattern, analyzer_at(block_path(func, name)))
    matcher.match()
    boxes = {id(b): matcher.boxes[id(d)] for b, d in zip(intrin.impl.buffers, intrin.desc.buffers, strict=True)}
    body = _InBoxes(boxes, f"_{name}")(root_of(intrin.impl).block.body)
    made = rebuilt(realize.block, body)
    made = replace(made, annotations={**made.annotations, "tensorized": intrin.name})
    return replace_stmts(func, {realize: replace(realize, block=made)})


@dataclass(frozen=True)
class _Box:
    """The position of an operand in a buffer, whose last axes it spans; ``start``: the indices of its first element."""

    buffer: Buffer
    start: tuple[PrimExpr, ...]

    def at(self, indices: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
        """The buffer indices of the operand's element ``indices``."""
        whole = len(self.start) - len(indices)
        inside = (start + index for start, index in zip(self.start[whole:], indices, strict=True))
        return (*self.start[:whole], *inside)


class _BoxMatcher(Matcher):
    """A Matcher that finds the boxes of operands instead of comparing strides."""

    def __init__(self, *arguments: object):
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.boxes: dict[int, _Box] = {}

    def _access(
        self, buffer: Buffer, indices: Sequence[PrimExpr], operand: Buffer, pattern: Sequence[PrimExpr]
    ) -> None:
        if buffer.dtype != operand.dtype:
            raise self.fail(f"{buffer.name!r} is {buffer.dtype}; operand {operand.name!r} is {operand.dtype}")
        whole = len(indices) - len(pattern)
        if whole < 0:
            raise self.fail(f"{buffer.name!r} has fewer axes than operand {operand.name!r}")
        loops = {p.var: n.var for p, n in zip(self.pattern.loops, self.nest.loops, strict=True)}
        inside = [i - substitute(p, loops) for i, p in zip(indices[whole:], pattern, strict=True)]
        start = tuple(self.analyzer.simplify(i) for i in (*indices[:whole], *inside))
        if any(uses(index, lp.var) for index in start for lp in self.nest.loops):
            raise self.fail(f"{buffer.name!r} is not accessed like operand {operand.name!r}")
        known = self.boxes.setdefault(id(operand), _Box(buffer, start))
        if known.buffer is not buffer or key(known.start) != key(start):
            raise self.fail(f"operand {operand.name!r} would lie at two places")


class _InBoxes(FreshCopy):
    """Copies statements over operands, redirected to the buffers of which the operands are boxes."""

    def __init__(self, boxes: dict[int, _Box], suffix: str):
        super().__init__({}, suffix)
        self.boxes = boxes

    def rewrite_BufferLoad(self, node: BufferLoad) -> BufferLoad:
        box, indices = self.boxes[id(node.buffer)], self(node.indices)
        return BufferLoad(box.buffer, box.at(indices))

    def rewrite_BufferStore(self, node: BufferStore) -> BufferStore:
        box, indices = self.boxes[id(node.buffer)], self(node.indices)
        return BufferStore(box.buffer, self(node.value), box.at(indices))

    def rewrite_BufferRegion(self, node: BufferRegion) -> BufferRegion:
        box, ranges = self.boxes[id(node.buffer)], self(node.region)
        starts = box.at([r.min for r in ranges])
        whole = len(starts) - len(ranges)
        extents = (*(IntImm(1) for _ in starts[:whole]), *(r.extent for r in ranges))
        return BufferRegion(box.buffer, tuple(Range(*pair) for pair in zip(starts, extents, strict=True)))

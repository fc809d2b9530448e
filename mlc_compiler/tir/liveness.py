"""Liveness of buffer elements in a lowered statement, and whether they are written before they are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..ir.expr import BinaryOp, Call, IntImm, PrimExpr, Var, const, is_const
from ..ir.simplify import Analyzer
from ..ir.visitor import children, nodes_of, uses
from .intrinsics import find_tensor_intrin
from .nodes import Allocate, Buffer, BufferLoad, BufferStore, Evaluate, For, IfThenElse, LetStmt, Range, SeqStmt, Stmt
from .regions import span

Box = tuple[Range, ...]
Access = tuple[Box | None, bool]  # (accessed elements, None when not known; is a write)


class Touched:
    """The buffers that statements access, memoized by statement because many queries are about the same one."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Stmt, frozenset[int]]] = {}

    def touches(self, stmt: Stmt, buffer: Buffer) -> bool:
        """Whether a lowered statement loads or stores elements of a buffer."""
        return id(buffer) in self._buffers(stmt)

    def _buffers(self, stmt: Stmt) -> frozenset[int]:
        if id(stmt) not in self._found:
            own = {id(load.buffer) for load in nodes_of(_expressions(stmt), BufferLoad)}
            own |= {id(stmt.buffer)} if isinstance(stmt, BufferStore) else set()
            self._found[id(stmt)] = stmt, frozenset(own).union(*map(self._buffers, _statements(stmt)))
        return self._found[id(stmt)][1]


def live_box(
    stmt: Stmt,
    buffer: Buffer,
    touched: Touched,
    loops: Mapping[Var, PrimExpr] | None = None,
    threads: frozenset[int] = frozenset(),
) -> Box | None:
    """The box of all elements of ``buffer`` that a statement accesses; None when it is not known.

    touched: the buffers that statements access. loops: variables and extents of the loops around the statement.
    threads: those of them (by identity) all of whose iterations count; the others are in one iteration.
    """
    finder = _LiveBox(buffer, touched)
    for var, extent in (loops or {}).items():
        finder.analyzer.bind(var, extent)
    finder.visit(stmt, {var: extent for var, extent in (loops or {}).items() if id(var) in threads})
    return finder.union() if finder.known and finder.boxes else None


def written_before_read(stmt: Stmt, buffer: Buffer, touched: Touched) -> bool:
    """Whether every element of ``buffer`` that a statement reads was written earlier in the same execution of it.

    Conservative: False when it cannot be proved.
    """
    checker = _WrittenFirst(buffer, touched)
    checker.visit(stmt, [])
    return checker.holds


def accesses_of(stmt: Stmt, buffer: Buffer) -> Iterator[Access]:
    """The accesses of a statement to ``buffer``, excluding nested statements: reads, then writes."""
    if isinstance(stmt, Evaluate) and isinstance(stmt.value, Call) and stmt.value.op.startswith("intrinsic."):
        yield from _instruction(stmt.value, buffer)
        return
    for expr in _expressions(stmt):
        yield from ((box, False) for box in _reads(expr, buffer))
    if isinstance(stmt, BufferStore) and stmt.buffer is buffer:
        yield _point(stmt.indices), True


def _point(indices: Sequence[PrimExpr]) -> Box:
    return tuple(Range(i, IntImm(1)) for i in indices)


def _reads(expr: object, buffer: Buffer) -> list[Box | None]:
    """The elements of ``buffer`` that an expression reads, load by load; None where it takes an address."""
    loads = [load for load in nodes_of(expr, BufferLoad) if load.buffer is buffer]
    if not loads:
        return []
    calls = [call for call in nodes_of(expr, Call) if call.op == "address_of"]
    addressed = {id(load) for load in nodes_of(calls, BufferLoad)}
    return [None if id(load) in addressed else _point(load.indices) for load in loads]


def _instruction(call: Call, buffer: Buffer) -> Iterator[Access]:
    """The accesses of an instruction: operands are addresses with the extents of a box; the first ones are written."""
    row = find_tensor_intrin(call.op.removeprefix("intrinsic."))
    writes: list[Access] = []
    for position, operand in enumerate(call.args):
        load, *extents = operand.args if isinstance(operand, Call) and operand.op == "address_of" else (operand,)
        if not isinstance(load, BufferLoad) or load.buffer is not buffer:
            yield from ((box, False) for box in _reads(load, buffer))
            continue
        yield from ((box, False) for box in _reads(load.indices, buffer))
        box = tuple(map(Range, load.indices, extents)) if len(extents) == len(load.indices) else None
        if position < row.written:
            writes.append((box, True))
        if position >= row.written or row.accumulates:
            yield box, False
    yield from writes


def _expressions(stmt: Stmt) -> list[PrimExpr | tuple[Any, ...]]:
    """The expressions directly inside a statement, and tuples of them."""
    return [] if isinstance(stmt, SeqStmt) else [c for c in children(stmt) if isinstance(c, PrimExpr | tuple)]


def _statements(stmt: Stmt) -> Sequence[Stmt]:
    """The statements directly inside a lowered statement."""
    return stmt.stmts if isinstance(stmt, SeqStmt) else [c for c in children(stmt) if isinstance(c, Stmt)]


def _depends(node: object, hidden: set[int]) -> bool:
    """Whether an expression is unknown outside the analysed statement: it loads a buffer or uses hidden variables."""
    return any(isinstance(n, BufferLoad) or id(n) in hidden for n in nodes_of(node, BufferLoad, Var))


class _LiveBox:
    """Collects the boxes of all accesses to a buffer, widened over the loops inside the statement."""

    def __init__(self, buffer: Buffer, touched: Touched):
        self.buffer = buffer
        self.touched = touched
        self.analyzer = Analyzer()
        self.boxes: list[Box] = []
        self.known = True

    def visit(self, stmt: Stmt, inner: dict[Var, PrimExpr | None]) -> None:
        """Visit a statement; ``inner``: the variables defined inside, with their loop extent or None for a let."""
        if not self.touched.touches(stmt, self.buffer):
            return
        for box, _ in accesses_of(stmt, self.buffer):
            widened = None if box is None else self._widened(box, inner)
            self.known &= widened is not None
            self.boxes += [widened] if widened is not None else []
        if isinstance(stmt, For):
            self.analyzer.bind(stmt.var, stmt.extent)
            inner = {**inner, stmt.var: stmt.extent}
        elif isinstance(stmt, LetStmt):
            inner = {**inner, stmt.var: None}
        for child in _statements(stmt):
            self.visit(child, inner)

    def _widened(self, box: Box, inner: dict[Var, PrimExpr | None]) -> Box | None:
        loops = {var: extent for var, extent in inner.items() if extent is not None}
        hidden = {id(var) for var in inner}
        result = []
        for r, size in zip(box, self.buffer.shape, strict=True):
            start = span(r.min, loops, self.analyzer)
            if start is None or _depends((start, r.extent), hidden):
                start = self._constant_span(r.min, size)
            if start is None or _depends((start, r.extent), hidden):
                return None
            result.append(Range(start.min, self._upper_bound(self.analyzer.simplify(start.extent + r.extent - 1))))
        return tuple(result)

    def _upper_bound(self, extent: PrimExpr) -> PrimExpr:
        """The constant upper bound of an extent; the extent itself when there is none."""
        bound = self.analyzer.bounds_of(extent)[1]
        return extent if bound is None else const(bound, extent.dtype)

    def _constant_span(self, index: PrimExpr, size: PrimExpr) -> Range | None:
        """The constant range of the values of an index along an axis of ``size`` elements, or None."""
        low, high = self.analyzer.bounds_of(index)
        last = self.analyzer.bounds_of(size - 1)[1]
        if low is None or high is None or last is None:
            return None
        low, high = max(low, 0), min(high, last)
        return Range(const(low, index.dtype), const(high - low + 1, index.dtype))

    def union(self) -> Box | None:
        result = self.boxes[0]
        for box in self.boxes[1:]:
            axes = [self._hull(a, b) for a, b in zip(result, box, strict=True)]
            if None in axes:
                return None
            result = tuple(a for a in axes if a is not None)
        return result

    def _hull(self, a: Range, b: Range) -> Range | None:
        """The hull of two ranges; None when their order cannot be proved."""
        prove, simplify = self.analyzer.prove, self.analyzer.simplify
        first, last = (a, b) if prove(a.min <= b.min) else (b, a)
        if not prove(first.min <= last.min):
            return None
        reach = simplify(last.min - first.min + last.extent)
        if prove(reach <= first.extent):
            return first
        return Range(first.min, reach) if prove(first.extent <= reach) else None


class _WrittenFirst:
    """Walks statements in order of execution and tracks the boxes that are definitely written."""

    def __init__(self, buffer: Buffer, touched: Touched):
        self.buffer = buffer
        self.touched = touched
        self.analyzer = Analyzer()
        self.holds = True
        self.counting: set[int] = set()  # variables of enclosing loops that are zero at the first execution

    def visit(self, stmt: Stmt, known: list[Box]) -> list[Box]:
        """Check a statement that runs after ``known`` was written; return the boxes that it definitely writes."""
        if not self.touched.touches(stmt, self.buffer):
            return []
        new: list[Box] = []
        for box, written in accesses_of(stmt, self.buffer):
            if written:
                new += [box] if box is not None else []
            else:
                self.holds &= box is not None and any(self._inside(box, k) for k in known)
        if isinstance(stmt, For):
            return self._loop(stmt, known)
        if isinstance(stmt, IfThenElse):
            return self._branch(stmt, known)
        if isinstance(stmt, LetStmt):
            self.analyzer.let(stmt.var, stmt.value)
        for child in _statements(stmt):
            new += self.visit(child, [*known, *new])
        if isinstance(stmt, LetStmt):
            return [box for box in new if not uses(box, stmt.var)]
        return new if isinstance(stmt, SeqStmt | BufferStore | Evaluate | Allocate) else []

    def _loop(self, loop: For, known: list[Box]) -> list[Box]:
        self.analyzer.bind(loop.var, loop.extent)
        self.counting.add(id(loop.var))
        inside = [self._over(loop, box) for box in self.visit(loop.body, known)]
        self.counting.discard(id(loop.var))
        return [box for box in inside if box is not None]

    def _branch(self, stmt: IfThenElse, known: list[Box]) -> list[Box]:
        """Visit a conditional; a branch taken where loop variables are 0 (an ``init``) precedes later statements."""
        zero, outer = _zero_variables(stmt.condition), self.counting
        initial = zero <= outer and bool(zero) and stmt.else_case is None
        self.counting = outer if initial else set()
        new = self.visit(stmt.then_case, known)
        if stmt.else_case is not None:
            self.visit(stmt.else_case, known)
        self.counting = outer
        own = [box for box in new if not any(id(var) in zero for var in nodes_of(box, Var))]
        return own if initial else []

    def _over(self, loop: For, box: Box) -> Box | None:
        """The union of the boxes of all iterations; None when it has gaps or the loop may be empty."""
        axes = [i for i, r in enumerate(box) if uses(r, loop.var)]
        if not axes:
            return box if self.analyzer.prove(loop.extent >= 1) else None
        r = box[axes[0]]
        stride = self.analyzer.linear(r.min).terms.get(("Var", id(loop.var)), (None, 0))[1]
        start = span(r.min, {loop.var: loop.extent}, self.analyzer)
        if len(axes) > 1 or start is None or uses(r.extent, loop.var) or not is_const(r.extent, stride):
            return None
        extent = self.analyzer.simplify(start.extent + r.extent - 1)
        return (*box[: axes[0]], Range(start.min, extent), *box[axes[0] + 1 :])

    def _inside(self, box: Box, known: Box) -> bool:
        prove = self.analyzer.prove
        pairs = zip(box, known, strict=True)
        return all(prove(k.min <= r.min) and prove(r.min + r.extent <= k.min + k.extent) for r, k in pairs)


def _zero_variables(condition: PrimExpr) -> set[int]:
    """The variables of a conjunction of comparisons ``v == 0``; empty for other conditions."""
    if isinstance(condition, BinaryOp) and condition.op == "and":
        a, b = _zero_variables(condition.a), _zero_variables(condition.b)
        return a | b if a and b else set()
    if not isinstance(condition, BinaryOp) or condition.op != "==" or not is_const(condition.b, 0):
        return set()
    return {id(condition.a)} if isinstance(condition.a, Var) else set()

"""Expansion of hardware instructions to loops over their operands' elements, by the semantics of their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlc_errors import MLCError

from ....ir.expr import Call, PrimExpr, Var, const
from ....ir.simplify import Analyzer
from ....ir.visitor import Rewriter, substitute, uses
from ....passes.lower_blocks import lower_blocks
from ....tir.calling import flat_index
from ....tir.intrinsics import Operand, TensorIntrin, find_tensor_intrin
from ....tir.nodes import (
    Allocate,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    PrimFunc,
    SeqStmt,
    Stmt,
    loop_nest,
    seq,
)

PREFIX = "intrinsic."


def row_of(stmt: object) -> TensorIntrin | None:
    """The table row of an instruction; None for any other statement."""
    call = stmt.value if isinstance(stmt, Evaluate) else None
    if not isinstance(call, Call) or not call.op.startswith(PREFIX):
        return None
    return find_tensor_intrin(call.op.removeprefix(PREFIX))


def instruction_loops(stmt: Evaluate, lane: Var | None, first_lane: PrimExpr, analyzer: Analyzer) -> Stmt:
    """The loops that compute an instruction; an empty statement for one without semantics, such as a barrier.

    lane: the index variable of the threads that execute an instruction of several lanes together, from ``first_lane``
    on. Results are computed as a whole before they are written, as operands may overlap.
    Raises MLCError for a scalar, or an operand that is not ``per_lane``, that differs between lanes.
    """
    row, call = row_of(stmt), stmt.value
    assert row is not None and isinstance(call, Call)
    if row.semantics is None:
        return SeqStmt(())
    view = _View(row, None if row.lanes == 1 else lane, first_lane, analyzer)
    places = [view.place(o, a) for o, a in zip(row.operands, call.args, strict=False)]
    temporaries = [_temporary(function.buffers[-1]) for function in row.results]
    computed = [_compute(view, f, places[1:], call.args[len(places) :], t) for f, t in zip(row.results, temporaries)]
    written = [_write(view, row, place, t) for place, t in zip(places, temporaries, strict=False)]
    body = seq(*computed, *written)
    for temporary in temporaries:
        body = Allocate(temporary, body)
    return body


def _temporary(result: Buffer) -> Buffer:
    return Buffer(f"{result.name}_new", result.shape, result.dtype, "local")


def _compute(
    view: _View, function: PrimFunc, inputs: Sequence[_Place], scalars: Sequence[PrimExpr], temporary: Buffer
) -> Stmt:
    """Store the result of one of a row's semantic functions to ``temporary``."""
    variables = [p for p in function.params if isinstance(p, Var)]
    values = {var: view.same(value, var.name) for var, value in zip(variables, scalars, strict=True)}
    places = {id(p): place for p, place in zip(function.buffers, inputs, strict=False)}
    body = _Operands(view, places, function.buffers[-1], temporary)(lower_blocks(function).body)
    return substitute(body, values)


@dataclass(frozen=True)
class _Place:
    """An operand and the load at its address, which depends on the lane if the operand is ``per_lane``."""

    operand: Operand
    load: BufferLoad


def _write(view: _View, row: TensorIntrin, result: _Place, temporary: Buffer) -> Stmt:
    loops = [(Var(f"i{axis}"), size) for axis, size in enumerate(temporary.shape)]
    index = tuple(var for var, _ in loops)
    for var, size in loops:
        view.analyzer.bind(var, size)
    target = view.element(result, index)
    value: PrimExpr = BufferLoad(temporary, index)
    return loop_nest(loops, BufferStore(target.buffer, target + value if row.accumulates else value, target.indices))


@dataclass
class _View:
    """Maps elements of operands to elements of the buffers that their addresses point into."""

    row: TensorIntrin
    lane: Var | None
    first_lane: PrimExpr
    analyzer: Analyzer

    def place(self, operand: Operand, address: PrimExpr) -> _Place:
        load = address.args[0] if isinstance(address, Call) and address.op == "address_of" else None
        if not isinstance(load, BufferLoad):
            raise MLCError(f"{self.row.name}: the operand {operand.name!r} is not given by an address")
        if operand.per_lane:
            return _Place(operand, load)
        return _Place(operand, BufferLoad(load.buffer, tuple(self.same(i, operand.name) for i in load.indices)))

    def same(self, value: PrimExpr, name: str) -> PrimExpr:
        """Return a value that is the same for all lanes. Raises MLCError for any other."""
        if self.lane is None:
            return value
        value = self.analyzer.simplify(value)
        if uses(value, self.lane):
            raise MLCError(f"{self.row.name}: {name!r} is not the same for all of its {self.row.lanes} lanes")
        return value

    def element(self, place: _Place, index: Sequence[PrimExpr]) -> BufferLoad:
        """The element of an operand at an index; the elements from its address on are row-major."""
        shape, load = place.operand.shape, place.load
        if place.operand.per_lane:
            assert self.lane is not None
            load = substitute(load, {self.lane: self.first_lane + index[0]})
            shape, index = shape[1:], index[1:]
        offset: PrimExpr = const(0, "int64")
        for i, size in zip(index, shape, strict=True):
            offset = offset * size + i
        return self._shifted(load, self.analyzer.simplify(offset))

    def _shifted(self, load: BufferLoad, offset: PrimExpr) -> BufferLoad:
        """The element ``offset`` elements after ``load`` in memory."""
        simplify, sizes = self.analyzer.simplify, load.buffer.shape
        last = simplify(load.indices[-1] + offset)
        if self.analyzer.prove(last < sizes[-1]):
            return BufferLoad(load.buffer, (*load.indices[:-1], last))
        flat = flat_index(load.buffer, load.indices) + offset
        indices: list[PrimExpr] = []
        for size in reversed(sizes[1:]):
            indices.append(simplify(flat % size))
            flat = flat // size
        return BufferLoad(load.buffer, (simplify(flat), *reversed(indices)))


class _Operands(Rewriter):
    """Replaces the parameters of a row's semantics by its operands."""

    def __init__(self, view: _View, places: Mapping[int, _Place], result: Buffer, temporary: Buffer):
        self.view, self.places, self.result, self.temporary = view, places, result, temporary

    def rewrite_For(self, node: For) -> Stmt:
        self.view.analyzer.bind(node.var, node.extent)
        return self.rewrite_children(node)

    def rewrite_BufferLoad(self, node: BufferLoad) -> PrimExpr:
        indices = self(node.indices)
        if node.buffer is self.result:
            return BufferLoad(self.temporary, indices)
        place = self.places.get(id(node.buffer))
        return BufferLoad(node.buffer, indices) if place is None else self.view.element(place, indices)

    def rewrite_BufferStore(self, node: BufferStore) -> Stmt:
        buffer = self.temporary if node.buffer is self.result else node.buffer
        return BufferStore(buffer, self(node.value), self(node.indices))

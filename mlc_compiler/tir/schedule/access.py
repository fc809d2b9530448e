"""Collects the buffer accesses of a statement, in terms of the enclosing loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ...ir.expr import BinaryOp, Call, IntImm, Let, PrimExpr, Var, conjuncts
from ...ir.simplify import key
from ...ir.visitor import nodes_of, substitute
from ..intrinsics import find_tensor_intrin
from ..nodes import (
    Allocate,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    Range,
    SeqStmt,
    Stmt,
    While,
)

REDUCTION_OPS = ("+", "*", "min", "max")


@dataclass(frozen=True)
class Access:
    """One load or store. ``box`` (ranges of indices) and ``guards`` are expressions over the variables of ``loops``.

    loops: the enclosing loops inside the analysed statement, outermost first. place: the position of each enclosing
    statement among its siblings, so that earlier accesses have lexicographically smaller places. blocks: the enclosing
    block realizations, outermost first; values: the values of their variables. update: whether the access is part of a
    commutative update of an accumulator; is_init: whether it is in a reduction's ``init``.
    """

    buffer: Buffer
    box: tuple[Range, ...]
    is_write: bool
    loops: tuple[For, ...]
    place: tuple[int, ...]
    guards: tuple[PrimExpr, ...]
    blocks: tuple[BlockRealize, ...] = ()
    values: Mapping[Var, PrimExpr] = field(default_factory=dict)
    update: bool = False
    is_init: bool = False

    @property
    def block_name(self) -> str:
        return self.blocks[-1].block.name if self.blocks else "a loop body"


def accesses_in(stmt: Stmt) -> list[Access]:
    """All buffer accesses in a statement, in order of execution; block variables and lets replaced by their values."""
    collector = _Collector()
    collector.stmt(stmt, _Context({}))
    return collector.found


def is_commutative_update(block: Block) -> bool:
    """Whether the block's body is ``x[i] = x[i] op value`` with ``op`` one of ``+ * min max`` and no other ``x``."""
    return isinstance(block.body, BufferStore) and update_operand(block.body) is not None


def update_operand(store: BufferStore) -> PrimExpr | None:
    """Return ``value`` of ``x[i] = x[i] op value``; None when the store has another form."""
    value = store.value
    if not (isinstance(value, BinaryOp) and value.op in REDUCTION_OPS):
        return None
    for own, other in ((value.a, value.b), (value.b, value.a)):
        if _is_own(own, store) and not any(load.buffer is store.buffer for load in nodes_of(other, BufferLoad)):
            return other
    return None


def _is_own(expr: PrimExpr, store: BufferStore) -> bool:
    return isinstance(expr, BufferLoad) and expr.buffer is store.buffer and key(expr.indices) == key(store.indices)


class _Context(NamedTuple):
    """The surroundings of a statement, as in ``Access``. env: values of block variables and lets."""

    env: Mapping[Var, PrimExpr]
    loops: tuple[For, ...] = ()
    place: tuple[int, ...] = ()
    guards: tuple[PrimExpr, ...] = ()
    blocks: tuple[BlockRealize, ...] = ()
    is_init: bool = False

    def at(self, position: int) -> _Context:
        """The context of the child at a position."""
        return self._replace(place=(*self.place, position))

    def under(self, *conditions: PrimExpr) -> _Context:
        """The context of what runs where the conditions hold."""
        return self._replace(guards=(*self.guards, *conditions))

    def access(self, buffer: Buffer, box: tuple[Range, ...], is_write: bool, update: bool = False) -> Access:
        return Access(
            buffer, box, is_write, self.loops, self.place, self.guards, self.blocks, self.env, update, self.is_init
        )


class _Collector:
    def __init__(self) -> None:
        self.found: list[Access] = []

    def stmt(self, s: Stmt, c: _Context) -> None:
        if isinstance(s, SeqStmt):
            for i, child in enumerate(s.stmts):
                self.stmt(child, c.at(i))
        elif isinstance(s, For):
            self._for(s, c)
        elif isinstance(s, BlockRealize):
            self._realize(s, c)
        elif isinstance(s, BufferStore):
            self._store(s, c)
        elif isinstance(s, IfThenElse):
            self._if(s, c)
        elif isinstance(s, LetStmt):
            self.loads(s.value, c)
            self.stmt(s.body, c._replace(env={**c.env, s.var: substitute(s.value, c.env)}))
        elif isinstance(s, Evaluate):
            self._evaluate(s, c)
        elif isinstance(s, While):
            self.loads(s.condition, c)
            self.stmt(s.body, c.under(substitute(s.condition, c.env)))
        elif isinstance(s, Allocate):
            self.stmt(s.body, c)

    def _for(self, s: For, c: _Context) -> None:
        self.loads(s.extent, c)
        extent = substitute(s.extent, c.env)
        loop = s if extent is s.extent else replace(s, extent=extent)
        self.stmt(s.body, c.at(0)._replace(loops=(*c.loops, loop)))

    def _realize(self, s: BlockRealize, c: _Context) -> None:
        self.loads((s.iter_values, s.predicate), c)
        values = {it.var: substitute(v, c.env) for it, v in zip(s.block.iter_vars, s.iter_values, strict=True)}
        inner = c.under(*[substitute(g, c.env) for g in conjuncts(s.predicate)])
        inner = inner._replace(env={**c.env, **values}, blocks=(*c.blocks, s))
        if s.block.init is not None:
            self.stmt(s.block.init, inner.at(0)._replace(is_init=True))
        self.stmt(s.block.body, inner.at(1))

    def _if(self, s: IfThenElse, c: _Context) -> None:
        self.loads(s.condition, c)
        condition = substitute(s.condition, c.env)
        self.stmt(s.then_case, c.under(condition).at(0))
        if s.else_case is not None:
            self.stmt(s.else_case, c.under(BinaryOp("==", condition, IntImm(0, "bool"))).at(1))

    def _store(self, s: BufferStore, c: _Context) -> None:
        own = update_operand(s) is not None
        update = own and bool(c.blocks) and is_commutative_update(c.blocks[-1].block)
        self.loads((s.value, s.indices), c, s.buffer if update else None)
        self.found.append(c.access(s.buffer, _points(s.indices, c.env), True, update))

    def loads(self, node: object, c: _Context, updated: Buffer | None = None) -> None:
        """Add the loads of an expression; those of ``updated`` belong to a commutative update."""
        env = c.env
        parts: list[BufferLoad | Let] = nodes_of(node, BufferLoad, Let)
        for part in parts:
            if isinstance(part, Let):
                env = {**env, part.var: substitute(part.value, env)}
            else:
                self.found.append(c.access(part.buffer, _points(part.indices, env), False, part.buffer is updated))

    def _evaluate(self, s: Evaluate, c: _Context) -> None:
        """Add the accesses of a call: an instruction reads its operands and writes the first ones; a hint has none.

        Other calls may read and write all their buffers.
        """
        assert isinstance(s.value, Call)
        name = s.value.op.removeprefix("intrinsic.")
        instruction = find_tensor_intrin(name) if name != s.value.op else None
        if instruction is not None and instruction.hint:
            return
        for i, (load, extents) in enumerate(_operands(s.value)):
            if extents:
                box = tuple(Range(substitute(m, c.env), e) for m, e in zip(load.indices, extents, strict=True))
            else:
                box = tuple(Range(IntImm(0), size) for size in load.buffer.shape)
            self.found.append(c.access(load.buffer, box, False))
            if instruction is None or i < instruction.written:
                self.found.append(c.access(load.buffer, box, True))


def _points(indices: Sequence[PrimExpr], env: Mapping[Var, PrimExpr]) -> tuple[Range, ...]:
    """The box of one element, with variables replaced by their values."""
    return tuple([Range(index, IntImm(1)) for index in substitute(tuple(indices), env)])


def _operands(call: PrimExpr) -> Iterator[tuple[BufferLoad, tuple[PrimExpr, ...]]]:
    """The operands of a call: loads whose addresses it takes, with the extents of the box if given, and elements."""
    addressed: set[int] = set()
    for node in nodes_of(call, Call, BufferLoad):
        if isinstance(node, Call) and node.op == "address_of" and isinstance(node.args[0], BufferLoad):
            addressed.add(id(node.args[0]))
            yield node.args[0], node.args[1:]
        elif isinstance(node, BufferLoad) and id(node) not in addressed:
            yield node, ()

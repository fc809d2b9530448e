"""Collects the buffer accesses of a statement, in terms of the enclosing loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ...ir.expr import BinaryOp, Call, IntImm, Let, PrimExpr, Var, conjuncts
from ...ir.simplify import key
from ...ir.visitor import substitute, walk
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
    return list(_Collector().stmt(stmt, _Context({})))


def is_commutative_update(block: Block) -> bool:
    """Whether the block's body is ``x[i] = x[i] op value`` with ``op`` one of ``+ * min max`` and no other ``x``."""
    return isinstance(block.body, BufferStore) and update_operand(block.body) is not None


def update_operand(store: BufferStore) -> PrimExpr | None:
    """Return ``value`` of ``x[i] = x[i] op value``; None when the store has another form."""
    value = store.value
    if not (isinstance(value, BinaryOp) and value.op in REDUCTION_OPS):
        return None
    for own, other in ((value.a, value.b), (value.b, value.a)):
        if _is_own(own, store) and not any(isinstance(n, BufferLoad) and n.buffer is store.buffer for n in walk(other)):
            return other
    return None


def _is_own(expr: PrimExpr, store: BufferStore) -> bool:
    return isinstance(expr, BufferLoad) and expr.buffer is store.buffer and key(expr.indices) == key(store.indices)


@dataclass(frozen=True)
class _Context:
    env: Mapping[Var, PrimExpr]
    loops: tuple[For, ...] = ()
    place: tuple[int, ...] = ()
    guards: tuple[PrimExpr, ...] = ()
    blocks: tuple[BlockRealize, ...] = ()
    is_init: bool = False


class _Collector:
    def stmt(self, s: Stmt, c: _Context) -> Iterator[Access]:
        if isinstance(s, SeqStmt):
            for i, child in enumerate(s.stmts):
                yield from self.stmt(child, replace(c, place=(*c.place, i)))
        elif isinstance(s, For):
            yield from self.loads(s.extent, c)
            loop = replace(s, extent=substitute(s.extent, c.env))
            yield from self.stmt(s.body, replace(c, loops=(*c.loops, loop), place=(*c.place, 0)))
        elif isinstance(s, BlockRealize):
            yield from self._realize(s, c)
        elif isinstance(s, BufferStore):
            yield from self._store(s, c)
        elif isinstance(s, IfThenElse):
            yield from self._if(s, c)
        elif isinstance(s, LetStmt):
            yield from self.loads(s.value, c)
            yield from self.stmt(s.body, replace(c, env={**c.env, s.var: substitute(s.value, c.env)}))
        elif isinstance(s, Evaluate):
            yield from self._evaluate(s, c)
        elif isinstance(s, While):
            yield from self.loads(s.condition, c)
            yield from self.stmt(s.body, replace(c, guards=(*c.guards, substitute(s.condition, c.env))))
        elif isinstance(s, Allocate):
            yield from self.stmt(s.body, c)

    def _realize(self, s: BlockRealize, c: _Context) -> Iterator[Access]:
        yield from self.loads((s.iter_values, s.predicate), c)
        values = {it.var: substitute(v, c.env) for it, v in zip(s.block.iter_vars, s.iter_values, strict=True)}
        guards = (*c.guards, *(substitute(g, c.env) for g in conjuncts(s.predicate)))
        inner = replace(c, env={**c.env, **values}, guards=guards, blocks=(*c.blocks, s), place=(*c.place, 0))
        if s.block.init is not None:
            yield from self.stmt(s.block.init, replace(inner, is_init=True))
        yield from self.stmt(s.block.body, replace(inner, place=(*c.place, 1)))

    def _if(self, s: IfThenElse, c: _Context) -> Iterator[Access]:
        yield from self.loads(s.condition, c)
        condition = substitute(s.condition, c.env)
        yield from self.stmt(s.then_case, replace(c, guards=(*c.guards, condition), place=(*c.place, 0)))
        if s.else_case is not None:
            otherwise = BinaryOp("==", condition, IntImm(0, "bool"))
            yield from self.stmt(s.else_case, replace(c, guards=(*c.guards, otherwise), place=(*c.place, 1)))

    def _store(self, s: BufferStore, c: _Context) -> Iterator[Access]:
        own = update_operand(s) is not None
        update = own and bool(c.blocks) and is_commutative_update(c.blocks[-1].block)
        for access in self.loads((s.value, s.indices), c):
            yield replace(access, update=update) if own and access.buffer is s.buffer else access
        box = tuple(Range(substitute(i, c.env), IntImm(1)) for i in s.indices)
        yield replace(_access(s.buffer, box, True, c), update=update)

    def loads(self, node: object, c: _Context) -> Iterator[Access]:
        env = dict(c.env)
        for part in walk(node):
            if isinstance(part, Let):
                env[part.var] = substitute(part.value, env)
            elif isinstance(part, BufferLoad):
                yield _access(part.buffer, tuple(Range(substitute(i, env), IntImm(1)) for i in part.indices), False, c)

    def _evaluate(self, s: Evaluate, c: _Context) -> Iterator[Access]:
        """Yield the accesses of a call: an instruction reads its operands and writes the first ones; a hint has none.

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
            yield _access(load.buffer, box, False, c)
            if instruction is None or i < instruction.written:
                yield _access(load.buffer, box, True, c)


def _access(buffer: Buffer, box: tuple[Range, ...], is_write: bool, c: _Context) -> Access:
    return Access(buffer, box, is_write, c.loops, c.place, c.guards, c.blocks, c.env, False, c.is_init)


def _operands(call: PrimExpr) -> Iterator[tuple[BufferLoad, tuple[PrimExpr, ...]]]:
    """The operands of a call: loads whose addresses it takes, with the extents of the box if given, and elements."""
    addressed: set[int] = set()
    for node in walk(call):
        if isinstance(node, Call) and node.op == "address_of" and isinstance(node.args[0], BufferLoad):
            addressed.add(id(node.args[0]))
            yield node.args[0], node.args[1:]
        elif isinstance(node, BufferLoad) and id(node) not in addressed:
            yield node, ()

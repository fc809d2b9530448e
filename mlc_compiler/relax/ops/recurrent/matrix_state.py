"""Base class of recurrences whose state is a matrix per head and whose columns are updated independently."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from ....ir.expr import IntImm, PrimExpr, Var
from ....tir import te
from ....tir.nodes import PARALLEL, Allocate, Buffer, BufferStore, For, LetStmt, Stmt, buffer, seq
from ...info import show_shape, static_size
from .places import Lanes, Places


@dataclass(frozen=True)
class Element:
    """The element at row i and column c of head h's state, at token t."""

    t: PrimExpr
    h: PrimExpr
    i: PrimExpr
    c: PrimExpr


class MatrixRecurrence(ABC):
    """Builds the statements of an operator whose state, float32 [slots, L, H, K, V], has K rows for each head.

    A subclass is a dataclass of the operator's parameters and ``width``, the number of columns per SIMD tile.
    Results are the state, written in place, and y [n, H, V] in v's dtype, 0 for a token without a state; sums are
    float32.

    A step replaces each element ``old`` of the state by ``updated(old)`` and adds ``seen(old, new)`` to its column's y.
    With ``recalls``, ``memory`` is the sum of ``recalled(old)`` over the rows, before the update.
    """

    name: ClassVar[str]
    recalls: ClassVar[bool] = False

    state: te.Tensor
    v: te.Tensor
    slots: te.Tensor
    token_seq: te.Tensor
    token_pos: te.Tensor
    layer: PrimExpr
    width: int

    def __post_init__(self) -> None:
        heads, rows, columns = map(static_size, self.state.shape[2:]) if self.state.ndim == 5 else (None,) * 3
        if heads is None or rows is None or columns is None or self.state.dtype != "float32":
            got = f"{self.state.dtype}{show_shape(self.state.shape)}"
            raise ValueError(f"state: got {got}; expected float32 [slots, L, H, K, V] of known H, K and V")
        self.heads, self.rows, self.lanes = heads, rows, Lanes(columns, self.width)
        self.places = Places(self.state.shape[0], self.slots, self.token_seq, self.token_pos)
        self.y = self.result()
        self.memory, self.total = (buffer(name, (self.width,), scope="local") for name in ("memory", "total"))
        self.scratch = [self.memory, self.total] if self.recalls else [self.total]

    def require(self, sizes: tuple[int, ...], **tensors: te.Tensor) -> None:
        """Raise ValueError for a tensor whose last axes do not have these sizes."""
        for name, tensor in tensors.items():
            if tuple(map(static_size, tensor.shape[max(tensor.ndim - len(sizes), 0) :])) != sizes:
                raise ValueError(f"{name}: got {show_shape(tensor.shape)}; expected {show_shape(sizes)} as last axes")

    def result(self) -> Buffer:
        """Create the buffer y."""
        self.require((self.heads, self.lanes.size), v=self.v)
        return buffer("y", self.v.shape, self.v.dtype)

    def initial(self, at: Element) -> PrimExpr:
        """The initial value of a column's result, to which ``seen`` is added; it must not depend on ``at.i``."""
        return te.f32(0)

    def recalled(self, at: Element, old: PrimExpr) -> PrimExpr:
        """The summand of an element in its column's ``memory``."""
        raise NotImplementedError

    @abstractmethod
    def updated(self, at: Element, old: PrimExpr, memory: PrimExpr) -> PrimExpr:
        """The new value of an element."""

    @abstractmethod
    def seen(self, at: Element, old: PrimExpr, new: PrimExpr) -> PrimExpr:
        """The summand of an element in its column's result."""

    def results(self) -> list[te.Tensor]:
        """The operator's results, as tensors of a schedulable function."""
        return self._of(te.each((self.heads, self.lanes.tiles), self.name, self._tile, self.scratch))

    def parallel_results(self) -> list[te.Tensor]:
        """The results, computed by one parallel loop over the tiles of columns of all heads."""
        item, tiles = Var("item"), self.lanes.tiles
        body = self._tile(item // tiles, item % tiles)
        for scratch in self.scratch:
            body = Allocate(scratch, body)
        return self._of(For(item, IntImm(self.heads * tiles), body, PARALLEL))

    def _of(self, body: Stmt) -> list[te.Tensor]:
        inputs = [operand for operand in vars(self).values() if isinstance(operand, te.Tensor)]
        return [te.updated(self.state, inputs, body), *te.extern([self.y], inputs, body)]

    def _tile(self, h: PrimExpr, tile: PrimExpr) -> Stmt:
        """Process all tokens for a tile of columns of one head."""

        def skip(t: PrimExpr) -> Stmt:
            return self.lanes.each(tile, lambda _, c: self._store(t, h, c, te.f32(0)))

        return self.places.each_token(lambda t, slot: self._step(t, h, tile, slot), skip)

    def _step(self, t: PrimExpr, h: PrimExpr, tile: PrimExpr, slot: PrimExpr) -> Stmt:
        total, state, i = self.total, self.state.buffer, Var("i")
        old, new = Var("old", "float32"), Var("new", "float32")

        def update(lane: PrimExpr, c: PrimExpr) -> Stmt:
            at, place = Element(t, h, i, c), (slot, self.layer, h, i, c)
            add = BufferStore(total, total[lane] + self.seen(at, old, new), (lane,))
            changed = self.updated(at, old, self.memory[lane])
            return LetStmt(old, state[place], LetStmt(new, changed, seq(BufferStore(state, new, place), add)))

        return seq(
            *([self._recall(t, h, tile, slot)] if self.recalls else []),
            self.lanes.each(tile, lambda lane, c: BufferStore(total, self.initial(Element(t, h, i, c)), (lane,))),
            For(i, IntImm(self.rows), self.lanes.each(tile, update)),
            self.lanes.each(tile, lambda lane, c: self._store(t, h, c, total[lane])),
        )

    def _recall(self, t: PrimExpr, h: PrimExpr, tile: PrimExpr, slot: PrimExpr) -> Stmt:
        memory, i = self.memory, Var("i")

        def add(lane: PrimExpr, c: PrimExpr) -> Stmt:
            term = self.recalled(Element(t, h, i, c), self.state.buffer[slot, self.layer, h, i, c])
            return BufferStore(memory, memory[lane] + term, (lane,))

        return seq(self._zero(memory, tile), For(i, IntImm(self.rows), self.lanes.each(tile, add)))

    def _zero(self, sums: Buffer, tile: PrimExpr) -> Stmt:
        return self.lanes.each(tile, lambda lane, _: BufferStore(sums, te.f32(0), (lane,)))

    def _store(self, t: PrimExpr, h: PrimExpr, c: PrimExpr, value: PrimExpr) -> Stmt:
        return BufferStore(self.y, te.cast(value, self.y.dtype), (t, h, c))
